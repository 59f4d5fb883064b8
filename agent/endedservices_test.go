package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// port gives the node a pod's port on a network, and the zone of this port.
func (k *keeper) port(name, network, zone string) {
	k.t.Helper()
	key, id := ovndb.PartKey("test port", name), map[string]string{"ovn-multinet/network": network}
	k.nb.Transact(k.t,
		ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid": key,
			"row": ovndbtest.Op{"name": name, "external_ids": ovndbtest.Map(id)}},
		ovndbtest.Op{"op": "insert", "table": "Logical_Switch",
			"row": ovndbtest.Op{"name": "of " + name, "ports": ovndbtest.UUID(key)}})
	k.ovs.VSCtl("add-port", "br-int", "veth-"+zone, "--", "set", "Interface", "veth-"+zone, "external_ids:iface-id="+name,
		"external_ids:sandbox=s1", "external_ids:ovn-multinet/port-uuid="+key)
	k.ovs.VSCtl("set", "Bridge", "br-int", "external_ids:ct-zone-"+name+"="+zone)
}

// servedEnd adds connections to the list of a scope.
func (k *keeper) servedEnd(scope, vip, words string) {
	k.t.Helper()
	key := ovndb.EndedServedKey(scope)
	k.nb.Transact(k.t, ovndbtest.Op{"op": "delete", "table": "Copp", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(key)}}})
	ids := map[string]string{"ovn-multinet/kind": "ended-connections of services", "ovn-multinet/ended:" + vip: words}
	k.nb.Transact(k.t, ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": key,
		"row": ovndbtest.Op{"name": "ended in " + scope, "external_ids": ovndbtest.Map(ids)}})
}

// TestEndedServed: the agent has ovs-vswitchd forget the connections of Services that are in the list of a scope on which
// this node has pods, in the zones of these pods and of the gateway, and in no others. One message reads what is new.
func TestEndedServed(t *testing.T) {
	k := newKeeper(t)
	s := k.switchd()
	k.port("shop/a/net1", "shop/blue", "5")
	k.port("shop/b/net1", "shop/green", "6")
	k.servedEnd("network shop/blue", "udp 10.1.0.200:53", "10.1.0.7:53@1700000000")
	k.servedEnd("network shop/red", "udp 10.1.0.200:53", "10.1.0.7:53@1700000000")
	k.eventually("in the copy", func() bool { ports, err := k.agent.ovs.PodPorts(t.Context()); return err == nil && len(ports) == 2 })
	for i, want := range []time.Duration{activeEvery, activeEvery, activeEvery} { // network, router, list
		if wait := k.look(); wait != want {
			t.Errorf("look %d: %v until the next, want %v", i+1, wait, want)
		}
	}
	const udp = "zone=5 ct_nw_dst=10.1.0.200,ct_nw_proto=17,ct_tp_dst=53 ct_nw_src=10.1.0.7,ct_nw_proto=17,ct_tp_src=53"
	for range forgetTimes {
		k.wantForgotten(s, udp)
		k.now = k.now.Add(time.Hour)
	}
	k.wantForgotten(s, "")
	k.look() // announces the node
	k.proxy.Reset()
	if wait := k.look(); wait != memberEvery {
		t.Errorf("%v until the next look after the last turn, want %v", wait, memberEvery)
	}
	// Beside the gateways, the node's list and row, the MTUs and the uplinks, it reads the versions of two lists.
	if got := k.proxy.Counts(); got.ReadOnly != 1 || got.Committed != 0 || got.Operations != 7 {
		t.Errorf("transactions %+v, want one that reads, of 7 operations", got)
	}

	// The Service has a port no more, and then the network joins a router whose gateway may be on this node.
	k.servedEnd("network shop/blue", "tcp [fd01::c8]:80", "[fd01::7]:8080@1700000001 all@1700000001")
	k.look()
	const tcp = "zone=5 ct_ipv6_dst=fd01::c8,ct_nw_proto=6,ct_tp_dst=80"
	k.wantForgotten(s, tcp)
	k.port("shop/c/net1", "shop/l3", "7") // of a layer3 network on the same router, whose switch is this node's
	k.gateway("shop/r1", "chassis-1")
	k.ovs.VSCtl("set", "Bridge", "br-int", `external_ids:ct-zone-shop/r1\:gateway_dnat=9`)
	k.servedEnd("router shop/r1", "udp 10.1.0.200:53", "10.1.0.7:53@1700000002")
	for _, sw := range []string{"shop/blue", "shop/l3@" + k.conf.NodeName} {
		port := ovndb.RouterPortKey(sw)
		k.nb.Transact(t,
			ovndbtest.Op{"op": "insert", "table": "Logical_Router_Port", "uuid": port, "row": ovndbtest.Op{
				"name": "shop/r1:" + sw, "mac": "0a:58:0a:01:00:01"}},
			ovndbtest.Op{"op": "insert", "table": "Logical_Router", "row": ovndbtest.Op{"name": "of " + sw, "ports": ovndbtest.UUID(port)}})
	}
	k.eventually("in the copy", func() bool { ports, err := k.agent.ovs.PodPorts(t.Context()); return err == nil && len(ports) == 3 })
	for range scopesEvery {
		k.look()
	}
	k.wantForgotten(s, udp+"\n"+strings.Replace(udp, "zone=5", "zone=7", 1)+"\n"+strings.Replace(udp, "zone=5", "zone=9", 1))
}

// wantForgotten makes a pass and wants these calls.
func (k *keeper) wantForgotten(s *switchd, want string) {
	k.t.Helper()
	k.must(k.agent.gateways.ended.pass(k.t.Context(), k.now))
	if got := s.taken(); got != want {
		k.t.Errorf("calls\n%s\nwant\n%s", got, want)
	}
}
