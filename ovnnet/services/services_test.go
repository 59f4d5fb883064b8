package services_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
)

const (
	blueGroup = "Load_Balancer_Group ovn-multinet network shop/blue"
	fixed     = "10.1.0.200,fd01::c8"
)

// TestRows: what NB has of the first service of a network without a router.
func TestRows(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.NetDual)
	before := w.state(t)
	want := wanted(t, "web", fixed, both, "10.1.0.7 fd01::7", "10.1.0.8 fd01::8")
	if got := w.ensure(t, want, 1); got != "[10.1.0.200 fd01::c8]" {
		t.Errorf("addresses %s", got)
	}
	w.wantChanged(t, before, "Logical_Switch shop/blue", "Logical_Switch_Port shop/blue:services",
		"Logical_Router shop/blue:services", "Logical_Router_Port shop/blue:services:router", blueGroup,
		"Load_Balancer shop/blue:shop/web:tcp", "Load_Balancer shop/blue:shop/web:udp",
		"Copp ovn-multinet shop/blue address 10.1.0.200", "Copp ovn-multinet shop/blue address fd01::c8",
		"Copp ovn-multinet shop/blue service shop/web")
	lb := w.row(t, "Load_Balancer", "shop/blue:shop/web:tcp")
	vips := map[string]string{"10.1.0.200:80": "10.1.0.7:8080,10.1.0.8:8080", "[fd01::c8]:80": "[fd01::7]:8080,[fd01::8]:8080"}
	options := map[string]string{"reject": "true", "hairpin_snat_ip": "10.1.0.200 fd01::c8"}
	if !reflect.DeepEqual(lb["vips"], vips) || !reflect.DeepEqual(lb["options"], options) || lb["protocol"] != "tcp" ||
		len(ovndbtest.Strings(lb["selection_fields"])) != 0 {
		t.Errorf("load balancer %v", lb)
	}
	udp := w.row(t, "Load_Balancer", "shop/blue:shop/web:udp")
	vips = map[string]string{"10.1.0.200:53": "10.1.0.7:53,10.1.0.8:53", "[fd01::c8]:53": "[fd01::7]:53,[fd01::8]:53"}
	options["ct_flush"] = "true"
	if !reflect.DeepEqual(udp["vips"], vips) || !reflect.DeepEqual(udp["options"], options) || udp["protocol"] != "udp" {
		t.Errorf("load balancer %v", udp)
	}
	const group = "ovn-multinet network shop/blue"
	if got := w.members(t, group); got != "shop/blue:shop/web:tcp, shop/blue:shop/web:udp" {
		t.Errorf("group of %s", got)
	}
	if a, b := w.groups(t, "Logical_Switch", "shop/blue"), w.groups(t, "Logical_Router", "shop/blue:services"); a != group || b != group {
		t.Errorf("groups of the switch %q, of the router %q", a, b)
	}
	port := w.row(t, "Logical_Router_Port", "shop/blue:services:router")
	if got := ovndbtest.Strings(port["networks"]); !slices.Equal(got, []string{"10.1.0.0/24", "fd01::/64"}) ||
		port["mac"] != "0a:58:00:00:00:00" {
		t.Errorf("router's port %v", port)
	}
	peer := w.row(t, "Logical_Switch_Port", "shop/blue:services")
	if peer["type"] != "router" || !reflect.DeepEqual(peer["options"], map[string]string{"router-port": port["name"].(string)}) ||
		!slices.Equal(ovndbtest.Strings(peer["addresses"]), []string{"router"}) {
		t.Errorf("switch's port %v", peer)
	}
}

const endedOnBlue = "Copp ovn-multinet ended connections of services, network shop/blue"

// TestChanges: each change is one transaction on the rows that it needs, and no change is none.
func TestChanges(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.NetDual)
	empty := w.state(t)
	w.ensure(t, wanted(t, "web", fixed, both, "10.1.0.7 fd01::7"), 1)
	w.ensure(t, wanted(t, "web", fixed, both, "10.1.0.7 fd01::7"), 0)
	w.ensureNetwork(t, "shop/blue", 0)
	w.Proxy.Reset()
	w.network(t, "blue", nbtest.NetDual) // a reconcile pass of the network itself
	w.WantCommitted(t, 0)

	// An endpoint's change is one row for each protocol.
	one := wanted(t, "one", "10.1.0.201", tcp, "10.1.0.7")
	before := w.state(t)
	w.ensure(t, one, 1)
	w.wantChanged(t, before, blueGroup, "Load_Balancer shop/blue:shop/one:tcp",
		"Copp ovn-multinet shop/blue address 10.1.0.201", "Copp ovn-multinet shop/blue service shop/one")
	before = w.state(t)
	w.ensure(t, wanted(t, "one", "10.1.0.201", tcp, "10.1.0.7", "10.1.0.8"), 1)
	w.wantChanged(t, before, "Load_Balancer shop/blue:shop/one:tcp")
	for range 2 { // the order of pods does not matter
		w.ensure(t, wanted(t, "one", "10.1.0.201", tcp, "10.1.0.8", "10.1.0.7"), 0)
	}
	before = w.state(t)
	w.ensure(t, wanted(t, "one", "10.1.0.201", tcp), 1)
	w.wantChanged(t, before, "Load_Balancer shop/blue:shop/one:tcp")
	if got := w.row(t, "Load_Balancer", "shop/blue:shop/one:tcp")["vips"]; !reflect.DeepEqual(got, map[string]string{"10.1.0.201:80": ""}) {
		t.Errorf("vips without backends: %v", got)
	}

	// Another address, another protocol.
	before = w.state(t)
	w.ensure(t, wanted(t, "one", "10.1.0.202", `{"port":80,"protocol":"UDP"}`), 1)
	w.wantChanged(t, before, blueGroup, "deleted Load_Balancer shop/blue:shop/one:tcp", "Load_Balancer shop/blue:shop/one:udp",
		"deleted Copp ovn-multinet shop/blue address 10.1.0.201", "Copp ovn-multinet shop/blue address 10.1.0.202",
		"Copp ovn-multinet shop/blue service shop/one", endedOnBlue)

	// Without an address a service has one row, and it is the only one that goes.
	before = w.state(t)
	w.ensure(t, wanted(t, "one", "", tcp, "10.1.0.7"), 1)
	w.wantChanged(t, before, blueGroup, "deleted Load_Balancer shop/blue:shop/one:udp",
		"deleted Copp ovn-multinet shop/blue address 10.1.0.202", "Copp ovn-multinet shop/blue service shop/one", endedOnBlue)
	w.ensure(t, wanted(t, "one", "", tcp, "10.1.0.8"), 0)
	w.remove(t, "one", 1)
	w.remove(t, "one", 0)

	// With the last service all rows go but the list of ended connections.
	w.remove(t, "web", 1)
	w.wantChanged(t, empty, "Logical_Switch shop/blue", endedOnBlue) // the switch's set of ports is as before
	if sw := w.row(t, "Logical_Switch", "shop/blue"); len(ovndbtest.Strings(sw["ports"]))+len(ovndbtest.Strings(sw["load_balancer_group"])) != 0 {
		t.Errorf("switch %v", sw)
	}
}

// TestAffinity: the hash of client and service chooses the backend.
func TestAffinity(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.NetDual)
	want := wanted(t, "web", "auto", tcp)
	with := *want.Service
	with.Affinity = true
	want.Service = &with
	w.ensure(t, want, 1)
	w.ensure(t, want, 0)
	fields := ovndbtest.Strings(w.row(t, "Load_Balancer", "shop/blue:shop/web:tcp")["selection_fields"])
	if slices.Sort(fields); !slices.Equal(fields, []string{"ip_dst", "ip_src"}) {
		t.Errorf("selection_fields %v", fields)
	}
}

// TestManyServices: what a change of one service sends and reads does not grow with the services of its group.
func TestManyServices(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.Net4)
	w.ensure(t, wanted(t, "web", "10.1.0.200", tcp), 1)
	cost := func() (bytes int64) {
		w.Proxy.Reset()
		for _, pods := range [][]string{{"10.1.0.7"}, {"10.1.0.8"}} {
			if _, err := w.services.Ensure(nbtest.WithLimit(t), wanted(t, "web", "10.1.0.200", tcp, pods...)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.services.Ensure(nbtest.WithLimit(t), wanted(t, "new", "10.1.0.201", tcp)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.services.Delete(nbtest.WithLimit(t), "shop/blue", "shop/new"); err != nil {
			t.Fatal(err)
		}
		counts := w.Proxy.Counts()
		return counts.Sent + counts.Received
	}
	cost() // makes the list of ended connections
	before := cost()
	var ops []ovndbtest.Op
	members := []any{}
	for i := range 3000 {
		name := fmt.Sprint("lb", i)
		ops = append(ops, ovndbtest.Op{"op": "insert", "table": "Load_Balancer", "uuid-name": name, "row": ovndbtest.Op{"name": name}})
		members = append(members, []any{"named-uuid", name})
	}
	w.Transact(t, append(ops, ovndbtest.Op{"op": "mutate", "table": "Load_Balancer_Group", "where": []any{},
		"mutations": []any{[]any{"load_balancer", "insert", []any{"set", members}}}})...)
	if after := cost(); after > before+200 { // numbers of requests have more digits
		t.Errorf("%d bytes with 3,000 load balancers in the group, %d with one", after, before)
	}
}

// TestListAndAccepted: NB says what is accepted, also to a controller that begins.
func TestListAndAccepted(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.NetDual)
	want := wanted(t, "web", "auto", both)
	w.ensure(t, want, 1)
	w.ensure(t, wanted(t, "quiet", "", ""), 1)
	list, err := w.services.List(nbtest.WithLimit(t))
	slices.SortFunc(list, func(a, b services.Key) int { return strings.Compare(a.Service, b.Service) })
	if err != nil || !slices.Equal(list, []services.Key{{Network: "shop/blue", Service: "shop/quiet"}, {Network: "shop/blue", Service: "shop/web"}}) {
		t.Errorf("%v, %v", list, err)
	}
	got, addresses, err := w.services.Accepted(nbtest.WithLimit(t), list[1])
	if err != nil || !reflect.DeepEqual(got, want.Service) || len(addresses) != 2 {
		t.Errorf("%+v, %v, %v; want %+v", got, addresses, err, want.Service)
	}
	if got, _, err := w.services.Accepted(nbtest.WithLimit(t), services.Key{Network: "shop/blue", Service: "shop/none"}); got != nil || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRefused: what a network does not serve. Nothing is written.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	before := w.state(t)
	_, err := w.services.Ensure(nbtest.WithLimit(t), wanted(t, "web", "auto", tcp))
	if !errors.Is(err, services.ErrNotAccepted) {
		t.Errorf("without the network: %v", err)
	}
	w.wantChanged(t, before)
	w.network(t, "blue", nbtest.Localnet("p", ","+nbtest.Net4))
	w.wantRefused(t, wanted(t, "web", "auto", tcp), "localnet")
	w.ensure(t, wanted(t, "web", "", tcp), 1)
	w.MustRemove(t, "shop/blue", false)
	w.network(t, "blue", nbtest.Net4)
	w.wantRefused(t, wanted(t, "web", "10.2.0.9", tcp), service.AddressAnnotation, "outside")
	if err := w.Networks.Withdraw(nbtest.WithLimit(t), "shop/blue", []string{"shop/blue"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.services.Ensure(nbtest.WithLimit(t), wanted(t, "web", "auto", tcp)); !errors.Is(err, services.ErrNotAccepted) {
		t.Errorf("of a network that was withdrawn: %v", err)
	}
}

// TestNetworkDeleted: with a network, the rows of its services are deleted. A private router's port is no user of it.
func TestNetworkDeleted(t *testing.T) {
	w := newWorld(t)
	empty := w.state(t)
	w.network(t, "blue", nbtest.NetDual)
	w.network(t, "red", nbtest.NetDual)
	onRed := wanted(t, "web", "auto", both)
	onRed.Network = "shop/red"
	red := *onRed.Service
	red.NAD = "shop/red"
	onRed.Service = &red
	w.ensure(t, wanted(t, "web", "auto", both), 1)
	w.ensure(t, onRed, 1)
	w.Proxy.Reset()
	w.MustRemove(t, "shop/blue", false)
	w.WantCommitted(t, 1)
	w.ensure(t, onRed, 0)
	w.remove(t, "web", 0)
	w.MustRemove(t, "shop/red", false)
	w.wantChanged(t, empty)
}

// TestNetworkDeletedMeanwhile: no row of a service outlives its network.
func TestNetworkDeletedMeanwhile(t *testing.T) {
	w := newWorld(t)
	empty := w.state(t)
	w.network(t, "blue", nbtest.NetDual)
	w.Meanwhile(t, "Load_Balancer", func() {
		if err := w.Other(t).Delete(nbtest.WithLimit(t), "shop/blue", false); err != nil {
			t.Error(err)
		}
	})
	if _, err := w.services.Ensure(nbtest.WithLimit(t), wanted(t, "web", "auto", both)); !errors.Is(err, services.ErrNotAccepted) {
		t.Errorf("error %v", err)
	}
	w.wantChanged(t, empty)
}

// TestTwoControllers: of two that write at once, the second one compares again.
func TestTwoControllers(t *testing.T) {
	other := func(t *testing.T, w *world) *services.Services { return services.New(nbrows.NewStore(w.Other(t).DB)) }
	must := func(t *testing.T, s *services.Services, want *services.Wanted) {
		if _, err := s.Ensure(nbtest.WithLimit(t), want); err != nil {
			t.Error(err)
		}
	}
	t.Run("the first services", func(t *testing.T) {
		w := newWorld(t)
		w.network(t, "blue", nbtest.NetDual)
		w.Meanwhile(t, "Load_Balancer", func() { must(t, other(t, w), wanted(t, "a", "auto", tcp)) })
		must(t, w.services, wanted(t, "b", "auto", tcp))
		if got := w.members(t, "ovn-multinet network shop/blue"); got != "shop/blue:shop/a:tcp, shop/blue:shop/b:tcp" {
			t.Errorf("group of %q", got)
		}
	})
	t.Run("endpoints", func(t *testing.T) {
		w := newWorld(t)
		w.network(t, "blue", nbtest.Net4)
		w.ensure(t, wanted(t, "a", "10.1.0.200", tcp), 1)
		w.Meanwhile(t, "Load_Balancer", func() { must(t, other(t, w), wanted(t, "a", "10.1.0.200", tcp, "10.1.0.7")) })
		must(t, w.services, wanted(t, "a", "10.1.0.200", tcp, "10.1.0.8"))
		if n := w.Proxy.Counts().Refused; n != 1 {
			t.Errorf("%d refused, want the first one", n)
		}
		if got := fmt.Sprint(w.row(t, "Load_Balancer", "shop/blue:shop/a:tcp")["vips"]); got != "map[10.1.0.200:80:10.1.0.8:8080]" {
			t.Errorf("vips %s", got)
		}
	})
	t.Run("the last and the next one", func(t *testing.T) {
		w := newWorld(t)
		w.network(t, "blue", nbtest.NetDual)
		w.ensure(t, wanted(t, "a", "auto", tcp), 1)
		w.Meanwhile(t, "Load_Balancer_Group", func() { must(t, other(t, w), wanted(t, "b", "auto", tcp)) })
		if _, err := w.services.Delete(nbtest.WithLimit(t), "shop/blue", "shop/a"); err != nil {
			t.Error(err)
		}
		if got := w.members(t, "ovn-multinet network shop/blue"); got != "shop/blue:shop/b:tcp" {
			t.Errorf("group of %q", got)
		}
		if got := w.groups(t, "Logical_Switch", "shop/blue"); got == "" {
			t.Error("the switch does not refer to the group")
		}
	})
}

// TestTwoControllersTwice: another controller changes the service after this one has read its row, and changes it back
// before this one writes. No address is used without a claim, and no claim stays without its service.
func TestTwoControllersTwice(t *testing.T) {
	// twice calls a before the second transaction, and b before the first one that writes.
	twice := func(t *testing.T, w *world, a, b func()) {
		n, wrote := 0, false
		w.Proxy.Before(func(tx ovndbtest.Transact) {
			if n++; n == 2 {
				a()
			} else if tx.Writes && !wrote {
				wrote = true
				b()
			}
		})
	}
	start := func(t *testing.T) (w *world, ensure, remove func()) {
		w = newWorld(t)
		w.network(t, "blue", nbtest.Net4)
		w.ensure(t, wanted(t, "first", "10.1.0.201", tcp), 1)
		other := services.New(nbrows.NewStore(w.Other(t).DB))
		ensure = func() {
			if _, err := other.Ensure(nbtest.WithLimit(t), wanted(t, "web", "auto", tcp)); err != nil {
				t.Error(err)
			}
		}
		remove = func() {
			if _, err := other.Delete(nbtest.WithLimit(t), "shop/blue", "shop/web"); err != nil {
				t.Error(err)
			}
		}
		return w, ensure, remove
	}
	t.Run("made and deleted", func(t *testing.T) {
		w, ensure, remove := start(t)
		twice(t, w, ensure, remove)
		if _, err := w.services.Ensure(nbtest.WithLimit(t), wanted(t, "web", "auto", tcp)); err != nil {
			t.Fatal(err)
		}
		w.Proxy.Before(nil)
		w.ensure(t, wanted(t, "web", "auto", tcp), 0)
	})
	t.Run("deleted and made", func(t *testing.T) {
		w, ensure, remove := start(t)
		ensure()
		twice(t, w, remove, ensure)
		if _, err := w.services.Delete(nbtest.WithLimit(t), "shop/blue", "shop/web"); err != nil {
			t.Fatal(err)
		}
		w.Proxy.Before(nil)
		claims := w.state(t)
		maps.DeleteFunc(claims, func(name string, _ any) bool { return !strings.Contains(name, " address ") })
		if names := slices.Collect(maps.Keys(claims)); len(names) != 1 || !strings.HasSuffix(names[0], " 10.1.0.201") {
			t.Errorf("claims %v, want that of the other service", names)
		}
	})
}

// TestMeanwhile: another controller changes the network or the group of a service that is about to be written.
func TestMeanwhile(t *testing.T) {
	t.Run("the subnet moves", func(t *testing.T) {
		w := newWorld(t)
		w.network(t, "blue", nbtest.Net4)
		w.ensure(t, wanted(t, "a", "auto", tcp), 1)
		w.Meanwhile(t, "Load_Balancer", func() { nbtest.Ensure(t, w.Other(t), nbtest.Network(t, "blue", `"subnets":"10.9.0.0/24"`)) })
		result, err := w.services.Ensure(nbtest.WithLimit(t), wanted(t, "b", "auto", tcp))
		if err != nil || !strings.HasPrefix(fmt.Sprint(result.Addresses), "[10.9.0.") {
			t.Errorf("%+v, %v", result, err)
		}
	})
	t.Run("the network of a headless service is deleted", func(t *testing.T) {
		w := newWorld(t)
		empty := w.state(t)
		w.network(t, "blue", nbtest.Net4)
		w.Meanwhile(t, "Copp", func() {
			if err := w.Other(t).Delete(nbtest.WithLimit(t), "shop/blue", false); err != nil {
				t.Error(err)
			}
		})
		if _, err := w.services.Ensure(nbtest.WithLimit(t), wanted(t, "a", "", tcp)); !errors.Is(err, services.ErrNotAccepted) {
			t.Error(err)
		}
		w.wantChanged(t, empty)
	})
	remove := func(t *testing.T, w *world) {
		other := services.New(nbrows.NewStore(w.Other(t).DB))
		if _, err := other.Delete(nbtest.WithLimit(t), "shop/blue", "shop/a"); err != nil {
			t.Error(err)
		}
	}
	t.Run("the last other service is deleted", func(t *testing.T) {
		w := newWorld(t)
		w.network(t, "blue", nbtest.Net4)
		w.ensure(t, wanted(t, "a", "auto", tcp), 1)
		w.Meanwhile(t, "Load_Balancer", func() { remove(t, w) })
		if _, err := w.services.Ensure(nbtest.WithLimit(t), wanted(t, "b", "auto", tcp)); err != nil {
			t.Error(err)
		}
		if got := w.members(t, "ovn-multinet network shop/blue"); got != "shop/blue:shop/b:tcp" {
			t.Errorf("group of %q", got)
		}
	})
	t.Run("the last service is deleted in the network's pass", func(t *testing.T) {
		w := newWorld(t)
		w.network(t, "blue", nbtest.Net4)
		w.ensure(t, wanted(t, "a", "auto", tcp), 1)
		w.Change(t, "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"load_balancer_group": []any{"set", []any{}}})
		w.Meanwhile(t, "Logical_Switch", func() { remove(t, w) })
		if changed, err := w.services.EnsureNetwork(nbtest.WithLimit(t), "shop/blue"); changed || err != nil {
			t.Errorf("changed: %t, %v", changed, err)
		}
		w.wantGone(t)
	})
}

// TestMended: what somebody changes by hand is mended, by the service's pass or by the network's.
func TestMended(t *testing.T) {
	w := newWorld(t)
	w.network(t, "blue", nbtest.NetDual)
	want := wanted(t, "web", fixed, both, "10.1.0.7 fd01::7")
	w.ensure(t, want, 1)
	right := w.contents(t)
	id, none := "shop/blue", []any{"set", []any{}}
	tests := []struct {
		name             string
		service, network int // transactions
		do               func()
	}{
		{"vips", 1, 0, func() {
			w.Change(t, "Load_Balancer", ovndb.LoadBalancerKey(id, "shop/web", "tcp"), ovndbtest.Op{"vips": ovndbtest.Map(nil)})
		}},
		{"a load balancer", 1, 0, func() { w.Remove(t, "Load_Balancer", ovndb.LoadBalancerKey(id, "shop/web", "udp")) }},
		{"members", 1, 0, func() {
			w.Change(t, "Load_Balancer_Group", ovndb.ServiceGroupKey("network "+id), ovndbtest.Op{"load_balancer": none})
		}},
		{"the accepted service", 1, 0, func() { w.Remove(t, "Copp", ovndb.ServiceKey(id, "shop/web")) }},
		{"a claim", 1, 0, func() { w.Remove(t, "Copp", ovndb.AddressKey(id, want.Service.Fixed[1])) }},
		{"the group", 1, 0, func() {
			w.Change(t, "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"load_balancer_group": none})
			w.Change(t, "Logical_Router", ovndb.ServiceRouterKey(id), ovndbtest.Op{"load_balancer_group": none})
			w.Remove(t, "Load_Balancer_Group", ovndb.ServiceGroupKey("network "+id))
		}},
		{"the switch's reference", 0, 1, func() { w.Change(t, "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"load_balancer_group": none}) }},
		{"the switch's port", 0, 1, func() { w.DropPorts(t, "Logical_Switch", nbtest.BlueKey) }},
		{"the router's port", 0, 1, func() { w.DropPorts(t, "Logical_Router", ovndb.ServiceRouterKey(id)) }},
		{"the private router", 0, 1, func() { w.Remove(t, "Logical_Router", ovndb.ServiceRouterKey(id)) }},
		{"the MAC", 0, 1, func() {
			w.Change(t, "Logical_Router_Port", ovndb.ServiceRouterPortKey(id), ovndbtest.Op{"mac": "0a:58:00:00:00:09"})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.do()
			if w.contents(t) == right {
				t.Fatal("nothing was changed")
			}
			w.ensure(t, want, tt.service)
			w.ensureNetwork(t, id, tt.network)
			if got := w.contents(t); got != right {
				t.Errorf("%s\nwant\n%s", got, right)
			}
		})
	}
	w.Remove(t, "Load_Balancer", ovndb.LoadBalancerKey(id, "shop/web", "tcp"))
	w.Remove(t, "Load_Balancer", ovndb.LoadBalancerKey(id, "shop/web", "udp"))
	w.ensureNetwork(t, id, 1) // a group without load balancers goes
	if got := w.members(t, "ovn-multinet network shop/blue"); got != "no group" {
		t.Errorf("group of %q", got)
	}
	w.ensure(t, want, 1)
	if got := w.contents(t); got != right {
		t.Errorf("%s\nwant\n%s", got, right)
	}
}

// contents is the content of all rows.
func (w *world) contents(t *testing.T) string {
	t.Helper()
	var lines []string
	for table, rows := range w.DumpTables(t, tables...) {
		for _, row := range rows {
			delete(row, "_version")
			line := table
			for _, column := range slices.Sorted(maps.Keys(row)) {
				line += fmt.Sprintf(" %s=%v", column, row[column])
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
