// Package paths owns the path MTU: which packets fit on which network, router port and gateway.
package paths

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/pathmtu"
)

// Item is the item of the pass over the MTUs of the nodes.
var Item = engine.Item{Kind: kindPaths, Tenant: engine.Operators}

const (
	// kindPaths is the kind of the MTUs of the nodes.
	kindPaths = "mtu"
	// every is the time between two passes over the MTUs of the nodes.
	every = 2 * time.Second
	// pathNodes is how many nodes' rows a pass over the MTUs reads, so that its cost does not grow with the cluster.
	pathNodes = 20
	// scanPaths is the number of passes after which all rows are read again if the source does not know the nodes, and
	// some are known.
	scanPaths = 15
)

// Config has what the paths need.
type Config struct {
	Engine *engine.Engine
	Rows   *nbrows.Store
	// Nodes returns all nodes or an error; nil: the source knows no nodes.
	Nodes func(ctx context.Context) ([]netmodel.Node, error)
	// Queue queues a network, because its ports need another MTU.
	Queue func(network string)
	// Bridges is called when nodes have bridges for other physical networks.
	Bridges func()
	Log     *slog.Logger
}

// Paths knows which packets fit where: the MTUs of the nodes, and those of the networks on each router.
type Paths struct {
	Config
	nodes    map[string]pathmtu.Sizes     // by node, as last read
	turn     int                          // counts the passes
	all      bool                         // the MTUs of all nodes are known
	smallest pathmtu.Smallest             // as NB has them
	on       map[string]map[string]pathOf // by router and network
	router   map[string]string            // by network
	tooMany  map[string]bool              // the routers whose ports have no MTU for this
	dhcp     map[string]bool              // the networks with DHCP that have no MTU of their own
	// unread are the networks of NB that were not read since this controller leads; nil: they are not listed yet.
	unread map[string]bool
}

// pathOf is what the path MTU needs to know of a network on a router.
type pathOf struct {
	mtu    int  // the network's own MTU; 0: that of all overlay networks
	layer3 bool // the router has a port for each node
}

// maxPairs is how many pairs of a port with an MTU and another port a router may have. OVN has up to four flows for
// each.
const maxPairs = 100_000

// New makes the paths, and registers their pass.
func New(c Config) *Paths {
	p := &Paths{
		Config: c,
		nodes:  map[string]pathmtu.Sizes{}, on: map[string]map[string]pathOf{}, router: map[string]string{},
		tooMany: map[string]bool{}, dhcp: map[string]bool{},
	}
	c.Engine.Register(kindPaths, func(ctx context.Context, _ engine.Item) error { return p.reconcile(ctx) })
	return p
}

// known reports whether the MTUs of all networks and nodes have been read.
func (p *Paths) known() bool { return p.all && p.unread != nil && len(p.unread) == 0 }

// List notes which networks NB has. The first list has those that are still to be read.
func (p *Paths) List(networks map[string]*ovnnet.Listed) {
	if p.unread != nil {
		return
	}
	p.unread = map[string]bool{}
	for id := range networks {
		if _, read := p.router[id]; !read {
			p.unread[id] = true
		}
	}
}

// differs reports whether the accepted configuration of a network differs from what is noted.
func (p *Paths) differs(id string, accepted *netmodel.Network) bool {
	router, own := "", pathOf{}
	if accepted != nil {
		router, own = accepted.RouterName(), pathIn(accepted)
	}
	return p.router[id] != router || router != "" && p.on[router][id] != own
}

func pathIn(network *netmodel.Network) pathOf {
	return pathOf{network.MTU, network.Topology == netmodel.Layer3}
}

// note notes the accepted configuration of a network; nil: it has none.
func (p *Paths) note(id string, accepted *netmodel.Network) {
	if router := p.router[id]; router != "" {
		delete(p.router, id)
		if delete(p.on[router], id); len(p.on[router]) == 0 {
			delete(p.on, router)
		}
	}
	if accepted == nil || accepted.RouterName() == "" {
		return
	}
	router := accepted.RouterName()
	p.router[id] = router
	if p.on[router] == nil {
		p.on[router] = map[string]pathOf{}
	}
	p.on[router][id] = pathIn(accepted)
}

// Pods returns the MTU of pods on a network; 0: not known.
func (p *Paths) Pods(network *netmodel.Network) int {
	if network.MTU != 0 || !p.all {
		return network.MTU
	}
	return p.smallest[network.Physical].MTU
}

// carried is the MTU of packets of a network between nodes; 0: not known. own is the network's own MTU.
func (p *Paths) carried(own int) int {
	limit := p.smallest[pathmtu.Overlay].MTU
	switch {
	case own == 0:
		return limit
	case limit == 0:
		return own
	}
	return min(own, limit)
}

// Port returns the MTU that the ports of a network on its router need; 0: none, because no larger packet can come from
// another network. known is false while the networks on the router are not all known.
func (p *Paths) Port(network *netmodel.Network) (mtu int, known bool) {
	if network.RouterName() == "" || network.MTU == 0 {
		return 0, true
	}
	largest, tooMany := p.largest(network.RouterName())
	if !tooMany {
		mtu = p.portOf(network.MTU, largest)
	}
	return mtu, p.known()
}

// portOf is port for a network with an MTU of its own, however many ports there are.
func (p *Paths) portOf(own, largest int) int {
	if mtu := p.carried(own); mtu < own || mtu < largest {
		return mtu
	}
	return 0
}

// largest returns the largest MTU of packets that come to a router. tooMany reports whether the ports that need an MTU
// make too many pairs with the router's other ports.
func (p *Paths) largest(router string) (mtu int, tooMany bool) {
	for _, its := range p.on[router] {
		if size := p.carried(its.mtu); size == 0 {
			mtu = math.MaxInt // not known
		} else {
			mtu = max(mtu, size)
		}
	}
	all, with := 0, 0
	for _, its := range p.on[router] {
		ports := 1
		if its.layer3 {
			ports = len(p.nodes)
		}
		all += ports
		if its.mtu != 0 && p.portOf(its.mtu, mtu) != 0 {
			with += ports
		}
	}
	return mtu, all*with > maxPairs
}

// ports returns the MTU of the ports of each network with an MTU of its own on the routers.
func (p *Paths) ports(routers ...string) map[string]int {
	mtus := map[string]int{}
	for _, router := range routers {
		largest, tooMany := p.largest(router)
		for id, its := range p.on[router] {
			if its.mtu != 0 && !tooMany {
				mtus[id] = p.portOf(its.mtu, largest)
			} else if its.mtu != 0 {
				mtus[id] = 0
			}
		}
	}
	return mtus
}

// Gateway returns the MTU of the gateway of a router: the smallest of the physical network and of the networks on the
// router; 0: not known.
func (p *Paths) Gateway(r *netmodel.Router) int {
	mtu := p.smallest[r.Physical].MTU
	if mtu == 0 || !p.known() {
		return 0
	}
	mtu = p.smallest.Of(pathmtu.Overlay, mtu)
	for _, its := range p.on[r.Name] {
		if its.mtu != 0 {
			mtu = min(mtu, its.mtu)
		}
	}
	return mtu
}

// HasBridge reports whether some node has a bridge for a physical network. known is false until the rows of all nodes
// have been read.
func (p *Paths) HasBridge(physical string) (has, known bool) {
	_, has = p.smallest[physical]
	return has, p.all && p.smallest != nil
}

// Note notes the accepted configuration of a network, and queues other networks whose ports need another MTU now.
func (p *Paths) Note(id string, accepted *netmodel.Network) {
	wasKnown := p.known()
	delete(p.unread, id)
	if delete(p.dhcp, id); accepted != nil && accepted.DHCP != nil && accepted.MTU == 0 {
		p.dhcp[id] = true
	}
	routers := []string{p.router[id]}
	if accepted != nil {
		routers = append(routers, accepted.RouterName())
	}
	if !p.differs(id, accepted) {
		routers = nil
	}
	before := p.ports(routers...)
	p.note(id, accepted)
	for _, router := range routers {
		p.queueTooMany(router)
	}
	if !p.known() {
		return
	}
	if !wasKnown {
		p.queueAllPaths()
		return
	}
	for other, mtu := range p.ports(routers...) {
		if was, there := before[other]; other != id && (!there || was != mtu) {
			p.Queue(other)
		}
	}
}

// noteTooMany notes whether a router has too many ports for MTUs, and reports whether that has changed.
func (p *Paths) noteTooMany(router string) (changed bool) {
	_, is := p.largest(router)
	changed = is != p.tooMany[router]
	if delete(p.tooMany, router); is {
		p.tooMany[router] = true
	}
	return changed
}

// queueTooMany queues the networks on a router that has got too many ports for MTUs, or has no longer.
func (p *Paths) queueTooMany(router string) {
	if p.noteTooMany(router) {
		for id := range p.ports(router) {
			p.Queue(id)
		}
	}
}

// Warning says that packets to a network are lost because its router has too many ports; "": they are not.
func (p *Paths) Warning(n *netmodel.Network) string {
	router := n.RouterName()
	if !p.tooMany[router] {
		return ""
	}
	if largest, _ := p.largest(router); p.portOf(n.MTU, largest) == 0 {
		return ""
	}
	return fmt.Sprintf("mtu: router %s has so many ports that OVN does not answer packets from its other networks "+
		"that do not fit: give all networks on it the same mtu", router)
}

// queueAllPaths queues all networks on routers that have an MTU of their own.
func (p *Paths) queueAllPaths() {
	for id := range p.ports(slices.Collect(maps.Keys(p.on))...) {
		p.Queue(id)
	}
}

// queueDHCP queues all networks whose machines hear by DHCP of the smallest MTU of all nodes.
func (p *Paths) queueDHCP() {
	for id := range p.dhcp {
		p.Queue(id)
	}
}

// reconcile reads the MTUs of some nodes, writes the smallest MTUs of all nodes if they have changed, and queues
// the next pass.
func (p *Paths) reconcile(ctx context.Context) error {
	nodes, err := p.Nodes(ctx)
	if err != nil {
		return err
	}
	count := len(p.nodes)
	if nodes == nil {
		if p.turn%scanPaths == 0 || len(p.nodes) == 0 {
			if p.nodes, err = pathmtu.SizesOfAll(ctx, p.Rows.Db); err != nil {
				return err
			}
		}
		p.turn++
	} else if err := p.readNodes(ctx, nodes); err != nil {
		return err
	}
	if len(p.nodes) != count { // a layer3 network has a port for each node
		for router := range p.on {
			p.queueTooMany(router)
		}
	}
	wasKnown, wasAll := p.known(), p.all
	p.all = nodes == nil || len(p.nodes) == len(nodes)
	limits := pathmtu.Smallest{}
	for node, sizes := range p.nodes {
		limits.Add(node, sizes)
	}
	smallest, err := pathmtu.Ensure(ctx, p.Rows, limits, p.all)
	if err != nil {
		return err
	}
	if !maps.Equal(smallest, p.smallest) || wasAll != p.all {
		defer p.Bridges()
		defer p.queueDHCP()
	}
	if !maps.Equal(smallest, p.smallest) {
		for name, limit := range smallest {
			p.Log.Info("the smallest MTU of all nodes", "physical", name, "mtu", limit.MTU, "node", limit.Node)
		}
		p.smallest = smallest
		p.queueAllPaths()
	} else if !wasKnown && p.known() {
		p.queueAllPaths()
	}
	p.Engine.AddAfter(Item, every)
	return nil
}

// readNodes reads the MTUs of some nodes: first of those that are unknown, then of the others in turn.
func (p *Paths) readNodes(ctx context.Context, nodes []netmodel.Node) error {
	var unknown, names []string
	there := map[string]bool{}
	for _, node := range nodes {
		names = append(names, node.Name)
		there[node.Name] = true
		if _, ok := p.nodes[node.Name]; !ok {
			unknown = append(unknown, node.Name)
		}
	}
	maps.DeleteFunc(p.nodes, func(node string, _ pathmtu.Sizes) bool { return !there[node] })
	read := unknown[:min(len(unknown), pathNodes)]
	for n := 0; len(read) < min(pathNodes, len(names)) && n < len(names); n++ {
		p.turn++
		if name := names[p.turn%len(names)]; !slices.Contains(read, name) {
			read = append(read, name)
		}
	}
	sizes, err := pathmtu.SizesOfNodes(ctx, p.Rows.Db, read)
	maps.Copy(p.nodes, sizes)
	return err
}
