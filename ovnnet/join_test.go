package ovnnet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// Consent that goes between the look and the write is not used.
func TestBoundaryConsentIsRaced(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, w *nbtest.World){
		"withdrawn": func(t *testing.T, w *nbtest.World) {
			nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1))
		},
		"off": func(t *testing.T, w *nbtest.World) {
			nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "blue", nbtest.Net4))
		},
		"not accepted": func(t *testing.T, w *nbtest.World) {
			w.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
			if err := w.Other(t).Delete(nbtest.WithLimit(t), "shop/blue", false); err == nil {
				t.Error("the network is removed with a pod on it")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1+nbtest.LetsWeb))
			w.Meanwhile(t, "Logical_Router_Port", func() { meanwhile(t, w) })
			w.WantRefused(t, nbtest.NetworkIn(t, "web", "green", nbtest.GreenNet+nbtest.OnShopR1), nbtest.NoConsent)
			if got := w.Switches(t); got != "shop/blue" {
				t.Errorf("switches %q", got)
			}
		})
	}
}

// A port on the router does not say that its network is for that router: the accepted configuration does.
func TestBoundaryConsentIsOfTheAcceptedConfiguration(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1+nbtest.LetsWeb))
	other := nbtest.Network(t, "blue", nbtest.Net4+`,"router":"r2"`+nbtest.LetsWeb)
	marks := map[string]string{
		"ovn-multinet/network": "shop/blue", "ovn-multinet/config": other.Canonical(), "ovn-multinet/nad:shop/blue": other.Revision()}
	w.Change(t, "Copp", nbtest.BlueAccepted, ovndbtest.Op{"external_ids": ovndbtest.Map(marks)})
	w.WantRefused(t, nbtest.NetworkIn(t, "web", "green", nbtest.GreenNet+nbtest.OnShopR1), nbtest.NoConsent)
	// A namespace of the same name in another cluster consents to nothing here.
	same := nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1+nbtest.LetsWeb)
	marks["ovn-multinet/config"], marks["ovn-multinet/nad:shop/blue"] = same.Canonical(), same.Revision()
	marks["ovn-multinet/cluster"] = "other"
	w.Change(t, "Copp", nbtest.BlueAccepted, ovndbtest.Op{"external_ids": ovndbtest.Map(marks)})
	w.WantRefused(t, nbtest.NetworkIn(t, "web", "green", nbtest.GreenNet+nbtest.OnShopR1), nbtest.NoConsent)
	delete(marks, "ovn-multinet/cluster")
	w.Change(t, "Copp", nbtest.BlueAccepted, ovndbtest.Op{"external_ids": ovndbtest.Map(marks)})
	nbtest.Ensure(t, w.Networks, nbtest.NetworkIn(t, "web", "green", nbtest.GreenNet+nbtest.OnShopR1))
}

// A network and a router of one name, with all that either has, have no row and no name in common.
func TestBoundaryRouterAndNetworkOfOneName(t *testing.T) {
	w := nbtest.NewWorld(t)
	n := nbtest.ConnectFor(t, w.Endpoint(), map[string]*netmodel.Router{"shop/core": nbtest.GatewayConf(t, "shop/core", nbtest.GwFull)})
	if _, err := n.Gateways.Ensure(nbtest.WithLimit(t), nbtest.GatewayConf(t, "shop/core", nbtest.GwFull), nbtest.OneNode); err != nil {
		t.Fatal(err)
	}
	nbtest.Ensure(t, n, nbtest.Network(t, "core", nbtest.Layer3)) // which has a router of its own
	nbtest.Share(t, n, nbtest.Network(t, "core", nbtest.Layer3), "n1")
	nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.Net4+`,"router":"core"`))
	for _, table := range []string{"Logical_Router", "Logical_Router_Port", "Logical_Switch", "Logical_Switch_Port"} {
		names := strings.Fields(w.Names(t, table))
		if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
			t.Errorf("%s: %v", table, names)
		}
	}
	want := "shop/core shop/core:gateway shop/core:router, " +
		"shop/core:external shop/core:gateway shop/core:join shop/core:router:shop/core@n1 shop/core:shop/blue"
	if got := w.Names(t, "Logical_Router") + ", " + w.RouterPorts(t); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := n.Delete(nbtest.WithLimit(t), "shop/core", false); err != nil {
		t.Fatal(err)
	}
	if got := w.Names(t, "Logical_Router"); got != "shop/core shop/core:gateway" {
		t.Errorf("routers %q", got)
	}
}
