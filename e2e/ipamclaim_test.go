package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/nad"
)

const (
	vmNetwork = `{"cniVersion":"1.0.0","name":"vm-net","type":"ovn-multinet","subnets":"10.7.0.0/24,fd07::/64","allowPersistentIPs":true}`
	vmClaim   = "apiVersion: k8s.cni.cncf.io/v1alpha1\nkind: IPAMClaim\nmetadata: {namespace: shop, name: vm.net}\n" +
		"spec: {network: vm-net, interface: \"\"}\n"
	vmRequest = `[{"name":"vms","ipam-claim-reference":"vm.net"}]`
)

// claimed makes a pod on network vms of a namespace, with as many IPAMClaims as a pod can have. Their names end with a
// suffix.
func (w *world) claimed(namespace, name, suffix string) *lab.Pod {
	w.T.Helper()
	var claims, requests []string
	for i := range nad.MaxNetworks {
		claim := fmt.Sprintf("%s-%d-%s", name, i, suffix)
		claims = append(claims, fmt.Sprintf("apiVersion: k8s.cni.cncf.io/v1alpha1\nkind: IPAMClaim\nmetadata: {namespace: %s, "+
			"name: %s}\nspec: {network: vm-net, interface: \"\"}\n", namespace, claim))
		requests = append(requests, fmt.Sprintf(`{"name":"vms","ipam-claim-reference":%q}`, claim))
	}
	w.Must(w.WriteManifest("claims."+name+".yaml", strings.Join(claims, "---\n")))
	p, err := w.Nodes[0].NewPod(w.Ctx, namespace, name, map[string]string{
		labtest.NetworksAnnotation: "[" + strings.Join(requests, ",") + "]",
	})
	w.Must(err)
	w.Must(p.WriteManifest())
	return p
}

// claimIs waits until the IPAMClaim has these addresses and this pod.
func (w *world) claimIs(pod string, addresses []string) {
	w.T.Helper()
	w.Eventually(func() error {
		var is struct {
			Status struct {
				IPs      []string               `json:"ips"`
				OwnerPod *struct{ Name string } `json:"ownerPod"`
			} `json:"status"`
		}
		text, err := os.ReadFile(filepath.Join(w.Lab.Manifests, "shop.vm.net.ipamclaim.json"))
		if err == nil {
			err = json.Unmarshal(text, &is)
		}
		owner := ""
		if is.Status.OwnerPod != nil {
			owner = is.Status.OwnerPod.Name
		}
		if got, want := fmt.Sprint(owner, is.Status.IPs), fmt.Sprint(pod, addresses); err == nil && got != want {
			err = fmt.Errorf("the IPAMClaim has %s, want %s", got, want)
		}
		return err
	})
}

// heldRows is how many rows NB has of IPAMClaims.
func (w *world) heldRows() int {
	rows := 0
	for _, table := range []string{"Copp", "Logical_Switch_Port"} {
		var list struct{ Data [][]json.RawMessage }
		w.Must(json.Unmarshal([]byte(w.NBCtl("--format=json", "--columns=_uuid", "find", table,
			`external_ids:"ovn-multinet/ipam-claim"!=""`)), &list))
		rows += len(list.Data)
	}
	return rows
}

// guest is the guest of a virtual machine in a pod.
type guest struct {
	w    *world
	pod  *lab.Pod
	pid  int // its network namespace is that of this process
	link lab.Link
}

// wiredByKubeVirt makes of a pod's interface what KubeVirt makes of it: the interface has another name and MAC and is the
// port of a bridge, another link has its name, its MAC and its addresses, and so has the guest at the bridge, which does
// not run yet. A bridge stands in for KubeVirt's dummy link, which this kernel does not have, and a network namespace for
// the guest.
func (w *world) wiredByKubeVirt(p *lab.Pod, link lab.Link) *guest {
	w.T.Helper()
	vm, err := p.Start(w.Ctx, "unshare", "--net", "sleep", "infinity")
	w.Must(err)
	own, err := os.Readlink("/proc/self/ns/net")
	w.Must(err)
	w.Eventually(func() error {
		at, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", vm.Pid()))
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", vm.Pid()))
		if err == nil && (at == own || strings.TrimSpace(string(comm)) != "sleep") {
			err = errors.New("the guest is not there yet")
		}
		return err
	})
	addresses := func(dev string) (text string) {
		for _, a := range link.Prefixes() {
			text += "; ip addr add " + a + " dev " + dev
			if strings.Contains(a, ":") {
				text += " nodad"
			}
		}
		return text
	}
	w.Exec(p, "sh", "-ec", "ip link set net1 down; ip link set net1 name net1-nic; ip addr flush dev net1-nic; "+
		"ip link set net1-nic address 02:00:00:00:0a:0b; ip link add k6t-net1 type bridge; ip link set net1-nic master k6t-net1; "+
		"ip link add net1 address "+link.MAC+" type bridge"+addresses("net1")+"; ip link add tap-net1 type veth peer name eth0 netns "+
		fmt.Sprint(vm.Pid())+"; ip link set tap-net1 master k6t-net1; for i in net1-nic k6t-net1 tap-net1; do ip link set $i up; done")
	w.Exec(p, "nsenter", "--net", "--target", fmt.Sprint(vm.Pid()), "sh", "-ec",
		"ip link set eth0 address "+link.MAC+" mtu "+fmt.Sprint(link.MTU))
	return &guest{w, p, vm.Pid(), link}
}

// runs starts the guest.
func (g *guest) runs() {
	g.w.T.Helper()
	script := "ip link set eth0 up"
	for _, a := range g.link.Prefixes() {
		script += "; ip addr replace " + a + " dev eth0"
		if strings.Contains(a, ":") {
			script += " nodad"
		}
	}
	g.exec("sh", "-ec", script)
}

// arrives starts the guest after a migration. It announces itself by RARP (RFC 903), as QEMU does, until it gets packets.
func (g *guest) arrives() {
	g.w.T.Helper()
	g.runs()
	mac, err := net.ParseMAC(g.link.MAC)
	g.w.Must(err)
	frame := slices.Concat(net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac,
		[]byte{0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3}, mac, make([]byte, 4), mac, make([]byte, 4), make([]byte, 18))
	before := g.received()
	g.w.Eventually(func() error {
		g.w.send(g, "eth0", frame)
		if now := g.received(); now < before+20 {
			return fmt.Errorf("%s has got %d packets", g, now-before)
		}
		return nil
	})
}

// received is how many packets the guest has got.
func (g *guest) received() int {
	g.w.T.Helper()
	var links []struct {
		Stats64 struct{ RX struct{ Packets int } }
	}
	g.w.Must(json.Unmarshal([]byte(g.exec("ip", "-json", "-statistics", "link", "show", "eth0")), &links))
	return links[0].Stats64.RX.Packets
}

// pauses stops the guest.
func (g *guest) pauses() { g.exec("ip", "link", "set", "eth0", "down") }

func (g *guest) exec(command ...string) string { return g.w.Exec(g, command...) }

// Exec runs a command in the guest's network namespace.
func (g *guest) Exec(ctx context.Context, command ...string) (string, error) {
	return g.pod.Exec(ctx, append([]string{"nsenter", "--net", "--target", fmt.Sprint(g.pid)}, command...)...)
}

// Start runs a command in the guest's network namespace until the lab is closed.
func (g *guest) Start(ctx context.Context, command ...string) (*lab.Process, error) {
	return g.pod.Start(ctx, append([]string{"nsenter", "--net", "--target", fmt.Sprint(g.pid)}, command...)...)
}

// Do calls f in the guest's network namespace.
func (g *guest) Do(f func() error) error {
	return ns.WithNetNSPath(fmt.Sprintf("/proc/%d/ns/net", g.pid), func(ns.NetNS) error { return f() })
}

func (g *guest) String() string { return "the guest of " + g.pod.String() }

// TestIPAMClaims: a virtual machine that is stopped and started on other nodes has the same addresses and MAC each time, and
// nobody else gets them meanwhile: with the controller away, with an agent away, after a pod whose DEL never comes, and
// after a pod that has ended and is still there. They are free when the IPAMClaim is deleted.
func TestIPAMClaims(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, reconciling)
	w.network("vms", vmNetwork)
	w.Base = w.Snapshot()
	client := w.Attached(0, "client", "vms")
	w.Must(w.WriteManifest("claim.yaml", vmClaim))

	vm := w.Attached(0, "launcher-0", vmRequest)
	link := w.Links(vm)["net1"]
	same := func(p *lab.Pod) {
		t.Helper()
		if now := w.Links(p)["net1"]; fmt.Sprint(now.MAC, now.IPs()) != fmt.Sprint(link.MAC, link.IPs()) {
			t.Fatalf("%s has %s %v, the first pod had %s %v", p, now.MAC, now.IPs(), link.MAC, link.IPs())
		}
	}
	addresses := link.Prefixes()
	w.consistent(vm, []string{"net1"})
	w.MustReach(client, link.IPs()...)
	w.claimIs("launcher-0", addresses)

	w.part("a hundred starts", func(t *testing.T, w *world) {
		for i := 1; i <= 100; i++ {
			w.End(vm)
			if i == 50 {
				w.Must(w.KillController())
			}
			if i%10 == 1 {
				thief := w.Pod(0, "thief", fmt.Sprintf(`[{"name":"vms","ips":[%q]}]`, link.IPs()[0]))
				w.refused(w.TryAdd(thief), conf.CodeInUse, "IPAMClaim shop/vm.net")
				w.End(thief)
				shown := w.Multinet("network", "show", "shop/vms")
				if !regexp.MustCompile(`(?m)^shop/vm.net +` + link.MAC + ` +` + strings.Join(link.IPs(), ",") + ` *$`).MatchString(shown) {
					t.Errorf("the command shows:\n%s", shown)
				}
			}
			vm = w.Attached(i%2, fmt.Sprint("launcher-", i), vmRequest)
			same(vm)
			if i%10 == 1 {
				w.MustReach(client, link.IPs()...)
			}
		}
		w.Must(w.StartController(w.Ctx))
		w.claimIs("launcher-100", addresses)
		w.Must(vm.Check(w.Ctx))
	})
	w.part("as KubeVirt wires it", func(t *testing.T, w *world) {
		w.wiredByKubeVirt(vm, link).runs()
		w.MustReach(client, link.IPs()...)
		w.Must(w.Nodes[0].KillAgent())
		w.Must(w.Nodes[0].StartAgent(w.Ctx))
		w.NBCtl("--wait=hv", "lsp-del", "shop/vm.net/ipam:claim") // the node has its flows no more
		w.Eventually(func() error { return errors.Join(w.Reaches(client, link.IPs()[0]), w.Reaches(client, link.IPs()[1])) })
	})
	for node, name := range []string{"on the node", "on another node"} {
		w.part("another pod while one runs, "+name, func(t *testing.T, w *world) {
			next := w.Pod(node, fmt.Sprint("next-", node), vmRequest)
			w.refused(w.TryAdd(next), conf.CodeInUse, "its IPAMClaim is in use by pod "+vm.String())
			w.Del(next)
			w.MustReach(client, link.IPs()...)
			vm.Phase = "Succeeded" // its sandbox stays
			w.Must(vm.WriteManifest())
			w.Add(next)
			same(next)
			w.consistent(next, []string{"net1"})
			w.MustReach(client, link.IPs()...)
			w.End(vm) // the late DEL
			vm = next
			w.consistent(vm, []string{"net1"})
			w.MustReach(client, link.IPs()...)
			w.claimIs(vm.Name, addresses)
		})
	}
	w.part("a pod whose DEL does not come", func(t *testing.T, w *world) {
		w.Must(w.Nodes[1].KillAgent())
		gone := vm
		w.Must(gone.RemoveManifest())
		vm = w.Attached(0, "launcher-102", vmRequest)
		same(vm)
		w.MustReach(client, link.IPs()...)
		w.Must(w.Nodes[1].StartAgent(w.Ctx))
		w.End(gone)
		w.consistent(vm, []string{"net1"})
		w.MustReach(client, link.IPs()...)
	})
	w.part("NB is restored", func(t *testing.T, w *world) {
		before := w.Read(w.NBFile())
		w.End(vm)
		vm = w.Attached(1, "launcher-103", vmRequest)
		w.RestoreNB(before)
		w.Eventually(func() error {
			ids := w.NBCtl("--bare", "--columns=external_ids", "find", "Logical_Switch_Port", `name="shop/vm.net/ipam:claim"`)
			if !strings.Contains(ids, "pod="+vm.Name+" ") {
				return fmt.Errorf("the port has %q", ids)
			}
			return nil
		})
		w.MustReach(client, link.IPs()...)
	})
	w.part("the IPAMClaim is deleted", func(t *testing.T, w *world) {
		w.Must(w.RemoveManifest("claim.yaml"))
		late := w.Pod(0, "late", vmRequest)
		w.refused(w.TryAdd(late), conf.CodeTryAgain, "IPAMClaim shop/vm.net is not found")
		w.End(late)
		w.MustReach(client, link.IPs()...)
		w.End(vm)
		w.Eventually(func() error {
			if rows := w.heldRows(); rows != 0 {
				return fmt.Errorf("NB has %d rows of the IPAMClaim", rows)
			}
			return nil
		})
		thief := w.Attached(0, "thief", fmt.Sprintf(`[{"name":"vms","ips":[%q]}]`, link.IPs()[0]))
		w.Over(thief, client)
	})
}

// TestIPAMClaimsServed: a policy and a Service follow a virtual machine from pod to pod. The policy counts from the first
// packet of each pod on, and without a pod nobody answers for the Service.
func TestIPAMClaimsServed(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("vms", vmNetwork)
	w.Base = w.Snapshot()
	w.Must(w.WriteManifest("claim.yaml", vmClaim))
	client := w.labelled(1, "client", "vms", map[string]string{"app": "client"})
	stranger := w.labelled(0, "stranger", "vms", map[string]string{"app": "stranger"})
	w.policy("guard", "vms", `{podSelector: {matchLabels: {app: vm}}, policyTypes: [Ingress], ingress: [`+
		`{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
	w.service("vm", serviceYAML("vm", "vms", "10.7.0.200,fd07::c8", webPorts, ""))
	for i := range 6 {
		vm := w.labelled(i%2, fmt.Sprint("launcher-", i), vmRequest, map[string]string{"app": "vm"})
		listening := w.answer(vm, 8080, 90)
		for _, a := range w.Links(vm)["net1"].IPs() {
			w.denied(stranger, a, "tcp/8080")
			w.allowed(client, a, "tcp/8080")
			w.denied(stranger, a, "udp/90")
		}
		for _, a := range []string{"10.7.0.200", "fd07::c8"} {
			w.allowed(client, a, "tcp/80")
			w.allowed(client, a, "udp/53")
			w.denied(stranger, a, "tcp/80")
		}
		listening.close()
		w.End(vm)
		w.closed(client, "10.7.0.200", "tcp/80")
	}
	w.Must(w.RemoveManifest("claim.yaml"))
	w.Must(w.RemoveManifest(serviceManifest("vm")))
	w.Must(w.RemoveManifest(policyManifest("guard")))
	w.Over(client, stranger)
}
