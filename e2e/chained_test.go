package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// chained is a NAD whose list has our plugin first, then others.
func chained(keys string, plugins ...string) string {
	all := append([]string{`{"type":"ovn-multinet",` + keys + `}`}, plugins...)
	return `{"cniVersion":"1.0.0","plugins":[` + strings.Join(all, ",") + `]}`
}

// prevResults reads which interfaces and addresses a recorder was told in its prevResult, by command.
func (w *world) prevResults(log string) []string {
	text, err := os.ReadFile(log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	w.Must(err)
	var all []string
	for line := range strings.Lines(string(text)) {
		var call struct {
			Command string
			Stdin   struct {
				PrevResult *struct {
					Interfaces []struct{ Name, Mac, Sandbox string }
					IPs        []struct{ Address string }
				}
			}
		}
		w.Must(json.Unmarshal([]byte(line), &call))
		word := call.Command
		if prev := call.Stdin.PrevResult; prev != nil {
			for _, i := range prev.Interfaces {
				if i.Sandbox != "" {
					word += " " + i.Name + " " + i.Mac
				}
			}
			for _, ip := range prev.IPs {
				word += " " + ip.Address
			}
		}
		all = append(all, word)
	}
	return all
}

// TestListOfOne: a list with our plugin alone is the network without the list, and no program runs for it.
func TestListOfOne(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, nil) // no delegate is allowed
	w.network("single", chained(`"subnets":"10.61.0.0/24"`))
	w.network("shared", `{"cniVersion":"0.3.1","name":"l2","plugins":[{"type":"ovn-k8s-cni-overlay","subnets":"10.62.0.0/24"}]}`)
	a := w.Attached(0, "a", `[{"name":"single","ips":["10.61.0.7"]},{"name":"shared"}]`)
	b := w.Attached(0, "b", "single,shared")
	equal(t, "addresses", w.Links(a)["net1"].Prefixes(), []string{"10.61.0.7/24"})
	w.MustReach(a, w.Links(b)["net1"].IPs()...)
	w.MustReach(a, w.Links(b)["net2"].IPs()...)
	w.Must(a.Check(w.Ctx))
	w.End(a, b)
	w.endNetworks("single", "shared")
	w.AsBefore()
}

// TestChainedPlugins: sbr and tuning behind our plugin work on the OVN interface, which still carries traffic; CHECK
// accepts what they changed, and all of it goes with the pod, also when the agent was restarted meanwhile.
func TestChainedPlugins(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	dir := w.Nodes[0].Dir
	tuned, log := filepath.Join(dir, "tuned"), filepath.Join(dir, "chained.log")
	w.network("based", chained(`"subnets":"10.63.0.0/24,fd63::/64","router":"core","routes":[{"dst":"10.98.0.0/16"}]`, `{"type":"sbr"}`))
	w.network("tuned", chained(`"subnets":"10.64.0.0/24"`, fmt.Sprintf(
		`{"type":"tuning","dataDir":"%s","mtu":1300,"capabilities":{"mac":true},"sysctl":{"net.ipv4.conf.IFNAME.rp_filter":"2"}}`, tuned),
		fmt.Sprintf(`{"type":"recorder","log":"%s"}`, log)))
	peer := w.Attached(0, "peer", "based,tuned")
	p := w.Attached(0, "web", `[{"name":"based"},{"name":"tuned","mac":"02:00:00:00:64:01"},{"name":"blue"}]`)
	w.Must(os.RemoveAll(log)) // the calls for the peer
	l := w.Links(p)
	w.part("the routes are in a table of their own", func(t *testing.T, w *world) {
		for _, r := range w.routes(p, "-4") {
			if strings.HasSuffix(r, "dev net1") {
				t.Errorf("the main table has %s", r)
			}
		}
		for _, want := range []string{"default via 10.63.0.1 dev net1", "10.98.0.0/16 via 10.63.0.1 dev net1"} {
			if table := w.Exec(p, "ip", "route", "show", "table", "100"); !strings.Contains(table, want) {
				t.Errorf("table 100 has %q, want %s", table, want)
			}
		}
		for _, ip := range w.Links(peer)["net1"].IPs() {
			w.reachBy(p, "net1", ip)
		}
	})
	w.part("what tuning changed", func(t *testing.T, w *world) {
		equal(t, "MTU", l["net2"].MTU, 1300)
		equal(t, "rp_filter", strings.TrimSpace(w.Exec(p, "cat", "/proc/sys/net/ipv4/conf/net2/rp_filter")), "2")
		w.MustReach(p, w.Links(peer)["net2"].IPs()...)
	})
	for i, name := range []string{"net1", "net2"} {
		s := w.Status(p)[i+1]
		equal(t, "status", []string{s.Name, s.Interface, s.Mac}, []string{"shop/" + []string{"based", "tuned"}[i], name, l[name].MAC})
		equal(t, "status", s.IPs, l[name].IPs())
		equal(t, "MTU in the status", s.Mtu, l[name].MTU)
	}
	w.Must(w.Nodes[0].StopAgent(w.Ctx))
	w.Must(w.Nodes[0].StartAgent(w.Ctx))
	w.Must(p.Check(w.Ctx))
	mac := l["net2"].MAC + " " + l["net2"].Prefixes()[0]
	w.End(p)
	ofWeb := w.prevResults(log)
	equal(t, "what the last plugin of the list was told", ofWeb, []string{"CHECK net2 " + mac, "DEL net2 " + mac})
	w.End(peer)
	equal(t, "what tuning has left", w.files(tuned), nil)
	w.endNetworks("based", "tuned")
	w.AsBefore()
}

// TestChainedPluginsFail: a plugin behind ours that is not allowed, that fails, or that makes the interface one that OVN
// would not serve, refuses the ADD, and nothing is left.
func TestChainedPluginsFail(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	dir := w.Nodes[0].Dir
	tuned, log := filepath.Join(dir, "tuned"), filepath.Join(dir, "chained.log")
	recorder := fmt.Sprintf(`{"type":"recorder","log":"%s"}`, log)
	tuning := func(keys string) string { return fmt.Sprintf(`{"type":"tuning","dataDir":"%s",%s}`, tuned, keys) }
	for i, c := range []struct {
		name, second string
		code         uint
		words        string
		calls        []string
	}{
		{"not allowed", `{"type":"bandwidth"}`, conf.CodeNotAllowed, `delegate "bandwidth" is not allowed on this node`, nil},
		{"ipam not allowed", `{"type":"recorder","ipam":{"type":"dhcp"}}`, conf.CodeNotAllowed, `"dhcp" is not allowed as ipam`, nil},
		{"another MAC", tuning(`"mac":"02:00:00:00:99:99"`), conf.CodeInvalidConfig, "its MAC is 02:00:00:00:99:99, not ", []string{"ADD net2", "DEL net2"}},
		{"a larger MTU", tuning(`"mtu":9000`), conf.CodeInvalidConfig, "its MTU is 9000, and the network carries ", []string{"ADD net2", "DEL net2"}},
		{"a sysctl that is not there", tuning(`"sysctl":{"net.ipv4.conf.IFNAME.nonsense":"1"}`), uncoded, "delegate tuning: ", []string{"ADD net2", "DEL net2"}},
		{"its own error", fmt.Sprintf(`{"type":"recorder","log":"%s","fail":{"ADD":{"code":119,"msg":"no such wire"}}}`, log), 119, "no such wire",
			[]string{"ADD net2", "ADD net2", "DEL net2", "DEL net2"}},
	} {
		w.part(c.name, func(t *testing.T, w *world) {
			w.Must(os.RemoveAll(log))
			w.network("refused", chained(fmt.Sprintf(`"subnets":"10.65.%d.0/24"`, i), recorder, c.second))
			p := w.Pod(0, "web", "blue,refused,green")
			w.refused(w.TryAdd(p), c.code, "interface net2", "shop/refused", c.words)
			commands, _ := w.calls(log)
			equal(t, "the calls", commands, c.calls)
			for name := range w.Links(p) {
				if strings.HasPrefix(name, "net") {
					t.Errorf("%s is left in the pod", name)
				}
			}
			w.End(p)
			equal(t, "what tuning has left", w.files(tuned), nil)
			w.endNetworks("refused")
			w.AsBefore()
		})
	}
	w.part("a node that allows nothing", func(t *testing.T, w *world) {
		w.network("refused", chained(`"subnets":"10.66.0.0/24"`, `{"type":"sbr"}`))
		w.Nodes[0].PluginConf = func(map[string]any) {}
		p := w.Pod(0, "web", "refused")
		w.refused(w.TryAdd(p), conf.CodeNotAllowed, `delegate "sbr" is not allowed on this node`)
		w.End(p)
		withDelegates(w.Lab)
		w.endNetworks("refused")
		w.AsBefore()
	})
}

// TestChainedPluginsAreKilled: a plugin that is killed among the plugins behind it has told the journal which of them had
// begun. Their DEL has the interface's result, the veth is deleted after them, and a lost DEL is done by GC.
func TestChainedPluginsAreKilled(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, withDelegates)
	stuck := filepath.Join(w.Nodes[0].Dir, "stuck")
	log := filepath.Join(w.Nodes[0].Dir, "chained.log")
	w.network("chain", fmt.Sprintf(`{"cniVersion":"1.1.0","plugins":[{"type":"ovn-multinet","subnets":"10.67.0.0/24"},
		{"type":"recorder","log":"%s","fail":{"DEL":{"code":11,"msg":"not yet"}},"while":"%s"}]}`, log, stuck))
	w.Base = w.Snapshot()
	const one, address = `[{"name":"chain","mac":"02:00:00:00:67:01","ips":["10.67.0.7"]}]`, " net1 02:00:00:00:67:01 10.67.0.7/24"
	for _, point := range []string{"delegate-begun", "delegate-made", "bound"} {
		w.Must(os.RemoveAll(log))
		p := w.Pod(0, "web", one)
		w.killed(w.TryAdd(p, lab.WithEnv(failpoint.Env+"="+point)))
		w.End(p)
		want := []string{"ADD" + address, "DEL" + address}
		if point == "delegate-begun" {
			want = want[1:]
		}
		equal(t, point, w.prevResults(log), want)
		w.AsBefore()
	}
	w.part("a DEL that fails and is tried again", func(t *testing.T, w *world) {
		w.Must(os.RemoveAll(log))
		w.Must(os.WriteFile(stuck, nil, 0o600))
		p := w.Attached(0, "web", one)
		w.refused(p.Del(w.Ctx), 11, "interface net1: network shop/chain", "not yet")
		w.Must(os.Remove(stuck))
		w.End(p)
		equal(t, "the calls", w.prevResults(log), []string{"ADD" + address, "DEL" + address, "DEL" + address})
		w.AsBefore()
	})
	w.part("a DEL that never comes", func(t *testing.T, w *world) {
		w.Must(os.RemoveAll(log))
		w.Nodes[0].CNIVersion = "1.1.0"
		kept, lost := w.Attached(0, "kept", "chain"), w.Attached(0, "lost", "chain")
		w.Must(w.Nodes[0].GC(w.Ctx, []*lab.Pod{kept}))
		commands, _ := w.calls(log)
		equal(t, "the calls", commands[:3], []string{"ADD net1", "ADD net1", "DEL net1"})
		if last := commands[len(commands)-1]; !strings.HasPrefix(last, "GC") {
			t.Errorf("the last call of %q is no GC", commands)
		}
		w.Must(kept.Check(w.Ctx))
		w.End(kept, lost)
		w.AsBefore()
	})
	w.endNetworks("chain")
}
