package cost

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestParseLimits: what an entry does not say is that of "*", and then the default.
func TestParseLimits(t *testing.T) {
	normal := Default()
	tests := []struct{ name, text, want string }{
		{"nothing", `{}`, "shop: default"},
		{"a namespace", `{"shop":{"endpoints":7}}`, "shop: endpoints 7"},
		{"all", `{"*":{"flows":9}}`, "shop: flows 9"},
		{"both", `{"*":{"flows":9},"shop":{"endpoints":7}}`, "shop: flows 9 endpoints 7"},
		{"none", `{"shop":{"bytes":0}}`, "shop: bytes 0"},
		{"an unknown resource", `{"shop":{"endpoint":7}}`, `limits: shop: unknown key "endpoint", did you mean "endpoints"?`},
		{"less than nothing", `{"shop":{"flows":-1}}`, "limits: shop: flows: -1 is no number, 0 or more"},
		{"no number", `{"*":{"groups":"many"}}`, `limits: *: groups: "many" is no number, 0 or more`},
		{"null", `{"*":{"groups":null}}`, `limits: *: groups: null is no number, 0 or more`},
		{"no namespace", `{"Shop":{"flows":1}}`, `limits: "Shop" is no namespace, and not "*" for all others`},
		{"no object", `{"shop":7}`, "limits: shop: a JSON number where another kind of value is wanted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var entries map[string]json.RawMessage
			if err := json.Unmarshal([]byte(tt.text), &entries); err != nil {
				t.Fatal(err)
			}
			l, err := ParseLimits(entries, func(s string) bool { return s == strings.ToLower(s) })
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = "shop:"
				for _, r := range All() {
					if n := l.Of("shop")[r]; n != normal[r] {
						got += " " + r.String() + " " + string(rune('0'+n))
					}
				}
				if got == "shop:" {
					got += " default"
				}
			}
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestRefusal: an object that needs nothing of a resource is not refused because of it.
func TestRefusal(t *testing.T) {
	needs := Cost{Bytes: 10, Endpoints: 5}
	if r, beyond := needs.Beyond(Cost{Bytes: 10, Endpoints: 5, Flows: -3}); beyond {
		t.Errorf("refused because of %s", r)
	}
	if r, beyond := needs.Beyond(Cost{Bytes: 10, Endpoints: 4}); !beyond || r != Endpoints {
		t.Errorf("refused %t because of %s, want endpoints", beyond, r)
	}
}
