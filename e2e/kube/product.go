package kube

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/images"
)

// ProductEnv names the folder with the programs as they are shipped; the Makefile builds them and sets it.
const ProductEnv = "OVN_MULTINET_PRODUCT"

// InstallProduct runs the product as its users do: its images by its manifests, with this lab's NB in the ConfigMap
// and its certificates in the Secret. Settings are further lines of the ConfigMap, like OVN_MULTINET_ORPHAN_PERIOD: 1s. It
// returns when the plugin is chained on every node.
func (c *Cluster) InstallProduct(ctx context.Context, settings ...string) error {
	dir := os.Getenv(ProductEnv)
	if dir == "" {
		return fmt.Errorf("%s is not set: it names the folder of the programs to install, the Makefile sets it", ProductEnv)
	}
	c.step("installing ovn-multinet by its manifests")
	for _, img := range images.All(dir) {
		if err := c.LoadImage(ctx, img.Name, img.Files, img.Entrypoint); err != nil {
			return err
		}
	}
	manifests, err := c.productManifests(ctx, settings)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, manifests); err != nil {
		return err
	}
	for _, what := range []string{"daemonset/agent", "deployment/controller"} {
		if out, err := c.Kubectl(ctx, "--namespace", "ovn-multinet", "rollout", "status", "--timeout=90s", what); err != nil {
			return fmt.Errorf("%s: %w: %s", what, err, out)
		}
	}
	for _, n := range c.Nodes {
		err := lab.Eventually(ctx, func() error {
			_, err := os.Stat(n.Path("/etc/cni/net.d/05-ovn-multinet.conflist"))
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// productManifests fills in what is the operator's: where NB is, and the certificates for it.
func (c *Cluster) productManifests(ctx context.Context, settings []string) (string, error) {
	text, err := images.Manifests()
	if err != nil {
		return "", err
	}
	if text, err = c.allowDelegates(text); err != nil {
		return "", err
	}
	endpoint, secret, err := c.ServeNBOverTLS(ctx, "ovn-multinet", "ovn-multinet-nb")
	if err != nil {
		return "", err
	}
	const empty = `OVN_MULTINET_NB_ENDPOINTS: ""`
	if strings.Count(text, empty) != 1 {
		return "", fmt.Errorf("the manifests do not have %q once", empty)
	}
	lines := append([]string{fmt.Sprintf("OVN_MULTINET_NB_ENDPOINTS: %q", endpoint)}, settings...)
	return strings.Replace(text, empty, strings.Join(lines, "\n  "), 1) + "---\n" + secret, nil
}

// allowDelegates adds to what the manifests let the nodes run.
func (c *Cluster) allowDelegates(text string) (string, error) {
	if len(c.allowedDelegates) == 0 {
		return text, nil
	}
	const flag = `"--allowed-delegates=`
	if strings.Count(text, flag) != 1 {
		return "", fmt.Errorf("the manifests do not have %q once", flag)
	}
	return strings.Replace(text, flag, flag+strings.Join(c.allowedDelegates, ",")+",", 1), nil
}
