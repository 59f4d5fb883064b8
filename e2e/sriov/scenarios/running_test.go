//go:build sriov

package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// TestAttachRunning: on the kernel's datapath, a running pod loses no packet of an interface that it keeps while others come
// and go.
func TestAttachRunning(t *testing.T) {
	w := newWorld(t)
	n := w.Nodes[0]
	restart := func(args []string) {
		w.Must(n.StopAgent(w.Ctx))
		n.Agent, n.AgentArgs = nil, args
		w.Must(n.StartAgent(w.Ctx))
	}
	before := n.AgentArgs
	restart(append(slices.Clone(before), "--attach"))
	w.Must(n.StartAttach(w.Ctx))
	defer func() {
		w.Must(n.Attach.Stop(w.Ctx))
		restart(before)
	}()
	peer, p := w.Attached(1, "peer", "blue"), w.Attached(0, "web", "blue")
	to := w.Links(peer)["net1"].IPs()[0]
	w.MustReach(p, to)
	const echoes = 1000
	pings := make(chan string, 1)
	go func() {
		out, err := p.Exec(w.Ctx, "ping", "-q", "-i", "0.01", "-c", fmt.Sprint(echoes), to)
		pings <- fmt.Sprint(out, err)
	}()
	for range 4 {
		w.edited(p, "blue,green@x1,green@x2", "net1", "x1", "x2")
		w.edited(p, "blue", "net1")
	}
	if out := <-pings; !strings.Contains(out, fmt.Sprintf("%d packets transmitted, %d received", echoes, echoes)) {
		t.Errorf("packets were lost: %s", out)
	}
	w.Over(peer, p)
}

// edited edits a pod's annotation, and waits until its network-status and its links have these interfaces.
func (w *world) edited(p *lab.Pod, networks string, want ...string) {
	p.Annotations[labtest.NetworksAnnotation] = networks
	w.Must(p.WriteManifest())
	w.Eventually(func() error {
		var names []string
		for _, s := range w.Status(p)[1:] {
			names = append(names, s.Interface)
		}
		links, err := p.Links(w.Ctx)
		if !slices.Equal(names, want) || len(links) != len(want)+1 {
			err = errors.Join(err, fmt.Errorf("%s has %q and %d links, not %q", p, names, len(links), want))
		}
		return err
	})
}
