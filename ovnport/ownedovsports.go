package ovnport

import (
	"context"
	"fmt"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// OwnedOVSPort is an OVS port of a pod, with its owner as its Interface row names it.
type OwnedOVSPort struct {
	HostVeth  string
	Namespace string
	Pod       string
	UID       string
	Sandbox   string
	// Installed reports whether ovn-controller has installed the flows of the port. It has not, or not any more, if
	// the port's row is missing in NB.
	Installed bool
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
		p := OwnedOVSPort{
			HostVeth: row.Name, UID: ids["iface-id-ver"], Sandbox: ids["sandbox"], Installed: ids["ovn-installed"] == "true",
		}
		if namespace, rest, ok := strings.Cut(ids["iface-id"], "/"); ok {
			p.Namespace = namespace
			p.Pod, _, _ = strings.Cut(rest, "/")
		}
		all = append(all, p)
	}
	return all, nil
}

// PodPorts returns the names of the ports of this node's pods by their row keys, from the copy of the node's OVS
// database.
func (v *OVS) PodPorts(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, restartPatience) // see Settings
	defer cancel()
	db, err := v.db.Copy(ctx)
	if err != nil {
		return nil, fmt.Errorf("OVS database: %w", err)
	}
	var rows []vswitch.Interface
	if err := db.List(ctx, &rows); err != nil {
		return nil, fmt.Errorf("OVS database: %w", err)
	}
	names := map[string]string{}
	for i := range rows {
		if ids := rows[i].ExternalIDs; isOurs(&rows[i]) && ids["iface-id"] != "" {
			names[ids[keyPortUUID]] = ids["iface-id"]
		}
	}
	return names, nil
}

func isOurs(row *vswitch.Interface) bool {
	return row.ExternalIDs[keyPortUUID] != "" && row.ExternalIDs["sandbox"] != ""
}
