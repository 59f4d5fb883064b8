package controller_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// seeNetworks is the end of each Event of a network that is not ready.
const seeNetworks = " (kubectl multinet network list shows the state of all networks)"

// What is on a NAD is written once, and its owner is told each news once.
func TestStatesAreWrittenOnce(t *testing.T) {
	r := run(t, nbtest.NewWorld(t), newAPI())
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/blue", "ready, held")
	var state string
	r.with(func() { state = r.nads["shop/blue"].State })
	for range 3 {
		r.touch(t, "shop/blue")
	}
	r.settle(t)
	r.apply("shop/blue", nbtest.Spec("x")) // twice the same news
	r.wantState(t, "shop/blue", "refused: network shop/blue: not valid JSON: invalid character 'x' looking for beginning of object key string, held")
	r.touch(t, "shop/blue")
	r.settle(t)
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/blue", "ready, held")
	r.settle(t)

	var writes []string
	r.with(func() {
		for _, write := range r.writes {
			if strings.HasPrefix(write, "shop/blue ") {
				writes = append(writes, write)
			}
		}
	})
	if len(writes) != 3 || writes[0] != "shop/blue "+state || !strings.HasPrefix(state, `{"ready":true,"since":"`) {
		t.Errorf("written %q, want three, the first %q", writes, state)
	}
	wantEvents(t, r.api, "shop/blue", "Normal shop/blue NetworkReady the network is there as described",
		"Warning shop/blue NetworkRefused network shop/blue: not valid JSON: invalid character 'x' looking for beginning of object key string"+seeNetworks,
		"Normal shop/blue NetworkReady the network is there as described")
}

// wantEvents compares the Events of a NAD.
func wantEvents(t *testing.T, a *api, id string, want ...string) {
	t.Helper()
	eventually(t, strings.Join(want, "\n"), func() string {
		var got []string
		for _, event := range strings.Split(a.eventLines(), "\n") {
			if strings.Contains(event, " "+id+" ") {
				got = append(got, event)
			}
		}
		return strings.Join(got, "\n")
	})
}

// A network in use stays until its last port goes, and says whose ports they are; its NAD goes last.
func TestDeletion(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	r := run(t, w, a)
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	r.wantState(t, "shop/blue", "ready, held")
	r.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
	r.Machine(t, "shop/blue", nbtest.Strange, "vm")
	// Nobody may see the NAD gone and its rows there.
	w.Proxy.Before(func(tx ovndbtest.Transact) {
		if tx.Writes && a.state("shop/blue") == "gone" {
			t.Errorf("rows are written after the NAD is gone: %v", tx.Ops)
		}
	})
	r.deleteNAD(t, "shop/blue")
	r.wantState(t, "shop/blue", "refused: being deleted, used by port vm (not ours), pod shop/web-0, held")
	if got := w.Rows(t)["Copp"][nbtest.BlueAccepted]["external_ids"]; strings.Contains(got, ovndb.AcceptedPrefix) {
		t.Errorf("it takes new ports: %s", got)
	}
	w.Change(t, "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"ports": ovndbtest.Set(ovndbtest.UUID(nbtest.KeyOf("10.1.0.1")), ovndbtest.UUID(nbtest.KeyOf("10.1.0.7")))})
	r.wantState(t, "shop/blue", "refused: being deleted, used by pod shop/web-0, held")
	if got := w.Names(t, "Logical_Switch_Port"); got != "shop/blue:shop/r1 shop/web-0/net1" {
		t.Errorf("ports %q", got)
	}
	w.Change(t, "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"ports": ovndbtest.UUID(nbtest.KeyOf("10.1.0.1"))})
	r.wantState(t, "shop/blue", "gone")
	w.Proxy.Before(nil)
	r.WantRows(t, map[string]map[string]nbtest.Fields{})
	wantEvents(t, a, "shop/blue", "Normal shop/blue NetworkReady the network is there as described",
		"Warning shop/blue NetworkInUse being deleted, used by port vm (not ours), pod shop/web-0"+seeNetworks,
		"Warning shop/blue NetworkInUse being deleted, used by pod shop/web-0"+seeNetworks)
}

// The owner may want the network gone with every port, from the beginning or when it is seen what hangs.
func TestForceDelete(t *testing.T) {
	for name, late := range map[string]bool{"at once": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			r := run(t, nbtest.NewWorld(t), newAPI())
			r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
			r.wantState(t, "shop/blue", "ready, held")
			r.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
			r.Claim(t, nbtest.KeyOf("10.1.0.8"))
			if late {
				r.deleteNAD(t, "shop/blue")
				r.wantState(t, "shop/blue", "refused: being deleted, used by pod shop/web-0, held")
			}
			if err := r.update("shop/blue", func(n *netmodel.NAD) error { n.Deleting, n.ForceDelete = true, true; return nil }); err != nil {
				t.Fatal(err)
			}
			r.wantState(t, "shop/blue", "gone")
			r.WantRows(t, map[string]map[string]nbtest.Fields{})
		})
	}
	t.Run("of a NAD that is not deleted", func(t *testing.T) {
		r := run(t, nbtest.NewWorld(t), newAPI())
		r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
		r.wantState(t, "shop/blue", "ready, held")
		r.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
		want := r.Rows(t)
		if err := r.update("shop/blue", func(n *netmodel.NAD) error { n.ForceDelete = true; return nil }); err != nil {
			t.Fatal(err)
		}
		r.settle(t)
		r.WantRows(t, want)
	})
}

// A NAD that was changed to what nobody can read, or that something else holds too, can be deleted all the same.
func TestDeletionOfOddNADs(t *testing.T) {
	t.Run("unreadable", func(t *testing.T) {
		w, a := nbtest.NewWorld(t), newAPI()
		r := run(t, w, a)
		r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
		r.wantState(t, "shop/blue", "ready, held")
		r.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
		r.apply("shop/blue", "{")
		r.wantState(t, "shop/blue", "refused: network shop/blue: not valid JSON: unexpected end of JSON input, held")
		r.deleteNAD(t, "shop/blue")
		r.wantState(t, "shop/blue", "refused: being deleted, used by pod shop/web-0, held")
		r.DropPorts(t, "Logical_Switch", nbtest.BlueKey)
		r.wantState(t, "shop/blue", "gone")
		r.WantRows(t, map[string]map[string]nbtest.Fields{})
	})
	t.Run("unreadable while no controller ran", func(t *testing.T) {
		w, a := nbtest.NewWorld(t), newAPI()
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
		for _, id := range []string{"shop/blue", "shop/never-made"} {
			a.apply(id, "{")
			a.with(func() { a.nads[id].HasFinalizer, a.nads[id].Deleting = true, true })
		}
		r := run(t, w, a)
		for _, id := range []string{"shop/blue", "shop/never-made"} {
			r.touch(t, id)
			r.wantState(t, id, "gone")
		}
		r.wantSwitches(t, "")
	})
	t.Run("our finalizer came too late", func(t *testing.T) {
		w, a := nbtest.NewWorld(t), newAPI()
		nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
		w.Pod(t, "blue", "10.1.0.7", "web-0", "net1")
		a.apply("shop/blue", nbtest.Spec(nbtest.Net4))
		a.with(func() { a.nads["shop/blue"].Deleting = true }) // another one's finalizer holds it
		r := run(t, w, a)
		// The API takes no new finalizers now; the state it does take.
		eventually(t, "Warning shop/blue NetworkInUse being deleted, used by pod shop/web-0"+seeNetworks, r.eventLines)
	})
}

// An API that does not take states keeps no network waiting; what was not written is written later.
func TestStatesKeepNoNetworkWaiting(t *testing.T) {
	t.Run("it hangs", func(t *testing.T) {
		w, a := nbtest.NewWorld(t), newAPI()
		hold := make(chan struct{})
		a.hold["shop/blue"] = hold
		r := run(t, w, a)
		r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
		eventually(t, "1", func() string { return r.begun("shop/blue") })
		r.apply("shop/red", nbtest.Spec(nbtest.Net4))
		r.apply("shop/green", nbtest.Spec(nbtest.Net4))
		r.wantSwitches(t, "shop/blue shop/green shop/red")
		r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
		eventually(t, "shop/r1:shop/blue", func() string { return r.Names(t, "Logical_Router_Port") })
		if got := r.state("shop/blue"); got != "nothing" {
			t.Errorf("shop/blue is %s", got)
		}
		close(hold)
		for _, id := range []string{"shop/blue", "shop/red", "shop/green"} {
			r.wantState(t, id, "ready, held")
		}
	})
	t.Run("it refuses", func(t *testing.T) {
		w, a := nbtest.NewWorld(t), newAPI()
		a.refuse = errors.New("conflict")
		r := run(t, w, a)
		r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
		r.apply("shop/red", nbtest.Spec(`"subnets":"x"`))
		r.wantSwitches(t, "shop/blue")
		r.apply("shop/green", nbtest.Spec(nbtest.Net4))
		r.wantSwitches(t, "shop/blue shop/green")
		eventually(t, "true", func() string {
			tried := false
			r.with(func() { tried = r.held["shop/blue"] > 1 && r.held["shop/red"] > 1 && r.held["shop/green"] > 1 })
			return nbtest.Sprint("%t", tried)
		})
		if got := r.eventLines(); got != "" {
			t.Errorf("events of what is not written: %s", got)
		}
		r.with(func() { r.refuse = nil })
		r.wantState(t, "shop/blue", "ready, held")
		r.wantState(t, "shop/green", "ready, held")
		r.wantState(t, "shop/red", `refused: network shop/red: subnets: "x" is not a network like 10.1.0.0/16, held`)
	})
}

func (a *api) begun(id string) (n string) {
	a.with(func() { n = nbtest.Sprint("%d", a.held[id]) })
	return n
}

// A network that something is in the way of says what, and becomes ready by itself when that goes.
func TestRefusedNetworksAreTriedAgain(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	r := run(t, w, a)
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	r.wantState(t, "shop/blue", "ready, held")
	r.apply("shop/red", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	r.wantState(t, "shop/red", "refused: router: subnet 10.1.0.0/24 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1, held")
	w.Put(t, "Logical_Switch", ovndb.SwitchKey("shop/green"), "x", nil)
	r.apply("shop/green", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/green", "refused: logical switch "+ovndb.SwitchKey("shop/green")+" is not ours, held")
	r.apply("shop/pods", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/pods", "ready, held")
	r.Pod(t, "pods", "10.1.0.7", "web-0", "net1")
	inForce := r.Rows(t)["Logical_Switch"][ovndb.SwitchKey("shop/pods")]
	r.apply("shop/pods", nbtest.Spec(`"subnets":"10.1.0.0/25"`))
	r.wantState(t, "shop/pods", "refused: subnets: 10.1.0.0/24 cannot become 10.1.0.0/25, which does not hold all of it, with 1 port on the network, held")
	if got := r.Rows(t)["Logical_Switch"][ovndb.SwitchKey("shop/pods")]; nbtest.Sprint("%v", got) != nbtest.Sprint("%v", inForce) {
		t.Errorf("the switch %v became %v", inForce, got)
	}

	r.deleteNAD(t, "shop/blue")
	w.Remove(t, "Logical_Switch", ovndb.SwitchKey("shop/green"))
	r.DropPorts(t, "Logical_Switch", ovndb.SwitchKey("shop/pods"))
	for _, id := range []string{"shop/red", "shop/green", "shop/pods"} {
		r.wantState(t, id, "ready, held")
	}
	if got := r.Switches(t) + ", " + r.Names(t, "Logical_Router_Port"); got != "shop/green shop/pods shop/red, shop/r1:shop/red" {
		t.Errorf("switches and router ports %q", got)
	}
	wantEvents(t, a, "shop/red", "Warning shop/red NetworkRefused router: subnet 10.1.0.0/24 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1"+seeNetworks,
		"Normal shop/red NetworkReady the network is there as described")
}

// A configuration that no source keeps is refused by its size, and the network stays as it is.
func TestBoundaryLargeNetworksAreRefused(t *testing.T) {
	r := run(t, nbtest.NewWorld(t), newAPI())
	large := strings.TrimSuffix(nbtest.Spec(nbtest.Net4), "}") + `,"excludeSubnets":"` + strings.Repeat(" ", 20000) + `"}`
	refused := fmt.Sprintf("spec.config: %d bytes are more than 16384, held", len(large))
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/blue", "ready, held")
	r.apply("shop/blue", large)
	r.wantState(t, "shop/blue", "refused: network shop/blue: "+refused)
	r.apply("shop/new", large)
	r.wantState(t, "shop/new", "refused: network shop/new: "+refused)
	r.settle(t)
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/blue", "ready, held")
}

// What the controller says has a bound, also where it compares what tenants wrote, and is said once.
func TestBoundaryReasonsAreShort(t *testing.T) {
	r := run(t, nbtest.NewWorld(t), newAPI())
	overlay := func(nad, last string) string {
		var exclude []string
		for i := range 250 {
			exclude = append(exclude, fmt.Sprintf("10.100.200.%d/32", i))
		}
		return fmt.Sprintf(`{"cniVersion":"1.0.0","type":"ovn-k8s-cni-overlay","name":"tenant","topology":"layer2","subnets":"10.100.0.0/16","netAttachDefName":%q,"excludeSubnets":%q}`,
			nad, strings.Join(append(exclude, last), ","))
	}
	r.apply("shop/first", overlay("shop/first", "10.100.1.1/32"))
	r.wantState(t, "shop/first", "ready, held")
	r.apply("shop/other", overlay("shop/other", "10.100.1.2/32"))
	eventually(t, "refused", func() string { return r.state("shop/other")[:min(7, len(r.state("shop/other")))] })
	for range 3 {
		r.touch(t, "shop/other")
	}
	r.settle(t)
	if reason := r.state("shop/other"); len(reason) > conf.MaxReason+30 || !strings.HasSuffix(reason, "…, held") {
		t.Errorf("a reason of %d bytes: %.200s", len(reason), reason)
	}
	_, event, _ := strings.Cut(r.eventLines(), "shop/other NetworkRefused ")
	if event, _, _ = strings.Cut(event, "\n"); len(event) > conf.MaxReason || !strings.HasSuffix(event, "…"+seeNetworks) {
		t.Errorf("an Event of %d bytes: %.200s", len(event), event)
	}
	r.with(func() {
		n := 0
		for _, write := range r.writes {
			if strings.HasPrefix(write, "shop/other ") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d writes, want one: %q", n, r.writes)
		}
	})
}
