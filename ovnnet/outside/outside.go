package outside

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Outside reads and writes the rows of outside addresses.
type Outside struct {
	store *nbrows.Store
	// Told is called with the addresses that a user has, after each list, change and check of them; nil: nobody asks.
	Told func(key Key, has []netip.Addr)
}

// New takes the store that writes.
func New(s *nbrows.Store) *Outside { return &Outside{store: s} }

func (o *Outside) tell(key Key, has []netip.Addr) {
	if o.Told != nil {
		o.Told(key, has)
	}
}

// Result is what NB has for a user.
type Result struct {
	Addresses []netip.Addr // in the order of Inside, or of Fixed
	Changed   bool         // Ensure has written something
}

// ErrNotReady says that the gateway or the port is not in NB as Wanted describes them. Nothing was written.
var ErrNotReady = errors.New("not ready for an outside address")

// ErrNotBound is an ErrNotReady that usually ends in a moment: OVN has not bound the port on the pod's node yet.
var ErrNotBound = fmt.Errorf("OVN has not bound the port to its node yet: %w", ErrNotReady)

// Ensure makes the rows of a user the wanted ones, in one transaction: a pod that has moved to another node keeps its
// addresses. If the user cannot have the addresses, the error is a *nbrows.Refused. Then the present rows stay, unless
// the operator's configuration does not allow them any more: such rows are deleted.
func (o *Outside) Ensure(ctx context.Context, w *Wanted) (*Result, error) {
	result := &Result{}
	var refused error // by us, and not by the database
	changed, err := o.store.Change(ctx, "the outside address of "+w.User.String(), func(b *nbrows.Batch) error {
		have, err := o.read(ctx, w.key(), w)
		if err == nil {
			err = o.readBook(ctx, have, w)
		}
		if err != nil {
			return err
		}
		entry, err := o.judge(ctx, have, w)
		if err != nil {
			if _, is := errors.AsType[*nbrows.Refused](err); is {
				refused = err
			}
			return err
		}
		result.Addresses = entry.IPs()
		wanted := wantedRows(w, entry)
		if err := have.checkBound(wanted); err != nil {
			return err
		}
		if err := o.write(ctx, b, have, wanted); err != nil {
			return err
		}
		b.First(have.unchanged())
		b.First(have.ready(w)...)
		return nil
	})
	if refused != nil {
		_, failed := o.deleteIf(ctx, w.key(), func(e *Entry) bool { return e.Allowed(w.Router) != nil })
		return nil, errors.Join(refused, failed)
	}
	if err != nil {
		return nil, err
	}
	result.Changed = changed
	o.tell(w.key(), result.Addresses)
	return result, nil
}

// Delete deletes the rows of a user, in one transaction. If there are no rows, Delete writes nothing.
func (o *Outside) Delete(ctx context.Context, key Key) (changed bool, err error) {
	return o.deleteIf(ctx, key, func(*Entry) bool { return true })
}

// deleteIf is Delete if the rows, as they are at that moment, are to go.
func (o *Outside) deleteIf(ctx context.Context, key Key, goes func(*Entry) bool) (changed bool, err error) {
	stays := false
	changed, err = o.store.Change(ctx, "the outside address of "+key.User.String(), func(b *nbrows.Batch) error {
		have, err := o.read(ctx, key, nil)
		stays = err != nil || have.row != nil && !goes(have.entry)
		if stays || have.row == nil {
			return err
		}
		if err := o.readBook(ctx, have, nil); err != nil {
			return err
		}
		have.releaseAll()
		if err := o.write(ctx, b, have, &rows{}); err != nil {
			return err
		}
		b.First(have.unchanged())
		return nil
	})
	if !stays && err == nil {
		o.tell(key, nil)
	}
	return changed, err
}

// List returns all users that have outside addresses. A controller compares it with the pods and the configuration, and
// deletes what these do not have any more. The server scans the table of claims, so callers do this only when they
// begin, and when the configuration has changed.
func (o *Outside) List(ctx context.Context) ([]*Entry, error) {
	all, err := o.list(ctx, func(row *nb.Copp) bool { return ovndb.OtherCluster(row.ExternalIDs) == "" })
	for _, e := range all {
		o.tell(e.Key, e.IPs())
	}
	return all, err
}

// ListForPeople is List for a program that does not know which cluster is its own.
func (o *Outside) ListForPeople(ctx context.Context) ([]*Entry, error) {
	return o.list(ctx, func(*nb.Copp) bool { return true })
}

func (o *Outside) list(ctx context.Context, listed func(*nb.Copp) bool) ([]*Entry, error) {
	results, err := o.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, kindOutside, "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.Copp](o.store.Db, results[0])
	var all []*Entry
	for _, row := range rows {
		e := parseEntry(row)
		if listed(row) && row.UUID == ovndb.OutsideKey(e.Router, e.User.String()) {
			all = append(all, e)
		}
	}
	return all, err
}
