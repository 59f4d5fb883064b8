package policies

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/policy"
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
	// These policies have been within the limits, and OVN has served them.
	set, _ := policy.NewSet(s.Network, s.Namespace, slices.Collect(maps.Values(accepted)), true)
	have, err := p.read(ctx, set)
	if err != nil {
		return nil, err
	}
	if have.index != nil {
		index, err := policy.Decode(have.index.ExternalIDs)
		if err != nil {
			return nil, err
		}
		set.UseNumbers(index)
	}
	selectors := set.Selectors()
	v := &View{
		Scope: s, Set: set, Members: map[policy.Selector][]string{}, Differs: len(have.groups) != len(selectors),
	}
	acls := set.ACLs(func(selector policy.Selector) string { return groupName(set, selector) })
	for _, selector := range selectors {
		key := groupKey(set, selector)
		group := have.groups[key]
		if group == nil {
			continue
		}
		v.Members[selector] = group.Ports
		v.Differs = v.Differs || len(group.ACLs) != len(acls[selector])
		for _, a := range acls[selector] {
			row := aclRow(set, key, &a)
			old := have.acls[row.UUID]
			if old == nil {
				v.Differs = true
				continue
			}
			if old.Match != row.Match || old.Action != row.Action || old.Direction != row.Direction ||
				old.Priority != row.Priority || !maps.Equal(old.Options, row.Options) {
				v.Differs = true
			}
			tier, err := strconv.Atoi(old.ExternalIDs[keyTier])
			v.Differs = v.Differs || err == nil && tier != a.Tier
			a.Tier = tier
			v.ACLs = append(v.ACLs, a)
		}
	}
	return v, nil
}
