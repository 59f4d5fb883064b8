package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Conformance: N-134
func TestDerive(t *testing.T) {
	for _, c := range []struct {
		name, primary, wantName, wantVersion string
		wantTypes                            []string
	}{
		{"Flannel's", flannel, "cbr0", "0.3.1", []string{"flannel", "portmap", "ovn-multinet"}},
		{
			"keys that we do not know",
			`{"name":"x","cniVersion":"1.1.0","disableCheck":true,"cniVersions":["1.0.0"],"plugins":[{"type":"a","odd":[1]}]}`,
			"x", "1.1.0", []string{"a", "ovn-multinet"},
		},
		{
			"a single plugin", `{"name":"one","cniVersion":"0.4.0","type":"bridge","ipam":{"type":"host-local"}}`,
			"one", "0.4.0", []string{"bridge", "ovn-multinet"},
		},
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
	text, err := Derive([]byte(`{"name":"x","cniVersion":"1.1.0","disableCheck":true,"plugins":[{"type":"a","odd":[1]}]}`),
		Entry{})
	if err != nil || !strings.Contains(string(text), `"disableCheck": true`) || !strings.Contains(string(text), `"odd"`) {
		t.Errorf("keys of the primary are lost: %s, %v", text, err)
	}
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
		conf.ConflistName: flannel, "00-broken.conflist": `{"plugins":[`, "01-readme.txt": flannel, ".02-hidden.conflist": flannel,
		"20-later.conflist": flannel, "10-flannel.conflist": flannel,
	} {
		write(t, filepath.Join(dir, name), text)
	}
	for _, tt := range []struct{ given, want, err string }{
		{"", "10-flannel.conflist", ""},
		{"20-later.conflist", "20-later.conflist", ""},
		{"30-none.conflist", "", "30-none.conflist: there is no CNI configuration of a primary network yet"},
		{"00-broken.conflist", "", "00-broken.conflist: there is no CNI configuration of a primary network yet"},
	} {
		name, _, err := primaryFile(dir, tt.given)
		if name != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.HasSuffix(err.Error(), tt.err) {
			t.Errorf("given %q: took %q, %v", tt.given, name, err)
		}
	}
	if _, _, err := primaryFile(t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "primary") {
		t.Errorf("of an empty folder: %v", err)
	}
}

// TestPrimaryFlag: the conflist is made from the given file and from no other, and a name that no runtime reads is refused.
func TestPrimaryFlag(t *testing.T) {
	c := node(t)
	c.Primary = "20-other.conflist"
	write(t, c.primary(), flannel)
	i := working(t, c)
	marker := agentapi.ReadyMarker(c.Entry.AgentSocket)
	if state, err := i.sync(marker); !errors.Is(err, errNoPrimary) {
		t.Errorf("without the given file: %q, %v", state, err)
	}
	write(t, filepath.Join(c.NetDir, c.Primary), strings.Replace(flannel, "cbr0", "other", 1))
	if state, err := i.sync(marker); err != nil || state != "in sync with 20-other.conflist" {
		t.Errorf("with the given file: %q, %v", state, err)
	}
	if text, err := os.ReadFile(c.conflist()); err != nil || !strings.Contains(string(text), `"name": "other"`) {
		t.Errorf("the conflist is %s, %v", text, err)
	}
	for _, name := range []string{conf.ConflistName, "../10-flannel.conflist", "10-flannel.conflist.bak", ".x.conflist"} {
		c.Primary = name
		if _, err := c.start(); err == nil || !strings.Contains(err.Error(), "--primary") {
			t.Errorf("--primary %s: %v", name, err)
		}
	}
}

// TestRun follows a node's life: no agent yet, no primary yet, both, a changed primary, a deleted conflist.
// Conformance: N-129 N-130 N-132
func TestRun(t *testing.T) {
	c := node(t)
	must(t, os.Remove(agentapi.ReadyMarker(c.Entry.AgentSocket)))
	binary, ours := c.binary(), c.conflist()
	write(t, binary, "the old plugin")
	stop := running(t, c, io.Discard)

	until(t, "the plugin is replaced", func() bool { return read(binary) == "the new plugin" })
	write(t, c.primary(), flannel)
	if exists(ours) {
		t.Error("conflist before the agent was ready")
	}
	write(t, agentapi.ReadyMarker(c.Entry.AgentSocket), "")
	until(t, "the conflist is there", func() bool { return strings.Contains(read(ours), `"ovn-multinet"`) })
	write(t, c.primary(), strings.Replace(flannel, "cbr0", "cbr1", 1))
	until(t, "the conflist follows", func() bool { return strings.Contains(read(ours), `"cbr1"`) })
	if err := os.Remove(ours); err != nil {
		t.Fatal(err)
	}
	until(t, "the conflist is back", func() bool { return strings.Contains(read(ours), `"cbr1"`) })
	stop()
	if !exists(ours) || !exists(binary) {
		t.Error("the end of the installer took its files away")
	}
	files(t, c.NetDir, conf.ConflistName, "10-flannel.conflist")
}
