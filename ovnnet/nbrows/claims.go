package nbrows

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Addresses on a wire that no pod may have: of a localnet network's gateway (the provider's router), and of a router's
// gateway and its next hop. Several networks and routers may name the same address, so the claim on it is shared: one
// row of Copp, whose external_ids list the claimants. Every change is conditional on the external_ids that were read,
// and belongs to the transaction of the claimant's own rows. The last claimant deletes the row.

// wireClaims are what one claimant claims, or may have claimed: the rows by their keys.
type BookClaims struct {
	claimant string // "network <id>" or "router <name>"
	wire     netmodel.PhysicalVLAN
	Rows     map[string]*nb.Copp
	names    map[string]string // what the claims are on, for messages
	mac      string            // the key of the claim on a MAC, which nobody shares; "": none
}

func newWireClaims(who string, wire netmodel.PhysicalVLAN) *BookClaims {
	return &BookClaims{claimant: who, wire: wire, Rows: map[string]*nb.Copp{}, names: map[string]string{}}
}

// wantedOfNetwork are the claims of a localnet network: on its gateways.
func ClaimsOfNetwork(network *netmodel.Network) *BookClaims {
	w, wire := network.PhysicalVLAN()
	claims := newWireClaims("network "+network.ID(), w)
	if wire {
		for _, g := range network.Gateways {
			claims.address(g)
		}
	}
	return claims
}

// wantedOfRouter are the claims of a router's gateway: on its own addresses, on its next hops, and on its MAC where the
// MAC does not belong to the address alone.
func ClaimsOfRouter(r *netmodel.Router) *BookClaims {
	claims := newWireClaims("router "+r.Name, r.PhysicalVLAN())
	for i, e := range r.External {
		claims.address(e.Addr())
		if r.NextHops[i].IsValid() {
			claims.address(r.NextHops[i])
		}
	}
	if mac, claimed := ovndb.LeaseMAC(netip.Prefix{}, r.External[0].Addr()); claimed {
		claims.mac = ovndb.MACKey(claims.wire.AddressBook(), mac)
		claims.add(claims.mac, "MAC "+mac.String())
	}
	return claims
}

func (c *BookClaims) address(a netip.Addr) {
	c.add(ovndb.AddressKey(c.wire.AddressBook(), a), "address "+a.String())
}

func (c *BookClaims) add(key, what string) {
	book := c.wire.AddressBook()
	c.names[key] = what
	c.Rows[key] = &nb.Copp{UUID: key, Name: "ovn-multinet " + book + " " + what,
		ExternalIDs: map[string]string{ovndb.BookKey: book, ovndb.ClaimantPrefix + c.claimant: claimedHere}}
}

// claimedHere is the value beside a claimant's key.
const claimedHere = "gateway"

func (c *BookClaims) keys() []string { return slices.Sorted(maps.Keys(c.Rows)) }

// Mark notes in a claimant's own row which keys it claims. By this list a claim is found that is not wanted any more.
func (c *BookClaims) Mark(externalIDs map[string]string) {
	if len(c.Rows) > 0 {
		externalIDs[KeyClaims] = strings.Join(c.keys(), " ")
	}
}

// readWire reads the claims that a claimant has, or wants: noted are the external_ids of the claimant's own row, which
// lists them. Where that row is not there, they are searched for. An address that a port has is Refused.
func (n *Store) ReadClaims(
	ctx context.Context, noted map[string]string, want *BookClaims,
) (map[string]*nb.Copp, error) {
	keys := slices.Concat(strings.Fields(noted[KeyClaims]), want.keys())
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if len(keys) == 0 {
		return nil, nil
	}
	have := map[string]*nb.Copp{}
	if noted == nil {
		var err error
		if have, err = n.ClaimsOf(ctx, want.claimant); err != nil {
			return nil, err
		}
	}
	results, err := n.Db.Transact(ctx, SelectHolders(keys))
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		var port *nb.LogicalSwitchPort
		if err := errors.Join(One(n.Db, results[2*i], &port), Into(n.Db, results[2*i+1], key, have)); err != nil {
			return nil, err
		}
		what, wanted := want.names[key]
		if !wanted {
			continue
		}
		holder := ""
		if port != nil {
			holder = "port " + port.Name
		} else if row := have[key]; row != nil && ovndb.Claimants(row.ExternalIDs) == "" {
			holder = "port " + cmp.Or(row.ExternalIDs[KeyPortName], row.Name+" (not ours)")
		}
		if row := have[key]; holder == "" && row != nil && key == want.mac {
			others := maps.Clone(row.ExternalIDs)
			delete(others, ovndb.ClaimantPrefix+want.claimant)
			if by := ovndb.Claimants(others); by != "" {
				return nil, Refusedf("gateway: %s on %s is held by %s; choose another external address", what, want.wire, by)
			}
		}
		if holder != "" {
			return nil, Refusedf("gateway: %s on %s is held by %s; delete its pod, or choose another address",
				what, want.wire, holder)
		}
	}
	return have, nil
}

// claimed reads all that a claimant claims, whatever is noted of it. The server scans its claims.
func (n *Store) ClaimsOf(ctx context.Context, who string) (map[string]*nb.Copp, error) {
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.CoppTable, "external_ids", ovndb.ClaimantPrefix+who, claimedHere,
			"_uuid", "name", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.Copp](n.Db, results[0])
	have := map[string]*nb.Copp{}
	for _, row := range rows {
		have[row.UUID] = row
	}
	return have, err
}

// setWire gives the claimant the claims that are wanted, and takes it off the others. The transaction has to insert or
// assert the claimant's own row.
func (b *Batch) SetBookClaims(have map[string]*nb.Copp, want *BookClaims) {
	for _, key := range SortedKeys(have) {
		if want.Rows[key] == nil {
			b.unclaim(have[key], ovndb.ClaimantPrefix+want.claimant)
		}
	}
	for _, key := range want.keys() {
		row, old := want.Rows[key], have[key]
		if old == nil {
			b.Add(ovndb.Absent(nb.LogicalSwitchPortTable, key))
			insert(b, row)
			continue
		}
		all := maps.Clone(old.ExternalIDs)
		maps.Copy(all, row.ExternalIDs)
		b.setClaimants(old, all)
	}
}

// unclaim takes a claimant off a claim; the last one's claim goes.
func (b *Batch) unclaim(row *nb.Copp, who string) {
	left := maps.Clone(row.ExternalIDs)
	delete(left, who)
	b.setClaimants(row, left)
}

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

// dropWire takes a claimant off all its claims.
func (n *Store) ReleaseClaims(ctx context.Context, b *Batch, who string) error {
	rows, err := n.ClaimsOf(ctx, who)
	for _, key := range SortedKeys(rows) {
		b.unclaim(rows[key], ovndb.ClaimantPrefix+who)
	}
	return err
}
