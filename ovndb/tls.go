package ovndb

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS makes the configuration of a mutual TLS connection, from PEM files. They are read again at each handshake, so
// files that are rotated take effect with the next connection.
//
// As OVS's own clients do (ovs-pki(8), --ca-cert), it asks that the server's certificate be signed by the authority,
// and not that it name the host: certificates that ovs-pki makes name none.
func TLS(certificate, privateKey, caCert string) (*tls.Config, error) {
	load := func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(certificate, privateKey)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", certificate, privateKey, err)
		}
		return &cert, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	if _, err := readRoots(caCert); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() },
		InsecureSkipVerify:   true, // VerifyConnection verifies, all but the host's name
		VerifyConnection: func(state tls.ConnectionState) error {
			roots, err := readRoots(caCert)
			if err != nil {
				return err
			}
			return verify(state.PeerCertificates, roots)
		},
	}, nil
}

func readRoots(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate of an authority", path)
	}
	return roots, nil
}

func verify(chain []*x509.Certificate, roots *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("the server has no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	// ovs-pki's certificates name no extended usage either.
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}
