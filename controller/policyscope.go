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
	return c.paced(i, func() error { return c.ensurePolicies(ctx, scopeOf(i)) })
}

// paced makes a pass when the tenant has a budget, and charges what the pass writes to it.
func (c *Controller) paced(i item, pass func() error) error {
	if wait := c.pace.wait(i.tenant); wait > 0 {
		c.queue.AddAfter(i, wait)
		return nil
	}
	before := c.writes
	err := pass()
	if c.writes > before {
		c.pace.wrote(i.tenant)
	}
	return err
}

// maxPolicyAttempts bounds how often one pass follows ports that come while it writes.
const maxPolicyAttempts = 8

// scopePass is a pass over one scope.
type scopePass struct {
	policies.Scope
	objects []*served
	set     *policy.Set
	refused map[*policy.Policy]error
}

func (c *Controller) beginScope(s policies.Scope) *scopePass {
	p := c.policies
	objects := p.sets[s.Namespace][s.Network]
	list := make([]*policy.Policy, len(objects))
	for i, o := range objects {
		list[i] = o.policy
	}
	set, refused := policy.NewSet(s.Network, s.Namespace, list, p.rows.Tiers())
	p.note(s)
	delete(p.elsewhere, s)
	return &scopePass{s, objects, set, refused}
}

// ensurePolicies writes the rows of scopes, together. An agent that knew the former rows may have inserted a port after
// the ports were read. After the rows are written, no agent can. So the ports are read again until nothing has to be
// written.
func (c *Controller) ensurePolicies(ctx context.Context, scopes ...policies.Scope) error {
	p := c.policies
	p.behind.some = false
	passes := make([]*scopePass, len(scopes))
	for i, s := range scopes {
		passes[i] = c.beginScope(s)
	}
	if slices.ContainsFunc(scopes, func(s policies.Scope) bool { return s.Namespace == "" }) {
		if err := c.ensureNamespaces(ctx); err != nil {
			return err
		}
	}
	for range maxPolicyAttempts {
		wanted := make([]*policies.Wanted, len(passes))
		for i, pass := range passes {
			var err error
			if wanted[i], err = c.wantedPolicies(ctx, pass.set); err != nil {
				return err
			}
		}
		changed, err := p.rows.Ensure(ctx, wanted...)
		switch {
		case errors.Is(err, policies.ErrPortsChanged):
			continue
		case err != nil:
			return err
		case changed:
			c.log.Info("policies are in step", "network", scopes[0].Network, "namespace", scopes[0].Namespace,
				"policies", len(passes[0].set.Policies), "others", len(scopes)-1)
			continue
		}
		for _, pass := range passes {
			if err := c.endScope(ctx, pass); err != nil {
				return err
			}
		}
		return nil
	}
	return policies.ErrPortsChanged
}

// endScope notes what NB has of a scope now.
func (c *Controller) endScope(ctx context.Context, pass *scopePass) error {
	p, s := c.policies, pass.Scope
	if len(pass.set.Policies) == 0 {
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
	p.noteAccepted(s, pass.objects, pass.refused)
	for _, o := range pass.objects {
		switch {
		case o.why != nil:
			c.policyStates.set(o.object, fmt.Errorf("%w; what was accepted before stays", o.why))
		case pass.refused[o.policy] == nil:
			c.policyStates.set(o.object, pass.set.Limit(o.policy))
		default:
			c.policyStates.set(o.object, pass.refused[o.policy])
		}
	}
	return nil
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
func (o *portOwners) note(port *PodPort, pod *policy.Pod) {
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
func (p *policySets) decides(port *PodPort, pod *policy.Pod) bool {
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
