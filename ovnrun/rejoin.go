package ovnrun

import (
	"errors"
	"os"
	"time"
)

// joinPatience is how long a member may take to join its raft until it begins again, with the addresses that the list
// of members has by then: those that it began with may be nobody's any more. It has no data yet. Each time it waits
// twice as long, because a large database takes its time.
const joinPatience = 150 * time.Second

// joining is a member that has not joined its raft yet.
type joining struct {
	since    time.Time     // the zero time: it has joined
	patience time.Duration // 0: joinPatience
}

// rejoin has a member that joins for too long join anew. gone tells that its database is to be made again.
func (d *Database) rejoin(s status, now time.Time) (gone bool, err error) {
	notYet := errors.New("it has not joined the raft yet")
	if !s.joining {
		return false, notYet
	}
	if d.joining.patience == 0 {
		d.joining.patience = joinPatience
	}
	if d.joining.since.IsZero() {
		d.joining.since = now
	}
	if now.Sub(d.joining.since) < d.joining.patience {
		return false, notYet
	}
	d.Log.Warn("the member has not joined the raft; joining anew with the members of now", "db", d.Name, "after",
		d.joining.patience)
	d.joining = joining{patience: 2 * d.joining.patience}
	return true, os.Remove(d.idFile()) // without it, the database on the disk is from an earlier membership
}
