package entry_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

// file is a content of --config, in JSON.
const file = `{"routers": {
	"/core": {"namespaces": {"shop": {"subnets": "10.1.0.0/16"}}, "gatewayNodes": "edge=yes", "physicalNetworkName": "Provider_1",
		"vlanID": 42, "externalSubnet": "192.0.2.0/24", "externalAddress": "192.0.2.10", "nextHop": "192.0.2.1",
		"portForwards": {"shop": 2}, "addressPools": {"public": {"addresses": "192.0.2.16/29", "namespaces": {"shop": 1}}}},
	"shop/core": {"gatewayNodes": "edge=yes", "physicalNetworkName": "Provider_1", "externalSubnet": "198.51.100.0/24",
		"externalAddress": "198.51.100.10"}},
	"physicalNetworks": {"Provider_1": [{"vlans": "100", "namespaces": ["shop"]}, {"vlans": "untagged", "namespaces": ["infra"]}]},
	"securityProfiles": {"web_only": {"namespaces": ["team-*"]}},
	"portSecurityOff": {"namespaces": ["infra"]}, "limits": {"shop": {"bytes": 1000}}}`

// object makes an object from its kind, its name and the JSON of its spec.
func object(t *testing.T, kind, name, spec string) *entry.Object {
	t.Helper()
	o := &entry.Object{Kind: entry.KindOf(kind), Name: name, Spec: entry.Canonical([]byte(spec))}
	if o.Kind == nil || o.Spec == nil {
		t.Fatal(kind, spec)
	}
	return o
}

// TestSplit: the objects of a file say what the file says, alone and beside the file, and what they cannot say stays in
// the file.
func TestSplit(t *testing.T) {
	objects, rest, err := entry.Split([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range objects {
		names = append(names, o.ID())
	}
	const want = "PhysicalNetwork/provider-1-8ace67b9 Router/core AddressPool/core.public Router/shop.core SecurityProfile/web-only-65d34cba"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the objects are %s, want %s", got, want)
	}
	whole := parse(t, []byte(file))
	joined, err := entry.Join(rest, objects)
	if err != nil {
		t.Fatal(err)
	}
	if got := parse(t, joined); !reflect.DeepEqual(got, whole) {
		t.Errorf("the objects say %s", joined)
	}
	grants := map[string]any{}
	if joined, err = entry.Join([]byte(file), objects[1:]); err != nil || json.Unmarshal(joined, &grants) != nil {
		t.Fatal(err)
	}
	if got := parse(t, joined); !reflect.DeepEqual(got, whole) {
		t.Errorf("beside the file the objects say %s", joined)
	}
}

func parse(t *testing.T, text []byte) configfile.Config {
	t.Helper()
	c, err := configfile.Parse(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	c.Document = nil
	return c
}

// TestJoin: two objects of one entry, an entry that the file has in other words, and keys that no object has are errors
// that name the entry.
func TestJoin(t *testing.T) {
	core := object(t, "Router", "core", `{"namespaces":{"shop":{"subnets":"10.1.0.0/16"}}}`)
	for _, tt := range []struct {
		name, file string
		with       *entry.Object
		want       string
	}{
		{"another object of the router", "", object(t, "Router", "other", `{"router":"/core"}`), "Router/core describes it already"},
		{"the file", `{"routers":{"/core":{"namespaces":{"web":{"subnets":"10.1.0.0/16"}}}}}`,
			object(t, "PhysicalNetwork", "a", `{"grants":[]}`), "--config describes /core otherwise"},
		{"the file with a pool", `{"routers":{"/core":{"addressPools":{"a":{}},"namespaces":{"shop":{"subnets":"10.1.0.0/16"}}}}}`,
			object(t, "AddressPool", "a", `{"router":"/core","addresses":"192.0.2.1"}`), "--config describes /core a otherwise"},
		{"a pool in a router", "", object(t, "Router", "b", `{"addressPools":{}}`), "write an object AddressPool"},
		{"a pool without a router", "", object(t, "AddressPool", "a", `{"router":"/edge"}`), "there is no router /edge"},
		{"a pool of nothing", "", object(t, "AddressPool", "a", `{}`), "router is missing"},
		{"grants that are none", "", object(t, "PhysicalNetwork", "a", `{"grants":{}}`), "want a list like"},
		{"uplinks that are none", "", object(t, "PhysicalNetwork", "a", `{"uplinks":"eth1"}`), "uplinks: want a list like"},
		{"a misspelt key", "", object(t, "PhysicalNetwork", "a", `{"grant":[]}`), `unknown key "grant"`},
		{"a name that is a number", "", object(t, "PhysicalNetwork", "a", `{"physicalNetworkName":7,"grants":[]}`), "physicalNetworkName: want a name"},
		{"a name that is empty", "", object(t, "Router", "b", `{"router":""}`), "router: want a name"},
		{"no spec", "", object(t, "SecurityProfile", "a", `7`), "spec is missing"},
		{"two profiles", "", object(t, "SecurityProfile", "a", `{}`), ""},
	} {
		_, err := entry.Join([]byte(tt.file), []*entry.Object{core, tt.with})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestGrantsAddUp: several objects may describe one physical network, beside the file's grants.
func TestGrantsAddUp(t *testing.T) {
	joined, err := entry.Join([]byte(`{"physicalNetworks":{"provider":[{"vlans":"1","namespaces":["a"]}]}}`), []*entry.Object{
		object(t, "PhysicalNetwork", "provider", `{"grants":[{"vlans":"2","namespaces":["b"]}],"uplinks":[{"interface":"eth1"}]}`),
		object(t, "PhysicalNetwork", "other", `{"physicalNetworkName":"provider","grants":[{"vlans":"3","namespaces":["c"]}]}`),
		object(t, "PhysicalNetwork", "third", `{"physicalNetworkName":"provider","uplinks":[{"nodes":"a=b","bridge":"br-ex"}]}`),
	})
	const want = `{"physicalNetworks":{"provider":[{"vlans":"1","namespaces":["a"]},{"namespaces":["b"],"vlans":"2"},` +
		`{"namespaces":["c"],"vlans":"3"}]},"uplinks":{"provider":[{"interface":"eth1"},{"bridge":"br-ex","nodes":"a=b"}]}}`
	if err != nil || string(joined) != want {
		t.Errorf("%s, %v; want %s", joined, err, want)
	}
}

// TestStatus: a status survives its way through the API, and a refused object says which spec still counts.
func TestStatus(t *testing.T) {
	for _, s := range []entry.Status{
		{Observed: 3},
		{Observed: 3, Users: 12, UsedBy: []string{"network shop/blue"}},
		{Observed: 3, Problem: "no node"},
		{Observed: 3, Reason: "vlanID: 5000 is too large", Accepted: json.RawMessage(`{"vlanID":7}`)},
	} {
		text, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got := entry.DecodeStatus(text); !reflect.DeepEqual(got, s) {
			t.Errorf("%+v became %+v by %s", s, got, text)
		}
	}
	if got := entry.DecodeStatus([]byte("{")); !reflect.DeepEqual(got, entry.Status{}) {
		t.Errorf("%+v", got)
	}
}

// TestDefinitions: every schema can be read, and each kind has its names.
func TestDefinitions(t *testing.T) {
	names := map[string]bool{}
	for i, d := range entry.Definitions() {
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{entry.Kinds[i].Name, entry.Kinds[i].Plural, entry.Kinds[i].Short} {
			if !strings.Contains(string(text), `"`+word+`"`) || names[word] {
				t.Errorf("the definition of %s does not have %s for itself", entry.Kinds[i].Name, word)
			}
			names[word] = true
		}
	}
	if entry.KindOf("Pod") != nil {
		t.Error("Pod is no kind of the operator")
	}
}

// TestKindsStay: a kind that some version had stays in the chart, in the version of the API that objects were stored in,
// and an uninstall keeps it: without its definition the API server deletes all objects of a kind.
func TestKindsStay(t *testing.T) {
	type definition struct {
		Metadata struct {
			Name        string
			Annotations map[string]string
		}
		Spec struct {
			Versions []struct {
				Name            string
				Served, Storage bool
			}
		}
	}
	defined := map[string]definition{}
	for _, one := range entry.Definitions() {
		var d definition
		text, err := json.Marshal(one)
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		if err != nil {
			t.Fatal(err)
		}
		defined[d.Metadata.Name] = d
	}
	for _, name := range []string{"physicalnetworks", "routers", "addresspools", "securityprofiles"} {
		d := defined[name+".ovn-multinet.io"]
		if len(d.Spec.Versions) == 0 || d.Metadata.Annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s is missing, or an uninstall deletes it: %+v", name, d)
			continue
		}
		if v := d.Spec.Versions[0]; v.Name != "v1alpha1" || !v.Served || !v.Storage {
			t.Errorf("%s is stored in the version %+v", name, v)
		}
	}
}
