package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

const (
	// drainEvery is the period of reading the journal.
	drainEvery = time.Second
	// settle is how long a runtime may still use the configuration that it read earlier. A runtime notices a change
	// within two seconds, and a call that it starts until then writes its journal entry long before settle is over.
	settle = 10 * time.Second
)

// Uninstall deletes conflist and plugin from the node when no pod needs them any more:
//
//  1. While sandboxes have attachments, our conflist stays, because the runtime deletes an attachment by the present conflist.
//     The conflist refuses new pods with networks. Pods without networks start as before.
//  2. Then Uninstall deletes the conflist.
//  3. When the agent has released all ports and no call can be running, Uninstall deletes the binary.
//
// Uninstall returns at the end of ctx.
func Uninstall(ctx context.Context, c Config, log *slog.Logger) error {
	i, err := c.start()
	if err != nil {
		return err
	}
	ticker := time.NewTicker(drainEvery)
	defer ticker.Stop()
	for tell := teller(log); ; {
		tell(i.drain(time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// drain does the next step if nothing prevents it, and returns the state in words. After a restart, drain begins with
// the first step again.
func (i *installer) drain(now time.Time) (string, error) {
	attached, err := i.attached()
	if err != nil {
		return "", err
	}
	if len(attached) > 0 {
		i.idle = time.Time{}
		state := fmt.Sprintf("waiting for %d sandboxes with networks to end, delete or evict their pods: %s",
			len(attached), strings.Join(attached[:min(len(attached), 5)], ", "))
		if err := i.refuseNew(); err != nil {
			return "", fmt.Errorf("%s; new ones may start: %w", state, err)
		}
		return state, nil
	}
	if i.idle.IsZero() {
		i.idle = now
	}
	switch _, err := os.Lstat(i.conflist()); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	case now.Sub(i.idle) < settle:
		return "no sandbox has networks; waiting until no runtime uses the former conflist any more", i.refuseNew()
	default:
		if err := os.Remove(i.conflist()); err != nil {
			return "", err
		}
		i.idle = now
	}
	pending, err := i.pendingReleases()
	if err != nil {
		return "", err
	}
	if pending > 0 {
		i.idle = now
		return fmt.Sprintf("the conflist is deleted; the agent still has to release the ports of %d sandboxes",
			pending), nil
	}
	if now.Sub(i.idle) < settle {
		return "the conflist is deleted; waiting until no runtime uses it any more", nil
	}
	if err := os.Remove(i.binary()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return conf.Uninstalled, nil
}

// refuseNew writes a conflist that refuses pods with networks. The plugin must be installed to refuse them, and to
// delete the attachments of the present ones.
func (i *installer) refuseNew() error {
	if err := i.place(); err != nil {
		return err
	}
	entry := i.Entry
	entry.Draining = true
	_, err := i.chain(entry)
	return err
}

// attached returns the sandboxes in the plugin's journal. For a damaged journal entry it returns the name of the file.
func (c Config) attached() ([]string, error) {
	all, damaged, err := journal.Dir(c.Entry.StateDir).Summaries()
	if err != nil {
		return nil, fmt.Errorf("the plugin's journal: %w", err)
	}
	for i := range all {
		damaged = append(damaged,
			fmt.Sprintf("%s/%s (%.12s)", all[i].Sandbox.Namespace, all[i].Sandbox.Pod, all[i].Sandbox.ContainerID))
	}
	slices.Sort(damaged)
	return damaged, nil
}

// pendingReleases counts the sandboxes whose ports the agent has not released yet.
func (c Config) pendingReleases() (n int, err error) {
	pending, err := journal.Dir(c.Entry.StateDir).PendingReleases()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return len(pending), err
}
