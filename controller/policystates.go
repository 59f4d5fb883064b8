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
	"github.com/ovn-multinet/ovn-multinet/policy"
)

// policyStates writes the states of policies, in a goroutine of its own: a slow API server delays no policy.
type policyStates struct {
	source  PolicySource
	leading func() error
	log     *slog.Logger
	queue   workqueue.TypedRateLimitingInterface[string]

	mu   sync.Mutex
	next map[string]*policyVerdict // by policy: the latest verdict that is not written yet
}

type policyVerdict struct {
	object *policy.Object
	state  netmodel.NetworkState
}

func newPolicyStates(source PolicySource, leading func() error, log *slog.Logger) *policyStates {
	return &policyStates{
		source: source, leading: leading, log: log, next: map[string]*policyVerdict{}, queue: newFairQueue(namespaceOf),
	}
}

// set queues a verdict for a policy, unless the policy has it already.
func (s *policyStates) set(o *policy.Object, state *netmodel.NetworkState) {
	state.Reason = conf.OneLine(state.Reason, conf.MaxReason)
	var was netmodel.NetworkState
	same := json.Unmarshal([]byte(o.State), &was) == nil && was.Ready == state.Ready && was.Reason == state.Reason
	s.mu.Lock()
	defer s.mu.Unlock()
	if same {
		delete(s.next, o.ID())
		return
	}
	s.next[o.ID()] = &policyVerdict{o, *state}
	s.queue.Add(o.ID())
}

// run writes the queued verdicts until the end of ctx.
func (s *policyStates) run(ctx context.Context) {
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
func (s *policyStates) work(ctx context.Context, id string, v *policyVerdict) {
	ctx, cancel := context.WithTimeout(ctx, oneChange)
	defer cancel()
	err := s.write(ctx, v)
	if err == nil || errors.Is(err, netmodel.ErrNotFound) {
		s.queue.Forget(id)
		return
	}
	s.log.Warn("the state of a policy is not written yet", "policy", id, "err", err)
	s.mu.Lock()
	if s.next[id] == nil {
		s.next[id] = v
	}
	s.mu.Unlock()
	s.queue.AddRateLimited(id)
}

func (s *policyStates) write(ctx context.Context, v *policyVerdict) error {
	if err := s.leading(); err != nil {
		return err
	}
	v.state.Since = time.Now().UTC().Truncate(time.Second)
	text, err := json.Marshal(v.state)
	if err != nil {
		return err
	}
	if err := s.source.SetPolicyState(ctx, v.object, string(text)); err != nil {
		return err
	}
	if v.state.Ready {
		s.source.PolicyEvent(v.object, false, "PolicyAccepted", "OVN has the policy")
	} else {
		s.source.PolicyEvent(v.object, true, "PolicyRefused", v.state.Reason)
	}
	return nil
}
