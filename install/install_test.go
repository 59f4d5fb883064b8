package install

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
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

// Conformance: N-134
func TestDerive(t *testing.T) {
	for _, c := range []struct {
		name, primary, wantName, wantVersion string
		wantTypes                            []string
	}{
		{"Flannel's", flannel, "cbr0", "0.3.1", []string{"flannel", "portmap", "ovn-multinet"}},
		{"keys that we do not know", `{"name":"x","cniVersion":"1.1.0","disableCheck":true,"cniVersions":["1.0.0"],"plugins":[{"type":"a","odd":[1]}]}`, "x", "1.1.0", []string{"a", "ovn-multinet"}},
		{"a single plugin", `{"name":"one","cniVersion":"0.4.0","type":"bridge","ipam":{"type":"host-local"}}`, "one", "0.4.0", []string{"bridge", "ovn-multinet"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, err := Derive([]byte(c.primary), Entry{AgentSocket: "/run/a.sock", StateDir: "/s", Timeout: "60s"})
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Name, CNIVersion string
				Plugins          []json.RawMessage
			}
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			if got.Name != c.wantName || got.CNIVersion != c.wantVersion {
				t.Errorf("name %q, cniVersion %q; want %q, %q", got.Name, got.CNIVersion, c.wantName, c.wantVersion)
			}
			var types []string
			for _, p := range got.Plugins {
				var kind struct{ Type string }
				if err := json.Unmarshal(p, &kind); err != nil {
					t.Fatal(err)
				}
				types = append(types, kind.Type)
			}
			if fmt.Sprint(types) != fmt.Sprint(c.wantTypes) {
				t.Errorf("plugins %q, want %q", types, c.wantTypes)
			}
			ours := got.Plugins[len(got.Plugins)-1]
			if _, err := conf.ParsePlugin(withRuntimeKeys(t, ours), conf.Strict); err != nil {
				t.Errorf("the plugin does not take its own entry: %v", err)
			}
		})
	}
	text, err := Derive([]byte(`{"name":"x","cniVersion":"1.1.0","disableCheck":true,"plugins":[{"type":"a","odd":[1]}]}`), Entry{})
	if err != nil || !strings.Contains(string(text), `"disableCheck": true`) || !strings.Contains(string(text), `"odd"`) {
		t.Errorf("keys of the primary are lost: %s, %v", text, err)
	}
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

func TestDeriveRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"text": "x", "null": "null", "list": "[]", "no plugins": `{"name":"x","plugins":[]}`, "no type": `{"name":"x","plugins":[{}]}`,
		"itself": `{"name":"x","plugins":[{"type":"flannel"},{"type":"ovn-multinet"}]}`, "null plugins": `{"name":"x","plugins":null}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Derive([]byte(text), Entry{}); err == nil {
				t.Errorf("made %s", got)
			}
		})
	}
}

// TestPrimaryFile: the first file by name that a runtime could use, and never ours.
// Conformance: N-130 N-131 N-132
func TestPrimaryFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		ConflistName: flannel, "00-broken.conflist": `{"plugins":[`, "01-readme.txt": flannel, ".02-hidden.conflist": flannel,
		"20-later.conflist": flannel, "10-flannel.conflist": flannel,
	} {
		write(t, filepath.Join(dir, name), text)
	}
	name, _, err := primaryFile(dir)
	if err != nil || name != "10-flannel.conflist" {
		t.Errorf("took %q, %v", name, err)
	}
	if _, _, err := primaryFile(t.TempDir()); err == nil || !strings.Contains(err.Error(), "primary") {
		t.Errorf("of an empty folder: %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRun follows a node's life: no agent yet, no primary yet, both, a changed primary, a deleted conflist.
// Conformance: N-129 N-130 N-132
func TestRun(t *testing.T) {
	root := t.TempDir()
	c := Config{
		NetDir: filepath.Join(root, "net.d"), BinDir: filepath.Join(root, "bin"), Plugin: filepath.Join(root, "image-plugin"),
		Entry: Entry{AgentSocket: filepath.Join(root, "run", "agent.sock"), StateDir: "/state", Timeout: "60s"},
	}
	for _, dir := range []string{c.NetDir, c.BinDir, filepath.Dir(c.Entry.AgentSocket)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, c.Plugin, "the new plugin")
	binary, ours := filepath.Join(c.BinDir, PluginName), filepath.Join(c.NetDir, ConflistName)
	write(t, binary, "the old plugin")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c, slog.New(slog.DiscardHandler)) }()

	until(t, "the plugin is replaced", func() bool { return read(binary) == "the new plugin" })
	write(t, filepath.Join(c.NetDir, "10-flannel.conflist"), flannel)
	if exists(ours) {
		t.Error("conflist before the agent was ready")
	}
	write(t, agentapi.ReadyMarker(c.Entry.AgentSocket), "")
	until(t, "the conflist is there", func() bool { return strings.Contains(read(ours), `"ovn-multinet"`) })
	write(t, filepath.Join(c.NetDir, "10-flannel.conflist"), strings.Replace(flannel, "cbr0", "cbr1", 1))
	until(t, "the conflist follows", func() bool { return strings.Contains(read(ours), `"cbr1"`) })
	if err := os.Remove(ours); err != nil {
		t.Fatal(err)
	}
	until(t, "the conflist is back", func() bool { return strings.Contains(read(ours), `"cbr1"`) })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !exists(ours) || !exists(binary) {
		t.Error("the end of the installer took its files away")
	}
	entries, err := os.ReadDir(c.NetDir)
	if err != nil || len(entries) != 2 {
		t.Errorf("net.d has %v, %v", entries, err)
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func read(path string) string {
	text, _ := os.ReadFile(path)
	return string(bytes.TrimSpace(text))
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for giveUp, pause := time.Now().Add(2*time.Minute), time.Tick(time.Millisecond); !is(); <-pause {
		if time.Now().After(giveUp) {
			t.Fatalf("never: %s", what)
		}
	}
}
