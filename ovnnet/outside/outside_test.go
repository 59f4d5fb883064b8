package outside_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// TestFloating: the rows of a pod with floating addresses, and how they follow the pod.
func TestFloating(t *testing.T) {
	w := newWorld(t)
	before := w.claims(t)
	want := w.pod(t, "shop", "web-0", 7, "192.0.2.17", "2001:db8::105")
	if got := w.ensure(t, want, 1); got != "[192.0.2.17 2001:db8::105]" {
		t.Errorf("addresses %s", got)
	}
	w.ensure(t, want, 0)
	mac, _ := ovndb.LeaseMAC(netip.Prefix{}, netip.MustParseAddr("2001:db8::105"))
	distributed := "dnat_and_snat 192.0.2.17 10.1.0.7 0a:58:c0:00:02:11 shop/web-0/net1; " +
		"dnat_and_snat 2001:db8::105 fd01::7 " + mac.String() + " shop/web-0/net1"
	equal(t, w.nats(t), distributed)
	equal(t, w.ours(t), strings.Join([]string{"outside shop/r1 pool public namespace shop", "outside shop/r1 shop/web-0/net1",
		book + " MAC " + mac.String(), book + " address 192.0.2.17", book + " address 2001:db8::105"}, "\n"))
	equal(t, w.claimsOn(t, "192.0.2.17"),
		"claimant:pod shop/web-0 interface net1 by router shop/r1=floating address; outside-user:shop/web-0/net1=")

	// On a node without the mapping, in the same rows.
	key := ovndb.OutsideNATKey("shop/r1", "shop/web-0/net1", "4")
	want.Distributed = false
	w.ensure(t, want, 1)
	equal(t, w.nats(t), "dnat_and_snat 192.0.2.17 10.1.0.7; dnat_and_snat 2001:db8::105 fd01::7")
	if w.Rows(t)["NAT"][key] == nil {
		t.Error("the NAT has another row key")
	}
	// A pod of the same name has another port and other addresses.
	other := w.pod(t, "shop", "web-0b", 9)
	w.Change(t, "Logical_Switch_Port", other.PortKey, map[string]any{"name": "shop/web-0/net1-b", "external_ids": []any{"map", []any{
		[]any{"ovn-multinet/namespace", "shop"}, []any{"ovn-multinet/pod", "web-0"}, []any{"ovn-multinet/interface", "net1"}}}})
	want.PortKey, want.PortName, want.Inside, want.Distributed = other.PortKey, "shop/web-0/net1-b", other.Inside, true
	w.ensure(t, want, 1)
	equal(t, w.nats(t), strings.NewReplacer("10.1.0.7", "10.1.0.9", "fd01::7", "fd01::9", "net1", "net1-b").Replace(distributed))

	// The reconcile passes of gateway and network write nothing, and somebody's changes are mended.
	w.Proxy.Reset()
	w.configure(t, nbtest.GwFull+pools)
	nbtest.Ensure(t, w.Client, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	w.WantCommitted(t, 0)
	intact := w.nats(t)
	w.Change(t, "NAT", key, map[string]any{"external_ip": "192.0.2.99"})
	w.ensure(t, want, 1)
	equal(t, w.nats(t), intact)
	w.Change(t, "Logical_Router", nbtest.GwRouter, map[string]any{"nat": []any{"set", []any{}}})
	w.ensure(t, want, 1)
	equal(t, w.nats(t), intact)
	w.Remove(t, "Copp", ovndb.AddressKey(book, netip.MustParseAddr("192.0.2.17")))
	w.ensure(t, want, 1)
	if w.claimsOn(t, "192.0.2.17") == "" {
		t.Error("the claim was not mended")
	}

	// Another address, and none.
	want.Fixed = want.Fixed[:1]
	want.Fixed[0] = netip.MustParseAddr("192.0.2.18")
	w.ensure(t, want, 1)
	equal(t, w.ours(t), strings.Join([]string{"outside shop/r1 pool public namespace shop", "outside shop/r1 shop/web-0/net1",
		book + " address 192.0.2.18"}, "\n"))
	w.remove(t, want, 1)
	w.remove(t, want, 0)
	equal(t, w.ours(t)+w.nats(t), "")
	if after := w.claims(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("rows\n%v\nbecame\n%v", before, after)
	}
}

// TestEgress: the pods of a namespace are behind one address, which goes with the last of them.
func TestEgress(t *testing.T) {
	w := newWorld(t)
	var pods []*outside.Wanted
	address := ""
	for i := range 3 {
		want := w.pod(t, "shop", fmt.Sprintf("web-%d", i), 7+i)
		want.Kind = outside.Egress
		got := w.ensure(t, want, 1)
		if address != "" && got != address {
			t.Errorf("addresses %s, want %s", got, address)
		}
		address = got
		w.ensure(t, want, 0)
		pods = append(pods, want)
	}
	var ip4, ip6 string
	fmt.Sscanf(address, "[%s %s", &ip4, &ip6)
	ip6 = strings.TrimSuffix(ip6, "]")
	equal(t, w.nats(t), fmt.Sprintf("snat %[1]s 10.1.0.7; snat %[1]s 10.1.0.8; snat %[1]s 10.1.0.9; snat %[2]s fd01::7; snat %[2]s fd01::8; snat %[2]s fd01::9", ip4, ip6))
	equal(t, w.claimsOn(t, ip4), "claimant:namespace shop by router shop/r1=egress address; outside-user:shop/web-0/net1=; "+
		"outside-user:shop/web-1/net1=; outside-user:shop/web-2/net1=")

	// Nobody else has it: not another namespace, and not as a floating address.
	other := w.pod(t, "web", "other", 10, ip4)
	other.Kind = outside.Egress
	w.wantRefused(t, other, "address "+ip4+" on physical network provider, VLAN 42 is in use by namespace shop by router shop/r1 (egress address); "+
		"choose another, or delete its holder first")
	floating := w.pod(t, "shop", "floating", 11, ip4)
	w.wantRefused(t, floating, "address "+ip4+" on physical network provider, VLAN 42 is in use by namespace shop by router shop/r1 (egress address); "+
		"choose another, or delete its holder first")

	w.remove(t, pods[0], 1)
	w.remove(t, pods[1], 1)
	equal(t, w.claimsOn(t, ip4), "claimant:namespace shop by router shop/r1=egress address; outside-user:shop/web-2/net1=")
	// The last user may have it for itself.
	pods[2].Kind = outside.Floating
	pods[2].Fixed = []netip.Addr{netip.MustParseAddr(ip4)}
	w.ensure(t, pods[2], 1)
	equal(t, w.claimsOn(t, ip4), "claimant:pod shop/web-2 interface net1 by router shop/r1=floating address; outside-user:shop/web-2/net1=")
	w.remove(t, pods[2], 1)
	equal(t, w.ours(t)+w.nats(t), "")
}

// TestAuto: a pod gets its former address again, and nobody gets one that somebody has.
func TestAuto(t *testing.T) {
	w := newWorld(t)
	want := w.pod(t, "web", "a", 7)
	want.Pool, want.Inside = "public", want.Inside[:1]
	first := w.ensure(t, want, 1)
	w.remove(t, want, 1)
	equal(t, w.ensure(t, want, 1), first)
	// A pod on a localnet network has the address: the next in the order is free.
	w.remove(t, want, 1)
	nbtest.Ensure(t, w.Client, nbtest.Network(t, "plain", nbtest.Localnet("provider", `,"vlanID":42,"subnets":"192.0.2.0/24","gateway":"192.0.2.1"`)))
	w.PodAt(t, "shop/plain", ovndb.AddressKey(book, netip.MustParseAddr(strings.Trim(first, "[]"))), "db", "net1")
	second := w.ensure(t, want, 1)
	if second == first {
		t.Errorf("address %s is that of a pod", second)
	}
	want.Fixed = []netip.Addr{netip.MustParseAddr(strings.Trim(first, "[]"))}
	w.wantRefused(t, want, "address "+strings.Trim(first, "[]")+" on physical network provider, VLAN 42 is in use by pod shop/db; choose another, or delete its holder first")
	want.Fixed = nil
	equal(t, w.ensure(t, want, 0), second) // it stays
	// The other way round: no network and no gateway takes an outside address for itself.
	taken := strings.Trim(second, "[]")
	w.WantRefused(t, nbtest.Network(t, "plain", nbtest.Localnet("provider", `,"vlanID":42,"subnets":"192.0.2.0/24","gateway":"`+taken+`"`)),
		"gateway: address "+taken+" on physical network provider, VLAN 42 is in use by pod web/a interface net1 by router shop/r1 (floating address); choose another address")

	edge := nbtest.GatewayConf(t, "/edge", strings.NewReplacer(`"192.0.2.10,`, `"`+taken+`,`, "2001:db8::10", "2001:db8::11").Replace(nbtest.GwFull))
	if _, err := w.Gateways.Ensure(nbtest.WithLimit(t), edge, nbtest.OneNode); err == nil || !strings.Contains(err.Error(),
		"router /edge: gateway: address "+taken+" on physical network provider, VLAN 42 is in use by pod web/a interface net1") {
		t.Errorf("error %v", err)
	}

	// All addresses of public, then those of web.
	got := map[string]bool{first: true, second: true}
	for i := range 22 {
		p := w.pod(t, "web", fmt.Sprintf("p%d", i), 20+i)
		p.Inside = p.Inside[:1]
		if i == 19 {
			w.wantRefused(t, p, "namespace web has 16 IPv4 addresses of pool web of router shop/r1, at most 16 are allowed")
			break
		}
		a := w.ensure(t, p, 1)
		if got[a] {
			t.Errorf("address %s is there twice", a)
		}
		got[a] = true
	}
	six := w.pod(t, "web", "six", 90) // of the other family there are some left
	six.Inside = six.Inside[1:]
	w.ensure(t, six, 1)
	six.Pool = "web"
	w.wantRefused(t, six, "no address pool of router shop/r1 that namespace web may use has addresses of the families of web/six/net1")
}

// TestTold: who has which addresses is told when it is listed, checked, changed and deleted, also by another client.
func TestTold(t *testing.T) {
	w := newWorld(t)
	has := map[outside.Key]string{}
	w.outside.Told = func(key outside.Key, addresses []netip.Addr) { has[key] = fmt.Sprint(addresses) }
	want := w.pod(t, "shop", "web-0", 7, "192.0.2.17")
	key := outside.Key{Router: "shop/r1", User: want.User}
	told := func(what, want string) {
		t.Helper()
		if got := has[key]; got != want || len(has) != 1 {
			t.Errorf("after %s: %q", what, has)
		}
		clear(has)
	}
	w.ensure(t, want, 1)
	told("a change", "[192.0.2.17]")
	w.ensure(t, want, 0)
	told("a check", "[192.0.2.17]")
	if _, err := w.outside.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	told("a list", "[192.0.2.17]")
	for _, what := range []string{"a deletion", "a deletion of what is gone"} {
		if _, err := w.outside.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		told(what, "[]")
	}
}

// TestRefused: what the operator does not allow, and what cannot be.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	grant := `; the operator writes namespaces: {%s: 1} into the pool's object AddressPool`
	none := w.pod(t, "none", "a", 7)
	w.wantRefused(t, none, "router shop/r1 has no address pool that is granted to namespace none; the operator grants address pools by objects AddressPool")
	none.Pool = "public"
	w.wantRefused(t, none, "pool public of router shop/r1 is not granted to namespace none"+fmt.Sprintf(grant, "none"))
	none.Pool = "other"
	w.wantRefused(t, none, `router shop/r1 has no address pool "other"`)
	w.wantRefused(t, w.pod(t, "shop", "b", 8, "192.0.2.66"), "pool web of router shop/r1 is not granted to namespace shop"+fmt.Sprintf(grant, "shop"))
	w.wantRefused(t, w.pod(t, "shop", "c", 9, "192.0.2.10"), "address 192.0.2.10 is the own one of the gateway of router shop/r1: a Service has ports of it with ovn-multinet/service-outside-address: gateway")
	w.wantRefused(t, w.pod(t, "shop", "d", 10, "192.0.2.17", "192.0.2.18"), "addresses 192.0.2.17 and 192.0.2.18 are of one family, only one of each is served")
	four := w.pod(t, "shop", "e", 11, "2001:db8::101")
	four.Inside = four.Inside[:1]
	w.wantRefused(t, four, "address 2001:db8::101: interface shop/e/net1 has no address of this family")

	// The limit is of each family.
	w.ensure(t, w.pod(t, "shop", "f", 12), 1)
	g := w.pod(t, "shop", "g", 13)
	w.ensure(t, g, 1)
	w.wantRefused(t, w.pod(t, "shop", "h", 14), "namespace shop has 2 IPv4 addresses of pool public of router shop/r1, at most 2 are allowed")
	w.wantRefused(t, w.pod(t, "shop", "i", 15, "192.0.2.23"), "namespace shop has 2 IPv4 addresses of pool public of router shop/r1, at most 2 are allowed")
	// Who has one may change it.
	g.Fixed = []netip.Addr{netip.MustParseAddr("192.0.2.23")}
	w.ensure(t, g, 1)

	// The port and the gateway must be there.
	h := w.pod(t, "web", "h", 16)
	h.PortName = "web/h/net2"
	w.wantNotReady(t, h, "interface web/h/net1 has no port web/h/net2")
	i := w.pod(t, "web", "i", 17)
	i.User.Pod = "j"
	w.wantNotReady(t, i, "interface web/j/net1 has no port web/i/net1")
	j := w.pod(t, "web", "k", 18)
	j.Inside[0] = netip.MustParseAddr("10.1.0.99")
	w.wantNotReady(t, j, "port web/k/net1 does not have address 10.1.0.99")
	k := w.pod(t, "web", "l", 19)
	k.Router = nbtest.GatewayConf(t, "shop/r1", strings.Replace(nbtest.GwFull, `"vlanID":42`, `"vlanID":43`, 1)+pools)
	w.wantNotReady(t, k, "the gateway of router shop/r1 is not on physical network provider, VLAN 43 yet")
	k.Router = nbtest.RouterConf(t, "/core", "")
	w.wantRefused(t, k, "router /core has no gateway: the operator describes gateways by objects Router")
}

// TestNotBound: the pod's node translates once OVN has bound the port there, and goes on while the port is away for a
// moment. A gateway need not wait.
func TestNotBound(t *testing.T) {
	w := newWorld(t)
	shop, web := w.pod(t, "shop", "a", 7), w.pod(t, "web", "b", 8)
	up := func(up bool) {
		for _, p := range []*outside.Wanted{shop, web} {
			w.Transact(t, ovndbtest.Op{"op": "update", "table": "Logical_Switch_Port", "where": nbtest.ByKey(p.PortKey),
				"row": ovndbtest.Op{"up": up}})
		}
	}
	up(false)
	w.wantNotReady(t, shop, "port shop/a/net1: OVN has not bound the port to its node yet")
	web.Distributed = false
	w.ensure(t, web, 1)
	web.Distributed = true
	w.wantNotReady(t, web, "port web/b/net1: OVN has not bound the port to its node yet")
	up(true)
	w.ensure(t, shop, 1)
	w.ensure(t, web, 1)
	up(false)
	w.ensure(t, shop, 0)
}

// TestConfigurationChanges: what becomes of addresses when the operator changes the file.
func TestConfigurationChanges(t *testing.T) {
	w := newWorld(t)
	shop, web := w.pod(t, "shop", "a", 7), w.pod(t, "web", "b", 8, "192.0.2.66")
	address := w.ensure(t, shop, 1)
	w.ensure(t, web, 1)
	list := func() string {
		t.Helper()
		all, err := w.outside.List(nbtest.WithLimit(t))
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, e := range all {
			words = append(words, fmt.Sprint(e.Router, " ", e.User, " ", e.Kind, " ", e.Addresses[0].Addr, " ", e.Addresses[0].Pool, ": ", e.Allowed(w.router)))
		}
		if len(words) == 2 && words[0] > words[1] {
			words[0], words[1] = words[1], words[0]
		}
		return strings.Join(words, "\n")
	}
	first := strings.Fields(strings.Trim(address, "[]"))[0]
	equal(t, list(), "shop/r1 shop/a/net1 floating "+first+" public: <nil>\nshop/r1 web/b/net1 floating 192.0.2.66 web: <nil>")

	// A lower limit: what is there stays.
	w.configure(t, nbtest.GwFull+strings.Replace(pools, `"shop":2`, `"shop":1`, 1))
	w.ensure(t, w.with(shop), 0)
	w.wantRefused(t, w.pod(t, "shop", "c", 9), "namespace shop has 1 IPv4 addresses of pool public of router shop/r1, at most 1 are allowed")
	// Another name of the pool.
	w.configure(t, nbtest.GwFull+strings.Replace(pools, `"public"`, `"open"`, 1))
	equal(t, w.ensure(t, w.with(shop), 1), address)
	// No grant: List finds the user, and Ensure deletes its rows.
	w.configure(t, nbtest.GwFull+strings.Replace(pools, `"shop":2,`, ``, 1))
	if got := list(); !strings.Contains(got, "is not granted to namespace shop; ") {
		t.Errorf("list:\n%s", got)
	}
	if _, err := w.outside.Ensure(nbtest.WithLimit(t), w.with(shop)); err == nil || !strings.Contains(err.Error(), "no address pool that is granted to namespace shop") {
		t.Errorf("error %v", err)
	}
	equal(t, list(), "shop/r1 web/b/net1 floating 192.0.2.66 web: <nil>")
	w.ensure(t, w.with(web), 0)

	// Another VLAN: the addresses are those of others there, so all rows go with the gateway's change.
	w.Proxy.Reset()
	w.configure(t, strings.Replace(nbtest.GwFull, `"vlanID":42`, `"vlanID":43`, 1)+pools)
	w.WantCommitted(t, 1)
	equal(t, w.ours(t)+w.nats(t), "")
	w.ensure(t, w.with(web), 1)

	// No gateway.
	w.Gateways.Configure(nil)
	if err := w.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
		t.Fatal(err)
	}
	equal(t, w.ours(t), "")
	w.wantNotReady(t, w.with(web), "the gateway of router shop/r1 is not on physical network provider, VLAN 43 yet")
}

// with returns what a user wants, with the present configuration.
func (w *world) with(want *outside.Wanted) *outside.Wanted {
	now := *want
	now.Router = w.router
	return &now
}

// TestRaces: what two controllers write at the same time. One of them is late.
func TestRaces(t *testing.T) {
	refused := func(w *world, t *testing.T, want *outside.Wanted, text string) {
		t.Helper()
		if _, err := w.outside.Ensure(nbtest.WithLimit(t), want); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want %q", err, text)
		}
	}
	t.Run("one address", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.pod(t, "shop", "a", 7, "192.0.2.17"), w.pod(t, "web", "b", 8, "192.0.2.17")
		w.meanwhile(t, "Copp", ensured(t, b))
		refused(w, t, a, "is in use by pod web/b interface net1")
	})
	t.Run("an address of a port", func(t *testing.T) {
		w := newWorld(t)
		nbtest.Ensure(t, w.Client, nbtest.Network(t, "plain", nbtest.Localnet("provider", `,"vlanID":42,"subnets":"192.0.2.0/24","gateway":"192.0.2.1"`)))
		a := w.pod(t, "shop", "a", 7, "192.0.2.17")
		w.meanwhile(t, "Copp", func(*outside.Outside) error {
			w.PodAt(t, "shop/plain", ovndb.AddressKey(book, netip.MustParseAddr("192.0.2.17")), "db", "net1")
			return nil
		})
		refused(w, t, a, "is in use by pod shop/db")
	})
	t.Run("the last of the limit", func(t *testing.T) {
		w := newWorld(t)
		w.ensure(t, w.pod(t, "shop", "a", 7, "192.0.2.17"), 1)
		b, c := w.pod(t, "shop", "b", 8, "192.0.2.18"), w.pod(t, "shop", "c", 9, "192.0.2.19")
		w.meanwhile(t, "Copp", ensured(t, c))
		refused(w, t, b, "namespace shop has 2 IPv4 addresses")
	})
	t.Run("one user's first address", func(t *testing.T) {
		w := newWorld(t)
		w.ensure(t, w.pod(t, "shop", "a", 7, "192.0.2.17"), 1)
		b := w.pod(t, "shop", "b", 8)
		other, once := outside.New(nbrows.NewStore(w.Other(t).DB)), sync.Once{}
		key := ovndb.OutsideLimitKey("shop/r1", "public", "shop")
		w.Proxy.Before(func(tx ovndbtest.Transact) { // after the user's row was read, before the list of addresses is
			if strings.Contains(fmt.Sprint(tx.Ops), key) {
				once.Do(func() {
					if err := ensured(t, b)(other); err != nil {
						t.Error(err)
					}
				})
			}
		})
		if _, err := w.outside.Ensure(nbtest.WithLimit(t), b); err != nil { // the last of the limit is its own
			t.Error(err)
		}
	})
	t.Run("one user", func(t *testing.T) {
		w := newWorld(t)
		a := w.pod(t, "shop", "a", 7, "192.0.2.17")
		w.ensure(t, a, 1)
		other := *a
		other.Fixed = []netip.Addr{netip.MustParseAddr("192.0.2.18")}
		a.Distributed = false
		w.meanwhile(t, "NAT", ensured(t, &other))
		if _, err := w.outside.Ensure(nbtest.WithLimit(t), a); err != nil {
			t.Error(err)
		}
		equal(t, w.nats(t), "dnat_and_snat 192.0.2.17 10.1.0.7")
		equal(t, w.ours(t), "outside shop/r1 pool public namespace shop\noutside shop/r1 shop/a/net1\n"+book+" address 192.0.2.17")
	})
	t.Run("the last users of an egress address", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.pod(t, "shop", "a", 7, "192.0.2.17"), w.pod(t, "shop", "b", 8, "192.0.2.17")
		a.Kind, b.Kind = outside.Egress, outside.Egress
		w.ensure(t, a, 1)
		w.ensure(t, b, 1)
		// Without a NAT row no connections end, and the two users change no list of those.
		w.Change(t, "Logical_Router", ovndb.GatewayKey("shop/r1"), ovndbtest.Op{"nat": ovndbtest.Set[any]()})
		w.meanwhile(t, "Copp", func(o *outside.Outside) error {
			_, err := o.Delete(nbtest.WithLimit(t), outside.Key{Router: "shop/r1", User: b.User})
			return err
		})
		if _, err := w.outside.Delete(nbtest.WithLimit(t), outside.Key{Router: "shop/r1", User: a.User}); err != nil {
			t.Error(err)
		}
		equal(t, w.ours(t)+w.nats(t), "")
	})
	t.Run("an egress address goes", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.pod(t, "shop", "a", 7, "192.0.2.17"), w.pod(t, "shop", "b", 8, "192.0.2.17")
		a.Kind, b.Kind = outside.Egress, outside.Egress
		w.ensure(t, a, 1)
		// The pool has another name for b, so the two users change different lists.
		w.configure(t, nbtest.GwFull+strings.Replace(pools, `"public"`, `"open"`, 1))
		w.meanwhile(t, "Copp", func(o *outside.Outside) error {
			_, err := o.Delete(nbtest.WithLimit(t), outside.Key{Router: "shop/r1", User: a.User})
			return err
		})
		if _, err := w.outside.Ensure(nbtest.WithLimit(t), w.with(b)); err != nil {
			t.Error(err)
		}
		equal(t, w.claimsOn(t, "192.0.2.17"), "claimant:namespace shop by router shop/r1=egress address; outside-user:shop/b/net1=")
	})
	t.Run("the gateway goes", func(t *testing.T) {
		w := newWorld(t)
		a := w.pod(t, "shop", "a", 7, "192.0.2.17")
		other := w.Other(t)
		w.Meanwhile(t, "Copp", func() {
			if err := other.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
				t.Error(err)
			}
		})
		refused(w, t, a, "not ready for an outside address")
		equal(t, w.ours(t), "")
	})
	t.Run("the gateway moves", func(t *testing.T) {
		w := newWorld(t)
		a := w.pod(t, "shop", "a", 7, "192.0.2.17")
		other := w.Other(t)
		w.Meanwhile(t, "Copp", func() {
			r := nbtest.GatewayConf(t, "shop/r1", strings.Replace(nbtest.GwFull, `"vlanID":42`, `"vlanID":43`, 1))
			if _, err := other.Gateways.Ensure(nbtest.WithLimit(t), r, nbtest.OneNode); err != nil {
				t.Error(err)
			}
		})
		refused(w, t, a, "is not on physical network provider, VLAN 42 yet")
		equal(t, w.ours(t), "")
	})
	t.Run("an address comes while the gateway moves", func(t *testing.T) {
		w := newWorld(t)
		w.meanwhile(t, "Copp", ensured(t, w.pod(t, "shop", "a", 7, "192.0.2.17")))
		w.configure(t, strings.Replace(nbtest.GwFull, `"vlanID":42`, `"vlanID":43`, 1)+pools)
		equal(t, w.ours(t)+w.nats(t), "")
	})
	t.Run("the port goes", func(t *testing.T) {
		w := newWorld(t)
		a := w.pod(t, "shop", "a", 7, "192.0.2.17")
		w.Meanwhile(t, "Copp", func() { w.DropPorts(t, "Logical_Switch", nbtest.BlueKey) })
		refused(w, t, a, "interface shop/a/net1 has no port shop/a/net1")
	})
}

// TestManyAtOnce: 16 pods of two namespaces want the eight addresses of a pool from four controllers at the same time.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	var controllers []*outside.Outside
	for range 4 {
		controllers = append(controllers, outside.New(nbrows.NewStore(w.Other(t).DB)))
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	given, refused := map[string]int{}, 0
	for i := range 16 {
		want := w.pod(t, []string{"shop", "web"}[i%2], fmt.Sprintf("p%d", i), 20+i)
		want.Pool, want.Inside = "public", want.Inside[:1]
		for _, o := range controllers {
			all.Go(func() {
				result, err := o.Ensure(nbtest.WithLimit(t), want)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					if !strings.Contains(err.Error(), "at most ") {
						t.Error(err)
					}
					refused++
					return
				}
				given[want.User.Namespace+" "+result.Addresses[0].String()]++
			})
		}
	}
	all.Wait()
	addresses := map[string]bool{}
	for key, n := range given {
		_, a, _ := strings.Cut(key, " ")
		if addresses[a] || n != len(controllers) {
			t.Errorf("%s was given %d times", key, n)
		}
		addresses[a] = true
	}
	if len(addresses) != 6 || refused != 10*len(controllers) {
		t.Errorf("given %v, %d refused; want 2 addresses of shop and 4 of web", given, refused)
	}
}

func equal(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("is:\n%s\nwant:\n%s", got, want)
	}
}
