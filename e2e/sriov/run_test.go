package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestSummary counts what a test binary prints: parts instead of what they are parts of, and what did not run as neither
// passed nor failed.
func TestSummary(t *testing.T) {
	const nested = `=== RUN   TestA
--- PASS: TestA (2.00s)
    --- PASS: TestA/one (1.00s)
        --- PASS: TestA/one/x (1.00s)
        --- PASS: TestA/one/y (0.00s)
    --- PASS: TestA/two (1.00s)
`
	for _, tt := range []struct {
		name, output string
		guest        int // its code
		want         string
		code         int
	}{
		{"parts count", nested + "PASS\n", 0, "3 scenarios: 3 passed, 0 failed, 0 not run, in 7 s", 0},
		{"one fails", nested + "--- FAIL: TestB (0.00s)\nFAIL\n", 1, "4 scenarios: 3 passed, 1 failed, 0 not run, in 7 s", 1},
		{"a part fails", "--- FAIL: TestB (0.00s)\n    --- FAIL: TestB/one (0.00s)\n    --- PASS: TestB/two (0.00s)\n", 1,
			"2 scenarios: 1 passed, 1 failed, 0 not run, in 7 s", 1},
		{"skipped is failed", "--- SKIP: TestB (0.00s)\nPASS\n", 0, "1 scenarios: 0 passed, 1 failed, 0 not run, in 7 s", 1},
		{"not run", "not run: TestB/sriov: why\n" + nested, 0, "not run: TestB/sriov: why\n3 scenarios: 3 passed, 0 failed, 1 not run, in 7 s", 0},
		{"nothing ran", "testing: warning: no tests to run\nPASS\n", 0, "0 scenarios: 0 passed, 0 failed, 0 not run, in 7 s\nno scenario ran", 1},
		{"died in the middle", nested, 2, "3 scenarios: 3 passed, 0 failed, 0 not run, in 7 s", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			s := &summary{out: &out}
			for line := range strings.Lines(tt.output) {
				s.line(strings.TrimSuffix(line, "\n"))
			}
			code := s.end(tt.guest, 7*time.Second)
			if got := out.String(); !strings.HasSuffix(got, "\n"+tt.want+"\n") || strings.Contains(got, "=== RUN") || code != tt.code {
				t.Errorf("code %d, want %d; got\n%s\nwant at its end\n%s", code, tt.code, got, tt.want)
			}
		})
	}
}

// TestResult: a code that the guest reports is none that QEMU ends with by itself.
func TestResult(t *testing.T) {
	for _, tt := range []struct {
		name string
		exit int
		code int
		ok   bool
	}{
		{"QEMU's own error", 1, 0, false},
		{"the guest's kernel gave up", 0, 0, false},
		{"killed", -1, 0, false},
		{"passed", (64+0)<<1 | 1, 0, true},
		{"failed", (64+1)<<1 | 1, 1, true},
		{"the largest code", (64+63)<<1 | 1, 63, true},
	} {
		if code, ok := result(tt.exit); ok != tt.ok || ok && code != tt.code {
			t.Errorf("%s: got %d, %v, want %d, %v", tt.name, code, ok, tt.code, tt.ok)
		}
	}
}
