// Package ipamclaims owns what the controller does with the rows of IPAMClaims in NB: it reads what an IPAMClaim has,
// and deletes its rows. An agent writes them, with the port of the first pod (see package ovnport).
package ipamclaims

import (
	"context"
	"errors"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Claims reads and deletes the rows of IPAMClaims. An IPAMClaim is "<namespace>/<name>".
type Claims struct{ store *nbrows.Store }

// New makes it.
func New(store *nbrows.Store) *Claims { return &Claims{store} }

// Has is what an IPAMClaim has.
type Has struct {
	MAC string
	IPs []string // each with its prefix length
	Pod string   // the name of the pod that has the port; "": there is no port
}

// rows are the rows of an IPAMClaim.
type rows struct {
	claim *nb.Copp
	port  *nb.LogicalSwitchPort
}

func (c *Claims) read(ctx context.Context, id string) (*rows, error) {
	have, reads := &rows{}, c.store.Reads()
	nbrows.ReadOne(reads, nb.CoppTable, ovndb.IPAMClaimKey(id), &have.claim, "_uuid", "external_ids")
	nbrows.ReadOne(reads, nb.LogicalSwitchPortTable, ovndb.IPAMClaimPortKey(id), &have.port, "_uuid", "external_ids")
	if err := reads.Do(ctx); err != nil {
		return nil, err
	}
	if have.claim != nil && ovndb.OtherCluster(have.claim.ExternalIDs) != "" {
		have.claim = nil
	}
	return have, nil
}

// Read returns what an IPAMClaim has; nil: nothing, because no pod has used it.
func (c *Claims) Read(ctx context.Context, id string) (*Has, error) {
	have, err := c.read(ctx, id)
	if err != nil || have.claim == nil {
		return nil, err
	}
	words := strings.Fields(have.claim.ExternalIDs[ovndb.IPAMClaimHas])
	has := &Has{}
	if len(words) > 0 {
		has.MAC, has.IPs = words[0], words[1:]
	}
	if have.port != nil {
		has.Pod = have.port.ExternalIDs[nbrows.KeyPod]
	}
	return has, nil
}

// List returns the IPAMClaims that have anything. The server scans a table for it.
func (c *Claims) List(ctx context.Context) (ids []string, err error) {
	results, err := c.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, ovndb.IPAMClaimKind, "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	all, err := ovndb.Rows[nb.Copp](c.store.Db, results[0])
	for _, row := range all {
		id := row.ExternalIDs[ovndb.IPAMClaimMark]
		if row.UUID == ovndb.IPAMClaimKey(id) && ovndb.OtherCluster(row.ExternalIDs) == "" {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// ErrInUse says that a pod has the port of an IPAMClaim.
var ErrInUse = errors.New("a pod has its port")

// Delete frees the addresses and the MAC of an IPAMClaim. While a pod has its port, the error is ErrInUse.
func (c *Claims) Delete(ctx context.Context, id string) (deleted bool, err error) {
	return c.store.Change(ctx, "IPAMClaim "+id, func(b *nbrows.Batch) error {
		have, err := c.read(ctx, id)
		switch {
		case err != nil || have.claim == nil:
			return err
		case have.port != nil:
			return ErrInUse
		}
		ids := have.claim.ExternalIDs
		b.Add(ovndb.Absent(nb.LogicalSwitchPortTable, ovndb.IPAMClaimPortKey(id)),
			ovndb.HoldsAll(nb.CoppTable, have.claim.UUID, "external_ids", ids), ovndb.Delete(nb.CoppTable, have.claim.UUID))
		for _, key := range strings.Fields(ids[nbrows.KeyClaims]) {
			op := ovndb.Delete(nb.CoppTable, key)
			op.Where = append(op.Where, ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes,
				ovndb.Map(map[string]string{ovndb.IPAMClaimMark: id})))
			b.Add(op)
		}
		return nil
	})
}
