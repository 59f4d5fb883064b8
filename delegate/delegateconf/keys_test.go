package delegateconf

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Each was taken for another configuration by plugins than by what allowed them.
func TestBoundaryDelegateKeysInAnotherCase(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 120) + "1" + strings.Repeat("}", 120)
	tests := []struct{ name, config, want string }{
		{"ipam", `{"type":"dummy","Ipam":{"type":"host-device"}}`, `write key "Ipam" as "ipam": plugins read both as the same key`},
		{"ipam beside ipam", `{"type":"dummy","ipam":{"type":"static"},"IPAM":{"type":"host-device"}}`, `keys "ipam" and "IPAM" differ in the case of letters only: plugins read them as the same key`},
		{"type", `{"Type":"dummy"}`, `write key "Type" as "type": plugins read both as the same key`},
		{"ipam's type", `{"type":"dummy","ipam":{"type":"static","TYPE":"host-local"}}`, `keys "type" and "TYPE" differ in the case of letters only: plugins read them as the same key`},
		{"ipam's type alone", `{"type":"dummy","ipam":{"tYpe":"host-local"}}`, `write key "tYpe" as "type": plugins read both as the same key`},
		{"Plugins", `{"plugins":[{"type":"a"}],"Plugins":[{"prevResult":{}}]}`, `keys "plugins" and "Plugins" differ in the case of letters only: plugins read them as the same key`},
		{"in a list", `{"plugins":[{"type":"a"},{"type":"b","iPam":{}}]}`, `write key "iPam" as "ipam": plugins read both as the same key`},
		{"ipam in a list", `{"plugins":[{"type":"a","ipam":{"Type":"x"}}]}`, `write key "Type" as "type": plugins read both as the same key`},
		{"plugins, long s", `{"plugins":[],"plugin\u017f":[]}`, `keys "plugins" and "pluginſ" differ in the case of letters only: plugins read them as the same key`},
		{"long s alone", `{"plugin\u017f":[{"type":"a"}]}`, `write key "pluginſ" as "plugins": plugins read both as the same key`},
		{"a Kelvin sign", `{"type":"a","x":{"k":1,"\u212a":2}}`, "keys \"k\" and \"\u212a\" differ in the case of letters only: plugins read them as the same key"},
		{"prevResult", `{"type":"a","prevresult":{}}`, `write key "prevresult" as "prevResult": plugins read both as the same key`},
		{"runtimeConfig", `{"type":"a","RuntimeConfig":{}}`, `write key "RuntimeConfig" as "runtimeConfig": plugins read both as the same key`},
		{"runtimeConfig's", `{"type":"a","runtimeConfig":{"IPs":[]}}`, `write key "IPs" as "ips": plugins read both as the same key`},
		{"args", `{"type":"a","args":{"CNI":{}}}`, `write key "CNI" as "cni": plugins read both as the same key`},
		{"args.cni", `{"type":"a","args":{"cni":{"IPs":[]}}}`, `write key "IPs" as "ips": plugins read both as the same key`},
		{"a device", `{"type":"a","deviceid":"x"}`, `write key "deviceid" as "deviceID": plugins read both as the same key`},

		{"twice", `{"type":"a","type":"b"}`, `key "type" is given twice`},
		{"twice, written otherwise", `{"type":"a","t\u0079pe":"b"}`, `key "type" is given twice`},
		{"twice, deep", `{"type":"a","x":[{"y":{"z":1,"z":2}}]}`, `key "z" is given twice`},
		{"twice, halves of characters", `{"type":"a","\ud800":1,"\ud801":2}`, `key "` + "\ufffd" + `" is given twice`},
		{"text behind", `{"type":"a"} {"type":"b"}`, `not valid JSON: invalid character '{' after top-level value`},
		{"no UTF-8", "{\"type\":\"a\xff\"}", `not valid JSON: it is not UTF-8`},
		{"too deep", deep, `not valid JSON: it nests deeper than 100`},
		{"a list", `[]`, `not a JSON object`},
		{"null", `null`, `not a JSON object`},
		{"a tenant's long key is cut", `{"` + strings.Repeat("k", 500) + `":1,"` + strings.Repeat("k", 500) + `":1}`, `key "` + strings.Repeat("k", 64) + `" is given twice`},

		{"as CNI has it", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a","ipam":{"type":"b","Name":"x"},"args":{"cni":{"ips":[]}},"dns":{},"capabilities":{"ips":true}}]}`, ""},
		{"keys of others in any case", `{"type":"a","Master":"eth1","x":{"Type":"y","IPAM":1},"ipam":{"ranges":[[{"Type":1}]]}}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := CheckSameKeys([]byte(tt.config)); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// What ReadPrograms lets pass has one reading: its own, encoding/json's into CNI's structure, and the exact one.
func FuzzBoundaryPrograms(f *testing.F) {
	for _, seed := range []string{
		`{"type":"dummy","ipam":{"type":"static"}}`, `{"type":"dummy","Ipam":{"type":"host-local"}}`, `{"type":"a","type":"b"}`,
		`{"type":"a","ipam":null}`, `{"type":"a","ipam":{"t\u0079pe":"b"}}`, `{"type":"a","iPam":{"type":"b"},"ipam":{}}`, `{"type":"a","ipam":{"type":"b","\u017f":1}}`,
		`{"plugins":[{"type":"a"}],"type":"x"}`, `{"type":"a"}x`, "{\"type\":\"a\",\"\xff\":1}", `{"type":"a","args":{"cni":{"ips":["1.2.3.4/5"]}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, config []byte) {
		p, err := ReadPrograms(config)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		var read struct { // as plugins do
			Type          string         `json:"type"`
			IPAM          types.IPAM     `json:"ipam"`
			PrevResult    map[string]any `json:"prevResult"`
			RuntimeConfig map[string]any `json:"runtimeConfig"`
		}
		if err := json.Unmarshal(config, &read); err != nil {
			return // the plugin refuses it
		}
		if read.Type != p.Type || read.IPAM.Type != p.IPAM {
			t.Errorf("a plugin reads %q and %q, we %q and %q", read.Type, read.IPAM.Type, p.Type, p.IPAM)
		}
		var exact map[string]json.RawMessage
		if err := json.Unmarshal(config, &exact); err != nil {
			t.Fatal(err)
		}
		if (read.PrevResult != nil && exact["prevResult"] == nil) || (read.RuntimeConfig != nil && exact["runtimeConfig"] == nil) {
			t.Error("a plugin reads what the runtime alone may set")
		}
		var kind string
		if json.Unmarshal(exact["type"], &kind) != nil || kind != p.Type {
			t.Errorf("the exact key says %q, we read %q", kind, p.Type)
		}
	})
}

func TestBoundaryPrograms(t *testing.T) {
	for config, want := range map[string]string{
		`{"type":"dummy","ipam":{"type":"static"}}`: "dummy static", `{"type":"a","ipam":{}}`: "a ", `{"type":"a","ipam":null}`: "a ",
		`{"type":"a","ipam":{"type":"../b"}}`: `type: "../b" is no name of a plugin`, `{"type":""}`: `"type" is missing`,
	} {
		got := ""
		if p, err := ReadPrograms([]byte(config)); err != nil {
			got = err.Error()
		} else {
			got = p.Type + " " + p.IPAM
		}
		if got != want {
			t.Errorf("%s: %s, want %s", config, got, want)
		}
	}
}

// The lists are apart: a plugin that may be a delegate may not be its own plugin for addresses.
func TestBoundaryTwoLists(t *testing.T) {
	allowed := &Allowed{Delegates: []string{"dummy", "bridge"}, IPAM: []string{"static"}}
	for _, tt := range []struct {
		p  Programs
		ok bool
	}{
		{Programs{"dummy", "static"}, true}, {Programs{"bridge", ""}, true}, {Programs{"dummy", "dummy"}, false}, {Programs{"dummy", "bridge"}, false},
		{Programs{"static", ""}, false}, {Programs{"Dummy", ""}, false}, {Programs{"", ""}, false},
	} {
		if err := allowed.Check(&tt.p); (err == nil) != tt.ok || err != nil && !conf.HasCode(err, conf.CodeNotAllowed) {
			t.Errorf("%+v: %v", tt.p, err)
		}
	}
	delegates, ipam := Shipped()
	for _, p := range ipam {
		if slices.Contains(delegates, p) {
			t.Errorf("%s stands in both lists that are shipped", p)
		}
	}
}
