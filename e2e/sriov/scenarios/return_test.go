//go:build sriov

package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

const oneAndBlue = `[{"name":"fast0","ips":["192.0.2.1/24"]},{"name":"blue"}]`

// TestReturnWithoutNB takes a pod away while NB is down: its virtual function is back at once, and can be given again, all
// else follows with NB.
func TestReturnWithoutNB(t *testing.T) {
	withEach(t, func(w *world) {
		w.fast("fast0", pf0, "")
		v := w.vfs[0][0]
		p := w.fastPod("web", pf0, v, oneAndBlue)
		w.Must(w.NB.Stop(w.Ctx))
		w.End(p)
		w.isBack(v)
		next := w.fastPod("next", pf0, v, `[{"name":"fast0","ips":["192.0.2.1/24"]}]`)
		w.Must(w.NB.Restart(w.Ctx))
		w.Over(next)
	})
}

// TestReturnWithoutNetNS takes the pod's namespace away before DEL, as a runtime does that was killed: the kernel sends the
// virtual function back under the name it had in the pod, and the next pod can have it.
func TestReturnWithoutNetNS(t *testing.T) {
	withEach(t, func(w *world) {
		w.fast("fast0", pf0, "")
		v := w.vfs[0][0]
		p := w.fastPod("web", pf0, v, oneAndBlue)
		w.Must(p.RemoveNetNS())
		w.Must(p.Del(w.Ctx))
		w.Must(p.RemoveManifest())
		w.Eventually(func() error {
			name, err := v.inHost()
			if err == nil && name == "" {
				err = errors.New("the virtual function is not back")
			}
			return err
		})
		next := w.fastPod("next", pf0, v, oneAndBlue)
		w.End(next)
		w.rename(v)
		w.AsBefore()
	})
}

// rename gives a virtual function its own name back, as the node's administrator would.
func (w *world) rename(v vf) {
	name, err := v.inHost()
	w.Must(err)
	if name != v.Name {
		w.Exec(w.Nodes[0], "ip", "link", "set", name, "down", "name", v.Name)
	}
}

// TestReturnByGC: the runtime has lost a pod and says which are left.
func TestReturnByGC(t *testing.T) {
	withEach(t, func(w *world) {
		w.Nodes[0].CNIVersion = "1.1.0"
		w.T.Cleanup(func() { w.Nodes[0].CNIVersion = "1.0.0" })
		w.fast("fast0", pf0, "")
		lost := w.fastPod("lost", pf0, w.vfs[0][0], oneAndBlue)
		kept := w.fastPod("kept", pf0, w.vfs[0][1], `[{"name":"fast0","ips":["192.0.2.2/24"]}]`)
		w.Must(w.Nodes[0].GC(w.Ctx, []*lab.Pod{kept}))
		w.isBack(w.vfs[0][0])
		w.has(kept, "net1", w.vfs[0][1])
		w.Over(lost, kept)
	})
}

// TestPluginKilled kills the plugin at each point of its work with the virtual function, and while the delegate runs. DEL
// returns the function, and the next pod has it.
func TestPluginKilled(t *testing.T) {
	withEach(t, func(w *world) {
		v := w.vfs[0][0]
		w.fast("fast0", pf0, "")
		for _, point := range []string{"delegate-begun", "delegate-made"} {
			w.run("ADD at "+point, func(w *world) {
				p := w.Pod(0, "web", oneAndBlue)
				w.given(p, pf0, v)
				w.killed(w.TryAdd(p, lab.WithEnv(failpoint.Env+"="+point)))
				w.ends(p)
				w.isBack(v)
				w.AsBefore()
			})
		}
		w.run("ADD while the delegate runs", func(w *world) { w.killWhileDelegateRuns(v) })
		w.run("DEL at delegate-gone", func(w *world) {
			p := w.fastPod("web", pf0, v, oneAndBlue)
			w.killed(p.Del(w.Ctx, lab.WithEnv(failpoint.Env+"=delegate-gone")))
			w.ends(p)
			w.isBack(v)
			w.AsBefore()
		})
		next := w.fastPod("next", pf0, v, oneAndBlue)
		w.Over(next)
	})
}

// ends takes a pod away that may not have the device's interface. The plugins cannot be told to take away what is not there:
// they say so until the pod's namespace is gone, and have their last DEL with a later pod's.
func (w *world) ends(p *lab.Pod) {
	err := p.Del(w.Ctx)
	if err == nil {
		w.End(p)
		return
	}
	if !strings.Contains(err.Error(), "delegate "+w.plugin) || !strings.Contains(err.Error(), "Link not found") {
		w.T.Fatal(err)
	}
	w.Eventually(func() error { return p.Del(w.Ctx) })
	w.End(p)
	w.End(w.Attached(0, "later", "blue"))
}

func (w *world) killed(err error) {
	if err == nil || !strings.Contains(err.Error(), "killed") {
		w.T.Fatalf("not killed: %v", err)
	}
}

// killWhileDelegateRuns has the delegate's second plugin hang when the first has moved the device.
func (w *world) killWhileDelegateRuns(v vf) {
	log := filepath.Join(w.Nodes[0].Dir, "hang.log")
	defer os.Remove(log)
	w.NAD("hangs", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"hangs","plugins":[%s,{"type":"recorder","log":"%s","hang":"ADD"}]}`,
		w.fastPlugin("hangs", `,"ipam":{"type":"static"}`), log), resourceAnnotation, pf0)
	p := w.Pod(0, "web", `[{"name":"hangs","ips":["192.0.2.1/24"]},{"name":"blue"}]`)
	w.given(p, pf0, v)
	called := make(chan error, 1)
	go func() {
		_, err := p.Add(w.Ctx)
		called <- err
	}()
	var call struct{ PID int }
	w.Eventually(func() error {
		text, err := os.ReadFile(log)
		if err == nil {
			err = json.Unmarshal(text, &call)
		}
		return err
	})
	w.has(p, "net1", v)
	w.Must(syscall.Kill(w.ancestor(call.PID, lab.PluginType), syscall.SIGKILL))
	w.killed(<-called)
	w.End(p)
	w.isBack(v)
	w.AsBefore()
}

// ancestor is the process above another that runs a program of that name.
func (w *world) ancestor(pid int, program string) int {
	for pid > 1 {
		text := w.Read(fmt.Sprintf("/proc/%d/stat", pid))
		head, tail, _ := strings.Cut(string(text), ") ")
		if _, name, _ := strings.Cut(head, "("); name == program {
			return pid
		}
		var state string
		_, err := fmt.Sscan(tail, &state, &pid)
		w.Must(err)
	}
	w.T.Fatalf("no process above is %s", program)
	return 0
}

// TestAgentKilled kills the agent at points of its work for the pod; it is started again, as its DaemonSet would. The call
// that waits for it goes on, and DEL returns the virtual function.
func TestAgentKilled(t *testing.T) {
	withEach(t, func(w *world) {
		w.fast("fast0", pf0, "")
		v, n := w.vfs[0][0], w.Nodes[0]
		for _, point := range []string{"plan-made", "flows-installed", "unplugged"} {
			w.run(point, func(w *world) {
				p := w.Pod(0, "web", oneAndBlue)
				w.given(p, pf0, v)
				ended, err := n.AcrossKill(w.Ctx, point, func() error {
					_, err := p.Add(w.Ctx)
					if err == nil {
						err = p.Del(w.Ctx)
					}
					return err
				})
				w.killed(ended)
				w.Must(err)
				w.End(p)
				w.isBack(v)
				w.AsBefore()
			})
		}
	})
}
