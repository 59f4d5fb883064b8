package configfile

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// edge is a router as operators write it.
const edge = `# The way out of the cluster
routers:
  /edge:
    namespaces:
      shop: {subnets: "10.1.0.0/16,fd01::/48"}
      "*": {subnets: 10.2.0.0/16, maySetSNAT: true, mayDisablePortSecurity: true}
    gatewayNodes: "role in (gateway, spare), !retired"
    externalSubnet: 192.0.2.0/24
    externalAddress: 192.0.2.9
    physicalNetworkName: ext
`

// routersOf writes the text into a file and reads the routers from that.
func routersOf(t *testing.T, text string) (routers map[string]*netmodel.Router, file string, err error) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, config, err := Open(file)
	return config.Routers, file, err
}

func TestRouters(t *testing.T) {
	want, err := netmodel.ParseRouters([]byte(`{"routers":{"/edge":{"namespaces":{"shop":{"subnets":"10.1.0.0/16,fd01::/48"},` +
		`"*":{"subnets":"10.2.0.0/16","maySetSNAT":true,"mayDisablePortSecurity":true}},"gatewayNodes":"role in (gateway, spare), !retired","externalSubnet":"192.0.2.0/24",` +
		`"externalAddress":"192.0.2.9","physicalNetworkName":"ext"}}}`))
	if err != nil || want["/edge"] == nil {
		t.Fatal(want, err)
	}
	for name, tt := range map[string]struct {
		text string
		want map[string]*netmodel.Router
	}{
		"one": {edge, want},
		"JSON is YAML": {
			`{"routers":{"/edge":{"namespaces":{"shop":{"subnets":"10.1.0.0/16,fd01::/48"},"*":{"subnets":"10.2.0.0/16","maySetSNAT":true,"mayDisablePortSecurity":true}},"gatewayNodes":"role in (gateway, spare), !retired","externalSubnet":"192.0.2.0/24","externalAddress":"192.0.2.9","physicalNetworkName":"ext"}}}`,
			want,
		},
		"none in it":      {"routers: {}\n", map[string]*netmodel.Router{}},
		"none":            {"routers:\n", map[string]*netmodel.Router{}},
		"comments alone":  {"# routers:\n#   edge:\n", nil},
		"nothing":         {"", nil},
		"a document sign": {"---\n" + edge, want},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := routersOf(t, tt.text)
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
	if _, got, err := Open(""); got.Routers != nil || err != nil { // the flag is not given
		t.Errorf("without a file: %v, %v", got, err)
	}
}

// Every error in the file is one line with the flag, the file and the reason: it is the last line of a controller that
// does not start.
func TestRoutersRefuses(t *testing.T) {
	with := func(line string) string { return edge + "    " + line + "\n" }
	tests := []struct{ name, text, want string }{
		{"no YAML", "routers: [", "yaml: line 1: did not find expected node content"},
		{"a tab", "routers:\n\tedge: {}\n", "yaml: line 2: found character that cannot start any token"},
		{"a router twice", edge + "  /edge: {}\n", `yaml: unmarshal errors: line 11: key "/edge" already set in map`},
		{"keys twice", with("externalSubnet: 198.51.100.0/24") + "    physicalNetworkName: other\n",
			`yaml: unmarshal errors: line 11: key "externalSubnet" already set in map line 12: key "physicalNetworkName" already set in map`},
		{
			"an unknown key", strings.Replace(edge, "routers:", "router:", 1),
			`unknown key "router", did you mean "routers"?`,
		},
		{
			"an unknown key of a router", with("vlanId: 100"),
			`router /edge: unknown key "vlanId", did you mean "vlanID"?`,
		},
		{"a value of another kind", with("vlanID: none"), `router /edge: "vlanID" does not take a JSON string`},
		{"two documents", edge + "---\n" + edge, "the file has several documents (---), only one is allowed"},
		{"a list", "- edge", "a JSON array where another kind of value is wanted"},
		{"no selector", strings.Replace(edge, "role in (gateway, spare), !retired", "role in (gateway", 1),
			"router /edge: gatewayNodes: unable to parse requirement: found '', expected: ',' or ')'"},
		{"another language's selector", strings.Replace(edge, "role in (gateway, spare), !retired", "role=a=b", 1),
			"router /edge: gatewayNodes: found '=', expected: ',' or 'end of string'"},
		{
			"a label that is none", strings.Replace(edge, "role in (gateway, spare), !retired", "role=-", 1),
			"router /edge: gatewayNodes: ",
		},
		{
			"a router of nobody", strings.Replace(edge, "/edge", "edge", 1),
			`routers: whose router is "edge"? Write "/edge" for one of the whole cluster, or "<namespace>/edge"`,
		},
		{
			"what conf refuses", strings.Replace(edge, "192.0.2.9", "198.51.100.9", 1),
			"router /edge: externalAddress: 198.51.100.9 is not in externalSubnet 192.0.2.0/24",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			routers, file, err := routersOf(t, tt.text)
			if err == nil || routers != nil {
				t.Fatalf("it is taken: %v, %v", routers, err)
			}
			want := "--config: " + file + ": " + tt.want
			if got := err.Error(); got != want && !(strings.HasSuffix(want, ": ") && strings.HasPrefix(got, want)) || strings.Contains(got, "\n") {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	missing := filepath.Join(t.TempDir(), "config.yaml")
	if _, _, err := Open(missing); err == nil || err.Error() != "--config: open "+missing+": no such file or directory" {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, _, err := Open(filepath.Dir(missing)); err == nil || !strings.HasPrefix(err.Error(), "--config: ") {
		t.Errorf("a folder: %v", err)
	}
}
