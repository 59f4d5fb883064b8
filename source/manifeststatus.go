package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// maxFileName is the longest name of a file on Linux, in bytes (NAME_MAX).
const maxFileName = 255

// stateFile returns the name of the file with the state of an object. A name that is too long for a file ends in "~"
// and a hash instead; no name of an object has a "~". The content of the file names the object in full.
func stateFile(namespace, name, suffix string) string {
	file := namespace + "." + name
	if most := maxFileName - len(suffix); len(file) > most {
		sum := sha256.Sum256([]byte(file))
		end := fmt.Sprintf("~%x", sum[:16])
		file = file[:most-len(end)] + end
	}
	return file + suffix
}

// podStatus is the content of the file with the network-status of a pod.
type podStatus struct {
	Namespace     string          `json:"namespace"`
	Name          string          `json:"name"`
	UID           string          `json:"uid"`
	NetworkStatus json.RawMessage `json:"network-status"`
}

// SetStatus writes the file with the network-status of a pod into the folder.
func (m *Manifests) SetStatus(_ context.Context, p *netmodel.Pod, status []byte) error {
	if err := m.write(p.UID+statusSuffix, podStatus{p.Namespace, p.Name, p.UID, status}); err != nil {
		return fmt.Errorf("network-status: %w", err)
	}
	return nil
}

// DeleteStatus deletes the file with the network-status of a pod if the file has this status.
func (m *Manifests) DeleteStatus(_ context.Context, p *netmodel.Pod, status []byte) error {
	path := filepath.Join(m.dir, p.UID+statusSuffix)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var has podStatus
	var present, own bytes.Buffer
	if err = errors.Join(err, json.Unmarshal(text, &has)); err == nil {
		err = errors.Join(json.Compact(&present, has.NetworkStatus), json.Compact(&own, status))
	}
	if err == nil && bytes.Equal(present.Bytes(), own.Bytes()) {
		err = os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("network-status: %w", err)
	}
	return nil
}

// writeState writes a file with a state of ours.
func (m *Manifests) writeState(what, name string, content any) error {
	if err := m.write(name, content); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// remove deletes such a file, if it exists.
func (m *Manifests) remove(what, name string) error {
	if err := os.Remove(filepath.Join(m.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// write writes a JSON file into the folder. Readers never see an incomplete file.
func (m *Manifests) write(name string, content any) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(m.dir, ".status-")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(m.dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
