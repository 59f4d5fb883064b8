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

	"github.com/fsnotify/fsnotify"

	"github.com/ovn-multinet/ovn-multinet/plan"
)

// Config says where things are. All paths are as the installer sees them; those in Entry are the node's.
type Config struct {
	NetDir string // the runtime's folder of configurations, /etc/cni/net.d as a rule
	BinDir string // the runtime's folder of plugins, /opt/cni/bin as a rule
	Plugin string // the binary to install
	Entry  Entry
}

// PluginName is the binary's name in BinDir: the type in the conflist.
const PluginName = "ovn-multinet"

// Run installs the plugin, waits until the agent of this node was ready once, and then keeps our conflist in step
// with the primary's until the end of ctx. It takes nothing away at its end: pods must still be deleted while the
// installer is upgraded.
func Run(ctx context.Context, c Config, log *slog.Logger) error {
	if err := installBinary(c.Plugin, filepath.Join(c.BinDir, PluginName)); err != nil {
		return err
	}
	log.Info("plugin installed", "path", filepath.Join(c.BinDir, PluginName))
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	marker := plan.ReadyMarker(c.Entry.AgentSocket)
	for _, dir := range []string{c.NetDir, filepath.Dir(marker)} {
		if err := w.Add(dir); err != nil {
			return fmt.Errorf("watch %s: %w", dir, err)
		}
	}
	said := ""
	for {
		state, err := c.sync(marker)
		if err != nil {
			state = err.Error()
		}
		if state != said {
			log.Info(state, "conflist", filepath.Join(c.NetDir, ConflistName))
			said = state
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
		case err := <-w.Errors:
			return fmt.Errorf("watch: %w", err)
		}
	}
}

// sync brings our conflist in step once and says in words how things stand.
func (c Config) sync(marker string) (string, error) {
	if _, err := os.Stat(marker); errors.Is(err, os.ErrNotExist) {
		return "waiting for the agent of this node to be ready", nil
	} else if err != nil {
		return "", err
	}
	name, primary, err := primaryFile(c.NetDir)
	if err != nil {
		return "", err
	}
	want, err := Derive(primary, c.Entry)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	path := filepath.Join(c.NetDir, ConflistName)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, want) {
		return "in step with " + name, nil
	}
	return "in step with " + name, writeWhole(path, bytes.NewReader(want), 0o644)
}

// installBinary puts the plugin in place. One that is the same already is left alone: it may be running.
func installBinary(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(to); err == nil && bytes.Equal(have, text) {
		return nil
	}
	return writeWhole(to, bytes.NewReader(text), 0o755)
}

// writeWhole writes a file under a hidden name in the same folder and renames it: runtimes see it whole or not at
// all, also those that miss a file renamed in from another folder, and a binary that runs is not "text file busy".
func writeWhole(path string, from io.Reader, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
