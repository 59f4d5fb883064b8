package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// place makes a set that OVN has. members has the ports of each group; a port "10.1.0.5" has that address.
func place(t *testing.T, tiers bool, members map[Selector][]string, list ...*Policy) *Placed {
	t.Helper()
	s, refused := NewSet("shop/blue", list[0].Namespace, list, tiers)
	if len(refused) > 0 {
		t.Fatal(refused)
	}
	return placeSet(t, s, tiers, members)
}

func placeSet(t *testing.T, s *Set, tiers bool, members map[Selector][]string) *Placed {
	t.Helper()
	p := &Placed{Members: map[Selector]map[string]bool{}, Addresses: map[Selector]map[netip.Addr]bool{}}
	for _, acls := range s.ACLs(letters()) {
		for _, a := range acls {
			if !tiers {
				a.Tier = 0
			}
			p.ACLs = append(p.ACLs, a)
		}
	}
	for selector, ports := range members {
		p.Members[selector], p.Addresses[selector] = map[string]bool{}, map[netip.Addr]bool{}
		for _, port := range ports {
			p.Members[selector][port] = true
			p.Addresses[selector][netip.MustParseAddr(port)] = true
		}
	}
	return p
}

// The ports of the tests, by their addresses.
const (
	db, web, other, six = "10.1.0.5", "10.1.0.6", "10.1.0.7", "fd01::7"
)

// summary says a verdict in short: what decides, after what passed, and how many ACLs were asked.
func summary(v Verdict) string {
	word := "denied"
	if v.Allowed {
		word = "allowed"
	}
	for _, list := range [][]ACL{v.By, v.Passed} {
		var names []string
		for _, a := range list {
			names = append(names, a.Policy+" "+a.Rule)
		}
		slices.Sort(names) // ACLs come from a map
		word += " [" + strings.Join(names, ", ") + "]"
	}
	return fmt.Sprint(word, " ", len(v.Asked))
}

func TestDecide(t *testing.T) {
	db1, web1 := Selector{Pods: "app=db"}, Selector{Pods: "app=web"}
	members := map[Selector][]string{db1: {db}, web1: {web}}
	dbs := `"podSelector":{"matchLabels":{"app":"db"}}`
	fromWeb := `{"from":[{"podSelector":{"matchLabels":{"app":"web"}}}],"ports":[{"port":80},{"protocol":"UDP","port":90,"endPort":92},{"protocol":"SCTP"}]}`
	named := func(name, spec string) *Policy {
		p := parse(t, spec)
		p.Name = name
		return p
	}
	one := place(t, true, members, named("one", `{`+dbs+`,"ingress":[`+fromWeb+`]}`))
	two := place(t, true, members, named("one", `{`+dbs+`,"ingress":[`+fromWeb+`]}`), named("two", `{`+dbs+`}`))
	both := place(t, true, members, named("p", `{`+dbs+`,"policyTypes":["Ingress","Egress"],"ingress":[{}],`+
		`"egress":[{"to":[{"ipBlock":{"cidr":"10.1.0.0/16","except":["10.1.0.6/32"]}}]}]}`))
	tests := []struct {
		name     string
		set      *Placed
		port     string
		toPod    bool
		src, dst string
		what     string // protocol/port
		want     string
	}{
		{"a peer on a port", one, db, true, web, db, "tcp/80", "allowed [shop/one ingress 0] [] 2"},
		{"another port", one, db, true, web, db, "tcp/81", "denied [shop/one ingress deny] [] 2"},
		{"another protocol on that port", one, db, true, web, db, "udp/80", "denied [shop/one ingress deny] [] 2"},
		{"the first of a range", one, db, true, web, db, "udp/90", "allowed [shop/one ingress 0] [] 2"},
		{"the last of a range", one, db, true, web, db, "udp/92", "allowed [shop/one ingress 0] [] 2"},
		{"beyond a range", one, db, true, web, db, "udp/93", "denied [shop/one ingress deny] [] 2"},
		{"before a range", one, db, true, web, db, "udp/89", "denied [shop/one ingress deny] [] 2"},
		{"a whole protocol", one, db, true, web, db, "sctp/7", "allowed [shop/one ingress 0] [] 2"},
		{"not a peer", one, db, true, other, db, "tcp/80", "denied [shop/one ingress deny] [] 2"},
		{"not a peer, IPv6", one, db, true, six, "fd01::5", "tcp/80", "denied [shop/one ingress deny] [] 2"},
		{"the other direction", one, db, false, db, other, "tcp/80", "allowed [] [] 0"},
		{"a port that no policy selects", one, web, true, other, web, "tcp/80", "allowed [] [] 0"},
		{"two policies, one allows", two, db, true, web, db, "tcp/80", "allowed [shop/one ingress 0] [] 3"},
		{"two policies, none allows", two, db, true, other, db, "tcp/80", "denied [shop/one ingress deny, shop/two ingress deny] [] 3"},
		{"any peer", both, db, true, six, "fd01::5", "tcp/1", "allowed [shop/p ingress 0] [] 2"},
		{"a CIDR", both, db, false, db, other, "tcp/1", "allowed [shop/p egress 0] [] 2"},
		{"an exception of a CIDR", both, db, false, db, web, "tcp/1", "denied [shop/p egress deny] [] 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := summary(Decide([]*Placed{tt.set}, tt.port, tt.toPod, packet(tt.src, tt.dst, tt.what))); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func packet(src, dst, what string) *Packet {
	p := &Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst)}
	protocol, port, _ := strings.Cut(what, "/")
	p.Protocol = protocol
	fmt.Sscan(port, &p.Port)
	return p
}

// TestDecideInOrder: the operator's policies are asked before those of a tenant or after them, with tiers and without.
func TestDecideInOrder(t *testing.T) {
	all, webs := Selector{Anywhere: true}, Selector{Anywhere: true, Namespaces: "team=web"}
	cluster := func(name, tier string, priority int, rules string) *Policy {
		return parseCluster(t, name, fmt.Sprintf(`{"tier":%q,"priority":%d,%s,"ingress":[%s]}`, tier, priority, everyPod, rules))
	}
	from := func(action, team string) string {
		return fmt.Sprintf(`{"action":%q,"from":[{"namespaces":{"matchLabels":{"team":%q}}}]}`, action, team)
	}
	everyone := func(action string) string { return fmt.Sprintf(`{"action":%q,"from":[{"namespaces":{}}]}`, action) }
	members := map[Selector][]string{all: {db, web, other}, webs: {web}}
	tenant := func(tiers bool, spec string) *Placed {
		return place(t, tiers, map[Selector][]string{{Pods: "app=db"}: {db}},
			parse(t, `{"podSelector":{"matchLabels":{"app":"db"}},"ingress":[`+spec+`]}`))
	}
	tests := []struct {
		name     string
		policies []*Policy
		tenant   string
		web      string // the verdict on a packet from web to db
		other    string // from other
		pass     bool   // OVN needs tiers
	}{
		{"the operator denies", []*Policy{cluster("deny", "Admin", 1, from("Deny", "web"))}, "{}",
			"denied [deny ingress 0] [] 3", "allowed [shop/p ingress 0] [] 3", false},
		{"the operator accepts", []*Policy{cluster("accept", "Admin", 1, from("Accept", "web"))}, "",
			"allowed [accept ingress 0] [] 2", "denied [shop/p ingress deny] [] 2", false},
		{"priorities", []*Policy{cluster("late", "Admin", 7, everyone("Deny")), cluster("early", "Admin", 5, from("Accept", "web"))}, "",
			"allowed [early ingress 0] [] 3", "denied [late ingress 0] [] 3", false},
		{"the order of rules", []*Policy{cluster("p", "Admin", 7, from("Accept", "web")+","+everyone("Deny"))}, "",
			"allowed [p ingress 0] [] 3", "denied [p ingress 1] [] 3", false},
		{"a tenant's policy comes before the baseline", []*Policy{cluster("base", "Baseline", 0, everyone("Accept"))}, "",
			"denied [shop/p ingress deny] [] 2", "denied [shop/p ingress deny] [] 2", false},
		{"Pass leaves the tier", []*Policy{cluster("pass", "Admin", 1, from("Pass", "web")+","+everyone("Deny"))}, "{}",
			"allowed [shop/p ingress 0] [pass ingress 0] 4", "denied [pass ingress 1] [] 4", true},
		{"Pass leaves other policies of the tier", []*Policy{cluster("pass", "Admin", 1, from("Pass", "web")), cluster("z", "Admin", 2, everyone("Deny"))}, "",
			"denied [shop/p ingress deny] [pass ingress 0] 3", "denied [z ingress 0] [] 3", true},
	}
	for _, tt := range tests {
		for _, tiers := range []bool{true, false} {
			if tt.pass && !tiers {
				continue // such a policy is refused
			}
			t.Run(fmt.Sprintf("%s, tiers %t", tt.name, tiers), func(t *testing.T) {
				sets := []*Placed{tenant(tiers, tt.tenant), place(t, tiers, members, tt.policies...)}
				for src, want := range map[string]string{web: tt.web, other: tt.other} {
					if got := summary(Decide(sets, db, true, packet(src, db, "tcp/80"))); got != want {
						t.Errorf("from %s: got %s, want %s", src, got, want)
					}
				}
			})
		}
	}
	// The baseline decides about pods that no tenant's policy restricts.
	base := place(t, true, members, cluster("base", "Baseline", 0, from("Accept", "web")+","+everyone("Deny")))
	for src, want := range map[string]string{web: "allowed [base ingress 0] [] 2", other: "denied [base ingress 1] [] 2"} {
		if got := summary(Decide([]*Placed{tenant(true, "{}"), base}, other, true, packet(src, other, "tcp/80"))); got != want {
			t.Errorf("baseline, from %s: got %s, want %s", src, got, want)
		}
	}
	// The tier comes before the priority, whatever the priorities are.
	acls := &Placed{Members: map[Selector]map[string]bool{all: {db: true}}, ACLs: []ACL{
		{Policy: "second", Rule: "r", Subject: all, ToPod: true, Tier: 1, Priority: 5, Action: Deny},
		{Policy: "first", Rule: "r", Subject: all, ToPod: true, Tier: 0, Priority: 1, Action: Accept},
	}}
	if got := summary(Decide([]*Placed{acls}, db, true, packet(web, db, "tcp/80"))); got != "allowed [first r] [] 2" {
		t.Errorf("tiers: got %s", got)
	}
}
