package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// GeneveCount counts the Geneve packets on a node's NIC of the underlay, in both directions, from its start on.
type GeneveCount struct {
	socket  int
	packets int
}

// CountGeneve starts to count. A packet that was sent is counted at once.
func (n *Node) CountGeneve() (*GeneveCount, error) {
	c := &GeneveCount{socket: -1}
	err := n.Do(func() error {
		nic, err := net.InterfaceByName("eth1")
		if err != nil {
			return err
		}
		// Of no protocol until it is bound: it must not hear the node's other interfaces.
		c.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		return unix.Bind(c.socket, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: nic.Index})
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("count packets of %s: %w", n.Name, err), c.Close())
	}
	return c, nil
}

func networkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// Packets is their number until now.
func (c *GeneveCount) Packets() (int, error) {
	packet := make([]byte, 1<<16)
	for {
		size, _, err := unix.Recvfrom(c.socket, packet, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return c.packets, nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return c.packets, err
		case isGeneve(packet[:size]):
			c.packets++
		}
	}
}

// isGeneve tells whether an Ethernet frame is IPv4's, UDP's and to the port of RFC 8926.
func isGeneve(frame []byte) bool {
	const ethernet, port = 14, 6081
	if len(frame) < ethernet+20 || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IP {
		return false
	}
	ip := frame[ethernet:]
	header := int(ip[0]&0x0f) * 4
	return ip[9] == unix.IPPROTO_UDP && len(ip) >= header+8 && binary.BigEndian.Uint16(ip[header+2:]) == port
}

// Close ends the count.
func (c *GeneveCount) Close() error {
	if c.socket < 0 {
		return nil
	}
	return unix.Close(c.socket)
}
