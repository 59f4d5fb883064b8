//go:build chaos

package chaos

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// settle ends what has to end: sandboxes that a newer one replaced, whose ADD failed, or whose pod is gone.
func (r *race) settle() (live []*sandbox) {
	ctx, cancel := limited()
	defer cancel()
	for who := range actors { // what nobody waits for is committed
		must(r.t, r.ports[who].Answers(ctx))
	}
	r.ensure(r.Networks)
	for _, p := range r.pods {
		for _, s := range p.sandboxes {
			if s.ports != nil && !s.older && !s.ended && r.isLive(s) {
				live = append(live, s)
			} else {
				r.release(ctx, 0, s, false)
			}
		}
	}
	r.settleServices(ctx)
	return live
}

// endAll ends live sandboxes and all Services.
func (r *race) endAll(live []*sandbox) {
	ctx, cancel := limited()
	defer cancel()
	for _, s := range live {
		r.release(ctx, 0, s, false)
	}
	r.endServices(ctx)
	r.ensure(r.Networks) // what the NAD says may have been refused as long as there were ports
	must(r.t, r.Networks.DeleteUnusedRouters(ctx))
}

// compare compares the rows with what was acknowledged.
func (r *race) compare(live []*sandbox) (lost, residue int) {
	expected := map[string]string{} // the owner of each row key of ports and claims
	for _, s := range live {
		for _, p := range s.ports {
			expected[p.UUID] = s.owner.Sandbox
			for _, c := range p.Claims {
				expected[c] = p.UUID
			}
		}
	}
	rows := r.Rows(r.t)
	for key, row := range rows[nb.LogicalSwitchPortTable] {
		if row["type"] == "router" {
			continue
		}
		if expected[key] == "" || expected[key] != nbtest.Ext(row, "ovn-multinet/sandbox") {
			r.say("left: port %v", row)
			residue++
		} else {
			delete(expected, key)
		}
	}
	for key, row := range rows[nb.CoppTable] {
		switch port := nbtest.Ext(row, "ovn-multinet/port"); {
		case port == "" || rows[nb.LogicalSwitchPortTable][port]["type"] == "router": // not a claim of a pod's port
		case expected[key] != port:
			r.say("left: claim %v", row)
			residue++
		default:
			delete(expected, key)
		}
	}
	for key, owner := range expected {
		r.say("lost: %s of %s", key, owner)
	}
	return len(expected), residue
}

// withoutEmptyLists returns the rows without the port lists of nodes that have no ports, and without the list of ended
// connections of Services: a node and a network keep their lists.
func (r *race) withoutEmptyLists() map[string]map[string]nbtest.Fields {
	rows := r.Rows(r.t)
	maps.DeleteFunc(rows[nb.CoppTable], func(_ string, row nbtest.Fields) bool {
		ids := strings.Fields(row["external_ids"])
		return len(ids) == 3 && slices.Contains(ids, "ovn-multinet/kind=port-list") || // with its node and its epoch
			strings.Contains(row["external_ids"], "ovn-multinet/kind="+nbrows.KindEndedServed)
	})
	if len(rows[nb.CoppTable]) == 0 {
		delete(rows, nb.CoppTable)
	}
	return rows
}

// TestPortsRace has ADDs, DELs, the reconciliation, the repair, the garbage collection, the controller, and two
// controllers of Services race on a few addresses of one network, in each order of their transactions that a random
// number chooses. After no transaction, an address has two holders, or a Service an address that it has not claimed.
func TestPortsRace(t *testing.T) {
	r := newRace(t)
	row := Row{Fault: "races of pods, agents, Services and controllers"}
	empty := map[int]map[string]map[string]nbtest.Fields{}
	for i := range configurations {
		r.begin()
		r.nad = i
		r.ensure(r.Networks)
		empty[i] = r.Rows(t)
	}
	turns := 0
	for i := 0; i < *schedules && row.Bad() < 20; i++ {
		seed := *firstSeed + uint64(i)
		rnd := rand.New(rand.NewPCG(seed, 1))
		r.begin()
		turns += r.play(rnd)
		live := r.settle()
		lost, residue := r.compare(live)
		duplicates := r.history.Duplicates()
		r.endAll(live)
		left, words := differences(r.withoutEmptyLists(), empty[r.nad])
		row.Tries, row.Lost, row.Residue = row.Tries+1, row.Lost+lost, row.Residue+residue+left
		row.Duplicates += len(duplicates) + len(r.wrong)
		if lost+residue+left+len(duplicates)+len(r.wrong) > 0 {
			t.Errorf("seed %d: %d lost, %d left, duplicates %v, wrong %v:\n%s\n%s", seed, lost, residue+left, duplicates,
				r.wrong, strings.Join(r.log, "\n"), strings.Join(words, "\n"))
		}
		if row.Tries%5000 == 0 {
			t.Logf("%d orders", row.Tries)
		}
	}
	t.Logf("%d turns", turns)
	report(t, row)
}
