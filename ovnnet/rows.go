package ovnnet

import (
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Keys of external_ids. A row with neither of the first two is not ours.
const (
	keyNetwork = "ovn-multinet/network"
	keyRouter  = "ovn-multinet/router"
	keyGateway = "gateway_ip"
	// Of a network's port on a router: the key of the switch's end. Of that: the keys of its claims.
	keyPort   = "ovn-multinet/port"
	keyClaims = "ovn-multinet/claims"
	// Of a claim: the name of its port.
	keyPortName = "ovn-multinet/port-name"
	// Of a pod's port.
	keySandbox   = "ovn-multinet/sandbox"
	keyNamespace = "ovn-multinet/namespace"
	keyPod       = "ovn-multinet/pod"
	keyInterface = "ovn-multinet/interface"
	keyNode      = "ovn-multinet/node"
)

// rows are those of one network, as they are or as they ought to be; nil: none. Both ends of the router's port are
// there or neither is.
type rows struct {
	sw     *nb.LogicalSwitch
	end    *nb.LogicalSwitchPort // the switch's end: it holds the lease of the first gateway address
	claims []*nb.Copp            // on the further gateway addresses
	port   *nb.LogicalRouterPort
}

// wanted is what a network that takes ports of the NADs ought to have.
func wanted(network *conf.Network, nads []string) *rows {
	r := &rows{sw: switchRow(network, nads)}
	if network.Router == "" {
		return r
	}
	id, gateway := network.ID(), network.Gateways[0]
	mac, claimed := ovndb.LeaseMAC(network.Subnets[0], gateway)
	marks := map[string]string{keyNetwork: id, keyRouter: network.Router}
	r.port = &nb.LogicalRouterPort{
		UUID: ovndb.RouterPortKey(id), Name: network.Router + ":" + id, MAC: mac.String(), ExternalIDs: maps.Clone(marks),
	}
	// The colon is in no name of a namespace, pod or interface: a pod's port cannot be called so.
	r.end = &nb.LogicalSwitchPort{
		UUID: ovndb.AddressKey(id, gateway), Name: id + ":" + network.Router, Type: "router", Addresses: []string{"router"},
		Options: map[string]string{"router-port": r.port.Name}, ExternalIDs: maps.Clone(marks),
	}
	for i, g := range network.Gateways {
		r.port.Networks = append(r.port.Networks, prefixOf(network, i))
		if i > 0 {
			r.claim(ovndb.AddressKey(id, g), "address "+g.String())
		}
	}
	if claimed {
		r.claim(ovndb.MACKey(id, mac), "MAC "+mac.String())
	}
	r.port.ExternalIDs[keyPort] = r.end.UUID
	return r
}

func (r *rows) claim(key, what string) {
	id := r.end.ExternalIDs[keyNetwork]
	r.claims = append(r.claims, &nb.Copp{UUID: key, Name: "ovn-multinet " + id + " " + what,
		ExternalIDs: map[string]string{keyNetwork: id, keyPort: r.end.UUID, keyPortName: r.end.Name}})
	r.end.ExternalIDs[keyClaims] = strings.TrimSpace(r.end.ExternalIDs[keyClaims] + " " + key)
}

func prefixOf(network *conf.Network, i int) string {
	_, bits, _ := strings.Cut(network.Subnets[i].String(), "/")
	return network.Gateways[i].String() + "/" + bits
}

// switchRow is the row of a network. Its subnet and exclude_ips are for OVN's own allocator, which machines
// outside Kubernetes may use on our switches: it must never hand out what we lease.
func switchRow(network *conf.Network, nads []string) *nb.LogicalSwitch {
	row := &nb.LogicalSwitch{
		UUID: ovndb.SwitchKey(network.ID()), Name: network.ID(), OtherConfig: map[string]string{},
		ExternalIDs: map[string]string{keyNetwork: network.ID(), ovndb.ConfigKey: network.Canonical()},
	}
	for _, nad := range nads {
		row.ExternalIDs[ovndb.AcceptedPrefix+nad] = network.Revision()
	}
	var gateways []string
	for i, subnet := range network.Subnets {
		gateways = append(gateways, network.Gateways[i].String())
		if subnet.Addr().Is4() {
			row.OtherConfig["subnet"] = subnet.String()
			row.OtherConfig["exclude_ips"] = ours(network, i)
		}
	}
	if len(gateways) > 0 {
		row.ExternalIDs[keyGateway] = strings.Join(gateways, " ")
	}
	return row
}

// ours lists what is not for others: the gateway and all that we lease, as ranges (OVN ignores a CIDR here).
func ours(network *conf.Network, i int) string {
	words := []string{network.Gateways[i].String()}
	for _, span := range network.Pool(i).Spans() {
		if span.First == span.Last {
			words = append(words, span.First.String())
		} else {
			words = append(words, span.First.String()+".."+span.Last.String())
		}
	}
	return strings.Join(words, " ")
}

// accepts lists the NADs whose ports a switch takes.
func accepts(sw *nb.LogicalSwitch) []string {
	var nads []string
	for key := range sw.ExternalIDs {
		if nad, ok := strings.CutPrefix(key, ovndb.AcceptedPrefix); ok {
			nads = append(nads, nad)
		}
	}
	slices.Sort(nads)
	return nads
}

// inForce is the configuration that a switch was made by; nil when its row does not have it.
func inForce(sw *nb.LogicalSwitch) *conf.Network {
	text := sw.ExternalIDs[ovndb.ConfigKey]
	namespace, name, own := strings.Cut(sw.ExternalIDs[keyNetwork], "/")
	if !own { // shared by name: of which of its NADs does not matter
		namespace, name = "", ""
	}
	network, err := conf.ParseNetwork(namespace, name, []byte(text))
	if text == "" || err != nil {
		return nil
	}
	return network
}

// change lists the operations that make of one network's rows what they ought to be; none when they are that.
func (n *Networks) change(have, want *rows) ([]ovsdb.Operation, error) {
	b := &batch{db: n.db}
	b.setSwitch(have.sw, want.sw)
	b.setPort(have, want)
	b.dropClaims(have, want) // before another row gets one of their keys
	b.setEnd(have, want)
	b.setClaims(have, want)
	return b.ops, b.err
}

func sameSwitch(a, b *nb.LogicalSwitch) bool {
	return a.Name == b.Name && maps.Equal(a.OtherConfig, b.OtherConfig) && maps.Equal(a.ExternalIDs, b.ExternalIDs)
}

func samePort(a, b *nb.LogicalRouterPort) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name && a.MAC == b.MAC && maps.Equal(a.ExternalIDs, b.ExternalIDs) && sameWords(a.Networks, b.Networks)
}

func sameEnd(a, b *nb.LogicalSwitchPort) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UUID == b.UUID && a.Name == b.Name && a.Type == b.Type && maps.Equal(a.Options, b.Options) &&
		maps.Equal(a.ExternalIDs, b.ExternalIDs) && sameWords(a.Addresses, b.Addresses)
}

func sameWords(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// batch collects operations and the first error in making one.
type batch struct {
	db  *ovndb.DB
	ops []ovsdb.Operation
	err error
}

func (b *batch) add(ops ...ovsdb.Operation) { b.ops = append(b.ops, ops...) }

func insert[T any](b *batch, row *T) {
	op, err := b.db.Insert(row)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.add(op)
}

// unchanged asserts that a switch is as it was read: another controller's change since is not overwritten.
func unchanged(have *nb.LogicalSwitch) ovsdb.Operation {
	if config, ok := have.ExternalIDs[ovndb.ConfigKey]; ok {
		return ovndb.Holds(nb.LogicalSwitchTable, have.UUID, "external_ids", ovndb.ConfigKey, config)
	}
	return ovndb.Present(nb.LogicalSwitchTable, have.UUID)
}

func (b *batch) setSwitch(have, want *nb.LogicalSwitch) {
	switch {
	case have == nil:
		insert(b, want)
	case !sameSwitch(have, want):
		b.add(unchanged(have), ovndb.Update(nb.LogicalSwitchTable, want.UUID, ovsdb.Row{
			"name": want.Name, "other_config": ovndb.Map(want.OtherConfig), "external_ids": ovndb.Map(want.ExternalIDs),
		}))
	}
}

// setPort makes the router's end.
func (b *batch) setPort(have, want *rows) {
	const table = nb.LogicalRouterPortTable
	if samePort(have.port, want.port) {
		return
	}
	moved := have.port != nil && (want.port == nil || have.port.ExternalIDs[keyRouter] != want.port.ExternalIDs[keyRouter])
	if moved {
		b.add(ovndb.Unlink(nb.LogicalRouterTable, "ports", have.port.UUID))
	}
	if want.port == nil {
		return // the row goes with the last that has it
	}
	if have.port == nil {
		insert(b, want.port)
	} else {
		b.add(ovndb.Present(table, want.port.UUID), ovndb.Update(table, want.port.UUID, ovsdb.Row{
			"name": want.port.Name, "mac": want.port.MAC, "networks": ovndb.Set(want.port.Networks), "external_ids": ovndb.Map(want.port.ExternalIDs),
		}))
	}
	if have.port == nil || moved {
		b.add(ovndb.Link(nb.LogicalRouterTable, ovndb.RouterKey(want.port.ExternalIDs[keyRouter]), "ports", want.port.UUID))
	}
}

// setEnd makes the switch's end.
func (b *batch) setEnd(have, want *rows) {
	const table = nb.LogicalSwitchPortTable
	if sameEnd(have.end, want.end) {
		return
	}
	if have.end != nil && (want.end == nil || have.end.UUID != want.end.UUID) {
		// Not left to the database to collect: until then its key would not be free for a claim.
		b.add(ovndb.Unlink(nb.LogicalSwitchTable, "ports", have.end.UUID), ovndb.Delete(table, have.end.UUID))
	}
	switch {
	case want.end == nil:
	case have.end == nil || have.end.UUID != want.end.UUID:
		b.add(ovndb.Absent(nb.CoppTable, want.end.UUID))
		insert(b, want.end)
		b.add(ovndb.Link(nb.LogicalSwitchTable, want.sw.UUID, "ports", want.end.UUID))
	default:
		b.add(ovndb.Present(table, want.end.UUID), ovndb.Update(table, want.end.UUID, ovsdb.Row{
			"name": want.end.Name, "type": want.end.Type, "addresses": ovndb.Set(want.end.Addresses),
			"options": ovndb.Map(want.end.Options), "external_ids": ovndb.Map(want.end.ExternalIDs),
		}))
	}
}

func findClaim(list []*nb.Copp, key string) *nb.Copp {
	i := slices.IndexFunc(list, func(c *nb.Copp) bool { return c.UUID == key })
	if i < 0 {
		return nil
	}
	return list[i]
}

func (b *batch) dropClaims(have, want *rows) {
	for _, c := range have.claims {
		if findClaim(want.claims, c.UUID) == nil {
			b.add(ovndb.Delete(nb.CoppTable, c.UUID))
		}
	}
}

func (b *batch) setClaims(have, want *rows) {
	for _, c := range want.claims {
		switch old := findClaim(have.claims, c.UUID); {
		case old == nil:
			b.add(ovndb.Absent(nb.LogicalSwitchPortTable, c.UUID))
			insert(b, c)
		case !maps.Equal(old.ExternalIDs, c.ExternalIDs):
			b.add(ovndb.Update(nb.CoppTable, c.UUID, ovsdb.Row{"external_ids": ovndb.Map(c.ExternalIDs)}))
		}
	}
}
