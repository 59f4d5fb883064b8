package delegate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/plainfile"
)

const (
	// deviceDir is where plugins leave what they know of a device (Device Information Specification 1.1.0, section 4.2).
	deviceDir = "/var/run/k8s.cni.cncf.io/devinfo/cni"
	// deviceCapability is how a plugin says that it wants to, and is told the file (section 5.1).
	deviceCapability = "CNIDeviceInfoFile"
	// maxDevice bounds such a file: it is a few hundred bytes.
	maxDevice = 64 << 10
)

// deviceFile is one attachment's.
func (c *call) deviceFile(s *agentapi.Sandbox, d *agentapi.Delegate) string {
	return filepath.Join(c.devices, s.ContainerID+"-"+d.Name+"-device.json")
}

// wantsDevice tells whether one of a list's plugins takes the file.
func (c *conflist) wantsDevice() bool {
	for _, p := range c.stubs.Plugins {
		if p.Network.Capabilities[deviceCapability] {
			return true
		}
	}
	return false
}

// hasDeviceFile tells whether an attachment has the file: one of its plugins takes it, or the device plugin said something that
// belongs into it.
func (c *conflist) hasDeviceFile(d *agentapi.Delegate) bool {
	return c.wantsDevice() || d.Device != nil && d.Device.Info != nil
}

// prepareDevice writes what the device plugin said into the file, or makes room for it. One that is there is of a call that was
// killed, and says nothing of this one.
func (c *conflist) prepareDevice(d *agentapi.Delegate, path string) error {
	if !c.hasDeviceFile(d) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := dropDevice(path); err != nil || d.Device == nil || d.Device.Info == nil {
		return err
	}
	// Nothing may be in its place by now: no link is followed.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return badDevice(err)
	}
	_, err = f.Write(d.Device.Info)
	return errors.Join(err, f.Close())
}

// readDevice returns what is in the file after the plugins had it, nil when it is not there. The folder is shared with all who
// write such files: nothing but a plain file of some size is read.
func (c *conflist) readDevice(d *agentapi.Delegate, path string) (json.RawMessage, error) {
	if !c.hasDeviceFile(d) {
		return nil, nil
	}
	text, err := plainfile.Read(path, maxDevice)
	if err != nil {
		return nil, badDevice(err)
	}
	if text != nil && !json.Valid(text) {
		return nil, badDevice(fmt.Errorf("%s is not valid JSON", path))
	}
	return text, nil
}

func badDevice(err error) error {
	return conf.Errorf(conf.CodeDelegateFailed, "the network's plugins wrote it", "device information: %w", err)
}

// dropDevice deletes the file, which may be gone. Whether there was one an entry that is damaged does not say.
func dropDevice(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return badDevice(err)
	}
	return nil
}
