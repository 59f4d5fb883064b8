// Package daemonnodes owns the answer to which nodes get a pod of a DaemonSet of ours, by labels and taints. It knows
// no affinity: the chart sets none for them.
package daemonnodes

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Chosen reports whether the pods of a DaemonSet run on the node.
func Chosen(pod *corev1.PodSpec, node *corev1.Node) bool {
	return labels.SelectorFromSet(pod.NodeSelector).Matches(labels.Set(node.Labels)) &&
		!slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return keepsAway(pod, &t) })
}

// passing are the beginnings of the keys of taints that do not say which nodes a DaemonSet is for. Kubernetes itself
// adds and removes them. All DaemonSets tolerate those of the first kind, and a cloud's taint ends when the node is
// initialized.
var passing = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"}

// keepsAway reports whether the taint keeps the pods away from the node.
func keepsAway(pod *corev1.PodSpec, taint *corev1.Taint) bool {
	if taint.Effect == corev1.TaintEffectPreferNoSchedule || taint.Key == conf.StartupTaint ||
		slices.ContainsFunc(passing, func(prefix string) bool { return strings.HasPrefix(taint.Key, prefix) }) {
		return false
	}
	return !slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(taint) })
}
