package controller

import (
	"log/slog"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Queue collects what the controller has to compare. It takes changes from the start of the process on; only the leader
// works them off.
type Queue struct {
	items workqueue.TypedRateLimitingInterface[item]
	log   *slog.Logger
	// next is the operator's configuration that the controller has not applied yet; nil: none.
	next atomic.Pointer[settings]
}

// NewQueue makes an empty queue.
func NewQueue(log *slog.Logger) *Queue {
	return &Queue{items: newFairQueue(func(i item) string { return i.tenant }), log: log}
}

// item is what has to be compared: a NAD that may have changed, a network, the gateway of a router, or everything. The
// tenant is the namespace whose NAD asks for the comparison.
type item struct{ kind, id, tenant string }

func nadItem(id string) item { return item{kindNAD, id, namespaceOf(id)} }

func gatewayItem(router string) item { return item{kindGateway, router, operators} }

// everything is the item of all networks.
var everything = item{kind: kindAll}

const (
	kindNAD     = "nad"
	kindNetwork = "network"
	kindGateway = "gateway"
	kindAll     = "all"
	// The worker alone knows the operator's routers.
	kindNodes  = "nodes"
	kindConfig = "config"
)

// settings are the operator's configuration: the routers by their full names, and the grants of physical networks.
type settings struct {
	routers  map[string]*netmodel.Router
	physical netmodel.PhysicalGrants
}

// NADChanged says that the NAD namespace/name is new, different or gone.
func (q *Queue) NADChanged(namespace, name string) { q.items.Add(nadItem(namespace + "/" + name)) }

// NodesChanged says that a node is new or gone, or has other labels.
func (q *Queue) NodesChanged() { q.items.Add(item{kind: kindNodes}) }

// NBReplaced says that NB's database was wiped, or that a backup of it was restored. All networks are compared at once.
func (q *Queue) NBReplaced() {
	q.log.Warn("OVN's Northbound database was wiped or restored from a backup: checking all networks")
	q.NodesChanged()
	q.items.Add(everything)
}

// Configure replaces the operator's configuration. All gateways and networks are compared with the new one.
func (q *Queue) Configure(routers map[string]*netmodel.Router, grants netmodel.PhysicalGrants) {
	q.next.Store(&settings{routers, grants})
	q.items.Add(item{kind: kindConfig})
}
