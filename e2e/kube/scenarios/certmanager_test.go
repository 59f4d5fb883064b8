//go:build kube && long

package scenarios

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

func init() { options = append(options, kube.WithCertManager()) }

// TestCertManager: cert-manager signs the certificates of OVN, as docs/install.md says it. Then the operator replaces the
// authority, and each program gets a certificate of the new one without a restart: connections by the old ones would be
// refused.
func TestCertManager(t *testing.T) {
	t.Parallel()
	w := bareWorld(t, kube.Options{Nodes: 2, WithoutOVN: true})
	w.Must(w.LoadImages(w.Ctx))
	w.Must(w.StartCertManager(w.Ctx))
	w.kubectl("create", "namespace", ours)
	w.newIssuer("first")
	w.Must(w.InstallChart(w.Ctx, `
ovn: {tunnelInterface: eth1, signerName: clusterissuers.cert-manager.io/ovn}
networks: [{name: blue, config: {subnets: 10.1.0.0/16}}]
`))
	for _, n := range w.Nodes {
		w.Must(lab.Eventually(w.Ctx, func() error {
			_, err := os.Stat(n.Path(ourConflist))
			return err
		}))
	}
	w.Must(w.Apply(w.Ctx, pod("a", "node1", "blue")+pod("b", "node2", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b"))
	w.reaches("a", "net1", w.links("b")["net1"].ips()[0])
	w.issuedBy("first")

	w.newIssuer("second")
	w.issuedBy("second")
	for _, n := range w.Nodes { // all connections begin again
		if member := w.podOn("app=ovn-multinet-ovn-central", n.Name); member != "" {
			w.Must(n.Signal(w.Ctx, ours+"/"+member, "nb", "SIGKILL"))
			w.Must(w.WaitRestarted(w.Ctx, ours+"/"+member, "nb", 0))
		}
	}
	w.Must(w.Apply(w.Ctx, nad("green", `{"type":"ovn-multinet","subnets":"10.2.0.0/16"}`)+
		pod("c", "node1", "blue,green")+pod("d", "node2", "blue,green")))
	w.Must(w.WaitReady(w.Ctx, "default/c", "default/d"))
	w.reaches("c", "net2", w.links("d")["net2"].ips()[0])
	w.reaches("a", "net1", w.links("d")["net1"].ips()[0])
	w.neverRestarted("nb")
	if secrets := w.kubectl("--namespace", ours, "get", "secrets", "--output", "name"); strings.Contains(secrets, "ovn-multinet-ca") {
		t.Errorf("the controller has made an authority of its own: %s", secrets)
	}
}

// newIssuer gives the ClusterIssuer a new authority, which alone is trusted from now on.
func (w *world) newIssuer(authority string) {
	w.T.Helper()
	certificate, err := w.NewIssuer(w.Ctx, "ovn", authority)
	w.Must(err)
	w.Must(w.Apply(w.Ctx, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ovn-multinet-ca, namespace: %s}\ndata:\n  ca.crt: |\n    %s\n",
		ours, strings.ReplaceAll(strings.TrimSpace(certificate), "\n", "\n    "))))
}

// issuedBy waits until the certificates on all nodes, and what is trusted there, are of an authority.
func (w *world) issuedBy(authority string) {
	w.T.Helper()
	for _, n := range w.Nodes {
		files := []string{"pki/tls.crt", "pki/ca.crt"}
		if w.podOn("app=ovn-multinet-ovn-central", n.Name) != "" {
			files = append(files, "pki-central/tls.crt", "pki-central/ca.crt")
		}
		for _, file := range files {
			w.Must(lab.Eventually(w.Ctx, func() error {
				text, err := os.ReadFile(n.Path(filepath.Join("/var/lib/ovn-multinet", file)))
				if err != nil {
					return err
				}
				block, _ := pem.Decode(text)
				if block == nil {
					return fmt.Errorf("%s: %s is not PEM", n.Name, file)
				}
				cert, err := x509.ParseCertificate(block.Bytes)
				if err == nil && cert.Issuer.CommonName != authority {
					err = fmt.Errorf("%s: %s is issued by %s, not by %s", n.Name, file, cert.Issuer.CommonName, authority)
				}
				return err
			}))
		}
	}
}
