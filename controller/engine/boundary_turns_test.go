package engine

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"
)

// However many items a namespace has in the queue, another one's comes next but one, and every other turn is the operator's.
func TestBoundaryNamespacesTakeTurns(t *testing.T) {
	q := NewQueue()
	defer q.ShutDown()
	q.(*timedQueue[Item]).store.now = (&clock{time.Unix(1_000_000, 0)}).Now // no pass takes long
	for i := range 1000 {
		q.Add(Of("nad", fmt.Sprintf("mallory/n%d", i)))
	}
	for _, id := range []string{"shop/blue", "shop/red", "dev/blue"} {
		q.Add(Of("nad", id))
	}
	q.Add(Of("nad", "mallory/n0")) // is in it already
	q.Add(Item{Kind: "gateway", Key: "r2"})
	q.Add(Item{Kind: "gateway", Key: "r1"})
	if q.Len() != 1005 {
		t.Fatalf("%d items, want 1005", q.Len())
	}
	var got, mallory []string
	for q.Len() > 0 {
		i, _ := q.Get()
		got = append(got, i.Key)
		if i.Tenant == "mallory" {
			mallory = append(mallory, i.Key)
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
	q := NewQueue()
	defer q.ShutDown()
	const tenants = 5
	for i := range 10 {
		q.Add(Item{Kind: "gateway", Key: fmt.Sprint("r", i)})
	}
	for i := range tenants {
		q.Add(Of("nad", fmt.Sprintf("shop%d/blue", i)))
	}
	turns, left := 0, tenants
	for ; left > 0 && turns < 100; turns++ {
		i, _ := q.Get()
		q.Done(i)
		if i.Kind == "gateway" {
			q.Add(i)
		} else {
			left--
		}
	}
	if turns != 2*tenants {
		t.Errorf("%d of %d namespaces' items wait still after %d turns, want none after %d", left, tenants, turns, 2*tenants)
	}
	for range 20 { // and those of the operator have all turns where nobody else has items
		if i, _ := q.Get(); i.Kind != "gateway" {
			t.Fatalf("%v is in the queue", i)
		} else {
			q.Done(i)
			q.Add(i)
		}
	}
}

// TestBoundarySlowPasses: a namespace whose passes take long has at most half of the time while others have items, and all
// of it otherwise.
func TestBoundarySlowPasses(t *testing.T) {
	now := &clock{time.Unix(1_000_000, 0)}
	q := newFairQueue(NamespaceOf)
	defer q.ShutDown()
	q.(*timedQueue[string]).store.now = now.Now
	work := func(took time.Duration) string {
		i, _ := q.Get()
		now.pass(took)
		q.Done(i)
		q.Add(i) // there is always more
		return i
	}
	q.Add("mallory/n")
	for range 3 {
		if got := work(time.Second); got != "mallory/n" {
			t.Fatalf("%s has a turn, and nobody else has items", got)
		}
	}
	q.Add("shop/n")
	q.Add("dev/n")
	var mallory, all time.Duration
	for range 1000 {
		took := 10 * time.Millisecond
		begin := now.now
		i, _ := q.Get()
		if i == "mallory/n" {
			took = time.Second
			mallory += took
		}
		now.pass(took)
		q.Done(i)
		q.Add(i)
		all += now.now.Sub(begin)
	}
	if mallory > all*51/100 || mallory < all*40/100 {
		t.Errorf("the namespace with slow passes has %s of %s", mallory, all)
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
			p := NewBudgets(slog.New(slog.DiscardHandler))
			p.Now = now.Now
			end, changes, busy := now.now.Add(lasts), 0, map[int64]bool{}
			for now.now.Before(end) {
				if wait := p.Wait("mallory"); wait > 0 {
					if p.Wait("shop") != 0 {
						t.Fatal("another namespace waits")
					}
					now.pass(wait)
					if again := p.Wait("mallory"); again != 0 {
						t.Fatalf("after %v it has to wait for %v more", wait, again)
					}
					continue
				}
				p.Charge("mallory", 1)
				changes++
				busy[now.now.Unix()] = true
				now.pass(every)
			}
			rounds := MaxBudgets + int(lasts/BudgetEvery) + 1
			if changes > rounds*BudgetWrites {
				t.Errorf("%d changes, want %d at most", changes, rounds*BudgetWrites)
			}
			if seconds := int(budgetLasts/time.Second) + 1; len(busy) > rounds*seconds {
				t.Errorf("changes in %d seconds, want %d at most", len(busy), rounds*seconds)
			}
			t.Attr("boundary.changes-in-10-min", strconv.Itoa(changes))
			t.Attr("boundary.seconds-with-changes-in-10-min", strconv.Itoa(len(busy)))

			now.pass(time.Hour)
			p.Prune()
			if len(p.tenants) != 0 {
				t.Errorf("an idle namespace is remembered: %v", p.tenants)
			}
			for i := range 1000 { // a rollout
				if wait := p.Wait("mallory"); wait != 0 {
					t.Fatalf("change %d of 1,000 at once waits for %v", i, wait)
				}
				p.Charge("mallory", 1)
			}
		})
	}
	t.Run("the operator's", func(t *testing.T) {
		p := NewBudgets(slog.New(slog.DiscardHandler))
		for range 10 * MaxBudgets * BudgetWrites {
			p.Charge(Operators, 1)
		}
		if wait := p.Wait(Operators); wait != 0 {
			t.Errorf("they wait for %v", wait)
		}
	})
}
