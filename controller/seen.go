package controller

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// editEvery is the least time between two edits of one NAD that are worked off: those in between count as one. The
// first edit, a new NAD and a deletion do not wait.
const editEvery = time.Second

// seen is a NAD as the controller last looked at it.
type lastRead struct {
	owners [sha256.Size]byte // of what its owner writes
	state  string            // and what the controller does
	held   bool
	edited time.Time // when an edit of it was last worked off
}

// ownersPart is a hash of what a NAD's owner writes, or asks for.
func ownersPart(nad *netmodel.NAD) [sha256.Size]byte {
	of := *nad
	of.State, of.HasFinalizer, of.Config = "", false, nil
	text, err := json.Marshal(of)
	if err != nil {
		panic("ovnnet: " + err.Error()) // strings, numbers and booleans: it cannot be
	}
	config := nad.Config.Digest()
	return sha256.Sum256(append(text, config[:]...))
}

// news tells whether a NAD has to be worked off: not when the controller's own write of its state is all that is
// new. wait is how long an edit that follows another one waits.
func (c *Controller) changed(nad *netmodel.NAD) (news bool, wait time.Duration) {
	id, now := nad.ID(), c.now()
	s, owners := c.seen[id], ownersPart(nad)
	if s == nil {
		c.seen[id] = &lastRead{owners: owners, state: nad.State, held: nad.HasFinalizer}
		return true, 0
	}
	if s.owners == owners {
		own := (s.state != nad.State || s.held != nad.HasFinalizer) && c.states.wrote(nad)
		s.state, s.held = nad.State, nad.HasFinalizer
		return !own, 0
	}
	if wait := editEvery - now.Sub(s.edited); wait > 0 && !nad.Deleting {
		return false, wait
	}
	*s = lastRead{owners: owners, state: nad.State, held: nad.HasFinalizer, edited: now}
	return true, 0
}
