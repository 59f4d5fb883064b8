package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestMainJob attaches pods on two nodes in every form of the annotation and holds kernel, network-status and NB
// against each other; then everything goes and nothing is left.
// Conformance: N-16 N-17 N-24 N-33 N-86 N-93 N-103 N-106 N-108 N-111 N-116 C-28 C-34 C-163
func TestMainJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	short := w.attached(0, "short", "blue")
	pairs := w.attached(1, "pairs", "blue, shop/green@data0")
	form := w.attached(0, "form", `[{"name":"green","namespace":"shop"},{"name":"blue","interface":"front"},{"name":"blue"}]`)
	fixed := w.attached(1, "fixed", `[{"name":"green","ips":["10.2.7.7","fd02::77/64"],"mac":"02:00:00:00:07:07"},{"name":"six","ips":["fd06::1:2:3:4"]},{"name":"wire","ips":["192.0.2.9/24"]}]`)
	six := w.attached(0, "six", "six,wire")

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
		equal(t, "fixed addresses", w.links(fixed)["net1"].Prefixes(), []string{"10.2.7.7/16", "fd02::77/64"})
		equal(t, "fixed MAC", w.links(fixed)["net1"].MAC, "02:00:00:00:07:07")
		equal(t, "fixed wide IPv6 address", w.links(fixed)["net2"].Prefixes(), []string{"fd06::1:2:3:4/64"})
		equal(t, "fixed address on a network without subnets", w.links(fixed)["net3"].Prefixes(), []string{"192.0.2.9/24"})
		equal(t, "MAC only", w.links(six)["net2"].Prefixes(), []string(nil))
		for _, c := range []struct{ addr, subnet string }{
			{w.links(short)["net1"].IPs()[0], "10.1.0.0/16"}, {w.links(pairs)["data0"].IPs()[0], "10.2.0.0/16"},
			{w.links(pairs)["data0"].IPs()[1], "fd02::/64"}, {w.links(six)["net1"].IPs()[0], "fd06::/64"},
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
		equal(t, "MTU by default: underlay less Geneve", w.links(short)["net1"].MTU, 1600-58)
		equal(t, "MTU of the network", w.links(form)["net1"].MTU, 1400)
	})
	t.Run("reach", func(t *testing.T) {
		w.mustReach(short, w.links(pairs)["net1"].IPs()...)
		w.mustReach(pairs, w.links(form)["front"].IPs()...)
		w.mustReach(pairs, w.links(form)["net1"].IPs()...)
		w.mustReach(fixed, w.links(form)["net1"].IPs()...)
		w.mustReach(form, "10.2.7.7", "fd02::77")
		w.mustReach(six, "fd06::1:2:3:4")
		w.mustReach(fixed, w.links(six)["net1"].IPs()...)
		w.mustReach(short, w.links(pairs)["eth0"].IPs()...) // Flannel's, between nodes
		w.mustNotReach(short, "net1", w.links(form)["net1"].IPs()...)
		w.mustNotReach(form, "front", "192.0.2.9")
	})
	t.Run("large packets", func(t *testing.T) {
		_, err := short.Exec(w.ctx, "ping", "-c1", "-W2", "-M", "do", "-s", fmt.Sprint(1542-28), w.links(pairs)["net1"].IPs()[0])
		if err != nil {
			t.Errorf("a packet of the interface's MTU does not get through: %v", err)
		}
	})

	w.end(short, pairs, form, fixed, six)
	w.asBefore()
}

// consistent holds a pod's network-status against its kernel and against NB.
func (w *world) consistent(p *lab.Pod, want []string) {
	w.t.Helper()
	links, status := w.links(p), w.status(p)
	if len(links) != len(want)+1 || len(status) != len(want)+1 {
		w.t.Fatalf("%s has %d links and %d entries in its status, want %d", p, len(links), len(status), len(want)+1)
	}
	primary := status[0]
	if !primary.Default || primary.Name != "cbr0" || primary.Interface != "eth0" {
		w.t.Errorf("%s: first entry of its status is %+v, want the primary network's", p, primary)
	}
	equal(w.t, p.String()+" eth0", primary.IPs, links["eth0"].IPs())
	equal(w.t, p.String()+" eth0", primary.Mac, links["eth0"].MAC)
	for i, name := range want {
		s, l := status[i+1], links[name]
		what := p.String() + " " + name
		equal(w.t, what+" in the status", s.Interface, name)
		equal(w.t, what+" default", s.Default, false)
		equal(w.t, what+" ips", s.IPs, l.IPs())
		equal(w.t, what+" mac", s.Mac, l.MAC)
		equal(w.t, what+" mtu", s.Mtu, l.MTU)
		for _, a := range l.Addrs {
			if a.Tentative {
				w.t.Errorf("%s: %s is tentative, not usable at once", what, a.Local)
			}
		}
		row := w.portRow(p, name)
		addresses := strings.Join(append([]string{l.MAC}, l.IPs()...), " ")
		equal(w.t, what+" addresses in NB", row.Addresses, addresses)
		equal(w.t, what+" port security in NB", row.PortSecurity, addresses)
		equal(w.t, what+" requested chassis", row.Options["requested-chassis"], p.Node.SystemID)
		equal(w.t, what+" iface-id-ver", row.Options["iface-id-ver"], p.UID)
		equal(w.t, what+" owner", []string{
			row.ExternalIDs["ovn-multinet/namespace"], row.ExternalIDs["ovn-multinet/pod"], row.ExternalIDs["ovn-multinet/pod-uid"],
			row.ExternalIDs["ovn-multinet/interface"], row.ExternalIDs["ovn-multinet/network"], row.ExternalIDs["ovn-multinet/node"],
			row.ExternalIDs["ovn-multinet/sandbox"],
		}, []string{p.Namespace, p.Name, p.UID, name, s.Name, p.Node.Name, p.Sandbox})
	}
}

// portRow is a port's row in NB, read by ovn-nbctl.
type portRow struct {
	UUID                    string
	Addresses, PortSecurity string
	Options, ExternalIDs    map[string]string
}

func (w *world) portRow(p *lab.Pod, ifName string) portRow {
	w.t.Helper()
	out, err := w.NBCtl(w.ctx, "--format=json", "--columns=_uuid,addresses,port_security,options,external_ids",
		"find", "Logical_Switch_Port", fmt.Sprintf("name=%s/%s/%s", p.Namespace, p.Name, ifName))
	w.must(err)
	var table struct{ Data [][]json.RawMessage }
	w.must(json.Unmarshal([]byte(out), &table))
	if len(table.Data) != 1 {
		w.t.Fatalf("%d ports are called %s/%s", len(table.Data), p, ifName)
	}
	row := table.Data[0]
	var id [2]string
	w.must(json.Unmarshal(row[0], &id))
	return portRow{
		UUID: id[1], Addresses: w.oneString(row[1]), PortSecurity: w.oneString(row[2]),
		Options: w.pairs(row[3]), ExternalIDs: w.pairs(row[4]),
	}
}

func (w *world) oneString(raw json.RawMessage) string {
	var s string
	w.must(json.Unmarshal(raw, &s))
	return s
}

func (w *world) pairs(raw json.RawMessage) map[string]string {
	var m [2]json.RawMessage
	w.must(json.Unmarshal(raw, &m))
	var list [][2]string
	w.must(json.Unmarshal(m[1], &list))
	out := map[string]string{}
	for _, kv := range list {
		out[kv[0]] = kv[1]
	}
	return out
}

// TestPrimaryIsUntouched compares the chain's result and eth0 with what Flannel's chain alone gives.
// Conformance: N-128 C-134 C-135 C-136
func TestPrimaryIsUntouched(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	plain, wanted := w.pod(0, "plain", ""), w.pod(0, "wanted", "blue,green")
	want, err := plain.Add(w.ctx)
	w.must(err)
	got, err := wanted.Add(w.ctx)
	w.must(err)
	if len(got.Interfaces) != len(want.Interfaces) || len(got.IPs) != len(want.IPs) || len(got.Routes) != len(want.Routes) {
		t.Errorf("the chain's result has changed its shape:\n got %v\nwant one like %v", got, want)
	}
	equal(t, "eth0 in the result and in the kernel", w.links(wanted)["eth0"].Prefixes()[0], got.IPs[0].Address.String())
	equal(t, "interfaces of a plain pod", len(w.links(plain)), 1)
	w.end(plain, wanted)
	w.asBefore()
}

// TestRuntimeWithoutAnnotations is a runtime that does not know the capability: the agent looks.
func TestRuntimeWithoutAnnotations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	p, plain := w.pod(0, "web", "blue"), w.pod(0, "plain", "")
	w.add(p, lab.WithoutAnnotations())
	w.add(plain, lab.WithoutAnnotations())
	w.consistent(p, []string{"net1"})
	equal(t, "interfaces of a plain pod", len(w.links(plain)), 1)
	w.end(p, plain)
	w.asBefore()
}

// TestVersions runs the job in every version of CNI that a conflist may have.
// Conformance: C-49 C-133
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t, lab.Options{CNIVersion: version}, nil)
			p := w.attached(0, "web", "blue")
			w.consistent(p, []string{"net1"})
			if version != "0.3.1" {
				w.must(p.Check(w.ctx))
			}
			w.end(p)
			w.asBefore()
		})
	}
}
