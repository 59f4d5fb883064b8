package controller_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// policyAPI stands in for the Kubernetes API of policies, pods and namespaces, and for the ports of pods: one port for
// each pod, with the pod's UID as its key.
type policyAPI struct {
	*api
	policies   map[string]*policy.Object // by ID
	pods       map[string]*netmodel.Pod  // by namespace/name: those that the API tells the controller of
	all        []*netmodel.Pod           // with a port
	namespaces map[string]map[string]string
	states     map[string]string
	version    string            // the resource version of all namespaces
	chosenBy   map[string]string // by port: the version of the pod that its groups were chosen by
	networks   map[string]string // of ports that are not on shop/blue
	byKey      int               // ports that the controller has asked for by their keys

	stateWrites int
	whole       map[string]*policy.Object // the content of policies that are shed, by ID
	reads       int                       // of these
}

func (a *policyAPI) Policies(_ context.Context, namespace string) (all []*policy.Object, err error) {
	a.with(func() {
		for _, o := range a.policies {
			if o.Namespace == namespace {
				with := *o
				with.State = a.states[o.ID()]
				all = append(all, &with)
			}
		}
	})
	return all, nil
}

func (a *policyAPI) Policy(_ context.Context, namespace, name string) (o *policy.Object, err error) {
	a.with(func() {
		a.reads++
		if o = a.whole[namespace+"/"+name]; o == nil {
			err = netmodel.ErrNotFound
		}
	})
	return o, err
}

func (a *policyAPI) ClusterPolicies(ctx context.Context) ([]*policy.Object, error) {
	return a.Policies(ctx, "")
}

func (a *policyAPI) PolicyNamespaces(context.Context) (all []string, err error) {
	a.with(func() {
		for _, o := range a.policies {
			if o.Namespace != "" && !slices.Contains(all, o.Namespace) {
				all = append(all, o.Namespace)
			}
		}
	})
	return all, nil
}

func (a *policyAPI) PolicyPods(_ context.Context, namespace string) (pods []*netmodel.Pod, err error) {
	a.with(func() {
		for _, p := range a.pods {
			if p.Namespace == namespace {
				clone := *p
				pods = append(pods, &clone)
			}
		}
	})
	return pods, nil
}

func (a *policyAPI) Namespaces(context.Context) (map[string]policy.Namespace, error) {
	all := map[string]policy.Namespace{}
	a.with(func() {
		for name, has := range a.namespaces {
			all[name] = policy.Namespace{Labels: has, Version: a.version}
		}
	})
	return all, nil
}

func (a *policyAPI) SetPolicyState(_ context.Context, o *policy.Object, state string) error {
	a.with(func() { a.states[o.ID()] = state; a.stateWrites++ })
	return nil
}

func (a *policyAPI) PolicyEvent(*policy.Object, bool, string, string) {}

func (a *policyAPI) ports(fits func(*netmodel.Pod) bool) (ports []pods.Port, err error) {
	a.with(func() {
		for _, p := range a.all {
			if fits(p) {
				ports = append(ports, pods.Port{
					Key: p.UID, Network: cmp.Or(a.networks[p.UID], "shop/blue"), Namespace: p.Namespace, Pod: p.Name, UID: p.UID,
					PodVersion: a.chosenBy[p.UID], Interface: "net1",
					Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, 10 + p.UID[len(p.UID)-1] - '0'})},
				})
			}
		}
	})
	return ports, nil
}

func (a *policyAPI) On(_ context.Context, nodes []string) ([]pods.Port, error) {
	return a.ports(func(p *netmodel.Pod) bool { return slices.Contains(nodes, p.Node) })
}

func (a *policyAPI) ByKey(_ context.Context, keys []string) ([]pods.Port, error) {
	a.with(func() { a.byKey += len(keys) })
	return a.ports(func(p *netmodel.Pod) bool { return slices.Contains(keys, p.UID) })
}

// state waits for the state of a policy that has these words.
func (a *policyAPI) wantPolicyState(t *testing.T, id, words string) {
	t.Helper()
	eventually(t, "true", func() (got string) {
		a.with(func() { got = a.states[id] })
		if strings.Contains(got, words) {
			return "true"
		}
		return got
	})
}

// policyWorld is a controller with policies, and pods a and b of namespace shop on network shop/blue.
type policyWorld struct {
	*running
	kube   *policyAPI
	queue  *controller.Queue
	passed *atomic.Int64 // seconds, for what waits for newer copies
	forget func()        // controller.ForgetPorts
}

func podKey(i int) string { return fmt.Sprintf("00000000-0000-8000-8000-%012d", i) }

func newPolicyWorld(t *testing.T, change ...func(*controller.Config)) *policyWorld {
	t.Helper()
	w := nbtest.NewWorld(t)
	a := &policyAPI{api: newAPI(), policies: map[string]*policy.Object{}, pods: map[string]*netmodel.Pod{},
		namespaces: map[string]map[string]string{"shop": nil, "other": {"team": "a"}}, states: map[string]string{}}
	queue := controller.NewQueue(quiet)
	metrics := controller.NewMetrics(queue, w.Networks.DB)
	config := controller.Config{
		NB: w.Networks.DB, Source: a.api, Queue: queue, Metrics: metrics,
		WidestIPAM: w.Networks.Widest, Leading: leads, Log: quiet, Policies: a, Ports: a,
	}
	for _, one := range change {
		one(&config)
	}
	c := controller.New(config)
	passed := c.WaitForCopiesBy()
	for i := range 3 {
		w.Transact(t, ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid": podKey(i),
			"row": ovndbtest.Op{"name": podKey(i)}},
			ovndbtest.Op{"op": "insert", "table": "Logical_Switch", "row": ovndbtest.Op{
				"name": fmt.Sprint("of-", i), "ports": ovndbtest.UUID(podKey(i))}})
	}
	a.pods["shop/a"] = &netmodel.Pod{Namespace: "shop", Name: "a", UID: podKey(0), Node: "n1", Labels: app("db")}
	a.pods["shop/b"] = &netmodel.Pod{Namespace: "shop", Name: "b", UID: podKey(1), Node: "n2", Labels: app("web")}
	a.pods["other/c"] = &netmodel.Pod{Namespace: "other", Name: "c", UID: podKey(2), Node: "n2", Labels: app("web")}
	a.all = slices.Collect(maps.Values(a.pods))
	return &policyWorld{
		runController(t, w, &tested{c, queue, metrics, a.api}), a, queue, passed, c.ForgetPorts,
	}
}

// next starts the next controller, after the former one was stopped.
func (w *policyWorld) next(t *testing.T, operator configfile.Config) *policyWorld {
	t.Helper()
	queue := controller.NewQueue(quiet)
	metrics := controller.NewMetrics(queue, w.Networks.DB)
	c := controller.New(controller.Config{
		NB: w.Networks.DB, Source: w.kube.api, Queue: queue, Metrics: metrics, Operator: operator,
		WidestIPAM: w.Networks.Widest, Leading: leads, Log: quiet, Policies: w.kube, Ports: w.kube,
	})
	return &policyWorld{
		runController(t, w.World, &tested{c, queue, metrics, w.kube.api}), w.kube, queue, c.WaitForCopiesBy(), c.ForgetPorts,
	}
}

func app(name string) map[string]string { return map[string]string{"app": name} }

// put makes a policy of namespace shop for network blue.
func (w *policyWorld) put(name, spec string) {
	w.kube.with(func() {
		w.kube.policies["shop/"+name] = policy.NewObject(
			"shop", name, 1, map[string]string{policy.ForAnnotation: "blue"}, []byte(spec), 0)
	})
	w.queue.PolicyChanged("shop")
}

// group returns the ports of a selector's group, by the pods' numbers.
func (w *policyWorld) group(t *testing.T, selector string) string {
	return w.groupOf(t, "shop", selector)
}

func (w *policyWorld) groupOf(t *testing.T, namespace, selector string) string {
	t.Helper()
	for _, row := range w.Dump(t, "Port_Group") {
		if row["_uuid"] != ovndb.GroupKey("shop/blue", namespace, selector) {
			continue
		}
		var numbers []string
		for i := range 3 {
			if slices.Contains(ovndbtest.Strings(row["ports"]), podKey(i)) {
				numbers = append(numbers, fmt.Sprint(i))
			}
		}
		return strings.Join(numbers, " ")
	}
	return "gone"
}

const fromWeb = `{"podSelector":{"matchLabels":{"app":"db"}},"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"web"}}}]}]}`

// wantPolicyFirst creates network shop/blue and wants NB to have had the two groups of a policy before.
func (w *policyWorld) wantPolicyFirst(t *testing.T, id string) {
	t.Helper()
	order := ""
	w.Proxy.Before(func(tx ovndbtest.Transact) {
		for _, op := range tx.Ops {
			if op["op"] == "insert" && (op["table"] == "Port_Group" || op["table"] == "Logical_Switch") {
				order += op["table"].(string) + " "
			}
		}
	})
	w.apply("shop/blue", nbtest.Spec(""))
	w.kube.wantPolicyState(t, id, `"ready":true`)
	w.wantState(t, "shop/blue", "ready, held")
	w.Proxy.Before(nil)
	if order != "Port_Group Port_Group Logical_Switch " {
		t.Errorf("inserted %s, want the groups of the policy first", order)
	}
}

// TestPolicyBeforeItsNetwork: a network takes no ports before NB has its policies.
func TestPolicyBeforeItsNetwork(t *testing.T) {
	w := newPolicyWorld(t)
	w.put("p", fromWeb)
	w.kube.wantPolicyState(t, "shop/p", "NetworkAttachmentDefinition shop/blue does not exist")
	w.wantPolicyFirst(t, "shop/p")
}

// TestLabelChangeIsOneTransaction: with the members of the groups, also of those of other namespaces, and with what an
// agent has to know of the pod.
func TestLabelChangeIsOneTransaction(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.put("p", fromWeb)
	w.kube.wantPolicyState(t, "shop/p", `"ready":true`)
	w.kube.with(func() {
		w.kube.pods["other/c"].Requests = []string{"shop/blue"}
		w.kube.pods["third/d"] = &netmodel.Pod{Namespace: "third", Name: "d", UID: "d", Requests: []string{"shop/blue"}}
	})
	for _, namespace := range []string{"other", "third"} {
		w.kube.with(func() {
			w.kube.policies[namespace+"/q"] = policy.NewObject(namespace, "q", 1, map[string]string{
				policy.ForAnnotation: "shop/blue"}, []byte(`{"podSelector":{},"ingress":[{"from":[`+
				`{"namespaceSelector":{},"podSelector":{"matchLabels":{"app":"db"}}}]}]}`), 0)
		})
		w.queue.PolicyChanged(namespace)
		w.kube.wantPolicyState(t, namespace+"/q", `"ready":true`)
	}
	w.settle(t)
	if a, b := w.group(t, "pods with app=db"), w.group(t, "pods with app=web"); a != "0" || b != "1" {
		t.Errorf("groups %q and %q, want pods 0 and 1", a, b)
	}
	w.Proxy.Reset()
	w.kube.with(func() { w.kube.pods["shop/b"].Labels = app("db") })
	w.queue.PodChanged("shop", podKey(1), true)
	for _, namespace := range []string{"other", "third"} {
		eventually(t, "0 1", func() string { return w.groupOf(t, namespace, everyDB) })
	}
	eventually(t, "0 1", func() string { return w.group(t, "pods with app=db") })
	w.settle(t)
	if got := w.Proxy.Counts(); got.Committed != 1 || got.Refused != 0 {
		t.Errorf("%d transactions committed and %d refused, want 1 and 0", got.Committed, got.Refused)
	}
	index := w.Rows(t)["Copp"][ovndb.PolicyKey("shop/blue", "shop")]["external_ids"]
	if want := "ovn-multinet/relabelled:" + podKey(1) + "=" + policy.Hash(app("db")); !strings.Contains(index, want) {
		t.Errorf("index %s, want %s in it", index, want)
	}
}

// TestOlderCopyOfPod: a port stays in its groups until the source has heard of the pod that they were chosen by. After
// a minute it follows the source again: a restore of the API server's database has set the versions back.
func TestOlderCopyOfPod(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.put("p", fromWeb)
	eventually(t, "0, 1", func() string { return w.group(t, "pods with app=db") + ", " + w.group(t, "pods with app=web") })
	w.kube.with(func() {
		w.kube.pods["shop/a"].Version = "7"
		w.kube.pods["shop/a"].Labels = app("web")
		w.kube.chosenBy = map[string]string{podKey(0): "8"}
	})
	w.queue.PodChanged("shop", podKey(0), true)
	eventually(t, "true", func() string { // the pass has written what it had to
		index := w.Rows(t)["Copp"][ovndb.PolicyKey("shop/blue", "shop")]["external_ids"]
		return fmt.Sprint(strings.Contains(index, policy.Hash(app("web"))))
	})
	if a, b := w.group(t, "pods with app=db"), w.group(t, "pods with app=web"); a != "0" || b != "1" {
		t.Errorf("groups %q and %q, want those of the newer version", a, b)
	}
	w.passed.Add(61)
	w.queue.PolicyChanged("shop")
	eventually(t, ", 0 1", func() string { return w.group(t, "pods with app=db") + ", " + w.group(t, "pods with app=web") })
	w.kube.with(func() {
		w.kube.pods["shop/a"].Version = "9"
		w.kube.pods["shop/a"].Labels = app("db")
	})
	w.queue.PodChanged("shop", podKey(0), true)
	eventually(t, "0, 1", func() string { return w.group(t, "pods with app=db") + ", " + w.group(t, "pods with app=web") })
}

// TestPeersOfOtherNamespaces: by the labels of their namespace. A pod or a namespace costs nothing if no selector may
// select the namespace. Passes that change nothing write no state.
func TestPeersOfOtherNamespaces(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.put("p", `{"podSelector":{},"ingress":[{"from":[{"namespaceSelector":{"matchLabels":{"team":"a"}}}]}]}`)
	const peers = "all pods of namespaces with team=a"
	eventually(t, "2", func() string { return w.group(t, peers) })
	w.kube.with(func() { w.kube.namespaces = map[string]map[string]string{"shop": {"team": "a"}, "other": nil} })
	w.queue.NamespaceChanged("other")
	eventually(t, "0 1", func() string { return w.group(t, peers) })
	w.settle(t)
	w.Proxy.Reset()
	w.queue.PodChanged("other", podKey(2), false)
	w.settle(t)
	if got := w.Proxy.Counts(); got.Committed+got.ReadOnly != 0 {
		t.Errorf("a pod that no selector may select: %+v, want no transaction", got)
	}
	w.kube.with(func() {
		w.kube.namespaces = map[string]map[string]string{"shop": {"team": "a"}, "other": {"team": "b"}, "new": nil}
	})
	w.queue.NamespaceChanged("other")
	w.queue.NamespaceChanged("new")
	w.settle(t)
	if got := w.Proxy.Counts(); got.Committed+got.ReadOnly != 0 {
		t.Errorf("namespaces that no selector selects: %+v, want no transaction", got)
	}
	w.kube.wantPolicyState(t, "shop/p", `"ready":true`)
	before := 0
	w.kube.with(func() { before = w.kube.stateWrites })
	w.kube.with(func() {
		w.kube.namespaces = map[string]map[string]string{"shop": {"team": "a"}, "other": {"team": "a"}}
	})
	w.queue.NamespaceChanged("other")
	eventually(t, "0 1 2", func() string { return w.group(t, peers) })
	w.settle(t)
	w.Proxy.Reset()
	w.queue.PodChanged("other", podKey(2), false)
	w.settle(t)
	if got := w.Proxy.Counts(); got.Committed != 0 || got.ReadOnly == 0 {
		t.Errorf("a pod that is selected already: %+v, want reads alone", got)
	}
	w.stop()
	if w.kube.stateWrites != before {
		t.Errorf("the state was written %d times more, and it did not change", w.kube.stateWrites-before)
	}
}

// TestPodThatTheControllerDoesNotKnowYet: its port stays in the groups that its agent has chosen.
func TestPodThatTheControllerDoesNotKnowYet(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.put("p", fromWeb)
	eventually(t, "0", func() string { return w.group(t, "pods with app=db") })
	w.kube.with(func() { delete(w.kube.pods, "shop/a") }) // as if the list of pods were older than the port
	w.put("q", `{"podSelector":{}}`)
	w.kube.wantPolicyState(t, "shop/q", `"ready":true`)
	if a, b := w.group(t, "pods with app=db"), w.group(t, "pods with app=web"); a != "0" || b != "1" {
		t.Errorf("groups %q and %q, want pods 0 and 1", a, b)
	}
}

// TestTooManyLabelsAreNoWayOut: a pod stays in its groups.
func TestTooManyLabelsAreNoWayOut(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", nbtest.Spec(""))
	w.put("p", fromWeb)
	eventually(t, "0", func() string { return w.group(t, "pods with app=db") })
	w.settle(t)
	w.kube.with(func() { w.kube.pods["shop/a"].Labels, w.kube.pods["shop/a"].ManyLabels = nil, true })
	w.queue.PodChanged("shop", podKey(0), true)
	w.settle(t)
	if got := w.group(t, "pods with app=db"); got != "0" {
		t.Errorf("group %q, want pod 0 in it", got)
	}
}
