package e2e

import (
	"errors"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestOrphans: the ports of a pod that went while its node's agent was dead are released by the controller, after it
// has looked twice, and not as long as it cannot read which pods there are.
func TestOrphans(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) { l.ControllerArgs = []string{quick} })
	stays, peer := w.attached(0, "stays", "green"), w.attached(1, "peer", "green")
	goes := w.attached(0, "goes", "blue,green")
	row, held := w.portRow(stays, "net1"), w.portsOf(goes)
	if strings.Count(held, "shop/goes/") != 2 || !strings.Contains(held, "fd02::") {
		t.Fatalf("two ports and a claim are wanted to begin with: %q", held)
	}
	ping := w.pinging(peer, w.links(stays)["net1"].IPs()[0])
	w.must(goes.Node.KillAgent())

	w.must(w.WriteManifest("broken.yaml", "kind: Pod\nmetadata: {name: half-wri"))
	w.looksInVain(1)
	w.must(goes.RemoveManifest())
	w.looksInVain(3)
	equal(t, "ports while a manifest is broken", w.portsOf(goes), held)
	w.must(w.RemoveManifest("broken.yaml"))
	w.noPorts(goes)

	log := read(t, w.Controller.LogPath())
	for _, port := range []string{"shop/goes/net1", "shop/goes/net2"} {
		seen, released := strings.Index(log, `"saw an orphan" port=`+port), strings.Index(log, `"released an orphan" port=`+port)
		if seen < 0 || released < seen || !strings.Contains(log[released:], "pod shop/goes is gone") {
			t.Errorf("port %s: seen at %d, released at %d of the log", port, seen, released)
		}
	}
	// Neither a dead agent nor another pod's end is an end of this one.
	equal(t, "port of a pod that is there", w.portRow(stays, "net1"), row)
	ping.stop()
	w.must(goes.Del(w.ctx))
	w.must(goes.RemoveNetNS())
	w.must(goes.Node.StartAgent(w.ctx))
	w.end(stays, peer)
	w.asBefore()
}

// looksInVain waits until the controller has looked for orphans so many times more and has released nothing.
func (w *world) looksInVain(times int) {
	w.t.Helper()
	count := func() int {
		return strings.Count(read(w.t, w.Controller.LogPath()), `"garbage collection of ports" err=`)
	}
	before := count()
	w.eventually(func() error {
		if count() < before+times {
			return errors.New("the controller has not looked for orphans yet")
		}
		return nil
	})
}
