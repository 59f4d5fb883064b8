package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestLocalnetUplink: agents make the bridges of a physical network whose object names the NIC, once the bridge that
// somebody made by hand is gone; pods and a machine outside reach each other, untagged and on a VLAN, until the object goes.
func TestLocalnetUplink(t *testing.T) {
	t.Parallel()
	const object = `apiVersion: ovn-multinet.io/v1alpha1
kind: PhysicalNetwork
metadata: {name: provider}
spec:
  uplinks: [{nodes: wired=yes, interface: ext0}]
  grants: [{vlans: "untagged,100", namespaces: [shop]}]
`
	w := newWorld(t, lab.Options{Nodes: 2, Physical: provider}, func(l *lab.Lab) {
		for _, n := range l.Nodes {
			text := "apiVersion: v1\nkind: Node\nmetadata:\n  name: " + n.Name + "\n  labels: {wired: \"yes\"}\n"
			if err := l.WriteManifest(n.Name+".yaml", text); err != nil {
				t.Fatal(err)
			}
		}
	})
	says := func(ready, problem string) {
		t.Helper()
		w.Eventually(func() error {
			got, err := w.statusOf("PhysicalNetwork", "provider")
			if err == nil && (got.Nodes == nil || got.Nodes.Ready != ready || !strings.Contains(got.Problem, problem)) {
				err = fmt.Errorf("the status is %+v, want %s and %q", got, ready, problem)
			}
			return err
		})
	}
	mappings := func(want string) {
		t.Helper()
		for _, n := range w.Nodes {
			w.Eventually(func() error {
				got, err := n.VSCtl(w.Ctx, "--no-wait", "--if-exists", "get", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings")
				if err == nil && strings.Trim(got, "\"\n") != want {
					err = fmt.Errorf("%s has the mappings %s, want %s", n.Name, got, want)
				}
				return err
			})
		}
	}
	w.Must(w.Lab.WriteManifest("provider.yaml", object))
	says("0/2", "another program has written provider:br-ex into ovn-bridge-mappings of this node")
	for _, n := range w.Nodes {
		w.VSCtl(n, "del-br", "br-ex", "--", "remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
	}
	says("2/2", "")
	mappings("provider:br-provider")
	var all []*lab.Pod
	for _, vlan := range []int{0, 100} {
		name := fmt.Sprintf("v%d", vlan)
		w.network(name, onVLAN(vlan, ""))
		outside := w.outside("out"+name, vlan, "10.50.0.9/24", "fd50::9/64")
		a, b := w.Attached(0, "a"+name, name), w.Attached(1, "b"+name, name)
		w.MustReach(outside, w.inCore(a)...)
		w.MustReach(a, w.inCore(b)...)
		w.MustReach(b, "10.50.0.9", "fd50::9")
		equal(t, "MTU", w.Links(a)["net1"].MTU, w.linkMTU(w.Nodes[0], "br-provider"))
		all = append(all, a, b)
	}
	w.Must(w.Lab.WriteManifest("provider.yaml", "# nothing\n")) // its users keep nothing in a folder: it is gone at once
	mappings("")
	for _, n := range w.Nodes {
		if out := w.VSCtl(n, "list-br"); strings.Contains(out, "br-provider") {
			t.Errorf("%s still has the bridge: %s", n.Name, out)
		}
	}
	w.End(all...)
	w.endNetworks("v0", "v100")
}
