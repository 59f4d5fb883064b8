package netmodel

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// nameForm is what follows a name that no router has.
const nameForm = ` is no router's name: "core", "<namespace>/core" or "/core", with lower-case letters, digits and '-', at most 63`

// A network names a router of its namespace, of another namespace, or of the whole cluster.
func TestBoundaryNamesOfRouters(t *testing.T) {
	longest := strings.Repeat("r", 63)
	tests := []struct {
		router, want string // want "": it is no name
		guest        bool
	}{
		{"core", "shop/core", false},
		{"shop/core", "shop/core", false},
		{"web/core", "web/core", true},
		{"/core", "/core", false},
		{longest + "/" + longest, longest + "/" + longest, true},
		{"/", "", false}, {"shop/", "", false}, {"//core", "", false}, {"shop//core", "", false}, {"/core/", "", false},
		{"shop/core/x", "", false}, {"/shop/core", "", false}, {" /core", "", false}, {"../core", "", false}, {"*/core", "", false},
		{"Shop/core", "", false}, {"web/blue:router", "", false}, {"shop/blue:router", "", false}, {"/core:gateway", "", false},
		{longest + "r/core", "", false}, {"web/core@n", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.router, func(t *testing.T) {
			n, err := ParseNetwork("shop", "blue", []byte(config(fmt.Sprintf(`"subnets":"10.1.0.0/16","router":%q`, tt.router))))
			if tt.want == "" {
				wantText(t, err, fmt.Sprintf("network shop/blue: router: %q%s", tt.router, nameForm))
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if n.Router != tt.want || n.IsGuest() != tt.guest {
				t.Errorf("router %s, a guest: %t; want %s, %t", n.Router, n.IsGuest(), tt.want, tt.guest)
			}
			if again := mustParse(t, n.Canonical()); again.Router != tt.want || again.Revision() != n.Revision() {
				t.Errorf("in force it is read as %s, revision %s; want %s, %s", again.Router, again.Revision(), tt.want, n.Revision())
			}
		})
	}
	// A configuration of no namespace names no router of the whole cluster by chance.
	if n, err := ParseNetwork("", "", []byte(config(`"subnets":"10.1.0.0/16","router":"core"`))); err == nil {
		t.Errorf("router %s", n.Router)
	}
}

func TestBoundaryRouterGuests(t *testing.T) {
	const v4 = `"subnets":"10.1.0.0/16","router":"core"`
	one := func(guest string) string { return v4 + `,"routerGuests":[` + guest + `]` }
	many := func(n int, of string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(of, i)
		}
		return strings.Join(list, ",")
	}
	const missing = ` is missing: what may be brought to the router, like 10.2.0.0/16; 0.0.0.0/0,::/0 is anything`
	tests := []struct {
		name, keys string
		want       string // the guests, or after "no: " why not
	}{
		{"none", v4, "[]"},
		{"an empty list", one(""), "[]"},
		{"null", v4 + `,"routerGuests":null`, "[]"},
		{"one", one(`{"namespace":"web","subnets":"10.2.0.0/16"}`), "[{web [10.2.0.0/16]}]"},
		{"two, by the full name", `"subnets":"10.1.0.0/16","router":"shop/core","routerGuests":[{"namespace":"web","subnets":"fd01::/48, 10.2.0.0/16,10.3.0.0/16"},{"namespace":"a","subnets":"0.0.0.0/0,::/0"}]`,
			"[{web [fd01::/48 10.2.0.0/16 10.3.0.0/16]} {a [0.0.0.0/0 ::/0]}]"},
		{"as many as are served", one(many(maxGuests, `{"namespace":"n%d","subnets":"::/0"}`)), "[" + strings.ReplaceAll(many(maxGuests, "{n%d [::/0]}"), ",", " ") + "]"},

		{"too many", one(many(maxGuests+1, `{"namespace":"n%d","subnets":"::/0"}`)), "no: routerGuests: 65 namespaces, at most 64 are served"},
		{"too many subnets", one(`{"namespace":"web","subnets":"` + many(maxGuests+1, "10.%d.0.0/16") + `"}`), "no: routerGuests[0].subnets: 65 subnets, at most 64 are served"},
		{"no router", `"subnets":"10.1.0.0/16","routerGuests":[{"namespace":"web","subnets":"::/0"}]`, `no: routerGuests: there is no "router" that they could join`},
		{"another namespace's router", `"subnets":"10.1.0.0/16","router":"infra/core","routerGuests":[{"namespace":"web","subnets":"::/0"}]`,
			"no: routerGuests: namespace infra says which namespaces may join router infra/core: leave it out"},
		{"a router of the cluster", `"subnets":"10.1.0.0/16","router":"/core","routerGuests":[{"namespace":"web","subnets":"::/0"}]`,
			"no: routerGuests: the operator, in the object Router, says which namespaces may join router /core: leave it out"},
		{"names alone", v4 + `,"routerGuests":["web"]`, "no: routerGuests[0]: a JSON string where another kind of value is wanted"},
		{"no list", v4 + `,"routerGuests":{"web":"::/0"}`, `no: "routerGuests" does not take a JSON object`},
		{"null in the list", one("null"), "no: routerGuests[0]: null where an object is wanted"},
		{"no subnets", one(`{"namespace":"web"}`), "no: routerGuests[0].subnets" + missing},
		{"blank subnets", one(`{"namespace":"web","subnets":" "}`), "no: routerGuests[0].subnets" + missing},
		{"no namespace", one(`{"subnets":"::/0"}`), `no: routerGuests[0].namespace: "" is no namespace`},
		{"all namespaces", one(`{"namespace":"*","subnets":"::/0"}`), `no: routerGuests[0].namespace: "*" is no namespace`},
		{"a namespace twice", one(`{"namespace":"web","subnets":"::/0"},{"namespace":"web","subnets":"10.2.0.0/16"}`), "no: routerGuests[1].namespace: web is listed twice"},
		{"host bits", one(`{"namespace":"web","subnets":"10.2.0.1/16"}`), "no: routerGuests[0].subnets: 10.2.0.1/16 has host bits set, did you mean 10.2.0.0/16?"},
		{"another key", one(`{"namespace":"web","subnet":"10.2.0.0/16"}`), `no: routerGuests[0]: unknown key "subnet", did you mean "subnets"?`},
		{"another key's case", one(`{"Namespace":"web","subnets":"10.2.0.0/16"}`), `no: routerGuests[0]: unknown key "Namespace", did you mean "namespace"?`},
		{"a key twice", one(`{"namespace":"web","subnets":"10.2.0.0/16","subnets":"::/0"}`), `no: routerGuests[0]: key "subnets" is given twice`},
		{"a guest's snat", `"subnets":"10.1.0.0/16","router":"web/core","snat":true`, "no: snat: leave it out, router web/core belongs to namespace web"},
		{"a guest's no snat", `"subnets":"10.1.0.0/16","router":"web/core","snat":false`, "no: snat: leave it out, router web/core belongs to namespace web"},
		{"a guest without portSecurity", `"subnets":"10.1.0.0/16","router":"web/core","portSecurity":false`,
			"no: portSecurity: it cannot be false on router web/core, which belongs to namespace web"},
		{"a guest with portSecurity", `"subnets":"10.1.0.0/16","router":"web/core","portSecurity":true`, "[]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, err := ParseNetwork("shop", "blue", []byte(config(tt.keys)))
			if why, no := strings.CutPrefix(tt.want, "no: "); no {
				wantText(t, err, "network shop/blue: "+why)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(n.Guests); got != tt.want {
				t.Errorf("guests %s, want %s", got, tt.want)
			}
			again := mustParse(t, n.Canonical())
			if again.Revision() != n.Revision() || len(again.Guests) != len(n.Guests) || again.CheckEqual(n) != nil {
				t.Errorf("%s is read as guests %v", n.Canonical(), again.Guests)
			}
		})
	}
	wantText(t, mustParse(t, config(one(`{"namespace":"web","subnets":"10.2.0.0/16"}`))).CheckEqual(mustParse(t, config(v4))),
		`routerGuests: (none) is not [{"namespace":"web","subnets":"10.2.0.0/16"}]`)
	wantText(t, mustErr(ParseNetwork("shop", "blue", []byte(overlay(`"subnets":"10.1.0.0/16","routerGuests":[]`)))),
		`network shop/blue: key "routerGuests" is of type ovn-multinet, a network of type ovn-k8s-cni-overlay has none`)
}

func mustErr(_ *Network, err error) error { return err }

// Without its router a network is one that never had one.
func TestBoundaryNetworkWithoutItsRouter(t *testing.T) {
	for _, base := range []string{`"subnets":"10.1.0.0/16"`, `"topology":"layer3","subnets":"10.1.0.0/16/24"`} {
		want := mustParse(t, config(base))
		for _, keys := range []string{`,"router":"core","snat":true,"routerGuests":[{"namespace":"web","subnets":"::/0"}]`, `,"router":"/core","snat":false`, `,"router":"web/core"`} {
			n := mustParse(t, config(base+keys))
			if got := n.WithoutRouter(); !reflect.DeepEqual(got, want) || got.CheckChange(n) != nil || n.CheckChange(got) != nil {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if n.Router == "" {
				t.Error("the network itself lost its router")
			}
		}
	}
}

func TestBoundaryGrants(t *testing.T) {
	const missing = " is missing: what may be brought to the router, like 10.2.0.0/16; 0.0.0.0/0,::/0 is anything"
	tests := []struct {
		name, keys string
		want       string // of namespaces, or after "no: " why not
	}{
		{"none", ``, "map[]"},
		{"nobody", `"namespaces":{}`, "map[]"},
		{"two", `"namespaces":{"shop":{"subnets":"10.1.0.0/16,fd01::/48"},"web":{"subnets":"10.2.0.0/16","maySetSNAT":true,"mayDisablePortSecurity":true}}`,
			"map[shop:{[10.1.0.0/16 fd01::/48] false false} web:{[10.2.0.0/16] true true}]"},
		{"all others", `"namespaces":{"*":{"subnets":"0.0.0.0/0,::/0","mayDisablePortSecurity":true}}`, "map[*:{[0.0.0.0/0 ::/0] false true}]"},
		{"no subnets", `"namespaces":{"shop":{}}`, "no: router /core: namespaces: shop: subnets" + missing},
		{"null", `"namespaces":{"shop":null}`, "no: router /core: namespaces: shop: null where an object is wanted"},
		{"a list", `"namespaces":["shop"]`, `no: router /core: "namespaces" does not take a JSON array`},
		{"no namespace", `"namespaces":{"Shop":{"subnets":"::/0"}}`, `no: router /core: namespaces: "Shop" is no namespace, and not "*" for all others`},
		{"a pattern", `"namespaces":{"sh*":{"subnets":"::/0"}}`, `no: router /core: namespaces: "sh*" is no namespace, and not "*" for all others`},
		{"an unknown key", `"namespaces":{"shop":{"subnets":"::/0","maySetSnat":true}}`,
			`no: router /core: namespaces: shop: unknown key "maySetSnat", did you mean "maySetSNAT"?`},
		{"no network", `"namespaces":{"shop":{"subnets":"all"}}`, `no: router /core: namespaces: shop: subnets: "all" is not a network like 10.1.0.0/16`},
		{"a part of a gateway", `"namespaces":{},"snat":true`, "no: router /core: gatewayNodes is missing: a label selector like node-role.kubernetes.io/gateway="},
		{"a part of a gateway, a VLAN", `"vlanID":7`, "no: router /core: gatewayNodes is missing: a label selector like node-role.kubernetes.io/gateway="},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			routers, err := ParseRouters([]byte(router("/core", tt.keys)))
			if why, no := strings.CutPrefix(tt.want, "no: "); no {
				wantText(t, err, why)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r := routers["/core"]; fmt.Sprint(r.Namespaces) != tt.want || r.HasGateway() {
				t.Errorf("got %v, a gateway: %t; want %s, without one", r.Namespaces, r.HasGateway(), tt.want)
			}
		})
	}
	names := map[string]string{
		"core":       `routers: whose router is "core"? Write "/core" for one of the whole cluster, or "<namespace>/core"`,
		"shop/core/": `routers: "shop/core/" is no name: "/core" or "<namespace>/core", with lower-case letters, digits and '-', at most 63`,
		"*/core":     `routers: "*/core" is no name: "/core" or "<namespace>/core", with lower-case letters, digits and '-', at most 63`,
		"shop/core":  "router shop/core: gatewayNodes is missing: a label selector like node-role.kubernetes.io/gateway=",
	}
	for name, want := range names {
		_, err := ParseRouters([]byte(router(name, `"namespaces":{"shop":{"subnets":"::/0"}}`)))
		wantText(t, err, want)
	}
}

// However long the lists are, an answer is a short line.
func TestBoundaryRefusalsAreShort(t *testing.T) {
	list := make([]string, maxGuests)
	for i := range list {
		list[i] = fmt.Sprintf("fd00:1111:2222:%x::/64", 0x1000+i)
	}
	subnets, err := parseWithin("subnets", strings.Join(list, ","))
	if err != nil {
		t.Fatal(err)
	}
	n := mustParse(t, config(`"subnets":"10.1.0.0/16","router":"web/core"`))
	r := &Router{Name: "/core", Namespaces: map[string]Grant{"shop": {Subnets: subnets}}}
	for _, err := range []error{n.CheckGuest([]Guest{{"shop", subnets}}), r.CheckJoin(n)} {
		if err == nil || len(err.Error()) > 400 || !strings.Contains(err.Error(), "and 60 more") {
			t.Errorf("%v", err)
		}
	}
}
