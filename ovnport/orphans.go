package ovnport

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/internal/stale"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Gone says why the pod or the node of an owner is gone for good; "" when both are there.
type Gone func(o Owner) string

// Cluster is what the garbage collection asks the source of pods.
type Cluster interface {
	// NodeNames returns the names of all nodes, or nil if the source does not know the nodes.
	NodeNames(ctx context.Context) ([]string, error)
	// Gone lists the nodes with these names, or all nodes if nodes is empty, and their pods. It fails if it cannot list
	// all of them, and its lists are no older than its call.
	Gone(ctx context.Context, nodes ...string) (Gone, error)
}

// Orphans releases ports whose pod or node is gone for good: no agent is left to release them. It releases a port that
// two passes in a row saw as an orphan of one sandbox. The first two passes look at all ports. Each further pass looks
// at the port lists of some nodes, so the work of a pass does not grow with the cluster.
type Orphans struct {
	nb       *NB
	cluster  Cluster
	mayWrite func() error
	log      *slog.Logger
	seen     stale.Tracker[orphan]
	scan     time.Time       // when the next passes that look at all ports are due
	scans    int             // how many of these passes were made; an orphan is confirmed after two
	nodes    map[string]bool // the names of all nodes that may have a port list
	gone     []string        // those of nodes that the source did not have in the last pass
	empty    map[string]int  // the passes since a node that is gone had a port, by the node's name
	last     string          // the last of the nodes that the last pass looked at
	suspects []string        // nodes for which the last pass saw orphans
}

// orphan is a port as a pass sees it: the key of its row, and the sandbox that owns it.
type orphan struct{ key, sandbox string }

// nodesPerPass is how many nodes a pass looks at, besides those that are gone and those with orphans.
const nodesPerPass = 20

// emptyPasses is how many passes read the port list of a node that is gone and has no port. The node's agent may still
// run, and insert ports of its pods again, until the API server refuses the agent's token: a minute or two after the
// node was deleted.
const emptyPasses = 60

// NewOrphans makes the garbage collection of ports. mayWrite is asked before each release.
func NewOrphans(nb *NB, cluster Cluster, mayWrite func() error, log *slog.Logger) *Orphans {
	return &Orphans{
		nb: nb, cluster: cluster, mayWrite: mayWrite, log: log, nodes: map[string]bool{}, empty: map[string]int{},
	}
}

// Run makes one pass per period until ctx ends.
func (o *Orphans) Run(ctx context.Context, period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		if err := o.Pass(ctx); err != nil && ctx.Err() == nil {
			o.log.Warn("garbage collection of ports", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Pass makes one pass. After an error two new passes have to see a port before it is released.
func (o *Orphans) Pass(ctx context.Context) error {
	pass, scans := o.seen.Begin(), o.scans
	o.scans = 0
	nodes, err := o.next(ctx)
	if err != nil {
		return err
	}
	// The ports first: a pod that is newer than the list of pods has no port in the list of ports.
	var rows []*nb.LogicalSwitchPort
	if nodes == nil {
		rows, err = o.nb.podPorts(ctx)
	} else {
		rows, err = o.nb.listedPorts(ctx, nodes, o.unknown())
	}
	if err != nil {
		return err
	}
	gone, err := o.cluster.Gone(ctx, nodes...)
	if err != nil {
		return err
	}
	occupied, suspects := map[string]bool{}, map[string]bool{}
	for _, row := range rows {
		owner := ownerOf(row)
		occupied[owner.Node], o.nodes[owner.Node] = true, true
		reason := gone(owner)
		if reason == "" {
			continue
		}
		suspects[owner.Node] = true
		if confirmed := pass.Saw(orphan{row.UUID, owner.Sandbox}); !confirmed {
			o.log.Debug("saw an orphan", "port", row.Name, "reason", reason)
			continue
		}
		if err := o.mayWrite(); err != nil {
			return err
		}
		network := row.ExternalIDs[keyNetwork]
		// On a layer3 network a node switch has the port. Then Release finds the switch by a scan.
		keys := keysOfRow(row)
		keys.Switch = ovndb.SwitchKey(network)
		if err := o.nb.Release(ctx, owner, []Keys{keys}); err != nil {
			return fmt.Errorf("release port %s: %w", row.Name, err)
		}
		o.log.Info("released an orphan", "port", row.Name, "network", network, "reason", reason)
	}
	o.suspects = slices.Collect(maps.Keys(suspects))
	for _, node := range o.gone {
		o.empty[node]++
		if occupied[node] {
			delete(o.empty, node)
		} else if o.empty[node] >= emptyPasses {
			delete(o.empty, node)
			delete(o.nodes, node)
		}
	}
	if nodes == nil {
		if o.scans = scans + 1; o.scans == 2 {
			o.scan, o.scans = time.Now().Add(scanPeriod+rand.N(scanPeriod)), 0
		}
	}
	pass.End()
	return nil
}

// next returns the nodes that the pass looks at: those that are gone, those with orphans, and the next in the order of
// their names. nil: the pass looks at all ports, because this is due, or because the source does not know the nodes.
func (o *Orphans) next(ctx context.Context) ([]string, error) {
	present, err := o.cluster.NodeNames(ctx)
	if err != nil || present == nil {
		return nil, err
	}
	exists := map[string]bool{}
	for _, node := range present {
		exists[node] = true
		o.nodes[node] = true
		delete(o.empty, node)
	}
	if time.Now().After(o.scan) {
		return nil, nil
	}
	chosen := map[string]bool{}
	for _, node := range o.suspects {
		chosen[node] = true
	}
	o.gone = nil
	for node := range o.nodes {
		if !exists[node] {
			o.gone = append(o.gone, node)
			chosen[node] = true
		}
	}
	slices.Sort(present)
	first, _ := slices.BinarySearch(present, o.last+"\x00")
	for i := range min(nodesPerPass, len(present)) {
		o.last = present[(first+i)%len(present)]
		chosen[o.last] = true
	}
	return slices.Sorted(maps.Keys(chosen)), nil
}

// unknown returns the nodes that are gone, except those for which a pass found no port.
func (o *Orphans) unknown() []string {
	return slices.DeleteFunc(slices.Clone(o.gone), func(node string) bool { return o.empty[node] > 0 })
}

// listedPorts reads the names and owners of the ports in the port lists of nodes. A node that is gone may have no list,
// because its agent was of an older version: a scan finds the ports of such nodes in unknown.
func (n *NB) listedPorts(ctx context.Context, nodes, unknown []string) ([]*nb.LogicalSwitchPort, error) {
	keys := make([]string, len(nodes))
	for i, node := range nodes {
		keys[i] = ovndb.PortListKey(node)
	}
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, n.db, nb.CoppTable, keys, "external_ids")
	if err != nil {
		return nil, err
	}
	lists := map[string]map[string]string{} // by node
	for _, list := range rows {
		lists[list.ExternalIDs[keyNode]] = portsIn(list)
	}
	for _, node := range unknown {
		if lists[node] == nil {
			if lists[node], err = n.scanPorts(ctx, node); err != nil {
				return nil, err
			}
		}
	}
	var all []*nb.LogicalSwitchPort
	for node, list := range lists {
		rows, err := ovndb.ReadByKey[nb.LogicalSwitchPort](ctx, n.db, nb.LogicalSwitchPortTable,
			slices.Collect(maps.Keys(list)), "_uuid", "name", "external_ids")
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if isPodPort(row) && row.ExternalIDs[keyNode] == node {
				all = append(all, row)
			}
		}
	}
	return all, nil
}

// isPodPort reports whether the port is one of a pod of this cluster.
func isPodPort(row *nb.LogicalSwitchPort) bool {
	return row.ExternalIDs[keySandbox] != "" && ovndb.OtherCluster(row.ExternalIDs) == ""
}

// podPorts reads the names and owners of the ports of this cluster's pods, page by page.
func (n *NB) podPorts(ctx context.Context) ([]*nb.LogicalSwitchPort, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"ports", "external_ids"}},
	})
	if err != nil {
		return nil, err
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](n.db, results[0])
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, sw := range switches {
		if sw.ExternalIDs[keyNetwork] != "" && ovndb.OtherCluster(sw.ExternalIDs) == "" {
			keys = append(keys, sw.Ports...)
		}
	}
	ports, err := ovndb.ReadByKey[nb.LogicalSwitchPort](
		ctx, n.db, nb.LogicalSwitchPortTable, keys, "_uuid", "name", "external_ids")
	return slices.DeleteFunc(ports, func(row *nb.LogicalSwitchPort) bool { return !isPodPort(row) }), err
}
