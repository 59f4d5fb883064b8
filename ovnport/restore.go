package ovnport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// readPage is how many keys one transaction looks up: the server serves nobody else meanwhile.
const readPage = 250

// Incomplete returns the names of the ports that NB does not have as the sandbox had them: the row is missing, another
// sandbox owns it, or the row of a claim is missing. It looks rows up by key and scans nothing.
func (n *NB) Incomplete(ctx context.Context, sandbox string, ports []Port) (map[string]bool, error) {
	var keys []string
	for _, p := range ports {
		keys = append(append(keys, p.UUID), p.Claims...)
	}
	there := map[string]bool{}
	for page := range slices.Chunk(keys, readPage) {
		rows, claims, err := n.read(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("the ports of container %.12s: %w", sandbox, err)
		}
		for key, row := range rows {
			there[key] = row.ExternalIDs[keySandbox] == sandbox
		}
		for key := range claims {
			there[key] = true // whose it is shows when somebody is to change it
		}
	}
	incomplete := map[string]bool{}
	for _, p := range ports {
		missing := func(key string) bool { return !there[key] }
		if missing(p.UUID) || slices.ContainsFunc(p.Claims, missing) {
			incomplete[p.Name] = true
		}
	}
	return incomplete, nil
}

// InUse says that another port or network has an address or a MAC of a lost port by now.
type InUse struct {
	What   string // such as "address 10.1.0.7"
	Holder string
}

func (e *InUse) Error() string { return e.What + " is held by " + e.Holder }

// ErrSuperseded says that another sandbox has the port's name by right: there is nothing to restore.
var ErrSuperseded = errors.New("another sandbox of the pod has the port")

// ErrNetworkChanged says that the accepted network would not give the port the keys that it had.
var ErrNetworkChanged = errors.New("the network is not what it was when the port was made")

// Restore inserts the rows of a port again that NB has lost: its database was restored from a backup, rebuilt, or changed by
// hand. want has the accepted network, and all addresses and the MAC that the port had; had is the port with its keys. The
// rows get the same keys, so the database refuses them when somebody else has an address by now: that is an *InUse.
// supersedes has an error, ErrSuperseded among others, if an older owner of the port's name keeps the row.
func (n *NB) Restore(ctx context.Context, o Owner, want Request, had Port, supersedes Supersedes) error {
	s, err := newSlot(&o, want)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNetworkChanged, err)
	}
	if p := s.port(); p.UUID != had.UUID || !slices.Equal(p.Claims, had.Claims) {
		return ErrNetworkChanged
	}
	e := &ensure{NB: n, owner: o, slots: []*slot{s}, supersedes: supersedes}
	ops, err := e.restoreOps(ctx, s)
	if err != nil {
		return err
	}
	_, err = n.db.Transact(ctx, ops)
	refused, ok := errors.AsType[*ovndb.Refused](err)
	if !ok || refused.Reason != ovndb.ReasonConstraint || refused.Index != len(ops) {
		return err
	}
	if err := e.settleNames(ctx, refused); err != nil { // the port's name is at another key
		return err
	}
	_, err = n.db.Transact(ctx, ops)
	return err
}

// claimHolder names whose a claim is: of a port, or of those who share it.
func claimHolder(claim *nb.Copp) string {
	return cmp.Or(ovndb.Claimants(claim.ExternalIDs), claim.ExternalIDs[keyPortName])
}

// restoreOps lays the transaction out by the rows that are there; each operation's guard asserts that they still are.
func (e *ensure) restoreOps(ctx context.Context, s *slot) ([]ovsdb.Operation, error) {
	rows, claims, err := e.read(ctx, e.keys())
	if err != nil {
		return nil, err
	}
	t := &txn{}
	t.add(accepted(s.want.Network))
	switch row := rows[s.key()]; {
	case row == nil && claims[s.key()] != nil:
		return nil, &InUse{s.parts[0].String(), claimHolder(claims[s.key()])}
	case row == nil:
		err = e.insertRow(t, s)
	case row.ExternalIDs[keySandbox] == e.owner.Sandbox:
		t.add(owned(s.key(), e.owner.Sandbox))
	case row.Name != s.name || row.ExternalIDs[keySandbox] == "":
		return nil, &InUse{s.parts[0].String(), holder(row)}
	default:
		s.held = row
		err = e.supersedes(ctx, ownerOf(row))
		e.takeOver(t, s)
	}
	for i := 1; i < len(s.parts) && err == nil; i++ {
		key := s.parts[i].key
		claim := claims[key]
		switch {
		case rows[key] != nil:
			return nil, &InUse{s.parts[i].String(), holder(rows[key])}
		case claim != nil && claim.ExternalIDs[keyPort] != s.key():
			return nil, &InUse{s.parts[i].String(), claimHolder(claim)}
		case claim != nil:
			t.add(ovndb.Holds(nb.CoppTable, key, "external_ids", keyPort, s.key()))
		default:
			err = e.insertClaim(t, s, i)
		}
	}
	return t.ops, err
}
