package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// TestBadInput asks for what cannot be: each gets its code and one line that names the thing, and leaves nothing.
// Conformance: F-12
func TestBadInput(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	w.Must(w.WriteManifest("typo.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {namespace: shop, name: typo}\nspec: {config: '{\"type\":\"ovn-multinet\",\"subnet\":\"10.9.0.0/24\"}'}\n"))
	w.Must(w.WriteManifest("other.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {namespace: shop, name: other}\nspec: {config: '{\"type\":\"bridge\"}'}\n"))
	holder := w.Attached(0, "holder", `[{"name":"blue","ips":["10.1.0.7"],"mac":"02:00:00:00:00:07"}]`)
	full := make([]*lab.Pod, 5) // a /29 has six hosts, of which one is the gateway
	for i := range full {
		full[i] = w.Attached(0, "full-"+string(rune('a'+i)), "tiny")
	}
	for _, c := range []struct {
		name, networks string
		code           uint
		words          []string
	}{
		{"unknown network", "nowhere", conf.CodeNetworkNotFound, []string{"net1", "network shop/nowhere is not found"}},
		{"unknown network of two", "blue,nowhere", conf.CodeNetworkNotFound, []string{"net2", "shop/nowhere"}},
		{"malformed annotation", `[{"name":"blue"`, conf.CodeInvalidConfig, []string{labtest.NetworksAnnotation, "JSON"}},
		{"null element", `[null]`, conf.CodeInvalidConfig, []string{"entry 0"}},
		{"unknown key", `[{"name":"blue","ip":["10.1.0.8"]}]`, conf.CodeInvalidConfig, []string{`"ip"`, `did you mean "ips"`}},
		{"outside the subnet", `[{"name":"blue","ips":["10.7.0.8"]}]`, conf.CodeInvalidConfig, []string{"10.7.0.8", "10.1.0.0/16", "shop/blue"}},
		{"in use", `[{"name":"blue","ips":["10.1.0.7"]}]`, conf.CodeInUse, []string{"10.1.0.7", "shop/holder"}},
		{"MAC in use", `[{"name":"blue","mac":"02:00:00:00:00:07"}]`, conf.CodeInUse, []string{"02:00:00:00:00:07", "shop/holder"}},
		{"network address", `[{"name":"blue","ips":["10.1.0.0"]}]`, conf.CodeInvalidConfig, []string{"10.1.0.0", "network address"}},
		{"broadcast address", `[{"name":"blue","ips":["10.1.255.255"]}]`, conf.CodeInvalidConfig, []string{"10.1.255.255", "broadcast address"}},
		{"gateway address", `[{"name":"blue","ips":["10.1.0.1"]}]`, conf.CodeInvalidConfig, []string{"10.1.0.1", "gateway"}},
		{"excluded address", `[{"name":"blue","ips":["10.1.255.9"]}]`, conf.CodeInvalidConfig, []string{"10.1.255.9", "excludeSubnets"}},
		{"subnet full", "tiny", conf.CodeNoAddressLeft, []string{"shop/tiny", "no address left"}},
		{"unknown key in the network", "typo", conf.CodeInvalidConfig, []string{"shop/typo", `"subnet"`, `did you mean "subnets"`}},
		{"another plugin's network", "other", conf.CodeNotAllowed, []string{"shop/other", `"bridge"`}},
		{"one interface name twice", "blue@data,green@data", conf.CodeInvalidConfig, []string{`"data"`, "entry 1", "entry 0"}},
		{"the primary interface's name", "blue@eth0", conf.CodeInvalidConfig, []string{`"eth0"`}},
		{"a leased MAC's form", `[{"name":"blue","mac":"0a:58:00:00:00:01"}]`, conf.CodeInvalidConfig, []string{"0a:58:00:00:00:01"}},
		{"good before bad", `[{"name":"green"},{"name":"blue","ips":["10.1.0.7"]}]`, conf.CodeInUse, []string{"net2", "10.1.0.7"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := w.sub(t)
			p := sub.Pod(0, "bad", c.networks)
			sub.Base = sub.Snapshot()
			_, err := p.Add(w.Ctx)
			sub.refused(err, c.code, c.words...)
			sub.Over(p)
		})
	}
	w.End(append(full, holder)...)
	w.Must(w.RemoveManifest("typo.yaml"))
	w.Must(w.RemoveManifest("other.yaml"))
	w.AsBefore()
}

// TestPodWithoutManifest: a pod that its source does not know is not attached with invented addresses.
// Conformance: F-9
func TestPodWithoutManifest(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	p := w.Pod(0, "web", "blue")
	w.Must(p.RemoveManifest())
	w.refused(w.TryAdd(p), conf.CodePodGone, "pod shop/web is not found")
	w.Over(p)
}

// TestNotChained: first in the conflist, or alone, is no way to run.
// Conformance: N-127
func TestNotChained(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	p := w.Pod(0, "web", "blue")
	w.refused(w.TryAdd(p, lab.OnlyOurs(nil)), conf.CodeInvalidConfig, "prevResult")
	w.Must(p.RemoveNetNS())
	w.Must(p.RemoveManifest())
	w.AsBefore()
}

// TestInterfaceTaken: a name that something else in the pod has already is refused when the kernel says so, and
// what was made before is undone.
// Conformance: C-31
func TestInterfaceTaken(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	p := w.Pod(0, "web", "green,blue@taken")
	w.Exec(p, "ip", "link", "add", "taken", "type", "veth", "peer", "name", "other")
	w.refused(w.TryAdd(p), conf.CodeInvalidConfig, "interface taken", "already")
	if links := w.Links(p); len(links) != 2 && len(links) != 3 {
		t.Errorf("interfaces were left in the pod: %v", links)
	}
	w.Over(p)
}

// TestConfigIsFollowed: the operator's configuration counts and ends while one controller runs, and pods with it. A file with
// a mistake changes nothing.
func TestConfigIsFollowed(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, "physicalNetworks: {}\n")
	w.NAD("v100", onVLAN(100, ""))
	state := func(want string) {
		t.Helper()
		w.Eventually(func() error {
			s, ok := w.state("v100")
			if got := fmt.Sprint(ok, s.Ready, " ", s.Reason); !strings.HasPrefix(got, want) {
				return fmt.Errorf("the state is %s, want %s", got, want)
			}
			return nil
		})
	}
	const refused = "true false physical network provider, VLAN 100, is not granted"
	state(refused)
	controllerConfig(t, w.Lab, grantedVLANs)
	state("true true")
	p, peer := w.Attached(0, "a", "v100"), w.Attached(1, "b", "v100")
	w.MustReach(p, w.inCore(peer)...)

	controllerConfig(t, w.Lab, strings.Replace(grantedVLANs, "vlans:", "vlan:", 1))
	w.says(w.Controller, "the changed configuration is invalid")
	late := w.Attached(0, "late", "v100") // what it said before counts
	controllerConfig(t, w.Lab, "physicalNetworks: {}\n")
	state(refused)
	w.MustReach(p, w.inCore(peer)...)
	equal(t, "times that a controller led", strings.Count(read(t, w.Controller.LogPath()), "msg=leading"), 1)
	w.End(p, peer, late)
	w.endNetworks("v100")
}

// quick is how often the controllers of these tests look for ports without a pod.
const quick = "--orphan-period=200ms"

// TestForeignPort has a VM of somebody else's on a network, at an address that is excluded: it and the pods reach each
// other, and nothing that the product does takes it away.
func TestForeignPort(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) { l.ControllerArgs = []string{quick} })
	const config = `{"type":"ovn-multinet","subnets":"10.20.0.0/24","excludeSubnets":"10.20.0.128/25"}`
	w.network("lan", config)
	const mac, ip = "02:00:00:00:80:09", "10.20.0.200"
	w.NBCtl("lsp-add", "shop/lan", "vm", "--", "lsp-set-addresses", "vm", mac+" "+ip)
	vm, err := w.Nodes[1].NewMachine(w.Ctx, "vm", mac, ip+"/24")
	w.Must(err)
	far, near := w.Attached(0, "far", "lan"), w.Attached(1, "near", "lan")
	w.MustReach(near, ip)
	w.MustReach(vm, w.Links(near)["net1"].IPs()...)
	to, from := w.pinging(far, ip), w.pinging(vm, w.Links(far)["net1"].IPs()[0])
	row := w.foreignRow("vm")

	for _, c := range []struct {
		name string
		do   func(w *world)
	}{
		{"controller restarts", func(w *world) {
			w.Must(w.KillController())
			w.Must(w.StartController(w.Ctx))
			w.settled()
		}},
		{"network changes", func(w *world) {
			w.network("lan", `{"type":"ovn-multinet","subnets":"10.20.0.0/24","excludeSubnets":"10.20.0.192/26","router":"main","mtu":1400}`)
			w.network("lan", config)
		}},
		{"change is refused", func(w *world) {
			w.NAD("lan", `{"type":"ovn-multinet","subnets":"10.20.0.0/25"}`)
			w.notReady("lan", "subnets")
			w.network("lan", config)
		}},
		{"pods come and go", func(w *world) {
			for i := range 4 {
				w.End(w.Attached(i%2, "guest", "lan"), w.Attached((i+1)%2, "other-guest", "lan"))
			}
		}},
		{"orphans are released", func(w *world) { w.orphan(1, "lan") }},
		{"network is deleted", func(w *world) {
			w.removeNAD("lan")
			w.fenced("shop/lan")
			w.controllerSays("port vm (not ours)")
		}},
	} {
		w.part(c.name, func(t *testing.T, w *world) {
			c.do(w)
			to.goesOn()
			from.goesOn()
			equal(t, "the port", w.foreignRow("vm"), row)
		})
	}
	to.stop()
	from.stop()

	// The pods are gone: what is on the network still is named, and keeps it until it goes too.
	w.End(far, near)
	w.controllerSays(`"used by port vm (not ours)"`)
	w.settled()
	equal(t, "the port without pods", w.foreignRow("vm"), row)
	w.network("lan", config)
	back := w.Attached(0, "back", "lan")
	w.MustReach(back, ip)
	w.End(back)
	w.removeNAD("lan")
	w.fenced("shop/lan")
	w.NBCtl("lsp-del", "vm")
	w.Must(vm.Close(w.Ctx))
	w.endNetworks("lan")
	w.AsBefore()
}

// foreignRow is a port that is not ours, with what its owner wrote.
func (w *world) foreignRow(name string) string {
	out := w.NBCtl("--columns=_uuid,name,type,addresses,port_security,options,external_ids", "list", "Logical_Switch_Port", name)
	return out
}

// portsOf lists the rows of a pod's ports, and the claims that hang on them.
func (w *world) portsOf(p *lab.Pod) string {
	ports, err := w.Lab.NBCtl(w.Ctx, "--bare", "--columns=name", "find", "Logical_Switch_Port",
		"external_ids:ovn-multinet/namespace="+p.Namespace, "external_ids:ovn-multinet/pod="+p.Name)
	w.Must(err)
	claims := ""
	for _, ifName := range []string{"net1", "net2"} {
		out := w.NBCtl("--bare", "--columns=name", "find", "Copp", fmt.Sprintf("external_ids:ovn-multinet/port-name=%s/%s", p, ifName))
		claims += out
	}
	return ports + claims
}

// orphan attaches a pod, and takes it out of the source while its node's agent is dead: its ports go all the same.
func (w *world) orphan(node int, networks string) {
	p := w.Attached(node, "orphan", networks)
	w.Must(p.Node.KillAgent())
	w.Must(p.RemoveManifest())
	w.noPorts(p)
	w.Must(p.Del(w.Ctx))
	w.Must(p.RemoveNetNS())
	w.Must(p.Node.StartAgent(w.Ctx))
}

func (w *world) noPorts(p *lab.Pod) {
	w.Eventually(func() error {
		if left := w.portsOf(p); left != "" {
			return fmt.Errorf("%s has ports or claims still: %q", p, left)
		}
		return nil
	})
}
