package ovndbtest

import (
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Counts is what has passed a Proxy. Each transaction counts once, when the server's answer arrives.
type Counts struct {
	Committed int   // wrote and was not refused; also if the answer was dropped
	Refused   int   // one of the operations, or the commit, has an error
	ReadOnly  int   // had only select, wait, comment and assert, and was not refused
	Received  int64 // bytes from the server, without the answers to probes and to ignored transactions
	// Operations are those of all transactions, and Sent is the length of the transactions in bytes.
	Operations int
	Sent       int64
}

// Transact is a transaction on its way to the server.
type Transact struct {
	N      int // counted from 1 since the Proxy started or was Reset
	Writes bool
	Ops    []Op
}

// Proxy is a proxy between clients and an ovsdb-server.
type Proxy struct {
	Socket string // a plain path

	upstream string
	listener net.Listener
	running  sync.WaitGroup
	asked    atomic.Int64

	mu       sync.Mutex
	conns    map[net.Conn]bool
	closed   bool
	counts   Counts
	seen     int
	ignored  func(Transact) bool
	holding  string        // the method whose answer is held back; "": none
	released chan struct{} // closed when it is released
	before   func(Transact)
	dropNext bool
	cutNext  bool
	delayed  chan func() error // gets the delivery of the next transaction that writes; nil: it is forwarded now
	mute     bool
}

// StartProxy listens on its own socket and forwards to the endpoint "unix:PATH". The proxy ends with the test.
func StartProxy(t testing.TB, upstreamEndpoint string) *Proxy {
	t.Helper()
	path, ok := strings.CutPrefix(upstreamEndpoint, "unix:")
	if !ok {
		t.Fatalf("endpoint %q is not unix:PATH", upstreamEndpoint)
	}
	p := &Proxy{Socket: filepath.Join(TempDir(t), "proxy.sock"), upstream: path, conns: map[net.Conn]bool{}}
	var err error
	if p.listener, err = net.Listen("unix", p.Socket); err != nil {
		t.Fatal(err)
	}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Endpoint is the proxy's address in the form of OVN's tools and ours.
func (p *Proxy) Endpoint() string { return "unix:" + p.Socket }

// Counts returns what has passed since the start or the last Reset.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Asked is how often clients asked whether the server is the raft's leader.
func (p *Proxy) Asked() int { return int(p.asked.Load()) }

// Reset sets the counts to zero.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts, p.seen = Counts{}, 0
}

// Ignore leaves the transactions out of the counts for which f is true. Use it for what a client sends by the clock.
func (p *Proxy) Ignore(f func(Transact) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ignored = f
}

// Before sets a function that is called before each transaction is forwarded. The transaction waits until f returns.
// f replaces an earlier function; nil: no function is called.
func (p *Proxy) Before(f func(Transact)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = f
}

// DropNextReply forwards the next transaction that writes, and cuts the connection when its answer arrives.
func (p *Proxy) DropNextReply() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropNext = true
}

// CutBeforeNext cuts the connection instead of forwarding the next transaction that writes.
func (p *Proxy) CutBeforeNext() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutNext = true
}

// DelayNext cuts the connection instead of forwarding the next transaction that writes. arrive forwards it, and returns
// an error if the server refuses it. So it goes with a member of a raft that was paused when its client left it.
func (p *Proxy) DelayNext() (arrive func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delayed := make(chan func() error, 1)
	p.delayed = delayed
	return func() error { return (<-delayed)() }
}

// HoldAnswer holds back the answer to the next request with that method, and all that the server sends to its client
// after the answer, until release is called.
func (p *Proxy) HoldAnswer(method string) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	released := make(chan struct{})
	p.holding, p.released = method, released
	return sync.OnceFunc(func() { close(released) })
}

// hold returns what the session of a request with that method waits for; nil: nothing.
func (p *Proxy) hold(method string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holding != method {
		return nil
	}
	p.holding = ""
	return p.released
}

// StopUpdates forwards no notifications of changes from now on: the clients' copies of the database stay as they are.
func (p *Proxy) StopUpdates() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = true
}

func (p *Proxy) forwards(method string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.mute || !strings.HasPrefix(method, "update")
}

// Cut cuts all open connections. New connections are served.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.listener.Close()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", p.upstream)
		if err != nil { // the server is down, so the proxy does not serve either
			client.Close()
			continue
		}
		s := &session{proxy: p, client: client, server: server, pending: map[string]*pending{}}
		if !p.keep(client, server) {
			return
		}
		p.running.Go(s.run)
	}
}

// keep stores connections for Cut. It returns false when the proxy ends.
func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			c.Close()
		}
		p.conns[c] = true
	}
	return !p.closed
}

// session is one client's connection with its connection to the server.
type session struct {
	proxy          *Proxy
	client, server net.Conn
	mu             sync.Mutex
	pending        map[string]*pending // by the request's id
	held           chan struct{}       // what down waits for; nil: nothing
}

type pending struct{ writes, drop, ignored bool }

func (s *session) run() {
	var pumps sync.WaitGroup
	for _, pump := range []func() error{s.up, s.down} {
		pumps.Go(func() {
			_ = pump() // the end of one side ends both
			s.client.Close()
			s.server.Close()
		})
	}
	pumps.Wait()
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	delete(s.proxy.conns, s.client)
	delete(s.proxy.conns, s.server)
}

var errCut = errors.New("cut")

// up forwards the client's messages.
func (s *session) up() error {
	for dec := json.NewDecoder(s.client); ; {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		var message struct {
			Method string            `json:"method"`
			Params []json.RawMessage `json:"params"`
			ID     json.RawMessage   `json:"id"`
		}
		if err := json.Unmarshal(raw, &message); err != nil {
			return err
		}
		if message.Method == "transact" {
			if err := s.request(string(message.ID), len(raw), message.Params); err != nil {
				return err
			}
		}
		if message.Method == "monitor" && string(message.Params[0]) == `"_Server"` {
			s.proxy.asked.Add(1)
		}
		if held := s.proxy.hold(message.Method); held != nil {
			s.mu.Lock()
			s.held = held
			s.mu.Unlock()
		}
		if _, err := s.server.Write(raw); err != nil {
			return err
		}
	}
}

// request counts a transaction of that many bytes, stores it for reply, and does what Before, CutBeforeNext or
// DelayNext requested.
func (s *session) request(id string, bytes int, params []json.RawMessage) error {
	t := Transact{}
	if len(params) == 1 { // ovndb's probe of the server
		s.await(id, &pending{ignored: true})
		return nil
	}
	for _, param := range params[1:] {
		var op Op
		if err := json.Unmarshal(param, &op); err != nil {
			return err
		}
		t.Ops = append(t.Ops, op)
		switch op["op"] {
		case "select", "wait", "comment", "assert":
		default:
			t.Writes = true
		}
	}
	p := s.proxy
	p.mu.Lock()
	if p.ignored != nil && p.ignored(t) {
		p.mu.Unlock()
		s.await(id, &pending{ignored: true})
		return nil
	}
	p.seen++
	p.counts.Operations += len(t.Ops)
	p.counts.Sent += int64(bytes)
	t.N = p.seen
	before := p.before
	p.mu.Unlock()
	if before != nil {
		before(t)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.Writes && p.cutNext {
		p.cutNext = false
		return errCut
	}
	if t.Writes && p.delayed != nil {
		database := strings.Trim(string(params[0]), `"`)
		p.delayed <- func() error {
			_, err := transact(p.upstream, database, t.Ops)
			return err
		}
		p.delayed = nil
		return errCut
	}
	drop := t.Writes && p.dropNext
	if drop {
		p.dropNext = false
	}
	s.await(id, &pending{writes: t.Writes, drop: drop})
	return nil
}

// await stores what the answer to a transaction is counted as.
func (s *session) await(id string, answer *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[id] = answer
}

// down forwards the server's messages.
func (s *session) down() error {
	for dec := json.NewDecoder(s.server); ; {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		var message struct {
			Method string          `json:"method"`
			ID     json.RawMessage `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  any             `json:"error"`
		}
		if err := json.Unmarshal(raw, &message); err != nil {
			return err
		}
		if message.Method == "" {
			if err := s.reply(string(message.ID), len(raw), message.Result, message.Error != nil); err != nil {
				return err
			}
		} else {
			s.proxy.received(len(raw))
		}
		if !s.proxy.forwards(message.Method) {
			continue
		}
		s.mu.Lock()
		held := s.held
		s.mu.Unlock()
		if held != nil {
			<-held
		}
		if _, err := s.client.Write(raw); err != nil {
			return err
		}
	}
}

// reply counts an answer of that many bytes.
func (s *session) reply(id string, bytes int, result json.RawMessage, failed bool) error {
	s.mu.Lock()
	request := s.pending[id]
	delete(s.pending, id)
	s.mu.Unlock()
	if request != nil && request.ignored {
		return nil
	}
	s.proxy.received(bytes)
	if request == nil {
		return nil
	}
	if !failed {
		var results []*Result
		if err := json.Unmarshal(result, &results); err != nil {
			return err
		}
		for _, r := range results {
			failed = failed || r != nil && r.Error != ""
		}
	}
	p := s.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case failed:
		p.counts.Refused++
	case request.writes:
		p.counts.Committed++
	default:
		p.counts.ReadOnly++
	}
	if request.drop {
		return errCut
	}
	return nil
}

func (p *Proxy) received(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Received += int64(bytes)
}
