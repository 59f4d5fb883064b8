package controller

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// verdicts writes the latest verdict on each object, in a goroutine of its own: a slow API server delays no network and
// no policy. An object is "<namespace>/<name>".
type verdicts[V any] struct {
	what string // the kind of the objects, for the log
	// write writes a verdict, unless the object has it already. If the object is gone, the error is netmodel.ErrNotFound.
	write func(ctx context.Context, v *V) error
	log   *slog.Logger
	queue workqueue.TypedRateLimitingInterface[string]

	mu   sync.Mutex
	next map[string]*V // the latest verdict that is not written yet
}

func newVerdicts[V any](what string, log *slog.Logger) verdicts[V] {
	return verdicts[V]{what: what, log: log, queue: newFairQueue(namespaceOf), next: map[string]*V{}}
}

// put queues a verdict. It replaces an earlier verdict that is not written yet.
func (s *verdicts[V]) put(id string, v *V) {
	s.mu.Lock()
	s.next[id] = v
	s.mu.Unlock()
	s.queue.Add(id)
}

// run writes the queued verdicts until the end of ctx.
func (s *verdicts[V]) run(ctx context.Context) {
	defer context.AfterFunc(ctx, s.queue.ShutDown)()
	for {
		id, shutdown := s.queue.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		v := s.next[id]
		delete(s.next, id)
		s.mu.Unlock()
		if v != nil {
			s.work(ctx, id, v)
		}
		s.queue.Done(id)
	}
}

// work writes one verdict, and queues it again if the write fails.
func (s *verdicts[V]) work(ctx context.Context, id string, v *V) {
	ctx, cancel := context.WithTimeout(ctx, oneChange)
	defer cancel()
	err := s.write(ctx, v)
	if err == nil || errors.Is(err, netmodel.ErrNotFound) {
		s.queue.Forget(id)
		return
	}
	s.log.Warn("a state is not written yet", s.what, id, "err", err)
	s.mu.Lock()
	if s.next[id] == nil {
		s.next[id] = v
	}
	s.mu.Unlock()
	s.queue.AddRateLimited(id)
}
