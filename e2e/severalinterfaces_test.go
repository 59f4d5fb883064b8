package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// answersBy wants each address of a pod to answer a place, by its own interface.
func (w *world) answersBy(from place, p *lab.Pod, links ...string) {
	w.T.Helper()
	for _, link := range links {
		for _, to := range w.Links(p)[link].IPs() {
			w.MustReach(from, to)
			w.allowed(from, to, "tcp/80")
		}
	}
}

// TestSeveralInterfaces: a pod with two interfaces that reach the same networks is reached at each of its addresses: two
// on one network, on two networks of one router, and on a layer3 network.
func TestSeveralInterfaces(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("red", routed(1, "main"))
	w.network("black", `{"type":"ovn-multinet","router":"main","subnets":"10.22.0.0/24,fd22::/64"}`) // a route has one network
	w.network("far", routed(3, "main"))
	w.network("wide", fmt.Sprintf(wide, ""))
	green, far, onWide := w.Attached(1, "on-green", "green"), w.Attached(1, "on-far", "far"), w.Attached(1, "on-wide", "wide")
	twice := w.Attached(0, "twice", `[{"name":"green"},{"name":"green"}]`)
	both := w.Attached(0, "routed", `[{"name":"red"},{"name":"black"}]`)
	moved := w.Attached(0, "moved", `[{"name":"red"},{"name":"black","default-route":[]}]`)
	spread := w.Attached(0, "spread", `[{"name":"wide"},{"name":"wide"}]`)
	w.part("a route of the pod's own", func(t *testing.T, w *world) {
		p := w.Pod(0, "own", `[{"name":"green"},{"name":"green"}]`)
		p.Annotations["ovn-multinet/routes"] = `[{"dst":"198.51.100.0/24","gw":"10.2.0.9","interface":"net2"}]`
		w.Must(p.WriteManifest())
		w.Add(p)
		equal(t, "the route in the table of net2", strings.TrimSpace(w.Exec(p, "ip", "route", "show", "table", "7601", "198.51.100.0/24")),
			"198.51.100.0/24 via 10.2.0.9 dev net2")
		w.Must(p.Check(w.Ctx))
		w.End(p)
	})
	for _, p := range []*lab.Pod{twice, both, moved, spread} {
		w.answer(p, 80)
	}
	w.answersBy(green, twice, "net1", "net2")
	w.answersBy(far, both, "net1", "net2")
	w.answersBy(far, moved, "net1", "net2")
	w.answersBy(onWide, spread, "net1", "net2")
	w.part("a pod of one network has no rule", func(t *testing.T, w *world) {
		for _, family := range []string{"-4", "-6"} {
			equal(t, "rules", w.Exec(green, "ip", family, "rule", "show", "priority", "31000"), "")
		}
	})
	w.part("links that the pod sets down and up again", func(t *testing.T, w *world) {
		w.Must(twice.Check(w.Ctx))
		w.Exec(twice, "ip", "link", "set", "net1", "down")
		w.Exec(twice, "ip", "link", "set", "net1", "up")
		w.answersBy(green, twice, "net2")
	})
	w.part("a rule that is gone", func(t *testing.T, w *world) {
		w.Must(both.Check(w.Ctx))
		w.Exec(both, "ip", "rule", "del", "priority", "31000")
		if err := both.Check(w.Ctx); err == nil {
			t.Error("CHECK does not notice a rule that is gone")
		}
	})
	w.part("a route that is gone", func(t *testing.T, w *world) {
		w.Must(far.Check(w.Ctx))
		w.Exec(far, "ip", "link", "set", "net1", "down")
		w.Exec(far, "ip", "link", "set", "net1", "up")
		for range 3 {
			if err := far.Check(w.Ctx); err == nil {
				t.Error("CHECK does not notice the routes that a link has lost")
			}
		}
		const event = "pod=shop/on-far kind=Warning reason=CheckFailed message=\"interface net1 is not as it was made: it lacks "
		log, err := os.ReadFile(w.Nodes[1].Agent.LogPath())
		w.Must(err)
		if got := strings.Count(string(log), event); got != 1 {
			t.Errorf("the pod's owner was told %d times, want once", got)
		}
	})
	w.End(green, far, onWide, twice, both, moved, spread)
	w.endNetworks("red", "black", "far", "wide")
	w.AsBefore()
}
