package e2e

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// The probes of the truth tables are single packets that ask for a new connection: the SYN of TCP, a datagram of UDP, the
// INIT of SCTP. They are made here and sent and received on raw sockets, for two reasons. Each packet has a number, so one
// that comes late still counts for its own table. And Linux may have no module sctp, as in small virtual machines, but the
// packets of SCTP are as real without it. TCP and UDP are answered by the pod's own kernel, SCTP by this file.

// Numbers of the protocols, and the names that Kubernetes has for them.
var protocols = map[string]byte{"TCP": 6, "UDP": 17, "SCTP": 132}

// Flags of TCP (RFC 9293, section 3.1) and types of SCTP's chunks (RFC 9260, section 3.2).
const (
	tcpSYN, tcpACK       = 0x02, 0x10
	sctpInit, sctpInitAK = 1, 2
)

// segment is one packet of a probe above IP.
type segment struct {
	protocol string
	src, dst netip.AddrPort
	number   uint32 // of the probe: TCP's sequence number, UDP's payload, SCTP's initiate tag
	answer   bool
}

// bytes is the segment with its checksum.
func (s segment) bytes() []byte {
	ports := binary.BigEndian.AppendUint16(nil, s.src.Port())
	ports = binary.BigEndian.AppendUint16(ports, s.dst.Port())
	switch s.protocol {
	case "TCP":
		b := append(binary.BigEndian.AppendUint32(ports, s.number), 0, 0, 0, 0, 5<<4, tcpSYN, 0xff, 0xff, 0, 0, 0, 0)
		binary.BigEndian.PutUint16(b[16:], s.checksum(b))
		return b
	case "UDP":
		b := binary.BigEndian.AppendUint32(append(ports, 0, 12, 0, 0), s.number)
		binary.BigEndian.PutUint16(b[6:], s.checksum(b))
		return b
	}
	tag, chunk := uint32(0), []byte{sctpInit, 0, 0, 20}
	if s.answer { // with a state cookie, which INIT ACK must have
		tag, chunk = s.number, []byte{sctpInitAK, 0, 0, 28}
	}
	b := binary.BigEndian.AppendUint32(ports, tag)
	b = append(append(b, 0, 0, 0, 0), chunk...)
	b = binary.BigEndian.AppendUint32(b, s.number)                // the sender's own tag
	b = append(b, 0, 1, 0, 0, 0, 1, 0, 1)                         // window, streams out and in
	if b = binary.BigEndian.AppendUint32(b, s.number); s.answer { // the first TSN
		b = append(b, 0, 7, 0, 8, 'e', '2', 'e', 0)
	}
	// RFC 9260, appendix A: CRC32c, in the byte order that Go calls little.
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// checksum is that of TCP and UDP, over a pseudo header too (RFC 9293, section 3.1; RFC 8200, section 8.1).
func (s segment) checksum(b []byte) uint16 {
	all := append(s.src.Addr().AsSlice(), s.dst.Addr().AsSlice()...)
	all = append(append(all, 0, protocols[s.protocol], 0, byte(len(b))), b...)
	sum := uint32(0)
	for i := 0; i < len(all); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(all[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if s.protocol == "UDP" && sum == 0xffff {
		return 0xffff // 0 is "no checksum"
	}
	return ^uint16(sum)
}

// parse reads what a raw socket got. It is false for what is neither a probe nor an answer, such as TCP's RST.
func parse(protocol string, src, dst netip.Addr, b []byte) (s segment, ok bool) {
	if len(b) < 12 {
		return s, false
	}
	s = segment{protocol: protocol, number: binary.BigEndian.Uint32(b[8:]),
		src: netip.AddrPortFrom(src, binary.BigEndian.Uint16(b)), dst: netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))}
	switch {
	case protocol == "UDP":
		s.answer = s.src.Port() < firstPort
		return s, true
	case protocol == "TCP" && len(b) >= 20:
		s.number = binary.BigEndian.Uint32(b[4:])
		if b[13] == tcpSYN|tcpACK {
			s.answer, s.number = true, binary.BigEndian.Uint32(b[8:])-1
		}
		return s, b[13]&^tcpACK == tcpSYN
	case protocol == "SCTP" && len(b) >= 20:
		s.number = binary.BigEndian.Uint32(b[16:])
		if s.answer = b[12] == sctpInitAK; s.answer {
			s.number = binary.BigEndian.Uint32(b[4:])
		}
		return s, s.answer || b[12] == sctpInit
	}
	return s, false
}

// firstPort is the first port that probes are sent from; the ports that answer are below.
const firstPort = 1024

// prober sends probes between pods and notes which of them have come and which were answered.
type prober struct {
	sockets map[socketKey]*net.IPConn

	mu            sync.Mutex
	number        uint32
	came, replied map[uint32]bool
}

type socketKey struct {
	addr     netip.Addr
	protocol string
}

func newProber() *prober {
	return &prober{sockets: map[socketKey]*net.IPConn{}, came: map[uint32]bool{}, replied: map[uint32]bool{}}
}

// listen makes the sockets of a pod's addresses. They are closed at the end of the test.
func (p *prober) listen(w *world, pod *lab.Pod, addrs []netip.Addr) {
	for _, addr := range addrs {
		for protocol, number := range protocols {
			network := fmt.Sprintf("ip4:%d", number)
			if addr.Is6() {
				network = fmt.Sprintf("ip6:%d", number)
			}
			var c *net.IPConn
			w.Must(pod.Do(func() (err error) {
				c, err = net.ListenIP(network, &net.IPAddr{IP: addr.AsSlice()})
				return err
			}))
			w.T.Cleanup(func() { c.Close() })
			p.sockets[socketKey{addr, protocol}] = c
			go p.receive(c, addr, protocol)
		}
	}
}

func (p *prober) receive(c *net.IPConn, own netip.Addr, protocol string) {
	buffer := make([]byte, 2048)
	for {
		n, from, err := c.ReadFromIP(buffer)
		if err != nil {
			return
		}
		src, _ := netip.AddrFromSlice(from.IP)
		s, ok := parse(protocol, src.Unmap(), own, buffer[:n])
		if !ok {
			continue
		}
		p.mu.Lock()
		if s.answer {
			p.replied[s.number] = true
		} else {
			p.came[s.number] = true
		}
		p.mu.Unlock()
		if protocol == "SCTP" && !s.answer {
			s.src, s.dst, s.answer = s.dst, s.src, true
			_, _ = c.WriteToIP(s.bytes(), from)
		}
	}
}

// send sends one probe and returns its number. The probe's own port is a new one, so no connection is known by it yet.
func (p *prober) send(protocol string, from, to netip.Addr, port int) (uint32, error) {
	p.mu.Lock()
	p.number++
	number := p.number
	p.mu.Unlock()
	s := segment{protocol: protocol, number: number, dst: netip.AddrPortFrom(to, uint16(port)),
		src: netip.AddrPortFrom(from, uint16(firstPort+number%(65536-firstPort)))}
	_, err := p.sockets[socketKey{from, protocol}].WriteToIP(s.bytes(), &net.IPAddr{IP: to.AsSlice()})
	return number, err
}

// arrived reports whether a probe has come to its target, and answered whether the answer has come back.
func (p *prober) arrived(number uint32) bool  { return p.has(p.came, number) }
func (p *prober) answered(number uint32) bool { return p.has(p.replied, number) }

func (p *prober) has(set map[uint32]bool, number uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return set[number]
}
