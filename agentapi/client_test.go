package agentapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// patience is longer than any test takes: who sees it run out has found a defect.
const patience = 30 * time.Second

// agent is the other end of the socket.
type agent struct {
	socket string
	dials  atomic.Int32
	// answer is called for the n-th request, counted from 1; nil: the connection is closed without an answer.
	answer func(n int, r *Request) *Response

	mu       sync.Mutex
	requests []Request
	conns    []net.Conn
	listener net.Listener
}

// socketPath is short enough for a unix socket, which t.TempDir may not be.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "plan-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "agent.sock")
}

func startAgent(t *testing.T, answer func(n int, r *Request) *Response) *agent {
	t.Helper()
	a := &agent{socket: socketPath(t), answer: answer}
	a.listen(t)
	return a
}

func (a *agent) listen(t *testing.T) {
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Error(err)
		return
	}
	a.listener = l
	var conns sync.WaitGroup
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			a.dials.Add(1)
			a.mu.Lock()
			a.conns = append(a.conns, conn)
			a.mu.Unlock()
			conns.Go(func() { a.serve(conn) })
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, conn := range a.conns {
			conn.Close()
		}
		conns.Wait()
	})
}

func (a *agent) serve(conn net.Conn) {
	defer conn.Close()
	for r := NewReader(conn); ; {
		var request Request
		if r.Read(&request) != nil {
			return
		}
		a.mu.Lock()
		a.requests = append(a.requests, request)
		n := len(a.requests)
		a.mu.Unlock()
		response := a.answer(n, &request)
		if response == nil || Write(conn, response) != nil {
			return
		}
	}
}

func (a *agent) heard() []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Request(nil), a.requests...)
}

func client(t *testing.T, socket string) *Client {
	c := &Client{Socket: socket, Patience: patience}
	t.Cleanup(c.Close)
	return c
}

func withTimeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

func released(int, *Request) *Response {
	return &Response{Version: Version, Body: []byte(`{"done":true}`)}
}

func TestCall(t *testing.T) {
	a := startAgent(t, released)
	c := client(t, a.socket)
	for i := range 3 {
		var out Released
		if err := c.Call(withTimeout(t), OpRelease, Release{Version: i}, &out); err != nil {
			t.Fatal(err)
		}
		if !out.Done {
			t.Errorf("answer %+v", out)
		}
	}
	heard := a.heard()
	if len(heard) != 3 || a.dials.Load() != 1 {
		t.Fatalf("%d requests over %d connections, want 3 over 1", len(heard), a.dials.Load())
	}
	want := `{"version":2,"containerID":"","interface":"","conflist":"","namespace":"","pod":"","planned":false}`
	if r := heard[2]; r.Version != Version || r.Op != OpRelease || string(r.Body) != want {
		t.Errorf("request %d %s %s", r.Version, r.Op, r.Body)
	}
}

func TestCallAnswers(t *testing.T) {
	tests := []struct {
		name    string
		answer  Response
		out     any
		code    uint // 0: no error
		msg     string
		details string
		clean   bool
	}{
		{"nothing wanted, nothing there", Response{Version: Version}, nil, 0, "", "", false},
		{"nothing wanted, something there", Response{Version: Version, Body: []byte(`{"done":true}`)}, nil, 0, "", "", false},
		{"something wanted, nothing there", Response{Version: Version}, &Released{}, 999, "agent's answer has no body", "", false},
		{"something else", Response{Version: Version, Body: []byte(`[]`)}, &Released{}, 999,
			"json: cannot unmarshal array into Go value of type agentapi.Released", "", false},
		{"an error", Response{Version: Version, Error: &Error{Code: 103, Msg: "10.1.0.7 is held", Details: "choose"}}, &Released{}, 103, "10.1.0.7 is held", "choose", false},
		{"a clean error", Response{Version: Version, Error: &Error{Code: 104, Msg: "no address left", Clean: true}}, &Released{}, 104, "no address left", "", true},
		{"an error and a body", Response{Version: Version, Error: &Error{Code: 7, Msg: "x"}, Body: []byte(`{}`)}, nil, 7, "x", "", false},
		{"a newer agent", Response{Version: Version + 1, Body: []byte(`{}`)}, nil, 11,
			fmt.Sprintf("protocol version %d is not understood, only %d", Version+1, Version),
			"plugin and agent are more than one version apart: finish the upgrade of this node", false},
		{"an agent that does not say", Response{Body: []byte(`{}`)}, nil, 11, fmt.Sprintf("protocol version 0 is not understood, only %d", Version),
			"plugin and agent are more than one version apart: finish the upgrade of this node", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := startAgent(t, func(int, *Request) *Response { return &tt.answer })
			err := client(t, a.socket).Call(withTimeout(t), OpPlan, PlanRequest{}, tt.out)
			var code uint
			var msg, details string
			if err != nil {
				code, msg, details = conf.Describe(err)
			}
			if code != tt.code || msg != tt.msg || details != tt.details {
				t.Errorf("got  %d %q %q\nwant %d %q %q", code, msg, details, tt.code, tt.msg, tt.details)
			}
			if errors.Is(err, ErrClean) != tt.clean {
				t.Errorf("clean: %t", !tt.clean)
			}
			if n := len(a.heard()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// An agent that went in mid call is asked again, and what its successor says is no word on what it left behind.
func TestCallAsksAgain(t *testing.T) {
	tests := []struct {
		name   string
		broken int // requests that get no answer
		clean  bool
	}{
		{"none broken", 0, true},
		{"one broken", 1, false},
		{"three broken", 3, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := startAgent(t, func(n int, _ *Request) *Response {
				if n <= tt.broken {
					return nil
				}
				return &Response{Version: Version, Error: &Error{Code: 104, Msg: "no address left", Details: "d", Clean: true}}
			})
			err := client(t, a.socket).Call(withTimeout(t), OpPlan, PlanRequest{Sandbox: sandbox}, &Plan{})
			if code, msg, details := conf.Describe(err); code != 104 || msg != "no address left" || details != "d" {
				t.Errorf("%d %q %q", code, msg, details)
			}
			if errors.Is(err, ErrClean) != tt.clean {
				t.Errorf("clean: %t", !tt.clean)
			}
			heard := a.heard()
			if len(heard) != tt.broken+1 {
				t.Fatalf("%d requests, want %d", len(heard), tt.broken+1)
			}
			if first, last := heard[0], heard[tt.broken]; first.Op != last.Op || string(first.Body) != string(last.Body) {
				t.Errorf("asked %s %s, then %s %s", first.Op, first.Body, last.Op, last.Body)
			}
		})
	}
}

// What a first agent may have left is not forgotten over a time without any.
func TestCallAsksAgainAfterARefusal(t *testing.T) {
	a := startAgent(t, func(n int, _ *Request) *Response {
		if n == 1 {
			return nil
		}
		return &Response{Version: Version, Error: &Error{Code: 104, Msg: "no address left", Clean: true}}
	})
	attempts := 0
	ctx := onErr{withTimeout(t), func() {
		switch attempts++; attempts {
		case 1:
			a.listener.Close()
		case 2:
			a.listen(t)
		}
	}}
	err := client(t, a.socket).Call(ctx, OpPlan, PlanRequest{}, nil)
	if !conf.HasCode(err, 104) || errors.Is(err, ErrClean) {
		t.Errorf("%v, clean: %t", err, errors.Is(err, ErrClean))
	}
	if attempts != 2 || len(a.heard()) != 2 {
		t.Errorf("%d failed attempts, %d requests", attempts, len(a.heard()))
	}
}

// A second call over a connection that has broken since is not lost.
func TestCallAfterTheAgentWasRestarted(t *testing.T) {
	a := startAgent(t, func(n int, r *Request) *Response {
		if n == 2 {
			return nil
		}
		return released(n, r)
	})
	c := client(t, a.socket)
	for range 2 {
		var out Released
		if err := c.Call(withTimeout(t), OpRelease, Release{}, &out); err != nil || !out.Done {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	if len(a.heard()) != 3 || a.dials.Load() != 2 {
		t.Errorf("%d requests over %d connections, want 3 over 2", len(a.heard()), a.dials.Load())
	}
}

// onErr is a context that reports when it is asked whether it has ended: Call does so after each failed attempt.
type onErr struct {
	context.Context
	asked func()
}

func (c onErr) Err() error {
	c.asked()
	return c.Context.Err()
}

// The agent starts after the plugin has been refused, as when both are started at boot or the agent is upgraded.
func TestCallWaitsForTheAgent(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, socket string) // before the agent is there
	}{
		{"no socket", func(*testing.T, string) {}},
		{"a socket that nobody listens on", func(t *testing.T, socket string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &agent{socket: socketPath(t), answer: func(int, *Request) *Response {
				return &Response{Version: Version, Error: &Error{Code: 104, Msg: "no address left", Clean: true}}
			}}
			tt.prepare(t, a.socket)
			var failed sync.Once
			ctx := onErr{withTimeout(t), func() {
				failed.Do(func() {
					if conn, err := net.Dial("unix", a.socket); err == nil {
						conn.Close()
						t.Error("the agent is there before it was started")
					}
					os.Remove(a.socket)
					a.listen(t)
				})
			}}
			err := client(t, a.socket).Call(ctx, OpPlan, PlanRequest{}, nil)
			if !conf.HasCode(err, 104) {
				t.Errorf("%v", err)
			}
			if !errors.Is(err, ErrClean) {
				t.Error("not clean, and nobody had heard the request before")
			}
			if a.dials.Load() != 1 || len(a.heard()) != 1 {
				t.Errorf("%d requests over %d connections", len(a.heard()), a.dials.Load())
			}
		})
	}
}

func TestCallLosesPatience(t *testing.T) {
	silent := func(int, *Request) *Response { return nil }
	tests := []struct {
		name  string
		agent bool // one that closes every connection
		want  string
		clean bool
	}{
		{"nobody there", false, "agent at SOCKET: dial unix SOCKET: connect: no such file or directory", true},
		{"no answer", true, "agent at SOCKET: no answer to plan: EOF", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			socket := socketPath(t)
			if tt.agent {
				socket = startAgent(t, silent).socket
			}
			c := &Client{Socket: socket} // no patience at all
			err := c.Call(withTimeout(t), OpPlan, PlanRequest{}, nil)
			code, msg, details := conf.Describe(err)
			if code != conf.CodeTryAgain || details != "is the ovn-multinet agent running on this node?" ||
				msg != strings.ReplaceAll(tt.want, "SOCKET", socket) {
				t.Errorf("%d %q %q", code, msg, details)
			}
			if errors.Is(err, ErrClean) != tt.clean {
				t.Errorf("clean: %t", !tt.clean)
			}
		})
	}
}

// The deadline of the call ends the wait for an agent that hangs.
func TestCallEndsAtTheDeadline(t *testing.T) {
	hang := make(chan struct{})
	a := startAgent(t, func(int, *Request) *Response {
		<-hang
		return nil
	})
	t.Cleanup(func() { close(hang) }) // before the agent's own clean-up waits for it
	deadline := time.Now().Add(50 * time.Millisecond)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	err := client(t, a.socket).Call(ctx, OpBind, BindRequest{}, nil)
	if code, msg, _ := conf.Describe(err); code != conf.CodeTryAgain || !strings.HasPrefix(msg, "agent at "+a.socket+": no answer to bind: ") {
		t.Errorf("%d %q", code, msg)
	}
	if errors.Is(err, ErrClean) {
		t.Error("clean, and the agent may be at it")
	}
	if time.Now().Before(deadline) {
		t.Error("it ended before its deadline")
	}
}

// The deadline ends the wait for an agent that is not there, long before the patience does.
func TestCallEndsAtTheDeadlineWithoutAnAgent(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	c := &Client{Socket: socketPath(t), Patience: time.Hour}
	err := c.Call(ctx, OpPlan, PlanRequest{}, nil)
	if !conf.HasCode(err, conf.CodeTryAgain) || !errors.Is(err, ErrClean) {
		t.Errorf("%v", err)
	}
}

func BenchmarkCall(b *testing.B) {
	dir, err := os.MkdirTemp("", "plan-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		body := []byte(`{"interfaces":[]}`)
		for r := NewReader(conn); r.Read(&Request{}) == nil; {
			if Write(conn, Response{Version: Version, Body: body}) != nil {
				return
			}
		}
	}()
	c := &Client{Socket: l.Addr().String()}
	defer c.Close()
	request := BindRequest{Sandbox: sandbox, Plan: full()}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Call(context.Background(), OpBind, request, &Plan{}); err != nil {
			b.Fatal(err)
		}
	}
}
