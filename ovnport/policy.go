package ovnport

import (
	"context"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Policy is the membership of a port in the groups of policies, and what it was chosen by.
type Policy struct {
	PolicyRevisions
	In  []string // the row keys of the groups that the port belongs to
	Out []string // of the other groups: a port that is taken over from another pod leaves them
	// PodVersion is the resource version of the pod that the groups were chosen by the labels of.
	PodVersion string
}

// PolicyRevisions are the values of ovndb.PolicyRevisionKey in the rows that say which groups a pod's port belongs to.
type PolicyRevisions struct {
	// Own is of the row at ovndb.PolicyKey; "": that row does not exist, because no policy of the pod's namespace is for
	// the network.
	Own string
	// Cluster is of the row for ClusterNetworkPolicies; "": that row does not exist. Namespace is of the row at
	// ovndb.NamespaceKey, which matters only with Cluster.
	Cluster, Namespace string
}

// PolicyChanged says that the groups of a namespace's pods on a network are not those that the caller knows. Nothing
// was written.
type PolicyChanged struct{ Network, Namespace string }

func (e *PolicyChanged) Error() string {
	return "the policies of namespace " + e.Namespace + " for network " + e.Network + " are not what they were"
}

// guardPolicy asserts that the groups are still those that the membership was chosen by.
func (t *txn) guardPolicy(request *Request, namespace string) {
	guard := func(key, revision string) {
		t.policies[len(t.ops)] = request
		if revision == "" {
			t.add(ovndb.Absent(nb.CoppTable, key))
		} else {
			t.add(ovndb.Holds(nb.CoppTable, key, "external_ids", ovndb.PolicyRevisionKey, revision))
		}
	}
	network, known := request.Network.ID(), &request.Policy
	guard(ovndb.PolicyKey(network, namespace), known.Own)
	guard(ovndb.PolicyKey(network, ""), known.Cluster)
	if known.Cluster != "" {
		guard(ovndb.NamespaceKey(namespace), known.Namespace)
	}
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

// PolicyRows are the external_ids of the rows that say which groups the ports of a namespace's pods belong to, on a
// network; nil: the row does not exist.
type PolicyRows struct{ Own, Cluster, Namespace map[string]string }

// Revisions returns the revisions of the rows.
func (r *PolicyRows) Revisions() PolicyRevisions {
	return PolicyRevisions{
		r.Own[ovndb.PolicyRevisionKey], r.Cluster[ovndb.PolicyRevisionKey], r.Namespace[ovndb.PolicyRevisionKey],
	}
}

// PolicyRows reads the rows of a namespace on a network.
func (n *NB) PolicyRows(ctx context.Context, network, namespace string) (*PolicyRows, error) {
	read := &PolicyRows{}
	into := []*map[string]string{&read.Own, &read.Cluster, &read.Namespace}
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.CoppTable, ovndb.PolicyKey(network, namespace), "external_ids"),
		ovndb.Select(nb.CoppTable, ovndb.PolicyKey(network, ""), "external_ids"),
		ovndb.Select(nb.CoppTable, ovndb.NamespaceKey(namespace), "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	for i := range into {
		rows, err := ovndb.Rows[nb.Copp](n.db, results[i])
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			*into[i] = rows[0].ExternalIDs
		}
	}
	return read, nil
}
