package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
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
	w.NBCtl("--wait=hv", "sync")
	var all errgroup.Group
	for _, pair := range pairs {
		for _, ip := range w.Links(pair[1])["net1"].IPs() {
			all.Go(func() error {
				w.mustNotReach(pair[0], "net1", ip)
				return nil
			})
		}
	}
	w.Must(all.Wait())
}

// TestRouter: networks on one router reach each other, on one node and across nodes, and no network beside. One has the
// name of the router.
func TestRouter(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	for i, net := range []struct{ name, router string }{{"main", "main"}, {"black", "main"}, {"alien", "other"}, {"lone", ""}} {
		w.network(net.name, routed(i+1, net.router))
	}
	red, black, far := w.Attached(0, "red", "main"), w.Attached(0, "black", "black"), w.Attached(1, "far", "black")
	alien, lone := w.Attached(0, "alien", "alien"), w.Attached(0, "lone", "lone")
	loner := w.Attached(1, "loner", "lone")

	for _, pair := range [][2]*lab.Pod{{red, black}, {black, red}, {red, far}, {far, red}, {black, far}, {loner, lone}} {
		w.MustReach(pair[0], w.Links(pair[1])["net1"].IPs()...)
	}
	for _, p := range []*lab.Pod{red, black, far} { // their own gateway, and the other's
		w.MustReach(p, "10.21.0.1", "fd21::1", "10.22.0.1", "fd22::1")
	}
	w.MustReach(alien, "10.23.0.1", "fd23::1")
	w.unreachable([2]*lab.Pod{red, alien}, [2]*lab.Pod{red, lone}, [2]*lab.Pod{alien, red}, [2]*lab.Pod{alien, far},
		[2]*lab.Pod{alien, lone}, [2]*lab.Pod{lone, red}, [2]*lab.Pod{lone, far}, [2]*lab.Pod{lone, alien})

	w.part("gateway", func(t *testing.T, w *world) {
		for _, ip := range []string{"10.21.0.1", "fd21::1"} {
			p := w.Pod(0, "greedy", fmt.Sprintf(`[{"name":"main","ips":[%q]}]`, ip))
			w.refused(w.TryAdd(p), conf.CodeInvalidConfig, ip, "gateway", "shop/main")
			w.End(p)
		}
		key := w.NBCtl("get", "Logical_Switch_Port", "shop/main:shop/main:switch", "_uuid")
		equal(t, "row key of the router's port on the switch", key, ovndb.AddressKey("shop/main", netip.MustParseAddr("10.21.0.1")))
	})
	w.End(red, black, far, alien, lone, loner)
	w.endNetworks("main", "black", "alien", "lone")
	w.AsBefore() // the routers go with their last network
}

// TestRouterIsDistributed: between two networks on one node no packet leaves the node.
func TestRouterIsDistributed(t *testing.T) {
	t.Parallel()
	const pings = 10
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("red", routed(1, "main"))
	w.network("black", routed(2, "main"))
	red, black := w.Attached(0, "red", "red"), w.Attached(0, "black", "black")
	w.MustReach(red, w.Links(black)["net1"].IPs()...)
	packets := func(to *lab.Pod) int {
		count, err := w.Nodes[0].Capture()
		w.Must(err)
		defer count.Close()
		for _, ip := range w.Links(to)["net1"].IPs() {
			w.Exec(red, "ping", "-c", fmt.Sprint(pings), "-i", "0.01", "-W", "2", ip)
		}
		n, err := count.Geneve()
		w.Must(err)
		return n
	}
	equal(t, "Geneve packets of pings on one node", packets(black), 0)
	far := w.Attached(1, "far", "black")
	w.MustReach(red, w.Links(far)["net1"].IPs()...)
	if n := packets(far); n < 2*2*pings { // both families, both ways
		t.Errorf("%d Geneve packets were counted of %d pings to another node: the count does not see them", n, 2*pings)
	}
	w.End(red, black, far)
	w.endNetworks("red", "black")
	w.AsBefore()
}

// TestRouterComesAndGoes attaches networks to a router, moves one and takes it off while pods run.
func TestRouterComesAndGoes(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	names := []string{"red", "black"}
	for i, name := range names {
		w.network(name, routed(i+1, ""))
	}
	red, black, peer := w.Attached(0, "red", "red"), w.Attached(1, "black", "black"), w.Attached(1, "peer", "red")
	ping := w.pinging(red, w.Links(peer)["net1"].IPs()[0])
	rows := fmt.Sprint(w.portRow(red, "net1"), w.portRow(black, "net1"))
	together := func() {
		w.MustReach(red, w.Links(black)["net1"].IPs()...)
		w.MustReach(black, w.Links(peer)["net1"].IPs()...)
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
	out := w.NBCtl("--bare", "--columns=name", "list", "Logical_Router")
	equal(t, "routers without a network", out, "")
	ping.stop()
	w.End(red, black, peer)
	w.endNetworks(names...)
	w.AsBefore()
}

// TestOverlaps: on one router a subnet that meets another one is refused, and the first goes on; in separate networks
// it is nobody's business.
func TestOverlaps(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("red", routed(1, "main"))
	w.network("black", routed(2, "main"))
	red, black := w.Attached(0, "red", "red"), w.Attached(1, "black", "black")
	ping := w.pinging(red, w.Links(black)["net1"].IPs()[0])
	for _, c := range []struct {
		name, subnets string
		add           bool // a pod too, which waits a while
		says          string
	}{
		{"within", "10.21.0.0/25", true, "10.21.0.0/25 overlaps 10.21.0.0/24 of network shop/red on router shop/main"},
		{"around", "10.16.0.0/12", false, "10.16.0.0/12 overlaps 10.2"},
		{"IPv6", "10.30.0.0/24,fd22::/80", false, "fd22::/80 overlaps fd22::/64 of network shop/black on router shop/main"},
	} {
		w.part(c.name, func(t *testing.T, w *world) {
			w.NAD("clash", fmt.Sprintf(`{"type":"ovn-multinet","subnets":%q,"router":"main"}`, c.subnets))
			w.notReady("clash", "router: ", c.says)
			if c.add {
				p := w.Pod(0, "clash", "clash")
				w.refused(w.TryAdd(p), conf.CodeTryAgain, "network shop/clash", c.says)
				w.End(p)
			}
			ping.goesOn()
			w.MustReach(red, w.Links(black)["net1"].IPs()...)
		})
	}
	// On a router of its own it is welcome, and so it is on none: the same addresses, in three worlds.
	w.network("clash", `{"type":"ovn-multinet","subnets":"10.21.0.0/24,fd21::/64","router":"other"}`)
	w.network("apart", `{"type":"ovn-multinet","subnets":"10.21.0.0/24,fd21::/64"}`)
	ours := []*lab.Pod{red, black}
	for i, name := range []string{"red", "clash", "apart"} {
		mac := fmt.Sprintf("02:00:00:00:00:0%d", i+1)
		twin := w.Attached(1, "twin-"+name, fmt.Sprintf(`[{"name":%q,"ips":["10.21.0.77","fd21::77"],"mac":%q}]`, name, mac))
		looks := w.Attached(0, "looks-"+name, name)
		w.MustReach(looks, "10.21.0.77", "fd21::77")
		out := w.Exec(looks, "ip", "neigh", "show", "10.21.0.77")
		if !strings.Contains(out, mac) {
			t.Errorf("%s finds another network's 10.21.0.77: %s", looks, out)
		}
		ours = append(ours, twin, looks)
	}
	ping.stop()
	w.End(ours...)
	w.endNetworks("red", "black", "clash", "apart")
	w.AsBefore()
}

// TestBoundaryRouterNeedsConsent: pods of another namespace reach a router's networks when its owner lets them, and as long
// as it does. Afterwards they go on, on their own network.
func TestBoundaryRouterNeedsConsent(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	guest := func(i int) string { return routed(i, "shop/main") }
	lets := func(keys string) string { return strings.Replace(routed(1, "main"), `"router"`, keys+`"router"`, 1) }
	const consent = `"routerGuests":[{"namespace":"web","subnets":"10.22.0.0/16,fd22::/64"}],`

	w.NAD("web/black", guest(2)) // before the router is there
	const says = `namespace web may not join router shop/main: write "routerGuests": [{"namespace": "web", "subnets": "10.22.0.0/24,fd22::/64"}]`
	w.notReady("web/black", says)
	w.network("red", routed(1, "main"))
	red := w.Attached(0, "red", "red")
	w.notReady("web/black", says)
	early, err := w.Nodes[1].NewPod(w.Ctx, "web", "early", map[string]string{labtest.NetworksAnnotation: "black"})
	w.Must(err)
	w.refused(w.TryAdd(early), conf.CodeTryAgain, "network web/black", says)
	w.End(early)

	w.network("red", lets(consent))
	w.inForce("web/black", guest(2))
	black, peer := w.podOf("web", 1, "black", "black"), w.podOf("web", 0, "peer", "black")
	w.Add(black)
	w.Add(peer)
	w.MustReach(red, w.Links(black)["net1"].IPs()...)
	w.MustReach(black, w.Links(red)["net1"].IPs()...)
	ping := w.pinging(black, w.Links(peer)["net1"].IPs()[0])
	rows := fmt.Sprint(w.portRow(black, "net1"), w.portRow(peer, "net1"))

	w.network("red", routed(1, "main"))
	w.notReady("web/black", says)
	w.unreachable([2]*lab.Pod{red, black}, [2]*lab.Pod{black, red}, [2]*lab.Pod{peer, red})
	ping.goesOn()
	late := w.podOf("web", 0, "late", "black") // new pods have the network too
	w.Add(late)
	w.MustReach(late, w.Links(black)["net1"].IPs()...)
	equal(t, "ports of the running pods", fmt.Sprint(w.portRow(black, "net1"), w.portRow(peer, "net1")), rows)

	w.network("red", lets(consent))
	w.inForce("web/black", guest(2))
	w.MustReach(late, w.Links(red)["net1"].IPs()...)
	w.End(red) // and the owner's last network, which takes its consent with it
	w.endNetworks("red")
	w.notReady("web/black", says)
	out := w.NBCtl("--bare", "--columns=name", "list", "Logical_Router")
	equal(t, "routers without a network of their own namespace", out, "")
	ping.goesOn()
	ping.stop()
	w.End(black, peer, late)
	w.endNetworks("web/black")
	w.AsBefore()
}

// TestBoundaryGatewayIsForThoseListed: a tenant whom the operator does not list neither takes a subnet outside from the
// others on the router, nor has it discarded.
func TestBoundaryGatewayIsForThoseListed(t *testing.T) {
	t.Parallel()
	w := newGatewayWorld(t, gatewayConfig, 0)
	w.gatewayStands(0)
	next := w.outside("next", 42, "192.0.2.1/24", "2001:db8::1/64", "198.51.100.1/24")
	w.network("hidden", outOf(1, ""))
	p := w.Attached(2, "web", "hidden")
	snat := []string{"192.0.2.10"}
	equal(t, "addresses that the next hop sees", w.seenFrom(p, next, "198.51.100.1"), snat)
	for name, config := range map[string]string{
		"web/thief": `{"type":"ovn-multinet","router":"/core","subnets":"198.51.100.0/24"}`,
		"web/hole":  `{"type":"ovn-multinet","router":"/core","topology":"layer3","subnets":"198.51.100.0/24/26"}`,
		"thief":     `{"type":"ovn-multinet","router":"/core","subnets":"198.51.100.0/24"}`, // of a namespace that is listed
		"web/other": `{"type":"ovn-multinet","router":"/edge","subnets":"198.51.100.0/24"}`,
	} {
		w.NAD(name, config)
		words := "namespace web may not join router /core"
		switch name {
		case "thief":
			words = "namespace shop may bring 10.0.0.0/8,fd00::/8 to router /core, not 198.51.100.0/24"
		case "web/other":
			words = "there is no router /edge of the whole cluster"
		}
		w.notReady(name, words, "object Router")
		w.noSwitch(strings.Replace("shop/"+name, "shop/web/", "web/", 1))
	}
	equal(t, "addresses that the next hop sees", w.seenFrom(p, next, "198.51.100.1"), snat)
	w.End(p)
	w.endNetworks("hidden", "web/thief", "web/hole", "thief", "web/other")
	w.asBeforeOutside()
}
