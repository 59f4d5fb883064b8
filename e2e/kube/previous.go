package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/images"
)

// Products makes the version before this one and this one ready to be installed, with the same NB and the same certificates.
// Settings are those of InstallProduct.
func (c *Cluster) Products(ctx context.Context, settings ...string) (previous, current *Product, err error) {
	built, err := lab.BuildPrevious(ctx)
	if err != nil {
		return nil, nil, err
	}
	if current, err = c.current(ctx, settings); err != nil {
		return nil, nil, err
	}
	previous = &Product{Bin: built.Ship, Tag: "previous", Source: built.Source}
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

// configMap begins what an operator keeps of a version when another is installed: where NB is, and the settings.
var configMap = regexp.MustCompile(`(?s)apiVersion: v1\nkind: ConfigMap\nmetadata: \{name: ovn-multinet, .*?\n---\n`)

// secrets are those of the certificates, the last of the manifests that are filled in.
var secrets = regexp.MustCompile(`(?s)apiVersion: v1\nkind: Secret\n.*$`)

// sharedNBSecret is the one Secret of versions whose agents and controllers share a key for NB.
const sharedNBSecret = "ovn-multinet-nb"

// previousManifests are those of an older tree with its images' tag and with the operator's part of the manifests of now.
func (c *Cluster) previousManifests(source, tag, current string) (string, error) {
	manifests := olderManifests
	if _, err := os.Stat(filepath.Join(source, "images", "chart")); err == nil {
		manifests = func(tree string) (string, error) { return chartManifests(tree, "ssl:192.0.2.1:6641") }
	}
	text, err := manifests(source)
	if err == nil {
		text, err = c.allowDelegates(text)
	}
	if err != nil {
		return "", err
	}
	name := regexp.MustCompile(`(image: localhost/ovn-multinet-[a-z]+):dev\n`)
	if n, want := len(name.FindAllString(text, -1)), len(images.All("")); n != want {
		return "", fmt.Errorf("the manifests of the version before name %d images with the tag dev, not %d", n, want)
	}
	text = name.ReplaceAllString(text, "${1}:"+tag+"\n")
	for what, part := range map[string]*regexp.Regexp{"ConfigMap": configMap, "Secrets": secrets} {
		if len(part.FindAllString(current, -1)) != 1 {
			return "", fmt.Errorf("the manifests do not have the %s once", what)
		}
	}
	if len(configMap.FindAllString(text, -1)) != 1 {
		return "", fmt.Errorf("the manifests of the version before do not have the ConfigMap once")
	}
	text = configMap.ReplaceAllLiteralString(text, configMap.FindString(current))
	keys := secrets.FindString(current)
	shared, _, _ := strings.Cut(strings.Replace(keys, AgentNBSecret, sharedNBSecret, 1), "---\n")
	return text + "---\n" + keys + "---\n" + shared, nil
}

// olderManifests are those of a version before the chart, which has them in a folder.
func olderManifests(source string) (string, error) {
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
	return strings.Join(all, "---\n"), nil
}
