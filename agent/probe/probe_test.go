package probe

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	own   = mac("0a:58:0a:32:00:4d")
	other = mac("02:00:00:00:00:09")
	v4    = netip.MustParseAddr("10.50.0.77")
	v6    = netip.MustParseAddr("fd50::77")
)

func mac(text string) net.HardwareAddr {
	m, err := net.ParseMAC(text)
	if err != nil {
		panic(err)
	}
	return m
}

func bytesOf(t *testing.T, words ...string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(strings.Join(words, "")), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The frames are written by hand from the RFCs.
func TestFrames(t *testing.T) {
	for _, tt := range []struct {
		name      string
		got, want []byte
	}{
		{"ARP probe", question(own, v4), bytesOf(t,
			"ffffffffffff 0a580a32004d 0806 0001 0800 06 04 0001 0a580a32004d 00000000 000000000000 0a32004d")},
		{"ARP announcement", announcement(own, v4), bytesOf(t,
			"ffffffffffff 0a580a32004d 0806 0001 0800 06 04 0001 0a580a32004d 0a32004d 000000000000 0a32004d")},
		{"neighbour solicitation", question(own, v6), bytesOf(t, "3333ff000077 0a580a32004d 86dd 60000000 0018 3a ff",
			"00000000000000000000000000000000 ff0200000000000000000001ff000077",
			"87 00 7c69 00000000 fd500000000000000000000000000077")},
		{"neighbour advertisement", announcement(own, v6), bytesOf(t, "333300000001 0a580a32004d 86dd 60000000 0020 3a ff",
			"fd500000000000000000000000000077 ff020000000000000000000000000001",
			"88 00 4639 20000000 fd500000000000000000000000000077 02 01 0a580a32004d")},
	} {
		if !bytes.Equal(tt.got, tt.want) {
			t.Errorf("%s:\ngot  %x\nwant %x", tt.name, tt.got, tt.want)
		}
	}
}

// arp writes an ARP message for Ethernet and IPv4.
func arp(op byte, sender net.HardwareAddr, from string, target net.HardwareAddr, to string) []byte {
	b := append(header(broadcast, sender, etherARP), 0, 1, 8, 0, 6, 4, 0, op)
	b = append(append(b, sender...), netip.MustParseAddr(from).AsSlice()...)
	return append(append(b, target...), netip.MustParseAddr(to).AsSlice()...)
}

// na writes a neighbour advertisement with a target link-layer address.
func na(sender net.HardwareAddr, hops, kind byte, target netip.Addr, option ...byte) []byte {
	b := append(header(mac("33:33:00:00:00:01"), sender, etherIPv6), 0x60, 0, 0, 0, 0, byte(24+len(option)), icmpv6, hops)
	b = append(b, target.AsSlice()...)
	b = append(b, netip.MustParseAddr("ff02::1").AsSlice()...)
	b = append(b, kind, 0, 0, 0, 0x20, 0, 0, 0)
	return append(append(b, target.AsSlice()...), option...)
}

func tlla(m net.HardwareAddr) []byte { return append([]byte{targetMAC, 1}, m...) }

var zero = make(net.HardwareAddr, 6)

// What counts is an answer to us, and not what hosts say of themselves: their announcements, and questions.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"ARP reply", arp(arpReply, other, "10.50.0.77", own, "0.0.0.0"), "10.50.0.77 02:00:00:00:00:09"},
		{"ARP reply, padded", append(arp(arpReply, other, "10.50.0.77", own, "0.0.0.0"), make([]byte, 18)...), "10.50.0.77 02:00:00:00:00:09"},
		{"ARP reply to another host", arp(arpReply, other, "10.50.0.77", mac("02:00:00:00:00:08"), "10.50.0.9"), ""},
		{"our own ARP reply", arp(arpReply, own, "10.50.0.77", own, "0.0.0.0"), ""},
		{"gratuitous ARP request", arp(1, other, "10.50.0.77", zero, "10.50.0.77"), ""},
		{"gratuitous ARP reply", arp(arpReply, other, "10.50.0.77", broadcast, "10.50.0.77"), ""},
		{"ARP probe of another host", arp(1, other, "0.0.0.0", zero, "10.50.0.77"), ""},
		{"a short ARP reply", arp(arpReply, other, "10.50.0.77", own, "0.0.0.0")[:ethernet+27], ""},
		{"advertisement", na(other, 255, advertise, v6, tlla(other)...), "fd50::77 02:00:00:00:00:09"},
		{"advertisement without an option", na(other, 255, advertise, v6), "fd50::77 02:00:00:00:00:09"},
		{"the option counts", na(mac("02:00:00:00:00:08"), 255, advertise, v6, tlla(other)...), "fd50::77 02:00:00:00:00:09"},
		{"our own advertisement", na(own, 255, advertise, v6, tlla(own)...), ""},
		{"our own advertisement, forwarded by another MAC", na(other, 255, advertise, v6, tlla(own)...), ""},
		{"advertisement from afar", na(other, 64, advertise, v6, tlla(other)...), ""},
		{"solicitation", na(other, 255, solicit, v6), ""},
		{"an option of no length", na(other, 255, advertise, v6, 2, 0, 0, 0, 0, 0, 0, 0), ""},
		{"an option that is longer than the message", na(other, 255, advertise, v6, 2, 2, 0, 0, 0, 0, 0, 0), ""},
		{"a short advertisement", na(other, 255, advertise, v6)[:ethernet+63], ""},
		{"an empty frame", nil, ""},
	} {
		a, m, ok := answer(tt.frame, own)
		got := ""
		if ok {
			got = fmt.Sprint(a, " ", m)
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(arp(arpReply, other, "10.50.0.77", own, "0.0.0.0"))
	f.Add(na(other, 255, advertise, v6, tlla(other)...))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if a, m, ok := answer(frame, own); ok && (!a.IsValid() || len(m) != 6 || bytes.Equal(m, own)) {
			t.Errorf("%x: %s %s", frame, a, m)
		}
	})
}

// wire is a socket, and the other end of it.
func wire(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

// host answers the n-th frame, counted from 1, with these frames. Close the other end before sent is called.
func host(t *testing.T, end *os.File, answers func(n int, question []byte) [][]byte) (sent func() []string) {
	t.Helper()
	var seen []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		frame := make([]byte, 256)
		for n := 1; ; n++ {
			size, err := end.Read(frame)
			if err != nil {
				return
			}
			seen = append(seen, fmt.Sprintf("%x", frame[:size]))
			for _, a := range answers(n, frame[:size]) {
				if _, err := end.Write(a); err != nil {
					return
				}
			}
		}
	}()
	return func() []string {
		<-done
		return seen
	}
}

// quick asks without pauses; long has pauses that no test waits for.
var quick, long = Schedule{time.Millisecond, time.Millisecond}, Schedule{time.Hour, time.Hour}

func TestRun(t *testing.T) {
	reply, advert := arp(arpReply, other, "10.50.0.77", own, "0.0.0.0"), na(other, 255, advertise, v6, tlla(other)...)
	byKind := func(q []byte) []byte {
		if q[12] == 0x08 {
			return reply
		}
		return advert
	}
	for _, tt := range []struct {
		name    string
		s       Schedule
		answers func(n int, q []byte) [][]byte
		want    string
	}{
		{"nobody", quick, func(int, []byte) [][]byte { return nil }, "[]"},
		{"each question is answered", long, func(_ int, q []byte) [][]byte { return [][]byte{byKind(q)} },
			"[{10.50.0.77 02:00:00:00:00:09} {fd50::77 02:00:00:00:00:09}]"},
		{"one answer alone, of a pod that had the address before", quick, func(n int, q []byte) [][]byte {
			if n == 1 {
				return [][]byte{reply, advert}
			}
			return nil
		}, "[]"},
		{"our own answers", quick, func(int, []byte) [][]byte {
			return [][]byte{arp(arpReply, own, "10.50.0.77", own, "0.0.0.0"), na(own, 255, advertise, v6, tlla(own)...)}
		}, "[]"},
		{"answers for other addresses", quick, func(int, []byte) [][]byte {
			return [][]byte{arp(arpReply, other, "10.50.0.78", own, "0.0.0.0"), na(other, 255, advertise, netip.MustParseAddr("fd50::78"))}
		}, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := wire(t)
			host(t, theirs, tt.answers)
			found, err := Run(t.Context(), ours, own, []netip.Addr{v4, v6}, tt.s)
			if got := fmt.Sprint(found); got != tt.want || err != nil {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

// An address is asked for three times, as RFC 5227 has it, and announced.
func TestQuestionsAndAnnouncement(t *testing.T) {
	ours, theirs := wire(t)
	sent := host(t, theirs, func(int, []byte) [][]byte { return nil })
	if _, err := Run(t.Context(), ours, own, []netip.Addr{v4}, quick); err != nil {
		t.Fatal(err)
	}
	ours.Close()
	ask := fmt.Sprintf("%x", question(own, v4))
	if got := sent(); !slices.Equal(got, []string{ask, ask, ask, fmt.Sprintf("%x", announcement(own, v4))}) {
		t.Errorf("sent %q", got)
	}
}

// An address that another host has is not announced.
func TestConflictIsNotAnnounced(t *testing.T) {
	ours, theirs := wire(t)
	sent := host(t, theirs, func(int, []byte) [][]byte { return nil })
	r := &run{socket: ours, own: own, asked: map[netip.Addr]*state{v4: {}, v6: {conflict: other}}}
	if err := r.announce([]netip.Addr{v4, v6}); err != nil {
		t.Fatal(err)
	}
	ours.Close()
	if got := sent(); !slices.Equal(got, []string{fmt.Sprintf("%x", announcement(own, v4))}) {
		t.Errorf("sent %q", got)
	}
}

// A host that answers without end does not keep us: the search fails.
func TestFlood(t *testing.T) {
	ours, theirs := wire(t)
	go func() {
		frame := arp(arpReply, other, "10.50.0.78", own, "0.0.0.0")
		for {
			if _, err := theirs.Write(frame); err != nil {
				return
			}
		}
	}()
	_, err := Run(t.Context(), ours, own, []netip.Addr{v4}, long)
	if err == nil || !strings.Contains(err.Error(), "more than 4096 answers came") {
		t.Errorf("error %v", err)
	}
}

// The end of the pod's ADD, or of the agent, ends the search.
func TestRunEnds(t *testing.T) {
	ours, _ := wire(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, ours, own, []netip.Addr{v4}, long); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
