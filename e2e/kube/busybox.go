package kube

import (
	"context"
	"embed"
	"errors"
	"os"
	"path/filepath"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/images/trixie"
)

// busyboxEnv is the folder of busybox; told to the inner process.
const busyboxEnv = "OVN_MULTINET_KUBE_BUSYBOX"

//go:embed busybox.go
var busyboxRecipe embed.FS

// WithBusybox has [Main] fetch Debian's busybox, once per version.
func WithBusybox() lab.EnterOption { return building(busyboxEnv, fetchBusybox) }

func fetchBusybox(ctx context.Context) (string, error) {
	return trixie.Cached("busybox", busyboxRecipe, func(dir string) error {
		_, err := trixie.Tree(filepath.Join(dir, "tree")).Fetch(ctx, "amd64", "busybox-static")
		return err
	})
}

// LoadBusybox gives the nodes the image busybox of the examples, which no node can pull: Debian's busybox, once for each
// program that the examples run.
func (c *Cluster) LoadBusybox(ctx context.Context) (err error) {
	defer try.Handle(&err)
	dir := os.Getenv(busyboxEnv)
	if dir == "" {
		return errors.New("LoadBusybox without its program: give WithBusybox to kube.Main")
	}
	// The folder of the file is what the examples need.
	files := map[string]string{"/tmp/copyright": filepath.Join(dir, "tree", "usr/share/doc/busybox-static/copyright")}
	for _, program := range []string{"sh", "echo", "httpd", "wget", "sleep", "true", "false", "ping"} {
		files["/bin/"+program] = filepath.Join(dir, "tree", "usr/bin/busybox")
	}
	return c.LoadImage(ctx, "docker.io/library/busybox:latest", files, []string{"/bin/sh"})
}
