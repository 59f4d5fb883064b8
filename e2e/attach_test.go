package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// TestMainJob attaches pods on two nodes in every form of the annotation and holds kernel, network-status and NB
// against each other; then everything goes and nothing is left.
// Conformance: N-16 N-17 N-24 N-33 N-86 N-93 N-103 N-106 N-108 N-111 N-116 C-28 C-34 C-163
func TestMainJob(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	short := w.Attached(0, "short", "blue")
	pairs := w.Attached(1, "pairs", "blue, shop/green@data0")
	form := w.Attached(0, "form", `[{"name":"green","namespace":"shop"},{"name":"blue","interface":"front"},{"name":"blue"}]`)
	fixed := w.Attached(1, "fixed", `[{"name":"green","ips":["10.2.7.7","fd02::77/64"],"mac":"02:00:00:00:07:07"},{"name":"six","ips":["fd06::1:2:3:4"]},{"name":"wire","ips":["192.0.2.9/24"]}]`)
	six := w.Attached(0, "six", "six,wire")

	for _, c := range []struct {
		pod  *lab.Pod
		want []string // interfaces beside eth0
	}{
		{short, []string{"net1"}}, {pairs, []string{"net1", "data0"}}, {form, []string{"net1", "front", "net3"}},
		{fixed, []string{"net1", "net2", "net3"}}, {six, []string{"net1", "net2"}},
	} {
		w.consistent(c.pod, c.want)
	}

	t.Run("addresses", func(t *testing.T) {
		equal(t, "fixed addresses", w.Links(fixed)["net1"].Prefixes(), []string{"10.2.7.7/16", "fd02::77/64"})
		equal(t, "fixed MAC", w.Links(fixed)["net1"].MAC, "02:00:00:00:07:07")
		equal(t, "fixed wide IPv6 address", w.Links(fixed)["net2"].Prefixes(), []string{"fd06::1:2:3:4/64"})
		equal(t, "fixed address on a network without subnets", w.Links(fixed)["net3"].Prefixes(), []string{"192.0.2.9/24"})
		equal(t, "MAC only", w.Links(six)["net2"].Prefixes(), []string(nil))
		for _, c := range []struct{ addr, subnet string }{
			{w.Links(short)["net1"].IPs()[0], "10.1.0.0/16"}, {w.Links(pairs)["data0"].IPs()[0], "10.2.0.0/16"},
			{w.Links(pairs)["data0"].IPs()[1], "fd02::/64"}, {w.Links(six)["net1"].IPs()[0], "fd06::/64"},
		} {
			if !netip.MustParsePrefix(c.subnet).Contains(netip.MustParseAddr(c.addr)) {
				t.Errorf("address %s is not of %s", c.addr, c.subnet)
			}
		}
	})
	t.Run("routes and MTU", func(t *testing.T) {
		if routes := w.routes(short, "-4"); !slices.Contains(routes, "10.99.0.0/16 via 10.1.0.1 dev net1") {
			t.Errorf("the network's route is missing: %q", routes)
		}
		if routes := w.routes(form, "-4"); !slices.Contains(routes, "10.99.0.0/16 via 10.1.0.1 dev front") {
			t.Errorf("the network's route is not on the first interface of two: %q", routes)
		}
		if routes := w.routes(short, "-4"); !slices.Contains(routes, "default via 10.244.1.1 dev eth0") {
			t.Errorf("the default route is not Flannel's: %q", routes)
		}
		equal(t, "MTU by default: underlay less Geneve", w.Links(short)["net1"].MTU, 1600-58)
		equal(t, "MTU of the network", w.Links(form)["net1"].MTU, 1400)
	})
	t.Run("reach", func(t *testing.T) {
		w.MustReach(short, w.Links(pairs)["net1"].IPs()...)
		w.MustReach(pairs, w.Links(form)["front"].IPs()...)
		w.MustReach(pairs, w.Links(form)["net1"].IPs()...)
		w.MustReach(fixed, w.Links(form)["net1"].IPs()...)
		w.MustReach(form, "10.2.7.7", "fd02::77")
		w.MustReach(six, "fd06::1:2:3:4")
		w.MustReach(fixed, w.Links(six)["net1"].IPs()...)
		w.MustReach(short, w.Links(pairs)["eth0"].IPs()...) // Flannel's, between nodes
		w.mustNotReach(short, "net1", w.Links(form)["net1"].IPs()...)
		w.mustNotReach(form, "front", "192.0.2.9")
	})
	t.Run("large packets", func(t *testing.T) {
		_, err := short.Exec(w.Ctx, "ping", "-c1", "-W2", "-M", "do", "-s", fmt.Sprint(1542-28), w.Links(pairs)["net1"].IPs()[0])
		if err != nil {
			t.Errorf("a packet of the interface's MTU does not get through: %v", err)
		}
	})

	w.Over(short, pairs, form, fixed, six)
}

// consistent holds a pod's network-status against its kernel and against NB.
func (w *world) consistent(p *lab.Pod, want []string) {
	links, status := w.Links(p), w.Status(p)
	if len(links) != len(want)+1 || len(status) != len(want)+1 {
		w.T.Fatalf("%s has %d links and %d entries in its status, want %d", p, len(links), len(status), len(want)+1)
	}
	primary := status[0]
	if !primary.Default || primary.Name != "cbr0" || primary.Interface != "eth0" {
		w.T.Errorf("%s: first entry of its status is %+v, want the primary network's", p, primary)
	}
	equal(w.T, p.String()+" eth0", primary.IPs, links["eth0"].IPs())
	equal(w.T, p.String()+" eth0", primary.Mac, links["eth0"].MAC)
	for i, name := range want {
		s, l := status[i+1], links[name]
		what := p.String() + " " + name
		equal(w.T, what+" in the status", s.Interface, name)
		equal(w.T, what+" default", s.Default, false)
		equal(w.T, what+" ips", s.IPs, l.IPs())
		equal(w.T, what+" mac", s.Mac, l.MAC)
		equal(w.T, what+" mtu", s.Mtu, l.MTU)
		for _, a := range l.Addrs {
			if a.Tentative {
				w.T.Errorf("%s: %s is tentative, not usable at once", what, a.Local)
			}
		}
		row := w.portRow(p, name)
		addresses := strings.Join(append([]string{l.MAC}, l.IPs()...), " ")
		equal(w.T, what+" addresses in NB", row.Addresses, addresses)
		security := addresses
		if strings.Contains(addresses, "::") {
			mac, err := net.ParseMAC(l.MAC)
			w.Must(err)
			security += " " + conf.LinkLocal(mac).String()
		}
		if _, guest, ok := strings.Cut(row.PortSecurity, " fe80::8000:0:0:0/65"); ok && row.ExternalIDs["ovn-multinet/ipam-claim"] != "" {
			security += " fe80::8000:0:0:0/65" + guest // TestGuestLinkLocal
		}
		if w.onPhysicalNetwork(row) && strings.Contains(addresses, ".") {
			security += " 0.0.0.0" // of ARP probes
		}
		equal(w.T, what+" port security in NB", row.PortSecurity, security)
		equal(w.T, what+" requested chassis", row.Options["requested-chassis"], p.Node.SystemID)
		version := p.UID
		if row.ExternalIDs["ovn-multinet/ipam-claim"] != "" {
			version = "" // two pods may share the port
		}
		equal(w.T, what+" iface-id-ver", row.Options["iface-id-ver"], version)
		equal(w.T, what+" owner", []string{
			row.ExternalIDs["ovn-multinet/namespace"], row.ExternalIDs["ovn-multinet/pod"], row.ExternalIDs["ovn-multinet/pod-uid"],
			row.ExternalIDs["ovn-multinet/interface"], row.ExternalIDs["ovn-multinet/network"], row.ExternalIDs["ovn-multinet/node"],
			row.ExternalIDs["ovn-multinet/sandbox"],
		}, []string{p.Namespace, p.Name, p.UID, name, s.Name, p.Node.Name, p.Sandbox})
	}
}

// onPhysicalNetwork reports whether the network of a port is a localnet one.
func (w *world) onPhysicalNetwork(row portRow) bool {
	return w.NBCtl("--bare", "--columns=_uuid", "find", "Logical_Switch_Port", "type=localnet",
		fmt.Sprintf("name=%q", row.ExternalIDs["ovn-multinet/network"]+":localnet")) != ""
}

// portRow is a port's row in NB, read by ovn-nbctl.
type portRow struct {
	UUID                    string
	Addresses, PortSecurity string
	Options, ExternalIDs    map[string]string
}

func (w *world) portRow(p *lab.Pod, ifName string) portRow {
	out, err := w.Lab.NBCtl(w.Ctx, "--format=json", "--columns=_uuid,addresses,port_security,options,external_ids",
		"find", "Logical_Switch_Port", fmt.Sprintf("external_ids:\"ovn-multinet/namespace\"=%q", p.Namespace),
		fmt.Sprintf("external_ids:\"ovn-multinet/pod\"=%q", p.Name), fmt.Sprintf("external_ids:\"ovn-multinet/interface\"=%q", ifName))
	w.Must(err)
	var table struct{ Data [][]json.RawMessage }
	w.Must(json.Unmarshal([]byte(out), &table))
	if len(table.Data) != 1 {
		w.T.Fatalf("%d ports are called %s/%s", len(table.Data), p, ifName)
	}
	row := table.Data[0]
	var id [2]string
	w.Must(json.Unmarshal(row[0], &id))
	return portRow{
		UUID: id[1], Addresses: w.oneString(row[1]), PortSecurity: w.oneString(row[2]),
		Options: w.pairs(row[3]), ExternalIDs: w.pairs(row[4]),
	}
}

func (w *world) oneString(raw json.RawMessage) string {
	var s string
	w.Must(json.Unmarshal(raw, &s))
	return s
}

func (w *world) pairs(raw json.RawMessage) map[string]string {
	var m [2]json.RawMessage
	w.Must(json.Unmarshal(raw, &m))
	var list [][2]string
	w.Must(json.Unmarshal(m[1], &list))
	out := map[string]string{}
	for _, kv := range list {
		out[kv[0]] = kv[1]
	}
	return out
}

// TestPrimaryIsUntouched compares the chain's result and eth0 with what Flannel's chain alone gives.
// Conformance: N-128 C-134 C-135 C-136
func TestPrimaryIsUntouched(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	plain, wanted := w.Pod(0, "plain", ""), w.Pod(0, "wanted", "blue,green")
	want := w.Add(plain)
	got := w.Add(wanted)
	if len(got.Interfaces) != len(want.Interfaces) || len(got.IPs) != len(want.IPs) || len(got.Routes) != len(want.Routes) {
		t.Errorf("the chain's result has changed its shape:\n got %v\nwant one like %v", got, want)
	}
	equal(t, "eth0 in the result and in the kernel", w.Links(wanted)["eth0"].Prefixes()[0], got.IPs[0].Address.String())
	equal(t, "interfaces of a plain pod", len(w.Links(plain)), 1)
	w.Over(plain, wanted)
}

// TestRuntimeWithoutAnnotations is a runtime that does not know the capability: the agent looks.
func TestRuntimeWithoutAnnotations(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	p, plain := w.Pod(0, "web", "blue"), w.Pod(0, "plain", "")
	w.Add(p, lab.WithoutAnnotations())
	w.Add(plain, lab.WithoutAnnotations())
	w.consistent(p, []string{"net1"})
	equal(t, "interfaces of a plain pod", len(w.Links(plain)), 1)
	w.Over(p, plain)
}

// TestVersions runs the job in every version of CNI that a conflist may have.
// Conformance: C-49 C-133
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t, lab.Options{CNIVersion: version}, nil)
			p := w.Attached(0, "web", "blue")
			w.consistent(p, []string{"net1"})
			if version != "0.3.1" {
				w.Must(p.Check(w.Ctx))
			}
			w.Over(p)
		})
	}
}

// TestAttachedAgain: a sandbox may be attached again after its DEL (CNI specification, section 2, ADD). Its host ends then have
// the names they had before, and an ovs-vswitchd that is behind would take the new links for the old ones: the pod would have
// interfaces and no packets. So it is waited for before they are made, and the ADD fails if that takes long.
func TestAttachedAgain(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, nil)
	peer, p := w.Attached(0, "peer", "blue"), w.Attached(0, "web", "blue")
	w.Must(p.Node.VSwitchd.Pause())
	w.Del(p)
	w.refused(w.TryAdd(p), conf.CodeTryAgain, "an earlier attempt of this sandbox is not released yet: ovs-vswitchd is behind: it still has the host-side veths open")
	w.Must(p.Node.VSwitchd.Resume())
	for range 5 {
		w.Del(p)
		w.Add(p)
		w.MustReach(peer, w.Links(p)["net1"].IPs()...)
	}
	w.Over(p, peer)
}

// TestAttachedOverAKilledADD: a runtime that repeats an ADD without the DEL that the specification wants between gets a pod
// whose packets pass, too.
func TestAttachedOverAKilledADD(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, nil)
	peer := w.Attached(0, "peer", "blue")
	for range 5 {
		p, prev := w.withoutNetworks("web", "blue,green")
		w.killed(w.TryAdd(p, lab.OnlyOurs(prev), lab.WithEnv(failpoint.Env+"=bound")))
		w.Add(p, lab.OnlyOurs(prev))
		w.MustReach(peer, w.Links(p)["net1"].IPs()...)
		w.End(p)
	}
	w.Over(peer)
}

// TestStatusOfANode: STATUS says no until the agent was ready once since boot, and no more; with strictStatus it goes on to
// say what is away, at once also where that hangs.
func TestStatusOfANode(t *testing.T) {
	t.Parallel()
	for name, strict := range map[string]bool{"as it is": false, "strict": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lab.Options{Nodes: 1, CNIVersion: "1.1.0"}, func(l *lab.Lab) {
				l.Nodes[0].PluginConf = func(entry map[string]any) {
					if strict {
						entry["strictStatus"] = true
					}
				}
			})
			n := w.Nodes[0]
			becomesReady := func() { // a moment after the agent accepts calls
				t.Helper()
				w.Must(lab.Eventually(w.Ctx, func() error { return n.Status(w.Ctx) }))
			}
			becomesReady()
			// wants has STATUS say this while something is away, and nothing when it is back.
			wants := func(away, back func() error, code uint, words string) {
				t.Helper()
				w.Must(away())
				if strict {
					w.refused(n.Status(w.Ctx), code, words)
				} else {
					w.Must(n.Status(w.Ctx))
				}
				w.Must(back())
				becomesReady()
			}
			wants(w.NB.Kill, func() error { return w.NB.Restart(w.Ctx) }, conf.CodeNotAvailable, "NB database does not answer")
			wants(w.NB.Pause, w.NB.Resume, conf.CodeNotAvailable, "NB database does not answer")
			wants(n.OVSDB.Kill, func() error { return n.OVSDB.Restart(w.Ctx) }, conf.CodeLimited, "OVS database does not answer")
			wants(n.OVSDB.Pause, n.OVSDB.Resume, conf.CodeLimited, "OVS database does not answer")
			wants(n.KillAgent, func() error { return n.StartAgent(w.Ctx) }, conf.CodeNotAvailable, "agent at ")

			// A boot empties the folder on the tmpfs.
			w.Must(n.KillAgent())
			w.Must(os.Remove(filepath.Join(filepath.Dir(n.AgentSocket), "ready")))
			w.refused(n.Status(w.Ctx), conf.CodeNotAvailable, "was not ready yet since boot")
			w.Must(n.StartAgent(w.Ctx))
			becomesReady()
		})
	}
}
