package linkmtu

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inNewNetns runs f in a network namespace of its own. The thread ends with its goroutine, and the namespace with it.
func inNewNetns(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func addVeth(name string, mtu int, addrs ...string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	link := &netlink.Veth{LinkAttrs: attrs, PeerName: name + "p"}
	if err := netlink.LinkAdd(link); err != nil {
		return err
	}
	for _, text := range addrs {
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

// TestMTU: the MTU is that of the interface with the address, and the work does not grow with the interfaces of
// the node, of which each pod has some.
func TestMTU(t *testing.T) {
	mtus := map[string]int{"192.0.2.1": 1450, "2001:db8::1": 1450, "192.0.2.130": 1300, "127.0.0.1": 65536,
		"192.0.2.250": 1200}
	inNewNetns(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		if err := addVeth("one", 1450, "192.0.2.1/25", "2001:db8::1/64"); err != nil {
			return err
		}
		if err := addVeth("two", 1300, "192.0.2.130/25"); err != nil {
			return err
		}
		if err := addVeth("down", 1200, "192.0.2.250/32"); err != nil {
			return err
		}
		down, err := netlink.LinkByName("down")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(down); err != nil {
			return err
		}
		for text, mtu := range mtus {
			if got, err := OfAddress(netip.MustParseAddr(text)); got != mtu || err != nil {
				t.Errorf("%s: %d, %v, want %d", text, got, err, mtu)
			}
		}
		for _, text := range []string{"192.0.2.2", "198.51.100.1", "2001:db8::2", "2001:db8:1::1"} {
			_, err := OfAddress(netip.MustParseAddr(text))
			if !errors.Is(err, ErrNoInterface) {
				t.Errorf("%s: %v", text, err)
			}
		}
		if got, err := OfInterface("two"); got != 1300 || err != nil {
			t.Errorf("interface two: %d, %v", got, err)
		}
		if got, err := OfInterface("three"); err == nil {
			t.Errorf("interface three, which does not exist: %d", got)
		}
		few := allocs()
		for i := range 200 {
			if err := addVeth(fmt.Sprintf("v%d", i), 1400); err != nil {
				return err
			}
		}
		if many := allocs(); many > few+2 {
			t.Errorf("%v allocations beside 400 more interfaces, %v without", many, few)
		}
		return nil
	})
}

// allocs counts the allocations of both functions. Garbage collection may add one.
func allocs() float64 {
	return testing.AllocsPerRun(20, func() {
		_, _ = OfAddress(netip.MustParseAddr("192.0.2.1"))
		_, _ = OfInterface("two")
	})
}
