package ovnrun

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
)

// Certificates keeps the certificate of a program up to date. The key is made on the node and never leaves it.
type Certificates struct {
	Client     kubernetes.Interface
	SignerName string
	Life       time.Duration // how long a certificate is valid
	Role       authority.Role
	Node       string
	IP         netip.Addr // the node's, in the certificate of a server
	Namespace  string     // of the ConfigMap with the authority's certificates
	Dir        string     // gets tls.key, tls.crt and ca.crt
	// Spread is the time within which all programs of a cluster renew their certificates when another authority signs.
	Spread time.Duration
	Log    *slog.Logger

	announced []byte // the certificate that OVN's programs have read
}

// The files in the folder of certificates.
const (
	keyName       = "tls.key"
	certName      = "tls.crt"
	authorityName = "ca.crt"
)

// The times between two checks of the certificate's age and of the authorities: when all is well, and after an error,
// where the time doubles with each further one.
const (
	checkEvery = 5 * time.Minute
	firstPause = 2 * time.Second
	lastPause  = time.Minute
)

// Spread is the field of [Certificates] with this name, in a cluster.
const Spread = 20 * time.Second

// Run keeps the files up to date until the end of ctx. It looks at them when the authorities change, too.
func (c *Certificates) Run(ctx context.Context) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	changed := c.follow(ctx)
	pause, said := firstPause, ""
	for {
		err := c.refresh(ctx)
		if ctx.Err() != nil {
			return nil
		}
		wait := checkEvery
		if err == nil {
			pause, said = firstPause, ""
		} else {
			wait, pause = pause, min(2*pause, lastPause)
			if err.Error() != said {
				said = err.Error()
				c.Log.Warn("no certificate yet; trying again", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(wait):
		}
	}
}

// follow returns a channel that has a value when the authorities have changed.
func (c *Certificates) follow(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{}, 1)
	note := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	one := fields.OneTermEqualSelector("metadata.name", authority.ConfigMapName).String()
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithNamespace(c.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = one }))
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: note, UpdateFunc: func(_, now any) { note(now) }})
	if err != nil {
		c.Log.Warn("cannot follow the authorities; looking at them every few minutes", "err", err)
	}
	factory.Start(ctx.Done())
	return changed
}

// Ready returns an error unless the folder has a certificate that is valid now.
func (c *Certificates) Ready() error {
	cert, err := c.read()
	if err != nil {
		return err
	}
	if cert == nil {
		return errors.New("there is no certificate yet")
	}
	_, err = os.Stat(filepath.Join(c.Dir, authorityName))
	return err
}

func (c *Certificates) refresh(ctx context.Context) error {
	published, err := c.Client.CoreV1().ConfigMaps(c.Namespace).Get(ctx, authority.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the certificate of the authority: %w", err)
	}
	ca := []byte(published.Data[authority.BundleKey])
	// First what is trusted: others may have certificates of a new authority already, and a former one's end.
	if err := write(filepath.Join(c.Dir, authorityName), ca, 0o644); err != nil {
		return err
	}
	cert, err := c.read()
	if err != nil {
		return err
	}
	if cert == nil || !c.fits(cert, ca) {
		if err := c.request(ctx); err != nil {
			return err
		}
	} else if !c.signedNow(cert, ca) {
		select { // all programs of the cluster do this now
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(mathrand.Int64N(int64(c.Spread) + 1))):
		}
		if err := c.request(ctx); err != nil {
			return err
		}
	}
	return c.announce()
}

// announce gives the key's file a new time after a new certificate, and once after a start: OVN's programs read a
// certificate again only if both files have changed.
func (c *Certificates) announce() error {
	cert, err := os.ReadFile(filepath.Join(c.Dir, certName))
	if err != nil || bytes.Equal(cert, c.announced) {
		return err
	}
	now := time.Now()
	if err := os.Chtimes(filepath.Join(c.Dir, keyName), now, now); err != nil {
		return err
	}
	c.announced = cert
	return nil
}

// read returns the certificate, nil if there is none for the key.
func (c *Certificates) read() (*x509.Certificate, error) {
	text, err := os.ReadFile(filepath.Join(c.Dir, certName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil //nolint:nilerr // a damaged file is replaced
	}
	key, err := c.key()
	if err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, nil
	}
	return cert, nil
}

// fits reports whether a certificate is for this node, is signed by an authority that is trusted, has more than a third
// of its time left, and is valid no longer than the operator wants. Another program's signer may choose another time.
func (c *Certificates) fits(cert *x509.Certificate, ca []byte) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	due := cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 3)
	const skew = time.Hour // signers begin the time of a certificate some minutes before they sign it
	long := c.SignerName == authority.SignerName && cert.NotAfter.Sub(cert.NotBefore) > c.Life+skew
	wanted := authority.ContentOf(c.Role, c.Node, c.addresses())
	return err == nil && time.Now().Before(due) && !long && wanted.Matches(cert.Subject.CommonName, cert.IPAddresses)
}

// signedNow reports whether a certificate is of the authority that signs now, which is the first one of ours. Of the
// order that another program's signer gives, nothing is known.
func (c *Certificates) signedNow(cert *x509.Certificate, ca []byte) bool {
	block, _ := pem.Decode(ca)
	if block == nil || c.SignerName != authority.SignerName {
		return true
	}
	signs, err := x509.ParseCertificate(block.Bytes)
	return err != nil || cert.CheckSignatureFrom(signs) == nil
}

// addresses are those of the certificate: a client's has none.
func (c *Certificates) addresses() []net.IP {
	if !c.Role.Serves() {
		return nil
	}
	return []net.IP{c.IP.AsSlice()}
}

// key returns the node's key, which is made at the first call.
func (c *Certificates) key() (*ecdsa.PrivateKey, error) {
	path := filepath.Join(c.Dir, keyName)
	text, err := os.ReadFile(path)
	if err == nil {
		if block, _ := pem.Decode(text); block != nil {
			if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
				if ec, is := key.(*ecdsa.PrivateKey); is {
					return ec, nil
				}
			}
		}
		c.Log.Warn("the key does not parse; making another", "file", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, write(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// request gets a certificate by a CertificateSigningRequest. The API server notes in it which pod on which node asks.
func (c *Certificates) request(ctx context.Context) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	wanted := authority.ContentOf(c.Role, c.Node, c.addresses())
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: wanted.Name}, IPAddresses: wanted.Addresses}, key)
	if err != nil {
		return err
	}
	csrs, seconds := c.Client.CertificatesV1().CertificateSigningRequests(), int32(c.Life/time.Second)
	csr, err := csrs.Create(ctx, &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "ovn-multinet-" + string(c.Role) + "-"},
		Spec: certificates.CertificateSigningRequestSpec{SignerName: c.SignerName, Usages: wanted.Usages,
			ExpirationSeconds: &seconds,
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("request a certificate: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if refused := refusal(csr); refused != "" {
			return fmt.Errorf("request for a certificate %s: %s", csr.Name, refused)
		}
		if len(csr.Status.Certificate) > 0 {
			c.Log.Info("new certificate", "name", wanted.Name, "request", csr.Name)
			return write(filepath.Join(c.Dir, certName), csr.Status.Certificate, 0o644)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("request for a certificate %s is not signed: does a controller of ovn-multinet run?", csr.Name)
		case <-time.After(500 * time.Millisecond):
		}
		if csr, err = csrs.Get(ctx, csr.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("request for a certificate: %w", err)
		}
	}
}

// refusal is the message of a request that was denied or failed.
func refusal(csr *certificates.CertificateSigningRequest) string {
	for _, condition := range csr.Status.Conditions {
		if condition.Type == certificates.CertificateDenied || condition.Type == certificates.CertificateFailed {
			return string(condition.Type) + ": " + condition.Message
		}
	}
	return ""
}

// write replaces a file whose content differs, in one step.
func write(path string, content []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(tmp, content, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
