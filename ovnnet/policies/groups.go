package policies

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// A group has the ports of one network, and the rows of its set are the only ones that refer to it. A group of peers on
// several networks (policy.Selector.Across) is one row for the sets of all these networks. Each set writes the
// membership of the ports of its own network. The row lists the networks, and the last one deletes it.

func groupKey(s *policy.Set, selector policy.Selector) string {
	of := s.Network
	if selector.Across != "" {
		of = selector.Across
	}
	return ovndb.GroupKey(of, s.Namespace, selector.String())
}

// groupName is the name of a group. Expressions of OVN refer to groups by name, so it has letters and digits only.
func groupName(s *policy.Set, selector policy.Selector) string {
	return "pg_" + strings.ReplaceAll(groupKey(s, selector), "-", "")
}

// groupIDs returns the external_ids of a group. old is the present row; nil: there is none.
func groupIDs(s *policy.Set, selector policy.Selector, old *nb.PortGroup) map[string]string {
	ids := map[string]string{keyNamespace: s.Namespace, keySelector: selector.String()}
	if selector.Across == "" {
		ids[nbrows.KeyNetwork] = s.Network
		return ids
	}
	if old != nil {
		for key, value := range old.ExternalIDs {
			if strings.HasPrefix(key, usedBy) {
				ids[key] = value
			}
		}
	}
	ids[usedBy+s.Network] = ""
	return ids
}

// setGroup makes one group the wanted one. It returns the ports whose membership changes.
func setGroup(
	ctx context.Context, b *nbrows.Batch, have *rows, w *Wanted, selector policy.Selector,
) (moved []string, err error) {
	s, members := w.Set, w.Members[selector]
	key := groupKey(s, selector)
	old := have.groups[key]
	ids := groupIDs(s, selector, old)
	if selector.Across != "" && old != nil && !maps.Equal(ids, old.ExternalIDs) {
		b.Add(ovndb.HasMap(nb.PortGroupTable, key, "external_ids", old.ExternalIDs))
	}
	nbrows.Put(b, nb.PortGroupTable, key, old, &nb.PortGroup{UUID: key, Name: groupName(s, selector), ExternalIDs: ids})
	var present []string
	if old != nil {
		present = old.Ports
	}
	more := without(members, present)
	if len(more) > 0 {
		b.Add(ovndb.Link(nb.PortGroupTable, key, "ports", more...))
	}
	if others := without(present, members); len(others) > 0 {
		less, err := w.NotMembers(ctx, selector, others)
		if err != nil {
			return nil, err
		}
		if len(less) > 0 {
			b.Add(ovndb.UnlinkOne(nb.PortGroupTable, key, "ports", less...))
		}
		more = append(more, less...)
	}
	return more, nil
}

// removeGroup deletes a group that the set does not need any more. If sets of other networks use the group, only the
// ports of this network leave it. It returns these ports.
func removeGroup(ctx context.Context, b *nbrows.Batch, old *nb.PortGroup, w *Wanted) (moved []string, err error) {
	own := usedBy + w.Set.Network
	others := slices.ContainsFunc(nbrows.SortedKeys(old.ExternalIDs), func(key string) bool {
		return strings.HasPrefix(key, usedBy) && key != own
	})
	if _, joint := old.ExternalIDs[own]; joint || others {
		b.Add(ovndb.HasMap(nb.PortGroupTable, old.UUID, "external_ids", old.ExternalIDs))
	}
	if !others {
		b.Add(ovndb.Delete(nb.PortGroupTable, old.UUID)) // the database deletes its ACLs, which nothing else refers to
		return nil, nil
	}
	b.Add(ovndb.DeletePairs(nb.PortGroupTable, old.UUID, "external_ids", map[string]string{own: ""}))
	if len(old.Ports) == 0 {
		return nil, nil
	}
	// No selector of the set is like this one, so all ports of the network are none of its members.
	moved, err = w.NotMembers(ctx, policy.Selector{Across: old.ExternalIDs[keySelector]}, old.Ports)
	if len(moved) > 0 {
		b.Add(ovndb.UnlinkOne(nb.PortGroupTable, old.UUID, "ports", moved...))
	}
	return moved, err
}
