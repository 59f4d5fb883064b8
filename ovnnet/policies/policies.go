package policies

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Keys of external_ids.
const (
	kindIndex    = "policy-groups" // value of nbrows.KeyKind
	keyNamespace = "ovn-multinet/policy-namespace"
	// keyNetwork is the network of the rows of Copp. It is not nbrows.KeyNetwork, because the rows with that key are
	// deleted with their network.
	keyNetwork  = "ovn-multinet/policy-network"
	keySelector = "ovn-multinet/selector"
	keyTexts    = "ovn-multinet/policy-texts" // hash of the texts
	keyTier     = "ovn-multinet/tier"         // of an ACL, if OVN has tiers
	textPrefix  = "ovn-multinet/policy:"
	// peersOnPrefix is the prefix of a key with policy.Policy.PeersOn of the policy that the rest of the key names.
	peersOnPrefix    = "ovn-multinet/policy-peers-on:"
	peersOnSeparator = "; "
)

// Policies reads and writes the rows of policies.
type Policies struct{ store *nbrows.Store }

// New takes the store that writes.
func New(s *nbrows.Store) *Policies { return &Policies{s} }

// Tiers reports whether this OVN has tiers of ACLs. Call it only after NB has been connected.
func (p *Policies) Tiers() bool { return p.store.Db.HasColumn(nb.ACLTable, "tier") }

// Wanted is what NB should have of the policies of one set.
type Wanted struct {
	Set *policy.Set
	// Waits has NB keep the pods of the namespace out of the network, if the set has no policies: those that are to be
	// served there are not written yet.
	Waits bool
	// Here reports whether a selector selects pods of the set's own namespace.
	Here func(policy.Selector) bool
	// Members has the row keys of the ports in each selector's group.
	Members map[policy.Selector][]string
	// Owners has the owners of the ports whose membership may change, by row key. Nothing is written if a port belongs to
	// another sandbox: another pod may have got the address, and with it the row key. A port that is gone does not matter:
	// the database drops its membership.
	Owners map[string]PortOwner
	// NotMembers returns which of the members that are not in Members do not belong to a selector's group. The others
	// stay. Ports of other networks stay in a group with policy.Selector.Across.
	NotMembers func(ctx context.Context, selector policy.Selector, keys []string) ([]string, error)
	// Wrote is called when the rows are written, and with them the versions of pods in Owners; nil: nobody needs it.
	Wrote func()
	// DeniedRate is how many lines per second OVN logs on a node about packets that the policies of the namespace deny; 0:
	// none.
	DeniedRate int
	// ChangedLabels returns the entries of policy.Index.ChangedLabels, from the present ones.
	ChangedLabels func(present map[string]string) map[string]string
}

// PortOwner is the owner of a port.
type PortOwner struct {
	Sandbox string
	// PodVersion is the resource version of the pod that the membership is chosen by, if the port must say so: the labels
	// of the pod have changed. A controller with an older copy of the pod leaves the port alone then.
	PodVersion string
}

// ErrPortsChanged says that a port has another owner than the caller knows. Nothing was written.
var ErrPortsChanged = errors.New("ports came and went while the policies were written")

// ErrApart says that sets cannot be written together. Nothing was written.
var ErrApart = errors.New("write each set of policies by itself")

// Ensure makes the rows of sets the wanted ones, all in one transaction. It deletes the rows of a set without policies.
// It returns whether it has written anything.
func (p *Policies) Ensure(ctx context.Context, sets ...*Wanted) (changed bool, err error) {
	err = nbrows.Retry(ofSet(sets[0].Set), func() error {
		var ops []ovsdb.Operation
		owned := map[int]bool{} // the indexes of the guards of ports
		for _, w := range sets {
			have, err := p.read(ctx, w.Set)
			if err != nil {
				return err
			}
			more, owners, err := p.difference(ctx, have, w)
			if err != nil {
				return err
			}
			for i := range owners {
				owned[len(ops)+1+i] = true
			}
			ops = append(ops, more...)
		}
		if len(ops) == 0 {
			return nil
		}
		err := p.store.Write(ctx, ops)
		changed = err == nil
		refused, raced := errors.AsType[*ovndb.Refused](err)
		switch raced = raced && nbrows.Raced(err); {
		case raced && owned[refused.Index]:
			return ErrPortsChanged
		case raced && len(sets) > 1: // another controller has written, or two sets write one row
			return ErrApart
		}
		return nbrows.AsRefused(err)
	})
	if changed {
		for _, w := range sets {
			if w.Wrote != nil {
				w.Wrote()
			}
		}
	}
	return changed, err
}

// difference returns the operations that make the present rows the wanted ones. The first one asserts that no other
// controller has changed the index since it was read. The next ones, as many as owners, assert the owners of the ports
// whose membership changes.
func (p *Policies) difference(
	ctx context.Context, have *rows, w *Wanted,
) (ops []ovsdb.Operation, owners int, err error) {
	b := &nbrows.Batch{Db: p.store.Db}
	s := w.Set
	indexKey := ovndb.PolicyKey(s.Network, s.Namespace)
	present := map[string]string{}
	guard := ovndb.Absent(nb.CoppTable, indexKey)
	if have.index != nil {
		present = have.index.ExternalIDs
		guard = ovndb.Present(nb.CoppTable, indexKey)
		if revision := present[ovndb.PolicyRevisionKey]; revision != "" {
			guard = ovndb.Holds(nb.CoppTable, indexKey, "external_ids", ovndb.PolicyRevisionKey, revision)
		}
	}
	if !s.Empty() {
		index, err := w.index(present)
		if err != nil {
			return nil, 0, err
		}
		texts := textsRow(s)
		index.ExternalIDs[keyTexts] = policy.Hash(texts.ExternalIDs)
		nbrows.Put(b, nb.CoppTable, indexKey, have.index, index)
		if have.texts == nil || present[keyTexts] != index.ExternalIDs[keyTexts] {
			nbrows.Put(b, nb.CoppTable, texts.UUID, have.texts, texts)
		}
	} else {
		w.setEmpty(b, have, indexKey)
	}
	moved, err := p.setGroups(ctx, b, have, w)
	if err != nil {
		return nil, 0, err
	}
	owned := w.ownedOps(b, moved)
	b.First(append([]ovsdb.Operation{guard}, owned...)...)
	return b.Ops, len(owned), b.Err
}

// setGroups makes the groups, their ACLs and the meter the wanted ones. It returns the ports whose membership changes.
func (p *Policies) setGroups(ctx context.Context, b *nbrows.Batch, have *rows, w *Wanted) (map[string]bool, error) {
	wanted, moved, logs := map[string]bool{}, map[string]bool{}, false
	move := func(ports []string) {
		for _, port := range ports {
			moved[port] = true
		}
	}
	acls := p.acls(w.Set)
	for _, selector := range w.Set.Selectors() {
		key := groupKey(w.Set, selector)
		wanted[key] = true
		ports, err := setGroup(ctx, b, have, w, selector)
		if err != nil {
			return nil, err
		}
		move(ports)
		logs = p.setACLs(b, have, w, key, acls[selector]) || logs
	}
	have.setMeter(b, w, logs)
	for _, key := range nbrows.SortedKeys(have.groups) {
		if wanted[key] {
			continue
		}
		ports, err := removeGroup(ctx, b, have.groups[key], w)
		if err != nil {
			return nil, err
		}
		move(ports)
	}
	return moved, nil
}

// setEmpty makes the rows those of a set without policies.
func (w *Wanted) setEmpty(b *nbrows.Batch, have *rows, indexKey string) {
	s := w.Set
	if have.index != nil && (!w.Waits || have.texts != nil) {
		b.Add(ovndb.Delete(nb.CoppTable, ovndb.PolicyTextKey(s.Network, s.Namespace)))
	}
	switch {
	case w.Waits:
		nbrows.Put(b, nb.CoppTable, indexKey, have.index, waitingRow(s))
	case have.index != nil:
		b.Add(ovndb.Delete(nb.CoppTable, indexKey))
	}
}

// waitingRow is the row of a set whose policies are not written yet. It has no groups, so agents, also older ones,
// cannot choose those of a new port.
func waitingRow(s *policy.Set) *nb.Copp {
	return &nb.Copp{
		UUID: ovndb.PolicyKey(s.Network, s.Namespace), Name: "ovn-multinet " + ofSet(s), ExternalIDs: map[string]string{
			nbrows.KeyKind: kindIndex, keyNetwork: s.Network, keyNamespace: s.Namespace,
			ovndb.PolicyRevisionKey: policy.WaitingRevision,
		},
	}
}

// ownedOps returns the operations that assert the owners of the ports that change: those whose membership changes, and
// those that get the version of their pod.
func (w *Wanted) ownedOps(b *nbrows.Batch, moved map[string]bool) (guards []ovsdb.Operation) {
	for _, port := range nbrows.SortedKeys(w.Owners) {
		owner := w.Owners[port]
		if owner.PodVersion != "" {
			b.Add(ovndb.SetPair(
				nb.LogicalSwitchPortTable, port, "external_ids", ovndb.PodVersionKey, owner.PodVersion))
		}
		if owner.Sandbox != "" && (moved[port] || owner.PodVersion != "") {
			guards = append(guards, ovndb.NotOtherwise(
				nb.LogicalSwitchPortTable, port, "external_ids", nbrows.KeySandbox, owner.Sandbox))
		}
	}
	return guards
}

// ofSet names a set.
func ofSet(s *policy.Set) string {
	if s.Namespace == "" {
		return "ClusterNetworkPolicies for network " + s.Network
	}
	return "policies of namespace " + s.Namespace + " for network " + s.Network
}

// index returns the row that tells agents which groups a port belongs to.
func (w *Wanted) index(present map[string]string) (*nb.Copp, error) {
	s := w.Set
	x := &policy.Index{}
	for _, selector := range s.Selectors() {
		x.Entries = append(x.Entries, policy.Entry{
			Group: groupKey(s, selector), Selector: selector, Here: w.Here(selector),
		})
	}
	for _, name := range s.Names() {
		x.Entries = append(x.Entries, policy.Entry{Selector: name, Here: w.Here(name)})
	}
	was, err := policy.Decode(present)
	if err != nil {
		was = &policy.Index{}
	}
	x.ChangedLabels = w.ChangedLabels(was.ChangedLabels)
	ids, revision, err := x.Encode()
	if err != nil {
		return nil, err
	}
	ids[ovndb.PolicyRevisionKey] = revision
	ids[nbrows.KeyKind], ids[keyNetwork], ids[keyNamespace] = kindIndex, s.Network, s.Namespace
	return &nb.Copp{
		UUID: ovndb.PolicyKey(s.Network, s.Namespace), ExternalIDs: ids,
		Name: "ovn-multinet " + ofSet(s),
	}, nil
}

// textsRow returns the row with the texts of a set. It says what is accepted when a policy is changed into one that
// cannot be served, and the controller that accepted the former one has ended.
func textsRow(s *policy.Set) *nb.Copp {
	ids := map[string]string{keyNetwork: s.Network, keyNamespace: s.Namespace}
	for _, p := range s.Policies {
		ids[textPrefix+p.Name] = p.Text
		if len(p.PeersOn) > 0 {
			ids[peersOnPrefix+p.Name] = strings.Join(p.PeersOn, peersOnSeparator)
		}
	}
	return &nb.Copp{
		UUID: ovndb.PolicyTextKey(s.Network, s.Namespace), ExternalIDs: ids,
		Name: "ovn-multinet texts of " + ofSet(s),
	}
}

// acls returns the ACLs of each group that this OVN needs. OVN without tiers has no Pass.
func (p *Policies) acls(s *policy.Set) map[policy.Selector][]policy.ACL {
	all := s.ACLs(func(selector policy.Selector) string { return groupName(s, selector) })
	if !p.Tiers() {
		for selector, acls := range all {
			all[selector] = slices.DeleteFunc(acls, func(a policy.ACL) bool { return a.Action == policy.Pass })
		}
	}
	return all
}

// setACLs makes the ACLs of one group the wanted ones. It returns whether one of them logs.
func (p *Policies) setACLs(b *nbrows.Batch, have *rows, w *Wanted, group string, acls []policy.ACL) (logs bool) {
	wanted, tiers := map[string]bool{}, p.Tiers()
	for i := range acls {
		row := aclRow(w.Set, group, &acls[i])
		if acls[i].Log && w.DeniedRate > 0 {
			setLog(row, w.Set.Namespace)
			logs = true
		}
		wanted[row.UUID] = true
		old := have.acls[row.UUID]
		if tiers {
			row.ExternalIDs[keyTier] = strconv.Itoa(acls[i].Tier)
		}
		before := len(b.Ops)
		nbrows.Put(b, nb.ACLTable, row.UUID, old, row)
		if tiers { // the model lacks the column, because old servers do
			for _, op := range b.Ops[before:] {
				if op.Row != nil {
					op.Row["tier"] = acls[i].Tier
				}
			}
		}
		if old == nil {
			b.Add(ovndb.Link(nb.PortGroupTable, group, "acls", row.UUID))
		}
	}
	if old := have.groups[group]; old != nil {
		for _, key := range slices.Sorted(slices.Values(old.ACLs)) {
			if !wanted[key] {
				b.Add(ovndb.UnlinkOne(nb.PortGroupTable, group, "acls", key)) // the database deletes the row
			}
		}
	}
	return logs
}

func aclRow(s *policy.Set, group string, a *policy.ACL) *nb.ACL {
	row := &nb.ACL{
		UUID:     ovndb.ACLKey(s.Network, a.Policy+" "+group, a.Rule),
		Priority: a.Priority, Match: a.Match, Direction: "from-lport", Action: actions[a.Action],
		ExternalIDs: map[string]string{nbrows.KeyNetwork: s.Network, keyNamespace: s.Namespace, ovndb.RuleKey: a.Rule},
	}
	if a.ToPod {
		row.Direction = "to-lport"
	} else {
		row.Options = afterBalancer
	}
	if a.Policy != "" {
		row.ExternalIDs[ovndb.RulePolicyKey] = a.Policy
		name := cut(a.Policy+" "+a.Rule, maxACLName)
		row.Name = &name
	}
	return row
}

// actions are the actions of ACLs (ovn-nb(5)).
var actions = map[policy.Action]string{policy.Accept: "allow-related", policy.Deny: "drop", policy.Pass: "pass"}

// afterBalancer has OVN ask an ACL about what a pod sends when its load balancer has chosen the backend (ovn-nb(5)).
// Without the option, the first packet of a connection to a service has the virtual address and the service's port
// there. Tiers and priorities compare only ACLs with the option, or only those without it. So all of ours have it.
var afterBalancer = map[string]string{"apply-after-lb": "true"}

// maxACLName is the longest name of an ACL in bytes (ovn-nb(5)).
const maxACLName = 63

// cut shortens a text. It does not cut a character, which the server would give back as another one.
func cut(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

// without returns the words of a list that another list does not have, sorted.
func without(list, other []string) []string {
	has := map[string]bool{}
	for _, word := range other {
		has[word] = true
	}
	var rest []string
	for _, word := range list {
		if !has[word] {
			rest = append(rest, word)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(rest)))
}
