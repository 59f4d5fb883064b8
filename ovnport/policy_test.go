package ovnport_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// Two groups of ports.
const (
	groupDB  = "00000000-0000-8000-8000-0000000000d1"
	groupWeb = "00000000-0000-8000-8000-0000000000e1"
)

// policies makes NB have two groups on a network, and the row with their revision.
func (w *world) policies(t *testing.T, n *netmodel.Network, revision string) {
	t.Helper()
	w.Transact(t,
		ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": ovndb.PolicyKey(n.ID(), "shop"), "row": ovndbtest.Op{
			"name": "policies", "external_ids": ovndbtest.Map(map[string]string{ovndb.PolicyRevisionKey: revision})}},
		ovndbtest.Op{"op": "insert", "table": "Port_Group", "uuid": groupDB, "row": ovndbtest.Op{"name": "db"}},
		ovndbtest.Op{"op": "insert", "table": "Port_Group", "uuid": groupWeb, "row": ovndbtest.Op{"name": "web"}})
}

// members are the ports of a group.
func (w *world) members(t *testing.T, group string) []string {
	t.Helper()
	for _, row := range w.Dump(t, "Port_Group") {
		if row["_uuid"] == group {
			return ovndbtest.Strings(row["ports"])
		}
	}
	t.Fatalf("group %s is gone", group)
	return nil
}

func (w *world) wantMembers(t *testing.T, group string, want ...string) {
	t.Helper()
	if got := w.members(t, group); !slices.Equal(got, want) {
		t.Errorf("group %s has the ports %v, want %v", group, got, want)
	}
}

// TestPortJoinsItsGroups: in the transaction that inserts the port, and it leaves them with the port.
func TestPortJoinsItsGroups(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	w.policies(t, n, "r1")
	request := want(n, "net1")
	request.Policy = ovnport.Policy{PolicyRevisions: ovnport.PolicyRevisions{Own: "r1"}, In: []string{groupDB}, Out: []string{groupWeb}}
	mustEnsure(t, w.nb, owner("first", "sandbox-0"), request) // makes the node's port list
	w.proxy.Reset()
	ports := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), request)
	w.wantCounts(t, 1, 0, 0)
	if got := w.members(t, groupDB); len(got) != 2 || !slices.Contains(got, ports[0].UUID) {
		t.Errorf("members %v, want %s among two", got, ports[0].UUID)
	}
	w.wantMembers(t, groupWeb)
	mustRelease(t, w.nb, "sandbox-1", ports...)
	if got := w.members(t, groupDB); len(got) != 1 {
		t.Errorf("members %v after the release of one of two", got)
	}
}

// revision inserts a row with a revision of policies.
func (w *world) revision(t *testing.T, key, revision string) {
	t.Helper()
	w.Transact(t, ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": key, "row": ovndbtest.Op{
		"name": key, "external_ids": ovndbtest.Map(map[string]string{ovndb.PolicyRevisionKey: revision})}})
}

// TestOldViewOfPolicies: an agent that does not know the present groups writes nothing.
func TestOldViewOfPolicies(t *testing.T) {
	w := newWorld(t)
	blue, red, green := w.network(t, "blue", netDual), w.network(t, "red", netDual), w.network(t, "green", netDual)
	w.policies(t, blue, "r2")
	w.revision(t, ovndb.PolicyKey(green.ID(), ""), "c2")
	w.revision(t, ovndb.NamespaceKey("shop"), "n2")
	mustEnsure(t, w.nb, owner("first", "sandbox-0"), want(red, "net1"))
	for _, tt := range []struct {
		name    string
		known   ovnport.PolicyRevisions
		network *netmodel.Network
		ok      bool
	}{
		{"no policy", ovnport.PolicyRevisions{}, blue, false},
		{"the former policies", ovnport.PolicyRevisions{Own: "r1"}, blue, false},
		{"policies that are gone", ovnport.PolicyRevisions{Own: "r1"}, red, false},
		{"no ClusterNetworkPolicy", ovnport.PolicyRevisions{}, green, false},
		{"the former ClusterNetworkPolicies", ovnport.PolicyRevisions{Cluster: "c1", Namespace: "n2"}, green, false},
		{"former labels of the namespace", ovnport.PolicyRevisions{Cluster: "c2", Namespace: "n1"}, green, false},
		{"ClusterNetworkPolicies that are gone", ovnport.PolicyRevisions{Cluster: "c2", Namespace: "n2"}, red, false},
		{"the present view", ovnport.PolicyRevisions{Cluster: "c2", Namespace: "n2"}, green, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := read(t, w.Server)
			request := want(tt.network, "net1")
			request.Policy = ovnport.Policy{PolicyRevisions: tt.known}
			_, err := w.nb.Ensure(timeout(t), owner("web-1", "sandbox-1"), []ovnport.Request{request}, nobody(t))
			if tt.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			changed, ok := errors.AsType[*ovnport.PolicyChanged](err)
			if !ok || changed.Network != tt.network.ID() || changed.Namespace != "shop" {
				t.Errorf("error %v, want that the policies are others", err)
			}
			w.wantUnchanged(t, before)
		})
	}
}

// TestTakenOverPortChangesItsGroups: a new pod of the same name has other labels. A new sandbox of one pod changes
// nothing: the controller keeps the groups of a pod's ports right. The port has the version of the pod that its groups
// were chosen by.
func TestTakenOverPortChangesItsGroups(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	w.policies(t, n, "r1")
	request := want(n, "net1")
	request.Policy = ovnport.Policy{PolicyRevisions: ovnport.PolicyRevisions{Own: "r1"}, In: []string{groupDB}, Out: []string{groupWeb}}
	request.Policy.PodVersion = "7"
	o := owner("web-1", "sandbox-1")
	port := mustEnsure(t, w.nb, o, request)[0]
	w.wantVersion(t, port, "7")
	request.Policy.In, request.Policy.Out = request.Policy.Out, request.Policy.In
	request.Policy.PodVersion = "8"

	o.Sandbox = "sandbox-2"
	mustEnsure(t, w.nb, o, request)
	w.wantMembers(t, groupDB, port.UUID)
	w.wantMembers(t, groupWeb)
	w.wantVersion(t, port, "7")

	o.Sandbox, o.UID = "sandbox-3", "uid-of-another-pod"
	mustEnsure(t, w.nb, o, request)
	w.wantMembers(t, groupDB)
	w.wantMembers(t, groupWeb, port.UUID)
	w.wantVersion(t, port, "8")
}

// wantVersion checks which version of its pod a port's groups were chosen by.
func (w *world) wantVersion(t *testing.T, port ovnport.Port, want string) {
	t.Helper()
	ports, err := w.nb.NewListedPorts().ByKey(timeout(t), []string{port.UUID})
	if err != nil || len(ports) != 1 || ports[0].PodVersion != want {
		t.Errorf("port %+v, %v, want the pod's version %s", ports, err, want)
	}
}

// TestListedPorts: the ports of nodes are read from their lists. Lists and rows that did not change are not read again.
func TestListedPorts(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	one := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"), want(n, "net2"))
	other := owner("web-2", "sandbox-2")
	other.Node = "node-2"
	mustEnsure(t, w.nb, other, want(n, "net1"))
	listed := w.nb.NewListedPorts()
	read := func(nodes ...string) int {
		ports, err := listed.On(timeout(t), nodes)
		if err != nil {
			t.Fatal(err)
		}
		return len(ports)
	}
	if a, b, c := read("node-1"), read("node-1", "node-2", "node-3"), read(""); a != 2 || b != 3 || c != 3 {
		t.Errorf("%d ports on node-1, %d on three nodes, %d on all; want 2, 3, 3", a, b, c)
	}
	w.proxy.Reset()
	w.proxy.Before(func(tx ovndbtest.Transact) {
		for _, op := range tx.Ops {
			if columns := fmt.Sprint(op["columns"]); columns != "[_version]" {
				t.Errorf("read again: %s", columns)
			}
		}
	})
	read("node-1", "node-2")
	w.proxy.Before(nil)
	w.wantCounts(t, 0, 0, 1)
	mustEnsure(t, w.nb, owner("web-3", "sandbox-3"), want(n, "net1"))
	if got := read("node-1", "node-2"); got != 4 {
		t.Errorf("%d ports after one more", got)
	}
	mustRelease(t, w.nb, "sandbox-1", one...)
	if got := read("node-1"); got != 1 {
		t.Errorf("%d ports after the release", got)
	}
}
