package agentapi_test

import (
	"reflect"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// TestPlansOfRunningPods: a plan is extended, split and arranged anew; the plan itself does not change.
func TestPlansOfRunningPods(t *testing.T) {
	p := &agentapi.Plan{
		Interfaces: []agentapi.Interface{{Name: "net2", Network: "shop/blue", Digest: "b", Position: 1}},
		Delegates: []agentapi.Delegate{{Name: "net1", Network: "shop/ext", Digest: "a"},
			{Name: "net2", Network: "shop/blue", Chained: true, Position: 1}},
	}
	want := []agentapi.Attachment{{Interface: "net1", Network: "shop/ext", Digest: "a"},
		{Interface: "net2", Network: "shop/blue", Digest: "b", Position: 1}}
	if list := p.List(); !reflect.DeepEqual(list, want) {
		t.Errorf("attachments %+v, want %+v", list, want)
	}
	more := &agentapi.Plan{Interfaces: []agentapi.Interface{{Name: "x1", Position: 0}}, ChecksumOff: true}
	all := p.With(more)
	all.Arrange(map[string]int{"net1": 1, "net2": 2})
	if names := all.Names(); !reflect.DeepEqual(names, []string{"x1", "net1", "net2"}) || !all.ChecksumOff {
		t.Errorf("together %q", names)
	}
	if all.Delegates[1].Position != 2 {
		t.Error("the chained plugins of an interface have another position than it")
	}
	without, with := all.Split([]string{"net2"})
	if !reflect.DeepEqual(without.Names(), []string{"x1", "net1"}) || !reflect.DeepEqual(with.Names(), []string{"net2"}) ||
		len(with.Delegates) != 1 || !with.ChecksumOff {
		t.Errorf("split into %+v and %+v", without, with)
	}
	if names := p.Names(); !reflect.DeepEqual(names, []string{"net1", "net2"}) || len(p.Interfaces) != 1 {
		t.Errorf("the plan has changed: %q", names)
	}
}
