package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/uplinks"
)

// uplinked is a keeper whose uplinks in NB a test writes.
type uplinked struct{ *keeper }

// wanted has NB say what the node should have; nil: NB has no row.
func (u *uplinked) wanted(wanted uplinks.Wanted) {
	u.t.Helper()
	set, gone := map[string]uplinks.Wanted{"node1": wanted}, []string(nil)
	if wanted == nil {
		set, gone = nil, []string{"node1"}
	}
	u.must(uplinks.Write(u.t.Context(), nbrows.NewStore(u.networks.DB), set, gone))
}

// passes has the agent read NB, make its bridges and say so.
func (u *uplinked) passes() uplinks.Report {
	u.t.Helper()
	u.look()
	_, err := u.agent.uplinks.pass(u.t.Context())
	u.must(err)
	u.look()
	all, err := uplinks.Reports(u.t.Context(), u.networks.DB, []string{"node1"})
	u.must(err)
	return all["node1"]
}

func (u *uplinked) mappings(want string) {
	u.t.Helper()
	got := u.ovs.Dump(u.t, "Open_vSwitch")[0]["external_ids"].(map[string]string)["ovn-bridge-mappings"]
	if got != want {
		u.t.Errorf("ovn-bridge-mappings is %q, want %q", got, want)
	}
}

// TestNodeHasItsUplinks: an agent makes what NB says of its node, and publishes what is missing. A restart of the agent
// publishes nothing else, a row that is gone changes nothing, and one without uplinks removes them.
func TestNodeHasItsUplinks(t *testing.T) {
	u := &uplinked{newKeeper(t)}
	u.ovs.VSCtl("--no-wait", "add-br", "br-lab")
	if got := u.passes(); len(got) != 0 {
		t.Errorf("without uplinks the node says %v", got)
	}
	wanted := uplinks.Wanted{"lab": {Bridge: "br-lab"}, "wrong": {Interface: "none9", Bridge: "br-wrong"}}
	says := func(got uplinks.Report) {
		t.Helper()
		lab, wrong := got["lab"], got["wrong"]
		if len(got) != 2 || lab != (uplinks.Said{Of: wanted["lab"]}) || wrong.Of != wanted["wrong"] ||
			!strings.HasPrefix(wrong.Problem, "the node has no interface none9") || wrong.Pending {
			t.Errorf("the node says %+v", got)
		}
	}
	u.wanted(wanted)
	says(u.passes())
	u.mappings("lab:br-lab")
	if problem, wanted := u.agent.uplinks.problem("wrong"); !wanted || !strings.Contains(problem, "none9") {
		t.Errorf("a pod is told %q, %t", problem, wanted)
	}

	u.agent.uplinks = newNodeUplinks(u.agent.uplinks.bridges, u.agent.log) // as after a restart
	u.agent.gateways.uplinks, u.agent.gateways.report = u.agent.uplinks, nil
	u.agent.gateways.announced = time.Time{}
	u.look()
	all, err := uplinks.Reports(t.Context(), u.networks.DB, []string{"node1"})
	u.must(err)
	says(all["node1"])
	says(u.passes())

	// A row that another program has written, with a name that would be two entries, changes nothing and stops nothing.
	u.nb.Transact(t, ovndbtest.Op{"op": "mutate", "table": "Copp",
		"where":     []any{[]any{"name", "==", "ovn-multinet uplinks of node1"}},
		"mutations": []any{[]any{"external_ids", "insert", ovndbtest.Map(map[string]string{"ovn-multinet/uplink:evil": `{"bridge":"b,x:br-int"}`})}}})
	if wait := u.look(); wait != memberEvery {
		t.Errorf("the node's other work waits %v", wait)
	}
	says(u.passes())
	u.mappings("lab:br-lab")
	if !strings.Contains(u.log.String(), "uplinks in NB cannot be read") {
		t.Error("nobody is told of the row")
	}

	u.wanted(nil)
	says(u.passes())
	u.mappings("lab:br-lab")
	u.wanted(uplinks.Wanted{})
	u.passes()
	u.mappings("")
	if got := u.passes(); len(got) != 0 {
		t.Errorf("without uplinks the node says %v", got)
	}
}
