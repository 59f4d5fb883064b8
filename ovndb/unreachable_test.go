package ovndb_test

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// trust is a server and a client that know each other: of one authority, each with a folder of files.
type trust struct {
	ca             *ovndbtest.Authority
	server, client string
}

func newTrust(t *testing.T) *trust {
	tr := &trust{ovndbtest.NewAuthority(t), t.TempDir(), t.TempDir()}
	tr.ca.Sign(tr.server)
	tr.ca.Sign(tr.client)
	return tr
}

func (tr *trust) file(name string) string { return filepath.Join(tr.client, name) }

// open opens a DB as agent and controller do.
func (tr *trust) open(t *testing.T, endpoints ...string) *ovndb.DB {
	t.Helper()
	c := tlsConfig(tr.client)
	c.Endpoints = endpoints
	cfg, err := ovndb.TLS(c)
	if err != nil {
		t.Fatal(err)
	}
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: endpoints, TLS: cfg, Certificate: c.Certificate, Model: model, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// ask sends a question, and again when it went into a connection that was just ending.
func ask(ctx context.Context, db *ovndb.DB) error {
	for {
		_, err := db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey("a/b"))})
		if !errors.Is(err, ovndb.ErrUnknownOutcome) || ctx.Err() != nil {
			return err
		}
	}
}

// wantTLS demands an error in one line that says TLS, these words, and that nothing was sent, before the caller's time
// is up.
func wantTLS(t *testing.T, ctx context.Context, err error, words ...string) {
	t.Helper()
	away, ok := errors.AsType[*ovndb.Unreachable](err)
	if !ok || !away.TLS() || errors.Is(err, ovndb.ErrUnknownOutcome) {
		t.Fatalf("error %v, want TLS that fails and no unknown outcome: nothing was sent", err)
	}
	if ctx.Err() != nil {
		t.Errorf("%v came when the caller's time was up", err)
	}
	for _, word := range append(words, "NB database is not reachable: ", "TLS: ") {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has several lines", err)
	}
}

var expired = func(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
}

// Trouble with certificates is named with the endpoint, the reason and the file, to a caller who comes first and to
// one whose connection stood before. It is not waited out.
func TestTLSTroubleIsNamed(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(tr *trust, t *testing.T)
		words func(tr *trust) []string
	}{
		{"expired", func(tr *trust, _ *testing.T) { tr.ca.Sign(tr.server, expired) },
			func(tr *trust) []string { return []string{"x509: certificate has expired", tr.file("ca.pem")} }},
		{"another authority", func(tr *trust, t *testing.T) { ovndbtest.NewAuthority(t).Sign(tr.server) },
			func(tr *trust) []string {
				return []string{"x509: certificate signed by unknown authority", tr.file("ca.pem")}
			}},
		{"another name", func(tr *trust, _ *testing.T) { tr.ca.Sign(tr.server, named("nb", []string{"192.0.2.1"})) },
			func(*trust) []string {
				return []string{"the server's certificate is for 192.0.2.1 and not for 127.0.0.1", "--nb-server-name"}
			}},
		{"ours is not accepted", func(tr *trust, t *testing.T) {
			text, err := os.ReadFile(tr.file("ca.pem"))
			if err != nil {
				t.Fatal(err)
			}
			ovndbtest.NewAuthority(t).Sign(tr.client)
			if err := os.WriteFile(tr.file("ca.pem"), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}, func(tr *trust) []string {
			return []string{"the server does not accept the certificate in " + tr.file("cert.pem"), "unknown certificate authority"}
		}},
		{"our authority's file is gone", func(tr *trust, t *testing.T) {
			if err := os.Remove(tr.file("ca.pem")); err != nil {
				t.Fatal(err)
			}
		}, func(tr *trust) []string { return []string{tr.file("ca.pem") + ": no such file"} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTrust(t)
			s, endpoint := ovndbtest.StartNBTLS(t, tr.server)
			stood := tr.open(t, endpoint)
			ctx := withTimeout(t, time.Minute)
			if err := ask(ctx, stood); err != nil {
				t.Fatal(err)
			}
			late := tr.open(t, endpoint) // reads its files now, and connects when they are spoilt
			s.Kill()
			tt.spoil(tr, t)
			s.Restart()
			for _, db := range []*ovndb.DB{stood, late} {
				wantTLS(t, ctx, ask(ctx, db), append(tt.words(tr), endpoint)...)
			}
		})
	}
}

// One endpoint that is reachable is enough; when all fail, the error has the reason of each.
func TestTLSTroubleOfSeveralEndpoints(t *testing.T) {
	tr := newTrust(t)
	bad, other := t.TempDir(), t.TempDir()
	tr.ca.Sign(bad, expired)
	ovndbtest.NewAuthority(t).Sign(other)
	_, good := ovndbtest.StartNBTLS(t, tr.server)
	_, old := ovndbtest.StartNBTLS(t, bad)
	_, strange := ovndbtest.StartNBTLS(t, other)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "ssl:" + closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := withTimeout(t, time.Minute)
	if err := ask(ctx, tr.open(t, old, strange, nobody, good)); err != nil {
		t.Errorf("one of four endpoints is as it should be: %v", err)
	}
	checked := ": TLS: the server's certificate, checked by the authorities in " + tr.file("ca.pem") + ": x509: certificate "
	wantTLS(t, ctx, ask(ctx, tr.open(t, old, strange)), old+checked+"has expired", "; "+strange+checked+"signed by unknown authority")

	// A server that is down may come back: it is waited for, and the error has all that is known by then.
	mixed := tr.open(t, old, nobody)
	for looked := false; !looked; { // the first look may come after the caller's time on a slow machine
		short, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := ask(short, mixed)
		cancel()
		away, ok := errors.AsType[*ovndb.Unreachable](err)
		if !ok || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ovndb.ErrUnknownOutcome) {
			t.Fatalf("error %v, want the end of the caller's time", err)
		}
		if looked = len(away.Failures) > 0; !looked && ctx.Err() != nil {
			t.Fatal("nobody looked at the endpoints")
		}
		if looked && (!away.TLS() || !strings.Contains(err.Error(), "x509: certificate has expired") ||
			!strings.Contains(err.Error(), "; "+nobody+": dial tcp") || !strings.Contains(err.Error(), "connection refused")) {
			t.Errorf("error %q does not say what fails at each endpoint", err)
		}
	}
}

// Callers who wait at the same time share their looks at the endpoints: a database that comes back is not met by a
// herd.
func TestWaitingCallersShareACheck(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	met := 0
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			met++
			mu.Unlock()
			_ = conn.Close()
		}
	})
	since := time.Now()
	e := ovndb.Endpoints("tcp:" + l.Addr().String())
	var looks sync.WaitGroup
	for range 50 {
		looks.Go(func() {
			if failures := e.Check(since); len(failures) != 1 || failures[0].TLS {
				t.Errorf("failures %v, want one that is none of TLS", failures)
			}
		})
	}
	looks.Wait()
	_ = l.Close()
	accepting.Wait()
	if met != 1 {
		t.Errorf("50 callers made %d connections, want 1", met)
	}
}
