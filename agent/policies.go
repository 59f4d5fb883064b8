package agent

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/source"
)

// policies knows the groups that the ports of a namespace's pods belong to, by network. It never reads policies: NB has
// one row for each namespace and network with policies, and for ClusterNetworkPolicies one row for each network and one
// for each namespace. The transaction of a port asserts the revisions of these rows. So they are read only after a
// refusal.
type policies struct {
	nb *ovnport.NB

	mu    sync.Mutex
	known map[policyScope]*knownGroups // without an entry: no policy concerns the namespace's pods on the network
}

type knownGroups struct {
	*policy.Matcher
	revisions ovnport.PolicyRevisions
}

type policyScope struct{ network, namespace string }

func newPolicies(nb *ovnport.NB) *policies {
	return &policies{nb: nb, known: map[policyScope]*knownGroups{}}
}

func (p *policies) of(network, namespace string) *knownGroups {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[policyScope{network, namespace}]
}

// read reads the groups of a namespace on a network from NB.
func (p *policies) read(ctx context.Context, network, namespace string) error {
	rows, err := p.nb.PolicyRows(ctx, network, namespace)
	if err != nil {
		return err
	}
	known := &knownGroups{revisions: rows.Revisions()}
	switch {
	case rows.Own == nil && rows.Cluster == nil:
		known = nil
	case rows.Cluster != nil && rows.Namespace == nil:
		return conf.Errorf(conf.CodeTryAgain, "does the controller run, and does the namespace exist?",
			"namespace %s: the controller has not noted its labels yet, and ClusterNetworkPolicies for network %s need them",
			namespace, network)
	case known.revisions.Own == policy.WaitingRevision:
		return conf.Errorf(conf.CodeTryAgain, "does the controller run, and are the states of the policies ready?",
			"namespace %s: the controller has not written its policies for network %s yet", namespace, network)
	default:
		if known.Matcher, err = policy.NewMatcher(rows.Own, rows.Cluster, rows.Namespace); err != nil {
			return conf.Errorf(conf.CodeTryAgain, "are controller and agent of the same version?",
				"the policies of namespace %s for network %s: %w", namespace, network, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	scope := policyScope{network, namespace}
	delete(p.known, scope)
	if known != nil {
		p.known[scope] = known
	}
	return nil
}

// keep forgets what is known of other networks. It is read again when a pod needs it.
func (p *policies) keep(used map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.known, func(s policyScope, _ *knownGroups) bool { return !used[s.network] })
}

// policyOf returns the groups that a pod's port on a network belongs to. If the controller knows other labels of the
// pod than the agent's copy, the pod is read from its origin. missing says that the pod has a number that policies use
// by its name, and that has no group yet.
func (n *node) policyOf(
	ctx context.Context, network string, pod *netmodel.Pod,
) (p ovnport.Policy, missing, err error) {
	m := n.policies.of(network, pod.Namespace)
	if m == nil {
		return ovnport.Policy{PodVersion: pod.Version}, nil, nil
	}
	if m.Stale(pod.UID, pod.Labels) {
		live, err := n.source.LivePod(ctx, pod.Namespace, pod.Name)
		switch {
		case errors.Is(err, source.ErrNotFound), err == nil && !live.Is(pod.UID):
		case err != nil:
			return p, nil, unreadable(pod.Namespace, pod.Name, err)
		default:
			pod = live
		}
	}
	if pod.ManyLabels {
		return p, nil, tooManyLabels(pod)
	}
	p = ovnport.Policy{PolicyRevisions: m.revisions, PodVersion: pod.Version}
	p.In, p.Out = m.Match(pod.Labels, pod.Ports)
	port, numbers := m.Missing(pod.Labels, pod.Ports)
	return p, noNumber(port, numbers, network, pod), nil
}

// policyOfNew returns the groups that a new port belongs to. A port is not attached without the group of a number that
// policies use by its name: less than what they say would pass.
func (n *node) policyOfNew(ctx context.Context, network string, pod *netmodel.Pod) (ovnport.Policy, error) {
	membership, missing, err := n.policyOf(ctx, network, pod)
	if err != nil || missing == nil {
		return membership, err
	}
	if err := n.policies.read(ctx, network, pod.Namespace); err != nil { // the controller may have written the group
		return ovnport.Policy{}, err
	}
	membership, missing, err = n.policyOf(ctx, network, pod)
	if err == nil {
		err = missing
	}
	return membership, err
}

// noNumber says that a pod has a number that policies use by its name, and that has no group. Without such a port, it
// returns nil.
func noNumber(port string, numbers int, network string, pod *netmodel.Pod) error {
	switch {
	case port == "":
		return nil
	case numbers >= policy.MaxNumbers:
		return conf.Errorf(conf.CodeInvalidConfig, "give the port a number that other pods have, or another name",
			"pod %s/%s: port %s: pods of the namespace on network %s have %d other numbers for this name, and %d is the limit",
			pod.Namespace, pod.Name, port, network, numbers, policy.MaxNumbers)
	}
	return conf.Errorf(conf.CodeTryAgain, "does the controller run, and are the states of the policies ready?",
		"pod %s/%s: port %s: the controller has not noted this number yet, and policies for network %s name the port",
		pod.Namespace, pod.Name, port, network)
}

func tooManyLabels(pod *netmodel.Pod) error {
	return conf.Errorf(conf.CodeInvalidConfig, "delete labels of the pod",
		"pod %s/%s: its labels are longer than %d bytes, and policies or virtual addresses select pods by labels",
		pod.Namespace, pod.Name, policy.MaxLabels)
}
