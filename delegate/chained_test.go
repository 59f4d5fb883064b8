package delegate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// The first plugin behind ours gets the result of our interface, and the next one what the first has printed. sbr may
// be the first of them, as our plugin is before it.
func TestPrevResultOfChainedPlugins(t *testing.T) {
	d := &agentapi.Delegate{Name: "net1", Network: "shop/blue", Chained: true,
		Conflist: json.RawMessage(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"sbr"},{"type":"tuning"}]}`)}
	list, err := readConflist(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := list.checkShipped(0); err != nil {
		t.Error(err)
	}
	list.given = json.RawMessage(`{"ips":[]}`)
	for i, want := range []string{`{"prevResult":{"ips":[]},"type":"sbr"}`, `{"type":"tuning"}`} {
		got, err := list.request(list.stubs.Plugins[i].Bytes, nil)
		if err != nil || string(got) != want {
			t.Errorf("plugin %d gets %s, %v; want %s", i, got, err, want)
		}
	}
	d.Conflist = json.RawMessage(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"../x"}]}`)
	if _, err := readConflist(d); err == nil || !strings.Contains(err.Error(), "plugins[1]: type: ") {
		t.Errorf("%v, want the plugin's place in the NAD's list", err)
	}
}
