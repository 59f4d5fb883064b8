package ovnrun

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovnrun/members"
)

const (
	// keepEvery is the time between two looks of a member at its raft.
	keepEvery = 2 * time.Second
	// silentFor is how long a server has sent nothing when another server with its address takes its place.
	silentFor = 30 * time.Second
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
	again := time.NewTicker(keepEvery)
	defer again.Stop()
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return child.end()
		case err := <-child.ended:
			return endedError("ovsdb-server of "+d.Name, err)
		case <-again.C:
		}
		gone, err := d.keep(ctx, wanted.get(), me)
		if gone {
			d.Log.Info("this node is not a member any more", "db", d.Name)
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
		return d.leave(ctx, s)
	case s.left:
		return false, errors.New("the raft has removed this member")
	case !s.joined:
		return false, errors.New("it has not joined the raft yet")
	case !s.leader:
		return false, nil
	}
	if server, reason := stale(s, list.Endpoints(d.RaftPort)); server != nil {
		d.Log.Info("removing a server from the raft", "db", d.Name, "server", server.id, "address", server.address, "reason", reason)
		_, err := control(ctx, d.control(), "cluster/kick", d.Database, server.id)
		return false, err
	}
	return false, errors.Join(d.convert(ctx), d.listen(ctx))
}

// status asks the server for the state of the raft. A server that has left its raft closes the database and does not
// know it any more.
func (d *Database) status(ctx context.Context) (status, error) {
	text, err := control(ctx, d.control(), "cluster/status", d.Database)
	if err != nil && strings.Contains(err.Error(), "unknown cluster") {
		return status{left: true}, nil
	}
	if err != nil {
		return status{}, err
	}
	return parseStatus(text)
}

// leave has the raft remove this member.
func (d *Database) leave(ctx context.Context, s status) (gone bool, err error) {
	if s.left {
		return true, nil
	}
	_, err = control(ctx, d.control(), "cluster/leave", d.Database)
	return false, err
}

// stale returns a server that is not a member: its address is nobody's, or another server has its address and the
// server is silent, because its node lost the disk.
func stale(s status, wanted []string) (*server, string) {
	for i := range s.servers {
		one := &s.servers[i]
		if one.self {
			continue
		}
		if !slices.Contains(wanted, one.address) {
			return one, "its node is not a member"
		}
		replaced := slices.ContainsFunc(s.servers, func(other server) bool {
			return other.id != one.id && other.address == one.address && other.heard >= 0 && other.heard < silentFor
		})
		if replaced && (one.heard < 0 || one.heard > silentFor) {
			return one, "another server has its address"
		}
	}
	return nil, ""
}
