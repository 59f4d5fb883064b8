package ovnnet

import (
	"cmp"
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

// Delete deletes a network that nobody requests any more. If the network has ports and force is false, Delete withdraws
// all NADs, keeps the ports and returns an *InUse. Otherwise it deletes all rows in one transaction. Without force this
// transaction asserts that no port came meanwhile: the database would silently delete the ports with their switch. With
// force the ports are deleted too. If the network does not exist or is not ours, Delete returns nil.
func (n *Networks) Delete(ctx context.Context, id string, force bool) error {
	unused := "" // the network's router, if others may use it
	_, err := n.Change(ctx, "network "+id, func(b *nbrows.Batch) error {
		have, err := n.read(ctx, id, nil)
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
			if err != nil || len(claims) == 0 {
				return err
			}
		}
		ports, err := n.ports(ctx, &have.networkRows)
		if err != nil {
			return err
		}
		if len(ports.others) == 0 || force {
			unused, err = n.deleteRows(ctx, b, have, ports, force)
			return err
		}
		if ops := have.withdraw(func(string) bool { return true }); len(ops) > 0 {
			return cmp.Or(n.Write(ctx, ops), nbrows.ErrAgain)
		}
		inUse, err := n.inUse(ctx, ports.others)
		if err == nil && len(inUse.By) > 0 {
			err = inUse
		}
		return cmp.Or(err, nbrows.ErrAgain) // the ports were deleted after they had been listed
	})
	if err != nil {
		return err
	}
	n.ForgetAccepted(func(gone string) bool { return gone == id })
	return n.DeleteUnusedRouter(ctx, unused)
}

// gone reports whether no row of the network exists. If somebody has deleted the network's own switch, the result is
// false as long as other rows exist.
func (have *present) gone() bool {
	return have.accepted == nil && len(have.switches()) == 0 && have.own.RouterPort == nil &&
		len(have.routes)+len(have.nats)+len(have.strayPorts)+len(have.dhcp) == 0
}

// isOurs reports whether the switch at the network's key exists and names the network.
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
	_, err := n.Change(ctx, "network "+id, func(b *nbrows.Batch) error {
		have, err := n.read(ctx, id, nil)
		if err != nil {
			return err
		}
		b.Add(have.withdraw(func(nad string) bool { return slices.Contains(nads, nad) })...)
		return nil
	})
	return err
}

// withdraw returns the operations that delete the revisions of the withdrawn NADs.
func (have *present) withdraw(withdrawn func(nad string) bool) []ovsdb.Operation {
	if !slices.ContainsFunc(nbrows.AcceptedNADs(have.accepted), withdrawn) {
		return nil
	}
	ids := maps.Clone(have.accepted.ExternalIDs)
	maps.DeleteFunc(ids, func(key, _ string) bool {
		nad, is := strings.CutPrefix(key, ovndb.AcceptedPrefix)
		return is && withdrawn(nad)
	})
	return append(have.unchanged(have.id),
		ovndb.Update(nb.CoppTable, have.accepted.UUID, ovsdb.Row{"external_ids": ovndb.Map(ids)}))
}

// deleteRows adds the operations that delete the network's rows, and with force all its ports. It returns the network's
// router if it does not delete that too.
func (n *Networks) deleteRows(
	ctx context.Context, b *nbrows.Batch, have *present, ports *ports, force bool,
) (router string, err error) {
	b.Add(have.guards()...)
	b.Add(have.unchanged(have.id)...)
	if !force {
		b.Add(ports.unchanged()...)
	}
	routerGoes, err := n.endsRouter(ctx, have)
	if err != nil {
		return "", err
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
	b.DeleteDHCP(have.id)
	b.DeleteVirtual(have.id)
	if err := n.ReleaseClaims(ctx, b, have.same(), "network "+have.id); err != nil {
		return "", err
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
		return "", nil
	}
	return have.router(), nil
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
