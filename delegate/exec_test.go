package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/delegate/delegateconf"
)

// script writes a plugin of a few lines of shell, and returns its path.
func script(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// onePlugin is a list of one plugin, firstStub what libcni makes of that.
var (
	onePlugin = &conflist{plugins: []map[string]json.RawMessage{{"type": json.RawMessage(`"plugin"`)}}}
	firstStub = []byte(`{"ovn-multinet/plugin":0}`)
	thisOne   = &delegateconf.Allowed{Delegates: []string{"plugin"}}
)

// Conformance: C-125 F-14
func TestExecPlugin(t *testing.T) {
	tests := []struct {
		name, lines string
		want        string // its output
		code        uint
		message     string
	}{
		{"what it prints is the result", `echo '{"a":1}'`, "{\"a\":1}\n", 0, ""},
		{"standard error is no result", `echo noise >&2; echo ok`, "ok\n", 0, ""},
		{"it gets the environment", `echo "$CNI_COMMAND"`, "ADD\n", 0, ""},
		{"it gets the configuration", `cat`, `{"type":"plugin"}`, 0, ""},
		{"its own code is kept", `printf %s '{"code":7,"msg":"bad  conf\n here","details":"look"}'; exit 1`, "", 7, "delegate plugin: bad conf here"},
		{"an error that skel gave its code", `echo '{"code":999,"msg":"broken"}'; exit 1`, "", conf.CodeDelegateFailed, "delegate plugin: broken"},
		{"an error without a code", `echo '{"msg":"broken"}'; exit 1`, "", conf.CodeDelegateFailed, "delegate plugin: broken"},
		{"an error that is no JSON", `echo oh no; exit 3`, "", conf.CodeDelegateFailed, "delegate plugin: oh no"},
		{"an error on standard error", `echo "cannot  do" >&2; exit 3`, "", conf.CodeDelegateFailed, "delegate plugin: cannot do"},
		{"a silent error", `exit 3`, "", conf.CodeDelegateFailed, "delegate plugin: exit status 3"},
		{"killed", `kill -9 $$`, "", conf.CodeDelegateFailed, "delegate plugin: signal: killed"},
		{"too much to say", `head -c 2000000 /dev/zero`, "", conf.CodeDelegateFailed, "delegate plugin: it printed more than 1048576 bytes"},
		{"an endless complaint is cut", `head -c 100000 /dev/zero | tr '\0' x >&2; exit 1`, "", conf.CodeDelegateFailed, "delegate plugin: " + strings.Repeat("x", 509) + "…"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := &executor{list: onePlugin, allowed: thisOne}
			out, err := e.ExecPlugin(t.Context(), script(t, tt.lines), firstStub, []string{"CNI_COMMAND=ADD", "PATH=/usr/bin:/bin"})
			if tt.message == "" {
				if err != nil || string(out) != tt.want {
					t.Errorf("%q, %v; want %q", out, err, tt.want)
				}
				return
			}
			if err == nil || err.Error() != tt.message || !conf.HasCode(err, tt.code) || out != nil {
				t.Errorf("%.100q, %v; want %s with code %d", out, err, tt.message, tt.code)
			}
		})
	}
}

// A plugin that hangs is killed at the deadline with all that it started.
func TestHangingPluginIsKilledWithItsGroup(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	lines := `sleep 1000 & echo $! > ` + pids + `.new; echo $$ >> ` + pids + `.new; mv ` + pids + `.new ` + pids + `; wait`
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	passed := errors.New("the deadline of this test")
	done := make(chan error, 1)
	go func() {
		_, err := (&executor{list: onePlugin, allowed: thisOne}).ExecPlugin(ctx, script(t, lines), firstStub, []string{"PATH=/usr/bin:/bin"})
		done <- err
	}()
	var text []byte
	eventually(t, "the plugin runs", func() bool {
		var err error
		text, err = os.ReadFile(pids)
		return err == nil
	})
	cancel(passed)
	select {
	case err := <-done:
		if !errors.Is(err, passed) || !conf.HasCode(err, conf.CodeDelegateFailed) {
			t.Errorf("%v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("it is still waited for")
	}
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "process "+word+" is gone", func() bool { return dead(pid) })
	}
}

// dead reports whether a process is gone, or only waits to be reaped by whoever has inherited it.
func dead(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(text), ") Z ")
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("not so: " + what)
		}
	}
}

// Conformance: N-146 C-15
func TestOnlyWhatIsAllowedIsFound(t *testing.T) {
	dir := filepath.Dir(script(t, "exit 0"))
	e := &executor{allowed: &delegateconf.Allowed{Delegates: []string{"plugin", "elsewhere", "../plugin"}}}
	for _, tt := range []struct {
		name string
		code uint
	}{
		{"plugin", 0}, {"other", conf.CodeNotAllowed}, {"elsewhere", conf.CodeDelegateFailed}, {"../plugin", conf.CodeDelegateFailed}, {"", conf.CodeNotAllowed},
	} {
		path, err := e.FindInPath(tt.name, []string{dir})
		if tt.code == 0 {
			if err != nil || path != filepath.Join(dir, "plugin") {
				t.Errorf("%s: %s, %v", tt.name, path, err)
			}
		} else if !conf.HasCode(err, tt.code) || path != "" {
			t.Errorf("%q: %s, %v; want code %d", tt.name, path, err, tt.code)
		}
	}
}

// TestUncodedTroubleIsTheDelegates: what libcni says itself, of a result or of a plugin that is not there, is a
// plain error. It is the delegate's; an error that has a code keeps it.
// Conformance: F-20
func TestUncodedTroubleIsTheDelegates(t *testing.T) {
	const text = "decoding version from network config: unexpected end of JSON input"
	if code, msg, details := conf.Describe(delegateError(errors.New(text))); code != conf.CodeDelegateFailed || msg != text || details == "" {
		t.Errorf("%d %s (%s)", code, msg, details)
	}
	coded := fmt.Errorf("plugin failed (add): %w", conf.Errorf(119, "look at it", "delegate x: no such wire"))
	if code, _, details := conf.Describe(delegateError(coded)); code != 119 || details != "look at it" {
		t.Errorf("a delegate's own code became %d (%s)", code, details)
	}
}

// A delegate's own words are one short line, in every part of the answer.
func TestBoundaryWordsOfADelegate(t *testing.T) {
	long := strings.Repeat("x\n\x1b[2J", 20000)
	text, err := json.Marshal(map[string]any{"code": 77, "msg": long, "details": long})
	if err != nil {
		t.Fatal(err)
	}
	for name, said := range map[string]error{
		"its error": ownError("alpha", fmt.Errorf("exit status 1"), text, nil), "its standard error": ownError("alpha", fmt.Errorf("exit status 1"), nil, []byte(long)),
	} {
		_, msg, details := conf.Describe(said)
		if len(msg) > 600 || len(details) > conf.MaxMessage || strings.ContainsAny(msg+details, "\n\x1b") || !strings.HasPrefix(msg, "delegate alpha: x ?[2Jx") {
			t.Errorf("%s: %d bytes %.80q, details %d bytes %.80q", name, len(msg), msg, len(details), details)
		}
	}
}
