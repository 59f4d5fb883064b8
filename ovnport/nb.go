package ovnport

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// NB writes ports into OVN's Northbound database.
type NB struct {
	db *ovndb.DB
}

// NewNB takes the connection that all pods of a node share.
func NewNB(db *ovndb.DB) *NB { return &NB{db: db} }

// Answers tells whether the database is there now.
func (n *NB) Answers(ctx context.Context) error {
	err := n.db.Answers(ctx)
	if _, other := errors.AsType[*ovndb.NotOwner](err); other {
		return ExplainNotOwner(err)
	}
	if err != nil {
		return unreachable(err)
	}
	return nil
}

// maxAttempts bounds the transactions of one Ensure: each refused one settles at least one port's fate, and only
// a race with others (a nearly full subnet, a herd) refuses again.
const maxAttempts = 64

// Supersedes tells whether the sandbox that asks may take a port over from an older owner of the same name; nil
// means yes. The caller looks at the live pod for it.
type Supersedes func(ctx context.Context, older Owner) error

// Ensure gives a pod its ports: all of them in one committed transaction, or none. Calling it again for the same
// sandbox finds them and writes nothing. An address that someone else holds is an error with code 103 if the user
// fixed it, and is passed over otherwise.
func (n *NB) Ensure(ctx context.Context, o Owner, wants []Request, supersedes Supersedes) ([]Port, error) {
	e := &ensure{NB: n, owner: o, supersedes: supersedes}
	for _, w := range wants {
		s, err := newSlot(&o, w)
		if err != nil {
			return nil, err
		}
		e.slots = append(e.slots, s)
	}
	if err := e.separate(); err != nil {
		return nil, err
	}
	err := e.run(ctx)
	if _, away := errors.AsType[*ovndb.Unreachable](err); away {
		return nil, unreachable(err)
	}
	if err != nil {
		return nil, ExplainNotOwner(err)
	}
	ports := make([]Port, 0, len(e.slots))
	for _, s := range e.slots {
		ports = append(ports, s.port())
	}
	return ports, nil
}

func (s *slot) port() Port {
	p := Port{UUID: s.key(), Name: s.name, Network: s.want.Network.ID(), Interface: s.want.Interface, MAC: s.mac()}
	for i, part := range s.parts {
		if part.addr.IsValid() {
			p.Addresses = append(p.Addresses, part.addr)
		}
		if i > 0 {
			p.Claims = append(p.Claims, part.key)
		}
	}
	return p
}

// ensure is one run of Ensure.
type ensure struct {
	*NB
	owner      Owner
	supersedes Supersedes
	slots      []*slot
	waited     bool // for a network, once
}

// separate moves the dynamic parts of one pod's ports off each other and off its own fixed ones. Two fixed ones that
// meet are an error: no attempt could ever be committed.
func (e *ensure) separate() error {
	for _, s := range e.slots {
		for i := range s.parts {
			for s.parts[i].search != nil && e.takenElsewhere(&s.parts[i]) {
				if s.parts[i].search.exhausted() {
					return noAddressLeft(s)
				}
				s.parts[i].set(s.parts[i].search.next())
			}
		}
	}
	for _, s := range e.slots {
		for i := range s.parts {
			if p := &s.parts[i]; e.takenElsewhere(p) {
				return conf.Errorf(conf.CodeInvalidConfig, "give each interface of the pod an address and a MAC of its own",
					"interface %s: %s of network %s is asked for twice by this pod", s.want.Interface, p, s.want.Network.ID())
			}
		}
	}
	return nil
}

func (e *ensure) takenElsewhere(p *part) bool {
	for _, s := range e.slots {
		for i := range s.parts {
			if other := &s.parts[i]; other != p && other.key == p.key {
				return true
			}
		}
	}
	return false
}

// unsure is an error after which the ports may be there all the same: an earlier attempt's answer was lost.
type unsure struct{ error }

func (u unsure) Unwrap() []error { return []error{u.error, ovndb.ErrUnknownOutcome} }

// run writes first and reads only when refused: with nobody in the way, which is the rule, the ports cost one
// round trip.
func (e *ensure) run(ctx context.Context) (err error) {
	if err := e.db.WaitConnected(ctx); err != nil {
		return err
	}
	lost := false
	defer func() {
		if err != nil && lost {
			err = unsure{err}
		}
	}()
	for attempt := 0; attempt < maxAttempts; {
		t, buildErr := e.build()
		if buildErr != nil {
			return buildErr
		}
		_, err = e.db.Transact(ctx, t.ops)
		failpoint.Hit("nb-committed")
		lost = lost || errors.Is(err, ovndb.ErrUnknownOutcome)
		if err == nil {
			return nil
		}
		if refused, ok := errors.AsType[*ovndb.Refused](err); ok {
			attempt++
			err = e.settle(ctx, refused, t)
		}
		if err != nil && !errors.Is(err, ovndb.ErrUnknownOutcome) {
			return err
		}
		// After an unknown outcome the same keys once more: what was committed answers as ours.
		if err != nil && !pause(ctx) {
			return unreachable(err)
		}
	}
	return conf.Errorf(conf.CodeTryAgain, "many pods want addresses of one small subnet at once; a retry finds what is free by then",
		"gave up after %d attempts", maxAttempts)
}

// unreachable gives the error of a database that does not answer its code.
func unreachable(err error) error {
	todo := "is OVN's Northbound database up and reachable from this node?"
	if away, ok := errors.AsType[*ovndb.Unreachable](err); ok && away.TLS() {
		todo = "correct the certificates; new files take effect without a restart of the agent"
	}
	return conf.Errorf(conf.CodeTryAgain, todo, "%w", err)
}

// pause keeps a loop off a database that is just going down; false when the time is up.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

// txn collects operations.
type txn struct {
	ops []ovsdb.Operation
	// networks tells which of the operations asserts that a NAD's network is there as the NAD has it.
	networks map[int]*Request
}

func (t *txn) add(ops ...ovsdb.Operation) { t.ops = append(t.ops, ops...) }

// build lays out the transaction: the guards first, each before what it guards.
func (e *ensure) build() (*txn, error) {
	t := &txn{networks: map[int]*Request{}}
	guarded := map[string]bool{}
	for _, s := range e.slots {
		if nad := s.want.Network.NAD(); !guarded[nad] {
			guarded[nad] = true
			t.networks[len(t.ops)] = &s.want
			t.add(accepted(s.want.Network))
		}
	}
	for _, s := range e.slots {
		switch {
		case s.held == nil:
			if err := e.insert(t, s); err != nil {
				return nil, err
			}
		case s.held.ExternalIDs[keySandbox] == e.owner.Sandbox:
			t.add(owned(s.key(), e.owner.Sandbox))
		default:
			e.takeOver(t, s)
		}
	}
	return t, nil
}

func (e *ensure) insert(t *txn, s *slot) error {
	if err := e.insertRow(t, s); err != nil {
		return err
	}
	for i := 1; i < len(s.parts); i++ {
		if err := e.insertClaim(t, s, i); err != nil {
			return err
		}
	}
	return nil
}

func (e *ensure) insertRow(t *txn, s *slot) error {
	row, err := e.db.Insert(portRow(&e.owner, s))
	if err != nil {
		return err
	}
	t.add(ovndb.Absent(nb.CoppTable, s.key()), row,
		ovndb.Link(nb.LogicalSwitchTable, ovndb.SwitchKey(s.want.Network.SwitchName()), "ports", s.key()))
	return nil
}

func (e *ensure) insertClaim(t *txn, s *slot, i int) error {
	claim, err := e.db.Insert(claimRow(&e.owner, s, i))
	if err != nil {
		return err
	}
	t.add(ovndb.Absent(nb.LogicalSwitchPortTable, s.parts[i].key), claim)
	return nil
}

// takeOver makes the row of an older sandbox ours. The addresses stay, so the claims do too; they name our node from now on.
func (e *ensure) takeOver(t *txn, s *slot) {
	row := portRow(&e.owner, s)
	t.add(owned(s.key(), s.held.ExternalIDs[keySandbox]),
		ovndb.Update(nb.LogicalSwitchPortTable, s.key(), ovsdb.Row{
			"external_ids": ovndb.Map(row.ExternalIDs), "options": ovndb.Map(row.Options),
			"addresses": ovndb.Set(row.Addresses), "port_security": ovndb.Set(row.PortSecurity),
		}))
	for i := 1; i < len(s.parts); i++ {
		claim := claimRow(&e.owner, s, i)
		t.add(ovndb.Update(nb.CoppTable, claim.UUID, ovsdb.Row{"external_ids": ovndb.Map(claim.ExternalIDs)}))
	}
}

// owned is the condition under which a port may be changed: that it belongs to that sandbox still.
func owned(key, sandbox string) ovsdb.Operation {
	return ovndb.Holds(nb.LogicalSwitchPortTable, key, "external_ids", keySandbox, sandbox)
}

// settle finds out why the database refused and changes the slots so that the next attempt differs, or says why
// there is none.
func (e *ensure) settle(ctx context.Context, refused *ovndb.Refused, t *txn) error {
	if want := t.networks[refused.Index]; want != nil {
		return e.awaitAccepted(ctx, want)
	}
	switch {
	case refused.Reason == ovndb.ReasonTimedOut, refused.Reason == ovndb.ReasonDuplicate:
	case refused.Reason == ovndb.ReasonConstraint && refused.Index == len(t.ops):
		// The commit's own no: a port's name is held at another key, which the details name.
		if err := e.settleNames(ctx, refused); err != nil {
			return err
		}
	default:
		return fmt.Errorf("the Northbound database refused the ports: %w", refused)
	}
	rows, claims, err := e.read(ctx, e.keys())
	if err != nil {
		return err
	}
	for _, s := range e.slots {
		if err := e.settleSlot(ctx, s, rows, claims); err != nil {
			return err
		}
	}
	return e.separate()
}

func (e *ensure) keys() []string {
	var keys []string
	for _, s := range e.slots {
		for _, p := range s.parts {
			keys = append(keys, p.key)
		}
	}
	return keys
}

// read looks the keys up as ports and as claims, in one transaction.
func (n *NB) read(ctx context.Context, keys []string) (map[string]*nb.LogicalSwitchPort, map[string]*nb.Copp, error) {
	var ops []ovsdb.Operation
	for _, key := range keys {
		ops = append(ops, ovndb.Select(nb.LogicalSwitchPortTable, key), ovndb.Select(nb.CoppTable, key))
	}
	results, err := n.db.Transact(ctx, ops)
	if err != nil {
		return nil, nil, err
	}
	ports, claims := map[string]*nb.LogicalSwitchPort{}, map[string]*nb.Copp{}
	for i, result := range results {
		if i%2 == 1 {
			rows, err := ovndb.Rows[nb.Copp](n.db, result)
			if err != nil {
				return nil, nil, err
			}
			for _, row := range rows {
				claims[row.UUID] = row
			}
			continue
		}
		rows, err := ovndb.Rows[nb.LogicalSwitchPort](n.db, result)
		if err != nil {
			return nil, nil, err
		}
		for _, row := range rows {
			ports[row.UUID] = row
		}
	}
	return ports, claims, nil
}

// settleSlot holds one slot against the rows that are there. What was seen before may have changed hands: it is
// decided again from the rows as they are now.
func (e *ensure) settleSlot(ctx context.Context, s *slot, ports map[string]*nb.LogicalSwitchPort, claims map[string]*nb.Copp) error {
	s.held = nil
	for i := range s.parts {
		p := &s.parts[i]
		by := ""
		if row := ports[p.key]; row != nil {
			if row.Name == s.name {
				return e.inherit(ctx, s, row)
			}
			by = holder(row)
		} else if claim := claims[p.key]; claim != nil {
			if by = ovndb.Claimants(claim.ExternalIDs); by == "" {
				settled, err := e.settleClaim(ctx, s, claim)
				if settled || err != nil {
					return err
				}
				by = claim.ExternalIDs[keyPortName]
			}
		}
		if by == "" {
			continue
		}
		if p.search == nil {
			return conf.Errorf(conf.CodeInUse, "choose another, or delete its holder first", "interface %s: %s of network %s is held by %s",
				s.want.Interface, p, s.want.Network.ID(), by)
		}
		if err := e.another(ctx, s, p); err != nil {
			return err
		}
	}
	return nil
}

// settleClaim looks at the port behind a claim that is in the way: it may be the slot's own older port, or gone
// (someone deleted it by hand), with or without another port at its key since, and then the claim goes.
func (e *ensure) settleClaim(ctx context.Context, s *slot, claim *nb.Copp) (settled bool, err error) {
	key := claim.ExternalIDs[keyPort]
	ports, _, err := e.read(ctx, []string{key})
	if err != nil {
		return false, err
	}
	row := ports[key]
	gone := ovndb.Absent(nb.LogicalSwitchPortTable, key)
	switch {
	case row == nil:
	case row.Name == s.name:
		return true, e.inherit(ctx, s, row)
	case row.ExternalIDs[keySandbox] != "" && !slices.Contains(claimsOf(row), claim.UUID):
		gone = owned(key, row.ExternalIDs[keySandbox])
	default:
		return false, nil
	}
	_, err = e.db.Transact(ctx, []ovsdb.Operation{gone, deleteClaim(claim.UUID, key)})
	if _, raced := errors.AsType[*ovndb.Refused](err); raced {
		err = nil
	}
	return true, err
}

// inherit deals with a row of the slot's own name: ours, an older sandbox's, or an older pod's.
func (e *ensure) inherit(ctx context.Context, s *slot, row *nb.LogicalSwitchPort) error {
	older := ownerOf(row)
	if older.Sandbox == "" {
		return conf.Errorf(conf.CodeInUse, "delete or rename it", "interface %s: a port %s, which is not ours, is in the way", s.want.Interface, row.Name)
	}
	if older.Sandbox != e.owner.Sandbox {
		if err := e.supersedes(ctx, older); err != nil {
			return err
		}
	}
	if s.adopt(row) {
		return nil
	}
	// It holds something else than what is wanted now: it goes, and the slot is inserted afresh.
	return e.Release(ctx, older.Sandbox, []Keys{{UUID: row.UUID, Claims: claimsOf(row)}})
}

var uuidPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// settleNames deals with a port's name that is held at another key. The server says so only in prose, so the keys
// in it are looked up and believed only for what their rows are.
func (e *ensure) settleNames(ctx context.Context, refused *ovndb.Refused) error {
	keys := uuidPattern.FindAllString(refused.Details, 8)
	own := e.keys()
	keys = slices.DeleteFunc(keys, func(k string) bool { return slices.Contains(own, k) })
	if len(keys) == 0 {
		return fmt.Errorf("the Northbound database refused the ports: %w", refused)
	}
	ports, _, err := e.read(ctx, keys)
	if err != nil {
		return err
	}
	for _, row := range ports {
		for _, s := range e.slots {
			if s.name != row.Name {
				continue
			}
			if err := e.inherit(ctx, s, row); err != nil {
				return err
			}
		}
	}
	return nil
}
