package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// clone copies the last commit, so that files which are not in it do not get into the release. The clone has one tag,
// that of the release: Go writes the version of the main module into a program by the tags that it finds, and clones of
// one commit have different tags.
func (r *release) clone() error {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return err
	}
	from := url.URL{Scheme: "file", Path: root} // of a plain path git ignores the depth
	for _, args := range [][]string{
		{"-c", "core.autocrlf=false", "clone", "--quiet", "--depth=1", "--no-tags", from.String(), "source"},
		{"-C", "source", "-c", "tag.gpgSign=false", "tag", "v" + r.version},
	} {
		if _, err := output(r.work, nil, "git", args...); err != nil {
			return err
		}
	}
	return nil
}

// build builds the programs of each platform. -trimpath keeps the folder out of them. Of git they have the commit, its
// time and the tag.
func (r *release) build() error {
	platforms := slices.Clone(r.cli)
	for _, arch := range r.archs {
		platforms = append(platforms, platform{"linux", arch})
	}
	for _, p := range platforms {
		args := []string{"build", "-trimpath", "-buildvcs=true", "-tags=" + r.tags, "-ldflags=-s -w", "-o", r.bin(p) + "/"}
		programs := r.programs(p)
		if _, err := os.Stat(r.bin(p)); err == nil || len(programs) == 0 {
			continue // built, or nothing to build
		}
		if err := os.MkdirAll(r.bin(p), 0o755); err != nil {
			return err
		}
		for _, program := range programs {
			args = append(args, "./cmd/"+program)
		}
		// What the builder has set of these must not make another program.
		env := []string{
			"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch, "GOAMD64=v1", "GOARM64=v8.0",
			"GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off",
		}
		if _, err := output(r.source(), env, "go", args...); err != nil {
			return err
		}
	}
	return nil
}

// output runs a program in a folder, with more environment, and returns its standard output. An error has the last line
// of what the program said.
func output(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		said := strings.TrimSpace(string(exit.Stderr))
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said[strings.LastIndexByte(said, '\n')+1:])
	}
	return string(out), err
}
