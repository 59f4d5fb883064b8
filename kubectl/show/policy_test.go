package show

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/view"
)

// placed is what NB has of one policy for network shop/blue, with as many pods.
func placed(t *testing.T, pods int) (*policies.View, []view.Network) {
	t.Helper()
	var cidrs []string
	for i := range 10 {
		cidrs = append(cidrs, fmt.Sprintf(`{"ipBlock":{"cidr":"10.%d.0.0/16"}}`, 2*i))
	}
	o := policy.NewObject("shop", "db", 1, map[string]string{policy.ForAnnotation: "blue"},
		[]byte(`{"podSelector":{},"ingress":[{"from":[`+strings.Join(cidrs, ",")+`]}]}`), 0)
	set, _ := policy.NewSet("shop/blue", "shop", []*policy.Policy{o.Policy}, false)
	v := &policies.View{
		Scope: policies.Scope{Network: "shop/blue", Namespace: "shop"}, Set: set, Members: map[policy.Selector][]string{},
		ACLs: set.ACLs(func(policy.Selector) string { return "g" })[policy.Selector{}],
	}
	n := view.Network{ID: "shop/blue"}
	for i := range pods {
		key := fmt.Sprintf("p%02d", i)
		v.Members[policy.Selector{}] = append(v.Members[policy.Selector{}], key)
		n.Ports = append(n.Ports, view.Port{Key: key, Name: "shop/" + key + "/net1", Namespace: "shop", Pod: key, Interface: "net1"})
	}
	return v, []view.Network{n}
}

// TestPolicyStates: NB says what is served, and the objects say what is not.
func TestPolicyStates(t *testing.T) {
	v, _ := placed(t, 1)
	spoilt := *v
	spoilt.Differs = true
	ready := &policy.Object{Namespace: "shop", Name: "db", State: `{"ready":true}`}
	for name, tt := range map[string]struct {
		objects []*policy.Object
		known   bool
		view    *policies.View
		want    string
	}{
		"ready":                 {[]*policy.Object{ready}, true, v, "ready"},
		"nobody reads states":   {nil, false, v, "ready"},
		"deleted":               {nil, true, v, "not ready: " + stillInNB},
		"not seen":              {[]*policy.Object{{Namespace: "shop", Name: "db"}}, true, v, "not ready: " + notSeen},
		"refused after a while": {[]*policy.Object{{Namespace: "shop", Name: "db", State: `{"reason":"why"}`}}, true, v, "not ready: why"},
		"limited":               {[]*policy.Object{{Namespace: "shop", Name: "db", State: `{"ready":true,"reason":"why"}`}}, true, v, "ready, but why"},
		"a tenant's own state":  {[]*policy.Object{{Namespace: "shop", Name: "db", State: `{"reason":"\u001b[2Jwhy\nready"}`}}, true, v, "not ready: ?[2Jwhy ready"},
		"other rows":            {[]*policy.Object{ready}, true, &spoilt, "not ready: " + rowsDiffer},
	} {
		list := Policies(tt.objects, tt.known, []*policies.View{tt.view})
		if len(list) != 1 || *list[0].Ports != 1 || readiness(list[0].Ready, list[0].Reason) != tt.want {
			t.Errorf("%s: %+v, want %s", name, list, tt.want)
		}
	}
	q := &Question{networks: nil, To: End{port: &view.Port{Namespace: "shop"}, Network: "shop/blue"}}
	if _, err := q.Decide([]*policies.View{&spoilt}); err == nil || !strings.Contains(err.Error(), "rows in NB are not those") {
		t.Errorf("a verdict from other rows: %v", err)
	}
}

// TestPolicyPageIsShort: the page of a policy has the first peers of a rule and the first members of a group.
func TestPolicyPageIsShort(t *testing.T) {
	v, networks := placed(t, 33)
	d := FindPolicy(Policies(nil, false, []*policies.View{v}), networks, "shop", "db")
	var out strings.Builder
	if err := PolicyPage(&out, d); err != nil || len(d.Groups[0].Ports) != 33 || len(d.Rules[0].Peers) != 10 {
		t.Fatalf("%v, %+v", err, d)
	}
	for _, want := range []string{"10.10.0.0/16; and 4 more: -o json has all", "shop/p19 ", "and 13 more: -o json has all"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "shop/p20") {
		t.Errorf("the page has too many members:\n%s", out.String())
	}
}
