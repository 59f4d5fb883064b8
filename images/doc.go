// Package images owns what is shipped: the recipes of the container images, which hold static binaries and nothing
// else, and the manifests that run them; it may hold no logic of the programs in them.
package images

import "path/filepath"

// Image is the recipe of one image.
type Image struct {
	Name       string            // with its tag
	Files      map[string]string // from the path in the image to that of a file here
	Entrypoint []string
}

// The images that the manifests name.
const (
	AgentName      = "localhost/ovn-multinet-agent:dev"
	PluginName     = "localhost/ovn-multinet-plugin:dev"
	ControllerName = "localhost/ovn-multinet-controller:dev"
)

// All are the recipes, of binaries in a folder.
func All(binDir string) []Image {
	one := func(name string, entrypoint string, binaries ...string) Image {
		files := map[string]string{}
		for _, b := range append(binaries, entrypoint) {
			files["/"+b] = filepath.Join(binDir, b)
		}
		return Image{Name: name, Files: files, Entrypoint: []string{"/" + entrypoint}}
	}
	return []Image{
		one(AgentName, "ovn-multinetd"),
		one(PluginName, "ovn-multinet-install", "ovn-multinet"),
		one(ControllerName, "ovn-multinet-controller"),
	}
}
