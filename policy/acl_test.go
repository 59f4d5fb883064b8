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
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
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
	if rows := s.ACLs(letters())[Selector{Pods: "app=db"}]; len(rows) != 1+2*100 {
		t.Errorf("%d ACLs, want 1 for replies, and a rule and a denial of each policy", len(rows))
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
		Relabelled: map[string]string{"u1": Hash(map[string]string{"app": "db"})},
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
	x.Relabelled["u1"] = Hash(nil)
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
