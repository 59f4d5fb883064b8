package netmodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// DHCP says that OVN answers DHCP of the machines on a network, and with what.
type DHCP struct {
	DNS    []netip.Addr  // servers of both families
	Domain string        // "": none
	Lease  time.Duration // of IPv4; whole seconds
	// NoDefaultRoute keeps the default route from the answers.
	NoDefaultRoute bool
}

// Bounds on the key dhcp.
const (
	maxDNS       = 4 // servers: more are not asked by any resolver
	defaultLease = time.Hour
	minLease     = time.Minute
	maxLease     = 365 * 24 * time.Hour
	// maxStaticRoutes is the length of a DHCP option, in bytes (RFC 2132, section 2).
	maxStaticRoutes = 255
)

// domainName matches the name of a domain (RFC 1123, section 2.1) in lower case.
var domainName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// dhcpJSON is the key dhcp in its long form.
type dhcpJSON struct {
	DNS          []string `json:"dns,omitempty"`
	Domain       string   `json:"domain,omitempty"`
	LeaseTime    string   `json:"leaseTime,omitempty"`
	DefaultRoute *bool    `json:"defaultRoute,omitempty"`
}

func (n *Network) setDHCP(text json.RawMessage) error {
	switch text = bytes.TrimSpace(text); string(text) {
	case "", "null", "false":
		return nil
	case "true":
		text = json.RawMessage("{}")
	}
	if text[0] != '{' {
		return errors.New(`dhcp: it is true, or an object like {"dns": ["10.1.0.53"]}`)
	}
	var long dhcpJSON
	if err := conf.DecodeObject(text, &long, nil); err != nil {
		return fmt.Errorf("dhcp: %w", err)
	}
	d := &DHCP{Domain: long.Domain, Lease: defaultLease}
	d.NoDefaultRoute = long.DefaultRoute != nil && !*long.DefaultRoute
	for _, word := range long.DNS {
		a, err := parseAddr(word)
		switch {
		case err != nil:
			return fmt.Errorf("dhcp.dns: %w", err)
		case slices.Contains(d.DNS, a):
			return fmt.Errorf("dhcp.dns: %s is there twice", a)
		}
		d.DNS = append(d.DNS, a)
	}
	if len(d.DNS) > maxDNS {
		return fmt.Errorf("dhcp.dns: %d are more than %d", len(d.DNS), maxDNS)
	}
	if d.Domain != "" && (len(d.Domain) > 253 || !domainName.MatchString(d.Domain)) {
		return fmt.Errorf("dhcp.domain: %.64q is no domain name", d.Domain)
	}
	if long.LeaseTime != "" {
		lease, err := time.ParseDuration(long.LeaseTime)
		if err != nil || lease < minLease || lease > maxLease || lease%time.Second != 0 {
			return fmt.Errorf("dhcp.leaseTime: %.64q is no duration of whole seconds between %s and %s, "+
				"like \"12h\"", long.LeaseTime, minLease, maxLease)
		}
		d.Lease = lease
	}
	n.DHCP = d
	return nil
}

// checkDHCP refuses DHCP where OVN has nothing to answer, or no server to answer as.
func (n *Network) checkDHCP() error {
	switch {
	case n.DHCP == nil:
		return nil
	case n.Topology == Layer3:
		return errors.New("dhcp: it is for topology \"layer2\" and \"localnet\": on \"layer3\" an address belongs to " +
			"one node")
	case len(n.Subnets) == 0:
		return errors.New("dhcp: the network has no subnets, so there is no address to answer with: add \"subnets\"")
	case len(n.Gateways) == 0:
		return fmt.Errorf("dhcp: %s has no address left for the server: use a larger subnet", joinWords(n.Subnets, ","))
	}
	size := 0
	for _, r := range n.StaticRoutes() {
		size += 5 + (r.Dst.Bits()+7)/8 // RFC 3442
	}
	if size > maxStaticRoutes {
		return fmt.Errorf("dhcp: the IPv4 routes of the network need %d bytes in an answer, which has room for %d: "+
			"write fewer routes", size, maxStaticRoutes)
	}
	return nil
}

// OffersRouter reports whether DHCP and router advertisements offer the gateways as default routes: without a router,
// these would lead nowhere.
func (n *Network) OffersRouter() bool {
	return n.DHCP != nil && !n.DHCP.NoDefaultRoute && (n.Router != "" || n.Topology == Localnet)
}

// StaticRoutes are the IPv4 routes of pods on the network, as DHCP offers them. A client that gets any takes no other
// offer of a default route (RFC 3442), so they have it too. The gateway 0.0.0.0 is the link.
func (n *Network) StaticRoutes() (routes []conf.Route) {
	for _, r := range n.sortedRoutes() {
		switch {
		case !r.Dst.Addr().Is4():
		case r.Scope == conf.ScopeLink:
			routes = append(routes, conf.Route{Dst: r.Dst, GW: netip.IPv4Unspecified()})
		case r.GW.Is4():
			routes = append(routes, conf.Route{Dst: r.Dst, GW: r.GW})
		}
	}
	if gateway := n.Gateway(0); len(routes) > 0 && gateway.Is4() && n.OffersRouter() {
		routes = append(routes, conf.Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), GW: gateway})
	}
	return routes
}

// dhcpText is the canonical form of dhcp.
func (n *Network) dhcpText() any {
	if n.DHCP == nil {
		return nil
	}
	text := &dhcpJSON{Domain: n.DHCP.Domain, LeaseTime: n.DHCP.Lease.String()}
	for _, a := range n.DHCP.DNS {
		text.DNS = append(text.DNS, a.String())
	}
	if n.DHCP.NoDefaultRoute {
		text.DefaultRoute = new(bool)
	}
	return text
}
