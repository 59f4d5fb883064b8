package services_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
)

const (
	red       = `"subnets":"10.2.0.0/24"`
	r1Group   = "ovn-multinet router shop/r1"
	ownGroup  = "ovn-multinet network shop/blue"
	webMember = "shop/blue:shop/web:tcp"
)

// TestOnRouter: clients of all networks of a router reach the services of each, in one group, without a private router.
func TestOnRouter(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.Net4+nbtest.OnR1)
	w.network(t, "red", red+nbtest.OnR1)
	before := w.state(t)
	w.ensure(t, wanted(t, "web", "10.1.0.200", tcp), 1)
	w.wantChanged(t, before, "Logical_Switch shop/blue", "Logical_Switch shop/red", "Logical_Router shop/r1",
		"Load_Balancer_Group "+r1Group, "Load_Balancer "+webMember, "Copp ovn-multinet shop/blue address 10.1.0.200",
		"Copp ovn-multinet shop/blue service shop/web")
	// A network that joins gets the group, and one that is detached loses it.
	const green = `"subnets":"10.3.0.0/24"`
	w.network(t, "green", green+nbtest.OnR1)
	w.ensureNetwork(t, "shop/green", 1)
	w.ensureNetwork(t, "shop/green", 0)
	for _, name := range []string{"blue", "red", "green"} {
		if got := w.groups(t, "Logical_Switch", "shop/"+name); got != r1Group {
			t.Errorf("%s refers to %q", name, got)
		}
	}
	w.network(t, "green", green)
	w.ensureNetwork(t, "shop/green", 1)
	if got := w.groups(t, "Logical_Switch", "shop/green"); got != "" {
		t.Errorf("green refers to %q", got)
	}
	w.remove(t, "web", 1)
	w.wantGone(t)
}

// wantGone fails if any row of services is there.
func (w *world) wantGone(t *testing.T) {
	t.Helper()
	for _, table := range []string{"Load_Balancer", "Load_Balancer_Group"} {
		if rows := w.Dump(t, table); len(rows) > 0 {
			t.Errorf("%s: %v", table, rows)
		}
	}
	for name := range w.state(t) {
		if strings.Contains(name, ":services") || strings.HasPrefix(name, "Copp") && strings.Contains(name, " service ") {
			t.Errorf("%s is still there", name)
		}
	}
}

// TestJoinsRouter: when a network joins or leaves a router, its services move to the other group, and the private
// router goes or comes with the last or first of them.
func TestJoinsRouter(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.Net4)
	w.ensure(t, wanted(t, "web", "10.1.0.200", tcp), 1)
	w.ensure(t, wanted(t, "db", "10.1.0.201", tcp), 1)
	w.network(t, "blue", nbtest.Net4+nbtest.OnR1)
	before := w.state(t)
	w.ensure(t, wanted(t, "web", "10.1.0.200", tcp), 1)
	w.wantChanged(t, before, "Logical_Switch shop/blue", "Logical_Router shop/r1", "Load_Balancer_Group "+r1Group,
		"Load_Balancer_Group "+ownGroup, "Copp ovn-multinet shop/blue service shop/web")
	w.ensure(t, wanted(t, "db", "10.1.0.201", tcp), 1)
	w.ensureNetwork(t, "shop/blue", 0)
	if got := w.members(t, r1Group); got != "shop/blue:shop/db:tcp, "+webMember {
		t.Errorf("group of the router: %q", got)
	}
	if w.row(t, "Logical_Router", "shop/blue:services") != nil || w.members(t, ownGroup) != "no group" ||
		w.groups(t, "Logical_Switch", "shop/blue") != r1Group {
		t.Error("the private router is still there")
	}
	w.network(t, "red", red+nbtest.OnR1) // keeps the router
	w.network(t, "blue", nbtest.Net4)
	w.ensureNetwork(t, "shop/blue", 1) // the reference to the router's group goes
	w.ensure(t, wanted(t, "web", "10.1.0.200", tcp), 1)
	w.ensure(t, wanted(t, "db", "10.1.0.201", tcp), 1)
	if got := w.groups(t, "Logical_Switch", "shop/blue"); got != ownGroup || w.members(t, r1Group) != "no group" {
		t.Errorf("blue refers to %q, group of the router: %q", got, w.members(t, r1Group))
	}
	w.remove(t, "web", 1)
	w.remove(t, "db", 1)
	w.wantGone(t)
}

// TestEmptyGroup: two controllers each delete one of the last two services, so neither sees the group empty. The network's
// pass deletes it with the private router, also if the network has joined a router meanwhile.
func TestEmptyGroup(t *testing.T) {
	for _, router := range []string{"", nbtest.OnR1} {
		w := newWorld(t)
		w.network(t, "blue", nbtest.Net4)
		w.ensure(t, wanted(t, "web", "10.1.0.200", tcp), 1)
		w.remove(t, "web", 1) // makes the list of ended connections, which both change
		w.ensure(t, wanted(t, "web", "10.1.0.200", tcp), 1)
		w.ensure(t, wanted(t, "db", "10.1.0.201", tcp), 1)
		other := services.New(nbrows.NewStore(w.Other(t).DB))
		w.Meanwhile(t, "Load_Balancer", func() {
			if _, err := other.Delete(nbtest.WithLimit(t), "shop/blue", "shop/db"); err != nil {
				t.Error(err)
			}
		})
		if _, err := w.services.Delete(nbtest.WithLimit(t), "shop/blue", "shop/web"); err != nil {
			t.Fatal(err)
		}
		if got := w.members(t, ownGroup); got != "" {
			t.Fatalf("group of %q, want that nobody has deleted it", got)
		}
		w.network(t, "blue", nbtest.Net4+router)
		w.ensureNetwork(t, "shop/blue", 1)
		w.wantGone(t)
	}
}

// TestRouterDeleted: the group goes with its router, also if a reference to it was not removed yet.
func TestRouterDeleted(t *testing.T) {
	for _, name := range []string{"deleted", "detached"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.network(t, "blue", nbtest.Net4+nbtest.OnR1)
			w.network(t, "red", red+nbtest.OnR1)
			w.ensure(t, wanted(t, "web", "10.1.0.200", tcp), 1)
			w.network(t, "red", red)
			if name == "deleted" {
				w.Proxy.Reset()
				w.MustRemove(t, "shop/blue", false)
				w.WantCommitted(t, 1)
				w.wantGone(t)
				return
			}
			w.network(t, "blue", nbtest.Net4)
			if w.row(t, "Logical_Router", "shop/r1") != nil || w.members(t, r1Group) != "no group" {
				t.Error("router and group are still there")
			}
			w.ensure(t, wanted(t, "web", "10.1.0.200", tcp), 1)
			if got := w.members(t, ownGroup); got != webMember {
				t.Errorf("group of %q", got)
			}
		})
	}
}

// TestLastNetworkWithServices: a router's group without load balancers goes with the next pass of one of its networks.
func TestLastNetworkWithServices(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.Net4+nbtest.OnR1)
	w.network(t, "red", red+nbtest.OnR1)
	w.ensure(t, wanted(t, "web", "10.1.0.200", tcp), 1)
	w.MustRemove(t, "shop/blue", false)
	w.ensureNetwork(t, "shop/red", 1)
	w.wantGone(t)
}

// TestJoinedMeanwhile: a network joins the router while its first service is written. It gets the group too.
func TestJoinedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.Net4+nbtest.OnR1)
	w.Meanwhile(t, "Load_Balancer", func() {
		nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "red", red+nbtest.OnR1))
	})
	if _, err := w.services.Ensure(nbtest.WithLimit(t), wanted(t, "web", "10.1.0.200", tcp)); err != nil {
		t.Fatal(err)
	}
	if got := w.groups(t, "Logical_Switch", "shop/red"); got != r1Group {
		t.Errorf("red refers to %q", got)
	}
}

// TestNodeSwitches: clients on a layer3 network of the router are on node switches. A node that comes later makes its
// switch itself.
func TestNodeSwitches(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.Net4+nbtest.OnR1)
	w.network(t, "wide", nbtest.Layer3+nbtest.OnR1)
	n := nbtest.Network(t, "wide", nbtest.Layer3+nbtest.OnR1)
	nbtest.Share(t, w.Networks, n, "node-1")
	w.ensure(t, wanted(t, "web", "10.1.0.200", tcp), 1)
	nbtest.Share(t, w.Networks, n, "node-2")
	w.remove(t, "web", 1)
	w.Meanwhile(t, "Logical_Switch", func() { // the group comes after the agent has looked for it
		other := services.New(nbrows.NewStore(w.Other(t).DB))
		if _, err := other.Ensure(nbtest.WithLimit(t), wanted(t, "web", "10.1.0.200", tcp)); err != nil {
			t.Error(err)
		}
	})
	nbtest.Share(t, w.Networks, n, "node-3")
	nbtest.Share(t, w.Networks, n, "node-4")
	for _, node := range []string{"node-1", "node-2", "node-3", "node-4"} {
		if got := w.groups(t, "Logical_Switch", "shop/wide@"+node); got != r1Group {
			t.Errorf("%s refers to %q", node, got)
		}
	}
	w.ensureNetwork(t, "shop/wide", 1) // the network's own switch
	w.ensureNetwork(t, "shop/wide", 0)
}

// TestLayer3Deleted: a layer3 network on a router of its own is deleted with its services.
func TestLayer3Deleted(t *testing.T) {
	w := newWorld(t)
	empty := w.state(t)
	w.network(t, "blue", nbtest.Layer3)
	n := nbtest.Network(t, "blue", nbtest.Layer3)
	nbtest.Share(t, w.Networks, n, "node-1")
	w.ensure(t, wanted(t, "web", "auto", both), 1)
	nbtest.Share(t, w.Networks, n, "node-2")
	w.MustRemove(t, "shop/blue", false)
	w.wantChanged(t, empty)
}

// TestNorthd: ovn-northd makes the switch send what asks for the address to the router, which answers, and balances.
func TestNorthd(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.NetDual)
	w.ensure(t, wanted(t, "web", fixed, tcp, "10.1.0.7 fd01::7"), 1)
	southbound := ovndbtest.StartNorthd(t, w.Server)
	want := []string{"(backends=10.1.0.7:8080", "(backends=[fd01::7]:8080", "arp.tpa == 10.1.0.200",
		"nd.target == fd01::c8", "0a:58:00:00:00:00"}
	deadline := time.Now().Add(nbtest.Limit)
	for {
		var flows strings.Builder
		for _, row := range southbound.Dump(t, "Logical_Flow") {
			flows.WriteString(row["match"].(string) + " " + row["actions"].(string) + "\n")
		}
		missing := ""
		for _, text := range want {
			if !strings.Contains(flows.String(), text) {
				missing = text
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no flow has %q; the load balancer's rows: %v", missing, w.row(t, "Load_Balancer", webMember))
		}
		time.Sleep(50 * time.Millisecond) // polls the flows
	}
}
