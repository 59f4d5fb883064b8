package ovnnet_test

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// TestTwoControllersTwice: another controller makes a network or a gateway after this one has read its row, and deletes it
// again before this one writes, or before its next transaction; or it deletes and makes it. No row is used without the
// claims of its addresses, and no claim stays, not even until the next deletion.
func TestTwoControllersTwice(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ensure func(t *testing.T, n *nbtest.Client) bool
		remove func(t *testing.T, n *nbtest.Client) error
	}{
		{"localnet",
			func(t *testing.T, n *nbtest.Client) bool {
				return nbtest.Ensure(t, n, nbtest.Network(t, "blue", onExt+","+nbtest.Net4))
			},
			func(t *testing.T, n *nbtest.Client) error { return n.Delete(nbtest.WithLimit(t), "shop/blue", false) },
		},
		{"routed",
			func(t *testing.T, n *nbtest.Client) bool {
				return nbtest.Ensure(t, n, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
			},
			func(t *testing.T, n *nbtest.Client) error { return n.Delete(nbtest.WithLimit(t), "shop/blue", false) },
		},
		{"gateway",
			func(t *testing.T, n *nbtest.Client) bool {
				return nbtest.EnsureGateway(t, n, nbtest.GwFull, nbtest.OneNode)
			},
			func(t *testing.T, n *nbtest.Client) error { return n.Gateways.DeleteUnused(nbtest.WithLimit(t)) },
		},
	} {
		remove := func(t *testing.T, n *nbtest.Client) {
			if err := tt.remove(t, n); err != nil {
				t.Error(err)
			}
		}
		for i := range 10 {
			at, soon := 2+i/2, i%2 == 0 // at is the transaction before which the other one changes the rows
			t.Run(nbtest.Sprint("%s %d %t", tt.name, at, soon), func(t *testing.T) {
				w := nbtest.NewWorld(t)
				n, other := w.Networks, w.Other(t)
				tt.ensure(t, n)
				want := w.Rows(t)
				remove(t, n)
				twice := func(a, b func()) {
					transactions, first, second := 0, false, false
					w.Proxy.Before(func(tx ovndbtest.Transact) {
						switch transactions++; {
						case transactions == at && !tx.Writes:
							first = true
							a()
						case first && !second && (soon || tx.Writes):
							second = true
							b()
						}
					})
				}
				ensure := func() { tt.ensure(t, other) }
				twice(ensure, func() { remove(t, other) })
				tt.ensure(t, n)
				w.Proxy.Before(nil)
				w.WantRows(t, want)
				twice(func() { remove(t, other) }, ensure)
				remove(t, n)
				w.Proxy.Before(nil)
				if rows := w.Rows(t); len(rows) > 0 { // the other one came last
					w.WantRows(t, want)
				}
				remove(t, n)
				w.WantRows(t, map[string]map[string]nbtest.Fields{})
			})
		}
	}
}
