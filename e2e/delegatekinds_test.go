package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// uncoded is the code of a plugin's error that has none of its own.
const uncoded = conf.CodeDelegateFailed

// onNode runs a command on the first node.
func (w *world) onNode(command ...string) {
	w.Exec(w.Nodes[0], command...)
}

// wire makes a pair of NICs on the first node, as a cable to a machine beside it would be: name is the node's end, name
// with a p the far one.
func (w *world) wire(name string, addrs ...string) {
	w.onNode("ip", "link", "add", name, "type", "veth", "peer", "name", name+"p")
	w.onNode("ip", "link", "set", name, "up")
	w.onNode("ip", "link", "set", name+"p", "up")
	for _, a := range addrs {
		w.onNode("ip", "addr", "add", a, "dev", name+"p", "nodad")
	}
}

// files lists what is below a folder, but for host-local's lock and its memory of the last address.
func (w *world) files(dir string) []string {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) || err == nil && (d.IsDir() || d.Name() == "lock" || strings.HasPrefix(d.Name(), "last_reserved_ip.")) {
			return nil
		}
		files = append(files, strings.TrimPrefix(path, dir+"/"))
		return err
	})
	w.Must(err)
	return files
}

// results reads from the journal what a pod's delegates answered, in their order.
func (w *world) results(p *lab.Pod) []*types100.Result {
	text := w.Read(filepath.Join(p.Node.StateDir, "attached", p.Sandbox+"@eth0"))
	var entry struct{ Results []json.RawMessage }
	w.Must(json.Unmarshal(text, &entry))
	var results []*types100.Result
	for _, r := range entry.Results {
		result, err := create.CreateFromBytes(r)
		w.Must(err)
		now, err := types100.GetResult(result)
		w.Must(err)
		results = append(results, now)
	}
	return results
}

// delegated holds the result of a pod's i-th delegate and the pod's network-status against the kernel.
func (w *world) delegated(p *lab.Pod, i, position int, network, ifName string, want []string) {
	l, s, r := w.Links(p)[ifName], w.Status(p)[position], w.results(p)[i]
	what := p.String() + " " + ifName
	equal(w.T, what+" addresses", l.Prefixes(), want)
	var inResult []string
	for _, ip := range r.IPs {
		inResult = append(inResult, ip.Address.String())
	}
	equal(w.T, what+" addresses in the result", inResult, want)
	mac := ""
	for _, iface := range r.Interfaces {
		if iface.Name == ifName && iface.Sandbox == p.NetNS {
			mac = iface.Mac
		}
	}
	equal(w.T, what+" MAC in the result", strings.ToLower(mac), l.MAC)
	equal(w.T, what+" in the status", []string{s.Name, s.Interface, strings.ToLower(s.Mac)}, []string{network, ifName, l.MAC})
	equal(w.T, what+" ips in the status", s.IPs, l.IPs())
}

// reachBy pings by one interface of a pod: another may have a way to the node's addresses too. An IPv6 address of
// another plugin's may still be checked for a double.
func (w *world) reachBy(p *lab.Pod, ifName string, addrs ...string) {
	for _, addr := range addrs {
		w.Eventually(func() error {
			_, err := p.Exec(w.Ctx, "ping", "-c", "1", "-W", "1", "-I", ifName, addr)
			return err
		})
	}
}

// kind is a plugin that a pod has a second network by.
type kind struct {
	name, config, element string   // element: the annotation's keys beside the name
	want                  []string // addresses
	mac                   string   // "": the plugin's own choice
	sysctl                string   // key=value of the interface, "" for none
	reach                 []string // from the pod
	linger                string   // a link that the plugin leaves on the node for good
}

// kinds are the reference plugins as their own documentation has them. leases is host-local's folder, tuned tuning's.
func kinds(leases, tuned string) []kind {
	const mac = "02:00:00:00:0a:0b"
	tuning := fmt.Sprintf(`{"type":"tuning","dataDir":"%s","capabilities":{"mac":true},"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}}`, tuned)
	const fixed = `"ipam":{"type":"static","addresses":[{"address":"192.0.2.5/24"},{"address":"2001:db8::5/64"}]}`
	const asked = `"capabilities":{"ips":true},"ipam":{"type":"static"}`
	return []kind{
		{name: "macvlan", config: `{"cniVersion":"1.0.0","type":"macvlan","master":"up0","mode":"bridge",` + fixed + `}`,
			want: []string{"192.0.2.5/24", "2001:db8::5/64"}, reach: []string{"192.0.2.1", "2001:db8::1"}},
		{name: "macvlan-asked", config: `{"cniVersion":"1.0.0","type":"macvlan","master":"up0","mode":"bridge",` + asked + `}`,
			element: `,"ips":["192.0.2.6/24","2001:db8::6/64"]`, want: []string{"192.0.2.6/24", "2001:db8::6/64"}, reach: []string{"192.0.2.1", "2001:db8::1"}},
		{name: "bridge", config: fmt.Sprintf(`{"cniVersion":"1.0.0","type":"bridge","bridge":"kbr0","isGateway":true,"ipam":%s}`, ipam(leases, "10.72.0.0/24")),
			want: []string{"10.72.0.2/24"}, reach: []string{"10.72.0.1"}, linger: "kbr0"},
		{name: "ptp", config: fmt.Sprintf(`{"cniVersion":"1.0.0","type":"ptp","ipam":%s}`, ipam(leases, "10.73.0.0/24")),
			want: []string{"10.73.0.2/24"}, reach: []string{"10.73.0.1"}},
		{name: "host-device", config: `{"cniVersion":"1.0.0","type":"host-device","device":"card0","ipam":{"type":"static","addresses":[{"address":"203.0.113.5/24"}]}}`,
			want: []string{"203.0.113.5/24"}, reach: []string{"203.0.113.1"}},
		{name: "host-device-bare", config: `{"cniVersion":"1.0.0","type":"host-device","device":"card0"}`},
		{name: "macvlan-tuned", config: `{"cniVersion":"1.0.0","name":"macvlan-tuned","plugins":[{"type":"macvlan","master":"up0",` + fixed + `},` + tuning + `]}`,
			element: `,"mac":"` + mac + `"`, want: []string{"192.0.2.5/24", "2001:db8::5/64"}, mac: mac, sysctl: "arp_filter=1", reach: []string{"192.0.2.1"}},
		{name: "bridge-tuned", config: fmt.Sprintf(`{"cniVersion":"1.0.0","name":"bridge-tuned","plugins":[{"type":"bridge","bridge":"kbr0","isGateway":true,"ipam":%s},%s]}`,
			ipam(leases, "10.74.0.0/24"), tuning),
			element: `,"mac":"` + mac + `"`, want: []string{"10.74.0.2/24"}, mac: mac, sysctl: "arp_filter=1", reach: []string{"10.74.0.1"}, linger: "kbr0"},
	}
}

// TestDelegateKinds gives a pod an OVN interface and, beside it, one of each kind of plugin: the kernel, the plugin's
// result and the network-status agree, it carries traffic, and after the pod nothing of it is left on the node; what was
// the node's is the node's again.
func TestDelegateKinds(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	leases, tuned := filepath.Join(w.Nodes[0].Dir, "delegate-leases"), filepath.Join(w.Nodes[0].Dir, "tuned")
	w.wire("up0", "192.0.2.1/24", "2001:db8::1/64")
	w.wire("card0", "203.0.113.1/24")
	w.Base = w.Snapshot()
	for _, k := range kinds(leases, tuned) {
		w.part(k.name, func(t *testing.T, w *world) {
			w.NAD(k.name, k.config)
			p := w.Attached(0, "web", fmt.Sprintf(`[{"name":"blue"},{"name":"%s"%s}]`, k.name, k.element))
			equal(t, "interfaces", len(w.Links(p)), 3)
			w.delegated(p, 0, 2, "shop/"+k.name, "net2", k.want)
			if mac := w.Links(p)["net2"].MAC; k.mac != "" && mac != k.mac {
				t.Errorf("the MAC is %s, not %s that was asked for", mac, k.mac)
			}
			if key, value, ok := strings.Cut(k.sysctl, "="); ok {
				out := w.Exec(p, "cat", "/proc/sys/net/ipv4/conf/net2/"+key)
				equal(t, key, strings.TrimSpace(out), value)
			}
			own := w.Links(p)["net1"]
			equal(t, "the OVN port beside it", w.portRow(p, "net1").Addresses, own.MAC+" "+own.IPs()[0])
			equal(t, "the OVN interface in the status", w.Status(p)[1].IPs, own.IPs())
			w.reachBy(p, "net2", k.reach...)
			w.Must(p.Check(w.Ctx))
			w.End(p)
			if k.linger != "" {
				w.onNode("ip", "link", "del", k.linger)
			}
			equal(t, "leases that are left", w.files(leases), nil)
			equal(t, "what tuning has left", w.files(tuned), nil)
			w.Must(w.RemoveManifest(k.name + ".yaml"))
			w.AsBefore()
		})
	}
}

// TestDelegateRefuses: what a plugin says for itself reaches the pod's owner, and nothing is left. tuning on top of
// nothing has nothing to tune; the second plugin of a list takes the first one's work with it.
func TestDelegateRefuses(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	tuned := filepath.Join(w.Nodes[0].Dir, "tuned")
	log := w.recorderOn("rec", "")
	w.wire("up0")
	w.Base = w.Snapshot()
	for _, c := range []struct{ name, config, words string }{
		{"tuning alone", fmt.Sprintf(`{"cniVersion":"1.0.0","type":"tuning","dataDir":"%s","mtu":1300}`, tuned), "delegate tuning: Required prevResult missing"},
		{"tuning with a sysctl that is not there", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"refuses","plugins":[{"type":"macvlan","master":"up0"},
			{"type":"tuning","dataDir":"%s","sysctl":{"net.ipv4.conf.IFNAME.nonsense":"1"}}]}`, tuned), "delegate tuning: open /proc/sys/net/ipv4/conf/net3/nonsense"},
		{"macvlan without its master", `{"cniVersion":"1.0.0","type":"macvlan","master":"up9"}`, "delegate macvlan: "},
	} {
		w.part(c.name, func(t *testing.T, w *world) {
			w.Must(os.RemoveAll(log))
			w.NAD("refuses", c.config)
			p := w.Pod(0, "web", "blue,rec,refuses")
			w.refused(w.TryAdd(p), uncoded, "interface net3", "shop/refuses", c.words)
			commands, _ := w.calls(log)
			equal(t, "the one that was made", commands, []string{"ADD net2", "DEL net2"})
			for name := range w.Links(p) {
				if strings.HasPrefix(name, "net") {
					t.Errorf("%s is left in the pod", name)
				}
			}
			equal(t, "what tuning has left", w.files(tuned), nil)
			w.End(p)
			w.Must(w.RemoveManifest("refuses.yaml"))
			w.AsBefore()
		})
	}
}

// TestCardIsMissing: host-device cannot undo what it never did, and says so for as long as the namespace lives. That
// holds the runtime's DEL up for a while and no longer, and a later pod's DEL ends it.
func TestCardIsMissing(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	w.NAD("card", `{"cniVersion":"1.0.0","type":"host-device","device":"card9"}`)
	p := w.Pod(0, "web", "blue,card")
	w.refused(w.TryAdd(p), uncoded, "interface net2: network shop/card", "delegate host-device: failed to find host device: Link not found")
	w.refused(p.Del(w.Ctx), uncoded, "interface net2: network shop/card", "delegate host-device: failed to find")
	w.End(p)
	later := w.Attached(0, "later", "blue")
	w.Over(later)
}

// stdins reads the configurations that a recorder was given, by "<command> <tag>", the tag of its configuration's.
func (w *world) stdins(log string) (order []string, by map[string]map[string]json.RawMessage) {
	text := w.Read(log)
	by = map[string]map[string]json.RawMessage{}
	for line := range strings.Lines(string(text)) {
		var call struct {
			Command string
			Stdin   map[string]json.RawMessage
		}
		w.Must(json.Unmarshal([]byte(line), &call))
		key := call.Command + " " + strings.Trim(string(call.Stdin["tag"]), `"`)
		order = append(order, key)
		by[key] = call.Stdin
	}
	return order, by
}

// same compares JSON, whatever the order of its keys.
func (w *world) same(what string, got json.RawMessage, want string) {
	var g, x any
	if len(got) > 0 {
		w.Must(json.Unmarshal(got, &g))
	}
	if want != "" {
		w.Must(json.Unmarshal([]byte(want), &x))
	}
	equal(w.T, what, g, x)
}

// answer is one and the same CNI result in the shape of a version.
func answer(version string) string {
	if version < "0.3.0" { // had no interfaces, and one address of a family
		return fmt.Sprintf(`{"cniVersion":"%s","ip4":{"ip":"192.0.2.9/24","gateway":"192.0.2.1","routes":[{"dst":"198.51.100.0/24","gw":"192.0.2.1"}]},"dns":{"nameservers":["192.0.2.53"]}}`, version)
	}
	family := ""
	if strings.HasPrefix(version, "0.") {
		family = `"version":"4",`
	}
	return fmt.Sprintf(`{"cniVersion":"%s","interfaces":[{"name":"rec-host","mac":"02:00:00:00:0b:00"},{"name":"net1","mac":"02:00:00:00:0b:01","sandbox":"/run/netns/web"}],
		"ips":[{%s"interface":1,"address":"192.0.2.9/24","gateway":"192.0.2.1"}],"routes":[{"dst":"198.51.100.0/24","gw":"192.0.2.1"}],"dns":{"nameservers":["192.0.2.53"]}}`, version, family)
}

// TestDelegateVersions runs a configuration and a list of two through each version of CNI: each plugin is spoken to in
// that version and gets the result before it in its shape, DEL gets the result since 0.4.0 (CNI specification, section
// 2), and the pod's network-status is the same whichever it was.
// Conformance: C-1 C-35
func TestDelegateVersions(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	log := filepath.Join(w.Nodes[0].Dir, "recorder.log")
	for _, c := range []struct {
		given, version string
		prevOnDel      bool
	}{
		{"", "0.3.1", false}, {"0.1.0", "0.1.0", false}, {"0.2.0", "0.2.0", false}, {"0.3.0", "0.3.0", false}, {"0.3.1", "0.3.1", false},
		{"0.4.0", "0.4.0", true}, {"1.0.0", "1.0.0", true}, {"1.1.0", "1.1.0", true},
	} {
		one := fmt.Sprintf(`"type":"recorder","log":"%s","tag":"one","result":%s`, log, answer(c.version))
		keys := `"name":"versions",`
		if c.given != "" {
			keys += `"cniVersion":"` + c.given + `",`
		}
		for _, form := range []struct {
			name, config string
			order        []string
		}{
			{"single", `{` + keys + one + `}`, []string{"ADD one", "DEL one"}},
			{"list", fmt.Sprintf(`{%s"plugins":[{%s},{"type":"recorder","log":"%s","tag":"two"}]}`, keys, one, log),
				[]string{"ADD one", "ADD two", "DEL two", "DEL one"}},
		} {
			w.part(fmt.Sprintf("%s %q", form.name, c.given), func(t *testing.T, w *world) {
				w.Must(os.RemoveAll(log))
				w.NAD("versions", form.config)
				p := w.Attached(0, "web", "versions")
				s := w.Status(p)[1]
				mac := "02:00:00:00:0b:01"
				if c.version < "0.3.0" {
					mac = ""
				}
				equal(t, "status", []any{s.Name, s.Interface, s.Mac, s.IPs, s.DNS.Nameservers, s.Default},
					[]any{"shop/versions", "net1", mac, []string{"192.0.2.9"}, []string{"192.0.2.53"}, false})
				w.End(p)
				order, by := w.stdins(log)
				equal(t, "calls", order, form.order)
				for key, stdin := range by {
					w.same(key+": cniVersion", stdin["cniVersion"], `"`+c.version+`"`)
					w.same(key+": name", stdin["name"], `"versions"`)
					want := ""
					if key == "ADD two" || c.prevOnDel && strings.HasPrefix(key, "DEL") {
						want = answer(c.version)
					}
					w.same(key+": prevResult", stdin["prevResult"], want)
				}
				w.Must(w.RemoveManifest("versions.yaml"))
				w.AsBefore()
			})
		}
	}
}
