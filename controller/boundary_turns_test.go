package controller

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// However many items a namespace has in the queue, another one's comes next but one, and every other turn is the operator's.
func TestBoundaryNamespacesTakeTurns(t *testing.T) {
	q := newFairQueue(func(i item) string { return i.tenant })
	defer q.ShutDown()
	for i := range 1000 {
		q.Add(nadItem(fmt.Sprintf("mallory/n%d", i)))
	}
	for _, id := range []string{"shop/blue", "shop/red", "dev/blue"} {
		q.Add(nadItem(id))
	}
	q.Add(nadItem("mallory/n0")) // is in it already
	q.Add(gatewayItem("r2"))
	q.Add(gatewayItem("r1"))
	if q.Len() != 1005 {
		t.Fatalf("%d items, want 1005", q.Len())
	}
	var got, mallory []string
	for q.Len() > 0 {
		i, _ := q.Get()
		got = append(got, i.id)
		if i.tenant == "mallory" {
			mallory = append(mallory, i.id)
		}
		q.Done(i)
	}
	want := []string{"r2", "mallory/n0", "r1", "shop/blue", "dev/blue", "mallory/n1", "shop/red", "mallory/n2", "mallory/n3"}
	if !slices.Equal(got[:len(want)], want) || len(got) != 1005 {
		t.Errorf("the turns are %q of %d, want %q", got[:len(want)], len(got), want)
	}
	for i, id := range mallory {
		if id != fmt.Sprintf("mallory/n%d", i) {
			t.Fatalf("item %d of a namespace is %s: its order is not kept", i, id)
		}
	}
}

// Gateways that come back at once, each time, take every other turn and no more.
func TestBoundaryOperatorsItemsStarveNobody(t *testing.T) {
	q := newFairQueue(func(i item) string { return i.tenant })
	defer q.ShutDown()
	const tenants = 5
	for i := range 10 {
		q.Add(gatewayItem(fmt.Sprint("r", i)))
	}
	for i := range tenants {
		q.Add(nadItem(fmt.Sprintf("shop%d/blue", i)))
	}
	turns, left := 0, tenants
	for ; left > 0 && turns < 100; turns++ {
		i, _ := q.Get()
		q.Done(i)
		if i.kind == kindGateway {
			q.Add(i)
		} else {
			left--
		}
	}
	if turns != 2*tenants {
		t.Errorf("%d of %d namespaces' items wait still after %d turns, want none after %d", left, tenants, turns, 2*tenants)
	}
	for range 20 { // and those of the operator have all turns where nobody else has items
		if i, _ := q.Get(); i.kind != kindGateway {
			t.Fatalf("%v is in the queue", i)
		} else {
			q.Done(i)
			q.Add(i)
		}
	}
}

// Of a namespace's NADs of one network the oldest ones count, in whatever order the controller hears of them.
func TestBoundaryTheOldestNADsCount(t *testing.T) {
	const all = maxNADs + 2
	name := func(i int) string { return fmt.Sprintf("mallory/n%03d", i) }
	m := newMembership()
	for i := range all { // the youngest first
		out := m.set(name(all-i), "blue", int64(all-i))
		if want := i >= maxNADs; (out != "") != want || want && out != name(all-i+maxNADs) {
			t.Errorf("after %d NADs, %q is beyond the limit", i+1, out)
		}
	}
	m.set("shop/n", "blue", 1000)
	for range 2 {
		if got := m.nadsOf("blue"); len(got) != maxNADs+1 || got[0] != name(1) || got[maxNADs-1] != name(maxNADs) || got[maxNADs] != "shop/n" {
			t.Fatalf("there count %v", got)
		}
		m.set(name(3), "blue", 3) // once more
	}
	if out := m.set(name(3), "blue", 2000); out != "" || !m.beyond(name(3)) || m.beyond(name(maxNADs+1)) {
		t.Errorf("one that turns out to be younger pushes %q out", out)
	}
	m.set(name(1), "", 0)
	m.set(name(2), "red", 1)
	if m.beyond(name(3)) || m.beyond(name(all)) || fmt.Sprint(m.nadsOf("red")) != "["+name(2)+"]" {
		t.Errorf("after two are gone, there count %v", m.nadsOf("blue"))
	}
	for i := range all {
		m.set(name(i+1), "", 0)
	}
	if m.set("shop/n", "", 0); len(m.of)+len(m.nads)+len(m.created) > 0 {
		t.Errorf("there are left %v", m)
	}
}

// clock is a time that tests move.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

// A namespace that changes its networks all the time disturbs OVN for a fifth of the time, and no other namespace
// waits.
func TestBoundaryChangesOfANamespaceAreBounded(t *testing.T) {
	const lasts = 10 * time.Minute
	for name, every := range map[string]time.Duration{"as fast as it can": time.Millisecond, "now and then": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			now := &clock{time.Unix(1_000_000, 0)}
			p := newPace(slog.New(slog.DiscardHandler))
			p.now = now.Now
			end, changes, busy := now.now.Add(lasts), 0, map[int64]bool{}
			for now.now.Before(end) {
				if wait := p.wait("mallory"); wait > 0 {
					if p.wait("shop") != 0 {
						t.Fatal("another namespace waits")
					}
					now.pass(wait)
					if again := p.wait("mallory"); again != 0 {
						t.Fatalf("after %v it has to wait for %v more", wait, again)
					}
					continue
				}
				p.wrote("mallory")
				changes++
				busy[now.now.Unix()] = true
				now.pass(every)
			}
			rounds := maxBudgets + int(lasts/budgetEvery) + 1
			if changes > rounds*budgetWrites {
				t.Errorf("%d changes, want %d at most", changes, rounds*budgetWrites)
			}
			if seconds := int(budgetLasts/time.Second) + 1; len(busy) > rounds*seconds {
				t.Errorf("changes in %d seconds, want %d at most", len(busy), rounds*seconds)
			}
			t.Attr("boundary.changes-in-10-min", strconv.Itoa(changes))
			t.Attr("boundary.seconds-with-changes-in-10-min", strconv.Itoa(len(busy)))

			now.pass(time.Hour)
			p.prune()
			if len(p.tenants) != 0 {
				t.Errorf("an idle namespace is remembered: %v", p.tenants)
			}
			for i := range 1000 { // a rollout
				if wait := p.wait("mallory"); wait != 0 {
					t.Fatalf("change %d of 1,000 at once waits for %v", i, wait)
				}
				p.wrote("mallory")
			}
		})
	}
	t.Run("the operator's", func(t *testing.T) {
		p := newPace(slog.New(slog.DiscardHandler))
		for range 10 * maxBudgets * budgetWrites {
			p.wrote(operators)
		}
		if wait := p.wait(operators); wait != 0 {
			t.Errorf("they wait for %v", wait)
		}
	})
}

// asks is a queue that notes what is asked for later.
type asks struct {
	workqueue.TypedRateLimitingInterface[item]
	later map[string]time.Duration
}

func (a *asks) AddAfter(i item, d time.Duration) {
	if a.later == nil {
		a.later = map[string]time.Duration{}
	}
	a.later[i.tenant+" "+i.id] = d
}

// newTested is a controller that does not run, with the queue that it asks.
func newTested() (*Controller, *asks, *clock) {
	log := slog.New(slog.DiscardHandler)
	q0 := NewQueue(log)
	c := New(Config{Queue: q0, Metrics: NewMetrics(q0, nil), Log: log})
	c.queue.ShutDown()
	c.states.queue.ShutDown()
	q, now := &asks{}, &clock{time.Unix(1_000_000, 0)}
	c.queue, c.now = q, now.Now
	return c, q, now
}

func tested(t *testing.T, id, keys string) *netmodel.Network {
	t.Helper()
	namespace, name, _ := strings.Cut(id, "/")
	n, err := netmodel.ParseNetwork(namespace, name, []byte(`{"type":"ovn-multinet",`+keys+`}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A refused network is tried again after growing times, soon after its owner changes it, and when its router changes.
func TestBoundaryRefusedNetworksAreTriedSeldom(t *testing.T) {
	c, q, now := newTested()
	n := tested(t, "mallory/n", `"subnets":"10.1.0.0/24","router":"r1"`)
	tries := 0
	for end := now.now.Add(time.Hour); now.now.Before(end); tries++ {
		c.refuse("mallory/n", "mallory", n)
		now.pass(q.later["mallory mallory/n"])
	}
	if tries > 245 { // at 5 s each it would be 720
		t.Errorf("%d attempts in an hour, want 245 at most", tries)
	}
	t.Attr("boundary.attempts-of-a-refused-network-per-hour", strconv.Itoa(tries))

	c.refuse("mallory/n", "mallory", tested(t, "mallory/n", `"subnets":"10.2.0.0/24","router":"r1"`))
	if got := q.later["mallory mallory/n"]; got != refusedEvery {
		t.Errorf("after a change it is tried again in %v, want %v", got, refusedEvery)
	}
	c.refuse("dev/n", "dev", tested(t, "dev/n", `"subnets":"10.2.0.0/24","router":"r2"`))
	c.refuse("dev/alone", "dev", tested(t, "dev/alone", `"subnets":"10.2.0.0/24"`))
	q.later = nil
	now.pass(refusedEvery - time.Second)
	c.retryOnRouter("")
	c.retryOnRouter("mallory/r1")
	if got, want := fmt.Sprint(q.later), "map[mallory mallory/n:1s]"; got != want {
		t.Errorf("a change on router mallory/r1 wakes %s, want %s", got, want)
	}
}

// However many networks of a namespace wait, all of them together have ten attempts a second, and other namespaces' networks wait
// no longer.
func TestBoundaryManyRefusedNetworksHaveFewAttempts(t *testing.T) {
	c, q, _ := newTested()
	n := tested(t, "mallory/n", `"subnets":"10.1.0.0/24"`)
	for range 10 {
		for i := range 500 {
			c.refuse(fmt.Sprint("mallory/refused", i), "mallory", n)
			c.stillUsed(fmt.Sprint("mallory/leaving", i), "mallory", &ovnnet.InUse{By: []string{"pod mallory/a"}})
		}
		c.refuse("dev/n", "dev", tested(t, "dev/n", `"subnets":"10.2.0.0/24"`))
	}
	for key, want := range map[string]time.Duration{
		"mallory mallory/refused7": 100 * time.Second, "mallory mallory/leaving7": 100 * time.Second, "dev dev/n": waitingLast,
	} {
		if got := q.later[key]; got != want {
			t.Errorf("%s is looked at again in %v, want %v", key, got, want)
		}
	}
}

// A network that is being deleted and keeps its ports is looked at less and less; when a port goes, soon again.
func TestBoundaryNetworksInUseAreLookedAtSeldom(t *testing.T) {
	c, q, now := newTested()
	looks := 0
	for end := now.now.Add(time.Hour); now.now.Before(end); looks++ {
		c.stillUsed("mallory/n", "mallory", &ovnnet.InUse{By: []string{"pod mallory/a", "pod mallory/b"}})
		now.pass(q.later["mallory mallory/n"])
	}
	if looks > 245 { // at 1 s each it would be 3,600
		t.Errorf("%d looks in an hour, want 245 at most", looks)
	}
	c.stillUsed("mallory/n", "mallory", &ovnnet.InUse{By: []string{"pod mallory/a"}})
	if got := q.later["mallory mallory/n"]; got != inUseEvery {
		t.Errorf("after a port went it is looked at in %v, want %v", got, inUseEvery)
	}
}

func configOf(text string) *netmodel.Config {
	return netmodel.ParseConfig("mallory", "n", text, netmodel.KeptConfig)
}

// Edits of one NAD that follow each other are worked off once a second; the first one, and a deletion, at once.
func TestBoundaryEditsOfOneNADAreMerged(t *testing.T) {
	c, _, now := newTested()
	nad := &netmodel.NAD{Namespace: "mallory", Name: "n", Config: configOf("{}")}
	if news, wait := c.changed(nad); !news || wait != 0 {
		t.Fatalf("a new NAD: news %t, wait %v", news, wait)
	}
	worked, waiting := 0, time.Duration(0)
	for i := range 1000 {
		nad.Config = configOf(strconv.Itoa(i))
		news, wait := c.changed(nad)
		if news {
			worked++
		} else {
			waiting = wait
		}
		if i == 0 && !news {
			t.Error("the first edit waits")
		}
		now.pass(10 * time.Millisecond)
	}
	if worked > 10 {
		t.Errorf("of 1,000 edits within 10 s %d are worked off, want 10 at most", worked)
	}
	t.Attr("boundary.edits-worked-off-of-1000", strconv.Itoa(worked))
	now.pass(waiting)
	if news, _ := c.changed(nad); !news {
		t.Error("the last edit is lost")
	}
	nad.Config, nad.Deleting = configOf("x"), true
	if news, wait := c.changed(nad); !news || wait != 0 {
		t.Errorf("a deletion: news %t, wait %v", news, wait)
	}
}

// What the controller wrote of a NAD is no news when the source tells of it; what anybody else writes is.
func TestBoundaryOwnStateIsNoNews(t *testing.T) {
	c, _, _ := newTested()
	nad := &netmodel.NAD{Namespace: "mallory", Name: "n", Config: configOf("{}")}
	c.changed(nad)
	c.states.last[nad.ID()] = written{"ready", true}
	for _, step := range []struct {
		what   string
		change func()
		news   bool
	}{
		{"its own write", func() { nad.State, nad.HasFinalizer = "ready", true }, false},
		{"another hand's state", func() { nad.State = "not ready" }, true},
		{"its own state again", func() { nad.State = "ready" }, false},
		{"no finalizer", func() { nad.HasFinalizer = false }, true},
		{"its own write with an edit", func() { nad.HasFinalizer, nad.Config = true, configOf("x") }, true},
		{"nothing at all", func() {}, true},
		{"an edit right behind another", func() { nad.ForceDelete = true }, false},
	} {
		step.change()
		if news, _ := c.changed(nad); news != step.news {
			t.Errorf("%s: news %t, want %t", step.what, news, step.news)
		}
	}
}
