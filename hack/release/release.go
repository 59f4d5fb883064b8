package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/images/helm"
	"github.com/ovn-multinet/ovn-multinet/images/trixie"
)

// release is one release.
type release struct {
	root    string // the tree whose last commit is released
	version string
	prefix  string // of the images' names
	tags    string // the build tags of the programs
	out     string // the folder for the files
	scope

	work string // a temporary folder beside out
}

// scope says which images and archives a release has. The short tests make a few of them.
type scope struct {
	images []string   // as in images.All
	archs  []string   // of each image
	cli    []platform // of kubectl-multinet
}

type platform struct{ os, arch string }

// cli is the program that a release has an archive of for each platform.
const cli = "kubectl-multinet"

func everything() scope {
	s := scope{
		archs: []string{"amd64", "arm64"},
		cli:   []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}},
	}
	for _, img := range images.All("") {
		s.images = append(s.images, img.Name)
	}
	s.images = append(s.images, images.OVNName)
	return s
}

// write makes all files in a temporary folder and moves them to their place at the end. Ctrl-C ends the programs that
// this one runs, so write looks at the context between its steps only.
func (r *release) write(ctx context.Context) (err error) {
	if err := os.MkdirAll(filepath.Dir(r.out), 0o755); err != nil {
		return err
	}
	r.work, err = os.MkdirTemp(filepath.Dir(r.out), ".release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	if err := os.Mkdir(r.file(""), 0o755); err != nil {
		return err
	}
	for _, step := range []func() error{
		r.clone, r.build, r.writeImages, r.writeChart, r.writeManifests, r.writeCLI, r.writeSums, r.publish,
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) source() string { return filepath.Join(r.work, "source") }

func (r *release) bin(p platform) string { return filepath.Join(r.work, "bin", p.os+"-"+p.arch) }

// file returns the path of a file of the release until the release is published.
func (r *release) file(name string) string { return filepath.Join(r.work, "files", name) }

// recipes returns the recipes of an image for each platform, with the names of the release.
func (r *release) recipes(name string) (all []images.Image, err error) {
	for _, arch := range r.archs {
		bin := r.bin(platform{"linux", arch})
		recipes := images.All(bin)
		if name == images.OVNName {
			packages, err := trixie.OVNPackages(arch)
			if err != nil {
				return nil, err
			}
			ovn, err := images.OVN(packages, bin)
			if err != nil {
				return nil, err
			}
			recipes = []images.Image{ovn}
		}
		for _, img := range recipes {
			if img.Name == name {
				img.Name, img.Arch = images.ReleaseName(name, r.prefix, r.version), arch
				all = append(all, img)
			}
		}
	}
	return all, nil
}

// programs lists the programs of the images and of the archives for a platform.
func (r *release) programs(p platform) (all []string) {
	if p.os == "linux" && slices.Contains(r.archs, p.arch) {
		for _, img := range images.All("") {
			if slices.Contains(r.images, img.Name) {
				for file := range img.Files {
					all = append(all, strings.TrimPrefix(file, "/"))
				}
			}
		}
		if slices.Contains(r.images, images.OVNName) {
			all = append(all, images.OVNProgram)
		}
	}
	if slices.Contains(r.cli, p) {
		all = append(all, cli)
	}
	slices.Sort(all)
	return all
}

// writeImages writes a tar and an SBOM of each image.
func (r *release) writeImages() error {
	for _, name := range r.images {
		all, err := r.recipes(name)
		if err != nil {
			return err
		}
		for _, img := range all {
			if err := images.CheckStatic(img); err != nil {
				return err
			}
		}
		base, _, _ := strings.Cut(path.Base(name), ":")
		if err := writeImage(r.file(base+"-"+r.version+".tar"), all); err != nil {
			return err
		}
		sbom, err := images.SBOM(all[0], all[1:]...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.file(base+"-"+r.version+".cdx.json"), sbom, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeChart packs the chart with the version and with the names of the images.
func (r *release) writeChart() error {
	files, err := readFolder(filepath.Join(r.source(), "images", "chart"), "ovn-multinet")
	if err != nil {
		return err
	}
	for i := range files {
		switch f := &files[i]; f.name {
		case "ovn-multinet/Chart.yaml":
			err = f.setLine("version", r.version)
			if err == nil {
				err = f.setLine("appVersion", r.version)
			}
		case "ovn-multinet/values.yaml":
			for _, name := range everything().images {
				if err == nil {
					err = f.replace(name, images.ReleaseName(name, r.prefix, r.version))
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return writeArchive(r.chart(), files)
}

// chart is the path of the packed chart.
func (r *release) chart() string { return r.file("ovn-multinet-" + r.version + ".tgz") }

// writeManifests renders the packed chart, so Helm has read it once.
func (r *release) writeManifests() error {
	program, err := helm.Path(r.root)
	if err != nil {
		return err
	}
	text, err := helm.Manifests(program, r.chart())
	if err != nil {
		return err
	}
	text = "# ovn-multinet " + r.version + ": what its chart makes by the default values.\n" + text
	return os.WriteFile(r.file("install.yaml"), []byte(text), 0o644)
}

// writeCLI packs kubectl-multinet for each platform.
func (r *release) writeCLI() error {
	license, err := os.ReadFile(filepath.Join(r.source(), "LICENSE"))
	if err != nil {
		return err
	}
	for _, p := range r.cli {
		program, err := os.ReadFile(filepath.Join(r.bin(p), cli))
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%s-%s-%s-%s.tar.gz", cli, r.version, p.os, p.arch)
		if err := writeArchive(r.file(name), []file{{"LICENSE", 0o644, license}, {cli, 0o755, program}}); err != nil {
			return err
		}
	}
	return nil
}
