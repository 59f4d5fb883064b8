package ovnport

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// ListedPorts reads the ports in the port lists of nodes, again and again. It reads only the lists that have changed,
// and the rows of ports that are new in a list. It is for one caller at a time.
type ListedPorts struct {
	nb    *NB
	nodes map[string]*NodePorts
	calls int
	used  map[string]int // by node: the last call that asked for the node
	// versions has the versions of the port lists, by node, of those lists whose ports are all known.
	versions map[string]string
}

// forgetAfter is the number of calls without a node after which the node's ports are forgotten.
const forgetAfter = 10_000

// NewListedPorts makes a reader that knows no port yet.
func (n *NB) NewListedPorts() *ListedPorts {
	return &ListedPorts{nb: n, nodes: map[string]*NodePorts{}, used: map[string]int{}, versions: map[string]string{}}
}

// On returns the ports of the pods on these nodes. The node "" stands for all nodes that have a port list: the server
// scans the table of claims for it.
func (l *ListedPorts) On(ctx context.Context, nodes []string) ([]OwnedPort, error) {
	lists, versions, err := l.lists(ctx, nodes)
	if err != nil {
		return nil, err
	}
	l.calls++
	var all []OwnedPort
	for node, list := range lists {
		l.used[node] = l.calls
		ports := l.nodes[node]
		if ports == nil {
			ports = l.nb.PortsOn(node)
			l.nodes[node] = ports
		}
		if list != nil {
			version := cmp.Or(versions[node], l.versions[node]) // an older version is only read again
			delete(l.versions, node)
			if err := ports.learn(ctx, list); err != nil {
				return nil, err
			}
			if len(ports.known) == len(list) {
				l.versions[node] = version
			}
		}
		all = slices.AppendSeq(all, maps.Values(ports.known))
	}
	maps.DeleteFunc(l.used, func(_ string, call int) bool { return l.calls-call > forgetAfter })
	maps.DeleteFunc(l.nodes, func(node string, _ *NodePorts) bool { return l.used[node] == 0 })
	maps.DeleteFunc(l.versions, func(node, _ string) bool { return l.used[node] == 0 })
	return all, nil
}

// ByKey returns the ports of pods with these row keys, without those that are gone.
func (l *ListedPorts) ByKey(ctx context.Context, keys []string) ([]OwnedPort, error) {
	rows, err := ovndb.ReadByKey[nb.LogicalSwitchPort](
		ctx, l.nb.db, nb.LogicalSwitchPortTable, keys, "_uuid", "name", "addresses", "external_ids")
	var all []OwnedPort
	for _, row := range rows {
		if isPodPort(row) {
			all = append(all, ownedPort(row))
		}
	}
	return all, err
}

// lists reads the port lists, by node: nil for a list that has not changed. versions are those that the lists had
// before they were read.
func (l *ListedPorts) lists(
	ctx context.Context, nodes []string,
) (lists map[string]map[string]string, versions map[string]string, err error) {
	lists, versions = map[string]map[string]string{}, map[string]string{}
	if slices.Contains(nodes, "") {
		results, err := l.nb.db.Transact(ctx, []ovsdb.Operation{
			ovndb.SelectWith(nb.CoppTable, "external_ids", keyKind, kindPortList, "external_ids"),
		})
		if err != nil {
			return nil, nil, err
		}
		rows, err := ovndb.Rows[nb.Copp](l.nb.db, results[0])
		for _, row := range rows {
			lists[row.ExternalIDs[keyNode]] = portsIn(row)
		}
		return lists, nil, err
	}
	keys, changed := map[string]string{}, []string{}
	for _, node := range nodes {
		keys[node] = ovndb.PortListKey(node)
	}
	byKey, err := ovndb.Versions(ctx, l.nb.db, nb.CoppTable, slices.Collect(maps.Values(keys)))
	if err != nil {
		return nil, nil, err
	}
	for node, key := range keys {
		versions[node] = byKey[key]
		switch {
		case versions[node] == "": // the node has no list
		case versions[node] == l.versions[node]:
			lists[node] = nil
		default:
			changed = append(changed, key)
		}
	}
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, l.nb.db, nb.CoppTable, changed, "external_ids")
	for _, row := range rows {
		lists[row.ExternalIDs[keyNode]] = portsIn(row)
	}
	return lists, versions, err
}
