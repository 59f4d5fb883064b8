package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Verdicts writes the latest verdict on each object, in a goroutine of its own: a slow API server delays no network and
// no policy. An object is "<namespace>/<name>".
type Verdicts[V any] struct {
	what string // the kind of the objects, for the log
	// Write writes the verdict on an object, unless the object has it already. If the object is gone, the error is
	// netmodel.ErrNotFound.
	Write func(ctx context.Context, id string, v *V) error
	log   *slog.Logger
	Queue workqueue.TypedRateLimitingInterface[string]

	mu   sync.Mutex
	next map[string]*V // the latest verdict that is not written yet
}

// NewVerdicts makes the writer of the verdicts on one kind of objects.
func NewVerdicts[V any](what string, log *slog.Logger) Verdicts[V] {
	return Verdicts[V]{what: what, log: log, Queue: newFairQueue(NamespaceOf), next: map[string]*V{}}
}

// Put queues a verdict. It replaces an earlier verdict that is not written yet.
func (s *Verdicts[V]) Put(id string, v *V) {
	s.mu.Lock()
	s.next[id] = v
	s.mu.Unlock()
	s.Queue.Add(id)
}

// Run writes the queued verdicts until the end of ctx.
func (s *Verdicts[V]) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, s.Queue.ShutDown)()
	for {
		id, shutdown := s.Queue.Get()
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
		s.Queue.Done(id)
	}
}

// work writes one verdict, and queues it again if the write fails.
func (s *Verdicts[V]) work(ctx context.Context, id string, v *V) {
	ctx, cancel := context.WithTimeout(ctx, OneChange)
	defer cancel()
	err := s.Write(ctx, id, v)
	if err == nil || errors.Is(err, netmodel.ErrNotFound) {
		s.Queue.Forget(id)
		return
	}
	s.log.Warn("a state is not written yet", s.what, id, "err", err)
	s.mu.Lock()
	if s.next[id] == nil {
		s.next[id] = v
	}
	s.mu.Unlock()
	s.Queue.AddRateLimited(id)
}
