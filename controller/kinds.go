package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/entries"
	claimkind "github.com/ovn-multinet/ovn-multinet/controller/ipamclaims"
	outsidekind "github.com/ovn-multinet/ovn-multinet/controller/outside"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	policykind "github.com/ovn-multinet/ovn-multinet/controller/policies"
	servicekind "github.com/ovn-multinet/ovn-multinet/controller/services"
	"github.com/ovn-multinet/ovn-multinet/controller/subnetsbehind"
	"github.com/ovn-multinet/ovn-multinet/controller/uplinks"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/ipamclaims"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
)

// kind is one kind of objects beside networks.
type kind interface {
	// QueueAll queues all objects, because another program may have changed NB. networks are those that NB has.
	QueueAll(ctx context.Context, networks map[string]*ovnnet.Listed) error
	// Run writes the states of objects until the end of ctx.
	Run(ctx context.Context)
}

// namingKind is a kind whose objects name NADs.
type namingKind interface {
	kind
	// NADMoved queues the objects that name a NAD: the NAD describes another network now.
	NADMoved(nad string)
}

// podKind is a kind whose objects depend on pods and on the rows of networks.
type podKind interface {
	kind
	// NetworkChanged queues the objects on a network whose rows have changed.
	NetworkChanged(network string)
	// Follows reports whether pods of a namespace matter to objects.
	Follows(namespace string) bool
	// PodsChanged queues the objects that pods of a namespace matter to, which have changed. now has the pods that exist.
	PodsChanged(namespace string, names []string, now map[string]*netmodel.Pod)
}

// kinds are the kinds of objects beside networks. policies, services and outside are nil if the controller does not
// serve them.
type kinds struct {
	*Controller
	all           []kind
	naming        []namingKind
	podKinds      []podKind
	entries       *entries.Kind
	uplinks       *uplinks.Kind
	policies      *policykind.Kind
	services      *servicekind.Kind
	outside       *outsidekind.Kind
	subnetsBehind *subnetsbehind.Kind // nil: no source of pods
	// pods is the source of pods that change; nil if no kind follows pods.
	pods         pods.Source
	portNetworks pods.Networks
}

// newKinds makes the kinds of objects whose sources the configuration has.
func newKinds(config *Config, c *Controller) *kinds {
	k := &kinds{Controller: c}
	if config.Policies != nil {
		k.policies = policykind.New(policykind.Config{
			Engine: c.engine, Source: config.Policies, Ports: config.Ports, NADs: c.nads, Rows: policies.New(c.rows),
			Gateways: c.gateways, Changes: &c.changes.Changes, List: c.networks.List, MayUse: config.mayUse,
			PortNetworks: &k.portNetworks, DeniedRate: config.DeniedRate, Log: c.log,
		})
		k.all, k.naming = append(k.all, k.policies), append(k.naming, k.policies)
	}
	rows := outside.New(c.rows)
	k.uplinks = uplinks.New(uplinks.Config{
		Engine: c.engine, Rows: c.rows, Nodes: c.nodesNow, Told: func() { c.engine.Add(entries.StatusItem) }, Log: c.log,
	})
	k.entries = entries.New(entries.Config{
		Engine: c.engine, Source: config.Entries, File: config.Operator, Rows: rows, HasBridge: c.paths.HasBridge,
		Uplinks: k.uplinks.Of, Log: c.log,
	})
	if config.Services != nil {
		k.pods = config.Services
		k.services = servicekind.New(servicekind.Config{
			Engine: c.engine, Source: config.Services, Ports: config.Ports, NADs: c.nads, Rows: services.New(c.rows),
			Limit: config.MaxServices, Outside: rows, Network: c.networks.Stored, Router: k.router,
			Rebalanced: k.rebalanced, Log: c.log,
		})
		k.all, k.naming = append(k.all, k.services), append(k.naming, k.services)
		k.podKinds = append(k.podKinds, k.services)
	}
	if config.Outside != nil {
		k.pods = config.Outside
		k.outside = outsidekind.New(outsidekind.Config{
			Engine: c.engine, Source: config.Outside, Ports: config.Ports, Rows: rows, Gateways: c.gateways,
			Router: k.router, Balanced: k.isBalanced, Log: c.log,
		})
		k.all, k.podKinds = append(k.all, k.outside), append(k.podKinds, k.outside)
	}
	if config.IPAMClaims != nil {
		k.pods = config.IPAMClaims
		claims := claimkind.New(claimkind.Config{
			Engine: c.engine, Source: config.IPAMClaims, Rows: ipamclaims.New(c.rows), Network: c.networks.Stored,
			Log: c.log,
		})
		k.all, k.podKinds = append(k.all, claims), append(k.podKinds, claims)
	}
	if k.pods != nil {
		k.subnetsBehind = subnetsbehind.New(k.pods, func(network, tenant string, after time.Duration) {
			c.nets.QueueFor(network, tenant, after)
		})
		c.networks.Ready = k.subnetsBehind.Ready
		k.all, k.podKinds = append(k.all, k.subnetsBehind), append(k.podKinds, k.subnetsBehind)
	}
	k.all = append(k.all, k.uplinks, k.entries) // behind the kind that lists the outside addresses
	c.engine.Register(kindBackends, k.reconcilePods)
	return k
}

// isBalanced reports whether a Service with outside addresses selects a pod.
func (k *kinds) isBalanced(ctx context.Context, pod *netmodel.Pod) (bool, error) {
	if k.services == nil {
		return false, nil
	}
	return k.services.Balances(ctx, pod)
}

// rebalanced queues pods that are backends of other outside addresses now.
func (k *kinds) rebalanced(namespace string, names []string, now map[string]*netmodel.Pod) {
	if k.outside != nil {
		k.outside.PodsChanged(namespace, names, now)
	}
}

// mayUse reports whether pods of a namespace may use a NAD.
func (c *Config) mayUse(namespace, nad string) bool {
	of := engine.NamespaceOf(nad)
	return !c.Isolated || of == namespace || slices.Contains(c.GlobalNamespaces, of)
}

// reconcilePods queues the objects that pods of a namespace matter to, which have changed.
func (k *kinds) reconcilePods(ctx context.Context, i engine.Item) error {
	namespace := i.Key
	names := slices.Collect(maps.Keys(k.changes.backends.Take(namespace)))
	if !slices.ContainsFunc(k.podKinds, func(one podKind) bool { return one.Follows(namespace) }) {
		return nil // a namespace without such objects does not pay for the list of its pods
	}
	list, err := k.pods.PolicyPods(ctx, namespace)
	if err != nil {
		k.changes.backends.Add(namespace, names...)
		return err
	}
	now := map[string]*netmodel.Pod{}
	for _, pod := range list {
		now[pod.Name] = pod
	}
	for _, one := range k.podKinds {
		one.PodsChanged(namespace, names, now)
	}
	return nil
}

// NADMoved queues the objects of all kinds that name a NAD.
func (k *kinds) NADMoved(nad string) {
	for _, one := range k.naming {
		one.NADMoved(nad)
	}
}

// router returns the router of a network, as the operator's configuration has it. why says that it has no
// outside addresses.
func (k *kinds) router(ctx context.Context, network string) (r *netmodel.Router, why, err error) {
	stored, err := k.networks.Stored(ctx, network)
	if err != nil {
		return nil, nil, err
	}
	name := stored.Router()
	if r = k.gateways.WithGateway(name); name == "" || r == nil {
		return nil, fmt.Errorf("network %s is on no router with a gateway; outside addresses need one: write the key "+
			"router, and ask the operator for the gateway", network), nil
	}
	return r, nil, nil
}

// Misses reports whether a policy names a NAD that did not exist when it was last read.
func (k *kinds) Misses(nad string) bool { return k.policies != nil && k.policies.Misses(nad) }

// NetworkHasUsers queues the policies of namespaces that wait for a network.
func (k *kinds) NetworkHasUsers(network string, namespaces []string) {
	if k.policies != nil {
		k.policies.NetworkHasUsers(network, namespaces)
	}
}

// NetworkAccepted notes the accepted configuration of a network.
func (k *kinds) NetworkAccepted(id string, accepted *netmodel.Network, exists bool) {
	k.entries.NetworkAccepted(id, accepted, exists)
	if k.subnetsBehind != nil {
		k.subnetsBehind.NetworkAccepted(id, accepted)
	}
	if k.policies != nil {
		k.policies.NetworkAccepted(id, accepted, exists)
	}
}

// BeforeNetwork writes the rows of policies that have to be in NB before a network gets its wanted configuration.
func (k *kinds) BeforeNetwork(ctx context.Context, network *netmodel.Network, owner string, exists bool) error {
	if k.policies == nil {
		return nil
	}
	if err := k.policies.BeforeReach(ctx, network, exists); err != nil || exists {
		return err
	}
	return k.policies.BeforeNetwork(ctx, network.ID(), owner)
}

// EnsureNetwork queues the objects of all kinds on a network that has changed, and writes what the network's own rows
// need for them.
func (k *kinds) EnsureNetwork(ctx context.Context, network string, changed bool) error {
	if changed {
		for _, one := range k.podKinds {
			one.NetworkChanged(network)
		}
	}
	if k.services == nil {
		return nil
	}
	return k.services.EnsureNetwork(ctx, network)
}
