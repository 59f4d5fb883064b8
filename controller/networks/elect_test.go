package networks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

func overlay(subnets string) string {
	return fmt.Sprintf(`{"type":"ovn-k8s-cni-overlay","name":"tenant","topology":"layer2","subnets":%q}`, subnets)
}

// nad is a member: "<namespace>/<name>", its age's order, its subnets; "x" is not valid.
func nad(t *testing.T, id string, created int64, subnets string) *member {
	t.Helper()
	namespace, name, _ := strings.Cut(id, "/")
	m := &member{nad: netmodel.NAD{Namespace: namespace, Name: name, Created: created}}
	var err error
	if m.network, err = netmodel.ParseNetwork(namespace, name, []byte(overlay(subnets))); err != nil {
		m.network, m.err = nil, errors.New("invalid")
	}
	return m
}

func TestElect(t *testing.T) {
	const (
		a, b    = "10.1.0.0/24", "10.2.0.0/24"
		differs = "it differs from %s, which describes network tenant too: subnets: %s is not %s"
		mayNot  = "network tenant is of namespace shop, and namespace dev may not join it: let it with the controller's --joining-namespaces"
	)
	type in struct {
		id      string
		created int64
		subnets string
	}
	tests := []struct {
		name    string
		members []in
		current string
		joining []string
		before  []string          // accepted so far
		chosen  string            // subnets; "": none
		refused map[string]string // NAD to why; the others are accepted
	}{
		{"one", []in{{"shop/a", 1, a}}, "", nil, nil, a, nil},
		{"agreement", []in{{"shop/a", 1, a}, {"shop/b", 2, a}}, "", nil, nil, a, nil},
		{"the oldest wins", []in{{"shop/a", 2, a}, {"shop/b", 1, b}}, "", nil, nil, b, map[string]string{"shop/a": fmt.Sprintf(differs, "shop/b", a, b)}},
		{"of one age, the first name", []in{{"shop/b", 1, b}, {"shop/a", 1, a}}, "", nil, nil, a, map[string]string{"shop/b": fmt.Sprintf(differs, "shop/a", b, a)}},
		{"what is in force wins", []in{{"shop/a", 2, a}, {"shop/b", 1, b}}, a, nil, nil, a, map[string]string{"shop/b": fmt.Sprintf(differs, "shop/a", b, a)}},
		{"nobody wants what is in force", []in{{"shop/a", 2, a}, {"shop/b", 1, b}}, "10.3.0.0/24", nil, nil, b,
			map[string]string{"shop/a": fmt.Sprintf(differs, "shop/b", a, b)}},
		{"another namespace", []in{{"shop/a", 1, a}, {"dev/a", 2, a}}, "", nil, nil, a, map[string]string{"dev/a": mayNot}},
		{"another namespace that may join", []in{{"shop/a", 1, a}, {"dev/a", 2, a}}, "", []string{"dev"}, nil, a, nil},
		{"the oldest owns the name", []in{{"dev/a", 2, a}, {"shop/a", 1, b}}, a, nil, nil, b, map[string]string{"dev/a": mayNot}},
		{"one that may join and is in force", []in{{"dev/a", 2, a}, {"shop/a", 1, b}}, a, []string{"dev"}, nil, a,
			map[string]string{"shop/a": fmt.Sprintf(differs, "dev/a", b, a)}},
		{"who came first stays the owner", []in{{"abc/a", 0, a}, {"shop/a", 0, a}}, a, []string{"abc"}, []string{"shop/a"}, a, nil},
		{"one that joins never owns", []in{{"dev/a", 0, a}, {"shop/a", 0, a}}, a, []string{"dev"}, []string{"dev/a", "shop/a"}, a, nil},
		{"the owner is another since", []in{{"dev/a", 1, a}, {"shop/a", 0, a}}, a, nil, []string{"dev/a"}, a,
			map[string]string{"shop/a": "network tenant is of namespace dev, and namespace shop may not join it: let it with the controller's --joining-namespaces"}},
		{"invalid ones have no vote", []in{{"dev/a", 1, "x"}, {"shop/a", 2, a}}, "", nil, nil, a, map[string]string{"dev/a": "invalid"}},
		{"none valid", []in{{"shop/a", 1, "x"}, {"shop/b", 2, "x"}}, a, nil, nil, "", map[string]string{"shop/a": "invalid", "shop/b": "invalid"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var members []*member
			for _, m := range tt.members {
				members = append(members, nad(t, m.id, m.created, m.subnets))
			}
			var current *netmodel.Network
			if tt.current != "" {
				current = nad(t, "x/x", 0, tt.current).network
			}
			chosen, got := elect(members, "", current, tt.before, func(ns string) bool { return slices.Contains(tt.joining, ns) }), ""
			if chosen != nil {
				got = chosen.Subnets[0].String()
			}
			if got != tt.chosen {
				t.Errorf("chosen is %q, want %q", got, tt.chosen)
			}
			for _, m := range members {
				reason := ""
				if m.err != nil {
					reason = m.err.Error()
				}
				if reason != tt.refused[m.nad.ID()] {
					t.Errorf("%s is refused with %q,\nwant %q", m.nad.ID(), reason, tt.refused[m.nad.ID()])
				}
			}
		})
	}
}
