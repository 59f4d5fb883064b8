package outside

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Allowed tells why the operator's configuration does not allow the addresses any more; nil: it does. r is the entry's
// router as the configuration has it; nil: the configuration does not have it. A limit that was lowered is no reason:
// the namespace keeps what it has.
func (e *Entry) Allowed(r *netmodel.Router) error {
	if r == nil || !r.HasGateway() {
		return nbrows.Refusedf("router %s has no gateway any more; the operator describes gateways by objects Router",
			e.Router)
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

// judge returns the user with the outside addresses that it gets, or refuses them. It changes the claims and the lists
// of have into the wanted ones.
func (o *Outside) judge(ctx context.Context, have *present, w *Wanted) (*Entry, error) {
	have.releaseAll()
	e := &Entry{Key: w.key(), Kind: w.Kind}
	chosen, err := o.choose(ctx, have, e, w)
	if err != nil {
		return nil, err
	}
	e.Addresses, e.book = chosen, have.book
	if w.Kind == Floating && w.Distributed {
		e.translator = have.port.ExternalIDs[nbrows.KeyNode]
	}
	for _, a := range chosen {
		have.acquire(e, a)
	}
	return e, nil
}

// releaseAll removes the user from all addresses that it has.
func (have *present) releaseAll() {
	for _, a := range have.entry.Addresses {
		have.release(a)
	}
}

// choose returns the outside addresses of a user. The user's present addresses have been released.
func (o *Outside) choose(ctx context.Context, have *present, e *Entry, w *Wanted) (list []Address, err error) {
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
				"the operator grants address pools by objects AddressPool", w.Router.Name, w.User.Namespace)
		}
		return pools, nil
	}
	switch pool := w.Router.AddressPool(w.Pool); {
	case pool == nil:
		return nil, nbrows.Refusedf("router %s has no address pool %q", w.Router.Name, w.Pool)
	case pool.Limit(w.User.Namespace) == 0:
		return nil, notGranted(w.Router, pool, w.User.Namespace)
	default:
		return []*netmodel.AddressPool{pool}, nil
	}
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
		if err := have.free(e, w, chosen); err != nil {
			return nil, err
		}
		list = append(list, chosen)
	}
	return list, nil
}

// chooseForwards returns the wanted ports if the Service may have all of them.
func (have *present) chooseForwards(e *Entry, w *Wanted) ([]Address, error) {
	list := forwards(w)
	for _, a := range list {
		if _, err := poolOf(w.Router, w.User.Namespace, a); err != nil {
			return nil, err
		}
		if err := have.free(e, w, a); err != nil {
			return nil, err
		}
		have.acquire(e, a) // the next port counts this one
	}
	if len(list) == 0 {
		return nil, nbrows.Refusedf("the gateway of router %s has no address of the families of %s", w.Router.Name, w.User)
	}
	return list, nil
}

// free refuses an address that somebody else has, or that is beyond the limit of the namespace.
func (have *present) free(e *Entry, w *Wanted, a Address) error {
	if by := have.holder(e, a); by != nil {
		return nbrows.Refusedf("%s on %s is in use by %s; choose another, or delete its holder first",
			by.what, w.Router.PhysicalVLAN(), by)
	}
	if !have.mayHave(a) {
		return have.limited(e, a)
	}
	return nil
}

// mayHave reports whether the limit of a pool allows an address. What the namespace has already is allowed.
func (have *present) mayHave(a Address) bool {
	l := have.limits[a.Pool]
	_, has := l.used[a]
	return has || slices.Contains(have.entry.Addresses, a) || l.room(a.Addr)
}

func (have *present) limited(e *Entry, a Address) error {
	l, of := have.limits[a.Pool], "addresses of pool "+a.Pool
	if e.Kind == Forwarded {
		of = "ports of the gateway"
	}
	return nbrows.Refusedf("namespace %s has %d IPv%s %s of router %s, at most %d are allowed",
		e.User.Namespace, l.count(a.Addr), nbrows.Family(a.Addr), of, e.Router, l.most)
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
				have.mayHave(chosen) {
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
		last = nbrows.Refusedf("pool %s of router %s has no address left", pool.Name, e.Router)
		if !have.limits[pool.Name].room(in) {
			last = have.limited(e, Address{Addr: in, Pool: pool.Name})
		}
	}
	return Address{}, last
}

// batchSize is how many candidates are read at once. 64 reads by key cost little more than one.
const batchSize = 64

// search returns an address of a pool that is free for the user; the zero Addr: there is none. It begins at a hash of
// the user, so a pod that is created again often gets its former address.
func (o *Outside) search(
	ctx context.Context, have *present, e *Entry, pool *netmodel.AddressPool, in netip.Addr,
) (netip.Addr, error) {
	family, seed := pool.Family(in), e.Router+" "+e.User.String()
	l := have.limits[pool.Name]
	var shared []netip.Addr
	if e.Kind == Egress {
		seed = e.Router + " egress " + e.User.Namespace
		for a, kind := range l.used {
			if kind == Egress && family.Contains(a.Addr) {
				shared = append(shared, a.Addr)
			}
		}
		slices.SortFunc(shared, netip.Addr.Compare)
	}
	if a, err := o.firstFree(ctx, have, e, shared); err != nil || a.IsValid() || !l.room(in) {
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

// holder returns who else has an address that the user wants; nil: nobody.
func (have *present) holder(e *Entry, a Address) *claim {
	for _, c := range have.claimsOf(a) {
		if c.Port != nil || c.ids != nil && c.ids[e.claimant()] != e.claimedFor() {
			return c
		}
	}
	return nil
}

// poolOf returns the pool of an address that a namespace may have.
func poolOf(r *netmodel.Router, namespace string, a Address) (*netmodel.AddressPool, error) {
	if a.Port != (Port{}) {
		return &r.Forwards, forwardable(r, namespace, a)
	}
	pool := r.AddressPoolOf(a.Addr)
	switch {
	case pool != nil && pool.Limit(namespace) > 0:
		return pool, nil
	case pool == nil && r.IsExternal(a.Addr):
		return nil, nbrows.Refusedf("address %s is the own one of the gateway of router %s: a Service has ports of it with "+
			"ovn-multinet/service-outside-address: gateway", a.Addr, r.Name)
	case pool == nil:
		return nil, nbrows.Refusedf("address %s is in no pool of router %s", a.Addr, r.Name)
	}
	return nil, notGranted(r, pool, namespace)
}

// notGranted refuses a pool that is not granted to a namespace. The reason has the line to write.
func notGranted(r *netmodel.Router, pool *netmodel.AddressPool, namespace string) error {
	return nbrows.Refusedf("pool %s of router %s is not granted to namespace %s; the operator writes namespaces: {%s: 1} "+
		"into the pool's object AddressPool", pool.Name, r.Name, namespace, namespace)
}

// dhcpv6 is the port of DHCPv6 clients: a router of OVN takes its packets before load balancers do.
var dhcpv6 = Port{"udp", 546}

// forwardable refuses a port that a namespace may not have.
func forwardable(r *netmodel.Router, namespace string, a Address) error {
	switch {
	case r.Forwards.Limit(namespace) == 0:
		return nbrows.Refusedf("ports of the gateway of router %s are not granted to namespace %s; the operator writes "+
			"portForwards: {%s: 1} into the object Router that describes %s", r.Name, namespace, namespace, r.Name)
	case !r.IsExternal(a.Addr):
		return nbrows.Refusedf("address %s is not the gateway's of router %s", a.Addr, r.Name)
	case a.Port.Number >= netmodel.FirstPortOfPods:
		return nbrows.Refusedf("%s: the gateway needs the ports from %d on for the connections of pods; choose a lower one",
			a.Port, netmodel.FirstPortOfPods)
	case a.Is6() && a.Port == dhcpv6:
		return nbrows.Refusedf("%s: the gateway answers DHCPv6 there; choose another port", a.Port)
	}
	return nil
}
