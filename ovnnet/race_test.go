package ovnnet_test

import (
	"cmp"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// Controllers change leaders: for a moment there may be two.
func TestSeveralMakeOneOfEach(t *testing.T) {
	w := nbtest.NewWorld(t)
	const clients = 4
	names := []string{"blue", "red", "green"}
	var changed atomic.Int32
	var all sync.WaitGroup
	for range clients {
		n := w.Other(t)
		all.Go(func() {
			for i, name := range names {
				did, err := n.Ensure(nbtest.WithLimit(t), nbtest.Network(t, name, nbtest.Sprint(`"subnets":"10.%d.0.0/24,fd0%d::/64"`, i, i)+nbtest.OnR1), []string{"shop/" + name})
				if err != nil {
					t.Error(err)
				}
				if did {
					changed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if got := w.Switches(t); got != "shop/blue shop/green shop/red" || changed.Load() != 3 {
		t.Errorf("switches %q, made by %d; want three, made by three", got, changed.Load())
	}
	if got := w.Names(t, "Logical_Router") + ", " + w.Names(t, "Logical_Router_Port"); got != "shop/r1, shop/r1:shop/blue shop/r1:shop/green shop/r1:shop/red" {
		t.Errorf("routers and ports %q", got)
	}
}

// raceTest is something that happens between the look and the write.
type raceTest struct {
	name, from, to string
	before         func(t *testing.T, w *nbtest.World)
	meanwhile      func(t *testing.T, w *nbtest.World)
	reason         string // of the refusal; "": it becomes what it ought to
	extra          string // a port that is there beside what ought to be
	writes         string // the table that is written to; "": the switch's
}

func raceTests() []raceTest {
	const gateway = `,"gateway":"10.1.0.9"`
	lease, portKey := nbtest.KeyOf("10.1.0.1"), ovndb.RouterPortKey("shop/blue")
	const held = "gateway: its address belongs to port shop/web-0/net1"
	spoil := func(table, key string, columns ovndbtest.Op) func(*testing.T, *nbtest.World) {
		return func(t *testing.T, w *nbtest.World) { w.Change(t, table, key, columns) }
	}
	pod := func(address string) func(*testing.T, *nbtest.World) {
		return func(t *testing.T, w *nbtest.World) { w.Pod(t, "blue", address, "web-0", "net1") }
	}
	return []raceTest{
		{name: "another one was faster", from: "none", to: nbtest.Net4 + nbtest.OnR1,
			meanwhile: func(t *testing.T, w *nbtest.World) {
				nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "blue", nbtest.Net4+nbtest.OnR1))
			}},
		{name: "another one with an older NAD was faster", from: "none", to: nbtest.Net4 + nbtest.OnR1,
			meanwhile: func(t *testing.T, w *nbtest.World) {
				nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "blue", `"subnets":"10.3.0.0/24"`))
			}},
		{name: "a foreign switch came", from: "none", to: nbtest.Net4, reason: "logical switch " + nbtest.BlueKey + " is not ours",
			meanwhile: func(t *testing.T, w *nbtest.World) { w.Put(t, "Logical_Switch", nbtest.BlueKey, "x", nil) }},
		{name: "the switch went", from: nbtest.Net4, to: nbtest.Net4 + nbtest.OnR1,
			meanwhile: func(t *testing.T, w *nbtest.World) { w.Remove(t, "Logical_Switch", nbtest.BlueKey) }},
		{name: "a switch without configuration went", from: nbtest.Net4, to: nbtest.Net4 + nbtest.OnR1,
			before: spoil("Copp", nbtest.BlueAccepted, ovndbtest.Op{"external_ids": ovndbtest.Map(map[string]string{
				"ovn-multinet/network": "shop/blue"})}),
			meanwhile: func(t *testing.T, w *nbtest.World) { w.Remove(t, "Logical_Switch", nbtest.BlueKey) }},
		{name: "what was accepted went", from: nbtest.Net4, to: nbtest.Net4 + nbtest.OnR1,
			meanwhile: func(t *testing.T, w *nbtest.World) { w.Remove(t, "Copp", nbtest.BlueAccepted) }},
		{name: "the router port went", from: nbtest.Net4 + nbtest.OnR1, to: nbtest.Net4 + nbtest.OnR1, writes: "Logical_Router_Port",
			before:    spoil("Logical_Router_Port", portKey, ovndbtest.Op{"mac": "02:00:00:00:00:01"}),
			meanwhile: func(t *testing.T, w *nbtest.World) { w.DropPorts(t, "Logical_Router", ovndb.RouterKey("shop/r1")) }},
		{name: "the router went", from: nbtest.Net4 + nbtest.OnR1, to: `"subnets":"10.1.0.0/16"` + nbtest.OnR1,
			meanwhile: func(t *testing.T, w *nbtest.World) { w.Remove(t, "Logical_Router", ovndb.RouterKey("shop/r1")) }},
		{name: "the router went that it was to leave", from: nbtest.Net4 + nbtest.OnR1, to: nbtest.Net4 + `,"router":"r2"`,
			meanwhile: func(t *testing.T, w *nbtest.World) { w.Remove(t, "Logical_Router", ovndb.RouterKey("shop/r1")) }},
		{name: "the switch's end went", from: nbtest.Net4 + nbtest.OnR1, to: nbtest.Net4 + nbtest.OnR1, writes: "Logical_Switch_Port",
			before:    spoil("Logical_Switch_Port", lease, ovndbtest.Op{"type": "localport"}),
			meanwhile: func(t *testing.T, w *nbtest.World) { w.DropPorts(t, "Logical_Switch", nbtest.BlueKey) }},
		{name: "a port came when the gateway was to change", from: nbtest.Net4, to: nbtest.Net4 + gateway,
			meanwhile: pod("10.1.0.7"), extra: "shop/web-0/net1",
			reason: `gateway: 10.1.0.1 cannot become 10.1.0.9; write "gateway": "10.1.0.1" to keep it, with 1 port on the network`},
		{name: "a port came at the gateway's address", from: nbtest.Net4, to: nbtest.Net4 + nbtest.OnR1, meanwhile: pod("10.1.0.1"),
			reason: held, extra: "shop/web-0/net1"},
		{name: "a claim came at the gateway's address", from: nbtest.Net4, to: nbtest.Net4 + nbtest.OnR1, reason: held,
			meanwhile: func(t *testing.T, w *nbtest.World) { w.Claim(t, lease) }},
		{name: "a port came at the second gateway's address", from: nbtest.NetDual, to: nbtest.NetDual + nbtest.OnR1, meanwhile: pod("fd01::1"),
			reason: held, extra: "shop/web-0/net1"},
		{name: "a claim came at the second gateway's address", from: nbtest.NetDual, to: nbtest.NetDual + nbtest.OnR1, reason: held,
			meanwhile: func(t *testing.T, w *nbtest.World) { w.Claim(t, nbtest.KeyOf("fd01::1")) }},
	}
}

// What happens between the look and the write is not overwritten, and not taken for what was seen.
func TestEnsureIsRaced(t *testing.T) {
	for _, tt := range raceTests() {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", tt.to))
			want := w.Rows(t)
			w.Clear(t)
			if tt.from != "none" {
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", tt.from))
			}
			if tt.before != nil {
				tt.before(t, w)
			}
			was := w.Rows(t)["Copp"][nbtest.BlueAccepted]
			w.Meanwhile(t, cmp.Or(tt.writes, "Copp"), func() { tt.meanwhile(t, w) })
			if tt.reason == "" {
				nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", tt.to))
				w.WantRows(t, want)
				return
			}
			w.WantRefused(t, nbtest.Network(t, "blue", tt.to), tt.reason)
			if got := w.Names(t, "Logical_Switch_Port"); got != tt.extra {
				t.Errorf("ports %q, want %q", got, tt.extra)
			}
			if got := w.Rows(t)["Copp"][nbtest.BlueAccepted]; !maps.Equal(got, was) {
				t.Errorf("accepted is %v", got)
			}
		})
	}
}

// A controller that does not know yet that another leads does not undo what that one did under pods.
func TestEnsureDoesNotOverwriteWhatIsNewer(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
	grown := nbtest.Network(t, "blue", `"subnets":"10.1.0.0/16"`)
	w.Meanwhile(t, "Copp", func() {
		nbtest.Ensure(t, w.Other(t), grown)
		w.Pod(t, "blue", "10.1.9.9", "web-0", "net1")
	})
	w.WantRefused(t, nbtest.Network(t, "blue", nbtest.Net4+`,"mtu":1300`),
		"subnets: 10.1.0.0/16 cannot become 10.1.0.0/24, which does not hold all of it, with 1 port on the network")
	w.WantAccepted(t, nbtest.Accepted(grown))
}
