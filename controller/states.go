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

// states writes what the controller says of networks, beside its work: a slow API keeps no network waiting.
type states struct {
	source  Source
	leading func() error
	log     *slog.Logger
	queue   workqueue.TypedRateLimitingInterface[string]

	mu   sync.Mutex
	next map[string]*verdict // by NAD; the latest counts
	last map[string]written  // by NAD
}

// written is what was last written, or begun to be, on a NAD.
type written struct {
	state string
	held  bool
}

// verdict is what is to be written on a NAD.
type verdict struct {
	nad   netmodel.NAD
	state *netmodel.NetworkState // nil: nothing, it is no network of ours
	held  bool
}

func newStates(source Source, leading func() error, log *slog.Logger) *states {
	return &states{source: source, leading: leading, log: log, next: map[string]*verdict{}, last: map[string]written{}, queue: newFairQueue(namespaceOf)}
}

// wrote tells whether a NAD's state and finalizer are as they were written here last.
func (s *states) wrote(nad *netmodel.NAD) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.last[nad.ID()]
	return ok && last == written{nad.State, nad.HasFinalizer}
}

// forget is for a NAD that is gone.
func (s *states) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, id)
}

// set has a verdict written, unless the NAD says so already.
func (s *states) set(nad *netmodel.NAD, state *netmodel.NetworkState, held bool) {
	if state != nil { // whose reason may hold words of tenants
		state.Reason = conf.OneLine(state.Reason, conf.MaxReason)
	}
	v := &verdict{*nad, state, held}
	v.nad.Config = nil // may be large, and is not written
	s.mu.Lock()
	s.next[nad.ID()] = v
	s.mu.Unlock()
	s.queue.Add(nad.ID())
}

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

// write compares with the NAD as it is now: an earlier verdict may be in it since.
func (s *states) write(ctx context.Context, v *verdict) error {
	if err := s.leading(); err != nil {
		return err
	}
	now, err := s.source.NAD(ctx, v.nad.Namespace, v.nad.Name)
	if err != nil {
		return err
	}
	held := v.held && (now.HasFinalizer || !now.Deleting) // the API puts no finalizer on what is being deleted
	text, news := "", false
	if v.state != nil {
		if text, news = stateText(now, v.state); !news && now.HasFinalizer == held {
			return nil
		}
	} else if now.State == "" && now.HasFinalizer == held {
		return nil
	}
	s.mu.Lock()
	s.last[v.nad.ID()] = written{text, held} // before the write: the source may tell of it at once
	s.mu.Unlock()
	if err := s.source.SetNetworkState(ctx, now, text, held); err != nil {
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

// withNextStep adds to the reason of an Event where the states of networks are listed: `kubectl get` does not show them. The
// Event has at most conf.MaxReason bytes.
func withNextStep(reason string) string {
	const next = " (kubectl multinet network list shows the state of all networks)"
	return conf.OneLine(reason, conf.MaxReason-len(next)) + next
}

// stateText is the state as it is written; news says that it differs from what the NAD has in more than its time.
func stateText(nad *netmodel.NAD, state *netmodel.NetworkState) (text string, news bool) {
	was, ok := nad.NetworkState()
	if ok && was.Ready == state.Ready && was.Reason == state.Reason {
		return nad.State, false
	}
	now := *state
	now.Since = time.Now().UTC().Truncate(time.Second)
	encoded, err := json.Marshal(now)
	if err != nil {
		return nad.State, false // two strings and a time: it cannot be
	}
	return string(encoded), true
}
