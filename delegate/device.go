package delegate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/plan"
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
func deviceFile(s *plan.Sandbox, d *plan.Delegate) string {
	return filepath.Join(deviceDir, s.ContainerID+"-"+d.Name+"-device.json")
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

// prepareDevice makes room for the file. One that is there is of a call that was killed, and says nothing of this one.
func (c *conflist) prepareDevice(path string) error {
	if !c.wantsDevice() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return c.dropDevice(path)
}

// readDevice returns what the plugins wrote, nil when they wrote nothing. The folder is shared with all who write such
// files: nothing but a plain file of some size is read.
func (c *conflist) readDevice(path string) (json.RawMessage, error) {
	if !c.wantsDevice() {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, badDevice(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, badDevice(fmt.Errorf("%s is no plain file", path))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxDevice+1))
	switch {
	case err != nil:
		return nil, badDevice(err)
	case len(text) > maxDevice:
		return nil, badDevice(fmt.Errorf("%s has more than %d bytes", path, maxDevice))
	case !json.Valid(text):
		return nil, badDevice(fmt.Errorf("%s is not valid JSON", path))
	}
	return text, nil
}

func badDevice(err error) error {
	return conf.Errorf(conf.CodeDelegateFailed, "the network's plugins wrote it", "device information: %w", err)
}

// dropDevice deletes the file, which may be gone.
func (c *conflist) dropDevice(path string) error {
	if !c.wantsDevice() {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return badDevice(err)
	}
	return nil
}
