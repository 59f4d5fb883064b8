package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// operatorLife is the life of an operator's certificate.
const operatorLife = 10 * time.Minute

// OperatorFiles makes a key and a client's certificate for an operator's command, from the content of the authority's
// Secret. Who may read this Secret may be any client. The result has the files tls.crt, tls.key and ca.crt.
func OperatorFiles(secret map[string][]byte, now time.Time) (map[string][]byte, error) {
	current, err := parsePair(secret, currentKeys)
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", SecretName, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	request := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "operator"}, PublicKey: key.Public()}
	cert, err := current.issue(request, false, now, operatorLife)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: encode("PRIVATE KEY", der),
		BundleKey: slices.Concat(secret[currentKeys[0]], secret[nextKeys[0]])}, nil
}
