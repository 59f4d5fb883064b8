package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
)

// states writes the states of policies.
type states struct {
	engine.Verdicts[verdict]
	source  Source
	leading func() error
	refused *engine.Refusals
}

type verdict struct {
	object *policy.Object
	state  netmodel.NetworkState
	waits  bool // nothing is wrong with the policy
}

func newStates(c Config) *states {
	s := &states{
		engine.NewVerdicts[verdict]("policy", c.Log), c.Source, c.Engine.Leading, c.Engine.Refusals("policy"),
	}
	s.Write = s.writeState
	return s
}

// set queues the verdict on a policy: accepted, accepted with limits, or refused for a reason.
func (s *states) set(o *policy.Object, why error) {
	_, limited := errors.AsType[*policy.Limited](why)
	v := &verdict{object: o, state: netmodel.NetworkState{Ready: why == nil || limited}}
	if why != nil { // the reason may contain text of tenants
		v.state.Reason = conf.OneLine(why.Error(), conf.MaxReason)
	}
	_, v.waits = errors.AsType[*waits](why)
	s.refused.Set(o.ID(), !v.state.Ready && !v.waits)
	s.Put(o.ID(), v)
}

// writeState writes a verdict onto its policy and records an Event, unless the policy has this state already. It
// compares the verdict with the policy as it is now, because an earlier verdict may have been written meanwhile.
func (s *states) writeState(ctx context.Context, _ string, v *verdict) error {
	if err := s.leading(); err != nil {
		return err
	}
	all, err := policiesOf(ctx, s.source, v.object.Namespace)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(o *policy.Object) bool { return o.Name == v.object.Name })
	if i < 0 {
		return fmt.Errorf("%s: %w", v.object.ID(), netmodel.ErrNotFound)
	}
	text, news, err := engine.StateText(all[i].State, &v.state, &v.state.Since)
	if err != nil || !news {
		return err
	}
	if err := s.source.SetPolicyState(ctx, all[i], text); err != nil {
		return err
	}
	switch {
	case v.state.Ready && v.state.Reason == "":
		s.source.PolicyEvent(all[i], false, "PolicyAccepted", "OVN has the policy")
	case v.state.Ready:
		s.source.PolicyEvent(all[i], true, "PolicyLimited", v.state.Reason)
	case v.waits:
		s.source.PolicyEvent(all[i], false, "PolicyWaits", v.state.Reason)
	default:
		s.source.PolicyEvent(all[i], true, "PolicyRefused", v.state.Reason)
	}
	return nil
}
