package ovnport

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
	"github.com/ovn-multinet/ovn-multinet/ovnport/uplink"
)

// OVS adds OVS ports to the node's integration bridge and waits for their flows.
type OVS struct {
	db     *ovndb.DB
	bridge string
	dir    string // of the sockets of Open vSwitch

	listen    sync.Once
	mu        sync.Mutex
	waiters   map[string]chan struct{} // by host-side veth; a token says that the row changed
	deletions map[string]deletion      // by sandbox
}

// OpenOVS begins to connect to the node's OVS database, and keeps a copy of the columns that it needs.
func OpenOVS(socket, bridge string, log *slog.Logger) (*OVS, error) {
	dbModel, err := vswitch.FullDatabaseModel()
	if err != nil {
		return nil, err
	}
	// clearOlder finds rows by iface-id.
	dbModel.SetIndexes(map[string][]model.ClientIndex{vswitch.InterfaceTable: {
		{Columns: []model.ColumnKey{{Column: "external_ids", Key: "iface-id"}}},
	}})
	root, br, iface := &vswitch.OpenvSwitch{}, &vswitch.Bridge{}, &vswitch.Interface{}
	db, err := ovndb.Open(ovndb.Config{
		Name: "OVS", Endpoints: []string{"unix:" + socket}, Model: dbModel, Log: log,
		Monitor: []client.MonitorOption{
			client.WithTable(root, &root.ExternalIDs),
			client.WithTable(br, &br.Name, &br.DatapathType),
			client.WithTable(iface, &iface.Name, &iface.ExternalIDs, &iface.Error, &iface.Ofport),
		},
	})
	if err != nil {
		return nil, err
	}
	return &OVS{
		db: db, bridge: bridge, dir: filepath.Dir(socket),
		waiters: map[string]chan struct{}{}, deletions: map[string]deletion{},
	}, nil
}

// Close ends the connection.
func (v *OVS) Close() { v.db.Close() }

// Connected reports whether the connection is up.
func (v *OVS) Connected() bool { return v.db.Connected() }

// Answers returns an error unless Open vSwitch answers now and has what an OVS port needs.
func (v *OVS) Answers(ctx context.Context) error {
	if _, err := v.Settings(ctx); err != nil {
		return err
	}
	if err := v.db.Answers(ctx); err != nil {
		return conf.Errorf(conf.CodeTryAgain, "is Open vSwitch running on this node?", "%w", err)
	}
	return nil
}

// Settings are what an ADD needs to know of the node.
type Settings struct {
	Chassis   string // external_ids:system-id
	EncapIP   string // external_ids:ovn-encap-ip: an address, or several with commas
	EncapType string // external_ids:ovn-encap-type: a type, or several with commas
	Userspace bool   // the integration bridge is a userspace datapath
	// Mappings are the bridges of physical networks, by the networks' names in external_ids:ovn-bridge-mappings.
	Mappings map[string]string
	root     string // the key of the row in Open_vSwitch
	bridge   string // the key of the integration bridge
	bridges  []string
}

// HasBridge reports whether Open vSwitch has the bridge.
func (s *Settings) HasBridge(name string) bool { return slices.Contains(s.bridges, name) }

// ofChassis reads a key of external_ids. As ovn-controller(8) does, it prefers the key that ends with the name of the
// chassis.
func ofChassis(ids map[string]string, key string) string {
	if text, own := ids[key+"-"+ids["system-id"]]; own {
		return text
	}
	return ids[key]
}

// restartPatience is longer than a restart of the node's ovsdb-server.
const restartPatience = 5 * time.Second

// Settings reads the node's settings from the copy.
func (v *OVS) Settings(ctx context.Context) (*Settings, error) {
	const hint = "is Open vSwitch running on this node, and is --ovs-socket its db.sock?"
	rows, err := v.db.Copy(ctx)
	if err != nil {
		return nil, conf.Errorf(conf.CodeTryAgain, hint, "%w", err)
	}
	// While the connection is down, the library waits until ctx ends, and then answers from its old copy.
	ctx, cancel := context.WithTimeout(ctx, restartPatience)
	defer cancel()
	var roots []vswitch.OpenvSwitch
	if err := rows.List(ctx, &roots); err != nil {
		return nil, fmt.Errorf("OVS database: %w", err)
	}
	if ctx.Err() != nil {
		return nil, conf.Errorf(conf.CodeTryAgain, hint, "OVS database does not answer")
	}
	if len(roots) == 0 || roots[0].ExternalIDs["system-id"] == "" {
		return nil, conf.Errorf(conf.CodeTryAgain,
			"ovn-controller needs it too: ovs-vsctl set Open_vSwitch . external_ids:system-id=…",
			"Open vSwitch on this node has no external_ids:system-id")
	}
	ids := roots[0].ExternalIDs
	s := &Settings{
		root: roots[0].UUID, Chassis: ids["system-id"], Mappings: uplink.Mappings(ofChassis(ids, "ovn-bridge-mappings")),
		EncapIP: ofChassis(ids, "ovn-encap-ip"), EncapType: ofChassis(ids, "ovn-encap-type"),
	}
	var bridges []vswitch.Bridge
	if err := rows.List(ctx, &bridges); err != nil {
		return nil, fmt.Errorf("OVS database: %w", err)
	}
	for _, b := range bridges {
		s.bridges = append(s.bridges, b.Name)
		if b.Name == v.bridge {
			s.bridge, s.Userspace = b.UUID, b.DatapathType == "netdev"
		}
	}
	if s.bridge != "" {
		return s, nil
	}
	return nil, conf.Errorf(conf.CodeTryAgain, "ovn-controller makes it: is it running on this node?",
		"Open vSwitch on this node has no bridge %s", v.bridge)
}

// Uplinks makes bridges to physical networks in the same database.
func (v *OVS) Uplinks(log *slog.Logger) *uplink.Bridges {
	return &uplink.Bridges{DB: v.db, Integration: v.bridge, Interfaces: uplink.NICs{}, Log: log}
}
