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

// An image says its version and runs its entrypoint; the same image makes the same bytes.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range All(dir) {
		for _, file := range img.Files {
			if err := os.WriteFile(file, program, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, img := range All(dir) {
		var one, two bytes.Buffer
		if err := errors.Join(Write(&one, img), Write(&two, img)); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Fatalf("%s: %v, the same bytes: %t", img.Name, err, bytes.Equal(one.Bytes(), two.Bytes()))
		}
		files := unpack(t, one.Bytes())
		var index struct{ Manifests []descriptor }
		if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
			t.Fatalf("%s: index.json is %s, %v", img.Name, files["index.json"], err)
		}
		manifest := blob[struct {
			Config descriptor
			Layers []descriptor
		}](t, files, index.Manifests[0])
		config := blob[struct {
			Config struct {
				Entrypoint []string
				Labels     map[string]string
			}
		}](t, files, manifest.Config).Config
		if got := config.Labels["org.opencontainers.image.version"]; got != version.Number {
			t.Errorf("%s: the version is %q, want %q", img.Name, got, version.Number)
		}
		layer := unpack(t, files["blobs/"+strings.ReplaceAll(manifest.Layers[0].Digest, ":", "/")])
		entrypoint := strings.TrimPrefix(config.Entrypoint[0], "/")
		if !slices.Equal(config.Entrypoint, img.Entrypoint) || !bytes.Equal(layer[entrypoint], program) {
			t.Errorf("%s: the entrypoint %v is not the program", img.Name, config.Entrypoint)
		}
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
