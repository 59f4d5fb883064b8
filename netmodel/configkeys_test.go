package netmodel

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

// fullConfig has each key of --config, with another value than its default.
const fullConfig = `{
	"routers": {"shop/r1": {
		"namespaces": {"web": {"subnets": "10.0.0.0/16", "maySetSNAT": true, "mayDisablePortSecurity": true}},
		"joinSubnet": "100.65.0.0/24", "externalSubnet": "192.0.2.0/24", "externalAddress": "192.0.2.2", "nextHop": "192.0.2.1",
		"physicalNetworkName": "phys", "vlanID": 7, "gatewayNodes": "gateway=yes", "snat": false,
		"addressPools": {"a": {"addresses": "192.0.2.16/28", "namespaces": {"shop": 5}, "egressOf": ["shop"]}},
		"portForwards": {"shop": 3}
	}},
	"physicalNetworks": {"phys": [{"vlans": "100", "namespaces": ["shop"], "portSecurity": false}]},
	"securityProfiles": {"web": {"portGroup": "others", "namespaces": ["shop"]}},
	"portSecurityOff": {"namespaces": ["shop"]},
	"limits": {"shop": {"bytes": 1, "flows": 2, "endpoints": 3, "groups": 4}},
	"uplinks": {"phys": [{"nodes": "rack=b", "interface": "eth1", "bridge": "br-x"}]}
}`

// TestEveryKeyOfTheConfig: without any key of --config, the configuration is another one or is refused, and each key is
// documented.
func TestEveryKeyOfTheConfig(t *testing.T) {
	type config struct {
		routers  map[string]*Router
		physical PhysicalGrants
		profiles SecurityProfiles
		limits   cost.Limits
		uplinks  Uplinks
	}
	parse := func(text []byte) (c config, err error) {
		if c.routers, err = ParseRouters(text); err == nil {
			if c.physical, err = ParsePhysicalGrants(text); err == nil {
				c.profiles, err = ParseSecurityProfiles(text)
			}
		}
		if err == nil {
			c.limits, err = ParseLimits(text)
		}
		if err == nil {
			c.uplinks, err = ParseUplinks(text)
		}
		return c, err
	}
	full, err := parse([]byte(fullConfig))
	if err != nil {
		t.Fatal(err)
	}
	var docs string
	for _, page := range []string{"networks", "topologies", "policy", "services", "limits", "objects"} {
		text, err := os.ReadFile("../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		docs += string(text)
	}
	for _, of := range []struct {
		object any
		path   string
	}{
		{controllerJSON{}, ""}, {routerJSON{}, "routers shop/r1"}, {grantJSON{}, "routers shop/r1 namespaces web"},
		{addressPoolJSON{}, "routers shop/r1 addressPools a"},
		{physicalGrantJSON{}, "physicalNetworks phys 0"}, {SecurityProfile{}, "securityProfiles web"},
		{portSecurityOffJSON{}, "portSecurityOff"}, {Uplink{}, "uplinks phys 0"},
	} {
		for i := range reflect.TypeOf(of.object).NumField() {
			key := reflect.TypeOf(of.object).Field(i).Tag.Get("json")
			var tree any
			if err := json.Unmarshal([]byte(fullConfig), &tree); err != nil {
				t.Fatal(err)
			}
			object := tree
			for _, name := range strings.Fields(of.path) {
				if list, ok := object.([]any); ok {
					object = list[0]
				} else {
					object = object.(map[string]any)[name]
				}
			}
			if _, set := object.(map[string]any)[key]; !set {
				t.Errorf("%s: this test does not set the key %s", of.path, key)
			}
			delete(object.(map[string]any), key)
			text, err := json.Marshal(tree)
			if err != nil {
				t.Fatal(err)
			}
			if without, err := parse(text); err == nil && reflect.DeepEqual(without, full) {
				t.Errorf("%s: the key %s changes nothing", of.path, key)
			}
			if !strings.Contains(docs, "`"+key+"`") && !strings.Contains(docs, key+":") {
				t.Errorf("%s: no page has the key %s", of.path, key)
			}
		}
	}
}

// TestKeysOfObjects: the operator's objects have the keys of --config, and each its own name.
func TestKeysOfObjects(t *testing.T) {
	own := map[string][]string{
		"PhysicalNetwork": {"grants", "physicalNetworkName", "uplinks"},
		"Router":          append(conf.Keys(routerJSON{}), "router"),
		"AddressPool":     append(conf.Keys(addressPoolJSON{}), "pool", "router"),
		"SecurityProfile": append(conf.Keys(SecurityProfile{}), "profile"),
	}
	for i, d := range entry.Definitions() {
		var definition struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema struct {
							Properties struct {
								Spec struct{ Properties map[string]any }
							}
						}
					}
				}
			}
		}
		text, err := json.Marshal(d)
		if err == nil {
			err = json.Unmarshal(text, &definition)
		}
		if err != nil {
			t.Fatal(err)
		}
		kind := entry.Kinds[i].Name
		want := slices.DeleteFunc(own[kind], func(key string) bool { return key == "addressPools" }) // each is an object
		slices.Sort(want)
		got := sortedKeys(definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties.Spec.Properties)
		if !slices.Equal(got, want) {
			t.Errorf("%s has the keys %q, want %q", kind, got, want)
		}
	}
}
