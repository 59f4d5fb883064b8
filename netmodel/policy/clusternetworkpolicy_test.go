package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// parseCluster parses the spec of a ClusterNetworkPolicy for network shop/blue.
func parseCluster(t *testing.T, name, spec string) *Policy {
	t.Helper()
	p, err := ParseCluster(name, map[string]string{ForAnnotation: "shop/blue"}, []byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const everyPod = `"subject":{"namespaces":{}}`

func TestParseClusterRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ networks, spec, want string }{
		"no networks":      {"", `{}`, "annotation " + ForAnnotation},
		"a tenant's form":  {"blue", `{}`, `"blue" is not <namespace>/<name>`},
		"all and one":      {"*,shop/blue", `{}`, `"*" is not <namespace>/<name>, and not * alone`},
		"tier":             {"*", `{"tier":"Middle"}`, `spec.tier: "Middle"`},
		"no priority":      {"*", `{"tier":"Admin"}`, "spec.priority"},
		"priority":         {"*", `{"tier":"Admin","priority":1001}`, "spec.priority"},
		"no subject":       {"*", `{"tier":"Admin","priority":1}`, "spec.subject: it needs namespaces or pods"},
		"two subjects":     {"*", `{"tier":"Admin","priority":1,"subject":{"namespaces":{},"pods":{"podSelector":{},"namespaceSelector":{}}}}`, "spec.subject"},
		"unknown field":    {"*", `{"tier":"Admin","priority":1,"subjects":{}}`, "subjects"},
		"action":           {"*", `{"tier":"Admin","priority":1,` + everyPod + `,"ingress":[{"action":"Allow","from":[{"namespaces":{}}]}]}`, `spec.ingress[0].action: "Allow"`},
		"no peer":          {"*", `{"tier":"Admin","priority":1,` + everyPod + `,"ingress":[{"action":"Deny"}]}`, `spec.ingress[0]: it needs a list of peers in "from"`},
		"the other side":   {"*", `{"tier":"Admin","priority":1,` + everyPod + `,"egress":[{"action":"Deny","from":[{"namespaces":{}}]}]}`, `spec.egress[0]: it needs a list of peers in "to"`},
		"empty peer":       {"*", `{"tier":"Admin","priority":1,` + everyPod + `,"egress":[{"action":"Deny","to":[{}]}]}`, "spec.egress[0].to[0]: it needs namespaces or pods"},
		"nodes":            {"*", `{"tier":"Admin","priority":1,` + everyPod + `,"egress":[{"action":"Deny","to":[{"nodes":{}}]}]}`, "spec.egress[0].to[0].nodes"},
		"domain names":     {"*", `{"tier":"Admin","priority":1,` + everyPod + `,"egress":[{"action":"Deny","to":[{"domainNames":["a.b"]}]}]}`, "domainNames"},
		"networks inwards": {"*", `{"tier":"Admin","priority":1,` + everyPod + `,"ingress":[{"action":"Deny","from":[{"networks":["10.0.0.0/8"]}]}]}`, "spec.ingress[0].from[0].networks"},
		"no CIDR":          {"*", `{"tier":"Admin","priority":1,` + everyPod + `,"egress":[{"action":"Deny","to":[{"networks":["10"]}]}]}`, "spec.egress[0].to[0].networks[0]"},
		"named port":       {"*", `{"tier":"Admin","priority":1,` + everyPod + `,"egress":[{"action":"Deny","to":[{"namespaces":{}}],"protocols":[{"destinationNamedPort":"web"}]}]}`, `destinationNamedPort: names such as "web"`},
		"two protocols":    {"*", `{"tier":"Admin","priority":1,` + everyPod + `,"egress":[{"action":"Deny","to":[{"namespaces":{}}],"protocols":[{"tcp":{},"udp":{}}]}]}`, "protocols[0]: it has more than one"},
		"range":            {"*", `{"tier":"Admin","priority":1,` + everyPod + `,"egress":[{"action":"Deny","to":[{"namespaces":{}}],"protocols":[{"tcp":{"destinationPort":{"range":{"start":9,"end":5}}}}]}]}`, "9 to 5 is not a range"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseCluster("p", map[string]string{ForAnnotation: tt.networks}, []byte(tt.spec))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

// acls lists the ACLs of all groups of a set, the first ones that OVN asks first.
func acls(s *Set) []string {
	var all []ACL
	for _, list := range s.ACLs(letters()) {
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b ACL) int {
		if a.Tier != b.Tier {
			return a.Tier - b.Tier
		}
		return b.Priority - a.Priority
	})
	var words []string
	for _, a := range all {
		words = append(words, fmt.Sprintf("%d/%d %s %s: %s %t", a.Tier, a.Priority, a.Policy, a.Rule, a.Action, a.ToPod))
	}
	return words
}

// TestClusterOrder: OVN asks the rules in the order of tiers, priorities, names and rules. The rules of a tenant's
// policy come between the tiers.
func TestClusterOrder(t *testing.T) {
	rule := func(actions ...string) string {
		var words []string
		for _, a := range actions {
			words = append(words, fmt.Sprintf(`{"name":"r","action":%q,"from":[{"namespaces":{}}]}`, a))
		}
		return strings.Join(words, ",")
	}
	spec := func(tier string, priority int, actions ...string) string {
		return fmt.Sprintf(`{"tier":%q,"priority":%d,%s,"ingress":[%s]}`, tier, priority, everyPod, rule(actions...))
	}
	s, refused := NewSet("shop/blue", "", []*Policy{
		parseCluster(t, "late", spec("Admin", 7, "Deny")),
		parseCluster(t, "base", spec("Baseline", 0, "Pass", "Deny")),
		parseCluster(t, "b", spec("Admin", 5, "Accept", "Pass")),
		parseCluster(t, "a", spec("Admin", 5, "Deny")),
	}, true)
	if len(refused) > 0 {
		t.Error(refused)
	}
	want := []string{
		"0/30000 a ingress 0 r: Deny true", "0/29999 b ingress 0 r: Accept true", "0/29998 b ingress 1 r: Pass true",
		"0/29997 late ingress 0 r: Deny true", "0/0  to tier 1: Pass true", "1/0  to tier 2: Pass true",
		"2/9999 base ingress 0 r: Accept true", "2/9998 base ingress 1 r: Deny true", "2/1  replies: Accept false",
		"2/1  passed: Accept true",
	}
	if got := acls(s); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if allowPriority >= 30000-MaxClusterRules || baselinePriority-MaxClusterRules <= defaultPriority {
		t.Error("the priorities of tiers overlap")
	}
}

// TestPassNeedsTiers: without tiers, a policy with Pass is refused as a whole, and the others are served.
func TestPassNeedsTiers(t *testing.T) {
	pass := parseCluster(t, "pass", `{"tier":"Admin","priority":1,`+everyPod+`,"egress":[{"action":"Pass","to":[{"namespaces":{}}]}]}`)
	deny := parseCluster(t, "deny", `{"tier":"Admin","priority":2,`+everyPod+`,"egress":[{"action":"Deny","to":[{"namespaces":{}}]}]}`)
	s, refused := NewSet("shop/blue", "", []*Policy{pass, deny}, false)
	if len(s.Policies) != 1 || s.Policies[0] != deny || refused[pass] == nil ||
		!strings.Contains(refused[pass].Error(), "spec.egress[0].action: Pass needs OVN 23.06") {
		t.Errorf("served %v, refused %v", s.Policies, refused)
	}
}

// TestClusterMatcher: an agent finds the groups by the labels of the namespace, as the controller has noted them.
func TestClusterMatcher(t *testing.T) {
	own := &Index{Entries: []Entry{{Group: "own", Here: true}, {Group: "others"}}}
	cluster := &Index{Entries: []Entry{
		{Group: "c1", Selector: Selector{Anywhere: true, Namespaces: "team=a", Pods: "app=db"}},
		{Group: "c2", Selector: Selector{Anywhere: true, Namespaces: "team=b"}},
		{Group: "c3", Selector: Selector{Anywhere: true}},
	}}
	namespace := &Namespace{
		Labels:        map[string]string{"team": "a"},
		ChangedLabels: map[string]string{"u1": Hash(map[string]string{"app": "web"})},
	}
	m, _ := matcher(t, own, cluster, namespace)
	in, out := m.Match(map[string]string{"app": "db"}, nil)
	if !slices.Equal(in, []string{"own", "c1", "c3"}) || !slices.Equal(out, []string{"c2"}) {
		t.Errorf("in %v, out %v", in, out)
	}
	if !m.Stale("u1", map[string]string{"app": "db"}) || m.Stale("u2", nil) {
		t.Error("the pods with changed labels of the namespace are not known")
	}
	if _, err := NewMatcher(nil, map[string]string{entriesKey: "[]"}, nil); err == nil {
		t.Error("a matcher without the labels of the namespace")
	}
}
