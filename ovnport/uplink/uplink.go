// Package uplink owns the bridges of physical networks on a node: in Open vSwitch's database it makes those that the
// operator wants, and it removes those that it has made. It never touches a bridge, a port or an entry of
// ovn-bridge-mappings of somebody else, and it takes no interface that the node itself needs.
package uplink

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

// Keys of external_ids in Open vSwitch's database.
const (
	keyMappings = "ovn-bridge-mappings"
	// keyOurs, in the row of Open_vSwitch, has the entries of ovn-bridge-mappings that are ours.
	keyOurs = "ovn-multinet/bridge-mappings"
	// keyPhysical is in a bridge that is ours, and in its port of the interface.
	keyPhysical = netmodel.UplinkMark
)

// Interfaces answers questions about the node's network interfaces.
type Interfaces interface {
	Usable(name string, tagged bool) error
	Lacks(name, bridge string) string
}

// Bridges makes the bridges.
type Bridges struct {
	DB          *ovndb.DB // of Open vSwitch
	Integration string    // the name of the integration bridge
	Interfaces  Interfaces
	Log         *slog.Logger

	lacks map[string]time.Time // by physical network: since when its interface lacks something
}

// State is what is missing for an uplink.
type State struct {
	Problem string // "": nothing
	Pending bool   // it may be there in a moment
}

// patience is how long an interface may lack something before that is a problem: what was just connected may come up.
const patience = 10 * time.Second

// maxProblem bounds the text about an uplink that a node publishes.
const maxProblem = 400

// Apply makes the bridges of the wanted uplinks, by physical network, and removes all others of ours. It returns what
// is missing for each uplink, and whether it has changed something: what that becomes, the next call says.
func (b *Bridges) Apply(
	ctx context.Context, wanted map[string]netmodel.NodeUplink,
) (report map[string]State, changed bool, err error) {
	s, err := b.read(ctx, wanted)
	if err != nil {
		return nil, false, err
	}
	p := &plan{
		state: s, bridges: b, mappings: maps.Clone(s.mappings), report: map[string]State{}, kept: map[string]bool{},
		made: map[string]string{},
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		is, err := p.uplink(name, wanted[name])
		if err != nil {
			return nil, false, err
		}
		is.Problem = conf.OneLine(is.Problem, maxProblem)
		p.report[name] = is
	}
	p.removeOthers(wanted)
	p.setMappings()
	if len(p.ops) == 0 {
		return p.report, false, nil
	}
	if _, err = b.DB.Transact(ctx, append([]ovsdb.Operation{s.unchanged()}, p.ops...)); err != nil {
		return nil, false, err
	}
	for _, line := range p.said {
		b.Log.Info("bridges of physical networks: " + line)
	}
	return p.report, true, nil
}

// plan collects the operations of one call of Apply.
type plan struct {
	*state
	bridges  *Bridges
	mappings map[string]string // our entries of ovn-bridge-mappings as they should be
	report   map[string]State
	kept     map[string]bool   // the bridges of ours that stay
	made     map[string]string // by interface and by bridge: the physical network that gets it in this pass
	ops      []ovsdb.Operation
	said     []string
}

func (p *plan) say(format string, args ...any) { p.said = append(p.said, fmt.Sprintf(format, args...)) }

// uplink plans one uplink, and returns what is missing for it.
func (p *plan) uplink(name string, u netmodel.NodeUplink) (is State, err error) {
	if problem := p.refuse(name, u); problem != "" {
		p.keep(name)
		return State{Problem: problem}, nil
	}
	if u.Interface == "" {
		p.mappings[name] = u.Bridge
		return State{}, nil
	}
	bridge, port := p.bridge[u.Bridge], p.port[u.Interface]
	if bridge != nil && port != nil && slices.Contains(bridge.Ports, port.UUID) {
		p.kept[u.Bridge] = true
		return p.connected(name, u), nil
	}
	if port == nil { // otherwise it moves from our former bridge
		if err := p.bridges.Interfaces.Usable(u.Interface, u.Tagged); err != nil {
			p.keep(name)
			return State{Problem: err.Error()}, nil
		}
	}
	if bridge == nil {
		p.say("%s gets the bridge %s with interface %s", name, u.Bridge, u.Interface)
		err = p.make(name, u)
	} else {
		p.say("bridge %s of %s gets the interface %s", u.Bridge, name, u.Interface)
		err = p.exchange(name, u, bridge)
	}
	p.kept[u.Bridge], p.made[u.Bridge], p.made[u.Interface] = true, name, name
	return notConnected(u), err
}

func notConnected(u netmodel.NodeUplink) State {
	return State{"Open vSwitch has not connected " + u.Interface + " yet", true}
}

// keep keeps what an uplink has: what is wanted instead cannot be made.
func (p *plan) keep(name string) {
	for bridge, row := range p.bridge {
		if row.ExternalIDs[keyPhysical] == name {
			p.kept[bridge] = true
		}
	}
}

// refuse says why an uplink cannot be made, whatever the interface is.
func (p *plan) refuse(name string, u netmodel.NodeUplink) string {
	if has, foreign := p.foreign[name]; foreign && has != u.Bridge {
		return fmt.Sprintf("another program has written %s:%s into %s of this node: write bridge: %s without interface, or "+
			"remove that entry", name, has, p.mappingsKey, has)
	}
	for other, bridge := range p.all {
		if other != name && bridge == u.Bridge {
			return fmt.Sprintf("bridge %s is of physical network %s already", bridge, other)
		}
	}
	for _, what := range []string{u.Interface, u.Bridge} {
		if other := p.made[what]; other != "" {
			return fmt.Sprintf("%s is of physical network %s already", what, other)
		}
	}
	bridge := p.bridge[u.Bridge]
	switch {
	case u.Bridge == p.bridges.Integration:
		return fmt.Sprintf("%s is the integration bridge: name another one", u.Bridge)
	case u.Interface == "" && bridge == nil:
		return fmt.Sprintf("the node has no bridge %s: make it in Open vSwitch, or name an interface, too", u.Bridge)
	case u.Interface == "" && bridge.ExternalIDs[keyPhysical] != "":
		return fmt.Sprintf("bridge %s was made for an interface: name the interface, too, or another bridge", u.Bridge)
	case u.Interface == "":
		return ""
	case bridge != nil && bridge.ExternalIDs[keyPhysical] != name:
		return fmt.Sprintf("bridge %s exists already, and is not ours: write bridge: %s without interface to use it, or "+
			"name another one", u.Bridge, u.Bridge)
	}
	if port := p.port[u.Interface]; port != nil && (bridge == nil || !slices.Contains(bridge.Ports, port.UUID)) {
		of := p.holder(port.UUID)
		if row := p.bridge[of]; row != nil && row.ExternalIDs[keyPhysical] == name {
			return "" // the interface moves from our former bridge
		}
		return fmt.Sprintf("%s is a port of bridge %s of Open vSwitch: name another interface, or write bridge: %s instead",
			u.Interface, of, of)
	}
	return ""
}

// connected looks at an uplink that is in the database. The mapping follows only when Open vSwitch has the interface:
// before that, pods would run without their network.
func (p *plan) connected(name string, u netmodel.NodeUplink) State {
	i := p.iface[u.Interface]
	switch {
	case i != nil && i.Error != nil && *i.Error != "":
		return State{Problem: fmt.Sprintf("Open vSwitch cannot use %s: %s", u.Interface, *i.Error)}
	case i == nil || i.Ofport == nil || *i.Ofport <= 0:
		return notConnected(u)
	}
	if _, foreign := p.foreign[name]; !foreign {
		p.mappings[name] = u.Bridge
	}
	return p.bridges.lacking(name, u)
}

// lacking returns what the interface of an uplink lacks.
func (b *Bridges) lacking(name string, u netmodel.NodeUplink) State {
	problem := b.Interfaces.Lacks(u.Interface, u.Bridge)
	if problem == "" {
		delete(b.lacks, name)
		return State{}
	}
	if b.lacks == nil {
		b.lacks = map[string]time.Time{}
	}
	if b.lacks[name].IsZero() {
		b.lacks[name] = time.Now()
	}
	return State{problem, time.Since(b.lacks[name]) < patience}
}

// make inserts a bridge with the interface.
func (p *plan) make(name string, u netmodel.NodeUplink) error {
	p.release(name, u)
	own, err := p.insertPort("own", u.Bridge, "internal", nil)
	if err != nil {
		return err
	}
	nic, err := p.insertPort("nic", u.Interface, "", map[string]string{keyPhysical: name})
	if err != nil {
		return err
	}
	id := fmt.Sprintf("bridge%d", len(p.ops))
	op, err := p.bridges.DB.Insert(&vswitch.Bridge{
		UUID: id, Name: u.Bridge, DatapathType: p.datapath, Ports: []string{own, nic},
		ExternalIDs: map[string]string{keyPhysical: name},
	})
	p.ops = append(p.ops, op, ovndb.Link(vswitch.OpenvSwitchTable, p.root, "bridges", id))
	return err
}

// release removes our former bridge that has the interface.
func (p *plan) release(name string, u netmodel.NodeUplink) {
	port := p.port[u.Interface]
	if port == nil {
		return
	}
	if of := p.holder(port.UUID); of != u.Bridge {
		p.remove(name, of)
	}
}

// exchange gives a bridge of ours another interface.
func (p *plan) exchange(name string, u netmodel.NodeUplink, bridge *vswitch.Bridge) error {
	p.release(name, u)
	for port, row := range p.port {
		if row.ExternalIDs[keyPhysical] == name && slices.Contains(bridge.Ports, row.UUID) {
			p.say("bridge %s loses the interface %s", u.Bridge, port)
			p.ops = append(p.ops, ovndb.Unlink(vswitch.BridgeTable, "ports", row.UUID))
		}
	}
	nic, err := p.insertPort("nic", u.Interface, "", map[string]string{keyPhysical: name})
	p.ops = append(p.ops, ovndb.Link(vswitch.BridgeTable, bridge.UUID, "ports", nic))
	return err
}

func (p *plan) insertPort(what, name, kind string, marks map[string]string) (id string, err error) {
	suffix := fmt.Sprint(len(p.ops))
	i, err := p.bridges.DB.Insert(&vswitch.Interface{UUID: what + "iface" + suffix, Name: name, Type: kind})
	if err != nil {
		return "", err
	}
	id = what + "port" + suffix
	port, err := p.bridges.DB.Insert(&vswitch.Port{
		UUID: id, Name: name, Interfaces: []string{what + "iface" + suffix}, ExternalIDs: marks,
	})
	p.ops = append(p.ops, i, port)
	return id, err
}

// remove removes a bridge of ours. The interface becomes what it was.
func (p *plan) remove(name, bridge string) {
	p.say("bridge %s of %s goes", bridge, name)
	p.ops = append(p.ops, ovndb.Unlink(vswitch.OpenvSwitchTable, "bridges", p.bridge[bridge].UUID))
	delete(p.bridge, bridge)
	if p.mappings[name] == bridge {
		delete(p.mappings, name)
	}
}

// removeOthers removes what is ours and not wanted any more.
func (p *plan) removeOthers(wanted map[string]netmodel.NodeUplink) {
	for _, bridge := range slices.Sorted(maps.Keys(p.bridge)) {
		name := p.bridge[bridge].ExternalIDs[keyPhysical]
		if name == "" || p.kept[bridge] {
			continue
		}
		p.remove(name, bridge)
		if _, is := wanted[name]; !is {
			p.report[name] = State{"the bridge is being removed", true}
		}
	}
	for name := range p.mappings {
		if _, is := wanted[name]; !is {
			delete(p.mappings, name)
		}
	}
}

// setMappings writes our entries of ovn-bridge-mappings beside those of others.
func (p *plan) setMappings() {
	all := maps.Clone(p.foreign)
	for name, bridge := range p.mappings {
		if _, foreign := all[name]; foreign {
			delete(p.mappings, name)
			continue
		}
		all[name] = bridge
	}
	if maps.Equal(all, p.all) && maps.Equal(p.mappings, p.state.mappings) {
		return
	}
	set := map[string]string{}
	for key, mappings := range map[string]map[string]string{p.mappingsKey: all, keyOurs: p.mappings} {
		if len(mappings) > 0 {
			set[key] = encode(mappings)
		}
	}
	p.say("%s is %q now, of which %q is ours", p.mappingsKey, set[p.mappingsKey], set[keyOurs])
	p.ops = append(p.ops, ovndb.SetPairs(vswitch.OpenvSwitchTable, p.root, "external_ids",
		[]string{p.mappingsKey, keyOurs}, set))
}

func encode(mappings map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(mappings)) {
		pairs = append(pairs, name+":"+mappings[name])
	}
	return strings.Join(pairs, ",")
}

// Mappings reads the text of ovn-bridge-mappings, "NAME:BRIDGE,…".
func Mappings(text string) map[string]string {
	mappings := map[string]string{}
	for _, pair := range strings.Split(text, ",") {
		if name, bridge, ok := strings.Cut(strings.TrimSpace(pair), ":"); ok {
			mappings[name] = bridge
		}
	}
	return mappings
}
