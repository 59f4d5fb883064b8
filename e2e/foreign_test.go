package e2e

import (
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// quick is how often the controllers of these tests look for ports without a pod.
const quick = "--orphan-period=200ms"

// TestForeignPort has a VM of somebody else's on a network, at an address that is excluded: it and the pods reach each
// other, and nothing that the product does takes it away.
func TestForeignPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) { l.ControllerArgs = []string{quick} })
	const config = `{"type":"ovn-multinet","subnets":"10.20.0.0/24","excludeSubnets":"10.20.0.128/25"}`
	w.network("lan", config)
	const mac, ip = "02:00:00:00:80:09", "10.20.0.200"
	_, err := w.NBCtl(w.ctx, "lsp-add", "shop/lan", "vm", "--", "lsp-set-addresses", "vm", mac+" "+ip)
	w.must(err)
	vm, err := w.Nodes[1].NewMachine(w.ctx, "vm", mac, ip+"/24")
	w.must(err)
	far, near := w.attached(0, "far", "lan"), w.attached(1, "near", "lan")
	w.mustReach(near, ip)
	w.mustReach(vm, w.links(near)["net1"].IPs()...)
	to, from := w.pinging(far, ip), w.pinging(vm, w.links(far)["net1"].IPs()[0])
	row := w.foreignRow("vm")

	for _, c := range []struct {
		name string
		do   func(w *world)
	}{
		{"controller restarts", func(w *world) {
			w.must(w.KillController())
			w.must(w.StartController(w.ctx))
			w.settled()
		}},
		{"network changes", func(w *world) {
			w.network("lan", `{"type":"ovn-multinet","subnets":"10.20.0.0/24","excludeSubnets":"10.20.0.192/26","router":"main","mtu":1400}`)
			w.network("lan", config)
		}},
		{"change is refused", func(w *world) {
			w.nad("lan", `{"type":"ovn-multinet","subnets":"10.20.0.0/25"}`)
			w.notReady("lan", "subnets")
			w.network("lan", config)
		}},
		{"pods come and go", func(w *world) {
			for i := range 4 {
				w.end(w.attached(i%2, "guest", "lan"), w.attached((i+1)%2, "other-guest", "lan"))
			}
		}},
		{"orphans are released", func(w *world) { w.orphan(1, "lan") }},
		{"network is deleted", func(w *world) {
			w.removeNAD("lan")
			w.fenced("shop/lan")
			w.controllerSays("port vm (not ours)")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{Lab: w.Lab, t: t, ctx: w.ctx}
			c.do(w)
			to.goesOn()
			from.goesOn()
			equal(t, "the port", w.foreignRow("vm"), row)
		})
	}
	to.stop()
	from.stop()

	// The pods are gone: what is on the network still is named, and keeps it until it goes too.
	w.end(far, near)
	w.controllerSays(`"used by port vm (not ours)"`)
	w.settled()
	equal(t, "the port without pods", w.foreignRow("vm"), row)
	w.network("lan", config)
	back := w.attached(0, "back", "lan")
	w.mustReach(back, ip)
	w.end(back)
	w.removeNAD("lan")
	w.fenced("shop/lan")
	_, err = w.NBCtl(w.ctx, "lsp-del", "vm")
	w.must(err)
	w.must(vm.Close(w.ctx))
	w.endNetworks("lan")
	w.asBefore()
}

// foreignRow is a port that is not ours, with what its owner wrote.
func (w *world) foreignRow(name string) string {
	w.t.Helper()
	out, err := w.NBCtl(w.ctx, "--columns=_uuid,name,type,addresses,port_security,options,external_ids", "list", "Logical_Switch_Port", name)
	w.must(err)
	return out
}

// portsOf lists the rows of a pod's ports, and the claims that hang on them.
func (w *world) portsOf(p *lab.Pod) string {
	w.t.Helper()
	ports, err := w.NBCtl(w.ctx, "--bare", "--columns=name", "find", "Logical_Switch_Port",
		"external_ids:ovn-multinet/namespace="+p.Namespace, "external_ids:ovn-multinet/pod="+p.Name)
	w.must(err)
	claims := ""
	for _, ifName := range []string{"net1", "net2"} {
		out, err := w.NBCtl(w.ctx, "--bare", "--columns=name", "find", "Copp", fmt.Sprintf("external_ids:ovn-multinet/port-name=%s/%s", p, ifName))
		w.must(err)
		claims += out
	}
	return ports + claims
}

// orphan attaches a pod, and takes it out of the source while its node's agent is dead: its ports go all the same.
func (w *world) orphan(node int, networks string) {
	w.t.Helper()
	p := w.attached(node, "orphan", networks)
	w.must(p.Node.KillAgent())
	w.must(p.RemoveManifest())
	w.noPorts(p)
	w.must(p.Del(w.ctx))
	w.must(p.RemoveNetNS())
	w.must(p.Node.StartAgent(w.ctx))
}

func (w *world) noPorts(p *lab.Pod) {
	w.t.Helper()
	w.eventually(func() error {
		if left := w.portsOf(p); left != "" {
			return fmt.Errorf("%s has ports or claims still: %q", p, left)
		}
		return nil
	})
}
