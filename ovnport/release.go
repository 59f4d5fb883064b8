package ovnport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Keys are the row keys of a port: its own, which is its lease, and those of its claims.
type Keys struct {
	UUID   string
	Claims []string
	Switch string // of the logical switch that has the port; "": unknown
	// OfIPAMClaim says that the port is that of an IPAMClaim: a target of a migration may share it.
	OfIPAMClaim bool
}

func keysOfRow(row *nb.LogicalSwitchPort) Keys {
	return Keys{UUID: row.UUID, Claims: claimsOf(row), OfIPAMClaim: row.ExternalIDs[ovndb.IPAMClaimMark] != ""}
}

// Release deletes the ports that belong to the owner's sandbox, with their claims, in one transaction, and removes them
// from the port list of the owner's node. It is no error if a port is gone or belongs to another sandbox by now.
func (n *NB) Release(ctx context.Context, o Owner, ports []Keys) error {
	if len(ports) == 0 {
		return nil
	}
	all := uuidsOf(ports)
	for range maxAttempts {
		ops, err := n.releaseOps(ctx, &o, ports)
		if err == nil {
			err = n.shutOut(ctx, o.Node)
		}
		if err == nil {
			err = n.group.commit(ctx, append(ops, delist(o.Node, o.Sandbox, all...)), keysOf(ports))
		}
		if err == nil {
			return nil
		}
		if _, other := errors.AsType[*ovndb.NotOwner](err); other {
			return err // another attempt does not change that: the caller tries again later
		}
		if _, refused := errors.AsType[*ovndb.Refused](err); !refused && !pause(ctx) {
			return err
		}
		// The transaction was refused because a port is not ours or not on this switch, or its outcome is unknown. In each
		// case the ports that are still ours remain to be released, from whichever switch has them.
		if ports, err = n.stillOwned(ctx, o.Sandbox, ports); err != nil {
			return err
		}
	}
	return fmt.Errorf("ports of sandbox %.12s were not released in %d attempts", o.Sandbox, maxAttempts)
}

func uuidsOf(ports []Keys) []string {
	keys := make([]string, len(ports))
	for i, p := range ports {
		keys[i] = p.UUID
	}
	return keys
}

// deleteOps removes each port from the switch that has it; the database deletes the row with its last reference. A
// claim is deleted only if it names the port.
func deleteOps(sandbox string, ports []Keys) []ovsdb.Operation {
	var ops []ovsdb.Operation
	for _, p := range ports {
		ops = append(ops, owned(p.UUID, sandbox))
		if p.Switch == "" {
			ops = append(ops, ovndb.Unlink(nb.LogicalSwitchTable, "ports", p.UUID))
		} else {
			ops = append(ops, ovndb.UnlinkFrom(nb.LogicalSwitchTable, p.Switch, "ports", p.UUID)...)
		}
		for _, claim := range p.Claims {
			ops = append(ops, deleteClaim(claim, p.UUID))
		}
	}
	return ops
}

func deleteClaim(claim, port string) ovsdb.Operation {
	op := ovndb.Delete(nb.CoppTable, claim)
	op.Where = append(op.Where, ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes,
		ovndb.Map(map[string]string{keyPort: port})))
	return op
}

// keysOf returns the keys of ports and of their claims.
func keysOf(ports []Keys) []string {
	keys := uuidsOf(ports)
	for _, p := range ports {
		keys = append(keys, p.Claims...)
	}
	return keys
}

func (n *NB) stillOwned(ctx context.Context, sandbox string, ports []Keys) ([]Keys, error) {
	rows, _, err := n.read(ctx, uuidsOf(ports))
	if errors.Is(err, ovndb.ErrUnknownOutcome) && ctx.Err() == nil {
		return ports, nil
	}
	if err != nil {
		return nil, err
	}
	var ours []Keys
	for _, p := range ports {
		if row := rows[p.UUID]; row != nil && (row.ExternalIDs[keySandbox] == sandbox || targetOf(row).Sandbox == sandbox) {
			ours = append(ours, keysOfRow(row))
		}
	}
	return ours, nil
}

// ReleaseSandbox releases every port of a sandbox whose keys are unknown: its ADD ended before the plugin received
// them. The port list of the owner's node names the ports.
func (n *NB) ReleaseSandbox(ctx context.Context, o Owner) error {
	err := n.releaseSandbox(ctx, o)
	for attempt := 1; errors.Is(err, ovndb.ErrUnknownOutcome) && attempt < maxAttempts && pause(ctx); attempt++ {
		err = n.releaseSandbox(ctx, o)
	}
	return err
}

func (n *NB) releaseSandbox(ctx context.Context, o Owner) error {
	if err := n.shutOut(ctx, o.Node); err != nil {
		return err
	}
	keys, err := n.portsOfSandbox(ctx, o)
	if err != nil {
		return err
	}
	return n.ReleaseListed(ctx, o, keys)
}

// portsOfSandbox returns the row keys of the owner's ports by the port list of its node.
func (n *NB) portsOfSandbox(ctx context.Context, o Owner) ([]string, error) {
	list, err := n.readPortList(ctx, o.Node)
	if err == nil && list == nil {
		list, err = n.scanPorts(ctx, o.Node)
	}
	maps.DeleteFunc(list, func(_, sandbox string) bool { return sandbox != o.Sandbox })
	return slices.Collect(maps.Keys(list)), err
}

// ReleaseInterfaces releases the ports of some interfaces of a sandbox whose keys are unknown. Until shutOut has run, a
// transaction of an earlier attempt may still come.
func (n *NB) ReleaseInterfaces(ctx context.Context, o Owner, interfaces []string) error {
	if err := n.shutOut(ctx, o.Node); err != nil {
		return err
	}
	keys, err := n.portsOfSandbox(ctx, o)
	if err != nil || len(keys) == 0 {
		return err
	}
	rows, _, err := n.read(ctx, keys)
	if err != nil {
		return err
	}
	return n.ReleaseListed(ctx, o, slices.DeleteFunc(keys, func(key string) bool {
		return rows[key] == nil || !slices.Contains(interfaces, rows[key].ExternalIDs[keyInterface])
	}))
}

// ReleaseListed releases ports whose claims are unknown, and removes them from the port list, also if NB has lost them.
func (n *NB) ReleaseListed(ctx context.Context, o Owner, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	rows, _, err := n.read(ctx, keys)
	if err != nil {
		return err
	}
	var ports []Keys
	var lost []string
	for _, key := range keys {
		if row := rows[key]; row != nil && row.ExternalIDs[keySandbox] == o.Sandbox {
			ports = append(ports, keysOfRow(row))
		} else {
			lost = append(lost, key)
		}
	}
	if len(lost) > 0 {
		if _, err := n.db.Transact(ctx, []ovsdb.Operation{delist(o.Node, o.Sandbox, lost...)}); err != nil {
			return err
		}
	}
	return n.Release(ctx, o, ports)
}
