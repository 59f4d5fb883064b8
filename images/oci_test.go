package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// unpack returns the files of a tar.
func unpack(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err == nil {
			files[h.Name], err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// blob decodes the JSON blob that a descriptor refers to.
func blob[T any](t *testing.T, files map[string][]byte, d descriptor) (value T) {
	t.Helper()
	text := files["blobs/"+strings.ReplaceAll(d.Digest, ":", "/")]
	if err := json.Unmarshal(text, &value); err != nil || len(text) != d.Size {
		t.Fatalf("blob %s of %d bytes, want %d: %v", d.Digest, len(text), d.Size, err)
	}
	return value
}

// An image is for the platforms of its recipes. On each it says its version and runs its entrypoint; the same recipes
// make the same bytes.
func TestWrite(t *testing.T) {
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	archs := []string{"amd64", "arm64"}
	images := map[string][]Image{}
	for _, arch := range archs {
		dir := t.TempDir()
		for _, img := range All(dir) {
			for _, file := range img.Files {
				// A program may have bytes after its end, so each platform has its own.
				if err := os.WriteFile(file, append(program, arch...), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			img.Arch = arch
			images[img.Name] = append(images[img.Name], img)
		}
	}
	for name, all := range images {
		var one, two bytes.Buffer
		err := errors.Join(Write(&one, all[0], all[1:]...), Write(&two, all[0], all[1:]...))
		if err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Fatalf("%s: %v, the same bytes: %t", name, err, bytes.Equal(one.Bytes(), two.Bytes()))
		}
		files := unpack(t, one.Bytes())
		type index struct{ Manifests []descriptor }
		var top index
		if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 1 {
			t.Fatalf("%s: index.json is %s, %v", name, files["index.json"], err)
		}
		if got := top.Manifests[0].Annotations["io.containerd.image.name"]; got != name {
			t.Errorf("%s: containerd would name it %s", name, got)
		}
		manifests := blob[index](t, files, top.Manifests[0]).Manifests
		if len(manifests) != len(archs) {
			t.Fatalf("%s has %d platforms, want %d", name, len(manifests), len(archs))
		}
		for i, arch := range archs {
			if got := manifests[i].Platform; got == nil || *got != (platform{arch, "linux"}) {
				t.Errorf("%s: platform %d is %+v, want linux/%s", name, i, got, arch)
			}
			checkPlatform(t, files, manifests[i], all[i], append(program, arch...))
		}
	}
}

// checkPlatform checks the image of one platform.
func checkPlatform(t *testing.T, files map[string][]byte, d descriptor, img Image, program []byte) {
	t.Helper()
	manifest := blob[struct {
		Config descriptor
		Layers []descriptor
	}](t, files, d)
	image := blob[struct {
		Architecture, OS string
		Config           struct {
			Entrypoint []string
			Labels     map[string]string
		}
	}](t, files, manifest.Config)
	if image.Architecture != img.Arch || image.OS != "linux" {
		t.Errorf("%s: the image is for %s/%s, want linux/%s", img.Name, image.OS, image.Architecture, img.Arch)
	}
	if got := image.Config.Labels["org.opencontainers.image.version"]; got != version.Number {
		t.Errorf("%s: the version is %q, want %q", img.Name, got, version.Number)
	}
	layer := unpack(t, files["blobs/"+strings.ReplaceAll(manifest.Layers[0].Digest, ":", "/")])
	entrypoint := strings.TrimPrefix(image.Config.Entrypoint[0], "/")
	if !slices.Equal(image.Config.Entrypoint, img.Entrypoint) || !bytes.Equal(layer[entrypoint], program) {
		t.Errorf("%s: the entrypoint %v is not the program", img.Name, image.Config.Entrypoint)
	}
}

// Platforms with the same files share a blob, which is in the tar once.
func TestWriteSharedBlob(t *testing.T) {
	img := Image{Name: "a:b", Arch: "amd64", Files: map[string]string{"/self": os.Args[0]}, Entrypoint: []string{"/self"}}
	other := img
	other.Arch = "arm64"
	var archive bytes.Buffer
	if err := Write(&archive, img, other); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for r := tar.NewReader(&archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || seen[h.Name] {
			t.Fatalf("%v, or %s is in the tar twice", err, h.Name)
		}
		seen[h.Name] = true
	}
	if len(seen) != 8 { // a layer, two configs, two manifests, an index, index.json, oci-layout
		t.Errorf("the tar has %d files, want 8", len(seen))
	}
}

// An image without a version has no labels: its files may be of another project. A version without a Go program is an
// error.
func TestLabels(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	img := Image{Name: "a:b", Files: map[string]string{"/file": file}, Entrypoint: []string{"/file"}}
	if labels, err := labelsOf(img); err != nil || labels != nil {
		t.Errorf("without a version: %v, %v", labels, err)
	}
	img.Version = "1.0.0"
	if err := Write(io.Discard, img); err == nil || !strings.HasPrefix(err.Error(), "image a:b: ") {
		t.Errorf("with a version: %v", err)
	}
}
