package wiring

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// OpenProbes opens a packet socket on each interface with a Probe, for the agent, which may not open any. The sockets
// receive only ARP replies and neighbour advertisements. The agent gets copies of the sockets: the last one to close a
// packet socket waits for a grace period of the kernel, so that should be the agent, after the ADD.
func OpenProbes(netns string, p *agentapi.Plan) (sockets []int, closeAll func(), err error) {
	closeAll = func() {
		for _, fd := range sockets {
			_ = unix.Close(fd)
		}
	}
	var names []string
	for i := range p.Interfaces {
		if p.Interfaces[i].Probe != nil {
			names = append(names, p.Interfaces[i].Name)
		}
	}
	if len(names) == 0 {
		return nil, closeAll, nil
	}
	pod, err := ns.GetNS(netns)
	if err != nil {
		return nil, closeAll, err
	}
	defer pod.Close()
	err = pod.Do(func(ns.NetNS) error {
		for _, name := range names {
			fd, err := openProbe(name)
			if err != nil {
				return fmt.Errorf("interface %s: socket for address probes: %w", name, err)
			}
			sockets = append(sockets, fd)
		}
		return nil
	})
	if err != nil {
		closeAll()
		sockets = nil
	}
	return sockets, closeAll, err
}

func openProbe(name string) (fd int, err error) {
	index, err := linkIndex(name)
	if err != nil {
		return 0, err
	}
	// The socket gets its protocol by Bind: until then it receives nothing, of no interface.
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	program := unix.SockFprog{Len: uint16(len(answersOnly)), Filter: &answersOnly[0]}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: index})
	}
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// networkOrder is the number with its bytes as they are on the network.
func networkOrder(n uint16) uint16 {
	bytes := [2]byte{byte(n >> 8), byte(n)}
	return *(*uint16)(unsafe.Pointer(&bytes))
}

// The instructions of socket filters.
const (
	loadHalf = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
	loadWord = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	loadByte = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
	ifEqual  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	accept   = unix.BPF_RET | unix.BPF_K
)

// answersOnly lets ARP replies and ICMPv6 neighbour advertisements through, by their offsets in an Ethernet frame.
var answersOnly = []unix.SockFilter{
	{Code: loadHalf, K: 12},
	{Code: ifEqual, K: unix.ETH_P_ARP, Jf: 2},
	{Code: loadHalf, K: 20},
	{Code: ifEqual, K: 2, Jt: 5, Jf: 6}, // the operation: a reply
	{Code: ifEqual, K: unix.ETH_P_IPV6, Jf: 5},
	{Code: loadByte, K: 20},
	{Code: ifEqual, K: unix.IPPROTO_ICMPV6, Jf: 3},
	{Code: loadByte, K: 54},
	{Code: ifEqual, K: 136, Jf: 1}, // the type: an advertisement
	{Code: accept, K: 256},
	{Code: accept, K: 0},
}
