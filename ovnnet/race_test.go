package ovnnet_test

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

func sprint(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// Controllers change leaders: for a moment there may be two.
func TestSeveralMakeOneOfEach(t *testing.T) {
	w := newWorld(t)
	const clients = 4
	names := []string{"blue", "red", "green"}
	var changed atomic.Int32
	var all sync.WaitGroup
	for range clients {
		n := w.other(t)
		all.Go(func() {
			for i, name := range names {
				did, err := n.Ensure(withLimit(t), network(t, name, sprint(`"subnets":"10.%d.0.0/24,fd0%d::/64"`, i, i)+onR1), []string{"shop/" + name})
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
	if got := w.switches(t); got != "shop/blue shop/green shop/red" || changed.Load() != 3 {
		t.Errorf("switches %q, made by %d; want three, made by three", got, changed.Load())
	}
	if got := w.names(t, "Logical_Router") + ", " + w.names(t, "Logical_Router_Port"); got != "shop/r1, shop/r1:shop/blue shop/r1:shop/green shop/r1:shop/red" {
		t.Errorf("routers and ports %q", got)
	}
}

// raceTest is something that happens between the look and the write.
type raceTest struct {
	name, from, to string
	before         func(t *testing.T, w *world)
	meanwhile      func(t *testing.T, w *world)
	reason         string // of the refusal; "": it becomes what it ought to
	extra          string // a port that is there beside what ought to be
	writes         string // the table that is written to; "": the switch's
}

func raceTests() []raceTest {
	const gateway = `,"gateway":"10.1.0.9"`
	lease, portKey := keyOf("10.1.0.1"), ovndb.RouterPortKey("shop/blue")
	const held = "gateway: its address is held by port shop/web-0/net1"
	spoil := func(table, key string, columns ovndbtest.Op) func(*testing.T, *world) {
		return func(t *testing.T, w *world) { w.change(t, table, key, columns) }
	}
	pod := func(address string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) { w.pod(t, "blue", address, "web-0", "net1") }
	}
	return []raceTest{
		{name: "another one was faster", from: "none", to: net4 + onR1,
			meanwhile: func(t *testing.T, w *world) { ensure(t, w.other(t), network(t, "blue", net4+onR1)) }},
		{name: "another one with an older NAD was faster", from: "none", to: net4 + onR1,
			meanwhile: func(t *testing.T, w *world) { ensure(t, w.other(t), network(t, "blue", `"subnets":"10.3.0.0/24"`)) }},
		{name: "a foreign switch came", from: "none", to: net4, reason: "logical switch " + blueKey + " is not ours",
			meanwhile: func(t *testing.T, w *world) { w.put(t, "Logical_Switch", blueKey, "x", nil) }},
		{name: "the switch went", from: net4, to: net4 + onR1,
			meanwhile: func(t *testing.T, w *world) { w.remove(t, "Logical_Switch", blueKey) }},
		{name: "a switch without configuration went", from: net4, to: net4 + onR1,
			before: spoil("Logical_Switch", blueKey, ovndbtest.Op{"external_ids": ovndbtest.Map(map[string]string{
				"ovn-multinet/network": "shop/blue"})}),
			meanwhile: func(t *testing.T, w *world) { w.remove(t, "Logical_Switch", blueKey) }},
		{name: "the router port went", from: net4 + onR1, to: net4 + onR1, writes: "Logical_Router_Port",
			before:    spoil("Logical_Router_Port", portKey, ovndbtest.Op{"mac": "02:00:00:00:00:01"}),
			meanwhile: func(t *testing.T, w *world) { w.dropPorts(t, "Logical_Router", ovndb.RouterKey("shop/r1")) }},
		{name: "the router went", from: net4 + onR1, to: `"subnets":"10.1.0.0/16"` + onR1,
			meanwhile: func(t *testing.T, w *world) { w.remove(t, "Logical_Router", ovndb.RouterKey("shop/r1")) }},
		{name: "the router went that it was to leave", from: net4 + onR1, to: net4 + `,"router":"r2"`,
			meanwhile: func(t *testing.T, w *world) { w.remove(t, "Logical_Router", ovndb.RouterKey("shop/r1")) }},
		{name: "the switch's end went", from: net4 + onR1, to: net4 + onR1, writes: "Logical_Switch_Port",
			before:    spoil("Logical_Switch_Port", lease, ovndbtest.Op{"type": "localport"}),
			meanwhile: func(t *testing.T, w *world) { w.dropPorts(t, "Logical_Switch", blueKey) }},
		{name: "a port came when the gateway was to change", from: net4, to: net4 + gateway,
			meanwhile: pod("10.1.0.7"), extra: "shop/web-0/net1",
			reason: `gateway: 10.1.0.1 cannot become 10.1.0.9; write "gateway": "10.1.0.1" to keep it, with 1 port on the network`},
		{name: "a port came at the gateway's address", from: net4, to: net4 + onR1, meanwhile: pod("10.1.0.1"),
			reason: held, extra: "shop/web-0/net1"},
		{name: "a claim came at the gateway's address", from: net4, to: net4 + onR1, reason: held,
			meanwhile: func(t *testing.T, w *world) { w.claim(t, lease) }},
		{name: "a port came at the second gateway's address", from: netDual, to: netDual + onR1, meanwhile: pod("fd01::1"),
			reason: held, extra: "shop/web-0/net1"},
		{name: "a claim came at the second gateway's address", from: netDual, to: netDual + onR1, reason: held,
			meanwhile: func(t *testing.T, w *world) { w.claim(t, keyOf("fd01::1")) }},
	}
}

// What happens between the look and the write is not overwritten, and not taken for what was seen.
func TestEnsureIsRaced(t *testing.T) {
	for _, tt := range raceTests() {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			ensure(t, w.networks, network(t, "blue", tt.to))
			want := w.rows(t)
			w.clear(t)
			if tt.from != "none" {
				ensure(t, w.networks, network(t, "blue", tt.from))
			}
			if tt.before != nil {
				tt.before(t, w)
			}
			was := w.rows(t)["Logical_Switch"][blueKey]["external_ids"]
			w.meanwhile(t, cmp.Or(tt.writes, "Logical_Switch"), func() { tt.meanwhile(t, w) })
			if tt.reason == "" {
				ensure(t, w.networks, network(t, "blue", tt.to))
				w.wantRows(t, want)
				return
			}
			w.wantRefused(t, network(t, "blue", tt.to), tt.reason)
			if got := w.names(t, "Logical_Switch_Port"); got != tt.extra {
				t.Errorf("ports %q, want %q", got, tt.extra)
			}
			if got := w.rows(t)["Logical_Switch"][blueKey]["external_ids"]; got != was {
				t.Errorf("the switch became %s", got)
			}
		})
	}
}

// A controller that does not know yet that another leads does not undo what that one did under pods.
func TestEnsureDoesNotOverwriteWhatIsNewer(t *testing.T) {
	w := newWorld(t)
	ensure(t, w.networks, network(t, "blue", net4))
	grown := network(t, "blue", `"subnets":"10.1.0.0/16"`)
	w.meanwhile(t, "Logical_Switch", func() {
		ensure(t, w.other(t), grown)
		w.pod(t, "blue", "10.1.9.9", "web-0", "net1")
	})
	w.wantRefused(t, network(t, "blue", net4+`,"mtu":1300`),
		"subnets: 10.1.0.0/16 cannot become 10.1.0.0/24, which does not hold all of it, with 1 port on the network")
	if got := w.rows(t)["Logical_Switch"][blueKey]["external_ids"]; got != ids(grown, "10.1.0.1") {
		t.Errorf("external_ids %s", got)
	}
}
