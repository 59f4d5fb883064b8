package ovnnet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Refused says that a network cannot become what its NAD says. What is there stays as it is.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

func refusedf(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

// Networks writes logical switches and routers into OVN's Northbound database.
type Networks struct {
	db *ovndb.DB
	// routers are those that the controller's --config describes, by their full names.
	routers map[string]*netmodel.Router
	// widestIPAM is the prefix length of the widest subnet that OVN's own allocator serves.
	widestIPAM int
	// mayWrite is asked before every write: a controller that does not lead any more must not.
	mayWrite func() error
	// written, if not nil, is told of each transaction that was committed.
	written func()
}

// New takes the connection to NB, and the routers that the operator describes, by their full names.
func New(db *ovndb.DB, routers map[string]*netmodel.Router) *Networks {
	return &Networks{db: db, routers: routers, widestIPAM: conf.DefaultWidestIPAM, mayWrite: func() error { return nil }}
}

// withGateway returns the router of that full name if it has a gateway.
func (n *Networks) withGateway(router string) *netmodel.Router {
	if r := n.routers[router]; r != nil && r.HasGateway() {
		return r
	}
	return nil
}

func (n *Networks) write(ctx context.Context, ops []ovsdb.Operation) error {
	if err := n.mayWrite(); err != nil {
		return err
	}
	_, err := n.db.Transact(ctx, ops)
	if err == nil && n.written != nil {
		n.written()
	}
	return err
}

// raced tells whether the database refused a write because something changed since it was read.
func raced(err error) bool {
	refused, ok := errors.AsType[*ovndb.Refused](err)
	return ok && (refused.Reason == ovndb.ReasonDuplicate || refused.Reason == ovndb.ReasonTimedOut)
}

// maxRaces bounds how often one change is begun anew because rows were not as they had been read a moment before.
const maxRaces = 50

// races counts them.
type races int

func (r *races) again(what string) error {
	if *r++; *r > maxRaces {
		return fmt.Errorf("%s is not as it was read each time anew: gave up after %d attempts", what, maxRaces)
	}
	return nil
}

// inTheWay makes the database's no to a name that another row has an answer for people.
func inTheWay(err error) error {
	if r, ok := errors.AsType[*ovndb.Refused](err); ok && r.Reason == ovndb.ReasonConstraint {
		return refusedf("a row that is not ours is in the way: %s", r.Details)
	}
	return err
}

// Ensure makes the network's rows, or brings them up to date, all in one transaction; a router that is not there yet
// takes another, and so does its gateway. The network takes ports of those NADs. Rows that are as they should be are left
// alone: every changed column of a switch is a recompute for northd. What would cut off or renumber machines on the
// network is Refused.
func (n *Networks) Ensure(ctx context.Context, network *netmodel.Network, nads []string) (changed bool, err error) {
	owner := ""
	if len(nads) > 0 {
		owner, _, _ = strings.Cut(nads[0], "/")
	}
	return n.EnsureFor(ctx, network, owner, nads)
}

// EnsureFor is Ensure of a network that a namespace owns. The owner is written where the network is shared by name; a
// network that is there stays its owner's.
func (n *Networks) EnsureFor(ctx context.Context, network *netmodel.Network, owner string, nads []string) (changed bool, err error) {
	want := n.wanted(network, nads)
	n.markIPAM(want.own, network)
	if shared(network.ID()) && owner != "" {
		want.own.sw.ExternalIDs[keyOwner] = owner
	}
	for tries := races(0); ; {
		if err := tries.again("network " + network.ID()); err != nil {
			return false, err
		}
		have, err := n.read(ctx, network.ID(), network, want)
		if err != nil {
			return false, err
		}
		if is := ownerOf(have.own); is != "" && is != owner {
			return false, refusedf("namespace %s has just become the owner of network %s", is, network.ID())
		}
		n.wantNodes(have, want, network, nads)
		if err := n.boundIPAM(have, want, network); err != nil {
			return false, err
		}
		guards, err := n.judge(ctx, have, want, network)
		if err != nil {
			return false, err
		}
		if made, err := n.ensureRouters(ctx, have, network); err != nil {
			return false, err
		} else if made {
			continue
		}
		if ops := n.dropNodes(have, want); len(ops) > 0 {
			// By itself, for what takes their place may have the same keys.
			if err := n.write(ctx, append(guards, ops...)); err != nil && !raced(err) {
				return false, err
			}
			continue
		}
		ops, err := n.change(&have.rows, want)
		ops = append(ops, have.dropStrays()...)
		if err != nil || len(ops) == 0 {
			return false, err
		}
		err = n.write(ctx, append(guards, ops...))
		if raced(err) {
			continue
		}
		if was := have.router(); err == nil && was != network.RouterName() {
			err = n.dropRouter(ctx, was)
		}
		return err == nil, inTheWay(err)
	}
}

// ensureRouters makes the network's router, and that's gateway, if they are not there yet.
func (n *Networks) ensureRouters(ctx context.Context, have *found, network *netmodel.Network) (made bool, err error) {
	if name := network.RouterName(); name != "" && !have.routerThere {
		if network.IsGuest() {
			return false, refusedf("router: %s is not there, it is made with the first network of its own namespace", name)
		}
		return true, n.ensureRouter(ctx, name)
	}
	if r := n.withGateway(network.Router); r != nil && !have.gatewayThere {
		_, err := n.EnsureGateway(ctx, r, nil)
		return true, err
	}
	return false, nil
}

// wantNodes adds the parts of the nodes that have blocks, as they ought to be. Blocks that are none of the network's are
// not wanted.
func (n *Networks) wantNodes(have *found, want *rows, network *netmodel.Network, nads []string) {
	want.nodes = map[string]*part{}
	was := inForceOf(have.own)
	if was != nil && was.CheckChange(network) != nil {
		return
	}
	for key, p := range have.nodes {
		if blocks := network.ParseNodeSubnets(p.sw.ExternalIDs[ovndb.BlocksKey]); blocks != nil {
			want.nodes[key] = wantedPart(network.ForNode(p.sw.ExternalIDs[keyNode], blocks), nads)
		}
	}
}

func ownerOf(p *part) string {
	if p.sw == nil {
		return ""
	}
	return p.sw.ExternalIDs[keyOwner]
}

func inForceOf(p *part) *netmodel.Network {
	if p == nil || p.sw == nil {
		return nil
	}
	return inForce(p.sw)
}

func (n *Networks) dropNodes(have *found, want *rows) []ovsdb.Operation {
	b := &batch{db: n.db}
	for _, key := range slices.Sorted(maps.Keys(have.nodes)) {
		if want.nodes[key] == nil {
			b.drop(have.nodes[key])
		}
	}
	return b.ops
}

// judge tells whether the network may become what is wanted, and returns what has to be asserted with it.
func (n *Networks) judge(ctx context.Context, have *found, want *rows, network *netmodel.Network) ([]ovsdb.Operation, error) {
	guards := have.guards()
	if cut := n.cuts(have, want, network); cut != nil {
		ports, err := n.ports(ctx, &have.rows)
		if err != nil {
			return nil, err
		}
		if len(ports.others) > 0 {
			return nil, refusedf("%v, with %s on the network", cut, count(len(ports.others), "port"))
		}
		guards = append(guards, ports.unchanged()...)
	}
	joins, err := n.mayJoin(ctx, network)
	if err != nil {
		return nil, err
	}
	guards = append(guards, joins...)
	if r := n.withGateway(network.Router); r != nil {
		for _, subnet := range network.Subnets {
			if err := r.CheckSubnet(subnet); err != nil {
				return nil, refusedf("%v", err)
			}
		}
	}
	if network.RouterName() == "" || !have.attaches(want) {
		return guards, nil
	}
	guard, err := n.overlaps(ctx, network)
	if err != nil {
		return nil, err
	}
	return append(guards, guard...), nil
}

// cuts says why machines that are on the network could not go on as they are; nil when they do.
func (n *Networks) cuts(have *found, want *rows, network *netmodel.Network) error {
	if was := inForceOf(have.own); was != nil {
		if err := was.CheckChange(network); err != nil {
			return err
		}
	}
	for key, p := range have.nodes {
		if want.nodes[key] == nil {
			return fmt.Errorf("logical switch %s has the blocks %q, which are none of the network's", p.sw.Name, p.sw.ExternalIDs[ovndb.BlocksKey])
		}
	}
	return nil
}

// attaches tells whether the network's part of a router changes: a port of layer2, a route to a layer3 network's whole.
func (have *found) attaches(want *rows) bool {
	if !samePort(have.own.port, want.own.port) && want.own.port != nil {
		return true
	}
	for key, r := range want.routes {
		if old := have.routes[key]; r.Nexthop == discard && (old == nil || old.IPPrefix != r.IPPrefix || old.ExternalIDs[keyRouter] != r.ExternalIDs[keyRouter]) {
			return true
		}
	}
	return false
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// router is the one that the network is attached to; "" when there is none.
func (have *found) router() string {
	if have.own.port != nil {
		return have.own.port.ExternalIDs[keyRouter]
	}
	for _, f := range families {
		if r := have.routes[routeKey(have.id, discard, f)]; r != nil {
			return r.ExternalIDs[keyRouter]
		}
	}
	return ""
}

// guards assert of a layer3 network that no node has got blocks since it was read, nor lost them.
func (have *found) guards() []ovsdb.Operation {
	if !have.layer3 {
		return nil
	}
	if len(have.marked) == 0 { // the wait has no form that says "none"; the switch's row itself is inserted then
		return nil
	}
	return []ovsdb.Operation{ovndb.AllWith(nb.LogicalSwitchTable, "external_ids", keyNetwork, have.id, have.marked)}
}
