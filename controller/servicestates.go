package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/service"
)

// serviceStates writes the states of Services, and their EndpointSlices.
type serviceStates struct {
	verdicts[serviceVerdict]
	source  ServiceSource
	leading func() error
	refused *refusals
}

type serviceVerdict struct {
	object *service.Object
	state  *service.State // nil: the Service is gone or not ours any more
	slices []service.EndpointSlice
}

func newServiceStates(
	source ServiceSource, leading func() error, refused *refusals, log *slog.Logger,
) *serviceStates {
	s := &serviceStates{newVerdicts[serviceVerdict]("service", log), source, leading, refused}
	s.write = s.writeState
	return s
}

// set queues the verdict on a Service.
func (s *serviceStates) set(o *service.Object, state *service.State, slices []service.EndpointSlice) {
	if state != nil { // the reason may contain text of tenants
		state.Reason = conf.OneLine(state.Reason, conf.MaxReason)
	}
	s.refused.set(o.ID(), state != nil && !state.Ready)
	s.put(o.ID(), &serviceVerdict{o, state, slices})
}

// writeState writes the EndpointSlices of a Service, writes the verdict onto it and records an Event, unless it has all
// this already. It compares with the Service as it is now, because an earlier verdict may have been written meanwhile.
func (s *serviceStates) writeState(ctx context.Context, v *serviceVerdict) error {
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
	var was service.State
	if json.Unmarshal([]byte(now.State), &was) == nil && was.Equal(v.state) && !was.Since.IsZero() {
		return nil
	}
	v.state.Since = time.Now().UTC().Truncate(time.Second)
	text, err := json.Marshal(v.state)
	if err != nil {
		return err
	}
	if err := s.source.SetServiceState(ctx, now, string(text)); err != nil {
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
