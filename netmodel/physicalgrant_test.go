package netmodel

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
	"sigs.k8s.io/yaml"
)

func physicalConfig(grants string) []byte { return []byte(`{"physicalNetworks":` + grants + `}`) }

// Which namespace may use which VLAN; 0 is untagged.
func TestBoundaryPhysicalGrants(t *testing.T) {
	grants, err := ParsePhysicalGrants(physicalConfig(`{"provider":[{"vlans":"100,200-299","namespaces":["shop","web"]},` +
		`{"vlans":"untagged, 7","namespaces":["infra"]},{"vlans":"100","namespaces":["infra"],"portSecurity":false}],` +
		`"other":[{"vlans":"1-4094","namespaces":["shop"],"portSecurity":true}],"empty":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		physical   string
		vlan       int
		namespaces string // that have a grant
		unchecked  string // that may switch port security off, or open it for subnets behind pods
	}{
		{"provider", 100, "shop,web,infra", "infra"}, {"provider", 200, "shop,web", ""}, {"provider", 299, "shop,web", ""},
		{"provider", 99, "", ""}, {"provider", 101, "", ""}, {"provider", 199, "", ""}, {"provider", 300, "", ""},
		{"provider", 0, "infra", ""}, {"provider", 7, "infra", ""}, {"other", 1, "shop", ""}, {"other", 4094, "shop", ""},
		{"other", 0, "", ""}, {"empty", 1, "", ""}, {"Provider", 100, "", ""}, {"none", 100, "", ""},
	} {
		for _, namespace := range []string{"shop", "web", "infra", "kube-system", ""} {
			for _, opens := range []string{"", "portSecurity: false", "subnetsBehind"} {
				n := &Network{
					Namespace: namespace, Name: "n", Topology: Localnet, Physical: tt.physical, VLAN: tt.vlan,
					PortSecurity: opens != "portSecurity: false",
				}
				list := tt.namespaces
				if opens != "" {
					list = tt.unchecked
				}
				if opens == "subnetsBehind" {
					n.SubnetsBehind = []SubnetBehind{{}}
				}
				want := namespace != "" && strings.Contains(","+list+",", ","+namespace+",")
				if err := grants.Check(namespace, n); (err == nil) != want {
					t.Errorf("%s for %q, %q: %v, want it granted: %t", n.AddressBook(), namespace, opens, err, want)
				} else if opens != "" && err != nil && tt.vlan == 200 && namespace == "shop" && !strings.HasPrefix(err.Error(), opens+" on ") {
					t.Errorf("%s: %v", opens, err)
				}
				if grants.Allows(namespace, n) != want {
					t.Errorf("%s for %q, %q: allowed is not %t", n.AddressBook(), namespace, opens, want)
				}
			}
		}
	}
}

// A network on no physical network needs a grant for portSecurity: false alone. The refusal says what to write.
func TestBoundaryPortSecurityOff(t *testing.T) {
	grants, err := ParsePhysicalGrants([]byte(`{"portSecurityOff":{"namespaces":["shop","infra"]},` +
		`"physicalNetworks":{"provider":[{"vlans":"1-4094,untagged","namespaces":["web"],"portSecurity":false}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, topology := range []string{Layer2, Layer3} {
		for namespace, granted := range map[string]bool{"shop": true, "infra": true, "web": false, "": false} {
			for _, security := range []bool{true, false} {
				n := &Network{Topology: topology, PortSecurity: security}
				if err := grants.Check(namespace, n); (err == nil) != (security || granted) {
					t.Errorf("%s for %q, port security %t: %v", topology, namespace, security, err)
				}
				if err := (PhysicalGrants)(nil).Check(namespace, n); (err == nil) != security {
					t.Errorf("%s for %q, port security %t, nothing granted: %v", topology, namespace, security, err)
				}
			}
		}
	}
	const want = "portSecurity: false is not granted to namespace web; the operator would have to write " +
		"portSecurityOff: {namespaces: [web]} (the chart's value controller.portSecurityOff)"
	err = grants.Check("web", &Network{Topology: Layer2})
	if !conf.HasCode(err, conf.CodeNotAllowed) || err.Error() != want {
		t.Errorf("refusal %v, want %s", err, want)
	}
	local := &Network{Topology: Localnet, Physical: "provider", VLAN: 7}
	if err := grants.Check("shop", local); err == nil {
		t.Error("the grant reaches a physical network")
	}
	if none, err := ParsePhysicalGrants([]byte(`{"portSecurityOff":{"namespaces":[]}}`)); err != nil ||
		none.Check("shop", &Network{Topology: Layer2}) == nil {
		t.Errorf("an empty list: %v, or it grants", err)
	}
	for text, want := range map[string]string{
		`{"namespaces":["*"]}`: "is no namespace's name", `{"namespace":["shop"]}`: "namespace", `["shop"]`: "",
	} {
		_, err := ParsePhysicalGrants([]byte(`{"portSecurityOff":` + text + `}`))
		if err == nil || !strings.HasPrefix(err.Error(), "portSecurityOff: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// The refusal is one line, and what it says to write grants the network.
func TestBoundaryPhysicalGrantsSayWhatToWrite(t *testing.T) {
	for _, n := range []*Network{
		{Topology: Localnet, Physical: "provider", VLAN: 100, PortSecurity: true}, {Topology: Localnet, Physical: "provider", PortSecurity: true},
		{Topology: Localnet, Physical: `{a]'#&*\b`, VLAN: 1}, {Topology: Localnet, Physical: "provider"},
	} {
		err := PhysicalGrants{}.Check("shop", n)
		if !conf.HasCode(err, conf.CodeNotAllowed) || strings.Contains(err.Error(), "\n") {
			t.Fatalf("got %v", err)
		}
		_, sentence, _ := strings.Cut(err.Error(), "with the spec ")
		spec, parseErr := yaml.YAMLToJSONStrict([]byte(sentence))
		if parseErr != nil {
			t.Fatalf("%s: %v", sentence, parseErr)
		}
		text, parseErr := entry.Join(nil, []*entry.Object{{Kind: entry.KindOf("PhysicalNetwork"), Name: "any", Spec: spec}})
		if parseErr != nil {
			t.Fatalf("%s: %v", sentence, parseErr)
		}
		grants, parseErr := ParsePhysicalGrants(text)
		if parseErr != nil || grants.Check("shop", n) != nil || grants.Check("web", n) == nil {
			t.Errorf("%s\nis not the sentence: %v, %v", sentence, parseErr, grants.Check("shop", n))
		}
	}
}

func TestBoundaryPhysicalGrantsRefuse(t *testing.T) {
	one := func(element string) string { return `{"provider":[` + element + `]}` }
	const in = "physicalNetworks: provider: entry 1: "
	for _, tt := range []struct{ name, grants, want string }{
		{"an unknown key", one(`{"vlan":"100","namespaces":["shop"]}`), in + `unknown key "vlan", did you mean "vlans"?`},
		{"another unknown key", one(`{"vlans":"100","namespace":["shop"]}`), in + `unknown key "namespace", did you mean "namespaces"?`},
		{"a key in another case", one(`{"VLANs":"100","namespaces":["shop"]}`), in + `unknown key "VLANs", did you mean "vlans"?`},
		{"a key twice", one(`{"vlans":"100","vlans":"1-4094","namespaces":["shop"]}`), in + `key "vlans" is given twice`},
		{"no vlans", one(`{"namespaces":["shop"]}`), in + `vlans is missing: VLANs and ranges like "100,200-299", or "untagged"`},
		{"empty vlans", one(`{"vlans":" ","namespaces":["shop"]}`), in + `vlans is missing: VLANs and ranges like "100,200-299", or "untagged"`},
		{"a number", one(`{"vlans":64,"namespaces":["shop"]}`), in + `vlans: write it in quotes, like "100,200-299"`},
		{"a list", one(`{"vlans":["100"],"namespaces":["shop"]}`), in + `vlans: write it in quotes, like "100,200-299"`},
		{"zero", one(`{"vlans":"0","namespaces":["shop"]}`), in + "vlans: 0 is not between 1 and 4094"},
		{"too high", one(`{"vlans":"100-4095","namespaces":["shop"]}`), in + "vlans: 100-4095 is not between 1 and 4094"},
		{"backwards", one(`{"vlans":"299-200","namespaces":["shop"]}`), in + "vlans: 299-200 is empty, write 200-299"},
		{"a word", one(`{"vlans":"all","namespaces":["shop"]}`), in + `vlans: "all" is no VLAN, no range like 200-299, and not "untagged"`},
		{"a star", one(`{"vlans":"*","namespaces":["shop"]}`), in + `vlans: "*" is no VLAN, no range like 200-299, and not "untagged"`},
		{"octal", one(`{"vlans":"0100","namespaces":["shop"]}`), in + `vlans: "0100" is no VLAN, no range like 200-299, and not "untagged"`},
		{"half a range", one(`{"vlans":"100-","namespaces":["shop"]}`), in + `vlans: "100-" is no VLAN, no range like 200-299, and not "untagged"`},
		{"an empty word", one(`{"vlans":"100,,200","namespaces":["shop"]}`), in + `vlans: "" is no VLAN, no range like 200-299, and not "untagged"`},
		{"no namespaces", one(`{"vlans":"100"}`), in + "namespaces is missing: a list like [shop, web]"},
		{"empty namespaces", one(`{"vlans":"100","namespaces":[]}`), in + "namespaces is missing: a list like [shop, web]"},
		{"every namespace", one(`{"vlans":"100","namespaces":["*"]}`), in + `namespaces: "*" is no namespace's name; list each namespace by its name`},
		{"a namespace that is none", one(`{"vlans":"100","namespaces":["shop","Web"]}`), in + `namespaces: "Web" is no namespace's name; list each namespace by its name`},
		{"a null", one(`null`), in + "null where an object is wanted"},
		{"the second", one(`{"vlans":"1","namespaces":["shop"]},{}`), `physicalNetworks: provider: entry 2: vlans is missing: VLANs and ranges like "100,200-299", or "untagged"`},
		{"no list", `{"provider":{"vlans":"100","namespaces":["shop"]}}`, `physicalNetworks: provider: want a list like [{vlans: "100,200-299", namespaces: [shop]}]`},
		{"a name that is none", `{"a b":[]}`, `physicalNetworks: physicalNetworkName: "a b" is no name for ovn-bridge-mappings: no blanks, commas, colons or quotes, at most 64`},
		{"no object", `[]`, `"physicalNetworks" does not take a JSON array`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			grants, err := ParsePhysicalGrants(physicalConfig(tt.grants))
			if grants != nil || err == nil || err.Error() != tt.want {
				t.Errorf("got  %v, %v\nwant %s", grants, err, tt.want)
			}
		})
	}
	if _, err := ParsePhysicalGrants([]byte(`{"physicalNetwork":{}}`)); err == nil || err.Error() != `unknown key "physicalNetwork", did you mean "physicalNetworks"?` {
		t.Errorf("got %v", err)
	}
}

// Whatever is taken grants no more than its own words say.
func FuzzPhysicalGrants(f *testing.F) {
	for _, vlans := range []string{"100", "100,200-299", "untagged", "1-4094", "4094-1", "untagged,untagged", "-1", "1--2"} {
		f.Add(vlans)
	}
	f.Fuzz(func(t *testing.T, vlans string) {
		element, err := json.Marshal(map[string]any{"vlans": vlans, "namespaces": []string{"shop"}})
		if err != nil {
			t.Fatal(err)
		}
		grants, err := ParsePhysicalGrants(physicalConfig(`{"provider":[` + string(element) + `]}`))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: more than one line: %v", vlans, err)
			}
			return
		}
		for vlan := range 4096 {
			n := &Network{Topology: Localnet, Physical: "provider", VLAN: vlan, PortSecurity: true}
			if grants.Check("shop", n) != nil {
				continue
			}
			named := vlan == 0 && strings.Contains(vlans, untagged) || strings.Contains(vlans, fmt.Sprint(vlan)) || strings.Contains(vlans, "-")
			if !named || vlan > 4094 || grants.Check("web", n) == nil {
				t.Errorf("%q grants VLAN %d", vlans, vlan)
			}
		}
	})
}

// Networks of one wire have one address book, all others one each.
func TestBoundaryAddressBooks(t *testing.T) {
	book := func(namespace, name, config string) string {
		n, err := ParseNetwork(namespace, name, []byte(config))
		if err != nil {
			t.Fatal(err)
		}
		return n.AddressBook()
	}
	const v100 = `"topology":"localnet","physicalNetworkName":"phys","vlanID":100`
	wire := book("shop", "a", config(v100))
	for _, other := range []string{
		book("web", "b", config(v100+`,"subnets":"10.1.0.0/24"`)), book("web", "c", overlay(v100)),
		// Whose physical network is its name.
		book("web", "d", `{"type":"ovn-k8s-cni-overlay","name":"phys","topology":"localnet","vlanID":100}`),
	} {
		if other != wire || wire != "physical:phys:100" {
			t.Errorf("address book %s, want %s", other, wire)
		}
	}
	seen := map[string]string{}
	for name, b := range map[string]string{
		"v100": wire, "untagged": book("shop", "a", config(`"topology":"localnet","physicalNetworkName":"phys"`)),
		"another VLAN":             book("shop", "a", config(`"topology":"localnet","physicalNetworkName":"phys","vlanID":10`)),
		"another physical network": book("shop", "a", config(`"topology":"localnet","physicalNetworkName":"phys/0","vlanID":100`)),
		"layer2":                   book("shop", "a", config("")), "another layer2": book("web", "a", config("")),
		"layer3": book("shop", "l3", config(`"topology":"layer3","subnets":"10.128.0.0/16"`)), "shared": book("shop", "a", overlay("")),
	} {
		if other := seen[b]; other != "" {
			t.Errorf("%s and %s have the address book %s", name, other, b)
		}
		seen[b] = name
	}
	l3 := parse(t, `"topology":"layer3","subnets":"10.128.0.0/16/24"`)
	if v := l3.ForNode("n1", l3.Subnets); v.AddressBook() != l3.ID() {
		t.Errorf("a node's view has the address book %s", v.AddressBook())
	}
}
