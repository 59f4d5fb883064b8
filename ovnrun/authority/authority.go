package authority

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The Secret with the authority's key, and the ConfigMap with the certificates that all programs trust.
const (
	SecretName    = "ovn-multinet-ca"
	ConfigMapName = "ovn-multinet-ca"
	BundleKey     = "ca.crt"
)

// How long the certificate of a program is valid. It is renewed after two thirds of this time: the shortest time leaves
// the API server and the controllers 20 minutes, in which the certificate's age is looked at four times.
const (
	DefaultLife  = 24 * time.Hour
	ShortestLife = time.Hour
	LongestLife  = 30 * 24 * time.Hour
)

// CheckLife refuses a life of certificates that is out of bounds.
func CheckLife(life time.Duration) error {
	if life < ShortestLife || life > LongestLife {
		return fmt.Errorf("%v is no life of a certificate, give %v to %v", life, ShortestLife, LongestLife)
	}
	return nil
}

const (
	authorityLife = 5 * 365 * 24 * time.Hour
	// clockSkew is how much the clocks of nodes may differ.
	clockSkew = 5 * time.Minute
)

// pair is an authority.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newPair(now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "ovn-multinet"}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	cert, err := sign(template, template, key.Public(), key)
	return pair{cert, key}, err
}

// sign signs a certificate with a random number.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// issue signs a certificate.
func (p pair) issue(
	request *x509.CertificateRequest, serves bool, now time.Time, life time.Duration,
) ([]byte, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: request.Subject.CommonName}, IPAddresses: request.IPAddresses,
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if serves {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	cert, err := sign(template, p.cert, request.PublicKey, p.key)
	if err != nil {
		return nil, err
	}
	return encode("CERTIFICATE", cert.Raw), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// The keys of the Secret. The next authority is trusted already, and signs some time later.
var (
	currentKeys = [2]string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey}
	nextKeys    = [2]string{"next.crt", "next.key"}
)

func parsePair(data map[string][]byte, keys [2]string) (pair, error) {
	certBlock, _ := pem.Decode(data[keys[0]])
	keyBlock, _ := pem.Decode(data[keys[1]])
	if certBlock == nil || keyBlock == nil {
		return pair{}, fmt.Errorf("%s or %s is not PEM", keys[0], keys[1])
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return pair{}, fmt.Errorf("%s: %w", keys[0], err)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return pair{}, fmt.Errorf("%s: %w", keys[1], err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return pair{}, fmt.Errorf("%s is not a key that signs", keys[1])
	}
	return pair{cert, signer}, nil
}

func (p pair) put(data map[string][]byte, keys [2]string) error {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return err
	}
	data[keys[0]], data[keys[1]] = encode("CERTIFICATE", p.cert.Raw), encode("PRIVATE KEY", der)
	return nil
}

// load reads the authority, makes it if there is none, brings its rotation forward, and publishes what is trusted. who
// is written down as the holder of a certificate.
func (s *Signer) load(ctx context.Context, now time.Time, who asker) (turned, error) {
	s.mu.Lock() // requests are answered meanwhile
	defer s.mu.Unlock()
	secrets := s.Client.CoreV1().Secrets(s.Namespace)
	secret, err := secrets.Get(ctx, SecretName, metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if absent {
		secret, err = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: SecretName}, Type: corev1.SecretTypeTLS}, nil
	}
	if err != nil {
		return turned{}, err
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return turned{}, err
	}
	t, err := turn(secret, now, turning{nodes: nodes, life: s.Life, settled: s.settled, holder: who,
		members: func() (map[string]bool, error) { return s.members(ctx) }})
	if err != nil {
		err = fmt.Errorf("secret %s/%s: %w: delete it, and all programs get certificates of a new authority",
			s.Namespace, SecretName, err)
		if s.broken != err.Error() {
			s.broken = err.Error()
			s.event(true, "AuthorityNotReady", s.broken)
		}
		return turned{}, err
	}
	s.broken = ""
	switch {
	case absent:
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	case t.changed:
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}) // refused if another controller was faster
	}
	if err != nil {
		return turned{}, err
	}
	for _, line := range t.said {
		s.Log.Info(line)
	}
	had, err := publish(ctx, s.Client, s.Namespace, t.published())
	if absent && had {
		s.event(true, "AuthorityReplaced", "the Secret "+SecretName+" was deleted: there is a new authority, and all "+
			"programs get certificates of it")
	}
	return t, err
}

// publish writes the ConfigMap that the programs mount, and reports whether there was one.
func publish(
	ctx context.Context, client kubernetes.Interface, namespace string, data map[string]string,
) (had bool, err error) {
	stores := client.CoreV1().ConfigMaps(namespace)
	have, err := stores.Get(ctx, ConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err := stores.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName}, Data: data},
			metav1.CreateOptions{})
		return false, err
	}
	if err != nil || maps.Equal(have.Data, data) {
		return err == nil, err
	}
	have.Data = data
	_, err = stores.Update(ctx, have, metav1.UpdateOptions{})
	return true, err
}
