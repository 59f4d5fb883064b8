package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// grantedVLANs are those of the physical network "provider" that the namespaces shop and web may use.
const grantedVLANs = `physicalNetworks:
  provider:
  - {vlans: "untagged,100,200", namespaces: [shop, web]}
`

// newWireWorld has two nodes with the physical network, and a controller with that configuration.
func newWireWorld(t *testing.T, config string) *world {
	t.Helper()
	return newWorld(t, lab.Options{Nodes: 2, Physical: provider}, func(l *lab.Lab) { controllerConfig(t, l, config) })
}

// onVLAN is a provider's network that pods and machines outside share; all of them have the same subnets.
func onVLAN(vlan int, keys string) string {
	tag := ""
	if vlan != 0 {
		tag = fmt.Sprintf(`"vlanID":%d,`, vlan)
	}
	return fmt.Sprintf(`{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"provider",%s%s
		"subnets":"10.50.0.0/24,fd50::/64","excludeSubnets":"10.50.0.0/28,fd50::/124"}`, tag, keys)
}

// TestLocalnet: an untagged and two tagged networks of the provider's on one bridge; machines outside reach the pods in their
// own VLAN, and nobody else's.
func TestLocalnet(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, grantedVLANs)
	vlans := []int{0, 100, 200}
	var outside []*lab.Outside
	var pods, peers []*lab.Pod
	for _, vlan := range vlans {
		name := fmt.Sprintf("v%d", vlan)
		// The same addresses in each VLAN: whoever answers is who is there.
		outside = append(outside, w.outside("out"+name, vlan, "10.50.0.9/24", "fd50::9/64"))
		w.network(name, onVLAN(vlan, ""))
		pods, peers = append(pods, w.Attached(0, "a"+name, name)), append(peers, w.Attached(1, "b"+name, name))
	}
	for i := range vlans {
		for _, p := range []*lab.Pod{pods[i], peers[i]} {
			w.consistent(p, []string{"net1"})
			equal(t, "who is seen outside of "+p.String(), w.seenFrom(p, outside[i], "10.50.0.9", "fd50::9"), w.inCore(p))
			w.MustReach(outside[i], w.inCore(p)...)
		}
		w.MustReach(pods[i], w.inCore(peers[i])...)
	}
	heard, err := outside[1].Capture()
	w.Must(err)
	defer heard.Close()
	for i := range vlans {
		for j := range vlans {
			// An address that two VLANs have says nothing.
			if ip := w.inCore(pods[j])[0]; i != j && !strings.Contains(strings.Join(append(w.inCore(pods[i]), w.inCore(peers[i])...), " ")+" ", ip+" ") {
				w.mustNotReach(outside[i], "eth0", ip)
			}
		}
	}
	sources, err := heard.Sources()
	w.Must(err)
	equal(t, "what was heard in VLAN 100 of the others' search", fmt.Sprint(sources), "[]")
	equal(t, "MTU", w.Links(pods[0])["net1"].MTU, w.linkMTU(w.Nodes[0], "br-ex"))

	w.part("an MTU that the bridge does not carry", func(t *testing.T, w *world) {
		w.network("large", onVLAN(100, `"mtu":9000,`))
		p := w.Pod(0, "large", "large")
		w.refused(w.TryAdd(p), 11, fmt.Sprintf("interface net1: network shop/large: mtu: 9000 is larger than %d, which is the largest "+
			"that the bridge to physical network provider of node %s carries", w.linkMTU(w.Nodes[0], "br-ex"), w.Nodes[0].Name))
		w.End(p)
		w.endNetworks("large")
	})
	w.part("the VLAN stays while pods are there", func(t *testing.T, w *world) {
		row := w.portRow(pods[1], "net1")
		w.End(pods[2], peers[2])
		w.endNetworks("v200")
		w.NAD("v100", onVLAN(200, ""))
		w.notReady("v100", "vlanID: 100 cannot become 200, with 2 ports on the network")
		w.MustReach(outside[1], w.inCore(pods[1])...)
		for _, ip := range w.inCore(pods[1]) {
			w.mustNotReach(outside[2], "eth0", ip)
		}
		w.network("v100", onVLAN(100, ""))
		equal(t, "port of the running pod", fmt.Sprint(w.portRow(pods[1], "net1")), fmt.Sprint(row))
	})
	w.part("the VLAN changes when they are gone", func(t *testing.T, w *world) {
		w.End(pods[1], peers[1])
		w.network("v100", onVLAN(200, ""))
		pods[1], peers[1] = w.Attached(0, "again", "v100"), w.Attached(1, "once-more", "v100")
		w.MustReach(outside[2], w.inCore(pods[1])...)
		w.MustReach(pods[1], w.inCore(peers[1])...)
		for _, ip := range w.inCore(pods[1]) {
			w.mustNotReach(outside[1], "eth0", ip)
		}
	})
	w.part("shown", func(t *testing.T, w *world) {
		out := w.Multinet("network", "show", "shop/v100")
		if !strings.Contains(out, "provider, VLAN 200") || !strings.Contains(out, "localnet") {
			t.Errorf("kubectl multinet does not say which network of the provider's it is:\n%s", out)
		}
	})
	w.End(pods[0], pods[1], peers[0], peers[1])
	w.endNetworks("v0", "v100")
	w.asBeforeOutside()
}

// linkMTU reads the MTU of a link of a node.
func (w *world) linkMTU(n *lab.Node, name string) int {
	out := w.Exec(n, "ip", "-json", "link", "show", name)
	var list []lab.Link
	w.Must(json.Unmarshal([]byte(out), &list))
	return list[0].MTU
}

// TestLocalnetWithoutMapping: a pod on a node that is not connected to the provider's network fails and says so, and nothing
// is made of any of its networks; when the node is connected it comes up with no other help.
func TestLocalnetWithoutMapping(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, grantedVLANs)
	w.network("plain", onVLAN(0, ""))
	w.VSCtl(w.Nodes[1], "remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
	w.Base = w.Snapshot()
	p := w.Pod(1, "web", "blue,plain")
	for _, c := range []struct{ mapping, says string }{
		{"", "node2 has no bridge for physicalNetworkName provider"},
		{"other:br-ex", "node2 has no bridge for physicalNetworkName provider"},
		{"provider:br-none", "node2 has no bridge br-none, which ovn-bridge-mappings names for provider"},
	} {
		if c.mapping != "" {
			w.VSCtl(w.Nodes[1], "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings="+c.mapping)
		}
		w.Eventually(func() error { // the agent hears of the setting by itself
			err := w.TryAdd(p)
			w.refused(err, conf.CodeTryAgain, "interface net2", "shop/plain")
			w.Del(p)
			w.Must(p.RemoveNetNS())
			if p = w.NewSandbox(p); !strings.Contains(err.Error(), c.says) {
				return fmt.Errorf("got %v, want %q", err, c.says)
			}
			return nil
		})
		equal(t, "ports in NB", w.portsOf(p), "")
	}
	w.VSCtl(w.Nodes[1], "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=provider:br-ex")
	p = w.retried(p)
	outside := w.outside("out", 0, "10.50.0.9/24", "fd50::9/64")
	w.MustReach(outside, w.Links(p)["net2"].IPs()...)
	w.End(p)
	w.endNetworks("plain")
}

// overlay is a NAD as ovn-kubernetes' users have it, word for word but for the names.
func overlay(nad, subnets string, mtu int) string {
	return fmt.Sprintf(`{
            "cniVersion": "0.3.1",
            "name": "tenantblue",
            "type": "ovn-k8s-cni-overlay",
            "topology":"layer2",
            "subnets": "%s",
            "mtu": %d,
            "netAttachDefName": "%s",
            "excludeSubnets": "10.100.200.0/29"
    }`, subnets, mtu, nad)
}

// TestOverlayNADs reads ovn-kubernetes' NADs as they are: those of one name are one network, as far as they agree.
func TestOverlayNADs(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, withGlobal("tools", func(l *lab.Lab) {
		l.ControllerArgs = []string{"--joining-namespaces", "tools"}
	}))
	const subnets = "10.100.200.0/24"
	w.network("first", overlay("shop/first", subnets, 1300))
	w.network("second", overlay("shop/second", subnets, 1300))
	w.network("tools/third", overlay("tools/third", subnets, 1300))
	a, b, c := w.Attached(0, "a", "first"), w.Attached(1, "b", "second"), w.Attached(0, "c", "tools/third")
	for _, p := range []*lab.Pod{a, b, c} {
		link := w.Links(p)["net1"]
		equal(t, "MTU", link.MTU, 1300)
		if ip := link.IPs()[0]; !strings.HasPrefix(ip, "10.100.200.") || len(w.Status(p)) != 2 {
			t.Errorf("%s has %s, status %+v", p, ip, w.Status(p))
		}
		w.MustReach(p, w.Links(a)["net1"].IPs()[0], w.Links(b)["net1"].IPs()[0], w.Links(c)["net1"].IPs()[0])
	}
	equal(t, "networks", w.networkOf(a)+" "+w.networkOf(b)+" "+w.networkOf(c), "tenantblue tenantblue tenantblue")
	ping := w.pinging(a, w.Links(b)["net1"].IPs()[0])

	for _, odd := range []struct {
		nad, config string
		code        uint // of a pod's ADD; 0: it is not tried, for it waits a while
		says        []string
	}{
		{"wider", overlay("shop/wider", "10.100.0.0/16", 1300), conf.CodeTryAgain, []string{"differs from", "tenantblue", "subnets: 10.100.0.0/16 is not 10.100.200.0/24"}},
		{"larger", overlay("shop/larger", subnets, 1400), 0, []string{"differs from", "tenantblue", "mtu: 1400 is not 1300"}},
		{"visitors/guest", overlay("visitors/guest", subnets, 1300), 0, []string{"tenantblue is of namespace shop", "namespace visitors may not join"}},
		{"astray", overlay("shop/other", subnets, 1300), conf.CodeInvalidConfig, []string{`netAttachDefName is "shop/other"`}},
	} {
		w.part(odd.nad, func(t *testing.T, w *world) {
			w.NAD(odd.nad, odd.config)
			w.notReady(odd.nad, odd.says...)
			if odd.code != 0 {
				p := w.Pod(0, "odd", odd.nad)
				w.refused(w.TryAdd(p), odd.code, append(odd.says, "network shop/"+odd.nad)...)
				w.End(p)
			}
			for _, nad := range []string{"first", "second", "tools/third"} {
				if state, _ := w.state(nad); !state.Ready {
					t.Errorf("the network of %s suffers from another NAD: %+v", nad, state)
				}
			}
			ping.goesOn()
			w.removeNAD(odd.nad)
		})
	}

	// The network is there as long as one NAD is that describes it.
	w.removeNAD("first")
	w.settled()
	late := w.Pod(0, "late", "first")
	_, err := late.Add(w.Ctx)
	w.clean(err)
	d := w.Attached(0, "d", "second")
	w.MustReach(d, w.Links(a)["net1"].IPs()[0], w.Links(b)["net1"].IPs()[0])
	ping.stop()
	w.End(a, b, c, d, late)
	w.endNetworks("second", "tools/third")
	w.noSwitch("tenantblue")
	w.AsBefore()
}

// networkOf is the network that a pod's first port is on.
func (w *world) networkOf(p *lab.Pod) string {
	return w.portRow(p, "net1").ExternalIDs["ovn-multinet/network"]
}

// podOf makes a pod of a namespace on the i-th node. It is not attached yet.
func (w *world) podOf(namespace string, i int, name, networks string) *lab.Pod {
	p, err := w.Nodes[i].NewPod(w.Ctx, namespace, name, map[string]string{labtest.NetworksAnnotation: networks})
	w.Must(err)
	return p
}

// TestBoundaryUngrantedWires: a tenant's network on a physical network that nobody granted is not made, says what the
// operator would have to write, and its pods fail; a grant that is withdrawn lets no new pod in and leaves the others.
func TestBoundaryUngrantedWires(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, grantedVLANs)
	const sentence = `is not granted to namespace shop; the operator would have to create a PhysicalNetwork with the spec {physicalNetworkName: "provider", grants: [{vlans: `
	overlay := `{"cniVersion":"1.0.0","type":"ovn-k8s-cni-overlay","name":"provider","topology":"localnet","vlanID":300}`
	for _, tt := range []struct{ nad, config string }{{"v300", onVLAN(300, "")}, {"overlay", overlay}} {
		w.NAD(tt.nad, tt.config)
		w.notReady(tt.nad, "physical network provider, VLAN 300, "+sentence+`"300", namespaces: [shop]}]}`)
		p := w.Pod(0, "no-"+tt.nad, "blue,"+tt.nad)
		w.refused(w.TryAdd(p), conf.CodeTryAgain, "VLAN 300, is not granted to namespace shop")
		equal(t, "ports in NB", w.portsOf(p), "")
		w.End(p)
		w.removeNAD(tt.nad)
	}
	w.noSwitch("shop/v300")
	w.noSwitch("provider")

	w.network("v100", onVLAN(100, ""))
	outside := w.outside("out", 100, "10.50.0.9/24", "fd50::9/64")
	runs := w.Attached(0, "runs", "v100")
	w.MustReach(outside, w.inCore(runs)...)
	row := w.portRow(runs, "net1")
	configured := func(config string) {
		w.Must(w.StopController(w.Ctx))
		controllerConfig(t, w.Lab, config)
		w.Must(w.StartController(w.Ctx))
	}
	configured(strings.Replace(grantedVLANs, "[shop, web]", "[web]", 1))
	w.notReady("v100", "physical network provider, VLAN 100, "+sentence+`"100", namespaces: [shop]}]}`)
	late := w.Pod(1, "late", "v100")
	w.refused(w.TryAdd(late), conf.CodeTryAgain, "VLAN 100, is not granted to namespace shop")
	w.MustReach(outside, w.inCore(runs)...)
	equal(t, "port of the pod that runs", fmt.Sprint(w.portRow(runs, "net1")), fmt.Sprint(row))

	configured(grantedVLANs)
	w.inForce("v100", onVLAN(100, ""))
	late = w.retried(late)
	w.MustReach(late, w.inCore(runs)...)
	w.End(runs, late)
	w.endNetworks("v100")
	w.asBeforeOutside()
}

// TestBoundaryOneWire: the networks of two namespaces on one VLAN, with one subnet, never have an address or a MAC twice,
// and no pod has the address of a gateway there.
func TestBoundaryOneWire(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2, Physical: provider}, func(l *lab.Lab) {
		controllerConfig(t, l, gatewayConfig+strings.Replace(grantedVLANs, "100,", "42,100,", 1))
		if err := l.WriteManifest("nodes.yaml", nodesManifest(l.Nodes, 0)); err != nil {
			t.Fatal(err)
		}
	})
	w.gatewayStands(0)
	const all = `"subnets":"10.50.0.0/28","excludeSubnets":"10.50.0.8/29"` // .2 to .7
	keys := `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"provider","vlanID":100,` + all + `}`
	w.network("v100", keys)
	w.network("web/v100", keys)
	outside := w.outside("out", 100, "10.50.0.9/24")
	pods := []*lab.Pod{}
	seen := map[string]string{}
	for i := range 6 {
		p := w.podOf([]string{"shop", "web"}[i%2], i%2, fmt.Sprint("p", i), "v100")
		w.Add(p)
		row := w.portRow(p, "net1")
		for _, word := range strings.Fields(row.Addresses) {
			if other := seen[word]; other != "" {
				t.Errorf("%s is of %s and of %s", word, other, p)
			}
			seen[word] = p.String()
		}
		pods = append(pods, p)
	}
	for _, p := range pods {
		w.MustReach(outside, w.Links(p)["net1"].IPs()[0])
	}
	w.MustReach(pods[0], w.Links(pods[1])["net1"].IPs()[0]) // of the other namespace: it is one broadcast domain
	late := w.podOf("web", 1, "late", "v100")
	w.refused(w.TryAdd(late), conf.CodeNoAddressLeft, "web/v100")
	w.End(late)
	taken := w.Links(pods[0])["net1"].IPs()[0]
	thief := w.podOf("web", 1, "thief", fmt.Sprintf(`[{"name":"v100","ips":["%s/28"]}]`, taken))
	w.refused(w.TryAdd(thief), conf.CodeInUse, "address "+taken, "is in use by shop/p0 (interface net1)")
	w.End(thief)

	w.network("ext", `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"provider","vlanID":42,`+
		`"subnets":"192.0.2.0/24","gateway":"192.0.2.254"}`)
	for address, by := range map[string]string{"192.0.2.10": "router /core (gateway)", "192.0.2.1": "router /core (gateway)"} {
		p := w.podOf("shop", 0, "as-gateway", fmt.Sprintf(`[{"name":"ext","ips":["%s/24"]}]`, address))
		w.refused(w.TryAdd(p), conf.CodeInUse, "address "+address, "is in use by "+by)
		w.End(p)
	}
	// The other way round: a pod is first.
	first := w.podOf("shop", 0, "first", `[{"name":"ext","ips":["192.0.2.20/24"]}]`)
	w.Add(first)
	w.Must(w.StopController(w.Ctx))
	controllerConfig(t, w.Lab, strings.Replace(gatewayConfig, "192.0.2.10", "192.0.2.20", 1)+strings.Replace(grantedVLANs, "100,", "42,100,", 1))
	w.Must(w.StartController(w.Ctx))
	w.controllerSays("router /core: gateway: address 192.0.2.20 on physical network provider, VLAN 42 belongs to port shop/first/net1")
	w.End(first)
	w.End(pods...)
	w.endNetworks("v100", "web/v100", "ext")
}
