package configfile

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// mounted is a folder like the one that kubelet makes for a ConfigMap with one file.
type mounted struct {
	dir      string
	versions int
}

// write changes the file as kubelet does when the ConfigMap changes: the new content is in a new folder, and a rename
// replaces the link to the folder. The file itself is a link that never changes.
func (m *mounted) write(t *testing.T, text string) {
	t.Helper()
	m.versions++
	folder := fmt.Sprintf("..2026_11_20_%d", m.versions)
	old, _ := os.Readlink(filepath.Join(m.dir, "..data"))
	for _, err := range []error{
		os.Mkdir(filepath.Join(m.dir, folder), 0o755),
		os.WriteFile(filepath.Join(m.dir, folder, "controller.yaml"), []byte(text), 0o600),
		os.Symlink(folder, filepath.Join(m.dir, "..data_tmp")),
		os.Rename(filepath.Join(m.dir, "..data_tmp"), filepath.Join(m.dir, "..data")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if old == "" {
		if err := os.Symlink("..data/controller.yaml", m.file()); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.RemoveAll(filepath.Join(m.dir, old)); err != nil {
		t.Fatal(err)
	}
}

func (m *mounted) file() string { return filepath.Join(m.dir, "controller.yaml") }

// following is a running File.Follow. changes receives the names of the routers after each change.
type following struct {
	log      chan string
	changes  chan string
	registry *prometheus.Registry
}

func follow(t *testing.T, path string) *following {
	t.Helper()
	f, _, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f.after = at
	out := &following{log: make(chan string, 100), changes: make(chan string, 100), registry: prometheus.NewRegistry()}
	f.Register(out.registry)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- f.Follow(ctx, slog.New(slog.NewTextHandler(lines(out.log), nil)), func(c Config) {
			out.changes <- strings.Join(slices.Sorted(maps.Keys(c.Routers)), " ")
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return out
}

// at returns a timer that has expired already.
func at(time.Duration) <-chan time.Time {
	now := make(chan time.Time)
	close(now)
	return now
}

// lines receives each line of a log.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

var _ io.Writer = lines(nil)

// next waits for the next text of a channel.
func next(t *testing.T, from <-chan string) string {
	t.Helper()
	select {
	case text := <-from:
		return text
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing happens")
		return ""
	}
}

func (f *following) invalid(t *testing.T) float64 {
	t.Helper()
	families, err := f.registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "ovn_multinet_controller_config_invalid" {
		t.Fatalf("%v, %v", families, err)
	}
	return families[0].GetMetric()[0].GetGauge().GetValue()
}

// A change of the ConfigMap takes effect without a restart. An invalid change has no effect.
func TestConfigIsFollowed(t *testing.T) {
	m := &mounted{dir: t.TempDir()}
	m.write(t, edge)
	f := follow(t, m.file())
	m.write(t, strings.ReplaceAll(edge, "/edge", "/other"))
	if got := next(t, f.changes); got != "/other" {
		t.Errorf("routers %s, want /other", got)
	}
	if said := next(t, f.log); !strings.Contains(said, "the configuration has changed") {
		t.Errorf("log %s", said)
	}
	m.write(t, strings.ReplaceAll(edge, "gatewayNodes", "gatewaynodes"))
	said := next(t, f.log)
	if !strings.Contains(said, "level=ERROR") || !strings.Contains(said, "keeping the last valid one") || !strings.Contains(said, m.file()) {
		t.Errorf("log %s", said)
	}
	m.write(t, strings.ReplaceAll(edge, "/edge", "/other")) // as it was before
	if said := next(t, f.log); !strings.Contains(said, "the last valid one again") {
		t.Errorf("log %s", said)
	}
	m.write(t, edge)
	if got := next(t, f.changes); got != "/edge" {
		t.Errorf("routers %s, want /edge", got)
	}
	if len(f.changes) != 0 {
		t.Errorf("another change to %s", <-f.changes)
	}
}

// The metric is 1 exactly while the file is invalid.
func TestConfigInvalidIsCounted(t *testing.T) {
	m := &mounted{dir: t.TempDir()}
	m.write(t, edge)
	f := follow(t, m.file())
	for _, step := range []struct {
		text string
		want float64
	}{{"x", 1}, {edge, 0}, {"routers: {core: {}}", 1}, {"", 0}} {
		m.write(t, step.text)
		for end := time.Now().Add(2 * time.Minute); f.invalid(t) != step.want; {
			if time.Now().After(end) {
				t.Fatalf("%q: the metric is %v", step.text, f.invalid(t))
			}
			time.Sleep(time.Millisecond)
		}
	}
	next(t, f.changes) // of the last one, which is empty
	if len(f.changes) != 0 {
		t.Errorf("another change to %q", <-f.changes)
	}
}

// An editor that writes the file in place empties it for a moment. This must not withdraw the routers.
func TestConfigBeingWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "controller.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(edge)
	f, _, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	write("")
	waits := 0
	f.after = func(time.Duration) <-chan time.Time {
		if waits++; waits == 1 {
			write(strings.ReplaceAll(edge, "/edge", "/other"))
		}
		return at(0)
	}
	config, news, err := f.update(t.Context())
	if err != nil || !news || len(config.Routers) != 1 || config.Routers["/other"] == nil || waits != 2 {
		t.Errorf("%v, %t, %v after %d waits", config, news, err, waits)
	}
	if _, news, err := f.update(t.Context()); err != nil || news {
		t.Errorf("the same again is news: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, news, err := f.update(t.Context()); err == nil || news {
		t.Errorf("a file that is gone: %t, %v", news, err)
	}
}
