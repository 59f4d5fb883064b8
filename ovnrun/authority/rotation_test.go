package authority

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

func noNodes(context.Context) ([]netmodel.Node, error) { return nil, nil }

// rotated is an authority whose nodes come and go on a clock of the test.
type rotated struct {
	t       *testing.T
	secret  *corev1.Secret
	now     time.Time
	nodes   []netmodel.Node
	members map[string]bool
	s       Signer
	last    turned
}

func newRotated(t *testing.T, nodes ...string) *rotated {
	r := &rotated{t: t, secret: &corev1.Secret{Data: map[string][]byte{}}, now: time.Now(), members: map[string]bool{}}
	for _, name := range nodes {
		r.nodes = append(r.nodes, netmodel.Node{Name: name, UID: "uid-" + name})
	}
	r.turn()
	for _, name := range nodes {
		r.sign(Node, name)
	}
	return r
}

func (r *rotated) turn(who ...asker) turned {
	r.t.Helper()
	of := turning{nodes: r.nodes, life: DefaultLife, settled: r.s.settled,
		members: func() (map[string]bool, error) { return r.members, nil }}
	if len(who) > 0 {
		of.holder = who[0]
	}
	var err error
	if r.last, err = turn(r.secret, r.now, of); err != nil {
		r.t.Fatal(err)
	}
	return r.last
}

// sign is a certificate for a program on a node.
func (r *rotated) sign(role Role, node string) *x509.Certificate {
	r.t.Helper()
	i := slices.IndexFunc(r.nodes, func(n netmodel.Node) bool { return n.Name == node })
	csr := request(r.t, role, node, nil)
	who := asker{role: role, node: node, uid: r.nodes[i].UID}
	var addresses []net.IP
	if role.Serves() {
		addresses = []net.IP{net.ParseIP("192.0.2.1")}
	}
	content, err := check(csr, who, addresses)
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := r.turn(who).signs.issue(content, false, r.now, DefaultLife)
	if err != nil {
		r.t.Fatal(err)
	}
	return parse(r.t, text)
}

// trusted reports whether a certificate has access now.
func (r *rotated) trusted(cert *x509.Certificate) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.last.bundle)
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: r.now, KeyUsages: anyUsage})
	return err == nil
}

// until turns the authority every few seconds until no rotation is under way, and returns how long it took. The nodes
// that renew ask for a certificate each time that another authority signs.
func (r *rotated) until(renew ...string) time.Duration {
	r.t.Helper()
	start, signs := r.now, string(r.last.signs.cert.Raw)
	for r.turn(); r.last.rotating; r.turn() {
		r.now = r.now.Add(rotateEvery)
		if now := string(r.turn().signs.cert.Raw); now != signs {
			signs = now
			for _, node := range renew {
				r.sign(Node, node)
			}
		}
		if r.now.Sub(start) > time.Hour {
			r.t.Fatal("the rotation does not end")
		}
	}
	return r.now.Sub(start)
}

func (r *rotated) distrust(name string) {
	for i := range r.nodes {
		if r.nodes[i].Name == name {
			r.nodes[i].Labels = map[string]string{conf.DistrustedLabel: ""}
		}
	}
}

// TestRotation: why all certificates are replaced, and how long the former ones are trusted.
func TestRotation(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cause  func(*rotated)
		renew  []string
		rotate bool
		atMost time.Duration
	}{
		{"nothing", func(*rotated) {}, nil, false, 0},
		{"a new node", func(r *rotated) { r.nodes = append(r.nodes, netmodel.Node{Name: "c", UID: "uid-c"}) }, nil, false, 0},
		{"the annotation", func(r *rotated) { r.secret.Annotations = map[string]string{RotateAnnotation: ""} },
			[]string{"a", "b"}, true, rotatedAfter + readWithin + 3*rotateEvery},
		{"a distrusted node", func(r *rotated) { r.distrust("b") }, []string{"a"}, true, rotatedAfter + readWithin + 3*rotateEvery},
		{"a distrusted node, and one that is off", func(r *rotated) { r.distrust("b") }, nil, true,
			rotatedAfter + rotatedFor + 2*rotateEvery},
		{"a node that was deleted today", func(r *rotated) { r.nodes = r.nodes[:1] }, nil, false, 0},
		{"a deleted node whose certificate may have ended", func(r *rotated) {
			r.nodes = r.nodes[:1]
			r.now = r.now.Add(DefaultLife + time.Minute)
		}, []string{"a"}, true, rotatedAfter + readWithin + 3*rotateEvery},
		{"a deleted node that is back with another UID", func(r *rotated) {
			r.nodes[1].UID = "other"
			r.now = r.now.Add(DefaultLife + time.Minute)
		}, []string{"a", "b"}, true, rotatedAfter + readWithin + 3*rotateEvery},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRotated(t, "a", "b")
			old, first := r.sign(Node, "b"), r.last.signs
			old.NotAfter = r.now.Add(24 * 365 * time.Hour) // as if it did not end by itself
			tt.cause(r)
			if r.turn(); r.last.rotating != tt.rotate {
				t.Fatalf("rotating: %v, want %v", r.last.rotating, tt.rotate)
			}
			if !tt.rotate {
				return
			}
			if _, noted := r.last.notes[RotationKey]; !noted || len(r.last.said) != 1 {
				t.Errorf("the operator does not see the rotation: %v, %q", r.last.notes, r.last.said)
			}
			if took := r.until(tt.renew...); took > tt.atMost {
				t.Errorf("the former authority was trusted for %v, want at most %v", took, tt.atMost)
			}
			if r.trusted(first.cert) {
				t.Error("the former authority is trusted")
			}
			if _, asked := r.secret.Annotations[RotateAnnotation]; asked || len(r.secret.Data[nextKeys[0]]) > 0 {
				t.Errorf("left over: %v", r.secret.Annotations)
			}
			if r.turn(); r.last.changed || r.last.rotating {
				t.Errorf("another turn changes something: %+v", r.last)
			}
			r.now = r.now.Add(DefaultLife + time.Minute)
			if r.turn(); r.last.rotating {
				t.Errorf("a day later there is another rotation: %q", r.last.said)
			}
		})
	}
}

// TestRenewedBeforeTheEnd: while a rotation is under way, both authorities are trusted, and the new one signs only when
// all programs trust it. The former one ends when all nodes have had new certificates for some time, and not before.
func TestRenewedBeforeTheEnd(t *testing.T) {
	r := newRotated(t, "a", "b", "c")
	r.members["a"] = true
	r.sign(Central, "a")
	r.sign(Controller, "b") // which may run elsewhere later
	old := r.sign(Node, "a")
	r.distrust("c")
	first := string(r.turn().signs.cert.Raw)
	for _, step := range []struct {
		name   string
		after  time.Duration
		do     func()
		signs  bool // the new authority
		former bool // is trusted
	}{
		{"at once", 0, func() {}, false, true},
		{"a moment before all trust the new one", rotatedAfter - time.Second, func() {}, false, true},
		{"then", 2 * time.Second, func() {}, true, true},
		{"one node renews", time.Second, func() { r.sign(Node, "a") }, true, true},
		{"much later", readWithin + time.Second, func() {}, true, true},
		{"the other one", time.Second, func() { r.sign(Node, "b") }, true, true},
		{"its server is missing", readWithin + time.Second, func() {}, true, true},
		{"the server renews", time.Second, func() { r.sign(Central, "a") }, true, true},
		{"programs read their certificates", readWithin - 2*time.Second, func() {}, true, true},
		{"all have read them", 3 * time.Second, func() {}, true, false},
	} {
		r.now = r.now.Add(step.after)
		step.do()
		r.turn()
		if signs := string(r.last.signs.cert.Raw) != first; signs != step.signs {
			t.Errorf("%s: the new authority signs: %v, want %v", step.name, signs, step.signs)
		}
		if got := r.trusted(old); got != step.former {
			t.Errorf("%s: the former authority is trusted: %v, want %v", step.name, got, step.former)
		}
		if roots := parse(t, r.last.bundle); string(roots.Raw) != string(r.last.signs.cert.Raw) {
			t.Errorf("%s: the authority that signs is not the first one of those that are trusted", step.name)
		}
	}
	if got := r.last.notes[DistrustedKey]; got != "c" {
		t.Errorf("without access: %q, want c", got)
	}
	r.nodes[2].Labels = nil
	if r.turn(); r.last.notes[DistrustedKey] != "" || r.last.rotating {
		t.Errorf("a node that is trusted again: %v, rotating %v", r.last.notes, r.last.rotating)
	}
}

// TestUnknownHolders: as long as an older version's certificates may be valid, the former authority is trusted for the
// longest time; a day later it is known who has certificates.
func TestUnknownHolders(t *testing.T) {
	for _, tt := range []struct{ after, atLeast, atMost time.Duration }{
		{0, rotatedFor, rotatedAfter + rotatedFor + 2*rotateEvery},
		{DefaultLife + time.Minute, 0, rotatedAfter + readWithin + 3*rotateEvery},
	} {
		r := newRotated(t, "a", "b")
		delete(r.secret.Data, holdersKey)
		r.turn()
		r.sign(Node, "a")
		r.now = r.now.Add(tt.after)
		r.distrust("b")
		if took := r.until("a"); took < tt.atLeast || took > tt.atMost {
			t.Errorf("after %v the rotation takes %v, want %v to %v", tt.after, took, tt.atLeast, tt.atMost)
		}
	}
}

// TestDistrustedDuringARotation: the authority that is new for the first node may have signed for the second one.
func TestDistrustedDuringARotation(t *testing.T) {
	r := newRotated(t, "a", "b", "c")
	r.distrust("b")
	r.turn()
	r.now = r.now.Add(rotatedAfter + time.Second)
	cert := r.sign(Node, "c")
	r.distrust("c")
	if r.until("a"); r.trusted(cert) {
		t.Error("a certificate of the second node is trusted")
	}
}

// TestDistrustedAgainAtOnce: a node is trusted for a moment, gets a certificate, and is distrusted again before the list
// of nodes shows that it was trusted.
func TestDistrustedAgainAtOnce(t *testing.T) {
	r := newRotated(t, "a", "b")
	r.distrust("b")
	r.until("a")
	cert := r.sign(Node, "b")
	if r.turn(); !r.last.rotating {
		t.Fatal("there is no rotation")
	}
	if r.until("a"); r.trusted(cert) {
		t.Error("the node's certificate is trusted")
	}
}

// TestDistrustedWhileTheAuthorityIsOld: the old authority has its successor already, which has signed for the node.
func TestDistrustedWhileTheAuthorityIsOld(t *testing.T) {
	r := newRotated(t, "a", "b")
	r.now = r.now.Add(authorityLife*2/3 + time.Hour)
	r.turn()
	r.now = r.now.Add(publishedFor + time.Minute)
	r.sign(Node, "a")
	cert := r.sign(Node, "b")
	r.distrust("b")
	if r.turn(); !r.last.rotating {
		t.Fatal("there is no rotation")
	}
	if r.until("a"); r.trusted(cert) {
		t.Error("the node's certificate is trusted")
	}
}

// TestBoundaryDistrusted: a distrusted node gets no certificate, whatever the label's value is.
func TestBoundaryDistrusted(t *testing.T) {
	for _, value := range []string{"", "false"} {
		c := request(t, Node, "one", nil)
		c.Name = "a"
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{conf.DistrustedLabel: value}}}
		client := fake.NewClientset(c, node)
		s := Signer{Client: client, Namespace: namespace, Signs: true, Life: DefaultLife, Nodes: noNodes,
			Leading: func() error { return nil }, Log: slog.New(slog.DiscardHandler)}
		if err := s.answer(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		now, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const want = "node one is distrusted (label ovn-multinet.node-restriction.kubernetes.io/distrusted)"
		if cs := now.Status.Conditions; len(cs) != 1 || cs[0].Type != certificates.CertificateDenied || cs[0].Message != want {
			t.Errorf("value %q: %+v, want %s", value, cs, want)
		}
	}
}

// TestHoldersFit: what the Secret notes of 5,000 nodes is smaller than an object may be (1 MiB).
func TestHoldersFit(t *testing.T) {
	r := newRotated(t)
	var lines []string
	for i := range 5000 {
		lines = append(lines, fmt.Sprintf("ovn-node/ip-10-0-%d-%d.eu-central-1.compute.internal 01234567", i/256, i%256))
	}
	text := []byte(strings.Join(lines, "\n"))
	r.secret.Data[holdersKey], r.secret.Data[nextHoldersKey] = text, text
	size := 0
	for _, value := range r.secret.Data {
		size += len(value) * 4 / 3 // base64
	}
	if size > 1<<20 {
		t.Errorf("%d bytes", size)
	}
}
