package ovnrun

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// TestBoundaryDistrustedClient: when an authority is trusted no more, a running server ends the connections of all
// clients, and refuses those with its certificates. When another authority is trusted, nobody's connection ends.
func TestBoundaryDistrustedClient(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	ovndbtest.NewAuthority(t).Sign(dir)
	former := Files{Certificate: filepath.Join(dir, "cert.pem"), PrivateKey: filepath.Join(dir, "key.pem"),
		CACert: filepath.Join(dir, "ca.pem")}
	stays, bundle := w.tls, filepath.Join(dir, "bundle.pem")
	trust := func(authorities ...string) {
		t.Helper()
		var text []byte
		for _, file := range authorities {
			one, err := os.ReadFile(file)
			w.must(err)
			text = append(text, one...)
		}
		w.must(write(bundle, text, 0o644))
	}
	trust(stays.CACert)
	w.tls.CACert = bundle
	a := w.node("a")
	var said syncBuffer
	a.Log = slog.New(slog.NewTextHandler(&said, nil))
	w.members(false, "a=1")
	w.start(a)
	w.wantRaft(a)
	endpoint := net.JoinHostPort(a.ip.String(), NB.Port)

	w.eventually("a client", func() error { return client(endpoint, stays).ask() })
	open := client(endpoint, stays)
	w.must(open.ask())
	if err := client(endpoint, former).ask(); err == nil {
		t.Fatal("a client of an authority that is not trusted yet is served")
	}
	trust(stays.CACert, former.CACert)
	w.eventually("a client of the former authority", func() error { return client(endpoint, former).ask() })
	lost := client(endpoint, former)
	w.must(lost.ask())
	w.eventually("both authorities", func() error {
		if !strings.Contains(said.String(), "number=2") {
			return errors.New("they are not seen yet")
		}
		return nil
	})
	w.must(open.ask())

	trust(stays.CACert)
	w.eventually("the end of the connection", func() error {
		if lost.ask() == nil {
			return errors.New("the client of the former authority is served")
		}
		return nil
	})
	if err := client(endpoint, former).ask(); err == nil {
		t.Error("a new client of the former authority is served")
	}
	w.must(client(endpoint, stays).ask())
}

// asking is a client's connection to a server.
type asking struct {
	conn *tls.Conn
	err  error
}

func client(endpoint string, f Files) *asking {
	pair, err := tls.LoadX509KeyPair(f.Certificate, f.PrivateKey)
	if err != nil {
		return &asking{err: err}
	}
	conn, err := tls.Dial("tcp", endpoint, &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true})
	return &asking{conn, err}
}

// ask sends an echo (RFC 7047, section 4.1.11), and waits for the answer.
func (a *asking) ask() error {
	if a.err != nil {
		return a.err
	}
	const request, answer = `{"method":"echo","params":["x"],"id":7}`, `["x"]`
	if a.err = a.conn.SetDeadline(time.Now().Add(time.Minute)); a.err != nil {
		return a.err
	}
	if _, a.err = a.conn.Write([]byte(request)); a.err != nil {
		return a.err
	}
	got := make([]byte, 1000)
	var n int
	if n, a.err = a.conn.Read(got); a.err == nil && !bytes.Contains(got[:n], []byte(answer)) {
		a.err = fmt.Errorf("answer %q", got[:n])
	}
	return a.err
}

// TestServerThatDoesNotLeave: the leader removes a server that speaks and is in no list, but only when the list has
// reached all nodes.
func TestServerThatDoesNotLeave(t *testing.T) {
	now := time.Now()
	d := &Database{}
	s := status{leader: true, servers: []server{
		{id: "a", address: "ssl:192.0.2.1:6643", self: true}, {id: "b", address: "ssl:192.0.2.2:6643"},
		{id: "c", address: "ssl:192.0.2.3:6643"},
	}}
	wanted := []string{"ssl:192.0.2.1:6643", "ssl:192.0.2.2:6643"}
	for _, tt := range []struct {
		after  time.Duration
		wanted []string
		want   string
	}{
		{0, wanted, ""},
		{unlistedFor - time.Second, wanted, ""},
		{unlistedFor - time.Second, append(wanted, "ssl:192.0.2.3:6643"), ""}, // it is a member again
		{unlistedFor, wanted, ""},
		{2*unlistedFor + time.Second, wanted, "c"},
	} {
		d.noteSilence(s, now.Add(tt.after))
		d.noteUnlisted(s, tt.wanted, now.Add(tt.after))
		got := ""
		if one, _ := d.stale(s, tt.wanted, now.Add(tt.after)); one != nil {
			got = one.id
		}
		if got != tt.want {
			t.Errorf("after %v: %q is removed, want %q", tt.after, got, tt.want)
		}
	}
}

// syncBuffer is a log.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
