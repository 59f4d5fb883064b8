package ovnnet_test

import (
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// lose deletes one row, whatever refers to it.
func (w *world) lose(t *testing.T, table, key string) {
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
	w.Transact(t, append(ops, ovndbtest.Op{"op": "delete", "table": table, "where": byKey(key)})...)
	if w.rows(t)[table][key] != nil {
		t.Fatalf("%s still has row %s", table, key)
	}
}

// A controller puts a missing row back while another controller deletes the network: no row may be left that belongs to
// no network. The router stays, because another network is on it.
func TestMendedWhileDeleted(t *testing.T) {
	for _, tt := range []struct{ name, keys string }{
		{"layer2", netDual + onR1},
		{"localnet", `"topology":"localnet","physicalNetworkName":"phys",` + netDual + `,"gateway":"10.1.0.1,fd01::1"`},
		{"layer3", `"topology":"layer3","subnets":"10.1.0.0/16/24,fd01::/48/64"` + onR1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			n := w.routed(t, gwFull)
			other := connectFor(t, w.Endpoint(), map[string]*netmodel.Router{"shop/r1": gatewayConf(t, "shop/r1", gwFull)})
			ensure(t, n, network(t, "red", `"subnets":"10.2.0.0/24"`+onR1))
			blue := network(t, "blue", tt.keys)
			without := w.rows(t)
			make := func() {
				ensure(t, n, blue)
				if tt.name == "layer3" {
					if _, err := n.Share(withLimit(t), blue, "n1"); err != nil {
						t.Fatal(err)
					}
				}
			}
			make()
			with, tried := w.rows(t), 0
			for table, rows := range with {
				for key := range rows {
					if without[table][key] != nil || key == blueKey {
						continue
					}
					tried++
					t.Run(table+" "+rows[key]["name"]+" "+key, func(t *testing.T) {
						make()
						w.lose(t, table, key)
						w.meanwhile(t, "", func() {
							if err := other.Remove(withLimit(t), "shop/blue", false); err != nil {
								t.Error(err)
							}
						})
						ensure(t, n, blue)
						if err := other.Remove(withLimit(t), "shop/blue", false); err != nil {
							t.Error(err)
						}
						w.wantRows(t, without)
					})
				}
			}
			if tried < 3 {
				t.Errorf("%d rows were tried", tried)
			}
		})
	}
}

// The same of a gateway's rows, while another controller deletes the gateway.
func TestGatewayMendedWhileDeleted(t *testing.T) {
	w := newWorld(t)
	n, other := w.routed(t, gwFull), w.other(t) // the other has a configuration without the gateway
	ensure(t, other, network(t, "red", `"subnets":"10.2.0.0/24"`+onR1))
	without := w.rows(t)
	ensureGateway(t, n, gwFull, oneNode)
	with, tried := w.rows(t), 0
	for table, rows := range with {
		for key := range rows {
			if without[table][key] != nil || slices.Contains([]string{gwRouter, ovndb.RouterKey("shop/r1")}, key) {
				continue
			}
			tried++
			t.Run(table+" "+rows[key]["name"]+" "+key, func(t *testing.T) {
				ensureGateway(t, n, gwFull, oneNode)
				w.lose(t, table, key)
				w.meanwhile(t, "", func() {
					if err := other.DropGateways(withLimit(t)); err != nil {
						t.Error(err)
					}
				})
				ensureGateway(t, n, gwFull, oneNode)
				if err := other.DropGateways(withLimit(t)); err != nil {
					t.Error(err)
				}
				w.wantRows(t, without)
			})
		}
	}
	if tried < 10 {
		t.Errorf("%d rows were tried", tried)
	}
}
