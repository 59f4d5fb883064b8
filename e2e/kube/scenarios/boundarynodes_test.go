//go:build kube

package scenarios

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// attackNodes: the controller's token changes nothing of a node but our taint and our label, and adds the taint only to a
// node that never had the label.
func (s *thief) attackNodes() {
	nodes := s.core.CoreV1().Nodes()
	patch := func(node, body string, subresources ...string) error {
		_, err := nodes.Patch(s.Ctx, node, types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
		return err
	}
	dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	s.Must(lab.Eventually(s.Ctx, func() error {
		_, err := nodes.Patch(s.Ctx, "node2", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), dry)
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the policy of nodes is not in force yet: %w", err)
		}
		return nil
	}))
	s.Must(lab.Eventually(s.Ctx, func() error { return s.nodeIsReleased("node2") }))
	before := s.ofNode("node2")
	const (
		noLabel     = "changes no label of a node but its own"
		noTaint     = "changes no taint of a node but"
		neverReady  = "only to a node that was never ready"
		nothingElse = "changes neither annotations, finalizers, owners nor anything else"
		our         = `{"key":"ovn-multinet/not-ready","effect":"NoSchedule"}`
	)
	for _, a := range []struct{ what, body, words string }{
		{"label a node", `{"metadata":{"labels":{"node-role.kubernetes.io/gateway":""}}}`, noLabel},
		{"take our label", `{"metadata":{"labels":{"ovn-multinet/ready":null}}}`, noLabel},
		{"change our label", `{"metadata":{"labels":{"ovn-multinet/ready":"no"}}}`, noLabel},
		{"take another label", `{"metadata":{"labels":{"kubernetes.io/hostname":null}}}`, noLabel},
		{"taint a node", `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`, noTaint},
		{"taint a node beside ours", `{"spec":{"taints":[` + our + `,{"key":"a","effect":"NoExecute"}]}}`, noTaint},
		{"taint a node again", `{"spec":{"taints":[` + our + `]}}`, neverReady},
		{"end a node's pods by our taint", `{"spec":{"taints":[{"key":"ovn-multinet/not-ready","effect":"NoExecute"}]}}`, neverReady},
		{"cordon a node", `{"spec":{"unschedulable":true}}`, nothingElse},
		{"annotate a node", `{"metadata":{"annotations":{"a":"b"}}}`, nothingElse},
		{"take a node's annotations", `{"metadata":{"annotations":null}}`, nothingElse},
		{"hold a node", `{"metadata":{"finalizers":["a/b"]}}`, nothingElse},
	} {
		s.cannot(a.what, a.words, patch("node2", a.body))
	}
	s.cannot("write a node's status", "cannot patch resource", patch("node2", `{"status":{"phase":"x"}}`, "status"))
	s.cannot("delete a node", "cannot delete resource", nodes.Delete(s.Ctx, "node2", metav1.DeleteOptions{}))
	_, err := nodes.Create(s.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	s.cannot("make a node", "cannot create resource", err)
	if now := s.ofNode("node2"); now != before {
		s.T.Errorf("node2 has changed:\n%s\nbefore:\n%s", now, before)
	}

	// What the controller does of a node that joins; the agents' DaemonSet does not run on this one.
	fresh := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}}
	_, err = s.Client.CoreV1().Nodes().Create(s.Ctx, fresh, metav1.CreateOptions{})
	s.Must(err)
	// Kubernetes changes the other taints of a node without a kubelet meanwhile.
	attempt := func(taint, labels string) (err error) {
		s.Must(lab.Eventually(s.Ctx, func() error {
			n, getErr := s.Client.CoreV1().Nodes().Get(s.Ctx, "fresh", metav1.GetOptions{})
			s.Must(getErr)
			others := slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "ovn-multinet/not-ready" })
			taints := strings.TrimSuffix(string(s.JSON(append([]corev1.Taint{}, others...))), "]")
			if len(others) > 0 && taint != "" {
				taints += ","
			}
			err = patch("fresh", `{"metadata":{"labels":{`+labels+`}},"spec":{"taints":`+taints+taint+`]}}`)
			if err != nil && strings.Contains(err.Error(), noTaint) {
				return err
			}
			return nil
		}))
		return err
	}
	s.cannot("end a new node's pods", neverReady, attempt(`{"key":"ovn-multinet/not-ready","effect":"NoExecute"}`, ""))
	s.cannot("taint by another value", neverReady, attempt(`{"key":"ovn-multinet/not-ready","value":"x","effect":"NoSchedule"}`, ""))
	s.Must(attempt(our, ""))
	s.Must(attempt("", `"ovn-multinet/ready":"true"`))
	s.cannot("taint a node again that was ready", neverReady, attempt(our, ""))
	s.Must(s.Client.CoreV1().Nodes().Delete(s.Ctx, "fresh", metav1.DeleteOptions{}))
}

// ofNode is what of a node the token could be after.
func (w *world) ofNode(name string) string {
	n, err := w.Client.CoreV1().Nodes().Get(w.Ctx, name, metav1.GetOptions{})
	w.Must(err)
	return string(w.JSON([]any{n.Labels, n.Annotations, n.Finalizers, n.OwnerReferences, n.Spec}))
}

// attackOurPods: of the pods the controller's token deletes agents' alone.
func (s *thief) attackOurPods(controller string) {
	pods := s.core.CoreV1().Pods(ours)
	const words = "deletes none but those of its agents"
	dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	s.cannot("delete another controller", words, pods.Delete(s.Ctx, controller, dry))
	s.cannot("delete all of ours", "cannot deletecollection resource", pods.DeleteCollection(s.Ctx, dry, metav1.ListOptions{}))
	s.cannot("delete a tenant's pod", "cannot delete resource", s.core.CoreV1().Pods("default").Delete(s.Ctx, "own", dry))
	s.Must(pods.Delete(s.Ctx, s.agentPod(s.Nodes[0]).Name, dry))
}
