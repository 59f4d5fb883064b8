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
func controllerConfig(t testing.TB, l *lab.Lab, config string) {
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
	w.becomes(func() error {
		out, err := w.Lab.NBCtl(w.Ctx, "--bare", "--columns=_uuid", "list", "HA_Chassis")
		if got := len(strings.Fields(out)); err != nil || got != len(nodes) {
			return fmt.Errorf("the gateway has %d nodes: %v", got, err)
		}
		for _, i := range nodes {
			if _, err := w.Nodes[i].VSCtl(w.Ctx, "--no-wait", "get", "Port", "patch-/core:provider-to-br-int", "name"); err != nil {
				return err
			}
		}
		return nil
	})
	w.Base = w.Snapshot()
}

// asBeforeOutside is asBefore where OVN has connections to a provider's bridge to take away: it does so only when something
// wakes it.
func (w *world) asBeforeOutside() {
	w.Eventually(func() error {
		w.NBCtl("--wait=hv", "sync")
		if diff := w.Base.Diff(w.Snapshot()); diff != "" {
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
	o, err := w.Outside(w.Ctx, name, vlan, addrs...)
	w.Must(err)
	return o
}

// seenFrom returns what source addresses a pod's pings have that reach the machine at an address.
func (w *world) seenFrom(p endpoint, at *lab.Outside, addrs ...string) []string {
	w.MustReach(p, addrs...)
	c, err := at.Capture()
	w.Must(err)
	defer c.Close()
	w.MustReach(p, addrs...)
	sources, err := c.Sources()
	w.Must(err)
	var words []string
	for _, s := range sources {
		words = append(words, s.String())
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// inCore are a pod's addresses on its further interface, sorted.
func (w *world) inCore(p *lab.Pod) []string {
	return slices.Sorted(slices.Values(w.Links(p)["net1"].IPs()))
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
	w.Must(host.Route(w.Ctx, "10.22.0.0/24", "192.0.2.10"))
	w.Must(host.Route(w.Ctx, "fd22::/64", "2001:db8::10"))

	w.network("hidden", outOf(1, ""))
	w.network("open", outOf(2, `"snat":false,`))
	hidden, open := make([]*lab.Pod, 3), make([]*lab.Pod, 3)
	for i := range 3 { // on the gateway's nodes and on another
		hidden[i] = w.Attached(i, fmt.Sprintf("hidden-%d", i), "hidden")
		open[i] = w.Attached(i, fmt.Sprintf("open-%d", i), "open")
	}
	unheard, err := stranger.Capture()
	w.Must(err)
	defer unheard.Close()
	snat := []string{"192.0.2.10", "2001:db8::10"}
	for i := range 3 {
		equal(t, "addresses that the host sees of "+hidden[i].String(), w.seenFrom(hidden[i], host, "192.0.2.9", "2001:db8::9"), snat)
		equal(t, "addresses that the host sees of "+open[i].String(), w.seenFrom(open[i], host, "192.0.2.9", "2001:db8::9"), w.inCore(open[i]))
		w.MustReach(host, w.inCore(open[i])...)
	}
	equal(t, "addresses that the next hop sees", w.seenFrom(hidden[2], next, "198.51.100.1", "2001:db8:1::1"), snat)
	sources, err := unheard.Sources()
	w.Must(err)
	equal(t, "what was heard in another VLAN", fmt.Sprint(sources), "[]")

	w.part("default route", func(t *testing.T, w *world) {
		p := w.Attached(2, "away", `[{"name":"hidden","default-route":["10.21.0.1","fd21::1"]}]`)
		w.Must(next.Route(w.Ctx, "203.0.113.0/24", "192.0.2.9"))
		w.Exec(host, "ip", "addr", "add", "203.0.113.1/32", "dev", "lo")
		w.Exec(next, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
		equal(t, "addresses that the far host sees", w.seenFrom(p, host, "203.0.113.1"), []string{"192.0.2.10"})
		w.End(p)
	})
	w.part("snat switched", func(t *testing.T, w *world) {
		w.network("open", outOf(2, `"snat":true,`))
		w.becomes(func() error { return w.sees(host, open[2], snat) })
		w.network("open", outOf(2, `"snat":false,`))
		w.becomes(func() error { return w.sees(host, open[2], w.inCore(open[2])) })
	})
	w.part("run again", func(t *testing.T, w *world) {
		w.settled()
		before := w.written()
		w.Must(w.StopController(w.Ctx))
		w.Must(w.StartController(w.Ctx))
		w.controllerSays("gateway is in sync")
		w.settled()
		// The marks of settled write nothing to NB.
		w.nothingWritten(before)
	})
	w.part("shown", func(t *testing.T, w *world) {
		out := w.Multinet("network", "show", "shop/hidden")
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
		w.End(hidden[i], open[i])
	}
	w.endNetworks("hidden", "open")
	w.asBeforeOutside()
}

// becomes waits for what a change brings about. OVN is asked to hurry: it sees to some of it only when something wakes it.
func (w *world) becomes(cond func() error) {
	w.NBCtl("--wait=hv", "sync")
	w.Eventually(cond)
}

// sees is for what may take a moment: whose addresses the host sees of a pod.
func (w *world) sees(host *lab.Outside, p *lab.Pod, want []string) error {
	if got := w.seenFrom(p, host, "192.0.2.9", "2001:db8::9"); !slices.Equal(got, want) {
		return fmt.Errorf("%s sees %v of %s, want %v", host, got, p, want)
	}
	return nil
}

// gatewayNode is the name of the node that has the gateway, "" for none.
func (w *world) gatewayNode() string {
	host, err := w.SBCtl(w.Ctx, "--bare", "--columns=chassis", "find", "Port_Binding", `logical_port="cr-/core:external"`)
	w.Must(err)
	if host == "" {
		return ""
	}
	name, err := w.SBCtl(w.Ctx, "--if-exists", "--bare", "--columns=hostname", "list", "Chassis", host)
	w.Must(err)
	return name
}

// gatewayComesTo waits until the gateway is on one of the nodes.
func (w *world) gatewayComesTo(nodes ...int) (node int) {
	w.Eventually(func() error {
		has := w.gatewayNode()
		for _, node = range nodes {
			if w.Nodes[node].Name == has {
				return nil
			}
		}
		return fmt.Errorf("the gateway is on %q, want one of the nodes %v", has, nodes)
	})
	return node
}

// newMovingGateway has a gateway that two nodes may have, with a pod on a third node that reaches the world by it.
func newMovingGateway(t *testing.T) (*world, *lab.Pod) {
	t.Helper()
	w := newGatewayWorld(t, gatewayConfig, 0, 1)
	w.outside("host", 42, "192.0.2.9/24", "2001:db8::9/64")
	w.network("hidden", outOf(1, ""))
	p := w.Attached(2, "web", "hidden")
	w.MustReach(p, "192.0.2.9", "2001:db8::9")
	w.watched(0, 1, 2)
	return w, p
}

// TestGatewayMoves: when the gateway's node loses its power the next node takes the gateway, and keeps it when the first
// comes back. The gateway is out for as long as OVN takes to miss the node (by default BFD asks each second, and three
// answers have to be missing) and to install flows elsewhere.
func TestGatewayMoves(t *testing.T) {
	t.Parallel()
	w, p := newMovingGateway(t)
	first := w.gatewayComesTo(0, 1)
	second := 1 - first

	began := time.Now()
	w.Must(w.Nodes[first].PowerOff(w.Ctx))
	w.gatewayComesTo(second)
	w.Eventually(func() error { return w.Reaches(p, "192.0.2.9") })
	t.Logf("%v from the loss of the gateway's node until a pod reaches the world again", time.Since(began).Round(100*time.Millisecond))
	w.MustReach(p, "2001:db8::9")
	w.says(w.Nodes[second].Agent, "this node is the active node of a gateway")

	ping := w.pinging(p, "192.0.2.9")
	w.Must(w.Nodes[first].PowerOn(w.Ctx))
	w.watched(0, 1, 2)
	for range 5 {
		ping.goesOn()
	}
	w.NBCtl("--wait=hv", "sync")
	equal(t, "the gateway's node after the first is back", w.gatewayNode(), w.Nodes[second].Name)
	ping.stop()

	// And the other way: it is as good as before.
	w.Must(w.Nodes[second].PowerOff(w.Ctx))
	w.gatewayComesTo(first)
	w.MustReach(p, "192.0.2.9", "2001:db8::9")
	w.Must(w.Nodes[second].PowerOn(w.Ctx))
	w.End(p)
	w.endNetworks("hidden")
}

// TestGatewayWithoutVSwitchd: when ovs-vswitchd dies on the gateway's node, and all else on the node goes on, the next node
// takes the gateway: with the userspace datapath nobody answers BFD on the node any more.
func TestGatewayWithoutVSwitchd(t *testing.T) {
	t.Parallel()
	w, p := newMovingGateway(t)
	first := w.gatewayComesTo(0, 1)
	second := 1 - first

	w.Must(w.Nodes[first].VSwitchd.Kill())
	w.gatewayComesTo(second)
	w.MustReach(p, "192.0.2.9", "2001:db8::9")
	w.says(w.Nodes[second].Agent, "this node is the active node of a gateway")
	w.Must(w.Nodes[first].VSwitchd.Restart(w.Ctx))
	w.watched(0, 1, 2)
	w.NBCtl("--wait=hv", "sync")
	equal(t, "the gateway's node after ovs-vswitchd is back", w.gatewayNode(), w.Nodes[second].Name)
	w.MustReach(p, "192.0.2.9", "2001:db8::9")
	w.End(p)
	w.endNetworks("hidden")
}

// watched waits until all tunnels between these nodes are watched and stand: before, a node may think that it is alone.
func (w *world) watched(nodes ...int) {
	w.Eventually(func() error {
		for _, i := range nodes {
			out, err := w.Nodes[i].VSCtl(w.Ctx, "--no-wait", "--bare", "--columns=name", "find", "Interface", "type=geneve", "bfd_status:state=up")
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
	w.controllerSays("no node has the label edge=yes")
	p := w.Attached(2, "web", "hidden")
	for _, step := range [][]int{{2}, {0}, {0, 1}, {1}} {
		w.Must(w.WriteManifest("nodes.yaml", nodesManifest(w.Nodes, step...)))
		w.NBCtl("--wait=hv", "sync")
		w.gatewayComesTo(step...)
		w.MustReach(p, "192.0.2.9")
	}
	w.Must(w.WriteManifest("nodes.yaml", nodesManifest(w.Nodes)))
	w.becomes(func() error {
		if node := w.gatewayNode(); node != "" {
			return fmt.Errorf("the gateway is on %s still", node)
		}
		return nil
	})
	w.End(p)
	w.endNetworks("hidden")
	w.asBeforeOutside()
}
