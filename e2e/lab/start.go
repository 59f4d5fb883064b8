package lab

import "context"

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
	l, err := New(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			dir, err := l.KeepLogs("")
			t.Logf("logs are in %s (error: %v)", dir, err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("close the lab: %v", err)
		}
	})
	return l
}
