package ovnport

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// Conflict is an address of a port that a host on the physical network uses, too.
type Conflict struct {
	Addr netip.Addr
	MAC  net.HardwareAddr // of that host
}

// NoteConflicts writes conflicts into the row of a port, for kubectl multinet. The note is deleted with the port, and
// when another sandbox takes the port over. It is refused if the sandbox does not have the port any more.
func (n *NB) NoteConflicts(ctx context.Context, sandbox, port string, conflicts []Conflict) error {
	words := make([]string, len(conflicts))
	for i, c := range conflicts {
		words[i] = c.Addr.String() + "=" + c.MAC.String()
	}
	_, err := n.db.Transact(ctx, []ovsdb.Operation{
		owned(port, sandbox),
		ovndb.SetPair(nb.LogicalSwitchPortTable, port, "external_ids", ovndb.ConflictsKey, strings.Join(words, " ")),
	})
	return err
}

// AwaitPhysical waits until ovs-vswitchd has the patch port of a localnet network, which leads to the bridge of the
// physical network. ovn-controller makes it when the network's first port on the node comes, and does not wait for it
// before it reports the port's flows as installed.
func (v *OVS) AwaitPhysical(ctx context.Context, network string) error {
	name := "patch-" + v.bridge + "-to-" + network + ":localnet"
	rows, err := v.db.Copy(ctx)
	if err != nil {
		return conf.Errorf(conf.CodeNoFlows, "is Open vSwitch running on this node?", "%w", err)
	}
	for {
		iface := &vswitch.Interface{Name: name}
		err := rows.Get(ctx, iface)
		if err == nil && iface.Ofport != nil && *iface.Ofport > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return conf.Errorf(conf.CodeNoFlows, "see the logs of ovn-controller and ovs-vswitchd on this node",
				"Open vSwitch does not have port %s, which leads to the physical network", name)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
