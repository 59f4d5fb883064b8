package e2e

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// dhcpNetwork is a network on a router, with routes and all options.
const dhcpNetwork = `{"cniVersion":"1.0.0","name":"vm-net","type":"ovn-multinet","subnets":"10.7.0.0/24,fd07::/64","router":"core","allowPersistentIPs":true,
	"routes":[{"dst":"10.9.0.0/16"},{"dst":"10.8.0.0/24","gw":"10.7.0.9"}],
	"dhcp":{"dns":["10.7.0.53","10.9.0.53","fd07::53"],"domain":"example.org","leaseTime":"2h"}}`

// hears wants that the guest hears these values by DHCP. "-" stands for none.
func (g *guest) hears(family string, want map[string]string) {
	g.w.T.Helper()
	got, err := labtest.Lease(g.w.Ctx, g.Exec, g.w.T.TempDir(), family, "eth0")
	g.w.Must(err)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if has, ok := got[key]; want[key] == "-" && ok || want[key] != "-" && has != want[key] {
			g.w.T.Errorf("%s hears %s %q by dhclient %s, want %q", g, key, has, family, want[key])
		}
	}
	if g.w.T.Failed() {
		g.w.T.Logf("%s heard %q", g, got)
	}
}

// dhcpGuest is the guest of a pod. It has no address but the link-local one of its MAC.
func (w *world) dhcpGuest(p *lab.Pod) *guest {
	w.T.Helper()
	g := w.wiredByKubeVirt(p, w.Links(p)["net1"])
	g.exec("ip", "link", "set", "eth0", "up")
	w.Eventually(func() error { // until its link-local address may be used
		if out := g.exec("ip", "-6", "addr", "show", "dev", "eth0"); !strings.Contains(out, "scope link") || strings.Contains(out, "tentative") {
			return fmt.Errorf("%s has %s", g, out)
		}
		return nil
	})
	return g
}

// dhcpIs waits until NB has this MTU in what DHCP answers on a network.
func (w *world) dhcpIs(network, words string) {
	w.T.Helper()
	w.Eventually(func() error {
		out := w.NBCtl("--bare", "--columns=options", "find", "DHCP_Options", `external_ids:"ovn-multinet/network"="`+network+`"`)
		if !strings.Contains(out, words) {
			return fmt.Errorf("DHCP_Options of %s are %q, want %s", network, out, words)
		}
		return nil
	})
	w.NBCtl("--wait=hv", "sync")
}

// TestDHCP: the guests of virtual machines hear by DHCP and by router advertisements what their ports have, on each network
// with the key dhcp: the address of their port, its routes, the MTU of all pods. Policies do not stop that. A change of the
// key is heard at once, also by machines that ran before. Without a router there is no default route.
func TestDHCP(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, reconciling)
	const plain = `{"cniVersion":"1.0.0","name":"plain","type":"ovn-multinet","subnets":"10.6.0.0/24,fd06::/64"%s}`
	w.network("vms", dhcpNetwork)
	w.network("plain", fmt.Sprintf(plain, ""))
	w.dhcpIs("shop/vms", "mtu=")
	w.Base = w.Snapshot()
	w.Must(w.WriteManifest("claim.yaml", vmClaim))
	vm, neighbour := w.Attached(0, "launcher", vmRequest), w.Attached(1, "neighbour", "vms")
	link := w.Links(vm)["net1"]
	g := w.dhcpGuest(vm)
	mtu := fmt.Sprint(link.MTU)
	v4 := map[string]string{
		"ip_address": link.IPs()[0], "subnet_mask": "255.255.255.0", "routers": "10.7.0.1", "interface_mtu": mtu,
		"domain_name_servers": "10.7.0.53 10.9.0.53", "domain_name": "example.org", "dhcp_lease_time": "7200",
		"dhcp_server_identifier":          "10.7.0.1",
		"host_name":                       "vm",
		"rfc3442_classless_static_routes": "24 10 8 0 10 7 0 9 16 10 9 10 7 0 1 0 10 7 0 1",
	}
	v6 := map[string]string{"ip6_address": link.IPs()[1], "dhcp6_name_servers": "fd07::53"}
	g.hears("-4", v4)
	g.hears("-6", v6)

	w.part("router advertisements", func(t *testing.T, w *world) {
		g.exec("ip", "link", "set", "eth0", "down", "mtu", "9000")
		g.exec("sysctl", "-qw", "net.ipv6.conf.eth0.accept_ra=2")
		g.exec("ip", "link", "set", "eth0", "up") // now it asks for routers
		w.Eventually(func() error {
			got := g.exec("cat", "/proc/sys/net/ipv6/conf/eth0/mtu") + g.exec("ip", "-6", "route", "show", "default")
			if !strings.HasPrefix(got, mtu+"\n") || !strings.Contains(got, "via fe80::858:aff:fe07:1 dev eth0 proto ra") {
				return fmt.Errorf("%s has the MTU and the default route %q, want %s and the gateway", g, got, mtu)
			}
			return nil
		})
		if out := w.Exec(neighbour, "ip", "-6", "route", "show", "default", "dev", "net1"); out != "" {
			t.Errorf("%s took a default route from an advertisement: %s", neighbour, out)
		}
	})
	w.part("a link-local address that is not made from the MAC", func(t *testing.T, w *world) {
		g.w = w
		g.exec("sh", "-ec", "sysctl -qw net.ipv6.conf.eth0.stable_secret=2001:db8::1 net.ipv6.conf.eth0.accept_dad=0; "+
			"ip link set eth0 addrgenmode stable_secret; ip link set eth0 down; ip link set eth0 up")
		own := strings.Fields(g.exec("ip", "-6", "-brief", "addr", "show", "dev", "eth0", "scope", "link"))
		if len(own) != 3 || strings.Contains(own[2], "ff:fe") {
			t.Fatalf("%s has %q, want one address that is not made from its MAC", g, own)
		}
		w.Eventually(func() error { // its solicitation has an answer
			if out := g.exec("ip", "-6", "route", "show", "default"); !strings.Contains(out, "proto ra") {
				return fmt.Errorf("%s has the default route %q", g, out)
			}
			return nil
		})
		g.hears("-6", v6)
		address, _, _ := strings.Cut(own[2], "/")
		w.Eventually(func() error { // neighbour discovery, and echoes to it
			_, err := neighbour.Exec(w.Ctx, "ping", "-6", "-c1", "-W2", address+"%net1")
			return err
		})
		// What it sends from the router's address, or from another pod's, arrives nowhere.
		witness := w.Attached(1, "witness", "vms")
		local := func(p *lab.Pod) (mac net.HardwareAddr, a netip.Addr) {
			mac, err := net.ParseMAC(w.Links(p)["net1"].MAC)
			w.Must(err)
			return mac, conf.LinkLocal(mac)
		}
		heard := w.listenOn(witness, "net1", "udp6", markPort)
		w.Must(heard.SetReadDeadline(time.Now().Add(patience)))
		mac, to := local(witness)
		_, other := local(neighbour)
		g.exec("ip", "neigh", "replace", to.String(), "lladdr", mac.String(), "dev", "eth0", "nud", "permanent")
		for _, from := range []string{"fe80::858:aff:fe07:1", other.String(), address} { // the last one is its own
			g.exec("ip", "addr", "replace", from+"/64", "dev", "eth0", "nodad")
			w.Must(g.Do(func() error {
				c, err := net.DialUDP("udp6", &net.UDPAddr{IP: net.ParseIP(from), Zone: "eth0"}, &net.UDPAddr{IP: to.AsSlice(), Port: markPort, Zone: "eth0"})
				if err == nil {
					_, err = c.Write([]byte(from))
					c.Close()
				}
				return err
			}))
			if from != address {
				g.exec("ip", "addr", "del", from+"/64", "dev", "eth0")
			}
		}
		b := make([]byte, 64)
		n, _, err := heard.ReadFrom(b)
		w.Must(err)
		if string(b[:n]) != address {
			t.Errorf("%s heard %s at %s, which is not its own", witness, g, b[:n])
		}
		w.End(witness)
	})
	w.part("policies that deny all", func(_ *testing.T, w *world) {
		g.w = w
		w.policy("closed", "vms", `{podSelector: {}, policyTypes: [Ingress, Egress]}`)
		w.NBCtl("--wait=hv", "sync")
		w.mustNotReach(neighbour, "net1", link.IPs()[0])
		g.hears("-4", v4)
		g.hears("-6", v6)
		w.Must(w.RemoveManifest(policyManifest("closed")))
	})
	w.part("what is no request reaches nobody", func(t *testing.T, w *world) {
		sender := w.Attached(0, "sender", "vms")
		server, mark := w.listenOn(neighbour, "net1", "udp4", 67), w.listenOn(neighbour, "net1", "udp4", markPort)
		client := w.listenOn(sender, "net1", "udp4", 68)
		for _, port := range []int{67, markPort} {
			_, err := client.WriteTo([]byte("no request"), &net.UDPAddr{IP: net.IPv4bcast, Port: port})
			w.Must(err)
		}
		b := make([]byte, 64)
		w.Must(mark.SetReadDeadline(time.Now().Add(patience)))
		_, _, err := mark.ReadFrom(b) // what was sent later arrives
		w.Must(err)
		w.Must(server.SetReadDeadline(time.Now().Add(100 * time.Millisecond))) // it is there, or never comes
		if n, from, err := server.ReadFrom(b); err == nil {
			t.Errorf("%s got %q from %s", neighbour, b[:n], from)
		}
		w.End(sender)
	})
	w.part("all of ours, and NB, are away", func(_ *testing.T, w *world) {
		g.w = w
		w.Must(w.KillController())
		w.Must(w.Nodes[0].KillAgent())
		w.Must(w.NB.Pause())
		g.hears("-4", v4)
		w.Must(w.NB.Resume())
		w.Must(w.Nodes[0].StartAgent(w.Ctx))
		w.Must(w.StartController(w.Ctx))
	})
	w.part("switched on and off under a machine that runs", func(t *testing.T, w *world) {
		p := w.Attached(1, "plain", "plain")
		other := w.dhcpGuest(p)
		w.network("plain", fmt.Sprintf(plain, `,"dhcp":true`))
		w.dhcpIs("shop/plain", "mtu="+mtu)
		want := map[string]string{"ip_address": w.Links(p)["net1"].IPs()[0], "interface_mtu": mtu, "routers": "-",
			"rfc3442_classless_static_routes": "-", "domain_name_servers": "-", "dhcp_lease_time": "3600"}
		other.hears("-4", want)
		other.hears("-6", map[string]string{"ip6_address": w.Links(p)["net1"].IPs()[1]})
		w.network("plain", fmt.Sprintf(plain, `,"dhcp":{"dns":["10.6.0.53"],"leaseTime":"10m"}`))
		w.dhcpIs("shop/plain", "10.6.0.53")
		want["domain_name_servers"], want["dhcp_lease_time"] = "10.6.0.53", "600"
		other.hears("-4", want)
		w.network("plain", fmt.Sprintf(plain, ""))
		w.NBCtl("--wait=hv", "sync")
		if rows := w.NBCtl("--bare", "--columns=_uuid", "find", "DHCP_Options", `external_ids:"ovn-multinet/network"="shop/plain"`); rows != "" {
			t.Errorf("DHCP_Options of shop/plain are still there: %s", rows)
		}
		w.End(p)
	})
	w.End(vm, neighbour)
	w.Must(w.RemoveManifest("claim.yaml"))
	w.AsBefore()
}
