package controller_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// outsideAPI stands in for the pods of the Kubernetes API, and for their ports.
type outsideAPI struct {
	*api
	pods   map[string]*netmodel.Pod
	ports  []pods.Port
	events []string
	states []string // as they were written: pods' names and reasons
}

func (a *outsideAPI) PolicyPods(_ context.Context, namespace string) (pods []*netmodel.Pod, err error) {
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

func (a *outsideAPI) PodsWithOutside(context.Context) (ids []string, err error) {
	a.with(func() {
		for id, p := range a.pods {
			if p.Outside != "" {
				ids = append(ids, id)
			}
		}
	})
	return ids, nil
}

func (a *outsideAPI) SetOutsideState(_ context.Context, p *netmodel.Pod, state netmodel.OutsideState) error {
	a.with(func() {
		a.states = append(a.states, p.Name+" "+string(state.Reason))
		a.pods[p.Namespace+"/"+p.Name].OutsideState = state
	})
	return nil
}

func (a *outsideAPI) OutsideEvent(p *netmodel.Pod, _ bool, reason, message string) {
	a.with(func() { a.events = append(a.events, p.Namespace+"/"+p.Name+" "+reason+" "+message) })
}

func (a *outsideAPI) On(context.Context, []string) (ports []pods.Port, err error) {
	a.with(func() { ports = slices.Clone(a.ports) })
	return ports, nil
}

func (a *outsideAPI) ByKey(context.Context, []string) ([]pods.Port, error) {
	return nil, nil
}

// outsideWorld is a controller with the gateway of router shop/r1, which has a pool, and with network shop/blue there.
type outsideWorld struct {
	*running
	kube  *outsideAPI
	queue *controller.Queue
}

const poolOfShop = `,"addressPools":{"public":{"addresses":"192.0.2.16/29","namespaces":{"shop":1}}}`

func newOutsideWorld(t *testing.T, change ...func(*controller.Config, *outsideAPI)) *outsideWorld {
	t.Helper()
	w := nbtest.NewWorld(t)
	a := &outsideAPI{api: newAPI(), pods: map[string]*netmodel.Pod{}}
	a.setNodes(map[string]map[string]string{"n1": {"gateway": ""}})
	for node, physical := range map[string][]string{"n1": {"provider"}, "n2": nil} {
		if err := w.Networks.Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: node, Chassis: "of-" + node, Physical: physical}); err != nil {
			t.Fatal(err)
		}
	}
	queue := controller.NewQueue(quiet)
	config := controller.Config{
		NB: w.Networks.DB, Source: a.api, Queue: queue, Metrics: controller.NewMetrics(queue, w.Networks.DB),
		WidestIPAM: w.Networks.Widest, Leading: leads, Log: quiet, Outside: a, Ports: a,
		Operator: configfile.Config{Routers: map[string]*netmodel.Router{
			"shop/r1": nbtest.GatewayConf(t, "shop/r1", nbtest.GwFull+poolOfShop),
		}},
	}
	for _, f := range change {
		f(&config, a)
	}
	c := controller.New(config)
	world := &outsideWorld{runController(t, w, &tested{c, queue, config.Metrics, a.api}), a, queue}
	world.apply("shop/blue", nbtest.Spec(nbtest.NetDual+nbtest.OnR1))
	world.wantState(t, "shop/blue", "ready, held")
	return world
}

// attach gives a pod a port with the i-th address.
func (w *outsideWorld) attach(t *testing.T, name, node string, i byte, outside string) {
	t.Helper()
	address := netip.AddrFrom4([4]byte{10, 1, 0, i})
	port := pods.Port{
		Key: ovndb.AddressKey("shop/blue", address), Name: "shop/" + name + "/net1", Network: "shop/blue",
		Namespace: "shop", Pod: name, Interface: "net1", Addresses: []netip.Addr{address},
	}
	w.PutPort(t, "Logical_Switch", ovndb.SwitchKey("shop/blue"), port.Key, ovndbtest.Op{
		"name": port.Name, "up": true, "addresses": fmt.Sprintf("0a:58:0a:01:00:%02x %s", i, address),
		"external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/network": "shop/blue", "ovn-multinet/namespace": "shop",
			"ovn-multinet/pod": name, "ovn-multinet/interface": "net1", "ovn-multinet/sandbox": "s1"})})
	w.kube.with(func() {
		w.kube.pods["shop/"+name] = &netmodel.Pod{Namespace: "shop", Name: name, Node: node, Ready: true, Outside: outside}
		w.kube.ports = append(w.kube.ports, port)
	})
	w.queue.BackendChanged("shop", name)
}

// wantNATs waits until NB has these NAT rows, beside those of the network.
func (w *outsideWorld) wantNATs(t *testing.T, want string) {
	t.Helper()
	eventually(t, want, func() string {
		var all []string
		for _, row := range w.Rows(t)["NAT"] {
			if strings.HasPrefix(row["external_ip"], "192.0.2.1") && row["external_ip"] != "192.0.2.10" {
				all = append(all, strings.TrimSpace(row["type"]+" "+row["external_ip"]+" "+row["logical_ip"]+" "+row["logical_port"]))
			}
		}
		slices.Sort(all)
		return strings.Join(all, ", ")
	})
}

func (w *outsideWorld) wantEvent(t *testing.T, words string) {
	t.Helper()
	eventually(t, "true", func() (got string) {
		w.kube.with(func() { got = strings.Join(w.kube.events, "\n") })
		if strings.Contains(got, words) {
			return "true"
		}
		return got
	})
}

const floating17 = `[{"interface":"net1","floating":"192.0.2.17"}]`

// TestOutside: an outside address follows the annotation, the pod and the operator's configuration. The pod's node
// translates if it has the bridge.
func TestOutside(t *testing.T) {
	w := newOutsideWorld(t)
	w.attach(t, "a", "n1", 7, floating17)
	w.wantNATs(t, "dnat_and_snat 192.0.2.17 10.1.0.7 shop/a/net1")
	w.wantEvent(t, "shop/a OutsideAddressReady interface net1: floating addresses [192.0.2.17]")

	w.attach(t, "b", "n2", 8, floating17)
	w.wantEvent(t, "shop/b OutsideAddressRefused interface net1: address 192.0.2.17")
	w.kube.with(func() { w.kube.pods["shop/b"].Outside = `[{"interface":"net1","floating":"auto"}]` })
	w.queue.BackendChanged("shop", "b")
	w.wantEvent(t, "namespace shop has 1 IPv4 addresses of pool public of router shop/r1, at most 1 are allowed")

	w.kube.with(func() { delete(w.kube.pods, "shop/a") })
	w.queue.BackendChanged("shop", "a")
	eventually(t, "true", func() string { // b gets what a had; its node has no bridge
		for _, row := range w.Rows(t)["NAT"] {
			if row["logical_ip"] == "10.1.0.8" && row["type"] == "dnat_and_snat" {
				return fmt.Sprint(row["logical_port"] == "")
			}
		}
		return "none"
	})
	w.wantEvent(t, "shop/b OutsideAddressReady")
	w.kube.with(func() { w.kube.pods["shop/b"].Outside = `{"net1":"auto"}` })
	w.queue.BackendChanged("shop", "b")
	w.wantEvent(t, "shop/b OutsideAddressRefused annotation ovn-multinet/outside-addresses: it is no JSON list")
	w.wantEvent(t, "; what the pod has stays")
	w.settle(t)
	stays := len(w.Rows(t)["NAT"])
	w.kube.with(func() { w.kube.pods["shop/b"].Outside = "" })
	w.queue.BackendChanged("shop", "b")
	eventually(t, fmt.Sprint(stays-1), func() string { return fmt.Sprint(len(w.Rows(t)["NAT"])) })
	w.wantStates(t, "a OutsideAddressReady, b OutsideAddressRefused, b OutsideAddressRefused, b OutsideAddressReady, "+
		"b OutsideAddressRefused, b ")
}

// wantStates waits until these states were written, each once.
func (w *outsideWorld) wantStates(t *testing.T, want string) {
	t.Helper()
	eventually(t, want, func() (got string) {
		w.kube.with(func() { got = strings.Join(w.kube.states, ", ") })
		return got
	})
}

// TestOutsideStates: the state of a pod is the worst that its interfaces have, is written once, and comes back when
// somebody else has changed it. A pod that has waited says so; one that has just started has no state yet.
func TestOutsideStates(t *testing.T) {
	w := newOutsideWorld(t)
	w.attach(t, "a", "n1", 7, `[{"interface":"net1","floating":"192.0.2.17"},{"interface":"net2","floating":"auto"}]`)
	w.kube.with(func() { w.kube.pods["shop/a"].Ready = false }) // as with a readiness gate
	state := func() (state netmodel.OutsideState) {
		w.kube.with(func() { state = w.kube.pods["shop/a"].OutsideState })
		return state
	}
	const net1, net2 = "interface net1: floating addresses [192.0.2.17]", "interface net2: the pod has no such interface on an OVN network"
	want := netmodel.OutsideState{Reason: netmodel.OutsideWaits, Message: net2 + "; " + net1}
	eventually(t, fmt.Sprint(want), func() string { return fmt.Sprint(state()) })
	w.kube.with(func() {
		w.kube.pods["shop/a"].OutsideState = netmodel.OutsideState{Reason: "Forged", Message: "all is well"}
	})
	w.queue.BackendChanged("shop", "a")
	eventually(t, fmt.Sprint(want), func() string { return fmt.Sprint(state()) })
	w.kube.with(func() { w.kube.pods["shop/a"].Outside = floating17 })
	w.queue.BackendChanged("shop", "a")
	eventually(t, fmt.Sprint(netmodel.OutsideState{Reason: netmodel.OutsideReady, Message: net1}), func() string { return fmt.Sprint(state()) })
	w.settle(t)
	w.wantStates(t, "a OutsideAddressWaits, a OutsideAddressWaits, a OutsideAddressReady")

	w.kube.with(func() {
		w.kube.pods["shop/new"] = &netmodel.Pod{Namespace: "shop", Name: "new", Node: "n1", Outside: floating17}
	})
	w.queue.BackendChanged("shop", "new")
	w.settle(t)
	w.wantStates(t, "a OutsideAddressWaits, a OutsideAddressWaits, a OutsideAddressReady")

	w.kube.with(func() {
		w.kube.pods["shop/former"] = &netmodel.Pod{Namespace: "shop", Name: "former", OutsideState: want}
	})
	w.queue.BackendChanged("shop", "former")
	w.wantStates(t, "a OutsideAddressWaits, a OutsideAddressWaits, a OutsideAddressReady, former ")

	w.kube.with(func() { w.kube.ports, w.kube.pods["shop/a"].Ready = nil, false })
	w.queue.BackendChanged("shop", "a")
	w.wantStates(t, "a OutsideAddressWaits, a OutsideAddressWaits, a OutsideAddressReady, former , a OutsideAddressWaits")
	w.wantNATs(t, "")
}

// TestOutsideBeforeBinding: a pod that has just started gets its address, and its first state, when OVN has bound the
// port. One that has run says what it waits for.
func TestOutsideBeforeBinding(t *testing.T) {
	w := newOutsideWorld(t)
	bound := func(i byte, up bool) {
		key := ovndb.AddressKey("shop/blue", netip.AddrFrom4([4]byte{10, 1, 0, i}))
		w.Transact(t, ovndbtest.Op{"op": "update", "table": "Logical_Switch_Port", "where": nbtest.ByKey(key),
			"row": ovndbtest.Op{"up": up}})
	}
	w.attach(t, "a", "n1", 7, "")
	w.settle(t)
	bound(7, false)
	w.kube.with(func() { w.kube.pods["shop/a"].Outside, w.kube.pods["shop/a"].Ready = floating17, false })
	w.queue.BackendChanged("shop", "a")
	w.settle(t)
	w.wantNATs(t, "")
	w.wantStates(t, "")
	bound(7, true)
	w.wantNATs(t, "dnat_and_snat 192.0.2.17 10.1.0.7 shop/a/net1")
	w.wantStates(t, "a OutsideAddressReady")

	w.attach(t, "b", "n1", 8, "")
	w.settle(t)
	bound(8, false)
	w.kube.with(func() { delete(w.kube.pods, "shop/a") })
	w.queue.BackendChanged("shop", "a")
	w.wantNATs(t, "")
	w.kube.with(func() { w.kube.pods["shop/b"].Outside = floating17 })
	w.queue.BackendChanged("shop", "b")
	w.wantStates(t, "a OutsideAddressReady, b OutsideAddressWaits")
	bound(8, true)
	w.wantNATs(t, "dnat_and_snat 192.0.2.17 10.1.0.8 shop/b/net1")
	w.wantStates(t, "a OutsideAddressReady, b OutsideAddressWaits, b OutsideAddressReady")
}

// TestOutsideNetworkMoves: an outside address ends when the network is on no router with a gateway, and when the operator
// takes the pool back. It returns with the grant.
func TestOutsideNetworkMoves(t *testing.T) {
	w := newOutsideWorld(t)
	w.attach(t, "a", "n1", 7, floating17)
	const stands = "dnat_and_snat 192.0.2.17 10.1.0.7 shop/a/net1"
	w.wantNATs(t, stands)
	w.apply("shop/blue", nbtest.Spec(nbtest.NetDual))
	w.wantEvent(t, "network shop/blue is on no router with a gateway")
	w.wantNATs(t, "")
	w.apply("shop/blue", nbtest.Spec(nbtest.NetDual+nbtest.OnR1))
	w.wantNATs(t, stands)
	configure := func(pools string) {
		w.queue.Configure(configfile.Config{Routers: map[string]*netmodel.Router{
			"shop/r1": nbtest.GatewayConf(t, "shop/r1", nbtest.GwFull+pools),
		}})
	}
	configure("")
	w.wantNATs(t, "")
	configure(poolOfShop)
	w.wantNATs(t, stands)
}

// TestEgressOfNamespace: the operator gives the pods of a namespace an egress address. A pod's own request comes first,
// and pods of other namespaces have none.
func TestEgressOfNamespace(t *testing.T) {
	w := newOutsideWorld(t)
	configure := func(more string) {
		w.queue.Configure(configfile.Config{Routers: map[string]*netmodel.Router{"shop/r1": nbtest.GatewayConf(t, "shop/r1", nbtest.GwFull+
			`,"addressPools":{"public":{"addresses":"192.0.2.16-192.0.2.17","namespaces":{"*":2}`+more+`}}`)}})
	}
	w.attach(t, "a", "n1", 7, "")
	w.attach(t, "b", "n1", 8, floating17)
	w.wantNATs(t, "dnat_and_snat 192.0.2.17 10.1.0.8 shop/b/net1")
	configure(`,"egressOf":["other"]`)
	w.attach(t, "c", "n1", 9, "")
	w.settle(t)
	w.wantNATs(t, "dnat_and_snat 192.0.2.17 10.1.0.8 shop/b/net1")
	configure(`,"egressOf":["shop"]`)
	const floating = "dnat_and_snat 192.0.2.17 10.1.0.8 shop/b/net1, "
	w.wantNATs(t, floating+"snat 192.0.2.16 10.1.0.7, snat 192.0.2.16 10.1.0.9")
	w.attach(t, "d", "n2", 10, "") // a new pod
	w.wantNATs(t, floating+"snat 192.0.2.16 10.1.0.10, snat 192.0.2.16 10.1.0.7, snat 192.0.2.16 10.1.0.9")
	configure("")
	w.wantNATs(t, "dnat_and_snat 192.0.2.17 10.1.0.8 shop/b/net1")
}
