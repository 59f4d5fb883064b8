package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// letters names groups in the order in which they are asked for.
func letters() func(Selector) string {
	known := map[Selector]string{}
	return func(s Selector) string {
		if known[s] == "" {
			known[s] = string(rune('A' + len(known)))
		}
		return known[s]
	}
}

func TestACLs(t *testing.T) {
	p := parse(t, `{"podSelector":{"matchLabels":{"app":"db"}},"policyTypes":["Ingress","Egress"],"ingress":[
		{"from":[{"podSelector":{"matchLabels":{"app":"web"}}},{"ipBlock":{"cidr":"10.1.0.0/16"}},{"ipBlock":{"cidr":"fd01::/64"}}],
		 "ports":[{"port":80},{"port":443},{"protocol":"UDP","port":5,"endPort":9}]},
		{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.0.0.0/8"]}}]}],
		"egress":[{},{"ports":[{"protocol":"SCTP"}]}]}`)
	s, _ := NewSet("shop/blue", "shop", []*Policy{p}, false)
	var got []string
	for _, a := range s.ACLs(letters())[Selector{Pods: "app=db"}] {
		got = append(got, fmt.Sprintf("%s: %d %t %s %s", a.Rule, a.Priority, a.ToPod, a.Action, a.Match))
	}
	want := []string{
		"replies: 1 false Accept inport == @A && ip",
		"ingress deny: 10000 true Deny outport == @A && ip && flags.loopback == 0",
		"ingress 0: 10002 true Accept " +
			"(outport == @A && ip4.src == {$B_ip4, 10.1.0.0/16} && tcp.dst == {80, 443}) || " +
			"(outport == @A && ip4.src == {$B_ip4, 10.1.0.0/16} && udp.dst == {5, 0x6/0xfffe, 0x8/0xfffe}) || " +
			"(outport == @A && ip6.src == {$B_ip6, fd01::/64} && tcp.dst == {80, 443}) || " +
			"(outport == @A && ip6.src == {$B_ip6, fd01::/64} && udp.dst == {5, 0x6/0xfffe, 0x8/0xfffe})",
		"ingress 1: 10002 true Accept outport == @A && 0",
		"egress deny: 10000 false Deny inport == @A && ip",
		"egress 0: 10002 false Accept inport == @A && (ip4 || ip6)",
		"egress 1: 10002 false Accept inport == @A && sctp",
		"to tier 1: 0 true Pass outport == @A",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestPasses: a group with ACLs for packets to its ports has one with Pass for each tier before the last of them, and
// no other group has one.
func TestPasses(t *testing.T) {
	cluster := func(tier, direction, side string) *Policy {
		return parseCluster(t, "p", fmt.Sprintf(`{"tier":%q,"priority":1,%s,%q:[{"action":"Deny",%q:[{"namespaces":{}}]}]}`,
			tier, everyPod, direction, side))
	}
	own := func(spec string) *Policy { return parse(t, spec) }
	for name, tt := range map[string]struct {
		namespace string
		policy    *Policy
		want      []string
	}{
		"ingress":          {"shop", own(`{"podSelector":{},"ingress":[]}`), []string{"0 to tier 1"}},
		"egress":           {"shop", own(`{"podSelector":{},"policyTypes":["Egress"],"egress":[]}`), nil},
		"Admin ingress":    {"", cluster("Admin", "ingress", "from"), nil},
		"Baseline ingress": {"", cluster("Baseline", "ingress", "from"), []string{"0 to tier 1", "1 to tier 2"}},
		"Baseline egress":  {"", cluster("Baseline", "egress", "to"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, acls := range SetOf("shop/blue", tt.namespace, []*Policy{tt.policy}).ACLs(letters()) {
				for _, a := range acls {
					if a.Action == Pass {
						got = append(got, fmt.Sprint(a.Tier, " ", a.Rule))
					}
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	s := withNumbers(t, []Named{{Selector{Port: "tcp/http"}, "shop", 80}},
		own(`{"podSelector":{},"ingress":[{"ports":[{"port":"http"}]}]}`))
	for _, a := range s.ACLs(letters())[Selector{Port: "tcp/http=80"}] {
		if a.Action == Pass {
			t.Errorf("the group of a number has %q, which its ports have by the group of their pods", a.Rule)
		}
	}
}

// TestMaskedPorts: the constants of a range match its ports, each once, and no others.
func TestMaskedPorts(t *testing.T) {
	for _, r := range [][2]uint16{{1, 1}, {1, 65535}, {5, 9}, {8, 15}, {32768, 65535}, {65535, 65535}, {1023, 60001}} {
		p := Port{Protocol: "tcp", First: r[0], Last: r[1]}
		matches := map[int]int{}
		for _, constant := range p.masked() {
			value, mask := 0, 0xffff
			if _, err := fmt.Sscanf(constant, "0x%x/0x%x", &value, &mask); err != nil {
				_, err = fmt.Sscan(constant, &value)
				if err != nil {
					t.Fatal(constant, err)
				}
			}
			for port := range 1 << 16 {
				if port&mask == value {
					matches[port]++
				}
			}
		}
		for port := range 1 << 16 {
			want := 0
			if port >= int(r[0]) && port <= int(r[1]) {
				want = 1
			}
			if matches[port] != want {
				t.Fatalf("ports %d to %d: port %d is matched %d times, want %d", r[0], r[1], port, matches[port], want)
			}
		}
	}
}

// TestSetGrowsWithSelectors: policies that name the same pods share their groups.
func TestSetGrowsWithSelectors(t *testing.T) {
	var all []*Policy
	for i := range 100 {
		p := parse(t, fmt.Sprintf(`{"podSelector":{"matchLabels":{"app":"db"}},"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"web"}}}],"ports":[{"port":%d}]}]}`, i+1))
		p.Name = fmt.Sprint("p", i)
		all = append(all, p)
	}
	s, refused := NewSet("shop/blue", "shop", all, false)
	if n := len(s.Selectors()); n != 2 || len(refused) != 0 {
		t.Errorf("%d groups, want 2; refused %v", n, refused)
	}
	if rows := s.ACLs(letters())[Selector{Pods: "app=db"}]; len(rows) != 2+2*100 {
		t.Errorf("%d ACLs, want 1 for replies, 1 to the next tier, and a rule and a denial of each policy", len(rows))
	}
}

// TestLimitsOfANamespace: the oldest policies stay, whatever a tenant adds.
func TestLimitsOfANamespace(t *testing.T) {
	var all []*Policy
	for i := range MaxPolicies + 3 {
		p := parse(t, `{"podSelector":{}}`)
		p.Name, p.Created = fmt.Sprintf("p%04d", i), int64(-i) // the last is the oldest
		all = append(all, p)
	}
	s, refused := NewSet("shop/blue", "shop", all, false)
	if len(s.Policies) != MaxPolicies || len(refused) != 3 || refused[all[0]] == nil || refused[all[3]] != nil {
		t.Errorf("%d policies, refused %v", len(s.Policies), refused)
	}
	var peers []string
	for i := range MaxPeers {
		peers = append(peers, fmt.Sprintf(`{"podSelector":{"matchLabels":{"n%%d":"%d"}}}`, i))
	}
	all = nil
	for i := range 20 {
		p := parse(t, fmt.Sprintf(`{"podSelector":{},"ingress":[{"from":[%s]}]}`, strings.ReplaceAll(strings.Join(peers, ","), "%d", fmt.Sprint(i))))
		p.Name, p.Created = fmt.Sprint(i), int64(i)
		all = append(all, p)
	}
	s, refused = NewSet("shop/blue", "shop", all, false)
	if n := len(s.Selectors()); n > MaxSelectors || len(refused) == 0 || refused[all[0]] != nil {
		t.Errorf("%d selectors, refused %d", n, len(refused))
	}
}

// TestMatcher: what the controller writes, an agent reads.
func TestMatcher(t *testing.T) {
	x := &Index{
		Entries: []Entry{
			{Group: "g1", Selector: Selector{Pods: "app=db"}, Here: true},
			{Group: "g2", Selector: Selector{}, Here: true},
			{Group: "g3", Selector: Selector{Pods: "app in (db,web),!old"}, Here: true},
			{Group: "g4", Selector: Selector{Anywhere: true, Namespaces: "team=a"}},
		},
		ChangedLabels: map[string]string{"u1": Hash(map[string]string{"app": "db"})},
	}
	m, revision := matcher(t, x, nil, nil)
	in, out := m.Match(map[string]string{"app": "web"}, nil)
	if !slices.Equal(in, []string{"g2", "g3"}) || !slices.Equal(out, []string{"g1"}) {
		t.Errorf("in %v, out %v", in, out)
	}
	for _, tt := range []struct {
		uid, app string
		want     bool
	}{{"u1", "db", false}, {"u1", "web", true}, {"u2", "web", false}} {
		if got := m.Stale(tt.uid, map[string]string{"app": tt.app}); got != tt.want {
			t.Errorf("labels of %s with app=%s are stale: %t, want %t", tt.uid, tt.app, got, tt.want)
		}
	}
	x.ChangedLabels["u1"] = Hash(nil)
	if _, now := matcher(t, x, nil, nil); now == revision {
		t.Error("other labels of a pod do not change the revision")
	}
}

// matcher makes a Matcher of encoded indexes, and returns the revision of the first one.
func matcher(t *testing.T, own, cluster *Index, namespace *Namespace) (*Matcher, string) {
	t.Helper()
	var rows [3]map[string]string
	var revision string
	var err error
	if own != nil {
		rows[0], revision, err = own.Encode()
	}
	if cluster != nil && err == nil {
		rows[1], _, err = cluster.Encode()
	}
	if namespace != nil && err == nil {
		rows[2], _, err = namespace.Encode()
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMatcher(rows[0], rows[1], rows[2])
	if err != nil {
		t.Fatal(err)
	}
	return m, revision
}

// TestPacketsFromNobody: on a VLAN, ingress rules that do not accept match packets from 0.0.0.0, too.
func TestPacketsFromNobody(t *testing.T) {
	const nobody = " && ip4.src == 0.0.0.0 && ip4.dst == $A_ip4"
	for words, want := range map[string]bool{"physical network data, VLAN 100": true, "router main": false, "": false} {
		for _, action := range []string{"Accept", "Deny", "Pass"} {
			p := parseCluster(t, "p", fmt.Sprintf(`{"tier":"Admin","priority":1,%s,"ingress":[{"action":%q,"from":[{"namespaces":{}}],
				"protocols":[{"udp":{"destinationPort":{"number":9}}}]}],"egress":[{"action":%[2]q,"to":[{"namespaces":{}}]}]}`,
				everyPod, action)).Across(words)
			var in, out int
			for _, a := range SetOf("shop/blue", "", []*Policy{p}).ACLs(letters())[p.Subject] {
				in += strings.Count(a.Match, "(outport == @A"+nobody+" && udp.dst == {9})")
				out += strings.Count(a.Match, "0.0.0.0")
			}
			if (in == 1) != (want && action != "Accept") || in != out {
				t.Errorf("%s %q: %d expressions of ingress and %d in all, want %t", action, words, in, out, want)
			}
		}
	}
}
