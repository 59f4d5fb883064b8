package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// object makes a policy of namespace shop with the annotation that asks for a log.
func object(logs, spec string) *Object {
	annotations := map[string]string{ForAnnotation: "blue", LogAnnotation: logs}
	return NewObject("shop", "p", 1, annotations, []byte(spec), 0)
}

func TestLogAnnotation(t *testing.T) {
	for logs, want := range map[string]bool{"": false, "false": false, "true": true} {
		o := object(logs, `{"podSelector":{}}`)
		if o.Policy == nil || o.Policy.LogDenied != want {
			t.Errorf("%q: %+v, refused: %s", logs, o.Policy, o.Refusal)
			continue
		}
		again, err := ParseText("shop", "p", o.Policy.Text)
		if err != nil || again.LogDenied != want || again.Text != o.Policy.Text {
			t.Errorf("%q: the text %s is read as %+v, %v", logs, o.Policy.Text, again, err)
		}
		if !want && strings.Contains(o.Policy.Text, "log") {
			t.Errorf("%q: the text %s is not that of older versions", logs, o.Policy.Text)
		}
	}
	if o := object("yes", `{"podSelector":{}}`); o.Policy != nil || !strings.Contains(o.Refusal, LogAnnotation) {
		t.Errorf("the value yes: %+v, refused: %s", o.Policy, o.Refusal)
	}
}

// TestLoggedACLs: only what denies is logged, before a denial that is not, and after all that allows.
func TestLoggedACLs(t *testing.T) {
	loud := object("true", `{"podSelector":{},"policyTypes":["Ingress","Egress"],"ingress":[{}]}`).Policy
	quiet := object("", `{"podSelector":{}}`).Policy
	quiet.Name = "quiet"
	tenants, _ := NewSet("shop/blue", "shop", []*Policy{loud, quiet}, true)
	cluster := parseCluster(t, "c", `{"tier":"Admin","priority":1,`+everyPod+`,"ingress":[
		{"action":"Accept","from":[{"namespaces":{}}]},{"action":"Pass","from":[{"namespaces":{}}]},
		{"action":"Deny","from":[{"namespaces":{}}]}]}`)
	cluster.LogDenied = true
	operators, _ := NewSet("shop/blue", "", []*Policy{cluster}, true)
	var got []string
	priorities := map[string]int{}
	for _, s := range []*Set{tenants, operators} {
		for _, acls := range s.ACLs(letters()) {
			for _, a := range acls {
				if a.Log {
					got = append(got, fmt.Sprint(a.Policy, " ", a.Rule, " ", a.Action))
				}
				if a.Policy != "" && a.Tier == ownersTier {
					priorities[fmt.Sprint(a.Action, a.Log)] = a.Priority
				}
			}
		}
	}
	slices.Sort(got)
	if want := []string{"c ingress 2 Deny", "shop/p egress deny Deny", "shop/p ingress deny Deny"}; !slices.Equal(got, want) {
		t.Errorf("logged: %q, want %q", got, want)
	}
	if allow, loud, quiet := priorities["Acceptfalse"], priorities["Denytrue"], priorities["Denyfalse"]; allow <= loud ||
		loud <= quiet || quiet <= baselinePriority {
		t.Errorf("the priorities are not in order: %v", priorities)
	}
}
