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
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// InUse says that a network was withdrawn but not deleted, because it still has ports.
type InUse struct {
	By   []string // some of the users: pods, and ports that are not ours
	More int      // the number of ports that By does not name
}

func (e *InUse) Error() string {
	text := "used by " + strings.Join(e.By, ", ")
	if e.More > 0 {
		text += " and " + count(e.More, "more port")
	}
	return text
}

// ports are the ports of a network's switches.
type ports struct {
	of     []switchPorts
	others []string // without the ports to the router and to the physical network
}

// switchPorts are the keys of all ports of the switch with that key.
type switchPorts struct {
	key string
	all []string
}

// unchanged returns the assertions that the switches still have exactly these ports.
func (p *ports) unchanged() []ovsdb.Operation {
	ops := make([]ovsdb.Operation, len(p.of))
	for i, sw := range p.of {
		ops[i] = nbrows.HoldsPorts(nb.LogicalSwitchTable, sw.key, sw.all)
	}
	return ops
}

// ports reads the ports of a network's switches, page by page.
func (n *Networks) ports(ctx context.Context, have *networkRows) (*ports, error) {
	p := &ports{}
	for part := range slices.Chunk(have.switches(), readPage) {
		var ops []ovsdb.Operation
		for _, one := range part {
			ops = append(ops, ovndb.Select(nb.LogicalSwitchTable, one.Row.UUID, "ports"))
		}
		results, err := n.Db.Transact(ctx, ops)
		if err != nil {
			return nil, err
		}
		for i, result := range results {
			sw := &nb.LogicalSwitch{}
			if err := nbrows.One(n.Db, result, &sw); err != nil {
				return nil, err
			}
			p.of = append(p.of, switchPorts{part[i].Row.UUID, sw.Ports})
			p.others = append(p.others, part[i].Others(sw.Ports)...)
		}
	}
	return p, nil
}

// Delete deletes a network that nobody requests any more. If the network has ports and force is false, Delete withdraws
// all NADs, keeps the ports and returns an *InUse. Otherwise it deletes all rows in one transaction. Without force this
// transaction asserts that no port came meanwhile: the database would silently delete the ports with their switch. With
// force the ports are deleted too. If the network does not exist or is not ours, Delete returns nil.
func (n *Networks) Delete(ctx context.Context, id string, force bool) error {
	for tries := nbrows.Attempts(0); ; {
		if err := tries.Next("network " + id); err != nil {
			return err
		}
		have, err := n.read(ctx, id, nil, nil)
		if _, foreign := errors.AsType[*nbrows.Refused](err); foreign {
			if ours, err := n.isOurs(ctx, id); err != nil || !ours {
				return err
			}
		}
		if err != nil {
			return err
		}
		if have.gone() {
			claims, err := n.ClaimsOf(ctx, have.same(), "network "+id)
			if nbrows.Raced(err) {
				continue
			}
			if err != nil || len(claims) == 0 {
				return err
			}
		}
		ports, err := n.ports(ctx, &have.networkRows)
		if err != nil {
			return err
		}
		if len(ports.others) > 0 && !force {
			if err = n.withdrawAll(ctx, have); err == nil {
				inUse, err := n.inUse(ctx, ports.others)
				switch {
				case err != nil:
					return err
				case len(inUse.By) > 0:
					return inUse
				}
				continue // the ports were deleted after they had been listed
			}
		} else {
			err = n.deleteRows(ctx, have, ports, force)
		}
		if !nbrows.Raced(err) {
			return err
		}
	}
}

// gone tells whether no row of the network exists. If somebody has deleted the network's own switch, the result is
// false as long as other rows exist.
func (have *present) gone() bool {
	return have.accepted == nil && len(have.switches()) == 0 && have.own.RouterPort == nil &&
		len(have.routes)+len(have.nats)+len(have.strayPorts) == 0
}

// deleteStrayPorts returns the operations that delete the router ports of nodes that have no node switch.
func (have *present) deleteStrayPorts() []ovsdb.Operation {
	var ops []ovsdb.Operation
	for _, key := range have.strayPorts {
		ops = append(ops, ovndb.Unlink(nb.LogicalRouterTable, "ports", key))
	}
	return ops
}

// isOurs tells whether the switch at the network's key exists and names the network.
func (n *Networks) isOurs(ctx context.Context, id string) (bool, error) {
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey(id), "external_ids"),
	})
	if err != nil {
		return false, err
	}
	var sw *nb.LogicalSwitch
	err = nbrows.One(n.Db, results[0], &sw)
	return sw != nil && sw.ExternalIDs[nbrows.KeyNetwork] == id, err
}

// Withdraw withdraws the NADs from a network: it takes no new ports of these NADs. Existing ports stay.
func (n *Networks) Withdraw(ctx context.Context, id string, nads []string) error {
	for tries := nbrows.Attempts(0); ; {
		if err := tries.Next("network " + id); err != nil {
			return err
		}
		have, err := n.read(ctx, id, nil, nil)
		if err != nil {
			return err
		}
		withdrawn := func(nad string) bool { return slices.Contains(nads, nad) }
		if err := n.withdraw(ctx, have, withdrawn); !nbrows.Raced(err) {
			return err
		}
	}
}

// withdrawAll withdraws all NADs from a network: it takes no new ports.
func (n *Networks) withdrawAll(ctx context.Context, have *present) error {
	return n.withdraw(ctx, have, func(string) bool { return true })
}

// withdraw deletes the revisions of the withdrawn NADs.
func (n *Networks) withdraw(ctx context.Context, have *present, withdrawn func(nad string) bool) error {
	if !slices.ContainsFunc(nbrows.AcceptedNADs(have.accepted), withdrawn) {
		return nil
	}
	ids := maps.Clone(have.accepted.ExternalIDs)
	maps.DeleteFunc(ids, func(key, _ string) bool {
		nad, is := strings.CutPrefix(key, ovndb.AcceptedPrefix)
		return is && withdrawn(nad)
	})
	return n.Write(ctx, append(have.unchanged(have.id),
		ovndb.Update(nb.CoppTable, have.accepted.UUID, ovsdb.Row{"external_ids": ovndb.Map(ids)})))
}

// named is the number of ports whose users an InUse names.
const named = 5

// inUse returns an InUse with the users of these ports.
func (n *Networks) inUse(ctx context.Context, keys []string) (*InUse, error) {
	// Sort the keys: the error names the same users each time, so its text changes only when the ports change.
	keys = slices.Sorted(slices.Values(keys))
	e := &InUse{More: max(0, len(keys)-named)}
	ports, err := ovndb.ReadByKey[nb.LogicalSwitchPort](
		ctx, n.Db, nb.LogicalSwitchPortTable, keys[:min(len(keys), named)], "name", "external_ids")
	if err != nil {
		return nil, err
	}
	for _, port := range ports {
		by := nbrows.UserOf(port)
		if !slices.Contains(e.By, by) {
			e.By = append(e.By, by)
		}
	}
	return e, nil
}

// deleteRows deletes the network's rows, and with force all its ports.
func (n *Networks) deleteRows(ctx context.Context, have *present, ports *ports, force bool) error {
	b := &nbrows.Batch{Db: n.Db}
	b.Add(have.guards()...)
	b.Add(have.unchanged(have.id)...)
	if !force {
		b.Add(ports.unchanged()...)
	}
	routerGoes, err := n.endsRouter(ctx, have)
	if err != nil {
		return err
	}
	b.Add(routerGoes...)
	b.Add(have.deleteStrayPorts()...)
	for key := range have.routes {
		b.Add(ovndb.Unlink(nb.LogicalRouterTable, "static_routes", key))
	}
	for key := range have.nats {
		b.Add(ovndb.Unlink(nb.LogicalRouterTable, "nat", key))
	}
	claims := ovndb.Delete(nb.CoppTable, "")
	claims.Where = []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes,
		ovndb.Map(map[string]string{nbrows.KeyNetwork: have.id}))}
	b.Add(claims)
	b.DeleteServices(have.id)
	if err := n.ReleaseClaims(ctx, b, have.same(), "network "+have.id); err != nil {
		return err
	}
	for _, p := range append(have.switches(), have.own) {
		if p.RouterPort != nil {
			b.Add(ovndb.Unlink(nb.LogicalRouterTable, "ports", p.RouterPort.UUID))
		}
	}
	for _, p := range have.switches() {
		b.Add(ovndb.Delete(nb.LogicalSwitchTable, p.Row.UUID))
	}
	if len(routerGoes) > 0 {
		b.Add(ovndb.Delete(nb.LogicalRouterTable, ovndb.RouterKey(have.router())))
		b.DeleteRouterServices(have.router())
		return n.Write(ctx, b.Ops)
	}
	if err := n.Write(ctx, b.Ops); err != nil {
		return err
	}
	return n.DeleteUnusedRouter(ctx, have.router())
}

// endsRouter returns the assertions that the network's router has no other ports and routes than the network's; none if
// the router has others, or is not ours. With them, one transaction deletes network and router: northd computes
// everything again for each of the two.
func (n *Networks) endsRouter(ctx context.Context, have *present) ([]ovsdb.Operation, error) {
	name := have.router()
	if name == "" {
		return nil, nil
	}
	key := ovndb.RouterKey(name)
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalRouterTable, key, "external_ids", "ports", "static_routes"),
	})
	if err != nil {
		return nil, err
	}
	var router *nb.LogicalRouter
	if err := nbrows.One(n.Db, results[0], &router); err != nil || router == nil {
		return nil, err
	}
	own := slices.Clone(have.strayPorts)
	for _, p := range append(have.switches(), have.own) {
		if p.RouterPort != nil {
			own = append(own, p.RouterPort.UUID)
		}
	}
	others := slices.ContainsFunc(router.Ports, func(port string) bool { return !slices.Contains(own, port) }) ||
		slices.ContainsFunc(router.StaticRoutes, func(route string) bool { return have.routes[route] == nil })
	if others || router.ExternalIDs[nbrows.KeyRouter] != name {
		return nil, nil
	}
	return []ovsdb.Operation{
		ovndb.Holds(nb.LogicalRouterTable, key, "external_ids", nbrows.KeyRouter, name),
		nbrows.HoldsPorts(nb.LogicalRouterTable, key, router.Ports),
		nbrows.HoldsRoutes(key, router.StaticRoutes),
	}, nil
}
