package lab

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// TB is what [Start] needs of a *testing.T or *testing.B.
type TB interface {
	Helper()
	Name() string
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Start makes a lab for a test and closes it at the test's end. When the test failed, the logs are kept and
// the test says where.
func Start(t TB, o Options) *Lab {
	t.Helper()
	if err := noteSources(); err != nil {
		t.Fatalf("%v", err)
	}
	l, err := New(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		for _, n := range l.Nodes {
			if n.VSwitchd != nil && n.VSwitchd.Faults() > 0 {
				t.Logf("%s aborted %d times by a fault of Open vSwitch, and was started again", n.VSwitchd.Name, n.VSwitchd.Faults())
			}
		}
		if t.Failed() {
			ctx, cancel := context.WithTimeout(context.Background(), defaultPatience)
			defer cancel()
			faults, err := l.faultsOf(ctx)
			if err != nil {
				t.Logf("whether OVN or Open vSwitch had a fault is unknown: %v", err)
			}
			for _, fault := range faults {
				name, _, _ := strings.Cut(t.Name(), "/")
				t.Logf("repeat %s: it failed, and %s", name, fault) // hack/again reads this
			}
			dir, err := l.KeepLogs("")
			t.Logf("logs are in %s (error: %v)", dir, err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("close the lab: %v", err)
		}
	})
	return l
}

// noteSources opens the folders of the module's code. Go's cache of test results looks at what a test opened, but not at
// what the programs were built of that it ran: without it, a change there would leave old results standing.
func noteSources() error {
	root, err := ModuleRoot()
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		if strings.HasPrefix(e.Name(), ".") {
			return fs.SkipDir
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return f.Close()
	})
}
