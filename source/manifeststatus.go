package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// podStatus is the content of the file with the network-status of a pod.
type podStatus struct {
	Namespace     string          `json:"namespace"`
	Name          string          `json:"name"`
	UID           string          `json:"uid"`
	NetworkStatus json.RawMessage `json:"network-status"`
}

// SetStatus writes the file with the network-status of a pod into the folder.
func (m *Manifests) SetStatus(_ context.Context, p *Pod, status []byte) error {
	if err := m.write(p.UID+statusSuffix, podStatus{p.Namespace, p.Name, p.UID, status}); err != nil {
		return fmt.Errorf("network-status: %w", err)
	}
	return nil
}

// DeleteStatus deletes the file with the network-status of a pod if the file has this status.
func (m *Manifests) DeleteStatus(_ context.Context, p *Pod, status []byte) error {
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
