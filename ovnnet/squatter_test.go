package ovnnet_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// A decision that was made before the network became another namespace's is not carried out.
func TestBoundaryEnsureForAnotherOwner(t *testing.T) {
	w := nbtest.NewWorld(t)
	n, err := netmodel.ParseNetwork("shop", "a", []byte(nbtest.IsShared("tenant", nbtest.Net4)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Networks.EnsureOwned(nbtest.WithLimit(t), n, "shop", []string{"shop/a"}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	before := w.Versions(t)
	_, err = w.Networks.EnsureOwned(nbtest.WithLimit(t), n, "evil", []string{"evil/a"}, func() error { return nil })
	if refused, ok := errors.AsType[*nbrows.Refused](err); !ok || refused.Reason != "namespace shop has just become the owner of network tenant" {
		t.Errorf("error %v", err)
	}
	if after := w.Versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}
