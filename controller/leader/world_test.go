package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var (
	background = context.Background()
	discard    = slog.New(slog.DiscardHandler)
	errDown    = errors.New("connection refused")
	leases     = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

// api is an API server with one Lease, for several clients. It is a fake with the one property that elections need: it
// refuses a write to an old version. The tests in e2e use a real API server.
type api struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
}

// client is one candidate's client of the API.
type client struct {
	*fake.Clientset
	mu sync.Mutex
	// before is asked before each request; its error is the answer.
	before func(verb string, lease *coordinationv1.Lease) error
}

func (a *api) client() *client {
	c := &client{Clientset: &fake.Clientset{}}
	c.AddReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		var lease *coordinationv1.Lease
		if write, ok := action.(clienttesting.UpdateAction); ok { // a create is one too
			lease = write.GetObject().(*coordinationv1.Lease)
		}
		c.mu.Lock()
		before := c.before
		c.mu.Unlock()
		if before != nil {
			if err := before(action.GetVerb(), lease); err != nil {
				return true, nil, err
			}
		}
		answer, err := a.serve(action.GetVerb(), lease)
		if err != nil {
			return true, nil, err
		}
		return true, answer, nil
	})
	return c
}

func (c *client) set(before func(verb string, lease *coordinationv1.Lease) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = before
}

func (a *api) serve(verb string, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case verb != "create" && a.lease == nil:
		return nil, apierrors.NewNotFound(leases, leaseName)
	case verb == "get":
		return a.lease.DeepCopy(), nil
	case verb == "create" && a.lease != nil:
		return nil, apierrors.NewAlreadyExists(leases, leaseName)
	case verb == "update" && lease.ResourceVersion != a.lease.ResourceVersion:
		return nil, apierrors.NewConflict(leases, leaseName, errors.New("it has changed"))
	}
	a.version++
	a.lease = lease.DeepCopy()
	a.lease.ResourceVersion = fmt.Sprint(a.version)
	return a.lease.DeepCopy(), nil
}

// write changes the Lease as another client.
func (a *api) write(change func(spec *coordinationv1.LeaseSpec)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.lease.ResourceVersion = fmt.Sprint(a.version)
	change(&a.lease.Spec)
}

// holder returns the holder of the Lease and the time of the last renewal.
func (a *api) holder() (identity string, renewed time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return *a.lease.Spec.HolderIdentity, a.lease.Spec.RenewTime.Time
}

// candidate runs an election in a goroutine and stores its result.
type candidate struct {
	end   context.CancelFunc
	leads chan struct{} // closed when it begins to lead
	done  chan error    // gets the end of the election

	term    context.Context // of its lead; once it leads
	leading func() error
}

// run starts a candidate. Its leader's work ends some time after its term (while) and returns last.
func run(t *testing.T, elect func(ctx context.Context, lead Lead) error, while time.Duration, last error) *candidate {
	ctx, cancel := context.WithCancel(background)
	t.Cleanup(cancel)
	c := &candidate{end: cancel, leads: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		c.done <- elect(ctx, func(ctx context.Context, leading func() error) error {
			c.term, c.leading = ctx, leading
			close(c.leads)
			<-ctx.Done()
			time.Sleep(while)
			return last
		})
	}()
	return c
}

// candidate starts a candidate for the Lease.
func (a *api) candidate(t *testing.T, core kubernetes.Interface, log *slog.Logger) *candidate {
	return run(t, func(ctx context.Context, lead Lead) error { return Lease(ctx, core, "ours", log, lead) }, 0, nil)
}

// isLeading reports whether the candidate leads when all goroutines wait.
func (c *candidate) isLeading() bool {
	synctest.Wait()
	select {
	case <-c.leads:
		return c.term.Err() == nil && c.leading() == nil
	default:
		return false
	}
}

// ended returns the result of the election: "" for no error, "not yet" while it runs.
func (c *candidate) ended() string {
	synctest.Wait()
	select {
	case err := <-c.done:
		c.done <- err
		if err != nil {
			return err.Error()
		}
		return ""
	default:
		return "not yet"
	}
}

// buffer stores what a logger writes.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
