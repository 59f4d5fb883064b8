package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// functions are a network with subnets behind two pods: they share one of each family, and stand in for each other at
// another one.
const functions = `{"type":"ovn-multinet","router":"/core","subnets":"10.20.0.0/24,fd20::/64","snat":false,
	"routes":[{"dst":"192.0.2.0/24"},{"dst":"2001:db8::/32"},{"dst":"10.21.0.0/24"},{"dst":"fd21::/64"},{"dst":"10.60.0.0/14"},{"dst":"fd60::/64"}],
	"subnetsBehind":[%s]}`

const (
	shared  = `{"subnet":"10.60.0.0/16","via":"10.20.0.5,10.20.0.6"},{"subnet":"fd60::/64","via":"fd20::5,fd20::6"}`
	standby = `{"subnet":"10.61.0.0/16","via":"10.20.0.6,10.20.0.5","standby":true}`
	later   = `{"subnet":"10.62.0.0/16","via":"10.20.0.5"}`
)

// hosts are addresses behind the pods, one in each subnet.
var hosts = []string{"10.60.0.7", "fd60::7", "10.61.0.7", "10.62.0.7"}

// function is a pod with these hosts behind it. It answers for them.
func (w *world) function(node int, name, last string) (*lab.Pod, *answerer) {
	p := w.Pod(node, name, fmt.Sprintf(`[{"name":"functions","ips":["10.20.0.%s","fd20::%[1]s"]}]`, last))
	p.Ready = "True"
	w.Must(p.WriteManifest())
	w.Add(p)
	w.hosts(p, hosts...)
	return p, w.answer(p, 80)
}

// hosts puts hosts behind a pod.
func (w *world) hosts(p *lab.Pod, addresses ...string) {
	for _, a := range addresses {
		w.Exec(p, "ip", "addr", "add", a, "dev", "lo")
	}
}

// behind waits until the routes of the router to a subnet have these next hops, on all nodes.
func (w *world) behind(subnet string, nextHops ...string) {
	w.T.Helper()
	w.Eventually(func() error {
		out, err := w.Lab.NBCtl(w.Ctx, "--bare", "--columns=nexthop", "find", "Logical_Router_Static_Route",
			`ip_prefix="`+subnet+`"`, `external_ids:"ovn-multinet/behind"="shop"`)
		got := strings.Fields(out)
		if slices.Sort(got); err != nil || !slices.Equal(got, nextHops) {
			return fmt.Errorf("%s is behind %q (%v), want %q", subnet, got, err, nextHops)
		}
		return nil
	})
	w.NBCtl("--wait=hv", "sync")
}

// TestSubnetsBehind: hosts behind pods are reached from the network, from another one of the router and from outside, and
// reach them. Pods that share a subnet both get traffic, a standby gets all when the first one is not ready any more, and
// without a ready pod packets are dropped. A change of the network counts at once, and no other pod may use the subnet.
func TestSubnetsBehind(t *testing.T) {
	t.Parallel()
	w := newGatewayWorld(t, gatewayConfig, 0, 1)
	w.gatewayStands(0, 1)
	host := w.outside("host", 42, "192.0.2.9/24", "2001:db8::9/64")
	for to, via := range map[string]string{"10.60.0.0/14": "192.0.2.10", "fd60::/64": "2001:db8::10"} {
		w.Must(host.Route(w.Ctx, to, via))
	}
	w.network("functions", fmt.Sprintf(functions, shared+","+standby))
	w.network("far", outOf(1, `"snat":false,`))
	w.behind("10.60.0.0/16", "discard")
	a, atA := w.function(0, "upf-a", "5")
	b, atB := w.function(1, "upf-b", "6")
	near, far := w.Attached(2, "near", "functions"), w.Attached(1, "far", `[{"name":"far","default-route":["10.21.0.1","fd21::1"]}]`)
	w.behind("10.60.0.0/16", "10.20.0.5", "10.20.0.6")
	w.behind("fd60::/64", "fd20::5", "fd20::6")
	w.behind("10.61.0.0/16", "10.20.0.6")

	gained := func(to string) (n [2]int) {
		t.Helper()
		before := [2]int{atA.of("tcp/80"), atB.of("tcp/80")}
		for range 40 {
			w.allowed(far, to, "tcp/80")
		}
		return [2]int{atA.of("tcp/80") - before[0], atB.of("tcp/80") - before[1]}
	}
	for _, to := range hosts[:2] {
		if n := gained(to); n[0] == 0 || n[1] == 0 {
			t.Errorf("of 40 connections to %s %v came to the two pods, want some to each", to, n)
		}
	}
	equal(t, "connections to the second one of a pair", gained(hosts[2])[0], 0)
	for _, from := range []endpoint{near, far, host} {
		w.MustReach(from, hosts[:3]...)
	}
	w.Eventually(func() error {
		_, err := b.Exec(w.Ctx, "ping", "-c", "1", "-W", "1", "-I", hosts[2], "192.0.2.9")
		return err
	})
	w.part("others may not use the subnets", func(_ *testing.T, w *world) { w.subnetsOfOthers(near, a, b) })
	w.part("policies see the hosts", func(_ *testing.T, w *world) { w.policiesOfHosts(near, far) })

	ready := func(p *lab.Pod, is string) {
		p.Ready = is
		w.Must(p.WriteManifest())
	}
	ready(b, "False")
	w.behind("10.60.0.0/16", "10.20.0.5")
	w.behind("fd60::/64", "fd20::5")
	w.behind("10.61.0.0/16", "10.20.0.5")
	for _, to := range hosts[:3] {
		equal(t, "connections to "+to+" that came to a pod that is not ready", gained(to)[1], 0)
	}

	w.network("functions", fmt.Sprintf(functions, shared+","+later)) // 10.61.0.0/16 is not behind the pods any more
	w.behind("10.62.0.0/16", "10.20.0.5")
	w.MustReach(far, hosts[3])
	out := w.NBCtl("--bare", "--columns=port_security", "find", "Logical_Switch_Port", `external_ids:"ovn-multinet/pod"=upf-a`)
	if strings.Contains(out, "10.61.0.0/16") || !strings.Contains(out, "10.62.0.0/16") {
		t.Errorf("port security of a pod that runs: %s", out)
	}

	ready(b, "True")
	w.behind("10.60.0.0/16", "10.20.0.5", "10.20.0.6")
	w.End(a)
	w.behind("10.60.0.0/16", "10.20.0.6")
	w.behind("10.62.0.0/16", "discard")
	w.MustReach(near, hosts[:2]...)
	w.closed(far, hosts[3], "tcp/80")

	w.End(b, near, far)
	w.endNetworks("functions", "far")
	w.asBeforeOutside()
}

// subnetsOfOthers: port security stops what a pod sends from a subnet that is not behind it, and nobody else gets the
// address of a next hop. The pod to sees what arrives: a way back would be missing anyhow.
func (w *world) subnetsOfOthers(other, nextHop, to *lab.Pod) {
	w.hosts(other, "10.60.0.9")
	w.hosts(nextHop, "10.99.0.9")
	seen, err := to.Capture("net1")
	w.Must(err)
	defer seen.Close()
	for p, source := range map[*lab.Pod]string{other: "10.60.0.9", nextHop: "10.99.0.9"} {
		w.MustReach(p, "10.20.0.6") // neighbours are known
		_, _ = p.Exec(w.Ctx, "ping", "-c", "1", "-W", "1", "-I", source, "10.20.0.6")
		w.MustReach(p, "10.20.0.6") // behind the packet of before
	}
	_, _ = nextHop.Exec(w.Ctx, "ping", "-c", "1", "-W", "1", "-I", hosts[0], "10.20.0.6")
	w.Eventually(func() error { // such a packet would be seen
		sources, err := seen.Sources()
		if err == nil && !slices.Contains(sources, netip.MustParseAddr(hosts[0])) {
			err = fmt.Errorf("echo requests of %v have come", sources)
			_, _ = nextHop.Exec(w.Ctx, "ping", "-c", "1", "-W", "1", "-I", hosts[0], "10.20.0.6")
		}
		return err
	})
	sources, err := seen.Sources()
	w.Must(err)
	for _, source := range []string{"10.60.0.9", "10.99.0.9"} {
		if slices.Contains(sources, netip.MustParseAddr(source)) {
			w.T.Errorf("a packet from %s has come", source)
		}
	}
	foreign := w.Pod(2, "foreign", `[{"name":"functions","ips":["10.20.0.5"]}]`)
	w.Must(foreign.WriteManifest())
	if err := w.TryAdd(foreign); err == nil {
		w.T.Error("another pod got the address of a next hop")
	}
	w.End(foreign)
}

// policiesOfHosts: an ipBlock names hosts behind pods, as source and as destination.
func (w *world) policiesOfHosts(near, far *lab.Pod) {
	w.policy("hosts", "functions", `{podSelector: {}, policyTypes: [Ingress],
		ingress: [{from: [{ipBlock: {cidr: 10.21.0.0/24}}], ports: [{port: 80}]}]}`)
	w.closed(near, hosts[0], "tcp/80")
	w.allowed(far, hosts[0], "tcp/80")
	w.Must(w.RemoveManifest(policyManifest("hosts")))
	w.policy("hosts", "functions", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.60.0.0/16}}]}]}`)
	w.closed(near, hosts[2], "tcp/80")
	w.allowed(near, hosts[0], "tcp/80")
	w.Must(w.RemoveManifest(policyManifest("hosts")))
}

// TestSubnetBehindWithoutRouter: a pod of a network without a router forwards for a subnet. The other pods reach it by a
// route.
func TestSubnetBehindWithoutRouter(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("plain", `{"type":"ovn-multinet","subnets":"10.22.0.0/24,fd22::/64",
		"routes":[{"dst":"198.51.100.0/24","gw":"10.22.0.5"},{"dst":"2001:db8:5::/64","gw":"fd22::5"}],
		"subnetsBehind":[{"subnet":"198.51.100.0/24","via":"10.22.0.5"},{"subnet":"2001:db8:5::/64","via":"fd22::5"}]}`)
	w.Base = w.Snapshot()
	fw := w.Attached(0, "fw", `[{"name":"plain","ips":["10.22.0.5","fd22::5"]}]`)
	w.hosts(fw, "198.51.100.5", "2001:db8:5::5")
	app, other := w.Attached(1, "app", "plain"), w.Attached(0, "other", "plain")
	for _, p := range []*lab.Pod{app, other} {
		w.MustReach(p, "198.51.100.5", "2001:db8:5::5")
	}
	w.Over(fw, app, other)
}
