// Package networks owns the kind of the networks of NADs: it elects the configuration of each network among its NADs,
// keeps the network's rows in sync, and writes the states of NADs.
package networks

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/nads"
	"github.com/ovn-multinet/ovn-multinet/controller/paths"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

// Source is the controller's source of NADs.
type Source interface {
	nads.Source
	// SetNetworkState writes the state onto a NAD; an empty state deletes the annotation. It also adds our finalizer to
	// the NAD if withFinalizer is true, and removes the finalizer otherwise. If the NAD is gone, the error is
	// netmodel.ErrNotFound.
	SetNetworkState(ctx context.Context, n *netmodel.NAD, state string, withFinalizer bool) error
	// NetworkEvent records an Event for the NAD. It does not wait for the API server.
	NetworkEvent(n *netmodel.NAD, warning bool, reason, message string)
}

// Dependents are the objects of other kinds that depend on networks and NADs.
type Dependents interface {
	// Misses reports whether an object names a NAD that did not exist when it was last read.
	Misses(nad string) bool
	// NADMoved queues the objects that name a NAD: the NAD describes another network now.
	NADMoved(nad string)
	// NetworkHasUsers queues the objects of namespaces that wait for a network, which accepts their first NADs now.
	NetworkHasUsers(network string, namespaces []string)
	// NetworkAccepted notes the accepted configuration of a network; nil: there is none, or it cannot be read.
	NetworkAccepted(id string, accepted *netmodel.Network, exists bool)
	// BeforeNetwork writes the rows that have to be in NB before a network gets its wanted configuration.
	BeforeNetwork(ctx context.Context, wanted *netmodel.Network, owner string, exists bool) error
	// EnsureNetwork writes what the rows of a network need for the objects on it. If the network has changed, it also
	// queues these objects.
	EnsureNetwork(ctx context.Context, network string, changed bool) error
}

// Config has what the kind needs.
type Config struct {
	Engine     *engine.Engine
	Source     Source
	Networks   *ovnnet.Networks
	NADs       *nads.Index
	Paths      *paths.Paths
	Dependents Dependents
	// Nodes returns all nodes or an error; nil: the source knows no nodes.
	Nodes func(ctx context.Context) ([]netmodel.Node, error)
	// Recompare is called when the nodes can be listed again, and networks were compared without them.
	Recompare func()
	// Physical has the operator's grants of physical networks now.
	Physical func() netmodel.PhysicalGrants
	// KeepOnPrimary are the networks that pods reach by their first interface.
	KeepOnPrimary []netip.Prefix
	// JoiningNamespaces are the namespaces whose NADs may join a network of another namespace by its name.
	JoiningNamespaces []string
	Log               *slog.Logger
}

// Kind keeps the rows of networks in sync. Only the worker uses it.
type Kind struct {
	Config
	// States writes the states of NADs.
	States   *states
	refusals *engine.Refusals
	reserved *reserved
	seen     *lastReads
	refused  map[string]string    // by refused network: the router that it would be on; "": none
	waits    map[engine.Item]bool // networks that were read and wait for the budget of a namespace
	guests   map[string]string    // by network: the router of another namespace that the network is on
}

const (
	kindNAD     = "nad"
	kindNetwork = "network"
	// inUseEvery is the time until the controller first checks again whether a network that is being deleted still has
	// ports. While no port is deleted, the time doubles with each check.
	inUseEvery = time.Second
)

// New makes the kind, and registers its passes.
func New(c Config) *Kind {
	k := &Kind{
		Config: c, States: newStates(c), refusals: c.Engine.Refusals("nad"), reserved: newReserved(c),
		refused: map[string]string{}, waits: map[engine.Item]bool{},
		guests: map[string]string{},
	}
	k.seen = &lastReads{map[string]*lastRead{}, time.Now, k.States.wrote}
	c.Engine.Register(kindNAD, k.reconcileNAD)
	c.Engine.Register(kindNetwork, k.reconcileNetwork)
	return k
}

// Run writes the states of NADs until the end of ctx.
func (k *Kind) Run(ctx context.Context) { k.States.Run(ctx) }

// NADItem is the item of a NAD.
func NADItem(id string) engine.Item { return engine.Of(kindNAD, id) }

// item is the item of a network, whose pass a tenant requests.
func item(id, tenant string) engine.Item {
	return engine.Item{Kind: kindNetwork, Key: id, Tenant: tenant}
}

// Queue queues a network for its owner.
func (k *Kind) Queue(id string) { k.Engine.Add(item(id, tenantOf(id, nil))) }

// QueueFor queues a network for another tenant, who pays for the pass, after some time.
func (k *Kind) QueueFor(id, tenant string, after time.Duration) {
	k.Engine.AddAfter(item(id, tenant), after)
}

// ForgetNodes has the nodes listed again at the next comparison of networks with them.
func (k *Kind) ForgetNodes() { k.reserved.forget() }

// QueueAll queues all networks in NB, all known NADs and their networks.
func (k *Kind) QueueAll(networks map[string]*ovnnet.Listed) {
	for id, n := range networks {
		for _, nad := range n.NADs {
			if k.NADs.Network(nad) == "" {
				k.NADs.Set(nad, id, 0) // age 0: accepted NADs count as the oldest
			}
			k.Engine.Add(NADItem(nad))
		}
		tenant := tenantOf(id, n.NADs)
		if n.Config != nil && !k.Engine.Has(item(id, "")) { // it counts before the networks that are new
			k.Engine.Use(tenant, item(id, ""), n.Config.Cost())
		}
		k.Engine.Add(item(id, tenant))
	}
	for nad, id := range k.NADs.Networks() {
		k.Engine.Add(NADItem(nad))
		if _, there := networks[id]; !there {
			k.Engine.Add(item(id, tenantOf(id, []string{nad})))
		}
	}
	clear(k.waits) // a waiting network may have lost a grant or a guest's place: read it again
}

// tenantOf returns the tenant of a pass over a network that no NAD requests: the namespace in the network's name, or
// the namespace of a NAD that the network accepts, or engine.Nobodys.
func tenantOf(network string, nads []string) string {
	if namespace, _, own := strings.Cut(network, "/"); own {
		return namespace
	}
	if len(nads) > 0 {
		return engine.NamespaceOf(nads[0])
	}
	return engine.Nobodys
}
