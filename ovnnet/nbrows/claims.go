package nbrows

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Some addresses of a physical network are not for pods: the gateway of a localnet network (a router of the physical
// network), and the external address and the next hop of a router's gateway. Several networks and routers may name the
// same address, so they share the claim on it: one row of Copp, whose external_ids list the claimants. Every change of
// the row asserts the external_ids that were read, in the transaction that writes the claimant's own rows. The last
// claimant deletes the row.
//
// The virtual addresses of a network's pods have claims of the same form, which are of one claimant alone.

// BookClaims are the claims of one claimant in an address book, by row key.
type BookClaims struct {
	claimant string // "network <id>" or "router <name>"
	book     string
	where    string // the physical or the logical network, for messages
	Rows     map[string]*nb.Copp
	names    map[string]string // by row key: the address or MAC, for messages
	mac      string            // the key of the claim on a MAC, which has only one claimant; "": none
}

// newBookClaims returns the claims of a claimant, without any claim yet.
func newBookClaims(who, book, where string) *BookClaims {
	return &BookClaims{claimant: who, book: book, where: where, Rows: map[string]*nb.Copp{}, names: map[string]string{}}
}

// ClaimsOfNetwork returns the claims that a network should have: on the gateways of a localnet network, and on the
// virtual addresses of pods.
func ClaimsOfNetwork(network *netmodel.Network) *BookClaims {
	where := "network " + network.ID()
	w, wire := network.PhysicalVLAN()
	if wire {
		where = w.String()
	}
	claims := newBookClaims("network "+network.ID(), network.AddressBook(), where)
	if wire {
		for _, g := range network.Gateways {
			claims.address(g, claimedHere)
		}
	}
	for i := range network.VirtualAddresses {
		v := &network.VirtualAddresses[i]
		claims.address(v.Address, claimedByPods)
		if mac := v.MAC(); mac != nil { // no other pod, and no other network of the VLAN, may request it
			claims.add(ovndb.MACKey(claims.book, mac), "MAC "+mac.String(), claimedByPods)
		}
	}
	return claims
}

// ClaimsOfRouter returns the claims that a router's gateway should have: on its external addresses, on its next hops,
// and on its MAC if another address could have the same MAC.
func ClaimsOfRouter(r *netmodel.Router) *BookClaims {
	wire := r.PhysicalVLAN()
	claims := newBookClaims("router "+r.Name, wire.AddressBook(), wire.String())
	for i, e := range r.External {
		claims.address(e.Addr(), claimedHere)
		if r.NextHops[i].IsValid() {
			claims.address(r.NextHops[i], claimedHere)
		}
	}
	if mac, claimed := ovndb.LeaseMAC(netip.Prefix{}, r.External[0].Addr()); claimed {
		claims.add(ovndb.MACKey(claims.book, mac), "MAC "+mac.String(), claimedHere)
		claims.mac = ovndb.MACKey(claims.book, mac)
	}
	return claims
}

func (c *BookClaims) address(a netip.Addr, use string) {
	c.add(ovndb.AddressKey(c.book, a), "address "+a.String(), use)
}

func (c *BookClaims) add(key, what, use string) {
	c.names[key] = what
	c.Rows[key] = &nb.Copp{UUID: key, Name: "ovn-multinet " + c.book + " " + what,
		ExternalIDs: map[string]string{ovndb.BookKey: c.book, ovndb.ClaimantPrefix + c.claimant: use}}
}

// The values of a claimant's key in external_ids. Only claims of gateways have several claimants.
const (
	claimedHere   = "gateway"
	claimedByPods = "virtual address of pods"
)

func (c *BookClaims) keys() []string { return slices.Sorted(maps.Keys(c.Rows)) }

// Mark writes the keys of the claims into the external_ids of the claimant's own row. This list finds a claim that is
// no longer wanted.
func (c *BookClaims) Mark(externalIDs map[string]string) {
	if len(c.Rows) > 0 {
		externalIDs[KeyClaims] = strings.Join(c.keys(), " ")
	}
}

// ReadClaims reads the present rows of the claims that a claimant has or should have. noted are the external_ids of
// the claimant's own row, which lists the claims. If noted is nil, ReadClaims searches for the claims. An address that
// a port leases or claims is an error of type *Refused, and so is a MAC with another claimant.
//
// same asserts the claimant's own row as it was read. The error is one that Raced knows if the row has changed since.
// Otherwise the claims of another controller, which makes the claimant and deletes it again, could count as present, or
// claims could be left because they were not there for a moment.
func (n *Store) ReadClaims(
	ctx context.Context, same ovsdb.Operation, noted map[string]string, wanted *BookClaims,
) (map[string]*nb.Copp, error) {
	keys := slices.Concat(strings.Fields(noted[KeyClaims]), wanted.keys())
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if len(keys) == 0 {
		return nil, nil
	}
	have := map[string]*nb.Copp{}
	if noted == nil {
		var err error
		if have, err = n.ClaimsOf(ctx, same, wanted.claimant); err != nil {
			return nil, err
		}
	}
	reads, all := n.Reads(same), make([]*Found, len(keys))
	for i, key := range keys {
		all[i] = ReadAt(reads, key)
	}
	if err := reads.Do(ctx); err != nil {
		return nil, err
	}
	for i, key := range keys {
		port := all[i].Port
		if all[i].Claim != nil {
			have[key] = all[i].Claim
		}
		what, ok := wanted.names[key]
		if !ok {
			continue
		}
		holder := ""
		if port != nil {
			holder = "port " + port.Name
		} else if row := have[key]; row != nil && ovndb.Claimants(row.ExternalIDs) == "" {
			holder = "port " + cmp.Or(row.ExternalIDs[KeyPortName], row.Name+" (not ours)")
		}
		use := "gateway"
		if wanted.isVirtual(key) {
			use = "virtualAddresses"
		}
		if holder != "" {
			return nil, Refusedf("%s: %s on %s belongs to %s; delete its pod, or choose another address",
				use, what, wanted.where, holder)
		}
		if by := wanted.inUse(have[key]); by != "" && key == wanted.mac {
			return nil, Refusedf("gateway: %s on %s belongs to %s; choose another external address", what, wanted.where, by)
		} else if by != "" {
			return nil, Refusedf("%s: %s on %s is in use by %s; choose another address", use, what, wanted.where, by)
		}
	}
	return have, nil
}

// isVirtual reports whether c should have a claim on a virtual address of pods at a key.
func (c *BookClaims) isVirtual(key string) bool { return c.hasVirtual(c.Rows[key]) }

// hasVirtual reports whether a row is a claim of c's claimant on a virtual address of pods.
func (c *BookClaims) hasVirtual(row *nb.Copp) bool {
	return row != nil && row.ExternalIDs[ovndb.ClaimantPrefix+c.claimant] == claimedByPods
}

// Virtual returns the row keys of the claims on virtual addresses and MACs of pods, both of the present and of the
// wanted ones.
func (c *BookClaims) Virtual(have map[string]*nb.Copp) (keys []string) {
	for _, rows := range []map[string]*nb.Copp{have, c.Rows} {
		for key, row := range rows {
			if c.hasVirtual(row) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// inUse names the claimants of a claim with which c cannot share it, such as a pod with an outside address; "": none.
func (c *BookClaims) inUse(row *nb.Copp) string {
	if row == nil {
		return ""
	}
	others := maps.Clone(row.ExternalIDs)
	delete(others, ovndb.ClaimantPrefix+c.claimant)
	if row.UUID != c.mac && !c.isVirtual(row.UUID) {
		maps.DeleteFunc(others, func(_, value string) bool { return value == claimedHere })
	}
	return ovndb.Claimants(others)
}

// OtherBook reports whether any present row is in another address book than the wanted claims.
func (c *BookClaims) OtherBook(have map[string]*nb.Copp) bool {
	for _, row := range have {
		if row.ExternalIDs[ovndb.BookKey] != c.book {
			return true
		}
	}
	return false
}

// ClaimsOf reads all claims of a claimant, also those that its own row does not list. The server scans its claims. same
// asserts the claimant's own row, as in ReadClaims.
func (n *Store) ClaimsOf(ctx context.Context, same ovsdb.Operation, who string) (map[string]*nb.Copp, error) {
	ops := []ovsdb.Operation{same}
	for _, use := range []string{claimedHere, claimedByPods} {
		ops = append(ops, ovndb.SelectWith(nb.CoppTable, "external_ids", ovndb.ClaimantPrefix+who, use,
			"_uuid", "name", "external_ids"))
	}
	results, err := n.Db.Transact(ctx, ops)
	if err != nil {
		return nil, err
	}
	have := map[string]*nb.Copp{}
	for _, result := range results[1:] {
		rows, err := ovndb.Rows[nb.Copp](n.Db, result)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			have[row.UUID] = row
		}
	}
	return have, nil
}

// SetBookClaims adds the claimant to the wanted claims, and removes it from the other present claims. The transaction
// must also insert or assert the claimant's own row.
func (b *Batch) SetBookClaims(have map[string]*nb.Copp, wanted *BookClaims) {
	for _, key := range SortedKeys(have) {
		if wanted.Rows[key] == nil {
			b.unclaim(have[key], ovndb.ClaimantPrefix+wanted.claimant)
		}
	}
	for _, key := range wanted.keys() {
		row, old := wanted.Rows[key], have[key]
		if old == nil {
			b.Add(ovndb.Absent(nb.LogicalSwitchPortTable, key))
			Put(b, nb.CoppTable, key, nil, row)
			continue
		}
		all := maps.Clone(old.ExternalIDs)
		maps.Copy(all, row.ExternalIDs)
		b.setClaimants(old, all)
	}
}

// unclaim removes a claimant from a claim. A claim without claimants is deleted.
func (b *Batch) unclaim(row *nb.Copp, who string) {
	ids := maps.Clone(row.ExternalIDs)
	delete(ids, who)
	b.setClaimants(row, ids)
}

// setClaimants writes the external_ids of a claim, or deletes the claim if they name no claimant.
func (b *Batch) setClaimants(row *nb.Copp, ids map[string]string) {
	if maps.Equal(ids, row.ExternalIDs) {
		return
	}
	b.Add(ovndb.HasMap(nb.CoppTable, row.UUID, "external_ids", row.ExternalIDs))
	if ovndb.Claimants(ids) == "" {
		b.Add(ovndb.Delete(nb.CoppTable, row.UUID))
	} else {
		b.Add(ovndb.Update(nb.CoppTable, row.UUID, ovsdb.Row{"external_ids": ovndb.Map(ids)}))
	}
}

// ReleaseClaims removes a claimant from all its claims. same asserts the claimant's own row, as in ReadClaims, and the
// transaction must assert it too.
func (n *Store) ReleaseClaims(ctx context.Context, b *Batch, same ovsdb.Operation, who string) error {
	rows, err := n.ClaimsOf(ctx, same, who)
	for _, key := range SortedKeys(rows) {
		b.unclaim(rows[key], ovndb.ClaimantPrefix+who)
	}
	return err
}
