package networks

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/paths"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// clock is a time that tests move.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

// asks is a queue that notes what is asked for later.
type asks struct {
	workqueue.TypedRateLimitingInterface[engine.Item]
	later map[string]time.Duration
}

func (a *asks) AddAfter(i engine.Item, d time.Duration) {
	if a.later == nil {
		a.later = map[string]time.Duration{}
	}
	a.later[i.Tenant+" "+i.Key] = d
}

// alone are the dependents of networks that have none.
type alone struct{ Dependents }

func (alone) NetworkAccepted(string, *netmodel.Network, bool) {}

// newTested is the kind in an engine that does not run, with the queue that it asks.
func newTested() (*Kind, *asks, *clock) {
	log := slog.New(slog.DiscardHandler)
	q, now := &asks{}, &clock{time.Unix(1_000_000, 0)}
	e := engine.New(q, engine.NewMetrics(), nil, log)
	p := paths.New(paths.Config{Engine: e, Log: log})
	k := New(Config{Engine: e, Paths: p, Dependents: alone{}, Log: log})
	k.States.Queue.ShutDown()
	k.seen.now, e.Now = now.Now, now.Now
	return k, q, now
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
	if got := q.later["mallory mallory/n"]; got != engine.RefusedEvery {
		t.Errorf("after a change it is tried again in %v, want %v", got, engine.RefusedEvery)
	}
	c.refuse("dev/n", "dev", tested(t, "dev/n", `"subnets":"10.2.0.0/24","router":"r2"`))
	c.refuse("dev/alone", "dev", tested(t, "dev/alone", `"subnets":"10.2.0.0/24"`))
	q.later = nil
	now.pass(engine.RefusedEvery - time.Second)
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
		"mallory mallory/refused7": 100 * time.Second, "mallory mallory/leaving7": 100 * time.Second, "dev dev/n": engine.LaterLast,
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
	if news, wait := c.seen.changed(nad); !news || wait != 0 {
		t.Fatalf("a new NAD: news %t, wait %v", news, wait)
	}
	worked, waiting := 0, time.Duration(0)
	for i := range 1000 {
		nad.Config = configOf(strconv.Itoa(i))
		news, wait := c.seen.changed(nad)
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
	if news, _ := c.seen.changed(nad); !news {
		t.Error("the last edit is lost")
	}
	nad.Config, nad.Deleting = configOf("x"), true
	if news, wait := c.seen.changed(nad); !news || wait != 0 {
		t.Errorf("a deletion: news %t, wait %v", news, wait)
	}
}

// What the controller wrote of a NAD is no news when the source tells of it; what anybody else writes is.
func TestBoundaryOwnStateIsNoNews(t *testing.T) {
	c, _, _ := newTested()
	nad := &netmodel.NAD{Namespace: "mallory", Name: "n", Config: configOf("{}")}
	c.seen.changed(nad)
	c.States.last[nad.ID()] = written{"ready", true}
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
		if news, _ := c.seen.changed(nad); news != step.news {
			t.Errorf("%s: news %t, want %t", step.what, news, step.news)
		}
	}
}
