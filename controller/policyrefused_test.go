package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// putFor makes a policy of a namespace for networks.
func (w *policyWorld) putFor(namespace, name, networks, spec string) {
	w.kube.with(func() {
		w.kube.policies[namespace+"/"+name] = policy.NewObject(
			namespace, name, 1, map[string]string{policy.ForAnnotation: networks}, []byte(spec), 0)
	})
	w.queue.PolicyChanged(namespace)
}

func (w *policyWorld) policyState(id string) (state string) {
	w.kube.with(func() { state = w.kube.states[id] })
	return state
}

// indexText is the row of NB that tells agents the groups of a namespace's pods on a network.
func (w *policyWorld) indexText(t *testing.T, network, namespace string) string {
	t.Helper()
	return w.Rows(t)["Copp"][ovndb.PolicyKey(network, namespace)]["external_ids"]
}

// TestBoundaryRefusedPolicyIsolates: the pods that a refused policy selects are not open, also if it was accepted before, and
// also for a controller that has not seen the former one. It names the effect and the cause.
func TestBoundaryRefusedPolicyIsolates(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.put("p", fromWeb)
	w.kube.wantPolicyState(t, "shop/p", `"ready":true`)
	w.settle(t)
	w.stop()
	w.put("p", `{"podSelector":{"matchLabels":{"app":"db"}},"ingres":[]}`)
	queue := controller.NewQueue(quiet)
	second := controller.New(controller.Config{
		NB: w.Networks.DB, Source: w.kube.api, Queue: queue, Metrics: controller.NewMetrics(queue, w.Networks.DB),
		WidestIPAM: w.Networks.Widest, Leading: leads, Log: quiet, Policies: w.kube, Ports: w.kube,
	})
	queue.PolicyChanged("shop")
	runController(t, w.World, &tested{second, queue, nil, w.kube.api})
	w.kube.wantPolicyState(t, "shop/p", `refused, so pods with app=db have no ingress on its networks: spec: unknown field`)
	if a, b := w.group(t, "pods with app=db"), w.group(t, "pods with app=web"); a != "0" || b != "gone" {
		t.Errorf("groups %q and %q, want pod 0 isolated and nobody allowed", a, b)
	}
	deny := 0
	for _, row := range w.Dump(t, "ACL") {
		if row["action"] == "drop" && row["direction"] == "to-lport" { // the switch's own one is from-lport
			deny++
		}
	}
	if deny != 1 {
		t.Errorf("%d ACLs deny, want 1", deny)
	}
}

// TestBoundaryManyRefusedPolicies: the oldest ones isolate the pods that they select. Beyond a number, all pods of the namespace
// are isolated, with rows whose number does not grow.
func TestBoundaryManyRefusedPolicies(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	for i := range 3 * policy.MaxIsolations {
		w.kube.with(func() {
			w.kube.policies[fmt.Sprintf("shop/p%d", i)] = policy.NewObject("shop", fmt.Sprintf("p%d", i), int64(i),
				map[string]string{policy.ForAnnotation: "blue"},
				fmt.Appendf(nil, `{"podSelector":{"matchLabels":{"n":"%d"}},"ingres":[]}`, i), 0)
		})
	}
	w.queue.PolicyChanged("shop")
	w.kube.wantPolicyState(t, fmt.Sprintf("shop/p%d", 3*policy.MaxIsolations-1), "refused, so pods with n=")
	eventually(t, "0 1", func() string { return w.group(t, "all pods") })
	w.settle(t)
	if n := len(w.Dump(t, "Port_Group")); n != policy.MaxIsolations+1 {
		t.Errorf("%d groups, want %d", n, policy.MaxIsolations+1)
	}
}

// TestBoundaryOneVerdict: a policy for two networks is ready when NB has the rows of the last one, and is refused on both or on
// none.
func TestBoundaryOneVerdict(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.apply("shop/red", nbtest.Spec(""))
	w.wantState(t, "shop/red", "ready, held")
	var early []string
	w.Proxy.Before(func(tx ovndbtest.Transact) {
		for _, op := range tx.Ops {
			if op["table"] == "Port_Group" && op["op"] == "insert" {
				early = append(early, w.policyState("shop/p"))
			}
		}
	})
	w.putFor("shop", "p", "blue,red", fromWeb)
	w.kube.wantPolicyState(t, "shop/p", `"ready":true`)
	w.Proxy.Before(nil)
	if got := strings.Join(early, "+"); got != "+++" {
		t.Errorf("states when groups are inserted: %q, want none before the last one of four", got)
	}
	w.queue.Configure(limit(cost.Bytes, 2<<20))
	var values []string
	for i := range 600 {
		values = append(values, fmt.Sprintf(`"%d%s"`, i, strings.Repeat("x", 57)))
	}
	large := `{"podSelector":{"matchExpressions":[{"key":"a","operator":"In","values":[` + strings.Join(values, ",") + `]}]}}`
	for i := range 10 { // on two networks each
		w.kube.with(func() {
			w.kube.policies[fmt.Sprintf("shop/q%d", i)] = policy.NewObject("shop", fmt.Sprintf("q%d", i), int64(10+i),
				map[string]string{policy.ForAnnotation: "blue,red"}, []byte(large), 0)
		})
	}
	w.queue.PolicyChanged("shop")
	w.kube.wantPolicyState(t, "shop/q9", "have no ingress on its networks: it needs ")
	w.kube.wantPolicyState(t, "shop/q8", `"ready":true`)
}

// TestNetworksOfOthers: a policy is enforced on OVN's networks, whatever other networks it names. One that names only
// networks of other programs gets no state.
func TestNetworksOfOthers(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.apply("shop/bridged", `{"type":"macvlan"}`)
	w.putFor("shop", "theirs", "bridged", fromWeb)
	w.putFor("shop", "mixed", "blue, bridged", fromWeb)
	w.kube.wantPolicyState(t, "shop/mixed", `"ready":true`)
	if a := w.group(t, "pods with app=db"); a != "0" {
		t.Errorf("group %q, want pod 0", a)
	}
	w.putFor("shop", "spoilt", "bridged", `{"podSelector":{},"ingres":[]}`)
	w.putFor("shop", "last", "blue", `{"podSelector":{}}`)
	w.kube.wantPolicyState(t, "shop/last", `"ready":true`)
	for _, id := range []string{"shop/theirs", "shop/spoilt"} {
		if got := w.policyState(id); got != "" {
			t.Errorf("%s: state %s, want none", id, got)
		}
	}
	w.putFor("shop", "missing", "blue,gone", fromWeb)
	w.kube.wantPolicyState(t, "shop/missing", "NetworkAttachmentDefinition shop/gone does not exist")
	w.apply("shop/gone", `{"type":"macvlan"}`)
	w.kube.wantPolicyState(t, "shop/missing", `"ready":true`)
}

// TestBoundaryNetworksOfOtherNamespaces: the policies of a namespace have no groups on a network where it has no pods. A row
// keeps its pods out until it has. The state does not say whether the network exists.
func TestBoundaryNetworksOfOtherNamespaces(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	const everybody = `{"podSelector":{},"ingress":[{"from":[{"namespaceSelector":{}}]}]}`
	w.putFor("other", "there", "shop/blue", everybody)
	w.putFor("other", "gone", "shop/gone", everybody)
	w.kube.wantPolicyState(t, "other/there", "does not exist, or no pod of namespace other is on its network")
	w.kube.wantPolicyState(t, "other/gone", "does not exist, or no pod of namespace other is on its network")
	eventually(t, "true", func() string {
		return fmt.Sprint(strings.Contains(w.indexText(t, "shop/blue", "other"), policy.WaitingRevision))
	})
	w.settle(t)
	if n := len(w.Dump(t, "Port_Group")); n != 0 {
		t.Errorf("%d groups, want none", n)
	}
	if text := w.indexText(t, "shop/blue", "other"); strings.Contains(text, "policy-groups=") {
		t.Errorf("row %s has groups, so agents that do not know the row choose by it", text)
	}
	if _, err := policy.NewMatcher(map[string]string{ovndb.PolicyRevisionKey: policy.WaitingRevision}, nil, nil); err == nil {
		t.Error("a row without groups can be read")
	}
	w.Proxy.Reset()
	w.queue.PodChanged("shop", podKey(0), true)
	w.settle(t)
	if got := w.Proxy.Counts(); got.Committed+got.ReadOnly != 0 {
		t.Errorf("a pod of the other namespace: %+v, want no transaction", got)
	}
	order := ""
	w.Proxy.Before(func(tx ovndbtest.Transact) {
		for _, op := range tx.Ops {
			switch {
			case op["op"] != "insert":
			case op["table"] == "Logical_Switch":
				order += "switch "
			case op["table"] == "Copp" && op["uuid"] == ovndb.PolicyKey("shop/gone", "other"):
				order += "row "
			}
		}
	})
	w.apply("shop/gone", nbtest.Spec(""))
	w.wantState(t, "shop/gone", "ready, held")
	w.Proxy.Before(nil)
	if order != "row switch " {
		t.Errorf("inserted %q, want the row that keeps the pods of the namespace out, and then the network", order)
	}
	w.kube.with(func() { w.kube.pods["other/c"].Requests = []string{"shop/blue"} })
	w.queue.GuestChanged("other")
	w.kube.wantPolicyState(t, "other/there", `"ready":true`)
	if got := w.groupOf(t, "other", "all pods"); got != "2" {
		t.Errorf("group %q, want pod 2", got)
	}
	w.kube.with(func() { w.kube.pods["other/c"].Requests = nil })
	w.queue.PolicyChanged("other")
	w.settle(t)
	if got := w.groupOf(t, "other", "all pods"); got != "2" {
		t.Errorf("group %q, want pod 2 as long as its port is there", got)
	}
}

// TestBoundaryPodThatMayNotUseTheNetwork: its policies have no groups there.
func TestBoundaryPodThatMayNotUseTheNetwork(t *testing.T) {
	for global, want := range map[string]string{"default": "gone", "shop": "2"} {
		w := newPolicyWorld(t, func(c *controller.Config) { c.Isolated, c.GlobalNamespaces = true, []string{global} })
		w.apply("shop/blue", nbtest.Spec(""))
		w.wantState(t, "shop/blue", "ready, held")
		w.kube.with(func() { w.kube.pods["other/c"].Requests = []string{"shop/blue"} })
		w.putFor("other", "p", "shop/blue", `{"podSelector":{}}`)
		w.settle(t)
		if got := w.groupOf(t, "other", "all pods"); got != want {
			t.Errorf("networks of namespace %s are for all: group %q, want %q", global, got, want)
		}
	}
}

// TestBoundaryPoliciesOfOthersDelayNoNetwork: neither policies of other namespaces that cannot be written.
func TestBoundaryPoliciesOfOthersDelayNoNetwork(t *testing.T) {
	w := newPolicyWorld(t)
	w.kube.with(func() { w.kube.pods["other/c"].Requests = []string{"shop/blue"} })
	for i := range 20 {
		w.putFor("other", fmt.Sprint("p", i), "shop/blue", fmt.Sprintf(`{"podSelector":{"matchLabels":{"n":"%d"}}}`, i))
	}
	w.settle(t)
	w.Proxy.Reset()
	groups := 0
	w.Proxy.Before(func(tx ovndbtest.Transact) {
		for _, op := range tx.Ops {
			if op["table"] == "Port_Group" && op["op"] == "insert" && w.state("shop/blue") == "" {
				groups++
			}
		}
	})
	w.apply("shop/blue", nbtest.Spec(""))
	w.wantState(t, "shop/blue", "ready, held")
	if groups != 0 {
		t.Errorf("%d groups of another namespace come before the network", groups)
	}
	w.Proxy.Before(nil)
	w.kube.wantPolicyState(t, "other/p19", `"ready":true`)
}

// TestBoundaryBystandersNetwork: whatever policies another namespace has, refused and accepted, on its own networks and for the
// new one, a new network takes at most twice the transactions that it takes on an idle system.
func TestBoundaryBystandersNetwork(t *testing.T) {
	w := newPolicyWorld(t)
	costOf := func(nad string) (transactions int) {
		w.settle(t)
		created := false
		w.Proxy.Before(func(tx ovndbtest.Transact) {
			if !created {
				transactions++
			}
			created = created || slices.ContainsFunc(tx.Ops, func(op ovndbtest.Op) bool {
				return op["op"] == "insert" && op["table"] == "Logical_Switch"
			})
		})
		w.apply(nad, nbtest.Spec(""))
		w.wantState(t, nad, "ready, held")
		w.settle(t)
		w.Proxy.Before(nil)
		return transactions
	}
	idle := costOf("third/first")
	w.apply("other/own", nbtest.Spec(""))
	for i := range 60 {
		spec := fmt.Sprintf(`{"podSelector":{"matchLabels":{"n":"%d"}},"ingress":[{"from":[{"namespaceSelector":{}}]}]}`, i)
		if i%3 == 0 {
			spec = `{"podSelector":{},"ingres":[]}`
		}
		w.putFor("other", fmt.Sprint("p", i), "own,third/second,third/gone", spec)
	}
	w.kube.wantPolicyState(t, "other/p59", "does not exist, or no pod of namespace other")
	if got := costOf("third/second"); got > 2*idle {
		t.Errorf("%d transactions, and %d on an idle system", got, idle)
	} else {
		t.Logf("%d transactions, and %d on an idle system", got, idle)
	}
}

// TestShedPolicies: a policy that the source does not keep is read when it is within the limits, once.
func TestShedPolicies(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.kube.with(func() {
		whole := policy.NewObject("shop", "p", 1, map[string]string{policy.ForAnnotation: "blue"}, []byte(fromWeb), 0)
		w.kube.whole = map[string]*policy.Object{"shop/p": whole}
		w.kube.policies["shop/p"] = whole.Without()
		beyond := policy.NewObject("shop", "q", 2, map[string]string{policy.ForAnnotation: "blue"}, []byte(`{"podSelector":{}}`), 0)
		beyond.Size = 4 << 20
		w.kube.policies["shop/q"] = beyond.Without()
	})
	w.queue.PolicyChanged("shop")
	w.kube.wantPolicyState(t, "shop/p", `"ready":true`)
	w.kube.wantPolicyState(t, "shop/q", "4194304 is the limit of the namespace")
	w.queue.PolicyChanged("shop")
	w.settle(t)
	if got := w.group(t, "pods with app=web"); got != "1" || w.kube.reads != 1 {
		t.Errorf("group %q after %d reads, want pod 1 after one", got, w.kube.reads)
	}
	if got := w.group(t, "all pods"); got != "0 1" {
		t.Errorf("group %q, want the pods of the refused policy isolated", got)
	}
}

// TestBoundaryPodOfAnotherNetwork: a pod that changes costs nothing for the policies on networks that it is not on.
func TestBoundaryPodOfAnotherNetwork(t *testing.T) {
	w := newPolicyWorld(t)
	w.kube.with(func() { w.kube.namespaces["third"] = nil })
	for _, nad := range []string{"third/red", "shop/blue"} {
		w.apply(nad, nbtest.Spec(""))
		w.wantState(t, nad, "ready, held")
	}
	w.putFor("third", "p", "red", `{"podSelector":{},"ingress":[{"from":[{"namespaceSelector":{}}]}]}`)
	w.kube.wantPolicyState(t, "third/p", `"ready":true`)
	w.settle(t)
	w.Proxy.Reset()
	w.kube.with(func() { w.kube.pods["shop/b"].Labels = app("db") })
	w.queue.PodChanged("shop", podKey(1), true)
	w.settle(t)
	if got := w.Proxy.Counts(); got.Committed+got.ReadOnly != 0 {
		t.Errorf("%+v, want no transaction", got)
	}
}
