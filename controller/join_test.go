package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nodesubnet"
)

// wantOffRouter waits until web/green is on no router, and compares what the pods on the network have.
func (r *running) wantOffRouter(t *testing.T, reason string) {
	t.Helper()
	r.wantState(t, "web/green", "refused: "+reason+", held")
	rows := r.Rows(t)
	for _, port := range rows["Logical_Router_Port"] {
		if strings.Contains(port["external_ids"], "ovn-multinet/network=web/green") {
			t.Errorf("web/green is on a router still: %v", port)
		}
	}
	// New pods are attached by the configuration in force, which names no router.
	ids := rows["Copp"][ovndb.AcceptedKey("web/green")]["external_ids"]
	inForce := nbtest.NetworkIn(t, "web", "green", nbtest.GreenNet)
	for _, want := range []string{"ovn-multinet/config=" + inForce.Canonical(), "ovn-multinet/nad:web/green=" + inForce.Revision()} {
		if !strings.Contains(ids, want) {
			t.Errorf("external_ids %s; want %s", ids, want)
		}
	}
	if !strings.Contains(r.Names(t, "Logical_Switch_Port"), "web/web-0/net1") {
		t.Error("the pod's port is gone")
	}
}

// A router's name is its namespace's: networks of two namespaces that name one are on two.
func TestBoundaryRouterBelongsToANamespace(t *testing.T) {
	r := run(t, nbtest.NewWorld(t), newAPI())
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	r.apply("web/green", nbtest.Spec(nbtest.Net4+nbtest.OnR1)) // on one router their subnets would overlap
	r.wantState(t, "shop/blue", "ready, held")
	r.wantState(t, "web/green", "ready, held")
	if got := r.Names(t, "Logical_Router") + ", " + r.RouterPorts(t); got != "shop/r1 web/r1, shop/r1:shop/blue web/r1:web/green" {
		t.Errorf("routers and ports %q", got)
	}
	r.apply("shop/red", nbtest.Spec(`"subnets":"10.3.0.0/24"`+nbtest.OnShopR1)) // the full name of its own
	r.wantState(t, "shop/red", "ready, held")
	if got := r.RouterPorts(t); got != "shop/r1:shop/blue shop/r1:shop/red web/r1:web/green" {
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
		{"nobody is listed", nbtest.Net4 + nbtest.OnR1, nbtest.GreenNet, nbtest.NoConsent},
		{"layer3, whose route would discard", nbtest.Net4 + nbtest.OnR1, layer3Green, nbtest.NoConsent},
		{"another namespace is listed", nbtest.Net4 + nbtest.OnR1 + lets("we", "0.0.0.0/0"), nbtest.GreenNet, nbtest.NoConsent},
		{"another router's guests", nbtest.Net4 + `,"router":"r2"` + nbtest.LetsWeb, nbtest.GreenNet, nbtest.NoConsent},
		{"other subnets", nbtest.Net4 + nbtest.OnR1 + lets("web", "10.3.0.0/16,fd02::/64"), nbtest.GreenNet, within("10.3.0.0/16,fd02::/64")},
		{"a part of the subnet", nbtest.Net4 + nbtest.OnR1 + lets("web", "10.2.0.0/25"), nbtest.GreenNet, within("10.2.0.0/25")},
		{"one family of two", nbtest.Net4 + nbtest.OnR1 + lets("web", "fd02::/64"), `"subnets":"10.2.0.0/24,fd02::/64"`, within("fd02::/64")},
		{"consent", nbtest.Net4 + nbtest.OnR1 + nbtest.LetsWeb, nbtest.GreenNet, ""},
		{"consent of a layer3 network, to one", `"topology":"layer3","subnets":"10.1.0.0/24/26"` + nbtest.OnR1 + nbtest.LetsWeb, layer3Green, ""},
		{"consent to anything", nbtest.Net4 + nbtest.OnR1 + lets("web", "0.0.0.0/0"), nbtest.GreenNet, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := run(t, nbtest.NewWorld(t), newAPI())
			r.apply("shop/blue", nbtest.Spec(tt.owner))
			r.wantState(t, "shop/blue", "ready, held")
			before := r.Rows(t)
			r.apply("web/green", nbtest.Spec(tt.green+nbtest.OnShopR1))
			if tt.reason != "" {
				r.wantState(t, "web/green", "refused: "+tt.reason+", held")
				r.WantRows(t, before)
				return
			}
			r.wantState(t, "web/green", "ready, held")
			if got := r.Names(t, "Logical_Router"); got != "shop/r1" {
				t.Errorf("routers %q", got)
			}
			// What leads to web/green: a port, or of layer3 the route to the whole.
			if got := r.RouterPorts(t) + r.Routes(t, ovndb.RouterKey("shop/r1")); !strings.Contains(got, "web/green") && !strings.Contains(got, "10.2.0.0/24") {
				t.Errorf("ports and routes %q", got)
			}
		})
	}
}

// A guest neither makes the router nor keeps it: it waits for the owner's network, and leaves when that does. It is not
// looked at by itself before the next full pass, which is minutes away: the owner's change has it looked at.
func TestBoundaryConsentIsWithdrawn(t *testing.T) {
	const notThere = nbtest.NoConsent
	ways := map[string]struct {
		withdraw func(t *testing.T, r *running)
		reason   string
		routers  string
	}{
		"the key goes": {func(t *testing.T, r *running) { r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1)) }, nbtest.NoConsent, "shop/r1"},
		"the subnets shrink": {func(t *testing.T, r *running) {
			r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1+`,"routerGuests":[{"namespace":"web","subnets":"10.2.0.0/25"}]`))
		}, `router: namespace web may bring 10.2.0.0/25 to router shop/r1, not 10.2.0.0/24: add it to "subnets" of web in "routerGuests" ` +
			`in spec.config of a network of namespace shop that is on the router`, "shop/r1"},
		"the network leaves the router": {func(t *testing.T, r *running) { r.apply("shop/blue", nbtest.Spec(nbtest.Net4)) }, notThere, ""},
		"the network moves": {func(t *testing.T, r *running) {
			r.apply("shop/blue", nbtest.Spec(nbtest.Net4+`,"router":"r2"`+nbtest.LetsWeb))
		}, notThere, "shop/r2"},
		"the network goes":              {func(t *testing.T, r *running) { r.deleteNAD(t, "shop/blue") }, notThere, ""},
		"the network is another type's": {func(t *testing.T, r *running) { r.apply("shop/blue", `{"type":"bridge"}`) }, notThere, ""},
		"the network goes, with a pod on": {func(t *testing.T, r *running) {
			r.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
			r.deleteNAD(t, "shop/blue")
		}, notThere, "shop/r1"},
	}
	for name, tt := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			r := run(t, nbtest.NewWorld(t), newAPI())
			r.apply("web/green", nbtest.Spec(nbtest.GreenNet+nbtest.OnShopR1))
			r.wantState(t, "web/green", "refused: "+nbtest.NoConsent+", held")
			r.WantRows(t, map[string]map[string]nbtest.Fields{})
			r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1+nbtest.LetsWeb))
			r.wantState(t, "web/green", "ready, held")
			if got := r.RouterPorts(t); got != "shop/r1:shop/blue shop/r1:web/green" {
				t.Errorf("ports of routers %q", got)
			}
			r.GreenPod(t)
			tt.withdraw(t, r)
			r.wantOffRouter(t, tt.reason)
			eventually(t, tt.routers, func() string { return r.Names(t, "Logical_Router") })
			r.apply("shop/blue2", nbtest.Spec(`"subnets":"10.3.0.0/24"`+nbtest.OnR1+nbtest.LetsWeb)) // another network of shop's says so
			r.wantState(t, "web/green", "ready, held")
		})
	}
}

// A withdrawal costs one transaction of the owner's network and one of each guest.
func TestBoundaryWithdrawalIsTwoTransactions(t *testing.T) {
	w := nbtest.NewWorld(t)
	r := run(t, w, newAPI())
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1+nbtest.LetsWeb))
	r.wantState(t, "shop/blue", "ready, held")
	r.apply("web/green", nbtest.Spec(nbtest.GreenNet+nbtest.OnShopR1))
	r.wantState(t, "web/green", "ready, held")
	r.GreenPod(t)
	w.Proxy.Reset()
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	r.wantOffRouter(t, nbtest.NoConsent)
	got := w.Proxy.Counts().Committed // the router, which has ports still, is not dropped
	t.Attr("boundary.transactions-per-withdrawal", fmt.Sprint(got))
	if got != 2 {
		t.Errorf("%d transactions, want 2", got)
	}
}

// A guest whose NAD cannot be read any more, or is being deleted, leaves the router too.
func TestBoundaryWithdrawalMeetsAnyGuest(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, r *running){
		"not valid": func(t *testing.T, r *running) {
			r.apply("web/green", nbtest.Spec(`"subnets":"10.2.0.0"`+nbtest.OnShopR1))
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
			r := run(t, nbtest.NewWorld(t), newAPI())
			r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1+nbtest.LetsWeb))
			r.wantState(t, "shop/blue", "ready, held")
			r.apply("web/green", nbtest.Spec(nbtest.GreenNet+nbtest.OnShopR1))
			r.wantState(t, "web/green", "ready, held")
			r.GreenPod(t)
			do(t, r)
			r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
			eventually(t, "shop/r1:shop/blue", func() string { return r.RouterPorts(t) })
			if got := r.Names(t, "Logical_Switch_Port"); got != "shop/blue:shop/r1 web/web-0/net1" {
				t.Errorf("ports %q", got)
			}
		})
	}
}

// A layer3 guest that leaves gets a router of its own, so that its nodes' blocks reach each other still. An agent that has
// not heard of it does not put a node's part on the owner's router.
func TestBoundaryLayer3GuestLeaves(t *testing.T) {
	const wide = `"topology":"layer3","subnets":"10.2.0.0/24/26"`
	w := nbtest.NewWorld(t)
	r := run(t, w, newAPI())
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1+nbtest.LetsWeb))
	r.wantState(t, "shop/blue", "ready, held")
	r.apply("web/green", nbtest.Spec(wide+nbtest.OnShopR1))
	r.wantState(t, "web/green", "ready, held")
	guest := nbtest.NetworkIn(t, "web", "green", wide+nbtest.OnShopR1)
	nbtest.Share(t, w.Other(t), guest, "n1")
	if got := r.RouterPorts(t) + ", " + r.Routes(t, ovndb.RouterKey("shop/r1")); got != "shop/r1:shop/blue shop/r1:web/green@n1, 10.2.0.0/24 via discard" {
		t.Errorf("ports and routes %q", got)
	}
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	r.wantState(t, "web/green", "refused: "+nbtest.NoConsent+", held")
	if got := r.RouterPorts(t) + ", " + r.Routes(t, ovndb.RouterKey("shop/r1")); got != "shop/r1:shop/blue web/green:router:web/green@n1, " {
		t.Errorf("ports and routes %q", got)
	}
	if _, err := w.Other(t).Subnets.Ensure(nbtest.WithLimit(t), guest, "n2"); !errors.Is(err, nodesubnet.ErrNotAccepted) {
		t.Errorf("an agent with an old view gets %v", err)
	}
	nbtest.Share(t, w.Other(t), nbtest.NetworkIn(t, "web", "green", wide), "n2") // which is what is in force
	if got := r.RouterPorts(t); got != "shop/r1:shop/blue web/green:router:web/green@n1 web/green:router:web/green@n2" {
		t.Errorf("ports %q", got)
	}
}

// operated is a world whose controller's --config has router /core, and what it says of namespaces.
func operated(t *testing.T, w *nbtest.World, a *api, routers map[string]string) *running {
	t.Helper()
	config := map[string]*netmodel.Router{}
	for name, keys := range routers {
		config[name] = nbtest.RouterConf(t, name, keys)
	}
	return runAs(t, w, nbtest.ConnectFor(t, w.Proxy.Endpoint(), config), a, leads)
}

const core = "/core"

// A router of the whole cluster is the operator's: it is there if --config describes it, for those who are listed there.
func TestBoundaryRouterOfTheCluster(t *testing.T) {
	const (
		on        = `,"router":"/core"`
		where     = ` under "namespaces" in the object Router of /core`
		notListed = `router: namespace web may not join router /core: the operator writes web: {subnets: "10.2.0.0/24"}` + where
	)
	tests := []struct {
		name, namespaces, green string // namespaces "": there is no such router
		reason                  string
	}{
		{"no such router", "", nbtest.GreenNet, `router: there is no router /core of the whole cluster: the operator creates an object Router with the spec {router: /core}`},
		{"nobody is listed", `{}`, nbtest.GreenNet, notListed},
		{"another namespace is listed", `{"shop":{"subnets":"0.0.0.0/0"}}`, nbtest.GreenNet, notListed},
		{"layer3", `{"shop":{"subnets":"0.0.0.0/0"}}`, `"topology":"layer3","subnets":"10.2.0.0/24/26"`, notListed},
		{"another subnet", `{"web":{"subnets":"10.3.0.0/16"}}`, nbtest.GreenNet,
			`router: namespace web may bring 10.3.0.0/16 to router /core, not 10.2.0.0/24: the operator adds it to "subnets" of web` + where},
		{"another subnet, for all", `{"*":{"subnets":"10.3.0.0/16"}}`, nbtest.GreenNet,
			`router: namespace web may bring 10.3.0.0/16 to router /core, not 10.2.0.0/24: the operator adds it to "subnets" of *` + where},
		{"snat", `{"web":{"subnets":"10.2.0.0/16","mayDisablePortSecurity":true}}`, nbtest.GreenNet + `,"snat":false`,
			`snat: leave it out, or the operator writes "maySetSNAT: true" for web` + where},
		{"portSecurity", `{"web":{"subnets":"10.2.0.0/16","maySetSNAT":true}}`, nbtest.GreenNet + `,"portSecurity":false`,
			`portSecurity: it cannot be false, unless the operator writes "mayDisablePortSecurity: true" for web` + where},
		{"less than for all others", `{"*":{"subnets":"0.0.0.0/0"},"web":{"subnets":"10.2.0.0/25"}}`, nbtest.GreenNet,
			`router: namespace web may bring 10.2.0.0/25 to router /core, not 10.2.0.0/24: the operator adds it to "subnets" of web` + where},
		{"listed", `{"web":{"subnets":"10.2.0.0/16"}}`, nbtest.GreenNet, ""},
		{"all are", `{"*":{"subnets":"0.0.0.0/0,::/0"}}`, nbtest.GreenNet, ""},
		{"all that there is", `{"web":{"subnets":"10.2.0.0/16","maySetSNAT":true,"mayDisablePortSecurity":true}}`, nbtest.GreenNet + `,"snat":true,"portSecurity":false`, ""},
	}
	for _, gateway := range []string{"", "," + nbtest.Gw4} {
		for _, tt := range tests {
			if tt.namespaces == "" && gateway != "" {
				continue
			}
			t.Run(tt.name+gateway, func(t *testing.T) {
				routers := map[string]string{core: `"namespaces":` + tt.namespaces + gateway}
				if tt.namespaces == "" {
					routers = nil
				}
				a := newAPI()
				var err error
				if a.grants, err = netmodel.ParsePhysicalGrants([]byte(`{"portSecurityOff":{"namespaces":["web"]}}`)); err != nil {
					t.Fatal(err)
				}
				r := operated(t, nbtest.NewWorld(t), a, routers)
				if gateway != "" {
					eventually(t, "/core:external /core:gateway /core:join", func() string { return r.RouterPorts(t) })
				}
				before := r.Rows(t)
				r.apply("web/green", nbtest.Spec(tt.green+on))
				if tt.reason != "" {
					r.wantState(t, "web/green", "refused: "+tt.reason+", held")
					r.WantRows(t, before)
					return
				}
				r.wantState(t, "web/green", "ready, held")
				if got := r.RouterPorts(t); !strings.Contains(got, "/core:web/green") {
					t.Errorf("ports of routers %q", got)
				}
				r.deleteNAD(t, "web/green")
				r.wantState(t, "web/green", "gone")
				r.WantRows(t, before)
			})
		}
	}
}

// A gateway leads to the provider: also a router's own namespace, and its guests, have to be listed then.
func TestBoundaryGatewayOfANamespacesRouter(t *testing.T) {
	const where = ` under "namespaces" in the object Router of shop/r1`
	shop, web := `"shop":{"subnets":"10.1.0.0/16"}`, `"web":{"subnets":"10.2.0.0/16"}`
	tests := []struct {
		name, namespaces, owner string
		blue, green             string // why not; "": it is on the router
	}{
		{"nobody", "", nbtest.Net4 + nbtest.OnR1 + nbtest.LetsWeb, `router: namespace shop may not join router shop/r1: the operator writes shop: {subnets: "10.1.0.0/24"}` + where,
			`router: namespace web may not join router shop/r1: the operator writes web: {subnets: "10.2.0.0/24"}` + where},
		{"the owner alone", shop, nbtest.Net4 + nbtest.OnR1 + nbtest.LetsWeb, "", `router: namespace web may not join router shop/r1: the operator writes web: {subnets: "10.2.0.0/24"}` + where},
		{"both, without the owner's consent", shop + "," + web, nbtest.Net4 + nbtest.OnR1, "", nbtest.NoConsent},
		{"both", shop + "," + web, nbtest.Net4 + nbtest.OnR1 + nbtest.LetsWeb, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := operated(t, nbtest.NewWorld(t), newAPI(), map[string]string{"shop/r1": `"namespaces":{` + tt.namespaces + `},` + nbtest.Gw4})
			ports := []string{"shop/r1:external", "shop/r1:gateway", "shop/r1:join"}
			r.apply("shop/blue", nbtest.Spec(tt.owner))
			r.apply("web/green", nbtest.Spec(nbtest.GreenNet+nbtest.OnShopR1))
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
			eventually(t, strings.Join(ports, " "), func() string { return r.RouterPorts(t) })
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
			`router: namespace web may not join router /core: the operator writes web: {subnets: "10.2.0.0/24"} under "namespaces" in the object Router of /core`},
		"the subnet": {map[string]string{core: `"namespaces":{"web":{"subnets":"10.2.0.0/25"}}`},
			`router: namespace web may bring 10.2.0.0/25 to router /core, not 10.2.0.0/24: the operator adds it to "subnets" of web ` +
				`under "namespaces" in the object Router of /core`},
		"the router": {nil, `router: there is no router /core of the whole cluster: the operator creates an object Router with the spec {router: /core}`},
	} {
		for _, gateway := range []string{"", "," + nbtest.Gw4} {
			t.Run(name+gateway, func(t *testing.T) {
				w, a := nbtest.NewWorld(t), newAPI()
				r := operated(t, w, a, map[string]string{core: `"namespaces":{"*":{"subnets":"0.0.0.0/0"}}` + gateway})
				r.apply("web/green", nbtest.Spec(nbtest.GreenNet+`,"router":"/core"`))
				r.wantState(t, "web/green", "ready, held")
				r.GreenPod(t)
				r.stop()
				again := operated(t, w, a, after.routers)
				again.wantOffRouter(t, after.reason)
				eventually(t, "", func() string { return again.Names(t, "Logical_Router") })
			})
		}
	}
}
