package deviceinfo

import (
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/ovn-multinet/ovn-multinet/nad"
)

// Conformance: N-126 D-1
func TestValidate(t *testing.T) {
	pci := func(address string) string {
		return `{"type":"pci","version":"1.1.0","pci":{"pci-address":"` + address + `"}}`
	}
	tests := []struct{ name, text, want string }{
		{"PCI", pci("0000:18:02.5"), ""},
		{"PCI, a wide domain and keys of its own", `{"type":"pci","version":"1.0.0","org.foo":1,"pci":{"pci-address":"10000:1f:1F.7","vhost-net":"/dev/vhost-net","x":[]}}`, ""},
		{"vDPA", `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa3","driver":"vhost","path":"/dev/vhost-vdpa0"}}`, ""},
		{"vhost-user", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"/var/run/vhost.sock"}}`, ""},
		{"memif", `{"type":"memif","version":"1.1.0","memif":{"role":"slave","path":"/x","mode":"ip"}}`, ""},

		{"nothing", "", "it is not a JSON object"},
		{"null", "null", "it is not a JSON object"},
		{"a list", "[]", "it is not a JSON object"},
		{"half", `{"type":"pci"`, "it is not a JSON object"},
		{"nested too deep", `{"x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + "}", "it is not a JSON object"},
		{"no version", `{"type":"pci","pci":{"pci-address":"0000:18:02.5"}}`, `version: "" is none like 1.1.0`},
		{"version, a number", `{"version":1.1,"type":"pci"}`, `"version" is not a string`},
		{"version of two parts", `{"version":"1.1","type":"pci"}`, `version: "1.1" is none like 1.1.0`},
		{"no type", `{"version":"1.1.0"}`, `type: "" is none of pci, vdpa, vhost-user, memif`},
		{"type, a list", `{"version":"1.1.0","type":[]}`, `"type" is not a string`},
		{"another type", `{"version":"1.1.0","type":"usb","usb":{}}`, `type: "usb" is none of pci, vdpa, vhost-user, memif`},
		{"without its map", `{"version":"1.1.0","type":"pci","vdpa":{}}`, `"pci" is not there as an object`},
		{"its map, null", `{"version":"1.1.0","type":"pci","pci":null}`, `"pci" is not there as an object`},
		{"its map, words", `{"version":"1.1.0","type":"pci","pci":"x"}`, `"pci" is not there as an object`},
		{"no address", `{"version":"1.1.0","type":"pci","pci":{}}`, `pci: "pci-address" is missing`},
		{"address, a number", `{"version":"1.1.0","type":"pci","pci":{"pci-address":7}}`, `pci: "pci-address" is not a string`},
		{"address without its domain", pci("18:02.5"), `pci: pci-address: "18:02.5" is no address like 0000:01:02.3`},
		{"address of function 8", pci("0000:18:02.8"), `pci: pci-address: "0000:18:02.8" is no address like 0000:01:02.3`},
		{"another driver", `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa3","driver":"x","path":"/dev/x"}}`, `vdpa: driver: "x" is none of vhost, virtio`},
		{"no parent", `{"type":"vdpa","version":"1.1.0","vdpa":{"driver":"vhost","path":"/dev/x"}}`, `vdpa: "parent-device" is missing`},
		{"no socket", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client"}}`, `vhost-user: "path" is missing`},
		{"another role", `{"type":"memif","version":"1.1.0","memif":{"role":"client","path":"/x","mode":"ip"}}`, `memif: role: "client" is none of master, slave`},
		{"another mode", `{"type":"memif","version":"1.1.0","memif":{"role":"master","path":"/x","mode":"tcp"}}`, `memif: mode: "tcp" is none of ethernet, ip, inject-punt`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := Validate([]byte(tt.text)); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// What passes can stand in network-status, and nothing makes it panic.
func FuzzValidate(f *testing.F) {
	f.Add([]byte(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5"}}`))
	f.Add([]byte(`{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vdpa3","driver":"vhost","path":"/dev/x"}}`))
	f.Add([]byte(`{"type":"memif","version":"1.1.0","memif":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if Validate(text) != nil {
			return
		}
		status := nad.Status("cbr0", "eth0", &types100.Result{}, []nad.Attached{{Network: "shop/ext", Interface: "net1", Device: text}})
		if got := string(status[1].DeviceInfo); got != string(text) {
			t.Errorf("status has %s of %s", got, text)
		}
	})
}
