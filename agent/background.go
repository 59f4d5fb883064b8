package agent

import (
	"context"
	"sync"
)

// background runs what no call of the plugin waits for, until the agent stops.
type background struct {
	mu      sync.Mutex
	ctx     context.Context // of the agent's run
	waiting []func(ctx context.Context)
	running sync.WaitGroup
}

// begin allows work until the end of ctx. wait waits for the work that still runs.
func (b *background) begin(ctx context.Context) (wait func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctx = ctx
	for _, run := range b.waiting {
		b.running.Go(func() { run(ctx) })
	}
	b.waiting = nil
	return b.running.Wait
}

// start runs something when the agent runs, unless it stops.
func (b *background) start(run func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx := b.ctx
	switch {
	case ctx == nil:
		b.waiting = append(b.waiting, run)
	case ctx.Err() != nil:
		return false
	default:
		b.running.Go(func() { run(ctx) })
	}
	return true
}
