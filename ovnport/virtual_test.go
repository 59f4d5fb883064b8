package ovnport_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// virtualKeys are three virtual addresses: two of the pods with app=a, of which one has a virtual MAC, and one of others.
const virtualKeys = netDual + `,"virtualAddresses":[{"address":"10.1.0.100","selector":{"app":"a"}},
	{"address":"10.1.0.101","selector":{"app":"a"},"vrid":7},{"address":"fd01::100","selector":{"app":"b"}}]`

// virtualNetwork makes a network with these addresses, and their groups, as the controller does.
func (w *world) virtualNetwork(t *testing.T, keys string) *netmodel.Network {
	t.Helper()
	n := w.network(t, "blue", keys)
	for _, app := range []string{"a", "b"} {
		for _, p := range ovnport.VirtualGroups(n, podWith(app)) {
			w.Transact(t, ovndbtest.Op{"op": "insert", "table": "Port_Group", "uuid": p.Group.UUID, "row": ovndbtest.Op{"name": p.Group.Name}})
		}
	}
	return n
}

func podWith(app string) *netmodel.Pod {
	return &netmodel.Pod{Namespace: "shop", Labels: map[string]string{"app": app}}
}

// TestVirtualAddresses: the port of a pod that may have virtual addresses is in their groups, and port security lets it send
// from them, by its own and by the virtual MAC. So it is after NB has lost the port, and for the next sandbox. A pod
// without the labels gets nothing of that.
func TestVirtualAddresses(t *testing.T) {
	w := newWorld(t)
	n := w.virtualNetwork(t, virtualKeys)
	mustEnsure(t, w.nb, owner("first", "sandbox-0"), want(n, "net1")) // makes the node's port list
	has := func(what, name, want string) {
		t.Helper()
		got := "no port"
		for _, row := range w.Dump(t, "Logical_Switch_Port") {
			if row["name"] == name {
				security, addresses := ovndbtest.Strings(row["port_security"]), ovndbtest.Strings(row["addresses"])
				slices.Sort(security)
				slices.Sort(addresses)
				got = strings.Join(slices.Concat(security, addresses), "\n")
			}
		}
		if got != want {
			t.Errorf("%s: port_security and addresses are\n%s\nwant\n%s", what, got, want)
		}
	}
	w.proxy.Reset()
	o := owner("web-1", "sandbox-1")
	a := ovnport.VirtualGroups(n, podWith("a"))
	port := mustEnsure(t, w.nb, o, withProfiles(n, a...))[0]
	w.wantCounts(t, 1, 0, 0)
	addresses := fmt.Sprintf("%s %s", port.Addresses[0].Addr(), port.Addresses[1].Addr())
	own, local := port.MAC.String()+" "+addresses, conf.LinkLocal(port.MAC).String()
	full := strings.Join([]string{
		"00:00:5e:00:01:07 " + addresses + " fe80::200:5eff:fe00:107 " + local + " 10.1.0.101",
		own + " 10.1.0.100 10.1.0.101 " + local, own, "unknown",
	}, "\n")
	members := func(want ...string) {
		t.Helper()
		for _, p := range a {
			w.wantMembers(t, p.Group.UUID, want...)
		}
	}
	has("a new port", port.Name, full)
	members(port.UUID)

	w.NBCtl("lsp-del", port.Name)
	for _, claim := range port.Claims {
		w.NBCtl("destroy", "Copp", claim)
	}
	again := withProfiles(n, a...)
	again.IPs, again.MAC = port.Addresses, port.MAC
	if err := w.nb.Restore(timeout(t), o, again, port, nobody(t)); err != nil {
		t.Fatal(err)
	}
	has("a port that NB has lost", port.Name, full)
	members(port.UUID)

	next := owner("web-1", "sandbox-2")
	port = mustEnsure(t, w.nb, next, withProfiles(n, a...))[0]
	has("the next sandbox", port.Name, full)
	members(port.UUID)
	port = mustEnsure(t, w.nb, owner("web-1", "sandbox-3"), withProfiles(n, ovnport.VirtualGroups(n, podWith("c"))...))[0]
	has("without the labels", port.Name, own+" "+local+"\n"+own)
	members()
}
