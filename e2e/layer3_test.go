package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// wide is a layer3 network with room for four nodes.
const wide = `{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/22/24,fd80::/62/64"%s}`

// blocksOf reads a node's blocks of a network; nil when it has none.
func (w *world) blocksOf(network string, node *lab.Node) []netip.Prefix {
	text := w.switchOf(network + "@" + node.Name)["ovn-multinet/blocks"]
	var blocks []netip.Prefix
	for _, word := range strings.Split(text, ",") {
		if text == "" {
			break
		}
		b, err := netip.ParsePrefix(word)
		w.Must(err)
		blocks = append(blocks, b)
	}
	return blocks
}

// inBlocks wants a pod's addresses in its node's blocks, with their prefix lengths, and routes to the whole network by the
// blocks' gateways.
func (w *world) inBlocks(p *lab.Pod, network string) {
	blocks := w.blocksOf(network, p.Node)
	if len(blocks) != 2 {
		w.T.Fatalf("node %s has the blocks %v of %s, want one of each family", p.Node.Name, blocks, network)
	}
	addrs := w.Links(p)["net1"].Prefixes()
	for i, text := range addrs {
		a, err := netip.ParsePrefix(text)
		w.Must(err)
		if a.Masked() != blocks[i] {
			w.T.Errorf("%s has %s, want one of %s", p, a, blocks[i])
		}
	}
	equal(w.T, "addresses of "+p.String(), len(addrs), 2)
	for i, c := range []struct{ family, whole string }{{"-4", "10.128.0.0/22"}, {"-6", "fd80::/62"}} {
		want := fmt.Sprintf("%s via %s dev net1", c.whole, blocks[i].Addr().Next())
		if routes := w.routes(p, c.family); !slices.Contains(routes, want) {
			w.T.Errorf("%s has the routes %q, want %q among them", p, routes, want)
		}
	}
}

// TestLayer3: each node gets a share of the network when it first needs it, and all pods of it reach each other, routed.
func TestLayer3(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 3}, nil)
	w.network("wide", fmt.Sprintf(wide, ""))
	for _, n := range w.Nodes {
		if b := w.blocksOf("shop/wide", n); b != nil {
			t.Errorf("%s has the blocks %v before its first pod", n.Name, b)
		}
	}
	a, b, c := w.Attached(0, "a", "wide"), w.Attached(0, "b", "wide"), w.Attached(1, "c", "wide")
	for _, p := range []*lab.Pod{a, b, c} {
		w.inBlocks(p, "shop/wide")
		w.consistent(p, []string{"net1"})
	}
	for i, block := range w.blocksOf("shop/wide", w.Nodes[0]) {
		if other := w.blocksOf("shop/wide", w.Nodes[1])[i]; other.Overlaps(block) {
			t.Errorf("two nodes have %s and %s", block, other)
		}
	}
	for _, pair := range [][2]*lab.Pod{{a, b}, {a, c}, {c, b}} {
		w.MustReach(pair[0], w.inCore(pair[1])...)
	}
	if b := w.blocksOf("shop/wide", w.Nodes[2]); b != nil {
		t.Errorf("%s has the blocks %v without a pod", w.Nodes[2].Name, b)
	}

	w.part("without a controller", func(t *testing.T, w *world) {
		w.Must(w.StopController(w.Ctx))
		more, first := w.Attached(0, "more", "wide"), w.Attached(2, "first", "wide")
		w.inBlocks(first, "shop/wide")
		w.MustReach(more, w.inCore(first)...)
		w.End(more, first)
		w.Must(w.StartController(w.Ctx))
	})
	w.part("an agent that starts anew", func(t *testing.T, w *world) {
		before := w.blocksOf("shop/wide", w.Nodes[0])
		w.Must(w.Nodes[0].StopAgent(w.Ctx))
		w.Must(w.Nodes[0].StartAgent(w.Ctx))
		again := w.Attached(0, "again", "wide")
		w.inBlocks(again, "shop/wide")
		equal(t, "blocks", w.blocksOf("shop/wide", w.Nodes[0]), before)
		w.End(again)
	})
	w.part("fixed addresses", func(t *testing.T, w *world) {
		own, other := w.blocksOf("shop/wide", w.Nodes[0])[0], w.blocksOf("shop/wide", w.Nodes[1])[0]
		good, bad := nth(own, 77), nth(other, 77)
		p := w.Attached(0, "fixed", fmt.Sprintf(`[{"name":"wide","ips":[%q]}]`, good))
		equal(t, "address", w.Links(p)["net1"].IPs()[0], good.String())
		q := w.Pod(0, "elsewhere", fmt.Sprintf(`[{"name":"wide","ips":[%q]}]`, bad))
		w.refused(w.TryAdd(q), conf.CodeInvalidConfig, bad.String(), "node1", own.String())
		w.End(p, q)
	})
	w.part("a change for all nodes", func(t *testing.T, w *world) {
		ping := w.pinging(a, w.Links(c)["net1"].IPs()[0])
		w.network("wide", fmt.Sprintf(wide, `,"mtu":1300`))
		ping.goesOn()
		p := w.Attached(1, "small", "wide")
		equal(t, "MTU", w.Links(p)["net1"].MTU, 1300)
		w.MustReach(p, w.inCore(a)...)
		ping.stop()
		w.End(p)
	})
	w.part("shown", func(t *testing.T, w *world) {
		out := w.Multinet("network", "show", "shop/wide")
		for _, words := range []string{"layer3", "10.128.0.0/22", "node1", "node2", w.blocksOf("shop/wide", w.Nodes[1])[0].String(), "shop/a", "shop/c"} {
			if !strings.Contains(out, words) {
				t.Errorf("kubectl multinet does not say %q:\n%s", words, out)
			}
		}
	})
	w.End(a, b, c)
	w.endNetworks("wide")
	w.AsBefore() // with every node's share
}

func nth(p netip.Prefix, n int) netip.Addr {
	a := p.Addr()
	for range n {
		a = a.Next()
	}
	return a
}

// TestLayer3Nodes: a node that leaves the cluster gives its share back, once no pod's port is on it, and a network that has
// none left says so.
func TestLayer3Nodes(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 3}, func(l *lab.Lab) {
		l.ControllerArgs = []string{"--orphan-period", "200ms"}
		if err := l.WriteManifest("nodes.yaml", nodesManifest(l.Nodes)); err != nil {
			t.Fatal(err)
		}
	})
	// Two blocks for three nodes.
	w.network("narrow", `{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/23/24"}`)
	a, b := w.Attached(0, "a", "narrow"), w.Attached(1, "b", "narrow")
	late := w.Pod(2, "late", "narrow")
	w.refused(w.TryAdd(late), conf.CodeNoAddressLeft, "shop/narrow", "10.128.0.0/23", "node3")

	was := w.blocksOf("shop/narrow", w.Nodes[1])
	w.Must(w.Nodes[1].KillAgent())
	w.Must(w.WriteManifest("nodes.yaml", nodesManifest([]*lab.Node{w.Nodes[0], w.Nodes[2]})))
	w.Eventually(func() error { // the port of its pod first, and then the blocks
		if left := w.blocksOf("shop/narrow", w.Nodes[1]); left != nil {
			return fmt.Errorf("node2 is gone and has %v still", left)
		}
		return nil
	})
	late = w.retried(late)
	equal(t, "blocks of the node that had none", fmt.Sprint(w.blocksOf("shop/narrow", w.Nodes[2])), fmt.Sprint(was))
	w.MustReach(a, w.Links(late)["net1"].IPs()...)

	// It comes back, and gets what there is: nothing yet.
	w.Must(w.WriteManifest("nodes.yaml", nodesManifest(w.Nodes)))
	w.Must(w.Nodes[1].StartAgent(w.Ctx))
	w.End(b)
	back := w.Pod(1, "back", "narrow")
	w.refused(w.TryAdd(back), conf.CodeNoAddressLeft, "node2")
	w.End(back, late, a)
	w.endNetworks("narrow")
	w.Must(w.Announced(w.Ctx))
	w.AsBefore()
}

// TestLayer3Routed: a layer3 network on a router with others reaches those, and the world by its gateway.
func TestLayer3Routed(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2, Physical: provider}, func(l *lab.Lab) {
		path := filepath.Join(l.Dir, "controller.yaml")
		if err := os.WriteFile(path, []byte(gatewayConfig), 0o644); err != nil {
			t.Fatal(err)
		}
		l.ControllerArgs = []string{"--config", path}
		if err := l.WriteManifest("nodes.yaml", nodesManifest(l.Nodes, 0)); err != nil {
			t.Fatal(err)
		}
	})
	w.gatewayStands(0)
	host := w.outside("host", 42, "192.0.2.9/24", "2001:db8::9/64")
	w.Must(host.Route(w.Ctx, "10.128.0.0/22", "192.0.2.10"))
	const routes = `"routes":[{"dst":"192.0.2.0/24"},{"dst":"2001:db8::/32"},{"dst":"10.21.0.0/24"}]`
	w.network("wide", fmt.Sprintf(wide, `,"router":"/core",`+routes))
	w.network("flat", `{"type":"ovn-multinet","router":"/core","subnets":"10.21.0.0/24","routes":[{"dst":"10.128.0.0/22"}]}`)
	a, b, flat := w.Attached(0, "a", "wide"), w.Attached(1, "b", "wide"), w.Attached(1, "flat", "flat")
	for _, p := range []*lab.Pod{a, b} {
		w.inBlocks(p, "shop/wide")
		equal(t, "addresses that the host sees of "+p.String(), w.seenFrom(p, host, "192.0.2.9", "2001:db8::9"), []string{"192.0.2.10", "2001:db8::10"})
		w.MustReach(p, w.inCore(flat)...)
		w.MustReach(flat, w.Links(p)["net1"].IPs()[0])
	}
	w.MustReach(a, w.inCore(b)...)
	w.network("wide", fmt.Sprintf(wide, `,"router":"/core","snat":false,`+routes))
	w.becomes(func() error {
		if got := w.seenFrom(b, host, "192.0.2.9"); !slices.Equal(got, w.Links(b)["net1"].IPs()[:1]) {
			return fmt.Errorf("%s sees %v", host, got)
		}
		return nil
	})
	w.MustReach(host, w.Links(b)["net1"].IPs()[0])

	// The whole of the network counts, also what no node has.
	w.NAD("clash", `{"type":"ovn-multinet","router":"/core","subnets":"10.128.3.0/24"}`)
	w.notReady("clash", "10.128.3.0/24 overlaps 10.128.0.0/22 of network shop/wide on router /core")
	w.End(a, b, flat)
	w.endNetworks("wide", "flat", "clash")
	w.asBeforeOutside()
}

// TestTCP sends a megabyte from pod to pod, between nodes and on one node, over IPv4 and IPv6. Pings pass where TCP
// does not: a userspace datapath drops what the kernel left without a checksum.
func TestTCP(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	from, near, far := w.Attached(0, "from", "green"), w.Attached(0, "near", "green"), w.Attached(1, "far", "green")
	for _, to := range []*lab.Pod{near, far} {
		for _, ip := range w.Links(to)["net1"].IPs() {
			w.MustReach(from, ip)
			w.Must(lab.Transfer(from, to, ip))
		}
	}
	w.Over(from, near, far)
}
