package services

import (
	"context"
	"fmt"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

// states writes the states of Services, and their EndpointSlices.
type states struct {
	engine.Verdicts[verdict]
	source  Source
	leading func() error
	refused *engine.Refusals
}

type verdict struct {
	object *service.Object
	state  *service.State // nil: the Service is gone or not ours any more
	slices []service.EndpointSlice
}

func newStates(c Config) *states {
	s := &states{
		engine.NewVerdicts[verdict]("service", c.Log), c.Source, c.Engine.Leading, c.Engine.Refusals("service"),
	}
	s.Write = s.writeState
	return s
}

// set queues the verdict on a Service.
func (s *states) set(o *service.Object, state *service.State, slices []service.EndpointSlice) {
	if state != nil { // the reason may contain text of tenants
		state.Reason = conf.OneLine(state.Reason, conf.MaxReason)
	}
	s.refused.Set(o.ID(), state != nil && !state.Ready)
	s.Put(o.ID(), &verdict{o, state, slices})
}

// writeState writes the EndpointSlices of a Service, writes the verdict onto it and records an Event, unless it has all
// this already. It compares with the Service as it is now, because an earlier verdict may have been written meanwhile.
func (s *states) writeState(ctx context.Context, _ string, v *verdict) error {
	if err := s.leading(); err != nil {
		return err
	}
	now, err := s.source.Service(ctx, v.object.Namespace, v.object.Name)
	if err != nil {
		return err
	}
	if now == nil {
		return s.source.SetEndpoints(ctx, v.object, nil)
	}
	if v.state == nil {
		return nil // the Service is there again, and its own pass follows
	}
	if err := s.source.SetEndpoints(ctx, now, v.slices); err != nil {
		return err
	}
	if now.Service != nil && now.Service.LoadBalancer && !slices.Equal(now.Ingress, v.state.Outside) {
		if err := s.source.SetServiceIngress(ctx, now, v.state.Outside); err != nil {
			return fmt.Errorf("%s: %w", now.ID(), err)
		}
	}
	text, news, err := engine.StateText(now.State, v.state, &v.state.Since)
	if err != nil || !news {
		return err
	}
	if err := s.source.SetServiceState(ctx, now, text); err != nil {
		return fmt.Errorf("%s: %w", now.ID(), err)
	}
	switch {
	case !v.state.Ready:
		s.source.ServiceEvent(now, true, "ServiceRefused", v.state.Reason)
	case v.state.Reason != "":
		s.source.ServiceEvent(now, true, "ServiceLimited", v.state.Reason)
	default:
		s.source.ServiceEvent(now, false, "ServiceReady", "OVN has the Service on network "+v.state.Network)
	}
	return nil
}
