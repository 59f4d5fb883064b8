package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// node is the OVS database of a node, without anything behind it, and what reads its tunnels.
type node struct {
	*ovndbtest.Server
	proxy *ovndbtest.Proxy
	ovs   *ovnport.OVS // through the proxy
}

func newNode(t *testing.T) *node {
	t.Helper()
	s := ovndbtest.StartOVS(t)
	s.VSCtl("add-br", "br-int", "--", "set", "Open_vSwitch", ".", "external_ids:system-id=chassis-1")
	p := ovndbtest.StartProxy(t, s.Endpoint())
	ovs, err := ovnport.OpenOVS(p.Socket, "br-int", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ovs.Close)
	if _, err := ovs.Settings(timeout(t)); err != nil {
		t.Fatal(err)
	}
	return &node{Server: s, proxy: p, ovs: ovs}
}

// put makes a port of the bridge with its interfaces, all as named; bfd is what the interfaces' BFD says of itself.
func (n *node) put(t *testing.T, port string, ids map[string]string, bfd map[string]string, interfaces ...string) {
	t.Helper()
	var ops []ovndbtest.Op
	var members []any
	for i, name := range interfaces {
		id := fmt.Sprintf("i%d", i)
		members = append(members, []any{"named-uuid", id})
		ops = append(ops, ovndbtest.Op{"op": "insert", "table": "Interface", "uuid-name": id,
			"row": ovndbtest.Op{"name": name, "type": "geneve", "bfd_status": ovndbtest.Map(bfd)}})
	}
	ops = append(ops,
		ovndbtest.Op{"op": "insert", "table": "Port", "uuid-name": "p", "row": ovndbtest.Op{
			"name": port, "interfaces": []any{"set", members}, "external_ids": ovndbtest.Map(ids)}},
		ovndbtest.Op{"op": "mutate", "table": "Bridge", "where": []any{[]any{"name", "==", "br-int"}},
			"mutations": []any{[]any{"ports", "insert", []any{"named-uuid", "p"}}}})
	n.Transact(t, ops...)
}

// tunnel makes a tunnel as ovn-controller does.
func (n *node) tunnel(t *testing.T, name, chassis, state string) {
	t.Helper()
	n.put(t, name, to(chassis), map[string]string{"state": state}, name)
}

func to(id string) map[string]string { return map[string]string{"ovn-chassis-id": id} }

// alive reads who is, sorted.
func (n *node) alive(t *testing.T) string {
	t.Helper()
	alive, err := n.ovs.Alive(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, is := range alive {
		if !is {
			t.Errorf("%s is listed as one that is not alive", name)
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(alive)), " ")
}

// Alive is who BFD reaches, by the ports that say whose tunnels they are.
func TestAlive(t *testing.T) {
	up := map[string]string{"state": "up"}
	tests := []struct {
		name string
		put  func(t *testing.T, n *node)
		want string
	}{
		{"no tunnel", func(*testing.T, *node) {}, ""},
		{"up", func(t *testing.T, n *node) { n.tunnel(t, "ovn-2", "chassis-2@192.0.2.2", "up") }, "chassis-2"},
		{"up, with all that ovs-vswitchd says", func(t *testing.T, n *node) {
			n.put(t, "ovn-2", to("chassis-2@192.0.2.2"), map[string]string{"state": "up", "remote_state": "up", "forwarding": "true",
				"diagnostic": "No Diagnostic", "flap_count": "3"}, "ovn-2")
		}, "chassis-2"},
		{"down", func(t *testing.T, n *node) { n.tunnel(t, "ovn-2", "chassis-2@192.0.2.2", "down") }, ""},
		{"down, with the other side up", func(t *testing.T, n *node) {
			n.put(t, "ovn-2", to("chassis-2@192.0.2.2"), map[string]string{"state": "down", "remote_state": "up"}, "ovn-2")
		}, ""},
		{"beginning", func(t *testing.T, n *node) { n.tunnel(t, "ovn-2", "chassis-2@192.0.2.2", "init") }, ""},
		{"switched off", func(t *testing.T, n *node) { n.tunnel(t, "ovn-2", "chassis-2@192.0.2.2", "admin_down") }, ""},
		{"not watched", func(t *testing.T, n *node) { n.put(t, "ovn-2", to("chassis-2@192.0.2.2"), nil, "ovn-2") }, ""},
		{"no state", func(t *testing.T, n *node) {
			n.put(t, "ovn-2", to("chassis-2@192.0.2.2"), map[string]string{"forwarding": "true"}, "ovn-2")
		}, ""},
		{"some", func(t *testing.T, n *node) {
			n.tunnel(t, "ovn-2", "chassis-2@192.0.2.2", "up")
			n.tunnel(t, "ovn-3", "chassis-3@192.0.2.3", "down")
			n.tunnel(t, "ovn-4", "chassis-4@192.0.2.4", "up")
		}, "chassis-2 chassis-4"},
		{"one of two ways", func(t *testing.T, n *node) {
			n.tunnel(t, "ovn-2", "chassis-2@192.0.2.2", "down")
			n.tunnel(t, "ovn-2b", "chassis-2@198.51.100.2", "up")
			n.tunnel(t, "ovn-3", "chassis-3@192.0.2.3", "up")
			n.tunnel(t, "ovn-3b", "chassis-3@198.51.100.3", "down")
		}, "chassis-2 chassis-3"},
		{"with this side's address behind it", func(t *testing.T, n *node) {
			n.tunnel(t, "ovn-2", "chassis-2@192.0.2.2%192.0.2.1", "up")
		}, "chassis-2"},
		{"IPv6", func(t *testing.T, n *node) { n.tunnel(t, "ovn-2", "chassis-2@fd00::2%fd00::1", "up") }, "chassis-2"},
		{"a UUID, as ovs-ctl makes system-ids", func(t *testing.T, n *node) {
			n.tunnel(t, "ovn-b0cf7c-0", "b0cf7c8e-3f5f-4f0a-9d8e-0a1b2c3d4e5f@192.0.2.2", "up")
		}, "b0cf7c8e-3f5f-4f0a-9d8e-0a1b2c3d4e5f"},
		{"a port that does not say whose", func(t *testing.T, n *node) { n.put(t, "vx-2", nil, up, "vx-2") }, ""},
		{"a port that says something else", func(t *testing.T, n *node) {
			n.put(t, "vx-2", map[string]string{"chassis": "chassis-2@192.0.2.2"}, up, "vx-2")
		}, ""},
		{"not a tunnel's mark", func(t *testing.T, n *node) { n.put(t, "ovn-2", to("chassis-2"), up, "ovn-2") }, ""},
		{"a bond, which OVN makes of no tunnel", func(t *testing.T, n *node) {
			n.put(t, "bond", to("chassis-2@192.0.2.2"), up, "b1", "b2")
		}, ""},
		{"one that does not say whose beside one that does", func(t *testing.T, n *node) {
			n.put(t, "vx-2", nil, up, "vx-2")
			n.tunnel(t, "ovn-3", "chassis-3@192.0.2.3", "up")
		}, "chassis-3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			tt.put(t, n)
			n.proxy.Reset()
			if got := n.alive(t); got != tt.want {
				t.Errorf("alive: %q, want %q", got, tt.want)
			}
			if got := n.proxy.Counts(); got.Committed != 0 || got.Refused != 0 {
				t.Errorf("transactions %+v, want reads alone", got)
			}
		})
	}
}

// Each look finds what holds then; none is kept from an earlier one.
func TestAliveFollowsBFD(t *testing.T) {
	n := newNode(t)
	n.tunnel(t, "ovn-2", "chassis-2@192.0.2.2", "down")
	n.tunnel(t, "ovn-3", "chassis-3@192.0.2.3", "up")
	becomes := func(name, state string) {
		n.Transact(t, ovndbtest.Op{"op": "update", "table": "Interface", "where": []any{[]any{"name", "==", name}},
			"row": ovndbtest.Op{"bfd_status": ovndbtest.Map(map[string]string{"state": state})}})
	}
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"at first", func() {}, "chassis-3"},
		{"one comes", func() { becomes("ovn-2", "up") }, "chassis-2 chassis-3"},
		{"one goes", func() { becomes("ovn-3", "down") }, "chassis-2"},
		{"a tunnel is taken away", func() { n.VSCtl("del-port", "ovn-2") }, ""},
		{"and is made anew", func() { n.tunnel(t, "ovn-2", "chassis-2@192.0.2.9", "up") }, "chassis-2"},
	} {
		step.do()
		if got := n.alive(t); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

// A tunnel that goes between the two looks, at interfaces and at ports, is nobody's.
func TestAliveWhileATunnelGoes(t *testing.T) {
	n := newNode(t)
	n.tunnel(t, "ovn-2", "chassis-2@192.0.2.2", "up")
	n.tunnel(t, "ovn-3", "chassis-3@192.0.2.3", "up")
	gone := false
	n.proxy.Before(func(tx ovndbtest.Transact) {
		if !gone && tx.Ops[0]["table"] == "Port" {
			gone = true
			n.VSCtl("del-port", "ovn-2")
		}
	})
	if got := n.alive(t); got != "chassis-3" || !gone {
		t.Errorf("alive: %q, want chassis-3; the tunnel went meanwhile: %t", got, gone)
	}
}

// However many tunnels a node has, a look is two questions.
func TestAliveOfManyTunnels(t *testing.T) {
	n := newNode(t)
	var want []string
	for i := range 60 {
		name := fmt.Sprintf("chassis-%02d", i)
		state := "up"
		if i%3 == 0 {
			state = "down"
		} else {
			want = append(want, name)
		}
		n.tunnel(t, fmt.Sprintf("ovn-%d", i), name+"@192.0.2.2", state)
	}
	n.proxy.Reset()
	if got := n.alive(t); got != strings.Join(want, " ") {
		t.Errorf("alive: %q, want %q", got, want)
	}
	if got := n.proxy.Counts(); got.ReadOnly != 2 || got.Committed != 0 {
		t.Errorf("transactions %+v, want two that read", got)
	}
}

// What cannot be read is an error: nobody alive would be another answer.
func TestAliveWithoutAnAnswer(t *testing.T) {
	for i, table := range []string{"Interface", "Port"} {
		t.Run(table, func(t *testing.T) {
			n := newNode(t)
			n.tunnel(t, "ovn-2", "chassis-2@192.0.2.2", "up")
			ctx, cancel := context.WithCancel(timeout(t))
			defer cancel()
			asked, over := 0, make(chan struct{})
			n.proxy.Before(func(tx ovndbtest.Transact) {
				if tx.Ops[0]["table"] == table {
					asked++
					cancel()
					<-over // nothing is answered before it gives up
				}
			})
			alive, err := n.ovs.Alive(ctx)
			close(over)
			if alive != nil || !errors.Is(err, context.Canceled) || asked != 1 {
				t.Errorf("alive %v, error %v, asked %d times at question %d; want the error alone", alive, err, asked, i+1)
			}
		})
	}
}
