package ovnport

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// settle finds out why the database refused the transaction, and changes the drafts for the next attempt. An error
// says why another attempt is of no use.
func (e *ensureCall) settle(ctx context.Context, refused *ovndb.Refused, t *txn) error {
	if request := t.networks[refused.Index]; request != nil {
		return e.network.await(ctx, request)
	}
	if request := t.policies[refused.Index]; request != nil {
		return conf.Errorf(conf.CodeTryAgain, "try again when the policies of the namespace stay as they are",
			"interface %s: %w", request.Interface, &PolicyChanged{request.Network.ID(), e.owner.Namespace})
	}
	if request := t.claimLimits[refused.Index]; request != nil {
		return e.settleIPAMClaimLimit(ctx, request)
	}
	if t.profiles[refused.Index] {
		return conf.Errorf(conf.CodeTryAgain, "try again when the operator's port groups stay as they are",
			"%w", &ProfilesChanged{})
	}
	switch {
	case refused.Index == t.portList:
		return e.forgetEpoch(ctx, e.owner.Node, e.epoch)
	case refused.Reason == ovndb.ReasonTimedOut, refused.Reason == ovndb.ReasonDuplicate:
	case refused.Reason == ovndb.ReasonConstraint && refused.Index == len(t.ops):
		// The commit was refused: the name of a port is in use at another key. The details name the key.
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
	for _, d := range e.drafts {
		if err := e.settleDraft(ctx, d, rows, claims); err != nil {
			return err
		}
	}
	return e.separateReservations()
}

func (e *ensureCall) keys() []string {
	var keys []string
	for _, d := range e.drafts {
		for _, r := range d.reservations {
			keys = append(keys, r.key)
		}
		if id := d.request.IPAMClaim; id != "" {
			keys = append(keys, d.key(), ovndb.IPAMClaimKey(id))
		}
	}
	return keys
}

// settleDraft compares one draft with the rows of its keys. Owners may have changed since the last read, so nothing of
// that is kept.
func (e *ensureCall) settleDraft(
	ctx context.Context, d *draft, ports map[string]*nb.LogicalSwitchPort, claims map[string]*nb.Copp,
) error {
	d.stored, d.joins = nil, false
	if d.request.IPAMClaim != "" {
		if settled, err := e.settleIPAMClaim(ctx, d, ports, claims); settled || err != nil {
			return err
		}
	}
	for i := range d.reservations {
		r := &d.reservations[i]
		var used InUse
		if row := ports[r.key]; row != nil {
			if row.Name == d.name {
				return e.settleOlder(ctx, d, row)
			}
			used.Holder, used.Port = holder(row), ownerOf(row)
		} else if claim := claims[r.key]; claim != nil && !d.holds(claim) {
			if used.Holder = ovndb.Claimants(claim.ExternalIDs); used.Holder == "" {
				settled, by, err := e.settleClaim(ctx, d, claim)
				if settled || err != nil {
					return err
				}
				used.Holder, used.Port = claimHolder(claim), by
			}
		}
		if used.Holder == "" {
			continue
		}
		if r.search == nil {
			used.What = r.String() + " of network " + d.request.Network.ID()
			return conf.Errorf(conf.CodeInUse, "choose another, or delete its holder first",
				"interface %s: %w", d.request.Interface, &used)
		}
		if err := e.nextCandidate(ctx, d, r); err != nil {
			return err
		}
	}
	return nil
}

// settleClaim reads the port of a claim that is in the way. The port may be an older port of the draft's name. The
// port may be gone, deleted by hand for example, also if another port has its key now: then the claim is stale and
// deleted. Otherwise settleClaim returns the owner of the port.
func (e *ensureCall) settleClaim(ctx context.Context, d *draft, claim *nb.Copp) (settled bool, by Owner, err error) {
	if claim.ExternalIDs[ovndb.IPAMClaimMark] != "" {
		settled, err = e.settleOtherIPAMClaim(ctx, claim)
		return settled, by, err
	}
	key := claim.ExternalIDs[keyPort]
	ports, _, err := e.read(ctx, []string{key})
	if err != nil {
		return false, by, err
	}
	row := ports[key]
	gone := ovndb.Absent(nb.LogicalSwitchPortTable, key)
	switch {
	case row == nil:
	case row.Name == d.name:
		return true, by, e.settleOlder(ctx, d, row)
	case row.ExternalIDs[keySandbox] != "" && !slices.Contains(claimsOf(row), claim.UUID):
		gone = owned(key, row.ExternalIDs[keySandbox])
	default:
		return false, ownerOf(row), nil
	}
	_, err = e.db.Transact(ctx, []ovsdb.Operation{gone, deleteClaim(claim.UUID, key)})
	if _, raced := errors.AsType[*ovndb.Refused](err); raced {
		err = nil
	}
	return true, by, err
}

// settleOlder settles a row with the draft's name: it belongs to this sandbox, to an older sandbox or to an older pod.
func (e *ensureCall) settleOlder(ctx context.Context, d *draft, row *nb.LogicalSwitchPort) error {
	older := ownerOf(row)
	if older.Sandbox == "" {
		return conf.Errorf(conf.CodeInUse, "delete or rename it",
			"interface %s: a port %s, which is not ours, is in the way", d.request.Interface, row.Name)
	}
	if older.Sandbox != e.owner.Sandbox {
		err := e.supersedes(ctx, older)
		if errors.Is(err, ErrMigrates) && older.Node != e.owner.Node && d.adopt(row) {
			d.joins = true
			return nil
		}
		if err != nil {
			return err
		}
	}
	if d.adopt(row) {
		return nil
	}
	// The row has other addresses than the request: delete the row; the next attempt inserts the draft.
	return e.Release(ctx, older, []Keys{keysOfRow(row)})
}

var uuidPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// settleNames settles ports whose name is in use at another key. The server names the key only in the text of its
// error, so each key in the text is looked up, and its row decides.
func (e *ensureCall) settleNames(ctx context.Context, refused *ovndb.Refused) error {
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
		for _, d := range e.drafts {
			if d.name != row.Name {
				continue
			}
			if err := e.settleOlder(ctx, d, row); err != nil {
				return err
			}
		}
	}
	return nil
}
