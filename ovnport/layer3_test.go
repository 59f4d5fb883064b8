package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// Ports on a node's part of a layer3 network. The rows are written here as the controller has them.

const (
	netBlocks     = `"topology":"layer3","subnets":"10.128.0.0/16/24"`
	netBlocksDual = `"topology":"layer3","subnets":"10.128.0.0/16/24,fd03::/48/64"`
	netBlocks6    = `"topology":"layer3","subnets":"fd03::/48/64"`
	netBlocksTiny = `"topology":"layer3","subnets":"10.128.0.0/16/29"` // five addresses for pods
)

// blocks are the k-th of each subnet.
func blocks(n *netmodel.Network, k uint64) []netip.Prefix {
	list := make([]netip.Prefix, len(n.Subnets))
	for i := range list {
		list[i] = n.NodeSubnet(i, k)
	}
	return list
}

func insertNode(view *netmodel.Network) ovndbtest.Op {
	return ovndbtest.Op{"op": "insert", "table": "Logical_Switch", "uuid": ovndb.SwitchKey(view.SwitchName()), "row": ovndbtest.Op{
		"name": view.SwitchName(), "external_ids": nodeMarks(view)}}
}

func nodeMarks(view *netmodel.Network) any {
	return ovndbtest.Map(map[string]string{"ovn-multinet/network": view.ID(), "ovn-multinet/node": view.Node,
		"ovn-multinet/blocks": view.NodeSubnetsText()})
}

// setNode changes what a node's switch says.
func (w *world) setNode(t *testing.T, view *netmodel.Network) {
	t.Helper()
	w.Transact(t, ovndbtest.Op{"op": "update", "table": "Logical_Switch", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.SwitchKey(view.SwitchName()))}},
		"row": ovndbtest.Op{"external_ids": nodeMarks(view)}})
}

// layer3 is a layer3 network shop/l3, as the nodes node-1, node-2, … have it, the k-th with the k-th block.
func (w *world) layer3(t *testing.T, keys string, nodes int) []*netmodel.Network {
	t.Helper()
	n := w.network(t, "l3", keys)
	var views []*netmodel.Network
	for k := range nodes {
		view := n.ForNode(fmt.Sprint("node-", k+1), blocks(n, uint64(k+1)))
		w.Transact(t, insertNode(view))
		views = append(views, view)
	}
	return views
}

// on is the owner of a pod's ports on another node.
func on(node int, pod, sandbox string) ovnport.Owner {
	o := owner(pod, sandbox)
	o.Node, o.Chassis = fmt.Sprint("node-", node), fmt.Sprint("chassis-", node)
	return o
}

// wantOn demands that these are the ports on the node's switch, and that each has its addresses of the node's blocks.
func (w *world) wantOn(t *testing.T, view *netmodel.Network, ports ...ovnport.Port) {
	t.Helper()
	s := read(t, w.Server)
	var want []string
	for _, p := range ports {
		want = append(want, p.UUID)
		if len(p.Addresses) != len(view.Subnets) {
			t.Errorf("addresses %v, want one of each of %v", p.Addresses, view.Subnets)
		}
		for i, a := range p.Addresses {
			if a.Masked() != view.Subnets[i] {
				t.Errorf("address %v is not of block %v", a, view.Subnets[i])
			}
		}
		if got := ids(s.ports[p.UUID]); got["ovn-multinet/network"] != "shop/l3" || got["ovn-multinet/node"] != view.Node {
			t.Errorf("port %s says %v", p.Name, got)
		}
	}
	got := ovndbtest.Strings(s.switches[ovndb.SwitchKey(view.SwitchName())]["ports"])
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("ports %v on switch %s, want %v", got, view.SwitchName(), want)
	}
	if own := ovndbtest.Strings(s.switches[ovndb.SwitchKey("shop/l3")]["ports"]); len(own) != 0 {
		t.Errorf("ports %v on the network's own switch", own)
	}
}

func TestPortsAreOnTheirNodesSwitch(t *testing.T) {
	w := newWorld(t)
	views := w.layer3(t, netBlocksDual, 2)
	w.proxy.Reset()
	first := mustEnsure(t, w.nb, on(1, "web-1", "sandbox-1"), want(views[0], "net1"), want(views[0], "net2"))
	second := mustEnsure(t, w.nb, on(2, "web-2", "sandbox-2"), want(views[1], "net1"))
	again := mustEnsure(t, w.nb, on(1, "web-1", "sandbox-1"), want(views[0], "net1"), want(views[0], "net2"))
	w.wantCounts(t, 2, 1, 2) // the last one finds its own
	if fmt.Sprint(first) != fmt.Sprint(again) {
		t.Errorf("ports %v, and asked again %v", first, again)
	}
	w.wantOn(t, views[0], first...)
	w.wantOn(t, views[1], second...)
	mustRelease(t, w.nb, "sandbox-1", first...)
	w.wantOn(t, views[0])
	w.wantOn(t, views[1], second...)
}

// A node's part is not what its agent knows: nothing is written, whatever else the pod asks for, and the caller is
// told to look again. Nothing is waited for.
func TestNodesPartIsNotAsItWas(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, w *world, n, was *netmodel.Network)
	}{
		{"it is gone", func(_ *testing.T, w *world, _, was *netmodel.Network) { w.NBCtl("ls-del", was.SwitchName()) }},
		{"it has other blocks", func(t *testing.T, w *world, n, _ *netmodel.Network) {
			w.setNode(t, n.ForNode("node-1", blocks(n, 9)))
		}},
		{"one of its blocks is another", func(t *testing.T, w *world, n, was *netmodel.Network) {
			w.setNode(t, n.ForNode("node-1", []netip.Prefix{was.Subnets[0], n.NodeSubnet(1, 9)}))
		}},
		{"another configuration is in force", func(t *testing.T, w *world, _, was *netmodel.Network) {
			w.accept(t, parseNetwork(t, "l3", netBlocksDual+`,"mtu":1300`), "shop/l3")
		}},
		{"it takes no ports of the NAD", func(t *testing.T, w *world, _, was *netmodel.Network) { w.accept(t, was, "shop/other") }},
	}
	for _, sandbox := range []string{"", "sandbox-1", "sandbox-2"} { // which has the port already
		for _, tt := range tests {
			if sandbox != "" && tt.name == "it is gone" {
				continue // with its ports
			}
			t.Run(fmt.Sprintf("%s, port of %q", tt.name, sandbox), func(t *testing.T) {
				w := newWorld(t)
				blue, view := w.network(t, "blue", net4), w.layer3(t, netBlocksDual, 1)[0]
				if sandbox != "" {
					mustEnsure(t, w.nb, on(1, "web-1", sandbox), want(view, "net2"))
				}
				happened := w.once(t, func(ovndbtest.Transact) bool { return true }, func() { tt.change(t, w, parseNetwork(t, "l3", netBlocksDual), view) })
				w.proxy.Reset()
				_, err := w.nb.Ensure(timeout(t), on(1, "web-1", "sandbox-2"), []ovnport.Request{want(blue, "net1"), want(view, "net2")}, nobody(t))
				happened()
				if moved, ok := errors.AsType[*ovnport.NodeSubnetChanged](err); !ok || *moved != (ovnport.NodeSubnetChanged{Network: "shop/l3", Node: "node-1"}) ||
					err.Error() != "network shop/l3 is not on node node-1 as it was" {
					t.Errorf("error %v, want that shop/l3 has moved on node-1", err)
				}
				w.wantCounts(t, 0, 1, 0)
				if s := read(t, w.Server); len(s.ports) != min(len(sandbox), 1) || len(s.switches[ovndb.SwitchKey("shop/blue")]["ports"].([]any)) != 0 {
					t.Errorf("after it:\n%v", s)
				}
			})
		}
	}
}

// Which other NADs are accepted is nothing to an ADD, nor is what other nodes have.
func TestOtherMarksOfANodesPart(t *testing.T) {
	w := newWorld(t)
	views := w.layer3(t, netBlocks, 2)
	w.accept(t, views[0], "shop/other", "shop/l3")
	w.NBCtl("ls-del", views[1].SwitchName())
	w.proxy.Reset()
	ports := mustEnsure(t, w.nb, on(1, "web-1", "sandbox-1"), want(views[0], "net1"))
	w.wantCounts(t, 1, 0, 0)
	w.wantOn(t, views[0], ports...)
}

// A pod that comes back under its name on another node gets an address of that node's block: what the older one has
// there goes, and with it the claims.
func TestPodComesFromAnotherNode(t *testing.T) {
	w := newWorld(t)
	views := w.layer3(t, netBlocksDual, 2)
	const mac = "02:00:00:00:00:2a"
	mustEnsure(t, w.nb, on(2, "web-0", "sandbox-1"), want(views[1], "net1", mac))
	ports := mustEnsure(t, w.nb, on(1, "web-0", "sandbox-2"), want(views[0], "net1", mac))
	w.wantOn(t, views[0], ports...)
	w.wantOn(t, views[1])
	if s := read(t, w.Server); len(s.ports) != 1 || len(s.claims) != 2 || ports[0].MAC.String() != mac {
		t.Errorf("want one port with two claims and its MAC:\n%v", s)
	}
}

// A node's block is full when its addresses are, whatever others have left.
func TestBlockIsFull(t *testing.T) {
	w := newWorld(t)
	views := w.layer3(t, netBlocksTiny, 2)
	var full []ovnport.Port
	for i := range 5 {
		full = append(full, mustEnsure(t, w.nb, on(1, fmt.Sprint("web-", i), fmt.Sprint("sandbox-", i)), want(views[0], "net1"))...)
	}
	_, err := w.nb.Ensure(timeout(t), on(1, "late", "sandbox-late"), []ovnport.Request{want(views[0], "net1")}, nobody(t))
	wantCode(t, err, conf.CodeNoAddressLeft, "interface net1: network shop/l3 has no address left")
	w.wantOn(t, views[0], full...)
	w.wantOn(t, views[1], mustEnsure(t, w.nb, on(2, "late", "sandbox-late"), want(views[1], "net1"))...)
}

// Addresses are the network's: one that is held is held on all nodes. A MAC that is made from a lease is the switch's:
// two nodes may have the same, for the lower bits of their blocks' addresses are alike.
func TestWhatNodesShare(t *testing.T) {
	w := newWorld(t)
	views := w.layer3(t, netBlocks6, 2)
	first := mustEnsure(t, w.nb, on(1, "web-1", "sandbox-1"), want(views[0], "net1", "fd03:0:0:1::7"))
	second := mustEnsure(t, w.nb, on(2, "web-2", "sandbox-2"), want(views[1], "net1", "fd03:0:0:2::7"))
	if first[0].MAC.String() != "0a:58:00:00:00:07" || second[0].MAC.String() != first[0].MAC.String() {
		t.Errorf("MACs %v and %v", first[0].MAC, second[0].MAC)
	}
	w.wantOn(t, views[0], first...)
	w.wantOn(t, views[1], second...)

	mustEnsure(t, w.nb, on(1, "web-3", "sandbox-3"), want(views[0], "net1", "02:00:00:00:00:2a"))
	_, err := w.nb.Ensure(timeout(t), on(2, "web-4", "sandbox-4"), []ovnport.Request{want(views[1], "net1", "02:00:00:00:00:2a")}, nobody(t))
	wantCode(t, err, conf.CodeInUse, "MAC 02:00:00:00:00:2a of network shop/l3 is in use by shop/web-3")
	w.wantOn(t, views[1], second...)
}

// Await goes by the network's own switch. A whole wait in vain takes its seconds, so the call ends before it here.
func TestAwait(t *testing.T) {
	tests := []struct {
		name    string
		there   bool   // before
		inForce string // from the wait on, or before it
		refusal string
		want    string // of an error with code 11
		looks   int    // in NB; an end in mid-wait leaves that open
	}{
		{"it is there", true, netBlocks, "", "", 1},
		{"it comes", false, netBlocks, "", "", 3},
		{"another one is there", true, netBlocks + `,"mtu":1300`, "", "", 1},
		{"it does not come", false, "", "", "network shop/l3 has no logical switch yet", 0},
		{"it is refused", false, "", "subnets: no", "network shop/l3: refused: subnets: no", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			n := parseNetwork(t, "l3", netBlocks)
			accept := func() { w.Transact(t, insertNetwork(parseNetwork(t, "l3", tt.inForce))...) }
			if tt.there {
				accept()
			}
			ctx, cancel := context.WithCancel(timeout(t))
			defer cancel()
			w.proxy.Before(func(tx ovndbtest.Transact) {
				if waits(tx) && tt.inForce == "" {
					cancel()
				} else if waits(tx) {
					accept()
				}
			})
			w.proxy.Reset()
			wanted := want(n, "net1")
			wanted.Refusal = tt.refusal
			err := w.nb.AwaitNetwork(ctx, &wanted)
			w.proxy.Before(nil)
			now, differs := errors.AsType[*ovnport.NotAccepted](err)
			switch changed := tt.there && tt.inForce != netBlocks; {
			case tt.want != "":
				wantCode(t, err, conf.CodeTryAgain, tt.want)
			case changed && (!differs || now.NAD != "shop/l3" || now.Config != parseNetwork(t, "l3", tt.inForce).Canonical()):
				t.Errorf("error %v (%+v), want what is in force", err, now)
			case !changed && err != nil:
				t.Error(err)
			}
			if tt.want == "" {
				w.wantCounts(t, 0, 0, tt.looks)
			}
		})
	}
}

// What ovn-controller makes of ovn-bridge-mappings.
func TestBridgeMappings(t *testing.T) {
	tests := []struct {
		name     string
		settings map[string]string
		want     map[string]string
	}{
		{"none", nil, map[string]string{}},
		{"empty", map[string]string{"ovn-bridge-mappings": ""}, map[string]string{}},
		{"one", map[string]string{"ovn-bridge-mappings": "ext:br-ext"}, map[string]string{"ext": "br-ext"}},
		{"two, with blanks", map[string]string{"ovn-bridge-mappings": "ext:br-ext, lab:br-lab"}, map[string]string{"ext": "br-ext", "lab": "br-lab"}},
		{"what is none", map[string]string{"ovn-bridge-mappings": "ext,,lab:br-lab"}, map[string]string{"lab": "br-lab"}},
		{"the chassis' own alone", map[string]string{"ovn-bridge-mappings": "ext:br-ext", "ovn-bridge-mappings-chassis-1": "lab:br-lab", "ovn-bridge-mappings-chassis-2": "ext:br-2"},
			map[string]string{"lab": "br-lab"}},
		{"the chassis has none", map[string]string{"ovn-bridge-mappings": "ext:br-ext", "ovn-bridge-mappings-chassis-1": ""}, map[string]string{}},
	}
	s := ovndbtest.StartOVS(t)
	s.VSCtl("--no-wait", "add-br", "br-ext", "--", "add-br", "br-int", "--", "add-br", "br-lab")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			settings := maps.Clone(tt.settings)
			if settings == nil {
				settings = map[string]string{}
			}
			settings["system-id"], settings["ovn-encap-ip"] = "chassis-1", "192.0.2.1"
			s.Transact(t, ovndbtest.Op{"op": "update", "table": "Open_vSwitch", "where": []any{}, "row": ovndbtest.Op{"external_ids": ovndbtest.Map(settings)}})
			ovs, err := ovnport.OpenOVS(s.Socket, "br-int", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer ovs.Close()
			got, err := ovs.Settings(timeout(t))
			if err != nil || !maps.Equal(got.Mappings, tt.want) || got.Chassis != "chassis-1" || got.EncapIP != "192.0.2.1" {
				t.Errorf("settings %+v, %v; want the mappings %v", got, err, tt.want)
			}
			if !got.HasBridge("br-ext") || !got.HasBridge("br-lab") || !got.HasBridge("br-int") || got.HasBridge("br-2") || got.HasBridge("") {
				t.Errorf("bridges of %+v", got)
			}
		})
	}
}
