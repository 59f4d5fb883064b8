package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/policy"
)

// reconcileScope makes NB have the policies of one namespace on one network.
func (c *Controller) reconcileScope(ctx context.Context, i item) error {
	if c.policies == nil {
		return nil
	}
	if wait := c.pace.wait(i.tenant); wait > 0 {
		c.queue.AddAfter(i, wait)
		return nil
	}
	before := c.writes
	err := c.ensurePolicies(ctx, scopeOf(i))
	if c.writes > before {
		c.pace.wrote(i.tenant)
	}
	return err
}

// maxPolicyAttempts bounds how often one pass follows ports that come while it writes.
const maxPolicyAttempts = 8

// ensurePolicies writes the rows of a scope. An agent that knew the former rows may have inserted a port after the
// ports were read. After the rows are written, no agent can. So the ports are read again until nothing has to be
// written.
func (c *Controller) ensurePolicies(ctx context.Context, s policies.Scope) error {
	p := c.policies
	objects := p.sets[s.Namespace][s.Network]
	list := make([]*policy.Policy, len(objects))
	for i, o := range objects {
		list[i] = o.policy
	}
	set, refused := policy.NewSet(s.Network, s.Namespace, list, p.rows.Tiers())
	p.note(s)
	delete(p.elsewhere, s)
	if s.Namespace == "" {
		if err := c.ensureNamespaces(ctx); err != nil {
			return err
		}
	}
	for range maxPolicyAttempts {
		wanted, err := c.wantedPolicies(ctx, set)
		if err != nil {
			return err
		}
		changed, err := p.rows.Ensure(ctx, wanted)
		if errors.Is(err, policies.ErrPortsChanged) {
			continue
		}
		if err != nil {
			return err
		}
		if changed {
			c.log.Info("policies are in step",
				"network", s.Network, "namespace", s.Namespace, "policies", len(set.Policies))
			continue
		}
		if len(set.Policies) == 0 {
			delete(p.written[s.Namespace], s.Network)
			if len(p.written[s.Namespace]) == 0 {
				delete(p.written, s.Namespace)
				if s.Namespace == "" { // no row of a namespace is needed any more
					if err := c.ensureNamespaces(ctx); err != nil {
						return err
					}
				}
			}
		}
		p.noteAccepted(s, objects, refused)
		for _, o := range objects {
			switch {
			case o.why != nil:
				c.policyStates.set(o.object, fmt.Errorf("%w; what was accepted before stays", o.why))
			default:
				c.policyStates.set(o.object, refused[o.policy])
			}
		}
		return nil
	}
	return policies.ErrPortsChanged
}

// wantedPolicies computes what NB should have of a set: it reads the pods that the set selects, and their ports.
func (c *Controller) wantedPolicies(ctx context.Context, set *policy.Set) (*policies.Wanted, error) {
	p := c.policies
	namespaces := map[string]map[string]string{}
	anywhere := slices.ContainsFunc(set.Selectors(), func(s policy.Selector) bool { return s.Anywhere })
	if anywhere {
		var err error
		if namespaces, err = p.source.Namespaces(ctx); err != nil {
			return nil, err
		}
	}
	selectors, err := parseSelectors(set, namespaces)
	if err != nil {
		return nil, err
	}
	if anywhere {
		p.elsewhere[policies.Scope{Network: set.Network, Namespace: set.Namespace}] = selectors.elsewhere()
	}
	pods, own := map[string]*policy.Pod{}, []*policy.Pod(nil)
	nodes := map[string]bool{}
	if len(set.Policies) > 0 {
		for _, namespace := range selectors.namespaces() {
			list, err := p.source.PolicyPods(ctx, namespace)
			if err != nil {
				return nil, err
			}
			if namespace == set.Namespace {
				own = list
			}
			for _, pod := range list {
				pods[pod.Namespace+"/"+pod.Name] = pod
				nodes[pod.Node] = true
			}
		}
	}
	sandboxes := map[string]string{}
	members, err := p.members(ctx, set.Network, selectors, pods, slices.Sorted(maps.Keys(nodes)), sandboxes)
	if err != nil {
		return nil, err
	}
	return &policies.Wanted{
		Set: set, Here: selectors.here, Members: members, Sandboxes: sandboxes,
		NotMembers: func(ctx context.Context, selector policy.Selector, keys []string) ([]string, error) {
			return p.notMembers(ctx, set.Network, selectors.of(selector), pods, keys, sandboxes)
		},
		Relabelled: func(present map[string]string) map[string]string {
			return c.changes.relabelled.update(set.Namespace, own, present)
		},
	}, nil
}

// notMembers returns which members of a selector's group do not belong to it. A port stays if the
// source does not know its pod yet: the agent knows it, and has chosen the groups by its labels. A port also stays if
// its pod has got too many labels: no labels are no way out of a group. It notes the sandboxes that own the ports.
func (p *policySets) notMembers(
	ctx context.Context, network string, one *selected, pods map[string]*policy.Pod, keys []string,
	sandboxes map[string]string,
) (gone []string, err error) {
	ports, err := p.ports.ByKey(ctx, keys)
	for _, port := range ports {
		if sandboxes[port.Key] == "" { // else the members were chosen by what was read first
			sandboxes[port.Key] = port.Sandbox
		}
		pod := pods[port.Namespace+"/"+port.Pod]
		unknown := pod == nil || !pod.Is(port.UID) || pod.ManyLabels
		if port.Network != network || !one.namespaces[port.Namespace] || !unknown && !one.matches(pod) {
			gone = append(gone, port.Key)
		}
	}
	return gone, err
}

// members returns the ports of each selector's group. It notes the sandboxes that own them.
func (p *policySets) members(
	ctx context.Context, network string, s *selectorSet, pods map[string]*policy.Pod, nodes []string,
	sandboxes map[string]string,
) (map[policy.Selector][]string, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	ports, err := p.ports.On(ctx, nodes)
	if err != nil {
		return nil, err
	}
	members := map[policy.Selector][]string{}
	for _, port := range ports {
		pod := pods[port.Namespace+"/"+port.Pod]
		if port.Network != network || pod == nil || !pod.Is(port.UID) || pod.ManyLabels {
			continue
		}
		sandboxes[port.Key] = port.Sandbox
		for _, one := range s.all {
			if one.matches(pod) {
				members[one.selector] = append(members[one.selector], port.Key)
			}
		}
	}
	return members, nil
}
