package ovnport_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

func TestEnsureWritesWhatItReturns(t *testing.T) {
	tests := []struct {
		name    string
		network string
		fixed   []string
		want    []string // per address: itself, or the subnet that a dynamic one is of
		mac     string   // "": made from the lease
		claims  int
	}{
		{"v4", net4, nil, []string{"10.1.0.0/24"}, "", 0},
		{"v6", net6, nil, []string{"fd01::/64"}, "", 0},
		{"dual", netDual, nil, []string{"10.1.0.0/24", "fd01::/64"}, "", 1},
		{"MAC only", netMAC, nil, nil, "any", 0},
		{"no port security", net4 + `,"portSecurity":false`, nil, []string{"10.1.0.0/24"}, "", 0},
		{"fixed v4", net4, []string{"10.1.0.7"}, []string{"10.1.0.7"}, "0a:58:0a:01:00:07", 0},
		{"fixed v6", net6, []string{"fd01::7"}, []string{"fd01::7"}, "0a:58:00:00:00:07", 0},
		{"fixed v6 beyond the first 2^32", net6, []string{"fd01::1:0:0:7"}, []string{"fd01::1:0:0:7"}, "0a:59:00:f9:58:de", 1},
		{"dual, v4 fixed", netDual, []string{"10.1.0.7"}, []string{"10.1.0.7", "fd01::/64"}, "0a:58:0a:01:00:07", 1},
		{"dual, v6 fixed", netDual, []string{"fd01::1:0:0:7"}, []string{"10.1.0.0/24", "fd01::1:0:0:7"}, "", 1},
		{"dual, both fixed", netDual, []string{"fd01::7", "10.1.0.7"}, []string{"10.1.0.7", "fd01::7"}, "0a:58:0a:01:00:07", 1},
		{"several of one family", net4, []string{"10.1.0.7", "10.1.0.9", "10.1.0.8"}, []string{"10.1.0.7", "10.1.0.9", "10.1.0.8"}, "0a:58:0a:01:00:07", 2},
		{"fixed MAC", net4, []string{"02:00:00:00:00:2a"}, []string{"10.1.0.0/24"}, "02:00:00:00:00:2a", 1},
		{"fixed MAC that is the lease's own", net4, []string{"10.1.0.7", "0a:58:0a:01:00:07"}, []string{"10.1.0.7"}, "0a:58:0a:01:00:07", 0},
		{"fixed MAC, MAC only", netMAC, []string{"02:00:00:00:00:2a"}, nil, "02:00:00:00:00:2a", 0},
		{"all fixed", netDual, []string{"10.1.0.7", "fd01::7", "02:00:00:00:00:2a"}, []string{"10.1.0.7", "fd01::7"}, "02:00:00:00:00:2a", 2},
	}
	w := newWorld(t)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := w.network(t, fmt.Sprint("n", i), tt.network)
			o := owner("web-1", "sandbox-1")
			wanted := want(n, "net1", tt.fixed...)
			w.proxy.Reset()
			ports := mustEnsure(t, w.nb, o, wanted)
			w.wantCounts(t, 1, 0, 0)
			w.wantPorts(t, o, ports, wanted)
			p := ports[0]
			if len(p.Addresses) != len(tt.want) || len(p.Claims) != tt.claims {
				t.Fatalf("port %+v, want %d addresses and %d claims", p, len(tt.want), tt.claims)
			}
			for i, a := range p.Addresses {
				if subnet, err := netip.ParsePrefix(tt.want[i]); err == nil {
					if !n.Pool(n.SubnetOf(a.Addr())).Contains(a.Addr()) || a.Bits() != subnet.Bits() || !subnet.Contains(a.Addr()) {
						t.Errorf("address %v is not of %v", a, subnet)
					}
				} else if a.Addr().String() != tt.want[i] {
					t.Errorf("address %v, want %v", a, tt.want[i])
				}
			}
			wantMAC := tt.mac
			if tt.mac == "" {
				b := p.Addresses[0].Addr().AsSlice()
				b = b[len(b)-4:]
				wantMAC = fmt.Sprintf("0a:58:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
			}
			if got := p.MAC.String(); got != wantMAC && (tt.mac != "any" || !strings.HasPrefix(got, "0a:58:")) {
				t.Errorf("MAC %v, want %v", got, wantMAC)
			}

			// Again: nothing is written, the answer is the same.
			w.proxy.Reset()
			again, err := w.nb.Ensure(timeout(t), o, []ovnport.Request{wanted}, nobody(t))
			if err != nil || !reflect.DeepEqual(again, ports) {
				t.Errorf("the second Ensure gave %+v, %v; want %+v", again, err, ports)
			}
			if got := w.proxy.Counts(); got.Committed != 0 || got.Refused != 1 || got.ReadOnly > 2 {
				t.Errorf("the second Ensure: %+v", got)
			}
			w.wantPorts(t, o, ports, wanted)

			w.proxy.Reset()
			mustRelease(t, w.nb, o.Sandbox, ports...)
			w.wantCounts(t, 1, 0, 0)
			w.wantPorts(t, o, nil)
		})
	}
}

// Whatever the number of ports, one transaction makes them and one deletes them.
func TestPortsOfAPodAreOneTransaction(t *testing.T) {
	for _, k := range []int{1, 4, 8} {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			w := newWorld(t)
			o := owner("web-1", "sandbox-1")
			// Each network twice in the pod.
			var wants []ovnport.Request
			for i := range k {
				if i%2 == 1 {
					wants = append(wants, want(wants[i-1].Network, fmt.Sprint("net", i+1)))
					continue
				}
				n := w.network(t, fmt.Sprint("n", i), []string{net4, net6, netDual, netMAC}[i/2%4])
				wants = append(wants, want(n, fmt.Sprint("net", i+1)))
			}
			w.proxy.Reset()
			ports := mustEnsure(t, w.nb, o, wants...)
			w.wantCounts(t, 1, 0, 0)
			w.wantPorts(t, o, ports)

			w.proxy.Reset()
			if again := mustEnsure(t, w.nb, o, wants...); !reflect.DeepEqual(again, ports) {
				t.Errorf("the second Ensure gave %+v, want %+v", again, ports)
			}
			if got := w.proxy.Counts(); got.Committed != 0 {
				t.Errorf("the second Ensure committed %d writes", got.Committed)
			}

			o.Sandbox = "sandbox-2"
			w.proxy.Reset()
			if taken := mustEnsure(t, w.nb, o, wants...); !reflect.DeepEqual(taken, ports) {
				t.Errorf("the takeover gave %+v, want %+v", taken, ports)
			}
			if got := w.proxy.Counts(); got.Committed != 1 {
				t.Errorf("the takeover committed %d writes, want 1", got.Committed)
			}
			w.wantPorts(t, o, ports)

			w.proxy.Reset()
			if err := w.nb.ReleaseSandbox(timeout(t), o); err != nil {
				t.Fatal(err)
			}
			w.wantCounts(t, 1, 0, 2) // the port list, the ports; their deletion
			w.wantPorts(t, o, nil)
		})
	}
}

// A network twice in one pod: both find another address when their first candidates are one and the same.
func TestPortsOfAPodDoNotShareAnAddress(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "tiny", `"subnets":"10.1.0.0/29"`) // five addresses
	o := owner("web-1", "sandbox-1")
	var wants []ovnport.Request
	for i := range 5 {
		wants = append(wants, want(n, fmt.Sprint("net", i+1)))
	}
	w.proxy.Reset()
	ports := mustEnsure(t, w.nb, o, wants...)
	w.wantCounts(t, 1, 0, 0)
	w.wantPorts(t, o, ports)
	mustRelease(t, w.nb, o.Sandbox, ports...)

	// A dynamic one moves off the pod's own fixed one, in whichever order they are.
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		first := mustEnsure(t, w.nb, o, wants[0])[0].Addresses[0].Addr().String()
		mustRelease(t, w.nb, o.Sandbox, mustEnsure(t, w.nb, o, wants[0])...)
		two := []ovnport.Request{wants[0], want(n, "net2", first)}
		two = []ovnport.Request{two[order[0]], two[order[1]]}
		ports = mustEnsure(t, w.nb, o, two...)
		w.wantPorts(t, o, ports)
		mustRelease(t, w.nb, o.Sandbox, ports...)
	}

	_, err := w.nb.Ensure(timeout(t), o, append(wants, want(n, "net6")), anyone)
	wantCode(t, err, conf.CodeNoAddressLeft, "net", "shop/tiny")
	w.wantPorts(t, o, nil)

	// Nor when the pod itself reaches others by every address there is.
	all := want(n, "net1")
	for i := range n.Pool(0).Size() {
		all.Excluded = append(all.Excluded, n.Pool(0).At(i))
	}
	_, err = w.nb.Ensure(timeout(t), o, []ovnport.Request{all}, anyone)
	wantCode(t, err, conf.CodeNoAddressLeft, "net1", "shop/tiny")
	w.wantPorts(t, o, nil)
}

func TestNewSandboxTakesOver(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	wanted := want(n, "net1", "10.1.0.7", "10.1.0.8", "02:00:00:00:00:2a")
	first, second := owner("web-1", "sandbox-1"), owner("web-1", "sandbox-2")
	second.Node, second.Chassis = "node-2", "chassis-2"
	ports := mustEnsure(t, w.nb, first, wanted)

	var asked []ovnport.Owner
	w.proxy.Reset()
	taken, err := w.nb.Ensure(timeout(t), second, []ovnport.Request{wanted}, func(_ context.Context, older ovnport.Owner) error {
		asked = append(asked, older)
		return nil
	})
	if err != nil || !reflect.DeepEqual(taken, ports) {
		t.Fatalf("takeover gave %+v, %v; want %+v", taken, err, ports)
	}
	if got := w.proxy.Counts(); got.Committed != 1 {
		t.Errorf("%d transactions committed, want 1", got.Committed)
	}
	if len(asked) == 0 || slices.ContainsFunc(asked, func(o ovnport.Owner) bool { return o != first }) {
		t.Errorf("asked about %+v, want %+v", asked, first)
	}
	w.wantPorts(t, second, ports)

	// The old sandbox's DEL comes late.
	before := read(t, w.Server)
	w.proxy.Reset()
	mustRelease(t, w.nb, first.Sandbox, ports...)
	if err := w.nb.ReleaseSandbox(timeout(t), first); err != nil {
		t.Error(err)
	}
	w.wantCounts(t, 1, 1, 2) // the port list loses what it has of the older sandbox
	w.wantUnchanged(t, before)
}

// A dynamic address stays with the pod over a new sandbox, though its search would begin elsewhere.
func TestTakeoverKeepsADynamicAddress(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	o := owner("web-1", "sandbox-1")
	wanted := want(n, "net1")
	usual := mustEnsure(t, w.nb, o, wanted)
	mustRelease(t, w.nb, o.Sandbox, usual...)
	squatter := owner("squatter", "sandbox-s")
	squat := mustEnsure(t, w.nb, squatter, want(n, "net1", usual[0].Addresses[0].Addr().String(), usual[0].Addresses[1].Addr().String()))
	ports := mustEnsure(t, w.nb, o, wanted)
	if ports[0].UUID == usual[0].UUID {
		t.Fatal("the address of another pod was leased")
	}
	mustRelease(t, w.nb, squatter.Sandbox, squat...)

	o.Sandbox = "sandbox-2"
	w.proxy.Reset()
	if taken := mustEnsure(t, w.nb, o, wanted); !reflect.DeepEqual(taken, ports) {
		t.Errorf("takeover gave %+v, want %+v", taken, ports)
	}
	if got := w.proxy.Counts(); got.Committed != 1 {
		t.Errorf("%d transactions committed, want 1", got.Committed)
	}
	w.wantPorts(t, o, ports)
}

func TestSupersedesDecides(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	older := owner("web-1", "sandbox-1")
	mustEnsure(t, w.nb, older, want(n, "net1"), want(n, "net2"))
	before := read(t, w.Server)
	newer := owner("web-1", "sandbox-2")
	newer.UID = "another-uid"
	no := errors.New("pod shop/web-1 is another one now")
	for _, fixed := range [][]string{nil, {"10.1.0.77"}} { // the same address, and a move
		w.proxy.Reset()
		_, err := w.nb.Ensure(timeout(t), newer, []ovnport.Request{want(n, "net1", fixed...), want(n, "net3")},
			func(_ context.Context, o ovnport.Owner) error {
				if o != older {
					t.Errorf("asked about %+v, want %+v", o, older)
				}
				return no
			})
		if !errors.Is(err, no) {
			t.Errorf("error %v, want that of supersedes", err)
		}
		if got := w.proxy.Counts(); got.Committed != 0 {
			t.Errorf("%d transactions committed, want none", got.Committed)
		}
		w.wantUnchanged(t, before)
	}
}

// The pod of a name wants something else now: the old row goes, the name is the new one's.
func TestPortMoves(t *testing.T) {
	tests := []struct {
		name     string
		network  string
		old, new []string
	}{
		{"another address", net4, []string{"10.1.0.7"}, []string{"10.1.0.8"}},
		{"from dynamic to fixed", net4, nil, []string{"10.1.0.7"}},
		{"one more", net4, []string{"10.1.0.7"}, []string{"10.1.0.7", "10.1.0.8"}},
		{"one less", net4, []string{"10.1.0.7", "10.1.0.8"}, []string{"10.1.0.7"}},
		{"the lease becomes a claim", net4, []string{"10.1.0.7"}, []string{"10.1.0.8", "10.1.0.7"}},
		{"the claim becomes the lease", net4, []string{"10.1.0.7", "10.1.0.8"}, []string{"10.1.0.8"}},
		{"lease and claim change places", net4, []string{"10.1.0.7", "10.1.0.8"}, []string{"10.1.0.8", "10.1.0.7"}},
		{"another second one", net4, []string{"10.1.0.7", "10.1.0.8"}, []string{"10.1.0.7", "10.1.0.9"}},
		{"the claim stays under another lease", net4, []string{"10.1.0.7", "10.1.0.8"}, []string{"10.1.0.9", "10.1.0.8"}},
		{"another MAC", net4, []string{"10.1.0.7", "02:00:00:00:00:01"}, []string{"10.1.0.7", "02:00:00:00:00:02"}},
		{"the same MAC under another lease", net4, []string{"10.1.0.7", "02:00:00:00:00:01"}, []string{"10.1.0.8", "02:00:00:00:00:01"}},
		{"no MAC any more", net4, []string{"10.1.0.7", "02:00:00:00:00:01"}, []string{"10.1.0.7"}},
		{"a MAC as the lease", netMAC, []string{"02:00:00:00:00:01"}, []string{"02:00:00:00:00:02"}},
		{"from fixed to made MAC", netMAC, []string{"02:00:00:00:00:01"}, nil},
		{"another v6", netDual, []string{"fd01::7"}, []string{"fd01::8"}},
	}
	w := newWorld(t)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := w.network(t, fmt.Sprint("n", i), tt.network)
			o := owner("web-1", "sandbox-1")
			mustEnsure(t, w.nb, o, want(n, "net1", tt.old...))
			o.Sandbox, o.UID = "sandbox-2", "uid-2"
			ports := mustEnsure(t, w.nb, o, want(n, "net1", tt.new...))
			w.wantPorts(t, o, ports)
			fixed := len(tt.new)
			for _, word := range tt.new {
				if ports[0].MAC.String() == word || slices.ContainsFunc(ports[0].Addresses, func(a netip.Prefix) bool { return a.Addr().String() == word }) {
					fixed--
				}
			}
			if fixed != 0 {
				t.Errorf("port %+v has not all of %q", ports[0], tt.new)
			}
			mustRelease(t, w.nb, o.Sandbox, ports...)
			w.wantPorts(t, o, nil)
		})
	}
}

// The pod's interface has moved to another network: its name is held in another switch.
func TestPortMovesToAnotherNetwork(t *testing.T) {
	w := newWorld(t)
	blue, red := w.network(t, "blue", netDual), w.network(t, "red", netDual)
	o := owner("web-1", "sandbox-1")
	mustEnsure(t, w.nb, o, want(blue, "net1"))
	o.Sandbox = "sandbox-2"
	w.wantPorts(t, o, mustEnsure(t, w.nb, o, want(red, "net1")))
}

func TestSamePodGetsTheSameAddress(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", `"subnets":"10.1.0.0/16,fd01::/64"`)
	m := w.network(t, "mac", netMAC)
	for i := range 20 {
		o := owner(fmt.Sprint("web-", i), "sandbox-1")
		first := mustEnsure(t, w.nb, o, want(n, "net1"), want(m, "net2"))
		mustRelease(t, w.nb, o.Sandbox, first...)
		o.Sandbox, o.UID = "sandbox-2", "uid-2"
		if second := mustEnsure(t, w.nb, o, want(n, "net1"), want(m, "net2")); !reflect.DeepEqual(second, first) {
			t.Errorf("got %+v, want %+v as before", second, first)
		}
	}
}

func TestPoolIsUsedUpExactly(t *testing.T) {
	w := newWorld(t)
	// 16 less network, broadcast, gateway and four that are excluded.
	n := w.network(t, "small", `"subnets":"10.1.0.16/28","gateway":"10.1.0.20","excludeSubnets":"10.1.0.24/30"`)
	leased := map[string]ovnport.Owner{}
	var last []ovnport.Port
	for i := range 9 {
		o := owner(fmt.Sprint("web-", i), fmt.Sprint("sandbox-", i))
		last = mustEnsure(t, w.nb, o, want(n, "net1"))
		leased[last[0].Addresses[0].Addr().String()] = o
	}
	var want9 []string
	for _, last := range []int{17, 18, 19, 21, 22, 23, 28, 29, 30} {
		want9 = append(want9, fmt.Sprint("10.1.0.", last))
	}
	for _, a := range want9 {
		if _, ok := leased[a]; !ok {
			t.Errorf("%s was not leased", a)
		}
	}
	if len(leased) != 9 {
		t.Errorf("%d addresses leased: %v", len(leased), leased)
	}
	before := read(t, w.Server)
	before.check(t)
	late := owner("late", "sandbox-late")
	w.proxy.Reset()
	_, err := w.nb.Ensure(timeout(t), late, []ovnport.Request{want(n, "net1")}, nobody(t))
	wantCode(t, err, conf.CodeNoAddressLeft, "net1", "shop/small")
	if got := w.proxy.Counts(); got.Committed != 0 || got.Refused > 4 {
		t.Errorf("transactions of an ADD into a full network: %+v", got)
	}
	w.wantUnchanged(t, before)

	freed := last[0].Addresses[0]
	mustRelease(t, w.nb, leased[freed.Addr().String()].Sandbox, last...)
	if got := mustEnsure(t, w.nb, late, want(n, "net1")); got[0].Addresses[0] != freed {
		t.Errorf("got %v, want the one that was free, %v", got[0].Addresses[0], freed)
	}
	read(t, w.Server).check(t)
}

// An address that is in use by a claim is no less held: the last free one is found between claims.
func TestLastAddressBetweenClaims(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "small", `"subnets":"10.1.0.0/28"`) // .2 to .14
	var fixed []string
	for i := 2; i < 14; i++ {
		fixed = append(fixed, fmt.Sprint("10.1.0.", i))
	}
	mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1", fixed...))
	got := mustEnsure(t, w.nb, owner("web-2", "sandbox-2"), want(n, "net1"))
	if got[0].Addresses[0].Addr().String() != "10.1.0.14" {
		t.Errorf("got %v, want 10.1.0.14", got[0].Addresses[0])
	}
	read(t, w.Server).check(t)
	_, err := w.nb.Ensure(timeout(t), owner("web-3", "sandbox-3"), []ovnport.Request{want(n, "net1")}, nobody(t))
	wantCode(t, err, conf.CodeNoAddressLeft)
}

// An ADD before the database was ever reachable ends with its time, not with a panic.
func TestEnsureBeforeTheFirstConnection(t *testing.T) {
	w := &world{Server: ovndbtest.StartNB(t)}
	n := w.network(t, "blue", net4)
	w.Kill()
	early := ovnport.NewNB(openNB(t, w.Endpoint()))
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := early.Ensure(ctx, owner("web-1", "sandbox-1"), []ovnport.Request{want(n, "net1")}, nobody(t))
	if code, _, _ := conf.Describe(err); code != conf.CodeTryAgain {
		t.Errorf("error %v with code %d, want %d", err, code, conf.CodeTryAgain)
	}
	if err := early.Release(ctx, on1("sandbox-1"), []ovnport.Keys{{UUID: "x"}}); err == nil {
		t.Error("a Release that reached nobody gives no error")
	}
	w.Restart()
	o := owner("web-1", "sandbox-1")
	w.wantPorts(t, o, mustEnsure(t, early, o, want(n, "net1")))
}
