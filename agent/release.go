package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/plan"
)

const (
	// replyWithin is how long a DEL is kept waiting for a release; after that it goes on without it.
	replyWithin = 700 * time.Millisecond
	// releaseTimeout bounds one attempt of a release.
	releaseTimeout = 20 * time.Second
	// sweepEvery is the period in which releases that did not succeed are tried again.
	sweepEvery = 10 * time.Second
)

// release takes a sandbox's plugs and ports away. If that takes longer than a DEL should, it goes on after the
// answer; what fails stays in release/ and is tried again.
func (a *Agent) release(ctx context.Context, r *plan.Release, send deliver) error {
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		err := a.releaseFile(ctx, r)
		if err != nil {
			a.wakeSweep()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			a.log.Warn("release put off", "pod", r.Namespace+"/"+r.Pod, "containerID", r.ContainerID, "err", err)
		}
		return send(plan.Released{Done: err == nil})
	case <-time.After(replyWithin):
		return send(plan.Released{})
	}
}

// releaseFile releases a sandbox and then removes its file from release/: only the agent does, and only when both
// databases agree.
func (a *Agent) releaseFile(ctx context.Context, r *plan.Release) error {
	unlock, err := a.sandboxes.take(ctx, r.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	return a.releaseNow(ctx, r)
}

// releaseNow needs the sandbox's lock.
func (a *Agent) releaseNow(ctx context.Context, r *plan.Release) error {
	if err := a.ovs.Unplug(ctx, r.ContainerID); err != nil {
		return fmt.Errorf("unplug: %w", err)
	}
	failpoint.Hit("unplugged")
	var err error
	if r.Planned {
		held := make([]ovnport.Held, 0, len(r.Ports))
		for _, p := range r.Ports {
			held = append(held, ovnport.Held{UUID: p.UUID, Claims: p.Claims})
		}
		err = a.nb.Release(ctx, r.ContainerID, held)
	} else {
		err = a.nb.ReleaseSandbox(ctx, r.ContainerID)
	}
	if err != nil {
		return fmt.Errorf("release ports: %w", err)
	}
	failpoint.Hit("released")
	if err := os.Remove(filepath.Join(a.releaseDir(), r.ID())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// finishRelease does what is left in release/ of this sandbox. It needs the sandbox's lock.
func (a *Agent) finishRelease(ctx context.Context, s *plan.Sandbox) error {
	r, err := a.readRelease(s.ID())
	if r == nil || err != nil {
		return err
	}
	return a.releaseNow(ctx, r)
}

// readRelease reads a file of release/, nil when there is none. One that does not parse still names the container:
// its ports are looked for by their owner.
func (a *Agent) readRelease(id string) (*plan.Release, error) {
	text, err := os.ReadFile(filepath.Join(a.releaseDir(), id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	containerID, ifName, _ := strings.Cut(id, "@")
	r := &plan.Release{}
	if err := json.Unmarshal(text, r); err != nil || r.ID() != id {
		a.log.Warn("a file in release/ is damaged, releasing by owner", "file", id, "err", err)
		return &plan.Release{Sandbox: plan.Sandbox{ContainerID: containerID, Interface: ifName}}, nil
	}
	return r, nil
}

func (a *Agent) wakeSweep() {
	select {
	case a.pending <- struct{}{}:
	default:
	}
}

// sweep releases what DELs left in release/ while the agent or a database was away: at the start, and then again
// and again until the folder is empty.
func (a *Agent) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		a.sweepOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-a.pending:
			// Something failed just now; the database is given a moment.
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
		}
	}
}

func (a *Agent) sweepOnce(ctx context.Context) {
	files, err := os.ReadDir(a.releaseDir())
	if err != nil {
		a.log.Error("read the releases that are left", "err", err)
		return
	}
	for _, f := range files {
		a.dropMark(f.Name())
		if strings.HasPrefix(f.Name(), ".") || !strings.Contains(f.Name(), "@") {
			continue
		}
		r, err := a.readRelease(f.Name())
		if err == nil && r != nil {
			ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
			err = a.releaseFile(ctx, r)
			cancel()
		}
		if err != nil {
			a.log.Warn("release put off", "file", f.Name(), "err", err)
			a.wakeSweep()
			return
		}
	}
}
