package conf

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	known := []string{"subnets", "excludeSubnets", "gateway", "mtu", "vlanID", "vlanip", "portSecurity"}
	tests := []struct{ word, want string }{
		{"subnet", "subnets"},
		{"subents", "subnets"},
		{"exclude_subnets", "excludeSubnets"},
		{"MTU", "mtu"},
		{"vlanid", "vlanID"},
		{"vlan", "vlanID"},
		{"gatewy", "gateway"},
		{"port-security", "portSecurity"},
		{"colour", ""},
		{"x", ""},
		{"", ""},
		{strings.Repeat("x", 500), ""},
		{strings.Repeat("é", 500), ""},
		{"subnets" + strings.Repeat("x", 5), "subnets"},
	}
	for _, tt := range tests {
		if got := Nearest(tt.word, known); got != tt.want {
			t.Errorf("%.20q: %q, want %q", tt.word, got, tt.want)
		}
	}
}

func TestDistance(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "acb", 2}, {"kitten", "sitting", 3},
		{"flaw", "lawn", 2}, {strings.Repeat("a", 64) + "tail", strings.Repeat("a", 64), 0},
	}
	for _, tt := range tests {
		if got, back := distance(tt.a, tt.b), distance(tt.b, tt.a); got != tt.want || back != tt.want {
			t.Errorf("%q and %q: %d and %d, want %d", tt.a, tt.b, got, back, tt.want)
		}
	}
}

// The nearest key of a word is looked for in its first letters only, whatever its length.
func TestBoundaryNearestOfALongWord(t *testing.T) {
	word := "subnet" + strings.Repeat("X", 1<<20)
	keys := []string{"subnets", "excludeSubnets", "topology"}
	long := testing.AllocsPerRun(1, func() { Nearest(word, keys) })
	short := testing.AllocsPerRun(1, func() { Nearest(word[:maxWord], keys) })
	if long != short {
		t.Errorf("%v allocations for a word of a megabyte, %v for its beginning", long, short)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Nearest(word, keys)
	runtime.ReadMemStats(&after)
	bytes := after.TotalAlloc - before.TotalAlloc
	if bytes > 64<<10 {
		t.Errorf("%d bytes for one word", bytes)
	}
	t.Attr("boundary.bytes-per-nearest", strconv.FormatUint(bytes, 10))
}
