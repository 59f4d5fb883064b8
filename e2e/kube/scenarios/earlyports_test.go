//go:build kube

package scenarios

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestEarlyPorts: pods have their ports in NB while kubelet still waits for a volume, before any ADD. The ADD of one
// pod takes its port over. The other pod is deleted, and gives its port back.
func TestEarlyPorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	withVolume := func(name string) string {
		return strings.Replace(pod(name, "node1", "blue"), "  containers:",
			"  volumes: [{name: late, configMap: {name: late}}]\n  containers:", 1)
	}
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)))
	w.Must(w.Apply(w.Ctx, withVolume("stays")+withVolume("goes")))
	for _, name := range []string{"stays", "goes"} {
		uid := string(w.getPod("default/" + name).UID)
		w.Must(lab.Eventually(w.Ctx, func() error {
			if row := w.portOf(name); !strings.Contains(row, "early-"+uid) {
				return fmt.Errorf("pod %s has the port %q, want one with the UID %s", name, row, uid)
			}
			return nil
		}))
	}
	w.Must(w.Delete(w.Ctx, pod("goes", "node1", "blue")))
	w.Must(w.WaitGone(w.Ctx, "default/goes"))
	w.Must(lab.Eventually(w.Ctx, func() error {
		if row := w.portOf("goes"); row != "" {
			return fmt.Errorf("the pod is gone, its port is %q", row)
		}
		return nil
	}))
	w.Must(w.Apply(w.Ctx, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: late, namespace: default}\n"))
	w.Must(w.WaitReady(w.Ctx, "default/stays"))
	w.consistent("stays", []string{"eth0", "net1"})
	if row := w.portOf("stays"); row == "" || strings.Contains(row, "early-") {
		t.Errorf("the pod runs, its port is %q", row)
	}
	w.Must(w.Delete(w.Ctx, pod("stays", "node1", "blue")))
	w.Must(w.WaitGone(w.Ctx, "default/stays"))
	w.Must(lab.Eventually(w.Ctx, w.nothingLeft))
}

// portOf is the external_ids of the port of a pod's net1; "": NB has no such port.
func (w *world) portOf(name string) string {
	return strings.TrimSpace(w.nbctl("--bare", "--columns=external_ids", "find", "Logical_Switch_Port", "name=default/"+name+"/net1"))
}
