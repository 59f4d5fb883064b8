package ovnport

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// candidate is one address or MAC that a search proposes.
type candidate struct {
	key  string
	addr netip.Prefix
	mac  net.HardwareAddr
}

// search proposes the leasable addresses of a subnet, or MACs. It begins at a hash of network and port name, so a pod
// that returns often gets its former address, and continues by steps that reach every address once.
type search struct {
	pool    netmodel.Pool
	macs    bool
	network string
	book    string // the address book
	wide    bool   // the MACs have the form that needs a claim
	seed    string
	begin   net.HardwareAddr // the first MAC; nil: by the hash
	begun   bool
	order   netmodel.Order
}

func (f *search) size() uint64 {
	if f.macs {
		return 1 << 32
	}
	return f.pool.Size()
}

// tried is how many addresses were proposed.
func (f *search) tried() uint64 { return f.order.Given() }

// exhausted reports whether every address was proposed once.
func (f *search) exhausted() bool { return f.begun && f.order.Exhausted() }

func (f *search) next() candidate {
	if !f.begun {
		f.begun, f.order = true, netmodel.NewOrder(f.size(), f.network+" "+f.seed)
		if f.begin != nil {
			f.order = f.order.From(uint64(binary.BigEndian.Uint32(f.begin[2:])))
		}
	}
	i := f.order.Next()
	if !f.macs {
		return f.at(f.pool.At(i))
	}
	mac := ovndb.Low32MAC(uint32(i), f.wide)
	return candidate{key: ovndb.MACKey(f.book, mac), mac: mac}
}

func (f *search) at(a netip.Addr) candidate {
	return candidate{key: ovndb.AddressKey(f.book, a), addr: netip.PrefixFrom(a, f.pool.Subnet.Bits())}
}

// Ensure writes the first candidates without a read. After blindTries of them were in use, the next one is likely to
// be in use too, so candidates are read in batches first: 64 reads by key cost little more than one.
const (
	blindTries = 2
	batchSize  = 64
)

// nextCandidate gives a dynamic reservation its next candidate. The size of the answer does not depend on the number
// of ports, unless two candidates and a whole batch are in use: the subnet is nearly full then, and its ports are
// read.
func (e *ensureCall) nextCandidate(ctx context.Context, d *draft, r *reservation) error {
	if r.search.exhausted() {
		return e.readBook(ctx, d, r)
	}
	if r.search.tried() < blindTries {
		r.set(r.search.next())
		return nil
	}
	var candidates []candidate
	for len(candidates) < batchSize && !r.search.exhausted() {
		candidates = append(candidates, r.search.next())
	}
	keys := make([]string, len(candidates))
	for i, c := range candidates {
		keys[i] = c.key
	}
	ports, claims, err := e.read(ctx, keys)
	if err != nil {
		return err
	}
	for _, c := range candidates {
		if ports[c.key] == nil && claims[c.key] == nil && e.free(r, c) {
			r.set(c)
			return nil
		}
	}
	return e.readBook(ctx, d, r)
}

// free reports whether no other reservation of this pod has the candidate.
func (e *ensureCall) free(r *reservation, c candidate) bool {
	probe := *r
	probe.set(c)
	for _, d := range e.drafts {
		for i := range d.reservations {
			if other := &d.reservations[i]; other != r && other.key == probe.key {
				return false
			}
		}
	}
	return true
}

// readBook reads all leases and claims of the network's address book and takes the first candidate that is free.
func (e *ensureCall) readBook(ctx context.Context, d *draft, r *reservation) error {
	mark, value := bookMark(d.request.Network)
	switches := ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(d.request.Network.SwitchName()), "ports")
	if mark == ovndb.BookKey {
		switches = ovndb.SelectWith(nb.LogicalSwitchTable, "external_ids", mark, value, "ports")
	}
	results, err := e.db.Transact(ctx, []ovsdb.Operation{
		switches, ovndb.SelectWith(nb.CoppTable, "external_ids", mark, value, "_uuid", "external_ids"),
	})
	if err != nil {
		return err
	}
	rows, err := ovndb.Rows[nb.LogicalSwitch](e.db, results[0])
	if err != nil {
		return err
	}
	claims, err := ovndb.Rows[nb.Copp](e.db, results[1])
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, sw := range rows {
		for _, key := range sw.Ports {
			used[key] = true
		}
	}
	for _, claim := range claims {
		// A claim whose port is gone does not count: Ensure deletes the claim when it tries the address. A shared claim
		// names no port, and that of an IPAMClaim stays without its port.
		port := claim.ExternalIDs[keyPort]
		if port == "" || used[port] || claim.ExternalIDs[ovndb.IPAMClaimMark] != "" {
			used[claim.UUID] = true
		}
	}
	for range r.search.size() {
		if c := r.search.next(); !used[c.key] && e.free(r, c) {
			r.set(c)
			return nil
		}
	}
	return noAddressLeft(d)
}

func noAddressLeft(d *draft) error {
	return conf.Errorf(conf.CodeNoAddressLeft, "delete pods, shrink excludeSubnets or grow the subnet",
		"interface %s: network %s has no address left", d.request.Interface, d.request.Network.ID())
}
