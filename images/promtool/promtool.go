// Package promtool owns the way to Prometheus' program promtool, which checks alerts and evaluates queries. The program
// is the machine's, or that of Debian's package in a folder of the cache: nothing is installed, and no service starts.
package promtool

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
)

// Path returns the path of promtool. If the machine has none, the first call downloads Debian's package and unpacks
// this program alone: the package also has a server, and needs a dozen packages for its pages.
func Path() (string, error) {
	if path, err := exec.LookPath("promtool"); err == nil {
		return path, nil
	}
	dir, err := buildcache.Entry("promtool", "debian", fetch)
	if err != nil {
		return "", fmt.Errorf("no promtool here: run `apt-get update` as root, "+
			"or put a promtool of Prometheus 2.42 or later into PATH: %w", err)
	}
	return filepath.Join(dir, "promtool"), nil
}

// fetch makes dir/promtool. The machine's lists of packages may be absent, or too old.
func fetch(dir string) error {
	err := download(dir)
	if err == nil {
		return nil
	}
	if updated := run(exec.Command("apt-get", "-q", "update")); updated != nil {
		return fmt.Errorf("%w; %w", err, updated)
	}
	return download(dir)
}

// download makes dir/promtool. Since Debian 13 the program has a package of its own.
func download(dir string) error {
	var refused []string
	for _, name := range []string{"promtool", "prometheus"} {
		download := exec.Command("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", name)
		download.Dir = dir
		err := run(download)
		if err == nil {
			return unpack(dir, name)
		}
		refused = append(refused, err.Error())
	}
	return errors.New(strings.Join(refused, "; "))
}

// unpack makes dir/promtool of the package that is in the folder.
func unpack(dir, name string) error {
	files, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if err != nil || len(files) != 1 {
		return errors.Join(err, fmt.Errorf("apt-get downloaded %q", files))
	}
	tar := exec.Command("tar", "-x", "-C", dir, "--strip-components=3", "./usr/bin/promtool")
	list := exec.Command("dpkg-deb", "--fsys-tarfile", files[0])
	if tar.Stdin, err = list.StdoutPipe(); err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return err
	}
	if err := errors.Join(run(tar), list.Wait()); err != nil {
		return err
	}
	return os.Remove(files[0])
}

// run runs a program to its end. What it complains about is in the error.
func run(cmd *exec.Cmd) error {
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Run(); err != nil {
		lines := strings.ReplaceAll(strings.TrimSpace(complaints.String()), "\n", "; ")
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, lines)
	}
	return nil
}
