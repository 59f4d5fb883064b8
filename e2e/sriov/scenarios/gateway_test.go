//go:build sriov

package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// gatewayConfig is of router /core. Its gateway is on the first node, on VLAN 42 of the physical network.
const gatewayConfig = `routers:
  /core:
    namespaces:
      shop: {subnets: "10.0.0.0/8,fd00::/8", maySetSNAT: true}
    gatewayNodes: edge=yes
    physicalNetworkName: provider
    vlanID: 42
    externalSubnet: 192.0.2.0/24,2001:db8::/64
    externalAddress: 192.0.2.10,2001:db8::10
    nextHop: 192.0.2.1,2001:db8::1
    addressPools:
      public: {addresses: "192.0.2.16/28,2001:db8::110-2001:db8::11f", namespaces: {shop: 4}}
physicalNetworks:
  provider:
  - {vlans: "42", namespaces: [shop]}
`

// configureGateway gives the controller the configuration and the nodes their labels, before it starts.
func (w *world) configureGateway() {
	path := filepath.Join(w.Dir, "controller.yaml")
	w.Must(os.WriteFile(path, []byte(gatewayConfig), 0o644))
	w.ControllerArgs = []string{"--config", path}
	var docs []string
	for i, n := range w.Nodes {
		labels := "{}"
		if i == 0 {
			labels = `{edge: "yes"}`
		}
		docs = append(docs, fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: %s}\n", n.Name, labels))
	}
	w.Must(w.WriteManifest("nodes.yaml", strings.Join(docs, "---\n")))
}

// gatewayStands waits until the gateway is on its node.
func (w *world) gatewayStands() {
	w.Eventually(func() error {
		_, err := w.Nodes[0].VSCtl(w.Ctx, "--no-wait", "get", "Port", "patch-/core:provider-to-br-int", "name")
		return err
	})
}

// onCore is a network on router /core with routes to the other ones and to outside.
func onCore(i int, keys string) string {
	return fmt.Sprintf(`{"type":"ovn-multinet","router":"/core","subnets":"10.%d.0.0/24,fd%d::/64",%s
		"routes":[{"dst":"10.16.0.0/12"},{"dst":"192.0.2.0/24"},{"dst":"2001:db8::/32"}]}`, 20+i, 20+i, keys)
}

// large is a way on which large packets go.
type large struct {
	name string
	from interface {
		labtest.Endpoint
		Do(func() error) error
	}
	to         []string
	size, want int // the MTU of the sender's interface, and what fits
}

// TestGatewayMTU: with the kernel's datapath, packets that do not fit through a gateway are answered on each way: to outside
// and back, translated, and by a floating address on the pod's node and on the gateway's, in both families.
func TestGatewayMTU(t *testing.T) {
	w := newWorld(t)
	host, err := w.Outside(w.Ctx, "host", 42, "192.0.2.9/24", "2001:db8::9/64")
	w.Must(err)
	w.Must(host.Route(w.Ctx, "10.16.0.0/12", "192.0.2.10"))
	w.Must(host.Route(w.Ctx, "fd20::/12", "2001:db8::10"))
	w.NAD("hidden", onCore(1, ""))
	w.NAD("open", onCore(2, `"snat":false,`))
	w.NAD("small", onCore(3, `"snat":false,"mtu":1400,`))
	hidden, open, small := w.Pod(1, "hidden", "hidden"), w.Pod(1, "open", "open"), w.Pod(1, "small", "small")
	near, far := w.Pod(0, "near", "small"), w.Pod(1, "far", "small")
	floating := map[*lab.Pod]string{near: "192.0.2.17,2001:db8::111", far: "192.0.2.18,2001:db8::112"}
	for p, addresses := range floating {
		p.Annotations["ovn-multinet/outside-addresses"] = `[{"interface":"net1","floating":"` + addresses + `"}]`
		w.Must(p.WriteManifest())
	}
	pods := []*lab.Pod{hidden, open, small, near, far}
	for _, p := range pods {
		w.AddInTheEnd(p)
		w.answers(p)
	}
	w.answers(host)
	w.Eventually(func() error {
		out, err := w.Lab.NBCtl(w.Ctx, "--bare", "--columns=options", "find", "Logical_Router_Port", `name=/core\:external`)
		if err == nil && !strings.Contains(out, "gateway_mtu=1400") {
			err = fmt.Errorf("the gateway's port has %q", out)
		}
		return err
	})
	w.NBCtl("--wait=hv", "sync")
	outside := []string{"192.0.2.9", "2001:db8::9"}
	for _, way := range []large{
		{"translated pod to outside", hidden, outside, 1542, 1400},
		{"pod to outside", open, outside, 1542, 1400},
		{"pod of a smaller network to outside", small, outside, 1400, 1400},
		{"outside to pod", host, w.Links(open)["net1"].IPs(), 1500, 1500},
		{"outside to pod of a smaller network", host, w.Links(small)["net1"].IPs(), 1500, 1400},
		{"outside to floating address, on the gateway's node", host, strings.Split(floating[near], ","), 1500, 1400},
		{"outside to floating address, on another node", host, strings.Split(floating[far], ","), 1500, 1400},
	} {
		w.carries(way)
	}
	w.Must(host.Do(func() error {
		stop, err := labtest.AnswerLargely(91, 1500, 1400)
		if err == nil {
			t.Cleanup(stop)
		}
		return err
	}))
	for _, to := range outside { // the answers are larger than the network of the one that asks
		w.Must(small.Do(func() error {
			if _, err := labtest.LargePackets(to, 91, 1, false); err != nil {
				t.Errorf("large answers from %s: %v", to, err)
			}
			return nil
		}))
	}
	w.End(pods...)
	for _, name := range []string{"hidden", "open", "small"} {
		w.Must(w.RemoveManifest(labtest.NADFile(name)))
	}
	w.Must(host.Close())
	w.AsBefore()
}

// answers has a pod or a machine outside answer datagrams on UDP port 90.
func (w *world) answers(at interface{ Do(func() error) error }) {
	w.Must(at.Do(func() error {
		stop, err := labtest.AnswerShortly(90)
		if err == nil {
			w.T.Cleanup(stop)
		}
		return err
	}))
}

// carries sends large packets on a way, with and without DF, and wants that the sender is told what fits.
func (w *world) carries(way large) {
	for _, to := range way.to {
		for _, df := range []bool{true, false} {
			for _, family := range []string{"-4", "-6"} {
				w.Exec(way.from, "ip", family, "route", "flush", "cache")
			}
			what := fmt.Sprintf("%s, to %s, DF %v", way.name, to, df)
			w.Must(way.from.Do(func() error {
				told, err := labtest.LargePackets(to, 90, way.size, df)
				if err != nil {
					w.T.Errorf("%s: %v", what, err)
				} else if df && way.size > way.want && told != way.want {
					w.T.Errorf("%s: the sender was told %d, want %d", what, told, way.want)
				}
				return nil
			}))
		}
	}
}
