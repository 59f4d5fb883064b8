package delegate

import (
	"encoding/json"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/sriov/deviceinfo"
)

// deviceFile is the file with the device information of an attachment.
func (r *Runner) deviceFile(s *agentapi.Sandbox, d *agentapi.Delegate) string {
	return deviceinfo.File(r.deviceDir, s.ContainerID, d.Name)
}

// hasDeviceFile reports whether an attachment has device information: one of its plugins has the capability, or the
// device plugin wrote information for it.
func (c *conflist) hasDeviceFile(d *agentapi.Delegate) bool {
	for _, p := range c.stubs.Plugins {
		if p.Network.Capabilities[deviceinfo.Capability] {
			return true
		}
	}
	return d.Device != nil && d.Device.Info != nil
}

// prepareDevice writes the device plugin's information into the file, before the plugins run.
func (c *conflist) prepareDevice(d *agentapi.Delegate, path string) error {
	if !c.hasDeviceFile(d) {
		return nil
	}
	var info json.RawMessage
	if d.Device != nil {
		info = d.Device.Info
	}
	return deviceinfo.Prepare(path, info)
}

// readDevice returns the content of the file after the plugins have run; nil: there is no file.
func (c *conflist) readDevice(d *agentapi.Delegate, path string) (json.RawMessage, error) {
	if !c.hasDeviceFile(d) {
		return nil, nil
	}
	return deviceinfo.Read(path)
}
