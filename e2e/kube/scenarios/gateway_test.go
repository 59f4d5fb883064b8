//go:build kube

package scenarios

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// gatewayObjects are router /core, whose gateway is on nodes with the label edge, and its pool.
const gatewayObjects = `apiVersion: ovn-multinet.io/v1alpha1
kind: AddressPool
metadata: {name: public}
spec: {router: /core, addresses: 192.0.2.16/29, namespaces: {default: 1}}
---
apiVersion: ovn-multinet.io/v1alpha1
kind: Router
metadata: {name: core}
spec:
  namespaces:
    default: {subnets: "10.0.0.0/8"}
  gatewayNodes: edge=yes
  physicalNetworkName: provider
  vlanID: 42
  externalSubnet: 192.0.2.0/24
  externalAddress: 192.0.2.10
  nextHop: 192.0.2.1
`

// TestGatewayAndLayer3: an operator describes a router with a gateway by objects and labels a node. Pods of a layer3
// network get addresses of their node's block, reach each other and a layer2 network of the router, and reach the world
// outside under the gateway's address.
func TestGatewayAndLayer3(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, kube.Options{Nodes: 2, Physical: "provider"})
	outside, err := w.Outside(w.Ctx, "host", 42, "192.0.2.9/24")
	w.Must(err)
	w.Must(w.Apply(w.Ctx, gatewayObjects))
	w.object("router/core", "Accepted=True Ready=False", "no node has the label edge=yes")
	w.eventOf("core", "Warning", "EntryIncomplete", "no node has the label edge=yes")
	w.kubectl("label", "node", "node2", "edge=yes")
	w.object("router/core", "Accepted=True Ready=True", "")
	w.object("addresspool/public", "Accepted=True Ready=True", "")
	for name, state := range map[string][2]string{
		"provider": {"Accepted=True Ready=True", ""}, "ghost": {"Accepted=True Ready=False", "no node has a bridge for it"},
	} {
		w.Must(w.Apply(w.Ctx, "apiVersion: ovn-multinet.io/v1alpha1\nkind: PhysicalNetwork\nmetadata: {name: "+name+"}\n"+
			"spec: {grants: [{vlans: '7', namespaces: [shop]}]}\n"))
		w.object("physicalnetwork/"+name, state[0], state[1])
		w.kubectl("delete", "physicalnetwork/"+name)
	}
	const routes = `"routes":[{"dst":"10.40.0.0/15"},{"dst":"192.0.2.0/24"}]`
	w.Must(w.Apply(w.Ctx, nad("wide", `{"type":"ovn-multinet","router":"/core","topology":"layer3","subnets":"10.40.0.0/16/24",`+routes+`}`)+
		nad("flat", `{"type":"ovn-multinet","router":"/core","subnets":"10.41.0.0/24",`+routes+`}`)))
	pods := pod("a", "node1", "wide") + pod("b", "node2", "wide") + pod("c", "node1", "flat")
	w.Must(w.Apply(w.Ctx, pods))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b", "default/c"))

	blocks := map[netip.Prefix]string{}
	for _, name := range []string{"a", "b", "c"} {
		w.consistent(name, []string{"eth0", "net1"})
		ip := netip.MustParseAddr(w.links(name)["net1"].ips()[0])
		block := netip.PrefixFrom(ip, 24).Masked()
		if other, taken := blocks[block]; taken {
			t.Errorf("pods %s and %s, which are not on one node and network, are both in %s", other, name, block)
		}
		blocks[block] = name
	}
	for _, to := range []string{"b", "c"} {
		w.reaches("a", "net1", w.links(to)["net1"].ips()[0])
	}
	for _, from := range []string{"a", "b", "c"} {
		w.reaches(from, "net1", "192.0.2.9")
		w.Must(w.seenOutside(outside, from, "192.0.2.10"))
	}
	w.outsideAddresses(outside)
	w.editedRouter(outside)
	w.kubectl("delete", "--wait=false", "router/core", "addresspool/public")
	w.object("router/core", "Accepted=True Ready=False", "the object is being deleted, and goes when nobody needs it")
	w.eventOf("core", "Warning", "EntryInUse", "network default/flat, network default/wide")
	w.Must(w.seenOutside(outside, "a", "192.0.2.10"))
	w.Must(w.Delete(w.Ctx, pods))
	w.Must(w.WaitGone(w.Ctx, "default/a", "default/b", "default/c"))
	for _, name := range []string{"wide", "flat"} {
		w.deleteNAD(name)
		w.nadGone(name, "default/"+name)
	}
	w.Must(lab.Eventually(w.Ctx, func() error {
		left := w.kubectl("get", "ovn-multinet", "-o", "name") + w.nbctl("--bare", "--columns=name", "list", "Logical_Router")
		if left != "" {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	}))
}

// object waits until an object of the operator has these conditions, one of which has the words.
func (w *world) object(name, conditions, words string) {
	const path = `jsonpath={range .status.conditions[*]}{.type}={.status} {end}{.status.conditions[*].message}`
	w.Must(lab.Eventually(w.Ctx, func() error {
		got := w.kubectl("get", name, "-o", path)
		if !strings.HasPrefix(got, conditions+" ") || !strings.Contains(got, words) {
			return fmt.Errorf("%s has %s, want %s and %q", name, got, conditions, words)
		}
		return nil
	}))
}

// editedRouter: the API server refuses an edit that the schema does not allow, and the controller what only it can know.
// The pods' ways stay, also when another controller leads.
func (w *world) editedRouter(o *lab.Outside) {
	for _, tt := range []struct{ args, want string }{
		{`patch router core --type=merge -p {"spec":{"router":"/other"}}`, "router does not change: create another object"},
		{`patch router core --type=merge -p {"spec":{"vlanID":4095}}`, "should be less than or equal to 4094"},
		{`patch router core --type=merge -p {"spec":{"externalAddress":null}}`, "a gateway needs gatewayNodes"},
	} {
		if out, err := w.Kubectl(w.Ctx, strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			w.T.Errorf("%s: %s, %v; want %q", tt.args, out, err, tt.want)
		}
	}
	const inPool = "192.0.2.17"
	w.kubectl("patch", "router", "core", "--type=merge", "-p", `{"spec":{"externalAddress":"`+inPool+`"}}`)
	w.object("router/core", "Accepted=False Ready=False", inPool)
	w.eventOf("core", "Warning", "EntryRefused", "what was accepted before still counts")
	w.kubectl("-n", "ovn-multinet", "rollout", "restart", "deployment/controller")
	w.kubectl("-n", "ovn-multinet", "rollout", "status", "--timeout=120s", "deployment/controller")
	w.Must(w.seenOutside(o, "a", "192.0.2.10"))
	w.kubectl("patch", "router", "core", "--type=merge", "-p", `{"spec":{"externalAddress":"192.0.2.10","vlanId":42}}`)
	w.object("router/core", "Accepted=False Ready=False", `unknown key "vlanId", did you mean "vlanID"?`)
	w.kubectl("patch", "router", "core", "--type=merge", "-p", `{"spec":{"vlanId":null}}`)
	w.object("router/core", "Accepted=True Ready=True", "")
}

// outsideAddresses: a pod whose readiness gate is its outside address becomes ready with the address. Another pod, for
// which no address is left, stays unready, and says why. Both say so in a condition and in an Event.
func (w *world) outsideAddresses(o *lab.Outside) {
	gated := func(name string) string {
		text := pod(name, "node1", "flat")
		text = strings.Replace(text, "annotations: {", `annotations: {ovn-multinet/outside-addresses: '[{"interface":"net1","floating":"auto"}]', `, 1)
		return strings.Replace(text, "spec:\n", "spec:\n  readinessGates: [{conditionType: "+conf.OutsideCondition+"}]\n", 1)
	}
	w.Must(w.Apply(w.Ctx, gated("floats")))
	w.Must(w.WaitReady(w.Ctx, "default/floats"))
	w.eventOf("floats", "Normal", "OutsideAddressReady", "interface net1: floating addresses [192.0.2.")
	state := func(pod string) string {
		for _, c := range w.getPod("default/" + pod).Status.Conditions {
			if c.Type == conf.OutsideCondition {
				return string(c.Status) + " " + c.Message
			}
		}
		return ""
	}
	w.Must(lab.Eventually(w.Ctx, func() error {
		if got := w.kubectl("get", "addresspool/public", "-o", "jsonpath={.status.usedBy}"); got != `["default/floats/net1"]` {
			return fmt.Errorf("the pool is used by %s", got)
		}
		return nil
	}))
	address := strings.TrimSuffix(strings.TrimPrefix(state("floats"), "True interface net1: floating addresses ["), "]")
	w.Must(w.seenOutside(o, "floats", address))

	w.Must(w.Apply(w.Ctx, gated("late")))
	const why = "at most 1 are allowed"
	w.eventOf("late", "Warning", "OutsideAddressRefused", why)
	w.Must(lab.Eventually(w.Ctx, func() error {
		if got := state("late"); !strings.HasPrefix(got, "False ") || !strings.Contains(got, why) {
			return fmt.Errorf("the condition is %q", got)
		}
		return nil
	}))
	w.Must(w.Delete(w.Ctx, gated("floats")))
	w.Must(w.WaitGone(w.Ctx, "default/floats"))
	w.Must(w.WaitReady(w.Ctx, "default/late")) // with the address that is free now
	w.Must(w.Delete(w.Ctx, gated("late")))
	w.Must(w.WaitGone(w.Ctx, "default/late"))
}

// seenOutside fails unless the machine outside sees a pod under this address and no other.
func (w *world) seenOutside(o *lab.Outside, from, address string) error {
	c, err := o.Capture()
	if err != nil {
		return err
	}
	defer c.Close()
	w.reaches(from, "net1", "192.0.2.9")
	sources, err := c.Sources()
	if err == nil && fmt.Sprint(sources) != "["+address+"]" {
		err = fmt.Errorf("%s sees %v of pod %s, want %s alone", o, sources, from, address)
	}
	return err
}
