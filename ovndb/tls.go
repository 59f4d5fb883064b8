package ovndb

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
)

// TLSConfig names our certificate, and says which certificates of a server are valid.
type TLSConfig struct {
	Certificate, PrivateKey, CACert string // PEM files
	// ServerNames are names of which the server's certificate must have one. If there are none, the certificate must
	// have the host of an endpoint, unless it names no host.
	ServerNames []string
	Endpoints   []string // ssl:HOST:PORT; others are ignored
	// Later allows that the files do not exist yet: another program writes them, and connections fail until then.
	Later bool
	Log   *slog.Logger
}

// TLS makes the configuration of a mutual TLS connection. Each handshake reads the files again, so rotated files take
// effect with the next connection.
//
// The server's certificate must be signed by the authority, must be usable by a server (RFC 5280, section 4.2.1.12)
// and must have a server name. Without ServerNames there is one exception: certificates that ovs-pki(8) makes do not
// name a host, so they pass by the authority's signature alone, as with OVS's own clients, and the log warns once.
func TLS(c TLSConfig) (*tls.Config, error) {
	load := func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(c.Certificate, c.PrivateKey)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", c.Certificate, c.PrivateKey, err)
		}
		return &cert, nil
	}
	if _, err := load(); err != nil && !c.mayCome(err) {
		return nil, err
	}
	if _, err := readRoots(c.CACert); err != nil && !c.mayCome(err) {
		return nil, err
	}
	if missing := c.missing(); len(missing) > 0 {
		c.Log.Warn("waiting for the files of the certificate: does their Secret exist?", "missing", missing)
	}
	var warn sync.Once
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() },
		InsecureSkipVerify:   true, // VerifyConnection verifies instead
		VerifyConnection: func(state tls.ConnectionState) error {
			roots, err := readRoots(c.CACert)
			if err != nil {
				return err
			}
			if err := verify(state.PeerCertificates, roots); err != nil {
				return fmt.Errorf("the server's certificate, checked by the authorities in %s: %w", c.CACert, err)
			}
			named, err := c.verifyName(state.PeerCertificates[0], state.ServerName)
			if err == nil && !named {
				warn.Do(func() {
					c.Log.Warn("the server's certificate does not name the server's host: any certificate of the same authority "+
						"could be the server's; set the name in the certificate as --nb-server-name",
						"certificate", state.PeerCertificates[0].Subject.CommonName)
				})
			}
			return err
		},
	}, nil
}

func (c *TLSConfig) mayCome(err error) bool { return c.Later && errors.Is(err, fs.ErrNotExist) }

// missing are the files that do not exist.
func (c *TLSConfig) missing() (files []string) {
	for _, file := range []string{c.Certificate, c.PrivateKey, c.CACert} {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			files = append(files, file)
		}
	}
	return files
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
	// A certificate without the extension, such as ovs-pki's, passes; one for clients alone does not.
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// verifyName reports whether the certificate has a server name; host is that of this connection. If it has none, it is
// refused, unless it names no host at all and the configuration has no ServerNames.
func (c *TLSConfig) verifyName(cert *x509.Certificate, host string) (named bool, err error) {
	valid := c.ServerNames
	if len(valid) == 0 {
		valid = hosts(c.Endpoints)
		if len(valid) == 0 {
			valid = []string{host} // the endpoints change: see SetEndpoints
		}
	}
	if slices.ContainsFunc(valid, func(name string) bool { return hasName(cert, name) }) {
		return true, nil
	}
	if len(c.ServerNames) == 0 && !namesHost(cert) {
		return false, nil
	}
	return false, fmt.Errorf("the server's certificate is for %s and not for %s: "+
		"if it is the right server, set one of its names as --nb-server-name",
		strings.Join(namesOf(cert), ", "), strings.Join(valid, ", "))
}

// hasName reports whether a certificate is for a name or an address. If it has no alternative names, its common name
// decides, as in older certificates of ovs-pki.
func hasName(cert *x509.Certificate, name string) bool {
	if cert.VerifyHostname(name) == nil {
		return true
	}
	return !hasAlternatives(cert) && name != "" && cert.Subject.CommonName == name
}

// namesHost reports whether a certificate names a host. Certificates of ovs-pki do not: their only alternative name is
// their common name, which is a label, and they have no key usage. A name with a dot is the name of a host, unless it
// has a space, as in "a.example id:1", which ovs-pki --unique makes.
func namesHost(cert *x509.Certificate) bool {
	if !hasAlternatives(cert) {
		return false
	}
	cn := cert.Subject.CommonName
	label := (!strings.Contains(cn, ".") || strings.Contains(cn, " ")) &&
		len(cert.IPAddresses)+len(cert.URIs)+len(cert.EmailAddresses) == 0 &&
		len(cert.ExtKeyUsage)+len(cert.UnknownExtKeyUsage) == 0 &&
		slices.Equal(cert.DNSNames, []string{cn})
	return !label
}

func hasAlternatives(cert *x509.Certificate) bool {
	return len(cert.DNSNames)+len(cert.IPAddresses)+len(cert.URIs)+len(cert.EmailAddresses) > 0
}

// namesOf are the names of a certificate, for an error.
func namesOf(cert *x509.Certificate) []string {
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	if !hasAlternatives(cert) {
		names = append(names, cert.Subject.CommonName)
	}
	return names
}

// hosts are the hosts of ssl endpoints.
func hosts(endpoints []string) []string {
	var list []string
	for _, e := range endpoints {
		address, ok := strings.CutPrefix(e, "ssl:")
		if !ok {
			continue
		}
		if host, _, err := net.SplitHostPort(address); err == nil && !slices.Contains(list, host) {
			list = append(list, host)
		}
	}
	return list
}
