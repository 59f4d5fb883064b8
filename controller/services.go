package controller

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
	"github.com/ovn-multinet/ovn-multinet/policy"
	"github.com/ovn-multinet/ovn-multinet/service"
)

// ServiceSource is the controller's source of Services on networks, and of the pods that they select. Each method waits
// until the source has everything, and fails at the end of ctx.
type ServiceSource interface {
	// Services returns the Services of a namespace that are ours, in any order.
	Services(ctx context.Context, namespace string) ([]*service.Object, error)
	// Service returns one Service; nil if it does not exist or is not ours.
	Service(ctx context.Context, namespace, name string) (*service.Object, error)
	// ServiceNamespaces returns the namespaces that have such Services.
	ServiceNamespaces(ctx context.Context) ([]string, error)
	PodSource
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

// serviceSets keeps the rows of Services in step. Only the worker uses it.
type serviceSets struct {
	source ServiceSource
	ports  PodPorts
	rows   *services.Services
	limit  int // how many Services a namespace may have
	// known has what the last pass over each Service found, by "<namespace>/<name>".
	known map[string]*knownService
	// of has the known Services of each namespace.
	of map[string]map[string]bool
	// written has the networks of which NB may have rows, by Service.
	written map[string]map[string]bool
	listed  bool // written has what NB had when this controller began to lead
	// naming has the Services that name a NAD, by NAD.
	naming map[string]map[string]bool
	// waiting has the Services that are beyond the limit, by namespace.
	waiting map[string]map[string]bool
}

// knownService is what a pass over a Service has found.
type knownService struct {
	nad      string
	selector labels.Selector
	pods     map[string]bool // the names of the pods that it selects
	// missing counts the passes that found a ready pod without a port on the network.
	missing int
	// written tells what NB has: the pods, the network and the content of the Service; "": unknown.
	written string
	result  *services.Result
	outside knownOutside
}

func newServiceSets(source ServiceSource, ports PodPorts, rows *services.Services, limit int) *serviceSets {
	return &serviceSets{
		source: source, ports: ports, rows: rows, limit: limit, known: map[string]*knownService{},
		of: map[string]map[string]bool{}, written: map[string]map[string]bool{}, naming: map[string]map[string]bool{},
		waiting: map[string]map[string]bool{},
	}
}

const (
	kindService = "service"
	// kindBackends makes the worker queue the Services that select pods of a namespace which have changed.
	kindBackends = "backends"
)

func serviceItem(id string) item { return item{kindService, id, namespaceOf(id)} }

// ServiceChanged queues a Service, which is new, changed or gone.
func (q *Queue) ServiceChanged(namespace, name string) {
	q.items.Add(serviceItem(namespace + "/" + name))
}

// BackendChanged queues the Services that select a pod: something of the pod has changed that Services need.
func (q *Queue) BackendChanged(namespace, name string) {
	q.backends.add(namespace, name)
	q.items.Add(item{kindBackends, namespace, namespace})
}

// changedPods collects the names of pods that have changed, by namespace.
type changedPods struct {
	mu   sync.Mutex
	pods map[string]map[string]bool
}

func (c *changedPods) add(namespace string, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods == nil {
		c.pods = map[string]map[string]bool{}
	}
	for _, name := range names {
		addTo(c.pods, namespace, name)
	}
}

// take returns the pods of a namespace and forgets them.
func (c *changedPods) take(namespace string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := slices.Collect(maps.Keys(c.pods[namespace]))
	delete(c.pods, namespace)
	return names
}

// addTo adds a member to a set of a map of sets.
func addTo(sets map[string]map[string]bool, key, member string) {
	if sets[key] == nil {
		sets[key] = map[string]bool{}
	}
	sets[key][member] = true
}

// removeFrom removes a member from a set of a map of sets.
func removeFrom(sets map[string]map[string]bool, key, member string) {
	if delete(sets[key], member); len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// queueServices queues all Services, because another program may have changed NB.
func (c *Controller) queueServices(ctx context.Context) error {
	s := c.services
	if s == nil {
		return nil
	}
	if err := s.list(ctx); err != nil {
		return err
	}
	for _, known := range s.known {
		known.written = ""
	}
	ids := map[string]bool{}
	for id := range s.written {
		ids[id] = true
	}
	namespaces, err := s.source.ServiceNamespaces(ctx)
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		all, err := s.source.Services(ctx, namespace)
		if err != nil {
			return err
		}
		for _, o := range all {
			ids[o.ID()] = true
		}
	}
	if c.outside != nil {
		if err := c.outside.list(ctx); err != nil {
			return err
		}
		for id := range c.outside.ofService {
			ids[id] = true
		}
	}
	for id := range ids {
		c.queue.Add(serviceItem(id))
	}
	return nil
}

// list finds out, once, which rows NB has.
func (s *serviceSets) list(ctx context.Context) error {
	if s.listed {
		return nil
	}
	keys, err := s.rows.List(ctx)
	if err != nil {
		return err
	}
	for _, key := range keys {
		addTo(s.written, key.Service, key.Network)
	}
	s.listed = true
	return nil
}

// queueBackends queues the Services that select pods which have changed, or selected them before. It also queues those
// of the pods that have outside addresses.
func (c *Controller) queueBackends(ctx context.Context, namespace string) error {
	names := c.changes.backends.take(namespace)
	if c.pods == nil || !c.hasPools() && (c.services == nil || len(c.services.of[namespace]) == 0) {
		return nil // a namespace without Services does not pay for the list of its pods
	}
	pods, err := c.pods.PolicyPods(ctx, namespace)
	if err != nil {
		c.changes.backends.add(namespace, names...)
		return err
	}
	now := map[string]*policy.Pod{}
	for _, pod := range pods {
		now[pod.Name] = pod
	}
	c.queueOutsideOf(namespace, names, now)
	s := c.services
	if s == nil {
		return nil
	}
	for id := range s.of[namespace] {
		known := s.known[id]
		if slices.ContainsFunc(names, func(name string) bool {
			pod := now[name]
			return known.pods[name] || pod != nil && known.selector.Matches(labels.Set(pod.Labels))
		}) {
			c.queue.Add(serviceItem(id))
		}
	}
	return nil
}

// queueServicesOf queues the Services that name a NAD: the NAD describes another network now.
func (c *Controller) queueServicesOf(nad string) {
	if c.services != nil {
		for id := range c.services.naming[nad] {
			c.queue.Add(serviceItem(id))
		}
	}
}

// servicesOfNetwork makes the switches of a network refer to the load balancers of its router, or to its own. If the
// network has changed, it also queues the Services on it: their load balancers may belong elsewhere, or the network has
// come to be accepted.
func (c *Controller) servicesOfNetwork(ctx context.Context, network string, changed bool) error {
	if changed {
		c.outsideOfNetwork(network)
	}
	s := c.services
	if s == nil || len(s.written) == 0 && len(s.naming) == 0 {
		return nil
	}
	if changed {
		for id, networks := range s.written {
			if networks[network] {
				c.queueService(id)
			}
		}
		for nad, ids := range s.naming {
			if c.members.of[nad] == network {
				for id := range ids {
					c.queueService(id)
				}
			}
		}
	}
	_, err := s.rows.EnsureNetwork(ctx, network)
	return err
}

// queueService queues a Service whose rows may differ from what its last pass has written.
func (c *Controller) queueService(id string) {
	if known := c.services.known[id]; known != nil {
		known.written = ""
	}
	c.queue.Add(serviceItem(id))
}

// reconcileService makes NB and the EndpointSlices have what a Service says.
func (c *Controller) reconcileService(ctx context.Context, i item) error {
	s := c.services
	if s == nil {
		return nil
	}
	if err := s.list(ctx); err != nil {
		return err
	}
	namespace, name, _ := strings.Cut(i.id, "/")
	return c.paced(i, func() error {
		o, err := s.source.Service(ctx, namespace, name)
		if err != nil {
			return err
		}
		if o == nil {
			return c.endService(ctx, &service.Object{Namespace: namespace, Name: name})
		}
		return c.ensureService(ctx, o)
	})
}

// endService deletes the rows of a Service that is gone, or is not ours any more.
func (c *Controller) endService(ctx context.Context, o *service.Object) error {
	s, id := c.services, o.ID()
	networks := slices.Collect(maps.Keys(s.written[id]))
	if err := c.deleteServiceElsewhere(ctx, id, ""); err != nil {
		return err
	}
	if err := c.endServiceOutside(ctx, o.Namespace, id); err != nil {
		return err
	}
	// Of two controllers that end the last two Services at once, neither has seen the group of load balancers empty. No
	// later pass would look for it: without Services, a network's pass does not ask for them.
	for _, network := range networks {
		if _, err := s.rows.EnsureNetwork(ctx, network); err != nil {
			return err
		}
	}
	s.forget(o)
	c.serviceStates.set(o, nil, nil)
	for other := range s.waiting[o.Namespace] {
		c.queue.Add(serviceItem(other))
	}
	return nil
}

func (s *serviceSets) forget(o *service.Object) {
	id := o.ID()
	if known := s.known[id]; known != nil {
		removeFrom(s.naming, known.nad, id)
	}
	delete(s.known, id)
	removeFrom(s.of, o.Namespace, id)
	removeFrom(s.waiting, o.Namespace, id)
}

// deleteServiceElsewhere deletes the rows of a Service on all networks but one.
func (c *Controller) deleteServiceElsewhere(ctx context.Context, id, except string) error {
	s := c.services
	for network := range maps.Clone(s.written[id]) {
		if network == except {
			continue
		}
		changed, err := s.rows.Delete(ctx, network, id)
		if err != nil {
			return err
		}
		if changed {
			c.log.Info("service is deleted", "service", id, "network", network)
		}
		removeFrom(s.written, id, network)
	}
	return nil
}
