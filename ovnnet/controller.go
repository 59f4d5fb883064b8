package ovnnet

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Source is where the controller finds the NADs.
type Source interface {
	// NAD returns one; conf.ErrNotFound when there is none for certain.
	NAD(ctx context.Context, namespace, name string) (*conf.NAD, error)
	// SetNetworkState writes the state of a NAD's network ("": takes it away) and puts our finalizer on the NAD or
	// takes it off. conf.ErrNotFound says that the NAD is gone.
	SetNetworkState(ctx context.Context, n *conf.NAD, state string, held bool) error
	// NetworkEvent tells the NAD's owner; it does not wait.
	NetworkEvent(n *conf.NAD, warning bool, reason, message string)
	// Nodes lists all nodes, or fails; nil: the source says nothing of nodes.
	Nodes(ctx context.Context) ([]conf.Node, error)
}

// Controller keeps logical switches and routers in step with the NADs.
type Controller struct {
	networks *Networks
	mayJoin  []string
	log      *slog.Logger
	queue    workqueue.TypedRateLimitingInterface[item]
	source   Source
	states   *states
	// members says which network each NAD was last of, inUse why a network that is being deleted is still there, nodes
	// what was last said of each gateway's. Only the worker touches them.
	members map[string]string
	inUse   map[string]string
	nodes   map[string]string
}

// item is what is to be looked at: a NAD that may have changed, a network, the gateway of a router, or all there is.
type item struct{ kind, id string }

const (
	kindNAD     = "nad"
	kindNetwork = "network"
	kindGateway = "gateway"
	kindAll     = "all"
)

const (
	// What could not be brought in step is tried again after this time at first, and this at the latest.
	retryFirst = 50 * time.Millisecond
	retryLast  = 10 * time.Second
	// oneChange bounds the work on one network.
	oneChange = 30 * time.Second
	// inUseEvery is how often a network that is being deleted is looked at for the end of its last port.
	inUseEvery = time.Second
	// refusedEvery is how often a network is tried again that something in the database is in the way of.
	refusedEvery = 5 * time.Second
	// gatewayEvery is how often a gateway is looked at: which of its nodes has it, and whether they are still those.
	gatewayEvery = 2 * time.Second
	// lookAgain is how often every network is compared with the database, for what others changed there.
	lookAgain = 5 * time.Minute
)

// NewController makes a controller; Changed may be called at once. mayJoin lists the namespaces whose NADs may join a
// network of another namespace by its name.
func NewController(networks *Networks, mayJoin []string, log *slog.Logger) *Controller {
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[item](retryFirst, retryLast)
	return &Controller{
		networks: networks, mayJoin: mayJoin, log: log, queue: workqueue.NewTypedRateLimitingQueue(limits),
	}
}

// Changed says that the NAD namespace/name is new, different or gone.
func (c *Controller) Changed(namespace, name string) {
	c.queue.Add(item{kindNAD, namespace + "/" + name})
}

// NodesChanged says that a node is new or gone, or has other labels.
func (c *Controller) NodesChanged() {
	for name := range c.networks.routers {
		c.queue.Add(item{kindGateway, name})
	}
}

// Run works off the changes until the end of ctx. leading is asked before each write. At its start it also looks at
// every network that is there, for NADs that changed while no controller ran. A controller runs once.
func (c *Controller) Run(ctx context.Context, source Source, leading func() error) error {
	c.source, c.networks.mayWrite = source, leading
	c.states = newStates(source, leading, c.log)
	c.members, c.inUse, c.nodes = map[string]string{}, map[string]string{}, map[string]string{}
	c.NodesChanged() // gateways first: what networks have in them needs them
	c.queue.Add(everything)
	var writing sync.WaitGroup
	writing.Go(func() { c.states.run(ctx) })
	defer writing.Wait()
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	c.log.Info("leading")
	for {
		i, shutdown := c.queue.Get()
		if shutdown {
			return nil
		}
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
			if c.members[nad] == "" {
				c.members[nad] = id
			}
			c.queue.Add(item{kindNAD, nad})
		}
		c.queue.Add(item{kindNetwork, id})
	}
	for nad := range c.members {
		c.queue.Add(item{kindNAD, nad})
	}
	c.queue.AddAfter(everything, lookAgain)
	return unused
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
	case kindNetwork:
		err = c.syncNetwork(ctx, i.id)
	default:
		err = c.syncNAD(ctx, i.id)
	}
	if err == nil {
		c.queue.Forget(i)
		return
	}
	if inUse, ok := errors.AsType[*InUse](err); ok {
		if text := inUse.Error(); c.inUse[i.id] != text {
			c.inUse[i.id] = text
			c.log.Info("network is being deleted", "network", i.id, "reason", text)
		}
		c.queue.Forget(i)
		c.queue.AddAfter(i, inUseEvery)
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
	was, is := c.members[id], ""
	if nad != nil {
		is, err = conf.NetworkID(nad.Namespace, nad.Name, []byte(nad.Config))
		switch {
		case err != nil && nad.Deleting:
			// Which network it was is all that counts now.
			if is = was; is == "" {
				c.leave(nad, "")
			}
		case err != nil && (was != "" || nad.Held || conf.IsOVN(kindOf(nad))):
			// Which network it is cannot be told; one that it was stays as it is.
			c.states.set(nad, &conf.NetworkState{Reason: err.Error()}, nad.Held)
			return nil
		case is == "" && (nad.Held || nad.State != ""):
			c.leave(nad, was)
		}
	}
	if is == "" {
		delete(c.members, id)
	} else {
		c.members[id] = is
		c.queue.Add(item{kindNetwork, is})
	}
	if was != "" && was != is {
		c.queue.Add(item{kindNetwork, was})
	}
	return nil
}

func kindOf(nad *conf.NAD) string {
	kind, _ := conf.NetworkKind([]byte(nad.Config))
	return kind
}

// nad returns a NAD, nil when there is none.
func (c *Controller) nad(ctx context.Context, id string) (*conf.NAD, error) {
	namespace, name, _ := strings.Cut(id, "/")
	nad, err := c.source.NAD(ctx, namespace, name)
	if errors.Is(err, conf.ErrNotFound) {
		return nil, nil
	}
	return nad, err
}

// syncNetwork brings one network in step with its NADs.
func (c *Controller) syncNetwork(ctx context.Context, id string) error {
	var members, leaving []*member
	force := false
	for _, nadID := range c.nadsOf(id) {
		nad, err := c.nad(ctx, nadID)
		if err != nil {
			return err
		}
		if nad == nil {
			continue
		}
		m := &member{nad: *nad}
		if nad.Deleting {
			leaving, force = append(leaving, m), force || nad.ForceDelete
			continue
		}
		m.network, m.err = conf.ParseNetwork(nad.Namespace, nad.Name, []byte(nad.Config))
		if m.network != nil && m.network.ID() != id {
			continue // it is another network's since just now, which comes next
		}
		members = append(members, m)
	}
	if len(members) == 0 {
		return c.remove(ctx, id, leaving, force)
	}
	for _, m := range leaving { // the others hold the network
		c.leave(&m.nad, id)
	}
	inForce, accepted, err := c.networks.InForce(ctx, id)
	if err != nil {
		return err
	}
	if network := elect(members, inForce, accepted, func(namespace string) bool { return slices.Contains(c.mayJoin, namespace) }); network != nil {
		// A NAD that was accepted and is spoilt or changed since keeps its pods on what stays in force.
		kept := func(m *member) bool {
			return inForce != nil && inForce.Revision() == network.Revision() && !m.barred && slices.Contains(accepted, m.nad.ID())
		}
		if err := c.ensure(ctx, network, members, kept); err != nil {
			return err
		}
	}
	for _, m := range members {
		c.report(m)
	}
	return nil
}

func (c *Controller) ensure(ctx context.Context, network *conf.Network, members []*member, kept func(*member) bool) error {
	var nads []string
	for _, m := range members {
		if m.err == nil || kept(m) {
			nads = append(nads, m.nad.ID())
		}
	}
	changed, err := c.networks.Ensure(ctx, network, nads)
	if changed {
		c.log.Info("network is in step", "network", network.ID())
	}
	refused, ok := errors.AsType[*Refused](err)
	if !ok {
		return err
	}
	// What is in the way may go without a word to us.
	c.queue.AddAfter(item{kindNetwork, network.ID()}, refusedEvery)
	for _, m := range members {
		if m.err == nil {
			m.err = refused
		}
	}
	return nil
}

// report writes the state of a NAD's network.
func (c *Controller) report(m *member) {
	state := &conf.NetworkState{Ready: m.err == nil}
	if m.err != nil {
		_, state.Reason, _ = conf.Describe(m.err)
	}
	c.states.set(&m.nad, state, true)
}

// leave lets a NAD go.
func (c *Controller) leave(nad *conf.NAD, network string) {
	c.log.Info("network no more", "network", network, "nad", nad.ID())
	c.states.set(nad, nil, false)
}

// remove takes a network away that no NAD describes any more, and then lets its NADs go.
func (c *Controller) remove(ctx context.Context, id string, leaving []*member, force bool) error {
	err := c.networks.Remove(ctx, id, force)
	if inUse, ok := errors.AsType[*InUse](err); ok {
		for _, m := range leaving {
			c.states.set(&m.nad, &conf.NetworkState{Reason: "being deleted, " + inUse.Error()}, true)
		}
	}
	if err != nil {
		return err
	}
	delete(c.inUse, id)
	for _, m := range leaving {
		c.leave(&m.nad, id)
	}
	return nil
}

func (c *Controller) nadsOf(network string) []string {
	var nads []string
	for nad, of := range c.members {
		if of == network {
			nads = append(nads, nad)
		}
	}
	slices.Sort(nads)
	return nads
}
