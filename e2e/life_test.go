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
	w := parallelWorld(t, lab.Options{}, nil)
	p := w.Attached(0, "web", "blue,green")
	before, row := w.Snapshot(), w.portRow(p, "net1")
	prev, err := p.CachedResult()
	w.Must(err)

	w.Add(p, lab.OnlyOurs(prev))
	w.consistent(p, []string{"net1", "net2"})
	equal(t, "port of a repeated ADD", w.portRow(p, "net1").UUID, row.UUID)
	if diff := before.Diff(w.Snapshot()); withoutUUIDs(diff) != "" {
		t.Errorf("a repeated ADD changed the world:\n%s", diff)
	}
	for range 3 {
		w.Del(p)
	}
	w.AsBefore()
	w.End(p)
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
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	peer := w.Attached(1, "peer", "blue")
	first := w.Attached(0, "web", "blue,green")
	want := w.Links(first)
	second := w.NewSandbox(first)
	w.Add(second)
	for _, name := range []string{"net1", "net2"} {
		equal(t, name+" addresses of the second sandbox", w.Links(second)[name].Prefixes(), want[name].Prefixes())
		equal(t, name+" MAC of the second sandbox", w.Links(second)[name].MAC, want[name].MAC)
	}
	// Before any DEL of the first, and whichever of the two ovn-controller looks at first.
	for range 6 {
		w.Must(second.Node.RecomputeFlows(w.Ctx))
		w.MustReach(second, w.Links(peer)["net1"].IPs()...)
		w.MustReach(peer, w.Links(second)["net1"].IPs()...)
	}
	w.Must(first.Del(w.Ctx))
	w.Must(first.RemoveNetNS())
	w.consistent(second, []string{"net1", "net2"})
	w.MustReach(second, w.Links(peer)["net1"].IPs()...)
	w.Over(second, peer)
}

// TestSecondPodOfTheName is the same pod name on another node, as a new pod: the newer pod takes the port over
// if it is the live one, and the older, if it comes late, is refused.
func TestSecondPodOfTheName(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	old := w.Attached(0, "web", "blue")
	addr := w.Links(old)["net1"].IPs()[0]
	now := w.Pod(1, "web", "blue") // replaces the manifest
	w.Add(now)
	equal(t, "address of the newer pod", w.Links(now)["net1"].IPs()[0], addr)
	equal(t, "chassis of the port", w.portRow(now, "net1").Options["requested-chassis"], w.Nodes[1].SystemID)
	late := w.NewSandbox(old)
	w.refused(w.TryAdd(late), conf.CodePodGone, "pod shop/web is another one by now")
	w.Must(late.Del(w.Ctx))
	w.Must(late.RemoveNetNS())
	w.Must(old.Del(w.Ctx))
	w.Must(old.RemoveNetNS())
	w.consistent(now, []string{"net1"})
	w.Over(now)
}

// refused checks the CNI error of a call: its code, and what its one line says.
func (w *world) refused(err error, code uint, words ...string) {
	var e *types.Error
	if !errors.As(err, &e) {
		w.T.Errorf("got error %v, want a CNI error with code %d", err, code)
		return
	}
	if e.Code != code {
		w.T.Errorf("got code %d, want %d: %s", e.Code, code, e.Msg)
	}
	if strings.ContainsAny(e.Msg, "\n\r") {
		w.T.Errorf("the message is not one line: %q", e.Msg)
	}
	for _, word := range words {
		if !strings.Contains(e.Msg, word) {
			w.T.Errorf("message %q does not say %q", e.Msg, word)
		}
	}
	if e.Details == "" {
		w.T.Errorf("message %q says not what to do next", e.Msg)
	}
}

// TestAddressReturns: a pod that comes back under its name gets its address back, with no state kept.
func TestAddressReturns(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	first := w.Attached(0, "db-0", "blue,green")
	want := w.Links(first)
	w.Over(first)
	again := w.Attached(1, "db-0", "blue,green")
	for _, name := range []string{"net1", "net2"} {
		equal(t, name, w.Links(again)[name].Prefixes(), want[name].Prefixes())
	}
	w.End(again)
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
		{"namespace", func(w *world, p *lab.Pod) { w.Must(p.RemoveNetNS()) }, nil},
		{"pod and NAD", func(w *world, p *lab.Pod) {
			w.Must(p.RemoveManifest())
			w.Must(w.RemoveManifest("blue.yaml"))
		}, func(w *world, _ *lab.Pod) { w.network("blue", nads["blue"]) }},
		{"agent", func(w *world, p *lab.Pod) { w.Must(p.Node.KillAgent()) },
			func(w *world, p *lab.Pod) { w.Must(p.Node.StartAgent(w.Ctx)) }},
		{"NB", func(w *world, _ *lab.Pod) { w.Must(w.NB.Kill()) },
			func(w *world, _ *lab.Pod) { w.Must(w.NB.Restart(w.Ctx)) }},
		{"OVS database", func(w *world, p *lab.Pod) { w.Must(p.Node.OVSDB.Kill()) },
			func(w *world, p *lab.Pod) { w.Must(p.Node.OVSDB.Restart(w.Ctx)) }},
		{"NB that hangs", func(w *world, _ *lab.Pod) { w.Must(w.NB.Pause()) },
			func(w *world, _ *lab.Pod) { w.Must(w.NB.Resume()) }},
		{"cache of libcni", func(*world, *lab.Pod) {}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, lab.Options{}, nil)
			p := w.Attached(0, "web", "blue,green,blue")
			c.away(w, p)
			var opts []lab.CallOption
			if c.name == "cache of libcni" {
				opts = append(opts, lab.WithoutCache())
			}
			w.Del(p, opts...)
			w.Del(p) // kubelet repeats it
			if c.comeBack != nil {
				c.comeBack(w, p)
			}
			w.Must(p.RemoveNetNS())
			w.Must(p.RemoveManifest())
			w.AsBefore()
		})
	}
}

// TestDamagedJournal: of a journal that cannot be read there is still known whose it was.
// Conformance: F-3
func TestDamagedJournal(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	p := w.Attached(0, "web", "blue,green")
	path := filepath.Join(p.Node.StateDir, "attached", p.Sandbox+"@eth0")
	w.Must(os.Truncate(path, 40))
	w.Over(p)
}

// TestAgentRestarts: an agent that was away serves the next call, with nothing but what the call carries.
func TestAgentRestarts(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	p := w.Attached(0, "web", "blue")
	n := w.Nodes[0]
	w.Must(n.KillAgent())
	added := make(chan error, 1)
	late := w.Pod(0, "late", "blue,green")
	go func() {
		_, err := late.Add(w.Ctx)
		added <- err
	}()
	// The ADD has written its intent, so it is waiting for the agent, before the agent is back.
	w.Must(lab.Eventually(w.Ctx, func() error {
		_, err := os.Stat(filepath.Join(n.StateDir, "attached", late.Sandbox+"@eth0"))
		return err
	}))
	w.Must(n.StartAgent(w.Ctx))
	w.Must(<-added)
	w.consistent(late, []string{"net1", "net2"})
	w.MustReach(late, w.Links(p)["net1"].IPs()...)
	w.Over(p, late)
}

// TestControllerIsLate: a pod waits for the logical switch of its network, and a network without one is a clear
// error that a retry heals.
func TestControllerIsLate(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	w.Must(w.StopController(w.Ctx))
	w.Must(w.WriteManifest("new.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {namespace: shop, name: new}\nspec: {config: '{\"type\":\"ovn-multinet\",\"subnets\":\"10.9.0.0/24\"}'}\n"))
	p := w.Pod(0, "web", "new")
	w.refused(w.TryAdd(p), conf.CodeTryAgain, "network shop/new has no logical switch yet")
	w.Must(p.Del(w.Ctx))
	w.AsBefore()
	w.Must(w.StartController(w.Ctx))
	w.Add(p)
	w.consistent(p, []string{"net1"})
	w.End(p)
	w.Must(w.RemoveManifest("new.yaml"))
	w.AsBefore() // the switch goes with its NAD
}
