package paths

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/pathmtu"
)

// newPaths are paths of an engine that does not run.
func newPaths(t *testing.T) *Paths {
	t.Helper()
	queue := engine.NewQueue()
	t.Cleanup(queue.ShutDown)
	return New(Config{Engine: engine.New(queue, engine.NewMetrics(), nil, slog.New(slog.DiscardHandler))})
}

// onRouter is a network of namespace shop on router core, with an MTU of its own if it is not 0.
func onRouter(t *testing.T, name, subnet string, mtu int) *netmodel.Network {
	t.Helper()
	own := ""
	if mtu != 0 {
		own = fmt.Sprintf(`,"mtu":%d`, mtu)
	}
	n, err := netmodel.ParseNetwork("shop", name, []byte(`{"type":"ovn-multinet","router":"core","subnets":"`+subnet+`"`+own+`}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPortMTUs: a router's port has an MTU only if larger packets can come to it: for each of them OVN has a flow for each
// other port.
func TestPortMTUs(t *testing.T) {
	const gateway = "gateway"
	for _, tt := range []struct {
		name    string
		overlay int // the smallest of all nodes; 0: unknown
		own     map[string]int
		want    map[string]int
	}{
		{"all as the nodes", 1442, map[string]int{"a": 0, "b": 0}, map[string]int{"a": 0, "b": 0, gateway: 1442}},
		{"a smaller one", 1442, map[string]int{"a": 0, "b": 1400}, map[string]int{"a": 0, "b": 1400, gateway: 1400}},
		{"all of them smaller", 1442, map[string]int{"a": 1400, "b": 1400}, map[string]int{"a": 0, "b": 0, gateway: 1400}},
		{"two sizes", 1442, map[string]int{"a": 1400, "b": 1300}, map[string]int{"a": 0, "b": 1300, gateway: 1300}},
		{"three sizes", 1442, map[string]int{"a": 1400, "b": 1300, "c": 0}, map[string]int{"a": 1400, "b": 1300, "c": 0, gateway: 1300}},
		{"larger than some node", 1442, map[string]int{"a": 0, "b": 8942}, map[string]int{"a": 0, "b": 1442, gateway: 1442}},
		{"two that are larger than some node", 1442, map[string]int{"a": 8942, "b": 8942}, map[string]int{"a": 1442, "b": 1442, gateway: 1442}},
		{"alone", 1442, map[string]int{"a": 1400}, map[string]int{"a": 0, gateway: 1400}},
		{"larger than the physical network", 8942, map[string]int{"a": 0}, map[string]int{"a": 0, gateway: 1500}},
		{"unknown nodes", 0, map[string]int{"a": 0, "b": 1400}, map[string]int{"a": 0, "b": 1400, gateway: 1400}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPaths(t)
			p.all, p.unread = true, map[string]bool{}
			p.smallest = pathmtu.Smallest{"provider": {MTU: 1500, Node: "n1"}}
			if tt.overlay != 0 {
				p.smallest[pathmtu.Overlay] = pathmtu.Limit{MTU: tt.overlay, Node: "n2"}
			}
			networks := map[string]*netmodel.Network{}
			for name, own := range tt.own {
				networks[name] = onRouter(t, name, fmt.Sprintf("10.%d.0.0/24", len(networks)), own)
				p.note(networks[name].ID(), networks[name])
			}
			for name, network := range networks {
				if got, known := p.Port(network); got != tt.want[name] || !known {
					t.Errorf("port of %s: %d, %v, want %d", name, got, known, tt.want[name])
				}
			}
			if got := p.Gateway(&netmodel.Router{Name: "shop/core", Physical: "provider"}); got != tt.want[gateway] {
				t.Errorf("gateway: %d, want %d", got, tt.want[gateway])
			}
			p.unread["shop/later"] = true
			if got := p.Gateway(&netmodel.Router{Name: "shop/core", Physical: "provider"}); got != 0 {
				t.Errorf("gateway: %d, while a network is unknown", got)
			}
			for name, own := range tt.own {
				if _, known := p.Port(networks[name]); known != (own == 0) {
					t.Errorf("port of %s is known %v, while a network is unknown", name, known)
				}
			}
		})
	}
}

// TestNotesOfPaths: a network is noted on the router that it is on, and nothing is left of one that is gone.
func TestNotesOfPaths(t *testing.T) {
	p := newPaths(t)
	small, other := onRouter(t, "a", "10.0.0.0/24", 1400), onRouter(t, "a", "10.0.0.0/24", 0)
	for i, step := range []struct {
		accepted *netmodel.Network
		differs  bool
		want     string
	}{
		{nil, false, "map[]"}, {small, true, "map[shop/core:map[shop/a:{1400 false}]]"}, {small, false, "map[shop/core:map[shop/a:{1400 false}]]"},
		{other, true, "map[shop/core:map[shop/a:{0 false}]]"}, {small.WithoutRouter(), true, "map[]"}, {small.WithoutRouter(), false, "map[]"},
		{other, true, "map[shop/core:map[shop/a:{0 false}]]"}, {other, false, "map[shop/core:map[shop/a:{0 false}]]"}, {nil, true, "map[]"},
	} {
		if got := p.differs("shop/a", step.accepted); got != step.differs {
			t.Errorf("step %d: differs %v, want %v", i, got, step.differs)
		}
		if p.note("shop/a", step.accepted); fmt.Sprint(p.on) != step.want {
			t.Errorf("step %d: %v, want %s", i, p.on, step.want)
		}
	}
	if len(p.router) != 0 {
		t.Errorf("%v is left", p.router)
	}
}

// TestTooManyPortsWithAnMTU: OVN's flows grow with the square of the ports, so there is a bound.
func TestTooManyPortsWithAnMTU(t *testing.T) {
	p := newPaths(t)
	p.all, p.unread = true, map[string]bool{}
	p.smallest = pathmtu.Smallest{pathmtu.Overlay: {MTU: 1442, Node: "n1"}, "provider": {MTU: 1500, Node: "n1"}}
	wide, err := netmodel.ParseNetwork("shop", "wide", []byte(`{"type":"ovn-multinet","topology":"layer3","router":"core",
		"subnets":"10.128.0.0/10/24","mtu":1400}`))
	if err != nil {
		t.Fatal(err)
	}
	p.note(wide.ID(), wide)
	p.note("shop/a", onRouter(t, "a", "10.0.0.0/24", 0))
	for _, step := range []struct{ nodes, want int }{{315, 1400}, {316, 0}} { // 315 × 316 and 316 × 317 pairs
		for i := len(p.nodes); i < step.nodes; i++ {
			p.nodes[fmt.Sprint("n", i)] = pathmtu.Sizes{}
		}
		if got, known := p.Port(wide); got != step.want || !known || p.ports("shop/core")["shop/wide"] != step.want {
			t.Errorf("with %d nodes the ports have %d, %v; want %d", step.nodes, got, known, step.want)
		}
		tooMany := step.want == 0
		if changed := p.noteTooMany("shop/core"); changed != tooMany || (p.Warning(wide) != "") != tooMany {
			t.Errorf("with %d nodes: changed %t, warning %q", step.nodes, changed, p.Warning(wide))
		}
		if got := p.Gateway(&netmodel.Router{Name: "shop/core", Physical: "provider"}); got != 1400 {
			t.Errorf("with %d nodes the gateway has %d", step.nodes, got)
		}
	}
	if w := p.Warning(onRouter(t, "a", "10.0.0.0/24", 0)); w != "" {
		t.Errorf("a network without an mtu has the warning %q", w)
	}
	alone := newPaths(t) // no larger packet can come: no pair
	alone.all, alone.unread, alone.nodes, alone.smallest = true, p.unread, p.nodes, p.smallest
	alone.note(wide.ID(), wide)
	if _, tooMany := alone.largest("shop/core"); tooMany {
		t.Error("a network alone has too many pairs")
	}
}
