package outside_test

import (
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// TestTwice: another controller changes the user after this one has read its row, and changes it back before this one
// writes, or before its next transaction. No address is used without a claim and its place in the list, and neither
// stays without its user.
func TestTwice(t *testing.T) {
	for _, kind := range []outside.Kind{outside.Floating, outside.Egress} {
		for i := range 6 {
			at, soon := 2+i/2, i%2 == 0 // at is the transaction before which the other one changes the user
			t.Run(fmt.Sprint(kind, at, soon), func(t *testing.T) {
				w := newWorld(t)
				want := w.pod(t, "shop", "web-0", 10)
				want.Kind, want.Distributed = kind, false
				other := outside.New(nbrows.NewStore(w.Other(t).DB))
				ensure := func() {
					if _, err := other.Ensure(nbtest.WithLimit(t), want); err != nil {
						t.Error(err)
					}
				}
				remove := func() {
					if _, err := other.Delete(nbtest.WithLimit(t), outside.Key{Router: "shop/r1", User: want.User}); err != nil {
						t.Error(err)
					}
				}
				twice := func(a, b func()) {
					n, done := 0, false
					w.Proxy.Before(func(tx ovndbtest.Transact) {
						switch n++; {
						case n == at && !tx.Writes:
							a()
						case n > at && !done && (soon || tx.Writes):
							done = true
							b()
						}
					})
				}
				twice(ensure, remove)
				if _, err := w.outside.Ensure(nbtest.WithLimit(t), want); err != nil {
					t.Fatal(err)
				}
				w.Proxy.Before(nil)
				w.ensure(t, want, 0)
				twice(remove, ensure)
				if _, err := w.outside.Delete(nbtest.WithLimit(t), outside.Key{Router: "shop/r1", User: want.User}); err != nil {
					t.Fatal(err)
				}
				w.Proxy.Before(nil)
				w.remove(t, want, 0)
				if got := w.ours(t); got != "" {
					t.Errorf("rows without a user: %s", got)
				}
			})
		}
	}
}
