package e2e

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// dropTable reads the table of docs/topologies.md: for each frame, what becomes of it on each of dropNetworks.
func dropTable(t *testing.T) map[string][]string {
	t.Helper()
	root, err := lab.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "topologies.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What the switch drops\n")
	section, _, _ = strings.Cut(section, "\n## ")
	table := map[string][]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) == len(dropNetworks)+2 && cells[0] != "---" && cells[0] != "frame of a pod" {
			table[cells[0]] = cells[1 : len(cells)-1]
		}
	}
	return table
}

// dropNetworks are the networks of the table's columns.
var dropNetworks = []string{"green", "wire", "loose"}

// station is a pod on one of the networks, as frames name it.
type station struct {
	pod    *lab.Pod
	mac    net.HardwareAddr
	v4, v6 netip.Addr // on a network without subnets made up
}

// Addresses that no pod has.
var (
	nobodysMAC = net.HardwareAddr{0x02, 0, 0, 0, 0xfe, 0xfe}
	nobodys4   = netip.MustParseAddr("198.51.100.5")
	nobodys6   = netip.MustParseAddr("2001:db8::5")
)

// ether is an Ethernet frame.
func ether(to, from net.HardwareAddr, kind uint16, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint16(slices.Concat(to, from), kind), payload...)
}

// ip4 is an IPv4 packet with a UDP datagram, or a fragment of one: part of its bytes, from offset on.
func ip4(id uint16, from, to netip.Addr, part []byte, offset int, more bool) []byte {
	h := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	h = slices.Concat(h, from.AsSlice(), to.AsSlice())
	binary.BigEndian.PutUint16(h[4:], id)
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(part)))
	flags := uint16(offset / 8)
	if more {
		flags |= 1 << 13
	}
	binary.BigEndian.PutUint16(h[6:], flags)
	var sum uint32
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum>>16+sum&0xffff))
	return append(h, part...)
}

// udpText is a UDP datagram without a checksum.
func udpText(text string) []byte {
	b := make([]byte, 8, 8+len(text))
	binary.BigEndian.PutUint16(b, 9)
	binary.BigEndian.PutUint16(b[2:], 9)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(text)))
	return append(b, text...)
}

func packet4(toMAC, fromMAC net.HardwareAddr, from, to netip.Addr, text string) [][]byte {
	return [][]byte{ether(toMAC, fromMAC, unix.ETH_P_IP, ip4(1, from, to, udpText(text), 0, false))}
}

// packet6 is an echo request with the text.
func packet6(toMAC, fromMAC net.HardwareAddr, from, to netip.Addr, text string) [][]byte {
	if len(text)%2 == 1 {
		text += " "
	}
	return [][]byte{icmp6(fromMAC, toMAC, from, to, append([]byte{128, 0, 0, 0, 0, 1, 0, 1}, text...))}
}

// droppedFrames are the rows of the table: the frames of a for b with the text; c is a third pod.
var droppedFrames = map[string]func(a, b, c station, text string) [][]byte{
	"unicast to the MAC of the receiver": func(a, b, _ station, text string) [][]byte {
		return packet4(b.mac, a.mac, a.v4, b.v4, text)
	},
	"broadcast": func(a, _, _ station, text string) [][]byte {
		return packet4(broadcastMAC, a.mac, a.v4, netip.MustParseAddr("255.255.255.255"), text)
	},
	"multicast of IPv4": func(a, _, _ station, text string) [][]byte {
		return packet4(net.HardwareAddr{1, 0, 0x5e, 1, 1, 1}, a.mac, a.v4, netip.MustParseAddr("239.1.1.1"), text)
	},
	"multicast of IPv6": func(a, _, _ station, text string) [][]byte {
		return packet6(net.HardwareAddr{0x33, 0x33, 0, 1, 0, 2}, a.mac, a.v6, netip.MustParseAddr("ff05::1:2"), text)
	},
	"unicast to the MAC of another pod": func(a, _, c station, text string) [][]byte {
		return packet4(c.mac, a.mac, a.v4, c.v4, text)
	},
	"unicast to a MAC that no pod has": func(a, b, _ station, text string) [][]byte {
		return packet4(nobodysMAC, a.mac, a.v4, b.v4, text)
	},
	"IPv4 to an address that the receiver does not have": func(a, b, _ station, text string) [][]byte {
		return packet4(b.mac, a.mac, a.v4, nobodys4, text)
	},
	"IPv6 to an address that the receiver does not have": func(a, b, _ station, text string) [][]byte {
		return packet6(b.mac, a.mac, a.v6, nobodys6, text)
	},
	"source MAC of another pod": func(a, b, c station, text string) [][]byte {
		return packet4(b.mac, c.mac, a.v4, b.v4, text)
	},
	"IPv4 source address of another pod": func(a, b, c station, text string) [][]byte {
		return packet4(b.mac, a.mac, c.v4, b.v4, text)
	},
	"IPv6 source address of another pod": func(a, b, c station, text string) [][]byte {
		return packet6(b.mac, a.mac, c.v6, b.v6, text)
	},
	"ARP for the address of another pod": func(a, b, c station, text string) [][]byte {
		frame := append(asked(a.mac, c.v4, b.v4), text...)
		copy(frame, b.mac)
		return [][]byte{frame}
	},
	"IPv6 link-local address of the pod's MAC (EUI-64)": func(a, b, _ station, text string) [][]byte {
		return packet6(b.mac, a.mac, conf.LinkLocal(a.mac), conf.LinkLocal(b.mac), text)
	},
	"IPv6 link-local address of another form (RFC 7217)": func(a, b, _ station, text string) [][]byte {
		return packet6(b.mac, a.mac, netip.MustParseAddr("fe80::1234:5678:9abc:def0"), conf.LinkLocal(b.mac), text)
	},
	"VLAN tag (802.1Q)": func(a, b, _ station, text string) [][]byte {
		inner := append([]byte{0, 30, 0x08, 0x00}, ip4(1, a.v4, b.v4, udpText(text), 0, false)...)
		return [][]byte{ether(b.mac, a.mac, unix.ETH_P_8021Q, inner)}
	},
	"EtherType other than IP and ARP": func(a, b, _ station, text string) [][]byte {
		return [][]byte{ether(b.mac, a.mac, 0x88b5, []byte(text))} // for experiments: IEEE 802
	},
	"LLDP, to a reserved MAC (01:80:c2:00:00:0e)": func(a, _, _ station, text string) [][]byte {
		return [][]byte{ether(net.HardwareAddr{0x01, 0x80, 0xc2, 0, 0, 0x0e}, a.mac, 0x88cc, []byte(text))}
	},
	"UDP of IPv4 in fragments": func(a, b, _ station, text string) [][]byte {
		return fragmented(a, b.mac, b.v4, text)
	},
}

var broadcastMAC = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// datagrams counts the datagrams that were sent in fragments. Each needs an identification of its own (RFC 791): if a
// switch under load loses one fragment, the fragments of a second try would be taken for repetitions of the first.
var datagrams atomic.Uint32

// fragmented is a datagram in two fragments, of which the last has the text.
func fragmented(a station, mac net.HardwareAddr, to netip.Addr, text string) [][]byte {
	id := uint16(datagrams.Add(1))
	whole := udpText(strings.Repeat("-", 800) + text)
	return [][]byte{
		ether(mac, a.mac, unix.ETH_P_IP, ip4(id, a.v4, to, whole[:400], 0, true)),
		ether(mac, a.mac, unix.ETH_P_IP, ip4(id, a.v4, to, whole[400:], 400, false)),
	}
}

// TestSwitchDrops sends each frame of the table in docs/topologies.md to a pod of the same node and to one of another
// node, on a network of each kind.
func TestSwitchDrops(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) {
		controllerConfig(t, l, "portSecurityOff: {namespaces: [shop]}\n")
	})
	w.network("loose", `{"type":"ovn-multinet","subnets":"10.9.0.0/24,fd09::/64","portSecurity":false}`)
	table := dropTable(t)
	rows := append(slices.Collect(maps.Keys(droppedFrames)), virtualRow)
	slices.Sort(rows)
	if got, want := slices.Sorted(maps.Keys(table)), rows; !slices.Equal(got, want) {
		t.Fatalf("the table has the rows\n%q\nwant\n%q", got, want)
	}
	for column, network := range dropNetworks {
		var stations []station
		for i, at := range []int{0, 0, 1} {
			stations = append(stations, w.station(at, fmt.Sprint(network, "-", i), network, i))
		}
		a := stations[0]
		for _, to := range [][2]station{{stations[1], stations[2]}, {stations[2], stations[1]}} {
			capture, err := to[0].pod.Capture("net1")
			w.Must(err)
			for name, frames := range droppedFrames {
				text := fmt.Sprintf("(%s on %s to %s)", name, network, to[0].pod)
				w.agrees(table[name][column], text, func() string {
					return w.fate(capture, text, func() {
						for _, frame := range frames(a, to[0], to[1], text) {
							w.send(a.pod, "net1", frame)
						}
					}, func(mark string) {
						w.send(a.pod, "net1", packet4(to[0].mac, a.mac, a.v4, to[0].v4, mark)[0])
					})
				})
			}
			w.agrees(table[virtualRow][column], fmt.Sprintf("(%s on %s to %s)", virtualRow, network, to[0].pod), func() string {
				return w.fragmentsToService(a, to[0], network, capture)
			})
			w.Must(capture.Close())
		}
		for _, s := range stations {
			w.End(s.pod)
		}
	}
	w.endNetworks("loose")
}

// agrees compares what becomes of frames with the table's word. A switch under load may lose what it passes, so such
// frames are sent until they come. What it drops never comes.
func (w *world) agrees(want, text string, fate func() string) {
	compare := func() error {
		if got := fate(); got != want {
			return fmt.Errorf("%s: %s, the table says %q", text, got, want)
		}
		return nil
	}
	if want == "passes" {
		w.Eventually(compare)
	} else if err := compare(); err != nil {
		w.T.Error(err)
	}
}

// virtualRow is a row whose frames go to the virtual address of a Service.
const virtualRow = "UDP in fragments to a virtual address"

// fragmentsToService sends datagrams to a Service with one backend. A network without subnets has no Services.
func (w *world) fragmentsToService(a, b station, network string, capture *lab.Capture) string {
	if network == "wire" {
		return "no Services"
	}
	name := b.pod.Name
	address := map[string]string{"green": "10.2.200.1", "loose": "10.9.0.200"}[network]
	vip := w.service(name, serviceYAML(name, network, address, "{name: discard, protocol: UDP, port: 9}", ""))[0]
	w.backendsAre("shop/"+name, "shop/"+network, "udp", vip+":9", b.v4.String()+":9")
	send := func(text string) {
		w.Must(a.pod.Do(func() error {
			c, err := net.Dial("udp", vip+":9")
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte(text))
			return err
		}))
	}
	text := fmt.Sprintf("(to the Service %s of %s)", name, network)
	fate := w.fate(capture, text, func() { send(strings.Repeat("-", 3000) + text) }, send)
	w.Must(w.RemoveManifest(serviceManifest(name)))
	return fate
}

// station attaches a pod.
func (w *world) station(node int, name, network string, i int) station {
	p := w.labelled(node, name, network, map[string]string{"app": name})
	link := w.Links(p)["net1"]
	mac, err := net.ParseMAC(link.MAC)
	w.Must(err)
	s := station{p, mac, netip.AddrFrom4([4]byte{10, 77, 0, byte(7 + i)}), netip.MustParseAddr(fmt.Sprint("fd77::", 7+i))}
	for _, ip := range link.IPs() {
		if a := netip.MustParseAddr(ip); a.Is4() {
			s.v4 = a
		} else {
			s.v6 = a
		}
	}
	return s
}

// fate sends something several times, each time with a mark behind it that always comes: when the mark has come, what
// was sent before it has come or was dropped.
func (w *world) fate(capture *lab.Capture, text string, send func(), sendMark func(mark string)) string {
	for i := range 3 {
		send()
		mark := fmt.Sprintf("(mark %d) %s", i, strings.ReplaceAll(text, " ", "_"))
		w.Eventually(func() error {
			sendMark(mark)
			n, err := capture.Carrying(mark)
			if err == nil && n == 0 {
				err = fmt.Errorf("%s has not come", mark)
			}
			return err
		})
		if n, err := capture.Carrying(text); err != nil || n > 0 {
			w.Must(err)
			return "passes"
		}
	}
	return "dropped"
}
