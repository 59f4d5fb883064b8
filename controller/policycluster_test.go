package controller_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// putCluster makes a ClusterNetworkPolicy for some networks.
func (w *policyWorld) putCluster(name, networks, spec string) {
	w.kube.with(func() {
		w.kube.policies[name] = policy.NewObject(
			"", name, 1, map[string]string{policy.ForAnnotation: networks}, []byte(spec), 0)
	})
	w.queue.PolicyChanged("")
}

// fromTeam denies what pods of team a send to pods with app=db.
const fromTeam = `{"tier":"Admin","priority":1,` +
	`"subject":{"pods":{"namespaceSelector":{},"podSelector":{"matchLabels":{"app":"db"}}}},` +
	`"ingress":[{"action":"Deny","from":[{"namespaces":{"matchLabels":{"team":"a"}}}]}]}`

// The selectors of fromTeam.
const (
	everyDB = "pods with app=db of all namespaces"
	ofTeamA = "all pods of namespaces with team=a"
)

// noted lists what NB has of namespaces.
func (w *policyWorld) noted(t *testing.T) string {
	t.Helper()
	var words []string
	for _, row := range w.Dump(t, "Copp") {
		ids := row["external_ids"].(map[string]string)
		name := ids["ovn-multinet/policy-namespace"]
		if row["_uuid"] != ovndb.NamespaceKey(name) {
			continue
		}
		n, err := policy.DecodeNamespace(ids)
		if err != nil {
			t.Fatal(err)
		}
		words = append(words, fmt.Sprintf("%s%v%d", name, n.Labels, len(n.ChangedLabels)))
	}
	return strings.Join(slices.Sorted(slices.Values(words)), " ")
}

// TestClusterPolicy: the groups, and what agents need to know of namespaces, from the policy's creation to its end.
func TestClusterPolicy(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.wantState(t, "shop/blue", "ready, held")
	w.putCluster("p", "shop/blue", fromTeam)
	w.kube.wantPolicyState(t, "p", `"ready":true`)
	eventually(t, "0, 2", func() string { return w.groupOf(t, "", everyDB) + ", " + w.groupOf(t, "", ofTeamA) })
	if got := w.noted(t); got != "othermap[team:a]0 shopmap[]0" {
		t.Errorf("noted %s", got)
	}

	// A namespace with other labels, and a new one.
	w.kube.with(func() {
		w.kube.namespaces = map[string]map[string]string{"shop": {"team": "a"}, "other": nil, "new": {"team": "a"}}
	})
	w.queue.NamespaceChanged("shop")
	eventually(t, "0 1", func() string { return w.groupOf(t, "", ofTeamA) })
	if got := w.noted(t); got != "newmap[team:a]0 othermap[]0 shopmap[team:a]0" {
		t.Errorf("noted %s", got)
	}

	// A pod with other labels. The row of its namespace is written before the group.
	order := ""
	w.Proxy.Before(func(tx ovndbtest.Transact) {
		for _, op := range tx.Ops {
			if op["op"] == "update" || op["op"] == "mutate" {
				order += op["table"].(string) + " "
			}
		}
	})
	w.kube.with(func() {
		w.kube.pods = maps.Clone(w.kube.pods)
		w.kube.pods["shop/b"] = &netmodel.Pod{Namespace: "shop", Name: "b", UID: podKey(1), Node: "n2", Labels: app("db")}
	})
	w.queue.PodChanged("shop", podKey(1), true)
	eventually(t, "0 1", func() string { return w.groupOf(t, "", everyDB) })
	w.Proxy.Before(nil)
	if order != "Copp Port_Group " {
		t.Errorf("written: %s", order)
	}
	if got := w.noted(t); !strings.Contains(got, "shopmap[team:a]1") {
		t.Errorf("noted %s", got)
	}

	// NB was replaced by an older one.
	key := ovndb.NamespaceKey("other")
	w.Transact(t, ovndbtest.Op{
		"op": "delete", "table": "Copp", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(key)}}})
	w.queue.NBReplaced()
	eventually(t, "true", func() string { return fmt.Sprint(strings.Contains(w.noted(t), "othermap[]0")) })

	// Without ClusterNetworkPolicies, no namespace matters.
	w.kube.with(func() { delete(w.kube.policies, "p") })
	w.queue.PolicyChanged("")
	eventually(t, "gone, ", func() string { return w.groupOf(t, "", everyDB) + ", " + w.noted(t) })
}

// TestOlderCopyOfNamespace: what another controller has noted of a namespace stays until this one has heard of it.
func TestOlderCopyOfNamespace(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.wantState(t, "shop/blue", "ready, held")
	newer := policy.Namespace{Labels: map[string]string{"team": "b"}, Version: "8"}
	ids, revision, err := newer.Encode()
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(ids, map[string]string{ovndb.PolicyRevisionKey: revision, "ovn-multinet/policy-namespace": "other",
		"ovn-multinet/kind": "policy-namespace"})
	w.Transact(t, ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": ovndb.NamespaceKey("other"), "row": ovndbtest.Op{
		"name": "other", "external_ids": ovndbtest.Map(ids)}})
	w.kube.with(func() { w.kube.version = "7" })
	w.putCluster("p", "shop/blue", fromTeam)
	w.kube.wantPolicyState(t, "p", `"ready":true`)
	has := func() string { return w.noted(t) + ", " + w.groupOf(t, "", ofTeamA) }
	if got := has(); got != "othermap[team:b]0 shopmap[]0, " {
		t.Errorf("noted and in the group: %s", got)
	}
	w.kube.with(func() { w.kube.version = "9" })
	w.queue.NamespaceChanged("other")
	eventually(t, "othermap[team:a]0 shopmap[]0, 2", has)
}

// TestClusterPolicyForAllNetworks: a network that comes later has the policy before it takes ports.
func TestClusterPolicyForAllNetworks(t *testing.T) {
	w := newPolicyWorld(t)
	w.putCluster("p", "*", fromTeam)
	w.kube.wantPolicyState(t, "p", `"ready":true`)
	w.wantPolicyFirst(t, "p")
	eventually(t, "0, 2", func() string { return w.groupOf(t, "", everyDB) + ", " + w.groupOf(t, "", ofTeamA) })
}
