package ovndb_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

func tlsConfig(dir string) ovndb.TLSConfig {
	return ovndb.TLSConfig{
		Certificate: filepath.Join(dir, "cert.pem"), PrivateKey: filepath.Join(dir, "key.pem"), CACert: filepath.Join(dir, "ca.pem"),
		Log: slog.New(slog.DiscardHandler),
	}
}

// TestTLS speaks to a real ovsdb-server over mutual TLS: the authority's certificates pass, others do not, and
// rotated files take effect without a new DB.
func TestTLS(t *testing.T) {
	old, now := ovndbtest.NewAuthority(t), ovndbtest.NewAuthority(t)
	serverDir, clientDir := t.TempDir(), t.TempDir()
	old.Sign(serverDir)
	now.Sign(clientDir) // the wrong authority, at first
	_, endpoint := ovndbtest.StartNBTLS(t, serverDir)
	cfg, err := ovndb.TLS(tlsConfig(clientDir))
	if err != nil {
		t.Fatal(err)
	}
	model, err := nb.FullDatabaseModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovndb.Open(ovndb.Config{Name: "NB", Endpoints: []string{endpoint}, TLS: cfg, Model: model, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := db.WaitConnected(short); err == nil {
		t.Fatal("connected to a server of another authority")
	}
	old.Sign(clientDir)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey("a/b"))}); err != nil {
		t.Fatalf("after the files were replaced: %v", err)
	}
}

func TestTLSFiles(t *testing.T) {
	dir := t.TempDir()
	ovndbtest.NewAuthority(t).Sign(dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	for name, f := range map[string][3]string{
		"missing certificate": {file("none"), file("key.pem"), file("ca.pem")},
		"key for certificate": {file("key.pem"), file("key.pem"), file("ca.pem")},
		"missing authority":   {file("cert.pem"), file("key.pem"), file("none")},
		"key for authority":   {file("cert.pem"), file("key.pem"), file("key.pem")},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ovndb.TLS(ovndb.TLSConfig{Certificate: f[0], PrivateKey: f[1], CACert: f[2]}); err == nil {
				t.Error("no error")
			}
		})
	}
}
