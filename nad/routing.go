package nad

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Routing is what a pod requests beside the routes of its networks.
type Routing struct {
	// Default is the attachment with the pod's default routes; nil: the primary network has them. Gateways has at most
	// one address of each family; if it is empty, the attachment's plugins make the default routes.
	Default  *Attachment
	Gateways []netip.Addr
	Routes   []PodRoute
}

// AllGateways are the gateways of all requested routes. None of them can be an address of the pod.
func (r *Routing) AllGateways() []netip.Addr {
	all := slices.Clone(r.Gateways)
	for _, route := range r.Routes {
		all = append(all, route.GW)
	}
	return all
}

// PodRoute is a route of the pod through one of its interfaces.
type PodRoute struct {
	conf.Route
	Interface string
}

// maxRoutes bounds the routes of a pod.
const maxRoutes = 256

// podRouteJSON is one entry of the annotation conf.RoutesAnnotation.
type podRouteJSON struct {
	Dst       string `json:"dst"`
	GW        string `json:"gw"`
	Scope     int    `json:"scope"`
	Interface string `json:"interface"`
}

// ParseRouting reads the routing that a pod with these attachments requests. A route of the pod replaces a network's
// route to the same destination.
func ParseRouting(annotations map[string]string, attachments []Attachment, primary string) (*Routing, error) {
	r := &Routing{}
	if err := r.setDefault(attachments); err != nil {
		return nil, conf.Errorf(conf.CodeInvalidConfig, correctPod, "%w", err)
	}
	text, given := annotations[conf.RoutesAnnotation]
	if !given {
		return r, nil
	}
	if err := r.setRoutes(text, attachments, primary); err != nil {
		return nil, conf.Errorf(conf.CodeInvalidConfig, "correct the pod's annotation",
			"annotation %s: %w", conf.RoutesAnnotation, err)
	}
	podRoutes := make(map[netip.Prefix]bool, len(r.Routes))
	for _, p := range r.Routes {
		podRoutes[p.Dst] = true
	}
	for i := range attachments {
		routes := slices.Clone(attachments[i].Routes)
		attachments[i].Routes = slices.DeleteFunc(routes, func(own conf.Route) bool { return podRoutes[own.Dst] })
	}
	return r, nil
}

// setDefault finds the one attachment that requests the default routes (multi-net-spec 1.3, section 4.1.2.1.9).
func (r *Routing) setDefault(attachments []Attachment) error {
	for i := range attachments {
		a := &attachments[i]
		if a.DefaultRoute == nil {
			continue
		}
		if r.Default != nil {
			return fmt.Errorf("interfaces %s and %s both ask for the default-route, one may", r.Default.Interface, a.Interface)
		}
		r.Default, r.Gateways = a, a.DefaultRoute
		if a.Network == nil {
			continue // only the plugins' result shows their gateways
		}
		if len(a.Network.Gateways) == 0 && len(a.DefaultRoute) == 0 {
			return fmt.Errorf("interface %s: default-route: network %s has no gateway, name one", a.Interface, a.Network.ID())
		}
		if len(a.DefaultRoute) == 0 {
			r.Gateways = a.Network.Gateways
		}
		for _, g := range r.Gateways {
			if err := a.reaches(g); err != nil {
				return fmt.Errorf("interface %s: default-route: %w", a.Interface, err)
			}
		}
	}
	return nil
}

// reaches refuses a gateway that is not on the attachment's link.
func (a *Attachment) reaches(g netip.Addr) error {
	on := slices.ContainsFunc(a.Network.Subnets, func(s netip.Prefix) bool { return s.Contains(g) }) ||
		slices.ContainsFunc(a.IPs, func(p netip.Prefix) bool { return p.Bits() >= 0 && p.Masked().Contains(g) })
	if !on {
		return fmt.Errorf("%s is in none of the subnets of network %s, the pod could not reach it", g, a.Network.ID())
	}
	if slices.ContainsFunc(a.IPs, func(p netip.Prefix) bool { return p.Addr() == g }) {
		return fmt.Errorf("%s is the interface's own address", g)
	}
	return nil
}

func (r *Routing) setRoutes(text string, attachments []Attachment, primary string) error {
	if err := conf.CheckAnnotation(text); err != nil {
		return err
	}
	var entries []json.RawMessage
	if err := json.Unmarshal([]byte(text), &entries); err != nil || entries == nil {
		return errors.New(`it is a list of objects, like [{"dst":"10.2.0.0/16","gw":"10.1.0.1","interface":"net1"}]`)
	}
	if len(entries) > maxRoutes {
		return fmt.Errorf("%d routes are more than %d", len(entries), maxRoutes)
	}
	for i, entry := range entries {
		route, err := parseRoute(entry, attachments, primary)
		if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if slices.ContainsFunc(r.Routes, func(p PodRoute) bool { return p.Dst == route.Dst }) {
			return fmt.Errorf("entry %d: %s is routed twice", i, route.Dst)
		}
		r.Routes = append(r.Routes, route)
	}
	return nil
}

func parseRoute(entry []byte, attachments []Attachment, primary string) (PodRoute, error) {
	var raw podRouteJSON
	if err := conf.DecodeObject(entry, &raw, nil); err != nil {
		return PodRoute{}, err
	}
	dst, err := netip.ParsePrefix(raw.Dst)
	if err != nil || dst.Addr().Is4In6() || dst.Masked() != dst {
		return PodRoute{}, fmt.Errorf("dst: %q is not a network like 10.2.0.0/16", clip(raw.Dst))
	}
	if dst.Bits() == 0 {
		return PodRoute{}, fmt.Errorf("dst: %s is the default route, ask for it with default-route in %s",
			dst, conf.NetworksAnnotation)
	}
	if err := conf.CheckScope(raw.Scope, raw.GW); err != nil {
		return PodRoute{}, err
	}
	route := PodRoute{Route: conf.Route{Dst: dst, Scope: raw.Scope}, Interface: raw.Interface}
	if raw.GW != "" {
		if route.GW, err = parseAddr(raw.GW); err != nil {
			return PodRoute{}, fmt.Errorf("gw: %w", err)
		}
		if route.GW.Is4() != dst.Addr().Is4() {
			return PodRoute{}, fmt.Errorf("gw: %s is not of the family of %s", route.GW, dst)
		}
	}
	return route, route.complete(attachments, primary)
}

// complete sets the interface or the gateway if the user has omitted one of them.
func (r *PodRoute) complete(attachments []Attachment, primary string) error {
	if r.Interface == "" {
		if r.Scope == conf.ScopeLink {
			return errors.New("\"interface\" is missing: name the one on whose link the destination is")
		}
		if !r.GW.IsValid() {
			return errors.New("\"interface\" and \"gw\" are missing, name one of them")
		}
		i := slices.IndexFunc(attachments, func(a Attachment) bool { return a.Network != nil && a.reaches(r.GW) == nil })
		if i < 0 {
			return fmt.Errorf("gw: %s is in none of the pod's OVN networks, name the interface", r.GW)
		}
		r.Interface = attachments[i].Interface
		return nil
	}
	i := slices.IndexFunc(attachments, func(a Attachment) bool { return a.Interface == r.Interface })
	switch {
	case i < 0 && r.Interface != primary:
		return fmt.Errorf("interface: the pod has no interface %q", clip(r.Interface))
	case r.Scope == conf.ScopeLink:
		return nil
	case i < 0 || attachments[i].Network == nil:
		if !r.GW.IsValid() {
			return fmt.Errorf("\"gw\" is missing, only OVN networks imply one")
		}
		return nil
	case !r.GW.IsValid():
		for _, g := range attachments[i].Network.Gateways {
			if g.Is4() == r.Dst.Addr().Is4() {
				r.GW = g
				return nil
			}
		}
		return fmt.Errorf("\"gw\" is missing, network %s has no gateway of the family of %s",
			attachments[i].Network.ID(), r.Dst)
	}
	return attachments[i].reaches(r.GW)
}
