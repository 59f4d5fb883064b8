package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

const (
	blueOnCore = `{"type":"ovn-multinet","subnets":"10.1.0.0/16","router":"core"}`
	redAlone   = `{"type":"ovn-multinet","subnets":"10.2.0.0/16"}`
	redOnCore  = `{"type":"ovn-multinet","subnets":"10.2.0.0/16","router":"core"}`
	onCore     = "router shop/core"
)

// selects lists the groups with words in their selector: the networks that a group serves, and its ports.
func (w *policyWorld) selects(t *testing.T, words string) string {
	t.Helper()
	var all []string
	for _, row := range w.Dump(t, "Port_Group") {
		ids, ports := row["external_ids"].(map[string]string), ""
		if !strings.Contains(ids["ovn-multinet/selector"], words) {
			continue
		}
		for i := range 3 {
			if slices.Contains(ovndbtest.Strings(row["ports"]), podKey(i)) {
				ports += fmt.Sprint(i)
			}
		}
		var networks []string
		for id := range ids {
			if _, network, ok := strings.Cut(id, "policy-network:"); ok {
				networks = append(networks, network)
			}
		}
		slices.Sort(networks)
		all = append(all, strings.Join(networks, ",")+":"+ports)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// entries lists the selectors in the row that tells agents the groups of a network's ports.
func (w *policyWorld) entries(t *testing.T, network, namespace string) string {
	t.Helper()
	var all []string
	for _, row := range w.Dump(t, "Copp") {
		if row["_uuid"] != ovndb.PolicyKey(network, namespace) {
			continue
		}
		index, err := policy.Decode(row["external_ids"].(map[string]string))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range index.Entries {
			all = append(all, e.String())
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// on has the ports of pods on network red.
func (w *policyWorld) on(network string, pods ...int) {
	w.kube.with(func() {
		w.kube.networks = map[string]string{}
		for _, i := range pods {
			w.kube.networks[podKey(i)] = network
		}
	})
}

// TestPeersOnRouter: a Deny for peers by their labels names one group, with the ports of all networks of the router. The
// last network that needs the group deletes it.
func TestPeersOnRouter(t *testing.T) {
	w := newPolicyWorld(t)
	w.on("shop/red", 2)
	w.apply("shop/blue", blueOnCore)
	w.apply("shop/red", redOnCore)
	w.wantState(t, "shop/red", "ready, held")
	w.putCluster("p", "shop/blue", fromTeam)
	w.kube.wantPolicyState(t, "p", `"ready":true`)
	peers := ofTeamA + " on " + onCore
	eventually(t, "shop/blue,shop/red:2", func() string { return w.selects(t, peers) })
	if got := w.entries(t, "shop/red", ""); got != peers {
		t.Errorf("agents know %q of network red, want its peers", got)
	}
	if got := w.entries(t, "shop/blue", ""); got != peers+"; "+everyDB {
		t.Errorf("agents know %q of network blue", got)
	}

	w.kube.with(func() { w.kube.namespaces = map[string]map[string]string{"shop": {"team": "a"}, "other": nil} })
	w.queue.NamespaceChanged("shop")
	eventually(t, "shop/blue,shop/red:01", func() string { return w.selects(t, peers) })

	w.apply("shop/red", redAlone)
	eventually(t, "shop/blue:01", func() string { return w.selects(t, peers) })
	if got := w.entries(t, "shop/red", ""); got != "" {
		t.Errorf("agents know %q of a network that has left the router", got)
	}
	w.apply("shop/red", redOnCore)
	eventually(t, peers, func() string { return w.entries(t, "shop/red", "") })
	w.deleteNAD(t, "shop/red")
	eventually(t, "", func() string { return w.entries(t, "shop/red", "") })
	eventually(t, "shop/blue:01", func() string { return w.selects(t, peers) })
	w.apply("shop/blue", nbtest.Spec(""))
	eventually(t, "", func() string { return w.selects(t, onCore) })
	eventually(t, ":01", func() string { return w.selects(t, ofTeamA) })
	w.kube.with(func() { delete(w.kube.policies, "p") })
	w.queue.PolicyChanged("")
	eventually(t, "", func() string { return w.selects(t, "") })
}

// TestBoundaryPeersBeforeTheRouter: a network's ports are in the groups, and agents know the groups, before the network
// joins the router, also if that makes peers of pods on networks that no policy is for.
func TestBoundaryPeersBeforeTheRouter(t *testing.T) {
	peers := ofTeamA + " on " + onCore
	for _, c := range []struct{ name, was, red string }{
		{"a new network", "", peers + "; " + everyDB},
		{"a network without a router", redAlone, peers + "; " + everyDB},
		{"a network of another router", strings.Replace(redOnCore, "core", "r2", 1),
			peers + "; " + ofTeamA + " on router shop/r2; " + everyDB}, // it is on both for a moment
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newPolicyWorld(t)
			w.on("shop/red", 2)
			w.apply("shop/blue", blueOnCore)
			w.wantState(t, "shop/blue", "ready, held")
			w.putCluster("p", "shop/red", fromTeam) // for the network that joins
			if c.was != "" {
				w.apply("shop/red", c.was)
				w.wantState(t, "shop/red", "ready, held")
				w.kube.wantPolicyState(t, "p", `"ready":true`)
			} else {
				w.kube.wantPolicyState(t, "p", "does not exist")
			}
			known, joined := "", false
			w.Proxy.Before(func(tx ovndbtest.Transact) {
				for _, op := range tx.Ops {
					if strings.Contains(fmt.Sprint(op), "shop/core") && op["table"] == "Logical_Router_Port" && !joined {
						joined = true
						known = w.entries(t, "shop/blue", "") + ", " + w.entries(t, "shop/red", "") + ", " + w.selects(t, onCore)
					}
				}
			})
			w.apply("shop/red", redOnCore)
			eventually(t, "shop/blue,shop/red:2", func() string { return w.selects(t, ofTeamA) })
			w.settle(t)
			w.kube.wantPolicyState(t, "p", `"ready":true`)
			w.Proxy.Before(nil)
			if want := peers + ", " + c.red + ", shop/blue,shop/red:2"; known != want {
				t.Errorf("when the network joins the router, NB has %q, want %q", known, want)
			}
		})
	}
}

// TestBoundaryRefusedNetworkIsNoPeer: the ports of a network that may not join the router, because a subnet overlaps, are in
// no group of the router: their addresses are those of other pods there.
func TestBoundaryRefusedNetworkIsNoPeer(t *testing.T) {
	w := newPolicyWorld(t)
	w.on("shop/red", 2)
	w.apply("shop/blue", blueOnCore)
	w.apply("shop/red", `{"type":"ovn-multinet","subnets":"10.1.0.0/17"}`)
	w.wantState(t, "shop/red", "ready, held")
	w.putCluster("p", "*", fromTeam)
	w.kube.wantPolicyState(t, "p", `"ready":true`)
	joined := 0
	w.Proxy.Before(func(tx ovndbtest.Transact) {
		for _, op := range tx.Ops {
			if op["table"] == "Port_Group" && op["op"] != "select" {
				joined++
			}
		}
	})
	w.apply("shop/red", `{"type":"ovn-multinet","subnets":"10.1.0.0/17","router":"core"}`)
	w.wantState(t, "shop/red", "refused: router: subnet 10.1.0.0/17 overlaps 10.1.0.0/16 of network shop/blue on router shop/core, held")
	w.settle(t)
	w.Proxy.Before(nil)
	if joined != 0 || w.selects(t, onCore) != "shop/blue:" {
		t.Errorf("%d operations on groups, and the groups of the router are %s", joined, w.selects(t, onCore))
	}
}

// TestBoundaryUnreadNetwork: a network whose accepted configuration cannot be read may be on any router, with pods that
// a Deny should stop: the policy says so until its NAD is applied again.
func TestBoundaryUnreadNetwork(t *testing.T) {
	w := newPolicyWorld(t)
	w.apply("shop/blue", blueOnCore)
	w.apply("shop/red", redAlone)
	w.wantState(t, "shop/red", "ready, held")
	w.putCluster("p", "shop/blue", fromTeam)
	w.kube.wantPolicyState(t, "p", `"ready":true`)
	w.apply("shop/red", `{"type":"ovn-multinet","subnets":"none"}`)
	w.settle(t)
	w.Change(t, "Copp", ovndb.AcceptedKey("shop/red"), ovndbtest.Op{"external_ids": ovndbtest.Map(map[string]string{
		"ovn-multinet/kind": "accepted", "ovn-multinet/network": "shop/red", "ovn-multinet/config": `{"of":"a newer version"}`})})
	w.apply("shop/red", `{"type":"ovn-multinet","subnets":"nowhere"}`)
	w.kube.wantPolicyState(t, "p", "pods on network shop/red may reach network shop/blue: NB has a configuration of shop/red "+
		"that this version cannot read. Apply or delete its NetworkAttachmentDefinition")
	w.apply("shop/red", redAlone)
	w.kube.wantPolicyState(t, "p", `"ready":true`)
}

// TestPeersOfTenant: the peers of a MultiNetworkPolicy are the pods on those of its networks that reach each other.
func TestPeersOfTenant(t *testing.T) {
	w := newPolicyWorld(t)
	w.on("shop/red", 1)
	w.apply("shop/blue", blueOnCore)
	w.apply("shop/red", redOnCore)
	w.apply("shop/far", `{"type":"ovn-multinet","subnets":"10.3.0.0/16"}`)
	w.putFor("shop", "p", "blue,red,far", fromWeb)
	w.kube.wantPolicyState(t, "shop/p", `"ready":true`)
	eventually(t, ": shop/blue,shop/red:1", func() string { return w.selects(t, "pods with app=web") }) // and that of far
	w.putFor("shop", "q", "blue", fromWeb)
	w.kube.wantPolicyState(t, "shop/q", `"ready":true`)
	eventually(t, ": : shop/blue,shop/red:1", func() string { return w.selects(t, "pods with app=web") })
	w.putFor("shop", "p", "blue", fromWeb)
	eventually(t, ":", func() string { return w.selects(t, "pods with app=web") })
}

// TestPortsOfOtherNetworks: a pass over one network leaves the ports of other networks in the group, and does not read
// them again.
func TestPortsOfOtherNetworks(t *testing.T) {
	w := newPolicyWorld(t)
	var taken atomic.Int64
	w.Proxy.Before(func(tx ovndbtest.Transact) {
		for _, op := range tx.Ops {
			if op["op"] == "mutate" && op["table"] == "Port_Group" && strings.Contains(fmt.Sprint(op["mutations"]), "ports delete") {
				taken.Add(1)
			}
		}
	})
	w.on("shop/red", 2)
	w.apply("shop/blue", blueOnCore)
	w.apply("shop/red", redOnCore)
	w.wantState(t, "shop/red", "ready, held")
	w.putCluster("p", "*", fromTeam)
	w.kube.wantPolicyState(t, "p", `"ready":true`)
	eventually(t, "shop/blue,shop/red:2", func() string { return w.selects(t, onCore) })
	w.settle(t)
	for range 8 { // the order of the two passes is not always the same
		w.forget()
		w.queue.PolicyChanged("")
		w.settle(t)
	}
	w.kube.with(func() { w.kube.byKey = 0 })
	for range 3 {
		w.queue.PolicyChanged("")
		w.settle(t)
	}
	if w.kube.byKey != 0 || taken.Load() != 0 {
		t.Errorf("%d ports of another network were read, and ports were taken out of groups %d times; want neither",
			w.kube.byKey, taken.Load())
	}
}

// TestBoundaryDenyBehindGateway: pods that reach a network by a gateway have other addresses there than their own. A Deny
// for them by their labels is not called ready, and the state names the way.
func TestBoundaryDenyBehindGateway(t *testing.T) {
	vlan := nbtest.GatewayConf(t, "shop/r1", nbtest.GwFull).PhysicalVLAN()
	localnet := nbtest.Sprint(`{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":%q,"vlanID":%d}`,
		vlan.Physical, vlan.VLAN)
	gateways := func(keys string) func(*controller.Config) {
		return func(c *controller.Config) {
			c.Operator.Routers = map[string]*netmodel.Router{}
			for _, name := range []string{"shop/r1", "shop/r2"} {
				c.Operator.Routers[name] = nbtest.GatewayConf(t, name, nbtest.GwFull+keys)
			}
			c.Operator.Physical = granted(t, nbtest.Sprint(`%q:[{"namespaces":["shop"],"vlans":"%d"}]`, vlan.Physical, vlan.VLAN))
		}
	}
	blue := `{"type":"ovn-multinet","subnets":"10.1.0.0/16","router":"r1"}`
	red := `{"type":"ovn-multinet","subnets":"10.2.0.0/16","router":"%s"}`
	for _, c := range []struct{ name, keys, other, of, why string }{
		{"the same router", "", fmt.Sprintf(red, "r1"), "shop/blue", `"ready":true`},
		{"the gateway's VLAN", "", localnet, "shop/blue", "pods on network shop/red reach network shop/blue by the gateway of router shop/r1"},
		{"a gateway's pods on the VLAN", "", localnet, "shop/red",
			"pods behind the gateway of router shop/r1 reach network shop/red by " + vlan.String() + " with addresses that they share"},
		{"another gateway there", "", fmt.Sprintf(red, "r2"), "shop/blue",
			"pods behind the gateway of router shop/r2 reach network shop/blue by the gateway of router shop/r1"},
		{"outside addresses", `,"addressPools":{"public":{"addresses":"192.0.2.16/28","namespaces":{"shop":5}}}`,
			fmt.Sprintf(red, "r1"), "shop/blue", "pods reach network shop/blue by the outside addresses of router shop/r1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newPolicyWorld(t, gateways(c.keys))
			w.apply("shop/blue", blue)
			w.wantState(t, "shop/blue", "ready, held")
			w.putCluster("p", c.of, fromTeam)
			w.apply("shop/red", c.other)
			w.wantState(t, "shop/red", "ready, held")
			w.kube.wantPolicyState(t, "p", c.why)
			w.putCluster("p", c.of, `{"tier":"Admin","priority":1,"subject":{"namespaces":{}},`+
				`"egress":[{"action":"Deny","to":[{"networks":["10.9.0.0/16"]}]}]}`)
			w.kube.wantPolicyState(t, "p", `"ready":true`)
		})
	}
}
