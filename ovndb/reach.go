package ovndb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Unreachable says that the connection to a database did not stand, so nothing was sent. libovsdb keeps to itself why
// it cannot connect again, so a DB whose callers wait looks at the endpoints itself.
type Unreachable struct {
	Database string
	Failures []Failure // of each endpoint; none: not known
	ended    error     // of the caller's context; nil: TLS failed at each endpoint, for which nobody needs to wait longer
}

// Failure is why one endpoint cannot be used.
type Failure struct {
	Endpoint string
	TLS      bool // certificates, keys or protocols do not fit: it does not pass by itself
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

// Unwrap returns the end of the caller's context, if that is why the wait ended.
func (e *Unreachable) Unwrap() error { return e.ended }

// TLS tells whether it is TLS that fails, at one endpoint at least.
func (e *Unreachable) TLS() bool { return slices.ContainsFunc(e.Failures, Failure.isTLS) }

func (f Failure) isTLS() bool   { return f.TLS }
func (f Failure) passing() bool { return !f.TLS }

// lookEvery is the time between two looks at the endpoints, and before the first: most connections are back by then.
const lookEvery = time.Second

// await waits until up is closed. It ends early when TLS fails at each endpoint.
func (d *DB) await(ctx context.Context, up <-chan struct{}) error {
	select {
	case <-up:
		return nil
	default:
	}
	e := &Unreachable{Database: d.name}
	next := time.NewTimer(lookEvery)
	defer next.Stop()
	looked := make(chan []Failure, 1)
	for {
		select {
		case <-up:
			return nil
		case <-ctx.Done():
			e.ended = ctx.Err()
			return e
		case <-next.C:
			since := time.Now()
			go func() { looked <- d.endpoints.look(since) }()
		case e.Failures = <-looked:
			if len(e.Failures) > 0 && !slices.ContainsFunc(e.Failures, Failure.passing) {
				return e
			}
			next.Reset(lookEvery)
		}
	}
}

// awaitUp waits until the connection stands. libovsdb would wait too, but would not say afterwards that it sent
// nothing.
func (d *DB) awaitUp(ctx context.Context) error {
	up := make(chan struct{})
	go func() {
		for !d.up() { // it waits for an attempt to connect that goes on
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

// upEvery is the time between two looks whether the connection stands again.
const upEvery = 20 * time.Millisecond

// up tells whether the connection stands. libovsdb's Connected alone does not: it says so too of a connection that the
// server ended.
func (d *DB) up() bool { return d.Connected() && d.client.CurrentEndpoint() != "" }

// endpoints are where a database is.
type endpoints struct {
	all         []string
	tls         *tls.Config
	certificate string // the file, for errors

	mu    sync.Mutex
	began time.Time // of the last look
	found []Failure
}

// look connects to each endpoint once and returns what fails; nothing when one of them answers. It looks for one caller
// at a time: those that come meanwhile share the next look.
func (p *endpoints) look(since time.Time) []Failure {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.After(since) {
		return p.found
	}
	p.began = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	failures := make([]Failure, len(p.all))
	var looks sync.WaitGroup
	for i, endpoint := range p.all {
		looks.Go(func() { failures[i] = p.try(ctx, endpoint) })
	}
	looks.Wait()
	p.found = failures
	if slices.ContainsFunc(failures, func(f Failure) bool { return f.Err == nil }) {
		p.found = nil
	}
	return p.found
}

// try connects to an endpoint and asks the server for an echo (RFC 7047, section 4.1.11): by TLS 1.3 a server tells
// that it does not accept a certificate in place of its first answer.
func (p *endpoints) try(ctx context.Context, endpoint string) Failure {
	scheme, address, _ := strings.Cut(endpoint, ":")
	network := "tcp"
	if scheme == "unix" {
		network = scheme
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return Failure{Endpoint: endpoint, Err: err}
	}
	defer func() { _ = conn.Close() }()
	if at, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(at)
	}
	if scheme == "ssl" {
		cfg := p.tls.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(address)
		conn = tls.Client(conn, cfg)
	}
	if err = echo(conn); err == nil {
		return Failure{Endpoint: endpoint}
	}
	if scheme != "ssl" {
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

func echo(conn net.Conn) error {
	if _, err := conn.Write([]byte(`{"method":"echo","id":"look","params":[]}`)); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}
