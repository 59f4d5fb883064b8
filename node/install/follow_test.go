package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
)

// watchConflist reads our conflist as fast as it can until stop, and returns what was wrong with it at any instant: it
// may be absent before its first time only, and never anything but whole.
func watchConflist(path string, stop <-chan struct{}) error {
	for seen := false; ; {
		text, err := os.ReadFile(path)
		if err == nil {
			seen = true
			_, err = roundOf(text)
		} else if !seen && errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("%w, in %q", err, text)
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// TestFollow: however the primary's file is rewritten, a runtime sees our conflist whole at every instant, and in the
// end in sync; also when somebody makes copies of ours.
func TestFollow(t *testing.T) {
	hidden := func(path, text string) error {
		return os.WriteFile(filepath.Join(filepath.Dir(path), ".new"), []byte(text), 0o644)
	}
	for name, rewrite := range map[string]func(path, text string) error{
		"truncated and written, as flanneld does": func(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) },
		"renamed": func(path, text string) error {
			return errors.Join(hidden(path, text), os.Rename(filepath.Join(filepath.Dir(path), ".new"), path))
		},
		"deleted and made": func(path, text string) error {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return os.WriteFile(path, []byte(text), 0o644)
		},
		"written in pieces": func(path, text string) error {
			f, err := os.Create(path)
			if err != nil {
				return err
			}
			_, err1 := f.WriteString(text[:len(text)/2])
			_, err2 := f.WriteString(text[len(text)/2:])
			return errors.Join(err1, err2, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := node(t)
			stopRun := running(t, c, io.Discard)
			stop, seen := make(chan struct{}), make(chan error, 1)
			go func() { seen <- watchConflist(c.conflist(), stop) }()
			const rounds = 100
			for n := 1; n <= rounds; n++ {
				if err := rewrite(c.primary(), round(n)); err != nil {
					t.Fatal(err)
				}
				if n%10 != 0 {
					continue
				}
				until(t, "the conflist follows", func() bool {
					got, err := roundOf([]byte(read(c.conflist())))
					return err == nil && got == n
				})
				write(t, filepath.Join(c.NetDir, "00-copy.conflist"), read(c.conflist()))
			}
			close(stop)
			if err := <-seen; err != nil {
				t.Errorf("our conflist at some instant: %v", err)
			}
			stopRun()
			files(t, c.NetDir, "00-copy.conflist", conf.ConflistName, "10-flannel.conflist")
			files(t, c.BinDir, PluginName)
		})
	}
}

// TestSync: what is written, or not, in each state of a node, and what is said of it.
func TestSync(t *testing.T) {
	ours, err := Derive([]byte(flannel), Entry{})
	if err != nil {
		t.Fatal(err)
	}
	const single = `{"name":"one","cniVersion":"0.4.0","type":"bridge"}`
	for _, c := range []struct {
		name     string
		files    map[string]string
		folders  []string
		links    map[string]string
		notReady bool
		wantName string // of our conflist's network; "": none is written
		says     string
	}{
		{
			name: "in sync", files: map[string]string{"10-flannel.conflist": flannel}, wantName: "cbr0",
			says: "in sync with 10-flannel.conflist",
		},
		{
			name: "no agent", files: map[string]string{"10-flannel.conflist": flannel}, notReady: true,
			says: "waiting for the agent of this node to be ready",
		},
		{name: "no primary", says: errNoPrimary.Error()},
		{
			name: "a copy of ours alone", files: map[string]string{"00-copy.conflist": string(ours)},
			says: errNoPrimary.Error(),
		},
		{
			name: "a copy of ours before the primary", files: map[string]string{"00-copy.conflist": string(ours), "10-flannel.conflist": flannel}, wantName: "cbr0",
			says: "in sync with 10-flannel.conflist; but runtimes use 00-copy.conflist, which comes before " + conf.ConflistName + " by name: remove or rename it",
		},
		{
			name: "a primary before us", files: map[string]string{"00-flannel.conflist": flannel}, wantName: "cbr0",
			says: "in sync with 00-flannel.conflist; but runtimes use 00-flannel.conflist, which comes before ",
		},
		{
			name:  "a file that is being written, and another",
			files: map[string]string{"10-flannel.conflist": "", "20-other.conflist": single},
			says:  "10-flannel.conflist is empty: it is being written",
		},
		{
			name:  "a primary that chains us already",
			files: map[string]string{"10-own.conflist": strings.Replace(flannel, "portmap", conf.NetworkType, 1)},
			says:  errNoPrimary.Error(),
		},
		{
			name:  "a file that is half written",
			files: map[string]string{"10-flannel.conflist": flannel[:len(flannel)/2]}, says: errNoPrimary.Error(),
		},
		{
			name: "a single plugin", files: map[string]string{"10-one.conf": single, "20-flannel.conflist": flannel},
			wantName: "one", says: "10-one.conf",
		},
		{
			name: "a folder of such a name", folders: []string{"00-folder.conflist"},
			files: map[string]string{"10-flannel.conflist": flannel}, wantName: "cbr0", says: "10-flannel.conflist",
		},
		{
			name: "a link to nowhere", links: map[string]string{"00-link.conflist": "nowhere"},
			files: map[string]string{"10-flannel.conflist": flannel}, wantName: "cbr0", says: "10-flannel.conflist",
		},
		{
			name: "a link", links: map[string]string{"00-link.conflist": "../elsewhere"},
			files: map[string]string{"../elsewhere": single, "10-flannel.conflist": flannel}, wantName: "one",
			says: "00-link.conflist",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := node(t)
			marker := agentapi.ReadyMarker(conf.Entry.AgentSocket)
			for name, text := range c.files {
				write(t, filepath.Join(conf.NetDir, name), text)
			}
			for _, name := range c.folders {
				must(t, os.Mkdir(filepath.Join(conf.NetDir, name), 0o755))
			}
			for name, target := range c.links {
				must(t, os.Symlink(target, filepath.Join(conf.NetDir, name)))
			}
			if c.notReady {
				must(t, os.Remove(marker))
			}
			says, err := working(t, conf).sync(marker)
			if err != nil {
				says = err.Error()
			}
			if !strings.Contains(says, c.says) || strings.Contains(says, "\n") {
				t.Errorf("it says %q, want %q", says, c.says)
			}
			if exists(conf.conflist()) != (c.wantName != "") {
				t.Fatalf("our conflist: %q", read(conf.conflist()))
			}
			if c.wantName != "" && !strings.Contains(read(conf.conflist()), fmt.Sprintf(`"name": %q`, c.wantName)) {
				t.Errorf("our conflist is not of %s: %s", c.wantName, read(conf.conflist()))
			}
		})
	}
}

// TestTeller: the log has a line for each change of how things stand, a warning where something is wrong.
func TestTeller(t *testing.T) {
	var log bytes.Buffer
	tell := teller(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	for _, err := range []error{nil, nil, errNoPrimary, errNoPrimary, nil} {
		tell("good", err)
	}
	want := fmt.Sprintf("level=INFO msg=good\nlevel=WARN msg=%q\nlevel=INFO msg=good\n", errNoPrimary)
	if log.String() != want {
		t.Errorf("the log is %s, want %s", &log, want)
	}
}

// TestEntry: our entry as the plugin's page has it, for a node that says nothing else.
func TestEntry(t *testing.T) {
	text, err := Derive([]byte(`{"plugins":[{"type":"a"}]}`),
		Entry{AgentSocket: conf.DefaultAgentSocket, StateDir: conf.DefaultStateDir, Timeout: "60s"})
	must(t, err)
	var list struct{ Plugins []json.RawMessage }
	must(t, json.Unmarshal(text, &list))
	var got bytes.Buffer
	must(t, json.Compact(&got, list.Plugins[1]))
	const want = `{"type":"ovn-multinet","capabilities":{"io.kubernetes.cri.pod-annotations":true},"agentSocket":"/run/ovn-multinet/agent.sock",` +
		`"stateDir":"/var/lib/cni/ovn-multinet","allowedDelegates":[],"allowedIPAM":[],"logFile":"","timeout":"60s"}`
	if got.String() != want {
		t.Errorf("our entry is %s, want %s", &got, want)
	}
}

// TestSyncWritesOnce: what is in sync is left alone, to the inode, and a runtime that watches is not woken.
func TestSyncWritesOnce(t *testing.T) {
	c := node(t)
	write(t, c.primary(), flannel)
	marker := agentapi.ReadyMarker(c.Entry.AgentSocket)
	look := func() os.FileInfo {
		t.Helper()
		i := working(t, c)
		_, err := i.sync(marker)
		must(t, err)
		must(t, i.place())
		info, err := os.Stat(c.conflist())
		must(t, err)
		return info
	}
	first := look()
	binary, err := os.Stat(c.binary())
	must(t, err)
	if second := look(); !os.SameFile(first, second) {
		t.Error("a conflist that was in sync was written again")
	}
	if again, err := os.Stat(c.binary()); err != nil || !os.SameFile(binary, again) {
		t.Errorf("a plugin that was the same was written again, %v", err)
	}
	for path, want := range map[string]os.FileMode{c.conflist(): 0o644, c.binary(): 0o755} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, %v; want %v", filepath.Base(path), info.Mode(), err, want)
		}
	}
}

// TestPrimaryGoes: what was derived stays when the primary's file goes, for pods have to be deleted by it; also an
// uninstall that is taken back leaves no trace.
func TestPrimaryGoes(t *testing.T) {
	c := node(t)
	marker := agentapi.ReadyMarker(c.Entry.AgentSocket)
	write(t, c.primary(), flannel)
	i := working(t, c)
	_, err := i.sync(marker)
	must(t, err)
	before := read(c.conflist())
	must(t, os.Remove(c.primary()))
	if _, err := i.sync(marker); !errors.Is(err, errNoPrimary) || read(c.conflist()) != before {
		t.Errorf("without the primary: %v, and the conflist is %q", err, read(c.conflist()))
	}
	write(t, c.primary(), flannel)
	if err := i.refuseNew(); err != nil || !strings.Contains(read(c.conflist()), `"draining": true`) {
		t.Errorf("draining: %v, %s", err, read(c.conflist()))
	}
	if _, err := i.sync(marker); err != nil || read(c.conflist()) != before {
		t.Errorf("taken back: %v, %s", err, read(c.conflist()))
	}
}

// TestRunRefuses: what cannot heal while it runs ends the installer with one line, for kubelet to start it again.
func TestRunRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"no plugin in the image", func(c *Config) { c.Plugin += "-not" }, "image-plugin-not: no such file"},
		{"no folder of plugins", func(c *Config) { c.BinDir += "-not" }, "bin-not/"},
		{"no folder of configurations", func(c *Config) { c.NetDir += "-not" }, "net.d-not: no such file"},
		{
			"no folder of the agent's",
			func(c *Config) { c.Entry.AgentSocket = filepath.Join(filepath.Dir(c.NetDir), "not", "agent.sock") },
			"watch ",
		},
		{
			"a version that is none", func(c *Config) { c.CNIVersion = "v1.1.0" },
			`--cni-version "v1.1.0" is none of 0.1.0, `,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := node(t)
			c.edit(&conf)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // who does not refuse goes on, and ends with nil
			defer cancel()
			err := Run(ctx, conf, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("ended with %v, want %q on one line", err, c.want)
			}
		})
	}
}

// TestOnlyNames: files on their way to a name wake nobody, or a write of ours that fails would be the reason for the
// next.
func TestOnlyNames(t *testing.T) {
	w := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
	type answer struct {
		more bool
		err  error
	}
	waiting := func(ctx context.Context) <-chan answer {
		got := make(chan answer)
		go func() {
			more, err := wait(ctx, w, nil)
			got <- answer{more, err}
		}()
		return got
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := waiting(ctx)
	for _, name := range []string{"." + conf.ConflistName + ".1234", ".10-flannel.conflist"} {
		select { // it takes the second only if the first did not wake it
		case w.Events <- fsnotify.Event{Name: "/etc/cni/net.d/" + name}:
		case a := <-got:
			t.Fatalf("woken before %s: %+v", name, a)
		}
	}
	cancel()
	if a := <-got; a.more || a.err != nil {
		t.Errorf("at the end: %+v", a)
	}
	got = waiting(t.Context())
	w.Events <- fsnotify.Event{Name: "/etc/cni/net.d/10-flannel.conflist"}
	if a := <-got; !a.more || a.err != nil {
		t.Errorf("a file got its name: %+v", a)
	}
	got = waiting(t.Context())
	w.Errors <- fsnotify.ErrEventOverflow
	if a := <-got; a.more || !errors.Is(a.err, fsnotify.ErrEventOverflow) {
		t.Errorf("an error of the watch: %+v", a)
	}
}
