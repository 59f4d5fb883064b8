// Package policies owns the kind of network policies: it keeps their rows in sync with the policies, and with the pods
// and namespaces that they select.
package policies

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/nads"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// Source is the controller's source of network policies, and of the pods and namespaces that they select. Each
// method waits until the source has everything, and fails at the end of ctx.
type Source interface {
	// Policies returns the MultiNetworkPolicies of a namespace.
	Policies(ctx context.Context, namespace string) ([]*policy.Object, error)
	// PolicyNamespaces returns the namespaces that have MultiNetworkPolicies.
	PolicyNamespaces(ctx context.Context) ([]string, error)
	// Policy reads a MultiNetworkPolicy with its content. If it is gone, the error is netmodel.ErrNotFound.
	Policy(ctx context.Context, namespace, name string) (*policy.Object, error)
	// ClusterPolicies returns the ClusterNetworkPolicies that are for OVN networks.
	ClusterPolicies(ctx context.Context) ([]*policy.Object, error)
	pods.Source
	// Namespaces returns all namespaces, with their labels.
	Namespaces(ctx context.Context) (map[string]policy.Namespace, error)
	// SetPolicyState writes the state onto a policy. If the policy is gone, the error is netmodel.ErrNotFound.
	SetPolicyState(ctx context.Context, o *policy.Object, state string) error
	// PolicyEvent records an Event for the policy. It does not wait.
	PolicyEvent(o *policy.Object, warning bool, reason, message string)
}

// Config has what the kind needs.
type Config struct {
	Engine   *engine.Engine
	Source   Source
	Ports    pods.Ports
	NADs     *nads.Index
	Rows     *policies.Policies
	Gateways *gateway.Gateways
	Changes  *Changes
	// List reads the networks that NB has.
	List func(ctx context.Context) (map[string]*ovnnet.Listed, error)
	// MayUse reports whether pods of a namespace may use a NAD.
	MayUse func(namespace, nad string) bool
	// PortNetworks has the networks of ports in groups of peers on several networks.
	PortNetworks *pods.Networks
	// DeniedRate is how many lines per second OVN logs on a node about packets that the policies of a namespace deny; 0:
	// none.
	DeniedRate int
	Log        *slog.Logger
}

// Kind keeps the rows of policies in sync. Only the worker uses it.
type Kind struct {
	*known
	reach  *reach
	states *states
}

// known is what passes have found.
type known struct {
	Config
	// sets has the policies that are served, by namespace and network, as of the last pass over the namespace.
	sets map[string]map[string][]*served
	// accepted has the ClusterNetworkPolicies that NB has, by name and network. One that is changed into one that cannot
	// be served stays as it was.
	accepted map[string]map[string]*policy.Policy
	// written has the networks of which NB may have rows, by namespace.
	written engine.Index[string]
	listed  engine.Listed // written has what NB had when this controller began to lead
	// waiting has the networks on which a namespace of policies has no pods yet, by namespace. NB has a row there that
	// keeps its pods out.
	waiting engine.Index[string]
	// judged has the policies, with what is known of their rows, by namespace and ID.
	judged map[string]map[string]*judged
	// computed has a hash of the policies that OVN has last computed, by scope.
	computed map[policies.Scope]string
	// full has policies that the source has shed, as they were read again, by ID.
	full map[string]*reread
	// naming has the namespaces whose policies name a NAD, by NAD, and missing the NADs among them that do not exist.
	naming  engine.Index[string]
	missing map[string]bool
	// elsewhere has the scopes with a selector of namespaces, and what the last pass selected.
	elsewhere map[policies.Scope]*selectorSet
	// further has the selectors of groups that a network needs for the ClusterNetworkPolicies of networks that reach it,
	// and joined has those that NB has, by network.
	further, joined map[string][]policy.Selector
	// networks has the networks that NB may have, for policies for all networks.
	networks map[string]bool
	// rowsOf has the rows of namespaces in NB; nil: they are not read yet.
	rowsOf      map[string]*policies.NamespaceRow
	olderCopies *olderCopies
}

// New makes the kind, and registers its passes.
func New(c Config) *Kind {
	k := &Kind{
		known: &known{
			Config: c, sets: map[string]map[string][]*served{},
			accepted: map[string]map[string]*policy.Policy{}, written: engine.Index[string]{},
			waiting: engine.Index[string]{}, judged: map[string]map[string]*judged{}, full: map[string]*reread{},
			missing: map[string]bool{}, computed: map[policies.Scope]string{}, naming: engine.Index[string]{},
			elsewhere: map[policies.Scope]*selectorSet{}, networks: map[string]bool{},
			olderCopies: newOlderCopies(c.Engine), joined: map[string][]policy.Selector{},
		},
		reach: newReach(c.Gateways), states: newStates(c),
	}
	for kind, pass := range map[string]engine.Pass{
		kindPolicies:      k.reconcileNamespace,
		kindScope:         k.reconcileScope,
		kindPeers:         func(ctx context.Context, i engine.Item) error { return k.reconcilePods(ctx, i, false) },
		kindChangedLabels: func(ctx context.Context, i engine.Item) error { return k.reconcilePods(ctx, i, true) },
		kindPorts:         k.queueNames,
		kindGuests:        k.queueGuests,
		kindNamespaces:    k.queueNamespaces,
	} {
		c.Engine.Register(kind, pass)
	}
	return k
}

// Run writes the states of policies until the end of ctx.
func (k *Kind) Run(ctx context.Context) { k.states.Run(ctx) }

// served is a policy, with the content that NB should have: its own, or while it is refused, what stands for it.
type served struct {
	object *policy.Object
	policy *policy.Policy
}

const (
	kindPolicies = "policies"     // the policies of a namespace; without a namespace, the ClusterNetworkPolicies
	kindScope    = "policy-scope" // the policies of a namespace on one network
	kindPeers    = "peers"        // what selects pods of another namespace, which have got their ports
	// kindChangedLabels has all policies that may select pods of a namespace, because their labels have changed.
	kindChangedLabels = "relabelled"
	// kindNamespaces makes the worker queue the scopes that select a namespace now and did not before, or the other way
	// about.
	kindNamespaces = "namespaces"
	// kindPorts makes the worker queue the policies of a namespace that name ports, because a pod has named ports.
	kindPorts = "ports"
	// kindGuests makes the worker queue the policies of a namespace that wait for a pod on a network of another one.
	kindGuests = "guests"
)

func policiesItem(namespace string) engine.Item { return engine.OfNamespace(kindPolicies, namespace) }

func scopeItem(s policies.Scope) engine.Item {
	return engine.Item{Kind: kindScope, Key: s.Network + "|" + s.Namespace, Tenant: s.Namespace}
}

func scopeOf(i engine.Item) policies.Scope {
	at := strings.LastIndex(i.Key, "|")
	return policies.Scope{Network: i.Key[:at], Namespace: i.Key[at+1:]}
}

// QueueAll queues the policies of all namespaces. networks are those in NB.
func (k *Kind) QueueAll(ctx context.Context, networks map[string]*ovnnet.Listed) error {
	k.reach.forget(networks)
	for id, n := range networks {
		k.NetworkAccepted(id, n.Config, true)
	}
	k.reach.listed = true
	k.rowsOf = nil // another program may have changed NB
	clear(k.networks)
	clear(k.missing)
	k.PortNetworks.Age()
	for network := range networks {
		k.networks[network] = true
	}
	if err := k.list(ctx); err != nil {
		return err
	}
	namespaces, err := k.namespaces(ctx)
	for _, namespace := range namespaces {
		k.Engine.Add(policiesItem(namespace))
	}
	return err
}

// namespaces are the namespaces that have policies, or of whose policies NB may have rows. "" is that of
// ClusterNetworkPolicies.
func (p *known) namespaces(ctx context.Context) ([]string, error) {
	all, err := p.Source.PolicyNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	cluster, err := p.Source.ClusterPolicies(ctx)
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
func (p *known) list(ctx context.Context) error {
	return p.listed.Once(func() error {
		scopes, err := p.Rows.List(ctx)
		for _, s := range scopes {
			p.note(s)
		}
		return err
	})
}

// note notes that NB may have rows of a scope.
func (p *known) note(s policies.Scope) { p.written.Add(s.Namespace, s.Network) }

// NADMoved queues the policies that name a NAD: the NAD describes another network now.
func (k *Kind) NADMoved(nad string) {
	delete(k.missing, nad)
	for namespace := range k.naming[nad] {
		k.Engine.Add(policiesItem(namespace))
	}
}

// Misses reports whether a policy names a NAD that did not exist when it was last read.
func (k *Kind) Misses(nad string) bool { return k.missing[nad] }

// reconcileNamespace reads the policies of a namespace and queues the networks that they are for, or were for.
func (k *Kind) reconcileNamespace(ctx context.Context, i engine.Item) error {
	namespace := i.Key
	networks, err := k.readPolicies(ctx, namespace)
	for network := range networks {
		k.Engine.Add(scopeItem(policies.Scope{Network: network, Namespace: namespace}))
	}
	return err
}

// of returns the policies of a namespace; without a namespace, the ClusterNetworkPolicies.
func (p *known) of(ctx context.Context, namespace string) ([]*policy.Object, error) {
	return policiesOf(ctx, p.Source, namespace)
}

func policiesOf(ctx context.Context, source Source, namespace string) ([]*policy.Object, error) {
	if namespace == "" {
		return source.ClusterPolicies(ctx)
	}
	return source.Policies(ctx, namespace)
}

// noteNamed notes which NADs the policies of a namespace name.
func (p *known) noteNamed(namespace string, named map[string]bool) {
	for nad := range p.naming {
		p.naming.Remove(nad, namespace)
	}
	for nad := range named {
		p.naming.Add(nad, namespace)
	}
}

// acceptedBefore returns what NB has of a ClusterNetworkPolicy that cannot be served any more, by network.
func (p *known) acceptedBefore(ctx context.Context, o *policy.Object) (map[string]*policy.Policy, error) {
	if known, ok := p.accepted[o.ID()]; ok {
		return known, nil
	}
	found := map[string]*policy.Policy{}
	for network := range p.written[o.Namespace] {
		all, err := p.Rows.Accepted(ctx, policies.Scope{Network: network, Namespace: o.Namespace})
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

// noteAccepted notes what NB has of the ClusterNetworkPolicies for a network now.
func (p *known) noteAccepted(s policies.Scope, all []*served) {
	if s.Namespace != "" {
		return
	}
	for _, known := range p.accepted {
		delete(known, s.Network)
	}
	for _, one := range all {
		id := one.object.ID()
		if p.accepted[id] == nil {
			p.accepted[id] = map[string]*policy.Policy{}
		}
		p.accepted[id][s.Network] = one.policy
	}
}

// queueNames queues the policies of a namespace that name ports. Those of other namespaces follow when a pod has got
// its ports.
func (k *Kind) queueNames(_ context.Context, i engine.Item) error {
	namespace := i.Key
	for network, all := range k.sets[namespace] {
		if slices.ContainsFunc(all, func(s *served) bool { return s.policy.HasNames() }) {
			k.Engine.Add(scopeItem(policies.Scope{Network: network, Namespace: namespace}))
		}
	}
	return nil
}
