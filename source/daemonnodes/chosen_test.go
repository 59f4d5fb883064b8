package daemonnodes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

func TestChosen(t *testing.T) {
	gpu := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}
	all := corev1.Toleration{Operator: corev1.TolerationOpExists}
	for _, tt := range []struct {
		name        string
		selector    map[string]string
		tolerations []corev1.Toleration
		taints      []corev1.Taint
		want        bool
	}{
		{"any node", nil, nil, nil, true},
		{"its label", map[string]string{"pool": "net"}, nil, nil, true},
		{"another label", map[string]string{"pool": "other"}, []corev1.Toleration{all}, nil, false},
		{"a taint", nil, nil, []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}, false},
		{"a taint that ends pods", nil, nil, []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoExecute}}, false},
		{"a taint that is tolerated", nil, []corev1.Toleration{gpu}, []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}, true},
		{"one of two", nil, []corev1.Toleration{gpu}, []corev1.Taint{
			{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}, {Key: "x", Effect: corev1.TaintEffectNoSchedule}}, false},
		{"all taints are tolerated", nil, []corev1.Toleration{all}, []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}, true},
		{"a wish", nil, nil, []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule}}, true},
		{"cordoned", nil, nil, []corev1.Taint{{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule}}, true},
		{"not initialized", nil, nil, []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}}, true},
		{"not ready for pods with networks", nil, nil, []corev1.Taint{{Key: conf.StartupTaint, Effect: corev1.TaintEffectNoSchedule}}, true},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "net"}}, Spec: corev1.NodeSpec{Taints: tt.taints}}
		if got := Chosen(&corev1.PodSpec{NodeSelector: tt.selector, Tolerations: tt.tolerations}, node); got != tt.want {
			t.Errorf("%s: chosen: %t", tt.name, got)
		}
	}
}
