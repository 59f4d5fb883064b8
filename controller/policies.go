package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/policy"
)

// PolicySource is the controller's source of network policies, and of the pods and namespaces that they select. Each
// method waits until the source has everything, and fails at the end of ctx.
type PolicySource interface {
	// Policies returns the MultiNetworkPolicies of a namespace.
	Policies(ctx context.Context, namespace string) ([]*policy.Object, error)
	// PolicyNamespaces returns the namespaces that have MultiNetworkPolicies.
	PolicyNamespaces(ctx context.Context) ([]string, error)
	// ClusterPolicies returns the ClusterNetworkPolicies that are for OVN networks.
	ClusterPolicies(ctx context.Context) ([]*policy.Object, error)
	PodSource
	// Namespaces returns all namespaces, with their labels.
	Namespaces(ctx context.Context) (map[string]policy.Namespace, error)
	// SetPolicyState writes the state onto a policy. If the policy is gone, the error is netmodel.ErrNotFound.
	SetPolicyState(ctx context.Context, o *policy.Object, state string) error
	// PolicyEvent records an Event for the policy. It does not wait.
	PolicyEvent(o *policy.Object, warning bool, reason, message string)
}

// policySets keeps the rows of policies in step. Only the worker uses it, except for relabelled.
type policySets struct {
	source PolicySource
	ports  PodPorts
	rows   *policies.Policies
	// sets has the policies that are served, by namespace and network, as of the last pass over the namespace.
	sets map[string]map[string][]*served
	// accepted has the policies that NB has, by "<namespace>/<name>" and network. One that is changed into one that
	// cannot be served stays as it was.
	accepted map[string]map[string]*policy.Policy
	// written has the networks of which NB may have rows, by namespace.
	written map[string]map[string]bool
	listed  bool // written has what NB had when this controller began to lead
	// naming has the namespaces whose policies name a NAD, by NAD.
	naming map[string]map[string]bool
	// elsewhere has the scopes with a selector of namespaces, and what the last pass selected.
	elsewhere map[policies.Scope]*selectorSet
	// networks has the networks that NB may have, for policies for all networks.
	networks map[string]bool
	// rowsOf has the rows of namespaces in NB; nil: they are not read yet.
	rowsOf map[string]*policies.NamespaceRow
	behind *behind
	// deniedRate is Config.DeniedRate.
	deniedRate int
}

func newPolicySets(source PolicySource, ports PodPorts, rows *policies.Policies, deniedRate int) *policySets {
	return &policySets{
		deniedRate: deniedRate,
		source:     source, ports: ports, rows: rows, sets: map[string]map[string][]*served{},
		accepted: map[string]map[string]*policy.Policy{}, written: map[string]map[string]bool{},
		naming: map[string]map[string]bool{}, elsewhere: map[policies.Scope]*selectorSet{},
		networks: map[string]bool{}, behind: newBehind(),
	}
}

// served is a policy, with the content that NB should have.
type served struct {
	object *policy.Object
	policy *policy.Policy
	why    error // the object cannot be served, and the policy is the last one that could
}

// relabelled collects the pods whose labels have changed since the source knows them, by namespace and UID. An agent
// may have an older copy of such a pod.
type relabelled struct {
	mu   sync.Mutex
	pods map[string]map[string]portVersions
}

// portVersions has the ports of a pod that have its version, by row key, with the Hash of its labels then.
type portVersions map[string]string

func (r *relabelled) add(namespace, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods == nil {
		r.pods = map[string]map[string]portVersions{}
	}
	if r.pods[namespace] == nil {
		r.pods[namespace] = map[string]portVersions{}
	}
	if r.pods[namespace][uid] == nil {
		r.pods[namespace][uid] = portVersions{}
	}
}

func (r *relabelled) remove(namespace, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.pods[namespace], uid); len(r.pods[namespace]) == 0 {
		delete(r.pods, namespace)
	}
}

// due tells whether a port needs the version of its pod: the labels have changed, and the port has an older version.
func (r *relabelled) due(port *PodPort, pod *policy.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	written, changed := r.pods[pod.Namespace][pod.UID]
	return changed && written[port.Key] != policy.Hash(pod.Labels) && policy.Newer(pod.Version, port.PodVersion)
}

// wrote notes that a port has the version of its pod.
func (r *relabelled) wrote(port string, pod *policy.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if written := r.pods[pod.Namespace][pod.UID]; written != nil {
		written[port] = policy.Hash(pod.Labels)
	}
}

// some tells whether labels of pods of a namespace have changed.
func (r *relabelled) some(namespace string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pods[namespace]) > 0
}

// update returns the entries of policy.Index.Relabelled of a namespace that has these pods.
func (r *relabelled) update(namespace string, pods []*policy.Pod, present map[string]string) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := map[string]string{}
	for _, p := range pods {
		if _, noted := present[p.UID]; noted || r.pods[namespace][p.UID] != nil {
			entries[p.UID] = policy.Hash(p.Labels)
		}
	}
	return entries
}

const (
	kindPolicies = "policies"     // the policies of a namespace; without a namespace, the ClusterNetworkPolicies
	kindScope    = "policy-scope" // the policies of a namespace on one network
	kindPeers    = "peers"        // what selects pods of another namespace, which have got their ports
	// kindRelabelled has all policies that may select pods of a namespace, because their labels have changed.
	kindRelabelled = "relabelled"
	// kindNamespaces makes the worker queue the scopes that select a namespace now and did not before, or the other way
	// about.
	kindNamespaces = "namespaces"
	// kindPorts makes the worker queue the policies of a namespace that name ports, because a pod has named ports.
	kindPorts = "ports"
)

func policiesItem(namespace string) item { return item{kindPolicies, namespace, namespace} }

func scopeItem(s policies.Scope) item {
	return item{kindScope, s.Network + "|" + s.Namespace, s.Namespace}
}

func scopeOf(i item) policies.Scope {
	at := strings.LastIndex(i.id, "|")
	return policies.Scope{Network: i.id[:at], Namespace: i.id[at+1:]}
}

// PolicyChanged queues the policies of a namespace, because one of them is new, changed or gone; without a namespace,
// the ClusterNetworkPolicies.
func (q *Queue) PolicyChanged(namespace string) { q.items.Add(policiesItem(namespace)) }

// PodChanged queues the policies that may select a pod: the pod has other labels (relabelled), or has got its ports.
func (q *Queue) PodChanged(namespace, uid string, relabelled bool) {
	if relabelled {
		q.relabelled.add(namespace, uid)
		q.items.Add(item{kindRelabelled, namespace, namespace})
		return
	}
	q.items.Add(item{kindPeers, namespace, namespace})
}

// PortsChanged queues the policies of a namespace that name ports: a pod that has named ports is new.
func (q *Queue) PortsChanged(namespace string) { q.items.Add(item{kindPorts, namespace, namespace}) }

// PodGone forgets a pod.
func (q *Queue) PodGone(namespace, uid string) { q.relabelled.remove(namespace, uid) }

// queuePolicies queues the policies of all namespaces. networks are those in NB.
func (c *Controller) queuePolicies(ctx context.Context, networks map[string][]string) error {
	if c.policies == nil {
		return nil
	}
	c.policies.rowsOf = nil // another program may have changed NB
	clear(c.policies.networks)
	for network := range networks {
		c.policies.networks[network] = true
	}
	if err := c.policies.list(ctx); err != nil {
		return err
	}
	namespaces, err := c.policies.namespaces(ctx)
	for _, namespace := range namespaces {
		c.queue.Add(policiesItem(namespace))
	}
	return err
}

// namespaces are the namespaces that have policies, or of whose policies NB may have rows. "" is that of
// ClusterNetworkPolicies.
func (p *policySets) namespaces(ctx context.Context) ([]string, error) {
	all, err := p.source.PolicyNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	cluster, err := p.source.ClusterPolicies(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, namespace := range all {
		found[namespace] = true
	}
	if len(cluster) > 0 {
		found[""] = true
	}
	for namespace := range p.written {
		found[namespace] = true
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// list finds out, once, which rows NB has.
func (p *policySets) list(ctx context.Context) error {
	if p.listed {
		return nil
	}
	scopes, err := p.rows.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range scopes {
		p.note(s)
	}
	p.listed = true
	return nil
}

// note notes that NB may have rows of a scope.
func (p *policySets) note(s policies.Scope) {
	if p.written[s.Namespace] == nil {
		p.written[s.Namespace] = map[string]bool{}
	}
	p.written[s.Namespace][s.Network] = true
}

// queuePoliciesOf queues the policies that name a NAD: the NAD describes another network now.
func (c *Controller) queuePoliciesOf(nad string) {
	if c.policies != nil {
		for namespace := range c.policies.naming[nad] {
			c.queue.Add(policiesItem(namespace))
		}
	}
}

// reconcilePolicies reads the policies of a namespace and queues the networks that they are for, or were for.
func (c *Controller) reconcilePolicies(ctx context.Context, namespace string) error {
	if c.policies == nil {
		return nil
	}
	networks, err := c.readPolicies(ctx, namespace)
	for network := range networks {
		c.queue.Add(scopeItem(policies.Scope{Network: network, Namespace: namespace}))
	}
	return err
}

// readPolicies reads the policies of a namespace and notes them. It returns the networks that they are for, or were
// for.
func (c *Controller) readPolicies(ctx context.Context, namespace string) (networks map[string]bool, err error) {
	p := c.policies
	if err := p.list(ctx); err != nil {
		return nil, err
	}
	all, err := p.of(ctx, namespace)
	if err != nil {
		return nil, err
	}
	sets := map[string][]*served{}
	named, present := map[string]bool{}, map[string]bool{}
	for _, o := range all {
		ids, err := c.networksOfPolicy(ctx, o, named)
		if unreadable, ok := errors.AsType[*sourceFailed](err); ok {
			return nil, unreadable
		}
		for id := range ids {
			sets[id] = append(sets[id], &served{object: o, policy: o.Policy})
		}
		present[o.ID()] = true
		if err == nil && len(ids) == 0 { // a policy for all networks, and there is none
			_, refused := policy.NewSet("", namespace, []*policy.Policy{o.Policy}, p.rows.Tiers())
			c.policyStates.set(o, refused[o.Policy])
		}
		if err == nil {
			maps.DeleteFunc(p.accepted[o.ID()], func(network string, _ *policy.Policy) bool { return !ids[network] })
			continue
		}
		before, readErr := p.acceptedBefore(ctx, o)
		if readErr != nil {
			return nil, readErr
		}
		for id, former := range before {
			sets[id] = append(sets[id], &served{o, former, err})
		}
		if len(before) == 0 {
			c.policyStates.set(o, err)
		}
	}
	maps.DeleteFunc(p.accepted, func(id string, _ map[string]*policy.Policy) bool {
		return namespaceOf(id) == namespace && !present[id]
	})
	c.policyStates.forget(namespace, present)
	p.noteNamed(namespace, named)
	p.sets[namespace] = sets
	if len(sets) == 0 {
		delete(p.sets, namespace)
	}
	networks = maps.Clone(p.written[namespace])
	if networks == nil {
		networks = map[string]bool{}
	}
	for network := range sets {
		networks[network] = true
	}
	return networks, nil
}

// of returns the policies of a namespace; without a namespace, the ClusterNetworkPolicies.
func (p *policySets) of(ctx context.Context, namespace string) ([]*policy.Object, error) {
	return policiesOf(ctx, p.source, namespace)
}

func policiesOf(ctx context.Context, source PolicySource, namespace string) ([]*policy.Object, error) {
	if namespace == "" {
		return source.ClusterPolicies(ctx)
	}
	return source.Policies(ctx, namespace)
}

// noteNamed notes which NADs the policies of a namespace name.
func (p *policySets) noteNamed(namespace string, named map[string]bool) {
	for nad, namespaces := range p.naming {
		if delete(namespaces, namespace); len(namespaces) == 0 {
			delete(p.naming, nad)
		}
	}
	for nad := range named {
		if p.naming[nad] == nil {
			p.naming[nad] = map[string]bool{}
		}
		p.naming[nad][namespace] = true
	}
}

// networksOfPolicy returns the OVN networks that a policy is for. It adds the NADs to named.
func (c *Controller) networksOfPolicy(
	ctx context.Context, o *policy.Object, named map[string]bool,
) (ids map[string]bool, err error) {
	if o.Policy == nil {
		return nil, errors.New(o.Refusal)
	}
	ids = map[string]bool{}
	if o.Policy.ForAll() {
		for _, id := range c.allNetworks() {
			ids[id] = true
		}
		return ids, nil
	}
	for _, nad := range o.Policy.Networks {
		named[nad] = true
		id, err := c.networkNamed(ctx, policy.ForAnnotation, "policies", nad)
		if err != nil {
			return nil, err
		}
		ids[id] = true
	}
	return ids, nil
}

// acceptedBefore returns what NB has of a policy that cannot be served any more, by network.
func (p *policySets) acceptedBefore(ctx context.Context, o *policy.Object) (map[string]*policy.Policy, error) {
	if known, ok := p.accepted[o.ID()]; ok {
		return known, nil
	}
	found := map[string]*policy.Policy{}
	for network := range p.written[o.Namespace] {
		all, err := p.rows.Accepted(ctx, policies.Scope{Network: network, Namespace: o.Namespace})
		if err != nil {
			return nil, err
		}
		if former := all[o.Name]; former != nil {
			found[network] = former
		}
	}
	p.accepted[o.ID()] = found
	return found, nil
}

// noteAccepted notes what NB has of a scope now.
func (p *policySets) noteAccepted(s policies.Scope, all []*served, refused map[*policy.Policy]error) {
	for _, one := range all {
		id := one.object.ID()
		if p.accepted[id] == nil {
			p.accepted[id] = map[string]*policy.Policy{}
		}
		delete(p.accepted[id], s.Network)
		if refused[one.policy] == nil {
			p.accepted[id][s.Network] = one.policy
		}
	}
}

// queueNames queues the policies of a namespace that name ports. Those of other namespaces follow when a pod has got
// its ports.
func (c *Controller) queueNames(namespace string) {
	if c.policies == nil {
		return
	}
	for network, all := range c.policies.sets[namespace] {
		if slices.ContainsFunc(all, func(s *served) bool { return s.policy.HasNames() }) {
			c.queue.Add(scopeItem(policies.Scope{Network: network, Namespace: namespace}))
		}
	}
}

// policiesFirst writes the policies for a network that is about to be created: a network takes no ports before NB has
// its policies.
func (c *Controller) policiesFirst(ctx context.Context, network string) error {
	if c.policies == nil {
		return nil
	}
	namespaces, err := c.policies.namespaces(ctx)
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		networks, err := c.readPolicies(ctx, namespace)
		if err != nil {
			return err
		}
		if networks[network] {
			if err := c.ensurePolicies(ctx, policies.Scope{Network: network, Namespace: namespace}); err != nil {
				return err
			}
		}
	}
	return nil
}
