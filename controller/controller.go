package controller

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/entries"
	claimkind "github.com/ovn-multinet/ovn-multinet/controller/ipamclaims"
	"github.com/ovn-multinet/ovn-multinet/controller/nads"
	networkkind "github.com/ovn-multinet/ovn-multinet/controller/networks"
	outsidekind "github.com/ovn-multinet/ovn-multinet/controller/outside"
	"github.com/ovn-multinet/ovn-multinet/controller/paths"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	policykind "github.com/ovn-multinet/ovn-multinet/controller/policies"
	servicekind "github.com/ovn-multinet/ovn-multinet/controller/services"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Source is the controller's source of NADs and nodes.
type Source interface {
	networkkind.Source
	// Nodes returns all nodes or an error, never a part of the nodes. It returns nil if the source knows no nodes.
	Nodes(ctx context.Context) ([]netmodel.Node, error)
}

// Config has everything that a controller needs.
type Config struct {
	NB      *ovndb.DB
	Source  Source
	Queue   *Queue
	Metrics *Metrics
	// Operator is the operator's file. Queue.Configure replaces it.
	Operator configfile.Config
	// KeepOnPrimary are the networks that pods reach by their first interface.
	KeepOnPrimary []netip.Prefix
	// JoiningNamespaces are the namespaces whose NADs may join a network of another namespace by its name.
	JoiningNamespaces []string
	// Isolated says that pods may use the NADs of their own namespace and of GlobalNamespaces only.
	Isolated         bool
	GlobalNamespaces []string
	// Policies is the source of network policies, and Ports reads the ports of pods for them. Without Policies, the
	// controller serves no policies.
	Policies policykind.Source
	Ports    pods.Ports
	// Services is the source of Services on networks, if it is not nil. Ports reads the ports of pods for them too.
	Services servicekind.Source
	// Entries is the source of the operator's objects, if it is not nil.
	Entries entries.Source
	// Outside is the source of pods with outside addresses, if it is not nil. Ports reads their ports too.
	Outside outsidekind.Source
	// IPAMClaims is the source of IPAMClaims, if it is not nil.
	IPAMClaims claimkind.Source
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

// Controller makes the logical switches and routers in NB what the NADs and the operator's configuration describe, and
// what the objects of further kinds describe on them.
type Controller struct {
	networks *ovnnet.Networks
	gateways *gateway.Gateways
	physical netmodel.PhysicalGrants
	profiles netmodel.SecurityProfiles
	rows     *nbrows.Store
	log      *slog.Logger
	changes  *Queue
	engine   *engine.Engine
	source   Source
	metrics  *Metrics
	// Only the worker uses the following fields.
	nads  *nads.Index
	paths *paths.Paths
	nets  *networkkind.Kind
	kinds *kinds
	nodes map[string]string // by router: the last log line about the nodes of its gateway
	told  time.Time         // when agents were last told that there is something to read
	// newsEvery is newsEvery, except in a test.
	newsEvery time.Duration
}

// newsEvery is the shortest time between two announcements to the agents. All of them read after each.
const newsEvery = 10 * time.Second

// gatewayEvery is the time between two passes over a gateway. A pass compares the nodes with the label, and their
// chassis, with the gateway's HA_Chassis_Group.
const gatewayEvery = 2 * time.Second

// New makes a controller. Run starts its work.
func New(config Config) *Controller {
	c := &Controller{
		physical: config.Operator.Physical, profiles: config.Operator.Profiles, log: config.Log, changes: config.Queue,
		source: config.Source, metrics: config.Metrics, nads: nads.New(config.Source), nodes: map[string]string{},
		newsEvery: newsEvery, engine: engine.New(config.Queue.Queue, config.Metrics.Metrics, config.Leading, config.Log),
	}
	c.engine.Limit(config.Operator.Limits)
	c.rows = nbrows.NewLeadersStore(config.NB, config.Leading, c.wrote)
	c.rows.News = func() { c.engine.AddAfter(newsItem, c.newsEvery-time.Since(c.told)) }
	c.gateways = gateway.New(c.rows, config.Operator.Routers)
	c.networks = ovnnet.New(c.rows, c.gateways, config.WidestIPAM)
	c.paths = paths.New(paths.Config{
		Engine: c.engine, Rows: c.rows, Nodes: c.nodesNow, Queue: func(id string) { c.nets.Queue(id) },
		Bridges: func() { c.engine.Add(entries.StatusItem) }, Log: c.log,
	})
	c.networks.PortMTU, c.networks.PodMTU = c.paths.Port, c.paths.Pods
	c.kinds = newKinds(&config, c)
	c.nets = networkkind.New(networkkind.Config{
		Engine: c.engine, Source: config.Source, Networks: c.networks, NADs: c.nads, Paths: c.paths, Dependents: c.kinds,
		Nodes: c.nodesNow, Recompare: func() { c.engine.Add(everything) },
		Physical:      func() netmodel.PhysicalGrants { return c.physical },
		KeepOnPrimary: config.KeepOnPrimary, JoiningNamespaces: config.JoiningNamespaces, Log: c.log,
	})
	for kind, pass := range map[string]engine.Pass{
		kindGateway:  c.reconcileGateway,
		kindAll:      c.reconcileAll,
		kindNodes:    c.reconcileNodes,
		kindConfig:   c.reconcileConfig,
		kindProfiles: c.reconcileProfiles,
		kindNews:     c.reconcileNews,
	} {
		c.engine.Register(kind, pass)
	}
	return c
}

// Run works off the queue until the end of ctx. It begins with a pass over every gateway and every network in NB,
// because NADs may have changed while no controller led. Call Run only once.
func (c *Controller) Run(ctx context.Context) error {
	c.metrics.leading.Store(&c.engine.Leading)
	defer c.metrics.leading.Store(nil)
	if !c.begin(ctx) {
		return nil
	}
	c.queueGateways() // before the networks, because networks have rows on gateways
	c.engine.Add(everything)
	c.engine.Add(paths.Item)
	c.engine.Add(newsItem) // the leader before may have ended between a change and its announcement
	var writing sync.WaitGroup
	writing.Go(func() { c.nets.Run(ctx) })
	for _, k := range c.kinds.all {
		writing.Go(func() { k.Run(ctx) })
	}
	defer writing.Wait()
	c.log.Info("leading")
	c.engine.Run(ctx)
	return nil
}

// reconcileAll queues all networks in NB, all known NADs and their networks, because NADs may have changed while no
// controller led, and other programs may have changed rows. It also deletes unused gateways and routers, and queues the
// next pass over everything.
func (c *Controller) reconcileAll(ctx context.Context, _ engine.Item) error {
	c.engine.Add(profilesItem)
	unused := c.gateways.DeleteUnused(ctx) // an error must not delay the networks
	if err := c.networks.DeleteUnusedRouters(ctx); err != nil {
		return err
	}
	networks, err := c.networks.List(ctx)
	if err != nil {
		return err
	}
	c.paths.List(networks)
	c.nads.ForgetUsers()
	for id, n := range networks {
		c.nets.NoteUsers(id, n.NADs)
	}
	for _, k := range c.kinds.all {
		if err := k.QueueAll(ctx, networks); err != nil {
			return err
		}
	}
	c.nets.QueueAll(networks)
	c.engine.Prune()
	c.engine.AddAfter(everything, nbrows.ReconcileEvery)
	return unused
}

// reconcileNews tells all agents that there is something to read.
func (c *Controller) reconcileNews(ctx context.Context, _ engine.Item) error {
	c.told = time.Now()
	return c.rows.TellNews(ctx)
}

// wrote counts a committed transaction.
func (c *Controller) wrote(ops []ovsdb.Operation) {
	rows := 0
	for _, op := range ops {
		if op.Op != ovsdb.OperationWait && op.Op != ovsdb.OperationSelect && op.Op != ovsdb.OperationComment {
			rows++
		}
	}
	text, _ := json.Marshal(ops) // the database has got the same text
	c.engine.Wrote(rows, len(text))
}
