package agent

import (
	"context"
	"sync"
)

// background runs what no call of the plugin waits for, until the agent stops.
type background struct {
	mu      sync.Mutex
	ctx     context.Context // of the agent's run
	running sync.WaitGroup
}

// begin allows work until the end of ctx. wait waits for the work that still runs.
func (b *background) begin(ctx context.Context) (wait func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctx = ctx
	return b.running.Wait
}

// start runs something, unless the agent stops.
func (b *background) start(run func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil || b.ctx.Err() != nil {
		return false
	}
	ctx := b.ctx
	b.running.Go(func() { run(ctx) })
	return true
}
