package nbrows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
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
	// written is called after each committed transaction, with its operations.
	written func([]ovsdb.Operation)
	// News is called after a change of rows which agents read only after news, or once a minute; nil: nobody is told.
	News func()

	mu       sync.Mutex
	accepted map[string]accepted // by network
}

// NewStore makes a store that may always write.
func NewStore(db *ovndb.DB) *Store {
	return NewLeadersStore(db, func() error { return nil }, func([]ovsdb.Operation) {})
}

// NewLeadersStore makes a store that calls mayWrite before each transaction, and written after each committed one, with
// its operations.
func NewLeadersStore(db *ovndb.DB, mayWrite func() error, written func([]ovsdb.Operation)) *Store {
	return &Store{Db: db, mayWrite: mayWrite, written: written, accepted: map[string]accepted{}}
}

// Write commits a transaction.
func (n *Store) Write(ctx context.Context, ops []ovsdb.Operation) error {
	if err := n.mayWrite(); err != nil {
		return err
	}
	_, err := n.Db.Transact(ctx, ops)
	if err == nil {
		n.written(ops)
	}
	return err
}

// Raced reports whether the database refused a write because rows have changed since they were read.
func Raced(err error) bool {
	refused, ok := errors.AsType[*ovndb.Refused](err)
	return ok && (refused.Reason == ovndb.ReasonDuplicate || refused.Reason == ovndb.ReasonTimedOut)
}

// maxAttempts is how often one change is tried. An attempt fails if rows change between reading and writing.
const maxAttempts = 50

// ErrAgain is what an attempt returns if rows have to be read again: they have changed, or the attempt wrote some.
var ErrAgain = errors.New("rows have to be read again")

// Retry calls try until no other program has changed rows between its reading and its writing. what names in the error
// the row or network that keeps changing.
func Retry(what string, try func() error) error {
	for range maxAttempts {
		if err := try(); !Raced(err) && !errors.Is(err, ErrAgain) {
			return err
		}
	}
	return fmt.Errorf("%s changed between reading and writing in each of %d attempts", what, maxAttempts)
}

// Change makes a change of NB in one transaction. build reads rows, and adds to an empty batch the operations that make
// them the wanted ones; without operations nothing is written. If rows have changed since build read them, build is
// called again. what names the change in the error after too many attempts.
func (n *Store) Change(ctx context.Context, what string, build func(*Batch) error) (changed bool, err error) {
	err = Retry(what, func() error {
		b := &Batch{Db: n.Db}
		if err := cmp.Or(build(b), b.Err); err != nil || len(b.Ops) == 0 {
			return err
		}
		err := n.Write(ctx, b.Ops)
		changed = err == nil
		if _, refused := errors.AsType[*ovndb.Refused](err); !refused && b.News && n.News != nil {
			n.News() // also after a lost answer
		}
		return AsRefused(err)
	})
	return changed, err
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
