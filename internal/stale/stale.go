// Package stale owns the memory of what reconcile passes saw as stale, and decides what is confirmed; it may not know
// what the keys stand for.
package stale

import "time"

// Tracker confirms keys that every pass of a whole period saw as stale. The zero Tracker confirms what two passes in a
// row saw. A Tracker serves one pass at a time.
type Tracker[K comparable] struct {
	// Period is the time from the first of these passes to the last; 0: two passes are enough.
	Period time.Duration
	// Now is the clock; nil: time.Now.
	Now func() time.Time

	since map[K]time.Time // the beginning of the first pass that saw the key
}

// Pass is one reconcile pass.
type Pass[K comparable] struct {
	tracker *Tracker[K]
	began   time.Time
	before  map[K]time.Time
	seen    map[K]time.Time
}

// Begin starts a pass and forgets what earlier passes saw. Pass.End remembers it again, so a pass that returns early,
// because a list is incomplete for example, lets everything be confirmed anew.
func (t *Tracker[K]) Begin() *Pass[K] {
	p := &Pass[K]{tracker: t, began: t.now(), before: t.since, seen: map[K]time.Time{}}
	t.since = nil
	return p
}

func (t *Tracker[K]) now() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return time.Now()
}

// Saw notes that the pass sees the key as stale, and reports whether the key is confirmed.
func (p *Pass[K]) Saw(key K) bool {
	since, again := p.before[key]
	if !again {
		since = p.began
	}
	p.seen[key] = since
	return again && p.began.Sub(since) >= p.tracker.Period
}

// End remembers what this pass saw, for the next one.
func (p *Pass[K]) End() { p.tracker.since = p.seen }
