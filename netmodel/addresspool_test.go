package netmodel

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// poolRouter has a gateway with addresses of both families, and these pools.
func poolRouter(pools, more string) string {
	return `{"routers":{"/core":{"externalSubnet":"192.0.2.0/24,2001:db8::/64","externalAddress":"192.0.2.10,2001:db8::10",
		"nextHop":"192.0.2.1,2001:db8::1","physicalNetworkName":"phys","gatewayNodes":"gw=","addressPools":{` + pools + `}}` + more + `}}`
}

func poolsOf(t *testing.T, config string) *Router {
	t.Helper()
	routers, err := ParseRouters([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return routers["/core"]
}

func TestAddressPools(t *testing.T) {
	r := poolsOf(t, poolRouter(`
		"web":{"addresses":"192.0.2.50","namespaces":{"web":1024}},
		"public":{"addresses":" 192.0.2.40-192.0.2.47, 192.0.2.16/28,2001:db8::100 - 2001:db8::1ff","namespaces":{"shop":5,"none":0,"*":1}}`, ""))
	var got []string
	for _, p := range r.Pools {
		for _, f := range p.Families {
			got = append(got, fmt.Sprint(p.Name, " ", f.Spans(), " ", f.Size()))
		}
	}
	want := "public [192.0.2.16-192.0.2.31 192.0.2.40-192.0.2.47] 24, public [2001:db8::100-2001:db8::1ff] 256, web [192.0.2.50] 1"
	if strings.Join(got, ", ") != want {
		t.Errorf("pools %s\nwant  %s", strings.Join(got, ", "), want)
	}
	for namespace, want := range map[string]string{"shop": "public 5 web 0", "web": "public 1 web 1024", "none": "public 0 web 0"} {
		got := fmt.Sprint("public ", r.AddressPool("public").Limit(namespace), " web ", r.AddressPool("web").Limit(namespace))
		if got != want {
			t.Errorf("namespace %s: %s, want %s", namespace, got, want)
		}
	}
	if g := r.Granted("shop"); len(g) != 1 || g[0].Name != "public" || len(r.Granted("none")) != 0 || len(r.Granted("web")) != 2 {
		t.Errorf("granted to shop: %v", g)
	}
	for a, want := range map[string]string{
		"192.0.2.16": "public", "192.0.2.31": "public", "192.0.2.32": "", "192.0.2.50": "web", "192.0.2.49": "",
		"2001:db8::1ff": "public", "2001:db8::200": "", "10.0.0.1": "",
	} {
		name := ""
		if p := r.AddressPoolOf(netip.MustParseAddr(a)); p != nil {
			name = p.Name
		}
		if name != want {
			t.Errorf("%s is of pool %q, want %q", a, name, want)
		}
	}
	if r.AddressPool("other") != nil || r.AddressPool("web").Family(netip.MustParseAddr("::1")).Size() != 0 {
		t.Error("a pool or a family that is not there")
	}
}

// TestPortForwards: how many ports of the gateway's own address each namespace may have.
func TestPortForwards(t *testing.T) {
	const forwards = `{"routers":{"/core":{"externalSubnet":"192.0.2.0/24","externalAddress":"192.0.2.10","physicalNetworkName":"phys",
		"gatewayNodes":"gw=","portForwards":%s}}}`
	for _, tt := range []struct{ value, want string }{
		{`{"shop":5,"none":0,"*":1}`, "5 0 1"},
		{`{"shop":1024}`, "1024 0 0"},
		{`{}`, "0 0 0"},
		{`null`, "0 0 0"},
		{`{"Shop":1}`, `router /core: portForwards: "Shop" is no namespace, and not "*" for all others`},
		{`{"shop":1025}`, "router /core: portForwards: shop: 1025 is no number of ports between 0 and 1024"},
		{`{"shop":-1}`, "router /core: portForwards: shop: -1 is no number of ports between 0 and 1024"},
		{`{"shop":null}`, "router /core: portForwards: shop: null is no number of ports between 0 and 1024"},
		{`{"shop":"5"}`, `router /core: portForwards: shop: "5" is no number of ports between 0 and 1024`},
	} {
		routers, err := ParseRouters(fmt.Appendf(nil, forwards, tt.value))
		var got string
		if err != nil {
			got = err.Error()
		} else {
			f := routers["/core"].Forwards
			got = fmt.Sprint(f.Limit("shop"), f.Limit("none"), f.Limit("web"))
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.value, got, tt.want)
		}
	}
	if _, err := ParseRouters([]byte(`{"routers":{"/core":{"portForwards":{"shop":1}}}}`)); err == nil {
		t.Error("they are accepted without a gateway")
	}
}

func TestAddressPoolsRefused(t *testing.T) {
	const ok = `"addresses":"192.0.2.16/28","namespaces":{"shop":5}`
	pool := func(keys string) string { return poolRouter(`"public":{`+keys+`}`, "") }
	addresses := func(text string) string { return pool(`"addresses":"` + text + `","namespaces":{"shop":5}`) }
	namespaces := func(text string) string { return pool(`"addresses":"192.0.2.16/28","namespaces":` + text) }
	beside := func(pools, external, vlan string) string {
		return poolRouter(`"public":{`+ok+`}`, `,"/edge":{"externalSubnet":"192.0.2.0/24",`+external+`,"physicalNetworkName":"phys",
			"gatewayNodes":"gw=","addressPools":{`+pools+`}`+vlan+`}`)
	}
	const other = `"externalAddress":"192.0.2.11"`
	many := func(n int, form string) string {
		words := make([]string, n)
		for i := range words {
			words[i] = fmt.Sprintf(form, i)
		}
		return strings.Join(words, ",")
	}
	for name, tt := range map[string]struct{ config, want string }{
		"no gateway":             {`{"routers":{"/core":{"addressPools":{"public":{` + ok + `}}}}}`, "router /core: gatewayNodes is missing: a label selector like node-role.kubernetes.io/gateway="},
		"a name":                 {poolRouter(`"Public":{`+ok+`}`, ""), `router /core: addressPools: "Public" is no name, with lower-case letters, digits and '-', at most 63`},
		"null":                   {poolRouter(`"public":null`, ""), "router /core: addressPools: public: null where an object is wanted"},
		"unknown key":            {pool(ok + `,"address":""`), `router /core: addressPools: public: unknown key "address", did you mean "addresses"?`},
		"no addresses":           {pool(`"namespaces":{"shop":5}`), "router /core: addressPools: public: addresses is missing, in a pool like {addresses: 192.0.2.16/28, namespaces: {shop: 5}}"},
		"no address":             {addresses("192.0.2.x"), `router /core: addressPools: public: addresses: "192.0.2.x" is not an IP address`},
		"empty word":             {addresses("192.0.2.16/28,"), `router /core: addressPools: public: addresses: "" is not an IP address`},
		"no subnet":              {addresses("192.0.2.16/33"), `router /core: addressPools: public: addresses: "192.0.2.16/33" is not a network like 192.0.2.16/28`},
		"host bits":              {addresses("192.0.2.17/28"), "router /core: addressPools: public: addresses: 192.0.2.17/28 has host bits set, did you mean 192.0.2.16/28?"},
		"backwards":              {addresses("192.0.2.20-192.0.2.19"), `router /core: addressPools: public: addresses: "192.0.2.20-192.0.2.19" is no range from a lower to a higher address`},
		"two families":           {addresses("192.0.2.20-2001:db8::5"), `router /core: addressPools: public: addresses: "192.0.2.20-2001:db8::5" is no range from a lower to a higher address`},
		"outside":                {addresses("192.0.3.1"), "router /core: addressPools: public: addresses: 192.0.3.1 is not in externalSubnet 192.0.2.0/24,2001:db8::/64"},
		"partly outside":         {addresses("192.0.2.250-192.0.3.1"), "router /core: addressPools: public: addresses: 192.0.2.250-192.0.3.1 is not in externalSubnet 192.0.2.0/24,2001:db8::/64"},
		"network address":        {addresses("192.0.2.0/32"), "router /core: addressPools: public: addresses: address 192.0.2.0 is the network address of 192.0.2.0/24"},
		"broadcast":              {addresses("192.0.2.240/28"), "router /core: addressPools: public: addresses: address 192.0.2.255 is the broadcast address of 192.0.2.0/24"},
		"anycast":                {addresses("2001:db8::-2001:db8::1"), "router /core: addressPools: public: addresses: address 2001:db8:: is the network address of 2001:db8::/64"},
		"wide":                   {addresses("2001:db8::1-2001:db8::1:0:0"), "router /core: addressPools: public: addresses: 2001:db8::1-2001:db8::1:0:0 is wider than a /96"},
		"egress of nobody":       {poolRouter(`"public":{`+ok+`,"egressOf":["No"]}`, ""), `router /core: addressPools: public: egressOf: "No" is no namespace`},
		"egress twice":           {poolRouter(`"public":{`+ok+`,"egressOf":["shop","shop"]}`, ""), "router /core: addressPools: public: egressOf: shop is there twice"},
		"egress of two pools":    {poolRouter(`"a":{`+ok+`,"egressOf":["shop"]},"b":{"addresses":"192.0.2.50","namespaces":{"*":1},"egressOf":["shop"]}`, ""), "router /core: addressPools: b: egressOf: shop is also in pool a; a namespace has one"},
		"egress without a grant": {poolRouter(`"a":{"addresses":"192.0.2.50","namespaces":{"web":1},"egressOf":["shop"]}`, ""), "router /core: addressPools: a: egressOf: shop may have no address of the pool; write it into namespaces"},
		"twice":                  {addresses("192.0.2.16/28,192.0.2.31"), "router /core: addressPools: public: addresses: 192.0.2.31 overlaps 192.0.2.16-192.0.2.31"},
		"own address":            {addresses("192.0.2.2-192.0.2.10"), "router /core: addressPools: public: addresses: 192.0.2.10 is the externalAddress"},
		"own address, IPv6":      {addresses("2001:db8::10"), "router /core: addressPools: public: addresses: 2001:db8::10 is the externalAddress"},
		"own next hop":           {addresses("192.0.2.1"), "router /core: addressPools: public: addresses: 192.0.2.1 is the nextHop"},
		"two pools":              {poolRouter(`"a":{`+ok+`},"b":{`+ok+`}`, ""), "router /core: addressPools: b: addresses: 192.0.2.16-192.0.2.31 overlaps 192.0.2.16-192.0.2.31 of pool a"},
		"ranges":                 {addresses(many(65, "2001:db8::%x0")), "router /core: addressPools: public: addresses: 65 ranges, at most 64 are allowed"},
		"pools":                  {poolRouter(many(17, `"p%d":{}`), ""), "router /core: addressPools: 17 pools, at most 16 are allowed"},
		"no namespaces":          {namespaces(`{}`), "router /core: addressPools: public: namespaces is missing, in a pool like {addresses: 192.0.2.16/28, namespaces: {shop: 5}}"},
		"a list":                 {namespaces(`["shop"]`), `router /core: addressPools: public: "namespaces" does not take a JSON array`},
		"no namespace":           {namespaces(`{"Shop":5}`), `router /core: addressPools: public: namespaces: "Shop" is no namespace, and not "*" for all others`},
		"text":                   {namespaces(`{"shop":"5"}`), `router /core: addressPools: public: namespaces: shop: "5" is no number of addresses between 0 and 1024`},
		"null number":            {namespaces(`{"shop":null}`), `router /core: addressPools: public: namespaces: shop: null is no number of addresses between 0 and 1024`},
		"a fraction":             {namespaces(`{"shop":1.5}`), `router /core: addressPools: public: namespaces: shop: 1.5 is no number of addresses between 0 and 1024`},
		"negative":               {namespaces(`{"shop":-1}`), `router /core: addressPools: public: namespaces: shop: -1 is no number of addresses between 0 and 1024`},
		"too many":               {namespaces(`{"shop":1025}`), `router /core: addressPools: public: namespaces: shop: 1025 is no number of addresses between 0 and 1024`},
		"many namespaces":        {namespaces(`{` + many(1025, `"n%d":1`) + `}`), `router /core: addressPools: public: namespaces: 1025 namespaces, at most 1024 are allowed; "*" stands for all others`},
		"pools of two":           {beside(`"a":{"addresses":"192.0.2.31","namespaces":{"*":1}}`, other, ""), "router /edge: addressPools: a: addresses: 192.0.2.31 overlaps 192.0.2.16-192.0.2.31 of pool public of router /core"},
		"another's address":      {beside(`"a":{"addresses":"192.0.2.8-192.0.2.10","namespaces":{"*":1}}`, other, ""), "router /edge: addressPools: a: addresses: 192.0.2.10 is the externalAddress of router /core"},
		"another's next hop":     {beside(`"a":{"addresses":"192.0.2.1","namespaces":{"*":1}}`, other, ""), "router /edge: addressPools: a: addresses: 192.0.2.1 is the nextHop of router /core"},
		"in another's pool":      {beside("", `"externalAddress":"192.0.2.17"`, ""), "router /edge: router /core: addressPools: public: addresses: 192.0.2.17 is the externalAddress of router /edge"},
		"hop in another pool":    {beside("", other+`,"nextHop":"192.0.2.18"`, ""), "router /edge: router /core: addressPools: public: addresses: 192.0.2.18 is the nextHop of router /edge"},
	} {
		if _, err := ParseRouters([]byte(tt.config)); err == nil || err.Error() != tt.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, tt.want)
		}
	}
	// Another VLAN is another physical network.
	poolsOf(t, beside(`"a":{"addresses":"192.0.2.31","namespaces":{"*":1}}`, `"externalAddress":"192.0.2.10"`, `,"vlanID":7`))
	if _, err := ParseRouters([]byte(namespaces(`{` + many(1024, `"n%d":1`) + `}`))); err != nil {
		t.Error(err)
	}
}
