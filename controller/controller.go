package controller

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
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
)

// Source is where the controller finds the NADs.
type Source interface {
	// NAD returns one; netmodel.ErrNotFound when there is none for certain.
	NAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error)
	// SetNetworkState writes the state of a NAD's network ("": takes it away) and puts our finalizer on the NAD or
	// takes it off. netmodel.ErrNotFound says that the NAD is gone.
	SetNetworkState(ctx context.Context, n *netmodel.NAD, state string, held bool) error
	// NetworkEvent tells the NAD's owner; it does not wait.
	NetworkEvent(n *netmodel.NAD, warning bool, reason, message string)
	// Nodes lists all nodes, or fails; nil: the source says nothing of nodes.
	Nodes(ctx context.Context) ([]netmodel.Node, error)
}

// Config is all that a controller works with.
type Config struct {
	NB      *ovndb.DB
	Source  Source
	Queue   *Queue
	Metrics *Metrics
	// Routers (by their full names) and Physical are the operator's configuration. Queue.Configure replaces them.
	Routers  map[string]*netmodel.Router
	Physical netmodel.PhysicalGrants
	// JoiningNamespaces are the namespaces whose NADs may join a network of another namespace by its name.
	JoiningNamespaces []string
	// WidestIPAM is the prefix length of the widest subnet that OVN's own allocator serves.
	WidestIPAM int
	// Leading is called before each write. It returns an error if this controller does not lead.
	Leading func() error
	Log     *slog.Logger
}

// Controller keeps logical switches and routers in step with the NADs.
type Controller struct {
	networks *ovnnet.Networks
	gateways *gateway.Gateways
	mayJoin  []string
	physical netmodel.PhysicalGrants
	log      *slog.Logger
	changes  *Queue
	queue    workqueue.TypedRateLimitingInterface[item]
	source   Source
	leading  func() error
	states   *states
	// members says which network each NAD was last of, inUse why a network that is being deleted still exists, nodes
	// what was last logged of each gateway's nodes, seen how each NAD was last read, refused which networks are tried
	// again, and pace how often each namespace's networks may change. Only the worker uses them.
	members *membership
	inUse   map[string]*usage
	nodes   map[string]string
	seen    map[string]*lastRead
	refused map[string]*refusal
	pace    *pace
	waits   map[item]bool // the networks that were read and wait for the budget of a tenant
	writes  int           // committed to the database
	now     func() time.Time
	guests  map[string]string // the networks on a router of another namespace, with that router
	metrics *Metrics
}

const (
	// What could not be brought in step is tried again after this time at first, and this at the latest.
	retryFirst = 50 * time.Millisecond
	retryLast  = 10 * time.Second
	// oneChange bounds the work on one network.
	oneChange = 30 * time.Second
	// A network that is being deleted is looked at for the end of its last port after this time at first, and when no port
	// goes, this at the latest.
	inUseEvery = time.Second
	// refusedEvery is the time after which a network is first tried again that something in the database is in the way of.
	refusedEvery = 5 * time.Second
	// gatewayEvery is how often a gateway is looked at: which of its nodes has it, and whether they are still those.
	gatewayEvery = 2 * time.Second
)

// NewController makes a controller. Run starts its work.
func New(c Config) *Controller {
	controller := &Controller{
		mayJoin: c.JoiningNamespaces, physical: c.Physical, log: c.Log, changes: c.Queue, queue: c.Queue.items,
		source: c.Source, leading: c.Leading, states: newStates(c.Source, c.Leading, c.Log),
		members: newMembership(), inUse: map[string]*usage{}, nodes: map[string]string{}, seen: map[string]*lastRead{},
		refused: map[string]*refusal{}, pace: newPace(c.Log), now: time.Now,
		guests: map[string]string{}, waits: map[item]bool{}, metrics: c.Metrics,
	}
	s := nbrows.NewLeadersStore(c.NB, c.Leading, func() { controller.writes++; controller.metrics.transactions.Inc() })
	controller.gateways = gateway.New(s, c.Routers)
	controller.networks = ovnnet.New(s, controller.gateways, c.WidestIPAM)
	return controller
}

// Run works off the queue until the end of ctx. At its start it also compares every network in the database, for NADs
// that changed while no controller ran. A controller runs once.
func (c *Controller) Run(ctx context.Context) error {
	c.metrics.leading.Store(&c.leading)
	defer c.metrics.leading.Store(nil)
	c.configure()
	c.queueGateways() // first, for networks have rows in them
	c.queue.Add(everything)
	var writing sync.WaitGroup
	writing.Go(func() { c.states.run(ctx) })
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

// lookAtAll puts everything into the queue that is in the database, and itself for a while later: NADs may have changed
// while no controller ran, and others may have changed rows.
func (c *Controller) reconcileAll(ctx context.Context) error {
	unused := c.gateways.DeleteUnused(ctx) // what holds one up holds up no network
	if err := c.networks.DeleteUnusedRouters(ctx); err != nil {
		return err
	}
	networks, err := c.networks.List(ctx)
	if err != nil {
		return err
	}
	for id, nads := range networks {
		for _, nad := range nads {
			if c.members.of[nad] == "" {
				c.members.set(nad, id, 0) // it comes before those that are not accepted
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
	clear(c.waits) // what a network may have may be less than before
	c.queue.AddAfter(everything, nbrows.ReconcileEvery)
	return unused
}

// tenantOf is the namespace that a look at a network is for when no NAD asks for it: its own, or that of a NAD whose ports
// the network takes.
func tenantOf(network string, nads []string) string {
	if namespace, _, own := strings.Cut(network, "/"); own {
		return namespace
	}
	if len(nads) > 0 {
		return namespaceOf(nads[0])
	}
	return nobodys
}

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
	case kindNetwork:
		err = c.reconcileNetwork(ctx, i)
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

// syncNAD finds out which network a NAD is of, and has that one looked at, and the one that it was of before.
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
			// Which network it was is all that counts now.
			if is = was; is == "" {
				c.releaseNAD(nad, "")
			}
		case err != nil && (was != "" || nad.HasFinalizer || conf.IsOVN(kind)):
			// Which network it is cannot be told; one that it was stays as it is.
			c.states.set(nad, &netmodel.NetworkState{Reason: err.Error()}, nad.HasFinalizer)
			c.metrics.verdict(id, err)
			return nil
		case is == "" && (nad.HasFinalizer || nad.State != ""):
			c.releaseNAD(nad, was)
		}
	}
	out := c.members.set(id, is, created)
	if was != "" && !wasBeyond && (was != is || c.members.beyond(id)) {
		c.queue.Add(item{kindNetwork, was, namespaceOf(id)})
	}
	if out != "" && out != id { // it has to be told, which is no news of it
		delete(c.seen, out)
		c.queue.Add(nadItem(out))
	}
	switch {
	case is == "":
		c.metrics.verdict(id, nil)
	case !c.members.beyond(id):
		c.queue.Add(item{kindNetwork, is, namespaceOf(id)})
	case nad.Deleting: // no look at the network lets it go
		c.members.set(id, "", 0)
		c.releaseNAD(nad, is)
	default:
		c.report(&member{nad: *nad, err: tooMany(id, is)})
	}
	return nil
}

// nad returns a NAD, nil when there is none.
func (c *Controller) nad(ctx context.Context, id string) (*netmodel.NAD, error) {
	namespace, name, _ := strings.Cut(id, "/")
	nad, err := c.source.NAD(ctx, namespace, name)
	if errors.Is(err, netmodel.ErrNotFound) {
		return nil, nil
	}
	return nad, err
}

// lookAt withdraws what a network may not have any more, and then brings the network in step with its NADs. Only the
// latter waits for the tenant's budget. A network that waits is not read again until then, however often its NADs are
// edited: whatever may withdraw something, deletes the entry in waits.
func (c *Controller) reconcileNetwork(ctx context.Context, i item) error {
	if wait := c.pace.wait(i.tenant); wait > 0 && c.waits[i] {
		c.queue.AddAfter(i, wait)
		return nil
	}
	standing, err := c.withdrawForbidden(ctx, i)
	if err != nil {
		return err
	}
	if wait := c.pace.wait(i.tenant); wait > 0 {
		c.waits[i] = true
		c.queue.AddAfter(i, wait)
		return nil
	}
	delete(c.waits, i)
	before := c.writes
	if err = c.applyNADs(ctx, i, standing); c.writes > before {
		c.pace.wrote(i.tenant)
	}
	return err
}

// withdraw reads what NB says of a network, and takes from the network what it may not have any more. standing is what is
// left.
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

// syncNetwork brings one network in step with its NADs. standing is what NB says of the network.
func (c *Controller) applyNADs(ctx context.Context, i item, standing *ovnnet.Stored) error {
	id := i.id
	standing.SettleOwner(c.mayJoinOther)
	members, leaving, err := c.membersOf(ctx, id, standing)
	if err != nil {
		return err
	}
	// One that is invalid holds a network only if the network takes its ports.
	held := slices.ContainsFunc(members, func(m *member) bool {
		return c.mayDescribe(standing, id, &m.nad) && (m.network != nil || slices.Contains(standing.NADs, m.nad.ID()))
	})
	if !held {
		return c.endNetwork(ctx, i, standing, members, leaving)
	}
	delete(c.inUse, id)
	for _, m := range leaving { // the others hold the network
		c.releaseNAD(&m.nad, id)
	}
	inForce := standing.Config
	if network := elect(members, standing.Owner, inForce, standing.NADs, c.mayJoinOther); network != nil {
		// A NAD that was accepted and is spoilt or changed since keeps its pods on what stays in force.
		kept := func(m *member) bool {
			return inForce != nil && inForce.Revision() == network.Revision() && !m.barred && slices.Contains(standing.NADs, m.nad.ID())
		}
		if err := c.ensure(ctx, i, network, standing, members, kept); err != nil {
			return err
		}
	}
	for _, m := range members {
		c.report(m)
	}
	return nil
}

func (c *Controller) mayJoinOther(namespace string) bool {
	return slices.Contains(c.mayJoin, namespace)
}

// mayHave tells whether a network may be what a NAD says, and goes when the NAD does. A shared network that is there is
// its owner's, and of those that join it.
func (c *Controller) mayDescribe(s *ovnnet.Stored, id string, nad *netmodel.NAD) bool {
	return !ovnnet.IsShared(id) || !s.Exists || s.Owner != "" && (nad.Namespace == s.Owner || c.mayJoinOther(nad.Namespace))
}

// membersOf returns the NADs of a network, and those of them that are being deleted. NADs that the network takes ports of
// are asked for even if nobody has told of them yet.
func (c *Controller) membersOf(ctx context.Context, id string, s *ovnnet.Stored) (members, leaving []*member, err error) {
	nads, err := c.nadsOf(ctx, id, s.NADs)
	if err != nil {
		return nil, nil, err
	}
	for _, nad := range nads {
		m := &member{nad: *nad}
		if nad.Deleting {
			leaving = append(leaving, m)
			continue
		}
		if is, err := nad.NetworkID(); err == nil && is != id {
			continue // it is another network's since just now, which comes next
		}
		if m.network, m.err = nad.Network(); m.network != nil {
			if m.err = c.physical.Check(nad.Namespace, m.network); m.err != nil {
				m.network = nil
			}
		}
		members = append(members, m)
	}
	return members, leaving, nil
}

// ensure makes a network's rows; standing is what is there.
func (c *Controller) ensure(ctx context.Context, i item, network *netmodel.Network, standing *ovnnet.Stored, members []*member, kept func(*member) bool) error {
	owner := standing.Owner
	var nads []string
	for _, m := range members {
		if m.err == nil || kept(m) {
			nads = append(nads, m.nad.ID())
		}
	}
	if owner == "" && len(nads) > 0 {
		owner, _, _ = strings.Cut(nads[0], "/")
	}
	changed, err := c.networks.EnsureOwned(ctx, network, owner, nads)
	if changed {
		c.log.Info("network is in step", "network", network.ID())
	}
	refused, ok := errors.AsType[*nbrows.Refused](err)
	if changed || err != nil && !ok { // an error may hide a commit
		c.noteGuest(i.id, network)
		c.routerChanged(i, standing.Router()) // where it was, it may be in the way no more
		c.routerChanged(i, network.RouterName())
	}
	if !ok {
		if err == nil {
			delete(c.refused, i.id)
		}
		return err
	}
	c.refuse(i.id, cmp.Or(owner, tenantOf(i.id, nil)), network)
	for _, m := range members {
		if m.err == nil {
			m.err = refused
		}
	}
	return nil
}

// report writes the state of a NAD's network.
func (c *Controller) report(m *member) {
	state := &netmodel.NetworkState{Ready: m.err == nil}
	if m.err != nil {
		_, state.Reason, _ = conf.Describe(m.err)
	}
	c.states.set(&m.nad, state, true)
	c.metrics.verdict(m.nad.ID(), m.err)
}

// nadsOf reads a network's NADs, also those that the network takes ports of and nobody has told of yet.
func (c *Controller) nadsOf(ctx context.Context, network string, accepted []string) ([]*netmodel.NAD, error) {
	ids := c.members.nadsOf(network)
	for _, id := range accepted {
		if c.members.of[id] == "" {
			ids = append(ids, id)
		}
	}
	var nads []*netmodel.NAD
	for _, id := range ids {
		nad, err := c.nad(ctx, id)
		if err != nil {
			return nil, err
		}
		if nad != nil {
			nads = append(nads, nad)
		}
	}
	return nads, nil
}
