package ovnport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// OVS plugs host ends into the node's integration bridge and watches for their flows.
type OVS struct {
	db     *ovndb.DB
	bridge string

	listen  sync.Once
	mu      sync.Mutex
	waiters map[string]chan struct{} // by the name of the host end; a token means "look again"
	leaving map[string]leaving       // by sandbox
}

// OpenOVS begins to connect to the node's OVS database and keeps a copy of the few rows and columns that matter.
func OpenOVS(socket, bridge string, log *slog.Logger) (*OVS, error) {
	dbModel, err := vswitch.FullDatabaseModel()
	if err != nil {
		return nil, err
	}
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
	return &OVS{db: db, bridge: bridge, waiters: map[string]chan struct{}{}, leaving: map[string]leaving{}}, nil
}

// Close ends the connection.
func (v *OVS) Close() { v.db.Close() }

// Connected tells whether the connection stands now.
func (v *OVS) Connected() bool { return v.db.Connected() }

// Answers tells whether Open vSwitch is there now, with all that a plug needs.
func (v *OVS) Answers(ctx context.Context) error {
	if _, err := v.Settings(ctx); err != nil {
		return err
	}
	if err := v.db.Answers(ctx); err != nil {
		return conf.Errorf(conf.CodeTryAgain, "is Open vSwitch running on this node?", "%w", err)
	}
	return nil
}

// Settings is what an ADD has to know of the node.
type Settings struct {
	Chassis   string // external_ids:system-id
	EncapIP   string // external_ids:ovn-encap-ip
	Userspace bool   // the integration bridge is a userspace datapath
	// Mappings are the bridges to providers' networks by these' names, as external_ids:ovn-bridge-mappings has them.
	Mappings map[string]string
	root     string // the row key of all of these
	bridge   string // the integration bridge's
	bridges  []string
}

// HasBridge tells whether Open vSwitch has the bridge.
func (s *Settings) HasBridge(name string) bool { return slices.Contains(s.bridges, name) }

// mappings reads external_ids:ovn-bridge-mappings, "NAME:BRIDGE,…"; the key with the chassis' name comes before the one
// without, as ovn-controller(8) has it.
func mappings(ids map[string]string) map[string]string {
	const key = "ovn-bridge-mappings"
	text, own := ids[key+"-"+ids["system-id"]]
	if !own {
		text = ids[key]
	}
	bridges := map[string]string{}
	for _, pair := range strings.Split(text, ",") {
		if name, bridge, ok := strings.Cut(strings.TrimSpace(pair), ":"); ok {
			bridges[name] = bridge
		}
	}
	return bridges
}

// restartPatience is more than a restart of the node's ovsdb-server takes.
const restartPatience = 5 * time.Second

// Settings reads the node's settings from the copy.
func (v *OVS) Settings(ctx context.Context) (*Settings, error) {
	const hint = "is Open vSwitch running on this node, and is --ovs-socket its db.sock?"
	if err := v.db.WaitConnected(ctx); err != nil {
		return nil, conf.Errorf(conf.CodeTryAgain, hint, "%w", err)
	}
	// While the connection is down the library waits until the end of ctx, and then answers from its old copy.
	ctx, cancel := context.WithTimeout(ctx, restartPatience)
	defer cancel()
	var roots []vswitch.OpenvSwitch
	if err := v.db.Client().List(ctx, &roots); err != nil {
		return nil, fmt.Errorf("OVS database: %w", err)
	}
	if ctx.Err() != nil {
		return nil, conf.Errorf(conf.CodeTryAgain, hint, "OVS database does not answer")
	}
	if len(roots) == 0 || roots[0].ExternalIDs["system-id"] == "" {
		return nil, conf.Errorf(conf.CodeTryAgain, "ovn-controller needs it too: ovs-vsctl set Open_vSwitch . external_ids:system-id=…",
			"Open vSwitch on this node has no external_ids:system-id")
	}
	s := &Settings{root: roots[0].UUID, Chassis: roots[0].ExternalIDs["system-id"], EncapIP: roots[0].ExternalIDs["ovn-encap-ip"], Mappings: mappings(roots[0].ExternalIDs)}
	var bridges []vswitch.Bridge
	if err := v.db.Client().List(ctx, &bridges); err != nil {
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

// OVSPort is the node's end of a port, in the integration bridge.
type OVSPort struct {
	HostVeth string // of the host-side veth
	PortUUID string
	PortName string
	MAC      string
}

// Add puts all host ends of a sandbox into the integration bridge, in one transaction. What an earlier attempt
// of the same sandbox left there goes first.
func (v *OVS) Add(ctx context.Context, o Owner, plugs []OVSPort) error {
	ops, err := v.plugOps(ctx, o, plugs)
	if err != nil {
		return err
	}
	_, err = v.db.Transact(ctx, ops)
	if refused, ok := errors.AsType[*ovndb.Refused](err); ok && refused.Reason == ovndb.ReasonConstraint {
		if err := v.Delete(ctx, o.Sandbox); err != nil {
			return err
		}
		_, err = v.db.Transact(ctx, ops)
	}
	failpoint.Hit("ovs-committed")
	if err != nil {
		return conf.Errorf(conf.CodeTryAgain, "is Open vSwitch running on this node?", "plug into bridge %s: %w", v.bridge, err)
	}
	return nil
}

// Restore puts those of a sandbox's host ends into the integration bridge that Open vSwitch has lost, and leaves all
// others as they are. An Interface row that has lost its external_ids gets them again. restored counts both.
func (v *OVS) Restore(ctx context.Context, o Owner, plugs []OVSPort) (restored int, err error) {
	rows, err := v.interfaces(ctx, plugs)
	if err != nil {
		return 0, err
	}
	var missing []OVSPort
	var marks []ovsdb.Operation
	for _, p := range plugs {
		switch row := rows[p.HostVeth]; {
		case row == nil:
			missing = append(missing, p)
		case !isOurs(row):
			marks = append(marks, mark(row.UUID, o, p))
		}
	}
	ops := marks
	if len(missing) > 0 {
		if ops, err = v.plugOps(ctx, o, missing); err != nil {
			return 0, err
		}
		ops = append(ops, marks...)
	}
	if len(ops) == 0 {
		return 0, nil
	}
	if _, err := v.db.Transact(ctx, ops); err != nil {
		return 0, fmt.Errorf("plug into bridge %s: %w", v.bridge, err)
	}
	return len(missing) + len(marks), nil
}

// interfaces reads the host ends' rows from the database and not from the copy, which may be behind. They are by name.
func (v *OVS) interfaces(ctx context.Context, plugs []OVSPort) (map[string]*vswitch.Interface, error) {
	var ops []ovsdb.Operation
	for _, p := range plugs {
		ops = append(ops, ovsdb.Operation{
			Op: ovsdb.OperationSelect, Table: vswitch.InterfaceTable, Columns: []string{"_uuid", "name", "external_ids"},
			Where: []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, p.HostVeth)},
		})
	}
	results, err := v.db.Transact(ctx, ops)
	if err != nil {
		return nil, fmt.Errorf("host ends in Open vSwitch: %w", err)
	}
	found := map[string]*vswitch.Interface{}
	for _, result := range results {
		rows, err := ovndb.Rows[vswitch.Interface](v.db, result)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			found[row.Name] = row
		}
	}
	return found, nil
}

// interfaceIDs are the external_ids by which ovn-controller and this agent know a host end.
func interfaceIDs(o Owner, p OVSPort) map[string]string {
	return map[string]string{
		"iface-id": p.PortName, "iface-id-ver": o.UID, "attached_mac": p.MAC, "sandbox": o.Sandbox, keyPortUUID: p.PortUUID,
	}
}

// mark gives an Interface row its external_ids again. Those of ovn-controller stay.
func mark(row string, o Owner, p OVSPort) ovsdb.Operation {
	ids := interfaceIDs(o, p)
	return ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: vswitch.InterfaceTable,
		Where: []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: row})},
		Mutations: []ovsdb.Mutation{
			*ovsdb.NewMutation("external_ids", ovsdb.MutateOperationDelete, ovndb.Set(slices.Sorted(maps.Keys(ids)))),
			*ovsdb.NewMutation("external_ids", ovsdb.MutateOperationInsert, ovndb.Map(ids)),
		},
	}
}

// plugOps are the operations that put host ends of a sandbox into the integration bridge.
func (v *OVS) plugOps(ctx context.Context, o Owner, plugs []OVSPort) ([]ovsdb.Operation, error) {
	settings, err := v.Settings(ctx)
	if err != nil {
		return nil, err
	}
	ops, err := v.insertOps(o, settings.bridge, plugs)
	if err != nil {
		return nil, err
	}
	older, err := v.supersede(ctx, plugs)
	return append(ops, older...), err
}

func (v *OVS) insertOps(o Owner, bridge string, plugs []OVSPort) ([]ovsdb.Operation, error) {
	ops := []ovsdb.Operation{ovndb.Present(vswitch.BridgeTable, bridge)}
	var ports []any
	for i, p := range plugs {
		ifID, portID := fmt.Sprintf("iface%d", i), fmt.Sprintf("port%d", i)
		iface, err := v.db.Insert(&vswitch.Interface{UUID: ifID, Name: p.HostVeth, ExternalIDs: interfaceIDs(o, p)})
		if err != nil {
			return nil, err
		}
		port, err := v.db.Insert(&vswitch.Port{
			UUID: portID, Name: p.HostVeth, Interfaces: []string{ifID},
			ExternalIDs: map[string]string{keySandbox: o.Sandbox},
			OtherConfig: map[string]string{"transient": "true"},
		})
		if err != nil {
			return nil, err
		}
		ops = append(ops, iface, port)
		ports = append(ports, ovsdb.UUID{GoUUID: portID})
	}
	link := ovndb.Link(vswitch.BridgeTable, bridge, "ports")
	link.Mutations[0].Value = ovsdb.OvsSet{GoSet: ports}
	return append(ops, link), nil
}

// supersede takes the names of the ports off the OVS ports that older sandboxes have of them, whose DEL may come late or never:
// of two OVS ports of one name, ovn-controller chooses either at its next recompute.
func (v *OVS) supersede(ctx context.Context, plugs []OVSPort) ([]ovsdb.Operation, error) {
	var interfaces []vswitch.Interface
	if err := v.db.Client().List(ctx, &interfaces); err != nil {
		return nil, fmt.Errorf("OVS database: %w", err)
	}
	var ops []ovsdb.Operation
	for i := range interfaces {
		row := &interfaces[i]
		named := func(p OVSPort) bool { return p.PortName == row.ExternalIDs["iface-id"] && p.HostVeth != row.Name }
		if !isOurs(row) || !slices.ContainsFunc(plugs, named) {
			continue
		}
		ops = append(ops, ovsdb.Operation{
			Op: ovsdb.OperationMutate, Table: vswitch.InterfaceTable,
			Where:     []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: row.UUID})},
			Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("external_ids", ovsdb.MutateOperationDelete, ovndb.Set([]string{"iface-id"}))},
		})
	}
	return ops, nil
}

// AwaitFlows waits until ovn-controller says of every host end that its flows are installed, by events. The error
// has code 106 and says who is behind.
func (v *OVS) AwaitFlows(ctx context.Context, plugs []OVSPort) error {
	v.listen.Do(func() {
		v.db.Client().Cache().AddEventHandler(&cache.EventHandlerFuncs{
			AddFunc:    func(_ string, m model.Model) { v.wake(m) },
			UpdateFunc: func(_ string, _, m model.Model) { v.wake(m) },
		})
	})
	for _, p := range plugs {
		if err := v.await(ctx, p); err != nil {
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

func (v *OVS) await(ctx context.Context, p OVSPort) error {
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
		err := v.db.Client().Get(ctx, iface)
		if err == nil && iface.Error != nil && *iface.Error != "" {
			return conf.Errorf(conf.CodeNoFlows, "see ovs-vswitchd's log on this node", "Open vSwitch does not take the host end %s: %s", p.HostVeth, *iface.Error)
		}
		if err == nil && iface.ExternalIDs["ovn-installed"] == "true" && iface.ExternalIDs["iface-id"] == p.PortName {
			return nil
		}
		select {
		case <-again:
		case <-ctx.Done():
			return v.behind(p, iface)
		}
	}
}

// behind is the error of a wait that ended in vain, as far as the node can tell.
func (v *OVS) behind(p OVSPort, iface *vswitch.Interface) error {
	if iface.Ofport == nil || *iface.Ofport <= 0 {
		return conf.Errorf(conf.CodeNoFlows, "is ovs-vswitchd running on this node?",
			"port %s: Open vSwitch is behind, it has not taken the host end %s", p.PortName, p.HostVeth)
	}
	return &NoFlows{Port: p}
}

// NoFlows is a port that Open vSwitch has taken and for which ovn-controller has installed no flows. Whether that
// is northd's or ovn-controller's doing only NB can tell: see NB.Explain.
type NoFlows struct{ Port OVSPort }

func (e *NoFlows) Error() string { return "port " + e.Port.PortName + ": flows are not installed" }
