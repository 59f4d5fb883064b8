package ovnport

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

// While a virtual machine migrates live, the pods on both nodes have the port of its IPAMClaim. The row belongs to the
// sandbox of the source and names the target. OVN binds the port on both nodes, and lets the target neither send nor
// receive until QEMU announces there, by RARP, that the guest runs (ovn-nb(5), activation-strategy). The release by the
// source makes the port the target's. The release by the target, whose migration has failed, leaves it with the source.

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

// sourceChassis is the chassis of the sandbox that owns a port.
func sourceChassis(row *nb.LogicalSwitchPort) string {
	first, _, _ := strings.Cut(row.Options[optionChassis], ",")
	return first
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
			ops = append(ops, unchangedOwner(row)...)
			if to.Sandbox == "" {
				ops = append(ops, deleteOps(o.Sandbox, []Keys{p})...)
				continue
			}
			ids := maps.Clone(row.ExternalIDs)
			ids[keyNode], ids[keySandbox], ids[keyPod], ids[keyPodUID] = to.Node, to.Sandbox, to.Pod, to.UID
			ids[keyInterface] = to.Interface
			ops = append(ops, narrow(row, ids, to.Chassis), enlist(to.Node, to.Sandbox, p.UUID))
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
