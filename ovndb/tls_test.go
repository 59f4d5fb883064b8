package ovndb_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// authority signs certificates for the tests.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	a.key = newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign writes cert.pem, key.pem and ca.pem into a folder: without a host's name, unless it is changed.
func (a *authority) sign(dir string, change ...func(*x509.Certificate)) {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "id:1"}, NotAfter: time.Now().Add(time.Hour)}
	for _, c := range change {
		c(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: keyDER},
		"ca.pem": {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

func tlsConfig(dir string) ovndb.TLSConfig {
	return ovndb.TLSConfig{
		Certificate: filepath.Join(dir, "cert.pem"), PrivateKey: filepath.Join(dir, "key.pem"), CACert: filepath.Join(dir, "ca.pem"),
		Log: slog.New(slog.DiscardHandler),
	}
}

// TestTLS speaks to a real ovsdb-server over mutual TLS: the authority's certificates pass, others do not, and
// rotated files take effect without a new DB.
func TestTLS(t *testing.T) {
	old, now := newAuthority(t), newAuthority(t)
	serverDir, clientDir := t.TempDir(), t.TempDir()
	old.sign(serverDir)
	now.sign(clientDir) // the wrong authority, at first
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
	old.sign(clientDir)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := db.Transact(ctx, []ovsdb.Operation{ovndb.Select(nb.LogicalSwitchTable, ovndb.SwitchKey("a/b"))}); err != nil {
		t.Fatalf("after the files were replaced: %v", err)
	}
}

func TestTLSFiles(t *testing.T) {
	dir := t.TempDir()
	newAuthority(t).sign(dir)
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
