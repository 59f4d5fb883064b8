package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
)

// NBOwner runs the leading controller's work only while NB belongs to the cluster of this controller.
type NBOwner struct {
	db    *ovndb.DB
	adopt string
	log   *slog.Logger
	// every is the time between two checks of the owner of NB.
	every time.Duration
	// refusal is the error that names the other cluster which NB belongs to; nil: NB belongs to no other cluster.
	refusal atomic.Pointer[error]
}

// ownerEvery is the time between two checks of the owner of NB. The row with the owner may be gone, and another cluster
// may have adopted NB.
const ownerEvery = 2 * time.Second

// NewNBOwner makes an NBOwner. adopt is the identity of the cluster whose NB this cluster adopts; "" means none.
func NewNBOwner(db *ovndb.DB, adopt string, log *slog.Logger) *NBOwner {
	return &NBOwner{db: db, adopt: adopt, log: log, every: ownerEvery}
}

// Ready returns an error while this controller stands by because NB belongs to another cluster.
func (o *NBOwner) Ready() error {
	if err := o.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// Lead stands by until NB belongs to this cluster, and then runs the work until the end of ctx. If no row names the
// owner, Lead writes this cluster as the owner. If another cluster adopts NB, Lead ends the work and returns an error
// that names that cluster. Lead calls leading before each write; leading returns an error if this controller does not
// lead.
func (o *NBOwner) Lead(ctx context.Context, leading func() error, work func(ctx context.Context) error) error {
	if !o.standBy(ctx, leading) {
		return nil
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	ticker := time.NewTicker(o.every)
	defer ticker.Stop()
	for said := ""; ; {
		select {
		case err := <-done:
			return errors.Join(err, o.Ready())
		case <-ticker.C:
		}
		err := o.take(ctx, leading)
		if err != nil && o.Ready() != nil {
			end(err)
			return errors.Join(<-done, err)
		}
		o.say(ctx, &said, "cannot check the owner of NB or write its row", err)
	}
}

// standBy waits until NB belongs to this cluster. It returns false if ctx ended before. It logs each reason once.
func (o *NBOwner) standBy(ctx context.Context, leading func() error) bool {
	for said := ""; ; {
		err := o.take(ctx, leading)
		if err == nil {
			return true
		}
		o.say(ctx, &said, "standing by", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(o.every):
		}
	}
}

// say logs err if it differs from the error of the previous call, whose text is in said. A nil err resets said.
func (o *NBOwner) say(ctx context.Context, said *string, message string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != *said && ctx.Err() == nil {
		o.log.Error(message, "err", err)
	}
	*said = text
}

// take makes this cluster the owner of NB if NB has no owner or the owner is the adopted cluster. It notes for Ready
// whether NB belongs to another cluster.
func (o *NBOwner) take(ctx context.Context, leading func() error) error {
	if err := leading(); err != nil {
		return err
	}
	err := o.db.Take(ctx, o.adopt)
	no, other := errors.AsType[*ovndb.NotOwner](err)
	switch {
	case other:
		err = fmt.Errorf("%s belongs to cluster %s, this controller is of cluster %s: give it the NB of its own cluster, "+
			"or start it with --adopt-cluster=%s if its cluster takes the place of that one",
			no.Database, no.Owner, no.Cluster, no.Owner)
		o.refusal.Store(&err)
	case err == nil:
		o.refusal.Store(nil)
	}
	return err
}
