package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// Media types of the OCI image specification 1.1.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// Write writes an image as a tar of an OCI layout, which `ctr images import`, `podman load` and `skopeo` read: an image
// index with an entry for each platform. All recipes have one name. The bytes of the tar depend only on the recipes and
// on their files.
func Write(w io.Writer, img Image, others ...Image) error {
	out := &layout{tar: tar.NewWriter(w), has: map[string]bool{}}
	var manifests []descriptor
	for _, one := range append([]Image{img}, others...) {
		manifest, err := out.image(one)
		if err != nil {
			return fmt.Errorf("image %s: %w", img.Name, err)
		}
		manifests = append(manifests, manifest)
	}
	index := out.json(mediaIndex, indexOf(manifests...))
	// containerd takes the name of the image from the first annotation, other programs from the second.
	index.Annotations = map[string]string{
		"io.containerd.image.name": img.Name, "org.opencontainers.image.ref.name": img.tag(),
	}
	out.file("index.json", mustJSON(indexOf(index)))
	out.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	if out.err != nil {
		return fmt.Errorf("image %s: %w", img.Name, out.err)
	}
	return out.tar.Close()
}

func indexOf(manifests ...descriptor) map[string]any {
	return map[string]any{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": manifests}
}

// image writes the blobs of one platform's image and returns its entry in the image index.
func (l *layout) image(img Image) (descriptor, error) {
	layer, err := layerOf(img.Files)
	if err != nil {
		return descriptor{}, err
	}
	labels, err := labelsOf(img)
	if err != nil {
		return descriptor{}, err
	}
	layerRef := l.blob(mediaLayer, layer)
	config := l.json(mediaConfig, map[string]any{
		"architecture": img.arch(), "os": "linux",
		"config": map[string]any{"Entrypoint": img.Entrypoint, "Labels": labels},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerRef.Digest}},
	})
	manifest := l.json(mediaManifest, map[string]any{
		"schemaVersion": 2, "mediaType": mediaManifest, "config": config, "layers": []descriptor{layerRef},
	})
	manifest.Platform = &platform{Architecture: img.arch(), OS: "linux"}
	return manifest, nil
}

// labelsOf returns the version of an image, and the git commit that its entrypoint was built from, if `go build`
// recorded one. The keys are those of the OCI image specification 1.1, section "Annotations".
func labelsOf(img Image) (map[string]string, error) {
	if img.Version == "" {
		return nil, nil
	}
	labels := map[string]string{"org.opencontainers.image.version": img.Version}
	info, err := buildinfo.ReadFile(img.Files[img.Entrypoint[0]])
	if err != nil {
		return nil, err
	}
	if revision := version.Revision(info); revision != "" {
		labels["org.opencontainers.image.revision"] = revision
	}
	return labels, nil
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// layout writes files into the outer tar and stores the first error.
type layout struct {
	tar *tar.Writer
	has map[string]bool // the files in the tar
	err error
}

func (l *layout) file(name string, content []byte) {
	if l.err == nil && !l.has[name] { // platforms may share a blob
		l.has[name] = true
		l.err = addFile(l.tar, name, content, 0o644)
	}
}

func (l *layout) blob(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	l.file("blobs/sha256/"+digest, content)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(content)}
}

func (l *layout) json(mediaType string, v any) descriptor { return l.blob(mediaType, mustJSON(v)) }

// mustJSON encodes values of this file, all of which JSON can encode.
func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// layerOf makes a layer of files and of their parent folders.
func layerOf(files map[string]string) ([]byte, error) {
	var buf bytes.Buffer
	t := tar.NewWriter(&buf)
	made := map[string]bool{".": true, "/": true}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content, err := os.ReadFile(files[name])
		if err != nil {
			return nil, err
		}
		if err := addFolders(t, path.Dir(name), made); err != nil {
			return nil, err
		}
		if err := addFile(t, strings.TrimPrefix(name, "/"), content, 0o755); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func addFolders(t *tar.Writer, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	if err := addFolders(t, path.Dir(dir), made); err != nil {
		return err
	}
	made[dir] = true
	return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755})
}

func addFile(t *tar.Writer, name string, content []byte, mode int64) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}
	if err := t.WriteHeader(header); err != nil {
		return err
	}
	_, err := t.Write(content)
	return err
}
