package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
)

// TestJoinedRanges: ranges that overlap or touch become one, for each protocol. Names and other protocols stay.
func TestJoinedRanges(t *testing.T) {
	tests := []struct{ name, ports, want string }{
		{"overlapping", `{"port":1,"endPort":65534},{"port":2,"endPort":65533}`, "tcp 1-65534"},
		{"adjacent", `{"port":20,"endPort":29},{"port":10,"endPort":19}`, "tcp 10-29"},
		{"apart", `{"port":10},{"port":12}`, "tcp 10-10, tcp 12-12"},
		{"the last port", `{"port":65535},{"port":65530,"endPort":65535}`, "tcp 65530-65535"},
		{"other protocols", `{"port":5},{"port":5,"protocol":"UDP"},{"port":6}`, "tcp 5-6, udp 5-5"},
		{"all ports", `{"port":5},{"protocol":"TCP"}`, "tcp 0-0"},
		{"names", `{"port":"b"},{"port":5},{"port":"a"},{"port":"a"}`, "tcp 5-5, tcp 0-0 a, tcp 0-0 b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := parse(t, `{"podSelector":{},"ingress":[{"ports":[`+tt.ports+`]}]}`)
			var got []string
			for _, port := range (*p.Ingress)[0].Ports {
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s %d-%d %s", port.Protocol, port.First, port.Last, port.Name)))
			}
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("%s, want %s", strings.Join(got, ", "), tt.want)
			}
		})
	}
}

func repeated(n int, one func(i int) string) string {
	var all []string
	for i := range n {
		all = append(all, one(i))
	}
	return strings.Join(all, ",")
}

// largePolicies are specs near the limits, each large in another way.
var largePolicies = map[string]string{
	"overlapping ranges": `{"podSelector":{},"ingress":[` + repeated(30, func(int) string {
		return `{"from":[{"podSelector":{}}],"ports":[` + repeated(64, func(i int) string {
			return fmt.Sprintf(`{"port":%d,"endPort":%d}`, 1+i, 65534-i)
		}) + `]}`
	}) + `]}`,
	"ranges apart": `{"podSelector":{},"ingress":[` + repeated(6, func(int) string {
		return `{"from":[{"podSelector":{}}],"ports":[` + repeated(64, func(i int) string {
			return fmt.Sprintf(`{"port":%d,"endPort":%d}`, 1000*i+1, 1000*i+998)
		}) + `]}`
	}) + `]}`,
	"peers": `{"podSelector":{},"egress":[` + repeated(10, func(r int) string {
		return `{"to":[` + repeated(64, func(i int) string {
			return fmt.Sprintf(`{"podSelector":{"matchLabels":{"a":"%d-%d"}}}`, r, i)
		}) + `]}`
	}) + `]}`,
	"CIDRs": `{"podSelector":{},"ingress":[{"from":[` + repeated(15, func(i int) string {
		return fmt.Sprintf(`{"ipBlock":{"cidr":"10.%d.0.0/16","except":[%s]}}`, i,
			repeated(16, func(k int) string { return fmt.Sprintf(`"10.%d.%d.0/24"`, i, 16*k) }))
	}) + `],"ports":[{"port":1},{"port":2,"protocol":"UDP"}]}]}`,
	"names": `{"podSelector":{},"ingress":[` + repeated(60, func(i int) string {
		return fmt.Sprintf(`{"from":[{"namespaceSelector":{}}],"ports":[{"port":"p%d"}]}`, i)
	}) + `]}`,
}

// TestBytes: the size of a policy that is calculated before it has rows is that of its rows, within a factor of two.
func TestBytes(t *testing.T) {
	for name, spec := range largePolicies {
		t.Run(name, func(t *testing.T) {
			p := parse(t, spec)
			p.Text = spec
			s, _ := NewSet("shop/blue", "shop", []*Policy{p}, true)
			for _, of := range s.Names() {
				s.numbers = map[Selector][]uint16{}
				s.numbers[of] = []uint16{65535}
			}
			real := len(spec)
			for _, acls := range s.ACLs(func(Selector) string { return nameOfGroup }) {
				for _, a := range acls {
					real += len(a.Match)
				}
			}
			for _, selector := range s.Selectors() {
				real += 2 * len(selector.String())
			}
			if got := p.Bytes(); got < real || name != "names" && name != "peers" && got > 2*real {
				t.Errorf("%d bytes, and the rows have %d", got, real)
			}
		})
	}
}

// TestBoundaryPolicyBecomesTooLarge: a policy is refused by what it becomes. The reason has the size and the limit.
func TestBoundaryPolicyBecomesTooLarge(t *testing.T) {
	apart := `{"podSelector":{},"ingress":[` + repeated(20, func(int) string {
		return `{"from":[{"podSelector":{}}],"ports":[` + repeated(64, func(i int) string {
			return fmt.Sprintf(`{"port":%d,"endPort":%d}`, 1000*i+1, 1000*i+998)
		}) + `]}`
	}) + `]}`
	for spec, limit := range map[string]string{apart: "131072 is the limit", largePolicies["overlapping ranges"]: ""} {
		o := NewObject("shop", "p", 1, map[string]string{ForAnnotation: "blue"}, []byte(spec), len(spec))
		if (o.Policy == nil) != (limit != "") || !strings.Contains(o.Refusal, limit) {
			t.Errorf("%.200s…: refused with %q, want %q", spec, o.Refusal, limit)
		}
	}
}

// TestBoundaryIsolation: what stands for a policy that is refused. What cannot be read isolates more and not less.
func TestBoundaryIsolation(t *testing.T) {
	long := strings.Repeat("x", 60)
	tests := []struct{ name, networks, spec, want string }{
		{"an unknown field", "blue", `{"podSelector":{"matchLabels":{"app":"db"}},"ingres":[]}`,
			"[shop/blue] app=db in"},
		{"a rule that cannot be served", "blue,red", `{"podSelector":{},"egress":[{"to":[{}]}]}`,
			"[shop/blue shop/red]  in out"},
		{"directions", "blue", `{"podSelector":{},"policyTypes":["Egress"],"x":1}`, "[shop/blue]  out"},
		{"an unknown direction", "blue", `{"podSelector":{},"policyTypes":["Both"]}`, "[shop/blue]  in out"},
		{"no JSON", "blue", `{`, "[shop/blue]  in out"},
		{"a selector that cannot be read", "blue",
			`{"podSelector":{"matchLabel":{},"matchLabels":{"app":"db"}},"policyTypes":["Ingress"]}`,
			"[shop/blue]  in"},
		{"a selector twice", "blue", `{"podSelector":{},"podSelector":{"matchLabels":{"a":"b"}},"policyTypes":["Ingress"]}`,
			"[shop/blue]  in out"},
		{"another case of letters", "blue", `{"podSelector":{},"PolicyTypes":["Egress"],"x":1}`, "[shop/blue]  in"},
		{"a long selector", "blue", `{"x":1,"podSelector":{"matchLabels":{` + repeated(20, func(i int) string {
			return fmt.Sprintf(`"k%d":"%s"`, i, long)
		}) + `}}}`, "[shop/blue]  in"},
		{"a network that cannot be read", "blue,a/b/c", `{"podSelector":{}}`, "[shop/blue]  in"},
		{"too many networks", strings.Repeat("blue,", 80), `{"podSelector":{}}`, "[*]  in"},
		{"no network", " ", `{"podSelector":{}}`, "none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := NewObject("shop", "p", 1, map[string]string{ForAnnotation: tt.networks}, []byte(tt.spec), len(tt.spec))
			if o.Policy != nil || o.Refusal == "" {
				t.Fatalf("not refused: %+v", o)
			}
			if got := isolates(o.Isolation); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if o.Isolation == nil {
				return
			}
			again, err := ParseText("shop", "p", o.Isolation.Text)
			if err != nil {
				t.Fatal(err)
			}
			again.Networks = o.Isolation.Networks // "*" is for ClusterNetworkPolicies
			if got := isolates(again); got != tt.want {
				t.Errorf("stored as %s, want %s", got, tt.want)
			}
		})
	}
}

func isolates(p *Policy) string {
	if p == nil {
		return "none"
	}
	text := fmt.Sprint(p.Networks, " ", p.Subject.Pods)
	for _, d := range []struct {
		word  string
		rules *Rules
	}{{" in", p.Ingress}, {" out", p.Egress}} {
		if d.rules != nil {
			text += d.word + strings.Repeat(" rule", len(*d.rules))
		}
	}
	return text
}

// TestBoundaryRefusalsOfANamespace: the youngest policies are refused, also if they are too large on another network only. One
// that is refused leaves its room to others.
func TestBoundaryRefusalsOfANamespace(t *testing.T) {
	list := []Candidate{}
	text := strings.Repeat("x", 60<<10)
	for i := range 50 {
		p := parse(t, `{"podSelector":{}}`)
		p.Name, p.Created, p.Text = fmt.Sprintf("p%02d", i), int64(i), text
		list = append(list, Candidate{ID: p.ID(), Created: p.Created, Policy: p, Networks: []string{"shop/blue"}})
	}
	list[3].Networks = []string{"shop/blue", "shop/red"}
	slices.Reverse(list)
	limit := cost.Default()
	limit[cost.Bytes] = 2 << 20
	refused := Admit("shop", list, Room{Limit: limit}).Refused
	if len(refused) != 50-32 || refused["shop/p31"] != nil || refused["shop/p32"] == nil {
		t.Errorf("%d are refused: %v", len(refused), refused)
	}
	if why := fmt.Sprint(refused["shop/p40"]); !strings.Contains(why, "2097152 is the limit of the namespace") ||
		!strings.Contains(why, "62056") {
		t.Errorf("reason %q", why)
	}
}

// TestBoundaryBytesOfNumbers: the numbers that pods have for named ports do not multiply a rule with many peers without bound.
func TestBoundaryBytesOfNumbers(t *testing.T) {
	p := parse(t, `{"podSelector":{},"ingress":[{"from":[`+repeated(MaxPeers, func(i int) string {
		return fmt.Sprintf(`{"podSelector":{"matchLabels":{"a":"%d"}}}`, i)
	})+`],"ports":[`+repeated(MaxPorts, func(i int) string { return fmt.Sprintf(`{"port":"p%d"}`, i) })+`]}]}`)
	s, _ := NewSet("shop/blue", "shop", []*Policy{p}, true)
	var has []Named
	for _, name := range s.Names() {
		for n := range uint16(MaxNumbers) {
			has = append(has, Named{name, "shop", 1 + n})
		}
	}
	s.SetNumbers(has, nil)
	bytes := 0
	for _, acls := range s.ACLs(func(Selector) string { return nameOfGroup }) {
		for _, a := range acls {
			bytes += len(a.Match)
		}
	}
	if bytes > maxNumberBytes+MaxBytes {
		t.Errorf("%d bytes, more than %d for numbers and %d for the policy", bytes, maxNumberBytes, MaxBytes)
	}
	if s.Limit(p) == nil {
		t.Error("the state does not say that numbers are beyond the limit")
	}
}
