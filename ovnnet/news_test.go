package ovnnet_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/ended"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/pathmtu"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/uplinks"
)

// TestNewsOfWhatAgentsRead: what agents read after news alone is news when it changes, and also if it may have changed.
// The same again is none.
func TestNewsOfWhatAgentsRead(t *testing.T) {
	w := nbtest.NewWorld(t)
	c := w.Routed(t, nbtest.GwFull)
	store, news := c.Store, 0
	store.News = func() { news++ }
	ctx := nbtest.WithLimit(t)
	add := func(list ...ended.Connections) func(*nbrows.Batch) error {
		return func(b *nbrows.Batch) error { return ended.Add(ctx, b, []string{"n1"}, list...) }
	}
	served := func(before, after string) func(*nbrows.Batch) error {
		balancers := func(backend string) map[string]*nb.LoadBalancer {
			if backend == "" {
				return nil
			}
			return map[string]*nb.LoadBalancer{"udp": {Vips: map[string]string{"10.1.0.200:53": backend}}}
		}
		return func(b *nbrows.Batch) error {
			return ended.EndServed(ctx, b, "network shop/blue", balancers(before), balancers(after), time.Now())
		}
	}
	change := func(build func(*nbrows.Batch) error) func() error {
		return func() error { _, err := store.Change(ctx, "a test", build); return err }
	}
	on := func(nodes ...gateway.Chassis) func() error {
		return func() error { _, err := c.Gateways.Ensure(ctx, c.Routers["shop/r1"], nodes); return err }
	}
	smallest := func(mtu int) func() error {
		return func() error {
			_, err := pathmtu.Ensure(ctx, store, pathmtu.Smallest{pathmtu.Overlay: {MTU: mtu, Node: "n1"}}, true)
			return err
		}
	}
	bridge := func(name string) func() error {
		wanted := uplinks.Wanted{"provider": netmodel.NodeUplink{Bridge: name}}
		return func() error { return uplinks.Write(ctx, store, map[string]uplinks.Wanted{"n1": wanted}, nil) }
	}
	translated := ended.Connections{
		Router: "shop/r1", Outside: netip.MustParseAddr("192.0.2.20"), Inside: netip.MustParseAddr("10.1.0.7"),
	}
	for _, tt := range []struct {
		what string
		do   func() error
		want int
	}{
		{"a gateway on a node", on(gateway.Chassis{Node: "n1", Name: "c1"}), 1},
		{"the same gateway", on(gateway.Chassis{Node: "n1", Name: "c1"}), 0},
		{"a second node", on(gateway.Chassis{Node: "n1", Name: "c1"}, gateway.Chassis{Node: "n2", Name: "c2"}), 1},
		{"a network", func() error {
			_, err := c.Ensure(ctx, nbtest.Network(t, "blue", nbtest.Net4), []string{"shop/blue"})
			return err
		}, 0},
		{"a smallest MTU", smallest(1400), 1},
		{"the same MTU", smallest(1400), 0},
		{"another MTU", smallest(1300), 1},
		{"an uplink", bridge("br-a"), 1},
		{"the same uplink", bridge("br-a"), 0},
		{"another uplink", bridge("br-b"), 1},
		{"a list without connections", change(add()), 1},
		{"the same list", change(add()), 0},
		{"connections have ended", change(add(translated)), 1},
		{"they have ended again", change(add(translated)), 1},
		{"a Service", change(served("", "10.1.0.7:53")), 0},
		{"another backend", change(served("10.1.0.7:53", "10.1.0.8:53")), 1},
		{"a further backend", change(served("10.1.0.8:53", "10.1.0.8:53,10.1.0.9:53")), 0},
		{"the Service is gone", change(served("10.1.0.8:53", "")), 1},
		{"refused by the database", change(func(b *nbrows.Batch) error {
			b.News = true
			nbrows.Put(b, nb.CoppTable, "00000000-0000-4000-8000-000000000001", nil, &nb.Copp{Name: "ovn-multinet smallest mtu"})
			return nil
		}), 0},
		{"the answer is lost", func() error { w.Proxy.DropNextReply(); return bridge("br-c")() }, 1},
	} {
		news = 0
		_ = tt.do()
		if news != tt.want {
			t.Errorf("%s: %d times news, want %d", tt.what, news, tt.want)
		}
	}
}

// TestTellNews: each announcement changes one value of one row, which OVN ignores.
func TestTellNews(t *testing.T) {
	w := nbtest.NewWorld(t)
	before := ""
	for i := range 3 {
		if err := w.Networks.TellNews(context.Background()); err != nil {
			t.Fatal(err)
		}
		var rows []map[string]any
		for _, row := range w.Dump(t, "Address_Set") {
			rows = append(rows, row)
			if addresses := row["addresses"]; fmt.Sprint(addresses) != "[]" {
				t.Errorf("the set has addresses %v", addresses)
			}
		}
		now := w.News(t)
		if len(rows) != 1 || now == "" || now == before {
			t.Errorf("announcement %d: %d rows, %s after %s", i+1, len(rows), now, before)
		}
		before = now
	}
}
