package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// checkFaults are the Events about CHECKs.
func (r *rig) checkFaults() []string {
	_, events := r.source.told()
	return slices.DeleteFunc(events, func(e string) bool { return !strings.Contains(e, "CheckFailed") })
}

// TestFaultOfCHECK: the pod's owner is told once of a fault that the plugin has found, however often the runtime
// repeats the CHECK, and again after a CHECK without a fault and for the next sandbox.
func TestFaultOfCHECK(t *testing.T) {
	r := newRig(t)
	r.start()
	p, err := r.plan("c1")
	r.must(err)
	check := func(fault string) {
		t.Helper()
		r.must(r.call(agentapi.OpCheck, agentapi.CheckRequest{Sandbox: r.sandbox("c1"), Fault: fault}, nil))
	}
	const route, rule = "interface net1 lacks the route to 10.99.0.0/16", "interface net1 lacks the rule for 10.1.0.7"
	want := []string{"Warning CheckFailed: " + route}
	for range 3 {
		check(route)
	}
	if got := r.checkFaults(); !slices.Equal(got, want) {
		t.Errorf("after three CHECKs with one fault: %q, want %q", got, want)
	}
	check(rule)
	if got := r.checkFaults(); len(got) != 2 || got[1] != "Warning CheckFailed: "+rule {
		t.Errorf("after another fault: %q", got)
	}
	r.must(r.call(agentapi.OpCheck, agentapi.CheckRequest{Sandbox: r.sandbox("c1")}, nil))
	check(rule)
	if got := r.checkFaults(); len(got) != 3 {
		t.Errorf("after a CHECK without a fault and a fault: %q", got)
	}
	release := agentapi.Release{Sandbox: r.sandbox("c1"), Planned: true, Ports: []agentapi.Port{p.Interfaces[0].Port}}
	r.must(r.call(agentapi.OpRelease, release, nil))
	check(rule)
	if got := r.checkFaults(); len(got) != 4 {
		t.Errorf("after the release and a fault: %q", got)
	}
}

// TestCHECKFindsAFault: the owner is also told of what the agent finds, here of a port that OVN does not have.
func TestCHECKFindsAFault(t *testing.T) {
	r := newRig(t)
	r.start()
	p, err := r.plan("c1")
	r.must(err)
	for range 2 {
		if r.call(agentapi.OpCheck, agentapi.CheckRequest{Sandbox: r.sandbox("c1"), Plan: *p}, nil) == nil {
			t.Fatal("CHECK succeeds without an OVS port")
		}
	}
	if got := r.checkFaults(); len(got) != 1 || !strings.Contains(got[0], "interface net1") {
		t.Errorf("got the Events %q", got)
	}
}

// TestFaultsAreBounded: DELs that the agent did not see cost no memory for good.
func TestFaultsAreBounded(t *testing.T) {
	f := newFaults()
	for n := range 3 * maxFaults {
		f.isNew(&agentapi.Sandbox{ContainerID: fmt.Sprint(n)}, "a fault")
	}
	if len(f.known) > maxFaults {
		t.Errorf("%d faults are known", len(f.known))
	}
}

// TestRepaired: the pod's owner is told what was made again, and of the same fault once more when it comes back.
func TestRepaired(t *testing.T) {
	r := newRig(t)
	r.start()
	_, err := r.plan("c1")
	r.must(err)
	check := func(fault, repaired string) {
		t.Helper()
		request := agentapi.CheckRequest{Sandbox: r.sandbox("c1"), Fault: fault, Repaired: repaired}
		r.must(r.call(agentapi.OpCheck, request, nil))
	}
	check("it is down", "")
	check("", "made again: it is down")
	check("it is down", "")
	_, events := r.source.told()
	want := []string{"Warning CheckFailed: it is down", "Normal InterfaceRepaired: made again: it is down",
		"Warning CheckFailed: it is down"}
	if !slices.Equal(events, want) {
		t.Errorf("Events %q, want %q", events, want)
	}
}
