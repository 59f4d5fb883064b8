package services

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// choose returns the virtual addresses of a service in these subnets of its network. A fixed address that somebody
// else has is refused. Without one, the service keeps the address that it has, or gets one that is free.
func (s *Services) choose(
	ctx context.Context, have *present, w *service.Service, subnets []int,
) (list []netip.Addr, err error) {
	for _, a := range w.Fixed {
		if h := have.holders[a]; !have.free(h) {
			return nil, nbrows.Refusedf("annotation %s: address %s of network %s is in use by %s; choose another, or delete "+
				"its holder first", service.AddressAnnotation, a, have.id, h)
		}
	}
	if len(w.Fixed) > 0 {
		return w.Fixed, nil
	}
	for _, i := range subnets {
		pool, leasable := have.network.Pool(i), have.network.Leasable(i) // it keeps its address when the ranges change
		at := slices.IndexFunc(have.addresses, func(a netip.Addr) bool {
			return a.Is4() == pool.Subnet.Addr().Is4() && leasable.Contains(a) && have.network.CheckVirtual(a) == nil &&
				have.free(have.holders[a])
		})
		var a netip.Addr
		if at >= 0 {
			a = have.addresses[at]
		} else if a, err = s.search(ctx, have, pool); err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// batchSize is how many candidates are read at once. 64 reads by key cost little more than one.
const batchSize = 64

// search returns an address of the pool that is free. Like the search of a pod's port, it begins at a hash of network
// and service, so a service that returns often gets its former address. The size of the answers does not depend on the
// number of ports, unless a whole batch is in use: the subnet is nearly full then, and its ports are read.
func (s *Services) search(ctx context.Context, have *present, pool netmodel.Pool) (netip.Addr, error) {
	none := nbrows.Refusedf("annotation %s: network %s has no address left; delete pods, shrink excludeSubnets or grow "+
		"the subnet", service.AddressAnnotation, have.id)
	if pool.Size() == 0 {
		return netip.Addr{}, none
	}
	order := netmodel.NewOrder(pool.Size(), have.id+" service "+have.service)
	next := func() (a netip.Addr) { // the zero Addr: no more
		for !order.Exhausted() {
			if a := pool.At(order.Next()); have.network.CheckVirtual(a) == nil {
				return a
			}
		}
		return a
	}
	var candidates []netip.Addr
	for len(candidates) < batchSize {
		a := next()
		if !a.IsValid() {
			break
		}
		candidates = append(candidates, a)
	}
	holders, err := s.holdersOf(ctx, have, candidates)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range candidates {
		if h := holders[a]; have.free(h) {
			have.holders[a] = h
			return a, nil
		}
	}
	used, err := s.readBook(ctx, have.id)
	if err != nil {
		return netip.Addr{}, err
	}
	for a := next(); a.IsValid(); a = next() {
		if !used[ovndb.AddressKey(have.id, a)] {
			return a, nil
		}
	}
	return netip.Addr{}, none
}

// readBook reads the keys of all leases and claims of a network. Those of a layer3 network are on its node switches.
func (s *Services) readBook(ctx context.Context, id string) (map[string]bool, error) {
	results, err := s.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.LogicalSwitchTable, "external_ids", nbrows.KeyNetwork, id, "ports"),
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyNetwork, id, "_uuid"),
	})
	if err != nil {
		return nil, err
	}
	claims, err := ovndb.Rows[nb.Copp](s.store.Db, results[1])
	if err != nil {
		return nil, err
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](s.store.Db, results[0])
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, sw := range switches {
		for _, key := range sw.Ports {
			used[key] = true
		}
	}
	for _, claim := range claims {
		used[claim.UUID] = true
	}
	return used, nil
}

// setClaims claims the wanted addresses, and releases the others that the service has.
func (have *present) setClaims(b *nbrows.Batch, wanted []netip.Addr) {
	for _, a := range have.addresses {
		if h := have.holders[a]; have.claimed(h) && !slices.Contains(wanted, a) {
			b.Add(ovndb.Holds(nb.CoppTable, h.claim.UUID, "external_ids", claimant(have.service), claimedFor),
				ovndb.Delete(nb.CoppTable, h.claim.UUID))
		}
	}
	for _, a := range wanted {
		claim := have.holders[a].claim
		if claim == nil { // a port's row must not get the key meanwhile
			b.Add(ovndb.Absent(nb.LogicalSwitchPortTable, ovndb.AddressKey(have.id, a)))
		}
		nbrows.Put(b, nb.CoppTable, ovndb.AddressKey(have.id, a), claim, claimRow(have.id, have.service, a))
	}
}
