package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// podOf makes a pod of a namespace on the i-th node. It is not attached yet.
func (w *world) podOf(namespace string, i int, name, networks string) *lab.Pod {
	w.t.Helper()
	p, err := w.Nodes[i].NewPod(w.ctx, namespace, name, map[string]string{networksAnnotation: networks})
	w.must(err)
	return p
}

// TestBoundaryUngrantedWires: a tenant's network on a physical network that nobody granted is not made, says what the
// operator would have to write, and its pods fail; a grant that is withdrawn lets no new pod in and leaves the others.
func TestBoundaryUngrantedWires(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, grantedVLANs)
	const sentence = `is not granted to namespace shop; the operator's --config would have to say physicalNetworks: {"provider": [{vlans: `
	overlay := `{"cniVersion":"1.0.0","type":"ovn-k8s-cni-overlay","name":"provider","topology":"localnet","vlanID":300}`
	for _, tt := range []struct{ nad, config string }{{"v300", onVLAN(300, "")}, {"overlay", overlay}} {
		w.nad(tt.nad, tt.config)
		w.notReady(tt.nad, "physical network provider, VLAN 300, "+sentence+`"300", namespaces: [shop]}]}`)
		p := w.pod(0, "no-"+tt.nad, "blue,"+tt.nad)
		_, err := p.Add(w.ctx)
		w.refused(err, conf.CodeTryAgain, "VLAN 300, is not granted to namespace shop")
		equal(t, "ports in NB", w.portsOf(p), "")
		w.end(p)
		w.removeNAD(tt.nad)
	}
	w.noSwitch("shop/v300")
	w.noSwitch("provider")

	w.network("v100", onVLAN(100, ""))
	outside := w.outside("out", 100, "10.50.0.9/24", "fd50::9/64")
	runs := w.attached(0, "runs", "v100")
	w.mustReach(outside, w.inCore(runs)...)
	row := w.portRow(runs, "net1")
	configured := func(config string) {
		w.must(w.StopController(w.ctx))
		controllerConfig(t, w.Lab, config)
		w.must(w.StartController(w.ctx))
	}
	configured(strings.Replace(grantedVLANs, "[shop, web]", "[web]", 1))
	w.notReady("v100", "physical network provider, VLAN 100, "+sentence+`"100", namespaces: [shop]}]}`)
	late := w.pod(1, "late", "v100")
	_, err := late.Add(w.ctx)
	w.refused(err, conf.CodeTryAgain, "VLAN 100, is not granted to namespace shop")
	w.mustReach(outside, w.inCore(runs)...)
	equal(t, "port of the pod that runs", fmt.Sprint(w.portRow(runs, "net1")), fmt.Sprint(row))

	configured(grantedVLANs)
	w.inForce("v100", onVLAN(100, ""))
	late = w.retried(late)
	w.mustReach(late, w.inCore(runs)...)
	w.end(runs, late)
	w.endNetworks("v100")
	w.asBeforeOutside()
}

// TestBoundaryOneWire: the networks of two namespaces on one VLAN, with one subnet, never have an address or a MAC twice,
// and no pod has the address of a gateway there.
func TestBoundaryOneWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2, Physical: provider}, func(l *lab.Lab) {
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
		w.add(p)
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
		w.mustReach(outside, w.links(p)["net1"].IPs()[0])
	}
	w.mustReach(pods[0], w.links(pods[1])["net1"].IPs()[0]) // of the other namespace: it is one broadcast domain
	late := w.podOf("web", 1, "late", "v100")
	_, err := late.Add(w.ctx)
	w.refused(err, conf.CodeNoAddressLeft, "web/v100")
	w.end(late)
	taken := w.links(pods[0])["net1"].IPs()[0]
	thief := w.podOf("web", 1, "thief", fmt.Sprintf(`[{"name":"v100","ips":["%s/28"]}]`, taken))
	_, err = thief.Add(w.ctx)
	w.refused(err, conf.CodeInUse, "address "+taken, "is in use by shop/p0 (interface net1)")
	w.end(thief)

	w.network("ext", `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"provider","vlanID":42,`+
		`"subnets":"192.0.2.0/24","gateway":"192.0.2.254"}`)
	for address, by := range map[string]string{"192.0.2.10": "router /core (gateway)", "192.0.2.1": "router /core (gateway)"} {
		p := w.podOf("shop", 0, "as-gateway", fmt.Sprintf(`[{"name":"ext","ips":["%s/24"]}]`, address))
		_, err := p.Add(w.ctx)
		w.refused(err, conf.CodeInUse, "address "+address, "is in use by "+by)
		w.end(p)
	}
	// The other way round: a pod is first.
	first := w.podOf("shop", 0, "first", `[{"name":"ext","ips":["192.0.2.20/24"]}]`)
	w.add(first)
	w.must(w.StopController(w.ctx))
	controllerConfig(t, w.Lab, strings.Replace(gatewayConfig, "192.0.2.10", "192.0.2.20", 1)+strings.Replace(grantedVLANs, "100,", "42,100,", 1))
	w.must(w.StartController(w.ctx))
	w.controllerSays("router /core: gateway: address 192.0.2.20 on physical network provider, VLAN 42 is held by port shop/first/net1")
	w.end(first)
	w.end(pods...)
	w.endNetworks("v100", "web/v100", "ext")
}
