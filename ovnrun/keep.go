package ovnrun

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ovn-multinet/ovn-multinet/internal/unixctl"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

const (
	// keepEvery is the time between two checks of a member on its raft.
	keepEvery = 2 * time.Second
	// silentFor is how long a server has sent nothing when another server with its address takes its place.
	silentFor = 30 * time.Second
	// unlistedFor is how long a server that speaks is not in the list when it is removed: longer than kubelet takes to
	// bring the list to all nodes. A server that does not leave by itself may be one of a node that was broken into.
	unlistedFor = 5 * time.Minute
)

// serve runs the server until the end of ctx or of its process, or until the node is not a member any more. Then the
// member has left the raft.
func (d *Database) serve(ctx context.Context, me members.Member) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wanted current
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	following.Go(func() { members.Follow(ctx, d.Members, d.Log, wanted.set) })
	child, err := start(d.args()...)
	if err != nil {
		return err
	}
	following.Go(func() { child.watch(ctx, d.control(), d.Log) })
	again := time.NewTicker(keepEvery)
	defer again.Stop()
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return d.handOver(child)
		case err := <-child.ended:
			return endedError("ovsdb-server of "+d.Name, err)
		case <-again.C:
		}
		distrust := d.keepTrust(ctx)
		gone, err := d.keep(ctx, wanted.get(), me)
		err = errors.Join(distrust, err)
		if gone {
			d.Log.Info("the member has left the raft, or joins anew", "db", d.Name)
			return child.end()
		}
		if err != nil && err.Error() != said && ctx.Err() == nil {
			d.Log.Warn("the database is not in order yet", "db", d.Name, "err", err)
			said = err.Error()
		} else if err == nil {
			said = ""
		}
	}
}

// handOver ends the server. A server that leads its raft names another leader first: by the command exit, and not by
// a signal (ovsdb-server(1), "exit"). Otherwise the others wait for the election timer, and no pod starts meanwhile.
func (d *Database) handOver(server *child) error { return server.exit(d.control()) }

// current is the last list of members.
type current struct {
	mu   sync.Mutex
	list *members.List
}

func (c *current) set(l members.List) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = &l
}

func (c *current) get() *members.List {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list
}

// keep does what the raft needs of this member. gone tells that the member has left.
func (d *Database) keep(ctx context.Context, list *members.List, me members.Member) (gone bool, err error) {
	if list == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	s, err := d.status(ctx)
	if err != nil {
		return false, err
	}
	now, member := list.Of(d.Node)
	switch {
	case !member || now != me:
		return d.quit(ctx, s)
	case s.removed:
		d.Log.Warn("the raft has removed this member, which the list has; joining anew", "db", d.Name)
		return true, os.Remove(d.idFile()) // without it, the database on the disk is from an earlier membership
	case !s.joined:
		return d.rejoin(s, time.Now())
	}
	if !d.joining.since.IsZero() {
		d.joining = joining{} // it has joined
	}
	if !s.leader {
		return false, nil
	}
	wanted := list.Endpoints(d.RaftPort)
	d.noteSilence(s, time.Now())
	d.noteUnlisted(s, wanted, time.Now())
	if server, reason := d.stale(s, wanted, time.Now()); server != nil {
		d.Log.Info("removing a server from the raft", "db", d.Name, "server", server.id, "address", server.address,
			"reason", reason)
		_, err := unixctl.Call(ctx, d.control(), "cluster/kick", d.Database, server.id)
		return false, err
	}
	return false, errors.Join(d.setTimer(ctx, s.timer), d.convert(ctx), d.listen(ctx), d.keepTunnelKeys(ctx))
}

// setTimer brings the raft's election timer to ours, by a step in each pass: the server refuses to more than double it
// (ovsdb-server(1), cluster/change-election-timer).
func (d *Database) setTimer(ctx context.Context, now time.Duration) error {
	if now == d.ElectionTimer {
		return nil
	}
	next := min(d.ElectionTimer, 2*now).Milliseconds()
	_, err := unixctl.Call(ctx, d.control(), "cluster/change-election-timer", d.Database, strconv.FormatInt(next, 10))
	return err
}

// status asks the server for the state of the raft. A server that has left its raft closes the database and does not
// know it any more.
func (d *Database) status(ctx context.Context) (status, error) {
	text, err := unixctl.Call(ctx, d.control(), "cluster/status", d.Database)
	if err != nil && strings.Contains(err.Error(), "unknown cluster") {
		return status{removed: true}, nil
	}
	if err != nil {
		return status{}, err
	}
	return parseStatus(text)
}

// quit has the raft remove this member.
func (d *Database) quit(ctx context.Context, s status) (gone bool, err error) {
	if s.removed {
		return true, nil
	}
	_, err = unixctl.Call(ctx, d.control(), "cluster/leave", d.Database)
	return false, err
}

// noteSilence notes since when each server has sent nothing to this leader.
func (d *Database) noteSilence(s status, now time.Time) {
	silent := map[string]time.Time{}
	for _, one := range s.servers {
		if one.heard >= 0 && one.heard < silentFor {
			continue
		}
		since, known := d.silent[one.id]
		if !known {
			since = now.Add(-max(0, one.heard)) // a new leader has heard nothing of a server that is gone
		}
		silent[one.id] = since
	}
	d.silent = silent
}

// noteUnlisted notes since when each server's address is no member's.
func (d *Database) noteUnlisted(s status, wanted []string, now time.Time) {
	unlisted := map[string]time.Time{}
	for _, one := range s.servers {
		if slices.Contains(wanted, one.address) {
			continue
		}
		since, known := d.unlisted[one.id]
		if !known {
			since = now
		}
		unlisted[one.id] = since
	}
	d.unlisted = unlisted
}

// stale returns a silent server that is not a member: its address is nobody's, or another server has its address
// because its node lost the disk. A server that is not silent stays for a while: the list in this pod may be older than
// that of the server's node, and a member that is to go removes itself.
func (d *Database) stale(s status, wanted []string, now time.Time) (*server, string) {
	for i := range s.servers {
		one := &s.servers[i]
		if since, is := d.unlisted[one.id]; is && !one.self && now.Sub(since) >= unlistedFor {
			return one, "its node is not a member, and it does not leave by itself"
		}
		since, silent := d.silent[one.id]
		if one.self || !silent || now.Sub(since) < silentFor {
			continue
		}
		if !slices.Contains(wanted, one.address) {
			return one, "its node is not a member"
		}
		other := func(o server) bool { return o.id != one.id && o.address == one.address }
		if slices.ContainsFunc(s.servers, other) {
			return one, "another server has its address"
		}
	}
	return nil, ""
}
