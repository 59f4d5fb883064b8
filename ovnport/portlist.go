package ovnport

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// The port list of a node is a row of the table Copp. It has a pair in external_ids for each port of the node's pods:
// the row key of the port, and the sandbox that owns the port. The transaction that inserts, takes over or deletes a
// port changes the list too. So nobody has to scan all ports to find those of one node.
const (
	keyKind      = "ovn-multinet/kind"
	kindPortList = "port-list"
)

// newPortList returns the row of a node's port list, without ports.
func newPortList(node string) *nb.Copp {
	return &nb.Copp{
		UUID: ovndb.PortListKey(node), Name: "ovn-multinet ports of node " + node,
		ExternalIDs: map[string]string{keyKind: kindPortList, keyNode: node, keyEpoch: cryptorand.Text()},
	}
}

// enlist adds ports to the node's port list. A deletion comes first, because the insertion of a key that the map has
// already changes nothing (RFC 7047, section 5.1).
func enlist(node, sandbox string, keys ...string) ovsdb.Operation {
	op := changePortList(node, ovsdb.MutateOperationDelete, ovndb.Set(keys))
	op.Mutations = append(op.Mutations,
		*ovsdb.NewMutation("external_ids", ovsdb.MutateOperationInsert, pairs(sandbox, keys)))
	return op
}

// delist removes ports from the node's port list, if the list says that the sandbox owns them.
func delist(node, sandbox string, keys ...string) ovsdb.Operation {
	return changePortList(node, ovsdb.MutateOperationDelete, pairs(sandbox, keys))
}

func changePortList(node string, how ovsdb.Mutator, value any) ovsdb.Operation {
	op := ovndb.Delete(nb.CoppTable, ovndb.PortListKey(node))
	op.Op, op.Mutations = ovsdb.OperationMutate, []ovsdb.Mutation{*ovsdb.NewMutation("external_ids", how, value)}
	return op
}

func pairs(sandbox string, keys []string) ovsdb.OvsMap {
	m := map[string]string{}
	for _, key := range keys {
		m[key] = sandbox
	}
	return ovndb.Map(m)
}

// readPortList reads the pairs of a node's port list; nil: the node has no list.
func (n *NB) readPortList(ctx context.Context, node string) (map[string]string, error) {
	row, err := n.readPortListRow(ctx, node, n.db.Transact)
	if err != nil || row == nil {
		return nil, err
	}
	return portsIn(row), nil
}

// reading runs a transaction that writes nothing.
type reading func(context.Context, []ovsdb.Operation) ([]ovsdb.OperationResult, error)

func (n *NB) readPortListRow(ctx context.Context, node string, read reading) (*nb.Copp, error) {
	results, err := read(ctx, []ovsdb.Operation{
		ovndb.Select(nb.CoppTable, ovndb.PortListKey(node), "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.Copp](n.db, results[0])
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// portsIn returns the pairs of a port list: the row keys of ports, and the sandboxes that own them.
func portsIn(list *nb.Copp) map[string]string {
	ports := maps.Clone(list.ExternalIDs)
	maps.DeleteFunc(ports, func(key, _ string) bool { return strings.HasPrefix(key, ourPrefix) })
	return ports
}

// scanPorts finds the ports of a node's pods among all ports. The server scans the table.
func (n *NB) scanPorts(ctx context.Context, node string) (map[string]string, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.LogicalSwitchPortTable, "external_ids", keyNode, node, "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.LogicalSwitchPort](n.db, results[0])
	found := map[string]string{}
	for _, row := range rows {
		if isPodPort(row) {
			found[row.UUID] = row.ExternalIDs[keySandbox]
		}
	}
	return found, err
}

// makePortList inserts the port list of a node that has none, with the ports that exist, and returns its epoch; "":
// another call has just inserted the list. Until the row exists, no port of this node can be inserted: the list is
// complete.
func (n *NB) makePortList(ctx context.Context, node string) (epoch string, err error) {
	found, err := n.scanPorts(ctx, node)
	if err != nil {
		return "", err
	}
	list := newPortList(node)
	maps.Copy(list.ExternalIDs, found)
	row, err := n.db.Insert(list)
	if err != nil {
		return "", err
	}
	_, err = n.db.Transact(ctx, []ovsdb.Operation{row})
	if refused, ok := errors.AsType[*ovndb.Refused](err); ok && refused.Reason == ovndb.ReasonDuplicate {
		return "", nil
	}
	return list.ExternalIDs[keyEpoch], err
}

// completePortList compares a node's port list with all ports. It adds ports that are not in the list: an agent of an
// older version inserted them. It removes entries whose port is gone, or has another owner: a network was deleted with
// its ports, or another node has taken the port over. A node without a list gets one.
func (n *NB) completePortList(ctx context.Context, node string) error {
	if err := n.renewEpoch(ctx, node); err != nil {
		return err
	}
	list, err := n.readPortList(ctx, node)
	if err != nil {
		return err
	}
	found, err := n.scanPorts(ctx, node)
	if err != nil {
		return err
	}
	for key, sandbox := range found {
		if list[key] != sandbox {
			err = errors.Join(err, n.unlessRaced(ctx, owned(key, sandbox), enlist(node, sandbox, key)))
		}
	}
	maps.DeleteFunc(list, func(key, _ string) bool { _, there := found[key]; return there })
	rows, _, readErr := n.read(ctx, slices.Collect(maps.Keys(list)))
	for key, sandbox := range list {
		guard := ovndb.Absent(nb.LogicalSwitchPortTable, key)
		if row := rows[key]; row != nil {
			if row.ExternalIDs[keySandbox] == sandbox {
				continue // a port of another cluster
			}
			guard = owned(key, row.ExternalIDs[keySandbox])
		}
		if readErr == nil {
			err = errors.Join(err, n.unlessRaced(ctx, guard, delist(node, sandbox, key)))
		}
	}
	return errors.Join(err, readErr)
}

// unlessRaced writes something if its guard is still true.
func (n *NB) unlessRaced(ctx context.Context, guard, write ovsdb.Operation) error {
	_, err := n.db.Transact(ctx, []ovsdb.Operation{guard, write})
	if _, raced := errors.AsType[*ovndb.Refused](err); raced {
		return nil
	}
	return err
}

// OwnedPort is a port of a pod, with its owner as NB has it.
type OwnedPort struct {
	UUID      string
	Name      string
	Network   string
	Interface string
	Owner     Owner
	Addresses []netip.Addr
	// PodVersion is the resource version of the pod that the port's groups of policies were chosen by.
	PodVersion string
}

func ownedPort(row *nb.LogicalSwitchPort) OwnedPort {
	return OwnedPort{
		UUID: row.UUID, Name: row.Name, Network: row.ExternalIDs[keyNetwork],
		Interface: row.ExternalIDs[keyInterface], Owner: ownerOf(row), Addresses: addressesOf(row),
		PodVersion: row.ExternalIDs[ovndb.PodVersionKey],
	}
}

// addressesOf returns the IP addresses of a port: the words after its MAC.
func addressesOf(row *nb.LogicalSwitchPort) []netip.Addr {
	var list []netip.Addr
	for _, text := range row.Addresses {
		for word := range strings.FieldsSeq(text) {
			if a, err := netip.ParseAddr(word); err == nil {
				list = append(list, a)
			}
		}
	}
	return list
}

// NodePorts reads the ports of one node's pods again and again. It reads the node's port list, and only the rows of
// ports that are new in the list. It is for one caller at a time.
type NodePorts struct {
	nb    *NB
	node  string
	known map[listed]OwnedPort
	scan  atomic.Pointer[time.Time] // when the list has to be compared with all ports again; nil: now
}

// listed is a pair of a port list.
type listed struct{ key, sandbox string }

// scanPeriod is the shortest time after which the port list is compared with all ports again. The longest is twice as
// long: a random part keeps the scans of many agents apart.
const scanPeriod = 12 * time.Hour

// PortsOn returns the reader of the ports of a node's pods.
func (n *NB) PortsOn(node string) *NodePorts {
	return &NodePorts{nb: n, node: node, known: map[listed]OwnedPort{}}
}

// Rescan has the next Read compare the port list with all ports, and read each port anew.
func (p *NodePorts) Rescan() { p.scan.Store(nil) }

// Read returns the ports of the node's pods. The first Read compares the port list with all ports.
func (p *NodePorts) Read(ctx context.Context) ([]OwnedPort, error) {
	all, err := p.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("this node's ports: %w", err)
	}
	return all, nil
}

func (p *NodePorts) read(ctx context.Context) ([]OwnedPort, error) {
	if due := p.scan.Load(); due == nil || time.Now().After(*due) {
		next := time.Now().Add(scanPeriod + rand.N(scanPeriod))
		p.scan.Store(&next)
		clear(p.known)
		if err := p.nb.completePortList(ctx, p.node); err != nil {
			p.Rescan()
			return nil, err
		}
	}
	row, err := p.nb.readPortListRow(ctx, p.node, p.nb.db.ReadTogether)
	if err != nil {
		return nil, err
	}
	if row == nil { // deleted since
		p.Rescan()
		return p.read(ctx)
	}
	if err := p.learn(ctx, portsIn(row)); err != nil {
		return nil, err
	}
	return slices.Collect(maps.Values(p.known)), nil
}

// learn reads the rows of ports that are new in the list, and forgets the ports that the list has no more. Entries
// without a port of this sandbox are read again each time: the port may be restored.
func (p *NodePorts) learn(ctx context.Context, list map[string]string) error {
	maps.DeleteFunc(p.known, func(l listed, _ OwnedPort) bool { return list[l.key] != l.sandbox })
	var fresh []string
	for key, sandbox := range list {
		if _, known := p.known[listed{key, sandbox}]; !known {
			fresh = append(fresh, key)
		}
	}
	rows, err := ovndb.ReadByKey[nb.LogicalSwitchPort](
		ctx, p.nb.db, nb.LogicalSwitchPortTable, fresh, "_uuid", "name", "addresses", "external_ids")
	if err != nil {
		return err
	}
	for _, row := range rows {
		if sandbox := list[row.UUID]; isPodPort(row) && row.ExternalIDs[keySandbox] == sandbox {
			p.known[listed{row.UUID, sandbox}] = ownedPort(row)
		}
	}
	return nil
}
