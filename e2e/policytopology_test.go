package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// guarded wants an address to answer the allowed places on port 80 alone, and no other place. The places forget the
// MACs that they know: ARP and neighbour discovery have to pass the policy.
func (w *world) guarded(to string, allowed, denied []place) {
	w.T.Helper()
	for _, from := range denied {
		w.closed(from, to, "tcp/80") // a policy needs a moment
	}
	for _, from := range slices.Concat(allowed, denied) {
		w.Exec(from, "ip", "neigh", "flush", "all")
	}
	for _, from := range denied {
		w.denied(from, to, "udp/80")
	}
	for _, from := range allowed {
		w.allowed(from, to, "tcp/80")
		w.allowed(from, to, "udp/80")
		w.denied(from, to, "tcp/81")
	}
}

// resolves wants a place to find the MAC of a neighbour that its packets do not reach.
func (w *world) resolves(from place, link, neighbour string) {
	w.T.Helper()
	w.Exec(from, "ip", "neigh", "flush", "all")
	w.Eventually(func() error {
		_ = w.Reaches(from, neighbour)
		out := w.Exec(from, "ip", "neigh", "show", neighbour, "dev", link)
		if !strings.Contains(out, "lladdr") {
			return fmt.Errorf("%s does not find the MAC of %s: %q", from, neighbour, out)
		}
		return nil
	})
}

// app makes a pod with the label app, which answers on ports 80 and 81.
func (w *world) app(node int, name, networks, app string) *lab.Pod {
	p := w.labelled(node, name, networks, map[string]string{"app": app})
	w.answer(p, 80, 81)
	return p
}

// fromPeers is the spec of a policy that lets peers reach pods with app=db on port 80.
func fromPeers(peers string) string {
	return `{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: [{from: [` + peers + `], ports: [` +
		`{port: 80}, {protocol: UDP, port: 80}]}]}`
}

const (
	web    = `{podSelector: {matchLabels: {app: web}}}`                                // a peer
	silent = `{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress]}` // the spec that allows nothing
)

// TestPolicyLayer3: a policy covers all node switches of a routed network.
func TestPolicyLayer3(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("wide", fmt.Sprintf(wide, ""))
	w.policy("p", "wide", fromPeers(web)) // before any node switch
	db := w.app(0, "db", "wide", "db")
	var allowed, denied []place
	for node := range w.Nodes {
		allowed = append(allowed, w.app(node, fmt.Sprint("web-", node), "wide", "web"))
		denied = append(denied, w.app(node, fmt.Sprint("other-", node), "wide", "other"))
	}
	second := w.app(1, "db-1", "wide", "db") // the group has ports on both node switches
	for _, p := range []*lab.Pod{db, second} {
		for _, to := range w.Links(p)["net1"].IPs() {
			w.guarded(to, allowed, denied)
		}
		for _, to := range w.inCore(denied[1].(*lab.Pod)) { // replies
			w.allowed(p, to, "tcp/80")
			w.allowed(p, to, "udp/80")
		}
	}
	w.policy("p", "wide", silent)
	for i, block := range w.blocksOf("shop/wide", w.Nodes[0]) {
		w.closed(db, w.Links(second)["net1"].IPs()[i], "tcp/80")
		w.resolves(db, "net1", block.Addr().Next().String())
	}
	w.Must(w.RemoveManifest(policyManifest("p")))
	for _, p := range append(allowed, append(denied, db, second)...) {
		w.End(p.(*lab.Pod))
	}
	w.endNetworks("wide")
	w.AsBefore()
}

// TestPolicyRouter: between two networks of one router, peers are addresses: a selector means the policy's network
// alone.
func TestPolicyRouter(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("red", routed(1, "main"))
	w.network("black", routed(2, "main"))
	db, near := w.app(0, "db", "red", "db"), w.app(1, "near", "red", "web")
	far, other := w.app(1, "far", "black", "web"), w.app(0, "other", "black", "web")
	addrs := w.Links(db)["net1"].IPs()
	w.policy("p", "red", fromPeers(web))
	for _, to := range addrs {
		w.guarded(to, []place{near}, []place{far, other})
	}
	except := w.Links(other)["net1"].IPs()
	w.policy("p", "red", fromPeers(fmt.Sprintf(
		`{ipBlock: {cidr: 10.22.0.0/24, except: [%s/32]}}, {ipBlock: {cidr: "fd22::/64", except: ["%s/128"]}}`,
		except[0], except[1])))
	for i, to := range addrs {
		w.guarded(to, []place{far}, []place{near, other})
		w.allowed(db, except[i], "tcp/80") // and the replies come back by the router
		w.allowed(db, except[i], "udp/80")
	}
	w.policy("p", "red,black", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [`+
		`{ipBlock: {cidr: 10.21.0.0/24}}, {ipBlock: {cidr: "fd21::/64"}}], ports: [{port: 80}]}]}`)
	for i, to := range addrs {
		w.closed(far, except[i], "tcp/80")
		w.allowed(far, to, "tcp/80")
		w.denied(far, to, "tcp/81")
		w.denied(far, to, "udp/80")
		w.allowed(db, w.Links(far)["net1"].IPs()[i], "tcp/81")
	}
	w.Must(w.RemoveManifest(policyManifest("p")))
	w.End(db, near, far, other)
	w.endNetworks("red", "black")
	w.AsBefore()
}

// TestPolicyLocalnet: machines on the physical network are peers by their addresses.
func TestPolicyLocalnet(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, grantedVLANs)
	w.network("v100", onVLAN(100, ""))
	out := w.outside("out", 100, "10.50.0.9/24", "fd50::9/64")
	stranger := w.outside("stranger", 100, "10.50.0.8/24", "fd50::8/64")
	w.answer(out, 80, 81)
	w.answer(stranger, 80, 81)
	w.policy("p", "v100", fromPeers(web+`, {ipBlock: {cidr: 10.50.0.0/28, except: [10.50.0.8/32]}}, `+
		`{ipBlock: {cidr: "fd50::/124", except: ["fd50::8/128"]}}`))
	db, peer, other := w.app(0, "db", "v100", "db"), w.app(1, "web", "v100", "web"), w.app(1, "other", "v100", "other")
	for _, to := range w.Links(db)["net1"].IPs() {
		w.guarded(to, []place{out, peer}, []place{stranger, other})
	}
	for _, to := range []string{"10.50.0.8", "fd50::8"} { // replies
		w.allowed(db, to, "tcp/80")
		w.allowed(db, to, "udp/80")
	}
	w.policy("p", "v100", silent)
	for _, to := range []string{"10.50.0.9", "fd50::9"} {
		w.closed(db, to, "tcp/80")
		w.resolves(db, "net1", to)
	}
	for _, to := range w.Links(db)["net1"].IPs() {
		w.denied(out, to, "tcp/80")
		w.resolves(out, "eth0", to)
	}
	w.Must(w.RemoveManifest(policyManifest("p")))
	w.End(db, peer, other)
	w.endNetworks("v100")
	w.asBeforeOutside()
}

// TestPolicyGateway: an ipBlock covers machines behind a router's gateway, in both directions, with and without SNAT.
func TestPolicyGateway(t *testing.T) {
	t.Parallel()
	w := newGatewayWorld(t, gatewayConfig, 0)
	w.gatewayStands(0)
	var hosts []place
	for i, name := range []string{"friend", "stranger"} {
		h := w.outside(name, 42, fmt.Sprintf("192.0.2.%d/24", 8+i), fmt.Sprintf("2001:db8::%d/64", 8+i))
		w.Must(h.Route(w.Ctx, "10.22.0.0/24", "192.0.2.10"))
		w.Must(h.Route(w.Ctx, "fd22::/64", "2001:db8::10"))
		w.answer(h, 80, 81)
		hosts = append(hosts, h)
	}
	addrs := [2][]string{{"192.0.2.8", "2001:db8::8"}, {"192.0.2.9", "2001:db8::9"}} // of friend and of stranger
	const peers = `{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.9/32]}}, ` +
		`{ipBlock: {cidr: "2001:db8::/64", except: ["2001:db8::9/128"]}}`
	w.network("hidden", outOf(1, ""))
	w.network("open", outOf(2, `"snat":false,`))
	db, hidden := w.app(1, "db", "open", "db"), w.app(2, "hidden", "hidden", "db")
	w.MustReach(hidden, slices.Concat(addrs[0], addrs[1])...)
	w.MustReach(hosts[0], w.inCore(db)...)
	w.policy("p", "open", fromPeers(peers))
	for _, to := range w.Links(db)["net1"].IPs() {
		w.guarded(to, hosts[:1], hosts[1:])
	}
	for _, to := range addrs[1] { // replies
		w.allowed(db, to, "tcp/80")
		w.allowed(db, to, "udp/80")
	}
	w.policy("p", "open,hidden",
		`{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{to: [`+peers+`]}]}`)
	for _, p := range []*lab.Pod{db, hidden} {
		for i, to := range addrs[1] {
			w.closed(p, to, "tcp/80")
			w.denied(p, to, "udp/80")
			w.allowed(p, addrs[0][i], "tcp/80")
			w.allowed(p, addrs[0][i], "udp/81")
		}
	}
	for _, to := range w.Links(db)["net1"].IPs() {
		w.allowed(hosts[1], to, "tcp/80") // egress is restricted alone, and replies pass
	}
	w.Must(w.RemoveManifest(policyManifest("p")))
	w.End(db, hidden)
	w.endNetworks("hidden", "open")
	w.asBeforeOutside()
}
