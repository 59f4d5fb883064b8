package ovndb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// remote is a link without a copy of any table, to the leader of a raft or to a single server.
//
// libovsdb has a LeaderOnly of its own. But it tries the endpoints in one order with one deadline for all, so a member
// that accepts connections and does not answer keeps it from all others. And it asks each server to announce all of the
// raft's state, which changes with every commit: each commit of anybody then is an update for every node.
type remote struct {
	endpoints  *endpoints
	leaderOnly bool
	patience   time.Duration // for one attempt to connect
	log        *slog.Logger

	ctx  context.Context // ends with close
	stop context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex
	conn *conn         // nil: the connection is down
	up   chan struct{} // closed when the connection is up
	last string        // the endpoint that is tried first
	news func()        // nil: nobody watches
	// One transaction at a time asks whether another member leads.
	asking sync.Mutex
}

func newRemote(endpoints *endpoints, cfg Config, patience time.Duration) *remote {
	r := &remote{endpoints: endpoints, leaderOnly: cfg.LeaderOnly, patience: patience, log: cfg.Log.With("db", cfg.Name),
		up: make(chan struct{})}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

func (r *remote) connect(ctx context.Context, check func(*ovsdb.DatabaseSchema) error) error {
	c, err := r.dialLeader(ctx)
	if err != nil {
		return err
	}
	var schema ovsdb.DatabaseSchema
	if err = c.rpc.CallWithContext(ctx, "get_schema", []any{r.endpoints.database}, &schema); err == nil {
		err = check(&schema)
	}
	if err != nil {
		_ = c.rpc.Close()
		return fmt.Errorf("%s: %w", c.endpoint, err)
	}
	r.use(c)
	r.done.Go(func() { r.keep(c) })
	return nil
}

// keep waits until the connection ends, and makes the next one, until close.
func (r *remote) keep(c *conn) {
	for {
		select {
		case <-c.rpc.DisconnectNotify():
		case <-r.ctx.Done():
		}
		r.mu.Lock()
		r.conn, r.up = nil, make(chan struct{})
		r.mu.Unlock()
		_ = c.rpc.Close()
		if r.ctx.Err() != nil {
			return
		}
		r.log.Info("the connection ended; connecting again", "endpoint", c.endpoint)
		if c = r.dialAgain(); c == nil {
			return
		}
		r.log.Info("connected again", "endpoint", c.endpoint)
		r.use(c)
	}
}

// dialAgain connects to the leader until it succeeds; nil after close.
func (r *remote) dialAgain() *conn {
	for pauses := connectPauses(); ; {
		ctx, cancel := context.WithTimeout(r.ctx, r.patience)
		c, err := r.dialLeader(ctx)
		cancel()
		if err == nil {
			return c
		}
		select {
		case <-r.ctx.Done():
			return nil
		case <-time.After(pauses.NextBackOff()):
		}
	}
}

// use has transactions use the connection.
func (r *remote) use(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn, r.last = c, c.endpoint
	close(r.up)
	r.beginWatch()
}

func (r *remote) current() (c *conn, up <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conn, r.up
}

func (r *remote) connected() bool {
	c, _ := r.current()
	return c != nil
}

func (r *remote) endpoint() string {
	if c, _ := r.current(); c != nil {
		return c.endpoint
	}
	return ""
}

func (r *remote) disconnect() {
	if c, _ := r.current(); c != nil {
		_ = c.rpc.Close()
	}
}

func (r *remote) close() {
	r.stop()
	r.done.Wait()
}

func (r *remote) transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	c, up := r.current()
	for c == nil {
		select {
		case <-up:
			c, up = r.current()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if len(r.endpoints.all()) > 1 {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(answerDue, func() { r.watch(ctx, c) }).Stop()
	}
	var results []ovsdb.OperationResult
	request := ovsdb.NewTransactArgs(r.endpoints.database, ops...)
	if err := c.rpc.CallWithContext(ctx, "transact", request, &results); err != nil {
		return nil, err // a late answer may still be written into results
	}
	return results, nil
}

// answerDue is the time for an answer before a link asks the other members of a raft whether one of them leads. OVN's
// raft has a new leader after 1 to 3 s. A leader that is only busy is not left: no other member says that it leads.
const answerDue = time.Second

// watch ends the connection when another member of the raft leads, as long as an answer is missing. It asks rarely when
// that takes long: the leader may be busy, and every node asks then.
func (r *remote) watch(ctx context.Context, c *conn) {
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(answerDue), backoff.WithMaxInterval(answerDue*16),
		backoff.WithMaxElapsedTime(0)) // 0: without end
	for ctx.Err() == nil {
		if r.asking.TryLock() { // one transaction asks for all
			leader := r.endpoints.otherLeader(ctx, c.endpoint)
			r.asking.Unlock()
			if leader != "" {
				r.mu.Lock()
				r.last = leader
				r.mu.Unlock()
				_ = c.rpc.Close()
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pauses.NextBackOff()):
		}
	}
}

// An endpoint that failed is tried again after refusedPause, and up to refusedPauseRandom more.
const (
	refusedPause       = 200 * time.Millisecond
	refusedPauseRandom = time.Second
)

// nextAfter is the time that an endpoint has before the next one is tried beside it.
const nextAfter = 250 * time.Millisecond

// dialLeader connects to the leader. It tries the endpoint of last time first, and the others one after the other, each
// as soon as one before has failed or has not become the leader for a while. All stay connected until one leads. As
// long as one is connected, those that failed are tried again: a member that starts may be the next leader.
func (r *remote) dialLeader(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the attempts that are not needed
	order := r.order()
	type result struct {
		endpoint string
		conn     *conn
		err      error
	}
	results := make(chan result, len(order)) // an attempt that is not needed does not wait
	again := make(chan string, len(order))
	begun, running := 0, 0
	begin := func(endpoint string) {
		running++
		go func() {
			c, err := r.endpoints.open(ctx, endpoint, r.leaderOnly)
			results <- result{endpoint, c, err}
		}()
	}
	beginNext := func() {
		if begun < len(order) {
			begun++
			begin(order[begun-1])
		}
	}
	next := time.NewTicker(nextAfter)
	defer next.Stop()
	failures := map[string]string{}
	for beginNext(); running > 0; {
		select {
		case got := <-results:
			running--
			if got.err == nil {
				go func() {
					for range running {
						if other := <-results; other.conn != nil {
							_ = other.conn.rpc.Close()
						}
					}
				}()
				return got.conn, nil
			}
			failures[got.endpoint] = got.err.Error()
			time.AfterFunc(refusedPause+rand.N(refusedPauseRandom), func() { again <- got.endpoint })
			beginNext()
			next.Reset(nextAfter)
		case <-next.C:
			beginNext()
		case endpoint := <-again:
			begin(endpoint)
		}
	}
	if len(order) == 0 {
		return nil, errNoEndpoints
	}
	return nil, errors.New(strings.Join(slices.Sorted(maps.Values(failures)), "; "))
}

// order is the endpoints, the one of last time first.
func (r *remote) order() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	order := slices.Clone(r.endpoints.all())
	if i := slices.Index(order, r.last); i > 0 {
		order = slices.Insert(slices.Delete(order, i, i+1), 0, r.last)
	}
	return order
}
