// Package images owns the recipes of the container images and the manifests that run the images. The images contain our
// static programs, and OVN's image also has files of Debian packages. The package contains no logic of the programs.
package images

import (
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// Image is the recipe of one image for one platform.
type Image struct {
	Name       string             // with its tag
	Arch       string             // of its binaries, as in GOARCH; "": this machine's
	Version    string             // for the image's label; "": no label
	Files      map[string]string  // from a path in the image to the path of a file here
	Packages   map[string]Package // the Debian packages that files are from, by the path in the image
	Entrypoint []string
}

// The images that the manifests name.
const (
	AgentName      = "localhost/ovn-multinet-agent:dev"
	PluginName     = "localhost/ovn-multinet-plugin:dev"
	ControllerName = "localhost/ovn-multinet-controller:dev"
)

// arch returns the architecture of the binaries. GOARCH and the OCI image specification have the same words for it.
func (img Image) arch() string {
	if img.Arch == "" {
		return runtime.GOARCH
	}
	return img.Arch
}

// tag returns the part of the name after the last colon.
func (img Image) tag() string { return img.Name[strings.LastIndexByte(img.Name, ':')+1:] }

// ReleaseName returns the name that an image has in a release. The prefix is a registry, with a folder or without one.
func ReleaseName(name, prefix, tag string) string {
	name = strings.TrimPrefix(name, "localhost/")
	return prefix + "/" + strings.TrimSuffix(name, ":dev") + ":" + tag
}

// All returns the recipes, with binaries from a folder.
func All(binDir string) []Image {
	one := func(name string, entrypoint string, binaries ...string) Image {
		files := map[string]string{}
		for _, b := range append(binaries, entrypoint) {
			files["/"+b] = filepath.Join(binDir, b)
		}
		return Image{Name: name, Version: version.Number, Files: files, Entrypoint: []string{"/" + entrypoint}}
	}
	return []Image{
		one(AgentName, "ovn-multinetd"),
		one(PluginName, "ovn-multinet-install", "ovn-multinet", "ovn-multinet-attach"),
		one(ControllerName, "ovn-multinet-controller"),
	}
}
