package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/policy"
)

// policyStates writes the states of policies.
type policyStates struct {
	verdicts[policyVerdict]
	source  PolicySource
	leading func() error
	refused *refusals
}

type policyVerdict struct {
	object *policy.Object
	state  netmodel.NetworkState
}

func newPolicyStates(source PolicySource, leading func() error, refused *refusals, log *slog.Logger) *policyStates {
	s := &policyStates{newVerdicts[policyVerdict]("policy", log), source, leading, refused}
	s.write = s.writeState
	return s
}

// set queues the verdict on a policy: accepted, accepted with limits, or refused for a reason.
func (s *policyStates) set(o *policy.Object, why error) {
	_, limited := errors.AsType[*policy.Limited](why)
	v := &policyVerdict{object: o, state: netmodel.NetworkState{Ready: why == nil || limited}}
	if why != nil { // the reason may contain text of tenants
		v.state.Reason = conf.OneLine(why.Error(), conf.MaxReason)
	}
	s.refused.set(o.ID(), !v.state.Ready)
	s.put(o.ID(), v)
}

// forget forgets the policies of a namespace that are gone.
func (s *policyStates) forget(namespace string, present map[string]bool) {
	for id := range s.refused.ids {
		if namespaceOf(id) == namespace && !present[id] {
			s.refused.set(id, false)
		}
	}
}

// writeState writes a verdict onto its policy and records an Event, unless the policy has this state already. It
// compares the verdict with the policy as it is now, because an earlier verdict may have been written meanwhile.
func (s *policyStates) writeState(ctx context.Context, v *policyVerdict) error {
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
	var was netmodel.NetworkState
	if json.Unmarshal([]byte(all[i].State), &was) == nil && was.Ready == v.state.Ready && was.Reason == v.state.Reason &&
		!was.Since.IsZero() {
		return nil
	}
	v.state.Since = time.Now().UTC().Truncate(time.Second)
	text, err := json.Marshal(v.state)
	if err != nil {
		return err
	}
	if err := s.source.SetPolicyState(ctx, all[i], string(text)); err != nil {
		return err
	}
	switch {
	case v.state.Ready && v.state.Reason == "":
		s.source.PolicyEvent(all[i], false, "PolicyAccepted", "OVN has the policy")
	case v.state.Ready:
		s.source.PolicyEvent(all[i], true, "PolicyLimited", v.state.Reason)
	default:
		s.source.PolicyEvent(all[i], true, "PolicyRefused", v.state.Reason)
	}
	return nil
}
