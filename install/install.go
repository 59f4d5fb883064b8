package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

// Config says where things are. All paths are as the installer sees them; those in Entry are the node's.
type Config struct {
	NetDir string // the runtime's folder of configurations, /etc/cni/net.d as a rule
	BinDir string // the runtime's folder of plugins, /opt/cni/bin as a rule
	Plugin string // the binary to install
	Entry  Entry
	// CNIVersion is the highest that the runtime speaks; "": the conflist keeps the primary's.
	CNIVersion string

	versionTimeout time.Duration // for all plugins to say what they speak; 0: 10 s
}

// lookAgain is the period in which things are looked at without an event: nobody tells of a disk that has room again, of a folder
// that can be written again, or of a plugin that was deleted.
const lookAgain = 5 * time.Second

// PluginName is the binary's name in BinDir: the type in the conflist.
const PluginName = "ovn-multinet"

// installer is a Config at work, with what it remembers from one look to the next.
type installer struct {
	Config
	placed os.FileInfo // the binary, when it was seen to be right
	common versions    // that all plugins of the chain speak

	idle time.Time // since when Uninstall has nothing to wait for in its present step
}

// start refuses a Config that cannot be meant, and removes what an installer left that was killed while it wrote.
func (c Config) start() (*installer, error) {
	i := &installer{Config: c}
	if err := i.check(); err != nil {
		return nil, err
	}
	return i, i.sweep()
}

func (c Config) conflist() string { return filepath.Join(c.NetDir, ConflistName) }
func (c Config) binary() string   { return filepath.Join(c.BinDir, PluginName) }

// Run installs the plugin, waits until the agent of this node was ready once, and then keeps our conflist in step
// with the primary's until the end of ctx. It takes nothing away at its end: pods must still be deleted while the
// installer is upgraded.
func Run(ctx context.Context, c Config, log *slog.Logger) error {
	i, err := c.start()
	if err != nil {
		return err
	}
	if err := i.place(); err != nil {
		return err
	}
	log.Info("plugin installed", "path", c.binary())
	marker := agentapi.ReadyMarker(c.Entry.AgentSocket)
	w, err := watch(c.NetDir, c.BinDir, filepath.Dir(marker))
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENOSPC):
		log.Warn("the node has no inotify instances or watches left (fs.inotify.max_user_instances, max_user_watches): what changes is found a little later",
			"every", lookAgain, "err", err)
		w = &fsnotify.Watcher{} // it never tells of anything
	case err != nil:
		return err
	default:
		defer w.Close()
	}
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for tell := teller(log); ; {
		err := i.place()
		state := ""
		if err == nil {
			state, err = i.sync(marker)
		}
		tell(state, err)
		if more, err := wait(ctx, w, again.C); !more {
			return err
		}
	}
}

// watch has the kernel tell of changes in folders.
func watch(dirs ...string) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	for _, dir := range dirs {
		if err := w.Add(dir); err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), w.Close())
		}
	}
	return w, nil
}

// teller logs how things stand whenever they stand otherwise than before.
func teller(log *slog.Logger) func(state string, err error) {
	said := ""
	return func(state string, err error) {
		say := log.Info
		if err != nil {
			say, state = log.Warn, err.Error()
		}
		if state != said {
			say(state)
			said = state
		}
	}
}

// wait returns when there is something to look at, false at the end. Files on their way to a name are nothing: ours, which would
// have us write again at once after a write that failed, least of all.
func wait(ctx context.Context, w *fsnotify.Watcher, again <-chan time.Time) (more bool, err error) {
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-again:
			return true, nil
		case e := <-w.Events:
			if !strings.HasPrefix(filepath.Base(e.Name), ".") {
				return true, nil
			}
		case err := <-w.Errors:
			return false, fmt.Errorf("watch: %w", err)
		}
	}
}

// sweep removes the files that were on their way to a name.
func (c Config) sweep() error {
	var errs []error
	for _, path := range []string{c.conflist(), c.binary()} {
		left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".*"))
		errs = append(errs, err)
		for _, file := range left {
			errs = append(errs, os.Remove(file))
		}
	}
	return errors.Join(errs...)
}

// sync brings our conflist in step once and says in words how things stand.
func (i *installer) sync(marker string) (string, error) {
	if _, err := os.Stat(marker); errors.Is(err, os.ErrNotExist) {
		return "waiting for the agent of this node to be ready", nil
	} else if err != nil {
		return "", err
	}
	return i.chain(i.Entry)
}

// chain writes our conflist if it is not as it should be, and says what it was made of.
func (i *installer) chain(entry Entry) (string, error) {
	name, primary, err := primaryFile(i.NetDir)
	if err != nil {
		return "", err
	}
	want, notice, err := i.derive(primary, entry)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	state := "in step with " + name + notice
	if first := firstFile(i.NetDir); first < ConflistName {
		state += fmt.Sprintf("; but runtimes go by %s, which comes before %s by name: remove or rename it", first, ConflistName)
	}
	if have, err := os.ReadFile(i.conflist()); err == nil && bytes.Equal(have, want) {
		return state, nil
	}
	_, err = writeWhole(i.conflist(), bytes.NewReader(want), 0o644)
	return state, err
}

// place puts the plugin where runtimes look for it. One that is the same already is left alone: it may be running.
func (i *installer) place() error {
	if now, err := os.Stat(i.binary()); err == nil && i.placed != nil && os.SameFile(now, i.placed) &&
		now.Size() == i.placed.Size() && now.ModTime().Equal(i.placed.ModTime()) && now.Mode() == i.placed.Mode() {
		return nil
	}
	text, err := os.ReadFile(i.Plugin)
	if err != nil {
		return err
	}
	const mode = 0o755
	if i.placed = have(i.binary(), text, mode); i.placed != nil {
		return nil
	}
	i.placed, err = writeWhole(i.binary(), bytes.NewReader(text), mode)
	return err
}

// have returns what a file is that has the text, which gets the mode; nil of another. By the time that it is asked by its name
// again it may be another.
func have(path string, text []byte, mode os.FileMode) os.FileInfo {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if is, err := io.ReadAll(f); err != nil || !bytes.Equal(is, text) || f.Chmod(mode) != nil {
		return nil
	}
	info, _ := f.Stat()
	return info
}

// writeWhole writes a file under a hidden name in the same folder and renames it: runtimes see it whole or not at
// all, also those that miss a file renamed in from another folder, and a binary that runs is not "text file busy". It returns what the
// file is.
func writeWhole(path string, from io.Reader, mode os.FileMode) (os.FileInfo, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".")
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(f, from)
	err = errors.Join(err, f.Chmod(mode), f.Sync())
	info, statErr := f.Stat()
	err = errors.Join(err, statErr, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return info, nil
}
