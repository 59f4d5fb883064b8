package ovnport_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// cluster is what the lists of pods and nodes and the Lease say.
type cluster struct {
	nodes    []string                 // nil: the source does not know the nodes
	asked    []string                 // the nodes that the last listing was about
	gone     func(ovnport.Owner) bool // nil: nobody
	listed   func()                   // called by each listing
	listErr  error
	writeErr func() error
}

func (c *cluster) orphans(n *ovnport.NB) *ovnport.Orphans {
	return ovnport.NewOrphans(n, c, func() error {
		if c.writeErr != nil {
			return c.writeErr()
		}
		return nil
	}, slog.New(slog.DiscardHandler))
}

func (c *cluster) NodeNames(context.Context) ([]string, error) { return slices.Clone(c.nodes), nil }

func (c *cluster) Gone(_ context.Context, nodes ...string) (ovnport.Gone, error) {
	c.asked = nodes
	if c.listed != nil {
		c.listed()
	}
	if c.listErr != nil {
		return nil, c.listErr
	}
	return func(o ovnport.Owner) string {
		if c.gone != nil && c.gone(o) {
			return "pod " + o.Pod + " is gone"
		}
		return ""
	}, nil
}

// listed is an owner as the lists are asked about it: the chassis of the port does not matter.
func listed(o ovnport.Owner) ovnport.Owner {
	o.Chassis = ""
	return o
}

func isPod(names ...string) func(ovnport.Owner) bool {
	return func(o ovnport.Owner) bool { return slices.Contains(names, o.Pod) }
}

// A pod's ports go with their claims in the second pass that finds the pod gone, each in one transaction; those of a
// pod that lives stay.
func TestOrphansGoWhenSeenTwice(t *testing.T) {
	w := newWorld(t)
	n, m := w.network(t, "blue", netDual), w.network(t, "red", net4)
	alive, gone := owner("web-1", "sandbox-1"), owner("web-2", "sandbox-2")
	gone.Node = "node-2"
	kept := mustEnsure(t, w.nb, alive, want(n, "net1"), want(m, "net2", "10.1.0.7", "02:00:00:00:00:2a"))
	ports := mustEnsure(t, w.nb, gone, want(n, "net1"), want(m, "net2", "10.1.0.8", "10.1.0.9", "02:00:00:00:00:2b"))
	asked := map[ovnport.Owner]int{}
	c := &cluster{gone: func(o ovnport.Owner) bool {
		asked[o]++
		return o == listed(gone)
	}}
	orphans := c.orphans(w.nb)

	for i, left := range []int{4, 2, 2} {
		w.proxy.Reset()
		if err := orphans.Pass(timeout(t)); err != nil {
			t.Fatal(err)
		}
		s := read(t, w.Server)
		s.check(t)
		for _, p := range kept {
			if bad := s.differs(alive, p, true); bad != "" {
				t.Errorf("pass %d: %s: %s", i+1, p.Name, bad)
			}
		}
		if len(s.ports) != left {
			t.Errorf("%d ports are left after pass %d, want %d", len(s.ports), i+1, left)
		}
		committed := 0
		if i == 1 {
			committed = len(ports)
		}
		w.wantCounts(t, committed, 0, 2) // the switches, the ports
	}
	w.wantPorts(t, alive, kept)
	// Whose the port is stands in the row: all of it.
	if len(asked) != 2 || asked[listed(alive)] != 6 || asked[listed(gone)] != 4 {
		t.Errorf("asked about %v", asked)
	}
}

// pass is one pass of TestOrphansBetweenPasses.
type pass struct {
	before func(t *testing.T, w *world) // what happens before it
	alive  bool                         // what the lists say of the pod
	list   error                        // of the lists of pods and nodes
	write  error
	ends   bool // its time is up before it has read the ports
	left   int  // ports after it
}

var (
	errList  = errors.New("the list of nodes is not complete")
	errLease = errors.New("another controller leads by now")
)

// A pass that does not see the orphan, or fails, makes two new passes necessary.
func TestOrphansBetweenPasses(t *testing.T) {
	takeOver := func(t *testing.T, w *world) {
		n := parseNetwork(t, "blue", netDual)
		mustEnsure(t, w.other(t), owner("web-1", "sandbox-2"), want(n, "net1"))
	}
	tests := []struct {
		name   string
		passes []pass
	}{
		{"nothing", []pass{{left: 1}, {left: 0}, {left: 0}}},
		{"alive", []pass{{alive: true, left: 1}, {alive: true, left: 1}, {alive: true, left: 1}}},
		{"the pod is there once", []pass{{left: 1}, {alive: true, left: 1}, {left: 1}, {left: 0}}},
		{"the nodes are not listed", []pass{{left: 1}, {list: errList, left: 1}, {left: 1}, {left: 0}}},
		{"the nodes are not listed at first", []pass{{list: errList, left: 1}, {left: 1}, {left: 0}}},
		{"the time is up", []pass{{left: 1}, {ends: true, left: 1}, {left: 1}, {left: 0}}},
		{"somebody else leads", []pass{{left: 1}, {write: errLease, left: 1}, {left: 1}, {left: 0}}},
		{"another sandbox takes the port over", []pass{{left: 1}, {before: takeOver, left: 1}, {left: 0}}},
		{"the port was released", []pass{{left: 1}, {before: func(t *testing.T, w *world) {
			if err := w.other(t).ReleaseSandbox(timeout(t), on1("sandbox-1")); err != nil {
				t.Error(err)
			}
		}, left: 0}}},
		{"the port was released and made again by a new sandbox", []pass{{left: 1}, {before: func(t *testing.T, w *world) {
			if err := w.other(t).ReleaseSandbox(timeout(t), on1("sandbox-1")); err != nil {
				t.Error(err)
			}
			takeOver(t, w)
		}, left: 1}, {left: 0}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(w.network(t, "blue", netDual), "net1"))
			c := &cluster{}
			orphans := c.orphans(w.nb)
			for i, r := range tt.passes {
				if r.before != nil {
					r.before(t, w)
				}
				c.gone, c.listErr, c.writeErr = func(ovnport.Owner) bool { return !r.alive }, r.list, func() error { return r.write }
				ctx, cancel := context.WithCancel(timeout(t))
				over, happened := make(chan struct{}), func() {}
				if r.ends {
					happened = w.once(t, hasOp("select", "Logical_Switch_Port"), func() {
						cancel()
						<-over
					})
				}
				err := orphans.Pass(ctx)
				cancel()
				close(over)
				happened()
				if want := cmp.Or(r.list, r.write); !r.ends && !errors.Is(err, want) || r.ends && err == nil {
					t.Errorf("pass %d: error %v, want %v", i+1, err, want)
				}
				s := read(t, w.Server)
				s.check(t)
				if len(s.ports) != r.left || len(s.claims) != r.left {
					t.Errorf("after pass %d: %d ports and %d claims, want %d", i+1, len(s.ports), len(s.claims), r.left)
				}
			}
		})
	}
}

// Between the look at a port and its release it changes hands: the release finds another owner and does nothing.
func TestOrphanChangesHandsBeforeItsRelease(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	old, newer, gone := owner("web-1", "sandbox-1"), owner("web-1", "sandbox-2"), owner("web-2", "sandbox-3")
	mustEnsure(t, w.nb, old, want(n, "net1"))
	mustEnsure(t, w.nb, gone, want(n, "net1"))
	other := w.other(t)
	orphans := (&cluster{gone: func(o ovnport.Owner) bool { return o == listed(old) || o == listed(gone) }}).orphans(w.nb)
	if err := orphans.Pass(timeout(t)); err != nil {
		t.Fatal(err)
	}
	isRelease := func(tx ovndbtest.Transact) bool {
		return hasOp("mutate", "Logical_Switch")(tx) && strings.Contains(fmt.Sprint(tx.Ops), old.Sandbox)
	}
	var taken []ovnport.Port
	happened := w.once(t, isRelease, func() { taken = mustEnsure(t, other, newer, want(n, "net1")) })
	if err := orphans.Pass(timeout(t)); err != nil {
		t.Error(err)
	}
	happened()
	w.wantPorts(t, newer, taken) // and the other orphan is gone
}

// A pod that is made while the pods are listed may be in the nodes are not listed yet: its port is not in the list of
// ports either.
func TestOrphansListPortsFirst(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	other := w.other(t)
	o := owner("web-1", "sandbox-1")
	var ports []ovnport.Port
	c := &cluster{gone: isPod("web-1"), listed: func() {
		if ports == nil {
			ports = mustEnsure(t, other, o, want(n, "net1"))
		}
	}}
	orphans := c.orphans(w.nb)
	for range 2 {
		if err := orphans.Pass(timeout(t)); err != nil {
			t.Fatal(err)
		}
		w.wantPorts(t, o, ports)
	}
}

// Nobody is asked about rows that are no pod's or are on somebody else's switch, and they stay.
func TestOrphansLeaveWhatIsNotOurs(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", netDual)
	ours := owner("web-1", "sandbox-1")
	mustEnsure(t, w.nb, ours, want(n, "net1"))
	w.NBCtl("lsp-add", n.ID(), "by-hand", "--", "lsp-set-addresses", "by-hand", "02:00:00:00:00:01")
	link := func(key string, sw any) ovndbtest.Op {
		return ovndbtest.Op{"op": "mutate", "table": "Logical_Switch", "where": []any{[]any{"_uuid", "==", sw}},
			"mutations": []any{[]any{"ports", "insert", ovndbtest.Set(ovndbtest.UUID(key))}}}
	}
	insert := func(key, name string, ids map[string]string) ovndbtest.Op {
		return ovndbtest.Op{"op": "insert", "table": "Logical_Switch_Port", "uuid": key,
			"row": ovndbtest.Op{"name": name, "external_ids": ovndbtest.Map(ids)}}
	}
	const foreignSwitch = "00000000-0000-4000-8000-000000000001"
	routers, copied := ovndb.AddressKey(n.ID(), n.Gateways[0]), ovndb.AddressKey("theirs", addr("10.1.0.7"))
	w.Transact(t,
		insert(routers, "shop/blue:shop/edge", map[string]string{"ovn-multinet/network": n.ID(), "ovn-multinet/router": "shop/edge"}),
		link(routers, ovndbtest.UUID(ovndb.SwitchKey(n.ID()))),
		ovndbtest.Op{"op": "insert", "table": "Logical_Switch", "uuid": foreignSwitch, "row": ovndbtest.Op{"name": "theirs"}},
		// Someone copied our marks onto a port of their own switch.
		insert(copied, "shop/web-9/net1", map[string]string{"ovn-multinet/sandbox": "sandbox-9", "ovn-multinet/pod": "web-9", "ovn-multinet/namespace": "shop"}),
		link(copied, ovndbtest.UUID(foreignSwitch)))
	before := read(t, w.Server)

	c := &cluster{gone: func(o ovnport.Owner) bool {
		if o != listed(ours) {
			t.Errorf("asked about %+v", o)
		}
		return o != listed(ours)
	}}
	orphans := c.orphans(w.nb)
	for range 3 {
		if err := orphans.Pass(timeout(t)); err != nil {
			t.Fatal(err)
		}
	}
	w.wantUnchanged(t, before)
}

// However many ports there are, each is looked at, and the server is never asked for all of them at once.
func TestOrphansOfManyPages(t *testing.T) {
	w := newWorld(t)
	n, m := w.network(t, "big", `"subnets":"10.0.0.0/8"`), w.network(t, "small", net4)
	const many = 1100
	w.fill(t, n, 0, many)
	stays := owner("web-1", "sandbox-1")
	mustEnsure(t, w.nb, stays, want(m, "net1"))
	// In the order of their addresses, which is that of their keys: at both ends of each page, and in between.
	var pods []string
	for _, i := range []int{0, 1, 250, 498, 499, 500, 501, 750, 998, 999, 1000, 1001, 1098, 1099} {
		pods = append(pods, fmt.Sprint("filler-", i))
	}
	asked := map[string]int{}
	c := &cluster{gone: func(o ovnport.Owner) bool {
		asked[o.Pod]++
		return slices.Contains(pods, o.Pod)
	}}
	orphans := c.orphans(w.nb)
	most := 0
	w.proxy.Before(func(tx ovndbtest.Transact) { most = max(most, len(tx.Ops)) })
	for range 2 {
		if err := orphans.Pass(timeout(t)); err != nil {
			t.Fatal(err)
		}
		if len(asked) != many+1 {
			t.Errorf("asked about %d pods, want %d", len(asked), many+1)
		}
		clear(asked)
	}
	w.proxy.Before(nil)
	if most > 500 {
		t.Errorf("a transaction has %d operations", most)
	}
	s := read(t, w.Server)
	s.check(t)
	names := map[string]bool{}
	for _, row := range s.ports {
		names[ids(row)["ovn-multinet/pod"]] = true
	}
	if len(names) != many+1-len(pods) || slices.ContainsFunc(pods, func(p string) bool { return names[p] }) {
		t.Errorf("%d ports are left of %d, want all but %q", len(s.ports), many+1, pods)
	}
}

// A controller that stops being the leader in the middle of a pass stops there.
func TestOrphansStopWhenSomebodyElseLeads(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "blue", net4)
	for i := range 3 {
		mustEnsure(t, w.nb, owner(fmt.Sprint("web-", i), fmt.Sprint("sandbox-", i)), want(n, "net1"))
	}
	asked := 0
	c := &cluster{gone: func(ovnport.Owner) bool { return true }, writeErr: func() error {
		if asked++; asked > 1 {
			return errLease
		}
		return nil
	}}
	orphans := c.orphans(w.nb)
	if err := orphans.Pass(timeout(t)); err != nil || asked != 0 {
		t.Fatalf("the first pass: %v, asked %d times whether it may write", err, asked)
	}
	if err := orphans.Pass(timeout(t)); !errors.Is(err, errLease) {
		t.Errorf("error %v, want that of the lease", err)
	}
	if s := read(t, w.Server); len(s.ports) != 2 {
		t.Errorf("%d ports are left, want 2", len(s.ports))
	}
}

// A pass that fails is followed by others, until the end.
func TestOrphansRun(t *testing.T) {
	w := newWorld(t)
	mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(w.network(t, "blue", netDual), "net1"))
	counts := make(chan int)
	n := 0
	c := &cluster{gone: isPod("web-1")}
	c.listed = func() {
		n++
		c.listErr = nil
		if n == 1 {
			c.listErr = errList
		}
		counts <- n
	}
	ctx, cancel := context.WithCancel(timeout(t))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.orphans(w.nb).Run(ctx, time.Millisecond)
	}()
	for pass := range 4 { // the fourth begins when the third is over
		select {
		case got := <-counts:
			if got != pass+1 {
				t.Errorf("pass %d comes after %d", got, pass)
			}
		case <-ended:
			t.Fatalf("it ended after %d passes", pass)
		}
	}
	w.wantPorts(t, owner("web-1", "sandbox-1"), nil)
	cancel()
	for {
		select {
		case <-counts: // one more may have begun
		case <-ended:
			return
		}
	}
}

// An address that a pass releases can be leased at once.
func TestOrphansFreeTheirAddresses(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, "tiny", `"subnets":"10.1.0.0/30"`) // one address
	mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"))
	orphans := (&cluster{gone: isPod("web-1")}).orphans(w.nb)
	late := owner("web-2", "sandbox-2")
	_, err := w.nb.Ensure(timeout(t), late, []ovnport.Request{want(n, "net1")}, nobody(t))
	wantCode(t, err, conf.CodeNoAddressLeft)
	for range 2 {
		if err := orphans.Pass(timeout(t)); err != nil {
			t.Fatal(err)
		}
	}
	w.wantPorts(t, late, mustEnsure(t, w.nb, late, want(n, "net1")))
}
