package check

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podOf is a pod of ours on a node.
func podOf(app, name, node string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}}
	p.Spec.NodeName = node
	return p
}

// Root of a node reads the keys of its pods. A cluster that shows no control plane has no better nodes.
func TestPlaces(t *testing.T) {
	c := installed()
	for i, app := range []string{controllerApp, centralApp} {
		c.Pods = append(c.Pods, podOf(app, fmt.Sprint("good-", i), "node1"), podOf(app, "pending", ""))
	}
	judged(t, c.checkPlaces())
	c.Nodes[0].Labels[controlPlane] = ""
	says(t, c.checkPlaces(), "places", "controllers and OVN's databases run on control planes")
	for i, app := range []string{controllerApp, centralApp} {
		c.Pods = append(c.Pods, podOf(app, fmt.Sprint("bad-", i), "node2"))
	}
	judged(t, c.checkPlaces(),
		"warning places: root can read the controllers' token, and the node is no control plane (pod bad-0) on node2",
		"warning places: root can read the key of OVN's databases, and the node is no control plane (pod bad-1) on node2")
}
