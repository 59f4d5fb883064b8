package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// portsOf are the ports that a reader finds, in the order of their names.
func portsOf(t *testing.T, reader *ovnport.NodePorts) []ovnport.OwnedPort {
	t.Helper()
	all, err := reader.Read(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b ovnport.OwnedPort) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// asOwned are ports as a reader has to find them.
func asOwned(o ovnport.Owner, ports []ovnport.Port) (all []ovnport.OwnedPort) {
	o.Chassis = ""
	for _, p := range ports {
		owned := ovnport.OwnedPort{UUID: p.UUID, Name: p.Name, Network: p.Network, Interface: p.Interface, Owner: o}
		for _, a := range p.Addresses {
			owned.Addresses = append(owned.Addresses, a.Addr())
		}
		all = append(all, owned)
	}
	return all
}

// scans are the operations of a transaction for which the server looks at each row of a table.
func scans(tx ovndbtest.Transact) (all []string) {
	for _, op := range tx.Ops {
		where, has := op["where"].([]any)
		byKey := slices.ContainsFunc(where, func(c any) bool { return c.([]any)[0] == "_uuid" })
		if has && !byKey {
			all = append(all, fmt.Sprint(op["op"], " ", op["table"]))
		}
	}
	return all
}

// A reader finds the ports of its node, with their owners, among those of other nodes and among ports of others. After
// its first look it asks only for the list.
func TestNodePorts(t *testing.T) {
	w := newWorld(t)
	n, m := w.network(t, "blue", netDual), w.network(t, "red", net4)
	w.NBCtl("lsp-add", "shop/blue", "vm-1", "--", "lsp-add", "shop/red", "of-node-1", "--",
		"set", "Logical_Switch_Port", "of-node-1", "external_ids:node=node-1", "external_ids:sandbox=sandbox-1", "--",
		"lsp-add", "shop/red", "half", "--", "set", "Logical_Switch_Port", "half", `external_ids:"ovn-multinet/node"=node-1`)
	reader := w.nb.PortsOn("node-1")
	if got := portsOf(t, reader); len(got) != 0 {
		t.Errorf("of nothing that is ours: %+v", got)
	}
	first, second := owner("web-1", "sandbox-1"), owner("web-2", "sandbox-2")
	other, far := owner("web-3", "sandbox-3"), owner("web-4", "sandbox-4")
	second.UID = ""
	other.Node, far.Node = "node-2", "node-10"
	expected := asOwned(first, mustEnsure(t, w.nb, first,
		want(n, "net1"), want(m, "net2", "10.1.0.7", "10.1.0.8", "02:00:00:00:00:2a")))
	expected = append(expected, asOwned(second, mustEnsure(t, w.nb, second, want(n, "net1")))...)
	mustEnsure(t, w.nb, other, want(n, "net1"))
	mustEnsure(t, w.nb, far, want(n, "net1"))
	before := read(t, w.Server)
	w.proxy.Reset()
	if got := portsOf(t, reader); !reflect.DeepEqual(got, expected) {
		t.Errorf("got  %+v\nwant %+v", got, expected)
	}
	w.wantCounts(t, 0, 0, 2) // the list, the rows that are new in it
	w.proxy.Reset()
	if got := portsOf(t, reader); !reflect.DeepEqual(got, expected) {
		t.Errorf("again: got  %+v\nwant %+v", got, expected)
	}
	w.wantCounts(t, 0, 0, 1)
	w.wantUnchanged(t, before)

	// What a port says of its owner is enough to release it.
	for _, p := range portsOf(t, reader) {
		if err := w.nb.ReleaseSandbox(timeout(t), p.Owner); err != nil {
			t.Fatal(err)
		}
	}
	s := read(t, w.Server)
	s.checkLists(t)
	if got := portsOf(t, reader); len(got) != 0 || len(s.ports) != 5 || len(s.claims) != 2 {
		t.Errorf("left: %+v; %d ports and %d claims, want 5 and 2 of others", got, len(s.ports), len(s.claims))
	}
}

// What a look receives grows with the node's own ports alone, and no operation of an ADD, a DEL or a look scans a
// table.
func TestNothingScans(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", `"subnets":"10.1.0.0/16"`)
	reader := w.nb.PortsOn("node-1")
	portsOf(t, reader)
	var all []string
	w.proxy.Before(func(tx ovndbtest.Transact) { all = append(all, scans(tx)...) })
	first := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"))
	second := mustEnsure(t, w.nb, owner("web-1", "sandbox-2"), want(n, "net1")) // takes the port over
	other := mustEnsure(t, w.nb, owner("web-2", "sandbox-3"), want(n, "net1"))
	mustRelease(t, w.nb, "sandbox-1", first...)
	mustRelease(t, w.nb, "sandbox-3", other...)
	received := func() int64 {
		w.proxy.Reset()
		if got := portsOf(t, reader); len(got) != 1 || got[0].UUID != second[0].UUID {
			t.Fatalf("got %+v, want the one of this node", got)
		}
		return w.proxy.Counts().Received
	}
	received() // it learns of the port
	few := received()
	far := owner("far", "sandbox-4")
	far.Node = "node-2"
	mustEnsure(t, w.nb, far, want(n, "net1"))
	for i := range 200 {
		o := owner(fmt.Sprint("far-", i), fmt.Sprint("far-", i))
		o.Node = "node-2"
		mustEnsure(t, w.nb, o, want(n, "net1"))
	}
	// Requests are numbered, in more digits by now.
	if many := received(); many-few > 8 {
		t.Errorf("a look receives %d bytes beside no ports of others and %d beside 200", few, many)
	}
	if len(all) != 0 {
		t.Errorf("the server scanned for %q", all)
	}
	w.proxy.Before(nil)
	read(t, w.Server).checkLists(t)
}

// A DEL of an older plugin does not name the port's switch, and somebody may have moved the port: it is released all
// the same.
func TestReleaseWithoutTheSwitch(t *testing.T) {
	for _, named := range []string{"", ovndb.SwitchKey("shop/other")} {
		w := newWorld(t)
		port := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(w.network(t, "blue", netDual), "net1"))[0]
		port.Switch = named
		mustRelease(t, w.nb, "sandbox-1", port)
		w.wantPorts(t, owner("web-1", "sandbox-1"), nil)
	}
}

// The first pod of a node may come before the node has a port list: the ADD makes the list, with the ports that an
// older version inserted.
func TestPortListIsMadeByAnADD(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"))
	w.deletePortList(t, "node-1")
	w.proxy.Reset()
	mustEnsure(t, w.nb, owner("web-2", "sandbox-2"), want(n, "net1"))
	w.wantCounts(t, 2, 1, 2) // refused; no list; a scan; the list is made; the port
	read(t, w.Server).checkLists(t)
	if got := len(portsOf(t, w.nb.PortsOn("node-1"))); got != 2 {
		t.Errorf("the list has %d ports, want 2", got)
	}
}

func (w *world) deletePortList(t *testing.T, node string) {
	w.Transact(t, ovndbtest.Op{"op": "delete", "table": "Copp",
		"where": []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.PortListKey(node))}}})
}

// Ports that are not in the list, and entries whose port is gone or has another owner, are put right: the former by
// the scan of a reader's first look, the latter when a reader learns of them.
func TestPortListIsPutRight(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	kept := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"))
	lost := mustEnsure(t, w.nb, owner("web-2", "sandbox-2"), want(n, "net1"))
	moved := mustEnsure(t, w.nb, owner("web-3", "sandbox-3"), want(n, "net1"))
	elsewhere := owner("web-3", "sandbox-4")
	elsewhere.Node = "node-2"
	mustEnsure(t, w.nb, elsewhere, want(n, "net1"))
	w.NBCtl("lsp-del", lost[0].Name)
	w.Transact(t, ovndbtest.Op{"op": "mutate", "table": "Copp",
		"where":     []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.PortListKey("node-1"))}},
		"mutations": []any{[]any{"external_ids", "delete", ovndbtest.Set(kept[0].UUID)}}})
	if unlisted, outdated := read(t, w.Server).listErrors(); len(unlisted) != 1 || len(outdated) != 2 {
		t.Fatalf("to begin with, unlisted: %q, outdated: %q; want %s, and %s and %s", unlisted, outdated,
			kept[0].Name, lost[0].Name, moved[0].Name)
	}
	reader := w.nb.PortsOn("node-1")
	expected := asOwned(owner("web-1", "sandbox-1"), kept)
	if got := portsOf(t, reader); !reflect.DeepEqual(got, expected) {
		t.Errorf("got  %+v\nwant %+v", got, expected)
	}
	read(t, w.Server).checkLists(t)
}

// A release that finds the port gone removes it from the list.
func TestReleaseOfALostPort(t *testing.T) {
	for name, release := range map[string]func(w *world, ports []ovnport.Port) error{
		"by key": func(w *world, ports []ovnport.Port) error {
			return w.nb.Release(context.Background(), on1("sandbox-1"), held(ports))
		},
		"by sandbox": func(w *world, _ []ovnport.Port) error {
			return w.nb.ReleaseSandbox(context.Background(), on1("sandbox-1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n, m := w.network(t, "blue", netDual), w.network(t, "red", net4)
			ports := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"), want(m, "net2"))
			w.NBCtl("lsp-del", ports[1].Name)
			if err := release(w, ports); err != nil {
				t.Fatal(err)
			}
			w.wantPorts(t, owner("web-1", "sandbox-1"), nil)
			read(t, w.Server).checkLists(t)
		})
	}
}

// An NB that does not answer has not said that nothing is there.
func TestNodePortsWithoutAnAnswer(t *testing.T) {
	w := newWorld(t)
	mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(w.network(t, "blue", net4), "net1"))
	ctx, cancel := context.WithCancel(timeout(t))
	defer cancel()
	over := make(chan struct{})
	w.proxy.Before(func(ovndbtest.Transact) { cancel(); <-over })
	all, err := w.nb.PortsOn("node-1").Read(ctx)
	close(over)
	if all != nil || !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "this node's ports: ") {
		t.Errorf("got %+v, %v; want the error alone", all, err)
	}
}
