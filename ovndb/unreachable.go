package ovndb

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Unreachable says that the connection to a database was down, so nothing was sent. libovsdb does not say why it
// cannot reconnect, so a DB checks the endpoints itself while callers wait.
type Unreachable struct {
	Database string
	Failures []Failure // of each endpoint; none: not known
	ended    error     // of the caller's context; nil: TLS failed at each endpoint, so waiting cannot help
}

// Failure is why one endpoint cannot be used.
type Failure struct {
	Endpoint string
	TLS      bool // certificates, keys or protocols do not fit: only a change of the files helps
	Err      error
}

func (e *Unreachable) Error() string {
	text := e.Database + " database is not reachable"
	if len(e.Failures) == 0 {
		return fmt.Sprint(text, ": ", e.ended)
	}
	words := make([]string, len(e.Failures))
	for i, f := range e.Failures {
		words[i] = f.Endpoint + ": " + f.Err.Error()
	}
	return text + ": " + strings.Join(words, "; ")
}

// Unwrap returns the error of the caller's context, if the wait ended with it.
func (e *Unreachable) Unwrap() error { return e.ended }

// TLS reports whether TLS fails at one endpoint at least.
func (e *Unreachable) TLS() bool { return slices.ContainsFunc(e.Failures, Failure.isTLS) }

func (f Failure) isTLS() bool   { return f.TLS }
func (f Failure) passing() bool { return !f.TLS }

// checkPeriod is the time between two checks of the endpoints, and the time before the first check: most connections
// are up again by then.
const checkPeriod = time.Second

// await waits until up is closed. It ends early when TLS fails at each endpoint.
func (d *DB) await(ctx context.Context, up <-chan struct{}) error {
	select {
	case <-up:
		return nil
	default:
	}
	e := &Unreachable{Database: d.name}
	next := time.NewTimer(checkPeriod)
	defer next.Stop()
	checked := make(chan []Failure, 1)
	for {
		select {
		case <-up:
			return nil
		case <-ctx.Done():
			e.ended = ctx.Err()
			return e
		case <-next.C:
			since := time.Now()
			go func() { checked <- d.endpoints.check(since) }()
		case e.Failures = <-checked:
			if len(e.Failures) > 0 && !slices.ContainsFunc(e.Failures, Failure.passing) {
				return e
			}
			next.Reset(checkPeriod)
		}
	}
}

// WaitUp waits until the connection is up, the first one or a later one. The error is that of [DB.WaitConnected].
func (d *DB) WaitUp(ctx context.Context) error {
	if err := d.WaitConnected(ctx); err != nil {
		return err
	}
	return d.awaitUp(ctx)
}

// awaitUp waits until the connection is up again. libovsdb would wait too, but it would not say that it sent nothing.
func (d *DB) awaitUp(ctx context.Context) error {
	up := make(chan struct{})
	go func() {
		for !d.Connected() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(upEvery):
			}
		}
		close(up)
	}()
	return d.await(ctx, up)
}

// upEvery is the time between two checks whether the connection is up again.
const upEvery = 20 * time.Millisecond

// endpoints are the addresses of a database.
type endpoints struct {
	database    string // its name in the schema
	tls         *tls.Config
	certificate string                                                       // the file, for errors
	leaderOnly  bool                                                         // only the leader of a raft is used
	dialer      func(ctx context.Context, endpoint string) (net.Conn, error) // nil: the scheme says how

	mu    sync.Mutex
	began time.Time // of the last check
	found []Failure

	list atomic.Pointer[[]string] // may change: see SetEndpoints
}

func newEndpoints(cfg Config) *endpoints {
	p := &endpoints{database: cfg.Model.Name(), tls: cmp.Or(cfg.TLS, &tls.Config{}), certificate: cfg.Certificate,
		leaderOnly: cfg.LeaderOnly, dialer: cfg.Dial}
	p.set(cfg.Endpoints)
	return p
}

func (p *endpoints) set(all []string) { p.list.Store(&all) }

func (p *endpoints) all() []string { return *p.list.Load() }

// errNoEndpoints says that no place for the database is known yet.
var errNoEndpoints = errors.New("no node has the database yet")

// check connects to each endpoint once and returns the failures; none: one endpoint can be used. Only one check runs at
// a time: concurrent callers get the result of the next check.
func (p *endpoints) check(since time.Time) []Failure {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.After(since) {
		return p.found
	}
	p.began = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	all := p.all()
	failures := make([]Failure, len(all))
	var tries sync.WaitGroup
	for i, endpoint := range all {
		tries.Go(func() { failures[i] = p.try(ctx, endpoint) })
	}
	tries.Wait()
	p.found = failures
	if slices.ContainsFunc(failures, func(f Failure) bool { return f.Err == nil }) {
		p.found = nil
	}
	return p.found
}

// dial opens a connection. With TLS 1.3, a server that does not accept the certificate says so only in place of its
// first answer.
func (p *endpoints) dial(ctx context.Context, endpoint string) (net.Conn, error) {
	if p.dialer != nil {
		return p.dialer(ctx, endpoint)
	}
	scheme, address, _ := strings.Cut(endpoint, ":")
	network := "tcp"
	if scheme == "unix" {
		network = scheme
	}
	dialer := net.Dialer{KeepAliveConfig: silentNode}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil || scheme != "ssl" {
		return conn, err
	}
	cfg := p.tls.Clone()
	cfg.ServerName, _, _ = net.SplitHostPort(address)
	if verify := cfg.VerifyConnection; verify != nil {
		cfg.VerifyConnection = func(state tls.ConnectionState) error {
			state.ServerName = cfg.ServerName // package tls leaves an address out
			return verify(state)
		}
	}
	return tls.Client(conn, cfg), nil
}

// silentNode has the kernel end a connection after 20 s in which the other node's kernel did not answer. This wakes no
// process on the other node, unlike a probe.
var silentNode = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 2}

// try connects to an endpoint and requests an echo (RFC 7047, section 4.1.11). With leaderOnly, a member of a raft that
// does not lead is a failure too.
func (p *endpoints) try(ctx context.Context, endpoint string) Failure {
	conn, err := p.dial(ctx, endpoint)
	if err != nil {
		return Failure{Endpoint: endpoint, Err: err}
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })() // ends reads and writes
	if err = echo(conn); err == nil {
		return Failure{Endpoint: endpoint, Err: p.leads(ctx, endpoint)}
	}
	if !strings.HasPrefix(endpoint, "ssl:") {
		return Failure{Endpoint: endpoint, Err: fmt.Errorf("it does not answer: %w", err)}
	}
	op, onWay := errors.AsType[*net.OpError](err)
	switch {
	case onWay && op.Op == "remote error":
		return Failure{endpoint, true,
			fmt.Errorf("TLS: the server does not accept the certificate in %s: %w", p.certificate, op.Err)}
	case onWay && op.Op != "local error", errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), ctx.Err() != nil:
		return Failure{endpoint, false, fmt.Errorf("TLS: the server does not answer: %w", err)}
	}
	return Failure{endpoint, true, fmt.Errorf("TLS: %w", err)}
}

// leads returns an error if only a leader is used and the server does not become it soon.
func (p *endpoints) leads(ctx context.Context, endpoint string) error {
	if !p.leaderOnly {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	c, err := p.open(ctx, endpoint, true)
	if err != nil {
		return errors.Unwrap(err) // without the endpoint
	}
	return c.rpc.Close()
}

func echo(conn net.Conn) error {
	if _, err := conn.Write([]byte(`{"method":"echo","id":"look","params":[]}`)); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}
