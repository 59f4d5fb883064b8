package pods

import (
	"testing"
	"time"
)

// TestBoundaryFlappingPod: a pod that keeps changing is ready again after growing times. One that is not ready is so at
// once, and a pod that starts, or restarts twice, does not wait.
func TestBoundaryFlappingPod(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	f := NewFlapping()
	f.now = func() time.Time { return now }
	is := func(ready bool) time.Duration {
		t.Helper()
		got, wait := f.Ready("shop/a 1", ready)
		if got && !ready || !got && ready && wait == 0 {
			t.Fatalf("ready %t, wait %s of a pod with ready %t", got, wait, ready)
		}
		return wait
	}
	back := func() (waited time.Duration) {
		t.Helper()
		now = now.Add(100 * time.Millisecond)
		is(false)
		now = now.Add(100 * time.Millisecond)
		if waited = is(true); waited > 0 {
			now = now.Add(waited)
			if again := is(true); again != 0 {
				t.Fatalf("after %s it waits %s more", waited, again)
			}
		}
		return waited
	}
	is(false)
	if wait := is(true); wait != 0 {
		t.Errorf("a new pod waits %s", wait)
	}
	var before time.Duration
	for i := range 12 {
		waited := back()
		if free := i < freeReturns-1; free != (waited == 0) || waited > lastWait || waited < before {
			t.Errorf("return %d waits %s, before it %s", i+1, waited, before)
		}
		before = waited
	}
	if before < lastWait-time.Second {
		t.Errorf("the last return waits %s, want about %s", before, lastWait)
	}
	now = now.Add(steadyAfter + time.Second)
	if waited := back(); waited != 0 {
		t.Errorf("a pod that was ready for %s waits %s", steadyAfter, waited)
	}
	now = now.Add(steadyAfter + time.Second)
	f.Forget()
	if len(f.pods) != 0 {
		t.Error("a pod is remembered for ever")
	}
}
