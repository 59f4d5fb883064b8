package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func parse(t *testing.T, spec string) *Policy {
	t.Helper()
	p, err := Parse("shop", "p", map[string]string{ForAnnotation: "blue, other/red,blue"}, []byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParse(t *testing.T) {
	p := parse(t, `{"podSelector":{"matchLabels":{"app":"db"}},"ingress":[
		{"from":[{"podSelector":{}},{"namespaceSelector":{"matchLabels":{"team":"a"}}},
			{"ipBlock":{"cidr":"10.1.0.9/16","except":["10.1.0.0/17"]}},{"ipBlock":{"cidr":"fd01::/64"}}],
		 "ports":[{"port":80},{"protocol":"SCTP","port":5,"endPort":9},{"protocol":"UDP"},{"port":"web"}]}]}`)
	if !slices.Equal(p.Networks, []string{"other/red", "shop/blue"}) || p.Subject.Pods != "app=db" || p.Egress != nil {
		t.Errorf("got %+v", p)
	}
	r := (*p.Ingress)[0]
	wantPeers := []Selector{{}, {Anywhere: true, Namespaces: "team=a"}}
	if !slices.Equal(r.Peers, wantPeers) || r.Any {
		t.Errorf("peers %+v, want %+v", r.Peers, wantPeers)
	}
	if len(r.CIDRs) != 2 || r.CIDRs[0].String() != "10.1.128.0/17" || r.CIDRs[1].String() != "fd01::/64" {
		t.Errorf("CIDRs %v", r.CIDRs)
	}
	if want := []Port{{"sctp", 5, 9, ""}, {"tcp", 80, 80, ""}, {"tcp", 0, 0, "web"}, {"udp", 0, 0, ""}}; !slices.Equal(r.Ports, want) {
		t.Errorf("ports %v, want %v", r.Ports, want)
	}
}

// TestParseDirections: which directions a policy restricts (networking.k8s.io/v1, field policyTypes).
func TestParseDirections(t *testing.T) {
	tests := []struct {
		spec            string
		ingress, egress int // the number of rules; -1: not restricted
	}{
		{`{"podSelector":{}}`, 0, -1},
		{`{"podSelector":{},"ingress":[{}]}`, 1, -1},
		{`{"podSelector":{},"egress":[{}]}`, 0, 1},
		{`{"podSelector":{},"policyTypes":["Egress"]}`, -1, 0},
		{`{"podSelector":{},"policyTypes":["Egress"],"ingress":[{}]}`, -1, 0},
		{`{"podSelector":{},"policyTypes":["Ingress","Egress"],"egress":[{},{}]}`, 0, 2},
	}
	count := func(r *Rules) int {
		if r == nil {
			return -1
		}
		return len(*r)
	}
	for _, tt := range tests {
		if p := parse(t, tt.spec); count(p.Ingress) != tt.ingress || count(p.Egress) != tt.egress {
			t.Errorf("%s: %d rules of ingress and %d of egress, want %d and %d",
				tt.spec, count(p.Ingress), count(p.Egress), tt.ingress, tt.egress)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	many := func(n int, one string) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	names := ""
	for i := range MaxPorts {
		names += fmt.Sprintf(`{"port":"web%d"},`, i)
	}
	names = strings.TrimSuffix(names, ",")
	peer := func(peer string) string { return `{"podSelector":{},"ingress":[{"from":[` + peer + `]}]}` }
	port := func(port string) string { return `{"podSelector":{},"egress":[{"ports":[` + port + `]}]}` }
	tests := []struct{ name, spec, why string }{
		{"no JSON", `{`, "spec: "},
		{"an unknown field", `{"podSelector":{},"ingress":[{"fromm":[]}]}`, "fromm"},
		{"a field twice", `{"podSelector":{},"ingress":[],"ingress":[{}]}`, "duplicate"},
		{"a bad selector", `{"podSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}`, "spec.podSelector"},
		{"an unknown direction", `{"podSelector":{},"policyTypes":["Both"]}`, `"Both"`},
		{"an empty peer", peer(`{}`), "spec.ingress[0].from[0]: it is empty"},
		{"two kinds of peers in one", peer(`{"ipBlock":{"cidr":"10.0.0.0/8"},"podSelector":{}}`), "write two peers"},
		{"a bad CIDR", peer(`{"ipBlock":{"cidr":"10.0.0.0"}}`), "spec.ingress[0].from[0].ipBlock.cidr"},
		{"an exception outside", peer(`{"ipBlock":{"cidr":"10.0.0.0/8","except":["11.0.0.0/9"]}}`), "not inside"},
		{"an exception that is wider", peer(`{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.0.0.0/7"]}}`), "not inside"},
		{"an IPv4 address in IPv6", peer(`{"ipBlock":{"cidr":"::ffff:10.0.0.0/104"}}`), "the IPv4 address itself"},
		{"no name of a port", port(`{"port":"80"}`), `"80" is neither a number nor the name of a port`},
		{"a range that begins with a name", port(`{"port":"web","endPort":8}`), `"web" is a name`},
		{"another protocol", port(`{"protocol":"ICMP"}`), `"ICMP"`},
		{"a range that ends before it begins", port(`{"port":9,"endPort":8}`), "not a range"},
		{"port 0", port(`{"port":0}`), "not a range"},
		{"an end alone", port(`{"endPort":8}`), "needs a port"},
		{"many rules", `{"podSelector":{},"ingress":[` + many(MaxRules+1, "{}") + `]}`, "64 is the limit"},
		{"many peers", peer(many(MaxPeers+1, `{"podSelector":{}}`)), "64 is the limit"},
		{"many ports", port(many(MaxPorts+1, `{"port":1}`)), "64 is the limit"},
		{"many names of peers", `{"podSelector":{},"egress":[` + many(16, `{"to":[`+many(MaxPeers, `{"podSelector":{}}`)+
			`],"ports":[`+names+`]}`) + `]}`, "1024 named ports of pods and peers"},
		{"an exception that is an address", peer(`{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.0.0.1"]}}`), ""},
		{"an exception that is no address", peer(`{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.0.0"]}}`), "except[0]"},
		{"an exception with a zone", peer(`{"ipBlock":{"cidr":"fe80::/64","except":["fe80::1%a"]}}`), "except[0]"},
		{"many CIDRs by one exception each", peer(many(40, `{"ipBlock":{"cidr":"::/0","except":["fd00::1/128"]}}`)), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("shop", "p", map[string]string{ForAnnotation: "blue"}, []byte(tt.spec))
			if tt.why == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.why) {
				t.Errorf("error %v, want %q", err, tt.why)
			}
		})
	}
	for _, text := range []string{"", " ", "a/b/c", "/b", "a,,b"} {
		if _, err := Parse("shop", "p", map[string]string{ForAnnotation: text}, []byte(`{"podSelector":{}}`)); err == nil {
			t.Errorf("networks %q are accepted", text)
		}
	}
}

// FuzzParse: whatever a tenant writes, its ACLs are within the limits, and the text that NB stores means the same.
func FuzzParse(f *testing.F) {
	f.Add("blue", `{"podSelector":{},"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}]}]}`)
	f.Add("a/b,c", `{"podSelector":{"matchExpressions":[{"key":"a","operator":"NotIn","values":["b"]}]},"egress":[{"ports":[{"port":1}]}]}`)
	f.Add("a", `{"podSelector":{},"ingress":[{"ports":[{"port":"web"}]}],"egress":[{"to":[{"podSelector":{}}],"ports":[{"port":"web"}]}]}`)
	f.Fuzz(func(t *testing.T, networks, spec string) {
		o := NewObject("shop", "p", 7, map[string]string{ForAnnotation: networks}, []byte(spec), len(spec))
		if o.Policy == nil {
			if o.Refusal == "" {
				t.Error("refused without a reason")
			}
			return
		}
		s, refused := NewSet("shop/blue", "shop", []*Policy{o.Policy}, false)
		if len(refused) != 0 || len(s.Selectors()) > MaxSelectors {
			t.Errorf("refused %v, %d selectors", refused, len(s.Selectors()))
		}
		again, err := ParseText("shop", "p", o.Policy.Text)
		if err != nil {
			t.Fatal(err)
		}
		name := func(Selector) string { return "g" }
		for _, named := range s.Names() {
			s.SetNumbers([]Named{{named, "shop", 80}}, nil)
		}
		if len(s.Selectors()) > MaxSelectors {
			t.Errorf("%d selectors with the numbers of ports", len(s.Selectors()))
		}
		s.SetNumbers(nil, nil)
		a, b := s.ACLs(name), (&Set{Network: "shop/blue", Namespace: "shop", Policies: []*Policy{again}}).ACLs(name)
		if len(a) != len(b) {
			t.Errorf("%v, stored as %v", a, b)
		}
		for selector, rows := range a {
			if !reflect.DeepEqual(rows, b[selector]) {
				t.Errorf("%v, stored as %v", rows, b[selector])
			}
		}
	})
}
