package ovnnet_test

import (
	"reflect"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// A node's switch that someone took leaves nothing that is in anybody's way, neither the node's own nor another's.
func TestNodesSwitchIsTaken(t *testing.T) {
	const one = `"topology":"layer3","subnets":"10.128.0.0/24/24,fd01::/64/64"`
	for _, router := range []string{"", nbtest.OnR1} {
		blue := nbtest.Network(t, "blue", one+router)
		for _, node := range []string{"n1", "n2"} {
			t.Run("then comes "+node+router, func(t *testing.T) {
				w := nbtest.NewWorld(t)
				nbtest.Ensure(t, w.Networks, blue)
				nbtest.Share(t, w.Networks, blue, node)
				want := w.Rows(t)
				w.MustRemove(t, "shop/blue", false)
				nbtest.Ensure(t, w.Networks, blue)
				nbtest.Share(t, w.Networks, blue, "n1")
				w.Remove(t, "Logical_Switch", nbtest.NodeKey("n1"))
				nbtest.Share(t, w.Networks, blue, node)
				w.WantRows(t, want)
			})
		}
		t.Run("then comes the controller"+router, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			nbtest.Ensure(t, w.Networks, blue)
			want := w.Rows(t)
			nbtest.Share(t, w.Networks, blue, "n1")
			w.Remove(t, "Logical_Switch", nbtest.NodeKey("n1"))
			nbtest.Ensure(t, w.Networks, blue)
			got := w.Rows(t)
			got["Copp"] = want["Copp"] // claims stay until someone wants the block
			if !reflect.DeepEqual(got, want) {
				t.Errorf("rows %v,\nwant %v", got, want)
			}
		})
		t.Run("then the network goes"+router, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			nbtest.Ensure(t, w.Networks, blue)
			nbtest.Share(t, w.Networks, blue, "n1")
			w.Remove(t, "Logical_Switch", nbtest.NodeKey("n1"))
			w.MustRemove(t, "shop/blue", false)
			w.WantRows(t, map[string]map[string]nbtest.Fields{})
		})
	}
}

// A switch with copied marks is nobody's part, and in nobody's way.
func TestLayer3BesideCopiedMarks(t *testing.T) {
	w := nbtest.NewWorld(t)
	blue := nbtest.Network(t, "blue", nbtest.Layer3)
	nbtest.Ensure(t, w.Networks, blue)
	nbtest.Share(t, w.Networks, blue, "n1")
	w.Put(t, "Logical_Switch", nbtest.Strange, "theirs", map[string]string{"ovn-multinet/network": "shop/blue", "ovn-multinet/node": "n1"})
	w.Proxy.Reset()
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Layer3+`,"mtu":1300`))
	w.WantCommitted(t, 1)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", `"topology":"layer3","subnets":"10.129.0.0/16/24"`))
	w.MustRemove(t, "shop/blue", false)
	if got := w.Switches(t); got != "theirs" {
		t.Errorf("switches %q", got)
	}
}

// A gateway of which others left a part only is found all the same when the configuration has it no more.
func TestGatewayIsDroppedWithoutSomeOfIt(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, w *nbtest.World){
		"the gateway":     func(t *testing.T, w *nbtest.World) { w.Remove(t, "Logical_Router", nbtest.GwRouter) },
		"the router":      func(t *testing.T, w *nbtest.World) { w.Remove(t, "Logical_Router", ovndb.RouterKey("shop/r1")) },
		"the join switch": func(t *testing.T, w *nbtest.World) { w.Remove(t, "Logical_Switch", nbtest.GwSwitch("join")) },
		"the switches": func(t *testing.T, w *nbtest.World) {
			w.Remove(t, "Logical_Switch", nbtest.GwSwitch("join"))
			w.Remove(t, "Logical_Switch", nbtest.GwSwitch("external"))
		},
		"both routers": func(t *testing.T, w *nbtest.World) {
			w.Remove(t, "Logical_Router", nbtest.GwRouter)
			w.Remove(t, "Logical_Router", ovndb.RouterKey("shop/r1"))
		},
		"all but the router": func(t *testing.T, w *nbtest.World) {
			w.Remove(t, "Logical_Router", nbtest.GwRouter)
			w.Remove(t, "Logical_Switch", nbtest.GwSwitch("join"))
			w.Remove(t, "Logical_Switch", nbtest.GwSwitch("external"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.TwoNodes)
			do(t, w)
			if err := w.Networks.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
				t.Error(err)
			}
			w.WantRows(t, map[string]map[string]nbtest.Fields{})
		})
	}
}

// Rows at a gateway's keys that are not ours are left alone, and named.
func TestGatewayAtForeignKeys(t *testing.T) {
	for name, row := range map[string][2]string{
		"logical router " + nbtest.GwRouter: {"Logical_Router", nbtest.GwRouter}, "logical switch " + nbtest.GwSwitch("join"): {"Logical_Switch", nbtest.GwSwitch("join")},
		"logical switch " + nbtest.GwSwitch("external"): {"Logical_Switch", nbtest.GwSwitch("external")}, "HA chassis group " + nbtest.GwGroup: {"HA_Chassis_Group", nbtest.GwGroup},
	} {
		for _, ids := range []map[string]string{nil, {"ovn-multinet/router": "shop/r2"}} {
			w := nbtest.NewWorld(t)
			w.Put(t, row[0], row[1], "theirs", ids)
			w.WantForeign(t, "router shop/r1: gateway: "+name+" is not ours")
		}
	}
}

// A gateway does not come into the subnets of networks that are on the router.
func TestGatewayMeetsNetworks(t *testing.T) {
	for keys, reason := range map[string]string{
		`"subnets":"100.88.0.0/16"`: "port shop/r1:shop/blue: router: subnet 100.88.0.0/16 overlaps joinSubnet 100.88.0.0/24 of router shop/r1",
		`"subnets":"192.0.2.0/25"`:  "port shop/r1:shop/blue: router: subnet 192.0.2.0/25 overlaps externalSubnet 192.0.2.0/24 of router shop/r1",
	} {
		w := nbtest.NewWorld(t)
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", keys+nbtest.OnR1))
		w.WantForeign(t, reason)
	}
}
