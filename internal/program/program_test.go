package program

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// capture runs a function and returns what it writes to standard output or standard error.
func capture(t *testing.T, stream **os.File, run func()) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	old := *stream
	*stream = file
	defer func() { *stream = old }()
	run()
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// runMain runs Main with arguments and returns its exit code and what it writes to standard error.
func runMain(t *testing.T, run func(context.Context) error, args ...string) (code int, stderr string) {
	t.Helper()
	cmd := &cobra.Command{Use: "prog", RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) }}
	cmd.Flags().Int("size", 0, "")
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	stderr = capture(t, &os.Stderr, func() { code = Main(cmd) })
	return code, stderr
}

func TestMainExits(t *testing.T) {
	tests := []struct {
		name   string
		env    map[string]string
		args   []string
		err    error
		code   int
		stderr string
	}{
		{"fine", nil, nil, nil, 0, ""},
		{"failed: one line", nil, nil, errors.New("--bridge is empty"), 1, "prog: --bridge is empty\n"},
		{"an exit code of its own", nil, nil, &Exit{Code: 2, Err: errors.New("no cluster")}, 2, "prog: no cluster\n"},
		{"an exit code alone", nil, nil, &Exit{Code: 3}, 3, ""},
		{"unknown flag", nil, []string{"--colour"}, nil, 1, "prog: unknown flag: --colour\n"},
		{"a word too many", nil, []string{"word"}, nil, 1, "prog: unknown command \"word\" for \"prog\"\n"},
		{"a wrong value in the environment", map[string]string{"OVN_MULTINET_SIZE": "big"}, nil, nil, 1,
			`prog: OVN_MULTINET_SIZE: invalid argument "big" for "--size" flag: strconv.ParseInt: parsing "big": invalid syntax` + "\n"},
		{
			"variables of no flag", map[string]string{"OVN_MULTINET_VERSION": "9.9", "OVN_MULTINET_HELP": "me"}, nil,
			nil, 0, "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			code, stderr := runMain(t, func(context.Context) error { return tt.err }, tt.args...)
			if code != tt.code || stderr != tt.stderr {
				t.Errorf("got  %d %q\nwant %d %q", code, stderr, tt.code, tt.stderr)
			}
		})
	}
}

func TestMainPrintsTheVersion(t *testing.T) {
	cmd := &cobra.Command{
		Use: "prog", RunE: func(*cobra.Command, []string) error { return errors.New("the program ran") },
	}
	cmd.SetArgs([]string{"--version"})
	code := 0
	stdout := capture(t, &os.Stdout, func() { code = Main(cmd) })
	if want := "prog version " + version.String() + "\n"; code != 0 || stdout != want {
		t.Errorf("got %d %q, want %q", code, stdout, want)
	}
	if name := filepath.Base(os.Args[0]); UserAgent() != name+"/"+version.Number {
		t.Errorf("the user agent is %s", UserAgent())
	}
}

func TestMainEndsBySignal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			code, stderr := runMain(t, func(ctx context.Context) error {
				if err := syscall.Kill(os.Getpid(), sig); err != nil {
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(2 * time.Minute):
					return errors.New("still running")
				}
			})
			if code != 0 || stderr != "" {
				t.Errorf("%d %q", code, stderr)
			}
		})
	}
}

func TestLogger(t *testing.T) {
	for _, level := range conf.LogLevels {
		var want slog.Level
		if err := want.UnmarshalText([]byte(level)); err != nil {
			t.Fatal(err)
		}
		log := Logger(level)
		if !log.Enabled(context.Background(), want) || log.Enabled(context.Background(), want-1) {
			t.Errorf("level %s: the log does not begin there", level)
		}
	}
}

// Errors in a log may hold what tenants wrote: a value has a bound, and no line's end.
func TestBoundaryLogValuesAreShort(t *testing.T) {
	long := strings.Repeat("x\n", 1<<20)
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: shortAttr}))
	log.Warn("not in sync yet", "err", errors.New(long), "nad", long, "n", 7, "short", "y")
	if text := out.String(); len(text) > 4*maxAttr || strings.Count(text, "\n") != 1 || !strings.Contains(text, " n=7 short=y") {
		t.Errorf("a line of %d bytes with %d ends: …%q", len(text), strings.Count(text, "\n"),
			text[max(0, len(text)-100):])
	}
}
