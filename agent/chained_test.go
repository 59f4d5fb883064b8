package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// An older plugin would take a chained list for a second interface of the same name. So it gets no such plan, and no
// port is written.
func TestChainedPluginsNeedAPluginThatRunsThem(t *testing.T) {
	r := newRig(t)
	r.source.nads["chain"] = testNAD{Config: `{"cniVersion":"1.0.0","plugins":[{"type":"ovn-multinet","subnets":"10.61.0.0/24"},{"type":"sbr"}]}`}
	r.start()
	_, err := r.planFor("c1", "chain")
	wantCoded(t, err, conf.CodeTryAgain,
		"interface net1: network shop/chain: the node's ovn-multinet plugin is older than its agent, and runs no plugins behind it")
	if ports := r.ports(); len(ports) != 0 {
		t.Errorf("ports were written: %v", ports)
	}
}

// The network-status of an OVN interface has the addresses that its plugins printed last, and the MAC and MTU that the
// interface has, whatever they printed of these.
func TestStatusOfChainedPlugins(t *testing.T) {
	plan := agentapi.Plan{
		Interfaces: []agentapi.Interface{{Name: "net1", Network: "shop/chain", MAC: "0a:58:0a:01:00:07", MTU: 1300}},
		Delegates: []agentapi.Delegate{
			{Name: "net1", Network: "shop/chain", Chained: true}, {Name: "net2", Network: "shop/ext", Position: 1},
		},
	}
	text, err := statusOf(&agentapi.BindRequest{Plan: plan, Primary: json.RawMessage(`{"cniVersion":"1.0.0"}`), Results: []json.RawMessage{
		json.RawMessage(`{"cniVersion":"1.1.0","interfaces":[{"name":"other","mac":"02:00:00:00:00:01","mtu":9000,"sandbox":"/x"}],"ips":[{"address":"10.1.0.7/24","interface":0}],"dns":{"domain":"d"}}`),
		json.RawMessage("null"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"shop/chain","interface":"net1","ips":["10.1.0.7"],"mac":"0a:58:0a:01:00:07","mtu":1300,"default":false,"dns":{"domain":"d"}},` +
		`{"name":"shop/ext","interface":"net2","default":false,"dns":{}}]`
	if !strings.HasSuffix(string(text), want) {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if got := attachedMessage(&plan); got != "net1 on shop/chain, net2 on shop/ext" {
		t.Errorf("the Event says %s", got)
	}
}

// Plugins behind ours are told a gateway only where somebody has its address: sbr makes a default route to it.
func TestGatewaysForChainedPlugins(t *testing.T) {
	for config, want := range map[string]string{
		`{"type":"ovn-multinet","subnets":"10.1.0.0/24"}`:                                                           "[]",
		`{"type":"ovn-multinet","subnets":"10.1.0.0/24","router":"core"}`:                                           "[10.1.0.1]",
		`{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"p","subnets":"10.1.0.0/24,fd01::/64"}`: "[10.1.0.1 fd01::1]",
	} {
		n, err := netmodel.ParseNetwork("shop", "blue", []byte(config))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(gatewaysFor(&nad.Attachment{Network: n, Delegate: &nad.Delegate{}})); got != want {
			t.Errorf("%s: %s, want %s", config, got, want)
		}
		if got := gatewaysFor(&nad.Attachment{Network: n}); got != nil {
			t.Errorf("%s: a plan without chained plugins has the gateways %v", config, got)
		}
	}
}
