package leader

import (
	"log/slog"

	"k8s.io/klog/v2"
)

// client-go logs the errors that these tests cause to standard error. Discard them, so that the tests' own output is
// visible.
func init() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) }
