package kube

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/dsnet/try"
)

// keyPair is a certificate with its key, in PEM as in files.
type keyPair struct {
	cert, key []byte

	parsed *x509.Certificate
	signer crypto.Signer
}

// identity is what a certificate says of its holder.
type identity struct {
	name   string
	groups []string
	hosts  []string // names and addresses that it serves at; none: a client
}

// authority signs certificates. Every holder has a fresh key.
type authority struct{ keyPair }

func newAuthority(name string) (*authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
	pair, err := newPair(template, nil)
	if err != nil {
		return nil, err
	}
	return &authority{pair}, nil
}

func (a *authority) issue(id identity) (keyPair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: id.name, Organization: id.groups},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, host := range id.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if len(id.hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	return newPair(template, a)
}

// newPair makes a key and has it signed, by itself when there is no authority.
func newPair(template *x509.Certificate, by *authority) (_ keyPair, err error) {
	defer try.Handle(&err)
	key := try.E1(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template.SerialNumber = try.E1(rand.Int(rand.Reader, big.NewInt(1<<62)))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(30*24*time.Hour)
	issuer, signer := template, crypto.Signer(key)
	if by != nil {
		issuer, signer = by.parsed, by.signer
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), signer)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign a certificate for %s: %w", template.Subject, err)
	}
	parsed := try.E1(x509.ParseCertificate(der))
	keyDER := try.E1(x509.MarshalECPrivateKey(key))
	return keyPair{
		cert:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:    pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
		parsed: parsed, signer: key,
	}, nil
}

// write puts the pair into NAME.crt and NAME.key.
func (p keyPair) write(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, name+".crt"), p.cert, 0o644),
		os.WriteFile(filepath.Join(dir, name+".key"), p.key, 0o600),
	)
}

// public is the key's public half in PEM.
func (p keyPair) public() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(p.signer.Public())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// pki is what a cluster trusts.
type pki struct {
	ca, frontProxy *authority
	accounts       keyPair // signs the tokens of service accounts
}

func newPKI() (p pki, err error) {
	defer try.Handle(&err)
	p.ca = try.E1(newAuthority("kubernetes"))
	p.frontProxy = try.E1(newAuthority("front-proxy"))
	p.accounts, err = p.ca.issue(identity{name: "service-accounts"})
	return p, err
}
