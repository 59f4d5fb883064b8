package e2e

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// policyRows is what NB has of policies. Row keys are made from names, so the same policies are the same rows.
func (w *world) policyRows() string {
	return w.NBCtl("--columns=_uuid,name,ports,acls,external_ids", "list", "Port_Group") +
		w.NBCtl("--columns=_uuid,priority,direction,match,action,external_ids", "list", "ACL")
}

// TestPolicyNBEmptied: NB is emptied under running pods and under a flood from a machine outside, which needs no port.
// The policies come back before the networks, so a port never comes back without its groups: no packet of the flood
// reaches the restricted pods.
func TestPolicyNBEmptied(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2, Physical: provider}, func(l *lab.Lab) {
		reconciling(l)
		controllerConfig(t, l, grantedVLANs)
	})
	w.network("v100", onVLAN(100, ""))
	w.policy("deny", "v100", `{podSelector: {matchLabels: {app: db}}}`)
	const port = 99
	pods, counts := map[string]*lab.Pod{}, map[string]*answerer{}
	macs := map[string]string{}
	for i, app := range []string{"db", "db", "open", "open"} {
		p := w.labelled(i%2, fmt.Sprint(app, "-", i), "v100", map[string]string{"app": app})
		pods[p.Name], counts[p.Name] = p, w.answer(p, port)
		link := w.Links(p)["net1"]
		macs[link.IPs()[0]] = link.MAC
	}
	before := w.policyRows()
	defer w.flood(w.outside("out", 100, "10.50.0.9/24"), "eth0", macs, port)()
	for i := range 4 {
		w.RestoreNB(nil)
		for name, p := range pods { // every pod is back, on both nodes
			if p.Labels["app"] != "open" {
				continue
			}
			was := counts[name].of(fmt.Sprint("udp/", port))
			w.Eventually(func() error {
				row := w.rowText(fmt.Sprintf("shop/%s/net1", name))
				if got := counts[name].of(fmt.Sprint("udp/", port)); row == "" || got < was+1000 {
					return fmt.Errorf("time %d: %s has got %d packets, port %q", i, name, got-was, row)
				}
				return nil
			})
		}
		w.Eventually(func() error {
			if after := w.policyRows(); after != before {
				return fmt.Errorf("time %d: the policies in NB were\n%s\nand are\n%s", i, before, after)
			}
			return nil
		})
		w.NBCtl("--wait=hv", "sync")
	}
	for name, p := range pods {
		if got := counts[name].of(fmt.Sprint("udp/", port)); p.Labels["app"] == "db" && got != 0 {
			t.Errorf("%s has got %d packets of the flood, want 0", p, got)
		}
	}
	for _, p := range pods {
		w.End(p)
	}
}

// fragments is how many fragments of IP packets a pod has received, in both families.
func (w *world) fragments(p *lab.Pod) (n int) {
	out := w.Exec(p, "sh", "-c", "nstat -asz IpReasmReqds Ip6ReasmReqds")
	for line := range strings.Lines(out) {
		var name string
		var count int
		if words, _ := fmt.Sscan(line, &name, &count); words == 2 {
			n += count
		}
	}
	return n
}

// sendUDP sends one datagram.
func (w *world) sendUDP(from place, to string, port, size int) {
	w.Must(from.Do(func() error {
		c, err := net.Dial("udp", net.JoinHostPort(to, fmt.Sprint(port)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(make([]byte, size))
		return err
	}))
}

// fragment sends one fragment of a UDP datagram, whose bytes begin at offset.
func (w *world) fragment(from place, to string, id, offset uint16, more bool, bytes []byte) {
	header := make([]byte, 20, 20+len(bytes))
	header[0], header[8], header[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(header[4:], id)
	flags := offset / 8
	if more {
		flags |= 1 << 13
	}
	binary.BigEndian.PutUint16(header[6:], flags)
	target := netip.MustParseAddr(to).As4()
	copy(header[16:], target[:])
	w.Must(from.Do(func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		return unix.Sendto(s, append(header, bytes...), 0, &unix.SockaddrInet4{Addr: target})
	}))
}

// udp is the header of a UDP datagram with 80 bytes behind it, without a checksum.
func udp(port uint16) []byte {
	b := make([]byte, 8+80)
	binary.BigEndian.PutUint16(b, 9)
	binary.BigEndian.PutUint16(b[2:], port)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	return b
}

// TestPolicyFragments: no fragment gets past a policy. Only the first fragment of a datagram names the port, so Open
// vSwitch assembles a datagram before it decides. With the userspace datapath, a rule with ports allows no fragments.
func TestPolicyFragments(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.policy("port", "green", `{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{protocol: UDP, port: 80}]}]}`)
	w.policy("peers", "green", `{podSelector: {matchLabels: {app: any}}, ingress: [{from: [{podSelector: {}}]}]}`)
	db, free := w.app(0, "db", "green", "db"), w.app(0, "free", "green", "any")
	near, far := w.app(0, "near", "green", "other"), w.app(1, "far", "green", "other")
	counts := w.answer(db, 82, 83) // nobody is allowed to send here
	const large = 4000             // more than two packets
	for _, from := range []*lab.Pod{near, far} {
		for i, to := range w.Links(db)["net1"].IPs() {
			w.allowed(from, to, "udp/80")
			before := w.fragments(db)
			for range 10 {
				w.sendUDP(from, to, 82, large)
			}
			if i == 0 {
				w.fragment(from, to, 1, 1480, false, udp(82)) // the end of a datagram, without its beginning
				w.fragment(from, to, 2, 0, true, udp(80))     // a datagram with two beginnings
				w.fragment(from, to, 2, 0, true, udp(82))
				w.fragment(from, to, 2, 88, false, udp(82))
			}
			w.allowed(from, to, "udp/80") // what was sent before is not on its way any more
			equal(t, "fragments that have come to a port that no rule allows", w.fragments(db)-before, 0)
			w.sendUDP(from, to, 80, large)
			w.allowed(from, to, "udp/80")
			t.Logf("%d fragments have come to a port that a rule allows", w.fragments(db)-before)
		}
		for _, to := range append(w.Links(free)["net1"].IPs(), w.Links(from)["net1"].IPs()...) {
			sender, at := from, free // a rule without ports, and replies to a pod that is restricted, pass in fragments
			if slices.Contains(w.Links(from)["net1"].IPs(), to) {
				sender, at = db, from
			}
			before, back := w.fragments(at), w.fragments(sender)
			w.sendUDP(sender, to, 80, large)
			w.Eventually(func() error {
				if came, answers := w.fragments(at)-before, w.fragments(sender)-back; came < 3 || answers < 2 {
					return fmt.Errorf("%s has sent 3 fragments and got %d, %s has got %d", sender, answers, at, came)
				}
				return nil
			})
		}
	}
	equal(t, "datagrams at ports that no rule allows", counts.of("udp/82")+counts.of("udp/83"), 0)
	for _, name := range []string{"port", "peers"} {
		w.Must(w.RemoveManifest(policyManifest(name)))
	}
	w.Over(db, free, near, far)
}
