package ovnnet

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// The hosts of a subnet behind pods are reached by routes in the network's router, one for each next hop that is ready.
// Port security lets the ports of the next hops send and receive for the subnet: an agent writes that with the row of a
// new port, and the controller changes the rows of ports that run when the network changes.

// subnetsBehind is what NB has of the subnets behind pods of a network.
type subnetsBehind struct {
	// ports are the pods' ports that have, or had, the address of a next hop, by row key.
	ports map[string]*nb.LogicalSwitchPort
	ready map[netip.Addr]bool // the next hops that get traffic
	// guards assert that no other port has the address of a next hop.
	guards []ovsdb.Operation
}

// nextHop is what NB has at the address of a next hop: the port of a pod, or the group of a virtual address.
type nextHop struct {
	key   string // of the address
	found *nbrows.Found
	group *nb.PortGroup
}

// rowName is the part of row keys that stands for one subnet of a network. An own subnet may change and keeps its rows.
func rowName(network *netmodel.Network, subnet netip.Prefix) string {
	f := nbrows.Family(subnet.Addr())
	if slices.Contains(network.Subnets, subnet) {
		return f
	}
	return f + " " + subnet.String()
}

// viaKey returns the row key of the route to a subnet by one next hop.
func viaKey(network *netmodel.Network, subnet netip.Prefix, via netip.Addr) string {
	return nbrows.RouteKey(network.ID(), "via "+via.String(), rowName(network, subnet))
}

// readSubnetsBehind reads the rows of the subnets behind pods: of the accepted configuration and of the wanted one.
func (n *Networks) readSubnetsBehind(ctx context.Context, have *present, network *netmodel.Network) error {
	have.subnetsBehind = subnetsBehind{ports: map[string]*nb.LogicalSwitchPort{}, ready: map[netip.Addr]bool{}}
	hops, reads := map[netip.Addr]*nextHop{}, n.Reads(have.same())
	for _, of := range []*netmodel.Network{network, have.config} {
		if of == nil {
			continue
		}
		for _, b := range of.SubnetsBehind {
			name := rowName(of, b.Subnet)
			keys := []string{nbrows.RouteKey(have.id, nbrows.Discard, name), nbrows.RouteKey(have.id, nbrows.Back, name)}
			for _, via := range b.Via {
				keys = append(keys, viaKey(of, b.Subnet, via))
				if network != nil && hops[via] == nil {
					hops[via] = readNextHop(reads, of, via)
				}
			}
			for _, key := range keys {
				nbrows.ReadInto(reads, nb.LogicalRouterStaticRouteTable, key, key, have.routes)
			}
			key := nbrows.NatKey(have.id, name)
			nbrows.ReadInto(reads, nb.NATTable, key, key, have.nats)
			if err := reads.Do(ctx); err != nil {
				return err
			}
			reads = n.Reads(have.same()) // a transaction for each subnet: the server does nothing else during one
		}
	}
	if err := n.readNextHopPorts(ctx, have, hops); err != nil || network == nil {
		return err
	}
	return n.judgeNextHops(ctx, have, network, hops)
}

// readNextHop adds the rows at the address of a next hop.
func readNextHop(r *nbrows.Reads, network *netmodel.Network, via netip.Addr) *nextHop {
	hop := &nextHop{key: ovndb.AddressKey(network.AddressBook(), via)}
	if network.IsVirtual(via) {
		key, _ := ovndb.VirtualGroup(hop.key)
		nbrows.ReadOne(r, nb.PortGroupTable, key, &hop.group, "_uuid", "ports")
		return hop
	}
	hop.found = nbrows.ReadAt(r, hop.key)
	return hop
}

// ports are the keys of the ports that may have the address of the next hop.
func (h *nextHop) ports() []string {
	switch {
	case h.group != nil:
		return h.group.Ports
	case h.found == nil:
		return nil
	case h.found.Port != nil:
		return []string{h.found.Port.UUID}
	case h.found.Claim != nil:
		return []string{h.found.Claim.ExternalIDs[nbrows.KeyPort]}
	}
	return nil
}

// readNextHopPorts reads the ports of the next hops. Ports of other networks of a VLAN are not among them.
func (n *Networks) readNextHopPorts(ctx context.Context, have *present, hops map[netip.Addr]*nextHop) error {
	keys := map[string]bool{}
	for _, hop := range hops {
		for _, key := range hop.ports() {
			keys[key] = key != ""
		}
		switch {
		case hop.group != nil:
			op := ovndb.Present(nb.PortGroupTable, hop.group.UUID)
			op.Columns, op.Rows = []string{"ports"}, []ovsdb.Row{{"ports": ovndb.UUIDs(hop.group.Ports)}}
			have.subnetsBehind.guards = append(have.subnetsBehind.guards, op)
		case hop.found != nil && hop.found.Port == nil && hop.found.Claim == nil:
			have.subnetsBehind.guards = append(have.subnetsBehind.guards,
				ovndb.Absent(nb.LogicalSwitchPortTable, hop.key), ovndb.Absent(nb.CoppTable, hop.key))
		}
	}
	rows, err := ovndb.ReadByKey[nb.LogicalSwitchPort](ctx, n.Db, nb.LogicalSwitchPortTable, nbrows.SortedKeys(keys),
		"_uuid", "port_security", "external_ids")
	for _, row := range rows {
		if row.ExternalIDs[nbrows.KeyNetwork] == have.id && row.ExternalIDs[nbrows.KeyPod] != "" {
			have.subnetsBehind.ports[row.UUID] = row
		}
	}
	return err
}

// judgeNextHops finds out which next hops get traffic: those whose pods are ready. Who has a virtual address is not
// known here, so it gets traffic as long as a pod may have it.
func (n *Networks) judgeNextHops(
	ctx context.Context, have *present, network *netmodel.Network, hops map[netip.Addr]*nextHop,
) error {
	ready := map[string]func(pod string) bool{} // by namespace: it may have many pods
	for _, b := range network.SubnetsBehind {
		if ready[b.Namespace] == nil {
			var err error
			if ready[b.Namespace], err = n.Ready(ctx, b.Namespace); err != nil {
				return err
			}
		}
		for _, via := range b.Via {
			for _, key := range hops[via].ports() {
				port := have.subnetsBehind.ports[key]
				if port == nil || port.ExternalIDs[nbrows.KeyNamespace] != b.Namespace {
					continue
				}
				if ready[b.Namespace](port.ExternalIDs[nbrows.KeyPod]) {
					have.subnetsBehind.ready[via] = true
				}
			}
		}
	}
	return nil
}

// nextHops are those of the next hops of a subnet that get traffic now.
func (have *subnetsBehind) nextHops(b *netmodel.SubnetBehind) (list []netip.Addr) {
	for _, via := range b.Via {
		if have.ready[via] && (len(list) == 0 || !b.Standby) {
			list = append(list, via)
		}
	}
	return list
}

// wantedRoutes adds the routes in a network's router to the subnets behind its pods. Without a next hop packets are
// dropped: they would take the default route otherwise.
func (have *subnetsBehind) wantedRoutes(network *netmodel.Network, routes map[string]*nb.LogicalRouterStaticRoute) {
	if network.RouterName() == "" {
		return
	}
	for i := range network.SubnetsBehind {
		b := &network.SubnetsBehind[i]
		add := func(key, nextHop string) {
			routes[key] = &nb.LogicalRouterStaticRoute{
				UUID: key, IPPrefix: b.Subnet.String(), Nexthop: nextHop, ExternalIDs: map[string]string{
					nbrows.KeyNetwork: network.ID(), nbrows.KeyRouter: network.RouterName(), nbrows.KeySubnetBehind: b.Namespace,
				},
			}
		}
		hops := have.nextHops(b)
		for _, via := range hops {
			add(viaKey(network, b.Subnet, via), via.String())
		}
		if len(hops) == 0 {
			add(nbrows.RouteKey(network.ID(), nbrows.Discard, rowName(network, b.Subnet)), nbrows.Discard)
		}
	}
}

// secure adds the operations that let the ports of next hops send and receive for the subnets behind them, and for no
// others.
func (have *subnetsBehind) secure(b *nbrows.Batch, network *netmodel.Network) {
	for _, key := range nbrows.SortedKeys(have.ports) {
		row := have.ports[key]
		secured := slices.Clone(row.PortSecurity)
		for i, value := range secured {
			secured[i] = network.Secured(row.ExternalIDs[nbrows.KeyNamespace], value)
		}
		if slices.Equal(secured, row.PortSecurity) {
			continue
		}
		op := ovndb.Present(nb.LogicalSwitchPortTable, key)
		op.Columns, op.Rows = []string{"port_security"}, []ovsdb.Row{{"port_security": ovndb.Set(row.PortSecurity)}}
		b.Add(op, ovndb.Update(nb.LogicalSwitchPortTable, key, ovsdb.Row{"port_security": ovndb.Set(secured)}))
	}
}
