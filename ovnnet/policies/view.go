package policies

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// View is what NB has of the policies of one scope.
type View struct {
	Scope
	Set     *policy.Set  // the accepted policies
	ACLs    []policy.ACL // with the tiers that the rows have; 0 on OVN without tiers
	Members map[policy.Selector][]string
	// Differs tells that the rows of groups and ACLs are not those of the accepted policies.
	Differs bool
}

// viewAttempts is how often a view is read if rows change between two transactions that read them.
const viewAttempts = 5

// Scopes returns the scopes that NB has rows of. Unlike List it does not ask for the cluster: a program for people has
// no identity, so all rows are another cluster's to it.
func (p *Policies) Scopes(ctx context.Context) ([]Scope, error) {
	return p.list(ctx, func(*nb.Copp) bool { return true })
}

// View reads a scope for people.
func (p *Policies) View(ctx context.Context, s Scope) (v *View, err error) {
	for range viewAttempts {
		if v, err = p.view(ctx, s); err != nil || !v.Differs {
			break
		}
	}
	return v, err
}

func (p *Policies) view(ctx context.Context, s Scope) (*View, error) {
	accepted, err := p.Accepted(ctx, s)
	if err != nil {
		return nil, err
	}
	set := policy.SetOf(s.Network, s.Namespace, slices.Collect(maps.Values(accepted)))
	have, err := p.read(ctx, set)
	if err != nil {
		return nil, err
	}
	if have.index != nil && have.index.ExternalIDs[ovndb.PolicyRevisionKey] != policy.WaitingRevision {
		index, err := policy.Decode(have.index.ExternalIDs)
		if err != nil {
			return nil, err
		}
		set.UseNumbers(index)
	}
	v := &View{Scope: s, Set: set, Members: map[policy.Selector][]string{}}
	acls := p.acls(set)
	for _, selector := range set.Selectors() {
		key := groupKey(set, selector)
		if have.groups[key] != nil {
			v.Members[selector] = have.groups[key].Ports
		}
		for _, a := range acls[selector] {
			if row := have.acls[aclRow(set, key, &a).UUID]; row != nil {
				a.Tier, _ = strconv.Atoi(row.ExternalIDs[keyTier])
				v.ACLs = append(v.ACLs, a)
			}
		}
	}
	v.Differs, err = p.differs(ctx, have, v)
	return v, err
}

// differs reports whether a controller would write groups or ACLs, if their members are those that NB has.
func (p *Policies) differs(ctx context.Context, have *rows, v *View) (bool, error) {
	none := func(context.Context, policy.Selector, []string) ([]string, error) { return nil, nil }
	w := &Wanted{Set: v.Set, Members: v.Members, NotMembers: none}
	if have.band != nil {
		w.DeniedRate = have.band.Rate
	}
	have.forView(v.Set)
	b := &nbrows.Batch{Db: p.store.Db}
	_, err := p.setGroups(ctx, b, have, w)
	return len(b.Ops) > 0, cmp.Or(err, b.Err)
}

// forView removes the marks of the cluster, because this program does not know which cluster is its own, and the groups
// of peers on several networks that the set does not need.
func (h *rows) forView(set *policy.Set) {
	if h.meter != nil {
		delete(h.meter.ExternalIDs, ovndb.ClusterMark)
	}
	if h.band != nil {
		delete(h.band.ExternalIDs, ovndb.ClusterMark)
	}
	for _, row := range h.acls {
		delete(row.ExternalIDs, ovndb.ClusterMark)
	}
	wanted := map[string]bool{}
	for _, selector := range set.Selectors() {
		wanted[groupKey(set, selector)] = true
	}
	maps.DeleteFunc(h.groups, func(key string, group *nb.PortGroup) bool {
		delete(group.ExternalIDs, ovndb.ClusterMark)
		_, joint := group.ExternalIDs[usedBy+set.Network]
		return joint && !wanted[key]
	})
}
