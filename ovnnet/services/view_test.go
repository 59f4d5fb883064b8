package services_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
)

func (w *world) view(t *testing.T, name string) *services.View {
	t.Helper()
	v, err := w.services.View(nbtest.WithLimit(t), services.Key{Network: "shop/blue", Service: "shop/" + name})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// mark writes the mark of a cluster into all rows of the tables, as a controller does.
func (w *world) mark(t *testing.T) {
	t.Helper()
	for _, table := range []string{"Copp", "Load_Balancer"} {
		for _, row := range w.Dump(t, table) {
			ids := maps.Clone(row["external_ids"].(map[string]string))
			ids[ovndb.ClusterMark] = "a-cluster"
			w.Change(t, table, row["_uuid"].(string), ovndbtest.Op{"external_ids": ovndbtest.Map(ids)})
		}
	}
}

// TestView: a reader without an identity sees what NB has of each service.
func TestView(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.NetDual)
	w.ensure(t, wanted(t, "web", fixed, both, "10.1.0.7 fd01::7", "10.1.0.8"), 1)
	w.ensure(t, wanted(t, "pods", "", "", "10.1.0.7"), 1)
	w.mark(t)
	keys, err := w.services.Keys(nbtest.WithLimit(t), "")
	if err != nil || len(keys) != 2 {
		t.Errorf("services %v, %v", keys, err)
	}
	keys, err = w.services.Keys(nbtest.WithLimit(t), "shop/web")
	if err != nil || !slices.Equal(keys, []services.Key{{Network: "shop/blue", Service: "shop/web"}}) {
		t.Errorf("services %v, %v", keys, err)
	}
	if list, err := w.services.List(nbtest.WithLimit(t)); err != nil || len(list) != 0 {
		t.Errorf("a controller without that identity lists %v, %v", list, err)
	}
	v := w.view(t, "web")
	if v.Differs || v.Service.Pods != "app=web" || fmt.Sprint(v.Addresses) != "[10.1.0.200 fd01::c8]" {
		t.Errorf("view %+v", v)
	}
	want := "[{tcp 10.1.0.200:80 [10.1.0.7:8080 10.1.0.8:8080]} {tcp [fd01::c8]:80 [[fd01::7]:8080]} " +
		"{udp 10.1.0.200:53 [10.1.0.7:53 10.1.0.8:53]} {udp [fd01::c8]:53 [[fd01::7]:53]}]"
	if got := fmt.Sprint(v.Vips); got != want {
		t.Errorf("virtual addresses %s, want %s", got, want)
	}
	if v := w.view(t, "pods"); v.Differs || !v.Service.Headless() || len(v.Vips) != 0 {
		t.Errorf("headless: %+v", v)
	}
	if v := w.view(t, "none"); v != nil {
		t.Errorf("a service that NB does not have: %+v", v)
	}
}

// TestViewDiffers: a view tells when rows are not those that a controller writes for the accepted service.
func TestViewDiffers(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.NetDual)
	w.ensure(t, wanted(t, "web", fixed, tcp, "10.1.0.7"), 1)
	w.ensure(t, wanted(t, "pods", "", "", "10.1.0.7"), 1)
	const (
		balancer = "shop/blue:shop/web:tcp"
		group    = "ovn-multinet network shop/blue"
		claim    = "ovn-multinet shop/blue address fd01::c8"
		row      = "ovn-multinet shop/blue service shop/web"
		accepted = "ovn-multinet shop/blue accepted"
	)
	with := func(table, name, key, value string) any {
		ids := maps.Clone(w.row(t, table, name)["external_ids"].(map[string]string))
		ids[key] = value
		return ovndbtest.Map(ids)
	}
	for _, tt := range []struct {
		name, table, row, column string
		spoilt                   any
	}{
		{"a backend", "Load_Balancer", balancer, "external_ids", with("Load_Balancer", balancer, "ovn-multinet/service-revision", "x")},
		{"no vip", "Load_Balancer", balancer, "vips", ovndbtest.Map(map[string]string{"10.1.0.200:80": "10.1.0.7:8080"})},
		{"another backend", "Load_Balancer", balancer, "vips",
			ovndbtest.Map(map[string]string{"10.1.0.200:80": "10.1.0.9:8080", "[fd01::c8]:80": ""})},
		{"no vip at all", "Load_Balancer", balancer, "vips", ovndbtest.Map(map[string]string{"x": "y"})},
		{"other options", "Load_Balancer", balancer, "options", ovndbtest.Map(nil)},
		{"another protocol", "Load_Balancer", balancer, "protocol", "udp"},
		{"no member", "Load_Balancer_Group", group, "load_balancer", ovndbtest.Set[string]()},
		{"a claim of somebody else", "Copp", claim, "external_ids", ovndbtest.Map(map[string]string{"ovn-multinet/network": "shop/blue"})},
		{"a text that is none", "Copp", row, "external_ids", with("Copp", row, "ovn-multinet/service-text", "x")},
		{"other addresses", "Copp", row, "external_ids", with("Copp", row, "ovn-multinet/service-addresses", "10.1.0.200")},
		{"another name", "Copp", row, "name", "x"},
		{"another scope", "Copp", row, "external_ids", with("Copp", row, "ovn-multinet/service-scope", "router shop/r1")},
		{"no accepted network", "Copp", accepted, "external_ids", with("Copp", accepted, "ovn-multinet/config", "")},
	} {
		present := w.row(t, tt.table, tt.row)
		key := present["_uuid"].(string)
		w.Change(t, tt.table, key, ovndbtest.Op{tt.column: tt.spoilt})
		if v := w.view(t, "web"); v == nil || !v.Differs {
			t.Errorf("%s is not noticed: %+v", tt.name, v)
		}
		before := present[tt.column]
		if value, ok := before.(map[string]string); ok {
			before = ovndbtest.Map(value)
		} else if tt.row == group {
			before = ovndbtest.UUID(before.(string))
		}
		w.Change(t, tt.table, key, ovndbtest.Op{tt.column: before})
		if v := w.view(t, "web"); v == nil || v.Differs {
			t.Errorf("%s: with its own %s again the view differs", tt.name, tt.column)
		}
	}
}

// TestViewWithoutRouter: a view differs if the group and its router are not there.
func TestViewWithoutRouter(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.Net4+nbtest.OnR1)
	w.ensure(t, wanted(t, "web", "10.1.0.200", tcp, "10.1.0.7"), 1)
	if v := w.view(t, "web"); v.Differs {
		t.Errorf("view %+v", v)
	}
	w.Change(t, "Logical_Switch", ovndb.SwitchKey("shop/blue"), ovndbtest.Op{"load_balancer_group": ovndbtest.Set[string]()})
	for _, table := range []string{"Logical_Router", "Load_Balancer_Group"} {
		w.Transact(t, ovndbtest.Op{"op": "delete", "table": table, "where": []any{}})
	}
	if v := w.view(t, "web"); !v.Differs {
		t.Errorf("view %+v", v)
	}
}

// TestClaimed: the virtual addresses of each network's services.
func TestClaimed(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.NetDual+nbtest.OnR1) // the router claims fd01::1
	w.network(t, "red", `"subnets":"10.2.0.0/24"`)
	w.ensure(t, wanted(t, "web", fixed, tcp), 1)
	w.ensure(t, wanted(t, "api", "10.1.0.3", tcp), 1)
	red := wanted(t, "red", "10.2.0.3", tcp)
	red.Network, red.Service.NAD = "shop/red", "shop/red"
	w.ensure(t, red, 1)
	w.mark(t)
	w.Put(t, "Copp", "00000000-0000-8000-8000-000000000009", "a copied row", map[string]string{
		"ovn-multinet/kind": "service", "ovn-multinet/network": "shop/blue", "ovn-multinet/service": "shop/web",
		"ovn-multinet/service-addresses": "10.1.0.4"})
	got, err := w.services.Claimed(nbtest.WithLimit(t))
	if want := "map[shop/blue:[{10.1.0.3 shop/api} {10.1.0.200 shop/web} {fd01::c8 shop/web}] shop/red:[{10.2.0.3 shop/red}]]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("claims %v, %v, want %s", got, err, want)
	}
}
