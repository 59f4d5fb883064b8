package delegateconf

import (
	"fmt"
	"strings"
	"testing"
)

// Each is a configuration for a plugin that everybody may use.
func TestBoundaryShippedPlugins(t *testing.T) {
	static := func(keys string) string { return `{"type":"dummy","ipam":{"type":"static",` + keys + `}}` }
	many := func(n int, text string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(text+",", n), ",") + "]"
	}
	const ipam, args = `ipam: plugin "static": `, `args: plugin "static": `
	withIPs := func(kind, ips string) string {
		return `{"type":"` + kind + `","ipam":{"type":"static"},"args":{"x":1,"cni":{"y":2,"ips":` + ips + `}}}`
	}
	tests := []struct{ name, config, want string }{
		{"dummy", static(`"addresses":[{"address":"192.0.2.5/24","gateway":"192.0.2.1"},{"address":"2001:db8::5/64","version":"6"}],
			"routes":[{"dst":"0.0.0.0/0","gw":"192.0.2.1","mtu":1400,"priority":5,"table":7,"scope":253}],
			"dns":{"nameservers":["192.0.2.53"],"domain":"a.b","search":["c"],"options":["ndots:1"]}`), ""},
		{"keys that every plugin has", `{"cniVersion":"1.0.0","name":"n","type":"dummy","ipam":{"type":"static"},"dns":{},"args":{"cni":{"ips":["192.0.2.5/24"]}},
			"capabilities":{"ips":true},"deviceID":"d","pciBusID":"d"}`, ""},
		{"what the runtime adds", `{"type":"dummy","ipam":{"type":"static"},"prevResult":{},"runtimeConfig":{},"cni.dev/valid-attachments":[]}`, ""},
		{"dummy without addresses", `{"type":"dummy"}`, `plugin "dummy": "ipam" is missing, its interface has addresses`},
		{"a key that dummy has not", `{"type":"dummy","ipam":{"type":"static"},"master":"eth0"}`, `plugin "dummy": unknown key "master"`},
		{"a key that is near", `{"type":"dummy","ipam":{"type":"static"},"dnss":{}}`, `plugin "dummy": unknown key "dnss", did you mean "dns"?`},
		{"capabilities", `{"type":"dummy","ipam":{"type":"static"},"capabilities":1}`, `plugin "dummy": "capabilities": not an object of true and false`},
		{"args", `{"type":"dummy","ipam":{"type":"static"},"args":1}`, `args: plugin "static": not an object`},
		{"args of a plugin without addresses", `{"type":"sbr","args":1}`, `plugin "sbr": "args": not an object`},
		{"dns", `{"type":"dummy","ipam":{"type":"static"},"dns":{"nameservers":` + many(17, `"x"`) + `}}`, `plugin "dummy": "dns": "nameservers": 17 values are more than 16`},

		{"static's folder", static(`"dataDir":"/etc"`), ipam + `unknown key "dataDir"`},
		{"addresses, 16", static(`"addresses":` + many(16, `{"address":"192.0.2.5/24"}`)), ""},
		{"addresses, 17", static(`"addresses":` + many(17, `{"address":"192.0.2.5/24"}`)), ipam + `"addresses": 17 values are more than 16`},
		{"address without a length", static(`"addresses":[{"address":"192.0.2.5"}]`), ipam + `"addresses": [0]: "address": "192.0.2.5" is no address with a prefix length, like 192.0.2.5/24`},
		{"a long address, cut between letters", static(`"addresses":[{"address":"` + strings.Repeat("é", 90) + `"}]`), ipam + `"addresses": [0]: "address": "` + strings.Repeat("é", 64) + `" is no address with a prefix length, like 192.0.2.5/24`},
		{"gateway", static(`"addresses":[{"address":"192.0.2.5/24","gateway":"x"}]`), ipam + `"addresses": [0]: "gateway": "x" is no IP address`},
		{"null in addresses", static(`"addresses":[null]`), ipam + `"addresses": [0]: null is no value`},
		{"routes, 65", static(`"routes":` + many(65, `{"dst":"192.0.2.0/24"}`)), ipam + `"routes": 65 values are more than 64`},
		{"a route's key", static(`"routes":[{"dst":"192.0.2.0/24","via":"x"}]`), ipam + `"routes": [0]: unknown key "via"`},
		{"a route's table", static(`"routes":[{"dst":"192.0.2.0/24","table":-1}]`), ipam + `"routes": [0]: "table": not a number of 0 to 2147483647`},
		{"a route's scope", static(`"routes":[{"dst":"192.0.2.0/24","scope":256}]`), ipam + `"routes": [0]: "scope": not a number of 0 to 255`},
		{"a text of 254", static(`"dns":{"domain":"` + strings.Repeat("d", 254) + `"}`), ipam + `"dns": "domain": 254 characters are more than 253`},
		{"static for a plugin without a schema", `{"type":"macvlan","master":"eth1","ipam":{"type":"static","x":1}}`, ipam + `unknown key "x"`},

		{"addresses in args, 16", withIPs("dummy", many(16, `"192.0.2.5/24"`)), ""},
		{"addresses in args, 17", withIPs("dummy", many(17, `"192.0.2.5/24"`)), args + `"cni": "ips": 17 values are more than 16`},
		{"addresses in args of a plugin without a schema, 17", withIPs("macvlan", many(17, `"192.0.2.5/24"`)), args + `"cni": "ips": 17 values are more than 16`},
		{"address in args without a length", withIPs("dummy", `["192.0.2.5"]`), args + `"cni": "ips": [0]: "192.0.2.5" is no address with a prefix length, like 192.0.2.5/24`},
		{"addresses in args are no list", withIPs("dummy", `{"0":"192.0.2.5/24"}`), args + `"cni": "ips": not a list`},
		{"args.cni", `{"type":"dummy","ipam":{"type":"static"},"args":{"cni":1}}`, args + `"cni": not an object`},
		{"args without addresses", `{"type":"dummy","ipam":{"type":"static"},"args":{"cni":null}}`, ""},

		{"sbr", `{"type":"sbr","table":100}`, ""},
		{"sbr's table", `{"type":"sbr","table":"100"}`, `plugin "sbr": "table": not a number of 0 to 2147483647`},
		{"vrf", `{"type":"vrf","vrfname":"red","table":4294967295}`, ""},
		{"vrf without a name", `{"type":"vrf"}`, `plugin "vrf": "vrfname" is missing`},
		{"vrf's name", `{"type":"vrf","vrfname":"a/b"}`, `plugin "vrf": "vrfname": interface name "a/b" has a character that an interface cannot have`},
		{"vrf's table", `{"type":"vrf","vrfname":"red","table":4294967296}`, `plugin "vrf": "table": not a number of 0 to 4294967295`},
		{"what has no schema", `{"type":"macvlan","x":1,"ipam":{"type":"host-local","dataDir":"/x"}}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := ReadPrograms([]byte(tt.config))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := CheckShipped([]byte(tt.config), p, p.Type == "dummy"); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	for _, kind := range []string{"sbr", "vrf"} {
		config := fmt.Sprintf(`{"type":%q,"vrfname":"red"}`, kind)
		if err := CheckShipped([]byte(config), &Programs{Type: kind}, true); err == nil || !strings.Contains(err.Error(), "the first of its list") {
			t.Errorf("%s as the first plugin: %v", kind, err)
		}
	}
}

// What holds nothing outside of the pod's network namespace is told by name; a plugin that nobody knows may hold
// anything.
func TestBoundaryHoldsOnlyNetns(t *testing.T) {
	for plugins, want := range map[string]bool{"static": true, "dummy static": true, "vrf": true, "sbr dummy": true, "host-local": false, "dummy host-local": false, "Dummy": false} {
		if got := HoldsOnlyNetns(strings.Fields(plugins)...); got != want {
			t.Errorf("%s: %t", plugins, got)
		}
	}
}
