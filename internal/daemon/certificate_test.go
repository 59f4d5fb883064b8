package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// waitingLog closes its channel when a line says that the program waits.
type waitingLog struct {
	once    sync.Once
	line    string
	waiting chan struct{}
}

func (l *waitingLog) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "waiting for the files of the certificate") {
		l.once.Do(func() { l.line = string(b); close(l.waiting) })
	}
	return len(b), nil
}

// TestOpenNBWaitsForItsCertificate: a daemon whose Secret is not there yet starts, says what it waits for, and connects
// when the files are there.
func TestOpenNBWaitsForItsCertificate(t *testing.T) {
	authority, server, dir := ovndbtest.NewAuthority(t), t.TempDir(), t.TempDir()
	authority.Sign(server)
	cluster := ovndbtest.StartNBClusterTLS(t, server, 1)
	log := &waitingLog{waiting: make(chan struct{})}
	file := func(name string) string { return filepath.Join(dir, name) }
	db, err := OpenNB(conf.NB{
		Endpoints: cluster.Endpoints(), Certificate: file("cert.pem"), PrivateKey: file("key.pem"), CACert: file("ca.pem"),
	}, func(context.Context) (string, error) { return "c-1", nil }, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	<-log.waiting
	for _, name := range []string{"cert.pem", "key.pem", "ca.pem"} {
		if !strings.Contains(log.line, file(name)) {
			t.Errorf("the log does not name %s: %s", file(name), log.line)
		}
	}
	read := []ovsdb.Operation{ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey("shop/blue"), "name")}
	if _, err := db.Transact(t.Context(), read); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("without a certificate the caller reads %v", err)
	}
	authority.Sign(dir)
	for err = context.Canceled; err != nil && t.Context().Err() == nil; {
		_, err = db.Transact(t.Context(), read)
	}
	if err != nil {
		t.Error(err)
	}
}
