package ovnport

import (
	"cmp"
	"context"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// DenyingRule is the rule of a policy that an ACL is made of.
type DenyingRule struct {
	Policy  string // "<namespace>/<name>"; of a ClusterNetworkPolicy, its name
	Rule    string // such as "ingress deny"
	Network string
	Book    string // the address book of the network
	ToPod   bool   // the rule is for packets to the pods of the policy
}

// DenyingRules returns the rules that the ACLs with these row keys are made of, by key, without those that are gone or
// not ours.
func (n *NB) DenyingRules(ctx context.Context, keys []string) (map[string]*DenyingRule, error) {
	acls, err := ovndb.ReadByKey[nb.ACL](ctx, n.db, nb.ACLTable, keys, "_uuid", "direction", "external_ids")
	if err != nil {
		return nil, err
	}
	rules, switches := map[string]*DenyingRule{}, []string(nil)
	for _, row := range acls {
		if policy := row.ExternalIDs[ovndb.RulePolicyKey]; policy != "" && ovndb.OtherCluster(row.ExternalIDs) == "" {
			network := row.ExternalIDs[keyNetwork]
			rules[row.UUID] = &DenyingRule{Policy: policy, Rule: row.ExternalIDs[ovndb.RuleKey], Network: network,
				Book: network, ToPod: row.Direction == "to-lport"}
			switches = append(switches, ovndb.SwitchKey(network))
		}
	}
	rows, err := ovndb.ReadByKey[nb.LogicalSwitch](ctx, n.db, nb.LogicalSwitchTable, switches, "_uuid", "external_ids")
	for _, row := range rows {
		for _, r := range rules {
			if ovndb.SwitchKey(r.Network) == row.UUID {
				r.Book = cmp.Or(row.ExternalIDs[ovndb.BookKey], r.Network)
			}
		}
	}
	return rules, err
}

// PodsAt returns the pods that have leased or claimed addresses, each "<namespace>/<name>", by the row key of the
// address.
func (n *NB) PodsAt(ctx context.Context, keys []string) (map[string]string, error) {
	ports, claims, err := n.read(ctx, keys)
	pods := map[string]string{}
	for key, row := range ports {
		if isPodPort(row) {
			pods[key] = podOf(row.Name)
		}
	}
	for key, row := range claims {
		if name := row.ExternalIDs[keyPortName]; name != "" && ovndb.OtherCluster(row.ExternalIDs) == "" {
			pods[key] = podOf(name)
		}
	}
	return pods, err
}

// podOf returns the pod of a port, from the name that portName made.
func podOf(name string) string { return name[:max(0, strings.LastIndex(name, "/"))] }
