package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// rowsComeBack waits until the ports are as they were.
func (w *world) rowsComeBack(before map[string]string) {
	ctx, cancel := context.WithTimeout(w.Ctx, labtest.Soon)
	defer cancel()
	w.Must(lab.Eventually(ctx, func() error {
		for name, want := range before {
			if got := w.rowText(name); got != want {
				return fmt.Errorf("port %s is\n%s\nwant\n%s", name, got, want)
			}
		}
		return nil
	}))
}

// rowText is a port's row, without what northd writes.
func (w *world) rowText(name string) string {
	out := w.NBCtl("--columns=_uuid,name,addresses,port_security,options,external_ids", "find", "Logical_Switch_Port", "name="+name)
	return out
}

func (w *world) rowTexts(pods ...*lab.Pod) map[string]string {
	texts := map[string]string{}
	for _, p := range pods {
		for ifName := range w.Links(p) {
			if strings.HasPrefix(ifName, "net") {
				name := fmt.Sprintf("%s/%s/%s", p.Namespace, p.Name, ifName)
				texts[name] = w.rowText(name)
			}
		}
	}
	return texts
}

// TestBoundaryNBIsReplaced: NB is emptied, or an older backup of it is restored, under running pods. Networks come back, then the
// pods' ports with the addresses that the pods have, and what the backup has of pods that are gone is released.
func TestBoundaryNBIsReplaced(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, reconciling)
	w.network("wide", fmt.Sprintf(wide, ""))
	gone := w.Attached(0, "gone", "blue,green")
	old := w.Attached(0, "old", "blue,green,wide")
	backup := w.Read(w.NBFile())
	w.End(gone)
	a, b := w.Attached(0, "a", "blue,green,wide"), w.Attached(1, "b", "blue,green,wide")
	before := w.rowTexts(old, a, b)
	for _, c := range []struct {
		name    string
		content []byte
	}{{"emptied", nil}, {"an older backup", backup}} {
		w.part(c.name, func(t *testing.T, w *world) {
			w.RestoreNB(c.content)
			w.rowsComeBack(before)
			w.noRows(gone)
			for _, pair := range [][2]*lab.Pod{{a, b}, {b, old}, {old, a}} {
				for _, name := range []string{"net1", "net2", "net3"} {
					w.MustReach(pair[0], w.Links(pair[1])[name].IPs()...)
				}
			}
			w.consistent(a, []string{"net1", "net2", "net3"})
			fresh := w.Pod(1, "fresh", "blue,green,wide") // which takes nobody's address
			w.AddInTheEnd(fresh)                          // new ports wait for the ports of running pods
			w.MustReach(fresh, w.Links(a)["net1"].IPs()...)
			w.End(fresh)
		})
	}
	w.End(old, a, b)
	w.Must(w.RemoveManifest("wide.yaml"))
	w.AsBefore()
}

// TestBoundaryBridgeIsMadeAgain: br-int is deleted under running pods. ovn-controller makes the bridge again, and the agent adds the
// pods' OVS ports again.
func TestBoundaryBridgeIsMadeAgain(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, reconciling)
	a, b := w.Attached(0, "a", "blue,green"), w.Attached(1, "b", "blue,green")
	w.VSCtl(a.Node, "del-br", "br-int")
	w.Eventually(func() error {
		out, err := a.Node.VSCtl(w.Ctx, "--bare", "--columns=name", "find", "Interface", "external_ids:sandbox="+a.Sandbox)
		if n := len(strings.Fields(out)); err == nil && n != 2 {
			err = fmt.Errorf("%d OVS ports of %s, want 2", n, a)
		}
		return err
	})
	for _, name := range []string{"net1", "net2"} {
		w.MustReach(a, w.Links(b)[name].IPs()...)
		w.MustReach(b, w.Links(a)[name].IPs()...)
	}
	w.Over(a, b)
}

// asShipped has a node allow what the manifests allow, and further plugins for addresses.
func asShipped(ipam ...string) func(*lab.Lab) {
	delegates, static := delegateconf.Shipped()
	return func(l *lab.Lab) {
		for _, n := range l.Nodes {
			n.PluginConf = func(entry map[string]any) {
				entry["allowedDelegates"], entry["allowedIPAM"] = delegates, append(static, ipam...)
			}
		}
	}
}

// everything lists all files below a folder.
func (w *world) everything(dir string) (found []string) {
	w.Must(filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		found = append(found, path)
		return err
	}))
	return found
}

// TestBoundaryDelegateKeysInAnotherCase: whoever may write NADs and pods, and nothing else, writes no file on the
// node and takes no NIC of the node, by whatever spelling of a key.
func TestBoundaryDelegateKeysInAnotherCase(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, asShipped())
	target := filepath.Join(w.Nodes[0].Dir, "target")
	w.Must(os.Mkdir(target, 0o700))
	w.wire("card0")
	w.Base = w.Snapshot()
	lease := fmt.Sprintf(`{"type":"host-local","dataDir":"%s","ranges":[[{"subnet":"10.77.0.0/24"}]]}`, target)
	attacks := map[string]string{
		"files":        fmt.Sprintf(`{"type":"dummy","Ipam":%s}`, lease),
		"files beside": fmt.Sprintf(`{"type":"dummy","ipam":{"type":"static","addresses":[{"address":"10.77.0.5/24"}]},"ipaM":%s}`, lease),
		"a NIC":        `{"type":"dummy","IPAM":{"type":"host-device"},"device":"card0"}`,
		"long s":       fmt.Sprintf(`{"plugin\u017f":[{"type":"dummy","ipam":%s}],"type":"dummy"}`, lease),
		"Plugins": fmt.Sprintf(`{"plugins":[{"type":"dummy","ipam":{"type":"static","addresses":[{"address":"10.77.0.5/24"}]}}],
			"Plugins":[{"runtimeConfig":{"ips":["10.77.0.9/24"]},"ipam":%s}]}`, lease),
		"type twice":  fmt.Sprintf(`{"type":"dummy","type":"host-local","ipam":%s}`, lease),
		"ipam itself": fmt.Sprintf(`{"type":"dummy","ipam":%s}`, lease),
	}
	for name, config := range attacks {
		w.NAD("attack", config)
		p := w.Pod(0, "web", "blue,attack")
		_, err := p.Add(w.Ctx)
		code := conf.CodeInvalidConfig
		if name == "ipam itself" {
			code = conf.CodeNotAllowed
		}
		w.refused(err, code, "interface net2", "network shop/attack")
		w.End(p)
		equal(t, name+": files below the tenant's path", w.everything(target), []string{target})
		w.onNode("ip", "link", "show", "card0")
	}
	t.Attr("boundary.spellings-refused", strconv.Itoa(len(attacks)))
	w.Must(w.RemoveManifest("attack.yaml"))
	w.AsBefore()
}

// TestBoundaryShippedDelegates: what the manifests allow passes its schema, and all that it makes goes with the pod.
// static and sbr stand behind a macvlan that the operator adds. A kernel may have neither dummies nor VRFs: then the
// plugin's own error is the answer, and nothing is left.
func TestBoundaryShippedDelegates(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
		delegates, ipam := delegateconf.Shipped()
		l.Nodes[0].PluginConf = func(entry map[string]any) {
			entry["allowedDelegates"], entry["allowedIPAM"] = append([]string{"macvlan"}, delegates...), ipam
		}
	})
	const ipam = `"ipam":{"type":"static","addresses":[{"address":"10.78.0.5/24","gateway":"10.78.0.1"}],"routes":[{"dst":"10.79.0.0/16"}]}`
	for _, tt := range []struct{ name, plugins, kernel string }{
		{"fixed", `{"type":"macvlan","master":"eth1",` + ipam + `}`, ""},
		{"routed", `{"type":"macvlan","master":"eth1",` + ipam + `},{"type":"sbr"}`, ""},
		{"domain", `{"type":"macvlan","master":"eth1",` + ipam + `},{"type":"vrf","vrfname":"red"}`, "delegate vrf: "},
		{"unwired", `{"type":"dummy",` + ipam + `}`, "delegate dummy: "},
	} {
		w.NAD(tt.name, `{"cniVersion":"1.0.0","plugins":[`+tt.plugins+`]}`)
		p := w.Pod(0, "web", "blue,"+tt.name)
		if _, err := p.Add(w.Ctx); err == nil {
			equal(t, tt.name, w.Links(p)["net2"].Prefixes(), []string{"10.78.0.5/24"})
			if tt.name == "fixed" { // macvlan's CHECK does not know what the plugins behind it did to its routes
				w.Must(p.Check(w.Ctx))
			}
		} else if w.refused(err, uncoded, tt.kernel, "not supported"); tt.kernel == "" {
			t.Error(err)
		}
		w.End(p)
		w.Must(w.RemoveManifest(tt.name + ".yaml"))
		w.AsBefore()
	}
}

// callsOf counts the processes that run for a sandbox.
func callsOf(sandbox string) (count int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "CNI_CONTAINERID="+sandbox+"\x00") {
			count++
		}
	}
	return count
}

// most counts the processes of a sandbox until it is told to stop, and returns the most that it saw.
func most(sandbox string) (stop func() int) {
	end, highest := make(chan struct{}), 0
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			highest = max(highest, callsOf(sandbox))
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	})
	return func() int {
		close(end)
		done.Wait()
		return highest
	}
}

// TestBoundaryForkBomb: a plugin that is its own plugin for addresses is not run. Where an operator allows it
// nevertheless, each call ends at its limits, and no process and no control group outlives the call.
func TestBoundaryForkBomb(t *testing.T) {
	t.Parallel()
	const bomb = `{"cniVersion":"1.0.0","type":"dummy","ipam":{"type":"dummy"}}`
	// A plugin and this many others of one call: a process of Go has 3 threads at least, with GOMAXPROCS=1.
	const limit = 512/3 + 10
	t.Run("as shipped", func(t *testing.T) {
		w := newWorld(t, lab.Options{Nodes: 1}, asShipped())
		w.NAD("bomb", bomb)
		p := w.Pod(0, "web", "blue,bomb")
		stop := most(p.Sandbox)
		w.refused(w.TryAdd(p), conf.CodeNotAllowed, `delegate "dummy" is not allowed as ipam on this node`)
		w.End(p)
		seen := stop()
		t.Attr("boundary.processes-as-shipped", strconv.Itoa(seen))
		if seen > 10 {
			t.Errorf("%d processes ran for the pod", seen)
		}
		w.Must(w.RemoveManifest("bomb.yaml"))
		w.AsBefore()
	})
	t.Run("allowed by mistake", func(t *testing.T) {
		w := newWorld(t, lab.Options{Nodes: 1}, asShipped("dummy"))
		w.NAD("bomb", bomb)
		p := w.Pod(0, "web", "bomb")
		stop := most(p.Sandbox)
		w.refused(w.TryAdd(p), uncoded, "network shop/bomb")
		if left := callsOf(p.Sandbox); left != 0 {
			t.Errorf("%d processes are left after the ADD", left)
		}
		w.refused(p.Del(w.Ctx), uncoded, "delegate dummy: ")
		if left := callsOf(p.Sandbox); left != 0 {
			t.Errorf("%d processes are left after the DEL", left)
		}
		seen := stop()
		t.Attr("boundary.processes-of-a-bomb", strconv.Itoa(seen))
		if seen > limit {
			t.Errorf("%d processes ran for the pod, which is beyond any limit", seen)
		}
		w.End(p) // the third failure is no error of the DEL
	})
}
