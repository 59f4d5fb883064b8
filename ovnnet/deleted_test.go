package ovnnet_test

import (
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// A controller puts a missing row back while another controller deletes the network: no row may be left that belongs to
// no network. The router stays, because another network is on it.
func TestMendedWhileDeleted(t *testing.T) {
	for _, tt := range []struct{ name, keys string }{
		{"layer2", nbtest.NetDual + nbtest.OnR1},
		{"localnet", `"topology":"localnet","physicalNetworkName":"phys",` + nbtest.NetDual + `,"gateway":"10.1.0.1,fd01::1"`},
		{"layer3", `"topology":"layer3","subnets":"10.1.0.0/16/24,fd01::/48/64"` + nbtest.OnR1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			n := w.Routed(t, nbtest.GwFull)
			other := nbtest.ConnectFor(t, w.Endpoint(), map[string]*netmodel.Router{"shop/r1": nbtest.GatewayConf(t, "shop/r1", nbtest.GwFull)})
			nbtest.Ensure(t, n, nbtest.Network(t, "red", `"subnets":"10.2.0.0/24"`+nbtest.OnR1))
			blue := nbtest.Network(t, "blue", tt.keys)
			without := w.Rows(t)
			make := func() {
				nbtest.Ensure(t, n, blue)
				if tt.name == "layer3" {
					if _, err := n.Subnets.Ensure(nbtest.WithLimit(t), blue, "n1"); err != nil {
						t.Fatal(err)
					}
				}
			}
			make()
			with, tried := w.Rows(t), 0
			for table, rows := range with {
				for key := range rows {
					if without[table][key] != nil || key == nbtest.BlueKey {
						continue
					}
					tried++
					t.Run(table+" "+rows[key]["name"]+" "+key, func(t *testing.T) {
						make()
						w.Lose(t, table, key)
						w.Meanwhile(t, "", func() {
							if err := other.Delete(nbtest.WithLimit(t), "shop/blue", false); err != nil {
								t.Error(err)
							}
						})
						nbtest.Ensure(t, n, blue)
						if err := other.Delete(nbtest.WithLimit(t), "shop/blue", false); err != nil {
							t.Error(err)
						}
						w.WantRows(t, without)
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
	w := nbtest.NewWorld(t)
	n, other := w.Routed(t, nbtest.GwFull), w.Other(t) // the other has a configuration without the gateway
	nbtest.Ensure(t, other, nbtest.Network(t, "red", `"subnets":"10.2.0.0/24"`+nbtest.OnR1))
	without := w.Rows(t)
	nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
	with, tried := w.Rows(t), 0
	for table, rows := range with {
		for key := range rows {
			if without[table][key] != nil || slices.Contains([]string{nbtest.GwRouter, ovndb.RouterKey("shop/r1")}, key) {
				continue
			}
			tried++
			t.Run(table+" "+rows[key]["name"]+" "+key, func(t *testing.T) {
				nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
				w.Lose(t, table, key)
				w.Meanwhile(t, "", func() {
					if err := other.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
						t.Error(err)
					}
				})
				nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
				if err := other.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
					t.Error(err)
				}
				w.WantRows(t, without)
			})
		}
	}
	if tried < 10 {
		t.Errorf("%d rows were tried", tried)
	}
}
