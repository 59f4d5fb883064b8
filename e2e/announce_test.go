package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// knows waits until a place has a MAC for some addresses, without a packet from this place.
func (w *world) knows(from place, link, mac string, addrs ...string) {
	w.T.Helper()
	for _, addr := range addrs {
		w.Eventually(func() error {
			if out := w.Exec(from, "ip", "neigh", "show", addr, "dev", link); !strings.Contains(out, mac) {
				return fmt.Errorf("%s has %q for %s, want %s", from, out, addr, mac)
			}
			return nil
		})
	}
}

// hears waits some seconds until a place has a MAC for an address.
func (w *world) hears(from place, link, mac, addr string) error {
	ctx, cancel := context.WithTimeout(w.Ctx, 5*time.Second)
	defer cancel()
	return lab.Eventually(ctx, func() error {
		if out := w.Exec(from, "ip", "neigh", "show", addr, "dev", link); !strings.Contains(out, mac) {
			return fmt.Errorf("%s has %q for %s, want %s", from, out, addr, mac)
		}
		return nil
	})
}

// remembers has a place keep the MAC of some addresses, because an announcement makes no new entry (RFC 4861, section
// 7.2.5), and the kernel forgets entries that were used and get no answer. It still forgets some when the table, which is
// one for all network namespaces, has 512 entries.
func (w *world) remembers(from place, link, mac string, addrs ...string) {
	for _, addr := range addrs {
		w.Exec(from, "ip", "neigh", "replace", addr, "lladdr", mac, "dev", link, "nud", "stale")
	}
}

// announces wants the neighbours of a pod with fixed addresses to know the MAC of its successor, without a packet of
// theirs: the successor announces its addresses when OVN's flows let it. For some milliseconds from then on, the datapath
// may still drop what the rules let through, because the pod has sent IPv6 packets before: one of three announcements has
// to arrive. On a physical network each address is announced twice, so all of its successors are heard.
func (w *world) announces(network string, addrs []string, neighbours map[place]string, twice bool) {
	w.T.Helper()
	heard := map[string]bool{} // by neighbour and address
	for i := range 4 {
		mac := fmt.Sprintf("02:00:00:00:77:%02x", i)
		p := w.Pod(i%2, "fixed", fmt.Sprintf(`[{"name":%q,"ips":["%s"],"mac":%q}]`, network, strings.Join(addrs, `","`), mac))
		w.Add(p)
		for n, link := range neighbours {
			switch {
			case i == 0: // the first one is known by the pings below
			case twice:
				w.knows(n, link, mac, addrs...)
			default:
				w.hearsSome(n, link, mac, addrs, heard)
			}
			if i == 3 && !twice {
				for _, addr := range addrs {
					equal(w.T, fmt.Sprintf("%s has heard of %s", n, addr), heard[fmt.Sprint(n, " ", addr)], true)
				}
			}
			w.MustReach(n, addrs...)
			w.knows(n, link, mac, addrs...)
			w.remembers(n, link, mac, addrs...)
		}
		w.End(p)
	}
}

// hearsSome notes which addresses a place has heard of, and has it forget the others.
func (w *world) hearsSome(n place, link, mac string, addrs []string, heard map[string]bool) {
	for _, addr := range addrs {
		if err := w.hears(n, link, mac, addr); err != nil {
			w.T.Logf("not heard: %v", err)
			w.Exec(n, "ip", "neigh", "flush", "to", addr, "dev", link)
			continue
		}
		heard[fmt.Sprint(n, " ", addr)] = true
	}
}

// TestAnnounced: an address that comes back with another MAC is reached at once: by pods of its node and of others, on an
// overlay network and on a physical one, there also by machines outside.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, grantedVLANs)
	w.network("v100", onVLAN(100, ""))
	out := w.outside("out", 100, "10.50.0.9/24", "fd50::9/64")
	var pods []*lab.Pod
	for _, network := range []string{"green", "v100"} {
		neighbours := map[place]string{}
		for node := range w.Nodes {
			p := w.Attached(node, fmt.Sprint(network, "-", node), network)
			pods = append(pods, p)
			neighbours[p] = "net1"
		}
		addrs := []string{"10.2.0.77", "fd02::77"}
		if network == "v100" {
			addrs = []string{"10.50.0.77", "fd50::77"}
			neighbours[out] = "eth0"
		}
		w.announces(network, addrs, neighbours, network == "v100")
	}
	// A link that its pod sets down and up again is announced again, by one packet each time.
	again, near := w.Attached(0, "again", `[{"name":"green","ips":["10.2.0.78","fd02::78"]}]`), pods[1]
	w.MustReach(near, "10.2.0.78", "fd02::78")
	heard := map[string]bool{}
	for try := 0; try < 3 && len(heard) == 0; try++ {
		w.remembers(near, "net1", "02:00:00:00:00:01", "10.2.0.78")
		w.Exec(again, "ip", "link", "set", "net1", "down")
		w.Exec(again, "ip", "link", "set", "net1", "up")
		w.hearsSome(near, "net1", w.Links(again)["net1"].MAC, []string{"10.2.0.78"}, heard)
	}
	equal(t, "addresses that are heard of", len(heard), 1)
	w.End(append(pods, again)...)
	w.endNetworks("v100")
	w.asBeforeOutside()
}

// TestLinkLocal: pods reach each other's link-local addresses, which routing protocols need, on one node and between
// nodes. A policy that denies all denies it, and no pod can claim another pod's.
func TestLinkLocal(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	var pods []*lab.Pod
	var locals []string
	for i := range 3 {
		p := w.labelled(i%2, fmt.Sprint("p-", i), "green", map[string]string{"app": fmt.Sprint(i)})
		mac, err := net.ParseMAC(w.Links(p)["net1"].MAC)
		w.Must(err)
		pods, locals = append(pods, p), append(locals, conf.LinkLocal(mac).String()+"%net1")
	}
	for i, from := range pods {
		for j, to := range locals {
			if i != j {
				w.MustReach(from, to)
			}
		}
	}
	w.policy("none", "green", `{podSelector: {matchLabels: {app: "0"}}, policyTypes: [Ingress, Egress]}`)
	w.NBCtl("--wait=hv", "sync")
	w.Eventually(func() error { // the datapath's flows follow the rules a moment later
		if out, err := pods[1].Exec(w.Ctx, "ping", "-c", "1", "-W", "1", locals[0]); err == nil {
			return fmt.Errorf("%s still reaches %s: %s", pods[1], locals[0], out)
		}
		return nil
	})
	w.mustNotReach(pods[1], "net1", locals[0])
	w.mustNotReach(pods[0], "net1", locals[1])
	w.MustReach(pods[2], locals[1])
	w.Must(w.RemoveManifest(policyManifest("none")))
	w.End(pods[0]) // the claim is not a duplicate
	stolen := strings.TrimSuffix(locals[0], "%net1")
	w.Exec(pods[2], "ip", "-6", "addr", "add", stolen+"/64", "dev", "net1", "nodad")
	w.mustNotReach(pods[1], "net1", locals[0])
	w.End(pods[1:]...)
	w.AsBefore()
}
