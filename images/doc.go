// Package images owns the recipes of the container images, which contain static binaries and nothing else, and the
// manifests that run the images. It contains no logic of the programs.
package images

import (
	"path/filepath"

	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// Image is the recipe of one image.
type Image struct {
	Name       string            // with its tag
	Version    string            // for the image's label; "": no label
	Files      map[string]string // from a path in the image to the path of a file here
	Entrypoint []string
}

// The images that the manifests name.
const (
	AgentName      = "localhost/ovn-multinet-agent:dev"
	PluginName     = "localhost/ovn-multinet-plugin:dev"
	ControllerName = "localhost/ovn-multinet-controller:dev"
)

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
		one(PluginName, "ovn-multinet-install", "ovn-multinet"),
		one(ControllerName, "ovn-multinet-controller"),
	}
}
