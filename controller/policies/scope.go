package policies

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// reconcileScope makes NB have the policies of one namespace on one network.
func (k *Kind) reconcileScope(ctx context.Context, i engine.Item) error {
	return k.Engine.Paced(i, func() error { return k.ensurePolicies(ctx, scopeOf(i)) })
}

// maxPolicyAttempts bounds how often one pass follows ports that come while it writes.
const maxPolicyAttempts = 8

// scopePass is a pass over one scope.
type scopePass struct {
	policies.Scope
	objects []*served
	set     *policy.Set
	waits   bool // the namespace has no place on the network yet
}

func (k *Kind) beginScope(s policies.Scope) *scopePass {
	p := k.known
	objects := p.sets[s.Namespace][s.Network]
	list := make([]*policy.Policy, len(objects))
	for i, o := range objects {
		list[i] = o.policy
	}
	p.note(s)
	delete(p.elsewhere, s)
	set := policy.SetOf(s.Network, s.Namespace, list)
	if s.Namespace == "" {
		set.Further = p.further[s.Network]
	}
	return &scopePass{s, objects, set, p.waiting[s.Namespace][s.Network]}
}

// ensurePolicies writes the rows of scopes, together. An agent that knew the former rows may have inserted a port after
// the ports were read. After the rows are written, no agent can. So the ports are read again until nothing has to be
// written.
func (k *Kind) ensurePolicies(ctx context.Context, scopes ...policies.Scope) error {
	p := k.known
	p.olderCopies.some = false
	passes := make([]*scopePass, len(scopes))
	for i, s := range scopes {
		passes[i] = k.beginScope(s)
	}
	if slices.ContainsFunc(scopes, func(s policies.Scope) bool { return s.Namespace == "" }) {
		if err := k.ensureNamespaces(ctx); err != nil {
			return err
		}
	}
	for range maxPolicyAttempts {
		wanted, ports := make([]*policies.Wanted, len(passes)), &pods.Once{Ports: p.Ports}
		for i, pass := range passes {
			var err error
			if wanted[i], err = k.wantedPolicies(ctx, pass.set, ports); err != nil {
				return err
			}
			wanted[i].Waits = pass.waits
		}
		changed, err := p.Rows.Ensure(ctx, wanted...)
		switch {
		case errors.Is(err, policies.ErrPortsChanged):
			continue
		case err != nil:
			return err
		case changed:
			k.recomputes(passes)
			k.Log.Info("policies are in sync", "network", scopes[0].Network, "namespace", scopes[0].Namespace,
				"policies", len(passes[0].set.Policies), "others", len(scopes)-1)
			continue
		}
		for _, pass := range passes {
			if err := k.endScope(ctx, pass); err != nil {
				return err
			}
		}
		return nil
	}
	return policies.ErrPortsChanged
}

// recomputes notes which flows OVN computes again if the content of a namespace's policies has changed: those of all
// policies in the scope, because they share parts. A change of members alone costs little.
func (k *Kind) recomputes(passes []*scopePass) {
	for _, pass := range passes {
		content, flows := sha256.New(), 0
		for _, p := range pass.set.Policies {
			_, _ = content.Write([]byte(p.Text))
			flows += p.Flows()
		}
		sum := string(content.Sum(nil))
		if pass.Namespace == "" || k.computed[pass.Scope] == sum {
			continue
		}
		k.Engine.Recomputes(flows)
		if k.computed[pass.Scope] = sum; pass.set.Empty() {
			delete(k.computed, pass.Scope)
		}
	}
}

// endScope notes what NB has of a scope now.
func (k *Kind) endScope(ctx context.Context, pass *scopePass) error {
	p, s := k.known, pass.Scope
	if s.Namespace == "" {
		p.joined[s.Network] = pass.set.Further
	}
	if pass.set.Empty() && !pass.waits {
		p.written.Remove(s.Namespace, s.Network)
		if s.Namespace == "" && len(p.written[""]) == 0 { // no row of a namespace is needed any more
			if err := k.ensureNamespaces(ctx); err != nil {
				return err
			}
		}
	}
	if p.olderCopies.some {
		k.Engine.AddAfter(scopeItem(s), olderEvery)
	}
	p.noteAccepted(s, pass.objects)
	k.scopeWritten(s, pass.set)
	return nil
}

// wantedPolicies computes what NB should have of a set: it reads the pods that the set selects, and their ports.
func (k *Kind) wantedPolicies(
	ctx context.Context, set *policy.Set, ports *pods.Once,
) (*policies.Wanted, error) {
	p := k.known
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
	pods, own := map[string]*netmodel.Pod{}, []*netmodel.Pod(nil)
	nodes := map[string]bool{}
	if !set.Empty() {
		for _, namespace := range selectors.namespaces() {
			list, err := p.Source.PolicyPods(ctx, namespace)
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
		present, err := p.Rows.Groups(ctx, policies.Scope{Network: set.Network, Namespace: set.Namespace})
		if err != nil {
			return nil, err
		}
		selectors.addNumbers(set, pods, present)
	}
	owners := &portOwners{&k.Changes.changedLabels, map[string]policies.PortOwner{}, map[string]*netmodel.Pod{}}
	members, err := p.members(ctx, set.Network, selectors, pods, ports, slices.Sorted(maps.Keys(nodes)), owners)
	if err != nil {
		return nil, err
	}
	return &policies.Wanted{
		Set: set, Here: selectors.here, Members: members, Owners: owners.byPort, DeniedRate: p.DeniedRate,
		NotMembers: func(ctx context.Context, selector policy.Selector, keys []string) ([]string, error) {
			return p.notMembers(ctx, set.Network, selectors.of(selector), pods, keys, owners)
		},
		Wrote: func() {
			for port, pod := range owners.versions {
				owners.changedLabels.wrote(port, pod)
			}
		},
		ChangedLabels: func(present map[string]string) map[string]string {
			return k.Changes.changedLabels.update(set.Namespace, own, present)
		},
	}, nil
}

// portOwners has the owners of ports.
type portOwners struct {
	changedLabels *changedLabels
	byPort        map[string]policies.PortOwner
	versions      map[string]*netmodel.Pod // by port: the pod whose version is written
}

// note notes the owner of a port, as of the first read: by that one the members are chosen.
func (o *portOwners) note(port *pods.Port, pod *netmodel.Pod) {
	if _, noted := o.byPort[port.Key]; noted {
		return
	}
	owner := policies.PortOwner{Sandbox: port.Sandbox}
	if pod != nil && o.changedLabels.due(port, pod) {
		owner.PodVersion = pod.Version
		o.versions[port.Key] = pod
	}
	o.byPort[port.Key] = owner
}

// decides reports whether the source's copy of a pod says which groups a port belongs to. Otherwise the port stays in
// its groups: the source does not know the pod yet, or knows older labels than the agent that has chosen the groups.
// If the pod has got too many labels, the port stays, too: no labels are no way out of a group.
func (p *known) decides(port *pods.Port, pod *netmodel.Pod) bool {
	return pod != nil && pod.Is(port.UID) && !pod.ManyLabels &&
		!p.olderCopies.is("port "+port.Key, port.PodVersion, pod.Version)
}

// notMembers returns which members of a selector's group do not belong to it. It notes the owners of the ports.
func (p *known) notMembers(
	ctx context.Context, network string, one *selected, pods map[string]*netmodel.Pod, keys []string,
	owners *portOwners,
) (gone []string, err error) {
	several := one.selector.Across != ""
	if several {
		keys = p.PortNetworks.Without(keys, network)
	}
	ports, err := p.Ports.ByKey(ctx, keys)
	for i := range ports {
		port := &ports[i]
		if several {
			p.PortNetworks.Note(port)
			if port.Network != network { // its own set decides
				continue
			}
		}
		pod := pods[port.Namespace+"/"+port.Pod]
		owners.note(port, pod)
		if port.Network != network || !one.namespaces[port.Namespace] || p.decides(port, pod) && !one.matches(pod) {
			gone = append(gone, port.Key)
		}
	}
	return gone, err
}

// members returns the ports of each selector's group. It notes the owners of the ports.
func (p *known) members(
	ctx context.Context, network string, s *selectorSet, pods map[string]*netmodel.Pod, once *pods.Once, nodes []string,
	owners *portOwners,
) (map[policy.Selector][]string, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	ports, err := once.OnNetwork(ctx, network, nodes)
	if err != nil {
		return nil, err
	}
	members := map[policy.Selector][]string{}
	several := slices.ContainsFunc(s.all, func(one *selected) bool { return one.selector.Across != "" })
	for i := range ports {
		port := &ports[i]
		if several {
			p.PortNetworks.Note(port)
		}
		pod := pods[port.Namespace+"/"+port.Pod]
		if !p.decides(port, pod) {
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
