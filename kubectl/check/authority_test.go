package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
)

// authorityOf is the certificate of an authority, which is valid for an hour.
func authorityOf(t *testing.T, from time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: from.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// bundle is what the ConfigMap has of a certificate.
func bundle(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestAuthority: what an operator has to do about the authority of OVN's certificates.
func TestAuthority(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	der := authorityOf(t, noon)
	c := installed()
	judged(t, c.checkAuthority(noon)) // somebody else runs OVN
	c.Config.Data["OVN_MULTINET_NB_MEMBERS"] = "/etc/ovn-multinet/ovn"
	const missing = "error ovn-authority: ConfigMap ovn-multinet/ovn-multinet-ca has no certificate"
	judged(t, c.checkAuthority(noon), missing)
	c.Authority = map[string]string{authority.BundleKey: "no certificate"}
	judged(t, c.checkAuthority(noon), missing)
	c.Authority[authority.BundleKey] = bundle(der[1:])
	judged(t, c.checkAuthority(noon), "error ovn-authority: ConfigMap ovn-multinet/ovn-multinet-ca: x509: ")
	c.Authority[authority.BundleKey] = bundle(der)
	says(t, c.checkAuthority(noon.Add(time.Minute)), "ovn-authority", "is valid until 2026-11-29 13:00:00 UTC")
	judged(t, c.checkAuthority(noon.Add(time.Minute)))
	judged(t, c.checkAuthority(noon.Add(2*time.Hour)), "error ovn-authority: the authority of OVN's certificates has ended, on 2026-11-29 13:00:00 UTC")
	judged(t, c.checkAuthority(noon.Add(-time.Hour)), "error ovn-authority: the authority of OVN's certificates begins in the future")
}
