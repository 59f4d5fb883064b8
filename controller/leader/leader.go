// Package leader owns the election of the leader among several controllers: by a Lease of the Kubernetes API, or by a
// lock on a file where there is no cluster. It knows nothing of the leader's work.
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

// Lead is the leader's work until the end of ctx. leading returns an error if this process no longer leads. Call
// leading immediately before each write: a process that was stopped for a while may have lost the Lease before ctx
// ends.
type Lead func(ctx context.Context, leading func() error) error

// leaseName is the name of the controllers' Lease.
const leaseName = "ovn-multinet-controller"

// Another candidate takes over leaseDuration after a leader was killed. A leader that ends releases the Lease at once.
const (
	leaseDuration = 6 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = time.Second
)

// The phases of a candidate.
const (
	waiting int32 = iota
	leads
	ended // before the candidate led
)

var errLost = errors.New("does not lead any more")

// Lease calls lead while this process holds the Lease. If the Lease is lost, Lease returns an error: the process ends,
// and starts again as a candidate.
func Lease(ctx context.Context, core kubernetes.Interface, namespace string, log *slog.Logger, lead Lead) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	identity := host + "_" + uuid.NewString()
	// client-go releases the Lease at the end of election. That must be after the end of lead: otherwise the next
	// leader would start while this one still works.
	election, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var phase atomic.Int32
	defer context.AfterFunc(ctx, func() {
		if phase.CompareAndSwap(waiting, ended) {
			release()
		}
	})()
	led := make(chan error, 1)
	lock := &lease{Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
		Client:     core.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				defer release()
				if !phase.CompareAndSwap(waiting, leads) {
					led <- nil
					return
				}
				term, end := context.WithCancel(leading)
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
	elector.Run(election)
	if phase.Load() != ended {
		if err := <-led; err != nil {
			return err
		}
	}
	if ctx.Err() == nil {
		return errLost
	}
	return nil
}

// lease is client-go's lock, with the time until which this process holds the Lease for certain.
type lease struct {
	resourcelock.Interface
	until  atomic.Pointer[time.Time]
	others atomic.Bool // the last Get found another holder
}

// leading returns an error if another process may hold the Lease by now.
func (l *lease) leading() error {
	if until := l.until.Load(); until == nil || time.Now().After(*until) {
		return errLost
	}
	return nil
}

// Get reads the Lease and notes whether another process holds it.
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

// hold writes a record. The time of the Lease begins before the write: the other candidates see the record later, so
// they wait longer.
func (l *lease) hold(r resourcelock.LeaderElectionRecord, write func() error) error {
	if r.HolderIdentity != l.Identity() { // client-go releases the Lease
		l.until.Store(nil)
		if l.others.Load() {
			// client-go decided this before it read that another process holds the Lease.
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

// lockEvery is the period in which a candidate tries to lock the file.
const lockEvery = 200 * time.Millisecond

// File calls lead while this process holds the lock on a file in the folder. The kernel releases the lock when the
// process ends.
func File(ctx context.Context, dir string, log *slog.Logger, lead Lead) error {
	// A hidden file is no manifest.
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
