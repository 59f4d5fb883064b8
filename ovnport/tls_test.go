package ovnport_test

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// The owner of a pod reads that it is TLS, where, and what to do, while the pod's call has time left. Nothing was
// sent, so nothing is to be released.
func TestEnsureWithoutTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { // a server that speaks no TLS
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_, _ = conn.Read(make([]byte, 1024))
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "ssl:" + l.Addr().String()
	db, err := ovndb.Open(ovndb.Config{
		Name: "NB", Endpoints: []string{endpoint}, TLS: &tls.Config{InsecureSkipVerify: true}, Model: model,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	ctx := timeout(t)
	wants := []ovnport.Request{want(parseNetwork(t, "blue", net4), "net1")}
	_, err = ovnport.NewNB(db).Ensure(ctx, owner("web-1", "sandbox-1"), wants, nobody(t))
	wantCode(t, err, conf.CodeTryAgain, "NB database is not reachable: "+endpoint+": TLS: ", "does not look like a TLS handshake")
	_, _, details := conf.Describe(err)
	if !strings.Contains(details, "certificates") || ctx.Err() != nil || errors.Is(err, ovndb.ErrUnknownOutcome) {
		t.Errorf("%v, with the details %q: want TLS named, and soon", err, details)
	}
}
