package controller

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	claimkind "github.com/ovn-multinet/ovn-multinet/controller/ipamclaims"
	networkkind "github.com/ovn-multinet/ovn-multinet/controller/networks"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	policykind "github.com/ovn-multinet/ovn-multinet/controller/policies"
	servicekind "github.com/ovn-multinet/ovn-multinet/controller/services"
)

// Queue collects the items that need a reconcile pass. It accepts changes from the start of the process on. Only the
// leader works them off.
type Queue struct {
	policykind.Changes
	log *slog.Logger
	// next is the operator's configuration that the controller has to apply; nil if the last one is applied.
	next atomic.Pointer[configfile.Config]
	// backends are the pods that Services and outside addresses may have to follow.
	backends pods.Changed
}

// NewQueue makes an empty queue.
func NewQueue(log *slog.Logger) *Queue {
	return &Queue{Changes: policykind.Changes{Queue: engine.NewQueue()}, log: log}
}

func gatewayItem(router string) engine.Item {
	return engine.Item{Kind: kindGateway, Key: router, Tenant: engine.Operators}
}

// everything is the item of the pass over all networks.
var everything = engine.Item{Kind: kindAll}

// profilesItem is the item of the pass over the security profiles.
var profilesItem = engine.Item{Kind: kindProfiles, Tenant: engine.Operators}

// newsItem is the item of the announcement to all agents.
var newsItem = engine.Item{Kind: kindNews, Tenant: engine.Operators}

const (
	kindGateway = "gateway"
	kindNews    = "news"
	kindAll     = "all"
	// kindProfiles is the kind of the operator's security profiles.
	kindProfiles = "security-profiles"
	// These two items make the worker queue further items, because only the worker knows the operator's routers.
	kindNodes  = "nodes"
	kindConfig = "config"
	// kindBackends makes the worker queue the objects that pods of a namespace matter to, which have changed.
	kindBackends = "backends"
)

// NADChanged queues the NAD namespace/name, which is new, changed or gone.
func (q *Queue) NADChanged(namespace, name string) {
	q.Queue.Add(networkkind.NADItem(namespace + "/" + name))
}

// NodesChanged queues all gateways, because a node is new or gone or has other labels.
func (q *Queue) NodesChanged() { q.Queue.Add(engine.Item{Kind: kindNodes}) }

// NBReplaced queues all gateways and networks, because NB was wiped or restored from a backup.
func (q *Queue) NBReplaced() {
	q.log.Warn("OVN's Northbound database was wiped or restored from a backup: checking all networks")
	q.NodesChanged()
	q.Queue.Add(everything)
}

// Configure replaces the operator's configuration, and queues all gateways and networks.
func (q *Queue) Configure(now configfile.Config) {
	q.next.Store(&now)
	q.Queue.Add(engine.Item{Kind: kindConfig})
}

// EntriesChanged queues the operator's objects, of which one is new, changed or gone. Those of one command are
// collected, because each change of the configuration is a pass over everything.
func (q *Queue) EntriesChanged() { q.Queue.AddAfter(engine.Item{Kind: kindConfig}, entriesAfter) }

const entriesAfter = 300 * time.Millisecond

// ServiceChanged queues a Service, which is new, changed or gone.
func (q *Queue) ServiceChanged(namespace, name string) {
	q.Queue.Add(servicekind.Item(namespace + "/" + name))
}

// IPAMClaimChanged queues an IPAMClaim, which is new, changed or gone.
func (q *Queue) IPAMClaimChanged(namespace, name string) {
	q.Queue.Add(claimkind.Item(namespace + "/" + name))
}

// BackendChanged queues the Services that select a pod, and its outside addresses: something of the pod has changed
// that these need.
func (q *Queue) BackendChanged(namespace, name string) {
	q.backends.Add(namespace, name)
	q.Queue.Add(engine.OfNamespace(kindBackends, namespace))
}
