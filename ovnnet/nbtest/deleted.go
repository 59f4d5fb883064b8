package nbtest

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// Lose deletes one row and all references to it.
func (w *World) Lose(t *testing.T, table, key string) {
	t.Helper()
	var ops []ovndbtest.Op
	for _, in := range []struct{ table, column, of string }{
		{"Logical_Switch", "ports", "Logical_Switch_Port"}, {"Logical_Router", "ports", "Logical_Router_Port"},
		{"Logical_Router", "static_routes", "Logical_Router_Static_Route"}, {"Logical_Router", "nat", "NAT"},
		{"HA_Chassis_Group", "ha_chassis", "HA_Chassis"}, {"Logical_Router_Port", "ha_chassis_group", "HA_Chassis_Group"},
	} {
		if in.of == table {
			ops = append(ops, ovndbtest.Op{"op": "mutate", "table": in.table, "where": []any{},
				"mutations": []any{[]any{in.column, "delete", ovndbtest.UUID(key)}}})
		}
	}
	w.Transact(t, append(ops, ovndbtest.Op{"op": "delete", "table": table, "where": ByKey(key)})...)
	if w.Rows(t)[table][key] != nil {
		t.Fatalf("%s still has row %s", table, key)
	}
}
