package ovnport

import (
	"context"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Policy is the membership of a port in the groups of policies, and what it was chosen by.
type Policy struct {
	// Revision is the value of ovndb.PolicyRevisionKey in the row at ovndb.PolicyKey; "": that row does not exist, because
	// no policy of the pod's namespace is for the network.
	Revision string
	In       []string // the row keys of the groups that the port belongs to
	Out      []string // of the other groups: a port that is taken over from another pod leaves them
}

// PolicyChanged says that the groups of a namespace's pods on a network are not those that the caller knows. Nothing
// was written.
type PolicyChanged struct{ Network, Namespace string }

func (e *PolicyChanged) Error() string {
	return "the policies of namespace " + e.Namespace + " for network " + e.Network + " are not what they were"
}

// policyGuard asserts that the groups are still those that the membership was chosen by.
func policyGuard(network, namespace, revision string) ovsdb.Operation {
	key := ovndb.PolicyKey(network, namespace)
	if revision == "" {
		return ovndb.Absent(nb.CoppTable, key)
	}
	return ovndb.Holds(nb.CoppTable, key, "external_ids", ovndb.PolicyRevisionKey, revision)
}

// join makes a port a member of its groups. A port that another pod had leaves the other groups.
func join(t *txn, p *Policy, port string, former bool) {
	for _, group := range p.In {
		t.add(ovndb.Link(nb.PortGroupTable, group, "ports", port))
	}
	if former {
		for _, group := range p.Out {
			t.add(ovndb.UnlinkOne(nb.PortGroupTable, group, "ports", port))
		}
	}
}

// PolicyIDs reads the external_ids of the row that says which groups the ports of a namespace's pods belong to; nil:
// the row does not exist.
func (n *NB) PolicyIDs(ctx context.Context, network, namespace string) (map[string]string, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.CoppTable, ovndb.PolicyKey(network, namespace), "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.Copp](n.db, results[0])
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0].ExternalIDs, nil
}
