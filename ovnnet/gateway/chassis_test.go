package gateway_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

func TestAnnounce(t *testing.T) {
	w := nbtest.NewWorld(t)
	row := func(node, chassis string) nbtest.Fields {
		return nbtest.Fields{"name": "ovn-multinet node " + node, "external_ids": "ovn-multinet/chassis=" + chassis + " ovn-multinet/kind=node ovn-multinet/node=" + node}
	}
	key := ovndb.NodeKey("n1")
	steps := []struct {
		name, chassis string
		committed     int
	}{{"new", "c1", 1}, {"again", "c1", 0}, {"another chassis", "c9", 1}}
	for _, tt := range steps {
		t.Run(tt.name, func(t *testing.T) {
			w.Proxy.Reset()
			if err := w.Networks.Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: "n1", Chassis: tt.chassis}); err != nil {
				t.Error(err)
			}
			w.WantCommitted(t, tt.committed)
			w.WantRows(t, map[string]map[string]nbtest.Fields{"Copp": {key: row("n1", tt.chassis)}})
		})
	}
	t.Run("it went meanwhile", func(t *testing.T) {
		w.Meanwhile(t, "Copp", func() { w.Remove(t, "Copp", key) })
		if err := w.Networks.Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: "n1", Chassis: "c1"}); err != nil {
			t.Error(err)
		}
		w.WantRows(t, map[string]map[string]nbtest.Fields{"Copp": {key: row("n1", "c1")}})
	})
	t.Run("it came meanwhile", func(t *testing.T) {
		w.Clear(t)
		other := w.Other(t)
		w.Meanwhile(t, "Copp", func() {
			if err := other.Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: "n1", Chassis: "c0"}); err != nil {
				t.Error(err)
			}
		})
		if err := w.Networks.Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: "n1", Chassis: "c1"}); err != nil {
			t.Error(err)
		}
		w.WantRows(t, map[string]map[string]nbtest.Fields{"Copp": {key: row("n1", "c1")}})
	})
}

// Nodes whose agent has not spoken are left out, and so are those that nobody asked for.
func TestChassisOf(t *testing.T) {
	w := nbtest.NewWorld(t)
	for _, node := range []string{"n1", "n2", "n3"} {
		if err := w.Networks.Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: node, Chassis: "of-" + node}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		nodes []string
		want  []gateway.Chassis
	}{
		{[]string{"n3", "n4", "n1"}, []gateway.Chassis{{Node: "n3", Name: "of-n3"}, {Node: "n1", Name: "of-n1"}}},
		{nil, []gateway.Chassis{}}, // none, not unknown
	} {
		got, err := w.Networks.Gateways.ChassisOf(nbtest.WithLimit(t), tt.nodes)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("chassis of %v: %v, %v; want %v", tt.nodes, got, err, tt.want)
		}
	}
}

// makeFirst has a chassis take the gateway for good.
func makeFirst(t *testing.T, n *nbtest.Client, name string) {
	t.Helper()
	turns, err := n.Node.FailoversOf(nbtest.WithLimit(t), name)
	if err != nil || len(turns) != 1 || turns[0].Router != "shop/r1" {
		t.Fatalf("turns %v, %v; want that of shop/r1", turns, err)
	}
	if _, err := n.Node.MakeFirst(nbtest.WithLimit(t), &turns[0], name); err != nil {
		t.Fatal(err)
	}
}

// Nodes that have a place keep it, whoever comes and goes.
func TestGatewayOrder(t *testing.T) {
	w := nbtest.NewWorld(t)
	nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis("a", "b", "c"))
	begin, priorities := w.Order(t)
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
		{"the third takes over", func() { makeFirst(t, w.Networks, "d") }, []string{"a", "b", "c", "d"}, []string{"d", first, third, second}, 0},
		{"the first goes", nil, []string{"a", "b", "c"}, []string{first, third, second}, 1},
		{"no room below", func() { w.SetPriorities(t, map[string]int{first: 7, third: 3, second: 0}) },
			[]string{"a", "b", "c", "d"}, []string{first, third, second, "d"}, 1},
		{"no room above", func() {
			w.SetPriorities(t, map[string]int{first: 32767, third: 3, second: 2, "d": 1})
			makeFirst(t, w.Networks, "d")
		}, []string{"a", "b", "c", "d"}, []string{"d", first, third, second}, 0},
		{"two that are alike", func() { w.SetPriorities(t, map[string]int{first: 9, "d": 9, third: 8, second: 7}) },
			[]string{"a", "b", "c", "d"}, nil, 1},
		{"all go", nil, nil, nil, 1},
	}
	for _, tt := range steps {
		t.Run(tt.name, func(t *testing.T) {
			if tt.do != nil {
				tt.do()
			}
			w.Proxy.Reset()
			nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis(tt.nodes...))
			w.WantCommitted(t, tt.committed)
			if got, priorities := w.Order(t); tt.want != nil && !slices.Equal(got, tt.want) || len(got) != len(tt.nodes) {
				t.Errorf("order %v with %v, want %v", got, priorities, tt.want)
			}
			nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nil)
			nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis(tt.nodes...))
			w.WantCommitted(t, 0)
		})
	}
}

// Whatever comes, goes and takes over, in whatever order: those that stay keep their order, the others come after them.
func TestGatewayOrderOfManyChanges(t *testing.T) {
	w := nbtest.NewWorld(t)
	random := rand.New(rand.NewPCG(1, 2))
	all := []string{"a", "b", "c", "d", "e", "f"}
	nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, []gateway.Chassis{})
	for step := range 120 {
		was, _ := w.Order(t)
		if len(was) > 1 && step%3 == 0 {
			host := was[random.IntN(len(was))]
			if host != was[0] {
				makeFirst(t, w.Networks, host)
				was = append([]string{host}, slices.DeleteFunc(was, func(name string) bool { return name == host })...)
			}
			if step%12 == 0 { // the ends of what there is
				w.SetPriorities(t, map[string]int{was[0]: 32767})
			}
		}
		nodes := slices.DeleteFunc(slices.Clone(all), func(string) bool { return random.IntN(3) == 0 })
		nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis(nodes...))
		is, priorities := w.Order(t)
		stay := slices.DeleteFunc(was, func(name string) bool { return !slices.Contains(nodes, name) })
		if len(is) != len(nodes) || !slices.Equal(is[:len(stay)], stay) {
			t.Fatalf("step %d: order %v with %v, want %v first, of %v", step, is, priorities, stay, nodes)
		}
	}
}

// Gateways of several routers are not all on one node.
func TestGatewaysBeginWithDifferentNodes(t *testing.T) {
	w := nbtest.NewWorld(t)
	first := map[string]int{}
	for i := range 12 {
		r := nbtest.GatewayConf(t, nbtest.Sprint("shop/r%d", i), nbtest.GwFull)
		if _, err := w.Networks.Gateways.Ensure(nbtest.WithLimit(t), r, nbtest.Chassis("a", "b", "c")); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range w.Rows(t)["HA_Chassis"] {
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
	w := nbtest.NewWorld(t)
	nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis("a", "b", "c"))
	w.SetPriorities(t, map[string]int{"a": 30, "b": 20, "c": 10})
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
		turns, err := w.Networks.Node.FailoversOf(nbtest.WithLimit(t), tt.chassis)
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
	if turns, err := w.Networks.Node.FailoversOf(nbtest.WithLimit(t), "nobody"); err != nil || len(turns) != 0 {
		t.Errorf("turns of nobody: %v, %v", turns, err)
	}
}

// What became of the order between the look and the write counts.
func TestMakeFirstIsRaced(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, w *nbtest.World)
		want []string
	}{
		{"another one took it over", func(t *testing.T, w *nbtest.World) { makeFirst(t, w.Other(t), "c") }, []string{"c", "a", "b"}},
		{"the first went", func(t *testing.T, w *nbtest.World) {
			nbtest.EnsureGateway(t, w.Other(t), nbtest.GwFull, nbtest.Chassis("b", "c"))
		}, []string{"b", "c"}},
		{"it went itself", func(t *testing.T, w *nbtest.World) {
			nbtest.EnsureGateway(t, w.Other(t), nbtest.GwFull, nbtest.Chassis("a", "c"))
		}, []string{"a", "c"}},
		{"the gateway went", func(t *testing.T, w *nbtest.World) {
			if err := w.Other(t).Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
				t.Error(err)
			}
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			nbtest.EnsureGateway(t, w.Networks, nbtest.GwFull, nbtest.Chassis("a", "b", "c"))
			w.SetPriorities(t, map[string]int{"a": 30, "b": 20, "c": 10})
			w.Meanwhile(t, "HA_Chassis", func() { tt.do(t, w) })
			makeFirst(t, w.Networks, "b")
			if got, _ := w.Order(t); !slices.Equal(got, tt.want) {
				t.Errorf("order %v, want %v", got, tt.want)
			}
		})
	}
}
