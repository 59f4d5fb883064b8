package program

import (
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// LogFlag adds the flag for the log level.
func LogFlag(flags *pflag.FlagSet, level *string) {
	flags.StringVar(level, "log-level", "info", "one of "+strings.Join(conf.LogLevels, ", "))
}

// Logger returns a logger that writes lines of the given level and above to standard error.
func Logger(level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo // package conf refuses an unknown level
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l, ReplaceAttr: shortAttr}))
}

// maxAttr limits the length of one value in the log, in bytes. The longest useful value is a stack trace.
const maxAttr = 8 << 10

// shortAttr shortens a long value. A tenant can write text of any length that ends up in an error and so in the log.
// The handler quotes line ends.
func shortAttr(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch value := a.Value.Any().(type) {
	case string:
		text = value
	case error:
		text = value.Error()
	}
	if len(text) > maxAttr {
		a.Value = slog.StringValue(text[:maxAttr] + "…")
	}
	return a
}
