package ovnrun

import (
	"context"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/unixctl"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

// silentTimers is for how many election timers a leader hears nothing of a server that the status calls silent.
const silentTimers = 3

// Status asks the servers of the databases and northd at their control sockets in a folder.
func Status(ctx context.Context, runDir string) (s members.Status) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var asked sync.WaitGroup // one that hangs must not take the time of the others
	asked.Go(func() { s.NB = replica(ctx, NB, runDir) })
	asked.Go(func() { s.SB = replica(ctx, SB, runDir) })
	asked.Go(func() { s.Northd = northdState(ctx, runDir) })
	asked.Wait()
	return s
}

func replica(ctx context.Context, k Kind, runDir string) (r members.Replica) {
	d := Database{Kind: k, RunDir: runDir}
	s, err := d.status(ctx)
	switch {
	case err != nil:
		r.State = conf.OneLine(err.Error(), conf.MaxReason)
	case s.removed:
		r.State = members.Removed
	case !s.joined:
		r.State = members.Joining
	case s.leader:
		r.State = members.Leader
	default:
		r.State = members.Follower
	}
	r.Servers = len(s.servers)
	for _, one := range s.servers { // only a leader hears all others
		if s.leader && !one.self && (one.heard < 0 || one.heard > silentTimers*s.timer) {
			r.Silent = append(r.Silent, one.address)
		}
	}
	return r
}

func northdState(ctx context.Context, runDir string) string {
	text, err := unixctl.Call(ctx, filepath.Join(runDir, "northd.ctl"), "status")
	if err != nil {
		return conf.OneLine(err.Error(), conf.MaxReason)
	}
	return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "Status:"))
}
