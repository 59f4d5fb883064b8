package ovnnet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
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

// Controller keeps logical switches and routers in step with the NADs.
type Controller struct {
	networks *Networks
	mayJoin  []string
	physical netmodel.PhysicalGrants
	log      *slog.Logger
	queue    workqueue.TypedRateLimitingInterface[item]
	source   Source
	states   *states
	// members says which network each NAD was last of, inUse why a network that is being deleted is still there, nodes
	// what was last said of each gateway's, seen how each NAD was last found, refused which networks are tried again,
	// and pace how often each namespace's may change. Only the worker touches them.
	members *membership
	inUse   map[string]*usage
	nodes   map[string]string
	seen    map[string]*seen
	refused map[string]*refusal
	pace    *pace
	waits   map[item]bool // the networks that were read and wait for the budget of a tenant
	writes  int           // committed to the database
	now     func() time.Time
	guests  map[string]string // the networks on a router of another namespace, with that router
	metrics *metrics
	// next is the operator's configuration that the worker has not taken over yet; nil: none.
	next atomic.Pointer[settings]
}

// item is what is to be looked at: a NAD that may have changed, a network, the gateway of a router, or all there is. The
// tenant, a namespace, is the one whose NAD asks for the look.
type item struct{ kind, id, tenant string }

func nadItem(id string) item { return item{kindNAD, id, namespaceOf(id)} }

func gatewayItem(router string) item { return item{kindGateway, router, operators} }

const (
	kindNAD     = "nad"
	kindNetwork = "network"
	kindGateway = "gateway"
	kindAll     = "all"
	// The worker alone knows the routers of the operator.
	kindNodes  = "nodes"
	kindConfig = "config"
)

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
	// lookAgain is how often every network is compared with the database, for what others changed there.
	lookAgain = 5 * time.Minute
)

// NewController makes a controller; Changed may be called at once. mayJoin lists the namespaces whose NADs may join a
// network of another namespace by its name.
func NewController(networks *Networks, mayJoin []string, log *slog.Logger) *Controller {
	return &Controller{
		networks: networks, mayJoin: mayJoin, log: log, queue: newFairQueue(func(i item) string { return i.tenant }),
		members: newMembership(), inUse: map[string]*usage{}, nodes: map[string]string{}, seen: map[string]*seen{},
		refused: map[string]*refusal{}, pace: newPace(log), states: newStates(log), now: time.Now,
		guests: map[string]string{}, waits: map[item]bool{}, metrics: newMetrics(),
	}
}

// Changed says that the NAD namespace/name is new, different or gone.
func (c *Controller) Changed(namespace, name string) {
	c.queue.Add(nadItem(namespace + "/" + name))
}

// NBReplaced says that NB's database was wiped, or that a backup of it was restored: all networks are compared at once.
func (c *Controller) NBReplaced() {
	c.log.Warn("OVN's Northbound database was wiped or restored from a backup: checking all networks")
	c.NodesChanged()
	c.queue.Add(everything)
}

// Run works off the changes until the end of ctx. leading is asked before each write. At its start it also looks at
// every network that is there, for NADs that changed while no controller ran. A controller runs once.
func (c *Controller) Run(ctx context.Context, source Source, leading func() error) error {
	c.source, c.networks.mayWrite = source, leading
	c.networks.written = func() { c.writes++; c.metrics.transactions.Inc() }
	c.metrics.leading.Store(&leading)
	defer c.metrics.leading.Store(nil)
	c.states.source, c.states.leading = source, leading
	c.configure()
	c.lookAtGateways() // first, for networks have rows in them
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
		c.work(ctx, i)
		c.queue.Done(i)
	}
}

// everything stands for all networks in the queue.
var everything = item{kind: kindAll}

// lookAtAll puts everything into the queue that is in the database, and itself for a while later: NADs may have changed
// while no controller ran, and others may have changed rows.
func (c *Controller) lookAtAll(ctx context.Context) error {
	unused := c.networks.DropGateways(ctx) // what holds one up holds up no network
	if err := c.networks.DropUnusedRouters(ctx); err != nil {
		return err
	}
	networks, err := c.networks.Accepted(ctx)
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
	c.queue.AddAfter(everything, lookAgain)
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

func (c *Controller) work(ctx context.Context, i item) {
	ctx, cancel := context.WithTimeout(ctx, oneChange)
	defer cancel()
	var err error
	switch i.kind {
	case kindAll:
		err = c.lookAtAll(ctx)
	case kindGateway:
		err = c.syncGateway(ctx, i.id)
	case kindNodes:
		c.lookAtGateways()
	case kindConfig:
		if c.configure() {
			c.lookAtGateways()
			c.queue.Add(everything)
		}
	case kindNetwork:
		err = c.lookAt(ctx, i)
	default:
		err = c.syncNAD(ctx, i.id)
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
func (c *Controller) syncNAD(ctx context.Context, id string) error {
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
		if news, wait := c.news(nad); !news {
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
				c.leave(nad, "")
			}
		case err != nil && (was != "" || nad.HasFinalizer || conf.IsOVN(kind)):
			// Which network it is cannot be told; one that it was stays as it is.
			c.states.set(nad, &netmodel.NetworkState{Reason: err.Error()}, nad.HasFinalizer)
			c.metrics.verdict(id, err)
			return nil
		case is == "" && (nad.HasFinalizer || nad.State != ""):
			c.leave(nad, was)
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
		c.leave(nad, is)
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
func (c *Controller) lookAt(ctx context.Context, i item) error {
	if wait := c.pace.wait(i.tenant); wait > 0 && c.waits[i] {
		c.queue.AddAfter(i, wait)
		return nil
	}
	standing, err := c.withdraw(ctx, i)
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
	if err = c.syncNetwork(ctx, i, standing); c.writes > before {
		c.pace.wrote(i.tenant)
	}
	return err
}

// withdraw reads what NB says of a network, and takes from the network what it may not have any more. standing is what is
// left.
func (c *Controller) withdraw(ctx context.Context, i item) (standing *Standing, err error) {
	if standing, err = c.networks.Standing(ctx, i.id); err != nil {
		return nil, err
	}
	if err := c.withdrawUngranted(ctx, i.id, standing); err != nil {
		return nil, err
	}
	c.noteGuest(i.id, standing.InForce)
	return standing, c.expel(ctx, i, standing)
}

// syncNetwork brings one network in step with its NADs. standing is what NB says of the network.
func (c *Controller) syncNetwork(ctx context.Context, i item, standing *Standing) error {
	id := i.id
	standing.settleOwner(c.mayJoinOther)
	members, leaving, err := c.membersOf(ctx, id, standing)
	if err != nil {
		return err
	}
	// One that is invalid holds a network only if the network takes its ports.
	held := slices.ContainsFunc(members, func(m *member) bool {
		return c.mayHave(standing, id, &m.nad) && (m.network != nil || slices.Contains(standing.Accepted, m.nad.ID()))
	})
	if !held {
		return c.end(ctx, i, standing, members, leaving)
	}
	delete(c.inUse, id)
	for _, m := range leaving { // the others hold the network
		c.leave(&m.nad, id)
	}
	inForce := standing.InForce
	if network := elect(members, standing.Owner, inForce, standing.Accepted, c.mayJoinOther); network != nil {
		// A NAD that was accepted and is spoilt or changed since keeps its pods on what stays in force.
		kept := func(m *member) bool {
			return inForce != nil && inForce.Revision() == network.Revision() && !m.barred && slices.Contains(standing.Accepted, m.nad.ID())
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
func (c *Controller) mayHave(s *Standing, id string, nad *netmodel.NAD) bool {
	return !shared(id) || !s.There || s.Owner != "" && (nad.Namespace == s.Owner || c.mayJoinOther(nad.Namespace))
}

// membersOf returns the NADs of a network, and those of them that are being deleted. NADs that the network takes ports of
// are asked for even if nobody has told of them yet.
func (c *Controller) membersOf(ctx context.Context, id string, s *Standing) (members, leaving []*member, err error) {
	nads, err := c.nadsOf(ctx, id, s.Accepted)
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
func (c *Controller) ensure(ctx context.Context, i item, network *netmodel.Network, standing *Standing, members []*member, kept func(*member) bool) error {
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
	changed, err := c.networks.EnsureFor(ctx, network, owner, nads)
	if changed {
		c.log.Info("network is in step", "network", network.ID())
	}
	refused, ok := errors.AsType[*Refused](err)
	if changed || err != nil && !ok { // an error may hide a commit
		c.noteGuest(i.id, network)
		c.routerChanged(i, standing.router()) // where it was, it may be in the way no more
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
