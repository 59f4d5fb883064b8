package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/images/helm"
)

// ProductEnv names the folder with the programs as they are shipped; the Makefile builds them and sets it.
const ProductEnv = "OVN_MULTINET_PRODUCT"

// InstallProduct runs the product as its users do: its images, and what its chart makes for an OVN that the nodes have,
// with this lab's certificates in the Secrets. Settings replace lines of the ConfigMap, like
// OVN_MULTINET_ORPHAN_PERIOD: 1s. It returns when the plugin is chained on every node.
func (c *Cluster) InstallProduct(ctx context.Context, settings ...string) (err error) {
	defer try.Handle(&err)
	p := try.E1(c.current(ctx, settings))
	c.step("installing ovn-multinet by what its chart makes")
	try.E(c.loadProduct(ctx, p))
	try.E(c.Rollout(ctx, p))
	try.E(c.WaitRollout(ctx))
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

// Product is a version of the product on a cluster: its images are on the nodes, its manifests are filled in.
type Product struct {
	Bin       string // folder of its programs
	Tag       string // of its images
	Source    string // folder of its tree if it is an older version, which may lack programs of this one
	Manifests string
}

// current is this version.
func (c *Cluster) current(ctx context.Context, settings []string) (p *Product, err error) {
	p = &Product{Bin: os.Getenv(ProductEnv), Tag: "dev"}
	if p.Bin == "" {
		return nil, fmt.Errorf("%s is not set: it names the folder of the programs to install, the Makefile sets it", ProductEnv)
	}
	p.Manifests, err = c.productManifests(ctx, settings)
	return p, err
}

// loadProduct gives the nodes the images of a version, by the recipes of this one.
func (c *Cluster) loadProduct(ctx context.Context, p *Product) error {
	var all errgroup.Group
	for _, img := range images.All(p.Bin) {
		maps.DeleteFunc(img.Files, func(path, _ string) bool { return !p.has(path) })
		name, _, _ := strings.Cut(img.Name, ":")
		all.Go(func() error { return c.LoadImage(ctx, name+":"+p.Tag, img.Files, img.Entrypoint) })
	}
	return all.Wait()
}

// has tells whether the version has a program of this one.
func (p *Product) has(program string) bool {
	if p.Source == "" {
		return true
	}
	_, err := os.Stat(filepath.Join(p.Source, "cmd", program))
	return !errors.Is(err, fs.ErrNotExist)
}

// Rollout applies a version's manifests, over whichever are there. WaitRollout follows.
func (c *Cluster) Rollout(ctx context.Context, p *Product) error { return c.Apply(ctx, p.Manifests) }

// WaitRollout returns when all of the product's pods are those of the manifests that were applied last.
func (c *Cluster) WaitRollout(ctx context.Context) error {
	if err := c.rolledOut(ctx, "daemonset/agent"); err != nil {
		return err
	}
	return c.rolledOut(ctx, "deployment/controller")
}

func (c *Cluster) rolledOut(ctx context.Context, what string) error {
	out, err := c.Kubectl(ctx, "--namespace", "ovn-multinet", "rollout", "status", "--timeout=15m", what)
	if err != nil {
		return fmt.Errorf("%s: %w: %s", what, err, out)
	}
	return nil
}

// productManifests fills in what is the operator's: where NB is, and the certificates for it.
func (c *Cluster) productManifests(ctx context.Context, settings []string) (_ string, err error) {
	defer try.Handle(&err)
	endpoint, secrets := try.E2(c.ServeNBOverTLS(ctx, "ovn-multinet"))
	text := try.E1(c.allowDelegates(try.E1(chartManifests(try.E1(lab.ModuleRoot()), endpoint))))
	if c.mayHang {
		text = livenessProbe.ReplaceAllString(text, "")
	}
	return try.E1(configure(text, settings)) + "---\n" + secrets, nil
}

// livenessProbe is such a probe of one of our containers: its line, and the deeper lines that follow.
var livenessProbe = regexp.MustCompile(`(?m)^ {8}livenessProbe:\n(^ {10}.*\n)+`)

// chartManifests are what the chart of a tree makes for an OVN that the nodes have.
func chartManifests(tree, endpoint string) (string, error) {
	program := os.Getenv(HelmEnv)
	if program == "" {
		return "", fmt.Errorf("%s is not set: it names Helm's program, the Makefile sets it", HelmEnv)
	}
	values := fmt.Sprintf("--set=ovn.enabled=false,ovn.nbEndpoints={%s}", endpoint)
	return helm.Manifests(program, filepath.Join(tree, "images", "chart"), values)
}

// configure replaces lines of the ConfigMap.
func configure(text string, settings []string) (string, error) {
	for _, line := range settings {
		name, _, _ := strings.Cut(line, ":")
		old := regexp.MustCompile(`(?m)^  ` + name + `: .*$`)
		if n := len(old.FindAllString(text, -1)); n != 1 {
			return "", fmt.Errorf("the manifests have %s %d times, not once", name, n)
		}
		text = old.ReplaceAllLiteralString(text, "  "+line)
	}
	return text, nil
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
