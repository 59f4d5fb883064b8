package controller_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/controller/stalenodes"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// lines is a log, by lines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// leader is the controller of a cluster, with NADs of its own.
type leader struct {
	*running
	owner *controller.NBOwner
	log   *lines
	ended chan error
}

func lead(t *testing.T, w *nbtest.World, cluster, adopt string, a *api) *leader {
	t.Helper()
	l := &leader{log: &lines{}, ended: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(l.log, nil))
	db := nbtest.OpenOf(t, w.Proxy.Endpoint(), cluster)
	l.owner = controller.NewNBOwner(db, adopt, log)
	c := newController(nbtest.NewClient(db, nil), a, leads, quiet)
	activity := c.Watch()
	a.with(func() { a.watchers = []func(string, string){c.NADChanged} })
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		l.ended <- l.owner.Lead(ctx, leads, func(ctx context.Context) error { return c.Run(ctx) })
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		err := <-l.ended
		l.ended <- err
	})
	t.Cleanup(stop)
	for id, n := range a.nads {
		a.apply(id, n.Config.Text())
	}
	l.running = &running{World: w, api: a, activity: activity, stop: stop}
	return l
}

const standingBy = "NB belongs to cluster a, this controller is of cluster b: give it the NB of its own cluster, " +
	"or start it with --adopt-cluster=a if its cluster takes the place of that one"

// The controller of a second cluster touches nothing of the first one's, whatever its NADs are called. Once its operator
// adopts the NB it works on, and the rows that none of its NADs describes stay as they are.
func TestBoundaryTwoClustersOnOneNB(t *testing.T) {
	w := nbtest.NewWorld(t)
	one, two := newAPI(), newAPI()
	a := lead(t, w, "a", "", one)
	a.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	a.apply("shop/red", nbtest.Spec(`"subnets":"10.2.0.0/24"`+nbtest.OnR1))
	a.apply("shop/own", nbtest.Spec(`"subnets":"10.3.0.0/24","router":"r2"`))
	for _, id := range []string{"shop/blue", "shop/red", "shop/own"} {
		a.wantState(t, id, "ready, held")
	}
	w.Pod(t, "blue", "10.1.0.9", "web-0", "net1")
	before := w.Versions(t)

	two.apply("shop/blue", nbtest.Spec(`"subnets":"10.9.0.0/24"`))
	two.apply("shop/own", nbtest.Spec(`"subnets":"10.3.0.0/24","router":"r2"`))
	two.apply("dev/green", nbtest.Spec(`"subnets":"10.4.0.0/24"`))
	b := lead(t, w, "b", "", two)
	eventually(t, standingBy, func() string {
		if err := b.owner.Ready(); err != nil {
			return err.Error()
		}
		return "ready"
	})
	w.Proxy.Reset() // it tries on: each try reads once, and so does each look of the owner
	eventually(t, "it tries on", func() string { return nbtest.Sprint("%.*s", 11*min(w.Proxy.Counts().ReadOnly/4, 1), "it tries on") })
	if got := b.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `msg="standing by"`) || !strings.Contains(got, standingBy) {
		t.Errorf("log %s, want one line: %s", got, standingBy)
	}
	if err := a.owner.Ready(); err != nil {
		t.Errorf("the owner is not ready: %v", err)
	}
	if got := b.state("shop/blue") + b.state("dev/green"); got != "nothingnothing" {
		t.Errorf("it speaks of networks: %s", got)
	}
	if after := w.Versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
	b.stop()
	if err := <-b.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}

	b = lead(t, w, "b", "a", two)
	b.wantState(t, "dev/green", "ready, held")
	b.wantState(t, "shop/own", "ready, held")
	b.wantState(t, "shop/blue", "refused: subnets: 10.1.0.0/24 cannot become 10.9.0.0/24, which does not hold all of it, with 1 port on the network, held")
	if err := <-a.ended; err == nil || !strings.Contains(err.Error(), "NB belongs to cluster b, this controller is of cluster a: ") {
		t.Errorf("the first one ended with %v", err)
	}
	a.ended <- nil
	if got := w.OwnerRow(t); got != "ovn-multinet/cluster=b" {
		t.Errorf("the owner is %s", got)
	}
	b.deleteNAD(t, "shop/own")
	b.wantState(t, "shop/own", "gone") // what it described is its own
	b.stop()
	b = lead(t, w, "b", "a", two) // which looks at all there is
	b.settle(t)
	if got := w.Switches(t) + " " + w.Names(t, "Logical_Router") + " " + w.Names(t, "Logical_Switch_Port"); got != "dev/green shop/blue shop/red shop/r1 shop/red:shop/r1 shop/web-0/net1" {
		t.Errorf("there are %s", got)
	}
}

// After an adoption a guest stays on its router until the owner's network is looked at, which says whether it may.
func TestBoundaryAdoptionDetachesNoGuest(t *testing.T) {
	for name, tt := range map[string]struct{ owner, state, ports string }{
		"consent":    {nbtest.Net4 + nbtest.OnR1 + nbtest.LetsWeb, "ready, held", "shop/r1:shop/blue shop/r1:web/green"},
		"no consent": {nbtest.Net4 + nbtest.OnR1, "refused: " + nbtest.NoConsent + ", held", "shop/r1:shop/blue"},
	} {
		t.Run(name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			a := lead(t, w, "a", "", newAPI())
			a.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1+nbtest.LetsWeb))
			a.wantState(t, "shop/blue", "ready, held")
			a.apply("web/green", nbtest.Spec(nbtest.GreenNet+nbtest.OnShopR1))
			a.wantState(t, "web/green", "ready, held")
			a.GreenPod(t)
			a.stop()

			two := newAPI()
			two.fail("shop/blue", errors.New("connection refused")) // the owner's look comes later
			two.apply("shop/blue", nbtest.Spec(tt.owner))
			two.apply("web/green", nbtest.Spec(nbtest.GreenNet+nbtest.OnShopR1))
			b := lead(t, w, "b", "a", two)
			b.wantState(t, "web/green", "refused: "+nbtest.NoConsent+", held") // there is no consent of this cluster yet
			if got := b.RouterPorts(t); got != "shop/r1:shop/blue shop/r1:web/green" {
				t.Errorf("the ports of routers are %q", got)
			}
			two.fail("shop/blue", nil)
			b.wantState(t, "shop/blue", "ready, held")
			eventually(t, tt.state+"; "+tt.ports, func() string { return b.state("web/green") + "; " + b.RouterPorts(t) })
		})
	}
}

// The row that names the owner is made again when someone takes it.
func TestBoundaryOwnerRowIsMadeAgain(t *testing.T) {
	w := nbtest.NewWorld(t)
	a := lead(t, w, "a", "", newAPI())
	a.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	a.wantState(t, "shop/blue", "ready, held")
	w.Clear(t)
	eventually(t, "ovn-multinet/cluster=a", func() string { return w.OwnerRow(t) })
	a.apply("shop/red", nbtest.Spec(`"subnets":"10.2.0.0/24"`))
	a.wantState(t, "shop/red", "ready, held")
	a.stop()
	if err := <-a.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// An error of a look at the owner of NB is logged while the controller works: once, and once more after a look without one.
func TestErrorsOfTheOwnersLooksAreLogged(t *testing.T) {
	w, log := nbtest.NewWorld(t), &lines{}
	owner := controller.NewNBOwner(nbtest.OpenOf(t, w.Endpoint(), "a"), "", slog.New(slog.NewTextHandler(log, nil)))
	owner.LookEvery(time.Millisecond)
	var looks atomic.Int32
	ctx, cancel := context.WithCancel(nbtest.WithLimit(t))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- owner.Lead(ctx, func() error {
			if n := looks.Add(1); n == 2 || n == 3 || n == 5 {
				return errors.New("not now")
			}
			return nil
		}, func(ctx context.Context) error { <-ctx.Done(); return nil })
	}()
	eventually(t, "true", func() string { return strconv.FormatBool(looks.Load() >= 6) })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := strings.Count(log.String(), `err="not now"`); got != 2 || strings.Contains(log.String(), "standing by") {
		t.Errorf("the log has it %d times, want 2:\n%s", got, log)
	}
}

// One that does not lead does not take NB.
func TestBoundaryOnlyALeaderTakesNB(t *testing.T) {
	w := nbtest.NewWorld(t)
	owner := controller.NewNBOwner(nbtest.OpenOf(t, w.Endpoint(), "a"), "", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(nbtest.WithLimit(t))
	err := owner.Lead(ctx, func() error { cancel(); return errors.New("does not lead any more") }, func(context.Context) error {
		t.Error("it works")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := w.OwnerRow(t); got != "" {
		t.Errorf("the owner is %s", got)
	}
}

// What lists lead to is done to rows of the own cluster alone: blocks and rows of nodes that are gone, routers and gateways
// that nothing is on.
func TestBoundaryListsPassOverOtherClusters(t *testing.T) {
	w := nbtest.NewWorld(t)
	routers := map[string]*netmodel.Router{"shop/r1": nbtest.GatewayConf(t, "shop/r1", nbtest.GwFull)}
	wide := nbtest.Network(t, "wide", nbtest.Layer3)
	rows := func(n *nbtest.Client, node string) {
		t.Helper()
		if err := n.Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: node, Chassis: "chassis-" + node}); err != nil {
			t.Fatal(err)
		}
		nbtest.Share(t, n, wide, node)
	}
	a := w.TakenBy(t, "a", "", routers)
	nbtest.Ensure(t, a, wide)
	if _, err := a.Gateways.Ensure(nbtest.WithLimit(t), routers["shop/r1"], nil); err != nil {
		t.Fatal(err)
	}
	rows(a, "n1")
	w.Put(t, "Logical_Router", ovndb.RouterKey("idle-a"), "idle-a", map[string]string{"ovn-multinet/router": "idle-a", "ovn-multinet/cluster": "a"})
	before := w.Versions(t)

	b := w.TakenBy(t, "b", "a", nil)
	sweep := func() {
		t.Helper()
		if err := b.DeleteUnusedRouters(nbtest.WithLimit(t)); err != nil {
			t.Fatal(err)
		}
		if err := b.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
			t.Fatal(err)
		}
		leavers := stalenodes.New(b.DB, noNodes{}, leads, slog.New(slog.DiscardHandler))
		for range 3 {
			if err := leavers.Pass(nbtest.WithLimit(t)); err != nil {
				t.Fatal(err)
			}
		}
		if list, err := b.List(nbtest.WithLimit(t)); err != nil || len(list) != 0 {
			t.Errorf("networks %v, %v", list, err)
		}
	}
	sweep()
	after := w.Versions(t)
	delete(before, "Copp "+ovndb.ClusterKey)
	delete(after, "Copp "+ovndb.ClusterKey)
	if !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
	// Its own go all the same.
	w.Put(t, "Logical_Router", ovndb.RouterKey("idle-b"), "idle-b", map[string]string{"ovn-multinet/router": "idle-b", "ovn-multinet/cluster": "b"})
	w.Put(t, "Logical_Router", ovndb.RouterKey("idle"), "idle", map[string]string{"ovn-multinet/router": "idle"})
	w.Put(t, "Copp", ovndb.NodeKey("n2"), "ovn-multinet node n2", map[string]string{
		"ovn-multinet/kind": "node", "ovn-multinet/node": "n2", "ovn-multinet/cluster": "b"})
	sweep()
	after = w.Versions(t)
	delete(after, "Copp "+ovndb.ClusterKey)
	if !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}

// noNodes is a cluster all of whose nodes are gone.
type noNodes struct{}

func (noNodes) NodeNames(context.Context) ([]string, error) { return []string{}, nil }

func (noNodes) GoneNodes(context.Context) (func(string) bool, error) {
	return func(string) bool { return true }, nil
}
