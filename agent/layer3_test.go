package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/plan"
)

// What pods get on a network that gives each node a block of its own. The controller is the real one, on a connection of
// its own, so what the proxy counts is the agent's.

const l3 = `{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/16/24","mtu":1400}`

// layer3 is a rig with the controller's hands.
type layer3 struct {
	*rig
	networks *ovnnet.Networks
}

func newLayer3(t *testing.T) *layer3 {
	t.Helper()
	r := newRig(t)
	model, err := nb.FullDatabaseModel()
	r.must(err)
	db, err := ovndb.Open(ovndb.Config{Name: "NB", Endpoints: []string{r.nb.Endpoint()}, Model: model, Log: slog.New(slog.DiscardHandler)})
	r.must(err)
	t.Cleanup(db.Close)
	return &layer3{rig: r, networks: ovnnet.New(db, nil)}
}

// ensure is the controller: it accepts shop/l3 as it is configured now.
func (r *layer3) ensure(config string) *conf.Network {
	r.t.Helper()
	n := r.network("l3", config)
	_, err := r.networks.Ensure(r.t.Context(), n, []string{n.NAD()})
	r.must(err)
	return n
}

// has is a network whose NAD says what is in force.
func (r *layer3) has(config string) *conf.Network {
	r.t.Helper()
	r.source.nads["l3"] = conf.NAD{Config: config}
	return r.ensure(config)
}

// share gives a node its block, as that node's agent would.
func (r *layer3) share(n *conf.Network, node string) netip.Prefix {
	r.t.Helper()
	view, err := r.networks.Share(r.t.Context(), n, node)
	r.must(err)
	return view.Subnets[0]
}

// give has another node take a block that is free.
func (r *layer3) give(n *conf.Network, block string) (node string) {
	r.t.Helper()
	for i := range 5000 {
		node = fmt.Sprint("other", i)
		if r.share(n, node).String() == block {
			return node
		}
		r.must(r.networks.DropNode(r.t.Context(), n.ID(), node))
	}
	r.t.Fatalf("nobody gets block %s", block)
	return ""
}

// blocks reads who has which block from the nodes' switches, and demands that the claims say the same.
func (r *layer3) blocks() map[string]string {
	r.t.Helper()
	tables := r.nb.DumpTables(r.t, "Logical_Switch", "Copp")
	of, claimed := map[string]string{}, map[string]string{}
	for _, row := range tables["Logical_Switch"] {
		ids := row["external_ids"].(map[string]string)
		if node := ids["ovn-multinet/node"]; node != "" {
			of[node] = ids["ovn-multinet/blocks"]
		}
	}
	for _, row := range tables["Copp"] {
		if block, ok := strings.CutPrefix(row["name"].(string), "ovn-multinet shop/l3 block "); ok {
			claimed[row["external_ids"].(map[string]string)["ovn-multinet/node"]] = block
		}
	}
	if !maps.Equal(of, claimed) {
		r.t.Errorf("the switches say %v, the claims %v", of, claimed)
	}
	return of
}

// pods lists the pods' ports that are in NB, and demands that each is on this node's switch.
func (r *layer3) pods() []string {
	r.t.Helper()
	tables := r.nb.DumpTables(r.t, "Logical_Switch", "Logical_Switch_Port")
	names := []string{}
	for _, row := range tables["Logical_Switch_Port"] {
		ids := row["external_ids"].(map[string]string)
		if ids["ovn-multinet/sandbox"] == "" {
			continue
		}
		names = append(names, row["name"].(string))
		want := ids["ovn-multinet/network"]
		if want == "shop/l3" {
			want += "@node1"
		}
		for _, sw := range tables["Logical_Switch"] {
			if holds := slices.Contains(ovndbtest.Strings(sw["ports"]), row["_uuid"].(string)); holds != (sw["name"] == want) {
				r.t.Errorf("port %v on switch %v: %t", row["name"], sw["name"], holds)
			}
		}
	}
	slices.Sort(names)
	return names
}

func (r *layer3) wantPods(names ...string) {
	r.t.Helper()
	if got := r.pods(); !slices.Equal(got, append([]string{}, names...)) {
		r.t.Errorf("ports of pods %v, want %v", got, names)
	}
}

// wantNone demands the error of a plan that made no port.
func (r *layer3) wantNone(err error, code uint, want string) {
	r.t.Helper()
	wantCoded(r.t, err, code, want)
	if !errors.Is(err, plan.ErrClean) {
		r.t.Errorf("%v: the plugin would ask for a release", err)
	}
	r.wantPods()
}

func (r *layer3) wantCounts(committed, refused, readOnly int) {
	r.t.Helper()
	got := r.proxy.Counts()
	if got.Committed != committed || got.Refused != refused || got.ReadOnly != readOnly {
		r.t.Errorf("transactions: %d committed, %d refused, %d read-only; want %d, %d, %d",
			got.Committed, got.Refused, got.ReadOnly, committed, refused, readOnly)
	}
	r.proxy.Reset()
}

// on asks for one interface on shop/l3: sandboxes with interfaces of their own stand for pods of their own.
func on(name string) string { return `[{"name":"l3","interface":"` + name + `"}]` }

// wantIn demands an interface with an address of the block, and routes.
func wantIn(t *testing.T, i plan.Interface, block netip.Prefix, routes string) {
	t.Helper()
	if len(i.Addresses) != 1 || i.Addresses[0].Masked() != block || showRoutes(i.Routes) != routes {
		t.Errorf("interface %+v, want an address of %s and the routes %q", i, block, routes)
	}
}

func showRoutes(routes []conf.Route) string {
	words := make([]string, len(routes))
	for i, r := range routes {
		words[i] = fmt.Sprint(r.Dst, " ", r.GW)
	}
	return strings.Join(words, ", ")
}

// restart has another agent take the place of this one. What that says of its node is not counted.
func (r *rig) restart() {
	r.t.Helper()
	r.must(r.stop())
	const known = "NB knows this node's chassis"
	before := strings.Count(r.log.String(), known)
	r.start()
	r.eventually("known to NB again", func() bool { return strings.Count(r.log.String(), known) > before })
	r.proxy.Reset()
}

func (r *layer3) release(id string) {
	r.t.Helper()
	var done plan.Released
	r.must(r.call(plan.OpRelease, plan.Release{Version: plan.Version, Sandbox: r.sandbox(id)}, &done))
	r.eventually("released", func() bool { return len(r.pods()) == 0 })
}

func inserts(table string) func(ovndbtest.Transact) bool {
	return func(tx ovndbtest.Transact) bool {
		return slices.ContainsFunc(tx.Ops, func(o ovndbtest.Op) bool { return o["op"] == "insert" && o["table"] == table })
	}
}

// claimsBlock and insertsPod tell the two apart that make ports: a node's part has one, too.
var claimsBlock = inserts("Logical_Switch")

func insertsPod(tx ovndbtest.Transact) bool { return insertsPort(tx) && !claimsBlock(tx) }

func waitsForNetwork(tx ovndbtest.Transact) bool {
	return slices.ContainsFunc(tx.Ops, func(o ovndbtest.Op) bool {
		ms, ok := o["timeout"].(float64)
		return o["op"] == "wait" && ok && ms > 0
	})
}

// A node's first pod costs a look and the claim more than one on a layer2 network, the others nothing. An agent that
// begins anew finds what the node has.
func TestBlockIsAskedForOnce(t *testing.T) {
	r := newLayer3(t)
	r.has(l3)
	r.start()
	first, err := r.planFor("c1", on("x1"))
	r.must(err)
	r.wantCounts(2, 0, 1)
	block := netip.MustParsePrefix(r.blocks()["node1"])
	whole := fmt.Sprint("10.128.0.0/16 ", block.Addr().Next())
	wantIn(t, first.Interfaces[0], block, whole)
	if first.Interfaces[0].MTU != 1400 || block.Bits() != 24 {
		t.Errorf("MTU %d and block %s, want 1400 and a /24", first.Interfaces[0].MTU, block)
	}

	second, err := r.planFor("c2", on("x2"))
	r.must(err)
	r.wantCounts(1, 0, 0)
	wantIn(t, second.Interfaces[0], block, whole)

	r.restart()
	third, err := r.planFor("c3", on("x3"))
	r.must(err)
	r.wantCounts(1, 0, 1)
	wantIn(t, third.Interfaces[0], block, whole)
	r.wantPods("shop/web/x1", "shop/web/x2", "shop/web/x3")
	if got := r.blocks(); len(got) != 1 || got["node1"] != block.String() {
		t.Errorf("blocks %v, want %s of node1 alone", got, block)
	}
}

// Twenty pods at once on a node that has nothing yet: one asks, the others get what it was given.
func TestPodsAtOnceOnAFreshNode(t *testing.T) {
	r := newLayer3(t)
	r.has(l3)
	r.start()
	claims, looks := 0, 0
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if claimsBlock(tx) {
			claims++
		}
		if slices.ContainsFunc(tx.Ops, func(o ovndbtest.Op) bool { return o["op"] == "select" && o["table"] == "Logical_Switch" }) {
			looks++
		}
	})
	var all sync.WaitGroup
	plans := make([]*plan.Plan, 20)
	errs := make([]error, len(plans))
	for i := range plans {
		all.Go(func() { plans[i], errs[i] = r.planFor(fmt.Sprint("c", i), on(fmt.Sprint("x", i))) })
	}
	all.Wait()
	r.proxy.Before(nil)
	r.must(errors.Join(errs...))
	if got := r.proxy.Counts(); claims != 1 || looks != 1 || got.Committed != 21 {
		t.Errorf("%d claims, %d looks at switches, %d transactions committed; want 1, 1, 21", claims, looks, got.Committed)
	}
	block := netip.MustParsePrefix(r.blocks()["node1"])
	held := map[netip.Prefix]bool{}
	for _, p := range plans {
		held[p.Interfaces[0].Addresses[0]] = block.Contains(p.Interfaces[0].Addresses[0].Addr())
	}
	if len(held) != 20 || slices.Contains(slices.Collect(maps.Values(held)), false) || len(r.pods()) != 20 {
		t.Errorf("addresses %v, want 20 of %s", held, block)
	}
}

// What an agent knows of its node is old: the node was taken for one that left, and its block may be another's by now.
func TestNodeHasAnotherBlock(t *testing.T) {
	tests := []struct {
		name   string
		change func(r *layer3, n *conf.Network, was string)
		others int
		same   bool // the block is free, and so the node's again
		counts [3]int
	}{
		{"given back", func(*layer3, *conf.Network, string) {}, 0, true, [3]int{2, 1, 1}},
		{"given to another", func(r *layer3, n *conf.Network, was string) { r.give(n, was) }, 1, false, [3]int{2, 3, 4}},
		{"and has another since", func(r *layer3, n *conf.Network, was string) { r.give(n, was); r.share(n, "node1") }, 1, false, [3]int{1, 1, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newLayer3(t)
			n := r.has(l3)
			r.start()
			_, err := r.planFor("c1", on("x1"))
			r.must(err)
			was := r.blocks()["node1"]
			r.release("c1")
			r.must(r.networks.DropNode(t.Context(), n.ID(), "node1"))
			tt.change(r, n, was)
			r.proxy.Reset()
			p, err := r.planFor("c2", on("x2"))
			r.must(err)
			r.wantCounts(tt.counts[0], tt.counts[1], tt.counts[2])
			now := r.blocks()
			if (now["node1"] == was) != tt.same || len(now) != 1+tt.others {
				t.Fatalf("blocks %v after %s, want the same: %t", now, was, tt.same)
			}
			block := netip.MustParsePrefix(now["node1"])
			wantIn(t, p.Interfaces[0], block, fmt.Sprint("10.128.0.0/16 ", block.Addr().Next()))
			r.wantPods("shop/web/x2")

			_, err = r.planFor("c3", on("x3")) // who comes next pays for nothing
			r.must(err)
			r.wantCounts(1, 0, 0)
		})
	}
}

// A node that loses its block whenever it has one gets no pods, and nothing is left of the attempts.
func TestNodeLosesItsBlockAllTheTime(t *testing.T) {
	r := newLayer3(t)
	n := r.has(l3)
	r.start()
	attempts := 0
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if insertsPod(tx) {
			attempts++
			r.must(r.networks.DropNode(t.Context(), n.ID(), "node1"))
		}
	})
	_, err := r.planFor("c1", "l3,blue")
	r.proxy.Before(nil)
	r.wantNone(err, conf.CodeTryAgain, "a network of the pod changes all the time")
	if got := r.blocks(); attempts != maxChanges || len(got) != 0 {
		t.Errorf("%d attempts, want %d; blocks %v are left", attempts, maxChanges, got)
	}
}

// The controller makes the network while an ADD waits for it.
func TestLayer3NetworkComesLater(t *testing.T) {
	r := newLayer3(t)
	r.source.nads["l3"] = conf.NAD{Config: l3}
	r.start()
	made := make(chan error, 1)
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if waitsForNetwork(tx) {
			go func() {
				n := r.network("l3", l3)
				_, err := r.networks.Ensure(context.Background(), n, []string{n.NAD()})
				made <- err
			}()
		}
	})
	p, err := r.planFor("c1", "l3")
	r.proxy.Before(nil)
	r.must(err)
	r.must(<-made)
	block := netip.MustParsePrefix(r.blocks()["node1"])
	wantIn(t, p.Interfaces[0], block, fmt.Sprint("10.128.0.0/16 ", block.Addr().Next()))
	r.wantPods("shop/web/net1")
}

// It does not come: the pod's owner is told what is known of the reason, and no other attachment is made.
func TestLayer3NetworkDoesNotCome(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, state, want string }{
		{"nobody knows why", "", "network shop/l3 has no logical switch yet"},
		{"refused", `{"ready":false,"reason":"router: subnet 10.128.0.0/16 overlaps 10.0.0.0/8 of network shop/big"}`,
			"network shop/l3: refused: router: subnet 10.128.0.0/16 overlaps 10.0.0.0/8 of network shop/big"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newLayer3(t)
			r.source.nads["l3"] = conf.NAD{Config: l3, State: tt.state}
			r.start()
			_, err := r.planFor("c1", "blue,l3")
			r.wantNone(err, conf.CodeTryAgain, "interface net2: "+tt.want)
		})
	}
}
