package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/policy"
)

// PolicySource is the controller's source of network policies, and of the pods and namespaces that they select. Each
// method waits until the source has everything, and fails at the end of ctx.
type PolicySource interface {
	// Policies returns the policies of a namespace; of all namespaces if namespace is empty.
	Policies(ctx context.Context, namespace string) ([]*policy.Object, error)
	// PolicyPods returns the pods of a namespace that request networks.
	PolicyPods(ctx context.Context, namespace string) ([]*policy.Pod, error)
	// Namespaces returns the labels of all namespaces.
	Namespaces(ctx context.Context) (map[string]map[string]string, error)
	// SetPolicyState writes the state onto a policy. If the policy is gone, the error is netmodel.ErrNotFound.
	SetPolicyState(ctx context.Context, o *policy.Object, state string) error
	// PolicyEvent records an Event for the policy. It does not wait.
	PolicyEvent(o *policy.Object, warning bool, reason, message string)
}

// PolicyPort is a port of a pod.
type PolicyPort struct{ Key, Network, Namespace, Pod, UID string }

// PolicyPorts reads the ports of the pods on nodes.
type PolicyPorts func(ctx context.Context, nodes []string) ([]PolicyPort, error)

// policySets keeps the rows of policies in step. Only the worker uses it, except for relabelled.
type policySets struct {
	source PolicySource
	ports  PolicyPorts
	rows   *policies.Policies
	// sets has the policies that can be served, by namespace and network, as of the last pass over the namespace.
	sets map[string]map[string][]*policy.Object
	// written has the networks of which NB may have rows, by namespace.
	written map[string]map[string]bool
	listed  bool // written has what NB had when this controller began to lead
	// networks has the namespaces whose policies name a NAD.
	networks map[string]map[string]bool
	// elsewhere has the scopes with a peer that may be in another namespace.
	elsewhere map[policies.Scope]bool
}

func newPolicySets(source PolicySource, ports PolicyPorts, rows *policies.Policies) *policySets {
	return &policySets{
		source: source, ports: ports, rows: rows, sets: map[string]map[string][]*policy.Object{},
		written: map[string]map[string]bool{}, networks: map[string]map[string]bool{},
		elsewhere: map[policies.Scope]bool{},
	}
}

// relabelled collects the pods whose labels have changed since the source knows them, by namespace and UID. An agent
// may have an older copy of such a pod.
type relabelled struct {
	mu   sync.Mutex
	pods map[string]map[string]bool
}

func (r *relabelled) add(namespace, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods == nil {
		r.pods = map[string]map[string]bool{}
	}
	if r.pods[namespace] == nil {
		r.pods[namespace] = map[string]bool{}
	}
	r.pods[namespace][uid] = true
}

// update returns the entries of policy.Index.Relabelled of a namespace that has these pods.
func (r *relabelled) update(namespace string, pods []*policy.Pod, present map[string]string) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, alive := map[string]string{}, map[string]bool{}
	for _, p := range pods {
		alive[p.UID] = true
		if _, noted := present[p.UID]; noted || r.pods[namespace][p.UID] {
			entries[p.UID] = policy.LabelsHash(p.Labels)
		}
	}
	maps.DeleteFunc(r.pods[namespace], func(uid string, _ bool) bool { return !alive[uid] })
	return entries
}

const (
	kindPolicies = "policies" // the policies of a namespace
	kindScope    = "policy set"
	kindSelected = "selected" // the scopes whose selectors may select pods of another namespace
)

func policiesItem(namespace string) item { return item{kindPolicies, namespace, namespace} }

func scopeItem(s policies.Scope) item {
	return item{kindScope, s.Network + "|" + s.Namespace, s.Namespace}
}

func scopeOf(i item) policies.Scope {
	at := strings.LastIndex(i.id, "|")
	return policies.Scope{Network: i.id[:at], Namespace: i.id[at+1:]}
}

// PolicyChanged queues the policies of a namespace, because one of them is new, changed or gone.
func (q *Queue) PolicyChanged(namespace string) { q.items.Add(policiesItem(namespace)) }

// PodChanged queues the policies that may select a pod: the pod has other labels (relabelled), or has got its ports.
func (q *Queue) PodChanged(namespace, uid string, relabelled bool) {
	if relabelled {
		q.relabelled.add(namespace, uid)
		q.items.Add(policiesItem(namespace))
	}
	q.items.Add(item{kindSelected, namespace, namespace})
}

// NamespaceChanged queues the policies whose selectors may select a namespace.
func (q *Queue) NamespaceChanged(namespace string) {
	q.items.Add(item{kindSelected, namespace, namespace})
}

// queuePolicies queues the policies of all namespaces. The first call finds out which rows NB has.
func (c *Controller) queuePolicies(ctx context.Context) error {
	if c.policies == nil {
		return nil
	}
	if !c.policies.listed {
		scopes, err := c.policies.rows.List(ctx)
		if err != nil {
			return err
		}
		for _, s := range scopes {
			c.policies.note(s)
		}
		c.policies.listed = true
	}
	all, err := c.policies.source.Policies(ctx, "")
	if err != nil {
		return err
	}
	namespaces := map[string]bool{}
	for _, o := range all {
		namespaces[o.Namespace] = true
	}
	for namespace := range c.policies.written {
		namespaces[namespace] = true
	}
	for namespace := range namespaces {
		c.queue.Add(policiesItem(namespace))
	}
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
		for namespace := range c.policies.networks[nad] {
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
	all, err := p.source.Policies(ctx, namespace)
	if err != nil {
		return nil, err
	}
	sets := map[string][]*policy.Object{}
	named := map[string]bool{}
	for _, o := range all {
		if o.Policy == nil {
			c.reportPolicy(o, errors.New(o.Refusal))
			continue
		}
		ids := map[string]bool{}
		err := error(nil)
		for _, nad := range o.Policy.Networks {
			named[nad] = true
			id, why := c.networkOfPolicy(ctx, nad)
			if why != nil {
				err = why
				break
			}
			ids[id] = true
		}
		if unreadable, ok := errors.AsType[*sourceFailed](err); ok {
			return nil, unreadable
		}
		if err != nil {
			c.reportPolicy(o, err)
			continue
		}
		for id := range ids {
			sets[id] = append(sets[id], o)
		}
	}
	for nad, namespaces := range p.networks {
		if delete(namespaces, namespace); len(namespaces) == 0 {
			delete(p.networks, nad)
		}
	}
	for nad := range named {
		if p.networks[nad] == nil {
			p.networks[nad] = map[string]bool{}
		}
		p.networks[nad][namespace] = true
	}
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

// sourceFailed says that the source did not answer.
type sourceFailed struct{ error }

func (s *sourceFailed) Unwrap() error { return s.error }

// networkOfPolicy returns the ID of the OVN network that a NAD describes.
func (c *Controller) networkOfPolicy(ctx context.Context, id string) (string, error) {
	nad, err := c.nad(ctx, id)
	switch {
	case err != nil:
		return "", &sourceFailed{err}
	case nad == nil:
		return "", fmt.Errorf("annotation %s: NetworkAttachmentDefinition %s does not exist", policy.ForAnnotation, id)
	}
	network, err := nad.NetworkID()
	if err != nil {
		return "", fmt.Errorf("annotation %s: NetworkAttachmentDefinition %s: %w", policy.ForAnnotation, id, err)
	}
	if network == "" {
		return "", fmt.Errorf("annotation %s: network %s is not one of OVN, and ovn-multinet serves policies on OVN's "+
			"networks only", policy.ForAnnotation, id)
	}
	return network, nil
}

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
		list[i] = o.Policy
	}
	set, refused := policy.NewSet(s.Network, s.Namespace, list)
	p.note(s)
	delete(p.elsewhere, s)
	for _, selector := range set.Selectors() {
		if selector.Anywhere {
			p.elsewhere[s] = true
		}
	}
	for range maxPolicyAttempts {
		wanted, err := c.wantedPolicies(ctx, set)
		if err != nil {
			return err
		}
		changed, err := p.rows.Ensure(ctx, wanted)
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
			}
		}
		for _, o := range objects {
			c.reportPolicy(o, refused[o.Policy])
		}
		return nil
	}
	return fmt.Errorf("ports came and went while the policies were written")
}

// wantedPolicies computes what NB should have of a set: it reads the pods that the set selects, and their ports.
func (c *Controller) wantedPolicies(ctx context.Context, set *policy.Set) (*policies.Wanted, error) {
	p := c.policies
	namespaces := map[string]map[string]string{}
	if p.elsewhere[policies.Scope{Network: set.Network, Namespace: set.Namespace}] {
		var err error
		if namespaces, err = p.source.Namespaces(ctx); err != nil {
			return nil, err
		}
	}
	selectors, err := parseSelectors(set, namespaces)
	if err != nil {
		return nil, err
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
	members, err := p.members(ctx, set.Network, selectors, pods, slices.Sorted(maps.Keys(nodes)))
	if err != nil {
		return nil, err
	}
	return &policies.Wanted{
		Set: set, Here: selectors.here, Members: members, Relabelled: func(present map[string]string) map[string]string {
			return c.changes.relabelled.update(set.Namespace, own, present)
		},
	}, nil
}

// members returns the ports of each selector's group.
func (p *policySets) members(
	ctx context.Context, network string, s *selectorSet, pods map[string]*policy.Pod, nodes []string,
) (map[policy.Selector][]string, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	ports, err := p.ports(ctx, nodes)
	if err != nil {
		return nil, err
	}
	members := map[policy.Selector][]string{}
	for _, port := range ports {
		pod := pods[port.Namespace+"/"+port.Pod]
		if port.Network != network || pod == nil || pod.UID != "" && port.UID != "" && pod.UID != port.UID {
			continue
		}
		for _, one := range s.all {
			if one.matches(pod) {
				members[one.selector] = append(members[one.selector], port.Key)
			}
		}
	}
	return members, nil
}

// reconcileSelected queues the scopes with selectors that may select pods of other namespaces.
func (c *Controller) reconcileSelected() {
	if c.policies == nil {
		return
	}
	for s := range c.policies.elsewhere {
		c.queue.Add(scopeItem(s))
	}
}

// policiesFirst writes the policies for a network that is about to be created: a network takes no ports before NB has
// its policies.
func (c *Controller) policiesFirst(ctx context.Context, network string) error {
	if c.policies == nil {
		return nil
	}
	all, err := c.policies.source.Policies(ctx, "")
	if err != nil {
		return err
	}
	namespaces := map[string]bool{}
	for _, o := range all {
		namespaces[o.Namespace] = true
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
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

// reportPolicy queues the state of a policy: accepted, or refused with the reason.
func (c *Controller) reportPolicy(o *policy.Object, why error) {
	state := &netmodel.NetworkState{Ready: why == nil}
	if why != nil {
		state.Reason = why.Error()
	}
	c.policyStates.set(o, state)
}
