package ovnport

import (
	"context"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// Alive returns the chassis that this node's tunnels reach by BFD. OVN has tunnels watched only between the nodes that
// may have a gateway and those that use it.
func (v *OVS) Alive(ctx context.Context) (map[string]bool, error) {
	up := ovsdb.Operation{Op: ovsdb.OperationSelect, Table: vswitch.InterfaceTable, Columns: []string{"name"}, Where: []ovsdb.Condition{
		ovsdb.NewCondition("bfd_status", ovsdb.ConditionIncludes, ovndb.Map(map[string]string{"state": "up"}))}}
	results, err := v.db.Transact(ctx, []ovsdb.Operation{up})
	if err != nil {
		return nil, err
	}
	tunnels, err := ovndb.Rows[vswitch.Interface](v.db, results[0])
	if err != nil {
		return nil, err
	}
	// The port of a tunnel is called like its interface and says whose it is.
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
			// "<chassis>@<address>", with more behind it in later versions.
			if id := p.ExternalIDs["ovn-chassis-id"]; strings.Contains(id, "@") {
				alive[id[:strings.LastIndex(id, "@")]] = true
			}
		}
	}
	return alive, nil
}
