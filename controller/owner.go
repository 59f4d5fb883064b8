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

// Owner has the leading controller's work done only while NB belongs to the cluster of this controller.
type NBOwner struct {
	db    *ovndb.DB
	adopt string
	log   *slog.Logger
	// every is the time between two looks at the owner of NB.
	every   time.Duration
	refusal atomic.Pointer[error]
}

// ownerEvery is the time between two looks at who owns NB: the row may be gone, and another cluster may have adopted NB.
const ownerEvery = 2 * time.Second

// NewOwner takes the connection to NB. adopt is the identity of the cluster whose NB this one takes over; "": none.
func NewNBOwner(db *ovndb.DB, adopt string, log *slog.Logger) *NBOwner {
	return &NBOwner{db: db, adopt: adopt, log: log, every: ownerEvery}
}

// Ready is nil unless this controller stands by because NB belongs to another cluster.
func (o *NBOwner) Ready() error {
	if err := o.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// Lead stands by until NB belongs to this cluster, and then runs the work until the end of ctx. It makes the row that
// names the owner when there is none. When another cluster adopts NB, the work ends, and the error says so. leading is
// asked before each write.
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
		o.say(ctx, &said, "cannot look at the owner of NB, or write its row", err)
	}
}

// standBy tries until NB belongs to this cluster; false: ctx ended before. It logs a reason once.
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

// say logs an error, nil: none, that differs from the last one.
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

func (o *NBOwner) take(ctx context.Context, leading func() error) error {
	if err := leading(); err != nil {
		return err
	}
	err := o.db.Take(ctx, o.adopt)
	no, other := errors.AsType[*ovndb.NotOwner](err)
	switch {
	case other:
		err = fmt.Errorf("%s belongs to cluster %s, this controller is of cluster %s: give it the NB of its own cluster, "+
			"or start it with --adopt-cluster=%s if its cluster takes the place of that one", no.Database, no.Owner, no.Cluster, no.Owner)
		o.refusal.Store(&err)
	case err == nil:
		o.refusal.Store(nil)
	}
	return err
}
