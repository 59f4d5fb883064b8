package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
)

// certManagerEnv is the folder of cert-manager and its kinds; told to the inner process.
const certManagerEnv = "OVN_MULTINET_KUBE_CERTMANAGER"

// certManagerNamespace has the Secrets of ClusterIssuers.
const certManagerNamespace = "cert-manager"

// WithCertManager has [Main] or [Enter] build cert-manager: two minutes, once per version.
func WithCertManager() lab.EnterOption { return building(certManagerEnv, buildCertManager) }

func buildCertManager(ctx context.Context) (_ string, err error) {
	defer try.Handle(&err)
	source := filepath.Join(try.E1(lab.ModuleRoot()), "e2e", "certmanager")
	const flags = "-s -w"
	return buildcache.Entry("certmanager", try.E1(sourceKey(source, flags)), func(dir string) (err error) {
		defer try.Handle(&err)
		fmt.Fprintln(os.Stderr, "building cert-manager: two minutes on two cores, once per version")
		try.E(lab.GoBuild(ctx, source, "-ldflags="+flags, "-o", filepath.Join(dir, "certmanager"), "."))
		cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager")
		cmd.Dir = source
		module := strings.TrimSpace(string(try.E1(cmd.Output())))
		for _, kind := range []string{"issuers", "clusterissuers"} {
			name := "cert-manager.io_" + kind + ".yaml"
			text := try.E1(os.ReadFile(filepath.Join(module, "deploy", "crds", name)))
			try.E(os.WriteFile(filepath.Join(dir, name), text, 0o644))
		}
		return nil
	})
}

// StartCertManager runs cert-manager beside the control plane, as the admin, with its ClusterIssuers and its support for
// CertificateSigningRequests.
func (c *Cluster) StartCertManager(ctx context.Context) (err error) {
	defer try.Handle(&err)
	dir := os.Getenv(certManagerEnv)
	if dir == "" {
		return errors.New("StartCertManager without its programs: give WithCertManager to kube.Main or kube.Enter")
	}
	for _, file := range try.E1(filepath.Glob(filepath.Join(dir, "*.yaml"))) {
		try.E(c.Apply(ctx, string(try.E1(os.ReadFile(file)))))
	}
	try.E1(c.Kubectl(ctx, "create", "namespace", certManagerNamespace))
	try.E1(c.Kubectl(ctx, "wait", "--for=condition=Established", "crd/issuers.cert-manager.io", "crd/clusterissuers.cert-manager.io"))
	try.E1(c.Lab.Run(ctx, lab.Spec{
		Name: "certmanager", NetNS: c.CentralNetNS(), Log: filepath.Join(c.dir(), "certmanager.log"),
		Args: []string{filepath.Join(dir, "certmanager"), c.Kubeconfig, certManagerNamespace},
	}))
	return nil
}

// NewIssuer gives cert-manager's ClusterIssuer a new authority, and returns the authority's certificate. It makes the
// ClusterIssuer if there is none.
func (c *Cluster) NewIssuer(ctx context.Context, issuer, authority string) (certificate string, err error) {
	defer try.Handle(&err)
	ca := try.E1(newAuthority(authority))
	try.E(c.Apply(ctx, secretOf(certManagerNamespace, issuer, ca.keyPair, ca)+"---\n"+fmt.Sprintf(
		"apiVersion: cert-manager.io/v1\nkind: ClusterIssuer\nmetadata: {name: %s}\nspec: {ca: {secretName: %[1]s}}\n", issuer)))
	return string(ca.cert), nil
}
