package ovnnet_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// Networks of two namespaces: shop/blue owns router shop/r1, web/green wants to join it.
const (
	greenNet = `"subnets":"10.2.0.0/24"`
	onShopR1 = `,"router":"shop/r1"`
	letsWeb  = `,"routerGuests":[{"namespace":"web","subnets":"10.2.0.0/16"}]`

	// Why web/green is refused where shop does not let it join.
	noConsent = `router: namespace web may not join router shop/r1: write "routerGuests": [{"namespace": "web", "subnets": "10.2.0.0/24"}] ` +
		`in spec.config of a network of namespace shop that is on the router`
)

var greenKey = ovndb.SwitchKey("web/green")

func networkIn(t *testing.T, namespace, name, keys string) *netmodel.Network {
	t.Helper()
	n, err := netmodel.ParseNetwork(namespace, name, []byte(spec(keys)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// routerPorts lists the ports of routers.
func (w *world) routerPorts(t *testing.T) string {
	t.Helper()
	return w.names(t, "Logical_Router_Port")
}

// wantOffRouter waits until web/green is on no router, and compares what the pods on the network have.
func (r *running) wantOffRouter(t *testing.T, reason string) {
	t.Helper()
	r.wantState(t, "web/green", "refused: "+reason+", held")
	rows := r.rows(t)
	for _, port := range rows["Logical_Router_Port"] {
		if strings.Contains(port["external_ids"], "ovn-multinet/network=web/green") {
			t.Errorf("web/green is on a router still: %v", port)
		}
	}
	// New pods are attached by the configuration in force, which names no router.
	ids := rows["Logical_Switch"][greenKey]["external_ids"]
	inForce := networkIn(t, "web", "green", greenNet)
	for _, want := range []string{"ovn-multinet/config=" + inForce.Canonical(), "ovn-multinet/nad:web/green=" + inForce.Revision()} {
		if !strings.Contains(ids, want) {
			t.Errorf("external_ids %s; want %s", ids, want)
		}
	}
	if !strings.Contains(r.names(t, "Logical_Switch_Port"), "web/web-0/net1") {
		t.Error("the pod's port is gone")
	}
}

// greenPod puts a pod's port on web/green.
func (w *world) greenPod(t *testing.T) {
	t.Helper()
	w.putPort(t, "Logical_Switch", greenKey, ovndb.AddressKey("web/green", netip.MustParseAddr("10.2.0.7")), ovndbtest.Op{
		"name": "web/web-0/net1", "external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/network": "web/green",
			"ovn-multinet/namespace": "web", "ovn-multinet/pod": "web-0", "ovn-multinet/sandbox": "s1"})})
}

// A router's name is its namespace's: networks of two namespaces that name one are on two.
func TestBoundaryRouterBelongsToANamespace(t *testing.T) {
	r := run(t, newWorld(t), newAPI())
	r.apply("shop/blue", spec(net4+onR1))
	r.apply("web/green", spec(net4+onR1)) // on one router their subnets would overlap
	r.wantState(t, "shop/blue", "ready, held")
	r.wantState(t, "web/green", "ready, held")
	if got := r.names(t, "Logical_Router") + ", " + r.routerPorts(t); got != "shop/r1 web/r1, shop/r1:shop/blue web/r1:web/green" {
		t.Errorf("routers and ports %q", got)
	}
	r.apply("shop/red", spec(`"subnets":"10.3.0.0/24"`+onShopR1)) // the full name of its own
	r.wantState(t, "shop/red", "ready, held")
	if got := r.routerPorts(t); got != "shop/r1:shop/blue shop/r1:shop/red web/r1:web/green" {
		t.Errorf("ports %q", got)
	}
}

// A network of another namespace joins when an accepted network on the router says so, with the subnets that it says.
func TestBoundaryGuestNeedsConsent(t *testing.T) {
	const layer3Green = `"topology":"layer3","subnets":"10.2.0.0/24/26"`
	within := func(subnets string) string {
		return `router: namespace web may bring ` + subnets + ` to router shop/r1, not 10.2.0.0/24: add it to "subnets" of web in "routerGuests" ` +
			`in spec.config of a network of namespace shop that is on the router`
	}
	lets := func(namespace, subnets string) string {
		return fmt.Sprintf(`,"routerGuests":[{"namespace":%q,"subnets":%q}]`, namespace, subnets)
	}
	tests := []struct {
		name, owner, green string
		reason             string // "": it joins
	}{
		{"nobody is listed", net4 + onR1, greenNet, noConsent},
		{"layer3, whose route would discard", net4 + onR1, layer3Green, noConsent},
		{"another namespace is listed", net4 + onR1 + lets("we", "0.0.0.0/0"), greenNet, noConsent},
		{"another router's guests", net4 + `,"router":"r2"` + letsWeb, greenNet, noConsent},
		{"other subnets", net4 + onR1 + lets("web", "10.3.0.0/16,fd02::/64"), greenNet, within("10.3.0.0/16,fd02::/64")},
		{"a part of the subnet", net4 + onR1 + lets("web", "10.2.0.0/25"), greenNet, within("10.2.0.0/25")},
		{"one family of two", net4 + onR1 + lets("web", "fd02::/64"), `"subnets":"10.2.0.0/24,fd02::/64"`, within("fd02::/64")},
		{"consent", net4 + onR1 + letsWeb, greenNet, ""},
		{"consent of a layer3 network, to one", `"topology":"layer3","subnets":"10.1.0.0/24/26"` + onR1 + letsWeb, layer3Green, ""},
		{"consent to anything", net4 + onR1 + lets("web", "0.0.0.0/0"), greenNet, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := run(t, newWorld(t), newAPI())
			r.apply("shop/blue", spec(tt.owner))
			r.wantState(t, "shop/blue", "ready, held")
			before := r.rows(t)
			r.apply("web/green", spec(tt.green+onShopR1))
			if tt.reason != "" {
				r.wantState(t, "web/green", "refused: "+tt.reason+", held")
				r.wantRows(t, before)
				return
			}
			r.wantState(t, "web/green", "ready, held")
			if got := r.names(t, "Logical_Router"); got != "shop/r1" {
				t.Errorf("routers %q", got)
			}
			// What leads to web/green: a port, or of layer3 the route to the whole.
			if got := r.routerPorts(t) + r.routes(t, ovndb.RouterKey("shop/r1")); !strings.Contains(got, "web/green") && !strings.Contains(got, "10.2.0.0/24") {
				t.Errorf("ports and routes %q", got)
			}
		})
	}
}

// A guest neither makes the router nor keeps it: it waits for the owner's network, and leaves when that does. It is not
// looked at by itself before the next full pass, which is minutes away: the owner's change has it looked at.
func TestBoundaryConsentIsWithdrawn(t *testing.T) {
	const notThere = noConsent
	ways := map[string]struct {
		withdraw func(t *testing.T, r *running)
		reason   string
		routers  string
	}{
		"the key goes": {func(t *testing.T, r *running) { r.apply("shop/blue", spec(net4+onR1)) }, noConsent, "shop/r1"},
		"the subnets shrink": {func(t *testing.T, r *running) {
			r.apply("shop/blue", spec(net4+onR1+`,"routerGuests":[{"namespace":"web","subnets":"10.2.0.0/25"}]`))
		}, `router: namespace web may bring 10.2.0.0/25 to router shop/r1, not 10.2.0.0/24: add it to "subnets" of web in "routerGuests" ` +
			`in spec.config of a network of namespace shop that is on the router`, "shop/r1"},
		"the network leaves the router": {func(t *testing.T, r *running) { r.apply("shop/blue", spec(net4)) }, notThere, ""},
		"the network moves":             {func(t *testing.T, r *running) { r.apply("shop/blue", spec(net4+`,"router":"r2"`+letsWeb)) }, notThere, "shop/r2"},
		"the network goes":              {func(t *testing.T, r *running) { r.deleteNAD(t, "shop/blue") }, notThere, ""},
		"the network is another type's": {func(t *testing.T, r *running) { r.apply("shop/blue", `{"type":"bridge"}`) }, notThere, ""},
		"the network goes, with a pod on": {func(t *testing.T, r *running) {
			r.pod(t, "blue", "10.1.0.7", "web-0", "net1")
			r.deleteNAD(t, "shop/blue")
		}, notThere, "shop/r1"},
	}
	for name, tt := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			r := run(t, newWorld(t), newAPI())
			r.apply("web/green", spec(greenNet+onShopR1))
			r.wantState(t, "web/green", "refused: "+noConsent+", held")
			r.wantRows(t, map[string]map[string]fields{})
			r.apply("shop/blue", spec(net4+onR1+letsWeb))
			r.wantState(t, "web/green", "ready, held")
			if got := r.routerPorts(t); got != "shop/r1:shop/blue shop/r1:web/green" {
				t.Errorf("ports of routers %q", got)
			}
			r.greenPod(t)
			tt.withdraw(t, r)
			r.wantOffRouter(t, tt.reason)
			eventually(t, tt.routers, func() string { return r.names(t, "Logical_Router") })
			r.apply("shop/blue2", spec(`"subnets":"10.3.0.0/24"`+onR1+letsWeb)) // another network of shop's says so
			r.wantState(t, "web/green", "ready, held")
		})
	}
}

// A withdrawal costs one transaction of the owner's network and one of each guest.
func TestBoundaryWithdrawalIsTwoTransactions(t *testing.T) {
	w := newWorld(t)
	r := run(t, w, newAPI())
	r.apply("shop/blue", spec(net4+onR1+letsWeb))
	r.wantState(t, "shop/blue", "ready, held")
	r.apply("web/green", spec(greenNet+onShopR1))
	r.wantState(t, "web/green", "ready, held")
	r.greenPod(t)
	w.proxy.Reset()
	r.apply("shop/blue", spec(net4+onR1))
	r.wantOffRouter(t, noConsent)
	got := w.proxy.Counts().Committed // the router, which has ports still, is not dropped
	t.Attr("boundary.transactions-per-withdrawal", fmt.Sprint(got))
	if got != 2 {
		t.Errorf("%d transactions, want 2", got)
	}
}

// A guest whose NAD cannot be read any more, or is being deleted, leaves the router too.
func TestBoundaryWithdrawalMeetsAnyGuest(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, r *running){
		"not valid": func(t *testing.T, r *running) {
			r.apply("web/green", spec(`"subnets":"10.2.0.0"`+onShopR1))
			r.wantState(t, "web/green", `refused: network web/green: subnets: "10.2.0.0" is not a network like 10.1.0.0/16, held`)
		},
		"being deleted": func(t *testing.T, r *running) {
			r.deleteNAD(t, "web/green")
			r.wantState(t, "web/green", "refused: being deleted, used by pod web/web-0, held")
		},
		"of another type": func(t *testing.T, r *running) {
			r.apply("web/green", `{"type":"bridge"}`)
			r.wantState(t, "web/green", "nothing")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, newWorld(t), newAPI())
			r.apply("shop/blue", spec(net4+onR1+letsWeb))
			r.wantState(t, "shop/blue", "ready, held")
			r.apply("web/green", spec(greenNet+onShopR1))
			r.wantState(t, "web/green", "ready, held")
			r.greenPod(t)
			do(t, r)
			r.apply("shop/blue", spec(net4+onR1))
			eventually(t, "shop/r1:shop/blue", func() string { return r.routerPorts(t) })
			if got := r.names(t, "Logical_Switch_Port"); got != "shop/blue:shop/r1 web/web-0/net1" {
				t.Errorf("ports %q", got)
			}
		})
	}
}

// Consent that goes between the look and the write is not used.
func TestBoundaryConsentIsRaced(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, w *world){
		"withdrawn": func(t *testing.T, w *world) { ensure(t, w.other(t), network(t, "blue", net4+onR1)) },
		"off":       func(t *testing.T, w *world) { ensure(t, w.other(t), network(t, "blue", net4)) },
		"not accepted": func(t *testing.T, w *world) {
			w.pod(t, "blue", "10.1.0.7", "web-0", "net1")
			if err := w.other(t).Remove(withLimit(t), "shop/blue", false); err == nil {
				t.Error("the network is removed with a pod on it")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ensure(t, w.networks, network(t, "blue", net4+onR1+letsWeb))
			w.meanwhile(t, "Logical_Router_Port", func() { meanwhile(t, w) })
			w.wantRefused(t, networkIn(t, "web", "green", greenNet+onShopR1), noConsent)
			if got := w.switches(t); got != "shop/blue" {
				t.Errorf("switches %q", got)
			}
		})
	}
}

// A port on the router does not say that its network is for that router: the accepted configuration does.
func TestBoundaryConsentIsOfTheAcceptedConfiguration(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", net4+onR1+letsWeb))
	other := network(t, "blue", net4+`,"router":"r2"`+letsWeb)
	marks := map[string]string{
		"ovn-multinet/network": "shop/blue", "ovn-multinet/config": other.Canonical(), "ovn-multinet/nad:shop/blue": other.Revision()}
	w.change(t, "Logical_Switch", blueKey, ovndbtest.Op{"external_ids": ovndbtest.Map(marks)})
	w.wantRefused(t, networkIn(t, "web", "green", greenNet+onShopR1), noConsent)
	// A namespace of the same name in another cluster consents to nothing here.
	same := network(t, "blue", net4+onR1+letsWeb)
	marks["ovn-multinet/config"], marks["ovn-multinet/nad:shop/blue"] = same.Canonical(), same.Revision()
	marks["ovn-multinet/cluster"] = "other"
	w.change(t, "Logical_Switch", blueKey, ovndbtest.Op{"external_ids": ovndbtest.Map(marks)})
	w.wantRefused(t, networkIn(t, "web", "green", greenNet+onShopR1), noConsent)
	delete(marks, "ovn-multinet/cluster")
	w.change(t, "Logical_Switch", blueKey, ovndbtest.Op{"external_ids": ovndbtest.Map(marks)})
	ensure(t, w.networks, networkIn(t, "web", "green", greenNet+onShopR1))
}

// A layer3 guest that leaves gets a router of its own, so that its nodes' blocks reach each other still. An agent that has
// not heard of it does not put a node's part on the owner's router.
func TestBoundaryLayer3GuestLeaves(t *testing.T) {
	const wide = `"topology":"layer3","subnets":"10.2.0.0/24/26"`
	w := newWorld(t)
	r := run(t, w, newAPI())
	r.apply("shop/blue", spec(net4+onR1+letsWeb))
	r.wantState(t, "shop/blue", "ready, held")
	r.apply("web/green", spec(wide+onShopR1))
	r.wantState(t, "web/green", "ready, held")
	guest := networkIn(t, "web", "green", wide+onShopR1)
	share(t, w.other(t), guest, "n1")
	if got := r.routerPorts(t) + ", " + r.routes(t, ovndb.RouterKey("shop/r1")); got != "shop/r1:shop/blue shop/r1:web/green@n1, 10.2.0.0/24 via discard" {
		t.Errorf("ports and routes %q", got)
	}
	r.apply("shop/blue", spec(net4+onR1))
	r.wantState(t, "web/green", "refused: "+noConsent+", held")
	if got := r.routerPorts(t) + ", " + r.routes(t, ovndb.RouterKey("shop/r1")); got != "shop/r1:shop/blue web/green:router:web/green@n1, " {
		t.Errorf("ports and routes %q", got)
	}
	if _, err := w.other(t).Share(withLimit(t), guest, "n2"); !errors.Is(err, ovnnet.ErrNotAccepted) {
		t.Errorf("an agent with an old view gets %v", err)
	}
	share(t, w.other(t), networkIn(t, "web", "green", wide), "n2") // which is what is in force
	if got := r.routerPorts(t); got != "shop/r1:shop/blue web/green:router:web/green@n1 web/green:router:web/green@n2" {
		t.Errorf("ports %q", got)
	}
}

// operated is a world whose controller's --config has router /core, and what it says of namespaces.
func operated(t *testing.T, w *world, a *api, routers map[string]string) *running {
	t.Helper()
	config := map[string]*netmodel.Router{}
	for name, keys := range routers {
		config[name] = routerConf(t, name, keys)
	}
	return runAs(t, w, connectFor(t, w.proxy.Endpoint(), config), a, leads)
}

const core = "/core"

// A router of the whole cluster is the operator's: it is there if --config describes it, for those who are listed there.
func TestBoundaryRouterOfTheCluster(t *testing.T) {
	const (
		on        = `,"router":"/core"`
		where     = ` under "namespaces" of router /core in the controller's --config`
		notListed = `router: namespace web may not join router /core: the operator writes web: {subnets: "10.2.0.0/24"}` + where
	)
	tests := []struct {
		name, namespaces, green string // namespaces "": there is no such router
		reason                  string
	}{
		{"no such router", "", greenNet, `router: there is no router /core of the whole cluster: the operator describes it under "routers" in the controller's --config`},
		{"nobody is listed", `{}`, greenNet, notListed},
		{"another namespace is listed", `{"shop":{"subnets":"0.0.0.0/0"}}`, greenNet, notListed},
		{"layer3", `{"shop":{"subnets":"0.0.0.0/0"}}`, `"topology":"layer3","subnets":"10.2.0.0/24/26"`, notListed},
		{"another subnet", `{"web":{"subnets":"10.3.0.0/16"}}`, greenNet,
			`router: namespace web may bring 10.3.0.0/16 to router /core, not 10.2.0.0/24: the operator adds it to "subnets" of web` + where},
		{"another subnet, for all", `{"*":{"subnets":"10.3.0.0/16"}}`, greenNet,
			`router: namespace web may bring 10.3.0.0/16 to router /core, not 10.2.0.0/24: the operator adds it to "subnets" of *` + where},
		{"snat", `{"web":{"subnets":"10.2.0.0/16","mayDisablePortSecurity":true}}`, greenNet + `,"snat":false`,
			`snat: leave it out, or the operator writes "maySetSNAT: true" for web` + where},
		{"portSecurity", `{"web":{"subnets":"10.2.0.0/16","maySetSNAT":true}}`, greenNet + `,"portSecurity":false`,
			`portSecurity: it cannot be false, unless the operator writes "mayDisablePortSecurity: true" for web` + where},
		{"less than for all others", `{"*":{"subnets":"0.0.0.0/0"},"web":{"subnets":"10.2.0.0/25"}}`, greenNet,
			`router: namespace web may bring 10.2.0.0/25 to router /core, not 10.2.0.0/24: the operator adds it to "subnets" of web` + where},
		{"listed", `{"web":{"subnets":"10.2.0.0/16"}}`, greenNet, ""},
		{"all are", `{"*":{"subnets":"0.0.0.0/0,::/0"}}`, greenNet, ""},
		{"all that there is", `{"web":{"subnets":"10.2.0.0/16","maySetSNAT":true,"mayDisablePortSecurity":true}}`, greenNet + `,"snat":true,"portSecurity":false`, ""},
	}
	for _, gateway := range []string{"", "," + gw4} {
		for _, tt := range tests {
			if tt.namespaces == "" && gateway != "" {
				continue
			}
			t.Run(tt.name+gateway, func(t *testing.T) {
				routers := map[string]string{core: `"namespaces":` + tt.namespaces + gateway}
				if tt.namespaces == "" {
					routers = nil
				}
				r := operated(t, newWorld(t), newAPI(), routers)
				if gateway != "" {
					eventually(t, "/core:external /core:gateway /core:join", func() string { return r.routerPorts(t) })
				}
				before := r.rows(t)
				r.apply("web/green", spec(tt.green+on))
				if tt.reason != "" {
					r.wantState(t, "web/green", "refused: "+tt.reason+", held")
					r.wantRows(t, before)
					return
				}
				r.wantState(t, "web/green", "ready, held")
				if got := r.routerPorts(t); !strings.Contains(got, "/core:web/green") {
					t.Errorf("ports of routers %q", got)
				}
				r.deleteNAD(t, "web/green")
				r.wantState(t, "web/green", "gone")
				r.wantRows(t, before)
			})
		}
	}
}

// A gateway leads to the provider: also a router's own namespace, and its guests, have to be listed then.
func TestBoundaryGatewayOfANamespacesRouter(t *testing.T) {
	const where = ` under "namespaces" of router shop/r1 in the controller's --config`
	shop, web := `"shop":{"subnets":"10.1.0.0/16"}`, `"web":{"subnets":"10.2.0.0/16"}`
	tests := []struct {
		name, namespaces, owner string
		blue, green             string // why not; "": it is on the router
	}{
		{"nobody", "", net4 + onR1 + letsWeb, `router: namespace shop may not join router shop/r1: the operator writes shop: {subnets: "10.1.0.0/24"}` + where,
			`router: namespace web may not join router shop/r1: the operator writes web: {subnets: "10.2.0.0/24"}` + where},
		{"the owner alone", shop, net4 + onR1 + letsWeb, "", `router: namespace web may not join router shop/r1: the operator writes web: {subnets: "10.2.0.0/24"}` + where},
		{"both, without the owner's consent", shop + "," + web, net4 + onR1, "", noConsent},
		{"both", shop + "," + web, net4 + onR1 + letsWeb, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := operated(t, newWorld(t), newAPI(), map[string]string{"shop/r1": `"namespaces":{` + tt.namespaces + `},` + gw4})
			ports := []string{"shop/r1:external", "shop/r1:gateway", "shop/r1:join"}
			r.apply("shop/blue", spec(tt.owner))
			r.apply("web/green", spec(greenNet+onShopR1))
			for id, reason := range map[string]string{"shop/blue": tt.blue, "web/green": tt.green} {
				state := "ready, held"
				if reason != "" {
					state = "refused: " + reason + ", held"
				} else {
					ports = append(ports, "shop/r1:"+id)
				}
				r.wantState(t, id, state)
			}
			slices.Sort(ports)
			eventually(t, strings.Join(ports, " "), func() string { return r.routerPorts(t) })
		})
	}
}

// When the controller starts with a configuration that lists a namespace no more, its networks leave the router.
func TestBoundaryOperatorWithdraws(t *testing.T) {
	for name, after := range map[string]struct {
		routers map[string]string
		reason  string
	}{
		"the namespace": {map[string]string{core: `"namespaces":{"shop":{"subnets":"0.0.0.0/0"}}`},
			`router: namespace web may not join router /core: the operator writes web: {subnets: "10.2.0.0/24"} under "namespaces" of router /core in the controller's --config`},
		"the subnet": {map[string]string{core: `"namespaces":{"web":{"subnets":"10.2.0.0/25"}}`},
			`router: namespace web may bring 10.2.0.0/25 to router /core, not 10.2.0.0/24: the operator adds it to "subnets" of web ` +
				`under "namespaces" of router /core in the controller's --config`},
		"the router": {nil, `router: there is no router /core of the whole cluster: the operator describes it under "routers" in the controller's --config`},
	} {
		for _, gateway := range []string{"", "," + gw4} {
			t.Run(name+gateway, func(t *testing.T) {
				w, a := newWorld(t), newAPI()
				r := operated(t, w, a, map[string]string{core: `"namespaces":{"*":{"subnets":"0.0.0.0/0"}}` + gateway})
				r.apply("web/green", spec(greenNet+`,"router":"/core"`))
				r.wantState(t, "web/green", "ready, held")
				r.greenPod(t)
				r.stop()
				again := operated(t, w, a, after.routers)
				again.wantOffRouter(t, after.reason)
				eventually(t, "", func() string { return again.names(t, "Logical_Router") })
			})
		}
	}
}

// A network and a router of one name, with all that either has, have no row and no name in common.
func TestBoundaryRouterAndNetworkOfOneName(t *testing.T) {
	w := newWorld(t)
	n := connectFor(t, w.Endpoint(), map[string]*netmodel.Router{"shop/core": gatewayConf(t, "shop/core", gwFull)})
	if _, err := n.EnsureGateway(withLimit(t), gatewayConf(t, "shop/core", gwFull), oneNode); err != nil {
		t.Fatal(err)
	}
	ensure(t, n, network(t, "core", layer3)) // which has a router of its own
	share(t, n, network(t, "core", layer3), "n1")
	ensure(t, n, network(t, "blue", net4+`,"router":"core"`))
	for _, table := range []string{"Logical_Router", "Logical_Router_Port", "Logical_Switch", "Logical_Switch_Port"} {
		names := strings.Fields(w.names(t, table))
		if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
			t.Errorf("%s: %v", table, names)
		}
	}
	want := "shop/core shop/core:gateway shop/core:router, " +
		"shop/core:external shop/core:gateway shop/core:join shop/core:router:shop/core@n1 shop/core:shop/blue"
	if got := w.names(t, "Logical_Router") + ", " + w.routerPorts(t); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := n.Remove(withLimit(t), "shop/core", false); err != nil {
		t.Fatal(err)
	}
	if got := w.names(t, "Logical_Router"); got != "shop/core shop/core:gateway" {
		t.Errorf("routers %q", got)
	}
}
