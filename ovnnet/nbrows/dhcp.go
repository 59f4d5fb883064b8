package nbrows

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// A network with DHCP has a row of DHCP_Options for each family, which each port with an address of the family refers
// to. ovn-controller answers on the port's node. The options are in ovn-nb(5), table DHCP_Options.

// mtuOption is the option with the MTU, of IPv4 (RFC 2132, section 5.1) and of router advertisements (RFC 4861).
const mtuOption = "mtu"

// ReadDHCP adds what DHCP answers on a network, for rows by row key.
func ReadDHCP(r *Reads, id string, rows map[string]*nb.DHCPOptions) {
	for _, subnet := range []netip.Prefix{{}, netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		key := ovndb.DHCPKey(id, subnet)
		ReadInto(r, nb.DHCPOptionsTable, key, key, rows)
	}
}

// WantedDHCP returns what DHCP should answer on a network, by row key. mtu is that of its pods; 0: unknown, then the
// present rows decide.
func WantedDHCP(network *netmodel.Network, mtu int, have map[string]*nb.DHCPOptions) map[string]*nb.DHCPOptions {
	rows := map[string]*nb.DHCPOptions{}
	if network.DHCP == nil {
		return rows
	}
	for i, subnet := range network.Subnets {
		key := ovndb.DHCPKey(network.ID(), subnet)
		row := &nb.DHCPOptions{
			UUID: key, Cidr: subnet.String(), ExternalIDs: map[string]string{KeyNetwork: network.ID()},
			Options: dhcpOptions(network, i),
		}
		if mtu > 0 && subnet.Addr().Is4() {
			row.Options[mtuOption] = strconv.Itoa(mtu)
		} else if is := have[key]; is != nil && is.Options[mtuOption] != "" {
			row.Options[mtuOption] = is.Options[mtuOption]
		}
		rows[key] = row
	}
	return rows
}

// dhcpOptions returns what DHCP answers for an address of the i-th subnet, without the MTU. The server answers from the
// address and the MAC of the gateway, which no pod has.
func dhcpOptions(network *netmodel.Network, i int) map[string]string {
	d, subnet := network.DHCP, network.Subnets[i]
	mac, _ := ovndb.LeaseMAC(subnet, network.Gateway(i))
	var servers []string
	for _, a := range d.DNS {
		if a.Is4() == subnet.Addr().Is4() {
			servers = append(servers, a.String())
		}
	}
	options := map[string]string{}
	if len(servers) > 0 {
		options["dns_server"] = inBraces(servers)
	}
	if subnet.Addr().Is6() {
		options["server_id"] = mac.String()
		return options // OVN writes domain_search as a text, and clients ignore what is not in labels (RFC 3646, section 4)
	}
	options["server_id"], options["server_mac"] = network.Gateway(i).String(), mac.String()
	options["lease_time"] = strconv.Itoa(int(d.Lease.Seconds()))
	if d.Domain != "" {
		options["domain_name"] = strconv.Quote(d.Domain)
	}
	if network.OffersRouter() {
		options["router"] = network.Gateway(i).String()
	}
	var routes []string
	for _, r := range network.StaticRoutes() {
		routes = append(routes, fmt.Sprintf("%s,%s", r.Dst, r.GW))
	}
	if len(routes) > 0 {
		options["classless_static_route"] = inBraces(routes)
	}
	return options
}

func inBraces(list []string) string { return "{" + strings.Join(list, ", ") + "}" }

// SetAdvertisements has a router's port to a network with DHCP advertise itself to the network's machines: a guest
// hears only so that there is a DHCPv6 server, and of the default route. Pods take no notice of them. have is the
// present port; nil: there is none.
func SetAdvertisements(port, have *nb.LogicalRouterPort, network *netmodel.Network, mtu int) {
	has6 := len(network.Subnets) > 0 && network.Subnets[len(network.Subnets)-1].Addr().Is6()
	if port == nil || !has6 || !network.OffersRouter() {
		return
	}
	port.Ipv6RaConfigs = map[string]string{"address_mode": "dhcpv6_stateful", "send_periodic": "true"}
	if mtu > 0 {
		port.Ipv6RaConfigs[mtuOption] = strconv.Itoa(mtu)
	} else if have != nil && have.Ipv6RaConfigs[mtuOption] != "" {
		port.Ipv6RaConfigs[mtuOption] = have.Ipv6RaConfigs[mtuOption]
	}
}

// SetDHCP makes the rows of a network the wanted ones. Ports of pods that exist refer to a new row at once, as the
// ports of later pods do.
func (b *Batch) SetDHCP(id string, have, wanted map[string]*nb.DHCPOptions) {
	for _, key := range SortedKeys(have) {
		if wanted[key] == nil {
			b.Add(ovndb.Delete(nb.DHCPOptionsTable, key))
		}
	}
	for _, key := range SortedKeys(wanted) {
		Put(b, nb.DHCPOptionsTable, key, have[key], wanted[key])
		if have[key] != nil {
			continue
		}
		column := "dhcpv4_options"
		if subnet := netip.MustParsePrefix(wanted[key].Cidr); subnet.Addr().Is6() {
			column = "dhcpv6_options"
		}
		op := ovndb.Update(nb.LogicalSwitchPortTable, "", ovsdb.Row{column: ovndb.UUIDs([]string{key})})
		op.Where = append(withIDs(map[string]string{KeyNetwork: id}), ovsdb.NewCondition("type", ovsdb.ConditionEqual, ""))
		b.Add(op)
	}
}

// DeleteDHCP deletes what DHCP answers on a network.
func (b *Batch) DeleteDHCP(id string) {
	op := ovndb.Delete(nb.DHCPOptionsTable, "")
	op.Where = withIDs(map[string]string{KeyNetwork: id})
	b.Add(op)
}
