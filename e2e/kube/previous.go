package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/images"
)

// Product is a version of the product on a cluster: its images are on the nodes, its manifests are filled in.
type Product struct {
	Bin       string // folder of its programs
	Tag       string // of its images
	Manifests string
}

// Products makes the version before this one and this one ready to be installed, with the same NB and the same certificates.
// Settings are those of InstallProduct.
func (c *Cluster) Products(ctx context.Context, settings ...string) (previous, current *Product, err error) {
	built, err := lab.BuildPrevious(ctx)
	if err != nil {
		return nil, nil, err
	}
	current = &Product{Bin: os.Getenv(ProductEnv), Tag: "dev"}
	if current.Bin == "" {
		return nil, nil, fmt.Errorf("%s is not set: it names the folder of the programs to install, the Makefile sets it", ProductEnv)
	}
	if current.Manifests, err = c.productManifests(ctx, settings); err != nil {
		return nil, nil, err
	}
	previous = &Product{Bin: built.Ship, Tag: "previous"}
	if previous.Manifests, err = c.previousManifests(built.Source, previous.Tag, current.Manifests); err != nil {
		return nil, nil, err
	}
	c.step("loading the images of two versions")
	for _, p := range []*Product{previous, current} {
		if err := c.loadProduct(ctx, p); err != nil {
			return nil, nil, err
		}
	}
	return previous, current, nil
}

// loadProduct gives the nodes the images of a version, by the recipes of this one.
func (c *Cluster) loadProduct(ctx context.Context, p *Product) error {
	var all errgroup.Group
	for _, img := range images.All(p.Bin) {
		name, _, _ := strings.Cut(img.Name, ":")
		all.Go(func() error { return c.LoadImage(ctx, name+":"+p.Tag, img.Files, img.Entrypoint) })
	}
	return all.Wait()
}

// configMap begins what an operator keeps of a version when another is installed: where NB is, and the settings.
var configMap = regexp.MustCompile(`(?s)apiVersion: v1\nkind: ConfigMap\nmetadata: \{name: ovn-multinet, .*?\n---\n`)

// secret is that of the certificates, the last of the manifests that are filled in.
var secret = regexp.MustCompile(`(?s)apiVersion: v1\nkind: Secret\n.*$`)

// previousManifests are those of an older tree with its images' tag and with the operator's part of the manifests of now.
func (c *Cluster) previousManifests(source, tag, current string) (string, error) {
	files, err := filepath.Glob(filepath.Join(source, "images", "manifests", "*.yaml"))
	if err != nil {
		return "", err
	}
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		all = append(all, string(text))
	}
	text, err := c.allowDelegates(strings.Join(all, "---\n"))
	if err != nil {
		return "", err
	}
	name := regexp.MustCompile(`(image: localhost/ovn-multinet-[a-z]+):dev\n`)
	if n, want := len(name.FindAllString(text, -1)), len(images.All("")); n != want {
		return "", fmt.Errorf("the manifests of the version before name %d images with the tag dev, not %d", n, want)
	}
	text = name.ReplaceAllString(text, "${1}:"+tag+"\n")
	for what, part := range map[string]*regexp.Regexp{"ConfigMap": configMap, "Secret": secret} {
		if len(part.FindAllString(current, -1)) != 1 {
			return "", fmt.Errorf("the manifests do not have the %s once", what)
		}
	}
	if len(configMap.FindAllString(text, -1)) != 1 {
		return "", fmt.Errorf("the manifests of the version before do not have the ConfigMap once")
	}
	text = configMap.ReplaceAllLiteralString(text, configMap.FindString(current))
	return text + "---\n" + secret.FindString(current), nil
}

// Rollout applies a version's manifests, over whichever are there. WaitRollout follows.
func (c *Cluster) Rollout(ctx context.Context, p *Product) error { return c.Apply(ctx, p.Manifests) }

// WaitRollout returns when all of the product's pods are those of the manifests that were applied last.
func (c *Cluster) WaitRollout(ctx context.Context) error {
	for _, what := range []string{"daemonset/agent", "deployment/controller"} {
		if out, err := c.Kubectl(ctx, "--namespace", "ovn-multinet", "rollout", "status", "--timeout=90s", what); err != nil {
			return fmt.Errorf("%s: %w: %s", what, err, out)
		}
	}
	return nil
}
