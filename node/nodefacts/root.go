package nodefacts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// root is the folder where the node's root folder is mounted.
type root string

// maxLinks is the number of links that Linux follows in one path.
const maxLinks = 40

// path returns where a file of the node is, here and on the node. It follows links as the node does: a link with an
// absolute target stays within the root.
func (r root) path(name string) (here, there string, err error) {
	there = "/"
	links := 0
	for rest := name; rest != ""; {
		var first string
		first, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		if first == "" || first == "." {
			continue
		}
		if first == ".." {
			there = filepath.Dir(there)
			continue
		}
		next := filepath.Join(there, first)
		info, err := os.Lstat(filepath.Join(string(r), next))
		if err != nil {
			return "", "", err
		}
		if info.Mode()&os.ModeSymlink == 0 {
			there = next
			continue
		}
		if links++; links > maxLinks {
			return "", "", fmt.Errorf("%s: too many links", name)
		}
		target, err := os.Readlink(filepath.Join(string(r), next))
		if err != nil {
			return "", "", err
		}
		if filepath.IsAbs(target) {
			there = "/"
		}
		rest = target + "/" + rest
	}
	return filepath.Join(string(r), there), there, nil
}

// read returns the text of a file of the node.
func (r root) read(name string) ([]byte, error) {
	here, _, err := r.path(name)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(here)
}
