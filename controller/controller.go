package controller

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
)

// Source is the controller's source of NADs and nodes.
type Source interface {
	// NAD returns one NAD. It returns netmodel.ErrNotFound only if the NAD certainly does not exist.
	NAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error)
	// SetNetworkState writes the state onto a NAD; an empty state deletes the annotation. It also adds our finalizer to
	// the NAD if withFinalizer is true, and removes the finalizer otherwise. If the NAD is gone, the error is
	// netmodel.ErrNotFound.
	SetNetworkState(ctx context.Context, n *netmodel.NAD, state string, withFinalizer bool) error
	// NetworkEvent records an Event for the NAD. It does not wait for the API server.
	NetworkEvent(n *netmodel.NAD, warning bool, reason, message string)
	// Nodes returns all nodes or an error, never a part of the nodes. It returns nil if the source knows no nodes.
	Nodes(ctx context.Context) ([]netmodel.Node, error)
}

// Config has everything that a controller needs.
type Config struct {
	NB      *ovndb.DB
	Source  Source
	Queue   *Queue
	Metrics *Metrics
	// Routers, by their full names, Physical and Profiles are the operator's configuration. Queue.Configure replaces them.
	Routers  map[string]*netmodel.Router
	Physical netmodel.PhysicalGrants
	Profiles netmodel.SecurityProfiles
	// JoiningNamespaces are the namespaces whose NADs may join a network of another namespace by its name.
	JoiningNamespaces []string
	// Policies is the source of network policies, and Ports reads the ports of pods for them. Without Policies, the
	// controller serves no policies.
	Policies PolicySource
	Ports    PodPorts
	// Services is the source of Services on networks, if it is not nil. Ports reads the ports of pods for them too.
	Services ServiceSource
	// Outside is the source of pods with outside addresses, if it is not nil. Ports reads their ports too.
	Outside OutsideSource
	// MaxServices is how many Services on networks a namespace may have.
	MaxServices int
	// WidestIPAM is the prefix length of the widest subnet that OVN's own allocator may serve.
	WidestIPAM int
	// DeniedRate is how many lines per second OVN logs on a node about packets that the policies of a namespace deny; 0:
	// none.
	DeniedRate int
	// Leading is called before each write. It returns an error if this controller does not lead.
	Leading func() error
	Log     *slog.Logger
}

// Controller makes the logical switches and routers in NB what the NADs and the operator's configuration describe.
type Controller struct {
	networks *ovnnet.Networks
	gateways *gateway.Gateways
	mayJoin  []string
	physical netmodel.PhysicalGrants
	profiles netmodel.SecurityProfiles
	rows     *nbrows.Store
	log      *slog.Logger
	changes  *Queue
	queue    workqueue.TypedRateLimitingInterface[item]
	source   Source
	leading  func() error
	states   *states
	// Only the worker uses the following fields.
	members *membership          // the network that each NAD described at its last pass
	inUse   map[string]*usage    // by network: networks that wait for the end of their last port
	nodes   map[string]string    // by router: the last log line about the nodes of its gateway
	seen    map[string]*lastRead // by NAD: the NAD as its last pass read it
	refused map[string]*refusal  // by network: refused networks, which are tried again
	pace    *pace                // the budgets of the namespaces
	waits   map[item]bool        // networks that were read and wait for the budget of a namespace
	writes  int                  // the number of transactions that this controller committed
	now     func() time.Time
	guests  map[string]string // by network: the router of another namespace that the network is on
	metrics *Metrics
	// policies is nil if the controller serves no policies.
	policies     *policySets
	policyStates *policyStates
	// services is nil if the controller serves no Services.
	services      *serviceSets
	serviceStates *serviceStates
	// pods is the source of pods that change; nil if neither Services nor outside addresses are served.
	pods PodSource
	// outside is nil if the controller serves no outside addresses.
	outside *outsideUsers
}

const (
	// A failed pass is repeated after retryFirst. The time doubles with each failure, up to retryLast.
	retryFirst = 50 * time.Millisecond
	retryLast  = 10 * time.Second
	// oneChange is the deadline of one pass, and of one write of a state.
	oneChange = 30 * time.Second
	// inUseEvery is the time until the controller first checks again whether a network that is being deleted still has
	// ports. While no port is deleted, the time doubles with each check.
	inUseEvery = time.Second
	// refusedEvery is the time until a refused network is first tried again.
	refusedEvery = 5 * time.Second
	// gatewayEvery is the time between two passes over a gateway. A pass compares the nodes with the label, and their
	// chassis, with the gateway's HA_Chassis_Group.
	gatewayEvery = 2 * time.Second
)

// New makes a controller. Run starts its work.
func New(c Config) *Controller {
	controller := &Controller{
		mayJoin: c.JoiningNamespaces, physical: c.Physical, profiles: c.Profiles, log: c.Log,
		changes: c.Queue, queue: c.Queue.items,
		source: c.Source, leading: c.Leading, states: newStates(c.Source, c.Leading, c.Log),
		members: newMembership(), inUse: map[string]*usage{}, nodes: map[string]string{}, seen: map[string]*lastRead{},
		refused: map[string]*refusal{}, pace: newPace(c.Log), now: time.Now,
		guests: map[string]string{}, waits: map[item]bool{}, metrics: c.Metrics,
	}
	s := nbrows.NewLeadersStore(c.NB, c.Leading, func() { controller.writes++; controller.metrics.transactions.Inc() })
	controller.rows, controller.gateways = s, gateway.New(s, c.Routers)
	if c.Policies != nil {
		controller.policies = newPolicySets(c.Policies, c.Ports, policies.New(s), c.DeniedRate)
		controller.policyStates = newPolicyStates(c.Policies, c.Leading, c.Metrics.refusals("policy"), c.Log)
	}
	if c.Services != nil {
		controller.pods = c.Services
		controller.services = newServiceSets(c.Services, c.Ports, services.New(s), c.MaxServices)
		controller.serviceStates = newServiceStates(c.Services, c.Leading, c.Metrics.refusals("service"), c.Log)
	}
	if c.Outside != nil {
		controller.pods = c.Outside
		controller.outside = newOutsideUsers(c.Outside, c.Ports, outside.New(s), c.Metrics.refusals("pod"))
	}
	controller.networks = ovnnet.New(s, controller.gateways, c.WidestIPAM)
	return controller
}

// Run works off the queue until the end of ctx. It begins with a pass over every gateway and every network in NB,
// because NADs may have changed while no controller led. Call Run only once.
func (c *Controller) Run(ctx context.Context) error {
	c.metrics.leading.Store(&c.leading)
	defer c.metrics.leading.Store(nil)
	c.configure()
	c.queueGateways() // before the networks, because networks have rows on gateways
	c.queue.Add(everything)
	var writing sync.WaitGroup
	writing.Go(func() { c.states.run(ctx) })
	if c.policies != nil {
		writing.Go(func() { c.policyStates.run(ctx) })
	}
	if c.services != nil {
		writing.Go(func() { c.serviceStates.run(ctx) })
	}
	defer writing.Wait()
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	c.log.Info("leading")
	for {
		i, shutdown := c.queue.Get()
		if shutdown || ctx.Err() != nil {
			return nil
		}
		c.log.Debug("look", "kind", i.kind, "id", i.id, "namespace", i.tenant)
		c.reconcile(ctx, i)
		c.queue.Done(i)
	}
}

// reconcileAll queues all networks in NB, all known NADs and their networks, because NADs may have changed while no
// controller led, and other programs may have changed rows. It also deletes unused gateways and routers, and queues the
// next pass over everything.
func (c *Controller) reconcileAll(ctx context.Context) error {
	c.queue.Add(profilesItem)
	unused := c.gateways.DeleteUnused(ctx) // an error must not delay the networks
	if err := c.networks.DeleteUnusedRouters(ctx); err != nil {
		return err
	}
	networks, err := c.networks.List(ctx)
	if err != nil {
		return err
	}
	if err := c.queuePolicies(ctx, networks); err != nil {
		return err
	}
	if err := errors.Join(c.queueServices(ctx), c.queueOutside(ctx)); err != nil {
		return err
	}
	for id, nads := range networks {
		for _, nad := range nads {
			if c.members.of[nad] == "" {
				c.members.set(nad, id, 0) // age 0: accepted NADs count as the oldest
			}
			c.queue.Add(nadItem(nad))
		}
		c.queue.Add(item{kindNetwork, id, tenantOf(id, nads)})
	}
	for nad, id := range c.members.of {
		c.queue.Add(nadItem(nad))
		if _, there := networks[id]; !there {
			c.queue.Add(item{kindNetwork, id, tenantOf(id, []string{nad})})
		}
	}
	c.pace.prune()
	clear(c.waits) // a waiting network may have lost a grant or a guest's place: read it again
	c.queue.AddAfter(everything, nbrows.ReconcileEvery)
	return unused
}

// tenantOf returns the tenant of a pass over a network that no NAD requests: the namespace in the network's name, or
// the namespace of a NAD that the network accepts, or nobodys.
func tenantOf(network string, nads []string) string {
	if namespace, _, own := strings.Cut(network, "/"); own {
		return namespace
	}
	if len(nads) > 0 {
		return namespaceOf(nads[0])
	}
	return nobodys
}

// reconcile makes the pass over one item of the queue, and queues the item again if the pass fails.
func (c *Controller) reconcile(ctx context.Context, i item) {
	ctx, cancel := context.WithTimeout(ctx, oneChange)
	defer cancel()
	var err error
	switch i.kind {
	case kindAll:
		err = c.reconcileAll(ctx)
	case kindGateway:
		err = c.reconcileGateway(ctx, i.id)
	case kindNodes:
		c.queueGateways()
	case kindConfig:
		if c.configure() {
			c.queueGateways()
			c.queue.Add(everything)
		}
	case kindProfiles:
		err = c.reconcileProfiles(ctx)
	case kindNetwork:
		err = c.reconcileNetwork(ctx, i)
	case kindPolicies:
		err = c.reconcilePolicies(ctx, i.id)
	case kindScope:
		err = c.reconcileScope(ctx, i)
	case kindPeers:
		err = c.reconcilePods(ctx, i, false)
	case kindPorts:
		c.queueNames(i.id)
	case kindNamespaces:
		err = c.queueNamespaces(ctx)
	case kindService:
		err = c.reconcileService(ctx, i)
	case kindBackends:
		err = c.queueBackends(ctx, i.id)
	case kindOutside:
		err = c.reconcileOutside(ctx, i)
	case kindRelabelled:
		err = c.reconcilePods(ctx, i, true)
	default:
		err = c.reconcileNAD(ctx, i.id)
	}
	c.metrics.pass(i.kind, err)
	if err == nil {
		c.queue.Forget(i)
		return
	}
	c.log.Warn("not in step yet", i.kind, i.id, "err", err)
	c.queue.AddRateLimited(i)
}

// reconcileNAD reads from the NAD which network it describes. It queues that network and, if the NAD described another
// network before, also that one.
func (c *Controller) reconcileNAD(ctx context.Context, id string) error {
	nad, err := c.nad(ctx, id)
	if err != nil {
		return err
	}
	was, is, created := c.members.of[id], "", int64(0)
	wasBeyond := c.members.beyond(id)
	if nad == nil {
		delete(c.seen, id)
		c.states.forget(id)
	} else {
		if news, wait := c.changed(nad); !news {
			if wait > 0 {
				c.queue.AddAfter(nadItem(id), wait)
			}
			return nil
		}
		is, err = nad.NetworkID()
		kind, _ := nad.Kind()
		created = nad.Created
		switch {
		case err != nil && nad.Deleting:
			// The NAD is deleted: only the network that it described before matters.
			if is = was; is == "" {
				c.releaseNAD(nad, "")
			}
		case err != nil && (was != "" || nad.HasFinalizer || conf.IsOVN(kind)):
			// The NAD does not say which network it describes. The network that it described before stays as it is.
			c.states.set(nad, &netmodel.NetworkState{Reason: err.Error()}, nad.HasFinalizer)
			c.metrics.verdict(id, err)
			return nil
		case is == "" && (nad.HasFinalizer || nad.State != ""):
			c.releaseNAD(nad, was)
		}
	}
	if was != is {
		c.queuePoliciesOf(id)
		c.queueServicesOf(id)
	}
	out := c.members.set(id, is, created)
	if was != "" && !wasBeyond && (was != is || c.members.beyond(id)) {
		c.queue.Add(item{kindNetwork, was, namespaceOf(id)})
	}
	if out != "" && out != id { // the other NAD did not change, but needs a new state: do not skip its pass
		delete(c.seen, out)
		c.queue.Add(nadItem(out))
	}
	switch {
	case is == "":
		c.metrics.verdict(id, nil)
	case !c.members.beyond(id):
		c.queue.Add(item{kindNetwork, is, namespaceOf(id)})
	case nad.Deleting: // passes over the network do not read this NAD, so none of them releases it
		c.members.set(id, "", 0)
		c.releaseNAD(nad, is)
	default:
		c.report(&member{nad: *nad, err: tooMany(id, is)})
	}
	return nil
}

// nad reads a NAD from the source; nil if it does not exist.
func (c *Controller) nad(ctx context.Context, id string) (*netmodel.NAD, error) {
	namespace, name, _ := strings.Cut(id, "/")
	nad, err := c.source.NAD(ctx, namespace, name)
	if errors.Is(err, netmodel.ErrNotFound) {
		return nil, nil
	}
	return nad, err
}

// reconcileNetwork first withdraws what the network may no longer have, and then applies its NADs. Only the second step
// waits for the budget of the tenant. While a network waits, edits of its NADs do not make the controller read the
// network again. Every event that may withdraw something from the network must delete its entry in waits.
func (c *Controller) reconcileNetwork(ctx context.Context, i item) error {
	if wait := c.pace.wait(i.tenant); wait > 0 && c.waits[i] {
		c.queue.AddAfter(i, wait)
		return nil
	}
	before := c.writes
	standing, err := c.withdrawForbidden(ctx, i)
	if err == nil {
		err = c.servicesOfNetwork(ctx, i.id, c.writes > before)
	}
	if err != nil {
		return err
	}
	if wait := c.pace.wait(i.tenant); wait > 0 {
		c.waits[i] = true
		c.queue.AddAfter(i, wait)
		return nil
	}
	delete(c.waits, i)
	before = c.writes
	if err = c.applyNADs(ctx, i, standing); c.writes > before {
		c.pace.wrote(i.tenant)
		err = errors.Join(err, c.servicesOfNetwork(ctx, i.id, true))
	}
	return err
}

// withdrawForbidden reads the network from NB. It withdraws the NADs that have no grant, and detaches the network from
// a router that it may not use. standing is what NB stores after that.
func (c *Controller) withdrawForbidden(ctx context.Context, i item) (standing *ovnnet.Stored, err error) {
	if standing, err = c.networks.Stored(ctx, i.id); err != nil {
		return nil, err
	}
	if err := c.withdrawUngranted(ctx, i.id, standing); err != nil {
		return nil, err
	}
	c.noteGuest(i.id, standing.Config)
	return standing, c.detachForbidden(ctx, i, standing)
}
