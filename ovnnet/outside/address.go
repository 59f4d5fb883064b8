package outside

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// release removes the user from an address that it has. The last user's address becomes free.
func (have *present) release(a Address) {
	user := userPrefix + have.key.User.String()
	for _, c := range have.claimsOf(a) {
		if _, uses := c.ids[user]; !uses {
			continue
		}
		delete(c.ids, user)
		if !slices.ContainsFunc(nbrows.SortedKeys(c.ids), isUser) {
			c.ids = nil
		}
	}
	if have.claimsOf(a)[0].ids[have.entry.claimant()] == "" {
		delete(have.limits[a.Pool].used, a)
	}
}

// isUser tells whether a key in a claim is that of a user.
func isUser(key string) bool { return strings.HasPrefix(key, userPrefix) }

// acquire gives a user an address that is free for it.
func (have *present) acquire(e *Entry, a Address) {
	for _, c := range have.claimsOf(a) {
		if c.ids == nil {
			c.ids = e.claimIDs(have.book)
		}
		c.ids[userPrefix+e.User.String()] = ""
	}
	have.limits[a.Pool].used[a] = e.Kind
	have.gains = have.gains || !slices.Contains(have.entry.Addresses, a)
}

// holder returns who else has an address that the user wants; nil: nobody.
func (have *present) holder(e *Entry, a Address) *claim {
	for _, c := range have.claimsOf(a) {
		if c.port != nil || c.ids != nil && c.ids[e.claimant()] != e.claimedFor() {
			return c
		}
	}
	return nil
}

// choose returns the outside addresses of a user. The user's present addresses have been released.
func (o *Outside) choose(ctx context.Context, have *present, w *Wanted) (list []Address, err error) {
	e := &Entry{Key: w.key(), Kind: w.Kind}
	if w.Kind == Forwarded {
		return have.chooseForwards(e, w)
	}
	if len(w.Fixed) > 0 {
		return have.chooseFixed(e, w)
	}
	pools, err := poolsFor(w)
	if err != nil {
		return nil, err
	}
	for _, in := range w.Inside {
		none := func(p *netmodel.AddressPool) bool { return p.Family(in).Size() == 0 }
		of := slices.DeleteFunc(slices.Clone(pools), none)
		if len(of) == 0 {
			continue
		}
		a, err := o.chooseFrom(ctx, have, e, of, in)
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	if len(list) == 0 {
		const form = "no address pool of router %s that namespace %s may use has addresses of the families of %s"
		return nil, nbrows.Refusedf(form, w.Router.Name, w.User.Namespace, w.User)
	}
	return list, nil
}

// poolsFor returns the pools that an address may be chosen from.
func poolsFor(w *Wanted) ([]*netmodel.AddressPool, error) {
	if w.Pool == "" {
		pools := w.Router.Granted(w.User.Namespace)
		if len(pools) == 0 {
			return nil, nbrows.Refusedf("router %s has no address pool that is granted to namespace %s; "+
				"the operator grants address pools in the controller's --config", w.Router.Name, w.User.Namespace)
		}
		return pools, nil
	}
	pool := w.Router.AddressPool(w.Pool)
	if pool == nil {
		return nil, nbrows.Refusedf("router %s has no address pool %q", w.Router.Name, w.Pool)
	}
	return []*netmodel.AddressPool{pool}, granted(w.Router, pool, w.User.Namespace)
}

func (have *present) chooseFixed(e *Entry, w *Wanted) (list []Address, err error) {
	for i, a := range w.Fixed {
		pool, err := poolOf(w.Router, w.User.Namespace, Address{Addr: a})
		if err != nil {
			return nil, err
		}
		if !inside(w, a).IsValid() {
			return nil, nbrows.Refusedf("address %s: %s has no address of this family", a, w.User.describe())
		}
		for _, other := range w.Fixed[:i] {
			if other.Is4() == a.Is4() {
				return nil, nbrows.Refusedf("addresses %s and %s are of one family, only one of each is served", other, a)
			}
		}
		chosen := Address{Addr: a, Pool: pool.Name}
		if err := have.free(e, w, pool, chosen); err != nil {
			return nil, err
		}
		list = append(list, chosen)
	}
	return list, nil
}

// free refuses an address that somebody else has, or that is beyond the limit of the namespace.
func (have *present) free(e *Entry, w *Wanted, pool *netmodel.AddressPool, a Address) error {
	if by := have.holder(e, a); by != nil {
		return nbrows.Refusedf("%s on %s is in use by %s; choose another, or delete its holder first",
			by.what, w.Router.PhysicalVLAN(), by)
	}
	if !have.mayHave(e, pool, a) {
		return have.limited(e, pool, a.Addr)
	}
	return nil
}

// mayHave tells whether the limit of a pool allows an address. What the namespace has already is allowed.
func (have *present) mayHave(e *Entry, pool *netmodel.AddressPool, a Address) bool {
	l := have.limits[pool.Name]
	_, has := l.used[a]
	return has || slices.Contains(have.entry.Addresses, a) || l.count(a.Addr) < pool.Limit(e.User.Namespace)
}

func (have *present) limited(e *Entry, pool *netmodel.AddressPool, family netip.Addr) error {
	of := "addresses of pool " + pool.Name
	if e.Kind == Forwarded {
		of = "ports of the gateway"
	}
	return nbrows.Refusedf("namespace %s has %d IPv%s %s of router %s, at most %d are allowed",
		e.User.Namespace, have.limits[pool.Name].count(family), nbrows.Family(family), of, e.Router,
		pool.Limit(e.User.Namespace))
}

// chooseFrom returns an address of the family of in: the one that the user has, for egress the one that the namespace
// has, or a free one of the first pool that has any.
func (o *Outside) chooseFrom(
	ctx context.Context, have *present, e *Entry, pools []*netmodel.AddressPool, in netip.Addr,
) (Address, error) {
	for _, a := range have.entry.Addresses {
		for _, pool := range pools {
			chosen := Address{Addr: a.Addr, Pool: pool.Name}
			if pool.Family(in).Contains(a.Addr) && have.entry.Kind == e.Kind && have.holder(e, chosen) == nil &&
				have.mayHave(e, pool, chosen) {
				return chosen, nil
			}
		}
	}
	var last error
	for _, pool := range pools {
		a, err := o.search(ctx, have, e, pool, in)
		if err != nil || a.IsValid() {
			return Address{Addr: a, Pool: pool.Name}, err
		}
		if last = nbrows.Refusedf("pool %s of router %s has no address left", pool.Name, e.Router); !have.room(e, pool, in) {
			last = have.limited(e, pool, in)
		}
	}
	return Address{}, last
}

func (have *present) room(e *Entry, pool *netmodel.AddressPool, family netip.Addr) bool {
	return have.limits[pool.Name].count(family) < pool.Limit(e.User.Namespace)
}

// batchSize is how many candidates are read at once. 64 reads by key cost little more than one.
const batchSize = 64

// search returns an address of a pool that is free for the user; the zero Addr: there is none. It begins at a hash of
// the user, so a pod that is created again often gets its former address.
func (o *Outside) search(
	ctx context.Context, have *present, e *Entry, pool *netmodel.AddressPool, in netip.Addr,
) (netip.Addr, error) {
	family, seed := pool.Family(in), e.Router+" "+e.User.String()
	var shared []netip.Addr
	if e.Kind == Egress {
		seed = e.Router + " egress " + e.User.Namespace
		for a, kind := range have.limits[pool.Name].used {
			if kind == Egress && family.Contains(a.Addr) {
				shared = append(shared, a.Addr)
			}
		}
		slices.SortFunc(shared, netip.Addr.Compare)
	}
	if a, err := o.firstFree(ctx, have, e, shared); err != nil || a.IsValid() || !have.room(e, pool, in) {
		return a, err
	}
	for order := netmodel.NewOrder(family.Size(), seed); !order.Exhausted(); {
		var candidates []netip.Addr
		for len(candidates) < batchSize && !order.Exhausted() {
			candidates = append(candidates, family.At(order.Next()))
		}
		if a, err := o.firstFree(ctx, have, e, candidates); err != nil || a.IsValid() {
			return a, err
		}
	}
	return netip.Addr{}, nil
}

func (o *Outside) firstFree(ctx context.Context, have *present, e *Entry, list []netip.Addr) (netip.Addr, error) {
	if err := o.readClaims(ctx, have, whole(list)); err != nil {
		return netip.Addr{}, err
	}
	for _, a := range list {
		if have.holder(e, Address{Addr: a}) == nil {
			return a, nil
		}
	}
	return netip.Addr{}, nil
}

// write changes the claims and the lists of addresses into the wanted ones.
func (have *present) write(b *nbrows.Batch) {
	for _, key := range nbrows.SortedKeys(have.claims) {
		c := have.claims[key]
		switch {
		case c.row == nil && c.ids != nil: // a port's row must not get the key meanwhile
			b.Add(ovndb.Absent(nb.LogicalSwitchPortTable, key))
			nbrows.Put(b, nb.CoppTable, key, nil,
				&nb.Copp{UUID: key, Name: "ovn-multinet " + have.book + " " + c.what, ExternalIDs: c.ids})
		case c.row == nil || maps.Equal(c.ids, c.row.ExternalIDs):
		case containsAll(c.ids, c.row.ExternalIDs): // one user more: the others need not be sent
			base := maps.Clone(c.row.ExternalIDs)
			maps.DeleteFunc(base, func(key, _ string) bool { return isUser(key) })
			b.Add(ovndb.HoldsAll(nb.CoppTable, key, "external_ids", base),
				ovndb.SetPair(nb.CoppTable, key, "external_ids", userPrefix+have.key.User.String(), ""))
		default:
			b.Add(ovndb.HasMap(nb.CoppTable, key, "external_ids", c.row.ExternalIDs))
			if c.ids == nil {
				b.Add(ovndb.Delete(nb.CoppTable, key))
			} else {
				b.Add(ovndb.Update(nb.CoppTable, key, map[string]any{"external_ids": ovndb.Map(c.ids)}))
			}
		}
	}
	for _, pool := range nbrows.SortedKeys(have.limits) {
		l := have.limits[pool]
		row := have.limitRow(pool, l)
		same := l.row != nil && maps.Equal(row.ExternalIDs, l.row.ExternalIDs)
		if l.row == nil && len(l.used) == 0 || same && !have.gains {
			continue
		}
		if l.row != nil { // two controllers must not both add the last address that the limit allows, or one not at all
			b.Add(ovndb.HasMap(nb.CoppTable, l.key, "external_ids", l.row.ExternalIDs))
		}
		if same {
			continue
		}
		if len(l.used) == 0 {
			b.Add(ovndb.Delete(nb.CoppTable, l.key))
			continue
		}
		nbrows.Put(b, nb.CoppTable, l.key, l.row, row)
	}
}
