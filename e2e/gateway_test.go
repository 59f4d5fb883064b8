package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// provider is the name of the network outside.
const provider = "provider"

// gatewayConfig is of router /core, whose gateway is on nodes with the label edge: on VLAN 42, as 192.0.2.10 and
// 2001:db8::10, with the rest of the world behind 192.0.2.1 and 2001:db8::1.
const gatewayConfig = `routers:
  /core:
    namespaces:
      shop: {subnets: "10.0.0.0/8,fd00::/8", maySetSNAT: true}
    gatewayNodes: edge=yes
    physicalNetworkName: provider
    vlanID: 42
    externalSubnet: 192.0.2.0/24,2001:db8::/64
    externalAddress: 192.0.2.10,2001:db8::10
    nextHop: 192.0.2.1,2001:db8::1
`

// controllerConfig writes the controller's configuration. A controller that runs follows it.
func controllerConfig(t *testing.T, l *lab.Lab, config string) {
	t.Helper()
	path := filepath.Join(l.Dir, "controller.yaml")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	l.ControllerArgs = []string{"--config", path}
}

// newGatewayWorld has three nodes, of which these have the label, and the gateway.
func newGatewayWorld(t *testing.T, config string, edges ...int) *world {
	t.Helper()
	return newWorld(t, lab.Options{Nodes: 3, Physical: provider}, func(l *lab.Lab) {
		controllerConfig(t, l, config)
		if err := l.WriteManifest("nodes.yaml", nodesManifest(l.Nodes, edges...)); err != nil {
			t.Fatal(err)
		}
	})
}

// gatewayStands waits until the gateway is on as many nodes as it ought to be and connected there, and takes that for what
// the world is without pods.
func (w *world) gatewayStands(nodes ...int) {
	w.t.Helper()
	w.becomes(func() error {
		out, err := w.NBCtl(w.ctx, "--bare", "--columns=_uuid", "list", "HA_Chassis")
		if got := len(strings.Fields(out)); err != nil || got != len(nodes) {
			return fmt.Errorf("the gateway has %d nodes: %v", got, err)
		}
		for _, i := range nodes {
			if _, err := w.Nodes[i].VSCtl(w.ctx, "--no-wait", "get", "Port", "patch-/core:provider-to-br-int", "name"); err != nil {
				return err
			}
		}
		return nil
	})
	w.base = w.snapshot()
}

// asBeforeOutside is asBefore where OVN has connections to a provider's bridge to take away: it does so only when something
// wakes it.
func (w *world) asBeforeOutside() {
	w.t.Helper()
	w.eventually(func() error {
		_, err := w.NBCtl(w.ctx, "--wait=hv", "sync")
		w.must(err)
		if diff := w.base.Diff(w.snapshot()); diff != "" {
			return fmt.Errorf("the world is not as before:\n%s", diff)
		}
		return nil
	})
}

// nodesManifest names the nodes; those with these numbers have the label.
func nodesManifest(nodes []*lab.Node, edges ...int) string {
	var docs []string
	for i, n := range nodes {
		labels := "{}"
		if slices.Contains(edges, i) {
			labels = `{edge: "yes"}`
		}
		docs = append(docs, fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: %s}\n", n.Name, labels))
	}
	return strings.Join(docs, "---\n")
}

// outOf is the configuration of network 10.2<i>.0.0/24, fd2<i>::/64 on router /core with routes to the world.
func outOf(i int, keys string) string {
	return fmt.Sprintf(`{"type":"ovn-multinet","router":"/core","subnets":"10.%d.0.0/24,fd%d::/64",%s
		"routes":[{"dst":"192.0.2.0/24"},{"dst":"198.51.100.0/24"},{"dst":"2001:db8::/32"}]}`, 20+i, 20+i, keys)
}

// outside plugs a machine outside.
func (w *world) outside(name string, vlan int, addrs ...string) *lab.Outside {
	w.t.Helper()
	o, err := w.Outside(w.ctx, name, vlan, addrs...)
	w.must(err)
	return o
}

// seenFrom returns what source addresses a pod's pings have that reach the machine at an address.
func (w *world) seenFrom(p endpoint, at *lab.Outside, addrs ...string) []string {
	w.t.Helper()
	w.mustReach(p, addrs...)
	c, err := at.Capture()
	w.must(err)
	defer c.Close()
	for _, addr := range addrs {
		w.must(w.reaches(p, addr))
	}
	sources, err := c.Sources()
	w.must(err)
	var words []string
	for _, s := range sources {
		words = append(words, s.String())
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// inCore are a pod's addresses on its further interface, sorted.
func (w *world) inCore(p *lab.Pod) []string {
	w.t.Helper()
	return slices.Sorted(slices.Values(w.links(p)["net1"].IPs()))
}

// TestGateway: pods reach the world outside under the gateway's addresses or, where the network says so, under their own,
// and then they are reached from there too.
func TestGateway(t *testing.T) {
	t.Parallel()
	w := newGatewayWorld(t, gatewayConfig, 0, 1)
	w.gatewayStands(0, 1)
	host := w.outside("host", 42, "192.0.2.9/24", "2001:db8::9/64")
	stranger := w.outside("stranger", 43, "192.0.2.9/24", "2001:db8::9/64")
	next := w.outside("next", 42, "192.0.2.1/24", "2001:db8::1/64", "198.51.100.1/24", "2001:db8:1::1/64")
	w.must(host.Route(w.ctx, "10.22.0.0/24", "192.0.2.10"))
	w.must(host.Route(w.ctx, "fd22::/64", "2001:db8::10"))

	w.network("hidden", outOf(1, ""))
	w.network("open", outOf(2, `"snat":false,`))
	hidden, open := make([]*lab.Pod, 3), make([]*lab.Pod, 3)
	for i := range 3 { // on the gateway's nodes and on another
		hidden[i] = w.attached(i, fmt.Sprintf("hidden-%d", i), "hidden")
		open[i] = w.attached(i, fmt.Sprintf("open-%d", i), "open")
	}
	unheard, err := stranger.Capture()
	w.must(err)
	defer unheard.Close()
	snat := []string{"192.0.2.10", "2001:db8::10"}
	for i := range 3 {
		equal(t, "addresses that the host sees of "+hidden[i].String(), w.seenFrom(hidden[i], host, "192.0.2.9", "2001:db8::9"), snat)
		equal(t, "addresses that the host sees of "+open[i].String(), w.seenFrom(open[i], host, "192.0.2.9", "2001:db8::9"), w.inCore(open[i]))
		w.mustReach(host, w.inCore(open[i])...)
	}
	equal(t, "addresses that the next hop sees", w.seenFrom(hidden[2], next, "198.51.100.1", "2001:db8:1::1"), snat)
	sources, err := unheard.Sources()
	w.must(err)
	equal(t, "what was heard in another VLAN", fmt.Sprint(sources), "[]")

	t.Run("default route", func(t *testing.T) {
		w := w.sub(t)
		p := w.attached(2, "away", `[{"name":"hidden","default-route":["10.21.0.1","fd21::1"]}]`)
		w.must(next.Route(w.ctx, "203.0.113.0/24", "192.0.2.9"))
		_, err := host.Exec(w.ctx, "ip", "addr", "add", "203.0.113.1/32", "dev", "lo")
		w.must(err)
		_, err = next.Exec(w.ctx, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
		w.must(err)
		equal(t, "addresses that the far host sees", w.seenFrom(p, host, "203.0.113.1"), []string{"192.0.2.10"})
		w.end(p)
	})
	t.Run("snat switched", func(t *testing.T) {
		w := w.sub(t)
		w.network("open", outOf(2, `"snat":true,`))
		w.becomes(func() error { return w.sees(host, open[2], snat) })
		w.network("open", outOf(2, `"snat":false,`))
		w.becomes(func() error { return w.sees(host, open[2], w.inCore(open[2])) })
	})
	t.Run("run again", func(t *testing.T) {
		w := w.sub(t)
		w.settled()
		before := w.written()
		w.must(w.StopController(w.ctx))
		w.must(w.StartController(w.ctx))
		w.controllerSays("gateway is in step")
		w.settled()
		// The marks of settled write nothing to NB.
		w.nothingWritten(before)
	})
	t.Run("shown", func(t *testing.T) {
		w := w.sub(t)
		out, err := w.Multinet(w.ctx, "network", "show", "shop/hidden")
		w.must(err)
		for _, words := range []string{
			"192.0.2.10/24,2001:db8::10/64 on provider, VLAN 42", "192.0.2.1,2001:db8::1", "node1", "node2",
			"10.21.0.0/24 as 192.0.2.10", "fd21::/64 as 2001:db8::10",
		} {
			if !strings.Contains(out, words) {
				t.Errorf("kubectl multinet does not say %q:\n%s", words, out)
			}
		}
	})
	for i := range 3 {
		w.end(hidden[i], open[i])
	}
	w.endNetworks("hidden", "open")
	w.asBeforeOutside()
}

// becomes waits for what a change brings about. OVN is asked to hurry: it sees to some of it only when something wakes it.
func (w *world) becomes(cond func() error) {
	w.t.Helper()
	_, err := w.NBCtl(w.ctx, "--wait=hv", "sync")
	w.must(err)
	w.eventually(cond)
}

// sees is for what may take a moment: whose addresses the host sees of a pod.
func (w *world) sees(host *lab.Outside, p *lab.Pod, want []string) error {
	if got := w.seenFrom(p, host, "192.0.2.9", "2001:db8::9"); !slices.Equal(got, want) {
		return fmt.Errorf("%s sees %v of %s, want %v", host, got, p, want)
	}
	return nil
}

// nodeOf is the node that is a chassis; "" for none.
func (w *world) nodeOf(chassis string) string {
	for _, n := range w.Nodes {
		if n.SystemID == chassis {
			return n.Name
		}
	}
	return ""
}

// newMovingGateway has a gateway that two nodes may have, with a pod on a third node that reaches the world by it.
func newMovingGateway(t *testing.T) (*world, *lab.Pod, *lab.BindingWatch) {
	t.Helper()
	w := newGatewayWorld(t, gatewayConfig, 0, 1)
	w.outside("host", 42, "192.0.2.9/24", "2001:db8::9/64")
	w.network("hidden", outOf(1, ""))
	p := w.attached(2, "web", "hidden")
	w.mustReach(p, "192.0.2.9", "2001:db8::9")
	binding, err := w.WatchBinding(w.ctx, "cr-/core:external")
	w.must(err)
	t.Cleanup(func() { _ = binding.Close() })
	w.watched(0, 1, 2)
	return w, p, binding
}

// TestGatewayMoves: when the gateway's node loses its power the next node takes the gateway, and keeps it when the first
// comes back. The gateway is out for as long as OVN takes to miss the node (by default BFD asks each second, and three
// answers have to be missing) and to install flows elsewhere.
func TestGatewayMoves(t *testing.T) {
	t.Parallel()
	w, p, binding := newMovingGateway(t)
	first := w.host(binding)
	second := 1 - first

	began := time.Now()
	w.must(w.Nodes[first].PowerOff(w.ctx))
	w.must(binding.Await(w.ctx, func(chassis string) bool { return chassis == w.Nodes[second].SystemID }))
	w.eventually(func() error { return w.reaches(p, "192.0.2.9") })
	t.Logf("%v from the loss of the gateway's node until a pod reaches the world again", time.Since(began).Round(100*time.Millisecond))
	w.mustReach(p, "2001:db8::9")
	w.says(w.Nodes[second].Agent, "this node is the active node of a gateway")

	ping := w.pinging(p, "192.0.2.9")
	w.must(w.Nodes[first].PowerOn(w.ctx))
	w.watched(0, 1, 2)
	for range 5 {
		ping.goesOn()
	}
	_, err := w.NBCtl(w.ctx, "--wait=hv", "sync")
	w.must(err)
	equal(t, "the gateway's node after the first is back", w.nodeOf(binding.Chassis()), w.Nodes[second].Name)
	ping.stop()

	// And the other way: it is as good as before.
	w.must(w.Nodes[second].PowerOff(w.ctx))
	w.must(binding.Await(w.ctx, func(chassis string) bool { return chassis == w.Nodes[first].SystemID }))
	w.mustReach(p, "192.0.2.9", "2001:db8::9")
	w.must(w.Nodes[second].PowerOn(w.ctx))
	w.end(p)
	w.endNetworks("hidden")
}

// TestGatewayWithoutVSwitchd: when ovs-vswitchd dies on the gateway's node, and all else on the node goes on, the next node
// takes the gateway: with the userspace datapath nobody answers BFD on the node any more.
func TestGatewayWithoutVSwitchd(t *testing.T) {
	t.Parallel()
	w, p, binding := newMovingGateway(t)
	first := w.host(binding)
	second := 1 - first

	w.must(w.Nodes[first].VSwitchd.Kill())
	w.must(binding.Await(w.ctx, func(chassis string) bool { return chassis == w.Nodes[second].SystemID }))
	w.mustReach(p, "192.0.2.9", "2001:db8::9")
	w.says(w.Nodes[second].Agent, "this node is the active node of a gateway")
	w.must(w.Nodes[first].VSwitchd.Restart(w.ctx))
	w.watched(0, 1, 2)
	_, err := w.NBCtl(w.ctx, "--wait=hv", "sync")
	w.must(err)
	equal(t, "the gateway's node after ovs-vswitchd is back", w.nodeOf(binding.Chassis()), w.Nodes[second].Name)
	w.mustReach(p, "192.0.2.9", "2001:db8::9")
	w.end(p)
	w.endNetworks("hidden")
}

// host waits until one of the first two nodes has the gateway and returns its number.
func (w *world) host(binding *lab.BindingWatch) int {
	w.t.Helper()
	w.must(binding.Await(w.ctx, func(chassis string) bool {
		return chassis == w.Nodes[0].SystemID || chassis == w.Nodes[1].SystemID
	}))
	if binding.Chassis() == w.Nodes[1].SystemID {
		return 1
	}
	return 0
}

// watched waits until all tunnels between these nodes are watched and stand: before, a node may think that it is alone.
func (w *world) watched(nodes ...int) {
	w.t.Helper()
	w.eventually(func() error {
		for _, i := range nodes {
			out, err := w.Nodes[i].VSCtl(w.ctx, "--no-wait", "--bare", "--columns=name", "find", "Interface", "type=geneve", "bfd_status:state=up")
			if err != nil {
				return err
			}
			if got := len(strings.Fields(out)); got < len(nodes)-1 {
				return fmt.Errorf("%d tunnels of %s stand", got, w.Nodes[i].Name)
			}
		}
		return nil
	})
}

// TestGatewayNodes: which nodes have the gateway follows the label.
func TestGatewayNodes(t *testing.T) {
	t.Parallel()
	w := newGatewayWorld(t, gatewayConfig)
	w.outside("host", 42, "192.0.2.9/24")
	w.network("hidden", outOf(1, ""))
	w.controllerSays("no node has the label of a gateway")
	p := w.attached(2, "web", "hidden")
	binding, err := w.WatchBinding(w.ctx, "cr-/core:external")
	w.must(err)
	defer binding.Close()
	for _, step := range [][]int{{2}, {0}, {0, 1}, {1}} {
		w.must(w.WriteManifest("nodes.yaml", nodesManifest(w.Nodes, step...)))
		w.becomes(func() error {
			for _, i := range step {
				if binding.Chassis() == w.Nodes[i].SystemID {
					return nil
				}
			}
			return fmt.Errorf("the gateway is on %q, want one of the nodes %v", w.nodeOf(binding.Chassis()), step)
		})
		w.mustReach(p, "192.0.2.9")
	}
	w.must(w.WriteManifest("nodes.yaml", nodesManifest(w.Nodes)))
	w.becomes(func() error {
		if binding.Chassis() != "" {
			return fmt.Errorf("the gateway is on %s still", w.nodeOf(binding.Chassis()))
		}
		return nil
	})
	w.end(p)
	w.endNetworks("hidden")
	w.asBeforeOutside()
}
