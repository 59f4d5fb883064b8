package ovnport

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/internal/unixctl"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/vswitch"
)

const (
	// zonePrefix is the prefix of the keys by which ovn-controller notes the conntrack zones of a node, in external_ids
	// of the integration bridge. The rest of the key is the name of a port, or of a router or switch with a suffix.
	zonePrefix         = "ct-zone-"
	dnatZone, snatZone = "_dnat", "_snat"
)

// Zones are the conntrack zones of a node, by their names.
type Zones map[string]int

// Zones reads the conntrack zones of this node.
func (v *OVS) Zones(ctx context.Context) (Zones, error) {
	op := ovsdb.Operation{Op: ovsdb.OperationSelect, Table: vswitch.BridgeTable, Columns: []string{"external_ids"},
		Where: []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, v.bridge)}}
	results, err := v.db.Transact(ctx, []ovsdb.Operation{op})
	if err != nil {
		return nil, err
	}
	bridges, err := ovndb.Rows[vswitch.Bridge](v.db, results[0])
	if err != nil || len(bridges) == 0 {
		return nil, err
	}
	zones := Zones{}
	for key, value := range bridges[0].ExternalIDs {
		name, isZone := strings.CutPrefix(key, zonePrefix)
		if zone, err := strconv.Atoi(value); isZone && err == nil {
			zones[name] = zone
		}
	}
	return zones, nil
}

// OfRouter returns the zones in which this node translates addresses for a logical router. OVN 23.03 names these zones
// by row keys of the Southbound database, which this node does not know: there, OfRouter returns those of all
// routers and switches on the node.
func (z Zones) OfRouter(router string) (list []int) {
	var unnamed []int
	for name, zone := range z {
		of, isNAT := strings.CutSuffix(name, dnatZone)
		if !isNAT {
			of, isNAT = strings.CutSuffix(name, snatZone)
		}
		switch {
		case !isNAT:
		case of == router:
			list = append(list, zone)
		case uuid.Validate(of) == nil:
			unnamed = append(unnamed, zone)
		}
	}
	if len(list) == 0 {
		list = unnamed
	}
	return list
}

// protocols are the numbers of the protocols whose connections are forgotten.
var protocols = map[string]int{
	nb.LoadBalancerProtocolTCP: 6, nb.LoadBalancerProtocolUDP: 17, nb.LoadBalancerProtocolSCTP: 132,
}

// ForgetTranslated has the node's connection tracking forget the connections in one zone that are translated between an
// outside and an inside address, in both directions. calls is how often ovs-vswitchd walked through its connections.
// ovs-vswitchd 3.1 and newer can do this. Of IPv6, it forgets only TCP, UDP and SCTP: ovs-vswitchd 3.1.0 aborts when a
// walk forgets a connection of ICMPv6 (userspace datapath).
func (v *OVS) ForgetTranslated(ctx context.Context, zone int, outside, inside netip.Addr) (calls int, err error) {
	only := []string{""}
	if outside.Is6() {
		only = nil
		for _, number := range slices.Sorted(maps.Values(protocols)) {
			only = append(only, fmt.Sprintf(",ct_nw_proto=%d", number))
		}
	}
	from, to := addressField(inside, "src"), addressField(outside, "dst")
	for _, protocol := range only {
		for _, tuples := range [][]string{
			{to + protocol, from}, // outside hosts began it: they sent to the outside address, and the inside one replies
			{from + protocol, to}, // the inside address began it, and the replies go to the outside address
		} {
			if err := v.forget(ctx, zone, tuples...); err != nil {
				return calls, err
			}
			calls++
		}
	}
	return calls, nil
}

// ForgetServed has the node's connection tracking forget the connections in one zone that a load balancer sends from a
// port of a Service to a backend; the zero AddrPort: to any.
func (v *OVS) ForgetServed(ctx context.Context, zone int, protocol string, vip, backend netip.AddrPort) error {
	number := fmt.Sprintf(",ct_nw_proto=%d", protocols[protocol])
	tuples := []string{fmt.Sprintf("%s%s,ct_tp_dst=%d", addressField(vip.Addr(), "dst"), number, vip.Port())}
	if backend.IsValid() {
		tuples = append(tuples,
			fmt.Sprintf("%s%s,ct_tp_src=%d", addressField(backend.Addr(), "src"), number, backend.Port()))
	}
	return v.forget(ctx, zone, tuples...)
}

// ForgetFormer has the node's connection tracking forget the connections of the older sandboxes that Add has replaced.
// ovn-controller may keep the zone of a port that passes to another OVS port, and replies to the older sandbox would
// pass a policy that lets nobody in. All connections of the zone are those of the port. Call ForgetFormer when the
// flows are installed, and before the new sandbox has a connection.
func (v *OVS) ForgetFormer(ctx context.Context, ports []OVSPort) error {
	if !slices.ContainsFunc(ports, func(p OVSPort) bool { return p.former }) {
		return nil
	}
	zones, err := v.Zones(ctx)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if zone, ok := zones[p.PortName]; ok && p.former {
			if err := v.forget(ctx, zone); err != nil {
				return err
			}
		}
	}
	return nil
}

// addressField is a part of a tuple of ovs-vswitchd: the source or destination is the address.
func addressField(a netip.Addr, end string) string {
	family := "ct_nw_"
	if a.Is6() {
		family = "ct_ipv6_"
	}
	return family + end + "=" + a.String()
}

// forget has ovs-vswitchd forget the connections of one zone whose original tuple, and tuple of the replies if there is
// a second one, have the values of these tuples.
func (v *OVS) forget(ctx context.Context, zone int, tuples ...string) error {
	socket, err := unixctl.Socket(v.dir, "ovs-vswitchd")
	if err != nil {
		return err
	}
	args := append([]string{fmt.Sprintf("zone=%d", zone)}, tuples...)
	_, err = unixctl.Call(ctx, socket, "dpctl/flush-conntrack", args...)
	return err
}
