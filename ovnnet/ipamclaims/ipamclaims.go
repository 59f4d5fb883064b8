// Package ipamclaims owns what the controller does with the rows of IPAMClaims in NB: it reads what an IPAMClaim has,
// and deletes its rows. An agent writes them, with the port of the first pod (see package ovnport).
package ipamclaims

import (
	"context"
	"errors"
	"maps"
	"slices"
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
	Network string
	MAC     string
	IPs     []string // each with its prefix length
	Pod     string   // the name of the pod that has the port; "": there is no port
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
	has := parse(have.claim)
	if have.port != nil {
		has.Pod = have.port.ExternalIDs[nbrows.KeyPod]
	}
	return has, nil
}

func parse(row *nb.Copp) *Has {
	has := &Has{Network: row.ExternalIDs[ovndb.IPAMClaimNetwork]}
	if words := strings.Fields(row.ExternalIDs[ovndb.IPAMClaimHas]); len(words) > 0 {
		has.MAC, has.IPs = words[0], words[1:]
	}
	return has
}

// List returns what all IPAMClaims have, without their pods, and which networks the limits of each namespace are for
// (see SetLimits). The server scans a table for it.
func (c *Claims) List(ctx context.Context) (all map[string]*Has, limits map[string][]string, err error) {
	results, err := c.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, ovndb.IPAMClaimKind, "_uuid", "external_ids"),
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, ovndb.IPAMClaimLimitKind, "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, nil, err
	}
	all, limits = map[string]*Has{}, map[string][]string{}
	for i := range results {
		rows, err := ovndb.Rows[nb.Copp](c.store.Db, results[i])
		if err != nil {
			return nil, nil, err
		}
		for _, row := range rows {
			id, namespace := row.ExternalIDs[ovndb.IPAMClaimMark], row.ExternalIDs[ovndb.IPAMClaimLimitOf]
			network := row.ExternalIDs[ovndb.IPAMClaimNetwork]
			switch {
			case ovndb.OtherCluster(row.ExternalIDs) != "":
			case row.UUID == ovndb.IPAMClaimKey(id):
				all[id] = parse(row)
			case row.UUID == ovndb.IPAMClaimLimitKey(namespace, network):
				limits[namespace] = append(limits[namespace], network)
			}
		}
	}
	return all, limits, nil
}

// SetLimits makes NB say why IPAMClaims of a namespace get no new addresses, by network; of the network "" on any
// network. An agent gives an IPAMClaim addresses only while there is no such row. had are the networks of the limits
// that there may be.
func (c *Claims) SetLimits(ctx context.Context, namespace string, had []string, why map[string]string) error {
	_, err := c.store.Change(ctx, "limits of the IPAMClaims of namespace "+namespace, func(b *nbrows.Batch) error {
		networks := slices.AppendSeq(slices.Clone(had), maps.Keys(why))
		slices.Sort(networks)
		networks = slices.Compact(networks)
		have, reads := map[string]*nb.Copp{}, c.store.Reads()
		for _, network := range networks {
			nbrows.ReadInto(reads, nb.CoppTable, ovndb.IPAMClaimLimitKey(namespace, network), network, have)
		}
		if err := reads.Do(ctx); err != nil {
			return err
		}
		for _, network := range networks {
			key := ovndb.IPAMClaimLimitKey(namespace, network)
			if reason, limited := why[network]; limited {
				nbrows.Put(b, nb.CoppTable, key, have[network], limitRow(key, namespace, network, reason))
			} else if have[network] != nil {
				b.Add(ovndb.Delete(nb.CoppTable, key))
			}
		}
		return nil
	})
	return err
}

func limitRow(key, namespace, network, reason string) *nb.Copp {
	return &nb.Copp{
		UUID: key, Name: strings.TrimSpace("ovn-multinet limit of IPAMClaims " + namespace + " " + network),
		ExternalIDs: map[string]string{
			nbrows.KeyKind: ovndb.IPAMClaimLimitKind, ovndb.IPAMClaimLimitOf: namespace,
			ovndb.IPAMClaimNetwork: network, ovndb.IPAMClaimLimit: reason,
		},
	}
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
