package controller_test

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// TestSubnetsBehindFollowPods: the routes to a subnet lead to the pods that are ready. A pod whose readiness stays costs
// nothing, and so does a pod of a namespace without subnets behind it, or on other networks.
func TestSubnetsBehindFollowPods(t *testing.T) {
	const keys = nbtest.Net4 + nbtest.OnR1 + `,"subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.1.0.5,10.1.0.6"}]`
	w := nbtest.NewWorld(t)
	c := &claimWorld{kube: &claimAPI{&outsideAPI{api: newAPI(), pods: map[string]*netmodel.Pod{}}, map[string]*netmodel.IPAMClaim{}, 0}}
	c.start(t, w)
	c.apply("shop/blue", nbtest.Spec(keys))
	c.wantState(t, "shop/blue", "ready, held")
	routes := func(want string) {
		t.Helper()
		eventually(t, want, func() string { return w.Routes(t, ovndb.RouterKey("shop/r1")) })
	}
	set := func(namespace, name string, ready bool) {
		c.kube.with(func() {
			c.kube.pods[namespace+"/"+name] = &netmodel.Pod{Namespace: namespace, Name: name, UID: name, Ready: ready, Requests: []string{"shop/blue"}}
		})
		c.queue.BackendChanged(namespace, name)
	}
	routes("10.60.0.0/16 via discard")
	for name, address := range map[string]string{"a": "10.1.0.5", "b": "10.1.0.6"} {
		w.Pod(t, "blue", address, name, "net1")
		set("shop", name, true)
	}
	routes("10.60.0.0/16 via 10.1.0.5 10.60.0.0/16 via 10.1.0.6")
	set("shop", "a", false)
	routes("10.60.0.0/16 via 10.1.0.6")
	c.settle(t)
	w.Proxy.Reset()
	set("shop", "a", false)
	set("shop", "b", true)
	set("web", "a", true)
	c.kube.with(func() {
		c.kube.pods["shop/c"] = &netmodel.Pod{Namespace: "shop", Name: "c", UID: "c", Ready: true, Requests: []string{"shop/other"}}
	})
	c.queue.BackendChanged("shop", "c")
	c.settle(t)
	if got := w.Proxy.Counts(); got.Committed+got.ReadOnly != 0 {
		t.Errorf("pods whose readiness stays cost %+v", got)
	}
	c.kube.with(func() { delete(c.kube.pods, "shop/b") })
	c.queue.BackendChanged("shop", "b")
	routes("10.60.0.0/16 via discard")
	c.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	routes("")
	c.settle(t)
	w.Proxy.Reset()
	set("shop", "a", true)
	c.settle(t)
	if got := w.Proxy.Counts(); got.Committed+got.ReadOnly != 0 {
		t.Errorf("without subnets behind them, pods cost %+v", got)
	}
}
