// Package leader owns who of several controllers leads: by a Lease of the Kubernetes API, or by a lock on a file where
// there is no cluster; it may hold nothing of what the leader does.
package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lead is what the leader does until the end of its ctx. leading tells whether it still is one, for the moment before
// a write: a process that was stopped for a while does not know yet.
type Lead func(ctx context.Context, leading func() error) error

// leaseName is the Lease that controllers compete for.
const leaseName = "ovn-multinet-controller"

// A leader that is killed is replaced after leaseDuration; one that ends gives the Lease back.
const (
	leaseDuration = 6 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = time.Second
)

// The phases of a candidate.
const (
	waiting int32 = iota
	leads
	over
)

var errLost = errors.New("does not lead any more")

// Lease leads while it holds the Lease. Its end is an error when the Lease was lost: the process ends then, and
// begins anew as a candidate.
func Lease(ctx context.Context, core kubernetes.Interface, namespace string, log *slog.Logger, lead Lead) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	identity := host + "_" + uuid.NewString()
	// The Lease is given back when the lead has ended, and not before: the next would lead beside it.
	round, giveBack := context.WithCancel(context.WithoutCancel(ctx))
	defer giveBack()
	var phase atomic.Int32 // what came first: leading, or the end of ctx
	defer context.AfterFunc(ctx, func() {
		if phase.CompareAndSwap(waiting, over) {
			giveBack()
		}
	})()
	led := make(chan error, 1)
	lock := &lease{Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
		Client:     core.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				defer giveBack()
				if !phase.CompareAndSwap(waiting, leads) {
					led <- nil
					return
				}
				term, end := context.WithCancel(held)
				defer end()
				defer context.AfterFunc(ctx, end)()
				led <- lead(term, lock.leading)
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				if leader != identity {
					log.Info("waiting", "leader", leader)
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	elector.Run(round)
	if phase.Load() != over {
		if err := <-led; err != nil {
			return err
		}
	}
	if ctx.Err() == nil {
		return errLost
	}
	return nil
}

// lease knows until when the Lease is ours for certain.
type lease struct {
	resourcelock.Interface
	until  atomic.Pointer[time.Time]
	others atomic.Bool // the last Get found another holder
}

// leading is an error once the Lease may be another's, although nobody may have told us.
func (l *lease) leading() error {
	if until := l.until.Load(); until == nil || time.Now().After(*until) {
		return errLost
	}
	return nil
}

// Get sees when the Lease is not ours any more.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.Interface.Get(ctx)
	if apierrors.IsNotFound(err) || err == nil && r.HolderIdentity != l.Identity() {
		l.until.Store(nil)
	}
	if err == nil {
		l.others.Store(r.HolderIdentity != l.Identity())
	}
	return r, raw, err
}

func (l *lease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.hold(r, func() error { return l.Interface.Create(ctx, r) })
}

func (l *lease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.hold(r, func() error { return l.Interface.Update(ctx, r) })
}

// hold writes a record. Others count the Lease's time from when they see it, which is later.
func (l *lease) hold(r resourcelock.LeaderElectionRecord, write func() error) error {
	if r.HolderIdentity != l.Identity() { // it is given back
		l.until.Store(nil)
		if l.others.Load() {
			// client-go goes by what it knew before it was stopped, although it has just read who holds the Lease.
			return errLost
		}
	}
	until := time.Now().Add(leaseDuration)
	err := write()
	if err == nil && r.HolderIdentity == l.Identity() {
		l.until.Store(&until)
	}
	return err
}

// lockEvery is how often a candidate tries the file.
const lockEvery = 200 * time.Millisecond

// File leads while it holds the lock on a file in the folder, which the kernel takes from a process that ends.
func File(ctx context.Context, dir string, log *slog.Logger, lead Lead) error {
	// Not a name that could be a manifest's.
	f, err := os.OpenFile(filepath.Join(dir, "."+leaseName+".lock"), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	defer f.Close()
	ticker := time.NewTicker(lockEvery)
	defer ticker.Stop()
	for said := false; ; said = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return lead(ctx, ctx.Err)
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("leader election: lock %s: %w", f.Name(), err)
		}
		if !said {
			log.Info("waiting", "leader", "another process holds "+f.Name())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
