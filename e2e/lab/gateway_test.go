package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// nbctl runs commands, one a line, in one transaction.
func nbctl(t *testing.T, l *Lab, commands string) {
	t.Helper()
	var args []string
	for line := range strings.Lines(commands) {
		if words := strings.Fields(line); len(words) > 0 {
			args = append(append(args, "--"), words...)
		}
	}
	if _, err := l.NBCtl(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// gatewayRows are a network red behind router main, and a gateway router for it by way of a switch join. The gateway's
// external port has 192.0.2.10 and 2001:db8::10 on VLAN 42, and lives on the first of two nodes.
func gatewayRows(t *testing.T, l *Lab) {
	t.Helper()
	nbctl(t, l, fmt.Sprintf(`
		ls-add red
		lr-add main
		lrp-add main main-red 0a:58:0a:15:00:01 10.21.0.1/24 fd21::1/64
		lsp-add red red-main
		lsp-set-type red-main router
		lsp-set-addresses red-main router
		lsp-set-options red-main router-port=main-red
		ls-add join
		lrp-add main main-join 0a:58:64:58:00:01 100.88.0.1/24 fd88::1/64
		lsp-add join join-main
		lsp-set-type join-main router
		lsp-set-addresses join-main router
		lsp-set-options join-main router-port=main-join
		lr-add gw
		lrp-add gw gw-join 0a:58:64:58:00:02 100.88.0.2/24 fd88::2/64
		lsp-add join join-gw
		lsp-set-type join-gw router
		lsp-set-addresses join-gw router
		lsp-set-options join-gw router-port=gw-join
		ls-add ext
		lsp-add ext ext-phys
		lsp-set-type ext-phys localnet
		lsp-set-addresses ext-phys unknown
		lsp-set-options ext-phys network_name=provider
		set Logical_Switch_Port ext-phys tag_request=42
		lrp-add gw main-external 0a:58:c0:00:02:0a 192.0.2.10/24 2001:db8::10/64
		lsp-add ext ext-gw
		lsp-set-type ext-gw router
		lsp-set-addresses ext-gw router
		lsp-set-options ext-gw router-port=main-external
		lr-route-add main 0.0.0.0/0 100.88.0.2
		lr-route-add main ::/0 fd88::2
		lr-route-add gw 10.21.0.0/24 100.88.0.1
		lr-route-add gw fd21::/64 fd88::1
		lr-route-add gw 0.0.0.0/0 192.0.2.1
		lr-route-add gw ::/0 2001:db8::1
		lr-nat-add gw snat 192.0.2.11 10.21.0.0/24
		lr-nat-add gw snat 2001:db8::11 fd21::/64
		ha-chassis-group-add gwg
		ha-chassis-group-add-chassis gwg %s 20
		ha-chassis-group-add-chassis gwg %s 10
		`, l.Nodes[0].SystemID, l.Nodes[1].SystemID))
	group, err := l.NBCtl(t.Context(), "--bare", "--columns=_uuid", "find", "HA_Chassis_Group", "name=gwg")
	if err != nil {
		t.Fatal(err)
	}
	nbctl(t, l, "set Logical_Router_Port main-external ha_chassis_group="+group)
}

// bfdUp waits until the nodes' tunnels to all others that watch each other do: until then both of the gateway's nodes
// may think that the other is gone.
func bfdUp(t *testing.T, nodes ...*Node) {
	t.Helper()
	for _, n := range nodes {
		err := Eventually(t.Context(), func() error {
			out, err := n.VSCtl(t.Context(), "--bare", "--columns=bfd_status", "find", "Interface", "type=geneve")
			if err != nil {
				return err
			}
			if up := strings.Count(out, " state=up"); up != len(n.lab.Nodes)-1 {
				return fmt.Errorf("BFD is up to %d nodes: %s", up, out)
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", n.Name, err)
		}
	}
}

// settled is when all nodes have done what NB asks of them, and see each other.
func settled(t *testing.T, l *Lab) {
	t.Helper()
	if _, err := l.NBCtl(t.Context(), timeoutArg(t.Context()), "--wait=hv", "sync"); err != nil {
		t.Fatal(err)
	}
	bfdUp(t, l.Nodes...)
}

// gateway is a lab with a machine behind the gateway's rows and one beyond.
type gateway struct {
	*Lab
	t       *testing.T
	vm      *Machine
	host    *Outside
	binding *BindingWatch
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	l := Start(t, Options{Nodes: 3, PrimaryOnly: true, Physical: "provider"})
	g := &gateway{Lab: l, t: t}
	var err error
	if g.binding, err = l.WatchBinding(t.Context(), "cr-main-external"); err != nil {
		t.Fatal(err)
	}
	gatewayRows(t, l)
	g.vm = newMachine(t, l.Nodes[2], "red", 1, "10.21.0.10/24", "fd21::10/64")
	run(t, g.vm, "ip -4 route add default via 10.21.0.1")
	run(t, g.vm, "ip -6 route add default via fd21::1")
	g.host = newOutside(t, l, "host", 42, "192.0.2.1/24", "2001:db8::1/64", "198.51.100.1/32", "2001:db8:1::1/128")
	settled(t, l)
	return g
}

// await returns when the gateway is on the node.
func (g *gateway) await(n *Node) {
	g.t.Helper()
	if err := g.binding.Await(g.t.Context(), func(chassis string) bool { return chassis == n.SystemID }); err != nil {
		g.t.Fatalf("the gateway does not come to %s: %v", n.Name, err)
	}
}

func (g *gateway) powerOff(n *Node) {
	g.t.Helper()
	if err := n.PowerOff(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	if got := carriers(g.t, n); got != nil {
		g.t.Errorf("without power %v have a carrier", got)
	}
}

// powerOn returns when the node has done all that is asked of it, and sees the others.
func (g *gateway) powerOn(n *Node) {
	g.t.Helper()
	if err := n.PowerOn(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	if got := carriers(g.t, n); !slices.Equal(got, []string{"eth0", "eth1", "ext0"}) {
		g.t.Errorf("after the boot %v have a carrier", got)
	}
	settled(g.t, g.Lab)
}

// goesOut looks at all that leaves by a node, and at how it arrives.
func (g *gateway) goesOut(by *Node) {
	g.t.Helper()
	reach(g.t, g.vm, "198.51.100.1", "2001:db8:1::1")
	arrived, sent := newCapture(g.t, g.host.Capture), newCapture(g.t, by.CaptureTrunk)
	reach(g.t, g.vm, "198.51.100.1", "2001:db8:1::1")
	reach(g.t, g.host, "192.0.2.10", "2001:db8::10")
	sources(g.t, arrived, "192.0.2.11", "2001:db8::11")
	if vlans := tags(g.t, sent); !slices.Equal(vlans, []int{42}) {
		g.t.Errorf("%s sent requests with VLANs %v, want all with 42", by.Name, vlans)
	}
}

// moved looks at the first and the last host since the from-th move. Between the two the binding may blink: until BFD is
// up both nodes claim it.
func (g *gateway) moved(what string, from int, first, last *Node) {
	g.t.Helper()
	var hosts []string
	for _, move := range g.binding.Moves()[from:] {
		if move.Chassis != "" {
			hosts = append(hosts, move.Chassis)
		}
	}
	if len(hosts) == 0 || hosts[0] != first.SystemID || hosts[len(hosts)-1] != last.SystemID {
		g.t.Errorf("%s: the gateway moved to %v, want %s first and %s last", what, hosts, first.SystemID, last.SystemID)
	}
}

// TestGatewayMoves: what a machine sends out leaves by the gateway's node under the gateway's addresses. When that node
// loses its power another one takes over; when it is back it takes the gateway back, unless the other has become the
// preferred one meanwhile.
func TestGatewayMoves(t *testing.T) {
	g := newGateway(t)
	one, two := g.Nodes[0], g.Nodes[1]
	g.await(one)
	g.goesOut(one)

	from, off := len(g.binding.Moves()), time.Now()
	g.powerOff(one)
	g.await(two)
	t.Logf("the gateway moved %v after the loss of power", time.Since(off).Round(time.Millisecond))
	g.goesOut(two)
	g.powerOn(one)
	g.await(one)
	g.goesOut(one)
	g.moved("the preferred node went and came", from, two, one)

	from = len(g.binding.Moves())
	g.powerOff(one)
	g.await(two)
	nbctl(t, g.Lab, "ha-chassis-group-add-chassis gwg "+two.SystemID+" 30")
	g.powerOn(one)
	g.await(two)
	g.goesOut(two)
	g.moved("another node became the preferred one", from, two, two)

	from = len(g.binding.Moves())
	g.powerOff(two)
	g.await(one)
	g.goesOut(one)
	g.powerOn(two)
	g.await(two)
	g.goesOut(two)
	g.moved("and went and came", from, one, two)
}
