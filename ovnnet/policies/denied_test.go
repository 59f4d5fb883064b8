package policies_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// logging has the policies of a set log what they deny, on a network of namespace shop.
func logging(network string, rate int, list ...*policy.Policy) *policies.Wanted {
	w := wanted(nil, list...)
	w.Set.Network, w.DeniedRate = network, rate
	for _, p := range list {
		p.LogDenied = true
	}
	return w
}

// meters are the rates of the meters, and how many ACLs name one.
func (w *world) meters(t *testing.T) string {
	t.Helper()
	var rates, bursts []string
	for _, band := range w.Dump(t, "Meter_Band") {
		rates, bursts = append(rates, fmt.Sprint(band["rate"])), append(bursts, fmt.Sprint(band["burst_size"]))
	}
	if !slices.Equal(rates, bursts) || len(w.Dump(t, "Meter")) != len(rates) {
		t.Errorf("rates %q, bursts %q, meters %v", rates, bursts, w.Dump(t, "Meter"))
	}
	logged := 0
	for _, acl := range w.Dump(t, "ACL") {
		if acl["log"] == true {
			logged++
			if acl["meter"] != "ovn-multinet denied by policies of shop" || acl["severity"] != "info" || acl["action"] != "drop" {
				t.Errorf("an ACL that logs is %v", acl)
			}
		}
	}
	return fmt.Sprint(rates, logged)
}

// TestMeter: all networks of a namespace have one meter. The last policy that logs deletes it.
func TestMeter(t *testing.T) {
	w := newWorld(t)
	const blue, red = "shop/blue", "shop/red"
	for i, step := range []struct {
		want  *policies.Wanted
		state string
	}{
		{wanted(nil, allow(t, "a", "web")), "[] 0"},
		{logging(blue, 10, allow(t, "a", "web")), "[10] 1"},
		{logging(red, 10, allow(t, "a", "web")), "[10] 2"},
		{logging(red, 20, allow(t, "a", "web")), "[20] 2"},
		{logging(blue, 20), "[20] 1"},
		{logging(blue, 20, allow(t, "a", "web")), "[20] 2"},
		{logging(red, 0, allow(t, "a", "web")), "[20] 1"},
		{wanted(nil, allow(t, "a", "web")), "[] 0"},
	} {
		w.ensure(t, step.want, 1)
		w.ensure(t, step.want, 0)
		if got := w.meters(t); got != step.state {
			t.Errorf("step %d: meters and ACLs that log: %s, want %s", i, got, step.state)
		}
	}
}

// TestNamesOfACLs: a name is not longer than OVN allows. Of an ACL that logs, it ends with the row key, and has no
// quotes before that. A name that was cut is the same in NB, so nothing is written again.
func TestNamesOfACLs(t *testing.T) {
	w := newWorld(t)
	spec := `{"tier":"Admin","priority":1,"subject":{"namespaces":{}},"ingress":[{"name":%q,"action":"Deny","from":[{"namespaces":{}}]}]}`
	for _, rule := range []string{"short", `a "quoted" \`, strings.Repeat("ü", 50), "x" + strings.Repeat("ü", 49)} {
		for _, logs := range []bool{false, true} {
			p, err := policy.ParseCluster("p", map[string]string{policy.ForAnnotation: "*"}, fmt.Appendf(nil, spec, rule))
			if err != nil {
				t.Fatal(err)
			}
			p.LogDenied = logs
			set, _ := policy.NewSet("shop/blue", "", []*policy.Policy{p}, false)
			want := wanted(nil)
			want.Set, want.DeniedRate = set, 10
			w.ensure(t, want, 1)
			w.ensure(t, want, 0)
			for _, acl := range w.Dump(t, "ACL") {
				name, _ := acl["name"].(string)
				key := fmt.Sprint(acl["_uuid"])
				if acl["action"] != "drop" {
					continue
				}
				i := strings.LastIndex(name, " ")
				if len(name) > 63 || !utf8.ValidString(name) ||
					logs && (!strings.Contains(key, name[i+1:]) || len(name[i+1:]) != 36 || strings.ContainsAny(name, `"\`)) {
					t.Errorf("rule %q, logs: %t: the name %q, row %s", rule, logs, name, key)
				}
			}
			set, _ = policy.NewSet("shop/blue", "", nil, false)
			want.Set = set
			w.ensure(t, want, 1)
		}
	}
	w.wantRows(t, "0 0 0")
}
