package engine

import (
	"fmt"
	"log/slog"
	"testing"
	"time"
)

// TestTryLater: the time between attempts grows, begins again with another text, and depends on how much the tenant has
// waiting. Nothing is remembered of what is gone, whichever tenant asked for the last attempt.
func TestTryLater(t *testing.T) {
	queue := NewQueue()
	defer queue.ShutDown()
	e := New(queue, NewMetrics(), nil, slog.New(slog.DiscardHandler))
	try := func(tenant string, i int, text string) bool {
		o := Obstacle{Name: "refused", Text: text, First: time.Hour}
		return e.TryLater(Item{"toy", fmt.Sprint(i), tenant}, o)
	}
	for i := range 1000 {
		if !try("shop", i, "a") || try("shop", i, "a") || !try("shop", i, "b") {
			t.Fatalf("item %d: the first attempts are taken for others", i)
		}
	}
	if got := e.longest("shop"); got != 100*time.Second {
		t.Errorf("with 1,000 obstacles the longest time is %v", got)
	}
	if got := e.longest("dev"); got != LaterLast {
		t.Errorf("another tenant waits for %v", got)
	}
	for i := range 1000 { // the objects have another owner now
		try("dev", i, "b")
	}
	if e.longest("shop") != LaterLast || e.longest("dev") != 100*time.Second || len(e.Later()) != 1000 {
		t.Errorf("shop %v, dev %v, %d items", e.longest("shop"), e.longest("dev"), len(e.Later()))
	}
	for i := range 1000 {
		e.TryLater(Of("toy", fmt.Sprint(i)), Obstacle{Name: "pods", First: time.Hour})
		e.Tried(Of("toy", fmt.Sprint(i)), "pods", "no such obstacle")
		e.Tried(Of("toy", fmt.Sprint(i)))
	}
	if len(e.later.of)+len(e.later.waiting)+len(e.Later()) > 0 {
		t.Errorf("there are left %v, %v", e.later.of, e.later.waiting)
	}
}
