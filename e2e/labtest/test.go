// Package labtest owns what the scenarios share, on whatever they run: how a check fails, how long a wait may take, and
// the world that a scenario has to leave as it was. It may not know any scenario.
package labtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// NetworksAnnotation requests a pod's attachments.
const NetworksAnnotation = "k8s.v1.cni.cncf.io/networks"

// Soon bounds the wait for what the product does by itself after a call: the agent retries a release after some seconds.
// Tests that expect failures set OVN_MULTINET_SOON to wait less.
var Soon = soon()

func soon() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("OVN_MULTINET_SOON")); err == nil {
		return d
	}
	return 3 * time.Minute
}

// Test is a running test with its deadline.
type Test struct {
	T   testing.TB // its errors name all lines of the test that led to them: no function here calls Helper
	Ctx context.Context
}

// New returns the test with a time limit: a scenario that hangs should say where, before the test binary's own limit.
func New(t testing.TB, limit time.Duration) Test {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return Test{Traced(t), ctx}
}

// Must ends the test on an error.
func (t Test) Must(err error) {
	if err != nil {
		t.T.Fatal(err)
	}
}

// Eventually waits until cond returns nil, or ends the test.
func (t Test) Eventually(cond func() error) {
	ctx, cancel := context.WithTimeout(t.Ctx, Soon)
	defer cancel()
	t.Must(lab.Eventually(ctx, cond))
}

// Part runs a subtest.
func (t Test) Part(name string, part func(*testing.T)) bool {
	return t.T.(traced).TB.(*testing.T).Run(name, part)
}

// Read returns what is in a file.
func (t Test) Read(path string) []byte {
	text, err := os.ReadFile(path)
	t.Must(err)
	return text
}

// Glob lists the files that match a pattern.
func (t Test) Glob(pattern string) []string {
	files, err := filepath.Glob(pattern)
	t.Must(err)
	return files
}

// JSON encodes a value.
func (t Test) JSON(v any) []byte {
	text, err := json.Marshal(v)
	t.Must(err)
	return text
}

// Traced is a test whose errors name the lines of the test that led to them.
func Traced(t testing.TB) testing.TB { return traced{t} }

type traced struct{ testing.TB }

func (t traced) Error(args ...any) { t.Helper(); t.TB.Error(where(), fmt.Sprint(args...)) }
func (t traced) Fatal(args ...any) { t.Helper(); t.TB.Fatal(where(), fmt.Sprint(args...)) }

func (t traced) Errorf(format string, args ...any) {
	t.Helper()
	t.TB.Error(where(), fmt.Sprintf(format, args...))
}

func (t traced) Fatalf(format string, args ...any) {
	t.Helper()
	t.TB.Fatal(where(), fmt.Sprintf(format, args...))
}

// where lists the lines of test files on the stack, the innermost first.
func where() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	var lines []string
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); strings.HasSuffix(f.File, "_test.go") {
			lines = append(lines, fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line))
		}
	}
	return "at " + strings.Join(lines, " from ") + ":"
}

// Equal compares two values as they are printed, and says what they are of.
func Equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}
