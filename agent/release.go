package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
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
func (a *Agent) release(ctx context.Context, r *agentapi.Release, send deliver) error {
	for _, d := range r.Abandoned {
		a.log.Warn("the plugin gave up a network of another plugin", "pod", r.Namespace+"/"+r.Pod, "containerID", r.ContainerID, "err", d)
	}
	if r.Planned && len(r.Ports) == 0 {
		return send(agentapi.Released{Done: true})
	}
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
		return send(agentapi.Released{Done: err == nil})
	case <-time.After(replyWithin):
		return send(agentapi.Released{})
	}
}

// releaseFile releases a sandbox and then removes its file from release/: only the agent does, and only when both
// databases agree.
func (a *Agent) releaseFile(ctx context.Context, r *agentapi.Release) error {
	unlock, err := a.sandboxes.take(ctx, r.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	return a.releaseNow(ctx, r)
}

// releaseNow needs the sandbox's lock.
func (a *Agent) releaseNow(ctx context.Context, r *agentapi.Release) error {
	if err := a.ovs.Delete(ctx, r.ContainerID); err != nil {
		return fmt.Errorf("unplug: %w", err)
	}
	failpoint.Hit("unplugged")
	var err error
	if r.Planned {
		held := make([]ovnport.Keys, 0, len(r.Ports))
		for _, p := range r.Ports {
			held = append(held, ovnport.Keys{UUID: p.UUID, Claims: p.Claims})
		}
		err = a.nb.Release(ctx, r.ContainerID, held)
	} else {
		err = a.nb.ReleaseSandbox(ctx, r.ContainerID)
	}
	if err != nil {
		return fmt.Errorf("release ports: %w", err)
	}
	failpoint.Hit("released")
	if err := a.journal.DeleteRelease(r.ID()); err != nil {
		return &undeletable{err}
	}
	return nil
}

// undeletable says that everything is released, and that the file in release/ could not be deleted.
type undeletable struct{ error }

func (e *undeletable) Unwrap() error { return e.error }

// finishRelease does what is left in release/ of this sandbox. It needs the sandbox's lock.
func (a *Agent) finishRelease(ctx context.Context, s *agentapi.Sandbox) error {
	if r := a.readRelease(s.ID()); r != nil {
		return a.releaseNow(ctx, r)
	}
	return nil
}

// readRelease reads a file of release/, nil when there is none. One that is damaged, or that the disk does not give back,
// still names the container: its ports are looked for by their owner.
func (a *Agent) readRelease(id string) *agentapi.Release {
	r, damaged, err := a.journal.ReadRelease(id)
	if damaged {
		a.log.Warn("a file in release/ is damaged, releasing by owner", "file", id, "err", err)
	}
	return r
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
	files, err := a.journal.PendingReleases()
	if err != nil {
		a.log.Error("read the releases that are left", "err", err)
		return
	}
	before := a.undeletable
	a.undeletable = map[string]fs.FileInfo{}
	defer func() { a.stuckReleases.Store(int64(len(a.undeletable))) }()
	for _, f := range files {
		info, _ := f.Info()
		err := a.sweepFile(ctx, f.Name(), sameFile(before[f.Name()], info))
		if err == nil {
			continue
		}
		if _, released := errors.AsType[*undeletable](err); released {
			a.undeletable[f.Name()] = info // the next tick tries again
			a.log.Warn("a file in release/ cannot be deleted; what it lists is released", "file", f.Name(), "err", err)
			continue
		}
		a.log.Warn("release put off", "file", f.Name(), "err", err)
		a.wakeSweep()
		if !a.nbdb.Connected() || !a.ovs.Connected() {
			return // the other releases would wait for the same database
		}
	}
}

// sweepFile releases what one file of release/ lists. Once that is done, only the file itself is tried again.
func (a *Agent) sweepFile(ctx context.Context, name string, released bool) error {
	if released {
		if err := a.journal.DeleteRelease(name); err != nil {
			return &undeletable{err}
		}
		return nil
	}
	r := a.readRelease(name)
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	return a.releaseFile(ctx, r)
}

// sameFile tells whether a file is still the one that was seen before.
func sameFile(before, now fs.FileInfo) bool {
	return before != nil && now != nil && os.SameFile(before, now) && before.ModTime().Equal(now.ModTime())
}
