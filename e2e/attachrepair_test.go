package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// sharedNetwork is a network on which two interfaces of a pod share the routes.
const sharedNetwork = `{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/22/24,fd80::/62/64"}`

// repair asks for what a pod has broken of its interfaces; "": no more.
func (w *world) repair(p *lab.Pod, value string) {
	if p.Annotations[conf.RepairAnnotation] = value; value == "" {
		delete(p.Annotations, conf.RepairAnnotation)
	}
	w.Must(p.WriteManifest())
}

// inside is what a pod has in its network namespace: addresses, routes of all tables, rules.
func (w *world) inside(p *lab.Pod) string {
	var all []string
	for _, args := range [][]string{
		{"-o", "addr"}, {"-4", "route", "show", "table", "all"}, {"-6", "route", "show", "table", "all"}, {"-4", "rule"}, {"-6", "rule"},
	} {
		lines := strings.Split(strings.TrimSpace(w.Exec(p, append([]string{"ip"}, args...)...)), "\n")
		for i := range lines {
			lines[i] = strings.Join(strings.Fields(lines[i]), " ")
		}
		slices.Sort(lines) // their order is that of their making
		all = append(all, lines...)
	}
	return strings.Join(all, "\n")
}

// whole waits until a pod has inside what it had: the kernel makes some routes a moment after their addresses.
func (w *world) whole(p *lab.Pod, what, had string) {
	w.Eventually(func() error {
		if got := w.inside(p); got != had {
			return fmt.Errorf("%s: the pod has\n%s\nand had\n%s", what, got, had)
		}
		return nil
	})
}

// TestAttachRepaired: what a pod breaks inside of its interfaces is told, and is made again at its request, once for each
// value of the annotation or always. What the pod has wired by itself is left alone.
func TestAttachRepaired(t *testing.T) {
	w := attachWorld(t, 2)
	w.network("wide", sharedNetwork)
	here, there := w.Attached(0, "here", "wide"), w.Attached(1, "there", "wide") // each node keeps its node subnet
	to := w.Links(there)["net1"].IPs()
	empty := w.Base
	w.Base = w.Snapshot()
	w.part("each thing", func(t *testing.T, w *world) { repairsEach(t, w, to) })
	w.part("routes of the pod itself", repairsOwnRoutes)
	w.part("told, once for a value, always", repairsWhenAsked)
	w.part("what cannot be repaired", repairsNotHuge)
	w.part("a machine's wiring", repairsNoMachine)
	for _, intact := range []*lab.Pod{here, there} {
		equal(t, "faults of "+intact.String(), len(w.events(intact, "CheckFailed")), 0)
	}
	w.Base = empty
	w.End(here, there)
	w.endNetworks("wide")
	w.AsBefore()
}

// repairsEach: each thing that a pod can break inside is made again, as it was.
func repairsEach(t *testing.T, w *world, to []string) {
	p := w.Attached(0, "broken", "wide,wide,blue")
	whole, asked := w.inside(p), 0
	address := w.Links(p)["net1"].Prefixes()
	for _, broken := range []struct{ args, word string }{
		{"ip link set net1 down", "net1: it is down"},
		{"ip link set net2 down", "net2: it is down"},
		{"ip link set net3 address 02:00:00:00:00:01", "net3: its MAC is 02:00:00:00:00:01, not "},
		{"ip addr del dev net1 " + address[0], "net1: it lacks address " + address[0]},
		{"ip addr del dev net1 " + address[1], "net1: it lacks address " + address[1]},
		{"ip addr flush dev net2", "net2: it lacks address "},
		{"sysctl -qw net.ipv6.conf.net2.disable_ipv6=1", "net2: it lacks address fd80::"},
		{"ip -4 route del 10.128.0.0/22", "net1: it lacks the route to 10.128.0.0/22"},
		{"ip -6 route del fd80::/62", "it lacks the route to fd80::/62"},
		{"ip -4 rule del priority 31000", "it lacks the rule for 10.128."},
		{"ip -6 rule del priority 31000", "it lacks the rule for fd80:"},
	} {
		w.Exec(p, "sh", "-c", broken.args)
		asked++
		w.repair(p, fmt.Sprint("request ", asked))
		w.eventTold(p, "InterfaceRepaired", asked, broken.word)
		w.whole(p, broken.args, whole)
	}
	w.Must(p.Check(w.Ctx))
	w.MustReach(p, to...)
	w.consistent(p, []string{"net1", "net2", "net3"})
	w.Over(p)
}

// repairsOwnRoutes: the routes that a pod asks for itself, and its default route, belong to what is made again.
func repairsOwnRoutes(t *testing.T, w *world) {
	p := w.Pod(0, "own", `[{"name":"blue","default-route":["10.1.0.1"]},{"name":"wide"},{"name":"wide"}]`)
	p.Annotations[conf.RoutesAnnotation] = `[{"dst":"10.77.0.0/16","gw":"10.1.0.9"},{"dst":"10.78.0.0/16","interface":"net1","scope":253}]`
	w.Must(p.WriteManifest())
	w.Add(p)
	whole := w.inside(p)
	w.repair(p, "intact")
	w.eventTold(p, "InterfaceRepaired", 1, "nothing to make again")
	for asked, broken := range []struct{ args, word string }{
		{"ip route del default", "net1: it lacks the route to 0.0.0.0/0"},
		{"ip route del 10.77.0.0/16", "net1: it lacks the route to 10.77.0.0/16"},
		{"ip route del 10.78.0.0/16", "net1: it lacks the route to 10.78.0.0/16"},
		{"ip link set net1 down", "net1: it is down"},
	} {
		w.Exec(p, "sh", "-c", broken.args)
		w.repair(p, fmt.Sprint("request ", asked))
		w.eventTold(p, "InterfaceRepaired", asked+2, broken.word)
		w.whole(p, broken.args, whole)
	}
	w.Over(p)
}

// repairsWhenAsked: what is broken is told, each value of the annotation counts once, also after a restart of the agent, and always is always.
func repairsWhenAsked(t *testing.T, w *world) {
	n := w.Nodes[0]
	p := w.Attached(0, "told", "blue")
	whole := w.inside(p)
	w.Exec(p, "ip", "link", "set", "net1", "down")
	w.eventTold(p, "CheckFailed", 1, "net1: it is down", conf.RepairAnnotation)
	w.repair(p, "first")
	w.eventTold(p, "InterfaceRepaired", 1)
	w.whole(p, "the pod", whole)
	w.Must(n.StopAgent(w.Ctx))
	w.Must(n.StartAgent(w.Ctx))
	w.Exec(p, "ip", "link", "set", "net1", "down")
	w.eventTold(p, "CheckFailed", 2, "net1: it is down")
	equal(t, "repairs for one request", len(w.events(p, "InterfaceRepaired")), 1)
	w.repair(p, conf.RepairAlways)
	w.eventTold(p, "InterfaceRepaired", 2)
	w.Exec(p, "ip", "link", "set", "net1", "down")
	w.eventTold(p, "InterfaceRepaired", 3)
	w.whole(p, "the pod", whole)
	w.repair(p, "nothing is broken")
	w.eventTold(p, "InterfaceRepaired", 4, "nothing to make again")
	w.repair(p, strings.Repeat("x", 64))
	w.eventTold(p, "InterfaceChangeRefused", 1, "at most 63 printable characters")
	w.Over(p)
}

// repairsNotHuge: a pod with very many routes is told so, once, and its networks change all the same.
func repairsNotHuge(t *testing.T, w *world) {
	p := w.Attached(0, "huge", "blue")
	routes := filepath.Join(t.TempDir(), "routes")
	var batch strings.Builder
	for n := range 20_001 {
		fmt.Fprintf(&batch, "route add blackhole 10.200.%d.%d\n", n>>8, n&0xff)
	}
	w.Must(os.WriteFile(routes, []byte(batch.String()), 0o644))
	w.Exec(p, "ip", "-batch", routes)
	w.Exec(p, "ip", "link", "set", "net1", "down")
	w.repair(p, "now")
	w.eventTold(p, "CheckFailed", 1, "the pod has over 20000 routes")
	w.edit(p, "blue,six") // it is served once, and does not stand in the way
	w.Eventually(func() error { return w.named(p, "net1", "net2") })
	equal(t, "failures told", len(w.events(p, "CheckFailed")), 1)
	w.Over(p)
}

// repairsNoMachine: what KubeVirt has made of an interface is left alone.
func repairsNoMachine(t *testing.T, w *world) {
	p := w.Attached(0, "machine", "blue@pod0,wide")
	for _, args := range []string{
		"ip link set pod0 down", "ip link set pod0 name pod0-nic", "ip link add k6t-pod0 type bridge",
		"ip link set pod0-nic master k6t-pod0", "ip link set pod0-nic up", "ip link set net2 down",
	} {
		w.Exec(p, "sh", "-c", args)
	}
	machine := w.Exec(p, "ip", "-o", "addr", "show", "pod0-nic")
	w.repair(p, "once")
	w.eventTold(p, "InterfaceRepaired", 1, "interface net2: it is down")
	if told := w.events(p, "InterfaceRepaired")[0]; strings.Contains(told, "pod0") {
		t.Errorf("the machine's interface is not as the machine has made it: %s", told)
	}
	equal(t, "the machine's link", w.Exec(p, "ip", "-o", "addr", "show", "pod0-nic"), machine)
	w.Over(p)
}

// TestAttachRoutesStay: of several interfaces on one network any may go, and the pod reaches the same destinations by the
// others, as a pod that never had it.
func TestAttachRoutesStay(t *testing.T) {
	w := attachWorld(t, 2)
	w.network("wide", sharedNetwork)
	w.network("near", `{"type":"ovn-multinet","router":"r","subnets":"10.5.0.0/24,fd05::/64",
		"routes":[{"dst":"10.6.0.0/24"},{"dst":"fd06::/64"}]}`)
	w.network("far", `{"type":"ovn-multinet","router":"r","subnets":"10.6.0.0/24,fd06::/64",
		"routes":[{"dst":"10.5.0.0/24"},{"dst":"fd05::/64"}]}`)
	here, there, far := w.Attached(0, "here", "wide"), w.Attached(1, "there", "wide"), w.Attached(1, "far", "far")
	// main are the destinations, gateways and interfaces of the main table.
	main := func(p *lab.Pod) (all []string) {
		for _, family := range []string{"-4", "-6"} {
			for line := range strings.Lines(w.Exec(p, "ip", family, "route", "show", "table", "main")) {
				if strings.Contains(line, "net") || strings.Contains(line, "nexthop") {
					all = append(all, strings.Join(strings.Fields(line), " "))
				}
			}
		}
		slices.Sort(all)
		return all
	}
	empty := w.Base
	w.Base = w.Snapshot()
	for _, network := range []struct {
		name string
		to   []string
	}{{"wide", w.Links(there)["net1"].IPs()}, {"near", w.Links(far)["net1"].IPs()}} {
		var destinations []string
		one := w.Attached(0, "one", network.name)
		for _, route := range main(one) {
			destination, _, _ := strings.Cut(route, " ")
			destinations = append(destinations, destination)
		}
		w.Over(one)
		for _, goes := range []string{"net1", "net2", "net3"} {
			w.part(network.name+" without "+goes, func(t *testing.T, w *world) {
				p := w.Attached(0, "several", strings.Repeat(network.name+",", 2)+network.name)
				var entries, stays []string
				for _, name := range []string{"net1", "net2", "net3"} {
					if name != goes {
						entries = append(entries, fmt.Sprintf(`{"name":%q,"interface":%q}`, network.name, name))
						stays = append(stays, name)
					}
				}
				w.edit(p, "["+strings.Join(entries, ",")+"]")
				w.changesTo(p, stays...)
				w.Must(p.Check(w.Ctx))
				w.MustReach(p, network.to...)
				w.edit(p, "["+entries[1]+"]")
				w.changesTo(p, stays[1])
				w.Must(p.Check(w.Ctx))
				w.MustReach(p, network.to...)
				var got []string
				for _, route := range main(p) {
					destination, _, _ := strings.Cut(route, " ")
					got = append(got, destination)
				}
				equal(t, "destinations in the main table", got, destinations)
				w.Over(p)
			})
		}
	}
	w.Base = empty
	w.End(here, there, far)
	w.endNetworks("wide", "near", "far")
	w.AsBefore()
}
