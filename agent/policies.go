package agent

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/policy"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// policies knows the groups that the ports of a namespace's pods belong to, by network. It never reads policies: NB has
// one row for each namespace and network, and the transaction of a port asserts the revision of this row. So the row is
// read only after a refusal.
type policies struct {
	nb *ovnport.NB

	mu    sync.Mutex
	known map[policyScope]*policy.Matcher // without an entry: no policy of the namespace is for the network
}

type policyScope struct{ network, namespace string }

func newPolicies(nb *ovnport.NB) *policies {
	return &policies{nb: nb, known: map[policyScope]*policy.Matcher{}}
}

func (p *policies) of(network, namespace string) *policy.Matcher {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[policyScope{network, namespace}]
}

// read reads the groups of a namespace on a network from NB.
func (p *policies) read(ctx context.Context, network, namespace string) error {
	ids, err := p.nb.PolicyIDs(ctx, network, namespace)
	if err != nil {
		return err
	}
	var m *policy.Matcher
	if ids != nil {
		if m, err = policy.NewMatcher(ids, ids[ovndb.PolicyRevisionKey]); err != nil {
			return conf.Errorf(conf.CodeTryAgain, "are controller and agent of the same version?",
				"the policies of namespace %s for network %s: %w", namespace, network, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	scope := policyScope{network, namespace}
	delete(p.known, scope)
	if m != nil {
		p.known[scope] = m
	}
	return nil
}

// keep forgets what is known of other networks. It is read again when a pod needs it.
func (p *policies) keep(used map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.known, func(s policyScope, _ *policy.Matcher) bool { return !used[s.network] })
}

// policyOf returns the groups that a pod's port on a network belongs to. If the controller knows other labels of the
// pod than the agent's copy, the pod is read from its origin.
func (n *node) policyOf(ctx context.Context, network string, pod *source.Pod) (ovnport.Policy, error) {
	m := n.policies.of(network, pod.Namespace)
	if m == nil {
		return ovnport.Policy{}, nil
	}
	if m.Stale(pod.UID, pod.Labels) {
		live, err := n.source.LivePod(ctx, pod.Namespace, pod.Name)
		switch {
		case errors.Is(err, source.ErrNotFound), err == nil && !live.Is(pod.UID):
		case err != nil:
			return ovnport.Policy{}, unreadable(pod.Namespace, pod.Name, err)
		default:
			pod = live
		}
	}
	if pod.ManyLabels {
		return ovnport.Policy{}, tooManyLabels(pod)
	}
	in, out := m.Match(pod.Labels)
	return ovnport.Policy{Revision: m.Revision, In: in, Out: out}, nil
}

func tooManyLabels(pod *source.Pod) error {
	return conf.Errorf(conf.CodeInvalidConfig, "delete labels of the pod",
		"pod %s/%s: its labels are longer than %d bytes, and policies of its namespace select pods by labels",
		pod.Namespace, pod.Name, policy.MaxLabels)
}

// refreshPolicy reads the groups again that a port was refused for.
func (n *node) refreshPolicy(ctx context.Context, changed *ovnport.PolicyChanged) error {
	return n.policies.read(ctx, changed.Network, changed.Namespace)
}
