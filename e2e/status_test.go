package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestStatusOfANode: STATUS says no until the agent was ready once since boot, and no more; with strictStatus it goes on to
// say what is away, at once also where that hangs.
func TestStatusOfANode(t *testing.T) {
	t.Parallel()
	for name, strict := range map[string]bool{"as it is": false, "strict": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lab.Options{Nodes: 1, CNIVersion: "1.1.0"}, func(l *lab.Lab) {
				l.Nodes[0].PluginConf = func(entry map[string]any) {
					if strict {
						entry["strictStatus"] = true
					}
				}
			})
			n := w.Nodes[0]
			becomesReady := func() { // a moment after the agent accepts calls
				t.Helper()
				w.must(lab.Eventually(w.ctx, func() error { return n.Status(w.ctx) }))
			}
			becomesReady()
			// wants has STATUS say this while something is away, and nothing when it is back.
			wants := func(away, back func() error, code uint, words string) {
				t.Helper()
				w.must(away())
				if strict {
					w.refused(n.Status(w.ctx), code, words)
				} else {
					w.must(n.Status(w.ctx))
				}
				w.must(back())
				becomesReady()
			}
			wants(w.NB.Kill, func() error { return w.NB.Restart(w.ctx) }, conf.CodeNotAvailable, "NB database does not answer")
			wants(w.NB.Pause, w.NB.Resume, conf.CodeNotAvailable, "NB database does not answer")
			wants(n.OVSDB.Kill, func() error { return n.OVSDB.Restart(w.ctx) }, conf.CodeLimited, "OVS database does not answer")
			wants(n.OVSDB.Pause, n.OVSDB.Resume, conf.CodeLimited, "OVS database does not answer")
			wants(n.KillAgent, func() error { return n.StartAgent(w.ctx) }, conf.CodeNotAvailable, "agent at ")

			// A boot empties the folder on the tmpfs.
			w.must(n.KillAgent())
			w.must(os.Remove(filepath.Join(filepath.Dir(n.AgentSocket), "ready")))
			w.refused(n.Status(w.ctx), conf.CodeNotAvailable, "was not ready yet since boot")
			w.must(n.StartAgent(w.ctx))
			becomesReady()
		})
	}
}
