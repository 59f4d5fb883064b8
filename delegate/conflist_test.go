package delegate

import (
	"encoding/json"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// What a plugin gets goes through libcni as a stub and comes out whole, with its numbers as they were written.
// Conformance: C-13 C-110
func TestRequestOfAPlugin(t *testing.T) {
	list, err := readConflist(&agentapi.Delegate{Conflist: json.RawMessage(`{"cniVersion":"1.0.0","name":"n","disableCheck":true,"plugins":[
		{"type":"a","capabilities":{"mac":true,"ips":false},"big":12345678901234567890,"x":[1.10,1e400,-0],"ipam":{"type":"host-local","y":9007199254740993}},
		{"type":"b","args":{"cni":{"z":9007199254740993}}}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	if s := list.stubs; s.Name != "n" || s.CNIVersion != "1.0.0" || !s.DisableCheck || s.DisableGC || len(s.Plugins) != 2 ||
		s.Plugins[0].Network.Type != "a" || !s.Plugins[0].Network.Capabilities["mac"] || s.Plugins[0].Network.IPAM.Type != "host-local" || s.Plugins[1].Network.Type != "b" {
		t.Errorf("libcni gets %+v", s)
	}
	prev := map[string]any{"cniVersion": "1.0.0", "dns": map[string]any{}}
	tests := []struct {
		name   string
		plugin int
		inject map[string]any // by libcni
		prev   string
		want   string
	}{
		{"the first", 0, map[string]any{"name": "n", "cniVersion": "1.0.0", "runtimeConfig": map[string]any{"mac": "02:00:00:00:00:01"}}, "",
			`{"big":12345678901234567890,"cniVersion":"1.0.0","ipam":{"type":"host-local","y":9007199254740993},"name":"n","runtimeConfig":{"mac":"02:00:00:00:00:01"},"type":"a","x":[1.10,1e400,-0]}`},
		{"the second", 1, map[string]any{"name": "n", "cniVersion": "1.0.0", "prevResult": prev}, "",
			`{"args":{"cni":{"z":9007199254740993}},"cniVersion":"1.0.0","name":"n","prevResult":{"cniVersion":"1.0.0","dns":{}},"type":"b"}`},
		{"another result", 1, map[string]any{"name": "n", "prevResult": prev}, `{"routes":[]}`, `{"args":{"cni":{"z":9007199254740993}},"name":"n","prevResult":{"routes":[]},"type":"b"}`},
		{"another result where libcni gives none", 1, map[string]any{"name": "n"}, `{"routes":[]}`, `{"args":{"cni":{"z":9007199254740993}},"name":"n","type":"b"}`},
		{"GC", 1, map[string]any{"name": "n", "cni.dev/valid-attachments": []types.GCAttachment{{ContainerID: "c", IfName: "net1"}}}, "",
			`{"args":{"cni":{"z":9007199254740993}},"cni.dev/valid-attachments":[{"containerID":"c","ifname":"net1"}],"name":"n","type":"b"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stub, err := libcni.InjectConf(list.stubs.Plugins[tt.plugin], tt.inject)
			if err != nil {
				t.Fatal(err)
			}
			var prev json.RawMessage
			if tt.prev != "" {
				prev = json.RawMessage(tt.prev)
			}
			if got, err := list.request(stub.Bytes, prev); err != nil || string(got) != tt.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

func TestConflistsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                              "unexpected end of JSON input",
		`{"plugins":{}}`:                 "json: cannot unmarshal object into Go struct field .plugins of type []map[string]json.RawMessage",
		`{"plugins":[{"type":1}]}`:       "plugins[0]: json: cannot unmarshal number into Go struct field PluginConf.type of type string",
		`{"plugins":[{"type":"a"},"x"]}`: "json: cannot unmarshal string into Go struct field .plugins of type map[string]json.RawMessage",
	} {
		_, err := readConflist(&agentapi.Delegate{Name: "net1", Network: "shop/ext", Conflist: json.RawMessage(text)})
		if want := "interface net1: network shop/ext: " + want; err == nil || err.Error() != want || !conf.HasCode(err, conf.CodeInvalidConfig) {
			t.Errorf("%s: %v, want %s with code 7", text, err, want)
		}
	}
	for _, stub := range []string{`{`, `{}`, `{"ovn-multinet/plugin":1}`, `{"ovn-multinet/plugin":-1}`, `{"ovn-multinet/plugin":"0"}`} {
		if got, err := onePlugin.request([]byte(stub), nil); err == nil {
			t.Errorf("of %s it makes %s", stub, got)
		}
	}
}
