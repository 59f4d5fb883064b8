package ovnport

import (
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// txn is a transaction that is being built.
type txn struct {
	ops []ovsdb.Operation
	// networks has, by the index of a guard, the request whose network the guard asserts.
	networks map[int]*Request
	// policies has, by the index of a guard, the request whose membership in groups the guard asserts.
	policies map[int]*Request
	// claimLimits has, by the index of a guard, the request whose IPAMClaim the guard is for.
	claimLimits map[int]*Request
	// profiles has the indexes of the guards of security profiles.
	profiles map[int]bool
	// portList is the index of the guard that the node has a port list with the epoch; -1: the transaction needs none.
	portList int
}

func newTxn() *txn {
	return &txn{
		networks: map[int]*Request{}, policies: map[int]*Request{}, claimLimits: map[int]*Request{},
		profiles: map[int]bool{}, portList: -1,
	}
}

func (t *txn) add(ops ...ovsdb.Operation) { t.ops = append(t.ops, ops...) }

// build builds the transaction. The guards of networks come first, other guards right before the rows that they guard.
func (e *ensureCall) build() (*txn, error) {
	t := newTxn()
	guarded := map[string]bool{}
	for _, d := range e.drafts {
		if nad := d.request.Network.NAD(); !guarded[nad] {
			guarded[nad] = true
			for _, guard := range accepted(d.request.Network) {
				t.networks[len(t.ops)] = &d.request
				t.add(guard)
			}
		}
		if id := d.request.Network.ID(); !guarded["policy "+id] {
			guarded["policy "+id] = true
			t.guardPolicy(&d.request, e.owner.Namespace)
		}
	}
	t.guardProfiles(e.drafts...)
	var written []string
	joined := false
	for _, d := range e.drafts {
		switch {
		case d.stored == nil:
			if err := e.insert(t, d); err != nil {
				return nil, err
			}
		case d.stored.ExternalIDs[keySandbox] == e.owner.Sandbox && slices.Equal(groupsOf(d.stored), d.groups()):
			t.add(owned(d.key(), e.owner.Sandbox))
			continue
		case d.joins:
			e.join(t, d)
			joined = true
			continue
		default:
			e.takeOver(t, d)
		}
		if d.request.IPAMClaim != "" {
			if err := e.hold(t, d); err != nil {
				return nil, err
			}
		}
		written = append(written, d.key())
	}
	if joined || len(written) > 0 {
		e.enlist(t, written...)
	}
	return t, nil
}

// enlist asserts the node's epoch, and adds ports that the transaction writes to the node's port list.
func (e *ensureCall) enlist(t *txn, keys ...string) {
	t.portList = len(t.ops)
	t.add(hasEpoch(e.owner.Node, e.epoch))
	if len(keys) > 0 {
		t.add(enlist(e.owner.Node, e.owner.Sandbox, keys...))
	}
}

func (e *ensureCall) insert(t *txn, d *draft) error {
	if err := e.insertRow(t, d); err != nil {
		return err
	}
	for i := 1; i < len(d.reservations) && d.request.IPAMClaim == ""; i++ {
		if err := e.insertClaim(t, d, i); err != nil {
			return err
		}
	}
	return nil
}

func (e *ensureCall) insertRow(t *txn, d *draft) error {
	row, err := e.db.Insert(portRow(&e.owner, d))
	if err != nil {
		return err
	}
	if d.request.IPAMClaim == "" {
		t.add(ovndb.Absent(nb.CoppTable, d.key()))
	}
	t.add(row, ovndb.Link(nb.LogicalSwitchTable, ovndb.SwitchKey(d.request.Network.SwitchName()), "ports", d.key()))
	join(t, &d.request.Policy, d.key(), false)
	joinProfiles(t, d, nil)
	return nil
}

func (e *ensureCall) insertClaim(t *txn, d *draft, i int) error {
	claim, err := e.db.Insert(claimRow(&e.owner, d, i))
	if err != nil {
		return err
	}
	t.add(ovndb.Absent(nb.LogicalSwitchPortTable, d.reservations[i].key), claim)
	return nil
}

// takeOver makes this sandbox the owner of an older sandbox's port. Addresses and claims stay; the claims name this
// node.
func (e *ensureCall) takeOver(t *txn, d *draft) {
	row := portRow(&e.owner, d)
	t.add(owned(d.key(), d.stored.ExternalIDs[keySandbox]),
		ovndb.Update(nb.LogicalSwitchPortTable, d.key(), ovsdb.Row{
			"external_ids": ovndb.Map(row.ExternalIDs), "options": ovndb.Map(row.Options),
			"addresses": ovndb.Set(row.Addresses), "port_security": ovndb.Set(row.PortSecurity),
		}))
	for i := 1; i < len(d.reservations) && d.request.IPAMClaim == ""; i++ {
		claim := claimRow(&e.owner, d, i)
		t.add(ovndb.Update(nb.CoppTable, claim.UUID, ovsdb.Row{"external_ids": ovndb.Map(claim.ExternalIDs)}))
	}
	if d.stored.ExternalIDs[keyPodUID] != e.owner.UID { // the controller keeps the groups of a pod's existing ports right
		join(t, &d.request.Policy, d.key(), true)
	}
	joinProfiles(t, d, groupsOf(d.stored))
}

// owned asserts that a port still belongs to the sandbox.
func owned(key, sandbox string) ovsdb.Operation {
	return ovndb.Holds(nb.LogicalSwitchPortTable, key, "external_ids", keySandbox, sandbox)
}
