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
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/plainfile"
)

// Config is the configuration of the installer. Its paths are as the installer sees them; the paths in Entry are the
// node's.
type Config struct {
	NetDir string // the runtime's folder of configurations, usually /etc/cni/net.d
	BinDir string // the runtime's folder of plugins, usually /opt/cni/bin
	Plugin string // path of the binary to install
	Entry  Entry
	// Primary is the name of the primary network's file in NetDir. If it is empty, the file is the first one by name.
	Primary string
	// CNIVersion is the highest version of the CNI specification that the runtime speaks. If it is empty, the conflist
	// keeps the version of the primary network's conflist.
	CNIVersion string

	versionTimeout time.Duration // for all plugins to answer VERSION; 0: 10 s
}

// checkEvery is the period of the checks that need no event: inotify does not report that a disk has space again or
// that a folder can be written again.
const checkEvery = 5 * time.Second

// PluginName is the name of the binary in BinDir, and the plugin's type in the conflist.
const PluginName = "ovn-multinet"

// installer is a Config with the state between two checks.
type installer struct {
	Config
	placed os.FileInfo // of the binary, when its content was last compared
	common versions    // that all plugins of the chain speak

	idle time.Time // since when nothing prevents the present step of Uninstall
}

// start refuses an invalid Config and deletes the temporary files of a killed installer.
func (c Config) start() (*installer, error) {
	i := &installer{Config: c}
	if err := i.check(); err != nil {
		return nil, err
	}
	return i, i.deleteTemporary()
}

func (c Config) conflist() string { return filepath.Join(c.NetDir, conf.ConflistName) }
func (c Config) binary() string   { return filepath.Join(c.BinDir, PluginName) }

// Run installs the plugin and waits until the agent of this node has been ready once. Then Run keeps our conflist in
// sync with the primary network's conflist until the end of ctx. At its end Run deletes nothing: the runtime still
// needs plugin and conflist to delete pods while the installer is upgraded.
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
		log.Warn("the node has no inotify instances or watches left (fs.inotify.max_user_instances, max_user_watches): "+
			"the installer checks its files periodically", "every", checkEvery, "err", err)
		w = &fsnotify.Watcher{} // reports nothing
	case err != nil:
		return err
	default:
		defer w.Close()
	}
	again := time.NewTicker(checkEvery)
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

// watch returns a watcher for changes in folders.
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

// teller returns a function that logs the state or the error if it differs from the last call's.
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

// wait waits for the next reason to check the files. It returns false at the end of ctx. Hidden files are no reason:
// they are temporary files, and after a failed write our own temporary file would cause the next write at once.
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

// deleteTemporary deletes the temporary files of earlier writes.
func (c Config) deleteTemporary() error {
	var errs []error
	for _, path := range []string{c.conflist(), c.binary()} {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".*"))
		errs = append(errs, err)
		for _, file := range files {
			errs = append(errs, os.Remove(file))
		}
	}
	return errors.Join(errs...)
}

// sync brings our conflist in sync once and returns the state in words.
func (i *installer) sync(marker string) (string, error) {
	if _, err := os.Stat(marker); errors.Is(err, os.ErrNotExist) {
		return "waiting for the agent of this node to be ready", nil
	} else if err != nil {
		return "", err
	}
	return i.chain(i.Entry)
}

// chain writes our conflist if its content differs from what it should be, and returns the state in words.
func (i *installer) chain(entry Entry) (string, error) {
	name, primary, err := primaryFile(i.NetDir, i.Primary)
	if err != nil {
		return "", err
	}
	text, notice, err := i.derive(primary, entry)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	state := "in sync with " + name + notice
	if first := firstFile(i.NetDir); first < conf.ConflistName {
		state += fmt.Sprintf("; but runtimes use %s, which comes before %s by name: remove or rename it", first,
			conf.ConflistName)
	}
	if have, err := os.ReadFile(i.conflist()); err == nil && bytes.Equal(have, text) {
		return state, nil
	}
	return state, plainfile.Write(i.conflist(), text, 0o644)
}

// place installs the plugin's binary. A binary with the right content is not replaced.
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
	if i.placed = same(i.binary(), text, mode); i.placed != nil {
		return nil
	}
	// plainfile.Write renames a new file: a binary that is running cannot be written in place.
	if err := plainfile.Write(i.binary(), text, mode); err != nil {
		return err
	}
	i.placed = same(i.binary(), text, mode)
	return nil
}

// same returns the information of a file that has the text, after it has set the file's mode. It returns nil for any
// other file. All steps use one open file, because another process may replace the file under this name.
func same(path string, text []byte, mode os.FileMode) os.FileInfo {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if is, err := io.ReadAll(f); err != nil || !bytes.Equal(is, text) || f.Chmod(mode) != nil {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode() != mode { // another process has changed the mode meanwhile: check the file again
		return nil
	}
	return info
}
