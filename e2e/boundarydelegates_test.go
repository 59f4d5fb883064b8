package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegateconf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

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
	w.t.Helper()
	w.must(filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		found = append(found, path)
		return err
	}))
	return found
}

// TestBoundaryDelegateKeysInAnotherCase: whoever may write NADs and pods, and nothing else, writes no file on the
// node and takes no NIC of the node, by whatever spelling of a key.
func TestBoundaryDelegateKeysInAnotherCase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, asShipped())
	target := filepath.Join(w.Nodes[0].Dir, "target")
	w.must(os.Mkdir(target, 0o700))
	w.wire("card0")
	w.base = w.snapshot()
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
		w.definition("attack", config)
		p := w.pod(0, "web", "blue,attack")
		_, err := p.Add(w.ctx)
		code := conf.CodeInvalidConfig
		if name == "ipam itself" {
			code = conf.CodeNotAllowed
		}
		w.refused(err, code, "interface net2", "network shop/attack")
		w.end(p)
		equal(t, name+": files below the tenant's path", w.everything(target), []string{target})
		w.onNode("ip", "link", "show", "card0")
	}
	t.Attr("boundary.spellings-refused", strconv.Itoa(len(attacks)))
	w.must(w.RemoveManifest("attack.yaml"))
	w.asBefore()
}

// TestBoundaryShippedDelegates: what the manifests allow passes its schema, and all that it makes goes with the pod.
// static and sbr stand behind a macvlan that the operator adds. A kernel may have neither dummies nor VRFs: then the
// plugin's own error is the answer, and nothing is left.
func TestBoundaryShippedDelegates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 1}, func(l *lab.Lab) {
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
		w.definition(tt.name, `{"cniVersion":"1.0.0","plugins":[`+tt.plugins+`]}`)
		p := w.pod(0, "web", "blue,"+tt.name)
		if _, err := p.Add(w.ctx); err == nil {
			equal(t, tt.name, w.links(p)["net2"].Prefixes(), []string{"10.78.0.5/24"})
			if tt.name == "fixed" { // macvlan's CHECK does not know what the plugins behind it did to its routes
				w.must(p.Check(w.ctx))
			}
		} else if w.refused(err, uncoded, tt.kernel, "not supported"); tt.kernel == "" {
			t.Error(err)
		}
		w.end(p)
		w.must(w.RemoveManifest(tt.name + ".yaml"))
		w.asBefore()
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
	// A plugin and this many others of one call: a process of Go has 4 threads at least.
	const limit = 512/4 + 10
	t.Run("as shipped", func(t *testing.T) {
		w := newWorld(t, lab.Options{Nodes: 1}, asShipped())
		w.definition("bomb", bomb)
		p := w.pod(0, "web", "blue,bomb")
		stop := most(p.Sandbox)
		_, err := p.Add(w.ctx)
		w.refused(err, conf.CodeNotAllowed, `delegate "dummy" is not allowed as ipam on this node`)
		w.end(p)
		seen := stop()
		t.Attr("boundary.processes-as-shipped", strconv.Itoa(seen))
		if seen > 10 {
			t.Errorf("%d processes ran for the pod", seen)
		}
		w.must(w.RemoveManifest("bomb.yaml"))
		w.asBefore()
	})
	t.Run("allowed by mistake", func(t *testing.T) {
		w := newWorld(t, lab.Options{Nodes: 1}, asShipped("dummy"))
		w.definition("bomb", bomb)
		p := w.pod(0, "web", "bomb")
		stop := most(p.Sandbox)
		_, err := p.Add(w.ctx)
		w.refused(err, uncoded, "network shop/bomb")
		if left := callsOf(p.Sandbox); left != 0 {
			t.Errorf("%d processes are left after the ADD", left)
		}
		w.refused(p.Del(w.ctx), uncoded, "delegate dummy: ")
		if left := callsOf(p.Sandbox); left != 0 {
			t.Errorf("%d processes are left after the DEL", left)
		}
		seen := stop()
		t.Attr("boundary.processes-of-a-bomb", strconv.Itoa(seen))
		if seen > limit {
			t.Errorf("%d processes ran for the pod, which is beyond any limit", seen)
		}
		w.end(p) // the third failure is no error of the DEL
	})
}
