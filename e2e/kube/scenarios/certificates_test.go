//go:build kube

package scenarios

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
)

// expires returns what replaces the certificates on a node's disk by those of the same authority, for the same keys, that
// ended an hour ago. Each of the present ones is valid for a day.
func (w *world) expires() func(*kube.Node) error {
	var secret corev1.Secret
	w.Must(json.Unmarshal([]byte(w.kubectl("get", "secret", "--namespace=ovn-multinet", "ovn-multinet-ca", "--output=json")), &secret))
	ca, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	w.Must(err)
	return func(n *kube.Node) error {
		files, err := filepath.Glob(n.OwnFolder("/var/lib/ovn-multinet") + "/pki*/tls.crt")
		if err == nil && len(files) == 0 {
			err = fmt.Errorf("%s has no certificate", n.Name)
		}
		for _, file := range files {
			err = errors.Join(err, expire(file, ca))
		}
		return err
	}
}

func expire(file string, ca tls.Certificate) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("%s is no certificate", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	if life := cert.NotAfter.Sub(cert.NotBefore); life > 25*time.Hour {
		return fmt.Errorf("%s is valid for %v", file, life)
	}
	cert.NotBefore, cert.NotAfter = time.Now().Add(-25*time.Hour), time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, cert, ca.Leaf, cert.PublicKey, ca.PrivateKey)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}
