//go:build release

package main

import (
	"bytes"
	"debug/macho"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// TestWholeRelease makes the whole release from two clones, with the same sums, and checks all images and archives.
func TestWholeRelease(t *testing.T) {
	var out [2]string
	var revision string
	trees := []string{cloneTo(t, "one"), cloneTo(t, "another folder")} // a clone of this folder, not of the next one
	for i, tree := range trees {
		revision = strings.TrimSpace(tool(t, tree, "git", "rev-parse", "HEAD"))
		t.Chdir(tree)
		out[i] = filepath.Join(t.TempDir(), "release")
		var listed bytes.Buffer
		args := []string{"-version", version.Number, "-images", "ghcr.io/you", "-tags", "grpcnotrace", "-out", out[i]}
		if err := run(t.Context(), args, &listed); err != nil {
			t.Fatal(err)
		}
		// An image has a tar and an SBOM. Beside the images: the chart, install.yaml and the sums.
		if n := bytes.Count(listed.Bytes(), []byte("\n")); n != 2*len(everything().images)+len(everything().cli)+3 {
			t.Errorf("%d files are listed:\n%s", n, listed.String())
		}
		checkSums(t, out[i])
	}
	if one, two := text(t, filepath.Join(out[0], sums)), text(t, filepath.Join(out[1], sums)); one != two {
		t.Errorf("the sums differ between two builds:\n%s\n%s", one, two)
	}
	for _, img := range everything().images {
		name := images.ReleaseName(img, "ghcr.io/you", version.Number)
		base := strings.ReplaceAll(filepath.Base(name), ":", "-")
		release := map[string]string{}
		for _, file := range []string{base + ".tar", base + ".cdx.json"} {
			release[file] = text(t, filepath.Join(out[0], file))
		}
		checkImage(t, release, base, name, revision)
	}
	for _, p := range everything().cli {
		checkCLI(t, out[0], p, revision)
	}
}

// checkCLI: an archive has a program for its platform. That of this machine's platform runs.
func checkCLI(t *testing.T, out string, p platform, revision string) {
	t.Helper()
	name := strings.Join([]string{cli, version.Number, p.os, p.arch}, "-") + ".tar.gz"
	dir := t.TempDir()
	tool(t, dir, "tar", "--extract", "--file="+filepath.Join(out, name))
	program := text(t, filepath.Join(dir, cli))
	if license := text(t, filepath.Join(dir, "LICENSE")); !strings.Contains(license, "Apache License") {
		t.Errorf("%s: the license is %.80q", name, license)
	}
	switch p.os {
	case "linux":
		checkELF(t, cli, program, p.arch)
	case "darwin":
		f, err := macho.NewFile(strings.NewReader(program))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := map[string]macho.Cpu{"amd64": macho.CpuAmd64, "arm64": macho.CpuArm64}[p.arch]; f.Cpu != want {
			t.Errorf("%s is for %s", name, f.Cpu)
		}
	}
	if p == (platform{runtime.GOOS, runtime.GOARCH}) {
		said := tool(t, "", filepath.Join(dir, cli), "--version")
		if !strings.Contains(said, version.Number+" (commit "+revision+",") {
			t.Errorf("%s says %q", name, said)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}
