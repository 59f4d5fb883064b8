package services_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
)

// world is a Northbound database with the rows of services.
type world struct {
	*nbtest.World
	services *services.Services
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := nbtest.NewWorld(t)
	return &world{w, services.New(nbrows.NewStore(w.Networks.DB))}
}

// network ensures a network of namespace shop.
func (w *world) network(t *testing.T, name, keys string) {
	t.Helper()
	nbtest.Ensure(t, w.Networks, nbtest.Network(t, name, keys))
}

const (
	tcp  = `{"name":"http","port":80,"targetPort":8080}`
	both = tcp + `,{"name":"dns","port":53,"protocol":"UDP"}`
)

// wanted is a service on network shop/blue. Its pods have these addresses, "" if it is headless.
func wanted(t *testing.T, name, address, ports string, pods ...string) *services.Wanted {
	t.Helper()
	annotations := map[string]string{service.NetworkAnnotation: "blue", service.SelectorAnnotation: "app=" + name}
	if address != "" {
		annotations[service.AddressAnnotation] = address
	}
	o := service.NewObject("shop", name, 1, map[string]string{service.ProxyLabel: service.ProxyName}, annotations,
		[]byte(`{"clusterIP":"None","ports":[`+ports+`]}`))
	if o == nil || o.Service == nil {
		t.Fatalf("refused: %+v", o)
	}
	want := &services.Wanted{Network: "shop/blue", Service: o.Service}
	for _, pod := range pods {
		p := service.Backend{Ready: true}
		for a := range strings.SplitSeq(pod, " ") {
			p.Addresses = append(p.Addresses, netip.MustParseAddr(a))
		}
		want.Pods = append(want.Pods, p)
	}
	return want
}

// ensure ensures a service in so many transactions, and returns the addresses in words.
func (w *world) ensure(t *testing.T, want *services.Wanted, committed int) string {
	t.Helper()
	w.Proxy.Reset()
	result, err := w.services.Ensure(nbtest.WithLimit(t), want)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Proxy.Counts(); got.Committed != committed || got.Refused != 0 || result.Changed != (committed > 0) {
		t.Errorf("transactions %+v, changed: %t; want %d", got, result.Changed, committed)
	}
	return fmt.Sprint(result.Addresses)
}

func (w *world) remove(t *testing.T, name string, committed int) {
	t.Helper()
	w.Proxy.Reset()
	changed, err := w.services.Delete(nbtest.WithLimit(t), "shop/blue", "shop/"+name)
	if got := w.Proxy.Counts(); err != nil || got.Committed != committed || changed != (committed > 0) {
		t.Errorf("transactions %+v, changed: %t, error %v; want %d", got, changed, err, committed)
	}
}

func (w *world) ensureNetwork(t *testing.T, id string, committed int) {
	t.Helper()
	w.Proxy.Reset()
	changed, err := w.services.EnsureNetwork(nbtest.WithLimit(t), id)
	if got := w.Proxy.Counts(); err != nil || got.Committed != committed || changed != (committed > 0) {
		t.Errorf("network %s: transactions %+v, changed: %t, error %v; want %d", id, got, changed, err, committed)
	}
}

// wantRefused fails unless the service is refused with that text, and nothing is written.
func (w *world) wantRefused(t *testing.T, want *services.Wanted, texts ...string) {
	t.Helper()
	before := w.state(t)
	_, err := w.services.Ensure(nbtest.WithLimit(t), want)
	if _, ok := errors.AsType[*nbrows.Refused](err); !ok {
		t.Fatalf("error %v, want it refused", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("refused: %v; want %q in it", err, text)
		}
	}
	w.wantChanged(t, before)
}

var tables = []string{"Logical_Switch", "Logical_Switch_Port", "Logical_Router", "Logical_Router_Port", "Copp",
	"Load_Balancer", "Load_Balancer_Group"}

// state is the version of each row, by table and name.
func (w *world) state(t *testing.T) map[string]any {
	t.Helper()
	all := map[string]any{}
	for table, rows := range w.DumpTables(t, tables...) {
		for _, row := range rows {
			all[table+" "+row["name"].(string)] = row["_version"]
		}
	}
	return all
}

// wantChanged fails unless these rows, and no others, were written since.
func (w *world) wantChanged(t *testing.T, before map[string]any, want ...string) {
	t.Helper()
	after := w.state(t)
	var got []string
	for name := range maps.Keys(after) {
		if after[name] != before[name] {
			got = append(got, name)
		}
	}
	for name := range maps.Keys(before) {
		if _, ok := after[name]; !ok {
			got = append(got, "deleted "+name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("written:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// row returns the row of a table with that name; nil: there is none.
func (w *world) row(t *testing.T, table, name string) map[string]any {
	t.Helper()
	for _, row := range w.Dump(t, table) {
		if row["name"] == name {
			return row
		}
	}
	return nil
}

// groups names the groups that a switch or router refers to.
func (w *world) groups(t *testing.T, table, name string) string {
	t.Helper()
	var names []string
	refs := ovndbtest.Strings(w.row(t, table, name)["load_balancer_group"])
	for _, group := range w.Dump(t, "Load_Balancer_Group") {
		if slices.Contains(refs, group["_uuid"].(string)) {
			names = append(names, group["name"].(string))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// members names the load balancers of a group.
func (w *world) members(t *testing.T, group string) string {
	t.Helper()
	var names []string
	row := w.row(t, "Load_Balancer_Group", group)
	if row == nil {
		return "no group"
	}
	for _, lb := range w.Dump(t, "Load_Balancer") {
		if slices.Contains(ovndbtest.Strings(row["load_balancer"]), lb["_uuid"].(string)) {
			names = append(names, lb["name"].(string))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
