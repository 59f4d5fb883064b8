package agent

import (
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// groupOf is the row key of a test's group.
func groupOf(name string) string { return ovndb.GroupKey("shop/blue", "shop", name) }

// encode is the external_ids of an index.
func (r *rig) encode(x *policy.Index) map[string]string {
	r.t.Helper()
	ids, revision, err := x.Encode()
	r.must(err)
	ids[ovndb.PolicyRevisionKey] = revision
	return ids
}

// putPolicies makes NB say which groups the ports of namespace shop belong to on network blue.
func (r *rig) putPolicies(x *policy.Index) { r.putIndex("shop", x) }

// putIndex makes NB have the index of a namespace's policies, or without a namespace that of ClusterNetworkPolicies.
func (r *rig) putIndex(namespace string, x *policy.Index) {
	r.t.Helper()
	ids := r.encode(x)
	key := ovndb.PolicyKey("shop/blue", namespace)
	ops := []ovndbtest.Op{
		{"op": "delete", "table": "Port_Group", "where": []any{}},
		{"op": "update", "table": "Copp", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(key)}},
			"row": ovndbtest.Op{"external_ids": ovndbtest.Map(ids)}},
	}
	if r.nbRow("Copp", key) == nil {
		ops[1] = ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": key, "row": ovndbtest.Op{
			"name": "policies" + namespace, "external_ids": ovndbtest.Map(ids)}}
	}
	r.nb.Transact(r.t, ops...)
	for _, e := range x.Entries {
		if e.Group == "" {
			continue
		}
		r.nb.Transact(r.t, ovndbtest.Op{"op": "insert", "table": "Port_Group", "uuid": e.Group,
			"row": ovndbtest.Op{"name": e.Group}})
	}
}

func (r *rig) nbRow(table, key string) map[string]any {
	for _, row := range r.nb.Dump(r.t, table) {
		if row["_uuid"] == key {
			return row
		}
	}
	return nil
}

// size is the number of ports in a group.
func (r *rig) size(name string) int {
	r.t.Helper()
	row := r.nbRow("Port_Group", groupOf(name))
	if row == nil {
		r.t.Fatalf("group %s is gone", name)
	}
	return len(ovndbtest.Strings(row["ports"]))
}

func entry(pods string) policy.Entry {
	return policy.Entry{Group: groupOf(pods), Selector: policy.Selector{Pods: pods}, Here: true}
}

// TestADDKnowsThePolicies: the first ADD reads the groups after a refusal; later ones read nothing, whatever the number
// of policies.
func TestADDKnowsThePolicies(t *testing.T) {
	r := newRig(t)
	r.source.labels = map[string]string{"app": "db"}
	x := &policy.Index{Entries: []policy.Entry{entry("app=db"), entry("app=web")}}
	for i := range 1000 {
		x.Entries = append(x.Entries, policy.Entry{
			Group: groupOf(fmt.Sprint(i)), Selector: policy.Selector{Pods: fmt.Sprintf("n=%d", i)}, Here: true,
		})
	}
	ids := r.encode(x)
	r.putPolicies(&policy.Index{Entries: x.Entries[:2]})
	r.nb.Transact(t, ovndbtest.Op{"op": "update", "table": "Copp",
		"where": []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.PolicyKey("shop/blue", "shop"))}},
		"row":   ovndbtest.Op{"external_ids": ovndbtest.Map(ids)}})
	r.start()
	_, err := r.plan("c1")
	r.must(err)
	if got := r.proxy.Counts(); got.Committed != 1 || got.Refused != 1 {
		t.Errorf("first ADD: %d transactions committed and %d refused, want 1 and 1", got.Committed, got.Refused)
	}
	r.proxy.Reset()
	_, err = r.planFor("c1", "blue@net7")
	r.must(err)
	if got := r.proxy.Counts(); got.Committed != 1 || got.Refused != 0 || got.ReadOnly != 0 {
		t.Errorf("next ADD: %d transactions committed, %d refused, %d reads; want 1, 0, 0",
			got.Committed, got.Refused, got.ReadOnly)
	}
	if a, b := r.size("app=db"), r.size("app=web"); a != 3 || b != 0 {
		t.Errorf("%d ports in the pod's group and %d in the other, want 3 and 0", a, b)
	}
}

// TestADDWithOldLabels: the controller knows other labels of the pod than the agent's copy. The agent reads the pod.
func TestADDWithOldLabels(t *testing.T) {
	r := newRig(t)
	r.source.labels = map[string]string{"app": "web"}
	r.source.liveLabels = map[string]string{"app": "db"}
	r.putPolicies(&policy.Index{
		Entries:       []policy.Entry{entry("app=db"), entry("app=web")},
		ChangedLabels: map[string]string{"u-1": policy.Hash(r.source.liveLabels)},
	})
	r.start()
	_, err := r.planFor("c1", "blue")
	r.must(err)
	if a, b := r.size("app=db"), r.size("app=web"); a != 1 || b != 0 {
		t.Errorf("%d ports in the group of the new labels and %d in that of the old, want 1 and 0", a, b)
	}
}

// TestPoliciesChangeAllTheTime: an ADD does not try for ever, and leaves nothing.
func TestPoliciesChangeAllTheTime(t *testing.T) {
	r := newRig(t)
	r.start()
	attempts := 0
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if insertsPort(tx) {
			attempts++
			r.putPolicies(&policy.Index{Entries: []policy.Entry{entry(fmt.Sprint("n=", attempts))}})
		}
	})
	_, err := r.planFor("c1", "blue")
	r.proxy.Before(nil)
	r.wantRefused(err, conf.CodeTryAgain, "the policies of namespace shop for network shop/blue are not what they were")
	if attempts != maxAttempts {
		t.Errorf("%d attempts, want %d", attempts, maxAttempts)
	}
	if got := r.ports(); len(got) != 0 {
		t.Errorf("ports %v, want none", got)
	}
}

// putNamespace makes NB say what the controller knows of namespace shop.
func (r *rig) putNamespace(n *policy.Namespace) {
	r.t.Helper()
	ids, revision, err := n.Encode()
	r.must(err)
	ids[ovndb.PolicyRevisionKey] = revision
	key := ovndb.NamespaceKey("shop")
	r.nb.Transact(r.t, ovndbtest.Op{
		"op": "delete", "table": "Copp", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(key)}}})
	r.nb.Transact(r.t, ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": key, "row": ovndbtest.Op{
		"name": "shop", "external_ids": ovndbtest.Map(ids)}})
}

func ofTeam(team, pods string) policy.Entry {
	return policy.Entry{Group: groupOf(team + pods), Selector: policy.Selector{
		Anywhere: true, Namespaces: "team=" + team, Pods: pods,
	}}
}

// TestADDUnderClusterPolicies: the port joins the groups for the labels of its namespace, in its transaction. While the
// controller has not noted these labels, no port is inserted.
func TestADDUnderClusterPolicies(t *testing.T) {
	r := newRig(t)
	r.source.labels = map[string]string{"app": "web"}
	r.source.liveLabels = map[string]string{"app": "db"}
	r.putIndex("", &policy.Index{Entries: []policy.Entry{
		ofTeam("a", "app=db"), ofTeam("a", "app=web"), ofTeam("b", "app=db"),
	}})
	r.start()
	_, err := r.planFor("c1", "blue")
	r.wantRefused(err, conf.CodeTryAgain, "namespace shop: the controller has not noted its labels yet")
	if got := r.ports(); len(got) != 0 {
		t.Errorf("ports %v, want none", got)
	}
	r.putNamespace(&policy.Namespace{
		Labels:        map[string]string{"team": "a"},
		ChangedLabels: map[string]string{"u-1": policy.Hash(r.source.liveLabels)},
	})
	_, err = r.planFor("c1", "blue")
	r.must(err)
	if a, b, c := r.size("aapp=db"), r.size("aapp=web"), r.size("bapp=db"); a != 1 || b != 0 || c != 0 {
		t.Errorf("%d, %d and %d ports in the groups, want 1, 0 and 0", a, b, c)
	}
	r.proxy.Reset()
	_, err = r.planFor("c1", "blue@net7")
	r.must(err)
	if got := r.proxy.Counts(); got.Committed != 1 || got.Refused != 0 || got.ReadOnly != 0 {
		t.Errorf("next ADD: %d transactions committed, %d refused, %d reads; want 1, 0, 0",
			got.Committed, got.Refused, got.ReadOnly)
	}
	r.putNamespace(&policy.Namespace{Labels: map[string]string{"team": "b"}})
	_, err = r.planFor("c1", "blue@net8")
	r.must(err)
	if a, c := r.size("aapp=db"), r.size("bapp=db"); a != 2 || c != 0 {
		t.Errorf("%d and %d ports in the groups of app=db, want 2 and 0", a, c)
	}
}

// TestADDWithANewNumber: a port is not attached without the group of a number that policies use by its name. One read of
// NB reports whether the controller has written it since. Pods without that name do not read.
func TestADDWithANewNumber(t *testing.T) {
	r := newRig(t)
	r.source.labels, r.source.ports = map[string]string{"app": "db"}, []string{"udp/dns=53", "tcp/http=80"}
	entries := func(numbers ...int) *policy.Index {
		x := &policy.Index{Entries: []policy.Entry{
			entry("app=db"), {Selector: policy.Selector{Pods: "app=db", Port: "tcp/http"}, Here: true},
		}}
		for _, number := range numbers {
			port := fmt.Sprint("tcp/http=", number)
			x.Entries = append(x.Entries, policy.Entry{
				Group: groupOf(port), Selector: policy.Selector{Pods: "app=db", Port: port}, Here: true,
			})
		}
		return x
	}
	r.putPolicies(entries(90))
	r.start()
	_, err := r.planFor("c1", "blue")
	r.wantRefused(err, conf.CodeTryAgain, "pod shop/web: port tcp/http=80: the controller has not noted this number yet")
	if got := r.ports(); len(got) != 0 {
		t.Errorf("ports %v, want none", got)
	}
	var many []int
	for i := range policy.MaxNumbers {
		many = append(many, 1000+i)
	}
	r.putPolicies(entries(many...))
	_, err = r.planFor("c1", "blue")
	r.wantRefused(err, conf.CodeInvalidConfig, "have 32 other numbers for this name, and 32 is the limit")
	r.putPolicies(entries(80, 90))
	_, err = r.planFor("c1", "blue")
	r.must(err)
	if a, b, c := r.size("app=db"), r.size("tcp/http=80"), r.size("tcp/http=90"); a != 1 || b != 1 || c != 0 {
		t.Errorf("%d, %d and %d ports in the groups, want 1, 1 and 0", a, b, c)
	}
	r.source.ports = []string{"udp/http=80"}
	r.proxy.Reset()
	_, err = r.planFor("c1", "blue@net7")
	r.must(err)
	if got := r.proxy.Counts(); got.Committed != 1 || got.Refused != 0 || got.ReadOnly != 0 {
		t.Errorf("ADD without the name: %d transactions committed, %d refused, %d reads; want 1, 0, 0",
			got.Committed, got.Refused, got.ReadOnly)
	}
}

// TestLostPortDoesNotWaitForANumber: NB has lost a running pod's port, and no group has the pod's number any more. The
// port comes back into its other groups: the pod must not be cut off.
func TestLostPortDoesNotWaitForANumber(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLosing(t)
	l.source.labels, l.source.ports = map[string]string{"app": "db"}, []string{"tcp/http=80"}
	port := l.runs("c1", "blue")[0]
	l.installed("c1", true, port)
	l.repairs()
	l.lose(port)
	l.putPolicies(&policy.Index{Entries: []policy.Entry{
		entry("app=db"), {Selector: policy.Selector{Pods: "app=db", Port: "tcp/http"}, Here: true},
	}})
	l.agent.NBReplaced()
	l.repairs()
	if n := l.size("app=db"); n != 1 {
		t.Errorf("%d ports in the pod's group, want 1", n)
	}
}
