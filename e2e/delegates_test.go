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
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
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

// ipam is host-local's configuration with a folder of the scenario's.
func ipam(dir, subnet string) string {
	return fmt.Sprintf(`{"type":"host-local","dataDir":"%s","ranges":[[{"subnet":"%s"}]]}`, dir, subnet)
}

// TestDelegates attaches pods by the reference plugins beside OVN networks: each works as its own project means it to,
// and all of it goes with the pod.
func TestDelegates(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	leases := filepath.Join(w.Nodes[0].Dir, "delegate-leases")
	w.NAD("bridged", fmt.Sprintf(`{"cniVersion":"0.3.1","name":"bridged","plugins":[
		{"type":"bridge","bridge":"mnbr0","capabilities":{"mac":true},"ipam":%s},
		{"type":"tuning","mtu":1300,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}}]}`, ipam(leases, "10.70.0.0/24")))
	w.NAD("pair", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"ptp","ipam":%s}`, ipam(leases, "10.71.0.0/24")))
	w.NAD("mac", `{"cniVersion":"1.0.0","type":"macvlan","master":"eth1","capabilities":{"ips":true},"ipam":{"type":"static"}}`)

	a := w.Attached(0, "a", `[{"name":"bridged","mac":"02:00:00:00:70:01"},{"name":"blue"},{"name":"pair","interface":"p2p"}]`)
	b := w.Attached(0, "b", `bridged,blue`)
	equal(t, "interfaces of a", len(w.Links(a)), 4)
	equal(t, "the pod's MAC by the capability", w.Links(a)["net1"].MAC, "02:00:00:00:70:01")
	equal(t, "MTU by the chained plugin", w.Links(a)["net1"].MTU, 1300)
	for _, name := range []string{"net1", "p2p"} {
		ip := netip.MustParseAddr(w.Links(a)[name].IPs()[0])
		if !netip.MustParsePrefix("10.70.0.0/15").Contains(ip) {
			t.Errorf("%s has address %s", name, ip)
		}
	}
	for i, s := range w.Status(a)[1:] {
		name := []string{"net1", "net2", "p2p"}[i]
		equal(t, "order of the status", []string{s.Name, s.Interface}, []string{"shop/" + []string{"bridged", "blue", "pair"}[i], name})
		equal(t, "ips in the status of "+name, s.IPs, w.Links(a)[name].IPs())
		equal(t, "mac in the status of "+name, s.Mac, w.Links(a)[name].MAC)
	}
	w.MustReach(a, w.Links(b)["net1"].IPs()...)
	w.MustReach(b, w.Links(a)["net2"].IPs()...)
	equal(t, "default routes", w.defaults(a, "-4"), []string{"default via 10.244.1.1 dev eth0"})
	for _, p := range []*lab.Pod{a, b} {
		w.Must(p.Check(w.Ctx))
	}
	w.End(a, b)
	w.withoutBridge()
	w.AsBefore()
}

// withoutBridge takes away what the bridge plugin leaves on a node for good.
func (w *world) withoutBridge() {
	w.Exec(w.Nodes[0], "ip", "link", "del", "mnbr0")
}

// defaults lists a pod's default routes.
func (w *world) defaults(p *lab.Pod, family string) []string {
	return slices.DeleteFunc(w.routes(p, family), func(r string) bool { return !strings.HasPrefix(r, "default") })
}

// calls reads what the recorder wrote down: the commands in their order, and the last call's record.
func (w *world) calls(log string) (commands []string, last map[string]any) {
	text, err := os.ReadFile(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	w.Must(err)
	for line := range strings.Lines(string(text)) {
		last = nil
		w.Must(json.Unmarshal([]byte(line), &last))
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
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := filepath.Join(w.Nodes[0].Dir, "recorder.log")
	w.NAD("rec", fmt.Sprintf(`{"type":"recorder","log":"%s","args":{"cni":{"a":1,"b":1},"other":true},"result":{"cniVersion":"0.3.1"},
		"capabilities":{"ips":true,"portMappings":true,"bandwidth":false}}`, log))
	p := w.Attached(0, "told", `[{"name":"rec","interface":"rec0","ips":["192.0.2.7/24"],"portMappings":[{"hostPort":8080,"containerPort":80}],"cni-args":{"b":2}}]`)
	_, call := w.calls(log)
	var stdin map[string]any
	text := w.JSON(call["stdin"])
	w.Must(json.Unmarshal(text, &stdin))
	equal(t, "name, injected", stdin["name"], any("rec"))
	equal(t, "version, injected", stdin["cniVersion"], any("0.3.1"))
	equal(t, "capabilities, stripped", stdin["capabilities"], any(nil))
	equal(t, "args, merged", stdin["args"], any(map[string]any{"cni": map[string]any{"a": 1., "b": 2.}, "other": true}))
	equal(t, "runtimeConfig", stdin["runtimeConfig"], any(map[string]any{
		"ips": []any{"192.0.2.7/24"}, "portMappings": []any{map[string]any{"hostPort": 8080., "containerPort": 80., "protocol": "tcp"}}}))
	equal(t, "an empty result has an entry", []string{w.Status(p)[1].Name, w.Status(p)[1].Interface}, []string{"shop/rec", "rec0"})
	equal(t, "entries", len(w.Status(p)), 2)
	w.End(p)
	commands, _ := w.calls(log)
	equal(t, "calls", commands, []string{"ADD rec0", "DEL rec0"})
	w.AsBefore()
}

// TestDelegateFails makes each of three attachments fail: what was made before goes, in reverse, the pod's owner reads
// the plugin's own words and code, and nothing is left.
// Conformance: N-138 N-145 F-14
func TestDelegateFails(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	dir := w.Nodes[0].Dir
	log := filepath.Join(dir, "recorder.log")
	w.NAD("good", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"recorder","log":"%s","result":{"cniVersion":"1.0.0"}}`, log))
	for name, how := range map[string]string{
		"bad":   `"fail":{"ADD":{"code":119,"msg":"no such wire","details":"look at it"}}`,
		"loud":  `"print":2000000`,
		"alien": `"result":{"cniVersion":"9.0.0"}`,
	} {
		w.NAD(name, fmt.Sprintf(`{"cniVersion":"1.0.0","type":"recorder","log":"%s",%s}`, log, how))
	}
	w.NAD("forbidden", `{"cniVersion":"1.0.0","type":"ipvlan","master":"eth1"}`)
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
		w.Must(os.RemoveAll(log))
		p := w.Pod(0, "fails", tt.networks)
		w.refused(w.TryAdd(p), tt.code, tt.words)
		commands, _ := w.calls(log)
		equal(t, tt.networks, commands, tt.calls)
		w.End(p)
	}
	w.AsBefore()
}

// TestDefaultRouteMoves gives a pod's default routes to a network of each kind: kernel, result and status agree, the
// networks that are kept stay with the first interface, and no second default route is left.
// Conformance: N-73 N-75 C-28 F-1
func TestDefaultRouteMoves(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		withDelegates(l)
		l.Nodes[0].AgentArgs = append(l.Nodes[0].AgentArgs, "--keep-on-primary=10.244.0.0/16,10.96.0.0/12")
	})
	leases := filepath.Join(w.Nodes[0].Dir, "delegate-leases")
	w.NAD("gated", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"gated","type":"bridge","bridge":"mnbr0","isGateway":true,"ipam":{"type":"host-local","dataDir":"%s",
		"ranges":[[{"subnet":"10.70.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`, leases))
	told := filepath.Join(w.Nodes[0].Dir, "told.log")
	w.NAD("told", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"recorder","log":"%s","result":{"cniVersion":"1.0.0",
		"routes":[{"dst":"0.0.0.0/0","gw":"192.0.2.1"},{"dst":"198.51.100.0/24"}]}}`, told))
	silent := w.Attached(0, "silent", "gated,told")
	equal(t, "a secondary's own default route", w.defaults(silent, "-4"), []string{"default via 10.244.1.1 dev eth0"})

	byOVN := w.Attached(0, "by-ovn", `[{"name":"green","default-route":["10.2.0.1","fd02::1"]},{"name":"gated"}]`)
	equal(t, "IPv4", w.defaults(byOVN, "-4"), []string{"default via 10.2.0.1 dev net1"})
	equal(t, "IPv6", w.defaults(byOVN, "-6"), []string{"default via fd02::1 dev net1"})
	for _, kept := range []string{"10.244.0.0/16 via 10.244.1.1 dev eth0", "10.96.0.0/12 via 10.244.1.1 dev eth0"} {
		if routes := w.routes(byOVN, "-4"); !slices.Contains(routes, kept) {
			t.Errorf("%s is not kept: %q", kept, routes)
		}
	}
	byDelegate := w.Attached(0, "by-delegate", `[{"name":"gated","default-route":[]},{"name":"blue"}]`)
	equal(t, "a delegate's own", w.defaults(byDelegate, "-4"), []string{"default via 10.70.0.1 dev net1"})

	// The plugins compare the routes with what they are told is there.
	for _, p := range []*lab.Pod{byOVN, byDelegate, silent} {
		w.Must(p.Check(w.Ctx))
	}
	_, last := w.calls(told)
	equal(t, "routes that CHECK is told", fmt.Sprint(last["command"], " ", last["stdin"].(map[string]any)["prevResult"].(map[string]any)["routes"]), "CHECK [map[dst:198.51.100.0/24]]")
	w.End(silent, byOVN, byDelegate)
	w.withoutBridge()
	w.AsBefore()
}

// recorderOn writes a NAD whose plugin only writes down how it is called.
func (w *world) recorderOn(name, keys string) (log string) {
	log = filepath.Join(w.Nodes[0].Dir, name+".log")
	w.NAD(name, fmt.Sprintf(`{"cniVersion":"1.0.0","type":"recorder","log":"%s","result":{"cniVersion":"1.0.0"}%s}`, log, keys))
	return log
}

// TestKilledAmongDelegates kills the plugin at each point of its work with delegates: each one whose ADD was begun gets
// its DEL, and what the real plugin made is gone.
// Conformance: N-141 C-84
func TestKilledAmongDelegates(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	leases := filepath.Join(w.Nodes[0].Dir, "delegate-leases")
	w.NAD("pair", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"ptp","ipam":%s}`, ipam(leases, "10.71.0.0/24")))
	log := w.recorderOn("rec", "")
	for _, point := range []string{"delegate-begun", "delegate-made"} {
		w.Must(os.RemoveAll(log))
		p := w.Pod(0, "web", "rec,blue,pair")
		w.killed(w.TryAdd(p, lab.WithEnv(failpoint.Env+"="+point)))
		w.End(p)
		commands, _ := w.calls(log)
		want := []string{"DEL net1"}
		if point == "delegate-made" {
			want = []string{"ADD net1", "DEL net1"}
		}
		equal(t, point, commands, want)
	}
	p := w.Attached(0, "web", "rec,blue,pair")
	w.killed(p.Del(w.Ctx, lab.WithEnv(failpoint.Env+"=delegate-gone")))
	w.Over(p)
}

// TestDelegateDelFails: what a retry heals is an error of the DEL; what it does not is one no longer than that, so that
// the plugins before us get theirs, and is done by GC later.
// Conformance: N-142 N-143 C-100 F-2
func TestDelegateDelFails(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	stuck := filepath.Join(w.Nodes[0].Dir, "stuck")
	w.Must(os.WriteFile(stuck, nil, 0o600))
	log := w.recorderOn("sticky", fmt.Sprintf(`,"fail":{"DEL":{"code":11,"msg":"not yet"}},"while":"%s"`, stuck))
	other := w.recorderOn("other", "")

	p := w.Attached(0, "healed", "other,sticky,blue")
	w.refused(p.Del(w.Ctx), 11, "not yet")
	commands, _ := w.calls(other)
	equal(t, "one that fails keeps no other", commands, []string{"ADD net1", "DEL net1"})
	w.Must(os.Remove(stuck))
	w.End(p)
	commands, _ = w.calls(log)
	equal(t, "the retry", commands, []string{"ADD net2", "DEL net2", "DEL net2"})
	w.AsBefore()

	w.Must(os.WriteFile(stuck, nil, 0o600))
	p = w.Attached(0, "stuck", "sticky")
	for range 2 {
		w.refused(p.Del(w.Ctx), 11, "not yet")
	}
	w.End(p) // the third time it is no error of ours any more
	later := w.Attached(0, "later", "blue")
	w.Must(os.Remove(stuck))
	w.End(later) // whose DEL takes it up
	commands, _ = w.calls(log)
	equal(t, "a later call has it done", commands[len(commands)-5:], []string{"ADD net1", "DEL net1", "DEL net1", "DEL net1", "DEL net1"})
	w.AsBefore()

	w.Must(os.WriteFile(stuck, nil, 0o600))
	w.Nodes[0].CNIVersion = "1.1.0"
	p = w.Attached(0, "stuck", "sticky")
	for range 2 {
		w.refused(p.Del(w.Ctx), 11, "not yet")
	}
	w.End(p)
	w.Must(os.Remove(stuck))
	w.Must(w.Nodes[0].GC(w.Ctx, nil))
	w.AsBefore()
}

// TestDelegateWithoutNetNS: the namespace went first, as it does when a node's runtime was killed.
// Conformance: C-40
func TestDelegateWithoutNetNS(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	leases := filepath.Join(w.Nodes[0].Dir, "delegate-leases")
	w.NAD("pair", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"ptp","ipam":%s}`, ipam(leases, "10.71.0.0/24")))
	log := w.recorderOn("rec", "")
	p := w.Attached(0, "web", "pair,rec")
	w.Must(p.RemoveNetNS())
	w.Del(p)
	_, last := w.calls(log)
	for _, kv := range last["env"].([]any) {
		if strings.HasPrefix(kv.(string), "CNI_NETNS=") && kv != "CNI_NETNS=" {
			t.Errorf("the plugin got %s, which is gone", kv)
		}
	}
	w.Over(p)
}

// TestHangingDelegate is killed at the deadline, with its children, and the pod's owner reads who it was.
func TestHangingDelegate(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		l.Nodes[0].PluginConf = func(entry map[string]any) {
			entry["allowedDelegates"], entry["timeout"] = allowed, "2s"
		}
	})
	log := w.recorderOn("hangs", `,"hang":"ADD"`)
	p := w.Pod(0, "web", "hangs,blue")
	w.refused(w.TryAdd(p), 108, "recorder", "deadline")
	_, first := w.calls(log)
	commands, _ := w.calls(log)
	equal(t, "calls", commands, []string{"ADD net1", "DEL net1"})
	pid, err := strconv.Atoi(fmt.Sprint(first["pid"]))
	w.Must(err)
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d of the plugin is still there", pid)
	}
	w.Over(p)
}

// TestDeviceInformation: what a plugin that wants to says of its device stands in network-status, and its file goes with
// the pod; what is none fails the ADD, which leaves nothing.
func TestDeviceInformation(t *testing.T) {
	const folder = "/var/run/k8s.cni.cncf.io/devinfo/cni"
	w := newWorld(t, lab.Options{Nodes: 1}, withDelegates)
	const good = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:18:02.5","pf-pci-address":"0000:18:00.0"}}`
	log := w.recorderOn("device", `,"capabilities":{"CNIDeviceInfoFile":true},"device":`+good)
	w.recorderOn("bad", `,"capabilities":{"CNIDeviceInfoFile":true},"device":{"type":"pci","version":"1.1.0"}`)
	w.recorderOn("plain", "")

	p := w.Attached(0, "web", "device,blue,plain,device")
	for i, s := range w.Status(p) {
		text := w.JSON(s.DeviceInfo)
		equal(t, "device information of "+s.Interface, string(text), []string{"null", good, "null", "null", good}[i])
	}
	_, last := w.calls(log)
	equal(t, "the file that net4 was told", fmt.Sprint(last["stdin"].(map[string]any)["runtimeConfig"]), "map[CNIDeviceInfoFile:"+folder+"/"+p.Sandbox+"-net4-device.json]")
	files := func() []string {
		found := w.Glob(filepath.Join(folder, "*-device.json"))
		return found
	}
	equal(t, "files", len(files()), 2)
	w.End(p)

	bad := w.Pod(0, "bad", "blue,bad")
	w.refused(w.TryAdd(bad), 6, `interface net2: network shop/bad: device information: "pci" is not there as an object`)
	w.End(bad)
	equal(t, "files in the end", files(), []string(nil))
	w.AsBefore()
}
