package e2e

import (
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// The points at which plugin and agent can be killed, in the order in which an ADD, or a DEL, passes them.
var (
	pluginAdd = []string{"intent-written", "plan-received", "plan-written", "veth-made", "wired", "bound"}
	pluginDel = []string{"unwired", "handed-over"}
	agentAdd  = []string{"nb-committed", "plan-made", "ovs-committed", "flows-installed", "status-written"}
	agentDel  = []string{"unplugged", "released"}
)

// TestPluginKilled kills the plugin with SIGKILL at each point. The runtime then deletes the sandbox, as it does
// after each failed ADD, and gives up, or tries the pod anew in another sandbox or in the same: nothing of the first
// attempt is left.
func TestPluginKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	for _, point := range pluginAdd {
		t.Run("ADD at "+point, func(t *testing.T) {
			w := &world{Lab: w.Lab, t: t, ctx: w.ctx, base: w.base}
			p := w.pod(0, "web", "blue,green,blue")
			_, err := p.Add(w.ctx, lab.WithEnv(failpoint.Env+"="+point))
			w.killed(err)
			retry, err := p.NewSandbox(w.ctx)
			w.must(err)
			w.add(retry)
			w.must(p.Del(w.ctx)) // late: the second sandbox has the ports
			w.must(p.RemoveNetNS())
			w.consistent(retry, []string{"net1", "net2", "net3"})
			w.end(retry)
			w.asBefore()
		})
		t.Run("ADD at "+point+", given up", func(t *testing.T) {
			w := &world{Lab: w.Lab, t: t, ctx: w.ctx, base: w.base}
			p := w.pod(0, "web", "blue,green,blue")
			_, err := p.Add(w.ctx, lab.WithEnv(failpoint.Env+"="+point))
			w.killed(err)
			w.end(p)
			w.asBefore()
		})
		t.Run("ADD at "+point+", again in the same sandbox", func(t *testing.T) {
			w := &world{Lab: w.Lab, t: t, ctx: w.ctx, base: w.base}
			p := w.pod(0, "web", "blue,green,blue")
			_, err := p.Add(w.ctx, lab.WithEnv(failpoint.Env+"="+point))
			w.killed(err)
			w.del(p)
			w.add(p)
			w.consistent(p, []string{"net1", "net2", "net3"})
			w.end(p)
			w.asBefore()
		})
	}
	for _, point := range append([]string{"release-put"}, pluginDel...) { // which the version before does not have
		t.Run("DEL at "+point, func(t *testing.T) {
			w := &world{Lab: w.Lab, t: t, ctx: w.ctx, base: w.base}
			p := w.attached(0, "web", "blue,green,blue")
			w.killed(p.Del(w.ctx, lab.WithEnv(failpoint.Env+"="+point)))
			w.end(p)
			w.must(p.Node.StopAgent(w.ctx)) // which finds what the plugin could not tell it any more
			w.must(p.Node.StartAgent(w.ctx))
			w.asBefore()
		})
	}
}

func (w *world) killed(err error) {
	w.t.Helper()
	if err == nil || !strings.Contains(err.Error(), "killed") {
		w.t.Fatalf("not killed at its failpoint: %v", err)
	}
}

// addAndDel is all of a pod's life.
func (w *world) addAndDel(p *lab.Pod) error {
	_, err := p.Add(w.ctx)
	if err == nil {
		err = p.Del(w.ctx)
	}
	return err
}

// TestAgentKilled kills the agent with SIGKILL at each point; it is started again without the failpoint, as its
// DaemonSet would. The plugin's call waits for it and succeeds.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	for _, point := range append(agentAdd, agentDel...) {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t, lab.Options{}, nil)
			n := w.Nodes[0]
			p := w.pod(0, "web", "blue,green,blue")
			ended, err := n.AcrossKill(w.ctx, point, func() error { return w.addAndDel(p) })
			w.killed(ended)
			w.must(err)
			w.end(p)
			w.asBefore()
		})
	}
}
