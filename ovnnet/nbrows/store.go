package nbrows

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// ReconcileEvery is the time between two reconcile passes over all networks. They find what other programs have changed
// in NB.
const ReconcileEvery = 5 * time.Minute

// Refused says why a requested change is not made. The present rows stay as they are.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

// Refusedf returns a *Refused with a formatted reason.
func Refusedf(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

// Store reads rows of NB, and writes them if it may.
type Store struct {
	Db *ovndb.DB
	// mayWrite is called before every write: a controller that has lost its Lease must not write.
	mayWrite func() error
	// written is called after each committed transaction.
	written func()
}

// NewStore makes a store that may always write.
func NewStore(db *ovndb.DB) *Store {
	return &Store{Db: db, mayWrite: func() error { return nil }, written: func() {}}
}

// NewLeadersStore makes a store that calls mayWrite before each transaction, and written after each committed one.
func NewLeadersStore(db *ovndb.DB, mayWrite func() error, written func()) *Store {
	return &Store{db, mayWrite, written}
}

// Write commits a transaction.
func (n *Store) Write(ctx context.Context, ops []ovsdb.Operation) error {
	if err := n.mayWrite(); err != nil {
		return err
	}
	_, err := n.Db.Transact(ctx, ops)
	if err == nil {
		n.written()
	}
	return err
}

// Raced tells whether the database refused a write because rows have changed since they were read.
func Raced(err error) bool {
	refused, ok := errors.AsType[*ovndb.Refused](err)
	return ok && (refused.Reason == ovndb.ReasonDuplicate || refused.Reason == ovndb.ReasonTimedOut)
}

// maxAttempts is how often one change is tried. An attempt fails if rows change between reading and writing.
const maxAttempts = 50

// Attempts counts the attempts of one change.
type Attempts int

// Next counts an attempt. After maxAttempts it returns an error; what names the row or network that keeps changing.
func (r *Attempts) Next(what string) error {
	if *r++; *r > maxAttempts {
		return fmt.Errorf("%s changed between reading and writing in each of %d attempts", what, maxAttempts)
	}
	return nil
}

// AsRefused turns the database's refusal of a name that another row has into a *Refused with a readable reason. It
// returns other errors as they are.
func AsRefused(err error) error {
	if r, ok := errors.AsType[*ovndb.Refused](err); ok && r.Reason == ovndb.ReasonConstraint {
		return Refusedf("a row that is not ours is in the way: %s", r.Details)
	}
	return err
}

// SwitchColumns are the columns of a switch that are read. The ports are not among them, because they may be many.
var SwitchColumns = []string{"_uuid", "name", "other_config", "external_ids"}

// One decodes the only row of a select. If there is no row, it does not change *into.
func One[T any](db *ovndb.DB, result ovsdb.OperationResult, into **T) error {
	list, err := ovndb.Rows[T](db, result)
	if err == nil && len(list) > 0 {
		*into = list[0]
	}
	return err
}

// Into decodes the only row of a select into rows[key]. If there is no row, it does not change rows.
func Into[T any](db *ovndb.DB, result ovsdb.OperationResult, key string, rows map[string]*T) error {
	var row *T
	err := One(db, result, &row)
	if row != nil {
		rows[key] = row
	}
	return err
}

// NodeSwitch returns the name of a node switch. It needs no node subnets, unlike netmodel.Network.SwitchName.
func NodeSwitch(id, node string) string { return id + "@" + node }

// NodeSwitchKey returns the row key of a node switch.
func NodeSwitchKey(id, node string) string { return ovndb.SwitchKey(NodeSwitch(id, node)) }

// SelectHolders returns two operations for each key of an address or MAC: they read the port and the claim at this key.
func SelectHolders(keys []string) []ovsdb.Operation {
	var ops []ovsdb.Operation
	for _, key := range keys {
		ops = append(ops, ovndb.Select(nb.LogicalSwitchPortTable, key), ovndb.Select(nb.CoppTable, key))
	}
	return ops
}

// Others returns the keys without those of the switch's ports to routers and to the physical network.
func (p *Switch) Others(keys []string) []string {
	private := ovndb.ServicePortKey(p.Row.ExternalIDs[KeyNetwork])
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return key == private || p.ToRouter != nil && key == p.ToRouter.UUID || p.Localnet != nil && key == p.Localnet.UUID
	})
}

// UserOf names who uses a port: a pod, or the port itself if it is not a pod's.
func UserOf(port *nb.LogicalSwitchPort) string {
	if x := port.ExternalIDs; x[KeySandbox] != "" {
		return "pod " + x[KeyNamespace] + "/" + x[KeyPod]
	}
	return "port " + port.Name + " (not ours)"
}

// SubnetClaimKeys returns the row keys of the claims on the node subnets that a node switch lists.
func SubnetClaimKeys(id string, sw *nb.LogicalSwitch) []string {
	var keys []string
	for _, word := range strings.Split(sw.ExternalIDs[ovndb.NodeSubnetsKey], ",") {
		if block, err := netip.ParsePrefix(word); err == nil {
			keys = append(keys, ovndb.NodeSubnetKey(id, block))
		}
	}
	return keys
}

// ReadAccepted reads the rows with what was accepted for these networks, by network. A row that names another network
// is not ours.
func (n *Store) ReadAccepted(ctx context.Context, ids []string) (map[string]*nb.Copp, error) {
	var keys []string
	for _, id := range ids {
		keys = append(keys, ovndb.AcceptedKey(id))
	}
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, n.Db, nb.CoppTable, keys)
	accepted := map[string]*nb.Copp{}
	for _, row := range rows {
		if id := row.ExternalIDs[KeyNetwork]; row.UUID == ovndb.AcceptedKey(id) {
			accepted[id] = row
		}
	}
	return accepted, err
}
