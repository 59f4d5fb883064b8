package ovnport

import (
	"context"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// ListedPorts reads the ports in the port lists of nodes, again and again. It reads only the rows of ports that are new
// in a list. It is for one caller at a time.
type ListedPorts struct {
	nb    *NB
	nodes map[string]*NodePorts
	calls int
	used  map[string]int // by node: the last call that asked for the node
}

// forgetAfter is the number of calls without a node after which the node's ports are forgotten.
const forgetAfter = 10_000

// NewListedPorts makes a reader that knows no port yet.
func (n *NB) NewListedPorts() *ListedPorts {
	return &ListedPorts{nb: n, nodes: map[string]*NodePorts{}, used: map[string]int{}}
}

// On returns the ports of the pods on these nodes. The node "" stands for all nodes that have a port list: the server
// scans the table of claims for it.
func (l *ListedPorts) On(ctx context.Context, nodes []string) ([]OwnedPort, error) {
	lists, err := l.lists(ctx, nodes)
	if err != nil {
		return nil, err
	}
	l.calls++
	for node := range lists {
		l.used[node] = l.calls
	}
	maps.DeleteFunc(l.used, func(_ string, call int) bool { return l.calls-call > forgetAfter })
	maps.DeleteFunc(l.nodes, func(node string, _ *NodePorts) bool { return l.used[node] == 0 })
	var all []OwnedPort
	for node, list := range lists {
		ports := l.nodes[node]
		if ports == nil {
			ports = l.nb.PortsOn(node)
			l.nodes[node] = ports
		}
		if err := ports.learn(ctx, list); err != nil {
			return nil, err
		}
		all = slices.AppendSeq(all, maps.Values(ports.known))
	}
	return all, nil
}

// ByKey returns the ports of pods with these row keys, without those that are gone.
func (l *ListedPorts) ByKey(ctx context.Context, keys []string) ([]OwnedPort, error) {
	rows, err := ovndb.ReadByKey[nb.LogicalSwitchPort](
		ctx, l.nb.db, nb.LogicalSwitchPortTable, keys, "_uuid", "name", "external_ids")
	var all []OwnedPort
	for _, row := range rows {
		if isPodPort(row) {
			all = append(all, ownedPort(row))
		}
	}
	return all, err
}

// lists reads the port lists, by node.
func (l *ListedPorts) lists(ctx context.Context, nodes []string) (map[string]map[string]string, error) {
	lists := map[string]map[string]string{}
	if slices.Contains(nodes, "") {
		results, err := l.nb.db.Transact(ctx, []ovsdb.Operation{
			ovndb.SelectWith(nb.CoppTable, "external_ids", keyKind, kindPortList, "external_ids"),
		})
		if err != nil {
			return nil, err
		}
		rows, err := ovndb.Rows[nb.Copp](l.nb.db, results[0])
		for _, row := range rows {
			lists[row.ExternalIDs[keyNode]] = portsIn(row)
		}
		return lists, err
	}
	keys := make([]string, len(nodes))
	for i, node := range nodes {
		keys[i] = ovndb.PortListKey(node)
	}
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, l.nb.db, nb.CoppTable, keys, "external_ids")
	for _, row := range rows {
		lists[row.ExternalIDs[keyNode]] = portsIn(row)
	}
	return lists, err
}
