package ovndb

import (
	"context"
	"sync"
	"time"
)

// askFor is how long members are asked at a time whether one of them leads.
const askFor = 2 * time.Second

// otherLeader asks all endpoints but one at once, and returns the one that leads the raft; "": none says so in time.
// Without raft no server leads: the two servers of an active and a backup database would both say so.
func (p *endpoints) otherLeader(ctx context.Context, current string) (leader string) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	var mu sync.Mutex
	var tries sync.WaitGroup
	for _, endpoint := range p.all() {
		if endpoint == current {
			continue
		}
		tries.Go(func() {
			if c, err := p.open(ctx, endpoint, true); err == nil {
				_ = c.rpc.Close()
				if c.raft {
					mu.Lock()
					leader = endpoint
					mu.Unlock()
					cancel()
				}
			}
		})
	}
	tries.Wait()
	return leader
}
