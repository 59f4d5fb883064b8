//go:build kube

package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// provider is a physical network that all nodes reach by their NIC ext0, with the namespaces and the gateway that use it.
const provider = `apiVersion: ovn-multinet.io/v1alpha1
kind: PhysicalNetwork
metadata: {name: provider}
spec:
  uplinks: [{interface: ext0}]
  grants: [{vlans: "100", namespaces: [default]}]
---
apiVersion: ovn-multinet.io/v1alpha1
kind: Router
metadata: {name: core}
spec:
  namespaces: {default: {subnets: "10.0.0.0/8"}}
  gatewayNodes: edge=yes
  physicalNetworkName: provider
  vlanID: 42
  externalSubnet: 192.0.2.0/24
  externalAddress: 192.0.2.10
---
apiVersion: ovn-multinet.io/v1alpha1
kind: AddressPool
metadata: {name: public}
spec: {router: /core, addresses: 192.0.2.16/29, namespaces: {default: 1}}
`

// TestUplinks has a way outside on the chart's own OVN, by objects alone: nodes get bridges with their NICs, a localnet
// network, a gateway and a floating address reach a host outside and are reached. NICs that a node needs are refused by
// name; what other programs change comes back; a node without power has its way again; nothing is left in the end.
func TestUplinks(t *testing.T) {
	t.Parallel()
	w := bareWorld(t, kube.Options{Nodes: 2, WithoutOVN: true, Physical: "provider"})
	w.Must(w.LoadImages(w.Ctx))
	w.Must(w.InstallChart(w.Ctx, readmeValues))
	wire, err := w.Outside(w.Ctx, "wire", 100, "198.51.100.9/24")
	w.Must(err)
	host, err := w.Outside(w.Ctx, "host", 42, "192.0.2.9/24")
	w.Must(err)
	w.kubectl("label", "node", "node2", "edge=yes")
	for _, n := range w.Nodes { // as an operating system leaves a NIC that has no addresses
		w.on(n, "ip", "link", "set", "ext0", "down")
	}
	w.Must(w.Apply(w.Ctx, provider))
	w.object("physicalnetwork/provider", "Accepted=True Ready=True", "nothing is missing")
	w.object("router/core", "Accepted=True Ready=True", "")
	if got := w.kubectl("get", "physnet", "--no-headers"); len(strings.Fields(got)) < 2 || strings.Fields(got)[1] != "2/2" {
		t.Errorf("kubectl get physnet: %s", got)
	}

	const routes = `"routes":[{"dst":"192.0.2.0/24"}]`
	networks := nad("wire", `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"provider","vlanID":100,"subnets":"198.51.100.0/24",`+
		`"excludeSubnets":"198.51.100.0/25"}`) + nad("flat", `{"type":"ovn-multinet","router":"/core","subnets":"10.41.0.0/24",`+routes+`}`)
	floats := strings.Replace(pod("floats", "node1", "flat"), "annotations: {",
		`annotations: {ovn-multinet/outside-addresses: '[{"interface":"net1","floating":"auto"}]', `, 1)
	pods := pod("a", "node1", "wire") + pod("b", "node2", "wire") + pod("c", "node1", "flat") + floats
	w.Must(w.Apply(w.Ctx, networks+pods))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b", "default/c", "default/floats"))
	w.eventOf("floats", "Normal", "OutsideAddressReady", "interface net1: floating addresses [192.0.2.")
	u := &uplinked{w, wire, host}
	u.works()
	w.run("refusals", func(*world) { u.refusals() })
	w.run("other writers", func(*world) { u.otherWriters() })
	w.run("a wrong edit", func(*world) { u.wrongEdit() })
	w.run("a label", func(*world) { u.label() })
	w.run("a loss of power", func(*world) { u.losesPower() })
	w.healthy()

	w.kubectl("delete", "--wait=false", "physicalnetwork/provider", "router/core", "addresspool/public")
	w.object("physicalnetwork/provider", "Accepted=True Ready=False", "the object is being deleted, and goes when nobody needs it")
	u.works()
	w.Must(w.Delete(w.Ctx, pods))
	w.Must(w.WaitGone(w.Ctx, "default/a", "default/b", "default/c", "default/floats"))
	w.Must(w.Delete(w.Ctx, networks))
	w.until(func() error {
		if left := w.kubectl("get", "ovn-multinet", "-o", "name"); left != "" {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
	for _, n := range w.Nodes {
		u.bridges(n, "br-int br-phy", "")
	}
	u.uninstalledWithUplinks()
}

// uplinked is a cluster with a way outside.
type uplinked struct {
	*world
	wire, host *lab.Outside
}

// works: the localnet network, the gateway and the floating address have their way, in both directions.
func (u *uplinked) works() {
	u.T.Helper()
	for _, from := range []string{"a", "b"} {
		u.reaches(from, "net1", "198.51.100.9")
	}
	u.reaches("a", "net1", u.links("b")["net1"].ips()[0])
	u.Must(u.seenOutside(u.host, "c", "192.0.2.10"))
	for o, address := range map[*lab.Outside]string{
		u.wire: u.links("a")["net1"].ips()[0], u.host: u.floating(),
	} {
		u.until(func() error {
			_, err := o.Exec(u.Ctx, "ping", "-c1", "-W1", address)
			return err
		})
	}
}

func (u *uplinked) floating() string {
	text := u.kubectl("get", "pod", "floats", "-o", `jsonpath={.status.conditions[?(@.type=="`+conf.OutsideCondition+`")].message}`)
	_, rest, _ := strings.Cut(text, "[")
	address, _, _ := strings.Cut(rest, "]")
	return address
}

// bridges waits until a node has these bridges and mappings.
func (u *uplinked) bridges(n *kube.Node, bridges, mappings string) {
	u.T.Helper()
	u.until(func() error {
		list := strings.Join(strings.Fields(u.multinet("vsctl", "--node", n.Name, "list-br")), " ")
		maps := strings.Trim(strings.TrimSpace(u.multinet("vsctl", "--node", n.Name, "--", "--if-exists", "get", "Open_vSwitch", ".",
			"external_ids:ovn-bridge-mappings")), `"`)
		if list != bridges || maps != mappings {
			return fmt.Errorf("%s has the bridges %s and the mappings %q, want %s and %q", n.Name, list, maps, bridges, mappings)
		}
		return nil
	})
}

// refusals: each NIC that cannot be an uplink is refused by the name of its node, with what to name instead, and keeps
// what it has. The nodes where it can be one are served.
func (u *uplinked) refusals() {
	n := u.Nodes[0]
	for _, args := range [][]string{
		{"link", "add", "br0", "type", "bridge"},
		{"link", "add", "nic7", "type", "veth", "peer", "name", "nic7-far"},
		{"link", "set", "nic7", "master", "br0"},
		{"link", "add", "nic8", "type", "veth", "peer", "name", "nic8-far"},
		{"link", "set", "nic8-far", "up"},
	} {
		u.on(n, append([]string{"ip"}, args...)...)
	}
	before := u.on(n, "ip", "-brief", "address", "show", "dev", "eth0") + u.on(n, "ip", "route")
	for nic, why := range map[string]string{
		"eth0": "node1: eth0 has the address 172.31.1.1/16, and the node would lose it: name an interface that the node does not use",
		"eth1": "node1: eth1 is a port of bridge br-phy of Open vSwitch",
		"ext0": "node1: ext0 is a port of bridge br-provider of Open vSwitch",
		"br0":  "node1: br0 is a Linux bridge: name one of its ports",
		"nic7": "node1: nic7 is a port of the Linux bridge br0: remove it from the bridge",
		"eth9": "node1: the node has no interface eth9",
	} {
		name := "wrong-" + nic
		u.Must(u.Apply(u.Ctx, `apiVersion: ovn-multinet.io/v1alpha1
kind: PhysicalNetwork
metadata: {name: `+name+`}
spec: {uplinks: [{nodes: kubernetes.io/hostname=node1, interface: `+nic+`}]}
`))
		u.object("physicalnetwork/"+name, "Accepted=True Ready=False", "1 of 1 nodes have no uplink that works; "+why)
		u.eventOf(name, "Warning", "EntryIncomplete", why)
	}
	if out, _ := u.Multinet(u.Ctx, "check"); !strings.Contains(out, "node1: eth0 has the address 172.31.1.1/16") {
		u.T.Errorf("kubectl multinet check says nothing of a wrong uplink:\n%s", out)
	}
	u.kubectl("delete", "physicalnetwork", "wrong-eth0", "wrong-eth1", "wrong-ext0", "wrong-br0", "wrong-nic7", "wrong-eth9")
	if after := u.on(n, "ip", "-brief", "address", "show", "dev", "eth0") + u.on(n, "ip", "route"); after != before {
		u.T.Errorf("node1 had\n%s\nand has\n%s", before, after)
	}
	u.bridges(n, "br-int br-phy br-provider", "provider:br-provider")

	// A bridge of the operator, mapped as it is; and a node for which no entry fits.
	u.multinet("vsctl", "--node", "node1", "--", "add-br", "br-lab", "--", "set", "bridge", "br-lab", "datapath_type=netdev", "--",
		"add-port", "br-lab", "nic8")
	u.Must(u.Apply(u.Ctx, `apiVersion: ovn-multinet.io/v1alpha1
kind: PhysicalNetwork
metadata: {name: lab}
spec: {uplinks: [{nodes: kubernetes.io/hostname=node1, bridge: br-lab}]}
`))
	u.object("physicalnetwork/lab", "Accepted=True Ready=True", "")
	u.bridges(n, "br-int br-lab br-phy br-provider", "lab:br-lab,provider:br-provider")
	u.kubectl("delete", "physicalnetwork", "lab")
	u.bridges(n, "br-int br-lab br-phy br-provider", "provider:br-provider")
	u.multinet("vsctl", "--node", "node1", "del-br", "br-lab")
	u.works()
}

// otherWriters: another program clears all keys of Open vSwitch, as some tools that configure a node do; and somebody sets
// the NIC down.
func (u *uplinked) otherWriters() {
	keys := func() string {
		return u.multinet("vsctl", "--node", "node1", "get", "Open_vSwitch", ".", "external_ids")
	}
	before := keys()
	u.multinet("vsctl", "--node", "node1", "clear", "Open_vSwitch", ".", "external_ids")
	u.multinet("vsctl", "--node", "node1", "set", "Open_vSwitch", ".", "external_ids:of-another=kept")
	u.until(func() error {
		if now := strings.Replace(keys(), `of-another=kept, `, "", 1); now != before {
			return fmt.Errorf("external_ids are %s, before %s", now, before)
		}
		return nil
	})
	u.multinet("vsctl", "--node", "node1", "remove", "Open_vSwitch", ".", "external_ids", "of-another")
	u.on(u.Nodes[0], "ip", "link", "set", "ext0", "down")
	u.until(func() error {
		if out := u.on(u.Nodes[0], "ip", "-brief", "link", "show", "dev", "ext0"); !strings.Contains(out, " UP ") {
			return errors.New(out)
		}
		return nil
	})
	u.works()
}

// wrongEdit: an edit that cannot be done is told, and takes nothing.
func (u *uplinked) wrongEdit() {
	u.kubectl("patch", "physicalnetwork", "provider", "--type=merge", "-p", `{"spec":{"uplinks":[{"interface":"ext7"}]}}`)
	u.object("physicalnetwork/provider", "Accepted=True Ready=False", "2 of 2 nodes have no uplink that works; node1: the node has no interface ext7")
	u.works()
	out, err := u.Kubectl(u.Ctx, "patch", "physicalnetwork", "provider", "--type=merge", "-p", `{"spec":{"uplinks":[{"nodes":"a=b"}]}}`)
	if err == nil || !strings.Contains(err.Error(), "name the interface that leads to the physical network") {
		u.T.Errorf("an uplink of nothing: %s, %v", out, err)
	}
	u.kubectl("patch", "physicalnetwork", "provider", "--type=merge", "-p", `{"spec":{"uplinks":[{"nodes":"a in (","interface":"ext0"}]}}`)
	u.object("physicalnetwork/provider", "Accepted=False Ready=False", "uplinks: nodes: ")
	u.kubectl("patch", "physicalnetwork", "provider", "--type=merge", "-p", `{"spec":{"uplinks":[{"interface":"ext0"}]}}`)
	u.object("physicalnetwork/provider", "Accepted=True Ready=True", "")
	u.works()
}

// label: a pod on a node that loses its uplink says so when it starts; the node gives the NIC back.
func (u *uplinked) label() {
	u.kubectl("patch", "physicalnetwork", "provider", "--type=merge", "-p", `{"spec":{"uplinks":[{"nodes":"wired!=no","interface":"ext0"}]}}`)
	u.object("physicalnetwork/provider", "Accepted=True Ready=True", "")
	u.kubectl("label", "node", "node1", "wired=no")
	u.bridges(u.Nodes[0], "br-int br-phy", "")
	late := pod("late", "node1", "wire")
	u.Must(u.Apply(u.Ctx, late))
	u.sandboxFails("late", "node node1 has no bridge for physicalNetworkName provider")
	u.kubectl("label", "node", "node1", "wired-")
	u.Must(u.WaitReady(u.Ctx, "default/late"))
	u.reaches("late", "net1", "198.51.100.9")
	u.Must(u.Delete(u.Ctx, late))
	u.Must(u.WaitGone(u.Ctx, "default/late"))
	u.works()
}

// losesPower: a node has its way outside again after a loss of power.
func (u *uplinked) losesPower() {
	u.Must(u.Reboot(u.Ctx, kube.RebootOptions{}, u.Nodes[0]))
	u.until(func() error {
		for _, name := range []string{"a", "c", "floats"} {
			p := u.getPod("default/" + name)
			if s := p.Status.ContainerStatuses; len(s) != 1 || s[0].RestartCount == 0 || !s[0].Ready {
				return fmt.Errorf("pod %s does not run again", name)
			}
		}
		return nil
	})
	u.bridges(u.Nodes[0], "br-int br-phy br-provider", "provider:br-provider")
	u.works()
}

// uninstalledWithUplinks: an uninstall leaves the NIC to the node, while the object stays.
func (u *uplinked) uninstalledWithUplinks() {
	u.Must(u.Apply(u.Ctx, provider))
	u.object("physicalnetwork/provider", "Accepted=True Ready=True", "")
	if out, err := u.Helm(u.Ctx, "uninstall", "ovn-multinet", "--timeout=15m"); err != nil {
		u.T.Fatalf("%v\n%s", err, out)
	}
	for _, n := range u.Nodes {
		u.cleanNode(n)
		u.Must(n.Do(func() error {
			link, err := netlink.LinkByName("ext0")
			if err == nil && (link.Attrs().MasterIndex != 0 || link.Attrs().Promisc != 0) {
				err = fmt.Errorf("%s: ext0 belongs to %d, promiscuous %d", n.Name, link.Attrs().MasterIndex, link.Attrs().Promisc)
			}
			return err
		}))
	}
	if left := strings.Fields(u.kubectl("get", "ovn-multinet", "-o", "name")); !slices.Contains(left, "physicalnetwork.ovn-multinet.io/provider") {
		u.T.Errorf("after the uninstall there are the objects %v", left)
	}
}
