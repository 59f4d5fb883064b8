package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

const namespace = "ovn-multinet"

// request is a request as a program of the role makes it, with changes.
func request(t *testing.T, role Role, node string, change func(*certificates.CertificateSigningRequest, *x509.CertificateRequest)) *certificates.CertificateSigningRequest {
	t.Helper()
	var addresses []net.IP
	if role.Serves() {
		addresses = []net.IP{net.ParseIP("192.0.2.1")}
	}
	wanted := ContentOf(role, node, addresses)
	csr := &certificates.CertificateSigningRequest{Spec: certificates.CertificateSigningRequestSpec{
		SignerName: SignerName, Username: "system:serviceaccount:" + namespace + ":" + string(role), Usages: wanted.Usages,
		Extra: map[string]certificates.ExtraValue{nodeClaim: {node}}}}
	content := &x509.CertificateRequest{Subject: pkix.Name{CommonName: wanted.Name}, IPAddresses: wanted.Addresses}
	if change != nil {
		change(csr, content)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, content, key)
	if err != nil {
		t.Fatal(err)
	}
	if csr.Spec.Request == nil {
		csr.Spec.Request = encode("CERTIFICATE REQUEST", der)
	}
	return csr
}

// A program gets a certificate for itself, on the node that its token names, and nothing else.
func TestBoundaryCheck(t *testing.T) {
	type csr = certificates.CertificateSigningRequest
	for _, tt := range []struct {
		name   string
		role   Role
		change func(*csr, *x509.CertificateRequest)
		want   string // in the error; "": signed
	}{
		{"a node", Node, nil, ""},
		{"a server", Central, nil, ""},
		{"a controller", Controller, nil, ""},
		{"another ServiceAccount", Node, func(c *csr, _ *x509.CertificateRequest) {
			c.Spec.Username = "system:serviceaccount:shop:ovn-node"
		}, "gets no certificate of OVN"},
		{"the agent", Node, func(c *csr, _ *x509.CertificateRequest) {
			c.Spec.Username = "system:serviceaccount:ovn-multinet:agent"
		}, "gets no certificate of OVN"},
		{"a user with the name of a role", Node, func(c *csr, _ *x509.CertificateRequest) { c.Spec.Username = "ovn-node" },
			"gets no certificate of OVN"},
		{"fewer usages", Node, func(c *csr, _ *x509.CertificateRequest) { c.Spec.Usages = c.Spec.Usages[:1] }, "the usages"},
		{"a user", Node, func(c *csr, _ *x509.CertificateRequest) { c.Spec.Username = "admin" }, "gets no certificate of OVN"},
		{"a token without a node", Node, func(c *csr, _ *x509.CertificateRequest) { c.Spec.Extra = nil }, "does not name the node"},
		{"another node", Node, func(_ *csr, r *x509.CertificateRequest) { r.Subject.CommonName = "ovn-node/two" }, `not for "ovn-node/two"`},
		{"another role", Node, func(_ *csr, r *x509.CertificateRequest) { r.Subject.CommonName = "ovn-central/one" },
			`not for "ovn-central/one"`},
		{"a node as a server", Node, func(c *csr, _ *x509.CertificateRequest) {
			c.Spec.Usages = append(c.Spec.Usages, certificates.UsageServerAuth)
		}, "the usages"},
		{"a usage in place of another", Node, func(c *csr, _ *x509.CertificateRequest) {
			c.Spec.Usages = []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageServerAuth}
		}, "the usages"},
		{"an authority", Node, func(c *csr, _ *x509.CertificateRequest) {
			c.Spec.Usages = append(c.Spec.Usages, certificates.UsageCertSign)
		}, "the usages"},
		{"a node with its address", Node, func(_ *csr, r *x509.CertificateRequest) {
			r.IPAddresses = []net.IP{net.ParseIP("192.0.2.1")}
		}, "with the addresses [], not for"},
		{"another node's address", Central, func(_ *csr, r *x509.CertificateRequest) {
			r.IPAddresses = append(r.IPAddresses, net.ParseIP("192.0.2.2"))
		}, "with the addresses [192.0.2.1], not for"},
		{"no address", Central, func(_ *csr, r *x509.CertificateRequest) { r.IPAddresses = nil }, "with the addresses [192.0.2.1], not for"},
		{"a host name", Central, func(_ *csr, r *x509.CertificateRequest) { r.DNSNames = []string{"one"} }, "further names"},
		{"a URI", Central, func(_ *csr, r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, "further names"},
		{"a mail address", Central, func(_ *csr, r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@b"} }, "further names"},
		{"an organization", Node, func(_ *csr, r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} },
			"further names"},
		{"no request", Node, func(c *csr, _ *x509.CertificateRequest) { c.Spec.Request = []byte("x") }, "is not one certificate request"},
	} {
		c := request(t, tt.role, "one", tt.change)
		who, err := askerOf(c, namespace)
		if err == nil {
			_, err = check(c, who, []net.IP{net.ParseIP("192.0.2.1")})
		}
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestBoundaryServers: a server's certificate is for a member of OVN's databases, with the address in the list of members.
// What the node's kubelet says of the node, its addresses and its labels, makes it no member.
func TestBoundaryServers(t *testing.T) {
	for _, tt := range []struct{ name, list, want, reason string }{
		{"a member", "one 192.0.2.1 id\n", "Approved", ""},
		{"a member among others", "two 192.0.2.2 id\none 192.0.2.1 id\n", "Approved", ""},
		{"a node that is no member", "two 192.0.2.1 id\n", "Denied", "node one is no member of OVN's databases (ConfigMap ovn-multinet-ovn)"},
		{"a member with another address", "one 192.0.2.9 id\n", "Denied", "with the addresses [192.0.2.9], not for"},
		{"no list", "", "Denied", "node one is no member"},
	} {
		c := request(t, Central, "one", nil)
		c.Name = "a"
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"ovn-multinet/central": "true"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}}
		client := fake.NewClientset(c, node)
		if tt.list != "" {
			list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: members.ConfigMapName},
				Data: map[string]string{members.ListKey: tt.list}}
			if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), list, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		s := Signer{Client: client, Namespace: namespace, Nodes: noNodes, Leading: func() error { return nil }, Log: slog.New(slog.DiscardHandler)}
		if err := s.answer(t.Context(), c); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		now, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		conditions := now.Status.Conditions
		if len(conditions) != 1 || string(conditions[0].Type) != tt.want || !strings.Contains(conditions[0].Message, tt.reason) {
			t.Errorf("%s: %+v, want %s: %s", tt.name, conditions, tt.want, tt.reason)
		}
	}
}

// TestRequestsOfOthers: a request of another program is denied if the signer is ours. Another signer, such as
// cert-manager's, may serve that program: the request is left alone. A bad request of a program of ours is denied always.
func TestRequestsOfOthers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		signs  bool
		change func(*certificates.CertificateSigningRequest, *x509.CertificateRequest)
		want   string
	}{
		{"ours, of another program", true, byAdmin, "Denied"},
		{"cert-manager's, of another program", false, byAdmin, ""},
		{"cert-manager's, of a program of ours", false, nil, "Approved"},
		{"cert-manager's, bad, of a program of ours", false, func(c *certificates.CertificateSigningRequest, _ *x509.CertificateRequest) {
			c.Spec.Extra = nil
		}, "Denied"},
	} {
		c := request(t, Node, "one", tt.change)
		c.Name = "a"
		client := fake.NewClientset(c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}})
		s := Signer{Client: client, Namespace: namespace, Nodes: noNodes, Signs: tt.signs, Leading: func() error { return nil }, Log: slog.New(slog.DiscardHandler)}
		if err := s.answer(t.Context(), c); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		now, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, condition := range now.Status.Conditions {
			got += string(condition.Type)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func byAdmin(c *certificates.CertificateSigningRequest, _ *x509.CertificateRequest) {
	c.Spec.Username = "admin"
}

// An authority is replaced before its end. Each new certificate is trusted by programs that have the list of trusted
// authorities of an hour ago, as long as the certificate is valid.
func TestTurn(t *testing.T) {
	secret := &corev1.Secret{Data: map[string][]byte{}}
	data := secret.Data
	now := time.Now()
	authorities := map[string]bool{}
	type published struct {
		at     time.Time
		bundle []byte
	}
	var lists []published // the last one is older than publishedFor when the next authority signs
	for at := now; at.Before(now.Add(2 * authorityLife)); {
		turned, err := turn(secret, at, turning{life: DefaultLife})
		if err != nil {
			t.Fatal(err)
		}
		signs, bundle, changed := turned.signs, turned.bundle, turned.changed
		lists = append(lists, published{at, bundle})
		for len(lists) > 1 && !lists[1].at.After(at.Add(-publishedFor)) {
			lists = lists[1:]
		}
		if !authorities[string(signs.cert.Raw)] || changed {
			authorities[string(signs.cert.Raw)] = true
			for _, list := range lists {
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(list.bundle)
				if _, err := signs.cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: anyUsage}); err != nil {
					t.Fatalf("after %v a program does not trust the authority: %v", at.Sub(now), err)
				}
			}
		}
		if signs.cert.NotAfter.Before(at.Add(LongestLife)) {
			t.Fatalf("after %v certificates outlive their authority", at.Sub(now))
		}
		step := 24 * time.Hour
		if next := data[nextKeys[0]]; len(next) > 0 && at.Before(parse(t, next).NotBefore.Add(2*publishedFor)) {
			step = publishedFor / 2 // the next authority becomes the one that signs
		}
		at = at.Add(step)
	}
	if len(authorities) < 3 {
		t.Errorf("%d authorities", len(authorities))
	}
}

var anyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny}

func parse(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
