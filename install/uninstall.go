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

	"github.com/ovn-multinet/ovn-multinet/journal"
)

const (
	// drainEvery is the period in which the journal is looked at: a container that ends is no hurry.
	drainEvery = time.Second
	// settle is how long a runtime may still go by the configuration that it read before: it notices a change within two
	// seconds, and a call that it begins then has its entry in the journal well before this.
	settle = 10 * time.Second
)

// Uninstall takes the plugin off the node without leaving anything of a pod behind. While containers have networks, our conflist
// stays, for a runtime takes away by what is there now, and refuses new ones; pods without networks start all the while. Then the
// conflist goes, and when nothing is left to be released and no call can be under way, the binary. It returns at the end of ctx.
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

// drain goes one step as far as it can, and says how things stand. After a restart it begins anew, wherever it was.
func (i *installer) drain(now time.Time) (string, error) {
	attached, err := i.attached()
	if err != nil {
		return "", err
	}
	if len(attached) > 0 {
		i.idle = time.Time{}
		state := fmt.Sprintf("waiting for %d containers with networks to end, delete or evict their pods: %s", len(attached), strings.Join(attached[:min(len(attached), 5)], ", "))
		if err := i.refuseNew(); err != nil {
			return "", fmt.Errorf("%s; new ones may come: %w", state, err)
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
		return "no container has networks of ours; waiting until no runtime gives one any more", i.refuseNew()
	default:
		if err := os.Remove(i.conflist()); err != nil {
			return "", err
		}
		i.idle = now
	}
	left, err := i.releases()
	if err != nil {
		return "", err
	}
	if left > 0 {
		i.idle = now
		return fmt.Sprintf("the conflist is gone; the agent has still to release the networks of %d containers", left), nil
	}
	if now.Sub(i.idle) < settle {
		return "the conflist is gone; waiting until no runtime goes by it any more", nil
	}
	if err := os.Remove(i.binary()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return "uninstalled: nothing is left to do on this node", nil
}

// refuseNew has our conflist refuse pods with networks. It needs the plugin, also for their end.
func (i *installer) refuseNew() error {
	if err := i.place(); err != nil {
		return err
	}
	entry := i.Entry
	entry.Draining = true
	_, err := i.chain(entry)
	return err
}

// attached are the containers of the plugin's journal, also those whose files nobody can read.
func (c Config) attached() ([]string, error) {
	all, damaged, err := journal.Dir(c.Entry.StateDir).Summaries()
	if err != nil {
		return nil, fmt.Errorf("the plugin's journal: %w", err)
	}
	for i := range all {
		damaged = append(damaged, fmt.Sprintf("%s/%s (%.12s)", all[i].Sandbox.Namespace, all[i].Sandbox.Pod, all[i].Sandbox.ContainerID))
	}
	slices.Sort(damaged)
	return damaged, nil
}

// releases counts what the agent has not released yet.
func (c Config) releases() (n int, err error) {
	pending, err := journal.Dir(c.Entry.StateDir).PendingReleases()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return len(pending), err
}
