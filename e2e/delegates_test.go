package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// allowed is what the node's operator lets delegates run in these scenarios.
var allowed = []string{"bridge", "macvlan", "ptp", "host-device", "tuning", "dummy", "sbr", "vrf", "recorder"}

// allowedIPAM is what it lets those run for addresses.
var allowedIPAM = []string{"host-local", "static"}

// withDelegates allows them on every node.
func withDelegates(l *lab.Lab) {
	for _, n := range l.Nodes {
		n.PluginConf = func(entry map[string]any) { entry["allowedDelegates"], entry["allowedIPAM"] = allowed, allowedIPAM }
	}
}

// withGlobal lets all pods use the NADs of a namespace, beside what before sets up.
func withGlobal(namespace string, before func(*lab.Lab)) func(*lab.Lab) {
	return func(l *lab.Lab) {
		before(l)
		for _, n := range l.Nodes {
			n.AgentArgs = append(n.AgentArgs, "--global-namespaces="+namespace)
		}
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
	t.Parallel()
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
		ip := netip.MustParseAddr(w.links(a)[name].IPs()[0])
		if !netip.MustParsePrefix("10.70.0.0/15").Contains(ip) {
			t.Errorf("%s has address %s", name, ip)
		}
	}
	for i, s := range w.status(a)[1:] {
		name := []string{"net1", "net2", "p2p"}[i]
		equal(t, "order of the status", []string{s.Name, s.Interface}, []string{"shop/" + []string{"bridged", "blue", "pair"}[i], name})
		equal(t, "ips in the status of "+name, s.IPs, w.links(a)[name].IPs())
		equal(t, "mac in the status of "+name, s.Mac, w.links(a)[name].MAC)
	}
	w.mustReach(a, w.links(b)["net1"].IPs()...)
	w.mustReach(b, w.links(a)["net2"].IPs()...)
	equal(t, "default routes", w.defaults(a, "-4"), []string{"default via 10.244.1.1 dev eth0"})
	for _, p := range []*lab.Pod{a, b} {
		w.must(p.Check(w.ctx))
	}
	w.end(a, b)
	w.withoutBridge()
	w.asBefore()
}

// withoutBridge takes away what the bridge plugin leaves on a node for good.
func (w *world) withoutBridge() {
	w.t.Helper()
	_, err := w.Nodes[0].Exec(w.ctx, "ip", "link", "del", "mnbr0")
	w.must(err)
}

// defaults lists a pod's default routes.
func (w *world) defaults(p *lab.Pod, family string) []string {
	w.t.Helper()
	return slices.DeleteFunc(w.routes(p, family), func(r string) bool { return !strings.HasPrefix(r, "default") })
}

// calls reads what the recorder wrote down: the commands in their order, and the last call's record.
func (w *world) calls(log string) (commands []string, last map[string]any) {
	w.t.Helper()
	text, err := os.ReadFile(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	w.must(err)
	for line := range strings.Lines(string(text)) {
		last = nil
		w.must(json.Unmarshal([]byte(line), &last))
		ifName := ""
		for _, kv := range last["env"].([]any) {
			if value, ok := strings.CutPrefix(kv.(string), "CNI_IFNAME="); ok {
				ifName = " " + value
			}
		}
		commands = append(commands, last["command"].(string)+ifName)
	}
	return commands, last
}

// TestDelegateIsToldWhatTheSpecificationSays holds what a plugin gets against CNI and the multi-network specification.
// Conformance: N-12 N-31 N-42 N-44 N-57 N-148 C-116 F-6 F-16
func TestDelegateIsToldWhatTheSpecificationSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := filepath.Join(w.Nodes[0].Dir, "recorder.log")
	w.definition("rec", fmt.Sprintf(`{"type":"recorder","log":"%s","args":{"cni":{"a":1,"b":1},"other":true},"result":{"cniVersion":"0.3.1"},
		"capabilities":{"ips":true,"portMappings":true,"bandwidth":false}}`, log))
	p := w.attached(0, "told", `[{"name":"rec","interface":"rec0","ips":["192.0.2.7/24"],"portMappings":[{"hostPort":8080,"containerPort":80}],"cni-args":{"b":2}}]`)
	_, call := w.calls(log)
	var stdin map[string]any
	text, err := json.Marshal(call["stdin"])
	w.must(err)
	w.must(json.Unmarshal(text, &stdin))
	equal(t, "name, injected", stdin["name"], any("rec"))
	equal(t, "version, injected", stdin["cniVersion"], any("0.3.1"))
	equal(t, "capabilities, stripped", stdin["capabilities"], any(nil))
	equal(t, "args, merged", stdin["args"], any(map[string]any{"cni": map[string]any{"a": 1., "b": 2.}, "other": true}))
	equal(t, "runtimeConfig", stdin["runtimeConfig"], any(map[string]any{
		"ips": []any{"192.0.2.7/24"}, "portMappings": []any{map[string]any{"hostPort": 8080., "containerPort": 80., "protocol": "tcp"}}}))
	equal(t, "an empty result has an entry", []string{w.status(p)[1].Name, w.status(p)[1].Interface}, []string{"shop/rec", "rec0"})
	equal(t, "entries", len(w.status(p)), 2)
	w.end(p)
	commands, _ := w.calls(log)
	equal(t, "calls", commands, []string{"ADD rec0", "DEL rec0"})
	w.asBefore()
}

// TestDelegateFails makes each of three attachments fail: what was made before goes, in reverse, the pod's owner reads
// the plugin's own words and code, and nothing is left.
// Conformance: N-138 N-145 F-14
func TestDelegateFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	dir := w.Nodes[0].Dir
	log := filepath.Join(dir, "recorder.log")
	w.definition("good", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"recorder","log":"%s","result":{"cniVersion":"1.0.0"}}`, log))
	for name, how := range map[string]string{
		"bad":   `"fail":{"ADD":{"code":119,"msg":"no such wire","details":"look at it"}}`,
		"loud":  `"print":2000000`,
		"alien": `"result":{"cniVersion":"9.0.0"}`,
	} {
		w.definition(name, fmt.Sprintf(`{"cniVersion":"1.0.0","type":"recorder","log":"%s",%s}`, log, how))
	}
	w.definition("forbidden", `{"cniVersion":"1.0.0","type":"ipvlan","master":"eth1"}`)
	for _, tt := range []struct {
		networks string
		code     uint
		words    string
		calls    []string
	}{
		{"blue,good,bad", 119, "no such wire", []string{"ADD net2", "ADD net3", "DEL net3", "DEL net2"}},
		{"good,loud", 108, "printed more than", []string{"ADD net1", "ADD net2", "DEL net2", "DEL net1"}},
		{"good,alien", 108, "net2", []string{"ADD net1", "ADD net2", "DEL net2", "DEL net1"}},
		{"good,forbidden", 102, `"ipvlan" is not allowed on this node`, nil},
	} {
		w.must(os.RemoveAll(log))
		p := w.pod(0, "fails", tt.networks)
		_, err := p.Add(w.ctx)
		w.refused(err, tt.code, tt.words)
		commands, _ := w.calls(log)
		equal(t, tt.networks, commands, tt.calls)
		w.end(p)
	}
	w.asBefore()
}

// TestDefaultRouteMoves gives a pod's default routes to a network of each kind: kernel, result and status agree, the
// networks that are kept stay with the first interface, and no second default route is left.
// Conformance: N-73 N-75 C-28 F-1
func TestDefaultRouteMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		withDelegates(l)
		l.Nodes[0].AgentArgs = append(l.Nodes[0].AgentArgs, "--keep-on-primary=10.244.0.0/16,10.96.0.0/12")
	})
	leases := filepath.Join(w.Nodes[0].Dir, "delegate-leases")
	w.definition("gated", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"gated","type":"bridge","bridge":"mnbr0","isGateway":true,"ipam":{"type":"host-local","dataDir":"%s",
		"ranges":[[{"subnet":"10.70.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`, leases))
	told := filepath.Join(w.Nodes[0].Dir, "told.log")
	w.definition("told", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"recorder","log":"%s","result":{"cniVersion":"1.0.0",
		"routes":[{"dst":"0.0.0.0/0","gw":"192.0.2.1"},{"dst":"198.51.100.0/24"}]}}`, told))
	silent := w.attached(0, "silent", "gated,told")
	equal(t, "a secondary's own default route", w.defaults(silent, "-4"), []string{"default via 10.244.1.1 dev eth0"})

	byOVN := w.attached(0, "by-ovn", `[{"name":"green","default-route":["10.2.0.1","fd02::1"]},{"name":"gated"}]`)
	equal(t, "IPv4", w.defaults(byOVN, "-4"), []string{"default via 10.2.0.1 dev net1"})
	equal(t, "IPv6", w.defaults(byOVN, "-6"), []string{"default via fd02::1 dev net1"})
	for _, kept := range []string{"10.244.0.0/16 via 10.244.1.1 dev eth0", "10.96.0.0/12 via 10.244.1.1 dev eth0"} {
		if routes := w.routes(byOVN, "-4"); !slices.Contains(routes, kept) {
			t.Errorf("%s is not kept: %q", kept, routes)
		}
	}
	byDelegate := w.attached(0, "by-delegate", `[{"name":"gated","default-route":[]},{"name":"blue"}]`)
	equal(t, "a delegate's own", w.defaults(byDelegate, "-4"), []string{"default via 10.70.0.1 dev net1"})

	// The plugins compare the routes with what they are told is there.
	for _, p := range []*lab.Pod{byOVN, byDelegate, silent} {
		w.must(p.Check(w.ctx))
	}
	_, last := w.calls(told)
	equal(t, "routes that CHECK is told", fmt.Sprint(last["command"], " ", last["stdin"].(map[string]any)["prevResult"].(map[string]any)["routes"]), "CHECK [map[dst:198.51.100.0/24]]")
	w.end(silent, byOVN, byDelegate)
	w.withoutBridge()
	w.asBefore()
}
