package ovnport_test

import (
	"net/netip"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// insertACL makes an ACL in a group of its own.
func (w *world) insertACL(t *testing.T, key, name string, ids map[string]string) {
	t.Helper()
	w.Transact(t,
		ovndbtest.Op{"op": "insert", "table": "ACL", "uuid": key, "row": ovndbtest.Op{"priority": 1, "match": "1",
			"action": "drop", "direction": "to-lport", "external_ids": ovndbtest.Map(ids)}},
		ovndbtest.Op{"op": "insert", "table": "Port_Group", "row": ovndbtest.Op{"name": name, "acls": ovndbtest.UUID(key)}})
}

// TestDenyingRules: the ACLs of policies are found by their keys, with the address book of their network. Those of the
// operator and those of another cluster are not ours.
func TestDenyingRules(t *testing.T) {
	w := newWorld(t)
	const ours, wires, operators, others = groupDB, groupWeb, "00000000-0000-8000-8000-0000000000f1", "00000000-0000-8000-8000-0000000000f2"
	n := w.network(t, "blue", netDual)
	wire := w.network(t, "wire", `"topology":"localnet","physicalNetworkName":"physnet","vlanID":7,`+net4)
	rule := func(network string) map[string]string {
		return map[string]string{"ovn-multinet/policy": "shop/db", "ovn-multinet/rule": "ingress deny", "ovn-multinet/network": network}
	}
	w.insertACL(t, ours, "a", rule(n.ID()))
	w.insertACL(t, wires, "b", rule(wire.ID()))
	w.insertACL(t, operators, "c", nil)
	foreign := rule(n.ID())
	foreign[ovndb.ClusterMark] = "another"
	w.insertACL(t, others, "d", foreign)
	rules, err := w.nb.DenyingRules(timeout(t), []string{ours, wires, operators, others, ovndb.ACLKey("gone", "", "")})
	if err != nil || len(rules) != 2 {
		t.Fatalf("rules %v, %v", rules, err)
	}
	for key, n := range map[string]string{ours: n.AddressBook(), wires: wire.AddressBook()} {
		want := ovnport.DenyingRule{Policy: "shop/db", Rule: "ingress deny", Network: rules[key].Network, Book: n, ToPod: true}
		if *rules[key] != want {
			t.Errorf("rule %+v, want %+v", *rules[key], want)
		}
	}
}

// TestPodsAt: a pod is found by each of its addresses.
func TestPodsAt(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	port := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"))[0]
	keys := []string{ovndb.AddressKey(n.AddressBook(), netip.MustParseAddr("10.1.0.250"))}
	for _, a := range port.Addresses {
		keys = append(keys, ovndb.AddressKey(n.AddressBook(), a.Addr()))
	}
	pods, err := w.nb.PodsAt(timeout(t), keys)
	if err != nil || len(keys) != 3 || len(pods) != 2 || pods[keys[1]] != "shop/web-1" || pods[keys[2]] != "shop/web-1" {
		t.Errorf("keys %v, pods %v, %v", keys, pods, err)
	}
}
