package netmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

type routeJSON struct {
	Dst   string `json:"dst"`
	GW    string `json:"gw"`
	Scope int    `json:"scope"`
}

func (n *Network) setRoutes(list []json.RawMessage) error {
	routed := make(map[netip.Prefix]bool, len(list))
	for i, text := range list {
		var r routeJSON
		if err := conf.DecodeObject(text, &r, nil); err != nil {
			return fmt.Errorf("routes[%d]: %w", i, err)
		}
		dst, err := conf.ParsePrefix(fmt.Sprintf("routes[%d].dst", i), r.Dst)
		if err != nil {
			return err
		}
		if dst.Bits() == 0 {
			return fmt.Errorf("routes[%d].dst: %s is the default route, which stays with the pod's first interface", i, dst)
		}
		if slices.Contains(n.Subnets, dst) {
			return fmt.Errorf("routes[%d].dst: %s is the network's own subnet, pods reach it without a route", i, dst)
		}
		if j := n.SubnetOf(dst.Addr()); n.Topology == Layer3 && j >= 0 && dst.Bits() > n.Subnets[j].Bits() {
			return fmt.Errorf("routes[%d].dst: %s is of the network's own subnet %s, pods reach it without a route",
				i, dst, n.Subnets[j])
		}
		if err := conf.CheckScope(r.Scope, r.GW); err != nil {
			return fmt.Errorf("routes[%d].%w", i, err)
		}
		gw, err := n.routeGateway(dst, &r)
		if err != nil {
			return fmt.Errorf("routes[%d].gw: %w", i, err)
		}
		if routed[dst] {
			return fmt.Errorf("routes[%d].dst: %s is routed twice", i, dst)
		}
		routed[dst] = true
		n.Routes = append(n.Routes, conf.Route{Dst: dst, GW: gw, Scope: r.Scope})
	}
	return nil
}

// routeGateway checks the next hop of a route. The default is the network's gateway of the same family.
func (n *Network) routeGateway(dst netip.Prefix, r *routeJSON) (netip.Addr, error) {
	gw := r.GW
	if n.Topology == Layer3 && gw != "" {
		return netip.Addr{}, errors.New("leave it out, on a layer3 network it is the gateway of each node subnet")
	}
	if n.Topology == Layer3 || r.Scope == conf.ScopeLink {
		if !slices.ContainsFunc(n.Subnets, func(s netip.Prefix) bool { return s.Addr().Is4() == dst.Addr().Is4() }) {
			return netip.Addr{}, fmt.Errorf("the network has no subnet of the family of %s", dst)
		}
		return netip.Addr{}, nil
	}
	if gw == "" {
		for _, g := range n.Gateways {
			if g.Is4() == dst.Addr().Is4() {
				return g, nil
			}
		}
		return netip.Addr{}, fmt.Errorf("the network has no gateway of the family of %s, name one", dst)
	}
	addr, err := parseAddr(gw)
	if err != nil {
		return netip.Addr{}, err
	}
	if addr.Is4() != dst.Addr().Is4() {
		return netip.Addr{}, fmt.Errorf("%s is not of the family of %s", addr, dst)
	}
	i := n.SubnetOf(addr)
	if i < 0 {
		return netip.Addr{}, fmt.Errorf("%s is in none of the subnets, pods could not reach it", addr)
	}
	if err := checkHost(n.Subnets[i], addr); err != nil {
		return netip.Addr{}, err
	}
	return addr, nil
}
