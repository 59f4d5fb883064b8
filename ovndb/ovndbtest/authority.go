package ovndbtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for tests.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that is valid for an hour.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	a.cert, a.key = a.make(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// Sign writes cert.pem, key.pem and ca.pem into a folder. The certificate is one for "id:1" without a host's name,
// unless it is changed.
func (a *Authority) Sign(dir string, change ...func(*x509.Certificate)) {
	a.t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "id:1"}}
	for _, c := range change {
		c(template)
	}
	cert, key := a.make(template)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: cert.Raw}, "key.pem": {Type: "PRIVATE KEY", Bytes: keyDER},
		"ca.pem": {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// Certificates returns the folders of a server's files and of a client's, of one authority. The server's certificate
// names its address.
func Certificates(t testing.TB, ip string) (server, client string) {
	t.Helper()
	a, server, client := NewAuthority(t), t.TempDir(), t.TempDir()
	a.Sign(server, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP(ip)} })
	a.Sign(client)
	return server, client
}

// make signs a certificate; the authority's own is signed by itself.
func (a *Authority) make(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	issuer, signer := a.cert, a.key
	if issuer == nil {
		issuer, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}
