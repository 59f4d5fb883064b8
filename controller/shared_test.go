package controller_test

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// wantTakes waits until a network's switch takes ports of those NADs.
func (r *running) wantTakes(t *testing.T, id, want string) {
	t.Helper()
	eventually(t, want, func() string {
		networks, err := r.Networks.List(nbtest.WithLimit(t))
		if err != nil {
			return err.Error()
		}
		n, there := networks[id]
		if !there {
			return "no switch"
		}
		return nbtest.Sprint("%v", n.NADs)
	})
}

const differs = `refused: it differs from shop/a, which describes network tenant too: subnets: 10.2.0.0/24 is not 10.1.0.0/24, held`

// Several NADs of one name are one network: those that agree.
func TestSharedNetwork(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	r := run(t, w, a)
	r.apply("shop/a", nbtest.IsShared("tenant", nbtest.Net4))
	r.wantState(t, "shop/a", "ready, held")
	r.apply("shop/b", nbtest.IsShared("tenant", `"subnets":"10.2.0.0/24"`))
	r.wantState(t, "shop/b", differs)
	r.wantTakes(t, "tenant", "[shop/a]")
	r.apply("shop/b", nbtest.IsShared("tenant", nbtest.Net4)) // healed
	r.wantState(t, "shop/b", "ready, held")
	r.wantTakes(t, "tenant", "[shop/a shop/b]")
	if got := r.Switches(t); got != "tenant" {
		t.Errorf("switches %q", got)
	}
	r.apply("shop/b", nbtest.IsShared("tenant", `"subnets":"10.2.0.0/24"`)) // changed by itself: its pods stay on what is in force
	r.wantState(t, "shop/b", differs)
	r.wantTakes(t, "tenant", "[shop/a shop/b]")
	r.apply("shop/b", nbtest.IsShared("tenant", `"subnets":"10.2.0.0"`)) // spoilt: the same
	r.wantState(t, "shop/b", `refused: network shop/b: subnets: "10.2.0.0" is not a network like 10.1.0.0/16, held`)
	r.wantTakes(t, "tenant", "[shop/a shop/b]")
	r.apply("shop/b", nbtest.IsShared("tenant", `"subnets":"10.2.0.0/24"`))
	r.wantState(t, "shop/b", differs)
	r.apply("shop/a", nbtest.IsShared("tenant", `"subnets":"10.2.0.0/24"`)) // the other way round
	r.wantState(t, "shop/b", "ready, held")
	r.wantTakes(t, "tenant", "[shop/a shop/b]")
}

// One that leaves takes nothing with it, the last one all; what is left on it is named to the last.
func TestSharedNetworkIsLeft(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	r := run(t, w, a)
	for _, id := range []string{"shop/a", "shop/b", "shop/c"} {
		r.apply(id, nbtest.IsShared("tenant", nbtest.Net4))
		r.wantState(t, id, "ready, held")
	}
	r.wantTakes(t, "tenant", "[shop/a shop/b shop/c]")
	r.PodAt(t, "tenant", nbtest.Strange, "web-0", "net1")
	r.deleteNAD(t, "shop/a") // the oldest
	r.wantState(t, "shop/a", "gone")
	r.wantTakes(t, "tenant", "[shop/b shop/c]")
	r.apply("shop/b", `{"type":"bridge"}`)
	r.wantState(t, "shop/b", "nothing")
	r.wantTakes(t, "tenant", "[shop/c]")
	r.deleteNAD(t, "shop/c")
	r.wantState(t, "shop/c", "refused: being deleted, used by pod shop/web-0, held")
	r.wantTakes(t, "tenant", "[]")
	if got := r.Names(t, "Logical_Switch_Port"); got != "shop/web-0/net1" {
		t.Errorf("ports %q", got)
	}
	r.apply("shop/d", nbtest.IsShared("tenant", nbtest.Net4)) // takes the network over; the one that was held up may go
	r.wantState(t, "shop/d", "ready, held")
	r.wantState(t, "shop/c", "gone")
	r.DropPorts(t, "Logical_Switch", ovndb.SwitchKey("tenant"))
	r.deleteNAD(t, "shop/d")
	r.wantState(t, "shop/d", "gone")
	r.WantRows(t, map[string]map[string]nbtest.Fields{})
}

// A namespace joins another one's network only where the operator lets it.
func TestSharedNetworkOfNamespaces(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	r := run(t, w, a, "ops")
	r.apply("shop/a", nbtest.IsShared("tenant", nbtest.Net4))
	r.wantState(t, "shop/a", "ready, held")
	r.apply("dev/a", nbtest.IsShared("tenant", nbtest.Net4))
	r.apply("ops/a", nbtest.IsShared("tenant", nbtest.Net4))
	r.wantState(t, "ops/a", "ready, held")
	r.wantState(t, "dev/a", "refused: network tenant is of namespace shop, and namespace dev may not join it: let it with the controller's --joining-namespaces, held")
	r.wantTakes(t, "tenant", "[ops/a shop/a]")
	if got := r.Switches(t); got != "tenant" {
		t.Errorf("switches %q", got)
	}
}

// A NAD that becomes another network's leaves the one that it was of, and takes nothing along.
func TestSharedNetworkIsChanged(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	r := run(t, w, a)
	r.apply("shop/a", nbtest.IsShared("tenant", nbtest.Net4))
	r.apply("shop/b", nbtest.IsShared("tenant", nbtest.Net4))
	r.apply("shop/c", nbtest.IsShared("other", `"subnets":"10.2.0.0/24"`))
	r.wantTakes(t, "tenant", "[shop/a shop/b]")
	r.wantTakes(t, "other", "[shop/c]")
	r.wantState(t, "shop/c", "ready, held")
	r.apply("shop/b", nbtest.IsShared("other", `"subnets":"10.2.0.0/24"`))
	r.wantTakes(t, "tenant", "[shop/a]")
	r.wantTakes(t, "other", "[shop/b shop/c]")
	r.apply("shop/a", nbtest.IsShared("other", `"subnets":"10.2.0.0/24"`))
	r.wantTakes(t, "tenant", "no switch")
	r.wantTakes(t, "other", "[shop/a shop/b shop/c]")
	r.settle(t)
	for _, id := range []string{"shop/a", "shop/b", "shop/c"} {
		if got := r.state(id); got != "ready, held" {
			t.Errorf("%s is %s", id, got)
		}
	}
}
