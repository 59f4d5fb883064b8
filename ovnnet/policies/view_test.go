package policies_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// TestScopes: a reader without an identity sees the rows that a controller has marked as its cluster's.
func TestScopes(t *testing.T) {
	w := newWorld(t)
	w.ensure(t, wanted(nil, allow(t, "a", "web")), 1)
	for _, row := range w.Dump(t, "Copp") {
		ids := row["external_ids"].(map[string]string)
		ids[ovndb.ClusterMark] = "a-cluster"
		w.Change(t, "Copp", ovndbtest.Strings(row["_uuid"])[0], ovndbtest.Op{"external_ids": ovndbtest.Map(ids)})
	}
	scopes, err := w.policies.Scopes(nbtest.WithLimit(t))
	if err != nil || !slices.Equal(scopes, []policies.Scope{{Network: "shop/blue", Namespace: "shop"}}) {
		t.Errorf("scopes %v, %v", scopes, err)
	}
	if list, err := w.policies.List(nbtest.WithLimit(t)); err != nil || len(list) != 0 {
		t.Errorf("a controller without that identity lists %v, %v", list, err)
	}
}

// TestView: a view has what the rows have, and tells when they are not those of the accepted policies.
func TestView(t *testing.T) {
	w := newWorld(t)
	scope := policies.Scope{Network: "shop/blue", Namespace: "shop"}
	view := func() *policies.View {
		v, err := w.policies.View(nbtest.WithLimit(t), scope)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := view(); len(v.ACLs) != 0 || len(v.Set.Policies) != 0 || v.Differs {
		t.Errorf("without policies: %+v", v)
	}
	const port = "00000000-0000-8000-8000-000000000001"
	w.Transact(t,
		ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid": port, "row": ovndbtest.Op{"name": "p"}},
		ovndbtest.Op{"op": "insert", "table": "Logical_Switch", "row": ovndbtest.Op{"name": "s", "ports": ovndbtest.UUID(port)}})
	db := policy.Selector{Pods: "app=db"}
	w.ensure(t, wanted(map[policy.Selector][]string{db: {port}}, allow(t, "a", "web"), allow(t, "b", "app")), 1)
	rules := func(v *policies.View) int {
		return len(slices.DeleteFunc(slices.Clone(v.ACLs), func(a policy.ACL) bool { return a.Action == policy.Pass }))
	}
	v := view()
	if v.Differs || len(v.Set.Policies) != 2 || rules(v) != 5 || !slices.Equal(v.Members[db], []string{port}) {
		t.Errorf("view %+v", v)
	}
	tier := 0
	if w.policies.Tiers() {
		tier = 1
	}
	for _, a := range v.ACLs {
		if a.Policy != "" && a.Tier != tier {
			t.Errorf("%s %s has the tier %d, want %d", a.Policy, a.Rule, a.Tier, tier)
		}
	}
	spoilt := 0
	for _, acl := range w.Dump(t, "ACL") {
		if fmt.Sprint(acl["priority"]) != "10002" {
			continue
		}
		spoilt++
		for column, other := range map[string]any{"priority": 7, "match": "1", "action": "reject", "direction": "from-lport"} {
			key := ovndbtest.Strings(acl["_uuid"])[0]
			w.Change(t, "ACL", key, ovndbtest.Op{column: other})
			if !view().Differs {
				t.Errorf("an ACL with another %s is not noticed", column)
			}
			w.Change(t, "ACL", key, ovndbtest.Op{column: acl[column]})
			if view().Differs {
				t.Errorf("an ACL with its own %s again is not the one of its policy", column)
			}
		}
	}
	if spoilt != 2 {
		t.Errorf("%d ACLs of rules, want 2", spoilt)
	}
	named := policy.NewObject("shop", "c", 1, map[string]string{policy.ForAnnotation: "blue"},
		[]byte(`{"podSelector":{"matchLabels":{"app":"db"}},"ingress":[{"ports":[{"port":"http"}]}]}`), 0).Policy
	want := wanted(nil, named)
	db.Port = "tcp/http"
	want.Set.SetNumbers([]policy.Named{{Name: db, Namespace: "shop", Number: 80}}, nil)
	db.Port = "tcp/http=80"
	want.Members = map[policy.Selector][]string{db: {port}}
	w.ensure(t, want, 1)
	if v := view(); v.Differs || rules(v) != 3 || !slices.Equal(v.Members[db], []string{port}) {
		t.Errorf("view with the number of a named port: %+v", v)
	}
}
