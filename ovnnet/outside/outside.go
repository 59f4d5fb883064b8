package outside

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Outside reads and writes the rows of outside addresses.
type Outside struct{ store *nbrows.Store }

// New takes the store that writes.
func New(s *nbrows.Store) *Outside { return &Outside{s} }

// Kind is what a user does with an outside address.
type Kind string

const (
	// Floating is an address that one interface has alone: outside hosts reach the pod at it, and see it as the source.
	Floating Kind = "floating"
	// Egress is an address that outside hosts see as the source, of any number of pods of one namespace.
	Egress Kind = "egress"
	// Balanced is an address that one Service has alone: outside hosts reach its pods at it.
	Balanced Kind = "service"
	// Forwarded are ports of the gateway's own addresses. One Service has each of them alone.
	Forwarded Kind = nbrows.UseForward
)

// User is an interface of a pod, or a Service.
type User struct {
	Namespace, Pod, Interface string
	Service                   string // the name; "": the user is an interface
}

// String is "<namespace>/<pod>/<interface>" or "service <namespace>/<name>".
func (u User) String() string {
	if u.Service != "" {
		return servicePrefix + u.Namespace + "/" + u.Service
	}
	return u.Namespace + "/" + u.Pod + "/" + u.Interface
}

const servicePrefix = "service "

// describe names the user in messages.
func (u User) describe() string {
	if u.Service != "" {
		return u.String()
	}
	return "interface " + u.String()
}

// Key names the outside addresses of a user on a router.
type Key struct {
	Router string // the full name
	User   User
}

// Wanted is what NB should have for a user.
type Wanted struct {
	Router *netmodel.Router // with a gateway, as the operator's configuration describes it
	User   User
	Kind   Kind
	// PortKey and PortName are the row key and the name of an interface's port, and Inside are its addresses: at most one
	// of each family. Of a Service, Inside has any address of each family that it may have.
	PortKey, PortName string
	Inside            []netip.Addr
	// Fixed are the wanted outside addresses, at most one of each family. If there are none, the user keeps the addresses
	// that it has, or gets some of Pool; "": of any pool that is granted to the namespace.
	Fixed []netip.Addr
	Pool  string
	// Distributed makes the pod's own node translate a floating address, without a way over the gateway's node. Two cases
	// need the form without it: a node without the bridge mapping of the physical network, where no packet would pass, and
	// a pod that is a backend of a load balancer with outside clients, whose replies would miss the load balancer.
	Distributed bool
	Balancer    *Balancer // of a Service
	Ports       []Port    // with Forwarded: of the Service
}

func (w *Wanted) key() Key { return Key{w.Router.Name, w.User} }

// Result is what NB has for a user.
type Result struct {
	Addresses []netip.Addr // in the order of Inside, or of Fixed
	Changed   bool         // Ensure has written something
}

// ErrNotReady says that the gateway or the port is not in NB as Wanted describes them. Nothing was written.
var ErrNotReady = errors.New("not ready for an outside address")

// Ensure makes the rows of a user the wanted ones, in one transaction: a pod that has moved to another node keeps its
// addresses. If the user cannot have the addresses, the error is a *nbrows.Refused. Then the present rows stay, unless
// the operator's configuration does not allow them any more: such rows are deleted.
func (o *Outside) Ensure(ctx context.Context, w *Wanted) (*Result, error) {
	for tries := nbrows.Attempts(0); ; {
		if err := tries.Next("the outside address of " + w.User.String()); err != nil {
			return nil, err
		}
		have, err := o.read(ctx, w.key(), w)
		if err != nil {
			return nil, err
		}
		b := &nbrows.Batch{Db: o.store.Db}
		addresses, err := o.change(ctx, b, have, w)
		if _, refused := errors.AsType[*nbrows.Refused](err); refused {
			_, failed := o.deleteIf(ctx, w.key(), func(e *Entry) bool { return e.Allowed(w.Router) != nil })
			return nil, errors.Join(err, failed)
		}
		if nbrows.Raced(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		result := &Result{Addresses: addresses}
		if len(b.Ops) == 0 || b.Err != nil {
			return result, b.Err
		}
		b.First(have.unchanged())
		b.First(have.ready(w)...)
		if err = o.store.Write(ctx, b.Ops); err == nil {
			result.Changed = true
			return result, nil
		}
		if !nbrows.Raced(err) {
			return nil, nbrows.AsRefused(err)
		}
	}
}

// change adds the operations that make the present rows the wanted ones, and returns the outside addresses.
func (o *Outside) change(ctx context.Context, b *nbrows.Batch, have *present, w *Wanted) ([]netip.Addr, error) {
	if err := have.checkReady(w); err != nil {
		return nil, err
	}
	pools, wanted := w.Router.Granted(w.User.Namespace), whole(w.Fixed)
	if w.Kind == Forwarded {
		pools, wanted = []*netmodel.AddressPool{&w.Router.Forwards}, forwards(w)
	}
	if err := o.readLimits(ctx, have, pools); err != nil {
		return nil, err
	}
	if err := o.readClaims(ctx, have, append(slices.Clone(have.entry.Addresses), wanted...)); err != nil {
		return nil, err
	}
	for _, a := range have.entry.Addresses {
		have.release(a)
	}
	chosen, err := o.choose(ctx, have, w)
	if err != nil {
		return nil, err
	}
	entry := &Entry{Key: w.key(), Kind: w.Kind, Addresses: chosen}
	for _, a := range chosen {
		have.acquire(entry, a)
	}
	have.write(b)
	text := natText(w)
	if w.Balancer != nil {
		wanted := wantedBalancing(w, entry)
		text = wanted.text()
		if err := o.setBalancing(ctx, b, have, wanted); err != nil {
			return nil, err
		}
	} else {
		have.setNATs(b, wantedNATs(w, chosen))
	}
	row := entryRow(entry, have.book, text)
	nbrows.Put(b, nb.CoppTable, row.UUID, have.row, row)
	return entry.IPs(), nil
}

// Delete deletes the rows of a user, in one transaction. If there are no rows, Delete writes nothing.
func (o *Outside) Delete(ctx context.Context, key Key) (changed bool, err error) {
	return o.deleteIf(ctx, key, func(*Entry) bool { return true })
}

// deleteIf is Delete if the rows, as they are at that moment, are to go.
func (o *Outside) deleteIf(ctx context.Context, key Key, goes func(*Entry) bool) (changed bool, err error) {
	for tries := nbrows.Attempts(0); ; {
		if err := tries.Next("the outside address of " + key.User.String()); err != nil {
			return false, err
		}
		have, err := o.read(ctx, key, nil)
		if err != nil || have.row == nil || !goes(have.entry) {
			return false, err
		}
		if err = o.readLimits(ctx, have, nil); err == nil {
			err = o.readClaims(ctx, have, have.entry.Addresses)
		}
		if nbrows.Raced(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		for _, a := range have.entry.Addresses {
			have.release(a)
		}
		b := &nbrows.Batch{Db: o.store.Db}
		have.write(b)
		have.setNATs(b, nil)
		if key.User.Service != "" {
			if err := o.setBalancing(ctx, b, have, &balancing{}); err != nil {
				return false, err
			}
		}
		b.Add(ovndb.Delete(nb.CoppTable, have.row.UUID))
		if b.Err != nil {
			return false, b.Err
		}
		b.First(have.unchanged())
		if err := o.store.Write(ctx, b.Ops); !nbrows.Raced(err) {
			return err == nil, err
		}
	}
}

// Entry is a user with its outside addresses, as NB has them.
type Entry struct {
	Key
	Kind      Kind
	Addresses []Address
	book      string
}

// Address is an outside address and the name of its pool.
type Address struct {
	netip.Addr
	Port Port // of a forward: what the user has of the address; the zero Port: all
	Pool string
}

// IPs returns the addresses. A user may have several ports of one.
func (e *Entry) IPs() (list []netip.Addr) {
	for _, a := range e.Addresses {
		if !slices.Contains(list, a.Addr) {
			list = append(list, a.Addr)
		}
	}
	return list
}

// Allowed tells why the operator's configuration does not allow the addresses any more; nil: it does. r is the entry's
// router as the configuration has it; nil: the configuration does not have it. A limit that was lowered is no reason:
// the namespace keeps what it has.
func (e *Entry) Allowed(r *netmodel.Router) error {
	if r == nil || !r.HasGateway() {
		return nbrows.Refusedf("router %s has no gateway in the controller's --config", e.Router)
	}
	if v := r.PhysicalVLAN(); e.book != v.AddressBook() {
		return nbrows.Refusedf("the gateway of router %s is on %s now", e.Router, v)
	}
	for _, a := range e.Addresses {
		if _, err := poolOf(r, e.User.Namespace, a); err != nil {
			return err
		}
	}
	return nil
}

// List returns all users that have outside addresses. A controller compares it with the pods and the configuration, and
// deletes what these do not have any more. The server scans the table of claims, so callers do this only when they
// begin, and when the configuration has changed.
func (o *Outside) List(ctx context.Context) ([]*Entry, error) {
	return o.list(ctx, func(row *nb.Copp) bool { return ovndb.OtherCluster(row.ExternalIDs) == "" })
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

// poolOf returns the pool of an address that a namespace may have.
func poolOf(r *netmodel.Router, namespace string, a Address) (*netmodel.AddressPool, error) {
	if a.Port != (Port{}) {
		return &r.Forwards, forwardable(r, namespace, a)
	}
	pool := r.AddressPoolOf(a.Addr)
	switch {
	case pool == nil && r.IsExternal(a.Addr):
		return nil, nbrows.Refusedf("address %s is the own one of the gateway of router %s: a Service has ports of it with "+
			"ovn-multinet/service-outside-address: gateway", a.Addr, r.Name)
	case pool == nil:
		return nil, nbrows.Refusedf("address %s is in no pool of router %s", a.Addr, r.Name)
	}
	return pool, granted(r, pool, namespace)
}

// granted refuses a pool that is not granted to a namespace. The reason has the line to write.
func granted(r *netmodel.Router, pool *netmodel.AddressPool, namespace string) error {
	if pool.Limit(namespace) > 0 {
		return nil
	}
	const form = "the operator grants address pools in the controller's --config: " +
		"routers: {%q: {addressPools: {%s: {namespaces: {%s: 1}}}}}"
	return nbrows.Refusedf("pool %s of router %s is not granted to namespace %s; %s",
		pool.Name, r.Name, namespace, fmt.Sprintf(form, r.Name, pool.Name, namespace))
}

func parseUser(text string) (u User) {
	if id, ok := strings.CutPrefix(text, servicePrefix); ok {
		u.Namespace, u.Service, _ = strings.Cut(id, "/")
		return u
	}
	u.Namespace, text, _ = strings.Cut(text, "/")
	u.Pod, u.Interface, _ = strings.Cut(text, "/")
	return u
}
