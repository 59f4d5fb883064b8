package controller_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// claimAPI stands in for the IPAMClaims of the Kubernetes API.
type claimAPI struct {
	*outsideAPI
	claims map[string]*netmodel.IPAMClaim
	writes int
}

func (a *claimAPI) IPAMClaims(context.Context) (all []*netmodel.IPAMClaim, err error) {
	a.with(func() {
		for _, c := range a.claims {
			clone := *c
			all = append(all, &clone)
		}
	})
	return all, nil
}

func (a *claimAPI) KnownIPAMClaim(_ context.Context, namespace, name string) (claim *netmodel.IPAMClaim, err error) {
	a.with(func() {
		if c := a.claims[namespace+"/"+name]; c != nil {
			clone := *c
			claim = &clone
		}
	})
	return claim, nil
}

func (a *claimAPI) SetIPAMClaimStatus(_ context.Context, c *netmodel.IPAMClaim, is netmodel.IPAMClaimStatus) error {
	a.with(func() {
		a.writes++
		a.claims[c.ID()].Status = is
	})
	return nil
}

// claimWorld is a controller with network shop/blue and the IPAMClaim shop/vm.blue.
type claimWorld struct {
	*running
	kube  *claimAPI
	queue *controller.Queue
	ports *ovnport.NB
	last  ovnport.Keys // of the last port that ensure made
	// starting is called with a controller before it runs; nil: nothing.
	starting func(*controller.Controller)
}

func newClaimWorld(t *testing.T) *claimWorld {
	t.Helper()
	w := nbtest.NewWorld(t)
	a := &claimAPI{&outsideAPI{api: newAPI(), pods: map[string]*netmodel.Pod{}}, map[string]*netmodel.IPAMClaim{}, 0}
	world := &claimWorld{kube: a, ports: ovnport.NewNB(w.Networks.DB)}
	world.start(t, w)
	world.apply("shop/blue", nbtest.Spec(`"subnets":"10.1.0.0/24","allowPersistentIPs":true`))
	world.wantState(t, "shop/blue", "ready, held")
	world.set("shop/vm.blue", &netmodel.IPAMClaim{Namespace: "shop", Name: "vm.blue"})
	return world
}

func (w *claimWorld) start(t *testing.T, world *nbtest.World) {
	w.queue = controller.NewQueue(quiet)
	metrics := controller.NewMetrics(w.queue, world.Networks.DB)
	c := controller.New(controller.Config{
		NB: world.Networks.DB, Source: w.kube.api, Queue: w.queue, Metrics: metrics, WidestIPAM: world.Networks.Widest,
		Leading: leads, Log: quiet, IPAMClaims: w.kube,
	})
	if w.starting != nil {
		w.starting(c)
	}
	w.running = runController(t, world, &tested{c, w.queue, metrics, w.kube.api})
}

// set makes an IPAMClaim, or deletes it.
func (w *claimWorld) set(id string, claim *netmodel.IPAMClaim) {
	w.kube.with(func() {
		if delete(w.kube.claims, id); claim != nil {
			w.kube.claims[id] = claim
		}
	})
	w.queue.IPAMClaimChanged("shop", id[len("shop/"):])
}

func claimOwner(pod string) ovnport.Owner {
	return ovnport.Owner{Namespace: "shop", Pod: pod, UID: pod, Sandbox: "sandbox-of-" + pod, Node: "n1", Chassis: "c1"}
}

// attach makes a pod with the port of the IPAMClaim, as an agent does.
func (w *claimWorld) attach(t *testing.T, pod string) ovnport.Port {
	t.Helper()
	network, err := netmodel.ParseNetwork("shop", "blue", []byte(nbtest.Spec(`"subnets":"10.1.0.0/24","allowPersistentIPs":true`)))
	if err != nil {
		t.Fatal(err)
	}
	ports, err := w.ports.Ensure(nbtest.WithLimit(t), claimOwner(pod), []ovnport.Request{
		{Interface: "net1", Network: network, IPAMClaim: "shop/vm.blue"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.kube.with(func() {
		w.kube.pods["shop/"+pod] = &netmodel.Pod{Namespace: "shop", Name: pod, UID: pod, IPAMClaims: []string{"vm.blue"}}
	})
	w.queue.BackendChanged("shop", pod)
	return ports[0]
}

// detach ends a pod. The API server forgets it before or after its port goes.
func (w *claimWorld) detach(t *testing.T, pod string, port ovnport.Port, portFirst bool) {
	t.Helper()
	release := func() {
		if err := w.ports.Release(nbtest.WithLimit(t), claimOwner(pod), []ovnport.Keys{{UUID: port.UUID, Switch: port.Switch}}); err != nil {
			t.Fatal(err)
		}
	}
	if portFirst {
		release()
	}
	w.kube.with(func() { delete(w.kube.pods, "shop/"+pod) })
	w.queue.BackendChanged("shop", pod)
	if !portFirst {
		w.settle(t)
		release()
	}
}

func (w *claimWorld) wantStatus(t *testing.T, want netmodel.IPAMClaimStatus) {
	t.Helper()
	eventually(t, fmt.Sprintf("%+v", want), func() (got string) {
		w.kube.with(func() { got = fmt.Sprintf("%+v", w.kube.claims["shop/vm.blue"].Status) })
		return got
	})
}

// claimRows is how many rows NB has of the IPAMClaim.
func (w *claimWorld) claimRows(t *testing.T) string {
	n := 0
	for _, table := range []string{"Copp", "Logical_Switch_Port"} {
		for _, row := range w.Rows(t)[table] {
			if nbtest.Ext(row, ovndb.IPAMClaimMark) != "" {
				n++
			}
		}
	}
	return fmt.Sprint(n, " rows")
}

// TestIPAMClaims: the status has the addresses as long as the IPAMClaim exists, and the pod as long as it has the port. A
// pass that changes nothing writes nothing.
func TestIPAMClaims(t *testing.T) {
	w := newClaimWorld(t)
	w.wantStatus(t, netmodel.IPAMClaimStatus{})
	port := w.attach(t, "launcher-1")
	is := netmodel.IPAMClaimStatus{IPs: []string{port.Addresses[0].String()}, Pod: "launcher-1", Allocated: true,
		Reason: "SuccessfulAllocation", Message: "MAC " + port.MAC.String()}
	w.wantStatus(t, is)
	for i, portFirst := range []bool{true, false} {
		w.detach(t, fmt.Sprint("launcher-", i+1), port, portFirst)
		is.Pod = ""
		w.wantStatus(t, is)
		w.attach(t, fmt.Sprint("launcher-", i+2))
		is.Pod = fmt.Sprint("launcher-", i+2)
		w.wantStatus(t, is)
	}
	w.settle(t)
	before := w.kube.writes
	w.queue.NBReplaced()
	w.queue.BackendChanged("shop", "launcher-3")
	w.settle(t)
	if w.kube.writes != before {
		t.Errorf("%d writes of a status that is there", w.kube.writes-before)
	}
	w.stop() // the next leader is told of no pod
	w.start(t, w.World)
	w.settle(t)
	w.detach(t, "launcher-3", port, false)
	is.Pod = ""
	w.wantStatus(t, is)
	w.kube.with(func() { w.kube.claims["shop/vm.blue"].Status.IPs = []string{"10.1.0.99/24"} }) // a tenant's hand
	w.queue.IPAMClaimChanged("shop", "vm.blue")
	w.wantStatus(t, is)
}

// TestIPAMClaimIsGone: the addresses of an IPAMClaim that is deleted are free when no pod has them any more, also if the
// controller did not run meanwhile.
func TestIPAMClaimIsGone(t *testing.T) {
	w := newClaimWorld(t)
	port := w.attach(t, "launcher-1")
	w.settle(t)
	w.set("shop/vm.blue", nil)
	w.settle(t)
	if rows := w.claimRows(t); rows != "3 rows" {
		t.Errorf("NB has %s of an IPAMClaim whose pod runs", rows)
	}
	w.detach(t, "launcher-1", port, true)
	eventually(t, "0 rows", func() string { return w.claimRows(t) })

	w.set("shop/vm.blue", &netmodel.IPAMClaim{Namespace: "shop", Name: "vm.blue"})
	port = w.attach(t, "launcher-2")
	w.detach(t, "launcher-2", port, true)
	w.settle(t)
	w.stop()
	w.kube.with(func() { clear(w.kube.claims) })
	if rows := w.claimRows(t); rows != "2 rows" {
		t.Errorf("NB has %s of an IPAMClaim without a pod", rows)
	}
	w.start(t, w.World)
	eventually(t, "0 rows", func() string { return w.claimRows(t) })
}
