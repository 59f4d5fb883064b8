package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Scope names the policies of one namespace on one network. Without a namespace, they are the ClusterNetworkPolicies.
type Scope struct{ Network, Namespace string }

// List returns the scopes that NB has rows of. The server scans the table of claims, so callers do this only when they
// begin. The rows of another cluster do not matter to a controller.
func (p *Policies) List(ctx context.Context) ([]Scope, error) {
	return p.list(ctx, func(row *nb.Copp) bool { return ovndb.OtherCluster(row.ExternalIDs) == "" })
}

func (p *Policies) list(ctx context.Context, keep func(*nb.Copp) bool) ([]Scope, error) {
	results, err := p.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, kindIndex, "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.Copp](p.store.Db, results[0])
	var all []Scope
	for _, row := range rows {
		if keep(row) {
			all = append(all, Scope{row.ExternalIDs[keyNetwork], row.ExternalIDs[keyNamespace]})
		}
	}
	return all, err
}

// rows are the present rows of a scope, by row key.
type rows struct {
	index  *nb.Copp
	texts  *nb.Copp // without its texts
	groups map[string]*nb.PortGroup
	acls   map[string]*nb.ACL
	meter  *nb.Meter
	band   *nb.MeterBand
}

// read reads the present rows by their keys: the row with the index lists the groups, and a group lists its ACLs.
func (p *Policies) read(ctx context.Context, s *policy.Set) (*rows, error) {
	have := &rows{groups: map[string]*nb.PortGroup{}, acls: map[string]*nb.ACL{}}
	results, err := p.store.Db.Transact(ctx, append([]ovsdb.Operation{
		ovndb.Select(nb.CoppTable, ovndb.PolicyKey(s.Network, s.Namespace), "_uuid", "name", "external_ids"),
		ovndb.Select(nb.CoppTable, ovndb.PolicyTextKey(s.Network, s.Namespace), "_uuid", "name"),
	}, readMeter(s.Namespace)...))
	if err != nil {
		return nil, err
	}
	db := p.store.Db
	err = errors.Join(nbrows.One(db, results[0], &have.index), nbrows.One(db, results[1], &have.texts),
		nbrows.One(db, results[2], &have.meter), nbrows.One(db, results[3], &have.band))
	if err != nil {
		return nil, err
	}
	keys := map[string]bool{}
	for _, selector := range s.Selectors() {
		keys[groupKey(s, selector)] = true
	}
	if have.index != nil {
		index, err := policy.Decode(have.index.ExternalIDs)
		if err == nil { // a spoilt row is written again; its groups stay until the policies change back
			for _, e := range index.Entries {
				if e.Group != "" {
					keys[e.Group] = true
				}
			}
		}
	}
	groups, err := ovndb.ReadByKey[nb.PortGroup](ctx, p.store.Db, nb.PortGroupTable, slices.Collect(maps.Keys(keys)),
		"_uuid", "name", "ports", "acls", "external_ids")
	if err != nil {
		return nil, err
	}
	var acls []string
	for _, g := range groups {
		have.groups[g.UUID] = g
		acls = append(acls, g.ACLs...)
	}
	list, err := ovndb.ReadByKey[nb.ACL](ctx, p.store.Db, nb.ACLTable, acls,
		"_uuid", "name", "priority", "direction", "match", "action", "log", "severity", "meter",
		"options", "external_ids")
	for _, acl := range list {
		have.acls[acl.UUID] = acl
	}
	return have, err
}

// OwnMembers reads the ports in those groups of a scope that have no ports of other namespaces or networks.
func (p *Policies) OwnMembers(ctx context.Context, s Scope) (ports []string, err error) {
	present, err := p.index(ctx, s)
	if present == nil || err != nil {
		return nil, err
	}
	index, err := policy.Decode(present)
	if err != nil {
		return nil, nil // nothing is written there yet
	}
	var keys []string
	for _, e := range index.Entries {
		if e.Group != "" && !e.Anywhere && e.Across == "" {
			keys = append(keys, e.Group)
		}
	}
	groups, err := ovndb.ReadByKey[nb.PortGroup](ctx, p.store.Db, nb.PortGroupTable, keys, "_uuid", "ports")
	for _, g := range groups {
		ports = append(ports, g.Ports...)
	}
	return ports, err
}

// index reads the external_ids of the row with the index of a scope; nil: there is none.
func (p *Policies) index(ctx context.Context, s Scope) (map[string]string, error) {
	results, err := p.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.CoppTable, ovndb.PolicyKey(s.Network, s.Namespace), "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	var row *nb.Copp
	if err := nbrows.One(p.store.Db, results[0], &row); row == nil || err != nil {
		return nil, err
	}
	return row.ExternalIDs, nil
}

// Groups reads which selectors have a group.
func (p *Policies) Groups(ctx context.Context, s Scope) (map[policy.Selector]bool, error) {
	present, err := p.index(ctx, s)
	if present == nil || err != nil {
		return nil, err
	}
	index, err := policy.Decode(present)
	if err != nil { // a spoilt row is written again
		return nil, nil
	}
	all := map[policy.Selector]bool{}
	for _, e := range index.Entries {
		all[e.Selector] = true
	}
	return all, nil
}

// Accepted reads the accepted policies of a scope, by name.
func (p *Policies) Accepted(ctx context.Context, s Scope) (map[string]*policy.Policy, error) {
	results, err := p.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.CoppTable, ovndb.PolicyTextKey(s.Network, s.Namespace), "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	var row *nb.Copp
	if err := nbrows.One(p.store.Db, results[0], &row); err != nil || row == nil {
		return nil, err
	}
	all := map[string]*policy.Policy{}
	for key, text := range row.ExternalIDs {
		if name, ok := strings.CutPrefix(key, textPrefix); ok {
			one, err := policy.ParseText(s.Namespace, name, text)
			if err != nil {
				return nil, fmt.Errorf("accepted policy %s/%s: %w", s.Namespace, name, err)
			}
			if words, some := row.ExternalIDs[peersOnPrefix+name]; some {
				one = one.Across(strings.Split(words, peersOnSeparator)...)
			}
			all[name] = one
		}
	}
	return all, nil
}
