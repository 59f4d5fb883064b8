package services

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// present are the rows of a service on a network as read from NB.
type present struct {
	id, service string
	accepted    *nb.Copp
	network     *netmodel.Network           // as accepted; nil: it is not
	row         *nb.Copp                    // the accepted service
	balancers   map[string]*nb.LoadBalancer // by protocol
	addresses   []netip.Addr                // of the service as NB has it
	holders     map[netip.Addr]holder       // of these and of fixed addresses
}

// holder are the rows at the key of an address.
type holder struct {
	port  *nb.LogicalSwitchPort
	claim *nb.Copp
}

// rowKey is the key of the row of the accepted service.
func (have *present) rowKey() string { return ovndb.ServiceKey(have.id, have.service) }

// read reads the rows whose keys are made from the network's and the service's names.
func (s *Services) read(ctx context.Context, network, id string) (*present, error) {
	have := &present{id: network, service: id, balancers: map[string]*nb.LoadBalancer{}}
	reads := s.store.Reads()
	nbrows.ReadOne(reads, nb.CoppTable, ovndb.AcceptedKey(network), &have.accepted)
	nbrows.ReadOne(reads, nb.CoppTable, have.rowKey(), &have.row)
	for _, protocol := range nbrows.Protocols {
		nbrows.ReadInto(reads, nb.LoadBalancerTable, ovndb.LoadBalancerKey(network, id, protocol), protocol, have.balancers)
	}
	if err := reads.Do(ctx); err != nil {
		return nil, err
	}
	have.network = s.store.AcceptedConfig(have.accepted)
	if have.row != nil {
		have.addresses = parseAddresses(have.row.ExternalIDs[keyAddresses])
	}
	for _, row := range have.balancers { // somebody may have deleted the row with the addresses
		for vip := range row.Vips {
			a, err := netip.ParseAddrPort(vip)
			if err == nil && !slices.Contains(have.addresses, a.Addr()) {
				have.addresses = append(have.addresses, a.Addr())
			}
		}
	}
	return have, nil
}

// scope is the scope whose group has the load balancers; "": none.
func (have *present) scope() string {
	if have.row == nil {
		return ""
	}
	return have.row.ExternalIDs[keyScope]
}

// unchanged returns the assertion that no other controller has changed the service since it was read.
func (have *present) unchanged() []ovsdb.Operation {
	guards := []ovsdb.Operation{ovndb.Absent(nb.CoppTable, have.rowKey())}
	if have.row != nil {
		guards[0] = ovndb.HasMap(nb.CoppTable, have.row.UUID, "external_ids", have.row.ExternalIDs)
	}
	for _, protocol := range nbrows.Protocols {
		if row := have.balancers[protocol]; row != nil && row.ExternalIDs[keyRevision] != "" {
			guards = append(guards, ovndb.Holds(
				nb.LoadBalancerTable, row.UUID, "external_ids", keyRevision, row.ExternalIDs[keyRevision]))
		}
	}
	return guards
}

// stillAccepted asserts that the network has the configuration that was read, and takes ports of the NAD: with the
// network, the rows of its services are deleted.
func (have *present) stillAccepted(nad string) ovsdb.Operation {
	pairs := map[string]string{}
	for _, key := range []string{ovndb.ConfigKey, ovndb.AcceptedPrefix + nad} {
		pairs[key] = have.accepted.ExternalIDs[key]
	}
	return ovndb.HoldsAll(nb.CoppTable, have.accepted.UUID, "external_ids", pairs)
}

// readHolders reads who has the addresses of the service and the fixed ones.
func (s *Services) readHolders(ctx context.Context, have *present, fixed []netip.Addr) (err error) {
	have.holders, err = s.holdersOf(ctx, have, slices.Concat(have.addresses, fixed))
	return err
}

// holdersOf reads who has these addresses. The error is one that nbrows.Raced knows if the service has other addresses
// by now than in the row that was read. Otherwise a claim of another controller, which has made the service and deletes
// it again, could count as the service's own, or a claim could be left because it was not there for a moment.
func (s *Services) holdersOf(ctx context.Context, have *present, list []netip.Addr) (map[netip.Addr]holder, error) {
	holders := map[netip.Addr]holder{}
	if len(list) == 0 {
		return holders, nil
	}
	same := ovndb.Absent(nb.CoppTable, have.rowKey())
	if have.row != nil {
		same = ovndb.Holds(nb.CoppTable, have.row.UUID, "external_ids", keyAddresses, have.row.ExternalIDs[keyAddresses])
	}
	reads, found := s.store.Reads(same), map[netip.Addr]*nbrows.Found{}
	for _, a := range list {
		found[a] = nbrows.ReadAt(reads, ovndb.AddressKey(have.id, a))
	}
	if err := reads.Do(ctx); err != nil {
		return nil, err
	}
	for a, f := range found {
		holders[a] = holder{f.Port, f.Claim}
	}
	return holders, nil
}

// free reports whether the service may have the address: nobody else has it.
func (have *present) free(h holder) bool {
	return h.port == nil && (h.claim == nil || have.claimed(h))
}

// claimed reports whether the service has claimed the address.
func (have *present) claimed(h holder) bool {
	return h.claim != nil && h.claim.ExternalIDs[claimant(have.service)] != ""
}

// String names the holder.
func (h holder) String() string {
	switch {
	case h.port == nil:
		return cmp.Or(ovndb.Claimants(h.claim.ExternalIDs), "port "+
			cmp.Or(h.claim.ExternalIDs[nbrows.KeyPortName], h.claim.Name+" (not ours)"))
	case h.port.ExternalIDs[nbrows.KeyRouter] != "":
		return "router " + h.port.ExternalIDs[nbrows.KeyRouter]
	}
	return nbrows.UserOf(h.port)
}
