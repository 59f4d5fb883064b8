package ovnport

import (
	"context"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// PortGroup is a port group that the operator has made, whose row key we did not choose.
type PortGroup struct {
	UUID string
	Name string
}

// Profile is a security profile of a port: the port is a member of the profile's port group.
type Profile struct {
	Name string
	// Grant is the profile as the row at ovndb.ProfilesKey has it. "": the port was a member before NB lost it, and needs
	// no grant to return.
	Grant string
	Group PortGroup
}

// ProfilesChanged says that the operator's profiles or their port groups are not those that the caller knows. Nothing
// was written.
type ProfilesChanged struct{}

func (*ProfilesChanged) Error() string {
	return "the port groups of security profiles or virtual addresses are not what they were"
}

// profileGuards assert that a profile is still granted as the caller knows it, and that its port group exists. Without
// the second assertion, the mutation of a group that is gone "succeeds", and the port has no profile.
func profileGuards(p *Profile) []ovsdb.Operation {
	exists := ovndb.Present(nb.PortGroupTable, p.Group.UUID)
	exists.Where = append(exists.Where, ovsdb.NewCondition("name", ovsdb.ConditionEqual, p.Group.Name))
	if p.Grant == "" {
		return []ovsdb.Operation{exists}
	}
	key := ovndb.ProfilePrefix + p.Name
	return []ovsdb.Operation{exists, ovndb.Holds(nb.CoppTable, ovndb.ProfilesKey, "external_ids", key, p.Grant)}
}

// guardProfiles adds the guards of the drafts' profiles, each once.
func (t *txn) guardProfiles(drafts ...*draft) {
	guarded := map[Profile]bool{}
	for _, d := range drafts {
		for _, p := range d.request.Profiles {
			if guarded[p] {
				continue
			}
			guarded[p] = true
			for _, guard := range profileGuards(&p) {
				t.profiles[len(t.ops)] = true
				t.add(guard)
			}
		}
	}
}

// joinProfiles makes a port a member of its profiles' groups. former are the row keys of the groups that the port was a
// member of by its former profiles.
func joinProfiles(t *txn, d *draft, former []string) {
	groups := d.groups()
	for _, key := range former {
		if !slices.Contains(groups, key) {
			t.add(ovndb.UnlinkOne(nb.PortGroupTable, key, "ports", d.key()))
		}
	}
	for _, key := range groups {
		t.add(ovndb.Link(nb.PortGroupTable, key, "ports", d.key()))
	}
}

// groups are the row keys of the port groups of the draft's profiles, sorted.
func (d *draft) groups() (keys []string) {
	for _, p := range d.request.Profiles {
		keys = append(keys, p.Group.UUID)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// groups are the row keys of the port's groups.
func (p *Port) groups() (keys []string) {
	for _, g := range p.Groups {
		keys = append(keys, g.UUID)
	}
	return keys
}

// groupsOf are the row keys of the port groups that a port is a member of by its profiles.
func groupsOf(row *nb.LogicalSwitchPort) []string { return strings.Fields(row.ExternalIDs[keyGroups]) }

// findNotMembers sets found to false for each port that should be in port groups and is not in one of them. rows are
// the present rows of ports.
func (n *NB) findNotMembers(
	ctx context.Context, rows map[string]*nb.LogicalSwitchPort, ports []Port, found map[string]bool,
) error {
	var ops []ovsdb.Operation
	var keys []string // of the port, by the index of an operation
	for _, p := range ports {
		if row := rows[p.UUID]; row != nil && len(p.Groups) > 0 {
			for _, group := range groupsOf(row) {
				member := ovndb.Select(nb.PortGroupTable, group, "_uuid")
				member.Where = append(member.Where,
					ovsdb.NewCondition("ports", ovsdb.ConditionIncludes, ovndb.UUIDs([]string{p.UUID})))
				ops, keys = append(ops, member), append(keys, p.UUID)
			}
		}
	}
	if len(ops) == 0 {
		return nil
	}
	results, err := n.db.Transact(ctx, ops)
	for i, result := range results {
		if len(result.Rows) == 0 {
			found[keys[i]] = false
		}
	}
	return err
}

// Profiles reads the security profiles that the operator allows, by name, each as a text.
func (n *NB) Profiles(ctx context.Context) (map[string]string, error) {
	rows, err := ovndb.ReadByKey[nb.Copp](ctx, n.db, nb.CoppTable, []string{ovndb.ProfilesKey}, "external_ids")
	if err != nil || len(rows) == 0 {
		return nil, explain(err)
	}
	texts := map[string]string{}
	for key, text := range rows[0].ExternalIDs {
		if name, ok := strings.CutPrefix(key, ovndb.ProfilePrefix); ok {
			texts[name] = text
		}
	}
	return texts, nil
}

// FindPortGroup returns the row key of a port group, "" if there is none, and whether the group is one of ours. The
// server scans the table, so callers remember the key.
func (n *NB) FindPortGroup(ctx context.Context, name string) (uuid string, ours bool, err error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{{
		Op: ovsdb.OperationSelect, Table: nb.PortGroupTable, Columns: []string{"_uuid", "external_ids"},
		Where: []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)},
	}})
	if err != nil {
		return "", false, explain(err)
	}
	rows, err := ovndb.Rows[nb.PortGroup](n.db, results[0])
	if err != nil || len(rows) == 0 {
		return "", false, err
	}
	for key := range rows[0].ExternalIDs {
		ours = ours || strings.HasPrefix(key, ourPrefix)
	}
	return rows[0].UUID, ours, nil
}
