package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// hostileNADs is how many NADs a hostile namespace has here.
func hostileNADs() int {
	if os.Getenv("OVN_MULTINET_LONG") == "1" {
		return 1000
	}
	return 200
}

// looks counts the controller's looks, by what its log says of each.
type looks struct {
	mu   sync.Mutex
	all  int
	of   map[string]int // by kind and id
	from map[string]int // by namespace
}

func newLooks() *looks { return &looks{of: map[string]int{}, from: map[string]int{}} }

func (l *looks) Enabled(context.Context, slog.Level) bool { return true }

func (l *looks) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l *looks) WithGroup(string) slog.Handler { return l }

func (l *looks) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "reconcile pass" {
		return nil
	}
	words := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		words[a.Key] = a.Value.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all++
	l.of[words["kind"]+" "+words["id"]]++
	l.from[words["namespace"]]++
	return nil
}

// count returns how often the controller looked at a thing, and for a namespace.
func (l *looks) count(what, namespace string) (of, from int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[what], l.from[namespace]
}

// runCounted starts a controller whose looks are counted.
func runCounted(t *testing.T, w *nbtest.World, a *api) (*running, *looks) {
	t.Helper()
	l := newLooks()
	return runController(t, w, newController(w.Networks, a, leads, slog.New(l))), l
}

// atTheBounds is a configuration of the greatest size that is accepted; n makes it another one.
func atTheBounds(n int) string {
	var exclude, routes []string
	for i := range 256 {
		exclude = append(exclude, nbtest.Sprint("10.1.%d.%d/31", i, 2*(n%100)+2))
		routes = append(routes, nbtest.Sprint(`{"dst":"172.%d.%d.0/24"}`, 16+n%16, i))
	}
	return nbtest.Spec(nbtest.Sprint(`"subnets":"10.1.0.0/16","excludeSubnets":"%s","routes":[%s]`, strings.Join(exclude, ","), strings.Join(routes, ",")))
}

// hostile are the kinds of NADs that cost a controller and OVN something, by what the i-th of them is in its n-th
// edit.
var hostile = map[string]func(i, n int) string{
	"refused for its syntax": func(i, n int) string { return nbtest.Spec(nbtest.Sprint(`"subnets":"10.1.0.%d"`, (i+n)%256)) },
	"refused on a router": func(i, n int) string {
		return nbtest.Spec(nbtest.Net4 + nbtest.Sprint(`,"router":"crowded","mtu":%d`, 1000+n%100))
	},
	"refused for its width": func(i, n int) string {
		return nbtest.Spec(nbtest.Sprint(`"subnets":"32.0.0.0/3","excludeSubnets":"33.%d.0.0/16"`, n%256))
	},
	"beyond the bounds": func(i, n int) string {
		return nbtest.Spec(nbtest.Net4 + `,"routes":[` + strings.Repeat(`{"dst":"172.16.0.0/16"},`, 10000) + nbtest.Sprint(`{"dst":"172.16.%d.0/24"}]`, n%256))
	},
	"at the bounds": func(i, n int) string { return atTheBounds(n) },
	"edited":        func(i, n int) string { return nbtest.Spec(nbtest.Net4 + nbtest.Sprint(`,"mtu":%d`, 1000+(i+n)%500)) },
	"deleted in use": func(i, n int) string {
		return nbtest.Spec(nbtest.Net4)
	},
}

// passed is what happened while a namespace's network was made.
type passed struct{ transactions, othersLooks int }

// makeVictim makes the NAD shop/blue and returns what passed until its switch was committed.
func makeVictim(t *testing.T, r *running, l *looks) passed {
	t.Helper()
	var mu sync.Mutex
	var atCommit passed
	var othersBefore int
	done := make(chan struct{})
	committed := sync.OnceFunc(func() { close(done) })
	r.Proxy.Before(func(tx ovndbtest.Transact) {
		for _, op := range tx.Ops {
			if op["op"] == "insert" && op["table"] == "Logical_Switch" && op["uuid"] == nbtest.BlueKey {
				mu.Lock()
				defer mu.Unlock()
				_, others := l.count("", "mallory")
				if atCommit == (passed{}) {
					atCommit = passed{tx.N, others - othersBefore}
				}
				committed()
			}
		}
	})
	r.with(func() {
		r.nads["shop/blue"] = &netmodel.NAD{Namespace: "shop", Name: "blue", Config: netmodel.ParseConfig("shop", "blue", nbtest.Spec(nbtest.NetDual+nbtest.OnR1), netmodel.KeptConfig)}
	})
	l.mu.Lock() // the controller begins no look before it has heard of the NAD
	othersBefore = l.from["mallory"]
	r.Proxy.Reset()
	r.watchers[0]("shop", "blue")
	l.mu.Unlock()
	select {
	case <-done:
	case <-nbtest.WithLimit(t).Done():
		t.Fatal("the network is not made")
	}
	r.Proxy.Before(nil)
	r.wantState(t, "shop/blue", "ready, held")
	mu.Lock()
	defer mu.Unlock()
	return atCommit
}

// A namespace with as many hostile NADs as it likes, all of which it edits as fast as it can, costs another
// namespace's new network no more than three looks at its own NADs: the one that is under way, and one before each
// of the network's two.
func TestBoundaryHostileNamespaceKeepsNobodyWaiting(t *testing.T) {
	idle := nbtest.NewWorld(t)
	r, l := runCounted(t, idle, newAPI())
	r.settle(t)
	alone := makeVictim(t, r, l)
	t.Attr("boundary.transactions-idle", strconv.Itoa(alone.transactions))
	kinds := slices.Sorted(maps.Keys(hostile))
	for _, kind := range append(kinds, "all") {
		t.Run(kind, func(t *testing.T) {
			config := hostile[kind]
			if kind == "all" {
				config = func(i, n int) string { return hostile[kinds[i%len(kinds)]](i, n) }
			}
			w, a := nbtest.NewWorld(t), newAPI()
			r, l := runCounted(t, w, a)
			r.settle(t)
			stop := r.harass(t, kind, config)
			defer stop()
			// The controller has work with it, and more than it can do at once.
			eventually(t, "busy", func() string {
				if _, from := l.count("", "mallory"); from >= 20 {
					return "busy"
				}
				return "idle"
			})
			got := makeVictim(t, r, l)
			const looksBetween, perLook = 3, 12
			if got.othersLooks > looksBetween || got.transactions > alone.transactions+looksBetween*perLook {
				t.Errorf("%d looks at the other namespace's, %d transactions; want %d and %d at most", got.othersLooks,
					got.transactions, looksBetween, alone.transactions+looksBetween*perLook)
			}
			t.Attr("boundary.others-looks", strconv.Itoa(got.othersLooks))
			t.Attr("boundary.transactions", strconv.Itoa(got.transactions))
		})
	}
}

// harass has a namespace make its NADs and edit all of them, until it is stopped.
func (r *running) harass(t *testing.T, kind string, config func(i, n int) string) (stop func()) {
	t.Helper()
	ids := make([]string, hostileNADs())
	for i := range ids {
		ids[i] = nbtest.Sprint("mallory/n%d", i)
		r.apply(ids[i], config(i, 0))
	}
	if kind == "deleted in use" {
		for _, id := range ids[:20] {
			r.wantState(t, id, "ready, held")
			r.Machine(t, id, ovndb.PartKey("machine", id), "vm of "+id)
			r.deleteNAD(t, id)
		}
	}
	end := make(chan struct{})
	var editing sync.WaitGroup
	editing.Go(func() {
		for n := 1; ; n++ {
			for i, id := range ids {
				select {
				case <-end:
					return
				default:
				}
				r.apply(id, config(i, n))
			}
		}
	})
	return sync.OnceFunc(func() {
		close(end)
		editing.Wait()
	})
}

// The state of a network is written after one of each other namespace's, however many those have to be written.
func TestBoundaryStatesAreWrittenInTurn(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	hold := make(chan struct{})
	a.hold["mallory/n0"] = hold
	r, l := runCounted(t, w, a)
	for i := range hostileNADs() {
		r.apply(nbtest.Sprint("mallory/n%d", i), nbtest.Spec(`"subnets":"x"`))
	}
	eventually(t, "1", func() string { return r.begun("mallory/n0") })
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	r.apply("shop/red", nbtest.Spec(nbtest.Net4)) // a look at it says that the one at shop/blue is over
	eventually(t, "true", func() string {
		of, _ := l.count("network shop/red", "")
		return fmt.Sprint(of > 0)
	})
	close(hold)
	r.wantState(t, "shop/blue", "ready, held")
	before := 0
	a.with(func() {
		before = slices.IndexFunc(a.writes, func(write string) bool { return strings.HasPrefix(write, "shop/blue ") })
	})
	if before > 2 {
		t.Errorf("%d states of another namespace were written before, want 2 at most", before)
	}
	t.Attr("boundary.others-states", strconv.Itoa(before))
}

// What the controller writes on a NAD does not make it look at the network once more.
func TestBoundaryOwnStateCausesNoLook(t *testing.T) {
	r, l := runCounted(t, nbtest.NewWorld(t), newAPI())
	r.settle(t)
	r.Proxy.Reset()
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/blue", "ready, held")
	eventually(t, "true", func() string { // the controller has heard of it
		of, _ := l.count("nad shop/blue", "")
		return fmt.Sprint(of >= 2)
	})
	settled := r.Proxy.Counts()
	r.apply("shop/marker", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/marker", "ready, held")
	if of, _ := l.count("network shop/blue", ""); of != 1 || settled.Committed != 1 {
		t.Errorf("%d looks at the network, %d transactions committed; want 1 and 1", of, settled.Committed)
	}
	// Another hand's change of the state is put right.
	var state string
	r.with(func() { state = r.nads["shop/blue"].State })
	if err := r.update("shop/blue", func(n *netmodel.NAD) error { n.State = ""; return nil }); err != nil {
		t.Fatal(err)
	}
	r.wantState(t, "shop/blue", "ready, held")
	if state == "" {
		t.Error("no state was written at first")
	}
}

// A namespace that has spent its budget waits with its changes, and nobody else does; nothing of it is lost.
func TestBoundaryBudgetOfANamespace(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	c := newController(w.Networks, a, leads, quiet)
	goOn := c.SpendBudget("mallory")
	r := runController(t, w, c)
	r.apply("mallory/n", nbtest.Spec(nbtest.Net4))
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/blue", "ready, held")
	r.apply("shop/red", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/red", "ready, held")
	if got := r.Switches(t) + ", " + r.state("mallory/n"); got != "shop/blue shop/red, nothing" {
		t.Errorf("switches and state %q", got)
	}
	goOn()
	r.wantState(t, "mallory/n", "ready, held")
}

// What the operator or a router's owner withdraws is withdrawn at once, also from a namespace that has spent its budget. Its
// network that waits is not read again meanwhile, however often its NAD changes.
func TestBoundaryBudgetDelaysNoWithdrawal(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	a.grants = granted(t, shop42)
	first := operated(t, w, a, map[string]string{core: `"namespaces":{"web":{"subnets":"0.0.0.0/0"}}`})
	first.apply("web/green", nbtest.Spec(nbtest.GreenNet+`,"router":"/core"`))
	first.apply("shop/blue", nbtest.Spec(nbtest.Localnet("phys", `,"vlanID":42,`+nbtest.Net4)))
	first.wantState(t, "web/green", "ready, held")
	first.wantState(t, "shop/blue", "ready, held")
	first.GreenPod(t)
	first.stop()

	l := newLooks()
	a.grants = nil
	c := newController(w.Networks, a, leads, slog.New(l))
	goOn := c.SpendBudget("web", "shop")
	r := runController(t, w, c)
	eventually(t, "", func() string {
		return r.RouterPorts(t) + nbtest.Ext(r.Rows(t)["Copp"][nbtest.BlueAccepted], "ovn-multinet/nad:shop/blue")
	})

	looked := func() int { of, _ := l.count("network web/green", ""); return of }
	eventually(t, "true", func() string { return fmt.Sprint(looked() > 0) })
	var mu sync.Mutex
	reads := 0
	w.Proxy.Before(func(tx ovndbtest.Transact) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(fmt.Sprint(tx.Ops), nbtest.GreenKey) {
			reads++
		}
	})
	for range 20 {
		before := looked()
		r.touch(t, "web/green")
		eventually(t, "true", func() string { return fmt.Sprint(looked() > before) })
	}
	r.apply("dev/marker", nbtest.Spec("")) // the last of those looks is over
	r.wantState(t, "dev/marker", "ready, held")
	w.Proxy.Before(nil)
	mu.Lock()
	if t.Attr("boundary.reads-of-a-network-that-waits", strconv.Itoa(reads)); reads > 0 {
		t.Errorf("it is read %d times while it waits", reads)
	}
	mu.Unlock()
	if got := r.state("web/green"); got != "ready, held" {
		t.Errorf("its state, which waits for the budget, is %s", got)
	}
	goOn()
	r.touch(t, "web/green")
	r.wantOffRouter(t, `router: there is no router /core of the whole cluster: the operator creates an object Router with the spec {router: /core}`)
}

// A refused network is tried again when the network that is in its way leaves the router.
func TestBoundaryRefusedNetworkIsWoken(t *testing.T) {
	r, l := runCounted(t, nbtest.NewWorld(t), newAPI())
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	r.wantState(t, "shop/blue", "ready, held")
	r.apply("shop/red", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	r.wantState(t, "shop/red", "refused: router: subnet 10.1.0.0/24 overlaps 10.1.0.0/24 of network shop/blue on router shop/r1, held")
	r.apply("shop/blue", nbtest.Spec(nbtest.Net4))
	r.wantState(t, "shop/red", "ready, held")
	if of, _ := l.count("network shop/red", ""); of > 3 {
		t.Errorf("%d looks at it, want 3 at most", of)
	}
}

// A look at a network that NADs of many namespaces describe reads so many of each, however many a namespace writes.
func TestBoundaryCrowdedNetwork(t *testing.T) {
	const config = `{"type":"ovn-k8s-cni-overlay","name":"blue","topology":"layer2","subnets":"10.1.0.0/24"}`
	r, l := runCounted(t, nbtest.NewWorld(t), newAPI())
	r.apply("shop/n", config)
	r.wantState(t, "shop/n", "ready, held")
	const most, more = 64, 100
	for i := range most + more {
		r.apply(nbtest.Sprint("mallory/n%03d", i), config)
	}
	refused := func(text string) (n int) {
		for i := range most + more {
			if strings.Contains(r.state(nbtest.Sprint("mallory/n%03d", i)), text) {
				n++
			}
		}
		return n
	}
	eventually(t, "64 may not join, 100 are too many", func() string {
		return nbtest.Sprint("%d may not join, %d are too many", refused("may not join it"),
			refused("namespace mallory has more than 64 NetworkAttachmentDefinitions of network blue, and this is not one of the oldest: delete some"))
	})
	if got := r.state("mallory/n064"); !strings.Contains(got, "more than 64") {
		t.Errorf("the oldest ones are not those that stay: mallory/n064 is %s", got)
	}
	if got := r.state("shop/n"); got != "ready, held" {
		t.Errorf("shop/n is %s", got)
	}
	// However many are beyond, an edit of the owner's NAD reads none of them, and an edit of one of them only that one.
	beyond := func() (reads int) {
		r.with(func() {
			for i := range more {
				reads += r.reads[nbtest.Sprint("mallory/n%03d", most+i)]
			}
		})
		return reads
	}
	r.settle(t)
	before := beyond()
	r.apply("shop/n", strings.ReplaceAll(config, "}", `,"mtu":1400}`))
	r.settle(t)
	if got := beyond() - before; got != 0 {
		t.Errorf("a look at the network reads %d times NADs beyond the limit", got)
	}
	looksBefore, _ := l.count("network blue", "")
	before = beyond()
	r.apply("mallory/n099", strings.ReplaceAll(config, "}", `,"mtu":1300}`))
	r.settle(t)
	looksAfter, _ := l.count("network blue", "")
	reads := beyond() - before
	t.Attr("boundary.reads-of-nads-beyond-the-limit", strconv.Itoa(reads))
	if reads > 2 || looksAfter != looksBefore { // for the look at it, and for its state
		t.Errorf("an edit of a NAD beyond the limit: %d reads, %d looks at the network; want 2 at most and 0", reads, looksAfter-looksBefore)
	}
	r.deleteNAD(t, "mallory/n163")
	r.wantState(t, "mallory/n163", "gone")

	// One goes, and the oldest of those beyond takes its place.
	r.deleteNAD(t, "mallory/n000")
	eventually(t, "it may not join", func() string {
		if strings.Contains(r.state("mallory/n064"), "may not join it") {
			return "it may not join"
		}
		return r.state("mallory/n064")
	})
}

// A network that waits has one series of later looks, in the turns of the tenant that it is of, whichever tenants had it
// looked at.
func TestBoundaryRetriesAreForTheNetworksTenant(t *testing.T) {
	t.Run("a guest", func(t *testing.T) {
		r := run(t, nbtest.NewWorld(t), newAPI())
		r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1+nbtest.LetsWeb))
		r.wantState(t, "shop/blue", "ready, held")
		r.apply("web/green", nbtest.Spec(nbtest.GreenNet+nbtest.OnShopR1))
		r.wantState(t, "web/green", "ready, held")
		r.GreenPod(t)
		r.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
		r.wantOffRouter(t, nbtest.NoConsent)
		r.settle(t)
		if got := fmt.Sprint(r.activity.Waiting()); got != "[web/green for web]" {
			t.Errorf("there wait %s", got)
		}
	})
	t.Run("a shared network", func(t *testing.T) {
		r := squatted(t, nbtest.Net4)
		for i := range 3 {
			r.apply(nbtest.Sprint("evil%d/a", i), nbtest.IsShared("tenant", nbtest.Net4))
		}
		r.settle(t)
		r.deleteNAD(t, "shop/a")
		r.wantState(t, "evil/a", isHeld)
		for i := range 3 {
			r.touch(t, nbtest.Sprint("evil%d/a", i))
		}
		r.settle(t)
		if got := fmt.Sprint(r.activity.Waiting()); got != "[tenant for shop]" {
			t.Errorf("there wait %s", got)
		}
	})
	t.Run("a shared network that is not there", func(t *testing.T) {
		w := nbtest.NewWorld(t)
		w.Put(t, "Logical_Switch", ovndb.SwitchKey("tenant"), "a-foreign-one", nil)
		r := run(t, w, newAPI())
		for _, id := range []string{"shop/a", "evil/a"} {
			r.apply(id, nbtest.IsShared("tenant", nbtest.Net4))
			r.settle(t)
		}
		if got := fmt.Sprint(r.activity.Waiting()); got != "[tenant for shop]" {
			t.Errorf("there wait %s", got)
		}
	})
}
