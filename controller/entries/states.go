package entries

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

// states writes the statuses of objects.
type states struct {
	engine.Verdicts[verdict]
	source  Source
	leading func() error
}

type verdict struct {
	object *entry.Object
	status entry.Status
}

func newStates(c Config) *states {
	s := &states{engine.NewVerdicts[verdict]("object", c.Log), c.Source, c.Engine.Leading}
	s.Write = s.writeStatus
	return s
}

// same reports whether two statuses say the same, whenever they were written.
func same(a, b entry.Status) bool {
	return a.Observed == b.Observed && a.Reason == b.Reason && a.Problem == b.Problem && a.Users == b.Users &&
		bytes.Equal(a.Accepted, b.Accepted) && slices.Equal(a.UsedBy, b.UsedBy) && reflect.DeepEqual(a.Nodes, b.Nodes)
}

// writeStatus writes a status onto its object and records an Event if the object counts now, counts no more, or lacks
// something else.
func (s *states) writeStatus(ctx context.Context, id string, v *verdict) error {
	if err := s.leading(); err != nil {
		return err
	}
	objects, err := s.source.Entries(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(objects, func(o *entry.Object) bool { return o.ID() == id && o.UID == v.object.UID })
	if at < 0 {
		return fmt.Errorf("%s: %w", id, netmodel.ErrNotFound)
	}
	now := objects[at]
	if with := needsFinalizer(now, v.status); now.HasFinalizer() != with {
		if err := s.source.SetEntryFinalizer(ctx, now, with); err != nil || now.Deleting {
			return err // without our finalizer the object is gone
		}
	}
	return s.tell(ctx, now, v.status)
}

func (s *states) tell(ctx context.Context, now *entry.Object, next entry.Status) error {
	if same(now.Status, next) {
		return nil
	}
	was, moment := now.Status, time.Now().UTC().Truncate(time.Second)
	next.Since, next.Ready = was.Since, was.Ready
	if was.Counts() != next.Counts() || was.Since.IsZero() {
		next.Since = moment
	}
	ready := func(s entry.Status) bool { return s.Counts() && s.Problem == "" }
	if ready(was) != ready(next) || was.Ready.IsZero() {
		next.Ready = moment
	}
	if err := s.source.SetEntryStatus(ctx, now, next); err != nil {
		return err
	}
	switch kept := "nothing of the object counts"; {
	case next.Reason != "" && (next.Reason != was.Reason || next.Observed != was.Observed):
		if next.Accepted != nil {
			kept = "what was accepted before still counts"
		}
		s.source.EntryEvent(now, true, "EntryRefused", next.Reason+"; "+kept)
	case next.Reason == "" && (!was.Counts() || was.Observed != next.Observed):
		s.source.EntryEvent(now, false, "EntryAccepted", "the configuration has the entry "+cmp.Or(now.Entry(), now.Name))
	}
	switch {
	case slices.Contains([]string{"", was.Problem, entry.NotYet, entry.Settling}, next.Problem):
	case next.Problem == inUse:
		s.source.EntryEvent(now, true, "EntryInUse", inUse+": "+strings.Join(next.UsedBy, ", "))
	default:
		s.source.EntryEvent(now, true, "EntryIncomplete", next.Problem)
	}
	return nil
}
