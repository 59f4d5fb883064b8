package nbtest

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// GatewayOf ensures the gateway of a router other than r1, on the chassis with these names.
func (w *World) GatewayOf(t *testing.T, router string, nodes ...string) {
	t.Helper()
	if _, err := w.Other(t).Gateways.Ensure(WithLimit(t), GatewayConf(t, router, GwFull), Chassis(nodes...)); err != nil {
		t.Fatal(err)
	}
}

// Strangers inserts a group that is not ours, with one chassis that has these external_ids.
func (w *World) Strangers(t *testing.T, group, chassis string, ids map[string]string) {
	t.Helper()
	w.Transact(t,
		ovndbtest.Op{"op": "insert", "table": "HA_Chassis", "uuid-name": "theirs",
			"row": ovndbtest.Op{"chassis_name": chassis, "priority": 7, "external_ids": ovndbtest.Map(ids)}},
		ovndbtest.Op{"op": "insert", "table": "HA_Chassis_Group",
			"row": ovndbtest.Op{"name": group, "ha_chassis": []any{"named-uuid", "theirs"}}})
}

// PrioritiesOf returns the priorities in r1's gateway, by chassis.
func (w *World) PrioritiesOf(t *testing.T) map[string]int {
	t.Helper()
	names, priorities := w.Order(t)
	of := map[string]int{}
	for i, name := range names {
		of[name] = priorities[i]
	}
	return of
}

// WantNotAsked fails if the client has sent any transaction, even one that only reads.
func (w *World) WantNotAsked(t *testing.T) {
	t.Helper()
	if got := w.Proxy.Counts(); got.Committed+got.Refused+got.ReadOnly != 0 {
		t.Errorf("transactions %+v, want none", got)
	}
}
