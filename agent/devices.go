package agent

import (
	"context"
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/sriov"
	"github.com/ovn-multinet/ovn-multinet/sriov/deviceinfo"
)

// giveDevices gives each attachment to a network of a resource one of the devices that kubelet gave to the pod, and
// puts the device into the plugins' configuration. It returns the devices by the attachments' places. Without such a
// network, giveDevices does not ask kubelet.
func (a *Agent) giveDevices(
	ctx context.Context, owner *ovnport.Owner, attachments []nad.Attachment, read readJournal,
) (map[int]*agentapi.Device, error) {
	var requests []sriov.Request
	var places []int
	for i := range attachments {
		if at := &attachments[i]; at.Resource != "" {
			requests = append(requests, sriov.Request{
				Interface: at.Interface, Network: at.String(), Resource: at.Resource, ID: at.DeviceID,
			})
			places = append(places, i)
		}
	}
	if len(requests) == 0 {
		return nil, nil
	}
	given, err := a.kubelet.Devices(ctx, owner.Namespace, owner.Pod)
	if err != nil {
		return nil, err
	}
	allocated, err := a.allocatedDevices(owner.Sandbox, read)
	if err != nil {
		return nil, err
	}
	ids, err := sriov.Choose(requests, given, allocated)
	if err != nil {
		return nil, err
	}
	devices := map[int]*agentapi.Device{}
	for n, i := range places {
		at, d := &attachments[i], sriov.Device{Resource: requests[n].Resource, ID: ids[n]}
		info, err := deviceinfo.OfDevice(a.infoDir, d.Resource, d.ID)
		if err == nil {
			err = at.Delegate.SetDevice(d.ID)
		}
		if err == nil {
			err = nad.CheckConfigsSize(attachments) // each device makes a text of its own
		}
		if err != nil {
			return nil, fmt.Errorf("interface %s: network %s: %w", at.Interface, at, err)
		}
		devices[i] = &agentapi.Device{Resource: d.Resource, ID: d.ID, Info: info}
	}
	return devices, nil
}

// allocatedDevices are the devices that the plugin's journal has for other sandboxes. The DEL of such a sandbox may
// come at any time, and would remove the device from the pod that has it then.
func (a *Agent) allocatedDevices(container string, read readJournal) (sriov.Allocated, error) {
	j, err := read()
	if err != nil {
		return nil, journalError("which devices are free", err)
	}
	if len(j.damaged) > 0 {
		// Damaged entries hold no device: when the plugin rolls such an entry back, it does not touch a device that
		// another entry has.
		a.log.Warn("journal entries are damaged; their devices are unknown", "files", j.damaged)
	}
	allocated := sriov.Allocated{}
	for i := range j.attached {
		e := &j.attached[i]
		if e.Sandbox.ContainerID == container || e.Plan == nil || e.Forgotten {
			continue
		}
		for _, d := range e.Plan.Delegates {
			if d.Device != nil {
				allocated.Add(sriov.Device{Resource: d.Device.Resource, ID: d.Device.ID},
					fmt.Sprintf("container %.12s of pod %s/%s", e.Sandbox.ContainerID, e.Sandbox.Namespace, e.Sandbox.Pod))
			}
		}
	}
	return allocated, nil
}
