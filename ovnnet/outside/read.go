package outside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// present are the rows of a user as read from NB. limits and claims also have what should become of them.
type present struct {
	key   Key
	row   *nb.Copp
	entry *Entry             // of the row
	book  string             // that of the wanted addresses, or the entry's
	nats  map[string]*nb.NAT // of an interface
	balancing
	gateway *nb.LogicalRouter
	claimed []*nb.Copp // the claims on the gateway's own addresses in the book
	port    *nb.LogicalSwitchPort
	limits  map[string]*limit // by pool
	claims  map[string]*claim // by row key
	gains   bool              // the user gets an address that it does not have
}

// read reads the rows whose keys are made from the router's and the user's names. w is nil if they are to be deleted.
func (o *Outside) read(ctx context.Context, key Key, w *Wanted) (*present, error) {
	have := &present{
		key: key, nats: map[string]*nb.NAT{}, limits: map[string]*limit{}, claims: map[string]*claim{},
	}
	user, db := key.User.String(), o.store.Db
	ops := []ovsdb.Operation{ovndb.Select(nb.CoppTable, ovndb.OutsideKey(key.Router, user))}
	decode := []func(ovsdb.OperationResult) error{
		func(r ovsdb.OperationResult) error { return nbrows.One(db, r, &have.row) },
	}
	if key.User.Service != "" {
		more, into := have.balancing.read(db, key)
		ops, decode = append(ops, more...), append(decode, into...)
	} else {
		for _, family := range nbrows.Families {
			nat := ovndb.OutsideNATKey(key.Router, user, family)
			ops = append(ops, ovndb.Select(nb.NATTable, nat))
			decode = append(decode, func(r ovsdb.OperationResult) error { return nbrows.Into(db, r, nat, have.nats) })
		}
	}
	if w != nil {
		if !w.Router.HasGateway() {
			return nil, nbrows.Refusedf("router %s has no gateway in the controller's --config", key.Router)
		}
		have.book = w.Router.PhysicalVLAN().AddressBook()
		ops = append(ops, ovndb.Select(nb.LogicalRouterTable, ovndb.GatewayKey(key.Router), "_uuid"))
		decode = append(decode, func(r ovsdb.OperationResult) error { return nbrows.One(db, r, &have.gateway) })
		have.claimed = make([]*nb.Copp, len(w.Router.External))
		for i, external := range w.Router.External {
			ops = append(ops, ovndb.Select(nb.CoppTable, ovndb.AddressKey(have.book, external.Addr())))
			decode = append(decode, func(r ovsdb.OperationResult) error { return nbrows.One(db, r, &have.claimed[i]) })
		}
	}
	if w != nil && w.Balancer == nil {
		ops = append(ops,
			ovndb.Select(nb.LogicalSwitchPortTable, w.PortKey, "_uuid", "name", "addresses", "external_ids"))
		decode = append(decode, func(r ovsdb.OperationResult) error { return nbrows.One(db, r, &have.port) })
	}
	results, err := db.Transact(ctx, ops)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i, d := range decode {
		errs = append(errs, d(results[i]))
	}
	have.entry = parseEntry(have.row)
	have.book = cmp.Or(have.book, have.entry.book)
	return have, errors.Join(errs...)
}

// checkReady refuses to write before the gateway and the port are there.
func (have *present) checkReady(w *Wanted) error {
	by := ovndb.ClaimantPrefix + "router " + have.key.Router
	other := func(c *nb.Copp) bool { return c == nil || c.ExternalIDs[by] == "" }
	switch {
	case have.gateway == nil, slices.ContainsFunc(have.claimed, other):
		return fmt.Errorf("the gateway of router %s is not on %s yet: %w",
			have.key.Router, w.Router.PhysicalVLAN(), ErrNotReady)
	case w.Balancer != nil:
		return nil
	case have.port == nil, have.port.Name != w.PortName, !containsAll(have.port.ExternalIDs, portMarks(w.User)):
		return fmt.Errorf("interface %s has no port %s: %w", w.User, w.PortName, ErrNotReady)
	}
	words := strings.Fields(strings.Join(have.port.Addresses, " "))
	for _, a := range w.Inside {
		if !slices.Contains(words, a.String()) {
			return fmt.Errorf("port %s does not have address %s: %w", w.PortName, a, ErrNotReady)
		}
	}
	return nil
}

// ready asserts what checkReady has seen.
func (have *present) ready(w *Wanted) []ovsdb.Operation {
	by := ovndb.ClaimantPrefix + "router " + have.key.Router
	var guards []ovsdb.Operation
	for _, c := range have.claimed { // the gateway's claims go and move with the gateway
		guards = append(guards, ovndb.Holds(nb.CoppTable, c.UUID, "external_ids", by, c.ExternalIDs[by]))
	}
	if w.Balancer == nil {
		guards = append(guards,
			ovndb.HoldsAll(nb.LogicalSwitchPortTable, have.port.UUID, "external_ids", portMarks(w.User)))
	}
	return guards
}

// unchanged asserts that no other controller has changed the user's rows since they were read.
func (have *present) unchanged() ovsdb.Operation {
	if have.row == nil {
		return ovndb.Absent(nb.CoppTable, ovndb.OutsideKey(have.key.Router, have.key.User.String()))
	}
	return ovndb.HasMap(nb.CoppTable, have.row.UUID, "external_ids", have.row.ExternalIDs)
}

// sameAddresses asserts, in a later transaction that reads, that the user has the addresses that were read. Otherwise a
// claim of another controller, which gives the user an address and deletes it again, could count as the user's
// own, or a claim could be left because it was not there for a moment.
func (have *present) sameAddresses() ovsdb.Operation {
	if have.row == nil {
		return have.unchanged()
	}
	pairs := map[string]string{}
	for _, key := range []string{keyAddresses, keyPools, nbrows.KeyOutsideUse} {
		pairs[key] = have.row.ExternalIDs[key]
	}
	return ovndb.HoldsAll(nb.CoppTable, have.row.UUID, "external_ids", pairs)
}

// portMarks are in the port of a user.
func portMarks(u User) map[string]string {
	return map[string]string{
		nbrows.KeyNamespace: u.Namespace, nbrows.KeyPod: u.Pod, nbrows.KeyInterface: u.Interface,
	}
}

func containsAll(all, some map[string]string) bool {
	for key, value := range some {
		if has, ok := all[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// setNATs changes the present NAT rows into the wanted ones.
func (have *present) setNATs(b *nbrows.Batch, wanted map[string]*nb.NAT) {
	in := nbrows.InRouter(ovndb.GatewayKey(have.key.Router), "nat")
	for _, key := range nbrows.SortedKeys(have.nats) {
		if wanted[key] == nil {
			b.Add(ovndb.UnlinkOne(in.Table, in.Key, in.Column, key))
		}
	}
	for _, key := range nbrows.SortedKeys(wanted) {
		nbrows.PutIn(b, nb.NATTable, key, have.nats[key], wanted[key], in, in)
	}
}

// limit is the list of the addresses that a namespace has of a pool: the row as read, and the addresses as wanted.
type limit struct {
	key  string
	row  *nb.Copp
	used map[Address]Kind
}

// readLimits reads the lists of the pools of the present addresses, and of these pools.
func (o *Outside) readLimits(ctx context.Context, have *present, pools []*netmodel.AddressPool) error {
	for _, pool := range pools {
		have.limits[pool.Name] = nil
	}
	for _, a := range have.entry.Addresses {
		have.limits[a.Pool] = nil
	}
	ops := []ovsdb.Operation{have.sameAddresses()}
	names := nbrows.SortedKeys(have.limits)
	for _, pool := range names {
		l := &limit{
			key: ovndb.OutsideLimitKey(have.key.Router, pool, have.key.User.Namespace), used: map[Address]Kind{},
		}
		have.limits[pool] = l
		ops = append(ops, ovndb.Select(nb.CoppTable, l.key))
	}
	if len(names) == 0 {
		return nil
	}
	results, err := o.store.Db.Transact(ctx, ops)
	if err != nil {
		return err
	}
	for i, pool := range names {
		l := have.limits[pool]
		if err := nbrows.One(o.store.Db, results[1+i], &l.row); err != nil {
			return err
		}
		if l.row == nil {
			continue
		}
		for key, value := range l.row.ExternalIDs {
			text, ok := strings.CutPrefix(key, usedPrefix)
			if a, err := parseAddress(text); ok && err == nil {
				a.Pool = pool
				l.used[a] = Kind(value)
			}
		}
	}
	return nil
}

// count is how many addresses the namespace has of the family of an address.
func (l *limit) count(family netip.Addr) (n int) {
	for a := range l.used {
		if a.Is4() == family.Is4() {
			n++
		}
	}
	return n
}

func (have *present) limitRow(pool string, l *limit) *nb.Copp {
	namespace := have.key.User.Namespace
	row := &nb.Copp{
		UUID: l.key, Name: "ovn-multinet outside " + have.key.Router + " pool " + pool + " namespace " + namespace,
		ExternalIDs: map[string]string{nbrows.KeyKind: kindLimit, nbrows.KeyOutsideRouter: have.key.Router},
	}
	for a, kind := range l.used {
		row.ExternalIDs[usedPrefix+a.String()] = string(kind)
	}
	return row
}

// claim is an address or MAC of the book: its rows as read, and the external_ids of the claim as wanted; nil: none.
type claim struct {
	what string
	port *nb.LogicalSwitchPort
	row  *nb.Copp
	ids  map[string]string
}

// readClaims reads who has these addresses, and their MACs if these need claims.
func (o *Outside) readClaims(ctx context.Context, have *present, list []Address) error {
	var keys []string
	add := func(key, what string) {
		if have.claims[key] == nil {
			have.claims[key] = &claim{what: what}
			keys = append(keys, key)
		}
	}
	for _, a := range list {
		add(have.claimKey(a), a.describe())
		if key, mac := have.macKey(a); key != "" {
			add(key, "MAC "+mac)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	ops := append([]ovsdb.Operation{have.sameAddresses()}, nbrows.SelectHolders(keys)...)
	results, err := o.store.Db.Transact(ctx, ops)
	if err != nil {
		return err
	}
	for i, key := range keys {
		c := have.claims[key]
		err := errors.Join(
			nbrows.One(o.store.Db, results[1+2*i], &c.port), nbrows.One(o.store.Db, results[2+2*i], &c.row))
		if err != nil {
			return err
		}
		if c.row != nil { // not nil, also if the row is not ours and has no external_ids
			c.ids = map[string]string{}
			maps.Copy(c.ids, c.row.ExternalIDs)
		}
	}
	return nil
}

// claimKey returns the row key of the claim on an address, or on a port of one.
func (have *present) claimKey(a Address) string {
	if a.Port != (Port{}) {
		return ovndb.ForwardKey(have.book, a.Addr, a.Port.String())
	}
	return ovndb.AddressKey(have.book, a.Addr)
}

// macKey returns the row key of the claim on the MAC of an outside address; "": the MAC belongs to the address alone,
// or is the gateway's.
func (have *present) macKey(a Address) (key, text string) {
	mac, claimed := ovndb.LeaseMAC(netip.Prefix{}, a.Addr)
	if !claimed || a.Port != (Port{}) {
		return "", ""
	}
	return ovndb.MACKey(have.book, mac), mac.String()
}

// claimsOf returns the claims that an address needs.
func (have *present) claimsOf(a Address) []*claim {
	list := []*claim{have.claims[have.claimKey(a)]}
	if key, _ := have.macKey(a); key != "" {
		list = append(list, have.claims[key])
	}
	return list
}

// String names who has the address or MAC.
func (c *claim) String() string {
	switch {
	case c.port == nil:
		return cmp.Or(ovndb.Claimants(c.ids), "port "+cmp.Or(c.ids[nbrows.KeyPortName], c.row.Name+" (not ours)"))
	case c.port.ExternalIDs[nbrows.KeyRouter] != "":
		return "router " + c.port.ExternalIDs[nbrows.KeyRouter]
	}
	return nbrows.UserOf(c.port)
}
