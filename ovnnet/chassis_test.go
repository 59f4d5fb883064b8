package ovnnet_test

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

func TestAnnounce(t *testing.T) {
	w := newWorld(t)
	row := func(node, chassis string) fields {
		return fields{"name": "ovn-multinet node " + node, "external_ids": "ovn-multinet/chassis=" + chassis + " ovn-multinet/kind=node ovn-multinet/node=" + node}
	}
	key := ovndb.NodeKey("n1")
	steps := []struct {
		name, chassis string
		committed     int
	}{{"new", "c1", 1}, {"again", "c1", 0}, {"another chassis", "c9", 1}}
	for _, tt := range steps {
		t.Run(tt.name, func(t *testing.T) {
			w.proxy.Reset()
			if err := w.networks.Announce(withLimit(t), "n1", tt.chassis); err != nil {
				t.Error(err)
			}
			w.wantCommitted(t, tt.committed)
			w.wantRows(t, map[string]map[string]fields{"Copp": {key: row("n1", tt.chassis)}})
		})
	}
	t.Run("it went meanwhile", func(t *testing.T) {
		w.meanwhile(t, "Copp", func() { w.remove(t, "Copp", key) })
		if err := w.networks.Announce(withLimit(t), "n1", "c1"); err != nil {
			t.Error(err)
		}
		w.wantRows(t, map[string]map[string]fields{"Copp": {key: row("n1", "c1")}})
	})
	t.Run("it came meanwhile", func(t *testing.T) {
		w.clear(t)
		other := w.other(t)
		w.meanwhile(t, "Copp", func() {
			if err := other.Announce(withLimit(t), "n1", "c0"); err != nil {
				t.Error(err)
			}
		})
		if err := w.networks.Announce(withLimit(t), "n1", "c1"); err != nil {
			t.Error(err)
		}
		w.wantRows(t, map[string]map[string]fields{"Copp": {key: row("n1", "c1")}})
	})
}

// Nodes whose agent has not spoken are left out, and so are those that nobody asked for.
func TestChassisOf(t *testing.T) {
	w := newWorld(t)
	for _, node := range []string{"n1", "n2", "n3"} {
		if err := w.networks.Announce(withLimit(t), node, "of-"+node); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		nodes []string
		want  []ovnnet.Chassis
	}{
		{[]string{"n3", "n4", "n1"}, []ovnnet.Chassis{{Node: "n3", Name: "of-n3"}, {Node: "n1", Name: "of-n1"}}},
		{nil, []ovnnet.Chassis{}}, // none, not unknown
	} {
		got, err := w.networks.ChassisOf(withLimit(t), tt.nodes)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("chassis of %v: %v, %v; want %v", tt.nodes, got, err, tt.want)
		}
	}
}

// chassis is a list of nodes, each on the chassis of its name.
func chassis(nodes ...string) []ovnnet.Chassis {
	list := make([]ovnnet.Chassis, len(nodes))
	for i, node := range nodes {
		list[i] = ovnnet.Chassis{Node: node, Name: node}
	}
	return list
}

// order lists the chassis of r1's gateway, the highest priority first, and fails when two are alike or OVN does not know
// one.
func (w *world) order(t *testing.T) (names []string, priorities []int) {
	t.Helper()
	rows := w.rows(t)
	members := map[string]int{}
	for _, key := range strings.Fields(rows["HA_Chassis_Group"][gwGroup]["ha_chassis"]) {
		p, err := strconv.Atoi(rows["HA_Chassis"][key]["priority"])
		if err != nil || p < 0 || p > 32767 {
			t.Errorf("chassis %v: %v", rows["HA_Chassis"][key], err)
		}
		members[rows["HA_Chassis"][key]["chassis_name"]] = p
	}
	names = slices.SortedFunc(maps.Keys(members), func(a, b string) int { return cmp.Compare(members[b], members[a]) })
	for i, name := range names {
		if priorities = append(priorities, members[name]); i > 0 && priorities[i] == priorities[i-1] {
			t.Errorf("priorities %v", members)
		}
	}
	return names, priorities
}

// setPriorities writes priorities as someone does by hand.
func (w *world) setPriorities(t *testing.T, of map[string]int) {
	t.Helper()
	for name, p := range of {
		w.change(t, "HA_Chassis", gwMember(name), ovndbtest.Op{"priority": p})
	}
}

// makeFirst has a chassis take the gateway for good.
func makeFirst(t *testing.T, n *ovnnet.Networks, name string) {
	t.Helper()
	turns, err := n.TurnsOf(withLimit(t), name)
	if err != nil || len(turns) != 1 || turns[0].Router != "shop/r1" {
		t.Fatalf("turns %v, %v; want that of shop/r1", turns, err)
	}
	if _, err := n.MakeFirst(withLimit(t), &turns[0], name); err != nil {
		t.Fatal(err)
	}
}

// Nodes that have a place keep it, whoever comes and goes.
func TestGatewayOrder(t *testing.T) {
	w := newWorld(t)
	ensureGateway(t, w.networks, gwFull, chassis("a", "b", "c"))
	begin, priorities := w.order(t)
	if want := []int{16384, 16383, 16382}; !slices.Equal(priorities, want) {
		t.Fatalf("priorities %v, want %v", priorities, want)
	}
	first, second, third := begin[0], begin[1], begin[2]
	steps := []struct {
		name      string
		do        func()
		nodes     []string
		want      []string
		committed int // by EnsureGateway
	}{
		{"nothing new", nil, []string{third, second, first}, begin, 0},
		{"one comes", nil, []string{"d", "a", "b", "c"}, []string{first, second, third, "d"}, 1},
		{"the second goes", nil, []string{first, third, "d"}, []string{first, third, "d"}, 1},
		{"it comes back", nil, []string{"a", "b", "c", "d"}, []string{first, third, "d", second}, 1},
		{"the third takes over", func() { makeFirst(t, w.networks, "d") }, []string{"a", "b", "c", "d"}, []string{"d", first, third, second}, 0},
		{"the first goes", nil, []string{"a", "b", "c"}, []string{first, third, second}, 1},
		{"no room below", func() { w.setPriorities(t, map[string]int{first: 7, third: 3, second: 0}) },
			[]string{"a", "b", "c", "d"}, []string{first, third, second, "d"}, 1},
		{"no room above", func() {
			w.setPriorities(t, map[string]int{first: 32767, third: 3, second: 2, "d": 1})
			makeFirst(t, w.networks, "d")
		}, []string{"a", "b", "c", "d"}, []string{"d", first, third, second}, 0},
		{"two that are alike", func() { w.setPriorities(t, map[string]int{first: 9, "d": 9, third: 8, second: 7}) },
			[]string{"a", "b", "c", "d"}, nil, 1},
		{"all go", nil, nil, nil, 1},
	}
	for _, tt := range steps {
		t.Run(tt.name, func(t *testing.T) {
			if tt.do != nil {
				tt.do()
			}
			w.proxy.Reset()
			ensureGateway(t, w.networks, gwFull, chassis(tt.nodes...))
			w.wantCommitted(t, tt.committed)
			if got, priorities := w.order(t); tt.want != nil && !slices.Equal(got, tt.want) || len(got) != len(tt.nodes) {
				t.Errorf("order %v with %v, want %v", got, priorities, tt.want)
			}
			ensureGateway(t, w.networks, gwFull, nil)
			ensureGateway(t, w.networks, gwFull, chassis(tt.nodes...))
			w.wantCommitted(t, 0)
		})
	}
}

// Whatever comes, goes and takes over, in whatever order: those that stay keep their order, the others come after them.
func TestGatewayOrderOfManyChanges(t *testing.T) {
	w := newWorld(t)
	random := rand.New(rand.NewPCG(1, 2))
	all := []string{"a", "b", "c", "d", "e", "f"}
	ensureGateway(t, w.networks, gwFull, []ovnnet.Chassis{})
	for step := range 120 {
		was, _ := w.order(t)
		if len(was) > 1 && step%3 == 0 {
			host := was[random.IntN(len(was))]
			if host != was[0] {
				makeFirst(t, w.networks, host)
				was = append([]string{host}, slices.DeleteFunc(was, func(name string) bool { return name == host })...)
			}
			if step%12 == 0 { // the ends of what there is
				w.setPriorities(t, map[string]int{was[0]: 32767})
			}
		}
		nodes := slices.DeleteFunc(slices.Clone(all), func(string) bool { return random.IntN(3) == 0 })
		ensureGateway(t, w.networks, gwFull, chassis(nodes...))
		is, priorities := w.order(t)
		stay := slices.DeleteFunc(was, func(name string) bool { return !slices.Contains(nodes, name) })
		if len(is) != len(nodes) || !slices.Equal(is[:len(stay)], stay) {
			t.Fatalf("step %d: order %v with %v, want %v first, of %v", step, is, priorities, stay, nodes)
		}
	}
}

// Gateways of several routers are not all on one node.
func TestGatewaysBeginWithDifferentNodes(t *testing.T) {
	w := newWorld(t)
	first := map[string]int{}
	for i := range 12 {
		r := gatewayConf(t, sprint("shop/r%d", i), gwFull)
		if _, err := w.networks.EnsureGateway(withLimit(t), r, chassis("a", "b", "c")); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range w.rows(t)["HA_Chassis"] {
		if row["priority"] == "16384" {
			first[row["chassis_name"]]++
		}
	}
	if len(first) != 3 {
		t.Errorf("of 12 gateways, by their first node: %v", first)
	}
}

// Whose turn it is, as ovn-controller decides it.
func TestTookOver(t *testing.T) {
	w := newWorld(t)
	ensureGateway(t, w.networks, gwFull, chassis("a", "b", "c"))
	w.setPriorities(t, map[string]int{"a": 30, "b": 20, "c": 10})
	w.NBCtl("ha-chassis-group-add", "theirs", "--", "ha-chassis-group-add-chassis", "theirs", "b", "5")
	for _, tt := range []struct {
		name, chassis string
		alive         []string
		want          bool
	}{
		{"the first", "a", []string{"b", "c"}, false},
		{"the second, the first lives", "b", []string{"a", "c"}, false},
		{"the second, the first is dead", "b", []string{"c"}, true},
		{"the third, one before it lives", "c", []string{"b"}, false},
		{"the third, those before it are dead", "c", []string{"another"}, true},
		{"one that reaches nobody", "b", nil, false},
		{"the first that reaches nobody", "a", nil, false},
	} {
		turns, err := w.networks.TurnsOf(withLimit(t), tt.chassis)
		if err != nil || len(turns) != 1 || turns[0].Router != "shop/r1" {
			t.Fatalf("%s: turns %v, %v", tt.name, turns, err)
		}
		alive := map[string]bool{}
		for _, name := range tt.alive {
			alive[name] = true
		}
		if got := turns[0].TookOver(tt.chassis, alive); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
		if turns[0].TookOver("nobody", map[string]bool{"x": true}) {
			t.Errorf("%s: a chassis that is none of the gateway's took it over", tt.name)
		}
	}
	if turns, err := w.networks.TurnsOf(withLimit(t), "nobody"); err != nil || len(turns) != 0 {
		t.Errorf("turns of nobody: %v, %v", turns, err)
	}
}

// What became of the order between the look and the write counts.
func TestMakeFirstIsRaced(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, w *world)
		want []string
	}{
		{"another one took it over", func(t *testing.T, w *world) { makeFirst(t, w.other(t), "c") }, []string{"c", "a", "b"}},
		{"the first went", func(t *testing.T, w *world) { ensureGateway(t, w.other(t), gwFull, chassis("b", "c")) }, []string{"b", "c"}},
		{"it went itself", func(t *testing.T, w *world) { ensureGateway(t, w.other(t), gwFull, chassis("a", "c")) }, []string{"a", "c"}},
		{"the gateway went", func(t *testing.T, w *world) {
			if err := w.other(t).DropGateways(withLimit(t)); err != nil {
				t.Error(err)
			}
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			ensureGateway(t, w.networks, gwFull, chassis("a", "b", "c"))
			w.setPriorities(t, map[string]int{"a": 30, "b": 20, "c": 10})
			w.meanwhile(t, "HA_Chassis", func() { tt.do(t, w) })
			makeFirst(t, w.networks, "b")
			if got, _ := w.order(t); !slices.Equal(got, tt.want) {
				t.Errorf("order %v, want %v", got, tt.want)
			}
		})
	}
}

// routing is a controller at work whose configuration has routers.
func routing(t *testing.T, w *world, a *api, networks *ovnnet.Networks) (c *ovnnet.Controller, r *running) {
	t.Helper()
	c = ovnnet.NewController(networks, nil, slog.New(slog.DiscardHandler))
	return c, runController(t, w, c, a, leads)
}

// The gateway follows the nodes' labels, and what their agents say.
func TestControllerFollowsTheNodes(t *testing.T) {
	w, a := newWorld(t), newAPI()
	yes, no := map[string]string{"gw": "yes"}, map[string]string{"gw": "no"}
	a.setNodes(nil)
	announce := func(node string) {
		if err := w.other(t).Announce(withLimit(t), node, node); err != nil {
			t.Error(err)
		}
	}
	announce("a")
	announce("b")
	c, r := routing(t, w, a, w.routed(t, gwFull))
	wantOrder := func(want string) {
		t.Helper()
		eventually(t, want, func() string {
			names, _ := w.order(t)
			return sprint("%v of %s", names, w.rows(t)["HA_Chassis_Group"][gwGroup]["name"])
		})
	}
	wantOrder("[] of shop/r1:gateway")
	a.setNodes(map[string]map[string]string{"a": yes, "b": no, "c": yes})
	c.NodesChanged()
	wantOrder("[a] of shop/r1:gateway")
	announce("c") // of which nobody tells the controller
	wantOrder("[a c] of shop/r1:gateway")
	a.setNodes(map[string]map[string]string{"a": yes, "b": yes, "c": yes})
	c.NodesChanged()
	wantOrder("[a c b] of shop/r1:gateway")
	a.setNodes(map[string]map[string]string{"a": no, "b": yes, "c": yes})
	c.NodesChanged()
	wantOrder("[c b] of shop/r1:gateway")

	// A list of nodes that fails changes nothing.
	a.with(func() { a.noNodes, a.nodes = errors.New("connection refused"), []netmodel.Node{} })
	c.NodesChanged()
	r.settle(t)
	wantOrder("[c b] of shop/r1:gateway")
	a.with(func() { a.noNodes = nil })
	c.NodesChanged()
	wantOrder("[] of shop/r1:gateway")
}

// A source that knows nothing of nodes leaves those that there are, and the gateway is made all the same.
func TestControllerWithoutNodes(t *testing.T) {
	w, a := newWorld(t), newAPI()
	n := w.routed(t, gwFull)
	ensureGateway(t, w.other(t), gwFull, chassis("a", "b"))
	want := w.rows(t)
	_, r := routing(t, w, a, n)
	r.settle(t)
	w.wantRows(t, want)
}

// A controller whose configuration has a router no more takes its gateway away, and one that has a new one makes it.
func TestControllerFollowsItsRouters(t *testing.T) {
	w, a := newWorld(t), newAPI()
	ensureGateway(t, w.other(t), gwFull, oneNode)
	a.apply("shop/blue", spec(net4+onR1))
	a.setNodes(nil)
	n := connectFor(t, w.Endpoint(), map[string]*netmodel.Router{"shop/r2": gatewayConf(t, "shop/r2", gwFull)})
	_, r := routing(t, w, a, n)
	r.touch(t, "shop/blue")
	r.wantState(t, "shop/blue", "ready, held")
	eventually(t, "shop/r1:shop/blue shop/r2:external shop/r2:gateway shop/r2:join", func() string { return w.names(t, "Logical_Router_Port") })
	if got := w.switches(t) + ", " + w.names(t, "HA_Chassis_Group"); got != "shop/blue shop/r2:external shop/r2:join, shop/r2:gateway" {
		t.Errorf("switches and groups %q", got)
	}
}

// A gateway that cannot be taken away, since others use what is ours, holds up no network.
func TestControllerWithAGatewayThatStays(t *testing.T) {
	w, a := newWorld(t), newAPI()
	ensureGateway(t, w.other(t), gwFull, oneNode)
	w.NBCtl("lr-add", "theirs", "--", "lrp-add", "theirs", "p", "02:00:00:00:00:01", "203.0.113.1/24", "--",
		"set", "Logical_Router_Port", "p", "ha_chassis_group="+gwGroup)
	ensure(t, w.other(t), network(t, "blue", net4)) // of a NAD that is no more: only the look at all finds it
	r := run(t, w, a)
	r.wantSwitches(t, "shop/r1:external shop/r1:join")
	w.NBCtl("lr-del", "theirs")
	r.wantSwitches(t, "")
	eventually(t, "0", func() string { return sprint("%d", len(w.rows(t))) })
}
