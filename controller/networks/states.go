package networks

import (
	"context"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// states writes the states of NADs.
type states struct {
	engine.Verdicts[verdict]
	source  Source
	leading func() error

	mu   sync.Mutex
	last map[string]written // by NAD: the latest write
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

func newStates(c Config) *states {
	s := &states{
		Verdicts: engine.NewVerdicts[verdict]("nad", c.Log), source: c.Source, leading: c.Engine.Leading,
		last: map[string]written{},
	}
	s.Write = s.writeState
	return s
}

// wrote reports whether a NAD's state and finalizer are those of the latest write.
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
	s.Put(nad.ID(), v)
}

// writeState writes a verdict onto its NAD and records an Event, unless the NAD has this state and finalizer already.
// It compares the verdict with the NAD as it is now, because an earlier verdict may have been written meanwhile.
func (s *states) writeState(ctx context.Context, _ string, v *verdict) error {
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
		text, news, err = engine.StateText(now.State, v.state, &v.state.Since)
		if err != nil || !news && now.HasFinalizer == withFinalizer {
			return err
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
		if v.state.Reason != "" {
			s.source.NetworkEvent(now, true, "NetworkWarning", withNextStep(v.state.Reason))
		}
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
