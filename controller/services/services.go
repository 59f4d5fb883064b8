// Package services owns the kind of Services on networks: it keeps their rows in sync with the Services, and with the
// pods that they select.
package services

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/nads"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
)

// Source is the controller's source of Services on networks, and of the pods that they select. Each method waits
// until the source has everything, and fails at the end of ctx.
type Source interface {
	// Services returns the Services of a namespace that are ours, in any order.
	Services(ctx context.Context, namespace string) ([]*service.Object, error)
	// Service returns one Service; nil if it does not exist or is not ours.
	Service(ctx context.Context, namespace, name string) (*service.Object, error)
	// ServiceNamespaces returns the namespaces that have such Services.
	ServiceNamespaces(ctx context.Context) ([]string, error)
	pods.Source
	// SetServiceIngress writes the outside addresses into the status of a Service of type LoadBalancer. If the Service is
	// gone, the error is netmodel.ErrNotFound.
	SetServiceIngress(ctx context.Context, o *service.Object, addresses []netip.Addr) error
	// SetServiceState writes the state onto a Service. If the Service is gone, the error is netmodel.ErrNotFound.
	SetServiceState(ctx context.Context, o *service.Object, state string) error
	// SetEndpoints makes the EndpointSlices that we have written for a Service the wanted ones, and deletes the others.
	// The wanted ones have AddressType, Endpoints and Ports, in an order that stays the same: the source adds name,
	// namespace, labels and owner, and writes nothing that is there already. If the Service is gone and there are wanted
	// slices, the error is netmodel.ErrNotFound.
	//
	// The controller calls it after each pass over a Service, without wanted slices if the Service has no endpoints to
	// show. It also calls it for each Service that Changes.Service names and that Service returns nil for, with an Object
	// of Namespace and Name alone and without wanted slices: the Service may have lost its label, also while no
	// controller ran. The source names the Services of all our slices when it starts.
	SetEndpoints(ctx context.Context, o *service.Object, wanted []service.EndpointSlice) error
	// ServiceEvent records an Event for the Service. It does not wait.
	ServiceEvent(o *service.Object, warning bool, reason, message string)
}

// Config has what the kind needs.
type Config struct {
	Engine  *engine.Engine
	Source  Source
	Ports   pods.Ports
	NADs    *nads.Index
	Rows    *services.Services
	Limit   int              // how many Services a namespace may have
	Outside *outside.Outside // the rows of outside addresses
	// Network reads what NB stores of a network.
	Network func(ctx context.Context, id string) (*ovnnet.Stored, error)
	// Router returns the router of a network. why says that it has no outside addresses.
	Router func(ctx context.Context, network string) (r *netmodel.Router, why, err error)
	// Rebalanced is called if other pods of a namespace are backends of outside addresses now. now has all its pods.
	Rebalanced func(namespace string, names []string, now map[string]*netmodel.Pod)
	Log        *slog.Logger
}

// Kind keeps the rows of Services in sync. Only the worker uses it.
type Kind struct {
	Config
	states *states
	// known has what the last pass over each Service found, by "<namespace>/<name>".
	known map[string]*knownService
	// of has the known Services of each namespace.
	of engine.Index[string]
	// written has the networks of which NB may have rows, by Service.
	written engine.Index[string]
	listed  engine.Listed // written has what NB had when this controller began to lead
	outside *outsideRows
	// naming has the Services that name a NAD, by NAD.
	naming engine.Index[string]
	// waiting has the Services that are beyond the limit, by namespace.
	waiting  engine.Index[string]
	flapping *pods.Flapping
}

// knownService is what a pass over a Service has found.
type knownService struct {
	nad      string
	selector labels.Selector
	pods     map[string]bool // the names of the pods that it selects
	// written is a hash of what NB has: the pods, the network and the content of the Service; "": unknown.
	written string
	result  *services.Result
	beyond  int             // backends for which the namespace has no room
	served  map[string]bool // the UIDs of the others
	warning string          // its namespace comes near to a limit
	outside knownOutside
}

// New makes the kind, and registers its passes.
func New(c Config) *Kind {
	k := &Kind{
		Config: c, states: newStates(c), known: map[string]*knownService{}, of: engine.Index[string]{},
		written: engine.Index[string]{}, naming: engine.Index[string]{},
		waiting: engine.Index[string]{}, flapping: pods.NewFlapping(),
		outside: &outsideRows{Outside: c.Outside, log: c.Log, of: engine.Index[outside.Key]{}},
	}
	c.Engine.Register(kindService, k.reconcile)
	return k
}

// Run writes the states of Services until the end of ctx.
func (k *Kind) Run(ctx context.Context) { k.states.Run(ctx) }

// The obstacles of Services.
const (
	obstacleRefused = "refused" // rows in NB are in the way, for example an address that a pod has
	obstacleMissing = "pods"    // a ready pod has no port on the network
	obstacleOutside = "outside" // its outside addresses are refused, or their gateway is not ready
)

const kindService = "service"

// Item returns the item of a Service.
func Item(id string) engine.Item { return engine.Of(kindService, id) }

// QueueAll queues all Services, because another program may have changed NB.
func (k *Kind) QueueAll(ctx context.Context, _ map[string]*ovnnet.Listed) error {
	if err := k.list(ctx); err != nil {
		return err
	}
	for _, known := range k.known {
		known.written = ""
	}
	k.flapping.Forget()
	ids := map[string]bool{}
	for id := range k.written {
		ids[id] = true
	}
	namespaces, err := k.Source.ServiceNamespaces(ctx)
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		all, err := k.Source.Services(ctx, namespace)
		if err != nil {
			return err
		}
		for _, o := range all {
			ids[o.ID()] = true
		}
	}
	if err := k.outside.list(ctx); err != nil {
		return err
	}
	for id := range k.outside.of {
		ids[id] = true
	}
	for id := range ids {
		k.Engine.Add(Item(id))
	}
	return nil
}

// list finds out, once, which rows NB has.
func (k *Kind) list(ctx context.Context) error {
	return k.listed.Once(func() error {
		keys, err := k.Rows.List(ctx)
		for _, key := range keys {
			k.written.Add(key.Service, key.Network)
		}
		return err
	})
}

// Follows reports whether pods of a namespace matter to Services.
func (k *Kind) Follows(namespace string) bool { return len(k.of[namespace]) > 0 }

// PodsChanged queues the Services that select pods which have changed, or selected them before. now has the pods that
// exist.
func (k *Kind) PodsChanged(namespace string, names []string, now map[string]*netmodel.Pod) {
	for id := range k.of[namespace] {
		known := k.known[id]
		if slices.ContainsFunc(names, func(name string) bool {
			pod := now[name]
			return known.pods[name] || pod != nil && known.selector.Matches(labels.Set(pod.Labels))
		}) {
			k.Engine.Add(Item(id))
		}
	}
}

// NADMoved queues the Services that name a NAD: the NAD describes another network now.
func (k *Kind) NADMoved(nad string) {
	for id := range k.naming[nad] {
		k.Engine.Add(Item(id))
	}
}

// NetworkChanged queues the Services on a network whose rows have changed: their load balancers may belong elsewhere,
// or the network has come to be accepted.
func (k *Kind) NetworkChanged(network string) {
	for id, networks := range k.written {
		if networks[network] {
			k.queueService(id)
		}
	}
	for nad, ids := range k.naming {
		if k.NADs.Network(nad) == network {
			for id := range ids {
				k.queueService(id)
			}
		}
	}
}

// EnsureNetwork makes the switches of a network refer to the load balancers of its router, or to its own.
func (k *Kind) EnsureNetwork(ctx context.Context, network string) error {
	if len(k.written) == 0 && len(k.naming) == 0 {
		return nil
	}
	_, err := k.Rows.EnsureNetwork(ctx, network)
	return err
}

// queueService queues a Service whose rows may differ from what its last pass has written.
func (k *Kind) queueService(id string) {
	if known := k.known[id]; known != nil {
		known.written = ""
	}
	k.Engine.Add(Item(id))
}

// reconcile makes NB and the EndpointSlices have what a Service says.
func (k *Kind) reconcile(ctx context.Context, i engine.Item) error {
	if err := k.list(ctx); err != nil {
		return err
	}
	namespace, name, _ := strings.Cut(i.Key, "/")
	return k.Engine.Paced(i, func() error {
		o, err := k.Source.Service(ctx, namespace, name)
		if err != nil {
			return err
		}
		if o == nil {
			return k.end(ctx, &service.Object{Namespace: namespace, Name: name})
		}
		return k.ensure(ctx, o)
	})
}

// end deletes the rows of a Service that is gone, or is not ours any more.
func (k *Kind) end(ctx context.Context, o *service.Object) error {
	id := o.ID()
	networks := slices.Collect(maps.Keys(k.written[id]))
	if err := k.deleteElsewhere(ctx, id, ""); err != nil {
		return err
	}
	if err := k.endOutside(ctx, o.Namespace, id); err != nil {
		return err
	}
	// Of two controllers that end the last two Services at once, neither has seen the group of load balancers empty. No
	// later pass would look for it: without Services, a network's pass does not ask for them.
	for _, network := range networks {
		if _, err := k.Rows.EnsureNetwork(ctx, network); err != nil {
			return err
		}
	}
	k.forget(o)
	k.Engine.Free(Item(id))
	k.Engine.Tried(Item(id))
	k.states.set(o, nil, nil)
	for other := range k.waiting[o.Namespace] {
		k.Engine.Add(Item(other))
	}
	return nil
}

func (k *Kind) forget(o *service.Object) {
	id := o.ID()
	if known := k.known[id]; known != nil {
		k.naming.Remove(known.nad, id)
	}
	delete(k.known, id)
	k.of.Remove(o.Namespace, id)
	k.waiting.Remove(o.Namespace, id)
}

// deleteElsewhere deletes the rows of a Service on all networks but one.
func (k *Kind) deleteElsewhere(ctx context.Context, id, except string) error {
	isNeeded := func(network string) bool { return network == except }
	return k.written.DeleteRows(id, isNeeded, func(network string) error {
		changed, err := k.Rows.Delete(ctx, network, id)
		if err == nil && changed {
			k.Log.Info("service is deleted", "service", id, "network", network)
		}
		return err
	})
}
