package journal

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// mixed is an entry with two interfaces, one of them chained, and three delegates, of which the last has not begun.
func mixed() *Entry {
	port := func(name string) agentapi.Interface {
		return agentapi.Interface{Name: name, Port: agentapi.Port{Name: "shop/web/" + name, UUID: "p-" + name}}
	}
	e := NewEntry(sandbox("c1"), "/run/netns/a", "K=V")
	e.Plan = &agentapi.Plan{
		Interfaces: []agentapi.Interface{port("net1"), port("net2")},
		Delegates:  []agentapi.Delegate{{Name: "d1"}, {Name: "net2", Chained: true}, {Name: "d3"}},
		Routes:     []agentapi.Route{{Interface: "net1"}, {Interface: "d1"}},
		Default:    &agentapi.Default{Interface: "d1"},
	}
	e.Begun = 2
	e.Results = []json.RawMessage{json.RawMessage(`{"r":1}`), json.RawMessage(`{"r":2}`)}
	e.Devices = []json.RawMessage{nil, json.RawMessage(`{"d":2}`)}
	return e
}

// TestPart: a part has what belongs to its interfaces, and the rest has the rest.
func TestPart(t *testing.T) {
	e := mixed()
	part := e.Part([]string{"net2", "d3"})
	if names := part.Plan.Names(); !reflect.DeepEqual(names, []string{"net2", "d3"}) || part.Begun != 1 || string(part.Results[0]) != `{"r":2}` ||
		string(part.Devices[0]) != `{"d":2}` || len(part.Plan.Routes) != 0 || part.Plan.Default != nil || part.NetNS != e.NetNS || part.Args != e.Args {
		t.Errorf("part %+v with plan %+v", part, part.Plan)
	}
	if r := part.Release(); r == nil || !r.Planned || len(r.Ports) != 1 || r.Ports[0].UUID != "p-net2" {
		t.Errorf("a release of the part releases %+v", part.Release())
	}
	e.Changing = []string{"net2", "d3", "d1"}
	e.Remove([]string{"net2", "d3"})
	if names := e.Plan.Names(); !reflect.DeepEqual(names, []string{"net1", "d1"}) || e.Begun != 1 || len(e.Results) != 1 || string(e.Results[0]) != `{"r":1}` ||
		len(e.Plan.Routes) != 2 || e.Plan.Default == nil || !reflect.DeepEqual(e.Changing, []string{"d1"}) {
		t.Errorf("the rest is %+v with plan %+v", e, e.Plan)
	}
	if names := e.Settled().Names(); !reflect.DeepEqual(names, []string{"net1"}) {
		t.Errorf("settled are %q", names)
	}
	if other := mixed().Part([]string{"d1"}); other.Plan.Default == nil || len(other.Plan.Routes) != 1 || string(other.Devices[0]) != "null" {
		t.Errorf("part %+v with plan %+v", other, other.Plan)
	}
}

// TestUnplanned: an interface that is about to be added and has no plan yet may have ports, so a release finds the ports
// by the sandbox, also of an entry without other ports.
func TestUnplanned(t *testing.T) {
	e := mixed()
	e.Changing = []string{"net1"}
	if r := e.Release(); !r.Planned || len(r.Ports) != 2 {
		t.Errorf("release %+v, want both ports", r)
	}
	e.Changing = []string{"net1", "x1"}
	if r := e.Release(); r.Planned || len(r.Ports) != 0 {
		t.Errorf("release %+v, want one by the owner", r)
	}
	e.Plan, e.Changing = &agentapi.Plan{}, nil
	if r := e.Release(); r != nil {
		t.Errorf("an entry without networks releases %+v", r)
	}
	e.Changing = []string{"x1"}
	if r := e.Release(); r == nil || r.Planned {
		t.Errorf("release %+v, want one by the owner", r)
	}
}
