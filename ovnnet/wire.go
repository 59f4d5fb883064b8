package ovnnet

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
type wireClaims struct {
	who   string // "network <id>" or "router <name>"
	wire  netmodel.PhysicalVLAN
	rows  map[string]*nb.Copp
	names map[string]string // what the claims are on, for messages
	mac   string            // the key of the claim on a MAC, which nobody shares; "": none
}

func newWireClaims(who string, wire netmodel.PhysicalVLAN) *wireClaims {
	return &wireClaims{who: who, wire: wire, rows: map[string]*nb.Copp{}, names: map[string]string{}}
}

// wantedOfNetwork are the claims of a localnet network: on its gateways.
func wantedOfNetwork(network *netmodel.Network) *wireClaims {
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
func wantedOfRouter(r *netmodel.Router) *wireClaims {
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

func (c *wireClaims) address(a netip.Addr) {
	c.add(ovndb.AddressKey(c.wire.AddressBook(), a), "address "+a.String())
}

func (c *wireClaims) add(key, what string) {
	book := c.wire.AddressBook()
	c.names[key] = what
	c.rows[key] = &nb.Copp{UUID: key, Name: "ovn-multinet " + book + " " + what,
		ExternalIDs: map[string]string{ovndb.BookKey: book, ovndb.ClaimantPrefix + c.who: claimedHere}}
}

// claimedHere is the value beside a claimant's key.
const claimedHere = "gateway"

func (c *wireClaims) keys() []string { return slices.Sorted(maps.Keys(c.rows)) }

// mark notes in a claimant's own row which keys it claims. By this list a claim is found that is not wanted any more.
func (c *wireClaims) mark(externalIDs map[string]string) {
	if len(c.rows) > 0 {
		externalIDs[keyClaims] = strings.Join(c.keys(), " ")
	}
}

// readWire reads the claims that a claimant has, or wants: noted are the external_ids of the claimant's own row, which
// lists them. Where that row is not there, they are searched for. An address that a port has is Refused.
func (n *Networks) readWire(
	ctx context.Context, noted map[string]string, want *wireClaims,
) (map[string]*nb.Copp, error) {
	keys := slices.Concat(strings.Fields(noted[keyClaims]), want.keys())
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if len(keys) == 0 {
		return nil, nil
	}
	have := map[string]*nb.Copp{}
	if noted == nil {
		var err error
		if have, err = n.claimed(ctx, want.who); err != nil {
			return nil, err
		}
	}
	results, err := n.db.Transact(ctx, lookUp(keys))
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		var port *nb.LogicalSwitchPort
		if err := errors.Join(one(n.db, results[2*i], &port), into(n.db, results[2*i+1], key, have)); err != nil {
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
			holder = "port " + cmp.Or(row.ExternalIDs[keyPortName], row.Name+" (not ours)")
		}
		if row := have[key]; holder == "" && row != nil && key == want.mac {
			others := maps.Clone(row.ExternalIDs)
			delete(others, ovndb.ClaimantPrefix+want.who)
			if by := ovndb.Claimants(others); by != "" {
				return nil, refusedf("gateway: %s on %s is held by %s; choose another external address", what, want.wire, by)
			}
		}
		if holder != "" {
			return nil, refusedf("gateway: %s on %s is held by %s; delete its pod, or choose another address",
				what, want.wire, holder)
		}
	}
	return have, nil
}

// readWireOf adds the claims of a network that is to have those that are wanted. The claims of a network that is
// deleted are searched for then.
func (n *Networks) readWireOf(ctx context.Context, have *found, want *rows) (err error) {
	if want == nil {
		return nil
	}
	var noted map[string]string
	if sw := have.own.sw; sw != nil {
		noted = sw.ExternalIDs
	}
	have.wire.rows, err = n.readWire(ctx, noted, want.wire)
	return err
}

// claimed reads all that a claimant claims, whatever is noted of it. The server scans its claims.
func (n *Networks) claimed(ctx context.Context, who string) (map[string]*nb.Copp, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.CoppTable, "external_ids", ovndb.ClaimantPrefix+who, claimedHere,
			"_uuid", "name", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.Copp](n.db, results[0])
	have := map[string]*nb.Copp{}
	for _, row := range rows {
		have[row.UUID] = row
	}
	return have, err
}

// setWire gives the claimant the claims that are wanted, and takes it off the others. The transaction has to insert or
// assert the claimant's own row.
func (b *batch) setWire(have map[string]*nb.Copp, want *wireClaims) {
	for _, key := range sortedKeys(have) {
		if want.rows[key] == nil {
			b.unclaim(have[key], ovndb.ClaimantPrefix+want.who)
		}
	}
	for _, key := range want.keys() {
		row, old := want.rows[key], have[key]
		if old == nil {
			b.add(ovndb.Absent(nb.LogicalSwitchPortTable, key))
			insert(b, row)
			continue
		}
		all := maps.Clone(old.ExternalIDs)
		maps.Copy(all, row.ExternalIDs)
		b.setClaimants(old, all)
	}
}

// unclaim takes a claimant off a claim; the last one's claim goes.
func (b *batch) unclaim(row *nb.Copp, who string) {
	left := maps.Clone(row.ExternalIDs)
	delete(left, who)
	b.setClaimants(row, left)
}

func (b *batch) setClaimants(row *nb.Copp, ids map[string]string) {
	if maps.Equal(ids, row.ExternalIDs) {
		return
	}
	b.add(ovndb.HasMap(nb.CoppTable, row.UUID, "external_ids", row.ExternalIDs))
	if ovndb.Claimants(ids) == "" {
		b.add(ovndb.Delete(nb.CoppTable, row.UUID))
	} else {
		b.add(ovndb.Update(nb.CoppTable, row.UUID, ovsdb.Row{"external_ids": ovndb.Map(ids)}))
	}
}

// dropWire takes a claimant off all its claims.
func (n *Networks) dropWire(ctx context.Context, b *batch, who string) error {
	rows, err := n.claimed(ctx, who)
	for _, key := range sortedKeys(rows) {
		b.unclaim(rows[key], ovndb.ClaimantPrefix+who)
	}
	return err
}

// withdrawUngranted withdraws the NADs of a localnet network whose grant is gone: ports that are on the network stay, new
// ones do not come.
func (c *Controller) withdrawUngranted(ctx context.Context, id string, s *Standing) error {
	if s.InForce == nil {
		return nil
	}
	granted := func(nad string) bool {
		namespace, _, _ := strings.Cut(nad, "/")
		return c.physical.Check(namespace, s.InForce) == nil
	}
	lost := slices.DeleteFunc(slices.Clone(s.Accepted), granted)
	if len(lost) == 0 {
		return nil
	}
	if err := c.networks.Withdraw(ctx, id, lost); err != nil {
		return err
	}
	c.log.Info("network takes no new ports, its physical network is not granted any more", "network", id, "nads", lost)
	s.Accepted = slices.DeleteFunc(s.Accepted, func(nad string) bool { return !granted(nad) })
	return nil
}
