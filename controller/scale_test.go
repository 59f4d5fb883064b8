package controller_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

func (r *running) wantAllReady(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		r.wantState(t, id, "ready, held")
	}
}

// fleet puts NADs into an API: some on routers, some dual stack, and all kinds on one another's subnets.
func fleet(a *api, n int) (ids []string) {
	for i := range n {
		keys := []string{
			"", nbtest.Net4, nbtest.Sprint(`"subnets":"10.%d.%d.0/24,fd01:%x::/64","router":"r%d"`, i/256, i%256, i, i%7),
			nbtest.NetDual, nbtest.Sprint(`"subnets":"fd02:%x::/64","gateway":"fd02:%x::1:0:1","router":"r%d"`, i, i, i%5),
		}[i%5]
		id := nbtest.Sprint("shop/n%d", i)
		a.apply(id, nbtest.Spec(keys))
		ids = append(ids, id)
	}
	return ids
}

// A controller that begins anew finds all in sync and writes nothing: to northd a restart is nothing.
func TestRestartWritesNothing(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	ids := fleet(a, 500)
	first := run(t, w, a)
	for _, id := range ids {
		first.touch(t, id)
	}
	first.wantAllReady(t, ids)
	first.stop()

	before, told := w.Versions(t), w.News(t)
	a.with(func() { a.watchers, a.writes, a.events, a.reads = nil, nil, nil, map[string]int{} })
	w.Proxy.Reset()
	second := run(t, w, a)
	// Each NAD is read to learn its network, to make that, and to write its state.
	eventually(t, "all", func() string {
		missing := 0
		a.with(func() {
			for _, id := range ids {
				if a.reads[id] < 3 {
					missing++
				}
			}
		})
		if missing == 0 {
			return "all"
		}
		return nbtest.Sprint("all but %d", missing)
	})
	second.stop()
	w.WantCommitted(t, 0)
	if after := w.Versions(t); !maps.Equal(before, after) {
		t.Error("rows were written")
	}
	if w.News(t) == told { // beside this announcement, it writes nothing
		t.Error("the agents are not told that another controller leads")
	}
	if len(a.writes) != 0 || len(a.events) != 0 {
		t.Errorf("states %v and events %v were written", a.writes, a.events)
	}
}

// Many networks at once are a transaction each; the first on a router makes the router.
func TestManyNetworksAtOnce(t *testing.T) {
	const networks, routers = 200, 4
	w, a := nbtest.NewWorld(t), newAPI()
	var ids []string
	for i := range networks {
		id := nbtest.Sprint("shop/n%d", i)
		a.apply(id, nbtest.Spec(nbtest.Sprint(`"subnets":"10.%d.0.0/24,fd01:%x::/64","router":"r%d"`, i, i, i%routers)))
		ids = append(ids, id)
	}
	w.Proxy.Reset()
	r := run(t, w, a)
	for _, id := range ids {
		r.touch(t, id)
	}
	r.wantAllReady(t, ids)
	w.WantCommitted(t, networks)
	rows := w.Rows(t)
	if len(rows["Logical_Switch"]) != networks || len(rows["Logical_Router"]) != routers || len(rows["Logical_Router_Port"]) != networks ||
		len(rows["Logical_Switch_Port"]) != networks || len(rows["Copp"]) != 2*networks {
		t.Errorf("%d switches, %d routers, %d and %d ports, %d claims and accepted networks", len(rows["Logical_Switch"]), len(rows["Logical_Router"]),
			len(rows["Logical_Router_Port"]), len(rows["Logical_Switch_Port"]), len(rows["Copp"]))
	}
	if a.count() != networks {
		t.Errorf("%d states written, want %d", a.count(), networks)
	}
}

// States that are right are not written again after a restart, whether a network is ready or refused.
func TestRestartWritesNoStates(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	first := run(t, w, a)
	ids := fleet(a, 10)
	for _, id := range ids {
		first.touch(t, id)
	}
	first.wantAllReady(t, ids)
	refused := map[string]string{
		"shop/invalid": `refused: network shop/invalid: subnets: "x" is not a network like 10.1.0.0/16, held`,
		"shop/overlap": "refused: router: subnet 10.0.2.0/25 overlaps 10.0.2.0/24 of network shop/n2 on router shop/r2, held",
	}
	first.apply("shop/invalid", nbtest.Spec(`"subnets":"x"`))
	first.apply("shop/overlap", nbtest.Spec(`"subnets":"10.0.2.0/25","router":"r2"`))
	for id, state := range refused {
		first.wantState(t, id, state)
		ids = append(ids, id)
	}
	first.stop()

	a.with(func() { a.watchers, a.writes, a.events = nil, nil, nil })
	second := run(t, w, a)
	for _, id := range ids {
		second.touch(t, id)
	}
	second.settle(t)
	// One NAD changes: its state is written after those that were queued before it.
	second.apply("shop/invalid", nbtest.Spec(nbtest.Net4))
	second.wantState(t, "shop/invalid", "ready, held")
	second.stop()
	for _, write := range a.writes {
		if !strings.HasPrefix(write, "shop/invalid ") {
			t.Errorf("written: %s", write)
		}
	}
	if len(a.writes) != 1 {
		t.Errorf("%d states were written, want the one that changed", len(a.writes))
	}
}
