package source

import (
	"log/slog"

	"k8s.io/klog/v2"
)

// client-go has its own log, to standard error: what it says of the faults that these tests make drowns their own words.
func init() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) }
