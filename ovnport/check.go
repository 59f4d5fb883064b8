package ovnport

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// Check returns an error unless NB has the port, it belongs to the sandbox, and it has these addresses.
func (n *NB) Check(ctx context.Context, sandbox, key, mac string, addresses []netip.Prefix) error {
	ports, _, err := n.read(ctx, []string{key})
	if err != nil {
		return unreachable(err)
	}
	row := ports[key]
	if row == nil || row.ExternalIDs[keySandbox] != sandbox && targetOf(row).Sandbox != sandbox {
		return conf.Errorf(conf.CodeNotAsMade, "recreate the pod",
			"its port %s does not belong to this sandbox in the Northbound database", key)
	}
	expected := []string{mac}
	for _, a := range addresses {
		expected = append(expected, a.Addr().String())
	}
	var stored []string
	if len(row.Addresses) > 0 { // the second address is "unknown"
		stored = strings.Fields(row.Addresses[0])
	}
	if slices.Sort(expected); !slices.Equal(slices.Sorted(slices.Values(stored)), expected) {
		return conf.Errorf(conf.CodeNotAsMade, "someone changed it there; recreate the pod",
			"its port %s has the addresses %q in the Northbound database, not its own", row.Name, row.Addresses)
	}
	return nil
}

// Check returns an error unless the sandbox has the OVS port, with its flows.
func (v *OVS) Check(ctx context.Context, sandbox string, p OVSPort) error {
	iface := &vswitch.Interface{Name: p.HostVeth}
	rows, err := v.db.Copy(ctx)
	if err == nil {
		err = rows.Get(ctx, iface)
	}
	if errors.Is(err, client.ErrNotFound) {
		return conf.Errorf(conf.CodeNotAsMade, "recreate the pod",
			"its host-side veth %s is not in Open vSwitch", p.HostVeth)
	}
	if err != nil {
		return conf.Errorf(conf.CodeTryAgain, "is Open vSwitch running on this node?", "%w", err)
	}
	x := iface.ExternalIDs
	if x["sandbox"] != sandbox || x["iface-id"] != p.PortName || x["ovn-installed"] != "true" {
		return conf.Errorf(conf.CodeNotAsMade, "is ovn-controller running on this node?",
			"its host-side veth %s is not bound to its port", p.HostVeth)
	}
	return nil
}
