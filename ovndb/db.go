package ovndb

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/mapper"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Config names a database and says how to connect to it.
type Config struct {
	Name      string // for logs and errors: "NB", "OVS"
	Endpoints []string
	TLS       *tls.Config
	// Dial connects to the endpoints in place of the network; nil: their own scheme says how.
	Dial func(ctx context.Context, endpoint string) (net.Conn, error)
	// Certificate is the file of our TLS certificate, for errors.
	Certificate string
	Model       model.ClientDBModel
	// LeaderOnly connects only to the leader of a clustered database: a write through a follower takes twice as long.
	LeaderOnly bool
	// Monitor lists the tables and columns to copy. NB has none, because each monitor costs the server a scan. There is
	// one Monitor call per database, because libovsdb purges its cache once per monitor when it reconnects.
	Monitor []client.MonitorOption
	// Cluster returns the identity of this cluster. If it is set, every write asserts that the database belongs to the
	// cluster. It is called until it succeeds, and nothing is sent before. nil: writes assert nothing.
	Cluster func(ctx context.Context) (string, error)
	// Probe is the time between two probes of the server, and Patience the time for an answer and for an attempt to
	// connect; 0: 75 s and 20 s.
	Probe, Patience time.Duration
	// waitingProbe is the time between two probes while a transaction waits for its answer; 0: waitingProbe.
	waitingProbe time.Duration
	Log          *slog.Logger
}

// DB is one long-lived connection to a database. It reconnects by itself.
type DB struct {
	name      string
	link      link
	endpoints *endpoints
	connected chan struct{} // closed when the first connection is up
	// model and mapper turn generated models into rows and rows into models; they are from the first connection.
	model  model.DatabaseModel
	mapper mapper.Mapper
	stop   context.CancelFunc
	done   sync.WaitGroup
	// cluster is the identity of this cluster; "": there is none. It is set before connected is closed. unknown is the
	// reason why the identity is not known yet.
	cluster string
	unknown atomic.Pointer[error]
	age     age
	// period is the time between two probes, patience the time for an answer.
	period, patience time.Duration
	// soon is the time between two probes while a transaction waits for its answer.
	soon     time.Duration
	together together
	// waiting is how many transactions wait for their answer.
	waiting atomic.Int32
	// probed is when a probe, or a read in its place, was last answered; nil: never. The time has a monotonic reading:
	// by the wall clock, a clock that is set back by an hour would stop the probes for an hour.
	probed atomic.Pointer[time.Time]
}

// link is how a DB reaches its database. After its first connection it connects again by itself.
type link interface {
	// connect makes the first connection, to a database whose schema passes the check. The caller repeats connect after
	// an error.
	connect(ctx context.Context, check func(*ovsdb.DatabaseSchema) error) error
	connected() bool
	endpoint() string // of the connection; "": it is down
	// transact sends a transaction, as soon as the connection is up, and waits for the answer.
	transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error)
	// disconnect ends the connection, whose server does not answer. Transactions that wait for their answer end.
	disconnect()
	close()
}

// A server that answers late is busy: a connection that is made again costs the server more than the answer,
// and all nodes make theirs at the same moment. So a server has a long time for an answer. A process that ends is
// noticed at once, because the kernel closes the connection.
const defaultPatience = 20 * time.Second

// defaultProbe is long because each message of each node costs the server: see docs/scale.md. It is longer than the
// minute after which an idle agent reads again, so that this read is also the probe. The kernel notices by itself that
// the server's node is gone: see silentNode. So a probe only finds a process that hangs. While a transaction waits for
// its answer, probes come each waitingProbe.
const (
	defaultProbe = 75 * time.Second
	waitingProbe = 12 * time.Second
)

// checkTimeout limits one check of the endpoints, and one attempt to learn the identity of the cluster.
const checkTimeout = 5 * time.Second

// The pause between two attempts to connect begins with connectPause, and grows up to about connectPauseLast. It is
// random, so that the nodes come back one after the other. OVN's raft has a new leader after 1 to 3 s.
const (
	connectPause     = 200 * time.Millisecond
	connectPauseLast = 5 * time.Second
)

func connectPauses() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(connectPause),
		backoff.WithMaxInterval(connectPauseLast), backoff.WithMaxElapsedTime(0)) // 0: without end
}

// NoticedWithin is how long [DB.Connected] may still return true when the server does not answer but the connection
// is open: the server's node has lost its power, or the process hangs.
const NoticedWithin = defaultProbe + defaultPatience

// Open begins to connect and returns at once. If the database is down, Open connects when it is up.
func Open(cfg Config) (*DB, error) {
	d := &DB{name: cfg.Name, connected: make(chan struct{}),
		period: cmp.Or(cfg.Probe, defaultProbe), patience: cmp.Or(cfg.Patience, defaultPatience),
		endpoints: newEndpoints(cfg)}
	d.soon = min(d.period, cmp.Or(cfg.waitingProbe, waitingProbe))
	var err error
	if len(cfg.Monitor) > 0 {
		d.link, err = newCopied(cfg, d.patience)
	} else {
		d.link = newRemote(d.endpoints, cfg, d.patience)
	}
	if err != nil {
		return nil, fmt.Errorf("%s database: %w", cfg.Name, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.done.Go(func() {
		if !d.identify(ctx, cfg) {
			return
		}
		d.connect(ctx, cfg)
		d.probe(ctx)
	})
	return d, nil
}

// connect tries until the first connection is up. From then on, the link connects again by itself.
func (d *DB) connect(ctx context.Context, cfg Config) {
	pauses := connectPauses()
	for said := false; ; said = true {
		err := d.tryConnect(ctx, cfg)
		if err == nil {
			d.answered()
			close(d.connected)
			cfg.Log.Info("connected", "db", cfg.Name, "endpoint", d.link.endpoint())
			return
		}
		if !said {
			cfg.Log.Warn("database not reachable; trying again", "db", cfg.Name, "endpoints", d.endpoints.all(), "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pauses.NextBackOff()):
		}
	}
}

func (d *DB) tryConnect(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	return d.link.connect(ctx, func(schema *ovsdb.DatabaseSchema) error {
		rows, errs := model.NewDatabaseModel(*schema, cfg.Model)
		if err := errors.Join(errs...); err != nil {
			return err
		}
		d.model, d.mapper = rows, mapper.NewMapper(*schema)
		return nil
	})
}

// probe detects a server that does not answer while the connection is open.
func (d *DB) probe(ctx context.Context) {
	for {
		answers := d.answers(ctx)
		if ctx.Err() != nil {
			return // libovsdb would connect again, and not end when it is closed meanwhile
		}
		if !answers {
			d.link.disconnect()
		}
	}
}

// answers waits until a probe may be due, and then probes the server with a transaction. If this process has a cluster,
// the transaction reads the row of the owner. libovsdb's Echo has a data race with a late answer. If no probe is due,
// because another read was the probe meanwhile, and while the connection is down, answers sends nothing.
func (d *DB) answers(ctx context.Context) bool {
	wait := d.soon
	if rest := d.period - d.sinceProbe(); rest > 0 {
		wait = min(rest, d.soon)
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
	}
	since := d.sinceProbe()
	if !d.link.connected() || since < d.period && (since < d.soon || d.waiting.Load() == 0) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	var ops []ovsdb.Operation
	if d.cluster != "" {
		ops = []ovsdb.Operation{readOwner}
	}
	before := d.age.last()
	results, err := d.link.transact(ctx, ops)
	if err == nil {
		d.answered()
		if len(ops) == 1 && len(results) == 1 && results[0].Error == "" {
			d.readOwner(before, results[0])
		}
	}
	return err == nil || ctx.Err() == nil || !d.link.connected()
}

// answered notes that a probe, or a read in its place, was answered now.
func (d *DB) answered() {
	now := time.Now()
	d.probed.Store(&now)
}

// sinceProbe is the time since a probe, or a read in its place, was last answered.
func (d *DB) sinceProbe() time.Duration {
	if last := d.probed.Load(); last != nil {
		return time.Since(*last)
	}
	return math.MaxInt64
}

// SetEndpoints sets where the database is from the next connection on. A connection that is up stays: a member that
// leaves its raft ends its connections itself.
func (d *DB) SetEndpoints(all []string) { d.endpoints.set(all) }

// Close ends the connection.
func (d *DB) Close() {
	d.stop()
	d.done.Wait()
	d.link.close()
}

// WaitConnected waits for the first connection. The error is an *Unreachable, or says why the identity of this cluster
// is not known.
func (d *DB) WaitConnected(ctx context.Context) error {
	err := d.await(ctx, d.connected)
	if unknown := d.unknown.Load(); err != nil && unknown != nil {
		return fmt.Errorf("%s database: the identity of this cluster is not known: %w: %w",
			d.name, *unknown, cmp.Or(ctx.Err(), err))
	}
	return err
}

// Connected reports whether the connection is up, as far as this process knows: see [NoticedWithin]. It waits for a
// running attempt to connect.
func (d *DB) Connected() bool {
	select {
	case <-d.connected:
		return d.link.connected()
	default:
		return false
	}
}

// Answers returns an error unless the server answers now and its database belongs to this cluster.
func (d *DB) Answers(ctx context.Context) error {
	_, err := d.Transact(ctx, nil)
	if err == nil {
		err = d.Owned(ctx)
	}
	_, other := errors.AsType[*NotOwner](err)
	away, ok := errors.AsType[*Unreachable](err)
	switch {
	case err == nil, other:
		return err
	case ok && len(away.Failures) > 0:
		return fmt.Errorf("%s database does not answer: %w", d.name, away)
	}
	return fmt.Errorf("%s database does not answer", d.name)
}

// Copy waits for the first connection, before which libovsdb's client panics when it is read. It returns that client,
// with the copy of the tables in Config.Monitor, which must not be empty. The error is that of [DB.WaitConnected].
func (d *DB) Copy(ctx context.Context) (client.Client, error) {
	if err := d.WaitConnected(ctx); err != nil {
		return nil, err
	}
	return d.link.(*copied).client, nil
}

// Refused says that the database refused a transaction: nothing was written.
type Refused struct {
	Index   int    // the operation's index; the number of operations: the whole commit was refused
	Reason  string // RFC 7047 section 3.1 and ovsdb-server(7), like "timed out", "duplicate uuid"
	Details string
}

// Reasons that callers tell apart.
const (
	ReasonTimedOut   = "timed out"            // the condition of a wait was false
	ReasonDuplicate  = "duplicate uuid"       // the key of an inserted row exists
	ReasonConstraint = "constraint violation" // at the commit: an index, such as a port's name
)

func (r *Refused) Error() string {
	return fmt.Sprintf("refused at operation %d: %s: %s", r.Index, r.Reason, r.Details)
}

// ErrUnknownOutcome says that the connection was lost after a transaction was sent: it may be committed or not.
var ErrUnknownOutcome = errors.New("outcome unknown")

// Transact runs the operations as one transaction. The error is a *Refused if the database refused it, and an
// *Unreachable if nothing was sent. It wraps ErrUnknownOutcome if the answer was lost. For a write to a database that
// does not belong to this cluster, it is a *NotOwner; if the database was replaced, a *Replaced.
func (d *DB) Transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	if err := d.WaitConnected(ctx); err != nil {
		return nil, err
	}
	if d.cluster != "" && writes(ops) {
		return d.guarded(ctx, ops)
	}
	if d.cluster != "" { // a transaction that only asserts compares external_ids too
		ops = d.stamp(ops)
	}
	if d.cluster != "" && len(ops) > 0 && d.sinceProbe() > d.period/2 {
		return d.readAndProbe(ctx, ops)
	}
	return d.transact(ctx, ops)
}

// readAndProbe runs a transaction that writes nothing. It also reads the row of the owner, so no probe is needed soon.
func (d *DB) readAndProbe(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	before := d.age.last()
	results, err := d.transact(ctx, append(slices.Clone(ops), readOwner))
	if err != nil {
		return nil, err
	}
	d.answered()
	d.readOwner(before, results[len(ops)])
	return results[:len(ops)], nil
}

func (d *DB) transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	if err := d.awaitUp(ctx); err != nil {
		return nil, err
	}
	d.waiting.Add(1)
	results, err := d.link.transact(ctx, ops)
	d.waiting.Add(-1)
	if err != nil {
		return nil, fmt.Errorf("%s database: %w: %w", d.name, ErrUnknownOutcome, err)
	}
	for i, r := range results {
		if r.Error == "" {
			continue
		}
		// The outcome is unknown after an error that is not an error of our operations but of the server: "cluster error",
		// "I/O error" and others (RFC 7047, section 3.1, has no closed list).
		if i >= len(ops) && r.Error != ReasonConstraint && r.Error != "referential integrity violation" {
			return nil, fmt.Errorf("%s database: %w: %s: %s", d.name, ErrUnknownOutcome, r.Error, r.Details)
		}
		return nil, &Refused{Index: i, Reason: r.Error, Details: r.Details}
	}
	if len(results) < len(ops) {
		return nil, fmt.Errorf("%s database: %w: %d results for %d operations",
			d.name, ErrUnknownOutcome, len(results), len(ops))
	}
	return results, nil
}
