package pathmtu_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/pathmtu"
)

func TestSizesOfExternalIDs(t *testing.T) {
	ids := map[string]string{"ovn-multinet/chassis": "c1"}
	want := pathmtu.Sizes{pathmtu.Overlay: 1442, "provider": 1500, "a:b": 9000}
	want.Mark(ids)
	if got := pathmtu.SizesOf(ids); len(ids) != 4 || !maps.Equal(got, want) {
		t.Errorf("%v are read as %v, want %v", ids, got, want)
	}
	for _, key := range []string{"ovn-multinet/mtu", "ovn-multinet/mtu:x"} {
		for _, text := range []string{"", "large", "0", "-5", "575"} {
			if got := pathmtu.SizesOf(map[string]string{key: text}); len(got) != 0 {
				t.Errorf("%s=%q is read as %v", key, text, got)
			}
		}
	}
	if got := pathmtu.SizesOf(map[string]string{"ovn-multinet/mtus": "1500"}); len(got) != 0 {
		t.Errorf("another key is read as %v", got)
	}
}

func TestSmallest(t *testing.T) {
	s := pathmtu.Smallest{}
	s.Add("b", pathmtu.Sizes{pathmtu.Overlay: 1442, "provider": 9000})
	s.Add("c", pathmtu.Sizes{pathmtu.Overlay: 2942, "provider": 1500})
	s.Add("a", pathmtu.Sizes{pathmtu.Overlay: 1442})
	s.Add("d", nil)
	want := pathmtu.Smallest{pathmtu.Overlay: {MTU: 1442, Node: "a"}, "provider": {MTU: 1500, Node: "c"}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%v, want %v", s, want)
	}
	s.Lower(pathmtu.Smallest{pathmtu.Overlay: {MTU: 1400, Node: "z"}, "provider": {MTU: 1600, Node: "z"}, "new": {MTU: 1300, Node: "z"}})
	want = pathmtu.Smallest{pathmtu.Overlay: {MTU: 1400, Node: "z"}, "provider": {MTU: 1500, Node: "c"}, "new": {MTU: 1300, Node: "z"}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%v, want %v", s, want)
	}
	for name, want := range map[string]int{pathmtu.Overlay: 1400, "provider": 1450, "unknown": 1450} {
		if got := s.Of(name, 1450); got != want {
			t.Errorf("1450 on %q is %d, want %d", name, got, want)
		}
	}
}

// smallestRow returns external_ids of the row with the smallest MTUs; "" if there is none.
func smallestRow(t *testing.T, w *nbtest.World) string {
	t.Helper()
	for _, row := range w.Rows(t)["Copp"] {
		if row["name"] == "ovn-multinet smallest mtu" {
			return strings.ReplaceAll(row["external_ids"], "ovn-multinet/", "")
		}
	}
	return ""
}

// TestEnsure: the row has the smallest MTUs. It is written only if something changes, and never raised while nodes are
// unknown. A row that changes meanwhile is read again.
func TestEnsure(t *testing.T) {
	w := nbtest.NewWorld(t)
	limits := func(overlay int, node string) pathmtu.Smallest {
		return pathmtu.Smallest{pathmtu.Overlay: {MTU: overlay, Node: node}}
	}
	ensure := func(l pathmtu.Smallest, mayRise bool) pathmtu.Smallest {
		t.Helper()
		got, err := pathmtu.Ensure(nbtest.WithLimit(t), w.Networks.Store, l, mayRise)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, tt := range []struct {
		name      string
		limits    pathmtu.Smallest
		mayRise   bool
		want      string
		committed int
	}{
		{"nothing is known", pathmtu.Smallest{}, true, "", 0},
		{"new", limits(1442, "n1"), true, "kind=mtu mtu=1442 n1", 1},
		{"the same", limits(1442, "n1"), true, "kind=mtu mtu=1442 n1", 0},
		{"lower, while nodes are unknown", limits(1400, "n2"), false, "kind=mtu mtu=1400 n2", 1},
		{"higher, while nodes are unknown", limits(1500, "n1"), false, "kind=mtu mtu=1400 n2", 0},
		{"nothing, while nodes are unknown", pathmtu.Smallest{}, false, "kind=mtu mtu=1400 n2", 0},
		{"higher", limits(1500, "n1"), true, "kind=mtu mtu=1500 n1", 1},
		{"a physical network too", pathmtu.Smallest{pathmtu.Overlay: {MTU: 1500, Node: "n1"}, "provider": {MTU: 9000, Node: "n3"}}, true,
			"kind=mtu mtu:provider=9000 n3 mtu=1500 n1", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.Proxy.Reset()
			got := ensure(tt.limits, tt.mayRise)
			w.WantCommitted(t, tt.committed)
			if row := smallestRow(t, w); row != tt.want {
				t.Errorf("the row has %q, want %q", row, tt.want)
			}
			if tt.mayRise && !reflect.DeepEqual(got, tt.limits) {
				t.Errorf("NB is said to have %v, want %v", got, tt.limits)
			}
		})
	}
	t.Run("another leader was faster", func(t *testing.T) {
		other := w.Other(t)
		w.Meanwhile(t, "Copp", func() {
			if _, err := pathmtu.Ensure(nbtest.WithLimit(t), other.Store, limits(1280, "n9"), true); err != nil {
				t.Error(err)
			}
		})
		if got := ensure(limits(1390, "n1"), false); got[pathmtu.Overlay].MTU != 1280 {
			t.Errorf("NB is said to have %v, want what the other leader wrote", got)
		}
		if row := smallestRow(t, w); row != "kind=mtu mtu=1280 n9" {
			t.Errorf("the row has %q", row)
		}
	})
}

func TestSizesOfNodes(t *testing.T) {
	w := nbtest.NewWorld(t)
	sizes := pathmtu.Sizes{pathmtu.Overlay: 1442, "provider": 1500}
	for node, s := range map[string]pathmtu.Sizes{"n1": sizes, "n2": nil} {
		if err := w.Networks.Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: node, Chassis: "of-" + node, Sizes: s}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := pathmtu.SizesOfNodes(nbtest.WithLimit(t), w.Networks.Db, []string{"n1", "n2", "n3"})
	if want := map[string]pathmtu.Sizes{"n1": sizes, "n2": {}, "n3": {}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	got, err = pathmtu.SizesOfAll(nbtest.WithLimit(t), w.Networks.Db)
	if want := map[string]pathmtu.Sizes{"n1": sizes, "n2": {}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("all: %v, %v; want %v", got, err, want)
	}
}
