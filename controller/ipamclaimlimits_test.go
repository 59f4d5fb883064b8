package controller_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// ensure makes an IPAMClaim and the port of a pod that uses it on a network, and returns why that failed.
func (w *claimWorld) ensure(t *testing.T, claim, network, config string) error {
	t.Helper()
	namespace, name, _ := strings.Cut(network, "/")
	parsed, err := netmodel.ParseNetwork(namespace, name, []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	w.set("shop/"+claim, &netmodel.IPAMClaim{Namespace: "shop", Name: claim})
	ports, err := w.ports.Ensure(nbtest.WithLimit(t), claimOwner("pod-"+claim), []ovnport.Request{
		{Interface: "net1", Network: parsed, IPAMClaim: "shop/" + claim},
	}, nil)
	if err == nil {
		w.last = ovnport.Keys{UUID: ports[0].UUID, Switch: ports[0].Switch}
	}
	return err
}

// use is ensure, and then ends the pod.
func (w *claimWorld) use(t *testing.T, claim, network, config string) error {
	t.Helper()
	if err := w.ensure(t, claim, network, config); err != nil {
		return err
	}
	w.queue.IPAMClaimChanged("shop", claim)
	w.settle(t)
	if err := w.ports.Release(nbtest.WithLimit(t), claimOwner("pod-"+claim), []ovnport.Keys{w.last}); err != nil {
		t.Fatal(err)
	}
	w.queue.IPAMClaimChanged("shop", claim)
	w.settle(t)
	return nil
}

// wantRefused makes sure that an IPAMClaim gets no addresses, and that nothing is left of it in NB.
func (w *claimWorld) wantRefused(t *testing.T, claim, network, config string, words ...string) {
	t.Helper()
	err := w.use(t, claim, network, config)
	if err == nil || !hasWords(err.Error(), append(words, "IPAMClaim shop/"+claim+" gets no addresses")...) {
		t.Errorf("IPAMClaim %s on network %s: %v, want %q", claim, network, err, words)
	}
	for _, table := range []string{"Copp", "Logical_Switch_Port"} {
		for _, row := range w.Rows(t)[table] {
			if nbtest.Ext(row, ovndb.IPAMClaimMark) == "shop/"+claim {
				t.Errorf("NB has of IPAMClaim %s: %v", claim, row)
			}
		}
	}
}

// limitRows is how many rows in NB say that IPAMClaims get no addresses.
func (w *claimWorld) limitRows(t *testing.T) string {
	n := 0
	for _, row := range w.Rows(t)["Copp"] {
		if nbtest.Ext(row, ovndb.IPAMClaimLimitOf) != "" {
			n++
		}
	}
	return fmt.Sprint(n)
}

// TestBoundaryLimitOfIPAMClaims: what the IPAMClaims of a namespace have counts for it, without a pod too. Beyond the
// limit a new one gets no addresses, whatever its status says, and those that have some keep them.
func TestBoundaryLimitOfIPAMClaims(t *testing.T) {
	w := newClaimWorld(t)
	const network = "shop/blue"
	blue := nbtest.Spec(`"subnets":"10.1.0.0/24","allowPersistentIPs":true`)
	parsed, err := netmodel.ParseNetwork("shop", "blue", []byte(blue))
	if err != nil {
		t.Fatal(err)
	}
	one := netmodel.IPAMClaimCost("shop/vm-0", network, 1)
	room := parsed.Cost().Plus(one.Times(2)).Plus(netmodel.NextIPAMClaim)
	w.queue.Configure(configfile.Config{Limits: cost.Limits{"shop": {cost.Bytes: room[cost.Bytes]}}})
	w.settle(t)
	for i := range 3 {
		if err := w.use(t, fmt.Sprint("vm-", i), network, blue); err != nil {
			t.Fatal(err)
		}
	}
	limit := fmt.Sprintf("%d is the limit of the namespace", room[cost.Bytes])
	w.wantRefused(t, "vm-3", network, blue, limit)
	w.kube.with(func() {
		w.kube.claims["shop/vm-3"].Status = netmodel.IPAMClaimStatus{IPs: []string{"10.1.0.77/24"}, Allocated: true}
	})
	w.wantRefused(t, "vm-3", network, blue, limit)
	if err := w.use(t, "vm-0", network, blue); err != nil {
		t.Errorf("an IPAMClaim that has addresses: %v", err)
	}

	w.stop() // the next leader knows the limits, and which of them end
	w.start(t, w.World)
	w.queue.Configure(configfile.Config{Limits: cost.Limits{"shop": {cost.Bytes: room[cost.Bytes]}}})
	w.settle(t)
	w.wantRefused(t, "vm-3", network, blue, limit)
	w.set("shop/vm-1", nil)
	eventually(t, "0", func() string { return w.limitRows(t) })
	if err := w.use(t, "vm-3", network, blue); err != nil {
		t.Errorf("after another IPAMClaim was deleted: %v", err)
	}
	w.wantRefused(t, "vm-4", network, blue, limit)
	w.queue.Configure(configfile.Config{})
	eventually(t, "0", func() string { return w.limitRows(t) })
	if err := w.use(t, "vm-4", network, blue); err != nil {
		t.Errorf("after the limit was raised: %v", err)
	}
}

// TestLimitsOfIPAMClaimsEnd: a controller that begins to lead knows which limits NB has, also of a namespace without
// IPAMClaims, and ends those that count no more.
func TestLimitsOfIPAMClaimsEnd(t *testing.T) {
	w := newClaimWorld(t)
	blue := nbtest.Spec(`"subnets":"10.1.0.0/24","allowPersistentIPs":true`)
	for _, left := range []bool{true, false} {
		if err := w.use(t, "vm-0", "shop/blue", blue); err != nil {
			t.Fatal(err)
		}
		w.queue.Configure(configfile.Config{Limits: cost.Limits{"shop": {cost.Bytes: 1}}})
		eventually(t, "1", func() string { return w.limitRows(t) })
		if !left {
			w.set("shop/vm-0", nil)
			eventually(t, "0 rows", func() string { return w.claimRows(t) })
		}
		w.settle(t)
		w.stop()
		if rows := w.limitRows(t); rows != "1" {
			t.Fatalf("NB has %s limits, want 1", rows)
		}
		w.start(t, w.World)
		eventually(t, "0", func() string { return w.limitRows(t) })
	}
}

// TestBoundaryShareOfIPAMClaims: the IPAMClaims of a namespace have a share of the addresses of a network of another one.
func TestBoundaryShareOfIPAMClaims(t *testing.T) {
	w := newClaimWorld(t)
	const network = "vms/shared"
	config := func(subnets string) string {
		return nbtest.Spec(`"subnets":"` + subnets + `","allowPersistentIPs":true`)
	}
	w.apply(network, config("10.2.0.0/28"))
	w.wantState(t, network, "ready, held")
	for i := range 3 { // a quarter of 13
		if err := w.use(t, fmt.Sprint("vm-", i), network, config("10.2.0.0/28")); err != nil {
			t.Fatal(err)
		}
	}
	w.wantRefused(t, "vm-3", network, config("10.2.0.0/28"), "have 3 addresses of network vms/shared", "may have 3")
	w.apply("shop/own", config("10.3.0.0/29"))
	w.wantState(t, "shop/own", "ready, held")
	for i := range 3 {
		if err := w.use(t, fmt.Sprint("own-", i), "shop/own", config("10.3.0.0/29")); err != nil {
			t.Errorf("on a network of its own: %v", err)
		}
	}
	w.apply(network, config("10.2.0.0/28,fd02::/64"))
	w.settle(t)
	w.wantRefused(t, "vm-3", network, config("10.2.0.0/28,fd02::/64"), "may have 3")
	w.set("shop/vm-2", nil)
	eventually(t, "0", func() string { return w.limitRows(t) })
	if err := w.use(t, "vm-3", network, config("10.2.0.0/28,fd02::/64")); err != nil {
		t.Errorf("after another IPAMClaim was deleted: %v", err)
	}
	w.wantRefused(t, "vm-4", network, config("10.2.0.0/28,fd02::/64"), "may have 3")
	w.apply(network, config("10.2.0.0/27,fd02::/64"))
	eventually(t, "0", func() string { return w.limitRows(t) })
	if err := w.use(t, "vm-4", network, config("10.2.0.0/27,fd02::/64")); err != nil {
		t.Errorf("after the network has grown: %v", err)
	}
	for i := range 3 {
		if err := w.use(t, fmt.Sprint("more-", i), network, config("10.2.0.0/27,fd02::/64")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "1", func() string { return w.limitRows(t) })
	lost := []ovsdb.Operation{ovndb.Delete(nb.CoppTable, ovndb.IPAMClaimKey("shop/more-0"))}
	if _, err := w.Networks.DB.Transact(nbtest.WithLimit(t), lost); err != nil { // as a restored backup does
		t.Fatal(err)
	}
	w.queue.NBReplaced()
	eventually(t, "0", func() string { return w.limitRows(t) })
}

// TestLimitOfIPAMClaimsWaitsForNoBudget: a namespace that has spent its budget has its IPAMClaims counted all the same. Else
// it would get as many addresses as it likes by editing other objects.
func TestLimitOfIPAMClaimsWaitsForNoBudget(t *testing.T) {
	w := newClaimWorld(t)
	const network = "vms/shared"
	config := nbtest.Spec(`"subnets":"10.2.0.0/28","allowPersistentIPs":true`)
	w.apply(network, config)
	w.wantState(t, network, "ready, held")
	w.settle(t)
	w.stop()
	w.starting = func(c *controller.Controller) { c.SpendBudget("shop") }
	w.start(t, w.World)
	for i := range 3 {
		claim := fmt.Sprint("vm-", i)
		if err := w.ensure(t, claim, network, config); err != nil {
			t.Fatal(err)
		}
		w.queue.IPAMClaimChanged("shop", claim)
	}
	eventually(t, "1", func() string { return w.limitRows(t) })
	if err := w.ensure(t, "vm-3", network, config); err == nil || !hasWords(err.Error(), "may have 3") {
		t.Errorf("a fourth IPAMClaim: %v", err)
	}
}
