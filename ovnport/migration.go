package ovnport

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// While a virtual machine migrates live, the pods on both nodes have the port of its IPAMClaim. The row belongs to the
// sandbox of the source and names the target. OVN binds the port on both nodes, and lets the target neither send nor
// receive until QEMU announces there, by RARP, that the guest runs (ovn-nb(5), activation-strategy). The release by the
// source makes the port the target's. The release by the target, whose migration has failed, leaves it with the source.
//
// Before that, when KubeVirt says that the guest runs on the target, the target's agent makes the target's node the
// first of the two (Arrive), and after Settled the only one (Follow). On a physical network the switches there learn by
// what the first chassis announces where the guest is, and ovn-controller announces it a second after it has become
// the first one. Until then the source's port has to be there.

// ErrMigrates is what a [Supersedes] returns for an owner that the calling sandbox is the target of a migration of.
var ErrMigrates = errors.New("the pod is the target of a live migration")

const (
	// keyTarget is of the port of an IPAMClaim: the target of a migration as text, or noTarget.
	keyTarget = "ovn-multinet/migration-target"
	noTarget  = "none"

	optionChassis  = "requested-chassis"
	optionStrategy = "activation-strategy"
)

// target is the pod to which a virtual machine migrates.
type target struct{ Node, Sandbox, Pod, UID, Chassis, Interface string }

func (t target) String() string {
	return strings.Join([]string{t.Node, t.Sandbox, t.Pod, t.UID, t.Chassis, t.Interface}, " ")
}

// targetOf returns the target of a port; the zero value: none.
func targetOf(row *nb.LogicalSwitchPort) target {
	w := strings.Split(row.ExternalIDs[keyTarget], " ")
	if len(w) != 6 {
		return target{}
	}
	return target{w[0], w[1], w[2], w[3], w[4], w[5]}
}

// join makes this sandbox the target of a migration of a stored port. It replaces an earlier target, which has failed:
// the port never has more than two chassis.
func (e *ensureCall) join(t *txn, d *draft) {
	row, o := d.stored, &e.owner
	ids := maps.Clone(row.ExternalIDs)
	ids[keyTarget] = target{o.Node, o.Sandbox, o.Pod, o.UID, o.Chassis, d.request.Interface}.String()
	t.add(unchangedOwner(row)...)
	t.add(ovndb.Update(nb.LogicalSwitchPortTable, row.UUID, ovsdb.Row{
		"external_ids": ovndb.Map(ids),
		"options": ovndb.Map(withHostname(row, map[string]string{
			optionChassis: sourceChassis(row) + "," + o.Chassis, optionStrategy: "rarp",
		})),
	}))
}

// unchangedOwner asserts that a port still has the owner and the target that were read.
func unchangedOwner(row *nb.LogicalSwitchPort) []ovsdb.Operation {
	return []ovsdb.Operation{
		owned(row.UUID, row.ExternalIDs[keySandbox]),
		ovndb.Holds(nb.LogicalSwitchPortTable, row.UUID, "external_ids", keyTarget, row.ExternalIDs[keyTarget]),
	}
}

// sourceChassis is the chassis of the sandbox that owns a port: not that of a target, which may be the first one.
func sourceChassis(row *nb.LogicalSwitchPort) string {
	first, other, both := strings.Cut(row.Options[optionChassis], ",")
	if both && first == targetOf(row).Chassis {
		return other
	}
	return first
}

// Settled is the time from Arrive until Follow. A second is that of ovn-controller.
const Settled = 2 * time.Second

// Arrive makes the node of a migration's target the first one of the ports, and lets both nodes send and receive. The
// target is that with this sandbox. arrived are the row keys of the ports that have such a target.
func (n *NB) Arrive(ctx context.Context, sandbox string, keys []string) (arrived []string, err error) {
	rows, _, err := n.read(ctx, keys)
	if err != nil {
		return nil, err
	}
	var ops []ovsdb.Operation
	for _, key := range keys {
		row := rows[key]
		if row == nil || targetOf(row).Sandbox != sandbox {
			continue
		}
		arrived = append(arrived, key)
		options := withHostname(row, map[string]string{optionChassis: targetOf(row).Chassis + "," + sourceChassis(row)})
		if maps.Equal(options, row.Options) {
			continue
		}
		ops = append(append(ops, unchangedOwner(row)...),
			ovndb.Update(nb.LogicalSwitchPortTable, key, ovsdb.Row{"options": ovndb.Map(options)}))
	}
	if len(ops) > 0 {
		_, err = n.db.Transact(ctx, ops)
	}
	return arrived, err
}

// Follow makes the ports those of the migration's target with this sandbox: the guest has arrived there.
func (n *NB) Follow(ctx context.Context, sandbox string, keys []string) error {
	rows, _, err := n.read(ctx, keys)
	if err != nil {
		return err
	}
	var ops []ovsdb.Operation
	for _, key := range keys {
		if row := rows[key]; row != nil && targetOf(row).Sandbox == sandbox {
			ops = append(ops, handOver(row)...)
		}
	}
	if len(ops) > 0 {
		_, err = n.db.Transact(ctx, ops)
	}
	return err
}

// handOver are the operations that make a port the target's alone.
func handOver(row *nb.LogicalSwitchPort) []ovsdb.Operation {
	to, ids := targetOf(row), maps.Clone(row.ExternalIDs)
	ids[keyNode], ids[keySandbox], ids[keyPod], ids[keyPodUID] = to.Node, to.Sandbox, to.Pod, to.UID
	ids[keyInterface] = to.Interface
	return append(unchangedOwner(row), narrow(row, ids, to.Chassis), enlist(to.Node, to.Sandbox, row.UUID),
		delist(row.ExternalIDs[keyNode], row.ExternalIDs[keySandbox], row.UUID))
}

// releaseOps are the operations that release ports. Only ports of IPAMClaims need a read: a sandbox of a migration
// leaves the port to the other one.
func (n *NB) releaseOps(ctx context.Context, o *Owner, ports []Keys) (ops []ovsdb.Operation, err error) {
	var rows map[string]*nb.LogicalSwitchPort
	if slices.ContainsFunc(ports, func(p Keys) bool { return p.OfIPAMClaim }) {
		if rows, _, err = n.read(ctx, uuidsOf(ports)); err != nil {
			return nil, err
		}
	}
	for _, p := range ports {
		row := rows[p.UUID]
		if !p.OfIPAMClaim {
			ops = append(ops, deleteOps(o.Sandbox, []Keys{p})...)
			continue
		}
		if row == nil {
			continue
		}
		switch to := targetOf(row); o.Sandbox {
		case to.Sandbox:
			ops = append(append(ops, unchangedOwner(row)...), narrow(row, row.ExternalIDs, sourceChassis(row)))
		case row.ExternalIDs[keySandbox]:
			if to.Sandbox != "" {
				ops = append(ops, handOver(row)...)
				continue
			}
			ops = append(append(ops, unchangedOwner(row)...), deleteOps(o.Sandbox, []Keys{p})...)
		}
	}
	return ops, nil
}

// narrow leaves a port with one chassis.
func narrow(row *nb.LogicalSwitchPort, ids map[string]string, chassis string) ovsdb.Operation {
	ids = maps.Clone(ids)
	ids[keyTarget] = noTarget
	return ovndb.Update(nb.LogicalSwitchPortTable, row.UUID, ovsdb.Row{
		"external_ids": ovndb.Map(ids), "options": ovndb.Map(withHostname(row, map[string]string{optionChassis: chassis})),
	})
}

// withHostname adds the host name that a port has to its next options.
func withHostname(row *nb.LogicalSwitchPort, options map[string]string) map[string]string {
	if name := row.Options[optionHostname]; name != "" {
		options[optionHostname] = name
	}
	return options
}
