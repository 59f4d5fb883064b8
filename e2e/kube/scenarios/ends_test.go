//go:build kube

package scenarios

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestDeletedDuringADD: a pod that is deleted while its ADD waits for flows leaves nothing.
func TestDeletedDuringADD(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.Apply(w.ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)))
	w.must(w.Apply(w.ctx, pod("first", "node1", "blue")))
	w.must(w.WaitReady(w.ctx, "default/first"))
	w.must(w.Northd.Pause())
	w.must(w.Apply(w.ctx, pod("a", "node1", "blue")))
	w.must(lab.Eventually(w.ctx, func() error {
		out, err := w.NBCtl(w.ctx, "--bare", "--columns=name", "find", "Logical_Switch_Port", "name=default/a/net1")
		if err == nil && strings.TrimSpace(out) == "" {
			err = fmt.Errorf("the ADD has not written its port yet")
		}
		return err
	}))
	w.must(w.Client.CoreV1().Pods("default").Delete(w.ctx, "a", metav1.DeleteOptions{}))
	w.must(w.Northd.Resume())
	w.must(w.WaitGone(w.ctx, "default/a"))
	w.must(w.Delete(w.ctx, pod("first", "node1", "blue")))
	w.must(w.WaitGone(w.ctx, "default/first"))
	w.must(lab.Eventually(w.ctx, w.nothingLeft))
}

// TestCertificatesRotated replaces authority, server's and clients' certificates. The same agents and the same
// controller go on, with the files that kubelet has put in place meanwhile.
func TestCertificatesRotated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.ours()
	_, secrets, err := w.ServeNBOverTLS(w.ctx, "ovn-multinet")
	w.must(err)
	w.must(w.Apply(w.ctx, secrets))
	w.must(w.NB.Restart(w.ctx)) // ends the connections that stand
	w.must(w.Apply(w.ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)))
	w.must(w.Apply(w.ctx, pod("a", "node1", "blue")+pod("b", "node2", "blue")))
	w.must(w.WaitReady(w.ctx, "default/a", "default/b"))
	w.reaches("a", "net1", w.links("b")["net1"].ips()[0])
	if after := w.ours(); after != before {
		t.Errorf("the product's pods were restarted:\n%s\nbefore:\n%s", after, before)
	}
}

// ours lists the product's pods with the starts of their containers.
func (w *world) ours() string {
	w.t.Helper()
	list, err := w.Client.CoreV1().Pods("ovn-multinet").List(w.ctx, metav1.ListOptions{})
	w.must(err)
	var lines []string
	for _, p := range list.Items {
		for _, c := range p.Status.ContainerStatuses {
			lines = append(lines, fmt.Sprintf("%s %s %s %d", p.Name, p.UID, c.Name, c.RestartCount))
		}
	}
	return strings.Join(lines, "\n")
}
