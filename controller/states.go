package controller

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// states writes the states of NADs, in a goroutine of its own: a slow API server delays no network.
type states struct {
	source  Source
	leading func() error
	log     *slog.Logger
	queue   workqueue.TypedRateLimitingInterface[string]

	mu   sync.Mutex
	next map[string]*verdict // by NAD: the latest verdict that is not written yet
	last map[string]written  // by NAD: the latest write
}

// written is the latest write onto a NAD. It is noted before the write begins.
type written struct {
	state         string
	withFinalizer bool // with our finalizer
}

// verdict is what the controller wants to write onto a NAD.
type verdict struct {
	nad           netmodel.NAD
	state         *netmodel.NetworkState // nil: delete the state, the NAD describes no network of ours
	withFinalizer bool                   // with our finalizer
}

func newStates(source Source, leading func() error, log *slog.Logger) *states {
	return &states{source: source, leading: leading, log: log,
		next: map[string]*verdict{}, last: map[string]written{}, queue: newFairQueue(namespaceOf)}
}

// wrote tells whether a NAD's state and finalizer are those of the latest write.
func (s *states) wrote(nad *netmodel.NAD) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.last[nad.ID()]
	return ok && last == written{nad.State, nad.HasFinalizer}
}

// forget deletes what is stored of a NAD that is gone.
func (s *states) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, id)
}

// set queues a verdict for a NAD. It replaces an earlier verdict that is not written yet.
func (s *states) set(nad *netmodel.NAD, state *netmodel.NetworkState, withFinalizer bool) {
	if state != nil { // its reason may contain text of tenants
		state.Reason = conf.OneLine(state.Reason, conf.MaxReason)
	}
	v := &verdict{*nad, state, withFinalizer}
	v.nad.Config = nil // it may be large, and is not needed
	s.mu.Lock()
	s.next[nad.ID()] = v
	s.mu.Unlock()
	s.queue.Add(nad.ID())
}

// run writes the queued verdicts until the end of ctx.
func (s *states) run(ctx context.Context) {
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
func (s *states) work(ctx context.Context, id string, v *verdict) {
	ctx, cancel := context.WithTimeout(ctx, oneChange)
	defer cancel()
	err := s.write(ctx, v)
	if err == nil || errors.Is(err, netmodel.ErrNotFound) {
		s.queue.Forget(id)
		return
	}
	s.log.Warn("the state of a network is not written yet", "nad", id, "err", err)
	s.mu.Lock()
	if s.next[id] == nil {
		s.next[id] = v
	}
	s.mu.Unlock()
	s.queue.AddRateLimited(id)
}

// write writes a verdict onto its NAD and records an Event, unless the NAD has this state and finalizer already. It
// compares the verdict with the NAD as it is now, because an earlier verdict may have been written meanwhile.
func (s *states) write(ctx context.Context, v *verdict) error {
	if err := s.leading(); err != nil {
		return err
	}
	now, err := s.source.NAD(ctx, v.nad.Namespace, v.nad.Name)
	if err != nil {
		return err
	}
	// The API server refuses a new finalizer on an object that is being deleted.
	withFinalizer := v.withFinalizer && (now.HasFinalizer || !now.Deleting)
	text, news := "", false
	if v.state != nil {
		if text, news = stateText(now, v.state); !news && now.HasFinalizer == withFinalizer {
			return nil
		}
	} else if now.State == "" && now.HasFinalizer == withFinalizer {
		return nil
	}
	s.mu.Lock()
	s.last[v.nad.ID()] = written{text, withFinalizer} // before the write: the source may report the change at once
	s.mu.Unlock()
	if err := s.source.SetNetworkState(ctx, now, text, withFinalizer); err != nil {
		return err
	}
	switch {
	case !news:
	case v.state.Ready:
		s.source.NetworkEvent(now, false, "NetworkReady", "the network is there as described")
	case now.Deleting:
		s.source.NetworkEvent(now, true, "NetworkInUse", withNextStep(v.state.Reason))
	default:
		s.source.NetworkEvent(now, true, "NetworkRefused", withNextStep(v.state.Reason))
	}
	return nil
}

// withNextStep adds to the reason of an Event which command lists the states of networks, because `kubectl get` does
// not show them. The result has at most conf.MaxReason bytes.
func withNextStep(reason string) string {
	const next = " (kubectl multinet network list shows the state of all networks)"
	return conf.OneLine(reason, conf.MaxReason-len(next)) + next
}

// stateText returns the text of the state for the annotation. news tells whether the state differs from the NAD's
// present state; if only the time differs, stateText returns the present text.
func stateText(nad *netmodel.NAD, state *netmodel.NetworkState) (text string, news bool) {
	was, ok := nad.NetworkState()
	if ok && was.Ready == state.Ready && was.Reason == state.Reason {
		return nad.State, false
	}
	now := *state
	now.Since = time.Now().UTC().Truncate(time.Second)
	encoded, err := json.Marshal(now)
	if err != nil {
		return nad.State, false // impossible: the state has only a boolean, a string and a time
	}
	return string(encoded), true
}
