package ovnrun

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

// Northd is ovn-northd on a node with the databases. All of them run; the lock in SB's leader lets one work.
type Northd struct {
	RunDir  string
	TLS     Files
	Members string
	Log     *slog.Logger
}

// Run runs ovn-northd until the end of ctx or of its process. A new list of members starts it again.
func (n *Northd) Run(ctx context.Context) error {
	control := filepath.Join(n.RunDir, "northd.ctl")
	return followed(ctx, n.Members, control, n.Log, func(l members.List) []string {
		return slices.Concat([]string{"ovn-northd", "--ovnnb-db=" + strings.Join(l.Endpoints(members.NBPort), ","),
			"--ovnsb-db=" + strings.Join(l.Endpoints(members.SBPort), ","), "--unixctl=" + control}, n.TLS.args())
	})
}

// followed runs a daemon whose arguments depend on the members.
func followed(
	ctx context.Context, dir, control string, log *slog.Logger, args func(members.List) []string,
) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lists := make(chan members.List)
	go members.Follow(ctx, dir, log, func(l members.List) {
		select {
		case lists <- l:
		case <-ctx.Done():
		}
	})
	var running *child
	var ended <-chan error
	for {
		select {
		case <-ctx.Done():
			if running == nil {
				return nil
			}
			return running.end()
		case err := <-ended:
			return endedError(filepath.Base(running.cmd.Path), err)
		case l := <-lists:
			if running != nil {
				log.Info("the members have changed; starting again", "program", filepath.Base(running.cmd.Path))
				if err := running.end(); err != nil {
					return err
				}
			}
			running, ended = nil, nil
			if len(l.Members) == 0 {
				continue // not placed yet
			}
			var err error
			if running, err = start(args(l)...); err != nil {
				return err
			}
			ended = running.ended
			go running.watch(ctx, control, log)
		}
	}
}
