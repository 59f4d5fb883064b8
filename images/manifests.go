package images

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed manifests/*.yaml
var files embed.FS

// Manifests returns all manifests in one text, in the order in which to apply them.
func Manifests() (string, error) {
	names, err := fs.Glob(files, "manifests/*.yaml")
	if err != nil {
		return "", err
	}
	var all []string
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return "", err
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "---\n"), nil
}
