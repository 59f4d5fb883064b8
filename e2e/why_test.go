package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestWhy: for each question, `kubectl multinet why` says what packets say, and names the cause.
func TestWhy(t *testing.T) {
	t.Parallel()
	w := newGatewayWorld(t, gatewayConfig, 1)
	w.gatewayStands(1)
	host := w.outside("host", 42, "192.0.2.9/24", "2001:db8::9/64")
	w.answer(host, 80)
	// Router /core has the networks left and right, which have routes to each other and to the world, and mute, which has
	// none. Network lonely has no router.
	routesTo := func(networks ...int) string {
		routes := []string{`{"dst":"192.0.2.0/24"}`, `{"dst":"2001:db8::/64"}`}
		for _, i := range networks {
			routes = append(routes, fmt.Sprintf(`{"dst":"10.%d.0.0/24"},{"dst":"fd%[1]d::/64"}`, i))
		}
		return `,"routes":[` + strings.Join(routes, ",") + `]`
	}
	for name, config := range map[string]string{
		"left":   `"router":"/core","subnets":"10.21.0.0/24,fd21::/64"` + routesTo(22, 23),
		"right":  `"router":"/core","subnets":"10.22.0.0/24,fd22::/64"` + routesTo(21),
		"mute":   `"router":"/core","subnets":"10.23.0.0/24,fd23::/64"`,
		"lonely": `"subnets":"10.24.0.0/24"`,
	} {
		w.network(name, `{"type":"ovn-multinet",`+config+`}`)
	}
	pod := func(node int, name, networks string) *lab.Pod {
		p := w.labelled(node, name, networks, map[string]string{"app": name})
		w.answer(p, 80)
		return p
	}
	from, near, far := pod(0, "from", "left"), pod(1, "near", "left"), pod(2, "far", "right")
	mute, lonely, guarded := pod(1, "mute", "mute"), pod(0, "lonely", "lonely"), pod(2, "guarded", "left")
	both := pod(2, "both", "left,mute")
	w.policy("deny", "left", `{podSelector: {matchLabels: {app: guarded}}}`)
	virtual := w.service("near", serviceYAML("near", "left", "auto", "{port: 80}", ""))
	empty := w.service("nobody", serviceYAML("nobody", "left", "auto", "{port: 80}", ""))
	ips := func(p *lab.Pod, ifName string) []string { return w.Links(p)[ifName].IPs() }
	at := func(address string) string { return netip.AddrPortFrom(netip.MustParseAddr(address), 80).String() }
	for i, address := range ips(near, "net1") {
		w.backendsAre("shop/near", "shop/left", "tcp", at(virtual[i]), at(address))
	}

	for _, q := range []struct {
		from  *lab.Pod
		to    []string // addresses
		cause string   // "": the packets arrive
	}{
		{from, ips(near, "net1"), ""},
		{from, ips(far, "net1"), ""},
		{far, ips(from, "net1"), ""},
		{from, ips(both, "net2"), ""}, // its answers leave by net2, though the network has no route
		{from, virtual, ""},
		{from, []string{"192.0.2.9", "2001:db8::9"}, ""},
		{from, ips(mute, "net1"), "answer: shop/mute:net1 (shop/mute) has no route to "},
		{mute, ips(from, "net1"), "route: shop/mute:net1 (shop/mute) has no route to "},
		{mute, []string{"192.0.2.9"}, "route: shop/mute:net1 (shop/mute) has no route to 192.0.2.9"},
		{from, ips(guarded, "net1"), "policies: "},
		{from, empty, "service: " + empty[0] + " is an address of Service shop/nobody, which has no backend"},
		{from, []string{"10.22.0.200"}, "address: no pod on network shop/right has 10.22.0.200"},
		{from, ips(lonely, "net1"), "network: no network, router or VLAN connects "},
		{lonely, []string{"192.0.2.9"}, "gateway: 192.0.2.9 is on no network that shop/lonely reaches"},
	} {
		for _, to := range q.to {
			w.agreesWhy(q.from, to, strings.Replace(q.cause, empty[0], to, 1))
		}
	}
	w.Must(near.RemoveManifest())
	w.backendsAre("shop/near", "shop/left", "tcp", at(virtual[0]))
	w.agreesWhy(from, virtual[0], "service: "+virtual[0]+" is an address of Service shop/near, which has no backend")
}

// agreesWhy compares the answer to a question with a packet, and the cause with what is wanted; "": the packet arrives.
func (w *world) agreesWhy(from *lab.Pod, to, cause string) {
	w.T.Helper()
	out, err := w.Lab.Multinet(w.Ctx, "why", from.Namespace+"/"+from.Name, to, "tcp/80", "-o", "json")
	var answer struct {
		Reaches bool
		Steps   []struct {
			What, Says string
			OK         bool
		}
	}
	if wrong := json.Unmarshal([]byte(out), &answer); wrong != nil || answer.Reaches != (err == nil) {
		w.T.Fatalf("%s to %s: %v, %v: %s", from, to, err, wrong, out)
	}
	said := ""
	for _, s := range answer.Steps {
		if said == "" && !s.OK {
			said = s.What + ": " + s.Says
		}
	}
	if answer.Reaches != (cause == "") || !strings.HasPrefix(said, cause) {
		w.T.Errorf("%s to %s: %t, %q, want %q", from, to, answer.Reaches, said, cause)
	}
	if cause == "" {
		w.allowed(from, to, "tcp/80")
	} else if answered, _ := probe(from, to, "tcp/80"); answered {
		w.T.Errorf("%s gets an answer from %s, and why says %q", from, to, said)
	}
}
