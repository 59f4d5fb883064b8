package ovnport

import (
	"context"
	"errors"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Keys are the row keys of a port: its own, which is its lease, and those of its claims.
type Keys struct {
	UUID   string   `json:"uuid"`
	Claims []string `json:"claims,omitempty"`
}

// Release deletes the ports that belong to the sandbox, with their claims, in one transaction. It is no error if a
// port is gone or belongs to another sandbox by now.
func (n *NB) Release(ctx context.Context, sandbox string, ports []Keys) error {
	for range maxAttempts {
		if len(ports) == 0 {
			return nil
		}
		_, err := n.db.Transact(ctx, deleteOps(sandbox, ports))
		if err == nil {
			return nil
		}
		if _, other := errors.AsType[*ovndb.NotOwner](err); other {
			return err // another attempt does not change that: the caller tries again later
		}
		if _, refused := errors.AsType[*ovndb.Refused](err); !refused && !pause(ctx) {
			return err
		}
		// The transaction was refused because one of the ports is not ours, or its outcome is unknown. In both cases the
		// ports that are still ours remain to be released.
		if ports, err = n.stillOwned(ctx, sandbox, ports); err != nil {
			return err
		}
	}
	return fmt.Errorf("ports of sandbox %.12s were not released in %d attempts", sandbox, maxAttempts)
}

// deleteOps removes each port from the switch that has it; the database deletes the row with its last reference. A
// claim is deleted only if it names the port.
func deleteOps(sandbox string, ports []Keys) []ovsdb.Operation {
	var ops []ovsdb.Operation
	for _, p := range ports {
		ops = append(ops, owned(p.UUID, sandbox), ovndb.Unlink(nb.LogicalSwitchTable, "ports", p.UUID))
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

func (n *NB) stillOwned(ctx context.Context, sandbox string, ports []Keys) ([]Keys, error) {
	keys := make([]string, len(ports))
	for i, p := range ports {
		keys[i] = p.UUID
	}
	rows, _, err := n.read(ctx, keys)
	if errors.Is(err, ovndb.ErrUnknownOutcome) && ctx.Err() == nil {
		return ports, nil
	}
	if err != nil {
		return nil, err
	}
	var ours []Keys
	for _, p := range ports {
		if row := rows[p.UUID]; row != nil && row.ExternalIDs[keySandbox] == sandbox {
			ours = append(ours, Keys{UUID: p.UUID, Claims: claimsOf(row)})
		}
	}
	return ours, nil
}

// ReleaseSandbox releases every port of a sandbox whose keys are unknown: its ADD ended before the plugin received
// them. The server scans all ports.
func (n *NB) ReleaseSandbox(ctx context.Context, sandbox string) error {
	find := []ovsdb.Operation{
		ovndb.SelectWith(nb.LogicalSwitchPortTable, "external_ids", keySandbox, sandbox, "_uuid", "external_ids"),
	}
	results, err := n.db.Transact(ctx, find)
	for attempt := 1; errors.Is(err, ovndb.ErrUnknownOutcome) && attempt < maxAttempts && pause(ctx); attempt++ {
		results, err = n.db.Transact(ctx, find)
	}
	if err != nil {
		return err
	}
	rows, err := ovndb.Rows[nb.LogicalSwitchPort](n.db, results[0])
	if err != nil {
		return err
	}
	var ports []Keys
	for _, row := range rows {
		ports = append(ports, Keys{UUID: row.UUID, Claims: claimsOf(row)})
	}
	return n.Release(ctx, sandbox, ports)
}
