package ovnnet_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// Rows that have no identity, or the own one, are left alone; those of another cluster that a NAD describes are written
// once.
func TestBoundaryEnsureAndTheIdentityOfRows(t *testing.T) {
	w := nbtest.NewWorld(t)
	networks := []*netmodel.Network{
		nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1), nbtest.Network(t, "wide", nbtest.Layer3All), nbtest.Network(t, "ln", `"topology":"localnet","physicalNetworkName":"p"`),
	}
	keys := func(n *nbtest.Client) (changed int) {
		for _, one := range networks {
			if nbtest.Ensure(t, n, one) {
				changed++
			}
		}
		return changed
	}
	for _, one := range networks { // as an older version
		nbtest.Ensure(t, w.Networks, one)
	}
	nbtest.Share(t, w.Networks, networks[1], "n1")
	before := w.Versions(t)
	a := w.TakenBy(t, "a", "", nil)
	if changed := keys(a); changed != 0 {
		t.Errorf("%d networks without an identity changed", changed)
	}
	after := w.Versions(t)
	delete(after, "Copp "+ovndb.ClusterKey)
	if !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
	for _, one := range networks {
		if err := a.Delete(nbtest.WithLimit(t), one.ID(), false); err != nil {
			t.Fatal(err)
		}
	}
	if changed := keys(a); changed != len(networks) {
		t.Errorf("%d networks made", changed)
	}
	nbtest.Share(t, a, networks[1], "n1")
	for table, rows := range w.Rows(t) {
		for key, row := range rows {
			if nbtest.Ext(row, "ovn-multinet/cluster") != "a" {
				t.Errorf("%s %s has no identity: %v", table, key, row)
			}
		}
	}
	if changed := keys(a); changed != 0 {
		t.Errorf("%d networks of the own cluster changed", changed)
	}
	b := w.TakenBy(t, "b", "a", nil)
	if changed := keys(b); changed != len(networks) {
		t.Errorf("%d networks of the other cluster changed, want %d", changed, len(networks))
	}
	if changed := keys(b); changed != 0 {
		t.Errorf("%d networks changed a second time", changed)
	}
}

// What a cluster does not own, the agent of another one neither announces its node in, nor gets blocks of.
func TestBoundaryAgentOfAnotherCluster(t *testing.T) {
	w := nbtest.NewWorld(t)
	a := w.TakenBy(t, "a", "", nil)
	wide, none := nbtest.Network(t, "wide", nbtest.Layer3), nbtest.Network(t, "none", nbtest.Layer3)
	nbtest.Ensure(t, a, wide)
	before := w.Versions(t)
	b := nbtest.NewClient(nbtest.OpenOf(t, w.Proxy.Endpoint(), "b"), nil)
	for what, do := range map[string]func() error{
		"announce": func() error {
			return b.Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: "n1", Chassis: "chassis-1"})
		},
		"share":                    func() error { _, err := b.Subnets.Ensure(nbtest.WithLimit(t), wide, "n1"); return err },
		"share of no such network": func() error { _, err := b.Subnets.Ensure(nbtest.WithLimit(t), none, "n1"); return err },
		"remove":                   func() error { return b.Delete(nbtest.WithLimit(t), "shop/wide", true) },
		"ensure":                   func() error { _, err := b.Ensure(nbtest.WithLimit(t), none, []string{"shop/none"}); return err },
	} {
		if no, ok := errors.AsType[*ovndb.NotOwner](do()); !ok || no.Owner != "a" || no.Cluster != "b" {
			t.Errorf("%s is not refused", what)
		}
	}
	if after := w.Versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}
