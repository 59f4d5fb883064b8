package agent

import (
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// setTables gives each interface a routing table of its own that reaches the same networks as another one of the pod.
// Otherwise answers from its addresses could leave by the other one. A route of the pod replaces a network's route to
// the same destination there, too.
func setTables(plan *agentapi.Plan, attachments []nad.Attachment, own []nad.PodRoute) {
	of := func(i agentapi.Interface) *netmodel.Network { return attachments[i.Position].Network }
	for k := range plan.Interfaces {
		i := &plan.Interfaces[k]
		network := of(*i)
		way := network.ReachedBy()
		twice := slices.ContainsFunc(plan.Interfaces, func(other agentapi.Interface) bool {
			return other.Position != i.Position &&
				(of(other).ID() == network.ID() || way != "" && of(other).ReachedBy() == way)
		})
		if !twice {
			continue
		}
		i.Table = agentapi.FirstTable + i.Position
		setTableRoutes(i, network, own)
	}
}

// setTableRoutes sets the routes of an interface's own table.
func setTableRoutes(i *agentapi.Interface, network *netmodel.Network, own []nad.PodRoute) {
	i.TableRoutes = slices.DeleteFunc(slices.Clone(network.Routes), func(r conf.Route) bool {
		return slices.ContainsFunc(own, func(o nad.PodRoute) bool { return o.Dst == r.Dst })
	})
	for _, o := range own {
		if o.Interface == i.Name {
			i.TableRoutes = append(i.TableRoutes, o.Route)
		}
	}
	if network.RouterName() == "" {
		return
	}
	for _, gateway := range network.Gateways {
		i.TableRoutes = append(i.TableRoutes, conf.Route{Dst: netip.PrefixFrom(anyOf(gateway), 0), GW: gateway})
	}
}

// shareRoutes gives the routes of a layer3 network to all interfaces of the pod on it, so that one carries what another
// one cannot.
func shareRoutes(plan *agentapi.Plan, attachments []nad.Attachment) {
	first := map[string]*agentapi.Interface{}
	for k := range plan.Interfaces {
		i := &plan.Interfaces[k]
		network := attachments[i.Position].Network
		if network.Topology != netmodel.Layer3 {
			continue
		}
		if first[network.ID()] == nil {
			first[network.ID()] = i
			continue
		}
		for _, r := range first[network.ID()].Routes {
			if r.GW.IsValid() {
				i.SharedRoutes = append(i.SharedRoutes, r)
			}
		}
	}
}

// anyOf is the unspecified address of the family of an address.
func anyOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
