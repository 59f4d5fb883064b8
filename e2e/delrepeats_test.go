package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// counter stands in for the agent, and only counts who comes.
type counter struct {
	socket string
	calls  atomic.Int64
}

func startCounter(t *testing.T, socket string) *counter {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{socket: socket}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.calls.Add(1)
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return c
}

// TestDelRepeats: kubelet calls DEL again and again, also for a pod that is long done. After the first neither agent nor
// database is asked any more, and a delegate only as long as its DEL fails: that is an error twice, and then keeps the
// primary network's plugins no longer from theirs.
func TestDelRepeats(t *testing.T) {
	t.Parallel()
	const repeats = 20
	c := newCounted(t)
	n := c.Nodes[0]
	asksAgent := func(socket string) {
		n.PluginConf = func(entry map[string]any) { entry["allowedDelegates"], entry["agentSocket"] = allowed, socket }
	}
	asksAgent(n.AgentSocket)
	stuck := filepath.Join(n.Dir, "stuck")
	c.recorderOn("obeys", "")
	c.recorderOn("sticky", fmt.Sprintf(`,"fail":{"DEL":{"code":77,"msg":"still busy"}},"while":"%s"`, stuck))
	c.settled()
	for _, tt := range []struct {
		name, networks, delegate string
		released                 int      // transactions of the first DEL, in either database
		failed                   int      // DELs, of all
		delegateDels             int      // of all
		journal                  []string // after the container's ID
	}{
		{name: "a plain pod"},
		{name: "a pod that is done", networks: "blue,green,obeys", delegate: "obeys", released: 1, delegateDels: 1},
		{name: "a pod whose delegate fails", networks: "blue,green,sticky", delegate: "sticky", released: 1, failed: 2,
			delegateDels: 1 + repeats, journal: []string{"@eth0", "@eth0.left"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &counted{world: c.sub(t), nb: c.nb, ovs: c.ovs}
			c.Must(os.WriteFile(stuck, nil, 0o600))
			p := c.Attached(0, "web", tt.networks)
			c.reset()
			failed := c.delFails(p)
			c.noPorts(p)
			c.Eventually(func() error { return c.unanswered(n) })
			equal(t, "transactions of the first DEL", c.committed(), []int{tt.released, tt.released})

			agent := startCounter(t, filepath.Join(n.Dir, "counter.sock"))
			asksAgent(agent.socket)
			c.reset()
			for range repeats {
				failed += c.delFails(p)
			}
			asksAgent(n.AgentSocket)
			equal(t, "calls of the agent", agent.calls.Load(), 0)
			equal(t, "transactions after the first DEL", c.committed(), []int{0, 0})
			equal(t, "DELs that failed", failed, tt.failed)
			if tt.delegate != "" {
				want := append([]string{"ADD web net3"}, slices.Repeat([]string{"DEL web net3"}, tt.delegateDels)...)
				equal(t, "calls of the delegate", c.toldOf(filepath.Join(n.Dir, tt.delegate+".log"), p), want)
			}
			var journal []string
			for _, rest := range tt.journal {
				journal = append(journal, p.Sandbox+rest)
			}
			equal(t, "journal", c.journalled(n), journal)

			c.Must(os.Remove(stuck))
			c.End(p)
			equal(t, "journal in the end", c.journalled(n), nil)
			c.AsBefore()
		})
	}
}

// delFails calls DEL once. It returns 1 when it failed, which it may for the delegate alone.
func (c *counted) delFails(p *lab.Pod) int {
	err := p.Del(c.Ctx)
	if err == nil {
		return 0
	}
	c.refused(err, 77, "still busy", "interface net3", "shop/sticky")
	return 1
}

// unanswered is an error as long as a release waits for the agent.
func (c *counted) unanswered(n *lab.Node) error {
	files := c.files(filepath.Join(n.StateDir, "release"))
	if len(files) > 0 {
		return fmt.Errorf("release/ has %q", files)
	}
	return nil
}

// committed are the transactions that were tried in either database, but for those that read.
func (c *counted) committed() []int {
	nb, ovs := c.nb.Counts(), c.ovs.Counts()
	return []int{nb.Committed + nb.Refused, ovs.Committed + ovs.Refused}
}

// delBound is much more than a DEL may take, and less than any wait that it must not have.
const delBound = 20 * time.Second

// delOf is a DEL of the whole chain, as a runtime calls it: without a namespace's path when that is gone.
func (w *delWorld) delOf(d *deleted, opts ...lab.CallOption) error {
	ctx, cancel := context.WithTimeout(w.Ctx, delBound)
	defer cancel()
	return d.Del(ctx, opts...)
}

// triesOfDel is how often a DEL looks for an agent that is not there: for a second, every 50 ms.
const triesOfDel = 22

// asked reads from the trace of a DEL how it asked the agent: without a journal there is nothing to ask, and an agent that is
// there is asked once. If it knows of another container that is gone, the DEL of the one takes up the other.
func (w *delWorld) asked(d *deleted, trace string) {
	least, most := 1, 2
	switch {
	case !d.has(noJournal):
		least, most = 0, 0
	case !d.has(noAgent):
		most = triesOfDel
	case !d.has(noNetNS):
		least = 0
	}
	text := read(w.T, trace)
	if n := len(regexp.MustCompile(`connect\(`).FindAllString(text, -1)); n < least || n > most {
		w.T.Errorf("%s: the plugin tried to reach the agent %d times, want %d to %d", d.Name, n, least, most)
	}
}

// unheard takes a pod away whose DEL does not reach the agent, and is killed when it has done everything else. The runtime
// repeats it, with nothing left to do.
func (w *delWorld) unheard() *lab.Pod {
	p := w.Attached(0, "unheard", totalNADs[1])
	n := w.Nodes[0]
	before := n.PluginConf
	n.PluginConf = func(entry map[string]any) { before(entry); entry["agentSocket"] = filepath.Join(n.Dir, "nobody.sock") }
	w.killed(p.Del(w.Ctx, lab.WithEnv(failpoint.Env+"=handed-over")))
	n.PluginConf = before
	w.Must(p.RemoveNetNS())
	w.Del(p)
	return p
}

// swept waits until the agent has found by itself what it was not told. That is a release that comes late, and no journal that
// was lost.
func (w *delWorld) swept(p *lab.Pod) {
	w.noPorts(p)
	equal(w.T, p.Name+": the agent says", w.saidLost(p), "")
	w.Must(p.RemoveManifest())
}

// saidLost is what the agent's log says of a container whose journal was lost, "" for nothing.
func (w *delWorld) saidLost(p *lab.Pod) (said string) {
	for line := range strings.Lines(read(w.T, p.Node.Agent.LogPath())) {
		if strings.Contains(line, "journal has lost") && strings.Contains(line, p.Sandbox) {
			said = line
		}
	}
	return said
}
