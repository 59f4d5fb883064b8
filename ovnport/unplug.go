package ovnport

import (
	"context"
	"errors"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// leaving is a sandbox whose host ends are out of the database, and perhaps not yet out of ovs-vswitchd: it has let go of
// them when cur_cfg has reached what next_cfg was raised to, as ovs-vsctl(8) waits for its changes.
type leaving struct {
	root string
	cfg  int
}

// Delete deletes every OVS port of a sandbox. It reads them from the database and not from the
// copy, which is empty for a moment after a reconnect.
func (v *OVS) Delete(ctx context.Context, sandbox string) error {
	results, err := v.db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(vswitch.PortTable, "external_ids", keySandbox, sandbox, "_uuid"),
	})
	if err != nil {
		return err
	}
	ports, err := ovndb.Rows[vswitch.Port](v.db, results[0])
	if err != nil || len(ports) == 0 {
		return err
	}
	everyRoot := []ovsdb.Condition{ovsdb.NewCondition("next_cfg", ovsdb.ConditionGreaterThanOrEqual, 0)}
	ops := []ovsdb.Operation{
		{
			Op: ovsdb.OperationMutate, Table: vswitch.OpenvSwitchTable, Where: everyRoot,
			Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("next_cfg", ovsdb.MutateOperationAdd, 1)},
		},
		{Op: ovsdb.OperationSelect, Table: vswitch.OpenvSwitchTable, Where: everyRoot, Columns: []string{"_uuid", "next_cfg", "cur_cfg"}},
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
	for s, l := range v.leaving {
		if l.root != roots[0].UUID || l.cfg <= roots[0].CurCfg {
			delete(v.leaving, s)
		}
	}
	v.leaving[sandbox] = leaving{roots[0].UUID, roots[0].NextCfg}
	return nil
}

// AwaitDeleted waits until ovs-vswitchd has let go of what this agent unplugged of the sandbox, before links are made that
// have the same names. With a link that came too early it would do what was meant for the one before: take it down, or keep
// the one that is gone in the new one's place.
func (v *OVS) AwaitDeleted(ctx context.Context, sandbox string) error {
	v.mu.Lock()
	l, ok := v.leaving[sandbox]
	v.mu.Unlock()
	if !ok {
		return nil
	}
	settings, err := v.Settings(ctx)
	if err != nil || settings.root != l.root {
		return err
	}
	_, err = v.db.Transact(ctx, []ovsdb.Operation{ovndb.AtLeast(vswitch.OpenvSwitchTable, l.root, "cur_cfg", l.cfg, restartPatience)})
	if refused, ok := errors.AsType[*ovndb.Refused](err); ok && refused.Reason == ovndb.ReasonTimedOut {
		return errors.New("ovs-vswitchd is behind and has its host ends still")
	}
	return err
}
