package e2e

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// allowed is what the node's operator lets delegates run in these scenarios.
var allowed = []string{"bridge", "macvlan", "ptp", "host-device", "tuning", "host-local", "static", "recorder"}

// withDelegates allows them on every node.
func withDelegates(l *lab.Lab) {
	for _, n := range l.Nodes {
		n.PluginConf = func(entry map[string]any) { entry["allowedDelegates"] = allowed }
	}
}

// definition writes a NAD of other plugins into namespace shop.
func (w *world) definition(name, config string) {
	w.t.Helper()
	w.must(w.WriteManifest(name+".yaml", fmt.Sprintf(
		"apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata:\n  namespace: shop\n  name: %s\nspec:\n  config: '%s'\n", name, config)))
}

// ipam is host-local's configuration with a folder of the scenario's.
func ipam(dir, subnet string) string {
	return fmt.Sprintf(`{"type":"host-local","dataDir":"%s","ranges":[[{"subnet":"%s"}]]}`, dir, subnet)
}

// TestDelegates attaches pods by the reference plugins beside OVN networks: each works as its own project means it to,
// and all of it goes with the pod.
func TestDelegates(t *testing.T) {
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	leases := filepath.Join(w.Nodes[0].Dir, "delegate-leases")
	w.definition("bridged", fmt.Sprintf(`{"cniVersion":"0.3.1","name":"bridged","plugins":[
		{"type":"bridge","bridge":"mnbr0","capabilities":{"mac":true},"ipam":%s},
		{"type":"tuning","mtu":1300,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}}]}`, ipam(leases, "10.70.0.0/24")))
	w.definition("pair", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"ptp","ipam":%s}`, ipam(leases, "10.71.0.0/24")))
	w.definition("mac", `{"cniVersion":"1.0.0","type":"macvlan","master":"eth1","capabilities":{"ips":true},"ipam":{"type":"static"}}`)

	a := w.attached(0, "a", `[{"name":"bridged","mac":"02:00:00:00:70:01"},{"name":"blue"},{"name":"pair","interface":"p2p"}]`)
	b := w.attached(0, "b", `bridged,blue`)
	equal(t, "interfaces of a", len(w.links(a)), 4)
	equal(t, "the pod's MAC by the capability", w.links(a)["net1"].MAC, "02:00:00:00:70:01")
	equal(t, "MTU by the chained plugin", w.links(a)["net1"].MTU, 1300)
	for _, name := range []string{"net1", "p2p"} {
		ip := netip.MustParseAddr(w.links(a)[name].ips()[0])
		if !netip.MustParsePrefix("10.70.0.0/15").Contains(ip) {
			t.Errorf("%s has address %s", name, ip)
		}
	}
	for i, s := range w.status(a)[1:] {
		name := []string{"net1", "net2", "p2p"}[i]
		equal(t, "order of the status", []string{s.Name, s.Interface}, []string{"shop/" + []string{"bridged", "blue", "pair"}[i], name})
		equal(t, "ips in the status of "+name, s.IPs, w.links(a)[name].ips())
		equal(t, "mac in the status of "+name, s.Mac, w.links(a)[name].MAC)
	}
	w.mustReach(a, w.links(b)["net1"].ips()...)
	w.mustReach(b, w.links(a)["net2"].ips()...)
	equal(t, "default routes", slices.DeleteFunc(w.routes(a, "-4"), func(r string) bool { return r[:7] != "default" }), []string{"default via 10.244.0.1 dev eth0"})
	w.end(a, b)
	w.asBefore()
}
