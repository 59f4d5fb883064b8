package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// shortly answers each datagram on a UDP port with a short one, so that only the way there needs a large MTU.
func (w *world) shortly(p place, port int) {
	w.Must(p.Do(func() error {
		stop, err := labtest.AnswerShortly(port)
		if err == nil {
			w.T.Cleanup(stop)
		}
		return err
	}))
}

// largely answers each datagram on a UDP port with a packet of a size, or with one that fits if the sender is told so.
func (w *world) largely(p place, port, size, fits int) {
	w.Must(p.Do(func() error {
		stop, err := labtest.AnswerLargely(port, size, fits)
		if err == nil {
			w.T.Cleanup(stop)
		}
		return err
	}))
}

// answersFit wants that large answers of a server reach a client, for which the server has to be told what fits.
func (w *world) answersFit(what string, client, server place, port int, to ...string) {
	w.T.Helper()
	for _, address := range to {
		for _, family := range []string{"-4", "-6"} {
			w.Exec(server, "ip", family, "route", "flush", "cache")
		}
		err := client.Do(func() error {
			_, err := labtest.LargePackets(address, port, 1, false)
			return err
		})
		if err != nil {
			w.T.Errorf("%s, from %s: %v", what, address, err)
		}
	}
}

// way is a way on which large packets go.
type way struct {
	name string
	from place
	to   []string
	size int // of the packets: the MTU of the sender's interface
	want int // what fits
}

// carries sends on each way, with and without DF, and wants that each sender is told what fits. No packet may be lost
// without a word.
func (w *world) carries(ways ...way) {
	w.T.Helper()
	for _, way := range ways {
		for _, to := range way.to {
			for _, df := range []bool{true, false} {
				what := fmt.Sprintf("%s, to %s, DF %v", way.name, to, df)
				var told int
				send := func() error {
					for _, family := range []string{"-4", "-6"} {
						w.Exec(way.from, "ip", family, "route", "flush", "cache")
					}
					return way.from.Do(func() (err error) {
						told, err = labtest.LargePackets(to, 90, way.size, df)
						return err
					})
				}
				err := send()
				if err != nil && w.endsStaleFlows(what, err) {
					err = send()
				}
				switch {
				case err != nil:
					w.T.Errorf("%s: %v", what, err)
				case df && way.size > way.want && told != way.want, told != 0 && told != way.want:
					w.T.Errorf("%s: the sender was told %d, want %d", what, told, way.want)
				}
			}
		}
	}
}

// gatewayCarries waits until the gateway has an MTU.
func (w *world) gatewayCarries(mtu int) {
	w.T.Helper()
	w.Eventually(func() error {
		out, err := w.Lab.NBCtl(w.Ctx, "--bare", "--columns=options", "find", "Logical_Router_Port", "name=/core\\:external")
		if want := fmt.Sprintf("gateway_mtu=%d", mtu); err == nil && strings.TrimSpace(out) != want {
			err = fmt.Errorf("the gateway's port has %q, want %s", strings.TrimSpace(out), want)
		}
		return err
	})
	w.NBCtl("--wait=hv", "sync")
}

// udpService is a Service on UDP port 90 for the pods with the label app=web.
const udpService = `{name: dns, protocol: UDP, port: 90, targetPort: 90}`

// TestPathMTU: a packet that does not fit is never lost without a word. Its sender is told what fits, by ICMP, in both
// families, whether it sets DF or not: to outside and back, between networks, by floating, egress and virtual addresses.
func TestPathMTU(t *testing.T) {
	t.Parallel()
	w := configuredOutsideWorld(t, strings.Replace(poolsConfig, "{shop: 4}", "{shop: 8}", 1))
	w.Must(w.host.Route(w.Ctx, "10.16.0.0/12", "192.0.2.10"))
	w.Must(w.host.Route(w.Ctx, "fd20::/12", "2001:db8::10"))
	w.VSCtl(w.Nodes[2], "remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings") // it cannot translate
	w.Eventually(func() error {
		out, err := w.Lab.NBCtl(w.Ctx, "--bare", "--columns=external_ids", "find", "Copp", `name="ovn-multinet node `+w.Nodes[2].Name+`"`)
		if err == nil && (out == "" || strings.Contains(out, provider)) {
			err = fmt.Errorf("the node's row has %q", out)
		}
		return err
	})
	toEachOther := strings.NewReplacer(`"routes":[`, `"routes":[{"dst":"10.16.0.0/12"},{"dst":"fd20::/12"},`)
	w.network("hidden", toEachOther.Replace(outOf(1, "")))
	w.network("open", toEachOther.Replace(outOf(2, `"snat":false,`)))
	hidden, near, open := w.Attached(2, "hidden", "hidden"), w.Attached(0, "near", "hidden"), w.Attached(2, "open", "open")
	egress := w.Pod(2, "egress", "hidden")
	w.requests(egress, `[{"interface":"net1","egress":"192.0.2.20,2001:db8::114"}]`)
	w.Add(egress)
	w.becomes(func() error { return w.sees(w.host, egress, []string{"192.0.2.20", "2001:db8::114"}) })
	for _, p := range []place{hidden, open, w.host} {
		w.shortly(p, 90)
	}
	outside := []string{"192.0.2.9", "2001:db8::9"}

	w.step("a smaller physical network", func(t *testing.T, w *outsideWorld) {
		w.gatewayCarries(1500)
		shown := strings.Join(strings.Fields(w.Multinet("network", "show", "shop/hidden")), " ")
		for _, words := range []string{"Gateway MTU: 1500 ", "MTU: 1542, which all nodes carry, and node node1 no more "} {
			if !strings.Contains(shown, words) {
				t.Errorf("kubectl multinet network show does not say %q: %s", words, shown)
			}
		}
		w.carries(
			way{"translated pod to outside", hidden, outside, 1542, 1500},
			way{"translated pod on the gateway's node to outside", near, outside, 1542, 1500},
			way{"pod to outside", open, outside, 1542, 1500},
			way{"pod with an egress address to outside", egress, outside, 1542, 1500},
			way{"outside to pod", w.host, w.inCore(open), 1500, 1542},
			way{"pod to pod of another network", open, w.inCore(hidden), 1542, 1542},
		)
	})

	w.network("small", toEachOther.Replace(outOf(3, `"snat":false,"mtu":1400,`)))
	w.network("secret", toEachOther.Replace(outOf(4, `"mtu":1400,`)))
	w.network("wide", `{"type":"ovn-multinet","topology":"layer3","router":"/core","subnets":"10.25.0.0/16/24,fd25::/48/64",
		"mtu":1400,"snat":false,"routes":[{"dst":"10.16.0.0/12"},{"dst":"fd20::/12"},{"dst":"192.0.2.0/24"},{"dst":"2001:db8::/32"}]}`)
	small, secret, wide := w.Attached(0, "small", "small"), w.Attached(1, "secret", "secret"), w.Attached(2, "wide", "wide")
	floating := func(node int, name, addresses string) *lab.Pod {
		p := w.Pod(node, name, "secret")
		w.requests(p, `[{"interface":"net1","floating":"`+addresses+`"}]`)
		w.Add(p)
		return p
	}
	byOwn := floating(1, "by-own", "192.0.2.17,2001:db8::111")
	byGateway := floating(2, "by-gateway", "192.0.2.18,2001:db8::112")
	web := w.labelled(1, "web-0", "secret", map[string]string{"app": "web"})
	w.Must(w.WriteManifest(serviceManifest("web"), outsideServiceYAML("web", "secret", "192.0.2.19,2001:db8::113", "", udpService)))
	w.outsideAre("web", []string{"192.0.2.19", "2001:db8::113"})
	w.Must(w.WriteManifest(serviceManifest("inside"),
		strings.Replace(serviceYAML("inside", "secret", "auto", udpService, ""), "app=inside", "app=web", 1)))
	var virtual []string
	w.Eventually(func() error {
		state, err := w.serviceState("inside")
		if virtual = state.Addresses; err == nil && len(virtual) != 2 {
			err = fmt.Errorf("%+v", state)
		}
		return err
	})
	for _, p := range []place{small, secret, wide, byOwn, byGateway, web} {
		w.shortly(p, 90)
	}
	for _, address := range []string{"192.0.2.17", "2001:db8::111", "192.0.2.18", "2001:db8::112", "192.0.2.19", "2001:db8::113"} {
		w.allowed(w.host, address, "udp/90")
	}
	roomyNear, roomyFar := w.Pod(1, "roomy-near", "hidden"), w.Pod(2, "roomy-far", "hidden")
	roomyNear.Labels = map[string]string{"app": "roomy"}
	for p, addresses := range map[*lab.Pod]string{roomyNear: "192.0.2.21,2001:db8::115", roomyFar: "192.0.2.22,2001:db8::116"} {
		w.requests(p, `[{"interface":"net1","floating":"`+addresses+`"}]`)
		w.Add(p)
		w.largely(p, 91, 1542, 1400)
	}
	w.largely(w.host, 91, 1500, 1400)
	w.largely(open, 91, 1542, 1400)
	const roomyService = `{name: dns, protocol: UDP, port: 91, targetPort: 91}`
	w.Must(w.WriteManifest(serviceManifest("roomy"), outsideServiceYAML("roomy", "hidden", "192.0.2.23,2001:db8::117", "", roomyService)))
	w.outsideAre("roomy", []string{"192.0.2.23", "2001:db8::117"})

	for _, address := range append([]string{"192.0.2.19"}, virtual...) {
		w.allowed(open, address, "udp/90")
	}
	toSmaller := []way{
		{"outside to pod of a smaller network", w.host, w.inCore(small), 1500, 1400},
		{"pod to pod of a smaller network", open, w.inCore(small), 1542, 1400},
		{"translated pod to pod of a smaller network", hidden, w.inCore(secret), 1542, 1400},
		{"pod to pod of a smaller layer3 network", open, w.inCore(wide), 1542, 1400},
		{"outside to pod of a smaller layer3 network", w.host, w.inCore(wide), 1500, 1400},
		{"outside to floating address, by the pod's node", w.host, []string{"192.0.2.17", "2001:db8::111"}, 1500, 1400},
		{"outside to floating address, by the gateway", w.host, []string{"192.0.2.18", "2001:db8::112"}, 1500, 1400},
		{"pod to floating address, by the pod's node", hidden, []string{"192.0.2.17", "2001:db8::111"}, 1542, 1400},
		{"pod to floating address, by the gateway", near, []string{"192.0.2.18", "2001:db8::112"}, 1542, 1400},
		{"outside to outside address of a Service", w.host, []string{"192.0.2.19", "2001:db8::113"}, 1500, 1400},
		{"pod to outside address of a Service", open, []string{"192.0.2.19"}, 1542, 1400},
		{"pod to virtual address", open, virtual[:1], 1542, 1400},
	}
	fromSmaller := []way{
		{"pod to outside", open, outside, 1542, 1400},
		{"translated pod to outside", hidden, outside, 1542, 1400},
		{"pod of a smaller network to pod", small, w.inCore(open), 1400, 1542},
		{"pod of a smaller network to outside", small, outside, 1400, 1500},
	}
	w.step("smaller networks", func(t *testing.T, w *outsideWorld) {
		w.gatewayCarries(1400)
		w.carries(append(fromSmaller, toSmaller...)...)
	})
	w.step("large answers", func(t *testing.T, w *outsideWorld) {
		w.answersFit("outside to translated pod of a smaller network", secret, w.host, 91, outside...)
		// IPv6: the userspace datapath writes a checksum over the MTU. The guest of make e2e-sriov has the kernel's.
		w.answersFit("pod to pod of a smaller network", small, open, 91, w.inCore(open)[0])
		w.answersFit("pod with a floating address to outside, by its node", w.host, roomyNear, 91, "192.0.2.21")
		w.answersFit("pod with a floating address to outside, by the gateway", w.host, roomyFar, 91, "192.0.2.22")
		w.answersFit("Service to outside", w.host, roomyNear, 91, "192.0.2.23")
		w.answersFit("Service to pod of a smaller network", small, roomyNear, 91, "192.0.2.23")
	})
	w.step("policies that deny all ingress", func(t *testing.T, w *outsideWorld) {
		w.policy("closed", "hidden,open", `{podSelector: {}, policyTypes: [Ingress], ingress: []}`)
		w.carries(slices.DeleteFunc(append(fromSmaller, toSmaller...), func(way way) bool {
			return way.from == place(w.host) || way.from == place(small)
		})...)
	})
}

// setUnderlay sets the MTU of a node's underlay.
func (w *world) setUnderlay(node, mtu int) {
	w.Exec(w.Nodes[node], "ip", "link", "set", "br-phy", "mtu", fmt.Sprint(mtu))
}

// attachesWith attaches pods on a node until one has an MTU, and returns that pod: the other node's agent may not know yet
// what has changed.
func (w *world) attachesWith(node int, name, network string, mtu int) (p *lab.Pod) {
	w.T.Helper()
	w.Eventually(func() error {
		p = w.Pod(node, name, network)
		err := w.TryAdd(p)
		if err == nil {
			got := w.Links(p)["net1"].MTU
			if got == mtu {
				return nil
			}
			err = fmt.Errorf("%s has MTU %d, want %d", p, got, mtu)
		}
		w.End(p)
		return err
	})
	return p
}

// TestMTUOfNodes: the pods of a network have the MTU of the node with the smallest underlay, wherever they run. Pods that
// run keep theirs, and an Event names them when a node gets or brings a smaller one. What no node can carry is refused,
// with the node, the largest MTU and the key.
func TestMTUOfNodes(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) {
		if err := l.WriteManifest("nodes.yaml", nodesManifest(l.Nodes)); err != nil {
			t.Fatal(err)
		}
	})
	old := w.attachesWith(0, "old", "six", 1542)
	own := w.attachesWith(0, "own", "green", 1400)
	w.setUnderlay(1, 1500)
	here, there := w.attachesWith(0, "here", "six", 1442), w.attachesWith(1, "there", "six", 1442)
	w.MustReach(here, w.Links(there)["net1"].IPs()...)
	w.says(w.Nodes[0].Agent, "reason=MTUTooLarge message=\"interface net1 on network shop/six keeps MTU 1542, and the underlay of node "+
		w.Nodes[1].Name+" carries 1442: larger packets are lost; recreate the pod, its interface then has that MTU\"")
	w.network("jumbo", `{"type":"ovn-multinet","subnets":"10.11.0.0/24","mtu":9000}`)
	w.becomesRefused(0, "jumbo",
		"interface net1: network shop/jumbo: mtu: 9000 is larger than 1542, which is the largest that the underlay of node "+
			w.Nodes[0].Name+" carries")

	w.setUnderlay(1, 1300)
	w.says(w.Nodes[1].Agent, "pod=shop/there kind=Warning reason=MTUTooLarge")
	w.becomesRefused(0, "six", "network shop/six: subnets: IPv6 needs an MTU of 1280, and the largest that the underlay of node "+
		w.Nodes[1].Name+" carries is 1242")
	four := w.attachesWith(0, "four", "blue", 1242)
	w.becomesRefused(1, "green", "network shop/green: mtu: 1400 is larger than 1242")
	w.End(w.attachesWith(0, "own-too", "green", 1400)) // its own MTU, which this node carries

	w.setUnderlay(1, 1600)
	w.End(w.attachesWith(0, "again", "six", 1542))
	w.End(old, own, here, there, four)
	w.Eventually(func() error {
		if out, err := w.Lab.NBCtl(w.Ctx, "--bare", "--columns=external_ids", "find", "Copp", "name=\"ovn-multinet smallest mtu\""); err != nil ||
			!strings.Contains(out, "ovn-multinet/mtu=1542 ") {
			return fmt.Errorf("the smallest MTUs are %q: %v", out, err)
		}
		return nil
	})
}

// becomesRefused attaches pods on a node until one is refused, with these words.
func (w *world) becomesRefused(node int, network, words string) {
	w.T.Helper()
	w.Eventually(func() error {
		p := w.Pod(node, "refused", network)
		err := w.TryAdd(p)
		if err == nil {
			w.End(p)
			return fmt.Errorf("%s is attached", p)
		}
		w.refused(err, 11, words)
		w.End(p)
		return nil
	})
}
