package stale_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovn-multinet/ovn-multinet/internal/stale"
)

// A pass is written as the keys that it sees; "!" at its end is a pass that returns early. Passes are a minute apart.
func TestTracker(t *testing.T) {
	tests := []struct {
		name   string
		period time.Duration
		passes []string
		want   []string // the keys that each pass confirms
	}{
		{"two passes in a row", 0, []string{"a", "ab", "ab"}, []string{"", "a", "ab"}},
		{"twice in one pass", 0, []string{"aa", "aa"}, []string{"", "aa"}},
		{"not in a row", 0, []string{"a", "", "a", "a"}, []string{"", "", "", "a"}},
		{"a pass that returns early", 0, []string{"a", "!", "a", "a"}, []string{"", "", "", "a"}},
		{"a pass that confirms and returns early", 0, []string{"a", "a!", "a", "a"}, []string{"", "a", "", "a"}},
		{"a period", 2 * time.Minute, []string{"a", "ab", "ab", "b"}, []string{"", "", "a", "b"}},
		{"a period with a gap", 2 * time.Minute, []string{"a", "", "a", "a", "a"}, []string{"", "", "", "", "a"}},
		{"a period and a pass that returns early", 2 * time.Minute, []string{"a", "a!", "a", "a", "a"},
			[]string{"", "", "", "", "a"}},
		{"passes further apart than the period", time.Second, []string{"a", "a"}, []string{"", "a"}},
		{"just before the end of the period", time.Minute + 1, []string{"a", "a", "a"}, []string{"", "", "a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tracker := stale.Tracker[rune]{Period: tt.period}
				for i, keys := range tt.passes {
					keys, early := strings.CutSuffix(keys, "!")
					confirmed := ""
					pass := tracker.Begin()
					for _, key := range keys {
						if pass.Saw(key) {
							confirmed += string(key)
						}
					}
					if !early {
						pass.End()
					}
					if confirmed != tt.want[i] {
						t.Errorf("pass %d confirms %q, want %q", i+1, confirmed, tt.want[i])
					}
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

// The period counts from the beginning of the pass that saw a key first, however long the passes take.
func TestPeriodBeginsWithThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := stale.Tracker[string]{Period: time.Minute}
		pass := tracker.Begin()
		time.Sleep(40 * time.Second)
		pass.Saw("a")
		pass.End()
		pass = tracker.Begin()
		time.Sleep(time.Minute)
		if pass.Saw("a") {
			t.Error("confirmed by a pass that began 40 s after the first one")
		}
	})
}

func Example() {
	var tracker stale.Tracker[string]
	for range 2 {
		pass := tracker.Begin()
		for _, port := range []string{"port-1", "port-2"} { // return before End when this list cannot be read
			fmt.Println(port, pass.Saw(port))
		}
		pass.End()
	}
	// Output:
	// port-1 false
	// port-2 false
	// port-1 true
	// port-2 true
}
