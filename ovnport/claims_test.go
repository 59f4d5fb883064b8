package ovnport_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// A lease keeps claims off and a claim leases: whoever comes second is told who was first.
// Conformance: C-83
func TestHeldIsHeld(t *testing.T) {
	tests := []struct {
		name          string
		network       string
		first, second []string
		what          string
	}{
		{"lease, lease", net4, []string{"10.1.0.7"}, []string{"10.1.0.7"}, "address 10.1.0.7"},
		{"lease, claim", net4, []string{"10.1.0.7"}, []string{"10.1.0.8", "10.1.0.7"}, "address 10.1.0.7"},
		{"claim, lease", net4, []string{"10.1.0.8", "10.1.0.7"}, []string{"10.1.0.7"}, "address 10.1.0.7"},
		{"claim, claim", net4, []string{"10.1.0.8", "10.1.0.7"}, []string{"10.1.0.9", "10.1.0.7"}, "address 10.1.0.7"},
		{"v6 lease, lease", net6, []string{"fd01::7"}, []string{"fd01::7"}, "address fd01::7"},
		{"v6 claim, claim of two dual-stack ports", netDual, []string{"fd01::7"}, []string{"10.1.0.9", "fd01::7"}, "address fd01::7"},
		{"MAC, MAC", net4, []string{"10.1.0.7", "02:00:00:00:00:2a"}, []string{"10.1.0.8", "02:00:00:00:00:2a"}, "MAC 02:00:00:00:00:2a"},
		{"MAC leases", netMAC, []string{"02:00:00:00:00:2a"}, []string{"02:00:00:00:00:2a"}, "MAC 02:00:00:00:00:2a"},
		{"MAC made from a wide v6 lease, MAC", net6, []string{"fd01::1:0:0:7"}, []string{"fd01::7", "0a:59:00:f9:58:de"}, "MAC 0a:59:00:f9:58:de"},
	}
	w := newWorld(t)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := w.network(t, fmt.Sprint("n", i), tt.network)
			aside := w.network(t, fmt.Sprint("aside", i), net4)
			first, second := owner("web-1", "sandbox-1"), owner("web-2", "sandbox-2")
			ports := mustEnsure(t, w.nb, first, want(n, "net1", tt.first...))
			before := read(t, w.Server)
			w.proxy.Reset()
			// All or none: the port on the other network is not made either.
			_, err := w.nb.Ensure(timeout(t), second, []ovnport.Request{want(aside, "net1"), want(n, "net2", tt.second...)}, nobody(t))
			wantCode(t, err, conf.CodeInUse, "net2", n.ID(), tt.what, "shop/web-1")
			if got := w.proxy.Counts(); got.Committed != 0 {
				t.Errorf("%d transactions committed, want none", got.Committed)
			}
			w.wantUnchanged(t, before)

			mustRelease(t, w.nb, first.Sandbox, ports...)
			ports = mustEnsure(t, w.nb, second, want(aside, "net1"), want(n, "net2", tt.second...))
			w.wantPorts(t, second, ports)
			mustRelease(t, w.nb, second.Sandbox, ports...)
			w.wantPorts(t, second, nil)
		})
	}
}

// What is held in one network is free in another.
func TestNetworksDoNotMeet(t *testing.T) {
	w := newWorld(t)
	fixed := []string{"10.1.0.7", "10.1.0.8", "02:00:00:00:00:2a"}
	blue, red := w.network(t, "blue", net4), w.network(t, "red", net4)
	o := owner("web-1", "sandbox-1")
	w.wantPorts(t, o, mustEnsure(t, w.nb, o, want(blue, "net1", fixed...), want(red, "net2", fixed...)))
}

// A dynamic address passes over what is held, by a lease or by a claim, first candidate or not.
func TestDynamicPassesOver(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", `"subnets":"10.1.0.0/24"`)
	o := owner("web-1", "sandbox-1")
	others := owner("others", "sandbox-o")
	var taken []ovnport.Port
	for i := range 8 {
		next := mustEnsure(t, w.nb, o, want(n, "net1"))
		mustRelease(t, w.nb, o.Sandbox, next...)
		usual := next[0].Addresses[0].Addr().String()
		fixed := []string{usual}
		if i%2 == 1 { // as a claim
			fixed = []string{fmt.Sprint("10.1.0.", 240+i), usual}
		}
		taken = append(taken, mustEnsure(t, w.nb, others, want(n, fmt.Sprint("net", i), fixed...))...)
		w.proxy.Reset()
		ports := mustEnsure(t, w.nb, o, want(n, "net1"))
		// Two blind attempts at most, then one that was looked up.
		if got := w.proxy.Counts(); got.Committed != 1 || got.Refused > 2 {
			t.Errorf("with %d held: %+v", i+1, got)
		}
		read(t, w.Server).check(t)
		mustRelease(t, w.nb, o.Sandbox, ports...)
	}
	w.wantPorts(t, others, taken)
}

// The look-up of candidates sees claims: with all but one address claimed, it is found without an attempt in vain.
func TestLookUpPassesOverClaims(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "small", `"subnets":"10.1.0.0/27"`) // .2 to .30
	var fixed []string
	for i := 2; i < 30; i++ {
		fixed = append(fixed, fmt.Sprint("10.1.0.", i))
	}
	mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1", fixed...))
	w.proxy.Reset()
	got := mustEnsure(t, w.nb, owner("web-2", "sandbox-2"), want(n, "net1"))
	if got[0].Addresses[0].Addr().String() != "10.1.0.30" {
		t.Errorf("got %v, want 10.1.0.30", got[0].Addresses[0])
	}
	if counts := w.proxy.Counts(); counts.Refused > 2 {
		t.Errorf("%d attempts refused, want the two blind ones", counts.Refused)
	}
}

// A pod with two ports gets the last two addresses, neither of them twice.
func TestLastTwoAddressesForOnePod(t *testing.T) {
	for _, size := range []int{28, 24} { // 13 addresses, and 253: more than one look-up
		t.Run(fmt.Sprint("/", size), func(t *testing.T) {
			w := newWorld(t)
			n := w.network(t, "small", fmt.Sprintf(`"subnets":"10.1.0.0/%d"`, size))
			var others []ovnport.Request
			for i := range n.Pool(0).Size() - 2 {
				others = append(others, want(n, fmt.Sprint("net", i)))
			}
			mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), others...)
			for i := range 40 { // in forty orders of search
				o := owner(fmt.Sprint("late-", i), "sandbox-2")
				w.proxy.Reset()
				ports := mustEnsure(t, w.nb, o, want(n, "net1"), want(n, "net2"))
				s := read(t, w.Server)
				s.check(t)
				if bad := s.differs(o, ports[0], true) + s.differs(o, ports[1], true); bad != "" {
					t.Error(bad)
				}
				if got := w.proxy.Counts(); got.Committed != 1 || got.Refused > 2 {
					t.Errorf("more refused than the two blind attempts: %+v", got)
				}
				mustRelease(t, w.nb, o.Sandbox, ports...)
			}
		})
	}
}

// Someone deletes a port by hand: its claims are nobody's, and go when they are in the way.
func TestOrphanClaims(t *testing.T) {
	tests := []struct {
		name  string
		fixed []string
	}{
		{"wanted as the lease", []string{"10.1.0.8"}},
		{"wanted as a claim", []string{"10.1.0.9", "10.1.0.8"}},
		{"two of them", []string{"10.1.0.9", "10.1.0.8", "02:00:00:00:00:2a"}},
		{"by nothing but the address", []string{"10.1.0.7"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			n := w.network(t, "blue", net4)
			mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1", "10.1.0.7", "10.1.0.8", "02:00:00:00:00:2a"))
			w.NBCtl("lsp-del", "shop/web-1/net1")
			if s := read(t, w.Server); len(s.claims) != 2 || len(s.ports) != 0 {
				t.Fatalf("after lsp-del: %v", s)
			}
			o := owner("web-2", "sandbox-2")
			ports := mustEnsure(t, w.nb, o, want(n, "net1", tt.fixed...))
			s := read(t, w.Server)
			if bad := s.differs(o, ports[0], true); bad != "" {
				t.Error(bad)
			}
			for _, p := range append([]string{ports[0].UUID}, ports[0].Claims...) {
				if claim := s.claims[p]; claim != nil && ids(claim)["ovn-multinet/port"] != ports[0].UUID {
					t.Errorf("claim of another beside it: %v", claim)
				}
			}
		})
	}
}

// Orphan claims do not use a subnet up.
func TestOrphanClaimsInAFullNetwork(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "tiny", `"subnets":"10.1.0.0/28","excludeSubnets":"10.1.0.8/29"`) // .2 to .7
	mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1", "10.1.0.9", "10.1.0.3", "10.1.0.4"))
	w.NBCtl("lsp-del", "shop/web-1/net1")
	o := owner("web-2", "sandbox-2")
	var ports []ovnport.Port
	for i := range 6 {
		ports = append(ports, mustEnsure(t, w.nb, o, want(n, fmt.Sprint("net", i)))...)
	}
	w.wantPorts(t, o, ports)
	_, err := w.nb.Ensure(timeout(t), owner("web-3", "sandbox-3"), []ovnport.Request{want(n, "net1")}, nobody(t))
	wantCode(t, err, conf.CodeNoAddressLeft)
}

// The key of an orphan claim's port is another pod's lease by now, which makes the claim no less an orphan.
func TestOrphanClaimWhoseKeyIsLeasedAgain(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1", "10.1.0.7", "10.1.0.8"))
	w.NBCtl("lsp-del", "shop/web-1/net1")
	o := owner("web-2", "sandbox-2")
	ports := mustEnsure(t, w.nb, o, want(n, "net1", "10.1.0.7"))
	ports = append(ports, mustEnsure(t, w.nb, o, want(n, "net2", "10.1.0.8"))...)
	w.wantPorts(t, o, ports)
}

// Between the look at an orphan claim and its deletion, its port comes back, or it becomes another's.
func TestOrphanClaimIsRevived(t *testing.T) {
	for _, lease := range []string{"10.1.0.7", "10.1.0.9"} { // the old port's key, and another
		t.Run(lease, func(t *testing.T) {
			w := newWorld(t)
			n := w.network(t, "blue", net4)
			mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1", "10.1.0.7", "10.1.0.8"))
			w.NBCtl("lsp-del", "shop/web-1/net1")
			other := w.other(t)
			o := owner("web-2", "sandbox-2")
			var revived []ovnport.Port
			happened := w.once(t, hasOp("delete", "Copp"), func() {
				revived = mustEnsure(t, other, o, want(n, "net1", lease, "10.1.0.8"))
			})
			_, err := w.nb.Ensure(timeout(t), owner("web-3", "sandbox-3"), []ovnport.Request{want(n, "net1", "10.1.0.8")}, nobody(t))
			happened()
			wantCode(t, err, conf.CodeInUse, "10.1.0.8", "shop/web-2")
			w.wantPorts(t, o, revived)
		})
	}
}

// Rows that are not ours are not touched, by name or by key.
func TestForeignPortsStay(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	o := owner("web-1", "sandbox-1")
	usual := mustEnsure(t, w.nb, o, want(n, "net1"))[0]
	mustRelease(t, w.nb, o.Sandbox, usual)

	w.NBCtl("lsp-add", n.ID(), "shop/web-1/net1", "--", "lsp-set-addresses", "shop/web-1/net1", "02:00:00:00:00:01")
	before := read(t, w.Server)
	for _, fixed := range [][]string{nil, {"10.1.0.7"}, {"10.1.0.7", "10.1.0.8"}} {
		_, err := w.nb.Ensure(timeout(t), o, []ovnport.Request{want(n, "net1", fixed...)}, nobody(t))
		wantCode(t, err, conf.CodeInUse, "net1", "shop/web-1/net1", "not ours")
		w.wantUnchanged(t, before)
	}
	w.NBCtl("lsp-del", "shop/web-1/net1")

	// One that has a key of ours without being ours: its address is taken.
	w.Transact(t,
		ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid": usual.UUID, "row": ovndbtest.Op{"name": "theirs"}},
		ovndbtest.Op{"op": "mutate", "table": "Logical_Switch", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.SwitchKey(n.ID()))}},
			"mutations": []any{[]any{"ports", "insert", ovndbtest.Set(ovndbtest.UUID(usual.UUID))}}})
	before = read(t, w.Server)
	_, err := w.nb.Ensure(timeout(t), o, []ovnport.Request{want(n, "net1", usual.Addresses[0].Addr().String())}, nobody(t))
	wantCode(t, err, conf.CodeInUse, "theirs", "not ours")
	mustRelease(t, w.nb, o.Sandbox, usual)
	w.wantUnchanged(t, before)
	if got := mustEnsure(t, w.nb, o, want(n, "net1"))[0]; got.UUID == usual.UUID {
		t.Error("the foreign port's address was leased")
	}
	if read(t, w.Server).ports[usual.UUID]["name"] != "theirs" {
		t.Error("the foreign port is gone")
	}
}

// A made MAC belongs to its lease: nobody may fix one that another lease would bring.
func TestMadeMACsAreNotForOthers(t *testing.T) {
	w := newWorld(t)
	tests := []struct {
		name, network string
		fixed         []string
	}{
		{"of another address", net4, []string{"10.1.0.7", "0a:58:0a:01:00:08"}},
		{"of a dynamic address", net4, []string{"0a:58:0a:01:00:07"}},
		{"wide v6", net6, []string{"fd01::1:0:0:7", "0a:58:00:00:00:07"}},
		{"wide v6, with its hash", net6, []string{"fd01::1:0:0:7", "0a:58:00:f9:58:de"}},
	}
	// Not even that of the address which the pod would probably get.
	n := w.network(t, "usual", net4)
	usual := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"))
	mustRelease(t, w.nb, "sandbox-1", usual...)
	_, err := w.nb.Ensure(timeout(t), owner("web-1", "sandbox-1"), []ovnport.Request{want(n, "net1", usual[0].MAC.String())}, nobody(t))
	wantCode(t, err, conf.CodeInvalidConfig, "net1", "0a:58:")
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := w.network(t, fmt.Sprint("n", i), tt.network)
			_, err := w.nb.Ensure(timeout(t), owner("web-1", "sandbox-1"), []ovnport.Request{want(n, "net1", tt.fixed...)}, nobody(t))
			wantCode(t, err, conf.CodeInvalidConfig, "net1", "0a:58:")
			w.wantPorts(t, owner("web-1", "sandbox-1"), nil)
		})
	}
}

// The pod asks for one thing twice: an error at once, and nothing is written.
func TestOneAddressTwiceInAPod(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	o := owner("web-1", "sandbox-1")
	for _, wants := range [][]ovnport.Request{
		{want(n, "net1", "10.1.0.7"), want(n, "net2", "10.1.0.7")},
		{want(n, "net1", "10.1.0.7"), want(n, "net2", "10.1.0.8", "10.1.0.7")},
		{want(n, "net1", "10.1.0.7", "10.1.0.7")},
		{want(n, "net1", "02:00:00:00:00:2a"), want(n, "net2", "02:00:00:00:00:2a")},
	} {
		w.proxy.Reset()
		_, err := w.nb.Ensure(timeout(t), o, wants, nobody(t))
		wantCode(t, err, conf.CodeInvalidConfig, "twice")
		w.wantCounts(t, 0, 0, 0)
		w.wantPorts(t, o, nil)
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
