package wiring

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
)

// The agent's sockets hear answers to its questions and nothing else of what the pod hears, and that stays so. There is
// one for each interface with a Probe.
func TestProbeHearsAnswersOnly(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "net1"}, PeerName: "peer"}
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	peer, err := netlink.LinkByName("peer")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range []netlink.Link{pair, peer} {
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
	}
	plan := &agentapi.Plan{Interfaces: []agentapi.Interface{{Name: "net0"}, {Name: "net1", Probe: &agentapi.Probe{}}}}
	sockets, closeAll, err := OpenProbes("/proc/self/ns/net", plan)
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets %v, %v", sockets, err)
	}
	defer closeAll()
	if err := unix.SetsockoptInt(sockets[0], unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != unix.EPERM {
		t.Errorf("the filter can be removed: %v", err)
	}

	out, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(out)
	frame := func(kind uint16, at map[int]byte) []byte {
		b := make([]byte, 90)
		b[12], b[13] = byte(kind>>8), byte(kind)
		for offset, value := range at {
			b[offset] = value
		}
		return b
	}
	const last = 99 // marks a frame that is heard in any case
	want := ""
	for i, f := range []struct {
		frame []byte
		heard bool
	}{
		{frame(unix.ETH_P_ARP, map[int]byte{21: 1}), false},            // a request
		{frame(unix.ETH_P_ARP, map[int]byte{21: 2}), true},             // a reply
		{frame(unix.ETH_P_IP, map[int]byte{21: 2, 20: 58}), false},     // IPv4
		{frame(unix.ETH_P_IPV6, map[int]byte{20: 58, 54: 135}), false}, // a solicitation
		{frame(unix.ETH_P_IPV6, map[int]byte{20: 58, 54: 136}), true},  // an advertisement
		{frame(unix.ETH_P_IPV6, map[int]byte{20: 17, 54: 136}), false}, // UDP
		{frame(unix.ETH_P_ARP, map[int]byte{21: 2, 89: last}), true},
	} {
		f.frame[80] = byte(i)
		if err := unix.Sendto(out, f.frame, 0, &unix.SockaddrLinklayer{Ifindex: peer.Attrs().Index}); err != nil {
			t.Fatal(err)
		}
		if f.heard {
			want += fmt.Sprint(i, " ")
		}
	}
	got := ""
	for heard := make([]byte, 256); heard[89] != last; {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(sockets[0]), Events: unix.POLLIN}}, -1); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		if n, err := unix.Read(sockets[0], heard); err == nil && n == 90 {
			got += fmt.Sprint(heard[80], " ")
		}
	}
	if got != want {
		t.Errorf("heard frames %q, want %q", got, want)
	}
	if sockets, _, err := OpenProbes("/proc/self/ns/net", &agentapi.Plan{
		Interfaces: []agentapi.Interface{{Name: "none", Probe: &agentapi.Probe{}}},
	}); err == nil || len(sockets) > 0 {
		t.Errorf("an interface that is not there has sockets %v, %v", sockets, err)
	}
}
