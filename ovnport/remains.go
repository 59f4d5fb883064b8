package ovnport

import (
	"context"
	"fmt"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// Plugged is a host end of ours in Open vSwitch, with what it says of whose it is.
type Plugged struct {
	HostEnd   string
	Namespace string
	Pod       string
	UID       string
	Sandbox   string
}

// Plugged reads from the node's OVS database which host ends are in it.
func (v *OVS) Plugged(ctx context.Context) ([]Plugged, error) {
	results, err := v.db.Transact(ctx, []ovsdb.Operation{{
		Op: ovsdb.OperationSelect, Table: vswitch.InterfaceTable, Columns: []string{"_uuid", "name", "external_ids"},
	}})
	if err != nil {
		return nil, fmt.Errorf("host ends in Open vSwitch: %w", err)
	}
	rows, err := ovndb.Rows[vswitch.Interface](v.db, results[0])
	if err != nil {
		return nil, err
	}
	var all []Plugged
	for _, row := range rows {
		ids := row.ExternalIDs
		if !isOurs(row) {
			continue
		}
		p := Plugged{HostEnd: row.Name, UID: ids["iface-id-ver"], Sandbox: ids["sandbox"]}
		if namespace, rest, ok := strings.Cut(ids["iface-id"], "/"); ok {
			p.Namespace = namespace
			p.Pod, _, _ = strings.Cut(rest, "/")
		}
		all = append(all, p)
	}
	return all, nil
}

func isOurs(row *vswitch.Interface) bool {
	return row.ExternalIDs[keyPortUUID] != "" && row.ExternalIDs["sandbox"] != ""
}

// Lease is a port of a pod as NB has it.
type Lease struct {
	Held
	Name      string
	Network   string
	Interface string
	Owner     Owner
}

// LeasesOf reads the ports of a node's pods. The server scans its ports for them; what it sends grows with the node's alone.
func (n *NB) LeasesOf(ctx context.Context, node string) ([]Lease, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.LogicalSwitchPortTable, "external_ids", keyNode, node, "_uuid", "name", "external_ids"),
	})
	if err != nil {
		return nil, fmt.Errorf("this node's ports: %w", err)
	}
	rows, err := ovndb.Rows[nb.LogicalSwitchPort](n.db, results[0])
	if err != nil {
		return nil, err
	}
	var all []Lease
	for _, row := range rows {
		if row.ExternalIDs[keySandbox] == "" || ovndb.OtherCluster(row.ExternalIDs) != "" {
			continue
		}
		all = append(all, Lease{
			Held: Held{UUID: row.UUID, Claims: claimsOf(row)}, Name: row.Name, Network: row.ExternalIDs[keyNetwork],
			Interface: row.ExternalIDs[keyInterface], Owner: ownerOf(row),
		})
	}
	return all, nil
}
