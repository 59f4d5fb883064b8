package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// untilItWaits is a call's time that is up as soon as the call waits for its network.
func (w *world) untilItWaits(t *testing.T) (ctx context.Context, happened func()) {
	ctx, cancel := context.WithCancel(timeout(t))
	t.Cleanup(cancel)
	return ctx, w.once(t, waits, cancel)
}

// wantNotInForce demands the error that says what is in force instead.
func wantNotInForce(t *testing.T, err error, now *netmodel.Network) {
	t.Helper()
	got, ok := errors.AsType[*ovnport.NotAccepted](err)
	if !ok || got.NAD != now.NAD() || got.Config != now.Canonical() {
		t.Errorf("error %v (%+v), want that %s is %s", err, got, now.NAD(), now.Canonical())
		return
	}
	// What it says is a spec.config, and the network's.
	back, err := netmodel.ParseNetwork(now.Namespace, now.Name, []byte(got.Config))
	if err != nil || back.Revision() != now.Revision() {
		t.Errorf("%s reads as %+v, %v", got.Config, back, err)
	}
}

// The networks that take no port of shop/blue, and what an ADD says of them.
var notThere = []struct {
	name    string
	there   bool // the switch, which takes another NAD's ports
	refusal string
	ends    []bool // whether the call ends before the wait does; a whole one takes its seconds
	words   []string
}{
	{"no switch", false, "", []bool{false, true}, []string{"network shop/blue has no logical switch yet"}},
	{"a switch", true, "", []bool{true}, []string{"network shop/blue takes no ports of NetworkAttachmentDefinition shop/blue"}},
	{"no switch, with the reason", false, "gateway: 10.1.0.1 is held", []bool{true}, []string{"shop/blue", "refused: gateway: 10.1.0.1 is held"}},
	{"a switch, with the reason", true, "subnets: cannot become that", []bool{false, true}, []string{"shop/blue", "refused: subnets: cannot become that"}},
}

// A network that is not accepted is waited for once, and then it is an error. A call that ends before is told the
// same.
func TestNetworkIsNotAccepted(t *testing.T) {
	t.Parallel()
	for _, tt := range notThere {
		for _, ends := range tt.ends {
			t.Run(fmt.Sprintf("%s, ends early: %t", tt.name, ends), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				n := parseNetwork(t, "blue", netDual)
				if tt.there {
					w.Transact(t, insertNetwork(n)...)
					w.accept(t, n, "shop/other")
				}
				before := read(t, w.Server)
				waited := 0
				ctx, cancel := context.WithCancel(timeout(t))
				defer cancel()
				w.proxy.Before(func(tx ovndbtest.Transact) {
					if waits(tx) {
						if waited++; ends || waited > 1 {
							cancel()
						}
					}
				})
				wanted := want(n, "net1")
				wanted.Refusal = tt.refusal
				w.proxy.Reset()
				_, err := w.nb.Ensure(ctx, owner("web-1", "sandbox-1"), []ovnport.Request{wanted}, nobody(t))
				w.proxy.Before(nil)
				wantCode(t, err, conf.CodeTryAgain, tt.words...)
				if waited != 1 {
					t.Errorf("it waited %d times, want once", waited)
				}
				if !ends { // the guard, the look, the wait; then guard and look once more
					w.wantCounts(t, 0, 3, 2)
				}
				w.wantUnchanged(t, before)
			})
		}
	}
}

// The controller accepts the network while an ADD waits for it: its switch comes, or takes the NAD from now on.
func TestAcceptedDuringTheWait(t *testing.T) {
	for _, there := range []bool{false, true} {
		t.Run(fmt.Sprintf("switch is there: %t", there), func(t *testing.T) {
			w := newWorld(t)
			ready := w.network(t, "ready", net4)
			n := parseNetwork(t, "blue", netDual)
			if there {
				w.Transact(t, insertNetwork(n)...)
				w.accept(t, n)
			}
			o := owner("web-1", "sandbox-1")
			made := make(chan struct{})
			happened := w.once(t, waits, func() {
				go func() {
					defer close(made)
					w.NBCtl("show") // long enough for the wait to be there, as a rule
					if there {
						w.accept(t, n, "shop/other", n.NAD())
					} else {
						w.Transact(t, insertNetwork(n)...)
					}
				}()
			})
			w.proxy.Reset()
			ports := mustEnsure(t, w.nb, o, want(ready, "net1"), want(n, "net2"))
			happened()
			if t.Failed() {
				return
			}
			<-made
			if got := w.proxy.Counts(); got.Committed != 1 {
				t.Errorf("%d transactions committed, want 1", got.Committed)
			}
			w.wantPorts(t, o, ports)
		})
	}
}

// What is accepted during the wait is something else than was waited for.
func TestAnotherIsAcceptedDuringTheWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, now := parseNetwork(t, "blue", net4), parseNetwork(t, "blue", net4+`,"mtu":1300`)
	happened := w.once(t, waits, func() { w.Transact(t, insertNetwork(now)...) })
	_, err := w.nb.Ensure(timeout(t), owner("web-1", "sandbox-1"), []ovnport.Request{want(n, "net1")}, nobody(t))
	happened()
	wantNotInForce(t, err, now)
	w.wantPorts(t, owner("web-1", "sandbox-1"), nil)
}

// The controller accepts the network between the refusal and the look at it: nothing is waited for.
func TestAcceptedJustNow(t *testing.T) {
	w := newWorld(t)
	n := parseNetwork(t, "blue", netDual)
	o := owner("web-1", "sandbox-1")
	happened := w.once(t, hasOp("select", "Logical_Switch"), func() { w.Transact(t, insertNetwork(n)...) })
	w.proxy.Reset()
	ports := mustEnsure(t, w.nb, o, want(n, "net1"))
	happened()
	w.wantCounts(t, 1, 1, 1)
	w.wantPorts(t, o, ports)
}

// The NAD was changed and the network is what it was: nobody gets a port by the new one, and the error says what
// counts.
func TestAnotherConfigurationIsInForce(t *testing.T) {
	tests := []struct {
		name    string
		sandbox string // which has the port already
		fixed   []string
	}{
		{"a new pod", "", nil},
		{"a fixed address", "", []string{"10.1.0.7"}},
		{"the older sandbox has the port", "sandbox-1", nil},
		{"the sandbox has the port itself", "sandbox-2", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			now := w.network(t, "blue", net4+`,"routes":[{"dst":"192.0.2.0/24"}]`)
			ready := w.network(t, "ready", net4)
			n := parseNetwork(t, "blue", net4+`,"mtu":1300`)
			if tt.sandbox != "" {
				mustEnsure(t, w.nb, owner("web-1", tt.sandbox), want(now, "net1"))
			}
			before := read(t, w.Server)
			w.proxy.Reset()
			_, err := w.nb.Ensure(timeout(t), owner("web-1", "sandbox-2"), []ovnport.Request{want(ready, "net0"), want(n, "net1", tt.fixed...)}, nobody(t))
			wantNotInForce(t, err, now)
			w.wantCounts(t, 0, 1, 1) // the guard, the look
			w.wantUnchanged(t, before)
		})
	}
}

// What the network takes changes after an ADD was laid out and before it is committed.
func TestAcceptanceChangesBeforeTheWrite(t *testing.T) {
	refusedWith := func(word string) func(*testing.T, error, *netmodel.Network) {
		return func(t *testing.T, err error, _ *netmodel.Network) { wantCode(t, err, conf.CodeTryAgain, word) }
	}
	tests := []struct {
		name   string
		change func(t *testing.T, w *world, was, now *netmodel.Network)
		want   func(t *testing.T, err error, now *netmodel.Network)
	}{
		{"another configuration", func(t *testing.T, w *world, was, now *netmodel.Network) { w.accept(t, now, was.NAD()) }, wantNotInForce},
		{"another one, and another NAD alone", func(t *testing.T, w *world, _, now *netmodel.Network) { w.accept(t, now, "shop/other") },
			refusedWith("takes no ports of NetworkAttachmentDefinition shop/red")},
		{"every NAD withdrawn", func(t *testing.T, w *world, was, _ *netmodel.Network) { w.accept(t, was) },
			refusedWith("takes no ports of NetworkAttachmentDefinition shop/red")},
		{"this NAD withdrawn", func(t *testing.T, w *world, was, _ *netmodel.Network) { w.accept(t, was, "shop/other") },
			refusedWith("takes no ports of NetworkAttachmentDefinition shop/red")},
		{"the switch deleted", func(_ *testing.T, w *world, was, _ *netmodel.Network) { w.NBCtl("ls-del", was.ID()) },
			refusedWith("network shop/red has no logical switch yet")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			blue, red := w.network(t, "blue", netDual), w.network(t, "red", net4)
			now := parseNetwork(t, "red", net4+`,"mtu":1300`)
			o := owner("web-1", "sandbox-1")
			ctx, cancel := context.WithCancel(timeout(t))
			defer cancel()
			changed := false
			w.proxy.Before(func(tx ovndbtest.Transact) {
				if !changed && hasOp("insert", "Logical_Switch_Port")(tx) {
					changed = true
					tt.change(t, w, red, now)
				}
				if waits(tx) { // nothing will come of it
					cancel()
				}
			})
			_, err := w.nb.Ensure(ctx, o, []ovnport.Request{want(blue, "net1"), want(red, "net2", "10.1.0.7", "10.1.0.8")}, nobody(t))
			w.proxy.Before(nil)
			tt.want(t, err, now)
			w.wantPorts(t, o, nil)
		})
	}
}

// The same in the middle of a takeover and of a confirmation: the port stays as it is.
func TestAcceptanceChangesBeforeATakeover(t *testing.T) {
	tests := []struct {
		name    string
		sandbox string // that asks, when sandbox-1 has the port
		fits    func(ovndbtest.Transact) bool
	}{
		{"takeover", "sandbox-2", hasOp("update", "Logical_Switch_Port")},
		{"confirmation", "sandbox-1", func(tx ovndbtest.Transact) bool { return !tx.Writes && hasOp("wait", "Logical_Switch_Port")(tx) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			n, now := w.network(t, "blue", netDual), parseNetwork(t, "blue", netDual+`,"mtu":1300`)
			first := owner("web-1", "sandbox-1")
			ports := mustEnsure(t, w.nb, first, want(n, "net1"))
			happened := w.once(t, tt.fits, func() { w.accept(t, now, n.NAD()) })
			_, err := w.nb.Ensure(timeout(t), owner("web-1", tt.sandbox), []ovnport.Request{want(n, "net1")}, anyone)
			happened()
			wantNotInForce(t, err, now)
			w.wantPorts(t, first, ports)
		})
	}
}

// That another NAD of the network comes or goes is nothing to an ADD.
func TestOtherNADsComeAndGo(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	o := owner("web-1", "sandbox-1")
	happened := w.once(t, hasOp("insert", "Logical_Switch_Port"), func() { w.accept(t, n, "shop/other", n.NAD()) })
	w.proxy.Reset()
	ports := mustEnsure(t, w.nb, o, want(n, "net1"))
	happened()
	w.wantCounts(t, 1, 0, 0)
	w.wantPorts(t, o, ports)
}

// fleet is the network of that name, as a NAD of ovn-kubernetes' type describes it.
func fleet(t *testing.T, namespace, nad, keys string) *netmodel.Network {
	t.Helper()
	n, err := netmodel.ParseNetwork(namespace, nad, []byte(`{"cniVersion":"1.0.0","name":"fleet","type":"ovn-k8s-cni-overlay","topology":"layer2",`+
		`"netAttachDefName":"`+namespace+"/"+nad+`",`+keys+`}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// NADs of two namespaces describe one network: pods of both lease from one pool, on one switch.
func TestSharedNetworkIsOnePool(t *testing.T) {
	w := newWorld(t)
	const tiny = `"subnets":"10.1.0.0/29"` // five addresses
	blue, red := fleet(t, "shop", "blue", tiny), fleet(t, "depot", "red", tiny)
	w.Transact(t, insertNetwork(blue)...)
	w.accept(t, blue, blue.NAD(), red.NAD())

	both := owner("web-1", "sandbox-1")
	w.proxy.Reset()
	ports := mustEnsure(t, w.nb, both, want(blue, "net1"), want(red, "net2"), want(blue, "net3", "10.1.0.4"))
	w.wantCounts(t, 1, 0, 0)
	w.wantPorts(t, both, ports)
	if ports[0].Network != "fleet" || ports[1].Network != "fleet" {
		t.Errorf("ports of networks %s and %s, want fleet", ports[0].Network, ports[1].Network)
	}
	_, err := w.nb.Ensure(timeout(t), owner("web-2", "sandbox-2"), []ovnport.Request{want(red, "net1", "10.1.0.4")}, nobody(t))
	wantCode(t, err, conf.CodeInUse, "10.1.0.4", "network fleet", "shop/web-1")
	_, err = w.nb.Ensure(timeout(t), owner("web-2", "sandbox-2"), []ovnport.Request{want(red, "net1", "10.1.0.5"), want(blue, "net2", "10.1.0.5")}, nobody(t))
	wantCode(t, err, conf.CodeInvalidConfig, "10.1.0.5", "twice")

	// The last two addresses, by one NAD each.
	second, third := owner("web-2", "sandbox-2"), owner("web-3", "sandbox-3")
	mustEnsure(t, w.nb, second, want(blue, "net1"))
	mustEnsure(t, w.nb, third, want(red, "net1"))
	for _, n := range []*netmodel.Network{blue, red} {
		_, err = w.nb.Ensure(timeout(t), owner("late", "sandbox-late"), []ovnport.Request{want(n, "net1")}, nobody(t))
		wantCode(t, err, conf.CodeNoAddressLeft, "network fleet")
	}
	s := read(t, w.Server)
	s.check(t)
	if len(s.ports) != 5 || len(s.switches) != 1 {
		t.Errorf("%d ports on %d switches, want 5 on one", len(s.ports), len(s.switches))
	}
}

// Of the NADs of one network one is not accepted, or another one than is in force: that the others are is no help.
func TestSharedNetworkTakesAcceptedNADsOnly(t *testing.T) {
	w := newWorld(t)
	blue, stranger := fleet(t, "shop", "blue", net4), fleet(t, "depot", "red", net4)
	w.Transact(t, insertNetwork(blue)...)
	before := read(t, w.Server)
	ctx, happened := w.untilItWaits(t)
	_, err := w.nb.Ensure(ctx, owner("web-1", "sandbox-1"), []ovnport.Request{want(blue, "net1"), want(stranger, "net2")}, nobody(t))
	happened()
	wantCode(t, err, conf.CodeTryAgain, "network fleet takes no ports of NetworkAttachmentDefinition depot/red")
	w.wantUnchanged(t, before)

	w.accept(t, blue, blue.NAD(), stranger.NAD())
	before = read(t, w.Server)
	other := w.other(t)
	differs := fleet(t, "depot", "red", net4+`,"mtu":1300`)
	_, err = other.Ensure(timeout(t), owner("web-1", "sandbox-1"), []ovnport.Request{want(blue, "net1"), want(differs, "net2")}, nobody(t))
	wantNotInForce(t, err, stranger)
	w.wantUnchanged(t, before)
}

// Whoever asks for a router's address is told that a router has it.
func TestRouterHoldsItsAddress(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4+`,"router":"edge"`)
	key := ovndb.AddressKey(n.ID(), n.Gateways[0])
	w.Transact(t,
		ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid": key, "row": ovndbtest.Op{
			"name": "shop/blue:shop/edge", "type": "router", "addresses": "router", "options": ovndbtest.Map(map[string]string{"router-port": "shop/edge:shop/blue"}),
			"external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/network": n.ID(), "ovn-multinet/router": "shop/edge"})}},
		ovndbtest.Op{"op": "mutate", "table": "Logical_Switch", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.SwitchKey(n.ID()))}},
			"mutations": []any{[]any{"ports", "insert", ovndbtest.Set(ovndbtest.UUID(key))}}})
	before := read(t, w.Server)
	for _, fixed := range [][]string{{"10.1.0.1"}, {"10.1.0.7", "10.1.0.1"}} { // as the lease and as a claim
		_, err := w.nb.Ensure(timeout(t), owner("web-1", "sandbox-1"), []ovnport.Request{want(n, "net1", fixed...)}, nobody(t))
		wantCode(t, err, conf.CodeInUse, "10.1.0.1", "is in use by router shop/edge")
		w.wantUnchanged(t, before)
	}
	// The router's port is no pod's, so no sandbox has it, not even the one without a name.
	mustRelease(t, w.nb, "sandbox-1", ovnport.Port{UUID: key})
	w.wantUnchanged(t, before)
}
