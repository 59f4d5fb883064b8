package ovnnet_test

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// TestAcceptedIsParsedOnce: each text of an accepted configuration is parsed once, and forgotten when NB does not have
// it any more.
func TestAcceptedIsParsedOnce(t *testing.T) {
	w := nbtest.NewWorld(t)
	s, ctx := w.Networks.Store, nbtest.WithLimit(t)
	row := func(id, text string) *nb.Copp {
		return &nb.Copp{ExternalIDs: map[string]string{nbrows.KeyNetwork: id, ovndb.ConfigKey: text}}
	}
	parsed := func(id string) any {
		return s.AcceptedConfig(row(id, nbtest.Network(t, "blue", nbtest.Net4).Canonical()))
	}
	first := parsed("shop/blue")
	if again := parsed("shop/blue"); first == nil || again != first {
		t.Errorf("parsed %v and %v, want one network", first, again)
	}
	if n := s.AcceptedConfig(row("shop/blue", nbtest.Network(t, "blue", nbtest.NetDual).Canonical())); len(n.Subnets) != 2 {
		t.Errorf("another text is parsed as %v", n)
	}
	for _, tt := range []struct {
		name   string
		forget func() error
	}{
		{"List", func() error { _, err := w.Networks.List(ctx); return err }},
		{"Delete", func() error { return w.Networks.Delete(ctx, "shop/blue", false) }},
	} {
		before := parsed("shop/blue")
		if err := tt.forget(); err != nil {
			t.Fatal(err)
		}
		if parsed("shop/blue") == before {
			t.Errorf("%s: a network that NB does not have is still known", tt.name)
		}
	}
}
