package ovnport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// readPage is how many keys one transaction looks up: the server serves no other client meanwhile.
const readPage = 250

// Incomplete returns the names of the sandbox's ports that NB has lost, at least in part: the row is missing, another
// sandbox owns it, the row of a claim is missing, or the port is not in a port group of its security profiles.
// Incomplete reads rows by key; the server scans no table.
func (n *NB) Incomplete(ctx context.Context, sandbox string, ports []Port) (map[string]bool, error) {
	var keys []string
	for _, p := range ports {
		keys = append(append(keys, p.UUID), p.Claims...)
	}
	found := map[string]bool{}
	for page := range slices.Chunk(keys, readPage) {
		rows, claims, err := n.read(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("the ports of sandbox %.12s: %w", sandbox, err)
		}
		for key, row := range rows {
			found[key] = row.ExternalIDs[keySandbox] == sandbox
		}
		if err := n.findNotMembers(ctx, rows, ports, found); err != nil {
			return nil, fmt.Errorf("the ports of sandbox %.12s: %w", sandbox, err)
		}
		for key := range claims {
			found[key] = true // Restore compares the owner
		}
	}
	incomplete := map[string]bool{}
	for _, p := range ports {
		missing := func(key string) bool { return !found[key] }
		if missing(p.UUID) || slices.ContainsFunc(p.Claims, missing) {
			incomplete[p.Name] = true
		}
	}
	return incomplete, nil
}

// InUse says that another port or network has an address or a MAC that a port needs.
type InUse struct {
	What   string // such as "address 10.1.0.7"
	Holder string
	Port   Owner // of the port of a pod; else empty
}

func (e *InUse) Error() string { return e.What + " is in use by " + e.Holder }

// ErrSuperseded says that another sandbox is the rightful owner of the port's name: nothing needs to be restored.
var ErrSuperseded = errors.New("another sandbox of the pod has the port")

// ErrNetworkChanged says that the accepted configuration gives the port other keys than it had.
var ErrNetworkChanged = errors.New("the network is not what it was when the port was made")

// Restore inserts rows of a port that NB has lost: its database was restored from a backup, rebuilt, or changed by
// hand. request has the accepted network, and all addresses and the MAC that the port had; had is the port with its
// keys. The rows get the same keys. The error is an *InUse when an address has another holder by now. supersedes
// returns an error, such as ErrSuperseded, if an older owner of the port's name keeps the row.
func (n *NB) Restore(ctx context.Context, o Owner, request Request, had Port, supersedes Supersedes) error {
	d, err := newDraft(&o, request, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNetworkChanged, err)
	}
	if p := d.port(); p.UUID != had.UUID || !slices.Equal(p.Claims, had.Claims) {
		return ErrNetworkChanged
	}
	e := n.newEnsureCall(o, []*draft{d}, supersedes)
	if e.epoch, err = n.epochOf(ctx, o.Node); err != nil {
		return err
	}
	t, err := e.restoration(ctx, d)
	if err != nil {
		return err
	}
	restore := func() (refused *ovndb.Refused, err error) {
		_, err = n.db.Transact(ctx, t.ops)
		n.group.noteLost(err)
		refused, _ = errors.AsType[*ovndb.Refused](err)
		return refused, err
	}
	refused, err := restore()
	switch {
	case refused == nil:
		return err
	case refused.Index == t.portList:
		return errors.Join(err, n.forgetEpoch(ctx, o.Node, e.epoch))
	case refused.Reason != ovndb.ReasonConstraint || refused.Index != len(t.ops):
		return err
	}
	if err := e.settleNames(ctx, refused); err != nil { // the port's name is at another key
		return err
	}
	_, err = restore()
	return err
}

// claimHolder names the port that a claim belongs to, or the claimants that share it.
func claimHolder(claim *nb.Copp) string {
	if id := claim.ExternalIDs[ovndb.IPAMClaimMark]; id != "" {
		return "IPAMClaim " + id
	}
	return cmp.Or(ovndb.Claimants(claim.ExternalIDs), claim.ExternalIDs[keyPortName])
}

// restoration builds the transaction from the rows that exist; its guards assert that they did not change.
func (e *ensureCall) restoration(ctx context.Context, d *draft) (*txn, error) {
	rows, claims, err := e.read(ctx, e.keys())
	if err != nil {
		return nil, err
	}
	t := &txn{policies: map[int]*Request{}, profiles: map[int]bool{}}
	t.add(accepted(d.request.Network)...)
	t.guardPolicy(&d.request, e.owner.Namespace)
	t.guardProfiles(d)
	e.enlist(t, d.key())
	switch row := rows[d.key()]; {
	case row == nil && claims[d.key()] != nil:
		return nil, &InUse{What: d.reservations[0].String(), Holder: claimHolder(claims[d.key()])}
	case row == nil:
		err = e.insertRow(t, d)
	case row.ExternalIDs[keySandbox] == e.owner.Sandbox && len(d.request.Profiles) > 0:
		d.stored = row // the operator may have made a group again, with another key
		e.takeOver(t, d)
	case row.ExternalIDs[keySandbox] == e.owner.Sandbox:
		t.add(owned(d.key(), e.owner.Sandbox))
	case row.Name != d.name || row.ExternalIDs[keySandbox] == "":
		return nil, &InUse{What: d.reservations[0].String(), Holder: holder(row)}
	default:
		d.stored = row
		err = e.supersedes(ctx, ownerOf(row))
		e.takeOver(t, d)
	}
	first := 1
	if id := d.request.IPAMClaim; id != "" && err == nil {
		first, d.content = 0, parseContent(claims[ovndb.IPAMClaimKey(id)])
		if d.content != nil && d.content.has != d.has() {
			return nil, ErrNetworkChanged // the IPAMClaim has got other addresses meanwhile
		}
		err = e.holdRow(t, d)
	}
	for i := first; i < len(d.reservations) && err == nil; i++ {
		key := d.reservations[i].key
		claim := claims[key]
		switch {
		case rows[key] != nil:
			return nil, &InUse{What: d.reservations[i].String(), Holder: holder(rows[key])}
		case claim != nil && claim.ExternalIDs[keyPort] != d.key():
			return nil, &InUse{What: d.reservations[i].String(), Holder: claimHolder(claim)}
		case claim != nil:
			t.add(ovndb.Holds(nb.CoppTable, key, "external_ids", keyPort, d.key()))
		default:
			err = e.insertClaim(t, d, i)
		}
	}
	return t, err
}
