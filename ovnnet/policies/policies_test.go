package policies_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// world is a Northbound database with the rows of policies.
type world struct {
	*nbtest.World
	policies *policies.Policies
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := nbtest.NewWorld(t)
	return &world{w, policies.New(nbrows.NewStore(w.Networks.DB))}
}

// allow makes a policy of namespace shop: pods with app=db may be reached by pods with app=<peer>.
func allow(t *testing.T, name, peer string) *policy.Policy {
	t.Helper()
	o := policy.NewObject("shop", name, 1, map[string]string{policy.ForAnnotation: "blue"}, []byte(fmt.Sprintf(
		`{"podSelector":{"matchLabels":{"app":"db"}},"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":%q}}}]}]}`,
		peer)), 0)
	if o.Policy == nil {
		t.Fatal(o.Refusal)
	}
	return o.Policy
}

func wanted(members map[policy.Selector][]string, list ...*policy.Policy) *policies.Wanted {
	set, _ := policy.NewSet("shop/blue", "shop", list, false)
	return &policies.Wanted{
		Set: set, Here: func(policy.Selector) bool { return true }, Members: members,
		NotMembers:    func(_ context.Context, _ policy.Selector, keys []string) ([]string, error) { return keys, nil },
		ChangedLabels: func(present map[string]string) map[string]string { return present },
	}
}

// ensure wants so many transactions to be committed.
func (w *world) ensure(t *testing.T, want *policies.Wanted, committed int) {
	t.Helper()
	w.Proxy.Reset()
	changed, err := w.policies.Ensure(nbtest.WithLimit(t), want)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Proxy.Counts(); got.Committed != committed || changed != (committed > 0) {
		t.Errorf("%d transactions committed, changed: %t; want %d", got.Committed, changed, committed)
	}
}

// counts are the rows of the tables of policies: index and texts, groups, ACLs without those that pass.
func (w *world) counts(t *testing.T) string {
	t.Helper()
	return fmt.Sprint(len(w.Dump(t, "Copp")), len(w.Dump(t, "Port_Group")), len(w.acls(t)))
}

// acls are the rows of ACLs but for those with the action pass, which only OVN with tiers has.
func (w *world) acls(t *testing.T) []map[string]any {
	t.Helper()
	return slices.DeleteFunc(w.Dump(t, "ACL"), func(row map[string]any) bool { return row["action"] == "pass" })
}

func (w *world) wantRows(t *testing.T, want string) {
	t.Helper()
	if got := w.counts(t); got != want {
		t.Errorf("rows of Copp, Port_Group and ACL: %s, want %s", got, want)
	}
}

// TestEnsure: each change is one transaction with the difference, and the last policy takes all rows with it.
func TestEnsure(t *testing.T) {
	w := newWorld(t)
	w.ensure(t, wanted(nil), 0)
	w.ensure(t, wanted(nil, allow(t, "a", "web")), 1)
	w.wantRows(t, "2 2 3")
	w.ensure(t, wanted(nil, allow(t, "a", "web")), 0)
	w.ensure(t, wanted(nil, allow(t, "a", "web"), allow(t, "b", "app")), 1)
	w.wantRows(t, "2 3 5")
	w.ensure(t, wanted(nil, allow(t, "a", "other"), allow(t, "b", "app")), 1)
	w.wantRows(t, "2 3 5")
	w.ensure(t, wanted(nil, allow(t, "b", "app")), 1)
	w.wantRows(t, "2 2 3")
	w.ensure(t, wanted(nil), 1)
	w.wantRows(t, "0 0 0")
}

// TestAfterBalancer: all ACLs for what a pod sends have the option, and no others. Rows that an older version wrote
// without it are written again, and a view tells that they differ.
func TestAfterBalancer(t *testing.T) {
	w := newWorld(t)
	o := policy.NewObject("shop", "out", 1, map[string]string{policy.ForAnnotation: "blue"}, []byte(
		`{"podSelector":{"matchLabels":{"app":"db"}},"policyTypes":["Ingress","Egress"],"ingress":[{}],"egress":[{}]}`), 0)
	want := wanted(nil, o.Policy)
	w.ensure(t, want, 1)
	options := func() (list []string) {
		for _, row := range w.acls(t) {
			list = append(list, fmt.Sprint(row["direction"], row["options"]))
		}
		slices.Sort(list)
		return list
	}
	const after = "from-lportmap[apply-after-lb:true]"
	expect := []string{after, after, after, "to-lportmap[]", "to-lportmap[]"}
	if got := options(); !slices.Equal(got, expect) {
		t.Errorf("options %v, want %v", got, expect)
	}
	for _, row := range w.Dump(t, "ACL") {
		w.Change(t, "ACL", ovndbtest.Strings(row["_uuid"])[0], ovndbtest.Op{"options": ovndbtest.Map(nil)})
	}
	scope := policies.Scope{Network: "shop/blue", Namespace: "shop"}
	if v, err := w.policies.View(nbtest.WithLimit(t), scope); err != nil || !v.Differs {
		t.Errorf("the rows of an older version: %+v, %v, want that they differ", v, err)
	}
	w.ensure(t, want, 1)
	if got := options(); !slices.Equal(got, expect) {
		t.Errorf("options %v after rows without them, want %v", got, expect)
	}
}

// TestPasses: the ACLs of packets to a port have OVN with tiers ask each tier. Those of an older version lack them: one
// transaction writes them, and a view tells that the rows differ.
func TestPasses(t *testing.T) {
	w := newWorld(t)
	base := policy.NewObject("", "base", 1, map[string]string{policy.ForAnnotation: "*"}, []byte(
		`{"tier":"Baseline","priority":0,"subject":{"namespaces":{}},"ingress":[{"action":"Deny","from":[{"namespaces":{}}]}]}`), 0)
	own, cluster := wanted(nil, allow(t, "a", "web"), allow(t, "b", "web")), wanted(nil)
	cluster.Set = policy.SetOf("shop/blue", "", []*policy.Policy{base.Policy})
	passes := func() (list []string) {
		for _, row := range w.Dump(t, "ACL") {
			if row["action"] == "pass" {
				list = append(list, fmt.Sprint(row["tier"], row["priority"], row["direction"]))
			}
		}
		slices.Sort(list)
		return list
	}
	var expect []string
	if w.policies.Tiers() {
		expect = []string{"0 0to-lport", "0 0to-lport", "1 0to-lport"}
	}
	w.ensure(t, own, 1)
	w.ensure(t, cluster, 1)
	if got := passes(); !slices.Equal(got, expect) {
		t.Errorf("ACLs that pass: %q, want %q", got, expect)
	}
	for _, group := range w.Dump(t, "Port_Group") {
		older := []any{}
		for _, row := range w.acls(t) {
			if key := ovndbtest.Strings(row["_uuid"])[0]; slices.Contains(ovndbtest.Strings(group["acls"]), key) {
				older = append(older, ovndbtest.UUID(key))
			}
		}
		w.Change(t, "Port_Group", ovndbtest.Strings(group["_uuid"])[0], ovndbtest.Op{"acls": []any{"set", older}})
	}
	for _, scope := range []policies.Scope{{Network: "shop/blue", Namespace: "shop"}, {Network: "shop/blue"}} {
		if v, err := w.policies.View(nbtest.WithLimit(t), scope); err != nil || v.Differs != w.policies.Tiers() {
			t.Errorf("the rows of an older version: %+v, %v, want that they differ if OVN has tiers", v, err)
		}
	}
	w.ensure(t, own, min(1, len(expect)))
	w.ensure(t, cluster, min(1, len(expect)))
	if got := passes(); !slices.Equal(got, expect) {
		t.Errorf("ACLs that pass after rows of an older version: %q, want %q", got, expect)
	}
	w.ensure(t, own, 0)
}

// TestNetworkDeleted: the rows of policies outlive their network, because the policies may still be there. When these are
// deleted after the network, no row stays.
func TestNetworkDeleted(t *testing.T) {
	w := newWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.NetDual))
	w.ensure(t, wanted(nil, allow(t, "a", "web")), 1)
	w.MustRemove(t, "shop/blue", false)
	w.wantRows(t, "2 2 3")
	w.ensure(t, wanted(nil), 1)
	w.wantRows(t, "0 0 0")
}

// TestMembers: the ports of a group are compared one by one.
func TestMembers(t *testing.T) {
	w := newWorld(t)
	key := func(i int) string { return fmt.Sprintf("00000000-0000-8000-8000-%012d", i) }
	ops := []ovndbtest.Op{}
	for i := range 5 {
		ops = append(ops, ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid": key(i),
			"row": ovndbtest.Op{"name": fmt.Sprint("p", i)}})
	}
	ops = append(ops, ovndbtest.Op{"op": "insert", "table": "Logical_Switch", "row": ovndbtest.Op{"name": "s", "ports": []any{
		"set", []any{ovndbtest.UUID(key(0)), ovndbtest.UUID(key(1)), ovndbtest.UUID(key(2)), ovndbtest.UUID(key(3)), ovndbtest.UUID(key(4))}}}})
	w.Transact(t, ops...)
	db := policy.Selector{Pods: "app=db"}
	members := func(want ...int) map[policy.Selector][]string {
		m := map[policy.Selector][]string{}
		for _, i := range want {
			m[db] = append(m[db], key(i))
		}
		return m
	}
	has := func() (list []string) {
		for _, row := range w.Dump(t, "Port_Group") {
			list = append(list, ovndbtest.Strings(row["ports"])...)
		}
		slices.Sort(list)
		return list
	}
	for _, want := range [][]int{{0, 1, 2}, {2, 3}, {}, {4}} {
		w.ensure(t, wanted(members(want...), allow(t, "a", "web")), 1)
		w.ensure(t, wanted(members(want...), allow(t, "a", "web")), 0)
		if got := has(); !slices.Equal(got, members(want...)[db]) {
			t.Errorf("members %v, want %v", got, want)
		}
	}
}

// TestPortOfAnotherPod: a port that has got another owner since it was read joins no group and leaves none. A port that
// is gone stops nobody: otherwise no policy would be written while pods come and go.
func TestPortOfAnotherPod(t *testing.T) {
	w := newWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
	key := "00000000-0000-8000-8000-000000000001"
	w.PutPort(t, "Logical_Switch", nbtest.BlueKey, key, ovndbtest.Op{"name": "p", "external_ids": ovndbtest.Map(
		map[string]string{"ovn-multinet/sandbox": "s2"})})
	members := map[policy.Selector][]string{{Pods: "app=db"}: {key}}
	ensure := func(members map[policy.Selector][]string, sandbox string) error {
		want := wanted(members, allow(t, "a", "web"))
		want.Owners = map[string]policies.PortOwner{key: {Sandbox: sandbox}}
		_, err := w.policies.Ensure(nbtest.WithLimit(t), want)
		return err
	}
	for _, to := range []map[policy.Selector][]string{members, nil} { // joins, leaves
		if err := ensure(to, "s1"); !errors.Is(err, policies.ErrPortsChanged) {
			t.Errorf("error %v, want that the ports have changed", err)
		}
		if err := ensure(to, "s2"); err != nil {
			t.Error(err)
		}
		w.ensure(t, wanted(to, allow(t, "a", "web")), 0)
	}
	gone := "00000000-0000-8000-8000-000000000002"
	want := wanted(map[policy.Selector][]string{{Pods: "app=db"}: {key, gone}}, allow(t, "a", "web"))
	want.Owners = map[string]policies.PortOwner{key: {Sandbox: "s2"}, gone: {Sandbox: "s3"}}
	if _, err := w.policies.Ensure(nbtest.WithLimit(t), want); err != nil {
		t.Error(err)
	}
	w.ensure(t, wanted(members, allow(t, "a", "web")), 0)
}

// TestSetsTogether: several sets are one transaction. If they write the same row, they are written apart.
func TestSetsTogether(t *testing.T) {
	w := newWorld(t)
	set := func(network, namespace string, log bool) *policies.Wanted {
		want := wanted(nil, allow(t, "a", "web"))
		want.Set.Network, want.Set.Namespace = network, namespace
		want.Set.Policies[0].LogDenied, want.DeniedRate = log, 10
		return want
	}
	w.Proxy.Reset()
	changed, err := w.policies.Ensure(nbtest.WithLimit(t), set("n/1", "shop", false), set("n/2", "shop", false), set("n/1", "b", true))
	if got := w.Proxy.Counts().Committed; !changed || err != nil || got != 1 {
		t.Errorf("changed %t in %d transactions, %v; want 1", changed, got, err)
	}
	groups := len(w.Dump(t, "Port_Group"))
	changed, err = w.policies.Ensure(nbtest.WithLimit(t), set("n/1", "shop", true), set("n/2", "shop", true))
	if changed || !errors.Is(err, policies.ErrApart) || len(w.Dump(t, "Port_Group")) != groups {
		t.Errorf("two sets with one meter: changed %t, error %v, want that they are written apart", changed, err)
	}
}

// TestVersionsOfPods: a port gets the version of its pod, also if it stays in its groups, and only its own pod's.
func TestVersionsOfPods(t *testing.T) {
	w := newWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
	key := "00000000-0000-8000-8000-000000000001"
	w.PutPort(t, "Logical_Switch", nbtest.BlueKey, key, ovndbtest.Op{"name": "p", "external_ids": ovndbtest.Map(
		map[string]string{"ovn-multinet/sandbox": "s2", ovndb.PodVersionKey: "7"})})
	want := wanted(map[policy.Selector][]string{{Pods: "app=db"}: {key}}, allow(t, "a", "web"))
	w.ensure(t, want, 1)
	for _, tt := range []struct{ sandbox, version, has string }{{"s1", "8", "7"}, {"s2", "8", "8"}} {
		wrote := false
		want.Owners = map[string]policies.PortOwner{key: {Sandbox: tt.sandbox, PodVersion: tt.version}}
		want.Wrote = func() { wrote = true }
		_, err := w.policies.Ensure(nbtest.WithLimit(t), want)
		has := w.Dump(t, "Logical_Switch_Port")[0]["external_ids"].(map[string]string)[ovndb.PodVersionKey]
		if has != tt.has || wrote != (err == nil) || (err == nil) != (tt.has == tt.version) {
			t.Errorf("sandbox %s: version %s, want %s; written: %t, error %v", tt.sandbox, has, tt.has, wrote, err)
		}
	}
}

// TestAccepted: the texts in NB are the policies that are accepted.
func TestAccepted(t *testing.T) {
	w := newWorld(t)
	scope := policies.Scope{Network: "shop/blue", Namespace: "shop"}
	w.ensure(t, wanted(nil, allow(t, "a", "web"), allow(t, "b", "app")), 1)
	list, err := w.policies.List(nbtest.WithLimit(t))
	if err != nil || !slices.Equal(list, []policies.Scope{scope}) {
		t.Errorf("scopes %v, %v", list, err)
	}
	all, err := w.policies.Accepted(nbtest.WithLimit(t), scope)
	if err != nil || len(all) != 2 || (*all["b"].Ingress)[0].Peers[0].Pods != "app=app" {
		t.Errorf("accepted %v, %v", all, err)
	}
	w.ensure(t, wanted(nil, allow(t, "a", "web"), all["b"]), 0)
}

// TestNameThatIsCut: the name of an ACL that was cut is the same in NB, so nothing is written again.
func TestNameThatIsCut(t *testing.T) {
	w := newWorld(t)
	spec := `{"tier":"Admin","priority":1,"subject":{"namespaces":{}},"ingress":[{"name":%q,"action":"Deny","from":[{"namespaces":{}}]}]}`
	for _, rule := range []string{strings.Repeat("ü", 50), "x" + strings.Repeat("ü", 49)} {
		p, err := policy.ParseCluster("p", map[string]string{policy.ForAnnotation: "*"}, fmt.Appendf(nil, spec, rule))
		if err != nil {
			t.Fatal(err)
		}
		want := wanted(nil)
		want.Set, _ = policy.NewSet("shop/blue", "", []*policy.Policy{p}, false)
		w.ensure(t, want, 1)
		w.ensure(t, want, 0)
		want.Set, _ = policy.NewSet("shop/blue", "", nil, false)
		w.ensure(t, want, 1)
	}
}

// TestTwoControllers: of two that write at once, the second one compares again.
func TestTwoControllers(t *testing.T) {
	w := newWorld(t)
	w.ensure(t, wanted(nil, allow(t, "a", "web")), 1)
	other := policies.New(nbrows.NewStore(w.Other(t).DB))
	raced := false
	w.Proxy.Before(func(tx ovndbtest.Transact) {
		writes := slices.ContainsFunc(tx.Ops, func(o ovndbtest.Op) bool { return o["op"] == "insert" })
		if writes && !raced {
			raced = true
			if _, err := other.Ensure(nbtest.WithLimit(t), wanted(nil, allow(t, "c", "third"))); err != nil {
				t.Error(err)
			}
		}
	})
	if _, err := w.policies.Ensure(nbtest.WithLimit(t), wanted(nil, allow(t, "b", "app"))); err != nil {
		t.Fatal(err)
	}
	w.Proxy.Before(nil)
	if !raced {
		t.Error("the other controller did not write")
	}
	var rules []string
	for _, row := range w.acls(t) {
		rules = append(rules, row["external_ids"].(map[string]string)["ovn-multinet/policy"])
	}
	slices.Sort(rules)
	if got := strings.Join(rules, " "); got != " shop/b shop/b" {
		t.Errorf("ACLs of %q, want those of shop/b alone", got)
	}
	w.wantRows(t, "2 2 3")
}
