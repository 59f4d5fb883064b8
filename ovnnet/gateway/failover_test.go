package gateway_test

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// A chassis has a turn in each gateway that it may have, and in nothing that others have made of HA chassis.
func TestTurnsOfSeveralGateways(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis("a", "b"))
	w.GatewayOf(t, "shop/r2", "a", "c")
	w.GatewayOf(t, "shop/r3", "a")
	w.Strangers(t, "theirs", "a", nil)
	w.Strangers(t, "theirs-of-e", "e", map[string]string{"owner": "someone"})
	// The mark of a router that has no group, as when the group is deleted between the two looks.
	w.Strangers(t, "theirs-with-marks", "d", map[string]string{"ovn-multinet/router": "r9"})
	w.Proxy.Reset()
	for _, tt := range []struct {
		chassis string
		want    []string
	}{
		{"a", []string{"shop/r1", "shop/r2", "shop/r3"}}, {"b", []string{"shop/r1"}}, {"c", []string{"shop/r2"}},
		{"d", nil}, {"e", nil}, {"nobody", nil}, {"", nil},
	} {
		if got := slices.Sorted(maps.Keys(turnsOf(t, w.Networks, tt.chassis))); !slices.Equal(got, tt.want) {
			t.Errorf("turns of %q: %v, want %v", tt.chassis, got, tt.want)
		}
	}
	w.WantCommitted(t, 0)

	// It follows who is taken out of a gateway, and gateways that go.
	w.GatewayOf(t, "shop/r2", "c")
	n := nbtest.ConnectFor(t, w.Endpoint(), nil)
	w.Remove(t, "Logical_Router", ovndb.GatewayKey("shop/r3")) // whose port refers to the group
	w.Remove(t, "HA_Chassis_Group", ovndb.PartKey("ha-chassis-group", "shop/r3"))
	if got := slices.Sorted(maps.Keys(turnsOf(t, n, "a"))); !slices.Equal(got, []string{"shop/r1"}) {
		t.Errorf("turns of a: %v, want that in shop/r1 alone", got)
	}
	if err := n.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if got := turnsOf(t, n, name); len(got) != 0 {
			t.Errorf("turns of %s without any gateway: %v", name, got)
		}
	}
}

// The group went between the look at the chassis and that at their group.
func TestTurnsOfAGatewayThatGoes(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis("a", "b"))
	w.GatewayOf(t, "shop/r2", "a", "b")
	looked := false
	w.Proxy.Before(func(tx ovndbtest.Transact) {
		if !looked && tx.Ops[0]["table"] == "HA_Chassis_Group" {
			looked = true
			w.Remove(t, "Logical_Router", ovndb.GatewayKey("shop/r2"))
			w.Remove(t, "HA_Chassis_Group", ovndb.PartKey("ha-chassis-group", "shop/r2"))
		}
	})
	if got := slices.Sorted(maps.Keys(turnsOf(t, w.Networks, "b"))); !slices.Equal(got, []string{"shop/r1"}) || !looked {
		t.Errorf("turns %v, want that in shop/r1 alone; it went meanwhile: %t", got, looked)
	}
}

// Whatever the priorities, whoever lives: a node took the gateway over when it has it and another one comes before it.
func TestTookOverIsWhatOVNDoes(t *testing.T) {
	w := nbtest.NewWorld(t)
	for _, priorities := range []map[string]int{
		{"a": 5},
		{"a": 20, "b": 10}, {"a": 10, "b": 20}, {"a": 1, "b": 32767},
		{"a": 30, "b": 20, "c": 10}, {"a": 30, "b": 10, "c": 20}, {"a": 20, "b": 30, "c": 10},
		{"a": 10, "b": 30, "c": 20}, {"a": 20, "b": 10, "c": 30}, {"a": 10, "b": 20, "c": 30},
	} {
		names := slices.Sorted(maps.Keys(priorities))
		nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis(names...))
		w.SetPriorities(t, priorities)
		first := slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(priorities[a], priorities[b]) })
		for _, me := range names {
			turn := turnsOf(t, w.Networks, me)["shop/r1"]
			others := append(slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == me }), "stranger")
			for subset := range 1 << len(others) {
				alive := map[string]bool{}
				for i, name := range others {
					if subset>>i&1 == 1 {
						alive[name] = true
					}
				}
				want := me != first && hosts(priorities, me, alive)
				if got := turn.TookOver(me, alive); got != want {
					t.Errorf("priorities %v, %s reaches %v: %t, want %t", priorities, me, alive, got, want)
				}
			}
		}
	}
}

// Who is made first gets the next higher priority, and no other row is written as long as there is one.
func TestMakeFirstWritesNoMoreThanItMust(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis("a", "b", "c"))
	for _, tt := range []struct {
		name, chassis string
		have, want    map[string]int
	}{
		{"the second", "b", map[string]int{"a": 30, "b": 20, "c": 10}, map[string]int{"b": 31, "a": 30, "c": 10}},
		{"the last", "c", map[string]int{"a": 30, "b": 20, "c": 10}, map[string]int{"c": 31, "a": 30, "b": 20}},
		{"just room", "a", map[string]int{"b": 32766, "a": 20, "c": 10}, map[string]int{"a": 32767, "b": 32766, "c": 10}},
		{"no room", "b", map[string]int{"a": 32767, "b": 20, "c": 10}, map[string]int{"b": 16384, "a": 16383, "c": 16382}},
		{"no room, for the last", "c", map[string]int{"a": 32767, "b": 32766, "c": 0}, map[string]int{"c": 16384, "a": 16383, "b": 16382}},
		{"from nothing", "a", map[string]int{"b": 1, "c": 2, "a": 0}, map[string]int{"a": 3, "c": 2, "b": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.SetPriorities(t, tt.have)
			turn := turnsOf(t, w.Networks, tt.chassis)["shop/r1"]
			before := w.Versions(t)
			w.Proxy.Reset()
			updates := 0
			w.Proxy.Before(func(tx ovndbtest.Transact) {
				for _, op := range tx.Ops {
					if op["op"] == "update" {
						updates++
					}
				}
			})
			made, err := w.Networks.Node.MakeFirst(nbtest.WithLimit(t), turn, tt.chassis)
			w.Proxy.Before(nil)
			if err != nil || made != !maps.Equal(tt.have, tt.want) {
				t.Errorf("made %t, error %v", made, err)
			}
			written, changed := 0, 0
			for name, p := range tt.want {
				if tt.have[name] != p {
					changed++
				}
			}
			for row, version := range w.Versions(t) {
				if before[row] != version {
					written++
				}
			}
			if got := w.PrioritiesOf(t); !maps.Equal(got, tt.want) || written != changed || updates != changed {
				t.Errorf("priorities %v, %d rows written by %d updates; want %v, %d", got, written, updates, tt.want, changed)
			}
			w.WantCommitted(t, 1)
		})
	}
}

// Of members that are alike nobody can say which is first: the one that has the gateway is, afterwards.
func TestMakeFirstOfMembersThatAreAlike(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis("a", "b", "c"))
	w.SetPriorities(t, map[string]int{"a": 9, "b": 9, "c": 8})
	makeFirst(t, w.Networks, "c")
	names, priorities := w.Order(t)
	if names[0] != "c" || !slices.Equal(priorities, []int{16384, 16383, 16382}) {
		t.Errorf("order %v with %v, want c first", names, priorities)
	}
}

// Who is the first already stays that without a word to the database, whatever is between it and the next.
func TestMakeFirstOfTheFirst(t *testing.T) {
	w := nbtest.NewWorld(t)
	for _, have := range []map[string]int{{"a": 16384, "b": 16383}, {"a": 30, "b": 20}, {"a": 32767, "b": 0}, {"a": 7}} {
		nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis(slices.Sorted(maps.Keys(have))...))
		w.SetPriorities(t, have)
		turn := turnsOf(t, w.Networks, "a")["shop/r1"]
		w.Proxy.Reset()
		if made, err := w.Networks.Node.MakeFirst(nbtest.WithLimit(t), turn, "a"); err != nil || made {
			t.Errorf("priorities %v: made %t, error %v", have, made, err)
		}
		w.WantNotAsked(t)
		if got := w.PrioritiesOf(t); !maps.Equal(got, have) {
			t.Errorf("priorities %v became %v", have, got)
		}
	}
}

// Who is none of the gateway's nodes, or none any more by the look, does not ask the database for anything.
func TestMakeFirstOfAStranger(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis("a", "b"))
	turn := turnsOf(t, w.Networks, "a")["shop/r1"]
	w.Proxy.Reset()
	if made, err := w.Networks.Node.MakeFirst(nbtest.WithLimit(t), turn, "c"); err != nil || made {
		t.Errorf("made %t, error %v", made, err)
	}
	w.WantNotAsked(t)
}

// An order that has changed since the look is left as it is.
func TestMakeFirstOnALookThatIsOld(t *testing.T) {
	for _, tt := range []struct {
		name      string
		meanwhile func(t *testing.T, w *nbtest.World)
		want      map[string]int
	}{
		{"one before it moved", func(t *testing.T, w *nbtest.World) { w.SetPriorities(t, map[string]int{"a": 15}) }, map[string]int{"a": 15, "b": 20, "c": 10}},
		{"one behind it moved", func(t *testing.T, w *nbtest.World) { w.SetPriorities(t, map[string]int{"c": 25}) }, map[string]int{"a": 30, "b": 20, "c": 25}},
		{"it moved itself", func(t *testing.T, w *nbtest.World) { w.SetPriorities(t, map[string]int{"b": 5}) }, map[string]int{"a": 30, "b": 5, "c": 10}},
		{"another one has taken it over", func(t *testing.T, w *nbtest.World) { makeFirst(t, w.Other(t), "c") }, map[string]int{"c": 31, "a": 30, "b": 20}},
		{"one behind it went", func(t *testing.T, w *nbtest.World) {
			nbtest.EnsureGateway(t, w.Other(t), nbtest.GwFull, nbtest.Chassis("a", "b"))
		}, map[string]int{"a": 30, "b": 20}},
		{"it went", func(t *testing.T, w *nbtest.World) {
			nbtest.EnsureGateway(t, w.Other(t), nbtest.GwFull, nbtest.Chassis("a", "c"))
		}, map[string]int{"a": 30, "c": 10}},
		{"it went and came", func(t *testing.T, w *nbtest.World) {
			nbtest.EnsureGateway(t, w.Other(t), nbtest.GwFull, nbtest.Chassis("a", "c"))
			nbtest.EnsureGateway(t, w.Other(t), nbtest.GwFull, nbtest.Chassis("a", "b", "c"))
		}, map[string]int{"a": 30, "c": 10, "b": 9}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis("a", "b", "c"))
			w.SetPriorities(t, map[string]int{"a": 30, "b": 20, "c": 10})
			turn := turnsOf(t, w.Networks, "b")["shop/r1"]
			tt.meanwhile(t, w)
			before := w.Versions(t)
			w.Proxy.Reset()
			if made, err := w.Networks.Node.MakeFirst(nbtest.WithLimit(t), turn, "b"); err != nil || made {
				t.Errorf("made %t, error %v; want neither: the next look decides", made, err)
			}
			if got := w.Proxy.Counts(); got.Committed != 0 || got.Refused != 1 {
				t.Errorf("transactions %+v, want one that is refused", got)
			}
			if after := w.Versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
			if got := w.PrioritiesOf(t); !maps.Equal(got, tt.want) {
				t.Errorf("priorities %v, want %v", got, tt.want)
			}
		})
	}
}

// A new node comes behind all others, so it is in nobody's way.
func TestMakeFirstWhileANodeComes(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis("a", "b"))
	w.SetPriorities(t, map[string]int{"a": 30, "b": 20})
	turn := turnsOf(t, w.Networks, "b")["shop/r1"]
	nbtest.EnsureGateway(t, w.Other(t), nbtest.GwFull, nbtest.Chassis("a", "b", "c"))
	if made, err := w.Networks.Node.MakeFirst(nbtest.WithLimit(t), turn, "b"); err != nil || !made {
		t.Errorf("made %t, error %v", made, err)
	}
	if got, want := w.PrioritiesOf(t), map[string]int{"b": 31, "a": 30, "c": 19}; !maps.Equal(got, want) {
		t.Errorf("priorities %v, want %v", got, want)
	}
}

// With the answer lost nobody knows what was committed; the next look does.
func TestMakeFirstWithItsAnswerLost(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis("a", "b"))
	w.SetPriorities(t, map[string]int{"a": 30, "b": 20})
	w.Proxy.DropNextReply()
	made, err := w.Networks.Node.MakeFirst(nbtest.WithLimit(t), turnsOf(t, w.Networks, "b")["shop/r1"], "b")
	if made || !errors.Is(err, ovndb.ErrUnknownOutcome) {
		t.Errorf("made %t, error %v; want an unknown outcome", made, err)
	}
	if got, want := w.PrioritiesOf(t), map[string]int{"b": 31, "a": 30}; !maps.Equal(got, want) {
		t.Errorf("priorities %v, want %v", got, want)
	}
	n := w.Other(t)
	if turnsOf(t, n, "b")["shop/r1"].TookOver("b", map[string]bool{"c": true}) {
		t.Error("it is the first, and took over from nobody")
	}
}
