package wiring

import (
	"net/netip"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// A plugin behind ours gets the interface as CNI's result, in the version of its list.
func TestResultForChainedPlugins(t *testing.T) {
	s := &agentapi.Sandbox{ContainerID: "4f1c0f5a7c4b"}
	i := &agentapi.Interface{
		Name: "net1", MAC: "0a:58:0a:01:00:07", MTU: 1442,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.7/24"), netip.MustParsePrefix("fd01::7/64")},
		Routes: []conf.Route{{Dst: netip.MustParsePrefix("10.9.0.0/16"), GW: netip.MustParseAddr("10.1.0.1")},
			{Dst: netip.MustParsePrefix("224.0.0.0/4"), Scope: conf.ScopeLink}},
		Gateways: []netip.Addr{netip.MustParseAddr("10.1.0.1")},
	}
	for version, want := range map[string]string{
		"1.1.0": `{"cniVersion":"1.1.0","interfaces":[{"mtu":1442,"name":"mna8dd68905307"},{"mac":"0a:58:0a:01:00:07","mtu":1442,"name":"net1","sandbox":"/run/netns/x"}],` +
			`"ips":[{"address":"10.1.0.7/24","gateway":"10.1.0.1","interface":1},{"address":"fd01::7/64","interface":1}],"routes":[{"dst":"10.9.0.0/16","gw":"10.1.0.1"},{"dst":"224.0.0.0/4","scope":253}]}`,
		"0.3.1": `{"cniVersion":"0.3.1","interfaces":[{"name":"mna8dd68905307"},{"name":"net1","mac":"0a:58:0a:01:00:07","sandbox":"/run/netns/x"}],` +
			`"ips":[{"version":"4","interface":1,"address":"10.1.0.7/24","gateway":"10.1.0.1"},{"version":"6","interface":1,"address":"fd01::7/64"}],"routes":[{"dst":"10.9.0.0/16","gw":"10.1.0.1"},{"dst":"224.0.0.0/4","scope":253}],"dns":{}}`,
	} {
		got, err := Result("/run/netns/x", s, i, version)
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", version, err, got, want)
		}
	}
	if _, err := Result("/run/netns/x", s, i, "9.0.0"); !conf.HasCode(err, conf.CodeInvalidConfig) {
		t.Errorf("a version that does not exist: %v", err)
	}
}
