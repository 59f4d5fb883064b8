package uplink

import (
	"context"
	"errors"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// state is what Open vSwitch's database has of bridges to physical networks.
type state struct {
	root        string // the key of the row in Open_vSwitch
	ids         map[string]string
	mappingsKey string            // the key of external_ids that ovn-controller reads
	all         map[string]string // all entries of ovn-bridge-mappings
	mappings    map[string]string // of these: ours, also those that somebody has removed
	foreign     map[string]string // of these: those of others
	datapath    string
	bridge      map[string]*vswitch.Bridge // all bridges, by name
	// port and iface are those of the wanted interfaces, and all of our bridges, by name.
	port  map[string]*vswitch.Port
	iface map[string]*vswitch.Interface
}

// read reads the state. It reads from the database and not from the agent's copy, which is empty for a moment after a
// reconnect.
func (b *Bridges) read(ctx context.Context, wanted map[string]netmodel.NodeUplink) (*state, error) {
	everyRow := []ovsdb.Condition{}
	results, err := b.DB.Transact(ctx, []ovsdb.Operation{
		{
			Op: ovsdb.OperationSelect, Table: vswitch.OpenvSwitchTable, Where: everyRow,
			Columns: []string{"_uuid", "external_ids"},
		},
		{Op: ovsdb.OperationSelect, Table: vswitch.BridgeTable, Where: everyRow},
	})
	if err != nil {
		return nil, err
	}
	roots, err := ovndb.Rows[vswitch.OpenvSwitch](b.DB, results[0])
	if err != nil {
		return nil, err
	}
	bridges, err := ovndb.Rows[vswitch.Bridge](b.DB, results[1])
	if err != nil {
		return nil, err
	}
	if len(roots) == 0 {
		return nil, errors.New("the node's Open vSwitch is not configured yet")
	}
	s := &state{
		root: roots[0].UUID, ids: roots[0].ExternalIDs, bridge: map[string]*vswitch.Bridge{},
		port: map[string]*vswitch.Port{}, iface: map[string]*vswitch.Interface{},
	}
	s.setMappings()
	for _, row := range bridges {
		s.bridge[row.Name] = row
	}
	integration := s.bridge[b.Integration]
	if integration == nil {
		return nil, errors.New("the node's Open vSwitch has no bridge " + b.Integration + " yet: ovn-controller makes it")
	}
	s.datapath = integration.DatapathType
	return s, b.readPorts(ctx, s, wanted)
}

// setMappings reads the entries of ovn-bridge-mappings. ovn-controller prefers the key with the name of the chassis
// (ovn-controller(8)).
func (s *state) setMappings() {
	s.mappingsKey = keyMappings
	if _, own := s.ids[keyMappings+"-"+s.ids["system-id"]]; own {
		s.mappingsKey += "-" + s.ids["system-id"]
	}
	s.all, s.mappings, s.foreign = Mappings(s.ids[s.mappingsKey]), Mappings(s.ids[keyOurs]), map[string]string{}
	for name, bridge := range s.all {
		if s.mappings[name] != bridge {
			s.foreign[name] = bridge
		}
	}
}

func (b *Bridges) readPorts(ctx context.Context, s *state, wanted map[string]netmodel.NodeUplink) error {
	names := map[string]bool{}
	for _, u := range wanted {
		if u.Interface != "" {
			names[u.Interface] = true
		}
	}
	var ops []ovsdb.Operation
	for _, row := range s.bridge {
		if row.ExternalIDs[keyPhysical] != "" {
			for _, port := range row.Ports {
				ops = append(ops, ovndb.Select(vswitch.PortTable, port))
			}
		}
	}
	named := func(table, name string) ovsdb.Operation {
		return ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Where: []ovsdb.Condition{
			ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)}}
	}
	for name := range names {
		ops = append(ops, named(vswitch.PortTable, name))
	}
	ports := len(ops)
	for name := range names {
		ops = append(ops, named(vswitch.InterfaceTable, name))
	}
	if len(ops) == 0 {
		return nil
	}
	results, err := b.DB.Transact(ctx, ops)
	if err != nil {
		return err
	}
	for _, result := range results[:ports] {
		rows, err := ovndb.Rows[vswitch.Port](b.DB, result)
		if err != nil {
			return err
		}
		for _, row := range rows {
			s.port[row.Name] = row
		}
	}
	for _, result := range results[ports:] {
		rows, err := ovndb.Rows[vswitch.Interface](b.DB, result)
		if err != nil {
			return err
		}
		for _, row := range rows {
			s.iface[row.Name] = row
		}
	}
	return nil
}

// holder names the bridge that has a port.
func (s *state) holder(port string) string {
	for name, row := range s.bridge {
		if slices.Contains(row.Ports, port) {
			return name
		}
	}
	return "?"
}

// unchanged asserts that nobody has changed the row of Open_vSwitch since it was read.
func (s *state) unchanged() ovsdb.Operation {
	return ovndb.HasMap(vswitch.OpenvSwitchTable, s.root, "external_ids", s.ids)
}
