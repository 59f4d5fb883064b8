package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// routerPair is a network with an address of each family, without and with a virtual MAC, for a pair of routers.
const routerPair = `{"type":"ovn-multinet","router":"/core","subnets":"10.20.0.0/24,fd20::/64","snat":false,
	"routes":[{"dst":"192.0.2.0/24"},{"dst":"2001:db8::/32"},{"dst":"10.21.0.0/24"},{"dst":"fd21::/64"}],
	"virtualAddresses":[{"address":"10.20.0.100","selector":{"app":"router"}},
		{"address":"fd20::100","selector":{"app":"router"}},
		{"address":"10.20.0.101","selector":{"app":"router"},"vrid":51},
		{"address":"fd20::101","selector":{"app":"router"},"vrid":52}],
	"subnetsBehind":[{"subnet":"10.60.0.0/16","via":"10.20.0.100"},{"subnet":"10.61.0.0/16","via":"10.20.0.101"},
		{"subnet":"fd60::/64","via":"fd20::101"}]}`

// virtual are these addresses.
var virtual = []string{"10.20.0.100", "fd20::100", "10.20.0.101", "fd20::101"}

// keepalived runs a real keepalived in a pod, with an instance of VRRP for each address. The first two are by multicast,
// or from one pod to the other; the other two are on virtual MACs.
func (w *world) keepalived(p *lab.Pod, priority int, to ...*lab.Pod) *lab.Process {
	w.T.Helper()
	dir := w.T.TempDir()
	text := "global_defs {\n router_id " + p.Name + "\n vrrp_startup_delay 0\n}\n"
	for i, address := range virtual {
		text += fmt.Sprintf("vrrp_instance v%d {\n interface net1\n state BACKUP\n virtual_router_id %d\n priority %d\n advert_int 1\n",
			i, []int{41, 42, 51, 52}[i], priority)
		if strings.Contains(address, ":") {
			text += " version 3\n"
		}
		if i >= 2 {
			text += fmt.Sprintf(" use_vmac vrrp%d\n vmac_xmit_base\n", i)
		} else if len(to) > 0 {
			text += " unicast_src_ip " + w.Links(p)["net1"].IPs()[i] + "\n unicast_peer {\n  " + w.Links(to[0])["net1"].IPs()[i] + "\n }\n"
		}
		text += " virtual_ipaddress {\n  " + address + "\n }\n}\n"
	}
	conf := filepath.Join(dir, "keepalived.conf")
	w.Must(os.WriteFile(conf, []byte(text), 0o644))
	// A host would set what keepalived's documentation asks of virtual MACs.
	w.Exec(p, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
		"net.ipv4.conf.net1.rp_filter=0", "net.ipv4.conf.net1.arp_ignore=1")
	proc, err := p.Start(w.Ctx, "keepalived", "--dont-fork", "--log-console", "--log-detail", "--vrrp", "--use-file="+conf,
		"--pid="+filepath.Join(dir, "pid"), "--vrrp_pid="+filepath.Join(dir, "vrrp.pid"))
	w.Must(err)
	return proc
}

// has are the virtual addresses that keepalived has given a pod.
func (w *world) has(p *lab.Pod) (list []string) {
	out := w.Exec(p, "ip", "-brief", "addr")
	for _, a := range virtual {
		if strings.Contains(out, " "+a+"/") {
			list = append(list, a)
		}
	}
	return list
}

// master waits until one pod has all virtual addresses, and the others none.
func (w *world) master(p *lab.Pod, others ...*lab.Pod) {
	w.T.Helper()
	w.Eventually(func() error {
		if got := w.has(p); !slices.Equal(got, virtual) {
			return fmt.Errorf("%s has %v, want %v", p, got, virtual)
		}
		for _, other := range others {
			if got := w.has(other); len(got) > 0 {
				return fmt.Errorf("%s has %v as well", other, got)
			}
		}
		return nil
	})
}

// TestVirtualAddresses: two pods have virtual addresses by a real keepalived, one after the other, with their own MACs and
// with virtual ones. They, and hosts behind the pods whose next hops they are, are reached from their network, from another one of the router, and from outside, before and
// after the one that has them ends. VRRP passes between the two under a policy that denies all, and no third pod takes part.
func TestVirtualAddresses(t *testing.T) {
	t.Parallel()
	w := newGatewayWorld(t, gatewayConfig, 0, 1)
	w.gatewayStands(0, 1)
	host := w.outside("host", 42, "192.0.2.9/24", "2001:db8::9/64")
	for _, i := range []string{"20", "21"} {
		w.Must(host.Route(w.Ctx, "10."+i+".0.0/24", "192.0.2.10"))
		w.Must(host.Route(w.Ctx, "fd"+i+"::/64", "2001:db8::10"))
	}
	w.network("pair", routerPair)
	w.network("far", outOf(1, `"snat":false,`))
	router := map[string]string{"app": "router"}
	a, b := w.labelled(0, "router-a", "pair", router), w.labelled(1, "router-b", "pair", router)
	w.hosts(a, hosts[:3]...)
	w.hosts(b, hosts[:3]...)
	third := w.labelled(2, "third", "pair", map[string]string{"app": "third"})
	near, far := w.Attached(2, "near", "pair"), w.Attached(1, "far", `[{"name":"far","default-route":["10.21.0.1","fd21::1"]}]`)

	w.policy("deny", "pair", `{podSelector: {}, policyTypes: [Ingress, Egress]}`)
	own := w.Links(a)["net1"].IPs()
	w.closed(third, own[0], "tcp/80")
	w.keepalived(a, 150)
	second := w.keepalived(b, 100)
	w.master(a)
	// The third pod waits longer than the second one before it takes the addresses.
	alone := w.keepalived(third, 50)
	w.master(third) // as it thinks
	w.master(a, b)
	w.Must(alone.Stop(w.Ctx))
	w.keepalived(third, 250) // from now on it would be preferred
	w.master(third)
	w.master(a, b)
	w.Must(w.RemoveManifest(policyManifest("deny")))
	reached := func(from ...endpoint) {
		t.Helper()
		for _, p := range from {
			w.MustReach(p, virtual...)
		}
		w.MustReach(far, hosts[:3]...)
	}
	reached(near, far, host)
	for i, address := range own { // the protocol stays on the link of the two, whatever it carries
		outside := []string{"192.0.2.9", "2001:db8::9"}[i]
		w.vrrp(far, host, outside, true) // from a network without the key
		w.vrrp(a, host, outside, false)
		w.vrrp(far, a, address, false)
		w.vrrp(near, a, address, false)
	}
	w.End(a)
	w.master(b)
	reached(near, far, host)

	w.policy("deny", "pair", `{podSelector: {}, policyTypes: [Ingress, Egress]}`)
	c := w.labelled(0, "router-c", "pair", router)
	w.hosts(c, hosts[:3]...)
	w.Must(second.Stop(w.Ctx))
	w.keepalived(c, 150, b)
	w.keepalived(b, 100, c)
	w.master(c, b)
	w.master(third)
	w.Must(w.RemoveManifest(policyManifest("deny")))
	reached(near, far, host)

	w.End(b, c, third, near, far)
	w.endNetworks("pair", "far")
	w.asBeforeOutside()
}

// vrrp sends a packet of the protocol, and wants that it arrives or not. An echo shows that the way is there.
func (w *world) vrrp(from, to place, address string, arrives bool) {
	w.T.Helper()
	network := "ip4:112"
	if strings.Contains(address, ":") {
		network = "ip6:112"
	}
	const secret = "not an advertisement"
	var heard net.PacketConn
	w.Must(to.Do(func() (err error) {
		heard, err = net.ListenPacket(network, "")
		return err
	}))
	defer heard.Close()
	w.MustReach(from, address)
	w.Must(from.Do(func() error {
		c, err := net.Dial(network, address)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte(secret))
		return err
	}))
	w.MustReach(from, address)
	wait := time.Second // an echo has passed since
	if arrives {
		wait = 10 * time.Second
	}
	w.Must(heard.SetReadDeadline(time.Now().Add(wait)))
	got, buffer := false, make([]byte, 1500)
	for !got {
		n, _, err := heard.ReadFrom(buffer)
		if err != nil {
			break
		}
		got = string(buffer[:n]) == secret
	}
	if got != arrives {
		w.T.Errorf("protocol 112 from %s to %s: arrives %t, want %t", from, address, got, arrives)
	}
}
