package ovnport

import (
	"context"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// After blindTries misses the next candidates are looked up before one is written, batch of them at a time: at
// that filling a miss is likely, and 64 look-ups by key cost little more than one.
const (
	blindTries = 2
	batch      = 64
)

// another gives a dynamic part its next candidate. What is received stays the same however many ports there are,
// until two misses and a whole batch were in vain: then the subnet is nearly full and its ports are read.
func (e *ensure) another(ctx context.Context, s *slot, p *part) error {
	if p.search.exhausted() {
		return e.fromPorts(ctx, s, p)
	}
	if p.search.tried < blindTries {
		p.set(p.search.next())
		return nil
	}
	var candidates []candidate
	for len(candidates) < batch && !p.search.exhausted() {
		candidates = append(candidates, p.search.next())
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
		if ports[c.key] == nil && claims[c.key] == nil && e.free(p, c) {
			p.set(c)
			return nil
		}
	}
	return e.fromPorts(ctx, s, p)
}

// free tells whether no other part of this pod has the candidate.
func (e *ensure) free(p *part, c candidate) bool {
	probe := *p
	probe.set(c)
	for _, s := range e.slots {
		for i := range s.parts {
			if other := &s.parts[i]; other != p && other.key == probe.key {
				return false
			}
		}
	}
	return true
}

// fromPorts reads all leases and claims of the network's address book and takes the first address that none of them
// holds.
func (e *ensure) fromPorts(ctx context.Context, s *slot, p *part) error {
	mark, value := bookMark(s.want.Network)
	switches := ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(s.want.Network.SwitchName()), "ports")
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
	held := map[string]bool{}
	for _, sw := range rows {
		for _, key := range sw.Ports {
			held[key] = true
		}
	}
	for _, claim := range claims {
		// One whose port is gone holds nothing: the attempt to lease its address clears it away. A shared one has no port.
		if port := claim.ExternalIDs[keyPort]; port == "" || held[port] {
			held[claim.UUID] = true
		}
	}
	for range p.search.size() {
		if c := p.search.next(); !held[c.key] && e.free(p, c) {
			p.set(c)
			return nil
		}
	}
	return noAddressLeft(s)
}

func noAddressLeft(s *slot) error {
	return conf.Errorf(conf.CodeNoAddressLeft, "delete pods, shrink excludeSubnets or grow the subnet",
		"interface %s: network %s has no address left", s.want.Interface, s.want.Network.ID())
}
