package install

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// flannel is the conflist that Flannel ships.
const flannel = `{
  "name": "cbr0",
  "cniVersion": "0.3.1",
  "plugins": [
    {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}`

// node is a node's folders, with an agent that was ready and no primary network yet.
func node(t *testing.T) Config {
	t.Helper()
	root := t.TempDir()
	c := Config{
		NetDir: filepath.Join(root, "net.d"), BinDir: filepath.Join(root, "bin"), Plugin: filepath.Join(root, "image-plugin"),
		Entry: Entry{
			AgentSocket: filepath.Join(root, "run", "agent.sock"), StateDir: filepath.Join(root, "state"),
			Timeout: "60s",
		},
	}
	for _, dir := range []string{c.NetDir, c.BinDir, filepath.Dir(c.Entry.AgentSocket), c.Entry.StateDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, c.Plugin, "the new plugin")
	write(t, agentapi.ReadyMarker(c.Entry.AgentSocket), "")
	return c
}

// primary is where Flannel's conflist is.
func (c Config) primary() string { return filepath.Join(c.NetDir, "10-flannel.conflist") }

// working is an installer that has started.
func working(t *testing.T, c Config) *installer {
	t.Helper()
	i, err := c.start()
	must(t, err)
	return i
}

// running runs the installer until the end of the test, or until what it returns is called.
func running(t *testing.T, c Config, log io.Writer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c, slog.New(slog.NewTextHandler(log, nil))) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the installer ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// round is Flannel's conflist with a number in it.
func round(n int) string {
	return strings.Replace(flannel, `"hairpinMode"`, fmt.Sprintf(`"round": %d, "hairpinMode"`, n), 1)
}

// roundOf reads that number from a conflist of ours, which is to be whole.
func roundOf(text []byte) (int, error) {
	var list struct {
		Name    string
		Plugins []struct {
			Type     string
			Delegate struct{ Round int }
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return 0, err
	}
	var types []string
	for _, p := range list.Plugins {
		types = append(types, p.Type)
	}
	if got := fmt.Sprint(list.Name, types); got != "cbr0[flannel portmap ovn-multinet]" {
		return 0, fmt.Errorf("it is %s", got)
	}
	return list.Plugins[0].Delegate.Round, nil
}

// withRuntimeKeys adds what a runtime adds to an entry.
func withRuntimeKeys(t *testing.T, entry []byte) []byte {
	t.Helper()
	var keys map[string]any
	if err := json.Unmarshal(entry, &keys); err != nil {
		t.Fatal(err)
	}
	keys["name"], keys["cniVersion"] = "cbr0", "1.0.0"
	text, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// files wants a folder to have exactly these.
func files(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s has %q, want %q", filepath.Base(dir), got, want)
	}
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for giveUp, pause := time.Now().Add(2*time.Minute), time.Tick(time.Millisecond); !is(); <-pause {
		if time.Now().After(giveUp) {
			t.Fatalf("never: %s", what)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(path string) string {
	text, _ := os.ReadFile(path)
	return string(bytes.TrimSpace(text))
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
