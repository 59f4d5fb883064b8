package configfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// The file has grants beside routers. An error in either part is one line.
func TestBoundaryPhysicalGrantsOfAFile(t *testing.T) {
	const section = "physicalNetworks:\n  provider:\n  - {vlans: \"100,200-299\", namespaces: [shop, web]}\n  - {vlans: untagged, namespaces: [infra]}\n"
	for _, tt := range []struct{ name, text, want, granted string }{
		{"alone", section, "", "shop"},
		{"beside routers", edge + section, "", "shop"},
		{"another namespace", strings.Replace(section, "shop", "dev", 1), "", "dev"},
		{"no section", edge, "", ""},
		{"an empty section", "physicalNetworks:\n", "", ""},
		{"nothing", "", "", ""},
		{"comments alone", "# physicalNetworks:\n", "", ""},
		{
			"an octal number", strings.Replace(section, `"100,200-299"`, "0100", 1),
			`physicalNetworks: provider: entry 1: vlans: write it in quotes, like "100,200-299"`, "",
		},
		{
			"a key twice", strings.Replace(section, "namespaces: [shop, web]", "vlans: untagged", 1),
			`yaml: unmarshal errors: line 3: key "vlans" already set in map`, "",
		},
		{
			"two documents", section + "---\n" + section, "the file has several documents (---), only one is allowed",
			"",
		},
		{
			"an unknown section", strings.Replace(section, "physicalNetworks", "physicalnetworks", 1),
			`unknown key "physicalnetworks", did you mean "physicalNetworks"?`, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, config, err := Open(file)
			grants := config.Physical
			if tt.want != "" {
				if want := "--config: " + file + ": " + tt.want; err == nil || err.Error() != want || grants != nil {
					t.Errorf("got  %v, %v\nwant %s", grants, err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, namespace := range []string{"shop", "dev", "infra"} {
				n := &netmodel.Network{
					Topology: netmodel.Localnet, Physical: "provider", VLAN: 250, PortSecurity: true,
				}
				if err := grants.Check(namespace, n); (err == nil) != (namespace == tt.granted) {
					t.Errorf("VLAN 250 for %s: %v", namespace, err)
				}
			}
		})
	}
	if _, config, err := Open(""); config.Physical != nil || err != nil { // the flag is not given
		t.Errorf("without a file: %v, %v", config, err)
	}
	if _, _, err := Open(t.TempDir()); err == nil || !strings.HasPrefix(err.Error(), "--config: ") {
		t.Errorf("a folder: %v", err)
	}
}
