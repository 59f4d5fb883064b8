package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// TestInspectionTurns: the program inspects a pod once in inspectPasses passes. An inspection that fails is told to
// nobody, and has its next turn.
func TestInspectionTurns(t *testing.T) {
	c := newChanger(t)
	c.has("blue", nil)
	c.source.annotations = map[string]string{conf.NetworksAnnotation: "blue"}
	e, err := c.dir.Summary(pointerTo(c.sandbox("c1")))
	c.must(err)
	all := []*sandboxState{{Sandbox: e.Sandbox, entries: []*journal.Summary{e}}}
	inspected := 0
	for range 3 * inspectPasses {
		c.compareAll(t.Context(), all)
		c.step(0)
		if s := c.given(); s != nil {
			inspected++
			c.changes.ended(&agentapi.ChangeEnded{Sandbox: *s, Error: agentapi.NewError(conf.Errorf(conf.CodeTryAgain, "", "no"))})
			c.step(0)
		}
	}
	if inspected != 3 {
		t.Errorf("%d inspections in %d passes", inspected, 3*inspectPasses)
	}
	if n := testutil.ToFloat64(c.metrics.changes.WithLabelValues("inspected")); n != 3 {
		t.Errorf("%v inspections are counted", n)
	}
	c.told()
	if due := c.dueAt(); !due.IsZero() && due.Before(time.Now().Add(time.Hour)) {
		t.Error("the pod is compared again at once")
	}
	c.changes.conf.Attach = false
	for range inspectPasses {
		c.compareAll(t.Context(), all)
		c.step(0)
	}
	if c.given() != nil {
		t.Error("a pod is inspected where running pods do not change")
	}
	c.told()
}

// TestRepairAsked: each new value of the annotation is one run of the plugin, "always" none at once, a text that is no
// value is refused in words, and where running pods do not change the owner is told so.
func TestRepairAsked(t *testing.T) {
	ask := func(c *changer, value string) {
		t.Helper()
		c.source.annotations = map[string]string{conf.NetworksAnnotation: "blue", conf.RepairAnnotation: value}
		c.agent.NetworksEdited(&netmodel.Pod{Namespace: "shop", Name: "web", UID: "u-1", Node: "node1"})
		c.step(0)
	}
	for value, runs := range map[string]bool{"now": true, "served": false, "": false, conf.RepairAlways: false} {
		c := newChanger(t)
		c.has("blue", func(e *journal.Entry) { e.Repaired = "served" })
		if ask(c, value); (c.given() != nil) != runs {
			t.Errorf("value %q: handed out %v", value, !runs)
		}
		c.told()
	}
	c := newChanger(t)
	c.has("blue", nil)
	ask(c, strings.Repeat("x", 64))
	c.told("Warning InterfaceChangeRefused: annotation ovn-multinet/repair: want at most 63 printable characters")
	c.changes.conf.Attach = false
	ask(c, "now")
	_, events := c.source.told()
	if n := len(events); n != 2 || !strings.Contains(events[1], "NetworksNotChanged: annotation "+conf.RepairAnnotation) {
		t.Errorf("Events %q", events)
	}
	if c.given() != nil {
		t.Error("handed out where running pods do not change")
	}
}
