package ovnnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Refused says that a network cannot become what its NAD says. What is there stays as it is.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

func refusedf(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }

// Networks writes logical switches and routers into OVN's Northbound database.
type Networks struct {
	db *ovndb.DB
	// mayWrite is asked before every write: a controller that does not lead any more must not.
	mayWrite func() error
}

// New takes the connection to NB.
func New(db *ovndb.DB) *Networks {
	return &Networks{db: db, mayWrite: func() error { return nil }}
}

func (n *Networks) write(ctx context.Context, ops []ovsdb.Operation) error {
	if err := n.mayWrite(); err != nil {
		return err
	}
	_, err := n.db.Transact(ctx, ops)
	return err
}

// raced tells whether the database refused a write because something changed since it was read.
func raced(err error) bool {
	refused, ok := errors.AsType[*ovndb.Refused](err)
	return ok && (refused.Reason == ovndb.ReasonDuplicate || refused.Reason == ovndb.ReasonTimedOut)
}

// Ensure makes the network's rows, or brings them up to date, all in one transaction; a router that is not there yet
// takes another. The network takes ports of those NADs. Rows that are as they should be are left alone: every changed
// column of a switch is a recompute for northd. What would cut off or renumber machines on the network is Refused.
func (n *Networks) Ensure(ctx context.Context, network *conf.Network, nads []string) (changed bool, err error) {
	want := wanted(network, nads)
	for {
		have, routerThere, err := n.read(ctx, want, network.Router)
		if err != nil {
			return false, err
		}
		guards, err := n.judge(ctx, have, want, network)
		if err != nil {
			return false, err
		}
		if network.Router != "" && !routerThere {
			if err := n.ensureRouter(ctx, network.Router); err != nil {
				return false, err
			}
			continue
		}
		ops, err := n.change(have, want)
		if err != nil || len(ops) == 0 {
			return false, err
		}
		err = n.write(ctx, append(guards, ops...))
		if raced(err) {
			continue
		}
		if r, ok := errors.AsType[*ovndb.Refused](err); ok && r.Reason == ovndb.ReasonConstraint {
			return false, refusedf("a row that is not ours is in the way: %s", r.Details)
		}
		if err == nil && have.port != nil && have.port.ExternalIDs[keyRouter] != network.Router {
			err = n.dropRouter(ctx, have.port.ExternalIDs[keyRouter])
		}
		return err == nil, err
	}
}

// read returns the network's rows as they are. One that is in the way and not ours is an error.
func (n *Networks) read(ctx context.Context, want *rows, router string) (have *rows, routerThere bool, err error) {
	id := want.sw.ExternalIDs[keyNetwork]
	ops := []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, want.sw.UUID, "_uuid", "name", "other_config", "external_ids"), // not its ports, which may be many
		ovndb.Select(nb.LogicalRouterPortTable, ovndb.RouterPortKey(id)),
		ovndb.Select(nb.LogicalRouterTable, ovndb.RouterKey(router), "_uuid", "name", "external_ids"),
	}
	results, err := n.db.Transact(ctx, ops)
	if err != nil {
		return nil, false, err
	}
	have = &rows{}
	var logicalRouter *nb.LogicalRouter
	if err := errors.Join(one(n.db, results[0], &have.sw), one(n.db, results[1], &have.port), one(n.db, results[2], &logicalRouter)); err != nil {
		return nil, false, err
	}
	if have.sw != nil && have.sw.ExternalIDs[keyNetwork] != id {
		return nil, false, refusedf("logical switch %s is not ours", want.sw.UUID)
	}
	if have.port != nil && have.port.ExternalIDs[keyNetwork] != id {
		return nil, false, refusedf("logical router port %s is not ours", have.port.UUID)
	}
	if logicalRouter != nil && router != "" && logicalRouter.ExternalIDs[keyRouter] != router {
		return nil, false, refusedf("router: logical router %s is not ours", logicalRouter.UUID)
	}
	return have, logicalRouter != nil && logicalRouter.Name == router, n.readEnds(ctx, have, want)
}

// one decodes a select's only row; nil when there is none.
func one[T any](db *ovndb.DB, result ovsdb.OperationResult, into **T) error {
	list, err := ovndb.Rows[T](db, result)
	if err == nil && len(list) > 0 {
		*into = list[0]
	}
	return err
}

// readEnds adds the switch's end of the router's port and its claims, as they are and at the keys where they ought to
// be; a pod's port there is an error.
func (n *Networks) readEnds(ctx context.Context, have, want *rows) error {
	var keys []string
	add := func(more ...string) {
		for _, key := range more {
			if key != "" && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	addEnd := func(end *nb.LogicalSwitchPort) {
		add(end.UUID)
		add(strings.Fields(end.ExternalIDs[keyClaims])...)
	}
	if want.end != nil {
		addEnd(want.end)
	}
	if have.port != nil {
		add(have.port.ExternalIDs[keyPort])
	}
	if have.sw != nil { // also where the configuration in force puts them: others may have taken the rows that lead there
		if was := inForce(have.sw); was != nil && was.Router != "" {
			addEnd(wanted(was, nil).end)
		}
	}
	for done := 0; done < len(keys); {
		results, err := n.db.Transact(ctx, lookUp(keys[done:]))
		if err != nil {
			return err
		}
		done = len(keys)
		for i := 0; i < len(results); i += 2 {
			var port *nb.LogicalSwitchPort
			var claim *nb.Copp
			if err := errors.Join(one(n.db, results[i], &port), one(n.db, results[i+1], &claim)); err != nil {
				return err
			}
			more, err := have.take(want, port, claim)
			if err != nil {
				return err
			}
			add(more...) // claims of an end that is on its way out
		}
	}
	return nil
}

func lookUp(keys []string) []ovsdb.Operation {
	var ops []ovsdb.Operation
	for _, key := range keys {
		ops = append(ops, ovndb.Select(nb.LogicalSwitchPortTable, key), ovndb.Select(nb.CoppTable, key))
	}
	return ops
}

// take sorts a row at one of our keys in, and returns the keys of claims that hang on it.
func (r *rows) take(want *rows, port *nb.LogicalSwitchPort, claim *nb.Copp) ([]string, error) {
	id := want.sw.ExternalIDs[keyNetwork]
	switch {
	case port != nil && port.ExternalIDs[keyRouter] != "" && port.ExternalIDs[keyNetwork] == id:
		r.end = port
		return strings.Fields(port.ExternalIDs[keyClaims]), nil
	case port != nil:
		return nil, refusedf("gateway: its address is held by port %s", port.Name)
	case claim != nil && strings.HasPrefix(claim.ExternalIDs[keyPortName], id+":"): // a router's port is called so
		r.claims = append(r.claims, claim)
	case claim != nil:
		return nil, refusedf("gateway: its address is held by port %s", claim.ExternalIDs[keyPortName])
	}
	return nil, nil
}

// judge tells whether the network may become what is wanted, and returns what has to be asserted with it.
func (n *Networks) judge(ctx context.Context, have, want *rows, network *conf.Network) ([]ovsdb.Operation, error) {
	var guards []ovsdb.Operation
	if have.sw != nil {
		if was := inForce(have.sw); was != nil {
			if cut := was.Keeps(network); cut != nil {
				ports, err := n.ports(ctx, have)
				if err != nil {
					return nil, err
				}
				if len(ports.others) > 0 {
					return nil, refusedf("%v, with %s on the network", cut, count(len(ports.others), "port"))
				}
				guards = append(guards, ports.unchanged())
			}
		}
	}
	if want.port == nil || samePort(have.port, want.port) {
		return guards, nil
	}
	guard, err := n.overlaps(ctx, network)
	if err != nil {
		return nil, err
	}
	return append(guards, guard), nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// overlaps refuses a subnet that meets another one on the same router, and returns the assertion that the router's
// ports are those that were looked at.
func (n *Networks) overlaps(ctx context.Context, network *conf.Network) (ovsdb.Operation, error) {
	key := ovndb.RouterKey(network.Router)
	results, err := n.db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.LogicalRouterTable, key, "ports")})
	if err != nil {
		return ovsdb.Operation{}, err
	}
	router := &nb.LogicalRouter{}
	if err := one(n.db, results[0], &router); err != nil {
		return ovsdb.Operation{}, err
	}
	guard := holdsPorts(nb.LogicalRouterTable, key, router.Ports)
	ports, err := ovndb.ReadByKey[nb.LogicalRouterPort](ctx, n.db, nb.LogicalRouterPortTable, router.Ports, "_uuid", "name", "networks", "external_ids")
	if err != nil {
		return guard, err
	}
	for _, port := range ports {
		if port.ExternalIDs[keyNetwork] == network.ID() {
			continue
		}
		for _, text := range port.Networks {
			other, err := netip.ParsePrefix(text)
			for _, subnet := range network.Subnets {
				if err == nil && other.Overlaps(subnet) {
					return guard, refusedf("router: subnet %s overlaps %s of %s on router %s", subnet, other.Masked(), nameOf(port), network.Router)
				}
			}
		}
	}
	return guard, nil
}

func nameOf(port *nb.LogicalRouterPort) string {
	if id := port.ExternalIDs[keyNetwork]; id != "" {
		return "network " + id
	}
	return "port " + port.Name
}

// holdsPorts asserts that a row's ports are these.
func holdsPorts(table, key string, ports []string) ovsdb.Operation {
	op := ovndb.Present(table, key)
	op.Columns, op.Rows = []string{"ports"}, []ovsdb.Row{{"ports": ovndb.UUIDs(ports)}}
	return op
}

// ensureRouter makes a logical router, or gives it its name again. It has a transaction of its own: of two networks that
// need it at once, one makes it and both go on.
func (n *Networks) ensureRouter(ctx context.Context, name string) error {
	row, err := n.db.Insert(&nb.LogicalRouter{UUID: ovndb.RouterKey(name), Name: name, ExternalIDs: map[string]string{keyRouter: name}})
	if err != nil {
		return err
	}
	if err = n.write(ctx, []ovsdb.Operation{row}); raced(err) {
		key := ovndb.RouterKey(name)
		err = n.write(ctx, []ovsdb.Operation{
			ovndb.Holds(nb.LogicalRouterTable, key, "external_ids", keyRouter, name),
			ovndb.Update(nb.LogicalRouterTable, key, ovsdb.Row{"name": name}),
		})
	}
	if raced(err) { // it is gone again: whoever needs it looks again
		return nil
	}
	return err
}

// dropRouter deletes a logical router of ours with its last port.
func (n *Networks) dropRouter(ctx context.Context, name string) error {
	key := ovndb.RouterKey(name)
	err := n.write(ctx, []ovsdb.Operation{
		ovndb.Holds(nb.LogicalRouterTable, key, "external_ids", keyRouter, name),
		holdsPorts(nb.LogicalRouterTable, key, nil),
		ovndb.Delete(nb.LogicalRouterTable, key),
	})
	if raced(err) { // it has ports, or is gone
		return nil
	}
	return err
}
