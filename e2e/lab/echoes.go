package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Echo is a request of ICMP or ICMPv6 for an echo, as it came.
type Echo struct {
	From, To netip.Addr
	VLAN     int // of its tag; 0 for none
}

// Capture has the echo requests that came in by an interface, from its start on.
type Capture struct {
	socket int

	mu     sync.Mutex
	echoes []Echo
}

// capture starts to capture. What has been answered was captured before.
func capture(netns, link string) (*Capture, error) {
	c := &Capture{socket: -1}
	err := inNetNS(netns, func() error {
		nic, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		// Of no protocol until it is bound: it must not hear the namespace's other interfaces.
		c.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		// The kernel takes the tag out of a frame and tells it beside.
		if err := unix.SetsockoptInt(c.socket, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
			return err
		}
		return unix.Bind(c.socket, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: nic.Index})
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture on %s of %s: %w", link, netns, err), c.Close())
	}
	return c, nil
}

// Echoes are the requests that came until now, in order.
func (c *Capture) Echoes() ([]Echo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	frame, beside := make([]byte, 1<<16), make([]byte, 256)
	for {
		size, more, _, from, err := unix.Recvmsg(c.socket, frame, beside, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return slices.Clone(c.echoes), nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		}
		if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if echo, ok := echoOf(frame[:size], tagBeside(beside[:more])); ok {
			c.echoes = append(c.echoes, echo)
		}
	}
}

// Sources are the addresses that the requests came from until now, each once, sorted.
func (c *Capture) Sources() ([]netip.Addr, error) {
	echoes, err := c.Echoes()
	var all []netip.Addr
	for _, e := range echoes {
		all = append(all, e.From)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), err
}

// Close ends the capture.
func (c *Capture) Close() error {
	if c.socket < 0 {
		return nil
	}
	return unix.Close(c.socket)
}

// tagBeside is the VLAN that the kernel tells beside a frame, 0 for none.
func tagBeside(control []byte) int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA ||
			len(m.Data) < int(unsafe.Sizeof(unix.TpacketAuxdata{})) {
			continue
		}
		aux := (*unix.TpacketAuxdata)(unsafe.Pointer(&m.Data[0]))
		if aux.Status&unix.TP_STATUS_VLAN_VALID != 0 {
			return int(aux.Vlan_tci & vlanMask)
		}
	}
	return 0
}

const vlanMask = 0x0fff

// echoOf reads an Ethernet frame that may have its tag still in it. Extension headers are not looked behind: an echo
// request has none here.
func echoOf(frame []byte, vlan int) (Echo, bool) {
	const addresses, tag = 12, 4
	if len(frame) < addresses+2 {
		return Echo{}, false
	}
	if binary.BigEndian.Uint16(frame[addresses:]) == unix.ETH_P_8021Q && len(frame) >= addresses+tag+2 {
		vlan = int(binary.BigEndian.Uint16(frame[addresses+2:]) & vlanMask)
		frame = frame[tag:]
	}
	packet := frame[addresses+2:]
	switch binary.BigEndian.Uint16(frame[addresses:]) {
	case unix.ETH_P_IP:
		const request = 8
		if len(packet) < 20 || packet[9] != unix.IPPROTO_ICMP {
			return Echo{}, false
		}
		header := int(packet[0]&0x0f) * 4
		if len(packet) <= header || packet[header] != request {
			return Echo{}, false
		}
		return Echo{netip.AddrFrom4([4]byte(packet[12:])), netip.AddrFrom4([4]byte(packet[16:])), vlan}, true
	case unix.ETH_P_IPV6:
		const header, request = 40, 128
		if len(packet) <= header || packet[6] != unix.IPPROTO_ICMPV6 || packet[header] != request {
			return Echo{}, false
		}
		return Echo{netip.AddrFrom16([16]byte(packet[8:])), netip.AddrFrom16([16]byte(packet[24:])), vlan}, true
	}
	return Echo{}, false
}
