package deviceinfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/plainfile"
)

const (
	// DevicePluginDir is the folder of the device plugins' files (section 4.1).
	DevicePluginDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"
	// CNIDir is the folder of the files of CNI plugins, and of plugins that run CNI plugins (section 4.2).
	CNIDir = "/var/run/k8s.cni.cncf.io/devinfo/cni"
	// Capability is the capability by which a CNI plugin requests the path of its file (section 5.1).
	Capability = "CNIDeviceInfoFile"
	// maxFile is the maximum size of a file, in bytes. Usual files have a few hundred bytes.
	maxFile = 64 << 10
)

// OfDevice returns the device information that a device plugin wrote into dir, or nil if the file does not exist. A
// file about another PCI device is an error: the file is out of date or forged.
func OfDevice(dir, resource, id string) (json.RawMessage, error) {
	name := strings.ReplaceAll(resource, "/", "-") + "-" + id + "-device.json"
	if filepath.Base(name) != name {
		return nil, nil // no file can have this name
	}
	text, err := plainfile.Read(filepath.Join(dir, name), maxFile)
	if text == nil && err == nil {
		return nil, nil
	}
	if err == nil {
		err = Validate(text)
	}
	if err == nil {
		err = checkAddress(text, id)
	}
	if err != nil {
		return nil, conf.Errorf(conf.CodeDecoding, "the device plugin wrote it into "+dir,
			"what the device plugin says of device %s: %w", id, err)
	}
	return text, nil
}

// checkAddress compares the address in valid device information of a PCI device with the device's ID.
func checkAddress(text []byte, id string) error {
	var info, pci object
	if err := json.Unmarshal(text, &info); err != nil {
		return err
	}
	kind, err := info.text("type")
	if err != nil || kind != "pci" || !IsPCIAddress(id) {
		return err
	}
	if err := json.Unmarshal(info["pci"], &pci); err != nil {
		return err
	}
	address, err := pci.text("pci-address")
	if err == nil && !strings.EqualFold(address, id) {
		err = fmt.Errorf("it is of PCI device %s", address)
	}
	return err
}

// File returns the path of an attachment's file in dir (section 4.2.1).
func File(dir, containerID, ifName string) string {
	return filepath.Join(dir, containerID+"-"+ifName+"-device.json")
}

// Prepare is called before the attachment's plugins run. It deletes the file of an earlier call. It then writes info,
// unless info is nil.
func Prepare(path string, info json.RawMessage) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := Delete(path); err != nil || info == nil {
		return err
	}
	// With O_EXCL, the open does not follow a symbolic link that another program creates meanwhile.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return invalid(err)
	}
	_, err = f.Write(info)
	return errors.Join(err, f.Close())
}

// Read returns the content of an attachment's file, or nil if the file does not exist. It is called after the
// attachment's plugins ran.
func Read(path string) (json.RawMessage, error) {
	text, err := plainfile.Read(path, maxFile)
	if err != nil {
		return nil, invalid(err)
	}
	if text != nil && !json.Valid(text) {
		return nil, invalid(fmt.Errorf("%s is not valid JSON", path))
	}
	return text, nil
}

// Delete deletes the file of an attachment. A missing file is not an error.
func Delete(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return invalid(err)
	}
	return nil
}

func invalid(err error) error {
	return conf.Errorf(conf.CodeDelegateFailed, "the network's plugins wrote it", "device information: %w", err)
}
