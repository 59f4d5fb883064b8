package networks

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// editEvery is the shortest time between two passes over one NAD that is edited again and again. All edits within this
// time get one pass. The first edit, a new NAD and a deletion do not wait.
const editEvery = time.Second

// lastRead is a NAD as its last pass read it.
type lastRead struct {
	owners        [sha256.Size]byte // the hash of what the NAD's owner writes, see ownersPart
	state         string            // our state in the annotation
	withFinalizer bool              // whether the NAD has our finalizer
	edited        time.Time         // the last pass because of an edit
}

// lastReads are the NADs as their last passes read them.
type lastReads struct {
	of    map[string]*lastRead
	now   func() time.Time
	wrote func(nad *netmodel.NAD) bool // see states.wrote
}

// ownersPart returns a hash of the NAD without our state and finalizer: of all that the NAD's owner decides.
func ownersPart(nad *netmodel.NAD) [sha256.Size]byte {
	of := *nad
	of.State, of.HasFinalizer, of.Config = "", false, nil
	text, err := json.Marshal(of)
	if err != nil {
		panic("controller: " + err.Error()) // impossible: the NAD has only strings, numbers and booleans
	}
	config := nad.Config.Digest()
	return sha256.Sum256(append(text, config[:]...))
}

// changed reports whether a NAD needs a pass. It needs none if only the controller's own write of the state is new. It
// also needs none yet if an edit follows another edit within editEvery: wait is then the time until the pass, otherwise
// 0.
func (r *lastReads) changed(nad *netmodel.NAD) (news bool, wait time.Duration) {
	id, now := nad.ID(), r.now()
	s, owners := r.of[id], ownersPart(nad)
	if s == nil {
		r.of[id] = &lastRead{owners: owners, state: nad.State, withFinalizer: nad.HasFinalizer}
		return true, 0
	}
	if s.owners == owners {
		own := (s.state != nad.State || s.withFinalizer != nad.HasFinalizer) && r.wrote(nad)
		s.state, s.withFinalizer = nad.State, nad.HasFinalizer
		return !own, 0
	}
	if wait := editEvery - now.Sub(s.edited); wait > 0 && !nad.Deleting {
		return false, wait
	}
	*s = lastRead{owners: owners, state: nad.State, withFinalizer: nad.HasFinalizer, edited: now}
	return true, 0
}
