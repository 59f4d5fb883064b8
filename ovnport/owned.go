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

// OwnedPort is a port of a pod, with its owner as NB has it.
type OwnedPort struct {
	Keys
	Name      string
	Network   string
	Interface string
	Owner     Owner
}

// PortsOn reads the ports of a node's pods. The server scans all ports and sends only those.
func (n *NB) PortsOn(ctx context.Context, node string) ([]OwnedPort, error) {
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
	var all []OwnedPort
	for _, row := range rows {
		if row.ExternalIDs[keySandbox] == "" || ovndb.OtherCluster(row.ExternalIDs) != "" {
			continue
		}
		all = append(all, OwnedPort{
			Keys: Keys{UUID: row.UUID, Claims: claimsOf(row)}, Name: row.Name, Network: row.ExternalIDs[keyNetwork],
			Interface: row.ExternalIDs[keyInterface], Owner: ownerOf(row),
		})
	}
	return all, nil
}

// OwnedOVSPort is an OVS port of a pod, with its owner as its Interface row names it.
type OwnedOVSPort struct {
	HostVeth  string
	Namespace string
	Pod       string
	UID       string
	Sandbox   string
}

// Ports reads the OVS ports of pods from the node's OVS database.
func (v *OVS) Ports(ctx context.Context) ([]OwnedOVSPort, error) {
	results, err := v.db.Transact(ctx, []ovsdb.Operation{{
		Op: ovsdb.OperationSelect, Table: vswitch.InterfaceTable, Columns: []string{"_uuid", "name", "external_ids"},
	}})
	if err != nil {
		return nil, fmt.Errorf("read OVS ports: %w", err)
	}
	rows, err := ovndb.Rows[vswitch.Interface](v.db, results[0])
	if err != nil {
		return nil, err
	}
	var all []OwnedOVSPort
	for _, row := range rows {
		ids := row.ExternalIDs
		if !isOurs(row) {
			continue
		}
		p := OwnedOVSPort{HostVeth: row.Name, UID: ids["iface-id-ver"], Sandbox: ids["sandbox"]}
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
