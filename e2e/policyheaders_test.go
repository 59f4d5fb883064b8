package e2e

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// The protocol numbers of IPv6 extension headers (RFC 8200, section 4).
const (
	hopByHop    = 0
	routing     = 43
	destination = 60
)

// extensions are chains of extension headers, by their numbers in order. Each header is 8 bytes long and has options that
// receivers skip; a fragment header has a whole datagram behind it (RFC 6946).
var extensions = [][]byte{
	{hopByHop}, {destination}, {routing}, {unix.IPPROTO_FRAGMENT}, {destination, destination, destination},
	{hopByHop, destination, routing, unix.IPPROTO_FRAGMENT, destination}, {unix.IPPROTO_FRAGMENT, destination},
}

// packetWith is an IPv6 packet with a UDP datagram behind extension headers.
func packetWith(from, to netip.Addr, source, port uint16, headers []byte) []byte {
	datagram := udp(port)
	binary.BigEndian.PutUint16(datagram, source)
	sum := uint32(len(datagram)) + unix.IPPROTO_UDP
	for _, part := range [][]byte{from.AsSlice(), to.AsSlice(), datagram} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(datagram[6:], ^uint16(sum))
	kinds := append(slices.Clone(headers), unix.IPPROTO_UDP)
	packet := []byte{0x60, 0, 0, 0, 0, 0, kinds[0], 64}
	binary.BigEndian.PutUint16(packet[4:], uint16(8*len(headers)+len(datagram)))
	packet = slices.Concat(packet, from.AsSlice(), to.AsSlice())
	for i, kind := range headers {
		body := []byte{kinds[i+1], 0, 1, 4, 0, 0, 0, 0} // PadN of 6 bytes
		switch kind {
		case routing:
			body = []byte{kinds[i+1], 0, 253, 0, 0, 0, 0, 0} // an experiment's type, which has no address left
		case unix.IPPROTO_FRAGMENT:
			body = []byte{kinds[i+1], 0, 0, 0, 0, 0, 0, byte(i + 1)}
		}
		packet = append(packet, body...)
	}
	return append(packet, datagram...)
}

// TestPolicyExtensionHeaders: no chain of IPv6 extension headers gets a datagram past a policy, neither past rules that
// allow other ports alone, nor past a Deny for the port.
func TestPolicyExtensionHeaders(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	const closed = 82
	near, far := w.app(0, "near", "green", "other"), w.app(1, "far", "green", "other")
	pods := []*lab.Pod{near, far}
	for _, name := range []string{"db", "free"} {
		p := w.app(0, name, "green", name)
		to := netip.MustParseAddr(w.Links(p)["net1"].IPs()[1])
		counts := w.answer(p, closed)
		send := func(sender *lab.Pod, source uint16, headers []byte) {
			own := netip.MustParseAddr(w.Links(sender)["net1"].IPs()[1])
			w.Must(sender.Do(func() error {
				s, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
				if err != nil {
					return err
				}
				defer unix.Close(s)
				return unix.Sendto(s, packetWith(own, to, source, closed, headers), 0, &unix.SockaddrInet6{Addr: to.As16()})
			}))
		}
		for _, sender := range []*lab.Pod{near, far} { // without a policy they come
			w.allowed(sender, to.String(), "udp/80")
			for _, headers := range extensions {
				before := counts.of("udp/82")
				w.Eventually(func() error {
					send(sender, 9, headers)
					if counts.of("udp/82") == before {
						return fmt.Errorf("a datagram behind the headers %v does not come without a policy", headers)
					}
					return nil
				})
			}
		}
		if name == "db" {
			w.policy("allow", "green", `{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{protocol: UDP, port: 80}]}]}`)
		} else {
			w.clusterPolicy("deny", "shop/green", `{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {}}},
  ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: 82}}}]}]}`)
			w.clusterPolicyIs("deny", `"ready": true`)
		}
		for _, sender := range []*lab.Pod{near, far} {
			w.Eventually(func() error { // the policy is ready when NB has it
				answered, err := probe(sender, to.String(), "udp/82")
				if err == nil && answered {
					err = fmt.Errorf("%s reaches port 82 of %s", sender, to)
				}
				return err
			})
			w.allowed(sender, to.String(), "udp/80")
		}
		before := counts.of("udp/82")
		for _, sender := range []*lab.Pod{near, far} {
			for range 3 {
				for _, headers := range extensions {
					send(sender, 10, headers) // not a connection from before the policy
				}
			}
			w.allowed(sender, to.String(), "udp/80") // what was sent before is not on its way any more
		}
		equal(t, "datagrams behind extension headers at a port that "+name+"'s policy denies", counts.of("udp/82")-before, 0)
		pods = append(pods, p)
	}
	w.remove("allow", "deny")
	w.Over(pods...)
}
