package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// pendingEvery is the period in which pending releases are tried again.
const pendingEvery = 10 * time.Second

// pendingReleases releases what DELs left in release/ while the agent or a database was away.
type pendingReleases struct {
	*node
	failed chan struct{} // a token: a release failed just now
	// undeletable are the files of release/ whose ports are released and which the disk refused to delete in the last
	// pass.
	undeletable map[string]fs.FileInfo
}

func newPendingReleases(n *node) *pendingReleases {
	return &pendingReleases{node: n, failed: make(chan struct{}, 1), undeletable: map[string]fs.FileInfo{}}
}

// wake has the next pass come soon.
func (p *pendingReleases) wake() {
	select {
	case p.failed <- struct{}{}:
	default:
	}
}

// run makes one pass at the start, one in each period, and one soon after a failure, until the end of ctx.
func (p *pendingReleases) run(ctx context.Context) {
	ticker := time.NewTicker(pendingEvery)
	defer ticker.Stop()
	for {
		p.pass(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-p.failed:
			// The database gets a moment to recover.
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
		}
	}
}

func (p *pendingReleases) pass(ctx context.Context) {
	files, err := p.journal.PendingReleases()
	if err != nil {
		p.log.Error("read the pending releases", "err", err)
		return
	}
	before := p.undeletable
	p.undeletable = map[string]fs.FileInfo{}
	defer func() { p.metrics.undeletable.Store(int64(len(p.undeletable))) }()
	for _, f := range files {
		info, _ := f.Info()
		err := p.finish(ctx, f.Name(), sameFile(before[f.Name()], info))
		if err == nil {
			continue
		}
		if _, released := errors.AsType[*undeletable](err); released {
			p.undeletable[f.Name()] = info // the next pass tries again
			p.log.Warn("a file in release/ cannot be deleted; what it lists is released", "file", f.Name(), "err", err)
			continue
		}
		p.log.Warn("the release is pending", "file", f.Name(), "err", err)
		p.wake()
		if !p.nbdb.Connected() || !p.ovs.Connected() {
			return // the other releases would wait for the same database
		}
	}
}

// finish releases what one file of release/ lists. Once that is released, only the file itself is tried again.
func (p *pendingReleases) finish(ctx context.Context, name string, released bool) error {
	if released {
		return p.deletePending(name)
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	sandbox, _ := journal.ParseID(name)
	unlock, err := p.sandboxes.take(ctx, sandbox.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	// Only now: an ADD of this sandbox may have released what the file lists, and has ports of its own by now.
	r := p.readRelease(name)
	if r == nil {
		return nil
	}
	return p.releaseNow(ctx, r)
}

// sameFile reports whether a file is still the one that the pass before saw.
func sameFile(before, now fs.FileInfo) bool {
	return before != nil && now != nil && os.SameFile(before, now) && before.ModTime().Equal(now.ModTime())
}
