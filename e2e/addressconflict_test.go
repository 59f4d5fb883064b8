package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// searched waits until the agent has searched for other hosts with the addresses of a pod's net1.
func (w *world) searched(p *lab.Pod, result string) {
	w.T.Helper()
	w.says(p.Node.Agent, fmt.Sprintf("pod=%s containerID=%s interface=net1 result=%s", p, p.Sandbox, result))
}

// noConflict wants the agents never to have warned of the address of such a pod.
func (w *world) noConflict(p *lab.Pod) {
	w.T.Helper()
	log, err := os.ReadFile(p.Node.Agent.LogPath())
	w.Must(err)
	for _, line := range strings.Split(string(log), "\n") {
		if strings.Contains(line, "AddressConflict") && strings.Contains(line, "pod="+p.String()) {
			w.T.Errorf("%s: %s", p, line)
		}
	}
	if note := w.portRow(p, "net1").ExternalIDs["ovn-multinet/address-conflicts"]; note != "" {
		w.T.Errorf("%s: its port says %q", p, note)
	}
}

// taken are addresses of a machine outside.
var taken = []string{"10.50.0.77", "fd50::77"}

// TestAddressConflict: a machine outside has a pod's address, of either family. The pod starts, its owner is warned, and
// kubectl multinet shows it. On a network whose ADDs wait, the pod fails and nothing stays. Nobody is warned of addresses
// that nobody else has: of a pod's own announcements, and of a successor's with another MAC on another node.
func TestAddressConflict(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, grantedVLANs)
	for _, vlan := range []int{0, 100} {
		name := fmt.Sprint("v", vlan)
		w.part(name, func(t *testing.T, w *world) {
			w.network(name, onVLAN(vlan, ""))
			w.noFalseConflicts(name)
			out := w.outside("out"+name, vlan, taken[0]+"/24", taken[1]+"/64")
			mac := w.macOf(out)
			for i, addrs := range [][]string{taken, {taken[0], "fd50::99"}, {"10.50.0.99", taken[1]}} {
				w.warnedOf(name, fmt.Sprint(name, "-warned-", i), addrs, mac)
			}

			w.network(name, onVLAN(vlan, `"addressConflictWait":"3s",`))
			fixed := fmt.Sprintf(`[{"name":%q,"ips":["%s"]}]`, name, strings.Join(taken, `","`))
			for i, n := range w.Nodes {
				p := w.Pod(i, name+"-refused", fixed)
				w.refused(w.TryAdd(p), conf.CodeInUse, "interface net1: network shop/"+name+": address ",
					" is used by another host, with MAC "+mac)
				equal(t, "ports in NB", w.portsOf(p), "")
				equal(t, "OVS ports", w.podPortsOn(n), "")
				w.End(p)
			}
			w.noFalseConflicts(name)
			w.getsAnother(name, out)
			w.Must(out.Close())
			p := w.retried(w.Pod(1, name+"-late", fixed))
			w.searched(p, "free")
			w.noConflict(p)
			w.End(p)
			w.endNetworks(name)
		})
	}
	w.asBeforeOutside()
}

// macOf is the MAC of a machine outside.
func (w *world) macOf(o *lab.Outside) string {
	var list []lab.Link
	w.Must(json.Unmarshal([]byte(w.Exec(o, "ip", "-json", "link", "show", "eth0")), &list))
	return list[0].MAC
}

// podPortsOn lists the host-side veths of pods in a node's Open vSwitch.
func (w *world) podPortsOn(n *lab.Node) string {
	return strings.TrimSpace(w.VSCtl(n, "--bare", "--columns=name", "find", "Interface", "external_ids:iface-id!=\"\""))
}

// warnedOf attaches a pod with addresses, one or both of which a machine outside has.
func (w *world) warnedOf(network, name string, addrs []string, mac string) {
	w.T.Helper()
	p := w.Attached(0, name, fmt.Sprintf(`[{"name":%q,"ips":["%s"]}]`, network, strings.Join(addrs, `","`)))
	w.searched(p, "conflict")
	var words, note []string
	for _, a := range addrs {
		if a == taken[0] || a == taken[1] {
			words = append(words, fmt.Sprintf("address %s is used by another host, with MAC %s", a, mac))
			note = append(note, a+"="+mac)
		}
	}
	w.says(p.Node.Agent, fmt.Sprintf("pod=%s kind=Warning reason=AddressConflict message=\"interface net1 on network shop/%s: %s; ",
		p, network, strings.Join(words, ", ")))
	w.Eventually(func() error {
		if got := w.portRow(p, "net1").ExternalIDs["ovn-multinet/address-conflicts"]; got != strings.Join(note, " ") {
			return fmt.Errorf("the port of %s says %q, want %v", p, got, note)
		}
		return nil
	})
	out := w.Multinet("network", "show", "shop/"+network)
	for _, pair := range note {
		a, _, _ := strings.Cut(pair, "=")
		if fields := strings.Join(strings.Fields(out), " "); !strings.Contains(fields, strings.Join([]string{a, mac, p.String(), "net1"}, " ")) {
			w.T.Errorf("kubectl multinet does not show the conflict about %s:\n%s", a, out)
		}
	}
	w.End(p)
}

// getsAnother has a machine outside take the dynamic address that a pod is about to get: its first ADD fails, and the
// next one gets another address.
func (w *world) getsAnother(network string, out *lab.Outside) {
	w.T.Helper()
	p := w.Attached(0, network+"-dynamic", network)
	ips := w.Links(p)["net1"].IPs()
	w.End(p)
	w.Exec(out, "ip", "addr", "add", ips[0]+"/24", "dev", "eth0")
	p = w.Pod(0, network+"-dynamic", network)
	w.refused(w.TryAdd(p), conf.CodeInUse, "address "+ips[0]+" is used by another host")
	p = w.retried(p)
	if now := w.Links(p)["net1"].IPs(); now[0] == ips[0] {
		w.T.Errorf("the second ADD gets %v again", now)
	}
	w.End(p)
}

// noFalseConflicts attaches pods with addresses that nobody else has. Each of the last ones has the addresses of the
// one before, another MAC, and another node.
func (w *world) noFalseConflicts(network string) {
	w.T.Helper()
	dynamic := []*lab.Pod{w.Attached(0, network+"-a", network), w.Attached(1, network+"-b", network)}
	for i := range 3 {
		p := w.Pod(i%2, network+"-fixed", fmt.Sprintf(`[{"name":%q,"ips":["10.50.0.88","fd50::88"],"mac":"02:00:00:00:88:%02x"}]`,
			network, i))
		w.Add(p)
		w.searched(p, "free")
		w.noConflict(p)
		w.MustReach(dynamic[0], "10.50.0.88", "fd50::88")
		w.End(p)
	}
	for _, p := range dynamic {
		w.searched(p, "free")
		w.noConflict(p)
	}
	w.End(dynamic...)
}
