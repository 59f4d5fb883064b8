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

// lookAgain is how often the controller compares every network with the database, for what others changed there.
const ReconcileEvery = 5 * time.Minute

// Refused says that a network cannot become what its NAD says. What is there stays as it is.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

func Refusedf(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

// Store reads and writes rows of NB.
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

// Raced tells whether the database refused a write because something changed since it was read.
func Raced(err error) bool {
	refused, ok := errors.AsType[*ovndb.Refused](err)
	return ok && (refused.Reason == ovndb.ReasonDuplicate || refused.Reason == ovndb.ReasonTimedOut)
}

// maxRaces bounds how often one change is begun anew because rows were not as they had been read a moment before.
const maxAttempts = 50

// races counts them.
type Attempts int

func (r *Attempts) Next(what string) error {
	if *r++; *r > maxAttempts {
		return fmt.Errorf("%s is not as it was read each time anew: gave up after %d attempts", what, maxAttempts)
	}
	return nil
}

// inTheWay makes the database's no to a name that another row has an answer for people.
func AsRefused(err error) error {
	if r, ok := errors.AsType[*ovndb.Refused](err); ok && r.Reason == ovndb.ReasonConstraint {
		return Refusedf("a row that is not ours is in the way: %s", r.Details)
	}
	return err
}

// Columns of a switch that are read: not its ports, which may be many.
var SwitchColumns = []string{"_uuid", "name", "other_config", "external_ids"}

// One decodes a select's only row; nil when there is none.
func One[T any](db *ovndb.DB, result ovsdb.OperationResult, into **T) error {
	list, err := ovndb.Rows[T](db, result)
	if err == nil && len(list) > 0 {
		*into = list[0]
	}
	return err
}

func Into[T any](db *ovndb.DB, result ovsdb.OperationResult, key string, rows map[string]*T) error {
	var row *T
	err := One(db, result, &row)
	if row != nil {
		rows[key] = row
	}
	return err
}

// NodeSwitch is netmodel.Network.Switch of a view whose blocks are not known.
func NodeSwitch(id, node string) string { return id + "@" + node }

func NodeSwitchKey(id, node string) string { return ovndb.SwitchKey(NodeSwitch(id, node)) }

func SelectHolders(keys []string) []ovsdb.Operation {
	var ops []ovsdb.Operation
	for _, key := range keys {
		ops = append(ops, ovndb.Select(nb.LogicalSwitchPortTable, key), ovndb.Select(nb.CoppTable, key))
	}
	return ops
}

// Others leaves out the ports that the network has of itself.
func (p *Switch) Others(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return p.ToRouter != nil && key == p.ToRouter.UUID || p.Localnet != nil && key == p.Localnet.UUID
	})
}

// blockKeys are the keys of the claims on the blocks that a node's switch says it has.
func SubnetClaimKeys(id string, sw *nb.LogicalSwitch) []string {
	var keys []string
	for _, word := range strings.Split(sw.ExternalIDs[ovndb.BlocksKey], ",") {
		if block, err := netip.ParsePrefix(word); err == nil {
			keys = append(keys, ovndb.BlockKey(id, block))
		}
	}
	return keys
}
