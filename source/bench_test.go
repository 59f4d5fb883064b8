package source

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
)

// BenchmarkPolicyPod is what the controller does with each version of each pod that the API server sends. Most pods
// request no networks.
func BenchmarkPolicyPod(b *testing.B) {
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-0", UID: "1", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{"example.org/note": "text"},
	}}
	attached := plain.DeepCopy()
	var names, status []string
	for i := range 8 {
		names = append(names, fmt.Sprintf(`{"name":"net-%d","ips":["10.%d.0.7"]}`, i, i))
		status = append(status, fmt.Sprintf(`{"name":"shop/net-%d","interface":"net%d","ips":["10.%d.0.7"],"mac":"0a:58:0a:00:00:07"}`, i, i+1, i))
	}
	attached.Annotations[conf.NetworksAnnotation] = "[" + strings.Join(names, ",") + "]"
	attached.Annotations[nad.StatusAnnotation] = "[" + strings.Join(status, ",") + "]"
	for name, pod := range map[string]*corev1.Pod{"plain": plain, "8 networks": attached} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				policyPod(pod)
			}
		})
	}
}
