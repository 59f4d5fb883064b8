package ovnnet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// InUse says that a network was left alone because machines are on it. It takes no new ports.
type InUse struct {
	By   []string // some of them: pods, and ports that are not ours
	More int      // ports beside theirs
}

func (e *InUse) Error() string {
	text := "used by " + strings.Join(e.By, ", ")
	if e.More > 0 {
		text += " and " + count(e.More, "more port")
	}
	return text
}

// ports are those of a switch.
type ports struct {
	key    string
	all    []string
	others []string // all but the router's
}

// unchanged asserts that the switch has these ports still.
func (p *ports) unchanged() ovsdb.Operation { return holdsPorts(nb.LogicalSwitchTable, p.key, p.all) }

func (n *Networks) ports(ctx context.Context, have *rows) (*ports, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.LogicalSwitchTable, have.sw.UUID, "ports")})
	if err != nil {
		return nil, err
	}
	sw := &nb.LogicalSwitch{}
	if err := one(n.db, results[0], &sw); err != nil {
		return nil, err
	}
	p := &ports{key: have.sw.UUID, all: sw.Ports}
	for _, key := range sw.Ports {
		if have.end == nil || key != have.end.UUID {
			p.others = append(p.others, key)
		}
	}
	return p, nil
}

// Remove takes away a network that is no more: first it takes no new ports, then, when there are none, its rows go, in
// one transaction that asserts that there are none (the database would collect them without a word). With ports it
// stays, with InUse, unless force says that they go too. A network that is gone or not ours is success.
func (n *Networks) Remove(ctx context.Context, id string, force bool) error {
	for {
		// Nothing is wanted but what it takes to find the rows.
		none := &rows{sw: &nb.LogicalSwitch{UUID: ovndb.SwitchKey(id), ExternalIDs: map[string]string{keyNetwork: id}}}
		have, _, err := n.read(ctx, none, "")
		if _, foreign := errors.AsType[*Refused](err); foreign {
			if ours, err := n.isOurs(ctx, id); err != nil || !ours {
				return err
			}
		}
		if err != nil {
			return err
		}
		if have.sw == nil {
			return nil
		}
		ports, err := n.ports(ctx, have)
		if err != nil {
			return err
		}
		if len(ports.others) > 0 && !force {
			if err = n.fence(ctx, have.sw); err == nil {
				inUse, err := n.inUse(ctx, ports.others)
				switch {
				case err != nil:
					return err
				case len(inUse.By) > 0:
					return inUse
				}
				continue // they went since they were listed
			}
		} else {
			err = n.delete(ctx, have, ports, force)
		}
		if !raced(err) {
			return err
		}
	}
}

func (n *Networks) isOurs(ctx context.Context, id string) (bool, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(id), "external_ids")})
	if err != nil {
		return false, err
	}
	var sw *nb.LogicalSwitch
	err = one(n.db, results[0], &sw)
	return sw != nil && sw.ExternalIDs[keyNetwork] == id, err
}

// fence makes a switch take no new ports: every NAD is withdrawn.
func (n *Networks) fence(ctx context.Context, sw *nb.LogicalSwitch) error {
	if len(accepts(sw)) == 0 {
		return nil
	}
	ids := maps.Clone(sw.ExternalIDs)
	maps.DeleteFunc(ids, func(key, _ string) bool { return strings.HasPrefix(key, ovndb.AcceptedPrefix) })
	return n.write(ctx, []ovsdb.Operation{
		unchanged(sw), ovndb.Update(nb.LogicalSwitchTable, sw.UUID, ovsdb.Row{"external_ids": ovndb.Map(ids)}),
	})
}

// named is how many of a network's users are named.
const named = 5

func (n *Networks) inUse(ctx context.Context, keys []string) (*InUse, error) {
	// The same ones each time, so that the text changes only when they do.
	keys = slices.Sorted(slices.Values(keys))
	e := &InUse{More: max(0, len(keys)-named)}
	ports, err := ovndb.ReadByKey[nb.LogicalSwitchPort](ctx, n.db, nb.LogicalSwitchPortTable, keys[:min(len(keys), named)], "name", "external_ids")
	if err != nil {
		return nil, err
	}
	for _, port := range ports {
		by := "port " + port.Name + " (not ours)"
		if x := port.ExternalIDs; x[keySandbox] != "" {
			by = "pod " + x[keyNamespace] + "/" + x[keyPod]
		}
		if !slices.Contains(e.By, by) {
			e.By = append(e.By, by)
		}
	}
	return e, nil
}

// delete takes the network's rows away, and with force every port's.
func (n *Networks) delete(ctx context.Context, have *rows, ports *ports, force bool) error {
	id := have.sw.ExternalIDs[keyNetwork]
	ops := []ovsdb.Operation{unchanged(have.sw)}
	if !force {
		ops = append(ops, ports.unchanged())
	}
	if have.port != nil {
		ops = append(ops, ovndb.Unlink(nb.LogicalRouterTable, "ports", have.port.UUID))
	}
	claims := ovndb.Delete(nb.CoppTable, "")
	claims.Where = []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, ovndb.Map(map[string]string{keyNetwork: id}))}
	ops = append(ops, claims, ovndb.Delete(nb.LogicalSwitchTable, have.sw.UUID))
	if err := n.write(ctx, ops); err != nil || have.port == nil {
		return err
	}
	return n.dropRouter(ctx, have.port.ExternalIDs[keyRouter])
}
