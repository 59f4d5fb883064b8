package delegate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
)

// The plugin does not trust the agent with what plugins are given: each of these lists is refused before anything
// runs.
func TestBoundaryDelegateKeysInAnotherCase(t *testing.T) {
	for plugins, want := range map[string]string{
		`"plugins":[{"type":"a","Ipam":{"type":"host-local"}}]`:                        `write key "Ipam" as "ipam"`,
		`"plugins":[{"type":"a"}],"Plugins":[{"prevResult":{}}]`:                       `keys "plugins" and "Plugins" differ`,
		`"plugins":[{"type":"a","prevResult":{}}]`:                                     `plugins[0]: "prevResult" is for the runtime to set`,
		`"plugins":[{"type":"a"},{"type":"b","runtimeConfig":{}}]`:                     `plugins[1]: "runtimeConfig" is for the runtime to set`,
		`"plugins":[{"type":"a","cni.dev/valid-attachments":[]}]`:                      `plugins[0]: "cni.dev/valid-attachments" is for the runtime to set`,
		`"plugins":[{"type":"a","type":"b"}]`:                                          `key "type" is given twice`,
		`"plugins":[{"type":"../a"}]`:                                                  `plugins[0]: type: "../a" is no name of a plugin`,
		`"plugins":[{"type":"a","x":"` + "\xff" + `"}]`:                                `it is not UTF-8`,
		`"plugins":[{"type":"ovn-multinet"}]`:                                          `cannot be chained`,
		`"plugins":[{"type":"a","ipam":{"type":"static","` + "\u017f" + `":1,"s":2}}]`: `differ in the case of letters only`,
	} {
		_, err := readConflist(&agentapi.Delegate{Name: "net1", Network: "shop/ext", Conflist: json.RawMessage(`{"cniVersion":"1.0.0","name":"n",` + plugins + `}`)})
		if err == nil || !strings.HasPrefix(err.Error(), "interface net1: network shop/ext: ") || !strings.Contains(err.Error(), want) || !conf.HasCode(err, conf.CodeInvalidConfig) {
			t.Errorf("%s: %v, want %s with code 7", plugins, err, want)
		}
	}
}

// The very bytes that a plugin would get are looked at once more, whatever made them.
func TestBoundaryRequestIsCheckedAgain(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	program := script(t, "echo >> "+ran)
	allowed := &delegateconf.Allowed{Delegates: []string{"plugin"}, IPAM: []string{"static"}}
	for config, want := range map[string]struct {
		code uint
		text string
	}{
		`{"type":"plugin","ipam":{"type":"static"}}`:                           {},
		`{"type":"plugin","ipam":{"type":"plugin"}}`:                           {conf.CodeNotAllowed, `delegate "plugin" is not allowed as ipam on this node`},
		`{"type":"plugin","Ipam":{"type":"static"}}`:                           {conf.CodeInvalidConfig, `delegate plugin: write key "Ipam" as "ipam"`},
		`{"type":"other"}`:                                                     {conf.CodeInvalidConfig, `delegate plugin: type: "other" is given to plugin "plugin"`},
		`{"type":"plugin","x":[{"k":1,"K":2}]}`:                                {conf.CodeInvalidConfig, `differ in the case of letters only`},
		`{"type":"plugin","ipam":{"type":"` + strings.Repeat("x", 900) + `"}}`: {conf.CodeInvalidConfig, `type: "` + strings.Repeat("x", 128) + `" is no name of a plugin`},
	} {
		_ = os.Remove(ran)
		var keys map[string]json.RawMessage
		if err := json.Unmarshal([]byte(config), &keys); err != nil {
			t.Fatal(err)
		}
		e := &executor{list: &conflist{plugins: []map[string]json.RawMessage{keys}}, allowed: allowed}
		_, err := e.ExecPlugin(t.Context(), program, firstStub, []string{"PATH=/usr/bin:/bin"})
		_, started := os.Stat(ran)
		if want.code == 0 {
			if err != nil || started != nil {
				t.Errorf("%s: %v, %v", config, err, started)
			}
			continue
		}
		if err == nil || !conf.HasCode(err, want.code) || !strings.Contains(err.Error(), want.text) || len(err.Error()) > 300 || started == nil {
			t.Errorf("%.100s: %v, ran %t; want %s with code %d", config, err, started == nil, want.text, want.code)
		}
	}
}
