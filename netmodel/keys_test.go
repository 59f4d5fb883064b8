package netmodel

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// update has the tests write what is made from the table of keys; `make install.yaml` sets it.
var update = flag.Bool("update", false, "write the chart's schema of a network and the table of docs/networks.md")

// samples are, for each key with a value, two configurations of a network that differ in this key. "plugins" are those
// behind ours.
var samples = map[string]struct{ from, to string }{
	"type":           {config(`"subnets":"10.1.0.0/24"`), overlay(`"subnets":"10.1.0.0/24"`)},
	"name":           {overlay(""), strings.Replace(overlay(""), "l2-network", "other", 1)},
	"topology":       {config(`"subnets":"10.1.0.0/16"`), config(`"subnets":"10.1.0.0/16","topology":"layer3"`)},
	"subnets":        {config(`"subnets":"10.1.0.0/24"`), config(`"subnets":"10.1.0.0/16"`)},
	"excludeSubnets": {config(`"subnets":"10.1.0.0/24"`), config(`"subnets":"10.1.0.0/24","excludeSubnets":"10.1.0.8/29,10.1.0.4/30"`)},
	"gateway":        {config(`"subnets":"10.1.0.0/24"`), config(`"subnets":"10.1.0.0/24","gateway":"10.1.0.9"`)},
	"router":         {config(`"subnets":"10.1.0.0/24"`), config(`"subnets":"10.1.0.0/24","router":"core"`)},
	"routerGuests": {config(`"subnets":"10.1.0.0/24","router":"core"`),
		config(`"subnets":"10.1.0.0/24","router":"core","routerGuests":[{"namespace":"web","subnets":"10.2.0.0/16"}]`)},
	"snat":                {config(`"subnets":"10.1.0.0/24","router":"core"`), config(`"subnets":"10.1.0.0/24","router":"core","snat":false`)},
	"routes":              {config(`"subnets":"10.1.0.0/24"`), config(`"subnets":"10.1.0.0/24","routes":[{"dst":"192.0.2.0/24"}]`)},
	"mtu":                 {config(`"mtu":1400`), config(`"mtu":1300`)},
	"portSecurity":        {config(""), config(`"portSecurity":false`)},
	"securityProfiles":    {config(""), config(`"securityProfiles":["web-only","db"]`)},
	"physicalNetworkName": {config(`"topology":"localnet","physicalNetworkName":"a"`), config(`"topology":"localnet","physicalNetworkName":"b"`)},
	"vlanID": {config(`"topology":"localnet","physicalNetworkName":"a"`),
		config(`"topology":"localnet","physicalNetworkName":"a","vlanID":7`)},
	"allowPersistentIPs": {config(`"subnets":"10.1.0.0/24"`), config(`"subnets":"10.1.0.0/24","allowPersistentIPs":true`)},
	"addressConflictWait": {config(`"topology":"localnet","physicalNetworkName":"a"`),
		config(`"topology":"localnet","physicalNetworkName":"a","addressConflictWait":"2s"`)},
	"ranges": {config(`"subnets":"10.1.0.0/24"`), config(`"subnets":"10.1.0.0/24","ranges":[{"from":"10.1.0.9","to":"10.1.0.10"},{"from":"10.1.0.3","to":"10.1.0.5"}]`)},
	"dhcp":   {config(`"subnets":"10.1.0.0/24"`), config(`"subnets":"10.1.0.0/24","dhcp":{"dns":["10.1.0.53","fd00::53"],"domain":"example.org","leaseTime":"12h","defaultRoute":false}`)},
	"virtualAddresses": {config(`"subnets":"10.1.0.0/24"`),
		config(`"subnets":"10.1.0.0/24","virtualAddresses":[{"address":"10.1.0.101","selector":{"app":"b"}},{"address":"10.1.0.100","selector":{"app":"a","tier":""},"namespace":"web","vrid":51}]`)},
	"subnetsBehind": {config(`"subnets":"10.1.0.0/24"`),
		config(`"subnets":"10.1.0.0/24","subnetsBehind":[{"subnet":"10.61.0.0/16","via":"10.1.0.6,10.1.0.5","standby":true},{"subnet":"10.60.0.0/16","via":"10.1.0.7","namespace":"core"}]`)},
	"plugins": {`{"cniVersion":"1.0.0","name":"any","plugins":[` + config("") + `]}`,
		`{"cniVersion":"1.0.0","name":"any","plugins":[` + config("") + `,{"type":"tuning"}]}`},
}

// accepted sends a network round through acceptance: the controller writes it into NB, and an agent reads it from there.
func accepted(t *testing.T, n *Network) *Network {
	t.Helper()
	again, err := ParseAccepted(n.Namespace, n.Name, []byte(n.Canonical()))
	if err != nil {
		t.Fatalf("%s: %v", n.Canonical(), err)
	}
	return again
}

// TestEveryKeyIsAccepted: a key that a user sets is in the network that the agents read, in the revision, in messages
// and for a reader; and a change does what the table says.
func TestEveryKeyIsAccepted(t *testing.T) {
	fields := map[string]bool{ // those that come from elsewhere
		"Namespace": true, "Name": true, "Node": true,
	}
	check := func(name string, change change, line bool) {
		t.Helper()
		s, ok := samples[name]
		if !ok {
			t.Errorf("%s: give the key a sample in this test", name)
			return
		}
		from, to := mustParse(t, s.from), mustParse(t, s.to)
		if from.Revision() == to.Revision() {
			t.Errorf("%s: a change of the key does not change the revision", name)
		}
		for _, n := range []*Network{from, to} {
			if again := accepted(t, n); !reflect.DeepEqual(ordered(again), ordered(n)) || again.CheckEqual(n) != nil {
				t.Errorf("%s: accepted is %+v\nwant %+v", name, ordered(again), ordered(n))
			}
		}
		if err := from.CheckEqual(to); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: CheckEqual says %v", name, err)
		}
		if err := from.CheckChange(to); (err != nil) != (change == refusedChange) {
			t.Errorf("%s: a change is %q, and CheckChange says %v", name, change, err)
		}
		if differs := !slices.Equal(from.Lines(), to.Lines()); line && !differs {
			t.Errorf("%s: `kubectl multinet network show` does not show the key", name)
		}
		a, b := reflect.ValueOf(*from), reflect.ValueOf(*to)
		for i := range a.NumField() {
			if f := a.Type().Field(i); f.IsExported() && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
				fields[f.Name] = true
			}
		}
	}
	inSubnetTable := []string{"subnets", "gateway"} // of the command's output
	for i := range networkKeys {
		if k := &networkKeys[i]; k.value != nil {
			check(k.name, k.change, k.change != "" && !slices.Contains(inSubnetTable, k.name))
		}
	}
	check("plugins", forNewPods, false)
	for i := range reflect.TypeFor[Network]().NumField() {
		if f := reflect.TypeFor[Network]().Field(i); f.IsExported() && !fields[f.Name] {
			t.Errorf("no key of the table sets Network.%s", f.Name)
		}
	}
}

// withoutEffect are the keys that users may set, and that change nothing.
var withoutEffect = []string{
	"cniVersion", "name", "capabilities", "role", "netAttachDefName",
	"logFile", "logLevel", "logfile-maxsize", "logfile-maxbackups", "logfile-maxage", "cniRequestTimeout",
}

// TestKeysWithoutAValue: such a key is refused, or changes nothing, which this test knows.
func TestKeysWithoutAValue(t *testing.T) {
	for i := range networkKeys {
		k := &networkKeys[i]
		if k.value != nil {
			continue
		}
		write, kind := config, conf.NetworkType
		if k.of == ofOverlay {
			write, kind = overlay, conf.OverlayType
		}
		base := mustParse(t, write(""))
		for _, value := range []string{`"x"`, `"secondary"`, `"shop/blue"`, "7", "true", `["x"]`, `{"x":true}`, `{"x":"y"}`} {
			own := fmt.Sprintf(`{"type":%q,"name":"l2-network",%q:%s}`, kind, k.name, value)
			if k.name == "name" { // of CNI
				own = fmt.Sprintf(`{"type":%q,"name":%s}`, kind, value)
			}
			n, err := ParseNetwork("shop", "blue", []byte(own))
			switch {
			case err != nil && !strings.Contains(err.Error(), k.name):
				t.Errorf("%s: the error does not name the key: %v", own, err)
			case err == nil && !reflect.DeepEqual(n, base):
				t.Errorf("%s: the key changes the network, and its row in the table has no value", own)
			case err == nil && !slices.Contains(withoutEffect, k.name):
				t.Errorf("%s: the key is accepted and does nothing", own)
			}
		}
	}
}

// TestTableIsComplete: each row with a value says all that users read.
func TestTableIsComplete(t *testing.T) {
	for i := range networkKeys {
		k := &networkKeys[i]
		identity := k.name == "type" || k.name == "name"
		if k.value == nil || identity {
			continue
		}
		if k.change == "" || k.doc == "" || k.preset == "" || k.schema == "" {
			t.Errorf("%s: say what a change does, a sentence and the default for the docs, and the chart's schema", k.name)
		}
		if k.keeps != nil && (k.change == forNewPods || k.change == atOnce) {
			t.Errorf("%s: a change is %q, and some changes are refused", k.name, k.change)
		}
		if bound := fmt.Sprint("at most ", k.most); k.count != nil && !strings.Contains(k.doc, bound) {
			t.Errorf("%s: the sentence for the docs does not say %q", k.name, bound)
		}
		var s struct{ Minimum, Maximum *int }
		if err := json.Unmarshal([]byte(k.schema), &s); err != nil {
			t.Errorf("%s: the schema: %v", k.name, err)
		}
		for _, at := range []struct {
			number  *int
			outside int
		}{{s.Minimum, -1}, {s.Maximum, 1}} {
			if at.number == nil {
				continue
			}
			for number, want := range map[int]bool{*at.number: true, *at.number + at.outside: false} {
				n := &Network{Topology: k.only}
				if err := k.parse(k, n, fmt.Append(nil, number)); (err == nil) != want {
					t.Errorf("%s: the schema has the bound %d, and %d gives the error %v", k.name, *at.number, number, err)
				}
			}
		}
	}
}

// replaced puts a new text between two marks of a file, and with -update writes the file.
func replaced(t *testing.T, file, begin, end, made string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s does not have the marks %q and %q", file, begin, end)
	}
	want := before + begin + made + end + after
	if want == string(text) {
		return
	}
	if !*update {
		t.Errorf("%s is not what the table of a network's keys makes: run `make install.yaml`", file)
	} else if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestKeysOfTheDocs: docs/networks.md has the table.
func TestKeysOfTheDocs(t *testing.T) {
	table := "| key | meaning | default | a [change](#changing-a-network) |\n|---|---|---|---|\n"
	for i := range networkKeys {
		k := &networkKeys[i]
		if k.doc == "" {
			continue
		}
		doc := k.doc
		if k.only != "" {
			doc = "of `" + k.only + "`: " + doc
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", k.name, doc, k.preset, k.change)
		table += strings.ReplaceAll(row, "|  ", "| ") + "\n"
	}
	const begin = "<!-- keys: `make install.yaml` -->\n"
	replaced(t, "../docs/networks.md", begin, "<!-- end of keys -->\n", table)

	page, err := os.ReadFile("../docs/networks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Changing a network\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for i := range networkKeys {
		k := &networkKeys[i]
		if named := strings.Contains(section, "`"+k.name+"`"); !named && (k.change == forNewPods || k.change == atOnce) {
			t.Errorf("docs/networks.md, Changing a network: %s is missing", k.name)
		}
	}
}

// TestKeysOfTheChart: the chart's schema has the keys that its networks may have.
func TestKeysOfTheChart(t *testing.T) {
	const indent = "              "
	var lines []string
	for i := range networkKeys {
		if k := &networkKeys[i]; k.schema != "" {
			lines = append(lines, fmt.Sprintf("%s%q: %s", indent, k.name, k.schema))
		}
	}
	begin := "            \"required\": [\"subnets\"],\n            \"properties\": {\n"
	replaced(t, "../images/chart/values.schema.json", begin, "\n            }\n", strings.Join(lines, ",\n"))
}
