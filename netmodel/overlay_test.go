package netmodel

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// overlay writes a spec.config of ovn-kubernetes' with further keys.
func overlay(keys string) string {
	if keys != "" {
		keys = "," + keys
	}
	return `{"cniVersion":"0.3.1","name":"l2-network","type":"ovn-k8s-cni-overlay"` + keys + `}`
}

// What ovn-kubernetes' documentation shows must work as it is copied from there.
func TestParseOverlay(t *testing.T) {
	tests := []struct {
		name   string
		config string
		want   string
	}{
		{"the documentation's example", `{
			"cniVersion": "0.3.1",
			"name": "l2-network",
			"type": "ovn-k8s-cni-overlay",
			"topology":"layer2",
			"subnets": "10.100.200.0/24",
			"mtu": 1300,
			"netAttachDefName": "shop/blue",
			"excludeSubnets": "10.100.200.0/29"
		}`, "10.100.200.0/24 gw 10.100.200.1, without 10.100.200.0/29, mtu 1300"},
		{"no more than it takes", `{"name":"l2-network","type":"ovn-k8s-cni-overlay"}`, ""},
		{"both families", overlay(`"topology":"layer2","subnets":"fd01::/64, 10.1.0.0/16"`), "10.1.0.0/16 gw 10.1.0.1, fd01::/64 gw fd01::1"},
		{"the documentation's example of layer3", `{
			"cniVersion": "0.3.1",
			"name": "l2-network",
			"type": "ovn-k8s-cni-overlay",
			"topology":"layer3",
			"subnets": "10.128.0.0/16/24",
			"mtu": 1300,
			"netAttachDefName": "shop/blue"
		}`, "layer3, 10.128.0.0/16/24, mtu 1300"},
		{"layer3 of both families", overlay(`"topology":"layer3","subnets":"fd01::/48,10.128.0.0/16"`), "layer3, 10.128.0.0/16/24, fd01::/48/64"},
		{"localnet is called like the network", overlay(`"topology":"localnet","vlanID":33,"mtu":1500,"subnets":"202.10.130.112/28"`),
			"localnet, 202.10.130.112/28 gw 202.10.130.113, VLAN 33 of l2-network, mtu 1500"},
		{"localnet by another name", overlay(`"topology":"localnet","physicalNetworkName":"phys","role":"secondary"`), "localnet, VLAN 0 of phys"},
		{"role secondary", overlay(`"topology":"layer2","role":"secondary"`), ""},
		{"unserved, and not asked for", overlay(`"allowPersistentIPs":false,"joinSubnet":"","vlanID":null,"physicalNetworkName":"","defaultGatewayIPs":null`), ""},
		{"its plugin's log", overlay(`"logFile":"/var/log/ovn.log","logLevel":"5","logfile-maxsize":100,"logfile-maxbackups":5,"logfile-maxage":5`), ""},
		{"nothing of ipam and dns", overlay(`"ipam":{},"dns":{}`), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, err := ParseNetwork("shop", "blue", []byte(tt.config))
			if err != nil {
				t.Fatal(err)
			}
			if show(n) != tt.want {
				t.Errorf("got  %s\nwant %s", show(n), tt.want)
			}
			if n.ID() != "l2-network" || n.NAD() != "shop/blue" || !n.PortSecurity || n.Router != "" {
				t.Errorf("network %s of %s: %+v", n.ID(), n.NAD(), n)
			}
		})
	}
}

// everyKey writes a spec.config with every key that ovn-kubernetes has, zero or empty but for the given ones.
func everyKey(t *testing.T, keys string) string {
	t.Helper()
	config := map[string]any{}
	for _, text := range []string{`{
		"cniVersion":"1.0.0", "name":"l2-network", "type":"ovn-k8s-cni-overlay", "netAttachDefName":"shop/blue",
		"role":"", "topology":"", "mtu":0, "subnets":"", "excludeSubnets":"", "reservedSubnets":"",
		"infrastructureSubnets":"", "joinSubnet":"", "joinSubnets":"", "transitSubnet":"", "defaultGatewayIPs":"",
		"vlanID":0, "allowPersistentIPs":false, "physicalNetworkName":"", "transport":"", "outboundSNAT":"", "evpn":null,
		"uplink":"", "deviceID":"", "logFile":"", "logLevel":"", "logfile-maxsize":0, "logfile-maxbackups":0,
		"logfile-maxage":0, "cniRequestTimeout":"", "runtimeConfig":{}, "capabilities":{}, "ipam":{}, "dns":{}, "prevResult":null
	}`, "{" + keys + "}"} {
		if err := json.Unmarshal([]byte(text), &config); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ovn-kubernetes' generators write keys that say nothing, with zero values: such a NAD is the same network as one without
// these keys. The shapes are those of ovn-kubernetes' own tests.
func TestParseOverlayZeroIsAbsent(t *testing.T) {
	tests := []struct {
		name, keys string
		want       string // "": refused
		refused    string
	}{
		{"layer3", `"topology":"layer3","subnets":"172.31.0.0/16/24","mtu":1300`, "layer3, 172.31.0.0/16/24, mtu 1300", ""},
		{"layer3 of IPv6", `"topology":"layer3","subnets":"2010:100:200::0/60/64","mtu":1300`, "layer3, 2010:100:200::/60/64, mtu 1300", ""},
		{"layer3 of both families", `"topology":"layer3","subnets":"172.31.0.0/16/24,2010:100:200::/60/64","role":"secondary"`,
			"layer3, 172.31.0.0/16/24, 2010:100:200::/60/64", ""},
		{"layer2", `"topology":"layer2","subnets":"172.31.0.0/24","mtu":1300`, "172.31.0.0/24 gw 172.31.0.1, mtu 1300", ""},
		{"layer2, the default MTU", `"topology":"layer2","subnets":"172.31.0.0/24"`, "172.31.0.0/24 gw 172.31.0.1", ""},
		{"layer2 with excluded subnets", `"topology":"layer2","subnets":"172.31.0.0/24","excludeSubnets":"172.31.0.0/29"`,
			"172.31.0.0/24 gw 172.31.0.1, without 172.31.0.0/29", ""},
		{"layer2 without addresses", `"topology":"layer2"`, "", ""},
		{"layer2 of IPv6", `"topology":"layer2","subnets":"2010:100:200::0/60"`, "2010:100:200::/60 gw 2010:100:200::1", ""},
		{"layer2 of both families", `"topology":"layer2","subnets":"172.31.0.0/24,2010:100:200::0/60"`,
			"172.31.0.0/24 gw 172.31.0.1, 2010:100:200::/60 gw 2010:100:200::1", ""},
		{"localnet", `"topology":"localnet","subnets":"60.128.0.0/24","vlanID":10`,
			"localnet, 60.128.0.0/24 gw 60.128.0.1, VLAN 10 of l2-network", ""},
		{"localnet, untagged", `"topology":"localnet","subnets":"60.128.0.0/24","physicalNetworkName":"phys"`,
			"localnet, 60.128.0.0/24 gw 60.128.0.1, VLAN 0 of phys", ""},
		{"localnet with excluded subnets", `"topology":"localnet","subnets":"60.128.0.0/24","excludeSubnets":"60.128.0.0/29","vlanID":10`,
			"localnet, 60.128.0.0/24 gw 60.128.0.1, without 60.128.0.0/29, VLAN 10 of l2-network", ""},
		{"localnet without addresses", `"topology":"localnet","vlanID":10`, "localnet, VLAN 10 of l2-network", ""},
		{"localnet of both families", `"topology":"localnet","subnets":"60.128.0.0/24,2010:100:200::0/60","vlanID":10,"role":"secondary"`,
			"localnet, 60.128.0.0/24 gw 60.128.0.1, 2010:100:200::/60 gw 2010:100:200::1, VLAN 10 of l2-network", ""},
		{"role primary", `"topology":"layer3","subnets":"172.31.0.0/16/24","role":"primary"`, "", `role: "primary" is not served`},
		{"addresses that outlive a pod", `"topology":"layer2","subnets":"172.31.0.0/24","allowPersistentIPs":true`,
			"172.31.0.0/24 gw 172.31.0.1", ""},
		{"addresses that outlive a pod, layer3", `"topology":"layer3","subnets":"172.31.0.0/16/24","allowPersistentIPs":true`, "",
			`allowPersistentIPs: on topology "layer3" an address belongs to one node`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, err := ParseNetwork("shop", "blue", []byte(everyKey(t, tt.keys)))
			if tt.refused != "" {
				if err == nil || !strings.HasPrefix(err.Error(), "network shop/blue: "+tt.refused) {
					t.Errorf("got %v, want %s", err, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if show(n) != tt.want {
				t.Errorf("got  %s\nwant %s", show(n), tt.want)
			}
			brief, err := ParseNetwork("shop", "blue", []byte(overlay(tt.keys)))
			if err != nil {
				t.Fatal(err)
			}
			if err := brief.CheckEqual(n); err != nil || brief.Revision() != n.Revision() {
				t.Errorf("another network than without the keys that are zero: %v", err)
			}
		})
	}
}

// Each key of the type is either served or refused when it has a value, and documented.
func TestOverlayKeysAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/networks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## ovn-kubernetes' NADs")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, key := range keysOf(conf.OverlayType) {
		row := slices.ContainsFunc(strings.Split(table, "\n"), func(line string) bool {
			first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
			return strings.HasPrefix(line, "| ") && strings.Contains(first, "`"+key+"`")
		})
		if !row {
			t.Errorf("docs/networks.md: no row of the table has key %q", key)
		}
	}
}

func TestParseOverlayRefuses(t *testing.T) {
	named := func(name string) string { return `{"type":"ovn-k8s-cni-overlay","name":"` + name + `"}` }
	tests := []struct {
		name   string
		config string
		want   string // how what follows "network shop/blue: " begins
	}{
		{"role primary", overlay(`"role":"primary"`), `role: "primary" is not served, only "secondary": a pod's first interface stays with the primary network`},
		{"role primary, with what such a network has", overlay(`"role":"primary","topology":"layer2","subnets":"10.1.0.0/16","joinSubnets":"100.65.0.0/16,fd99::/64"`), `role: "primary" is not served, only "secondary": a pod's first interface stays with the primary network`},
		{"another role", overlay(`"role":"tertiary"`), `role: "tertiary" is not served, only "secondary"`},
		{"joinSubnet", overlay(`"joinSubnet":"100.65.0.0/16"`), `"joinSubnet" is not served yet, leave it out`},
		{"transitSubnet", overlay(`"transitSubnet":"100.88.0.0/16"`), `"transitSubnet" is not served yet, leave it out`},
		{"reservedSubnets", overlay(`"reservedSubnets":"10.1.0.0/24"`), `"reservedSubnets" is not served yet, leave it out`},
		{"infrastructureSubnets", overlay(`"infrastructureSubnets":"10.1.0.0/24"`), `"infrastructureSubnets" is not served yet, leave it out`},
		{"defaultGatewayIPs", overlay(`"defaultGatewayIPs":"10.1.0.1"`), `"defaultGatewayIPs" is not served yet, leave it out`},
		{"joinSubnets", overlay(`"joinSubnets":"100.65.0.0/16"`), `"joinSubnets" is not served yet, leave it out`},
		{"transport", overlay(`"transport":"no-overlay"`), `"transport" is not served yet, leave it out`},
		{"outboundSNAT", overlay(`"outboundSNAT":"disabled"`), `"outboundSNAT" is not served yet, leave it out`},
		{"evpn", overlay(`"evpn":{"vtep":"v"}`), `"evpn" is not served yet, leave it out`},
		{"uplink", overlay(`"uplink":"u"`), `"uplink" is not served yet, leave it out`},
		{"capabilities", overlay(`"capabilities":{"mac":true}`), `"capabilities" is not served yet, leave it out`},
		{"ipam", overlay(`"ipam":{"type":"dhcp"}`), `"ipam" is not served yet, leave it out`},
		{"dns", overlay(`"dns":{"nameservers":["10.1.0.1"]}`), `"dns" is not served yet, leave it out`},
		{"deviceID", overlay(`"deviceID":"0000:03:00.2"`), `"deviceID" is not served yet, leave it out`},
		{"runtimeConfig", overlay(`"runtimeConfig":{"CNIDeviceInfoFile":"/x"}`), `"runtimeConfig" is not served yet, leave it out`},
		{"prevResult", overlay(`"prevResult":{"ips":[]}`), `"prevResult" is not served yet, leave it out`},
		{"physicalNetworkName of layer2", overlay(`"physicalNetworkName":"phys"`), `physicalNetworkName: it is for topology "localnet"`},
		{"vlanID of layer2", overlay(`"vlanID":100`), `vlanID: it is for topology "localnet"`},
		{"layer3 without subnets", overlay(`"topology":"layer3"`), "subnets: a layer3 network needs some to give each node its subnet"},
		{"blocks of layer2", overlay(`"topology":"layer2","subnets":"10.1.0.0/16/24"`), `subnets: "10.1.0.0/16/24" is not a network like 10.1.0.0/16`},
		{"mtu of another kind", overlay(`"mtu":""`), `"mtu" does not take a JSON string`},
		{"a VLAN below the least", overlay(`"topology":"localnet","vlanID":-1`), "vlanID: -1 is not between 1 and 4094"},
		{"a VLAN that is reserved", overlay(`"topology":"localnet","vlanID":4095`), "vlanID: 4095 is not between 1 and 4094"},
		{"a provider's network that none can be", overlay(`"topology":"localnet","physicalNetworkName":"a:b"`), `physicalNetworkName: "a:b" is no name for ovn-bridge-mappings`},
		{"a topology of nobody's", overlay(`"topology":"layer4"`), `topology: "layer4" is not known, want "layer2", "layer3" or "localnet"`},

		// Our own keys are no keys of ovn-kubernetes'.
		{"router", overlay(`"router":"r1","subnets":"10.1.0.0/16"`), `key "router" is of type ovn-multinet, a network of type ovn-k8s-cni-overlay has none`},
		{"gateway", overlay(`"gateway":"10.1.0.1","subnets":"10.1.0.0/16"`), `key "gateway" is of type ovn-multinet, a network of type ovn-k8s-cni-overlay has none`},
		{"routes", overlay(`"routes":[],"subnets":"10.1.0.0/16"`), `key "routes" is of type ovn-multinet, a network of type ovn-k8s-cni-overlay has none`},
		{"snat", overlay(`"snat":null,"subnets":"10.1.0.0/16"`), `key "snat" is of type ovn-multinet, a network of type ovn-k8s-cni-overlay has none`},
		{"portSecurity", overlay(`"portSecurity":true`), `key "portSecurity" is of type ovn-multinet, a network of type ovn-k8s-cni-overlay has none`},
		{"a key nearly right", overlay(`"excludeSubnet":"10.1.0.0/24"`), `unknown key "excludeSubnet", did you mean "excludeSubnets"?`},
		{"a key in another case", overlay(`"Name":"other"`), `unknown key "Name", did you mean "name"?`},
		{"a key twice", overlay(`"name":"other"`), `key "name" is given twice`},

		{"no name", `{"type":"ovn-k8s-cni-overlay"}`, `name: "" is no network's name: letters, digits, '_', '.' and '-'`},
		{"a name with a slash", named("shop/blue"), `name: "shop/blue" is no network's name`},
		{"a name with a space", named("a b"), `name: "a b" is no network's name`},
		{"a name of two lines", named(`a\nb`), `name: "a\nb" is no network's name`},
		{"a name that begins with a dot", named(".a"), `name: ".a" is no network's name`},
		{"a name of 129", named(strings.Repeat("a", 129)), `name: "` + strings.Repeat("a", 64) + `" is no network's name`},
		{"of another NAD", overlay(`"netAttachDefName":"shop/red"`), `netAttachDefName is "shop/red", but this is "shop/blue"`},
		{"a wrong subnet", overlay(`"subnets":"10.1.0.7/16"`), "subnets: 10.1.0.7/16 has host bits set, did you mean 10.1.0.0/16?"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, err := ParseNetwork("shop", "blue", []byte(tt.config))
			if err == nil {
				t.Fatalf("taken as %s", show(n))
			}
			code, msg, details := conf.Describe(err)
			if want := "network shop/blue: " + tt.want; code != conf.CodeInvalidConfig || n != nil || !strings.HasPrefix(msg, want) || details == "" {
				t.Errorf("got  %d %s (details %q)\nwant 7 %s", code, msg, details, want)
			}
		})
	}
}

func TestIsOVN(t *testing.T) {
	want := map[string]bool{"ovn-multinet": true, "ovn-k8s-cni-overlay": true, "bridge": false, "conflist": false, "": false}
	got := map[string]bool{}
	for kind := range want {
		got[kind] = conf.IsOVN(kind)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The identity must be told of what does not parse otherwise: a network that is there is not to be lost by a typo.
func TestNetworkID(t *testing.T) {
	longest := strings.Repeat("a", 128)
	tests := []struct {
		name, config string
		want         string
		fail         string
	}{
		{"ours", config(""), "shop/blue", ""},
		{"ours, wrong otherwise", config(`"subnets":"x","colour":1`), "shop/blue", ""},
		{"ovn-kubernetes'", overlay(""), "l2-network", ""},
		{"ovn-kubernetes', wrong otherwise", overlay(`"topology":"layer9"`), "l2-network", ""},
		{"every character", `{"type":"ovn-k8s-cni-overlay","name":"0aZ_.-"}`, "0aZ_.-", ""},
		{"the longest name", `{"type":"ovn-k8s-cni-overlay","name":"` + longest + `"}`, longest, ""},
		{"another plugin's", `{"type":"bridge","name":"x"}`, "", ""},
		{"a list", `{"name":"x","plugins":[{"type":"ovn-multinet"}]}`, "shop/blue", ""},
		{"a list of ovn-kubernetes'", `{"name":"l2-network","plugins":[{"type":"ovn-k8s-cni-overlay"}]}`, "l2-network", ""},
		{"a list, with the plugin's own name", `{"plugins":[{"type":"ovn-k8s-cni-overlay","name":"l2-network"}]}`, "l2-network", ""},
		{"a list that begins with another plugin", `{"name":"x","plugins":[{"type":"bridge"},{"type":"ovn-multinet"}]}`, "", ""},
		{"ovn-kubernetes', with a name like ours", `{"type":"ovn-k8s-cni-overlay","name":"shop/blue"}`, "",
			`network shop/blue: name: "shop/blue" is no network's name: letters, digits, '_', '.' and '-'`},
		{"ovn-kubernetes', without a name", `{"type":"ovn-k8s-cni-overlay"}`, "",
			`network shop/blue: name: "" is no network's name: letters, digits, '_', '.' and '-'`},
		{"no type", `{"name":"x"}`, "", `network shop/blue: "type" is missing`},
		{"no JSON", "x", "", "network shop/blue: not valid JSON: invalid character 'x' looking for beginning of value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := nadWith("shop", "blue", tt.config, KeptConfig).NetworkID()
			fail := ""
			if err != nil {
				fail = err.Error()
				if code, _, details := conf.Describe(err); code != conf.CodeInvalidConfig || details == "" {
					t.Errorf("code %d, details %q", code, details)
				}
			}
			if got != tt.want || fail != tt.fail {
				t.Errorf("got  %q, %q\nwant %q, %q", got, fail, tt.want, tt.fail)
			}
		})
	}
}
