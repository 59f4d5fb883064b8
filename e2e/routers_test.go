package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// toAll are routes to every subnet of the routed networks, so that no missing route is what stops a packet. A network's
// own subnet is not routed.
func toAll(own int) string {
	var routes []string
	for i := 1; i <= 4; i++ {
		if i != own {
			routes = append(routes, fmt.Sprintf(`{"dst":"10.%d.0.0/24"},{"dst":"fd%d::/64"}`, 20+i, 20+i))
		}
	}
	return strings.Join(routes, ",")
}

// routed is the configuration of network 10.2<i>.0.0/24, fd2<i>::/64; router "" for none.
func routed(i int, router string) string {
	if router != "" {
		router = fmt.Sprintf(`"router":"%s",`, router)
	}
	return fmt.Sprintf(`{"type":"ovn-multinet",%s"subnets":"10.%d.0.0/24,fd%d::/64","routes":[%s]}`, router, 20+i, 20+i, toAll(i))
}

// unreachable wants of pairs of pods that the first does not reach the second. All are tried at once, when OVN has done
// all that was asked of it.
func (w *world) unreachable(pairs ...[2]*lab.Pod) {
	w.t.Helper()
	_, err := w.NBCtl(w.ctx, "--wait=hv", "sync")
	w.must(err)
	var all errgroup.Group
	for _, pair := range pairs {
		for _, ip := range w.links(pair[1])["net1"].IPs() {
			all.Go(func() error {
				w.mustNotReach(pair[0], "net1", ip)
				return nil
			})
		}
	}
	w.must(all.Wait())
}

// TestRouter: networks on one router reach each other, on one node and across nodes, and no network beside.
func TestRouter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	for i, net := range []struct{ name, router string }{{"red", "main"}, {"black", "main"}, {"alien", "other"}, {"lone", ""}} {
		w.network(net.name, routed(i+1, net.router))
	}
	red, black, far := w.attached(0, "red", "red"), w.attached(0, "black", "black"), w.attached(1, "far", "black")
	alien, lone := w.attached(0, "alien", "alien"), w.attached(0, "lone", "lone")
	loner := w.attached(1, "loner", "lone")

	for _, pair := range [][2]*lab.Pod{{red, black}, {black, red}, {red, far}, {far, red}, {black, far}, {loner, lone}} {
		w.mustReach(pair[0], w.links(pair[1])["net1"].IPs()...)
	}
	for _, p := range []*lab.Pod{red, black, far} { // their own gateway, and the other's
		w.mustReach(p, "10.21.0.1", "fd21::1", "10.22.0.1", "fd22::1")
	}
	w.mustReach(alien, "10.23.0.1", "fd23::1")
	w.unreachable([2]*lab.Pod{red, alien}, [2]*lab.Pod{red, lone}, [2]*lab.Pod{alien, red}, [2]*lab.Pod{alien, far},
		[2]*lab.Pod{alien, lone}, [2]*lab.Pod{lone, red}, [2]*lab.Pod{lone, far}, [2]*lab.Pod{lone, alien})

	t.Run("gateway", func(t *testing.T) {
		w := &world{Lab: w.Lab, t: t, ctx: w.ctx}
		for _, ip := range []string{"10.21.0.1", "fd21::1"} {
			p := w.pod(0, "greedy", fmt.Sprintf(`[{"name":"red","ips":[%q]}]`, ip))
			_, err := p.Add(w.ctx)
			w.refused(err, conf.CodeInvalidConfig, ip, "gateway", "shop/red")
			w.end(p)
		}
		key, err := w.NBCtl(w.ctx, "get", "Logical_Switch_Port", "shop/red:shop/main", "_uuid")
		w.must(err)
		equal(t, "row key of the router's port on the switch", key, ovndb.AddressKey("shop/red", netip.MustParseAddr("10.21.0.1")))
	})
	w.end(red, black, far, alien, lone, loner)
	w.endNetworks("red", "black", "alien", "lone")
	w.asBefore() // the routers go with their last network
}

// TestRouterIsDistributed: between two networks on one node no packet leaves the node.
func TestRouterIsDistributed(t *testing.T) {
	t.Parallel()
	const pings = 10
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("red", routed(1, "main"))
	w.network("black", routed(2, "main"))
	red, black := w.attached(0, "red", "red"), w.attached(0, "black", "black")
	w.mustReach(red, w.links(black)["net1"].IPs()...)
	packets := func(to *lab.Pod) int {
		count, err := w.Nodes[0].CountGeneve()
		w.must(err)
		defer count.Close()
		for _, ip := range w.links(to)["net1"].IPs() {
			_, err := red.Exec(w.ctx, "ping", "-c", fmt.Sprint(pings), "-i", "0.01", "-W", "2", ip)
			w.must(err)
		}
		n, err := count.Packets()
		w.must(err)
		return n
	}
	equal(t, "Geneve packets of pings on one node", packets(black), 0)
	far := w.attached(1, "far", "black")
	w.mustReach(red, w.links(far)["net1"].IPs()...)
	if n := packets(far); n < 2*2*pings { // both families, both ways
		t.Errorf("%d Geneve packets were counted of %d pings to another node: the count does not see them", n, 2*pings)
	}
	w.end(red, black, far)
	w.endNetworks("red", "black")
	w.asBefore()
}

// TestRouterComesAndGoes attaches networks to a router, moves one and takes it off while pods run.
func TestRouterComesAndGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	names := []string{"red", "black"}
	for i, name := range names {
		w.network(name, routed(i+1, ""))
	}
	red, black, peer := w.attached(0, "red", "red"), w.attached(1, "black", "black"), w.attached(1, "peer", "red")
	ping := w.pinging(red, w.links(peer)["net1"].IPs()[0])
	rows := fmt.Sprint(w.portRow(red, "net1"), w.portRow(black, "net1"))
	together := func() {
		w.mustReach(red, w.links(black)["net1"].IPs()...)
		w.mustReach(black, w.links(peer)["net1"].IPs()...)
	}
	apart := func() { w.unreachable([2]*lab.Pod{red, black}, [2]*lab.Pod{black, peer}) }
	apart()
	for _, step := range []struct {
		name   string
		router [2]string
		look   func()
	}{
		{"attached", [2]string{"main", "main"}, together},
		{"one moved", [2]string{"main", "other"}, apart},
		{"the other follows", [2]string{"other", "other"}, together},
		{"one detached", [2]string{"", "other"}, apart},
		{"both detached", [2]string{"", ""}, func() {}},
	} {
		for i, name := range names {
			w.network(name, routed(i+1, step.router[i]))
		}
		step.look()
		ping.goesOn()
		equal(t, step.name+": ports of the running pods", fmt.Sprint(w.portRow(red, "net1"), w.portRow(black, "net1")), rows)
	}
	out, err := w.NBCtl(w.ctx, "--bare", "--columns=name", "list", "Logical_Router")
	w.must(err)
	equal(t, "routers without a network", out, "")
	ping.stop()
	w.end(red, black, peer)
	w.endNetworks(names...)
	w.asBefore()
}

// TestOverlaps: on one router a subnet that meets another one is refused, and the first goes on; in separate networks
// it is nobody's business.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("red", routed(1, "main"))
	w.network("black", routed(2, "main"))
	red, black := w.attached(0, "red", "red"), w.attached(1, "black", "black")
	ping := w.pinging(red, w.links(black)["net1"].IPs()[0])
	for _, c := range []struct {
		name, subnets string
		add           bool // a pod too, which waits a while
		says          string
	}{
		{"within", "10.21.0.0/25", true, "10.21.0.0/25 overlaps 10.21.0.0/24 of network shop/red on router shop/main"},
		{"around", "10.16.0.0/12", false, "10.16.0.0/12 overlaps 10.2"},
		{"IPv6", "10.30.0.0/24,fd22::/80", false, "fd22::/80 overlaps fd22::/64 of network shop/black on router shop/main"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{Lab: w.Lab, t: t, ctx: w.ctx}
			w.nad("clash", fmt.Sprintf(`{"type":"ovn-multinet","subnets":%q,"router":"main"}`, c.subnets))
			w.notReady("clash", "router: ", c.says)
			if c.add {
				p := w.pod(0, "clash", "clash")
				_, err := p.Add(w.ctx)
				w.refused(err, conf.CodeTryAgain, "network shop/clash", c.says)
				w.end(p)
			}
			ping.goesOn()
			w.mustReach(red, w.links(black)["net1"].IPs()...)
		})
	}
	// On a router of its own it is welcome, and so it is on none: the same addresses, in three worlds.
	w.network("clash", `{"type":"ovn-multinet","subnets":"10.21.0.0/24,fd21::/64","router":"other"}`)
	w.network("apart", `{"type":"ovn-multinet","subnets":"10.21.0.0/24,fd21::/64"}`)
	ours := []*lab.Pod{red, black}
	for i, name := range []string{"red", "clash", "apart"} {
		mac := fmt.Sprintf("02:00:00:00:00:0%d", i+1)
		twin := w.attached(1, "twin-"+name, fmt.Sprintf(`[{"name":%q,"ips":["10.21.0.77","fd21::77"],"mac":%q}]`, name, mac))
		looks := w.attached(0, "looks-"+name, name)
		w.mustReach(looks, "10.21.0.77", "fd21::77")
		out, err := looks.Exec(w.ctx, "ip", "neigh", "show", "10.21.0.77")
		w.must(err)
		if !strings.Contains(out, mac) {
			t.Errorf("%s finds another network's 10.21.0.77: %s", looks, out)
		}
		ours = append(ours, twin, looks)
	}
	ping.stop()
	w.end(ours...)
	w.endNetworks("red", "black", "clash", "apart")
	w.asBefore()
}
