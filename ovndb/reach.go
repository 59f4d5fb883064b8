package ovndb

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
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

// TLS tells whether TLS fails at one endpoint at least.
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
			go d.preferLeader(time.Time{})
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
	all         []string
	tls         *tls.Config
	certificate string // the file, for errors

	mu    sync.Mutex
	began time.Time // of the last check
	found []Failure
	order []string // if one of the endpoints led in the last check: those that answered, the leader first
}

// check connects to each endpoint once and returns the failures; none: one endpoint answers. Only one check runs at a
// time: concurrent callers get the result of the next check.
func (p *endpoints) check(since time.Time) []Failure {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.After(since) {
		return p.found
	}
	p.began = time.Now()
	failures, order := p.ask(context.Background(), p.all)
	p.found, p.order = failures, order
	if slices.ContainsFunc(failures, func(f Failure) bool { return f.Err == nil }) {
		p.found = nil
	}
	return p.found
}

// try connects to an endpoint and asks whether it is the raft's leader. With TLS 1.3, a server that does not accept the
// certificate says so only in place of its first answer.
func (p *endpoints) try(ctx context.Context, endpoint string) (f Failure, leads bool) {
	scheme, address, _ := strings.Cut(endpoint, ":")
	network := "tcp"
	if scheme == "unix" {
		network = scheme
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return Failure{Endpoint: endpoint, Err: err}, false
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })() // ends reads and writes
	if scheme == "ssl" {
		cfg := p.tls.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(address)
		conn = tls.Client(conn, cfg)
	}
	if leads, err = p.askLeader(conn); err == nil {
		return Failure{Endpoint: endpoint}, leads
	}
	if scheme != "ssl" {
		return Failure{Endpoint: endpoint, Err: fmt.Errorf("it does not answer: %w", err)}, false
	}
	op, onWay := errors.AsType[*net.OpError](err)
	switch {
	case onWay && op.Op == "remote error":
		return Failure{endpoint, true,
			fmt.Errorf("TLS: the server does not accept the certificate in %s: %w", p.certificate, op.Err)}, false
	case onWay && op.Op != "local error", errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), ctx.Err() != nil:
		return Failure{endpoint, false, fmt.Errorf("TLS: the server does not answer: %w", err)}, false
	}
	return Failure{endpoint, true, fmt.Errorf("TLS: %w", err)}, false
}

// askLeader reads the database's row of _Server (ovsdb-server(5)). Without raft no server leads: two servers of an
// active and a backup database would both say so. The error is that of the connection: what the server answers is no
// error.
func (p *endpoints) askLeader(conn net.Conn) (leads bool, err error) {
	request := fmt.Sprintf(`{"method":"transact","id":0,"params":["_Server",{"op":"select","table":"Database",`+
		`"where":[["name","==",%q]],"columns":["model","leader","connected"]}]}`, p.database)
	if _, err := conn.Write([]byte(request)); err != nil {
		return false, err
	}
	var answer struct {
		Result []struct {
			Rows []struct {
				Model             string
				Leader, Connected bool
			}
		}
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return false, err
	}
	for _, r := range answer.Result {
		for _, row := range r.Rows {
			leads = leads || row.Model == "clustered" && row.Leader && row.Connected
		}
	}
	return leads, nil
}
