package ovnnet

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Kubernetes knows nodes, OVN knows chassis. Each node's agent says in NB which chassis its node is, in a row of the table
// that has claims too.

const (
	keyKind    = "ovn-multinet/kind"
	kindNode   = "node"
	keyChassis = "ovn-multinet/chassis"
)

// Announce says which chassis a node is. It writes only what is not there already.
func (n *Networks) Announce(ctx context.Context, node, chassis string) error {
	want := &nb.Copp{
		UUID: ovndb.NodeKey(node), Name: "ovn-multinet node " + node,
		ExternalIDs: map[string]string{keyKind: kindNode, keyNode: node, keyChassis: chassis},
	}
	for tries := races(0); ; {
		if err := tries.again("node " + node); err != nil {
			return err
		}
		results, err := n.db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.CoppTable, want.UUID)})
		if err != nil {
			return err
		}
		var have *nb.Copp
		if err := one(n.db, results[0], &have); err != nil {
			return err
		}
		b := &batch{db: n.db}
		put(b, nb.CoppTable, want.UUID, have, want)
		if b.err != nil || len(b.ops) == 0 {
			return b.err
		}
		if err = n.write(ctx, b.ops); !raced(err) {
			return inTheWay(err)
		}
	}
}

// ChassisOf returns the chassis that the nodes are; a node whose agent has not said so yet is left out.
func (n *Networks) ChassisOf(ctx context.Context, nodes []string) ([]Chassis, error) {
	keys := make([]string, len(nodes))
	for i, node := range nodes {
		keys[i] = ovndb.NodeKey(node)
	}
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, n.db, nb.CoppTable, keys)
	if err != nil {
		return nil, err
	}
	list := []Chassis{} // nil would mean something else to EnsureGateway
	for _, row := range rows {
		if name := row.ExternalIDs[keyChassis]; name != "" {
			list = append(list, Chassis{Node: row.ExternalIDs[keyNode], Name: name})
		}
	}
	return list, nil
}

// Priorities of a gateway's nodes begin in the middle of what OVN knows (0 to 32767), so that there is room on both sides.
const (
	firstPriority = 16384
	lastPriority  = 32767
)

// order gives each node of a gateway its priority: OVN has the gateway on the highest that is alive. Nodes that have one
// keep it, new ones come last, in an order of the router's own, so that several gateways are on several nodes.
func (have *foundGateway) order(router string, nodes []Chassis) map[string]*nb.HAChassis {
	var list []*nb.HAChassis
	fresh := map[string]bool{}
	for _, c := range nodes {
		key := ovndb.PartKey("ha-chassis "+c.Name, router)
		row := &nb.HAChassis{UUID: key, ChassisName: c.Name, ExternalIDs: map[string]string{keyRouter: router, keyNode: c.Node}}
		if old := have.chassis[key]; old != nil {
			row.Priority = old.Priority
		} else {
			fresh[key] = true
		}
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b *nb.HAChassis) int {
		if fresh[a.UUID] || fresh[b.UUID] {
			return cmp.Or(falseFirst(fresh[a.UUID], fresh[b.UUID]), cmp.Compare(turn(router, a), turn(router, b)), cmp.Compare(a.UUID, b.UUID))
		}
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.UUID, b.UUID))
	})
	number(list, fresh)
	rows := map[string]*nb.HAChassis{}
	for _, row := range list {
		rows[row.UUID] = row
	}
	return rows
}

// number gives new nodes priorities below the others', and all of them new ones when there is no room.
func number(list []*nb.HAChassis, fresh map[string]bool) {
	room := true
	for i, c := range list {
		if fresh[c.UUID] {
			c.Priority = firstPriority
			if i > 0 {
				c.Priority = list[i-1].Priority - 1
			}
		}
		room = room && c.Priority >= 0 && c.Priority <= lastPriority && (i == 0 || c.Priority < list[i-1].Priority)
	}
	for i, c := range list {
		if !room {
			c.Priority = firstPriority - i
		}
	}
}

// turn is where a node stands in a router's order.
func turn(router string, c *nb.HAChassis) uint64 {
	h := fnv.New64a()
	h.Write([]byte(router + " " + c.ChassisName))
	return h.Sum64()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// syncGateway brings a router's gateway in step with the nodes that are chosen for it, and comes back.
func (c *Controller) syncGateway(ctx context.Context, router string) error {
	r := c.networks.withGateway(router)
	if r == nil {
		return nil // the operator has taken it out of the configuration
	}
	chosen, err := labels.Parse(r.Nodes)
	if err != nil {
		return fmt.Errorf("router %s: gatewayNodes: %w", router, err)
	}
	nodes, err := c.nodesNow(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, node := range nodes {
		if chosen.Matches(labels.Set(node.Labels)) {
			names = append(names, node.Name)
		}
	}
	var chassis []Chassis // nil, where nobody says which nodes there are: those that the gateway has stay
	if nodes != nil {
		if chassis, err = c.networks.ChassisOf(ctx, names); err != nil {
			return err
		}
	}
	if _, err := c.networks.EnsureGateway(ctx, r, chassis); err != nil {
		return err
	}
	c.tellNodes(router, names, chassis)
	c.queue.AddAfter(gatewayItem(router), gatewayEvery)
	return nil
}

// nodesNow does not wait long: all networks wait with it.
func (c *Controller) nodesNow(ctx context.Context) ([]netmodel.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return c.source.Nodes(ctx)
}

// tellNodes logs which nodes a gateway has, when that changes.
func (c *Controller) tellNodes(router string, names []string, chassis []Chassis) {
	var without []string
	for _, name := range names {
		if !slices.ContainsFunc(chassis, func(c Chassis) bool { return c.Node == name }) {
			without = append(without, name)
		}
	}
	text := fmt.Sprint(names, without)
	if c.nodes[router] == text {
		return
	}
	c.nodes[router] = text
	switch {
	case len(names) == 0:
		c.log.Warn("no node has the label of a gateway: nobody gets out by it", "router", router, "gatewayNodes", c.networks.routers[router].Nodes)
	case len(without) > 0:
		c.log.Warn("nodes of a gateway whose agent has not said which chassis they are: is ovn-multinetd running there?", "router", router, "nodes", without)
	default:
		c.log.Info("gateway is in step", "router", router, "nodes", names)
	}
}
