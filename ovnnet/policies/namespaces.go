package policies

import (
	"context"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

const kindNamespace = "policy-namespace" // value of nbrows.KeyKind

// NamespaceRow is the row of a namespace.
type NamespaceRow struct {
	policy.Namespace
	Revision string
}

// NewNamespaceRow makes the row of a namespace.
func NewNamespaceRow(n policy.Namespace) (*NamespaceRow, error) {
	_, revision, err := n.Encode()
	return &NamespaceRow{n, revision}, err
}

// Namespaces reads the rows of namespaces. The server scans the table of claims, so callers do this only when they
// begin, or when another controller has written.
func (p *Policies) Namespaces(ctx context.Context) (map[string]*NamespaceRow, error) {
	results, err := p.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, kindNamespace, "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.Copp](p.store.Db, results[0])
	if err != nil {
		return nil, err
	}
	all := map[string]*NamespaceRow{}
	for _, row := range rows {
		if ovndb.OtherCluster(row.ExternalIDs) != "" {
			continue
		}
		known := &NamespaceRow{Revision: row.ExternalIDs[ovndb.PolicyRevisionKey]}
		if n, err := policy.DecodeNamespace(row.ExternalIDs); err == nil {
			known.Namespace = *n
		} else {
			known.Labels = map[string]string{"": ""} // differs from all labels, so a spoilt row is written again
		}
		all[row.ExternalIDs[keyNamespace]] = known
	}
	return all, nil
}

// NamespaceChange is a row of a namespace that is to be written. Was is what NB has of it, and Now is what it should
// have; nil: no row.
type NamespaceChange struct {
	Name     string
	Was, Now *NamespaceRow
}

// WriteNamespaces writes rows of namespaces in one transaction. If a row is not what it was, the error satisfies
// nbrows.Raced.
func (p *Policies) WriteNamespaces(ctx context.Context, changes []NamespaceChange) error {
	b := &nbrows.Batch{Db: p.store.Db}
	for _, c := range changes {
		key := ovndb.NamespaceKey(c.Name)
		was, err := namespaceRow(c.Name, c.Was)
		if err != nil {
			return err
		}
		now, err := namespaceRow(c.Name, c.Now)
		if err != nil {
			return err
		}
		guard := ovndb.Absent(nb.CoppTable, key)
		if was != nil {
			guard = ovndb.Holds(nb.CoppTable, key, "external_ids", ovndb.PolicyRevisionKey, c.Was.Revision)
		}
		b.Add(guard)
		if now == nil {
			b.Add(ovndb.Delete(nb.CoppTable, key))
		} else {
			nbrows.Put(b, nb.CoppTable, key, was, now)
		}
	}
	if b.Err != nil {
		return b.Err
	}
	return p.store.Write(ctx, b.Ops)
}

func namespaceRow(name string, n *NamespaceRow) (*nb.Copp, error) {
	if n == nil {
		return nil, nil
	}
	ids, _, err := n.Encode()
	if err != nil {
		return nil, err
	}
	ids[nbrows.KeyKind], ids[keyNamespace], ids[ovndb.PolicyRevisionKey] = kindNamespace, name, n.Revision
	return &nb.Copp{
		UUID: ovndb.NamespaceKey(name), Name: "ovn-multinet labels of namespace " + name, ExternalIDs: ids,
	}, nil
}
