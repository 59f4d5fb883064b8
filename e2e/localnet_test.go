package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// grantedVLANs are those of the physical network "provider" that the namespaces shop and web may use.
const grantedVLANs = `physicalNetworks:
  provider:
  - {vlans: "untagged,100,200", namespaces: [shop, web]}
`

// newWireWorld has two nodes with the physical network, and a controller with that configuration.
func newWireWorld(t *testing.T, config string) *world {
	t.Helper()
	return newWorld(t, lab.Options{Nodes: 2, Physical: provider}, func(l *lab.Lab) { controllerConfig(t, l, config) })
}

// onVLAN is a provider's network that pods and machines outside share; all of them have the same subnets.
func onVLAN(vlan int, keys string) string {
	tag := ""
	if vlan != 0 {
		tag = fmt.Sprintf(`"vlanID":%d,`, vlan)
	}
	return fmt.Sprintf(`{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"provider",%s%s
		"subnets":"10.50.0.0/24,fd50::/64","excludeSubnets":"10.50.0.0/28,fd50::/124"}`, tag, keys)
}

// TestLocalnet: an untagged and two tagged networks of the provider's on one bridge; machines outside reach the pods in their
// own VLAN, and nobody else's.
func TestLocalnet(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, grantedVLANs)
	vlans := []int{0, 100, 200}
	var outside []*lab.Outside
	var pods, peers []*lab.Pod
	for _, vlan := range vlans {
		name := fmt.Sprintf("v%d", vlan)
		// The same addresses in each VLAN: whoever answers is who is there.
		outside = append(outside, w.outside("out"+name, vlan, "10.50.0.9/24", "fd50::9/64"))
		w.network(name, onVLAN(vlan, ""))
		pods, peers = append(pods, w.attached(0, "a"+name, name)), append(peers, w.attached(1, "b"+name, name))
	}
	for i := range vlans {
		for _, p := range []*lab.Pod{pods[i], peers[i]} {
			w.consistent(p, []string{"net1"})
			equal(t, "who is seen outside of "+p.String(), w.seenFrom(p, outside[i], "10.50.0.9", "fd50::9"), w.inCore(p))
			w.mustReach(outside[i], w.inCore(p)...)
		}
		w.mustReach(pods[i], w.inCore(peers[i])...)
	}
	heard, err := outside[1].Capture()
	w.must(err)
	defer heard.Close()
	for i := range vlans {
		for j := range vlans {
			// An address that two VLANs have says nothing.
			if ip := w.inCore(pods[j])[0]; i != j && !strings.Contains(strings.Join(append(w.inCore(pods[i]), w.inCore(peers[i])...), " ")+" ", ip+" ") {
				w.mustNotReach(outside[i], "eth0", ip)
			}
		}
	}
	echoes, err := heard.Echoes()
	w.must(err)
	equal(t, "what was heard in VLAN 100 of the others' search", fmt.Sprint(echoes), "[]")
	equal(t, "MTU", w.links(pods[0])["net1"].MTU, w.linkMTU(w.Nodes[0], "br-ex"))

	t.Run("the VLAN stays while pods are there", func(t *testing.T) {
		w := w.sub(t)
		row := w.portRow(pods[1], "net1")
		w.end(pods[2], peers[2])
		w.endNetworks("v200")
		w.nad("v100", onVLAN(200, ""))
		w.notReady("v100", "vlanID: 100 cannot become 200, with 2 ports on the network")
		w.mustReach(outside[1], w.inCore(pods[1])...)
		for _, ip := range w.inCore(pods[1]) {
			w.mustNotReach(outside[2], "eth0", ip)
		}
		w.network("v100", onVLAN(100, ""))
		equal(t, "port of the running pod", fmt.Sprint(w.portRow(pods[1], "net1")), fmt.Sprint(row))
	})
	t.Run("the VLAN changes when they are gone", func(t *testing.T) {
		w := w.sub(t)
		w.end(pods[1], peers[1])
		w.network("v100", onVLAN(200, ""))
		pods[1], peers[1] = w.attached(0, "again", "v100"), w.attached(1, "once-more", "v100")
		w.mustReach(outside[2], w.inCore(pods[1])...)
		w.mustReach(pods[1], w.inCore(peers[1])...)
		for _, ip := range w.inCore(pods[1]) {
			w.mustNotReach(outside[1], "eth0", ip)
		}
	})
	t.Run("shown", func(t *testing.T) {
		w := w.sub(t)
		out, err := w.Multinet(w.ctx, "network", "show", "shop/v100")
		w.must(err)
		if !strings.Contains(out, "provider, VLAN 200") || !strings.Contains(out, "localnet") {
			t.Errorf("kubectl multinet does not say which network of the provider's it is:\n%s", out)
		}
	})
	w.end(pods[0], pods[1], peers[0], peers[1])
	w.endNetworks("v0", "v100")
	w.asBeforeOutside()
}

// linkMTU reads the MTU of a link of a node.
func (w *world) linkMTU(n *lab.Node, name string) int {
	w.t.Helper()
	out, err := n.Exec(w.ctx, "ip", "-json", "link", "show", name)
	w.must(err)
	var list []lab.Link
	w.must(json.Unmarshal([]byte(out), &list))
	return list[0].MTU
}

// TestLocalnetWithoutMapping: a pod on a node that is not connected to the provider's network fails and says so, and nothing
// is made of any of its networks; when the node is connected it comes up with no other help.
func TestLocalnetWithoutMapping(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, grantedVLANs)
	w.network("plain", onVLAN(0, ""))
	_, err := w.Nodes[1].VSCtl(w.ctx, "remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
	w.must(err)
	w.base = w.snapshot()
	p := w.pod(1, "web", "blue,plain")
	for _, c := range []struct{ mapping, says string }{
		{"", "node2 has no bridge for physicalNetworkName provider"},
		{"other:br-ex", "node2 has no bridge for physicalNetworkName provider"},
		{"provider:br-none", "node2 has no bridge br-none, which ovn-bridge-mappings names for provider"},
	} {
		if c.mapping != "" {
			_, err := w.Nodes[1].VSCtl(w.ctx, "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings="+c.mapping)
			w.must(err)
		}
		w.eventually(func() error { // the agent hears of the setting by itself
			_, err := p.Add(w.ctx)
			w.refused(err, conf.CodeTryAgain, "interface net2", "shop/plain")
			w.must(p.Del(w.ctx))
			w.must(p.RemoveNetNS())
			again, sandboxErr := p.NewSandbox(w.ctx)
			w.must(sandboxErr)
			if p = again; !strings.Contains(err.Error(), c.says) {
				return fmt.Errorf("got %v, want %q", err, c.says)
			}
			return nil
		})
		equal(t, "ports in NB", w.portsOf(p), "")
	}
	_, err = w.Nodes[1].VSCtl(w.ctx, "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=provider:br-ex")
	w.must(err)
	p = w.retried(p)
	outside := w.outside("out", 0, "10.50.0.9/24", "fd50::9/64")
	w.mustReach(outside, w.links(p)["net2"].IPs()...)
	w.end(p)
	w.endNetworks("plain")
}
