package agent

import (
	"context"
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/sriov"
)

// giveDevices gives each attachment to a network of a resource one of the devices that kubelet gave to the pod, and puts it
// into the plugins' configuration. It returns them by the attachments' places. Without such a network, nobody is asked.
func (a *Agent) giveDevices(ctx context.Context, owner *ovnport.Owner, attachments []nad.Attachment,
	read readJournal) (map[int]*agentapi.Device, error) {
	var wants []sriov.Want
	var places []int
	for i := range attachments {
		if at := &attachments[i]; at.Resource != "" {
			wants = append(wants, sriov.Want{Interface: at.Interface, Network: at.String(), Resource: at.Resource, ID: at.DeviceID})
			places = append(places, i)
		}
	}
	if len(wants) == 0 {
		return nil, nil
	}
	given, err := a.kubelet.Devices(ctx, owner.Namespace, owner.Pod)
	if err != nil {
		return nil, err
	}
	held, err := a.heldDevices(owner.Sandbox, read)
	if err != nil {
		return nil, err
	}
	ids, err := sriov.Choose(wants, given, held)
	if err != nil {
		return nil, err
	}
	devices := map[int]*agentapi.Device{}
	for n, i := range places {
		at, d := &attachments[i], sriov.Device{Resource: wants[n].Resource, ID: ids[n]}
		info, err := sriov.Info(a.infoDir, d, nad.CheckDevice)
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

// heldDevices are those that the plugin's journal has for other containers: their delegates' DEL, which may come at any time,
// would take them away from whoever has them then.
func (a *Agent) heldDevices(container string, read readJournal) (sriov.Held, error) {
	j, err := read()
	if err != nil {
		return nil, conf.Errorf(conf.CodeTryAgain, "can the agent read the plugin's journal below --state-dir?", "which devices are free: %w", err)
	}
	if len(j.damaged) > 0 {
		// They keep no device from others for ever: the plugin, when it undoes such a container, leaves a device alone
		// that another container has by then.
		a.log.Warn("journal entries are damaged; their devices are unknown", "files", j.damaged)
	}
	held := sriov.Held{}
	for i := range j.attached {
		e := &j.attached[i]
		if e.Sandbox.ContainerID == container || e.Plan == nil || e.Forgotten {
			continue
		}
		for _, d := range e.Plan.Delegates {
			if d.Device != nil {
				held.Add(sriov.Device{Resource: d.Device.Resource, ID: d.Device.ID}, fmt.Sprintf("container %.12s of pod %s/%s", e.Sandbox.ContainerID, e.Sandbox.Namespace, e.Sandbox.Pod))
			}
		}
	}
	return held, nil
}
