package engine

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
)

// TestBoundaryQuota: the objects of a namespace share its limits. What is accepted keeps what it has; what is refused is
// queued when there is room.
func TestBoundaryQuota(t *testing.T) {
	var queued []string
	q := newQuota(func(i Item) { queued = append(queued, i.Key) }, NewMetrics())
	q.Limit(cost.Limits{"shop": {cost.Endpoints: 10, cost.Bytes: 1000}})
	of := func(n int) cost.Cost { return cost.Cost{cost.Endpoints: n} }
	item := func(id string) Item { return Of("service", id) }
	may := func(id string, n int, want string) {
		t.Helper()
		if err := q.Check("shop", item(id), of(n)); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s with %d endpoints: %v, want %s", id, n, err, want)
		}
	}
	wantQueued := func(want ...string) {
		t.Helper()
		if !slices.Equal(queued, want) {
			t.Errorf("%v are queued, want %v", queued, want)
		}
		queued = nil
	}
	may("shop/a", 6, "nil")
	if warning := q.Use("shop", item("shop/a"), of(6)); warning != "" {
		t.Errorf("warning %q at 6 of 10", warning)
	}
	if warning := q.Use("shop", item("shop/b"), of(2)); !strings.Contains(warning, "need 8 endpoints in OVN, and 10 is the limit") {
		t.Errorf("warning %q at 8 of 10", warning)
	}
	may("shop/c", 3, "it needs 3 endpoints in OVN, and the other objects of namespace shop need 8: 10 is the limit")
	may("shop/a", 8, "nil")                                          // an edit that fits
	may("shop/a", 9, "it needs 9 endpoints")                         // one that does not
	q.Limit(cost.Limits{"shop": {cost.Endpoints: 5, cost.Bytes: 9}}) // less than what is accepted
	may("shop/a", 6, "nil")                                          // keeps what it has
	may("shop/a", 7, "it needs 7 endpoints")
	may("shop/c", 3, "it needs 3 endpoints")
	q.Use("shop", item("shop/a"), of(1))
	wantQueued("shop/c", "shop/a")
	may("shop/c", 3, "it needs 3 endpoints")
	may("shop/a", 1, "nil")
	q.Free(item("shop/b"))
	wantQueued("shop/c")
	may("shop/c", 3, "nil")
	if other := q.Check("web", Of("service", "web/x"), of(9_999)); other != nil {
		t.Errorf("another namespace: %v", other)
	}
	q.Free(item("shop/a"))
	q.Free(Of("service", "web/x"))
	if len(q.sums) != 0 || len(q.of) != 0 || len(q.refused)+len(q.waits) != 0 {
		t.Errorf("%v, %v, %v are left", q.sums, q.of, q.waits)
	}
}

// TestBoundaryRetries: of thousands of refused objects, few are tried again when there is more room, and each has its
// turn.
func TestBoundaryRetries(t *testing.T) {
	var queued []string
	q := newQuota(func(i Item) { queued = append(queued, i.Key) }, NewMetrics())
	const many = 2*retriesAtOnce + 1
	for i := range many {
		q.Await("shop", Of("service", fmt.Sprint("shop/s", i)), true)
	}
	tried := map[string]bool{}
	for range 3 {
		q.Use("shop", Of("service", "shop/x"), cost.Cost{cost.Bytes: 1})
		queued = nil
		q.Free(Of("service", "shop/x"))
		if len(queued) != retriesAtOnce {
			t.Errorf("%d of %d are tried again, want %d", len(queued), many, retriesAtOnce)
		}
		for _, id := range queued {
			tried[id] = true
		}
	}
	if len(tried) != many {
		t.Errorf("%d of %d were tried after three times", len(tried), many)
	}
}

// TestBoundaryBytesOfChanges: a change of many bytes or flows is charged as many changes, also to the next budgets.
func TestBoundaryBytesOfChanges(t *testing.T) {
	for what, write := range map[string]func(e *Engine, budgets float64){
		"bytes": func(e *Engine, budgets float64) { e.Wrote(1, int(budgets*BudgetWrites*changeBytes)) },
		"flows": func(e *Engine, budgets float64) {
			e.Wrote(1, 1)
			e.Recomputes(int(budgets * BudgetWrites * changeFlows))
		},
	} {
		t.Run(what, func(t *testing.T) {
			now := &clock{time.Unix(1_000_000, 0)}
			queue := NewQueue()
			defer queue.ShutDown()
			e := New(queue, NewMetrics(), func() error { return nil }, slog.New(slog.DiscardHandler))
			e.Budgets.Now = now.Now
			writes := func(budgets float64) {
				if _, err := e.Charged("shop", func() error { write(e, budgets); return nil }); err != nil {
					t.Fatal(err)
				}
			}
			writes(0.5)
			if wait := e.Wait("shop"); wait != 0 {
				t.Errorf("the namespace waits %s in the middle of a budget", wait)
			}
			writes(MaxBudgets + 2.2)
			if wait := e.Wait("shop"); wait < 7*BudgetEvery/2 || wait > 5*BudgetEvery {
				t.Errorf("the namespace waits %s, and it has written two budgets more than it had", wait)
			}
		})
	}
}

// TestManyEditsOfLargeObjects: a namespace edits sixty objects in half a minute, and each pass over them takes three
// budgets. The passes are so few that the last edit does not wait for minutes.
func TestManyEditsOfLargeObjects(t *testing.T) {
	now := &clock{time.Unix(1_000_000, 0)}
	b := NewBudgets(slog.New(slog.DiscardHandler))
	b.Now = now.Now
	const edits, each = 60, 500 * time.Millisecond
	edited, written, passes, early := 0, 0, 0, 0
	begin := now.now
	for written < edits {
		for now.now.Sub(begin) >= time.Duration(edited)*each && edited < edits {
			edited++
		}
		if edited > written && b.Wait("shop") == 0 {
			written = edited
			if passes++; now.now.Sub(begin) < 6*budgetLasts {
				early++
			}
			b.Charge("shop", 3*BudgetWrites-50)
		}
		now.pass(each / 10)
	}
	if early > 3 {
		t.Errorf("%d passes in the time of six budgets, want no more than three", early)
	}
	if took := now.now.Sub(begin); passes > 8 || took > 2*edits*each {
		t.Errorf("%d passes in %s, want few in a minute", passes, took)
	}
	if wait := b.Wait("shop"); wait > time.Minute {
		t.Errorf("the next edit waits for %s", wait)
	}
}
