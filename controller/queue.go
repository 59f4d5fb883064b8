package controller

import (
	"log/slog"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Queue collects the items that need a reconcile pass. It accepts changes from the start of the process on. Only the
// leader works them off.
type Queue struct {
	items workqueue.TypedRateLimitingInterface[item]
	log   *slog.Logger
	// next is the operator's configuration that the controller has to apply; nil if the last one is applied.
	next atomic.Pointer[settings]
	// relabelled are the pods whose labels have changed.
	relabelled relabelled
	namespaces changedNamespaces
	// backends are the pods that Services may have to follow.
	backends changedPods
}

// NewQueue makes an empty queue.
func NewQueue(log *slog.Logger) *Queue {
	return &Queue{items: newFairQueue(func(i item) string { return i.tenant }), log: log}
}

// item is the subject of one reconcile pass: a NAD that may have changed, a network, the gateway of a router, or
// another kind from the list below. tenant is the namespace whose NAD requests the pass, operators or nobodys.
type item struct{ kind, id, tenant string }

func nadItem(id string) item { return item{kindNAD, id, namespaceOf(id)} }

func gatewayItem(router string) item { return item{kindGateway, router, operators} }

// everything is the item of the pass over all networks.
var everything = item{kind: kindAll}

// profilesItem is the item of the pass over the security profiles.
var profilesItem = item{kind: kindProfiles, tenant: operators}

const (
	kindNAD     = "nad"
	kindNetwork = "network"
	kindGateway = "gateway"
	kindAll     = "all"
	// kindProfiles is the kind of the operator's security profiles.
	kindProfiles = "security-profiles"
	// These two items make the worker queue further items, because only the worker knows the operator's routers.
	kindNodes  = "nodes"
	kindConfig = "config"
)

// settings are the operator's configuration: the routers by their full names, the grants of physical networks, and the
// security profiles.
type settings struct {
	routers  map[string]*netmodel.Router
	physical netmodel.PhysicalGrants
	profiles netmodel.SecurityProfiles
}

// NADChanged queues the NAD namespace/name, which is new, changed or gone.
func (q *Queue) NADChanged(namespace, name string) { q.items.Add(nadItem(namespace + "/" + name)) }

// NodesChanged queues all gateways, because a node is new or gone or has other labels.
func (q *Queue) NodesChanged() { q.items.Add(item{kind: kindNodes}) }

// NBReplaced queues all gateways and networks, because NB was wiped or restored from a backup.
func (q *Queue) NBReplaced() {
	q.log.Warn("OVN's Northbound database was wiped or restored from a backup: checking all networks")
	q.NodesChanged()
	q.items.Add(everything)
}

// Configure replaces the operator's configuration, and queues all gateways and networks.
func (q *Queue) Configure(
	routers map[string]*netmodel.Router, grants netmodel.PhysicalGrants, profiles netmodel.SecurityProfiles,
) {
	q.next.Store(&settings{routers, grants, profiles})
	q.items.Add(item{kind: kindConfig})
}
