//go:build kube

package scenarios

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
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

// refusesLargeRequests: nobody fills the controllers' memory by requests for certificates, not even an administrator.
func (w *world) refusesLargeRequests() {
	w.T.Helper()
	const limit, others = "has at most 4096 characters", "example.com/other"
	requests := w.Client.CertificatesV1().CertificateSigningRequests()
	noted := map[string]string{"a": strings.Repeat("b", 2049)}
	for _, tt := range []struct {
		name, signer string
		annotations  map[string]string
		size         int
		want         string
	}{
		{"small", authority.SignerName, map[string]string{"a": "b"}, 1, ""}, // as a program that annotates all objects does
		{"noted", authority.SignerName, noted, 1, limit},
		{"large", authority.SignerName, nil, 400, limit},
		{"of-others", others, noted, 400, ""},
	} {
		_, err := requests.Create(w.Ctx, &certificates.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: tt.name, Annotations: tt.annotations},
			Spec: certificates.CertificateSigningRequestSpec{SignerName: tt.signer, Request: w.certificateRequest(tt.size),
				Usages: []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth}},
		}, metav1.CreateOptions{})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			w.T.Errorf("request %s: %v, want %q", tt.name, err, tt.want)
		}
	}
	w.kubectl("delete", "csr", "small", "of-others")
}

// certificateRequest is a request with so many names.
func (w *world) certificateRequest(names int) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.Must(err)
	template := &x509.CertificateRequest{}
	for i := range names {
		template.DNSNames = append(template.DNSNames, fmt.Sprintf("name-%d.example.com", i))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	w.Must(err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// distrusts: whoever took a node's certificates, those of a member of OVN's databases too, has no access to NB and SB soon
// after the node is distrusted, and no open connection either. All other nodes get new certificates: their pods reach each
// other all the time, and pods start. When the node is trusted again, it is as it was.
func (w *world) distrusts() {
	w.T.Helper()
	n, begun := w.Node("node3"), time.Now()
	for _, folder := range []string{"pki", "pki-central"} {
		w.on(n, "cp", "-r", "/var/lib/ovn-multinet/"+folder, "/tmp/"+folder)
	}
	done := w.keepsReaching("web-1", "net1", w.links("web-2")["net1"].ips()[0])
	var open []<-chan error
	for _, database := range []string{"6641 OVN_Northbound NB_Global", "6642 OVN_Southbound SB_Global"} {
		for _, folder := range []string{"pki", "pki-central"} {
			words := strings.Fields(database)
			open = append(open, w.holds(n, folder, "monitor", words[0], words[1:]...))
			w.Must(<-w.holds(n, folder, "dump", words[0], words[1:]...))
		}
	}
	// A row that a node's certificate may write, and that would take most of OVN's tunnel keys from the cluster.
	const encap, chassis = `{"op":"insert","table":"Encap","uuid-name":"e","row":{"type":"vxlan","ip":"192.0.2.66","chassis_name":"evil"}}`,
		`{"op":"insert","table":"Chassis","row":{"name":"evil","encaps":["named-uuid","e"]}}`
	w.Must(<-w.holds(n, "pki", "transact", "6642", `["OVN_Southbound",`+encap+`,`+chassis+`]`))
	if out := w.multinet("node", "distrust", n.Name); !strings.Contains(out, "its access ends in about 3 minutes") {
		w.T.Errorf("kubectl multinet node distrust: %s", out)
	}
	for _, end := range open {
		w.Must(w.ends(end))
	}
	w.T.Logf("the connections of a distrusted node ended after %v", time.Since(begun).Round(time.Second))
	for _, folder := range []string{"pki", "pki-central"} {
		w.Must(lab.Eventually(w.Ctx, func() error { // a server may not have read the authorities yet
			if err := <-w.holds(n, folder, "dump", "6641", "OVN_Northbound", "NB_Global"); err == nil {
				return fmt.Errorf("a distrusted node reads NB with the certificate in %s", folder)
			}
			return nil
		}))
	}
	w.Must(w.Apply(w.Ctx, pod("meanwhile", "node1", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/meanwhile"))
	w.reaches("meanwhile", "net1", w.links("web-2")["net1"].ips()[0])
	done()
	w.largeRange()
	if list := w.kubectl("--namespace", ours, "get", "configmap", members.ConfigMapName, "--output=jsonpath={.data.members}"); strings.Contains(list, n.Name) {
		w.T.Errorf("a distrusted node is a member of OVN's databases: %s", list)
	}
	w.Must(lab.Eventually(w.Ctx, func() error {
		requests := w.kubectl("get", "csr", "--output=jsonpath={.items[*].status.conditions[*].message}")
		noted := w.kubectl("--namespace", ours, "get", "configmap", authority.ConfigMapName, "--output=jsonpath={.data."+authority.DistrustedKey+"}")
		if !strings.Contains(requests, "node node3 is distrusted") || noted != n.Name {
			return fmt.Errorf("requests for certificates: %s; without access: %q", requests, noted)
		}
		return nil
	}))
	const ended = "node node3 has no access to OVN\n"
	if out := w.multinet("node", "distrust", n.Name, "--wait"); !strings.HasSuffix(out, ended) { // again
		w.T.Errorf("kubectl multinet node distrust --wait: %s", out)
	}
	w.multinet("node", "trust", n.Name)
	w.Must(lab.Eventually(w.Ctx, func() error {
		if w.podOn("app=ovn-multinet-ovn-central", n.Name) == "" {
			return errors.New("node3 is no member again")
		}
		return nil
	}))
	w.Must(w.WaitReady(w.Ctx, "ovn-multinet/"+w.podOn("app=ovn-multinet-ovn-central", n.Name)))
	w.Must(w.Apply(w.Ctx, pod("again", n.Name, "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/again"))
	w.websReach()
	w.reaches("again", "net1", w.links("web-1")["net1"].ips()[0])
	w.kubectl("delete", "pod", "--grace-period=0", "meanwhile", "again")
}

// largeRange: OVN has its large range of tunnel keys, although a chassis lists VXLAN. The row is deleted.
func (w *world) largeRange() {
	w.T.Helper()
	client := func(args ...string) string {
		const dir = "/var/lib/ovn-multinet/pki"
		return w.on(w.Node("node1"), append([]string{"ovsdb-client", "--private-key=" + dir + "/tls.key",
			"--certificate=" + dir + "/tls.crt", "--ca-cert=" + dir + "/ca.crt"}, args...)...)
	}
	ip := w.kubectl("get", "node", "node1", "--output=jsonpath={.status.addresses[?(@.type=='InternalIP')].address}")
	if have := client("dump", "ssl:"+ip+":6642", "OVN_Southbound", "Encap", "type"); !strings.Contains(have, "vxlan") {
		w.T.Errorf("there is no chassis with VXLAN: %s", have)
	}
	if have := client("dump", "ssl:"+ip+":6641", "OVN_Northbound", "NB_Global", "options"); !strings.Contains(have, `max_tunid="16711680"`) {
		w.T.Errorf("one chassis took tunnel keys from the cluster: %s", have)
	}
	client("transact", "ssl:"+ip+":6642", `["OVN_Southbound",{"op":"delete","table":"Chassis","where":[["name","==","evil"]]}]`)
}

// holds runs a client of a database on a node, with certificates that were taken from it, until the client ends.
func (w *world) holds(n *kube.Node, folder, command, port string, words ...string) <-chan error {
	w.T.Helper()
	ip := w.kubectl("get", "node", "node1", "--output=jsonpath={.status.addresses[?(@.type=='InternalIP')].address}")
	dir := "/tmp/" + folder
	// The servers may get certificates of another authority meanwhile: the thief trusts all that the ConfigMap has.
	args := append([]string{"ovsdb-client", "--private-key=" + dir + "/tls.key", "--certificate=" + dir + "/tls.crt",
		"--ca-cert=/var/lib/ovn-multinet/pki/ca.crt", command, "ssl:" + ip + ":" + port}, words...)
	ended := make(chan error, 1)
	go func() {
		_, err := n.Run(w.Ctx, args...)
		ended <- err
	}()
	return ended
}

// ends waits for the end of a client.
func (w *world) ends(client <-chan error) error {
	return lab.Eventually(w.Ctx, func() error {
		select {
		case <-client:
			return nil
		default:
			return errors.New("a client of a distrusted node is connected")
		}
	})
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
