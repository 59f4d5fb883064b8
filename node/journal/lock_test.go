package journal

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// TestLockIsExclusive has many take the lock, which removes its file each time it is let go: never do two hold it.
// Conformance: N-144 C-78
func TestLockIsExclusive(t *testing.T) {
	d, s := newJournal(t), sandbox("c1")
	var inside, most int
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 20 {
				l, err := d.Lock(t.Context(), &s)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				inside++
				most = max(most, inside)
				mu.Unlock()
				mu.Lock()
				inside--
				mu.Unlock()
				l.Unlock()
			}
		})
	}
	all.Wait()
	if most != 1 {
		t.Errorf("%d held the lock at once", most)
	}
	if d.HasLock(&s) {
		t.Error("the lock's file is left")
	}
}

// Conformance: C-78
func TestLockGivesUp(t *testing.T) {
	d, s := newJournal(t), sandbox("c1")
	held, err := d.Lock(t.Context(), &s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = d.Lock(ctx, &s)
	if !conf.HasCode(err, conf.CodeTryAgain) {
		t.Errorf("got %v, want code %d", err, conf.CodeTryAgain)
	}
	held.Unlock()
}
