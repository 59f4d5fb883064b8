package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// Each kind has its own pass. A kind that nobody registered is an error, and its items are no other kind's.
func TestKinds(t *testing.T) {
	var passes []string
	queue := NewQueue()
	defer queue.ShutDown()
	var log strings.Builder
	e := New(queue, NewMetrics(), func() error { return nil }, slog.New(slog.NewTextHandler(&log, nil)))
	e.Register("toy", func(_ context.Context, i Item) error {
		passes = append(passes, i.Kind+" "+i.Key+" of "+i.Tenant)
		return nil
	})
	e.Register("broken", func(context.Context, Item) error { return errors.New("no") })
	for _, i := range []Item{Of("toy", "shop/blue"), Of("broken", "shop/red"), Of("toys", "shop/green")} {
		e.pass(t.Context(), i)
		if again := queue.NumRequeues(i); (again > 0) != (i.Kind != "toy") {
			t.Errorf("%v was tried again %d times", i, again)
		}
	}
	if want := []string{"toy shop/blue of shop"}; !slices.Equal(passes, want) {
		t.Errorf("passes %q, want %q", passes, want)
	}
	for _, want := range []string{"broken=shop/red err=no", `toys=shop/green err="no kind \"toys\" is registered"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, log.String())
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a kind has two passes")
		}
	}()
	e.Register("toy", func(context.Context, Item) error { return nil })
}
