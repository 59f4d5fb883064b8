//go:build sriov

package scenarios

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
      public: {addresses: "192.0.2.16/28,2001:db8::110-2001:db8::11f", namespaces: {shop: 8}}
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
		"routes":[{"dst":"10.16.0.0/12"},{"dst":"fd20::/12"},{"dst":"192.0.2.0/24"},{"dst":"2001:db8::/32"}]}`, 20+i, 20+i, keys)
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

// gatewayService is a Service with outside addresses, for the pods with the label app=NAME.
const gatewayService = `apiVersion: v1
kind: Service
metadata:
  namespace: shop
  name: %[1]s
  labels: {service.kubernetes.io/service-proxy-name: ovn-multinet}
  annotations:
    ovn-multinet/service-network: %[2]s
    ovn-multinet/service-selector: app=%[1]s
    ovn-multinet/service-outside-address: %[3]s
spec: {clusterIP: None, ports: [{name: dns, protocol: UDP, port: %[4]d, targetPort: %[4]d}]}
`

// TestGatewayMTU: with the kernel's datapath, packets that do not fit through a gateway are answered on each way: to outside
// and back, translated, by an egress address, by a floating address on the pod's node and on the gateway's, and by the
// outside address of a Service, in both families. So are answers of pods that are too large for the way back.
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
	egress, roomyNear, roomyFar := w.Pod(1, "egress", "hidden"), w.Pod(0, "roomy-near", "hidden"), w.Pod(1, "roomy-far", "hidden")
	near.Labels, roomyFar.Labels = map[string]string{"app": "tight"}, map[string]string{"app": "roomy"}
	floating := map[*lab.Pod]string{near: "192.0.2.17,2001:db8::111", far: "192.0.2.18,2001:db8::112",
		roomyNear: "192.0.2.19,2001:db8::113", roomyFar: "192.0.2.20,2001:db8::114"}
	for p, addresses := range floating {
		p.Annotations["ovn-multinet/outside-addresses"] = `[{"interface":"net1","floating":"` + addresses + `"}]`
		w.Must(p.WriteManifest())
	}
	egress.Annotations["ovn-multinet/outside-addresses"] = `[{"interface":"net1","egress":"192.0.2.21,2001:db8::115"}]`
	w.Must(egress.WriteManifest())
	pods := []*lab.Pod{hidden, open, small, near, far, egress, roomyNear, roomyFar}
	for _, p := range pods {
		w.AddInTheEnd(p)
		w.answers(p)
	}
	w.answers(host)
	tight, roomy := []string{"192.0.2.22", "2001:db8::116"}, []string{"192.0.2.23", "2001:db8::117"}
	w.Must(w.WriteManifest("service-tight.yaml", fmt.Sprintf(gatewayService, "tight", "small", strings.Join(tight, ","), 90)))
	w.Must(w.WriteManifest("service-roomy.yaml", fmt.Sprintf(gatewayService, "roomy", "hidden", strings.Join(roomy, ","), 91)))
	for name, addresses := range map[string][]string{"tight": tight, "roomy": roomy} {
		w.Eventually(func() error { return w.outsideAre(name, addresses) })
	}
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
		{"pod with an egress address to outside", egress, outside, 1542, 1400},
		{"pod to outside", open, outside, 1542, 1400},
		{"pod of a smaller network to outside", small, outside, 1400, 1400},
		{"outside to pod", host, w.Links(open)["net1"].IPs(), 1500, 1500},
		{"outside to pod of a smaller network", host, w.Links(small)["net1"].IPs(), 1500, 1400},
		{"outside to floating address, on the gateway's node", host, strings.Split(floating[near], ","), 1500, 1400},
		{"outside to floating address, on another node", host, strings.Split(floating[far], ","), 1500, 1400},
		{"outside to outside address of a Service", host, tight, 1500, 1400},
	} {
		w.carries(way)
	}
	// The answers are larger than the network of the one that asks, or than the physical network.
	w.answersLargely(host, 1500)
	w.answersLargely(open, 1542)
	w.answersLargely(roomyNear, 1542)
	w.answersLargely(roomyFar, 1542)
	w.answersFit(small, outside)
	w.answersFit(small, w.Links(open)["net1"].IPs())
	w.answersFit(host, w.Links(open)["net1"].IPs())
	w.answersFit(host, strings.Split(floating[roomyNear], ","))
	w.answersFit(host, strings.Split(floating[roomyFar], ","))
	w.answersFit(host, roomy)
	w.answersFit(small, roomy)
	for _, name := range []string{"tight", "roomy"} {
		w.Must(w.RemoveManifest("service-" + name + ".yaml"))
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

// outsideAre reports whether a Service has these outside addresses.
func (w *world) outsideAre(name string, addresses []string) error {
	text, err := os.ReadFile(filepath.Join(w.Manifests, "shop."+name+".service.json"))
	if err != nil {
		return err
	}
	var state struct {
		Service struct {
			Ready            bool
			Reason           string
			OutsideAddresses []string
		}
	}
	err = json.Unmarshal(text, &state)
	if is := state.Service; err == nil && (!is.Ready || !slices.Equal(is.OutsideAddresses, addresses)) {
		err = fmt.Errorf("Service %s has outside addresses %v, want %v: %s", name, is.OutsideAddresses, addresses, is.Reason)
	}
	return err
}

// answersLargely has a pod or a machine outside answer each datagram on UDP port 91 with a packet of this size.
func (w *world) answersLargely(at interface{ Do(func() error) error }, size int) {
	w.Must(at.Do(func() error {
		stop, err := labtest.AnswerLargely(91, size, 1400)
		if err == nil {
			w.T.Cleanup(stop)
		}
		return err
	}))
}

// answersFit wants that the answers from UDP port 91 of these addresses arrive.
func (w *world) answersFit(from interface{ Do(func() error) error }, to []string) {
	for _, address := range to {
		w.Must(from.Do(func() error {
			if _, err := labtest.LargePackets(address, 91, 1, false); err != nil {
				w.T.Errorf("%v: large answers from %s: %v", from, address, err)
			}
			return nil
		}))
	}
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
