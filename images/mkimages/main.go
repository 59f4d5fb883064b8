// Command mkimages writes each image as a tar of an OCI layout: mkimages BINARIES OUT.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/images/trixie"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: mkimages BINARIES OUT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "mkimages:", err)
		os.Exit(1)
	}
}

func run(binDir, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	packages, err := trixie.OVNPackages(runtime.GOARCH)
	if err != nil {
		return err
	}
	ovn, err := images.OVN(packages, binDir)
	if err != nil {
		return err
	}
	all := append(images.All(binDir), ovn)
	for _, img := range all {
		if err := images.CheckStatic(img); err != nil {
			return err
		}
	}
	for _, img := range all {
		name := strings.NewReplacer("/", "-", ":", "-").Replace(img.Name) + ".tar"
		f, err := os.Create(filepath.Join(out, name))
		if err != nil {
			return err
		}
		if err := errors.Join(images.Write(f, img), f.Close()); err != nil {
			return err
		}
		fmt.Println(filepath.Join(out, name))
	}
	return nil
}
