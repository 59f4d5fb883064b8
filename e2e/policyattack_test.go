package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// TestBoundaryPolicyNames: a pod is what its namespace and its UID say. Another namespace's pod with the name and the
// labels of a peer is no peer, nor is a new pod with the name and the address of one. All ports of a pod are
// restricted, in each family.
func TestBoundaryPolicyNames(t *testing.T) {
	w := newPeersWorld(t)
	w.ingress(`{podSelector: {matchLabels: {app: web}}}`)
	w.step("another namespace", func(w *peersWorld) {
		twin := w.guest(0, "blues", "same", "default/open", w.same.Labels)
		w.only("tcp/80", w.same)
		w.closed(twin, w.addrs[0], "tcp/80")
		w.End(twin)
	})
	w.step("a new pod of the name", func(w *peersWorld) {
		ips := w.JSON(w.Links(w.same)["net1"].Prefixes())
		w.End(w.same)
		w.same = w.labelled(0, "same", fmt.Sprintf(`[{"name":"open","namespace":"default","ips":%s}]`, ips),
			map[string]string{"app": "other"})
		w.only("tcp/80")
		w.End(w.same)
	})
	w.same = w.labelled(1, "same", "default/open", map[string]string{"app": "web"})
	w.only("tcp/80", w.same)
	w.step("two attachments", func(w *peersWorld) {
		two := w.labelled(0, "two", "default/open,default/open", map[string]string{"app": "db"})
		counts := w.answer(two, 80, 81)
		for _, link := range []string{"net1", "net2"} { // answers would all go out by net1
			for _, to := range w.Links(two)[link].IPs() {
				was := counts.of("udp/80")
				w.Eventually(func() error {
					w.sendUDP(w.red, to, 81, 64)
					w.sendUDP(w.same, to, 80, 64) // from the same node
					if counts.of("udp/80") == was {
						return fmt.Errorf("%s gets nothing from %s at %s", two, w.same, to)
					}
					return nil
				})
			}
		}
		equal(t, "packets of a pod that is no peer", counts.of("udp/81"), 0)
		w.End(two)
	})
	w.step("the other family", func(w *peersWorld) {
		for i, cidr := range []string{"0.0.0.0/0", "::/0"} {
			w.ingress(`{ipBlock: {cidr: "` + cidr + `"}}`)
			w.closed(w.same, w.addrs[1-i], "tcp/80")
			w.allowed(w.red, w.addrs[i], "tcp/80")
			w.denied(w.red, w.addrs[1-i], "udp/80")
		}
	})
	w.over()
}

// datagram is an Ethernet frame with a UDP datagram, from port 68.
func datagram(fromMAC, toMAC string, from, to netip.Addr, port uint16) []byte {
	var sum uint32
	add := func(b []byte) {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	fold := func() uint16 {
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		return ^uint16(sum)
	}
	body := udp(port)
	binary.BigEndian.PutUint16(body, 68)
	header := []byte{0x45, 0, 0, byte(20 + len(body)), 0, 9, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	kind := []byte{0x08, 0x00}
	if to.Is6() {
		header = []byte{0x60, 0, 0, 0, 0, byte(len(body)), unix.IPPROTO_UDP, 64}
		kind = []byte{0x86, 0xdd}
	}
	header = append(append(header, from.AsSlice()...), to.AsSlice()...)
	if to.Is4() {
		add(header)
		binary.BigEndian.PutUint16(header[10:], fold())
		sum = 0
	}
	for _, b := range [][]byte{from.AsSlice(), to.AsSlice(), {0, unix.IPPROTO_UDP}, {0, byte(len(body))}, body} {
		add(b)
	}
	binary.BigEndian.PutUint16(body[6:], fold())
	var frame []byte
	for _, mac := range []string{toMAC, fromMAC} {
		hw, _ := net.ParseMAC(mac)
		frame = append(frame, hw...)
	}
	return append(append(append(frame, kind...), header...), body...)
}

// send sends a frame on an interface, whatever addresses the interface has.
func (w *world) send(from place, link string, frame []byte) {
	w.Must(from.Do(func() error {
		nic, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		return unix.Sendto(s, frame, 0, &unix.SockaddrLinklayer{Ifindex: nic.Index})
	}))
}

// TestBoundaryPolicySpoofing: no packet gets to a restricted pod by another source than the sender's own: a peer's
// addresses, none, or those of DHCP.
func TestBoundaryPolicySpoofing(t *testing.T) {
	w := newPeersWorld(t)
	thief := w.blue
	w.ingress(`{podSelector: {matchLabels: {app: web}}}`)
	w.only("tcp/80", w.same)
	const port, dhcp = 85, 67
	atDB, atRed := w.answer(w.db, port, dhcp), w.answer(w.red, port, dhcp)
	db, peer, own, red := w.Links(w.db)["net1"], w.Links(w.same)["net1"], w.Links(thief)["net1"], w.Links(w.red)["net1"]
	const all4, all6 = "255.255.255.255", "ff02::1"
	addr := netip.MustParseAddr
	allRight := datagram(own.MAC, red.MAC, addr(own.IPs()[0]), addr(red.IPs()[0]), port)
	for i, none := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		right := datagram(peer.MAC, db.MAC, addr(peer.IPs()[i]), addr(db.IPs()[i]), port)
		w.send(w.same, "net1", right)
		for _, mac := range []string{own.MAC, peer.MAC, db.MAC} {
			for _, from := range []netip.Addr{addr(own.IPs()[i]), addr(peer.IPs()[i]), addr(db.IPs()[i]), none} {
				w.send(thief, "net1", datagram(mac, db.MAC, from, addr(db.IPs()[i]), port))
				to, toMAC := addr([]string{all4, all6}[i]), []string{"ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01"}[i]
				w.send(thief, "net1", datagram(mac, toMAC, from, to, dhcp))
			}
		}
	}
	w.Eventually(func() error {
		w.send(thief, "net1", allRight) // after the others
		right, toAll, last := atDB.of("udp/85"), atRed.of("udp/67"), atRed.of("udp/85")
		if right < 2 || toAll < 1 || last < 1 {
			return fmt.Errorf("frames of a peer: %d, of the attacker to all: %d, of the attacker to a pod that is open: %d",
				right, toAll, last)
		}
		return nil
	})
	w.denied(thief, w.addrs[0], "tcp/80")
	equal(t, "frames of a peer at the restricted pod", atDB.of("udp/85"), 2)
	equal(t, "frames for DHCP at the restricted pod", atDB.of("udp/67"), 0)
	w.over()
}

// TestBoundaryPolicyLabels: a pod whose labels change ten times a second costs the pods of another namespace nothing:
// their ADDs have as many transactions as ever, and the index of their policies is not written.
func TestBoundaryPolicyLabels(t *testing.T) {
	t.Parallel()
	c := newCounted(t)
	c.network("default/open", `{"type":"ovn-multinet","subnets":"10.40.0.0/16"}`)
	restless := c.labelled(0, "restless", "default/open", map[string]string{"app": "a"})
	first := c.guest(0, "web", "first", "default/open", nil)
	c.policy("p", "default/open", `{podSelector: {matchLabels: {app: a}}, ingress: [{from: [{namespaceSelector: {}}]}]}`)
	// The restless pod is a peer here: the pass over this policy compares, and writes nothing but members.
	const all = `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`
	theirs := strings.Replace(policyYAML("p", "default/open", all), "namespace: shop", "namespace: web", 1)
	c.Must(c.WriteManifest("policy.web.yaml", theirs))
	c.Must(c.WriteManifest("ns.web.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: web}\n"))
	revision := func(namespace string) string {
		key := ovndb.PolicyKey("default/open", namespace)
		return c.NBCtl("--if-exists", "get", "Copp", key, "external_ids:"+ovndb.PolicyRevisionKey)
	}
	c.Eventually(func() error {
		if revision("web") == "" {
			return errors.New("namespace web has no policies yet")
		}
		return nil
	})
	c.End(first)
	end, ended := make(chan struct{}), make(chan error)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-end:
				ended <- nil
				return
			case <-time.After(100 * time.Millisecond): // the attack's rate
				restless.Labels = map[string]string{"app": string(rune('a' + n%2))}
				if err := restless.WriteManifest(); err != nil {
					ended <- err
					return
				}
			}
		}
	}()
	add := func(i int) ovndbtest.Counts {
		was := revision("shop")
		c.Eventually(func() error { // the labels change in NB all the time
			if revision("shop") == was {
				return errors.New("the labels of the pod do not change")
			}
			return nil
		})
		c.reset()
		p := c.guest(0, "web", fmt.Sprint("web-", i), "default/open", nil)
		n := c.nb.Counts()
		c.End(p)
		return n
	}
	add(0) // reads the policies of its namespace
	index := revision("web")
	for i := range 5 {
		n := add(i + 1)
		equal(t, "ADD in NB: committed, refused, reading", []int{n.Committed, n.Refused, n.ReadOnly}, []int{1, 0, 0})
	}
	equal(t, "revision of the other namespace's policies", revision("web"), index)
	close(end)
	c.Must(<-ended)
	c.Must(c.RemoveManifest(policyManifest("p")))
	c.Must(c.RemoveManifest("policy.web.yaml"))
	c.End(restless)
}
