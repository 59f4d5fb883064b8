package ovnport

import (
	"context"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// Alive returns the chassis that answer by BFD on this node's tunnels. OVN runs BFD only between the nodes that may
// have a gateway and the nodes that use it.
func (v *OVS) Alive(ctx context.Context) (map[string]bool, error) {
	results, err := v.db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(vswitch.InterfaceTable, "bfd_status", "state", "up", "name"),
	})
	if err != nil {
		return nil, err
	}
	tunnels, err := ovndb.Rows[vswitch.Interface](v.db, results[0])
	if err != nil {
		return nil, err
	}
	// The Port row of a tunnel has the name of its interface, and names the chassis at the other end.
	ops := make([]ovsdb.Operation, len(tunnels))
	for i, t := range tunnels {
		ops[i] = ovsdb.Operation{Op: ovsdb.OperationSelect, Table: vswitch.PortTable, Columns: []string{"external_ids"},
			Where: []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, t.Name)}}
	}
	results, err = v.db.Transact(ctx, ops)
	if err != nil {
		return nil, err
	}
	alive := map[string]bool{}
	for i := range ops {
		ports, err := ovndb.Rows[vswitch.Port](v.db, results[i])
		if err != nil {
			return nil, err
		}
		for _, p := range ports {
			// "<chassis>@<address>"; later versions append more.
			if id := p.ExternalIDs["ovn-chassis-id"]; strings.Contains(id, "@") {
				alive[id[:strings.LastIndex(id, "@")]] = true
			}
		}
	}
	return alive, nil
}
