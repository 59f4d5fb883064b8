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
	p.behind.some = false
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
		if p.behind.some {
			c.queue.AddAfter(scopeItem(s), behindEvery)
		}
		p.noteAccepted(s, objects, refused)
		for _, o := range objects {
			switch {
			case o.why != nil:
				c.policyStates.set(o.object, fmt.Errorf("%w; what was accepted before stays", o.why))
			case refused[o.policy] == nil:
				c.policyStates.set(o.object, set.Limit(o.policy))
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
	namespaces := map[string]policy.Namespace{}
	names := set.Names()
	anywhere := slices.ContainsFunc(append(set.Selectors(), names...), func(s policy.Selector) bool { return s.Anywhere })
	if anywhere {
		var err error
		if namespaces, err = p.namespacesNow(ctx); err != nil {
			return nil, err
		}
	}
	selectors, err := parseSelectors(set, namespaces)
	if err != nil {
		return nil, err
	}
	if anywhere {
		p.elsewhere[policies.Scope{Network: set.Network, Namespace: set.Namespace}] = selectors
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
				if pod.Node != "" {
					nodes[pod.Node] = true
				}
			}
		}
	}
	if len(names) > 0 {
		present, err := p.rows.Groups(ctx, policies.Scope{Network: set.Network, Namespace: set.Namespace})
		if err != nil {
			return nil, err
		}
		selectors.addNumbers(set, pods, present)
	}
	owners := &portOwners{&c.changes.relabelled, map[string]policies.PortOwner{}, map[string]*policy.Pod{}}
	members, err := p.members(ctx, set.Network, selectors, pods, slices.Sorted(maps.Keys(nodes)), owners)
	if err != nil {
		return nil, err
	}
	return &policies.Wanted{
		Set: set, Here: selectors.here, Members: members, Owners: owners.byPort, DeniedRate: p.deniedRate,
		NotMembers: func(ctx context.Context, selector policy.Selector, keys []string) ([]string, error) {
			return p.notMembers(ctx, set.Network, selectors.of(selector), pods, keys, owners)
		},
		Wrote: func() {
			for port, pod := range owners.versions {
				owners.relabelled.wrote(port, pod)
			}
		},
		Relabelled: func(present map[string]string) map[string]string {
			return c.changes.relabelled.update(set.Namespace, own, present)
		},
	}, nil
}

// portOwners has the owners of ports.
type portOwners struct {
	relabelled *relabelled
	byPort     map[string]policies.PortOwner
	versions   map[string]*policy.Pod // by port: the pod whose version is written
}

// note notes the owner of a port, as of the first read: by that one the members are chosen.
func (o *portOwners) note(port *PolicyPort, pod *policy.Pod) {
	if _, noted := o.byPort[port.Key]; noted {
		return
	}
	owner := policies.PortOwner{Sandbox: port.Sandbox}
	if pod != nil && o.relabelled.due(port, pod) {
		owner.PodVersion = pod.Version
		o.versions[port.Key] = pod
	}
	o.byPort[port.Key] = owner
}

// decides tells whether the source's copy of a pod says which groups a port belongs to. Otherwise the port stays in its
// groups: the source does not know the pod yet, or knows older labels than the agent that has chosen the groups. If the
// pod has got too many labels, the port stays, too: no labels are no way out of a group.
func (p *policySets) decides(port *PolicyPort, pod *policy.Pod) bool {
	return pod != nil && pod.Is(port.UID) && !pod.ManyLabels &&
		!p.behind.is("port "+port.Key, port.PodVersion, pod.Version)
}

// notMembers returns which members of a selector's group do not belong to it. It notes the owners of the ports.
func (p *policySets) notMembers(
	ctx context.Context, network string, one *selected, pods map[string]*policy.Pod, keys []string,
	owners *portOwners,
) (gone []string, err error) {
	ports, err := p.ports.ByKey(ctx, keys)
	for i := range ports {
		port := &ports[i]
		pod := pods[port.Namespace+"/"+port.Pod]
		owners.note(port, pod)
		if port.Network != network || !one.namespaces[port.Namespace] || p.decides(port, pod) && !one.matches(pod) {
			gone = append(gone, port.Key)
		}
	}
	return gone, err
}

// members returns the ports of each selector's group. It notes the owners of the ports.
func (p *policySets) members(
	ctx context.Context, network string, s *selectorSet, pods map[string]*policy.Pod, nodes []string,
	owners *portOwners,
) (map[policy.Selector][]string, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	ports, err := p.ports.On(ctx, nodes)
	if err != nil {
		return nil, err
	}
	members := map[policy.Selector][]string{}
	for i := range ports {
		port := &ports[i]
		pod := pods[port.Namespace+"/"+port.Pod]
		if port.Network != network || !p.decides(port, pod) {
			continue
		}
		owners.note(port, pod)
		for _, one := range s.all {
			if one.matches(pod) {
				members[one.selector] = append(members[one.selector], port.Key)
			}
		}
	}
	return members, nil
}
