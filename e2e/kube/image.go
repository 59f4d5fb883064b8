package kube

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// The media types of the OCI image specification, v1.
const (
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeIndex    = "application/vnd.oci.image.index.v1+json"
)

// descriptor names a blob of an image.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// archive is an OCI image layout as a tar file.
type archive struct {
	out bytes.Buffer
	tar *tar.Writer
}

// buildImage returns an image with nothing in it but these files, executable: path in the image to path here.
func buildImage(name string, files map[string]string, entrypoint []string) ([]byte, error) {
	layer, err := layerOf(files)
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", name, err)
	}
	a := &archive{}
	a.tar = tar.NewWriter(&a.out)
	layerBlob := a.blob(typeLayer, layer)
	config := a.json(typeConfig, map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"Entrypoint": entrypoint,
			"Env":        []string{"PATH=/"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerBlob.Digest}},
	})
	manifest := a.json(typeManifest, map[string]any{
		"schemaVersion": 2,
		"mediaType":     typeManifest,
		"config":        config,
		"layers":        []descriptor{layerBlob},
	})
	manifest.Annotations = map[string]string{"io.containerd.image.name": name}
	a.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": typeIndex, "manifests": []descriptor{manifest},
	})
	if err != nil {
		return nil, err
	}
	a.file("index.json", index)
	if err := a.tar.Close(); err != nil {
		return nil, err
	}
	return a.out.Bytes(), nil
}

func layerOf(files map[string]string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{}
	for _, to := range slices.Sorted(maps.Keys(files)) {
		content, err := os.ReadFile(files[to])
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(path.Clean("/"+to), "/")
		for _, dir := range parents(name) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
				return nil, err
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// parents are the folders above a relative path, outermost first.
func parents(name string) (dirs []string) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	slices.Reverse(dirs)
	return dirs
}

// file adds to the archive. Writing to memory, with the size known, does not fail.
func (a *archive) file(name string, content []byte) {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}
	if err := a.tar.WriteHeader(header); err != nil {
		panic(err)
	}
	if _, err := a.tar.Write(content); err != nil {
		panic(err)
	}
}

func (a *archive) blob(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	a.file("blobs/sha256/"+digest, content)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(content)}
}

func (a *archive) json(mediaType string, content any) descriptor {
	b, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return a.blob(mediaType, b)
}
