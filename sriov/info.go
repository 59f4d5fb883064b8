package sriov

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/plainfile"
)

// InfoDir is where device plugins say what their devices are (Device Information Specification 1.1.0, section 4.1).
const InfoDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"

// maxInfo bounds a file: it is a few hundred bytes.
const maxInfo = 64 << 10

// Info returns what the device plugin says of a device in dir, nil when it says nothing. check holds it against the specification.
// A file that says that it is of another PCI device is an old one, or a lie.
func Info(dir string, d Device, check func([]byte) error) (json.RawMessage, error) {
	name := strings.ReplaceAll(d.Resource, "/", "-") + "-" + d.ID + "-device.json"
	if filepath.Base(name) != name {
		return nil, nil // no file can have that name
	}
	path := filepath.Join(dir, name)
	text, err := plainfile.Read(path, maxInfo)
	if text == nil && err == nil {
		return nil, nil
	}
	if err == nil {
		err = check(text)
	}
	if err == nil {
		err = isOf(text, d)
	}
	if err != nil {
		return nil, conf.Errorf(conf.CodeDecoding, "the device plugin wrote it into "+dir, "what the device plugin says of device %s: %w", d.ID, err)
	}
	return text, nil
}

// isOf takes keys as check does, as they are written: those of a struct would match in any case of letters.
func isOf(text []byte, d Device) error {
	var info, pci map[string]json.RawMessage
	var kind, address string
	if err := json.Unmarshal(text, &info); err != nil {
		return err
	}
	if err := json.Unmarshal(info["type"], &kind); err != nil || kind != "pci" || !pciAddress.MatchString(strings.ToLower(d.ID)) {
		return err
	}
	if err := json.Unmarshal(info["pci"], &pci); err != nil {
		return err
	}
	if err := json.Unmarshal(pci["pci-address"], &address); err != nil {
		return err
	}
	if !strings.EqualFold(address, d.ID) {
		return fmt.Errorf("it is of PCI device %s", address)
	}
	return nil
}
