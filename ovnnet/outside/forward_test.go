package outside_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// granted gives namespace shop three ports of the gateway's own address, and web two.
const granted = `,"portForwards":{"shop":3,"web":2}`

func newForwards(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.configure(t, nbtest.GwFull+granted)
	return w
}

// forward is what a Service wants that has ports such as "tcp/80" of the gateway's own addresses.
func (w *world) forward(namespace, name string, ports ...string) *outside.Wanted {
	want := w.service(name)
	want.User.Namespace, want.Kind = namespace, outside.Forwarded
	for _, port := range ports {
		p := outside.Port{}
		p.Protocol, _, _ = strings.Cut(port, "/")
		fmt.Sscan(strings.TrimPrefix(port, p.Protocol+"/"), &p.Number)
		want.Ports = append(want.Ports, p)
	}
	want.Balancer.Vips = func(addresses []netip.Addr) map[string]map[string]string {
		vips := map[string]map[string]string{}
		for _, p := range want.Ports {
			if vips[p.Protocol] == nil {
				vips[p.Protocol] = map[string]string{}
			}
			for _, a := range addresses {
				vips[p.Protocol][netip.AddrPortFrom(a, p.Number).String()] = ""
			}
		}
		return vips
	}
	return want
}

// vips are the vips of all outside load balancers, by name.
func (w *world) vips(t *testing.T) string {
	t.Helper()
	rows, words := w.Rows(t)["Load_Balancer"], []string{}
	for _, key := range nbrows.SortedKeys(rows) {
		words = append(words, rows[key]["name"]+" "+rows[key]["vips"])
	}
	return strings.Join(words, "\n")
}

// portClaim are the external_ids of the claim on a port.
func (w *world) portClaim(t *testing.T, address, port string) string {
	t.Helper()
	return w.Rows(t)["Copp"][ovndb.ForwardKey(book, netip.MustParseAddr(address), port)]["external_ids"]
}

const (
	inUseByWeb = " on physical network provider, VLAN 42 is in use by service shop/web by router shop/r1 (port forward); " +
		"choose another, or delete its holder first"
	web80 = "tcp/80 of address 192.0.2.10" + inUseByWeb
)

// TestForward: Services share the gateway's addresses. Each port has one holder, in the order of arrival, and goes to
// the next one with the holder. The ACLs for sources have the ports. Each change is one transaction.
func TestForward(t *testing.T) {
	w := newForwards(t)
	before := w.Rows(t)["Copp"]
	want := w.forward("shop", "web", "tcp/80", "udp/53")
	if got := w.ensure(t, want, 1); got != "[192.0.2.10 2001:db8::10]" {
		t.Errorf("addresses %s", got)
	}
	w.ensure(t, want, 0)
	equal(t, w.portClaim(t, "2001:db8::10", "udp/53"), "ovn-multinet/address-book="+book+" ovn-multinet/claimant:service shop/web by router shop/r1=port forward "+
		"ovn-multinet/outside-router=shop/r1 ovn-multinet/outside-user:service shop/web=")
	equal(t, w.claimsOn(t, "192.0.2.10"), "claimant:router shop/r1=gateway")
	equal(t, w.Rows(t)["Load_Balancer"][ovndb.OutsideBalancerKey("shop/r1", "service shop/web", "udp")]["vips"],
		"192.0.2.10:53= [2001:db8::10]:53=")
	equal(t, w.referrers(t), "shop/blue, shop/r1:gateway")

	want.Balancer.Sources = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	w.ensure(t, want, 1)
	w.ensure(t, want, 0)
	const to4, to6 = `inport == "shop/r1:provider" && ((ip4.dst == 192.0.2.10 && `, `inport == "shop/r1:provider" && ((ip6.dst == 2001:db8::10 && `
	equal(t, w.acls(t), "from-lport 1000 drop "+to4+"(tcp.dst == {80} || udp.dst == {53})))\n"+
		"from-lport 1000 drop "+to6+"(tcp.dst == {80} || udp.dst == {53})))\n"+
		"from-lport 1001 allow "+to4+"(tcp.dst == {80} || udp.dst == {53}))) && ip4.src == {198.51.100.0/24}")

	other := w.forward("web", "other", "tcp/81", "tcp/53")
	w.ensure(t, other, 1)
	wants := w.forward("web", "wants", "tcp/80")
	w.wantRefused(t, wants, web80)
	want = w.forward("shop", "web", "tcp/82", "udp/53") // another port
	w.ensure(t, want, 1)
	equal(t, w.portClaim(t, "192.0.2.10", "tcp/80")+w.acls(t), "")
	w.remove(t, other, 1)
	w.ensure(t, wants, 1)
	equal(t, w.portClaim(t, "192.0.2.10", "tcp/81"), "")

	// One family, then an address of a pool instead, and back.
	w.configure(t, nbtest.GwFull+granted+pools)
	want = w.forward("shop", "web", "tcp/82")
	want.Inside = want.Inside[1:]
	if got := w.ensure(t, want, 1); got != "[2001:db8::10]" {
		t.Errorf("addresses %s", got)
	}
	equal(t, w.portClaim(t, "192.0.2.10", "tcp/82"), "")
	w.ensure(t, w.service("web", "192.0.2.17"), 1)
	equal(t, w.portClaim(t, "2001:db8::10", "tcp/82"), "")
	w.ensure(t, want, 1)
	equal(t, w.claimsOn(t, "192.0.2.17"), "")

	w.remove(t, want, 1)
	w.remove(t, wants, 1)
	rows := w.Rows(t)
	delete(rows["Copp"], ovndb.EndedServedKey("router shop/r1"))
	if after := rows["Copp"]; fmt.Sprint(after) != fmt.Sprint(before) || len(rows["Load_Balancer"])+len(rows["Load_Balancer_Group"]) > 0 {
		t.Errorf("rows\n%v\nbecame\n%v\n%v", before, after, rows["Load_Balancer"])
	}
}

// TestForwardRefused: a namespace has no more ports than the operator grants, and none that the gateway needs.
func TestForwardRefused(t *testing.T) {
	w := newForwards(t)
	w.ensure(t, w.forward("shop", "web", "tcp/80", "udp/53"), 1)
	noIPv6 := w.forward("shop", "api", "tcp/81")
	noIPv6.Inside = nil
	for _, tt := range []struct {
		want   *outside.Wanted
		reason string
	}{
		{w.forward("shop", "api", "tcp/82", "tcp/83"), "namespace shop has 3 IPv4 ports of the gateway of router shop/r1, at most 3 are allowed"},
		{w.forward("shop", "api", "tcp/81", "tcp/80"), web80},
		{w.forward("web", "api", "udp/53"), "udp/53 of address 192.0.2.10" + inUseByWeb},
		{w.forward("shop", "api", "tcp/32768"), "tcp/32768: the gateway needs the ports from 32768 on for the connections of pods; choose a lower one"},
		{w.forward("shop", "api", "udp/546"), "udp/546: the gateway answers DHCPv6 there; choose another port"},
		{w.forward("dev", "api", "tcp/81"), "ports of the gateway of router shop/r1 are not granted to namespace dev; the operator writes " +
			`portForwards: {dev: 1} into the object Router that describes shop/r1`},
		{w.service("api", "192.0.2.10"), "address 192.0.2.10 is the own one of the gateway of router shop/r1: a Service has ports of it with " +
			"ovn-multinet/service-outside-address: gateway"},
		{noIPv6, "the gateway of router shop/r1 has no address of the families of service shop/api"},
	} {
		w.wantRefused(t, tt.want, tt.reason)
	}
	w.ensure(t, w.forward("shop", "api", "tcp/32767"), 1)
	// A lower limit ends nothing, and allows no more.
	w.configure(t, strings.Replace(nbtest.GwFull+granted, `"shop":3`, `"shop":1`, 1))
	w.ensure(t, w.forward("shop", "web", "tcp/80", "udp/53"), 0)
	w.wantRefused(t, w.forward("shop", "web", "tcp/80", "udp/53", "tcp/82"),
		"namespace shop has 3 IPv4 ports of the gateway of router shop/r1, at most 1 are allowed")
}

// TestForwardEnds: with the grant, with the gateway's address and with the gateway.
func TestForwardEnds(t *testing.T) {
	const web = "shop/r1:outside:shop/web:tcp "
	start := func(t *testing.T) (*world, *outside.Wanted) {
		w := newForwards(t)
		want := w.forward("shop", "web", "tcp/80")
		want.Balancer.Sources = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		w.ensure(t, want, 1)
		equal(t, w.vips(t), web+"192.0.2.10:80= [2001:db8::10]:80=")
		return w, want
	}
	for name, keys := range map[string]string{"grant": nbtest.GwFull, "VLAN": strings.Replace(nbtest.GwFull, "42", "43", 1) + granted} {
		t.Run(name, func(t *testing.T) {
			w, want := start(t)
			w.configure(t, keys)
			if want.Router = w.router; name == "grant" {
				if _, err := w.outside.Ensure(nbtest.WithLimit(t), want); err == nil {
					t.Error("it is not refused")
				}
			}
			equal(t, w.ours(t)+w.acls(t)+w.referrers(t)+w.vips(t), "")
		})
	}
	t.Run("gateway", func(t *testing.T) {
		w, _ := start(t)
		w.Gateways.Configure(map[string]*netmodel.Router{})
		if err := w.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
			t.Fatal(err)
		}
		equal(t, w.ours(t)+w.acls(t)+w.referrers(t)+w.vips(t), "")
	})
	t.Run("address", func(t *testing.T) {
		w, want := start(t)
		balanced := nbtest.GwFull + granted + pools
		w.configure(t, balanced)
		w.ensure(t, w.service("beside", "192.0.2.17"), 1)
		other := strings.NewReplacer("192.0.2.10", "192.0.2.99", "2001:db8::10\"", "2001:db8::77\"").Replace(balanced)
		w.configure(t, other) // the gateway's transaction: somebody else may have the former address now
		if got := w.vips(t); strings.Contains(got, "192.0.2.10") || strings.Contains(got, "db8::10]") || !strings.Contains(got, "192.0.2.17:80=") {
			t.Errorf("vips %s", got)
		}
		w.wantNotReady(t, want, "is not on physical network provider, VLAN 42 yet") // a controller with the former configuration
		want.Router = w.router
		w.ensure(t, want, 1)
		equal(t, w.portClaim(t, "192.0.2.10", "tcp/80")+w.portClaim(t, "2001:db8::10", "tcp/80"), "")
		if got := w.vips(t) + w.acls(t); strings.Contains(got, "192.0.2.10") || !strings.Contains(got, "192.0.2.99:80= [2001:db8::77]:80=") {
			t.Errorf("rows %s", got)
		}
		equal(t, w.ensure(t, want, 0), "[192.0.2.99 2001:db8::77]")
		// The address changes back, and somebody else has the port there: nothing of the former address stays.
		w.configure(t, balanced)
		w.ensure(t, w.forward("web", "first", "tcp/80"), 1)
		want.Router = w.router
		if _, err := w.outside.Ensure(nbtest.WithLimit(t), want); err == nil {
			t.Error("it is not refused")
		}
		if got := w.vips(t) + w.ours(t); strings.Contains(got, "shop/web") {
			t.Errorf("rows %s", got)
		}
	})
}

// TestForwardRaces: what two controllers write at the same time. One of them is late.
func TestForwardRaces(t *testing.T) {
	t.Run("one port", func(t *testing.T) {
		w := newForwards(t)
		w.meanwhile(t, "Copp", ensured(t, w.forward("shop", "web", "tcp/80")))
		if _, err := w.outside.Ensure(nbtest.WithLimit(t), w.forward("web", "late", "tcp/80")); err == nil || !strings.Contains(err.Error(), web80) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the last of the limit", func(t *testing.T) {
		w := newForwards(t)
		w.ensure(t, w.forward("shop", "web", "tcp/80"), 1)
		w.meanwhile(t, "Copp", ensured(t, w.forward("shop", "api", "tcp/81", "tcp/82")))
		_, err := w.outside.Ensure(nbtest.WithLimit(t), w.forward("shop", "late", "tcp/83"))
		if err == nil || !strings.Contains(err.Error(), "namespace shop has 3 IPv4 ports") {
			t.Errorf("error %v", err)
		}
	})
	moved := strings.Replace(nbtest.GwFull, `2001:db8::10"`, `2001:db8::77"`, 1) + granted // the first address stays
	t.Run("the gateway's address changes", func(t *testing.T) {
		w := newForwards(t)
		other := w.Other(t)
		w.Meanwhile(t, "Copp", func() {
			if _, err := other.Gateways.Ensure(nbtest.WithLimit(t), nbtest.GatewayConf(t, "shop/r1", moved), nbtest.OneNode); err != nil {
				t.Error(err)
			}
		})
		if _, err := w.outside.Ensure(nbtest.WithLimit(t), w.forward("shop", "web", "tcp/80")); err == nil {
			t.Error("a port of the former address is given")
		}
		equal(t, w.vips(t)+w.ours(t), "")
	})
	t.Run("a forward comes while the gateway's address changes", func(t *testing.T) {
		w := newForwards(t)
		w.meanwhile(t, "Copp", ensured(t, w.forward("shop", "web", "tcp/80")))
		w.configure(t, moved)
		equal(t, strings.TrimSpace(w.vips(t)), "shop/r1:outside:shop/web:tcp")
	})
}

// TestForwardsAtOnce: eight Services want one port from four controllers at the same time.
func TestForwardsAtOnce(t *testing.T) {
	w := newForwards(t)
	var mu sync.Mutex
	var all sync.WaitGroup
	given := map[string]int{}
	for range 4 {
		o := outside.New(nbrows.NewStore(w.Other(t).DB))
		for i := range 8 {
			want := w.forward([]string{"shop", "web"}[i%2], fmt.Sprint("s", i), "udp/53", "tcp/53")
			all.Go(func() {
				_, err := o.Ensure(nbtest.WithLimit(t), want)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					given[want.User.String()]++
				} else if !strings.Contains(err.Error(), "of address 192.0.2.10 on physical network provider, VLAN 42 is in use by service ") {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if len(given) != 1 {
		t.Errorf("the holders of the ports are %v", given)
	}
	entries, err := w.outside.List(nbtest.WithLimit(t))
	if err != nil || len(entries) != 1 || entries[0].Kind != outside.Forwarded || len(entries[0].Addresses) != 4 {
		t.Errorf("entries %+v, error %v", entries, err)
	}
}

// TestNorthdForward: a packet to the port is balanced before source NAT sees it, other packets are not, and source NAT
// gives no connection of a pod a port that a Service may have.
func TestNorthdForward(t *testing.T) {
	w := newForwards(t)
	nbtest.Ensure(t, w.Client, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1)) // as the configuration is now
	w.ensure(t, w.forward("shop", "web", "tcp/80"), 1)
	w.wantFlows(t, "ip4.dst == 192.0.2.10 && tcp && tcp.dst == 80", "ip6.dst == 2001:db8::10 && tcp && tcp.dst == 80",
		"(192.0.2.10,32768-65535)", "(2001:db8::10,32768-65535)", "arp.tpa == 192.0.2.10")
}
