package policy

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkRules is a policy of about the largest size: 30 rules with 64 ranges of ports each. Compare the bytes of "count"
// with those of "acls": the size of a policy is known before its ACLs are made.
func BenchmarkRules(b *testing.B) {
	var rules, ports []string
	for i := range 64 {
		ports = append(ports, fmt.Sprintf(`{"port":%d,"endPort":%d}`, 1+1000*i, 500+1001*i))
	}
	for i := range 30 {
		rules = append(rules, fmt.Sprintf(`{"from":[{"podSelector":{"matchLabels":{"app":"a%d"}}}],"ports":[%s]}`, i, strings.Join(ports, ",")))
	}
	networks := map[string]string{ForAnnotation: "blue"}
	spec := []byte(`{"podSelector":{},"ingress":[` + strings.Join(rules, ",") + `]}`)
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(spec)))
		for b.Loop() {
			if _, err := Parse("shop", "a", networks, spec); err != nil {
				b.Fatal(err)
			}
		}
	})
	p, err := Parse("shop", "a", networks, spec)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("count", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = p.Bytes()
		}
	})
	b.Run("acls", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			SetOf("shop/blue", "shop", []*Policy{p}).ACLs(func(s Selector) string { return s.String() })
		}
	})
}
