package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestRepeats calls ADD and DEL more often than a runtime should. Our plugin alone is called: Flannel's refuses a
// second ADD itself.
// Conformance: C-32 C-41
func TestRepeats(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	p := w.attached(0, "web", "blue,green")
	before, row := w.snapshot(), w.portRow(p, "net1")
	prev, err := p.CachedResult()
	w.must(err)

	w.add(p, lab.OnlyOurs(prev))
	w.consistent(p, []string{"net1", "net2"})
	equal(t, "port of a repeated ADD", w.portRow(p, "net1").UUID, row.UUID)
	if diff := before.Diff(w.snapshot()); withoutUUIDs(diff) != "" {
		t.Errorf("a repeated ADD changed the world:\n%s", diff)
	}
	for range 3 {
		w.del(p)
	}
	w.asBefore()
	w.end(p)
}

// withoutUUIDs passes over lines of OVS rows, whose keys are the server's own choice.
func withoutUUIDs(diff string) string {
	var out strings.Builder
	for line := range strings.Lines(diff) {
		if !strings.Contains(line, " ovs ") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// TestSecondSandbox gives one pod a second sandbox before the first is taken away, as kubelet does when a pause
// process dies: the second keeps the addresses, and the late DEL of the first does no harm.
func TestSecondSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	peer := w.attached(1, "peer", "blue")
	first := w.attached(0, "web", "blue,green")
	want := w.links(first)
	second, err := first.NewSandbox(w.ctx)
	w.must(err)
	w.add(second)
	for _, name := range []string{"net1", "net2"} {
		equal(t, name+" addresses of the second sandbox", w.links(second)[name].Prefixes(), want[name].Prefixes())
		equal(t, name+" MAC of the second sandbox", w.links(second)[name].MAC, want[name].MAC)
	}
	// Before any DEL of the first, and whichever of the two ovn-controller looks at first.
	for range 6 {
		w.must(second.Node.RecomputeFlows(w.ctx))
		w.mustReach(second, w.links(peer)["net1"].IPs()...)
		w.mustReach(peer, w.links(second)["net1"].IPs()...)
	}
	w.must(first.Del(w.ctx))
	w.must(first.RemoveNetNS())
	w.consistent(second, []string{"net1", "net2"})
	w.mustReach(second, w.links(peer)["net1"].IPs()...)
	w.end(second, peer)
	w.asBefore()
}

// TestSecondPodOfTheName is the same pod name on another node, as a new pod: the newer pod takes the port over
// if it is the live one, and the older, if it comes late, is refused.
func TestSecondPodOfTheName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	old := w.attached(0, "web", "blue")
	addr := w.links(old)["net1"].IPs()[0]
	now := w.pod(1, "web", "blue") // replaces the manifest
	w.add(now)
	equal(t, "address of the newer pod", w.links(now)["net1"].IPs()[0], addr)
	equal(t, "chassis of the port", w.portRow(now, "net1").Options["requested-chassis"], w.Nodes[1].SystemID)
	late, err := old.NewSandbox(w.ctx)
	w.must(err)
	_, err = late.Add(w.ctx)
	w.refused(err, conf.CodePodGone, "pod shop/web is another one by now")
	w.must(late.Del(w.ctx))
	w.must(late.RemoveNetNS())
	w.must(old.Del(w.ctx))
	w.must(old.RemoveNetNS())
	w.consistent(now, []string{"net1"})
	w.end(now)
	w.asBefore()
}

// refused checks the CNI error of a call: its code, and what its one line says.
func (w *world) refused(err error, code uint, words ...string) {
	w.t.Helper()
	var e *types.Error
	if !errors.As(err, &e) {
		w.t.Errorf("got error %v, want a CNI error with code %d", err, code)
		return
	}
	if e.Code != code {
		w.t.Errorf("got code %d, want %d: %s", e.Code, code, e.Msg)
	}
	if strings.ContainsAny(e.Msg, "\n\r") {
		w.t.Errorf("the message is not one line: %q", e.Msg)
	}
	for _, word := range words {
		if !strings.Contains(e.Msg, word) {
			w.t.Errorf("message %q does not say %q", e.Msg, word)
		}
	}
	if e.Details == "" {
		w.t.Errorf("message %q says not what to do next", e.Msg)
	}
}

// TestAddressReturns: a pod that comes back under its name gets its address back, with no state kept.
func TestAddressReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{Nodes: 2}, nil)
	first := w.attached(0, "db-0", "blue,green")
	want := w.links(first)
	w.end(first)
	w.asBefore()
	again := w.attached(1, "db-0", "blue,green")
	for _, name := range []string{"net1", "net2"} {
		equal(t, name, w.links(again)[name].Prefixes(), want[name].Prefixes())
	}
	w.end(again)
}

// TestDelWithout takes pods away while something is missing. DEL succeeds, and what is left is gone once the
// missing thing is back.
// Conformance: C-36 C-37 C-38 C-86
func TestDelWithout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		away, comeBack func(w *world, p *lab.Pod)
	}{
		{"namespace", func(w *world, p *lab.Pod) { w.must(p.RemoveNetNS()) }, nil},
		{"pod and NAD", func(w *world, p *lab.Pod) {
			w.must(p.RemoveManifest())
			w.must(w.RemoveManifest("blue.yaml"))
		}, func(w *world, _ *lab.Pod) { w.network("blue", nads["blue"]) }},
		{"agent", func(w *world, p *lab.Pod) { w.must(p.Node.KillAgent()) },
			func(w *world, p *lab.Pod) { w.must(p.Node.StartAgent(w.ctx)) }},
		{"NB", func(w *world, _ *lab.Pod) { w.must(w.NB.Kill()) },
			func(w *world, _ *lab.Pod) { w.must(w.NB.Restart(w.ctx)) }},
		{"OVS database", func(w *world, p *lab.Pod) { w.must(p.Node.OVSDB.Kill()) },
			func(w *world, p *lab.Pod) { w.must(p.Node.OVSDB.Restart(w.ctx)) }},
		{"NB that hangs", func(w *world, _ *lab.Pod) { w.must(w.NB.Pause()) },
			func(w *world, _ *lab.Pod) { w.must(w.NB.Resume()) }},
		{"cache of libcni", func(*world, *lab.Pod) {}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, lab.Options{}, nil)
			p := w.attached(0, "web", "blue,green,blue")
			c.away(w, p)
			var opts []lab.CallOption
			if c.name == "cache of libcni" {
				opts = append(opts, lab.WithoutCache())
			}
			w.del(p, opts...)
			w.del(p) // kubelet repeats it
			if c.comeBack != nil {
				c.comeBack(w, p)
			}
			w.must(p.RemoveNetNS())
			w.must(p.RemoveManifest())
			w.asBefore()
		})
	}
}

// TestDamagedJournal: of a journal that cannot be read there is still known whose it was.
// Conformance: F-3
func TestDamagedJournal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	p := w.attached(0, "web", "blue,green")
	path := filepath.Join(p.Node.StateDir, "attached", p.Sandbox+"@eth0")
	w.must(os.Truncate(path, 40))
	w.end(p)
	w.asBefore()
}

// TestAgentRestarts: an agent that was away serves the next call, with nothing but what the call carries.
func TestAgentRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	p := w.attached(0, "web", "blue")
	n := w.Nodes[0]
	w.must(n.KillAgent())
	added := make(chan error, 1)
	late := w.pod(0, "late", "blue,green")
	go func() {
		_, err := late.Add(w.ctx)
		added <- err
	}()
	// The ADD has written its intent, so it is waiting for the agent, before the agent is back.
	w.must(lab.Eventually(w.ctx, func() error {
		_, err := os.Stat(filepath.Join(n.StateDir, "attached", late.Sandbox+"@eth0"))
		return err
	}))
	w.must(n.StartAgent(w.ctx))
	w.must(<-added)
	w.consistent(late, []string{"net1", "net2"})
	w.mustReach(late, w.links(p)["net1"].IPs()...)
	w.end(p, late)
	w.asBefore()
}

// TestControllerIsLate: a pod waits for the logical switch of its network, and a network without one is a clear
// error that a retry heals.
func TestControllerIsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.Options{}, nil)
	w.must(w.StopController(w.ctx))
	w.must(w.WriteManifest("new.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {namespace: shop, name: new}\nspec: {config: '{\"type\":\"ovn-multinet\",\"subnets\":\"10.9.0.0/24\"}'}\n"))
	p := w.pod(0, "web", "new")
	_, err := p.Add(w.ctx)
	w.refused(err, conf.CodeTryAgain, "network shop/new has no logical switch yet")
	w.must(p.Del(w.ctx))
	w.asBefore()
	w.must(w.StartController(w.ctx))
	w.add(p)
	w.consistent(p, []string{"net1"})
	w.end(p)
	w.must(w.RemoveManifest("new.yaml"))
	w.asBefore() // the switch goes with its NAD
}
