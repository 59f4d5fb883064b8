package ovnport

import (
	"context"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// AwaitFlows waits until ovn-controller has installed the flows of every OVS port. The error has code 106 and names
// the program that is behind.
func (v *OVS) AwaitFlows(ctx context.Context, ports []OVSPort) error {
	rows, err := v.db.Copy(ctx)
	if err != nil {
		return conf.Errorf(conf.CodeNoFlows, "is Open vSwitch running on this node?", "%w", err)
	}
	v.listen.Do(func() {
		rows.Cache().AddEventHandler(&cache.EventHandlerFuncs{
			AddFunc:    func(_ string, m model.Model) { v.wake(m) },
			UpdateFunc: func(_ string, _, m model.Model) { v.wake(m) },
		})
	})
	for _, p := range ports {
		if err := v.awaitInstalled(ctx, rows, p); err != nil {
			return err
		}
	}
	return nil
}

func (v *OVS) wake(m model.Model) {
	iface, ok := m.(*vswitch.Interface)
	if !ok {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if w := v.waiters[iface.Name]; w != nil {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

func (v *OVS) awaitInstalled(ctx context.Context, rows client.Client, p OVSPort) error {
	again := make(chan struct{}, 1)
	v.mu.Lock()
	v.waiters[p.HostVeth] = again
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		delete(v.waiters, p.HostVeth)
		v.mu.Unlock()
	}()
	for {
		iface := &vswitch.Interface{Name: p.HostVeth}
		err := rows.Get(ctx, iface)
		found := err == nil && (p.row == "" || iface.UUID == p.row) // the copy may still have a row that Add replaced
		if found && iface.Error != nil && *iface.Error != "" {
			return conf.Errorf(conf.CodeNoFlows, "see ovs-vswitchd's log on this node",
				"Open vSwitch does not accept the host-side veth %s: %s", p.HostVeth, *iface.Error)
		}
		if found && iface.ExternalIDs["ovn-installed"] == "true" && iface.ExternalIDs["iface-id"] == p.PortName {
			return nil
		}
		select {
		case <-again:
		case <-ctx.Done():
			return v.notTaken(p, iface)
		}
	}
}

// notTaken is the error of a wait that ended without flows, as far as the OVS database tells the reason.
func (v *OVS) notTaken(p OVSPort, iface *vswitch.Interface) error {
	if iface.Ofport == nil || *iface.Ofport <= 0 {
		return conf.Errorf(conf.CodeNoFlows, "is ovs-vswitchd running on this node?",
			"port %s: Open vSwitch is behind, it has not opened the host-side veth %s", p.PortName, p.HostVeth)
	}
	return &NoFlows{Port: p}
}

// NoFlows says that Open vSwitch has opened the host-side veth of a port, and ovn-controller has installed no flows.
// NB.Explain reports whether northd or ovn-controller is behind.
type NoFlows struct{ Port OVSPort }

func (e *NoFlows) Error() string { return "port " + e.Port.PortName + ": flows are not installed" }

// Explain names the program of OVN that is behind with a port without flows: northd sets the column "up" of every port
// that it has seen.
func (n *NB) Explain(ctx context.Context, sandbox string, e *NoFlows) error {
	ports, _, err := n.read(ctx, []string{e.Port.PortUUID})
	row := ports[e.Port.PortUUID]
	switch {
	case err != nil:
		return conf.Errorf(conf.CodeNoFlows, "is OVN's Northbound database reachable?",
			"%w (and the Northbound database does not answer: %v)", e, err)
	case row == nil:
		return conf.Errorf(conf.CodePodGone, "the pod was deleted or replaced meanwhile",
			"port %s is gone from the Northbound database", e.Port.PortName)
	case row.ExternalIDs[keySandbox] != sandbox:
		return conf.Errorf(conf.CodePodGone, "a newer sandbox of the pod has taken it over",
			"port %s does not belong to this sandbox any more", e.Port.PortName)
	case row.Up == nil:
		return conf.Errorf(conf.CodeNoFlows, "is ovn-northd running and connected?",
			"%w: ovn-northd is behind, it has not seen the port", e)
	default:
		return conf.Errorf(conf.CodeNoFlows,
			"is ovn-controller running on this node and connected to the Southbound database?",
			"%w: ovn-controller of this node is behind", e)
	}
}
