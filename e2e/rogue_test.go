package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// rogueConfig allows the pods of namespace shop to be DHCP servers, if they ask for it.
const rogueConfig = `portSecurityOff: {namespaces: [shop]}
securityProfiles:
  dhcp-server: {portGroup: ovnmultinet_dhcp_servers, namespaces: [shop]}
`

// dhcpPorts are the ports of server and client.
var dhcpPorts = map[string][2]int{"udp4": {67, 68}, "udp6": {547, 546}}

// markPort is the port from which a server says that it has answered.
const markPort = 6700

// listenOn listens on a port of one interface of a pod. It may send to all.
func (w *world) listenOn(p place, link, family string, port int) (c net.PacketConn) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if wrong := c.Control(func(fd uintptr) {
			if err = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, link); err == nil {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
			}
		}); wrong != nil {
			return wrong
		}
		return err
	}}
	w.Must(p.Do(func() (err error) {
		c, err = config.ListenPacket(context.Background(), family, fmt.Sprint(":", port))
		if err != nil || family == "udp4" {
			return err
		}
		nic, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			return err
		}
		all := netip.MustParseAddr("ff02::1:2").As16()
		if wrong := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
				&unix.IPv6Mreq{Multiaddr: all, Interface: uint32(nic.Index)})
		}); wrong != nil {
			return wrong
		}
		return err
	}))
	w.T.Cleanup(func() { c.Close() })
	return c
}

// serveDHCP makes a pod answer what clients ask all servers, by its interface net1: an offer to the client and, in IPv4,
// to all. After that it sends the client a mark from another port.
func (w *world) serveDHCP(p *lab.Pod) {
	for family, ports := range dhcpPorts {
		server, mark := w.listenOn(p, "net1", family, ports[0]), w.listenOn(p, "net1", family, markPort)
		go func() {
			b := make([]byte, 64)
			for {
				n, from, err := server.ReadFrom(b)
				if err != nil {
					return
				}
				if family == "udp4" {
					_, _ = server.WriteTo([]byte("offer"), &net.UDPAddr{IP: net.IPv4bcast, Port: ports[1]})
				}
				_, _ = server.WriteTo([]byte("offer"), from)
				_, _ = mark.WriteTo(b[:n], from)
			}
		}()
	}
}

// dhcpClient is a pod that asks all servers.
type dhcpClient struct {
	w      *world
	sock   net.PacketConn
	to     net.Addr
	mu     sync.Mutex
	offers map[string]int // by the source port
	marks  map[string]bool
	asked  int
}

func (w *world) dhcpClient(p *lab.Pod, family string) *dhcpClient {
	ports := dhcpPorts[family]
	c := &dhcpClient{w: w, sock: w.listenOn(p, "net1", family, ports[1]), offers: map[string]int{}, marks: map[string]bool{}}
	c.to = &net.UDPAddr{IP: net.IPv4bcast, Port: ports[0]}
	if family == "udp6" {
		c.to = &net.UDPAddr{IP: net.ParseIP("ff02::1:2"), Port: ports[0], Zone: fmt.Sprint(w.index(p, "net1"))}
	}
	go func() {
		b := make([]byte, 64)
		for {
			n, _, err := c.sock.ReadFrom(b)
			if err != nil {
				return
			}
			c.mu.Lock()
			if text := string(b[:n]); strings.HasPrefix(text, "discover") {
				c.marks[text] = true
			} else {
				c.offers[text]++
			}
			c.mu.Unlock()
		}
	}()
	return c
}

// serverAddr is where a DHCP server in a pod listens.
func (w *world) serverAddr(p *lab.Pod, family string) net.Addr {
	i := map[string]int{"udp4": 0, "udp6": 1}[family]
	return &net.UDPAddr{IP: net.ParseIP(w.Links(p)["net1"].IPs()[i]), Port: dhcpPorts[family][0]}
}

// index is the number of a pod's interface.
func (w *world) index(p *lab.Pod, link string) (index int) {
	w.Must(p.Do(func() error {
		nic, err := net.InterfaceByName(link)
		if err == nil {
			index = nic.Index
		}
		return err
	}))
	return index
}

// ask asks until a server has marked several questions, and returns the number of offers.
func (c *dhcpClient) ask() int {
	const rounds = 4 // an offer may come after its mark, but not after the marks of three further rounds
	for range rounds {
		c.asked++
		text := fmt.Sprintf("discover %d %d", c.asked, time.Now().UnixNano())
		c.w.Eventually(func() error {
			_, err := c.sock.WriteTo([]byte(text), c.to)
			c.mu.Lock()
			defer c.mu.Unlock()
			if err == nil && !c.marks[text] {
				err = fmt.Errorf("no server has got %q", text)
			}
			return err
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.offers["offer"]
	clear(c.offers)
	return got
}

// rogueNetworks are networks of each kind.
var rogueNetworks = map[string]string{
	"flat":   `{"type":"ovn-multinet","subnets":"10.51.0.0/24,fd51::/64"}`,
	"loose":  `{"type":"ovn-multinet","subnets":"10.52.0.0/24,fd52::/64","portSecurity":false}`,
	"routed": `{"type":"ovn-multinet","subnets":"10.53.0.0/24,fd53::/64","router":"main"}`,
	"spread": `{"type":"ovn-multinet","topology":"layer3","router":"main","subnets":"10.54.0.0/16/24,fd54::/48/64"}`,
}

// TestBoundaryRogueDHCP: no pod answers another pod as a DHCP server, on a network of any kind, with and without policies, unless
// the operator has allowed it. What a policy allows does not lift this.
func TestBoundaryRogueDHCP(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) { controllerConfig(t, l, rogueConfig) })
	for name, config := range rogueNetworks {
		w.network(name, config)
	}
	for name := range rogueNetworks {
		w.part(name, func(t *testing.T, w *world) {
			at := 1
			if name == "spread" { // a node's pods are alone on their switch
				at = 0
			}
			client := w.Attached(0, "client", name)
			rogue := w.labelled(at, "rogue", name, map[string]string{"app": "rogue"})
			w.serveDHCP(rogue)
			for family := range dhcpPorts {
				c := w.dhcpClient(client, family)
				equal(t, family+" offers of a pod", c.ask(), 0)
				if name == "flat" {
					w.policy("all", name, `{podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}`)
					w.NBCtl("--wait=hv", "sync")
					equal(t, family+" offers of a pod whose policy allows all", c.ask(), 0)
					all := c.to
					c.to = w.serverAddr(rogue, family) // OVN tracks this, and lets replies pass
					equal(t, family+" replies of a pod whose policy allows all", c.ask(), 0)
					c.to = all
					w.Must(w.RemoveManifest(policyManifest("all")))
				}
			}
			w.End(rogue)
			granted := w.Attached(at, "granted",
				fmt.Sprintf(`[{"name":%q,"cni-args":{"securityProfiles":["dhcp-server"]}}]`, name))
			w.serveDHCP(granted)
			other := w.Attached(0, "other", name)
			for family := range dhcpPorts {
				if w.dhcpClient(other, family).ask() == 0 {
					t.Errorf("no %s offers of a pod that may", family)
				}
			}
			w.End(client, granted, other)
		})
	}
	w.endNetworks("flat", "loose", "routed", "spread")
}

// udp6 is a UDP datagram to a pod's DHCPv6 client behind extension headers, in one Ethernet frame or in two fragments.
func udp6(from lab.Link, toMAC string, dst netip.Addr, source uint16, text, headers string) (frames [][]byte) {
	mac := func(s string) net.HardwareAddr { hw, _ := net.ParseMAC(s); return hw }
	src := netip.MustParseAddr(from.IPs()[1])
	body := binary.BigEndian.AppendUint16(nil, source)
	body = binary.BigEndian.AppendUint16(body, 546)
	body = append(binary.BigEndian.AppendUint16(body, uint16(8+len(text))), 0, 0)
	body = append(body, text...)
	var sum uint32
	for _, b := range [][]byte{src.AsSlice(), dst.AsSlice(), {0, unix.IPPROTO_UDP, 0, byte(len(body))}, body} {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(body[6:], ^uint16(sum))
	frame := func(next byte, payload []byte) []byte {
		f := append(append(append([]byte{}, mac(toMAC)...), mac(from.MAC)...), 0x86, 0xdd)
		f = append(f, 0x60, 0, 0, 0, 0, byte(len(payload)), next, 64)
		return append(append(append(f, src.AsSlice()...), dst.AsSlice()...), payload...)
	}
	options := []byte{unix.IPPROTO_UDP, 0, 1, 4, 0, 0, 0, 0} // a PadN option
	switch headers {
	case "hop-by-hop":
		return [][]byte{frame(unix.IPPROTO_HOPOPTS, append(options, body...))}
	case "destination":
		return [][]byte{frame(unix.IPPROTO_DSTOPTS, append(options, body...))}
	case "fragments":
		first := append([]byte{unix.IPPROTO_UDP, 0, 0, 1, 0, 0, 0, byte(source)}, body[:16]...)
		second := append([]byte{unix.IPPROTO_UDP, 0, 0, 16, 0, 0, 0, byte(source)}, body[16:]...)
		return [][]byte{frame(unix.IPPROTO_FRAGMENT, first), frame(unix.IPPROTO_FRAGMENT, second)}
	}
	return [][]byte{frame(unix.IPPROTO_UDP, body)}
}

// TestRogueDHCPHeaders: extension headers do not hide the port that a pod sends from, and fragments do not at the address
// that a DHCPv6 client asks from. From another port the same headers pass.
func TestRogueDHCPHeaders(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("flat", rogueNetworks["flat"])
	victim, rogue := w.Attached(0, "victim", "flat"), w.Attached(1, "rogue", "flat")
	c := w.dhcpClient(victim, "udp6")
	from, to := w.Links(rogue)["net1"], w.Links(victim)["net1"]
	mac, err := net.ParseMAC(to.MAC)
	w.Must(err)
	global, local := netip.MustParseAddr(to.IPs()[1]), conf.LinkLocal(mac)
	for _, headers := range []string{"none", "hop-by-hop", "destination", "fragments"} {
		send := func(dst netip.Addr, port uint16, text, headers string) {
			for _, frame := range udp6(from, to.MAC, dst, port, text, headers) {
				w.send(rogue, "net1", frame)
			}
		}
		for i := range 4 { // an offer may come after a mark, but not after those of three further rounds
			mark := fmt.Sprintf("discover by %-12s %d", headers, i)
			w.Eventually(func() error {
				send(local, 547, "offer "+mark, headers)
				if headers != "fragments" { // OVN sees no ports of these: those to other addresses pass
					send(global, 547, "offer "+mark, headers)
				}
				send(global, markPort, mark, headers)
				c.mu.Lock()
				defer c.mu.Unlock()
				if !c.marks[mark] {
					return fmt.Errorf("nothing comes with headers %q", headers)
				}
				return nil
			})
		}
	}
	c.mu.Lock()
	equal(t, "offers of a pod", slices.Sorted(maps.Keys(c.offers)), nil)
	c.mu.Unlock()
	w.End(victim, rogue)
	w.endNetworks("flat")
}

// TestRouterAdvertisements: OVN lets router advertisements of pods pass whatever ACLs say, on a switch without stateful
// ACLs and on one with a policy that denies all. docs/policy.md says so. When OVN drops one, this test should become one
// of a guard.
func TestRouterAdvertisements(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) { controllerConfig(t, l, rogueConfig) })
	w.network("flat", rogueNetworks["flat"])
	victim := w.Attached(0, "victim", "flat")
	rogue := w.labelled(1, "rogue", "flat", map[string]string{"app": "rogue"})
	mac, err := net.ParseMAC(w.Links(rogue)["net1"].MAC)
	w.Must(err)
	w.Exec(victim, "sysctl", "-qw", "net.ipv6.conf.net1.accept_ra=2", "net.ipv6.conf.net1.autoconf=1")
	prefixes := 0
	accepted := func(what string) {
		w.NBCtl("--wait=hv", "sync")
		prefixes++
		prefix := netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::", prefixes))
		body := []byte{134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // of no default route
		body = append(body, 3, 4, 64, 0xc0, 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0, 0)
		body = append(body, prefix.AsSlice()...)
		frame := icmp6(mac, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, conf.LinkLocal(mac), netip.MustParseAddr("ff02::1"), body)
		w.Eventually(func() error {
			if w.send(rogue, "net1", frame); !w.hasPrefix(victim, prefix) {
				return fmt.Errorf("%s: the pod has no address of prefix %s", what, prefix)
			}
			return nil
		})
	}
	for _, direction := range []string{"from-lport", "to-lport"} {
		w.NBCtl("acl-add", "shop/flat", direction, "32767", "icmp6.type == 134", "drop")
	}
	w.NBCtl("--apply-after-lb", "acl-add", "shop/flat", "from-lport", "32766", "icmp6.type == 134", "drop")
	accepted("ACLs without policies")
	w.policy("none", "flat", `{podSelector: {}, policyTypes: [Ingress, Egress]}`)
	accepted("ACLs and a policy that denies all")
	w.Must(w.RemoveManifest(policyManifest("none")))
	w.End(victim, rogue)
	w.endNetworks("flat")
}

// hasPrefix reports whether a pod has made itself an address of a prefix.
func (w *world) hasPrefix(p *lab.Pod, prefix netip.Addr) bool {
	out := w.Exec(p, "ip", "-6", "addr", "show", "dev", "net1")
	return strings.Contains(out, strings.TrimSuffix(prefix.String(), "::")+":")
}

// TestRogueDHCPUpgrade: a switch as an older version has made it gets the ACLs when the controller starts, and running
// pods do not notice.
func TestRogueDHCPUpgrade(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	client, rogue := w.Attached(0, "client", "green"), w.Attached(1, "rogue", "green")
	w.serveDHCP(rogue)
	c := w.dhcpClient(client, "udp4")
	w.NBCtl("--wait=hv", "clear", "Logical_Switch", "shop/green", "acls")
	if c.ask() == 0 {
		t.Error("no offers on a switch of an older version")
	}
	running := w.pinging(client, w.Links(rogue)["net1"].IPs()[1])
	w.Must(w.StopController(w.Ctx))
	w.Must(w.StartController(w.Ctx))
	w.Eventually(func() error {
		if got := c.ask(); got > 0 {
			return fmt.Errorf("%d offers after the upgrade", got)
		}
		return nil
	})
	running.stop()
	w.End(client, rogue)
	w.AsBefore()
}
