package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// TestPlanOfRunningPod: the plan of a pod that runs has only what is new, apart from what the pod has; a release of a new
// interface leaves the others.
func TestPlanOfRunningPod(t *testing.T) {
	r := newRig(t)
	const routed = `{"type":"ovn-multinet","subnets":"10.5.0.0/24","mtu":1400,"routes":[{"dst":"10.9.0.0/16","gw":"10.5.0.1"}]}`
	r.source.nads["red"] = testNAD{Config: routed}
	r.source.nads["vf"] = testNAD{Config: ext, Resource: "a.example/vf"}
	r.putSwitch("red", routed)
	r.start()
	first, err := r.planFor("c1", "red@net1")
	r.must(err)
	ask := func(networks string) (*agentapi.Plan, error) {
		r.source.annotations = map[string]string{conf.NetworksAnnotation: networks}
		p := &agentapi.Plan{}
		return p, r.call(agentapi.OpPlan, agentapi.PlanRequest{
			Sandbox: r.sandbox("c1"), AllowedDelegates: []string{"bridge"}, AllowedIPAM: []string{}, Sharing: true, Chaining: true,
			Present: first.Outline(),
		}, p)
	}
	more, err := ask("red@x0,red@net1,red@x1")
	r.must(err)
	if !slices.Equal(more.Names(), []string{"x0", "x1"}) || more.Interfaces[0].Position != 0 || more.Interfaces[1].Position != 2 {
		t.Fatalf("plan %+v", more)
	}
	tables := map[int]bool{}
	for _, i := range more.Interfaces {
		tables[i.Table] = true
		if len(i.Routes) > 0 || len(i.SharedRoutes) > 0 || len(i.TableRoutes) == 0 || i.Table < agentapi.FirstTable {
			t.Errorf("interface %s has the table %d with %v, and the routes %v", i.Name, i.Table, i.TableRoutes, i.Routes)
		}
	}
	if len(tables) != 2 {
		t.Error("two interfaces have one table")
	}
	with := first.With(more)
	r.must(with.Check("eth0"))
	change := &agentapi.Change{}
	r.must(r.call(agentapi.OpChange, agentapi.ChangeRequest{Sandbox: r.sandbox("c1"), Present: *with.Outline()}, change))
	if len(change.Add)+len(change.Remove) != 0 || change.Positions["x1"] != 2 {
		t.Errorf("change %+v", change)
	}
	released := &agentapi.Released{}
	r.must(r.call(agentapi.OpRelease, agentapi.Release{
		Version: agentapi.Version, Sandbox: r.sandbox("c1"), Planned: true, Ports: []agentapi.Port{more.Interfaces[0].Port}, Interfaces: []string{"x0"},
	}, released))
	r.must(r.call(agentapi.OpRelease, agentapi.Release{
		Version: agentapi.Version, Sandbox: r.sandbox("c1"), Interfaces: []string{"x1"},
	}, released))
	if names := strings.Fields(r.nb.NBCtl("--bare", "--columns=name", "list", "Logical_Switch_Port")); !slices.Equal(names, []string{"shop/web/net1"}) {
		t.Errorf("NB has the ports %q", names)
	}
	for networks, words := range map[string]string{
		`[{"name":"red","interface":"net1"},{"name":"red","default-route":["10.5.0.1"]}]`: "the default route of a running pod stays where it is",
		"red@net1,vf":        "it takes a device of a.example/vf",
		"vf@net1":            "an interface of a running pod keeps its network",
		"red@net1,missing@m": "network shop/missing is not found",
	} {
		if _, err := ask(networks); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", networks, err, words)
		}
	}
	if names := strings.Fields(r.nb.NBCtl("--bare", "--columns=name", "list", "Logical_Switch_Port")); !slices.Equal(names, []string{"shop/web/net1"}) {
		t.Errorf("NB has the ports %q after what was refused", names)
	}
}
