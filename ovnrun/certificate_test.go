package ovnrun

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
)

// apiServer is a stand-in that notes in a request who makes it, as the API server does by the token.
func apiServer(role authority.Role, node string) *fake.Clientset {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ovn-multinet", Name: members.ConfigMapName},
		Data:       map[string]string{members.ListKey: node + " 192.0.2.1 id\n"}})
	made := 0
	client.PrependReactor("create", "certificatesigningrequests", func(a k8stesting.Action) (bool, runtime.Object, error) {
		csr := a.(k8stesting.CreateAction).GetObject().(*certificates.CertificateSigningRequest)
		made++
		csr.Name = fmt.Sprint(csr.GenerateName, made)
		csr.Spec.Username = "system:serviceaccount:ovn-multinet:" + string(role)
		csr.Spec.Extra = map[string]certificates.ExtraValue{"authentication.kubernetes.io/node-name": {node}}
		return false, nil, nil
	})
	return client
}

// signed runs a signer until the end of the test, and returns what asks it for a server's certificate.
func (w *world) signed(client *fake.Clientset) (context.Context, *Certificates) {
	log := slog.New(slog.DiscardHandler)
	signer := authority.Signer{Client: client, Namespace: "ovn-multinet", SignerName: authority.SignerName, Signs: true,
		Life: authority.DefaultLife, Nodes: func(context.Context) ([]netmodel.Node, error) { return nil, nil }, Leading: func() error { return nil }, Log: log}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- signer.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		w.must(<-ended)
	})
	return ctx, &Certificates{Client: client, SignerName: authority.SignerName, Life: authority.DefaultLife,
		Role: authority.Central, Node: "one",
		IP: netip.MustParseAddr("192.0.2.1"), Namespace: "ovn-multinet", Dir: w.t.TempDir(), Log: log}
}

// A program gets its certificate from the signer, uses it until it is due, and gets another one when the authority is
// another one, or the certificate is damaged. Its key stays.
func TestCertificates(t *testing.T) {
	w := newWorld(t)
	client := apiServer(authority.Central, "one")
	ctx, c := w.signed(client)
	refreshed := func() string {
		t.Helper()
		w.eventually("refresh", func() error { return c.refresh(ctx) })
		w.must(c.Ready())
		if _, err := tls.LoadX509KeyPair(filepath.Join(c.Dir, certName), filepath.Join(c.Dir, keyName)); err != nil {
			t.Fatal(err)
		}
		return c.content(t, certName)
	}
	if err := c.Ready(); err == nil {
		t.Error("ready without a certificate")
	}
	first := refreshed()
	key := c.content(t, keyName)
	if again := refreshed(); again != first {
		t.Error("a certificate that is not due was replaced")
	}
	w.must(os.WriteFile(filepath.Join(c.Dir, certName), []byte("x"), 0o600))
	second := refreshed()
	w.must(client.CoreV1().Secrets("ovn-multinet").Delete(ctx, authority.SecretName, metav1.DeleteOptions{}))
	w.must(os.Remove(filepath.Join(c.Dir, certName)))
	third := refreshed() // by a new authority
	if second == first || third == second {
		t.Error("a certificate was not replaced")
	}
	if c.content(t, keyName) != key {
		t.Error("another key")
	}
	if info, err := os.Stat(filepath.Join(c.Dir, keyName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key: %v, %v", info.Mode(), err)
	}
}

// A certificate is valid for the time that the operator wants, also if there is one already that is valid longer, and
// never longer than the signer allows.
func TestCertificateLife(t *testing.T) {
	w := newWorld(t)
	ctx, c := w.signed(apiServer(authority.Central, "one"))
	for _, tt := range []struct {
		asks, want time.Duration
		replaced   bool
	}{
		{authority.LongestLife, authority.DefaultLife, true}, // more than the signer allows
		{authority.DefaultLife, authority.DefaultLife, false},
		{authority.ShortestLife, authority.ShortestLife, true},
	} {
		c.Life = tt.asks
		before, _ := os.ReadFile(filepath.Join(c.Dir, certName))
		w.eventually("refresh", func() error { return c.refresh(ctx) })
		if replaced := c.content(t, certName) != string(before); replaced != tt.replaced {
			t.Errorf("life %v: the certificate was replaced: %v", tt.asks, replaced)
		}
		cert, err := c.read()
		w.must(err)
		if got := time.Until(cert.NotAfter); got > tt.want || got < tt.want-10*time.Minute {
			t.Errorf("life %v: valid for %v, want %v", tt.asks, got, tt.want)
		}
	}
}

// TestAnotherAuthoritySigns: a program that follows the authorities gets another certificate as soon as another authority
// signs, while the former one is still trusted. Only the order of the authorities tells.
func TestAnotherAuthoritySigns(t *testing.T) {
	w := newWorld(t)
	client := apiServer(authority.Central, "one")
	_, c := w.signed(client)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	defer func() {
		stop()
		w.must(<-ended)
	}()
	w.eventually("a certificate", c.Ready)
	first := c.content(t, certName)

	secrets := client.CoreV1().Secrets("ovn-multinet")
	secret, err := secrets.Get(t.Context(), authority.SecretName, metav1.GetOptions{})
	w.must(err)
	secret.Annotations = map[string]string{authority.RotateAnnotation: "",
		"ovn-multinet/rotation": time.Now().Add(-time.Minute).Format(time.RFC3339)}
	next := apiServer(authority.Central, "one") // another cluster's signer makes another authority
	_, other := w.signed(next)
	w.eventually("another authority", func() error { return other.refresh(t.Context()) })
	foreign, err := next.CoreV1().Secrets("ovn-multinet").Get(t.Context(), authority.SecretName, metav1.GetOptions{})
	w.must(err)
	for key, now := range map[string]string{corev1.TLSCertKey: "next.crt", corev1.TLSPrivateKeyKey: "next.key"} {
		secret.Data[now] = foreign.Data[key]
	}
	_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	w.must(err)
	// The signer looks at the Secret when it signs, or once a minute.
	maps := client.CoreV1().ConfigMaps("ovn-multinet")
	bundle, err := maps.Get(t.Context(), authority.ConfigMapName, metav1.GetOptions{})
	w.must(err)
	former := bundle.Data[authority.BundleKey]
	bundle.Data[authority.BundleKey] = former + string(foreign.Data[corev1.TLSCertKey])
	_, err = maps.Update(t.Context(), bundle, metav1.UpdateOptions{})
	w.must(err)
	w.eventually("the file", func() error {
		if c.content(t, authorityName) == former {
			return errors.New("the program does not trust the next authority")
		}
		return nil
	})
	if c.content(t, certName) != first {
		t.Error("another certificate before another authority signs")
	}
	bundle, err = maps.Get(t.Context(), authority.ConfigMapName, metav1.GetOptions{})
	w.must(err)
	bundle.Data[authority.BundleKey] = string(foreign.Data[corev1.TLSCertKey]) + former
	_, err = maps.Update(t.Context(), bundle, metav1.UpdateOptions{})
	w.must(err)
	w.eventually("another certificate", func() error {
		if !strings.Contains(c.content(t, authorityName), former) {
			t.Fatal("the program waited for the end of the former authority")
		}
		if c.content(t, certName) == first {
			return errors.New("the program has its former certificate")
		}
		return nil
	})
}

// TestRenewedCertificate: a running server of OVN serves a new certificate, although its key stays.
func TestRenewedCertificate(t *testing.T) {
	w := newWorld(t)
	ctx, c := w.signed(apiServer(authority.Central, "one"))
	w.eventually("a certificate", func() error { return c.refresh(ctx) })
	files := t.TempDir()
	for link, name := range map[string]string{"cert.pem": certName, "key.pem": keyName, "ca.pem": authorityName} {
		w.must(os.Symlink(filepath.Join(c.Dir, name), filepath.Join(files, link)))
	}
	_, endpoint := ovndbtest.StartNBTLS(t, files)
	served := func() string {
		pair, err := tls.LoadX509KeyPair(filepath.Join(files, "cert.pem"), filepath.Join(files, "key.pem"))
		w.must(err)
		conn, err := tls.Dial("tcp", strings.TrimPrefix(endpoint, "ssl:"),
			&tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true})
		w.must(err)
		defer conn.Close()
		return string(encodeCertificate(conn.ConnectionState().PeerCertificates[0]))
	}
	if first := c.content(t, certName); served() != first {
		t.Fatal("the server has another certificate")
	}
	w.must(os.Remove(filepath.Join(c.Dir, certName)))
	w.eventually("another certificate", func() error { return c.refresh(ctx) })
	w.eventually("the server's new certificate", func() error {
		if served() != c.content(t, certName) {
			return errors.New("the server has the old certificate")
		}
		return nil
	})
}

func encodeCertificate(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

func (c *Certificates) content(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A request that is denied ends with the reason.
func TestBoundaryDeniedRequest(t *testing.T) {
	w := newWorld(t)
	client := apiServer(authority.Node, "one") // whatever the program asks for
	ctx, c := w.signed(client)
	w.eventually("denied", func() error {
		err := c.refresh(ctx)
		if err == nil || !strings.Contains(err.Error(), `Denied: the program ovn-node on node one gets a certificate for "ovn-node/one"`) {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(c.Dir, certName)); err == nil {
		t.Error("there is a certificate")
	}
}
