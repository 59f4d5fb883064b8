package agent

import (
	"context"
	"fmt"
	"sync"
)

// locks is one lock for each name, such as a sandbox: a late release must not run during a plan of the same sandbox.
type locks struct {
	mu    sync.Mutex
	taken map[string]*lock
}

func newLocks() *locks { return &locks{taken: map[string]*lock{}} }

type lock struct {
	token chan struct{}
	users int
}

// take waits for the lock of that name.
func (l *locks) take(ctx context.Context, name string) (release func(), err error) {
	l.mu.Lock()
	one := l.taken[name]
	if one == nil {
		one = &lock{token: make(chan struct{}, 1)}
		l.taken[name] = one
	}
	one.users++
	l.mu.Unlock()
	done := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.taken, name)
		}
	}
	select {
	case one.token <- struct{}{}:
		return func() { <-one.token; done() }, nil
	case <-ctx.Done():
		done()
		return nil, fmt.Errorf("another call for this sandbox is still running: %w", ctx.Err())
	}
}
