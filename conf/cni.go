package conf

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ConflistName is the name of our conflist: runtimes use the first file of the folder by name.
const ConflistName = "05-ovn-multinet.conflist"

// The values of "type" in a spec.config that describe an OVN network.
const (
	NetworkType = "ovn-multinet"
	OverlayType = "ovn-k8s-cni-overlay"
)

// IsOVN reports whether a spec.config of this type describes an OVN network. Every other type is a CNI plugin's name.
func IsOVN(kind string) bool { return kind == NetworkType || kind == OverlayType }

// NearOVN returns the type of an OVN network that a type was probably meant to be; "": none.
func NearOVN(kind string) string {
	const typos = 2
	for _, known := range []string{NetworkType, OverlayType} {
		if d := distance(strings.ToLower(kind), known); !IsOVN(kind) && d <= typos {
			return known
		}
	}
	return ""
}

// ErrNoType says that a CNI configuration has no "type".
var ErrNoType = errors.New(`"type" is missing`)

// Route is a route of a pod. On a layer3 network it has no gateway until the node is known. With ScopeLink it has none:
// its destination is on the link.
type Route struct {
	Dst   netip.Prefix `json:"dst"`
	GW    netip.Addr   `json:"gw,omitzero"`
	Scope int          `json:"scope,omitempty"`
}

// String is the route as messages have it.
func (r Route) String() string {
	switch {
	case r.GW.IsValid():
		return r.Dst.String() + " via " + r.GW.String()
	case r.Scope == ScopeLink:
		return r.Dst.String() + " on the link"
	}
	return r.Dst.String()
}

// ScopeLink is the scope of a route to what is on the link, as in the routes of CNI (specification 1.1, section 5).
const ScopeLink = 253

// CheckScope checks the keys scope and gw of a route. No scope, and 0, is that of a route with a gateway.
func CheckScope(scope int, gw string) error {
	switch {
	case scope != 0 && scope != ScopeLink:
		return fmt.Errorf("scope: %d is not served, only %d (on the link)", scope, ScopeLink)
	case scope == ScopeLink && gw != "":
		return fmt.Errorf("gw: leave it out, with \"scope\": %d the destination is on the link", ScopeLink)
	}
	return nil
}

// TooLarge returns the error for a text that has more bytes than its limit.
func TooLarge(size, limit int) error { return fmt.Errorf("%d bytes are more than %d", size, limit) }

// ParsePrefix parses a subnet of the operator or of a user: its host bits must be zero. key is named in the error.
func ParsePrefix(key, s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s: %.64q is not a network like 10.1.0.0/16", key, s)
	}
	if p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%s: %s is IPv4 in IPv6 notation, write it as IPv4", key, s)
	}
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("%s: %s has host bits set, did you mean %s?", key, s, p.Masked())
	}
	return p, nil
}
