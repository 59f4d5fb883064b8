package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRepeated(t *testing.T) {
	const fault, other = "    start.go:1: repeat TestA: it failed, and node1 aborted\n", "--- FAIL: TestB (1s)\n"
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"by the fault alone":  {"=== RUN TestA\n" + fault + "--- FAIL: TestA (1s)\n    --- FAIL: TestA/sub (1s)\n--- PASS: TestB\nFAIL\n", []string{"TestA"}},
		"and another test":    {fault + "--- FAIL: TestA (1s)\n" + other, nil},
		"another test alone":  {other, nil},
		"no test: the build":  {"FAIL\tx [build failed]\n", nil},
		"a panic":             {fault + "--- FAIL: TestA (1s)\npanic: x\nexit status 2\nFAIL\tx\t1s\n", nil},
		"the end of the time": {fault + "--- FAIL: TestA (1s)\npanic: test timed out after 2h0m0s\nFAIL\tx\t7200s\n", nil},
		"a killed program":    {fault + "--- FAIL: TestA (1s)\nsignal: killed\nFAIL\tx\t1s\n", nil},
		"and another build":   {fault + "--- FAIL: TestA (1s)\nexit status 1\nFAIL\tx\t1s\nFAIL\ty [build failed]\n", nil},
		"a test that went on": {fault + "--- PASS: TestA (1s)\n" + other, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := repeated(tt.text); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestRun: the second run has the repeated tests alone, and its exit code decides.
func TestRun(t *testing.T) {
	for want, second := range []string{"exit 0", "exit 1"} {
		mark := filepath.Join(t.TempDir(), "mark")
		script := filepath.Join(t.TempDir(), "test.sh")
		text := "if [ -e " + mark + " ]; then echo second: \"$@\"; " + second + "; fi\ntouch " + mark +
			"\necho 'repeat TestA: it failed, and x'; echo '--- FAIL: TestA (1s)'; exit 1\n"
		if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if code := run([]string{"sh", script, "-v"}, &out); code != want || !strings.Contains(out.String(), "second: -v -run ^(TestA)$") {
			t.Errorf("code %d, want %d:\n%s", code, want, out.String())
		}
	}
}

// TestLeftBehind: a process that a command leaves behind with its output does not stop the run, and is a failure.
func TestLeftBehind(t *testing.T) {
	waitDelay = 100 * time.Millisecond
	t.Cleanup(func() { waitDelay = time.Minute })
	for script, want := range map[string]int{"": 2, "; exit 3": 3} {
		pid, out := filepath.Join(t.TempDir(), "pid"), strings.Builder{}
		t.Cleanup(func() {
			if text, err := os.ReadFile(pid); err == nil {
				_ = exec.Command("kill", strings.TrimSpace(string(text))).Run()
			}
		})
		if got := run([]string{"sh", "-c", "sleep 1000 & echo $! >" + pid + "; echo output" + script}, &out); got != want {
			t.Errorf("exit code %d, want %d", got, want)
		}
		if out.String() != "output\n" {
			t.Errorf("output %q", out.String())
		}
	}
}
