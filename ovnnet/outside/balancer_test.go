package outside_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
)

// service is what a Service of namespace shop with port 80 wants.
func (w *world) service(name string, fixed ...string) *outside.Wanted {
	want := &outside.Wanted{
		Router: w.router, User: outside.User{Namespace: "shop", Service: name}, Kind: outside.Balanced,
		Inside: []netip.Addr{netip.MustParseAddr("10.1.0.0"), netip.MustParseAddr("fd01::")},
		Balancer: &outside.Balancer{Vips: func(addresses []netip.Addr) map[string]map[string]string {
			vips := map[string]string{}
			for _, a := range addresses {
				backend := "10.1.0.7:8080"
				if a.Is6() {
					backend = "[fd01::7]:8080"
				}
				vips[netip.AddrPortFrom(a, 80).String()] = backend
			}
			return map[string]map[string]string{"tcp": vips}
		}},
	}
	for _, text := range fixed {
		want.Fixed = append(want.Fixed, netip.MustParseAddr(text))
	}
	return want
}

// acls are the ACLs of outside addresses, sorted.
func (w *world) acls(t *testing.T) string {
	t.Helper()
	var words []string
	for _, row := range w.Dump(t, "ACL") {
		if strings.Contains(fmt.Sprint(row["match"]), "udp.src") { // the guards of a network's switch
			continue
		}
		words = append(words, fmt.Sprint(row["direction"], " ", row["priority"], " ", row["action"], " ", row["match"]))
	}
	slices.Sort(words)
	return strings.Join(words, "\n")
}

// referrers names the routers and switches that refer to the group of outside load balancers.
func (w *world) referrers(t *testing.T) string {
	t.Helper()
	key := ovndb.ServiceGroupKey(nbrows.OutsideScope("shop/r1"))
	var names []string
	for _, table := range []string{"Logical_Router", "Logical_Switch"} {
		for _, row := range w.Dump(t, table) {
			if slices.Contains(ovndbtest.Strings(row["load_balancer_group"]), key) {
				names = append(names, row["name"].(string))
			}
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// TestBalanced: the rows of a Service with outside addresses come, follow, are mended and go, each in one transaction.
func TestBalanced(t *testing.T) {
	w := newWorld(t)
	before := w.Rows(t)["Copp"]
	want := w.service("web", "192.0.2.17", "2001:db8::105")
	if got := w.ensure(t, want, 1); got != "[192.0.2.17 2001:db8::105]" {
		t.Errorf("addresses %s", got)
	}
	w.ensure(t, want, 0)
	key := ovndb.OutsideBalancerKey("shop/r1", "service shop/web", "tcp")
	row := w.Rows(t)["Load_Balancer"][key]
	equal(t, row["name"]+" "+row["vips"], "shop/r1:outside:shop/web:tcp 192.0.2.17:80=10.1.0.7:8080 [2001:db8::105]:80=[fd01::7]:8080")
	equal(t, row["options"], "hairpin_snat_ip=192.0.2.17 2001:db8::105 reject=true")
	equal(t, w.claimsOn(t, "192.0.2.17"), "claimant:service shop/web by router shop/r1=service address; outside-user:service shop/web=")
	equal(t, w.referrers(t), "shop/blue, shop/r1:gateway")
	equal(t, w.acls(t)+w.nats(t), "")

	want.Balancer.Sources = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.7/32")}
	w.ensure(t, want, 1)
	w.ensure(t, want, 0)
	const to = `inport == "shop/r1:provider" && `
	equal(t, w.acls(t), "from-lport 1000 drop "+to+"((ip4.dst == 192.0.2.17 && (tcp || udp || sctp)))\n"+
		"from-lport 1000 drop "+to+"((ip6.dst == 2001:db8::105 && (tcp || udp || sctp)))\n"+
		"from-lport 1001 allow "+to+"((ip4.dst == 192.0.2.17 && (tcp || udp || sctp))) && ip4.src == {198.51.100.0/24, 203.0.113.7/32}")
	// The pods' own addresses are guarded too, in each family. Ports at the same addresses share a list.
	at := func(texts ...string) (list []netip.AddrPort) {
		for _, text := range texts {
			list = append(list, netip.MustParseAddrPort(text))
		}
		return list
	}
	want.Balancer.Inside = map[string][]netip.AddrPort{
		"tcp": at("10.1.0.7:8080", "10.1.0.7:9090", "10.1.0.8:8080", "10.1.0.8:9090", "10.1.0.9:70"), "udp": at("[fd01::7]:53"),
	}
	w.ensure(t, want, 1)
	w.ensure(t, want, 0)
	const inside4 = `(tcp.dst == {8080, 9090} && ip4.dst == {10.1.0.7, 10.1.0.8}) || (tcp.dst == {70} && ip4.dst == {10.1.0.9})`
	equal(t, w.acls(t), "from-lport 1000 drop "+to+"("+inside4+" || (ip4.dst == 192.0.2.17 && (tcp || udp || sctp)))\n"+
		"from-lport 1000 drop "+to+"((udp.dst == {53} && ip6.dst == {fd01::7}) || (ip6.dst == 2001:db8::105 && (tcp || udp || sctp)))\n"+
		"from-lport 1001 allow "+to+"("+inside4+" || (ip4.dst == 192.0.2.17 && (tcp || udp || sctp))) && ip4.src == {198.51.100.0/24, 203.0.113.7/32}")
	// The reconcile passes of gateway and network write nothing, and mend the references.
	w.Proxy.Reset()
	w.configure(t, nbtest.GwFull+pools)
	nbtest.Ensure(t, w.Client, nbtest.Network(t, "blue", nbtest.NetDual+nbtest.OnR1))
	w.WantCommitted(t, 0)
	none := map[string]any{"load_balancer_group": []any{"set", []any{}}}
	w.Change(t, "Logical_Router", nbtest.GwRouter, none)
	w.Change(t, "Logical_Switch", nbtest.BlueKey, none)
	w.configure(t, nbtest.GwFull+pools)
	if _, err := services.New(nbrows.NewStore(w.DB)).EnsureNetwork(nbtest.WithLimit(t), "shop/blue"); err != nil {
		t.Fatal(err)
	}
	equal(t, w.referrers(t), "shop/blue, shop/r1:gateway")
	w.Change(t, "Load_Balancer", key, map[string]any{"vips": ovndbtest.Map(map[string]string{"192.0.2.99:80": ""})})
	w.ensure(t, want, 1)
	equal(t, w.Rows(t)["Load_Balancer"][key]["vips"], row["vips"])

	// A second Service, and nobody has the address of the first one.
	other := w.service("other", "192.0.2.18")
	w.ensure(t, other, 1)
	const inUse = "address 192.0.2.17 on physical network provider, VLAN 42 is in use by service shop/web by router shop/r1 (service address); " +
		"choose another, or delete its holder first"
	w.wantRefused(t, w.service("third", "192.0.2.17"), inUse)
	w.wantRefused(t, w.pod(t, "shop", "a", 7, "192.0.2.17"), inUse)
	w.wantRefused(t, w.service("third"), "namespace shop has 2 IPv4 addresses of pool public of router shop/r1, at most 2 are allowed")
	entries, err := w.outside.List(nbtest.WithLimit(t))
	if err != nil || len(entries) != 2 || entries[0].User.Namespace != "shop" || entries[0].User.Service == "" {
		t.Errorf("entries %v, %v", entries, err)
	}
	w.remove(t, other, 1)
	equal(t, w.referrers(t), "shop/blue, shop/r1:gateway")
	w.remove(t, want, 1)
	w.remove(t, want, 0)
	rows := w.Rows(t)
	delete(rows["Copp"], ovndb.EndedServedKey("router shop/r1"))
	if after := rows["Copp"]; fmt.Sprint(after) != fmt.Sprint(before) || len(rows["Load_Balancer"])+len(rows["Load_Balancer_Group"]) > 0 {
		t.Errorf("rows\n%v\nbecame\n%v\n%v", before, after, rows["Load_Balancer"])
	}
	equal(t, w.acls(t)+w.referrers(t), "")
}

// TestBalancedEnds: with the pool, the grant or the gateway, the outside addresses of a Service end.
func TestBalancedEnds(t *testing.T) {
	for _, end := range []string{"pool", "gateway", "VLAN"} {
		t.Run(end, func(t *testing.T) {
			w := newWorld(t)
			want := w.service("web", "192.0.2.17")
			want.Balancer.Sources = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
			w.ensure(t, want, 1)
			switch end {
			case "pool":
				w.configure(t, nbtest.GwFull)
				want.Router = w.router
				if _, err := w.outside.Ensure(nbtest.WithLimit(t), want); err == nil {
					t.Error("it is not refused")
				}
			case "gateway":
				w.Gateways.Configure(map[string]*netmodel.Router{})
				if err := w.Gateways.DeleteUnused(nbtest.WithLimit(t)); err != nil {
					t.Fatal(err)
				}
			case "VLAN":
				w.configure(t, strings.Replace(nbtest.GwFull, "42", "43", 1)+pools)
			}
			equal(t, w.ours(t)+w.acls(t)+w.referrers(t), "")
			rows := w.Rows(t)
			if len(rows["Load_Balancer"])+len(rows["Load_Balancer_Group"]) > 0 {
				t.Errorf("rows %v %v", rows["Load_Balancer"], rows["Load_Balancer_Group"])
			}
		})
	}
}

// TestNorthdBalanced: the gateway answers for the address and balances, and the switch of the network balances too.
func TestNorthdBalanced(t *testing.T) {
	w := newWorld(t)
	want := w.service("web", "192.0.2.17", "2001:db8::105")
	want.Balancer.Sources = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	w.ensure(t, want, 1)
	w.wantFlows(t, "arp.tpa == 192.0.2.17", "nd.target == 2001:db8::105", "(backends=10.1.0.7:8080",
		"(backends=[fd01::7]:8080", `inport == "shop/r1:provider" && ((ip4.dst == 192.0.2.17`)
}

// TestEmptyOutsideGroup: two controllers each delete one of the last two Services, so neither sees the group empty. The
// pass of a network deletes it.
func TestEmptyOutsideGroup(t *testing.T) {
	w := newWorld(t)
	web, db := w.service("web", "192.0.2.17"), w.service("db", "192.0.2.18")
	db.User.Namespace = "web" // Services of one namespace share a row that each change asserts
	w.ensure(t, web, 1)
	w.remove(t, web, 1) // makes the list of ended connections, which both change
	w.ensure(t, web, 1)
	w.ensure(t, db, 1)
	w.meanwhile(t, "Load_Balancer", func(o *outside.Outside) error {
		_, err := o.Delete(nbtest.WithLimit(t), outside.Key{Router: "shop/r1", User: db.User})
		return err
	})
	if _, err := w.outside.Delete(nbtest.WithLimit(t), outside.Key{Router: "shop/r1", User: web.User}); err != nil {
		t.Fatal(err)
	}
	equal(t, w.referrers(t), "shop/blue, shop/r1:gateway")
	if _, err := services.New(nbrows.NewStore(w.DB)).EnsureNetwork(nbtest.WithLimit(t), "shop/blue"); err != nil {
		t.Fatal(err)
	}
	equal(t, w.referrers(t), "")
	if rows := w.Rows(t)["Load_Balancer_Group"]; len(rows) > 0 {
		t.Errorf("groups %v", rows)
	}
	w.ensure(t, web, 1)
	equal(t, w.referrers(t), "shop/blue, shop/r1:gateway")
}
