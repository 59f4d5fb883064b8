//go:build kube

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestFreshInstall: agents and controllers whose Secrets come after them wait for them, say so, and are never restarted.
func TestFreshInstall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.neverRestarted()
	secrets := w.Client.CoreV1().Secrets(ours)
	var taken []*corev1.Secret
	for _, name := range []string{kube.AgentNBSecret, kube.ControllerNBSecret} {
		s, err := secrets.Get(w.Ctx, name, metav1.GetOptions{})
		w.Must(err)
		s.ObjectMeta = metav1.ObjectMeta{Name: name}
		taken = append(taken, s)
		w.Must(secrets.Delete(w.Ctx, name, metav1.DeleteOptions{}))
	}
	old := w.ours()
	w.kubectl("--namespace", ours, "delete", "pods", "--all")
	programs := map[string]string{"app=ovn-multinet-agent": "agent", "app=ovn-multinet-controller": "controller"}
	for selector, container := range programs {
		w.Must(lab.Eventually(w.Ctx, func() error {
			log, err := w.Kubectl(w.Ctx, "--namespace", ours, "logs", "--selector", selector, "--container", container, "--tail=-1")
			if err == nil && strings.Count(log, "waiting for the files of the certificate") < len(w.Nodes) {
				err = fmt.Errorf("the log of %s: %s", container, log)
			}
			return err
		}))
	}
	for _, s := range taken {
		_, err := secrets.Create(w.Ctx, s, metav1.CreateOptions{})
		w.Must(err)
	}
	w.Must(w.WaitRollout(w.Ctx))
	w.neverRestarted()
	if now := w.ours(); now == old {
		t.Error("the pods are the old ones")
	}
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+pod("a", "node1", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/a"))
	w.neverRestarted()
}

// neverRestarted wants that no container of ours was restarted, but those of some names.
func (w *world) neverRestarted(but ...string) {
	w.T.Helper()
	list, err := w.Client.CoreV1().Pods(ours).List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	if len(list.Items) == 0 {
		w.T.Error("there are no pods of ours")
	}
	for _, p := range list.Items {
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			if c.RestartCount > 0 && !slices.Contains(but, c.Name) {
				log, _ := w.Kubectl(w.Ctx, "--namespace", ours, "logs", "--previous", "--container", c.Name, p.Name)
				w.T.Errorf("%s of %s was restarted %d times; it said\n%s", c.Name, p.Name, c.RestartCount, log)
			}
		}
	}
}
