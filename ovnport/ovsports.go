package ovnport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// OVSPort is the node's end of a port, in the integration bridge.
type OVSPort struct {
	HostVeth string // the name of the host-side veth
	PortUUID string
	PortName string
	MAC      string

	row string // the Interface row that Add inserted; "": any row with the name of the veth
	// former tells that Add has found the OVS port of an older sandbox for this port.
	former bool
}

// Add adds OVS ports of a sandbox to the integration bridge, in one transaction. If an earlier attempt of the same
// sandbox left OVS ports with these names, Add deletes these first. Add notes the new rows in ports, for AwaitFlows:
// the copy of the database may still have the deleted rows, with their flows. supersedes reports whether the sandbox
// may have the place of another one in the integration bridge.
func (v *OVS) Add(ctx context.Context, o Owner, ports []OVSPort, supersedes Supersedes) error {
	ops, err := v.addOps(ctx, o, ports, supersedes)
	if err != nil {
		return err
	}
	results, err := v.db.Transact(ctx, ops)
	if refused, ok := errors.AsType[*ovndb.Refused](err); ok && refused.Reason == ovndb.ReasonConstraint {
		if err := v.Delete(ctx, o.Sandbox, hostVeths(ports)...); err != nil {
			return err
		}
		results, err = v.db.Transact(ctx, ops)
	}
	failpoint.Hit("ovs-committed")
	if err != nil {
		return conf.Errorf(conf.CodeTryAgain, "is Open vSwitch running on this node?",
			"add ports to bridge %s: %w", v.bridge, err)
	}
	for i := range ports {
		ports[i].row = results[interfaceOp(i)].UUID.GoUUID
	}
	return nil
}

func hostVeths(ports []OVSPort) (names []string) {
	for _, p := range ports {
		names = append(names, p.HostVeth)
	}
	return names
}

// Restore adds the OVS ports of a sandbox that Open vSwitch has lost, and does not change the others. An Interface row
// that has lost its external_ids gets them again. restored is the number of both.
func (v *OVS) Restore(ctx context.Context, o Owner, ports []OVSPort, supersedes Supersedes) (restored int, err error) {
	rows, err := v.interfaces(ctx, ports)
	if err != nil {
		return 0, err
	}
	var missing []OVSPort
	var repairs []ovsdb.Operation
	for _, p := range ports {
		switch row := rows[p.HostVeth]; {
		case row == nil:
			missing = append(missing, p)
		case !isOurs(row):
			repairs = append(repairs, restoreIDs(row.UUID, o, p))
		}
	}
	ops := repairs
	if len(missing) > 0 {
		if ops, err = v.addOps(ctx, o, missing, supersedes); err != nil {
			return 0, err
		}
		ops = append(ops, repairs...)
	}
	if len(ops) == 0 {
		return 0, nil
	}
	if _, err := v.db.Transact(ctx, ops); err != nil {
		return 0, fmt.Errorf("add ports to bridge %s: %w", v.bridge, err)
	}
	return len(missing) + len(repairs), nil
}

// interfaces reads the Interface rows, by name, from the database: the copy may be behind.
func (v *OVS) interfaces(ctx context.Context, ports []OVSPort) (map[string]*vswitch.Interface, error) {
	var ops []ovsdb.Operation
	for _, p := range ports {
		ops = append(ops, ovsdb.Operation{
			Op: ovsdb.OperationSelect, Table: vswitch.InterfaceTable, Columns: []string{"_uuid", "name", "external_ids"},
			Where: []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, p.HostVeth)},
		})
	}
	results, err := v.db.Transact(ctx, ops)
	if err != nil {
		return nil, fmt.Errorf("read OVS ports: %w", err)
	}
	found := map[string]*vswitch.Interface{}
	for _, result := range results {
		rows, err := ovndb.Rows[vswitch.Interface](v.db, result)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			found[row.Name] = row
		}
	}
	return found, nil
}

// interfaceIDs are the external_ids by which ovn-controller and this agent identify an OVS port.
func interfaceIDs(o Owner, p OVSPort) map[string]string {
	return map[string]string{
		"iface-id": p.PortName, "iface-id-ver": o.UID, "attached_mac": p.MAC, "sandbox": o.Sandbox, keyPortUUID: p.PortUUID,
	}
}

// restoreIDs gives an Interface row its external_ids again. It keeps those of ovn-controller.
func restoreIDs(row string, o Owner, p OVSPort) ovsdb.Operation {
	ids := interfaceIDs(o, p)
	return ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: vswitch.InterfaceTable,
		Where: []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: row})},
		Mutations: []ovsdb.Mutation{
			*ovsdb.NewMutation("external_ids", ovsdb.MutateOperationDelete, ovndb.Set(slices.Sorted(maps.Keys(ids)))),
			*ovsdb.NewMutation("external_ids", ovsdb.MutateOperationInsert, ovndb.Map(ids)),
		},
	}
}

// addOps builds the operations that add OVS ports of a sandbox to the integration bridge.
func (v *OVS) addOps(ctx context.Context, o Owner, ports []OVSPort, supersedes Supersedes) ([]ovsdb.Operation, error) {
	settings, err := v.Settings(ctx)
	if err != nil {
		return nil, err
	}
	ops, err := v.insertOps(o, settings.bridge, ports)
	if err != nil {
		return nil, err
	}
	older, err := v.clearOlder(ctx, o, ports, supersedes)
	return append(ops, older...), err
}

// interfaceOp is the index of the operation that inserts the Interface row of the i-th port: see insertOps.
func interfaceOp(i int) int { return 1 + 2*i }

func (v *OVS) insertOps(o Owner, bridge string, ports []OVSPort) ([]ovsdb.Operation, error) {
	ops := []ovsdb.Operation{ovndb.Present(vswitch.BridgeTable, bridge)}
	var members []any
	for i, p := range ports {
		ifID, portID := fmt.Sprintf("iface%d", i), fmt.Sprintf("port%d", i)
		iface, err := v.db.Insert(&vswitch.Interface{UUID: ifID, Name: p.HostVeth, ExternalIDs: interfaceIDs(o, p)})
		if err != nil {
			return nil, err
		}
		port, err := v.db.Insert(&vswitch.Port{
			UUID: portID, Name: p.HostVeth, Interfaces: []string{ifID},
			ExternalIDs: map[string]string{keySandbox: o.Sandbox},
			OtherConfig: map[string]string{"transient": "true"},
		})
		if err != nil {
			return nil, err
		}
		ops = append(ops, iface, port)
		members = append(members, ovsdb.UUID{GoUUID: portID})
	}
	link := ovndb.Link(vswitch.BridgeTable, bridge, "ports")
	link.Mutations[0].Value = ovsdb.OvsSet{GoSet: members}
	return append(ops, link), nil
}

// clearOlder deletes the iface-id of OVS ports that older sandboxes have of the same ports: their DEL may come late or
// never, and of two OVS ports with one iface-id, ovn-controller chooses either one at its next recompute.
func (v *OVS) clearOlder(
	ctx context.Context, o Owner, ports []OVSPort, supersedes Supersedes,
) ([]ovsdb.Operation, error) {
	var wanted []model.Model
	for _, p := range ports {
		wanted = append(wanted, &vswitch.Interface{ExternalIDs: map[string]string{"iface-id": p.PortName}})
	}
	rows, err := v.db.Copy(ctx)
	if err != nil {
		return nil, fmt.Errorf("OVS database: %w", err)
	}
	var interfaces []vswitch.Interface
	if err := rows.Where(wanted...).List(ctx, &interfaces); err != nil {
		return nil, fmt.Errorf("OVS database: %w", err)
	}
	var ops []ovsdb.Operation
	for i := range interfaces {
		row := &interfaces[i]
		if !isOurs(row) || slices.ContainsFunc(ports, func(p OVSPort) bool { return p.HostVeth == row.Name }) {
			continue
		}
		older := o
		older.UID, older.Sandbox = row.ExternalIDs["iface-id-ver"], row.ExternalIDs["sandbox"]
		if err := supersedes(ctx, older); err != nil {
			return nil, err
		}
		for j := range ports {
			ports[j].former = ports[j].former || ports[j].PortName == row.ExternalIDs["iface-id"]
		}
		ops = append(ops, ovsdb.Operation{
			Op: ovsdb.OperationMutate, Table: vswitch.InterfaceTable,
			Where: []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: row.UUID})},
			Mutations: []ovsdb.Mutation{
				*ovsdb.NewMutation("external_ids", ovsdb.MutateOperationDelete, ovndb.Set([]string{"iface-id"})),
			},
		})
	}
	return ops, nil
}

// deletion is of OVS ports that are gone from the database, and perhaps not yet from ovs-vswitchd: ovs-vswitchd has
// closed them when cur_cfg has reached the value that next_cfg was raised to (ovs-vsctl(8) waits for its changes in
// this way).
type deletion struct {
	root string
	cfg  int
}

// Delete deletes the OVS ports of a sandbox with these names; without a name, every one. It reads the rows from the
// database: the copy is empty for a moment after a reconnect.
func (v *OVS) Delete(ctx context.Context, sandbox string, only ...string) error {
	results, err := v.db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(vswitch.PortTable, "external_ids", keySandbox, sandbox, "_uuid", "name"),
	})
	if err != nil {
		return err
	}
	ports, err := ovndb.Rows[vswitch.Port](v.db, results[0])
	ports = slices.DeleteFunc(ports, func(p *vswitch.Port) bool { return len(only) > 0 && !slices.Contains(only, p.Name) })
	if err != nil || len(ports) == 0 {
		return err
	}
	everyRoot := []ovsdb.Condition{ovsdb.NewCondition("next_cfg", ovsdb.ConditionGreaterThanOrEqual, 0)}
	ops := []ovsdb.Operation{
		{
			Op: ovsdb.OperationMutate, Table: vswitch.OpenvSwitchTable, Where: everyRoot,
			Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("next_cfg", ovsdb.MutateOperationAdd, 1)},
		},
		{
			Op: ovsdb.OperationSelect, Table: vswitch.OpenvSwitchTable, Where: everyRoot,
			Columns: []string{"_uuid", "next_cfg", "cur_cfg"},
		},
	}
	for _, p := range ports {
		ops = append(ops, ovndb.Unlink(vswitch.BridgeTable, "ports", p.UUID))
	}
	if results, err = v.db.Transact(ctx, ops); err != nil {
		return err
	}
	roots, err := ovndb.Rows[vswitch.OpenvSwitch](v.db, results[1])
	if err != nil || len(roots) == 0 {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for s, d := range v.deletions {
		if d.root != roots[0].UUID || d.cfg <= roots[0].CurCfg {
			delete(v.deletions, s)
		}
	}
	v.deletions[sandbox] = deletion{roots[0].UUID, roots[0].NextCfg}
	return nil
}

// AwaitDeleted waits until ovs-vswitchd has closed the OVS ports that this agent deleted of the sandbox. New links
// have the same names: if ovs-vswitchd is behind, it applies the pending change of an old link to the new one, and
// sets that down, or keeps the old link in the place of the new one.
func (v *OVS) AwaitDeleted(ctx context.Context, sandbox string) error {
	v.mu.Lock()
	d, ok := v.deletions[sandbox]
	v.mu.Unlock()
	if !ok {
		return nil
	}
	settings, err := v.Settings(ctx)
	if err != nil || settings.root != d.root {
		return err
	}
	_, err = v.db.Transact(ctx, []ovsdb.Operation{
		ovndb.AtLeast(vswitch.OpenvSwitchTable, d.root, "cur_cfg", d.cfg, restartPatience)})
	if refused, ok := errors.AsType[*ovndb.Refused](err); ok && refused.Reason == ovndb.ReasonTimedOut {
		return errors.New("ovs-vswitchd is behind: it still has the host-side veths open")
	}
	return err
}
