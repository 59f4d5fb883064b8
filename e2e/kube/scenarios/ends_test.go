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
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)))
	w.Must(w.Apply(w.Ctx, pod("first", "node1", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/first"))
	w.Must(w.Northd.Pause())
	w.Must(w.Apply(w.Ctx, pod("a", "node1", "blue")))
	w.Must(lab.Eventually(w.Ctx, func() error {
		out, err := w.NBCtl(w.Ctx, "--bare", "--columns=name", "find", "Logical_Switch_Port", "name=default/a/net1")
		if err == nil && strings.TrimSpace(out) == "" {
			err = fmt.Errorf("the ADD has not written its port yet")
		}
		return err
	}))
	w.Must(w.Client.CoreV1().Pods("default").Delete(w.Ctx, "a", metav1.DeleteOptions{}))
	w.Must(w.Northd.Resume())
	w.Must(w.WaitGone(w.Ctx, "default/a"))
	w.Must(w.Delete(w.Ctx, pod("first", "node1", "blue")))
	w.Must(w.WaitGone(w.Ctx, "default/first"))
	w.Must(lab.Eventually(w.Ctx, w.nothingLeft))
}

// TestCertificatesRotated replaces authority, server's and clients' certificates. The same agents and the same
// controller go on, with the files that kubelet has put in place meanwhile.
func TestCertificatesRotated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.ours()
	_, secrets, err := w.ServeNBOverTLS(w.Ctx, "ovn-multinet")
	w.Must(err)
	w.Must(w.Apply(w.Ctx, secrets))
	w.Must(w.NB.Restart(w.Ctx)) // ends the connections that stand
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)))
	w.Must(w.Apply(w.Ctx, pod("a", "node1", "blue")+pod("b", "node2", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b"))
	w.reaches("a", "net1", w.links("b")["net1"].ips()[0])
	if after := w.ours(); after != before {
		t.Errorf("the product's pods were restarted:\n%s\nbefore:\n%s", after, before)
	}
}

// ours lists the product's pods with the starts of their containers.
func (w *world) ours() string {
	list, err := w.Client.CoreV1().Pods("ovn-multinet").List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	var lines []string
	for _, p := range list.Items {
		for _, c := range p.Status.ContainerStatuses {
			lines = append(lines, fmt.Sprintf("%s %s %s %d", p.Name, p.UID, c.Name, c.RestartCount))
		}
	}
	return strings.Join(lines, "\n")
}
