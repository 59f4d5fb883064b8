package ovnnet_test

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

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// openOf connects to NB as a process of a cluster does.
func openOf(t *testing.T, endpoint, cluster string) *ovndb.DB {
	t.Helper()
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: []string{endpoint}, Model: model, LeaderOnly: true, Log: slog.New(slog.DiscardHandler),
		Cluster: func(context.Context) (string, error) { return cluster, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.WaitConnected(withLimit(t)); err != nil {
		t.Fatal(err)
	}
	return db
}

// takenBy is a connection of a cluster that NB belongs to from now on.
func (w *world) takenBy(t *testing.T, cluster, adopt string, routers map[string]*netmodel.Router) *ovnnet.Networks {
	t.Helper()
	db := openOf(t, w.proxy.Endpoint(), cluster)
	if err := db.Take(withLimit(t), adopt); err != nil {
		t.Fatal(err)
	}
	return ovnnet.New(db, routers)
}

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
	owner *ovnnet.Owner
	log   *lines
	ended chan error
}

func (w *world) lead(t *testing.T, cluster, adopt string, a *api) *leader {
	t.Helper()
	l := &leader{log: &lines{}, ended: make(chan error, 1)}
	log := slog.New(slog.NewTextHandler(l.log, nil))
	db := openOf(t, w.proxy.Endpoint(), cluster)
	l.owner = ovnnet.NewOwner(db, adopt, log)
	c := ovnnet.NewController(ovnnet.New(db, nil), nil, slog.New(slog.DiscardHandler))
	activity := c.Watch()
	a.with(func() { a.watchers = []func(string, string){c.Changed} })
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		l.ended <- l.owner.Lead(ctx, leads, func(ctx context.Context) error { return c.Run(ctx, a, leads) })
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
	l.running = &running{world: w, api: a, activity: activity, stop: stop}
	return l
}

func (w *world) ownerRow(t *testing.T) string {
	t.Helper()
	for _, word := range strings.Fields(w.rows(t)["Copp"][ovndb.ClusterKey]["external_ids"]) {
		if strings.HasPrefix(word, "ovn-multinet/cluster=") { // beside which the row has its age
			return word
		}
	}
	return ""
}

const standingBy = "NB belongs to cluster a, this controller is of cluster b: give it the NB of its own cluster, " +
	"or start it with --adopt-cluster=a if its cluster takes the place of that one"

// The controller of a second cluster touches nothing of the first one's, whatever its NADs are called. Once its operator
// adopts the NB it works on, and the rows that none of its NADs describes stay as they are.
func TestBoundaryTwoClustersOnOneNB(t *testing.T) {
	w := newWorld(t)
	one, two := newAPI(), newAPI()
	a := w.lead(t, "a", "", one)
	a.apply("shop/blue", spec(net4))
	a.apply("shop/red", spec(`"subnets":"10.2.0.0/24"`+onR1))
	a.apply("shop/own", spec(`"subnets":"10.3.0.0/24","router":"r2"`))
	for _, id := range []string{"shop/blue", "shop/red", "shop/own"} {
		a.wantState(t, id, "ready, held")
	}
	w.pod(t, "blue", "10.1.0.9", "web-0", "net1")
	before := w.versions(t)

	two.apply("shop/blue", spec(`"subnets":"10.9.0.0/24"`))
	two.apply("shop/own", spec(`"subnets":"10.3.0.0/24","router":"r2"`))
	two.apply("dev/green", spec(`"subnets":"10.4.0.0/24"`))
	b := w.lead(t, "b", "", two)
	eventually(t, standingBy, func() string {
		if err := b.owner.Ready(); err != nil {
			return err.Error()
		}
		return "ready"
	})
	w.proxy.Reset() // it tries on: each try reads once, and so does each look of the owner
	eventually(t, "it tries on", func() string { return sprint("%.*s", 11*min(w.proxy.Counts().ReadOnly/4, 1), "it tries on") })
	if got := b.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `msg="standing by"`) || !strings.Contains(got, standingBy) {
		t.Errorf("log %s, want one line: %s", got, standingBy)
	}
	if err := a.owner.Ready(); err != nil {
		t.Errorf("the owner is not ready: %v", err)
	}
	if got := b.state("shop/blue") + b.state("dev/green"); got != "nothingnothing" {
		t.Errorf("it speaks of networks: %s", got)
	}
	if after := w.versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
	b.stop()
	if err := <-b.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}

	b = w.lead(t, "b", "a", two)
	b.wantState(t, "dev/green", "ready, held")
	b.wantState(t, "shop/own", "ready, held")
	b.wantState(t, "shop/blue", "refused: subnets: 10.1.0.0/24 cannot become 10.9.0.0/24, which does not hold all of it, with 1 port on the network, held")
	if err := <-a.ended; err == nil || !strings.Contains(err.Error(), "NB belongs to cluster b, this controller is of cluster a: ") {
		t.Errorf("the first one ended with %v", err)
	}
	a.ended <- nil
	if got := w.ownerRow(t); got != "ovn-multinet/cluster=b" {
		t.Errorf("the owner is %s", got)
	}
	b.deleteNAD(t, "shop/own")
	b.wantState(t, "shop/own", "gone") // what it described is its own
	b.stop()
	b = w.lead(t, "b", "a", two) // which looks at all there is
	b.settle(t)
	if got := w.switches(t) + " " + w.names(t, "Logical_Router") + " " + w.names(t, "Logical_Switch_Port"); got != "dev/green shop/blue shop/red shop/r1 shop/red:shop/r1 shop/web-0/net1" {
		t.Errorf("there are %s", got)
	}
}

// After an adoption a guest stays on its router until the owner's network is looked at, which says whether it may.
func TestBoundaryAdoptionDetachesNoGuest(t *testing.T) {
	for name, tt := range map[string]struct{ owner, state, ports string }{
		"consent":    {net4 + onR1 + letsWeb, "ready, held", "shop/r1:shop/blue shop/r1:web/green"},
		"no consent": {net4 + onR1, "refused: " + noConsent + ", held", "shop/r1:shop/blue"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.lead(t, "a", "", newAPI())
			a.apply("shop/blue", spec(net4+onR1+letsWeb))
			a.wantState(t, "shop/blue", "ready, held")
			a.apply("web/green", spec(greenNet+onShopR1))
			a.wantState(t, "web/green", "ready, held")
			a.greenPod(t)
			a.stop()

			two := newAPI()
			two.fail("shop/blue", errors.New("connection refused")) // the owner's look comes later
			two.apply("shop/blue", spec(tt.owner))
			two.apply("web/green", spec(greenNet+onShopR1))
			b := w.lead(t, "b", "a", two)
			b.wantState(t, "web/green", "refused: "+noConsent+", held") // there is no consent of this cluster yet
			if got := b.routerPorts(t); got != "shop/r1:shop/blue shop/r1:web/green" {
				t.Errorf("the ports of routers are %q", got)
			}
			two.fail("shop/blue", nil)
			b.wantState(t, "shop/blue", "ready, held")
			eventually(t, tt.state+"; "+tt.ports, func() string { return b.state("web/green") + "; " + b.routerPorts(t) })
		})
	}
}

// The row that names the owner is made again when someone takes it.
func TestBoundaryOwnerRowIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	a := w.lead(t, "a", "", newAPI())
	a.apply("shop/blue", spec(net4))
	a.wantState(t, "shop/blue", "ready, held")
	w.clear(t)
	eventually(t, "ovn-multinet/cluster=a", func() string { return w.ownerRow(t) })
	a.apply("shop/red", spec(`"subnets":"10.2.0.0/24"`))
	a.wantState(t, "shop/red", "ready, held")
	a.stop()
	if err := <-a.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// An error of a look at the owner of NB is logged while the controller works: once, and once more after a look without one.
func TestErrorsOfTheOwnersLooksAreLogged(t *testing.T) {
	w, log := newWorld(t), &lines{}
	owner := ovnnet.NewOwner(openOf(t, w.Endpoint(), "a"), "", slog.New(slog.NewTextHandler(log, nil)))
	owner.LookEvery(time.Millisecond)
	var looks atomic.Int32
	ctx, cancel := context.WithCancel(withLimit(t))
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
	w := newWorld(t)
	owner := ovnnet.NewOwner(openOf(t, w.Endpoint(), "a"), "", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(withLimit(t))
	err := owner.Lead(ctx, func() error { cancel(); return errors.New("does not lead any more") }, func(context.Context) error {
		t.Error("it works")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := w.ownerRow(t); got != "" {
		t.Errorf("the owner is %s", got)
	}
}

// Rows that have no identity, or the own one, are left alone; those of another cluster that a NAD describes are written
// once.
func TestBoundaryEnsureAndTheIdentityOfRows(t *testing.T) {
	w := newWorld(t)
	networks := []*netmodel.Network{
		network(t, "blue", netDual+onR1), network(t, "wide", layer3All), network(t, "ln", `"topology":"localnet","physicalNetworkName":"p"`),
	}
	keys := func(n *ovnnet.Networks) (changed int) {
		for _, one := range networks {
			if ensure(t, n, one) {
				changed++
			}
		}
		return changed
	}
	for _, one := range networks { // as an older version
		ensure(t, w.networks, one)
	}
	share(t, w.networks, networks[1], "n1")
	before := w.versions(t)
	a := w.takenBy(t, "a", "", nil)
	if changed := keys(a); changed != 0 {
		t.Errorf("%d networks without an identity changed", changed)
	}
	after := w.versions(t)
	delete(after, "Copp "+ovndb.ClusterKey)
	if !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
	for _, one := range networks {
		if err := a.Remove(withLimit(t), one.ID(), false); err != nil {
			t.Fatal(err)
		}
	}
	if changed := keys(a); changed != len(networks) {
		t.Errorf("%d networks made", changed)
	}
	share(t, a, networks[1], "n1")
	for table, rows := range w.rows(t) {
		for key, row := range rows {
			if ext(row, "ovn-multinet/cluster") != "a" {
				t.Errorf("%s %s has no identity: %v", table, key, row)
			}
		}
	}
	if changed := keys(a); changed != 0 {
		t.Errorf("%d networks of the own cluster changed", changed)
	}
	b := w.takenBy(t, "b", "a", nil)
	if changed := keys(b); changed != len(networks) {
		t.Errorf("%d networks of the other cluster changed, want %d", changed, len(networks))
	}
	if changed := keys(b); changed != 0 {
		t.Errorf("%d networks changed a second time", changed)
	}
}

// What a cluster does not own, the agent of another one neither announces its node in, nor gets blocks of.
func TestBoundaryAgentOfAnotherCluster(t *testing.T) {
	w := newWorld(t)
	a := w.takenBy(t, "a", "", nil)
	wide, none := network(t, "wide", layer3), network(t, "none", layer3)
	ensure(t, a, wide)
	before := w.versions(t)
	b := ovnnet.New(openOf(t, w.proxy.Endpoint(), "b"), nil)
	for what, do := range map[string]func() error{
		"announce":                 func() error { return b.Announce(withLimit(t), "n1", "chassis-1") },
		"share":                    func() error { _, err := b.Share(withLimit(t), wide, "n1"); return err },
		"share of no such network": func() error { _, err := b.Share(withLimit(t), none, "n1"); return err },
		"remove":                   func() error { return b.Remove(withLimit(t), "shop/wide", true) },
		"ensure":                   func() error { _, err := b.Ensure(withLimit(t), none, []string{"shop/none"}); return err },
	} {
		if no, ok := errors.AsType[*ovndb.NotOwner](do()); !ok || no.Owner != "a" || no.Cluster != "b" {
			t.Errorf("%s is not refused", what)
		}
	}
	if after := w.versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}

// What lists lead to is done to rows of the own cluster alone: blocks and rows of nodes that are gone, routers and gateways
// that nothing is on.
func TestBoundaryListsPassOverOtherClusters(t *testing.T) {
	w := newWorld(t)
	routers := map[string]*netmodel.Router{"shop/r1": gatewayConf(t, "shop/r1", gwFull)}
	wide := network(t, "wide", layer3)
	rows := func(n *ovnnet.Networks, node string) {
		t.Helper()
		if err := n.Announce(withLimit(t), node, "chassis-"+node); err != nil {
			t.Fatal(err)
		}
		share(t, n, wide, node)
	}
	a := w.takenBy(t, "a", "", routers)
	ensure(t, a, wide)
	if _, err := a.EnsureGateway(withLimit(t), routers["shop/r1"], nil); err != nil {
		t.Fatal(err)
	}
	rows(a, "n1")
	w.put(t, "Logical_Router", ovndb.RouterKey("idle-a"), "idle-a", map[string]string{"ovn-multinet/router": "idle-a", "ovn-multinet/cluster": "a"})
	before := w.versions(t)

	b := w.takenBy(t, "b", "a", nil)
	sweep := func() {
		t.Helper()
		if err := b.DropUnusedRouters(withLimit(t)); err != nil {
			t.Fatal(err)
		}
		if err := b.DropGateways(withLimit(t)); err != nil {
			t.Fatal(err)
		}
		all := func(context.Context) (func(string) bool, error) { return func(string) bool { return true }, nil }
		leavers := ovnnet.NewLeavers(b, all, leads, slog.New(slog.DiscardHandler))
		for range 3 {
			if err := leavers.Round(withLimit(t)); err != nil {
				t.Fatal(err)
			}
		}
		if list, err := b.Accepted(withLimit(t)); err != nil || len(list) != 0 {
			t.Errorf("networks %v, %v", list, err)
		}
	}
	sweep()
	after := w.versions(t)
	delete(before, "Copp "+ovndb.ClusterKey)
	delete(after, "Copp "+ovndb.ClusterKey)
	if !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
	// Its own go all the same.
	w.put(t, "Logical_Router", ovndb.RouterKey("idle-b"), "idle-b", map[string]string{"ovn-multinet/router": "idle-b", "ovn-multinet/cluster": "b"})
	w.put(t, "Logical_Router", ovndb.RouterKey("idle"), "idle", map[string]string{"ovn-multinet/router": "idle"})
	w.put(t, "Copp", ovndb.NodeKey("n2"), "ovn-multinet node n2", map[string]string{
		"ovn-multinet/kind": "node", "ovn-multinet/node": "n2", "ovn-multinet/cluster": "b"})
	sweep()
	after = w.versions(t)
	delete(after, "Copp "+ovndb.ClusterKey)
	if !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}
