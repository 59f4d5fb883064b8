package netmodel

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// AddressPool is a pool of outside addresses: addresses of the physical network of a router's gateway, which the pods
// of some namespaces may have.
type AddressPool struct {
	Name     string
	Families []Pool         // at most one of each family, IPv4 first
	Limits   map[string]int // by namespace; "*": of each namespace that is not listed
	// EgressOf are the namespaces whose pods have an egress address of the pool without a request.
	EgressOf []string
}

// Bounds of what the operator writes. Each address of a namespace is in one row of NB, which is written as a whole.
const (
	maxAddressPools    = 16 // of a router
	maxAddressRanges   = 64 // of a pool
	maxOutsideOfOne    = 1024
	maxPoolNamespaces  = 1024
	addressPoolExample = `{addresses: 192.0.2.16/28, namespaces: {shop: 5}}`
)

type addressPoolJSON struct {
	Addresses  string                     `json:"addresses"`
	Namespaces map[string]json.RawMessage `json:"namespaces"` // of numbers
	EgressOf   []string                   `json:"egressOf"`
}

// Limit is how many addresses of each family a namespace may have of the pool.
func (p *AddressPool) Limit(namespace string) int {
	if n, ok := p.Limits[namespace]; ok {
		return n
	}
	return p.Limits[anyNamespace]
}

// Family returns the pool's addresses of the family of an address; the zero Pool has none.
func (p *AddressPool) Family(of netip.Addr) Pool {
	for _, f := range p.Families {
		if sameFamily(f.Subnet.Addr(), of) {
			return f
		}
	}
	return Pool{}
}

// AddressPool returns the router's pool with that name; nil: there is none.
func (r *Router) AddressPool(name string) *AddressPool {
	for i := range r.Pools {
		if r.Pools[i].Name == name {
			return &r.Pools[i]
		}
	}
	return nil
}

// AddressPoolOf returns the router's pool that contains the address; nil: there is none.
func (r *Router) AddressPoolOf(a netip.Addr) *AddressPool {
	for i := range r.Pools {
		if r.Pools[i].Family(a).Contains(a) {
			return &r.Pools[i]
		}
	}
	return nil
}

// Granted returns the router's pools of which a namespace may have addresses, by name.
func (r *Router) Granted(namespace string) (pools []*AddressPool) {
	for i := range r.Pools {
		if r.Pools[i].Limit(namespace) > 0 {
			pools = append(pools, &r.Pools[i])
		}
	}
	return pools
}

// ForwardsName is the name of Router.Forwards in lists of pools. No pool can have it.
const ForwardsName = "(gateway)"

// FirstPortOfPods is the first of the ports of the gateway's address that source NAT gives to the connections of pods,
// if namespaces may have ports of this address. Replies to the ports below it belong to nobody else.
const FirstPortOfPods = 32768

// setForwards parses how many ports of the gateway's own address each namespace may have.
func (r *Router) setForwards(raw *routerJSON) (err error) {
	if len(raw.PortForwards) == 0 {
		return nil
	}
	r.Forwards.Name = ForwardsName
	r.Forwards.Limits, err = parseLimits("portForwards", "ports", raw.PortForwards)
	return err
}

// setAddressPools parses the pools, by name.
func (r *Router) setAddressPools(raw *routerJSON) error {
	if len(raw.AddressPools) > maxAddressPools {
		return fmt.Errorf("addressPools: %d pools, at most %d are allowed", len(raw.AddressPools), maxAddressPools)
	}
	for _, name := range sortedKeys(raw.AddressPools) {
		if !label.MatchString(name) {
			return fmt.Errorf("addressPools: %.64q is no name, with %s", name, labelForm)
		}
		p, err := r.parseAddressPool(name, raw.AddressPools[name])
		if err != nil {
			return fmt.Errorf("addressPools: %s: %w", name, err)
		}
		for i := range r.Pools {
			if span, with, ok := r.Pools[i].overlap(p); ok {
				return fmt.Errorf("addressPools: %s: addresses: %s overlaps %s of pool %s", name, with, span, r.Pools[i].Name)
			}
		}
		r.Pools = append(r.Pools, *p)
	}
	return r.checkOwnPools(r, "")
}

func (r *Router) parseAddressPool(name string, text []byte) (*AddressPool, error) {
	var raw addressPoolJSON
	if err := conf.DecodeObject(text, &raw, nil); err != nil {
		return nil, err
	}
	p := &AddressPool{Name: name}
	words := splitList(raw.Addresses)
	switch {
	case len(words) == 0:
		return nil, errors.New("addresses is missing, in a pool like " + addressPoolExample)
	case len(words) > maxAddressRanges:
		return nil, fmt.Errorf("addresses: %d ranges, at most %d are allowed", len(words), maxAddressRanges)
	}
	var spans []Span
	for _, word := range words {
		span, err := r.parseSpan(word)
		if err != nil {
			return nil, fmt.Errorf("addresses: %w", err)
		}
		for _, other := range spans {
			if other.overlaps(span) {
				return nil, fmt.Errorf("addresses: %s overlaps %s", span, other)
			}
		}
		spans = append(spans, span)
	}
	slices.SortFunc(spans, func(a, b Span) int { return a.First.Compare(b.First) })
	for _, e := range r.External {
		pool := Pool{Subnet: e.Masked()}
		for _, span := range spans {
			if pool.Subnet.Contains(span.First) {
				pool.add(span)
			}
		}
		if pool.Size() > 0 {
			p.Families = append(p.Families, pool)
		}
	}
	var err error
	if len(raw.Namespaces) == 0 {
		return nil, errors.New("namespaces is missing, in a pool like " + addressPoolExample)
	}
	if p.Limits, err = parseLimits("namespaces", "addresses", raw.Namespaces); err != nil {
		return nil, err
	}
	return p, r.setEgressOf(p, raw.EgressOf)
}

// setEgressOf parses the namespaces whose pods have an egress address of a pool without a request.
func (r *Router) setEgressOf(p *AddressPool, namespaces []string) error {
	for _, namespace := range namespaces {
		switch other := r.EgressPool(namespace); {
		case !label.MatchString(namespace):
			return fmt.Errorf("egressOf: %.64q is no namespace", namespace)
		case slices.Contains(p.EgressOf, namespace):
			return fmt.Errorf("egressOf: %s is there twice", namespace)
		case other != nil:
			return fmt.Errorf("egressOf: %s is also in pool %s; a namespace has one", namespace, other.Name)
		case p.Limit(namespace) == 0:
			return fmt.Errorf("egressOf: %s may have no address of the pool; write it into namespaces", namespace)
		}
		p.EgressOf = append(p.EgressOf, namespace)
	}
	return nil
}

// EgressPool returns the pool that gives the pods of a namespace an egress address without a request; nil: there is
// none.
func (r *Router) EgressPool(namespace string) *AddressPool {
	for i := range r.Pools {
		if slices.Contains(r.Pools[i].EgressOf, namespace) {
			return &r.Pools[i]
		}
	}
	return nil
}

// parseSpan parses "192.0.2.16/28", "192.0.2.40-192.0.2.47" or "192.0.2.50", within externalSubnet.
func (r *Router) parseSpan(word string) (span Span, err error) {
	from, to, isRange := strings.Cut(word, "-")
	switch {
	case strings.Contains(word, "/"):
		subnet, err := netip.ParsePrefix(word)
		if err != nil {
			return span, fmt.Errorf("%.64q is not a network like 192.0.2.16/28", word)
		}
		if subnet.Masked() != subnet {
			return span, fmt.Errorf("%s has host bits set, did you mean %s?", word, subnet.Masked())
		}
		span = Span{subnet.Addr(), LastAddr(subnet)}
	case !isRange:
		to = from
		fallthrough
	default:
		var errs [2]error
		span.First, errs[0] = parseAddr(strings.TrimSpace(from))
		span.Last, errs[1] = parseAddr(strings.TrimSpace(to))
		if err := cmp.Or(errs[0], errs[1]); err != nil {
			return span, err
		}
		if !sameFamily(span.First, span.Last) || span.First.Compare(span.Last) > 0 {
			return span, fmt.Errorf("%.128q is no range from a lower to a higher address", word)
		}
	}
	return span, r.checkSpan(span)
}

// checkSpan refuses a range that is not within externalSubnet, or has an address that no host may have.
func (r *Router) checkSpan(span Span) error {
	i := slices.IndexFunc(r.External, func(e netip.Prefix) bool {
		return e.Masked().Contains(span.First) && e.Masked().Contains(span.Last)
	})
	if i < 0 {
		subnets := make([]netip.Prefix, len(r.External))
		for i, e := range r.External {
			subnets[i] = e.Masked()
		}
		return fmt.Errorf("%s is not in externalSubnet %s", span, joinWords(subnets, ","))
	}
	subnet := r.External[i].Masked()
	for _, a := range []netip.Addr{span.First, span.Last} {
		if err := checkHost(subnet, a); err != nil {
			return err
		}
	}
	// An order of search numbers the addresses of a pool.
	if a, b := span.First.As16(), span.Last.As16(); slices.Compare(a[:12], b[:12]) != 0 && span.First.Is6() {
		return fmt.Errorf("%s is wider than a /96", span)
	}
	return nil
}

// parseLimits parses how many of something each namespace may have.
func parseLimits(field, of string, list map[string]json.RawMessage) (map[string]int, error) {
	if len(list) > maxPoolNamespaces {
		return nil, fmt.Errorf(`%s: %d namespaces, at most %d are allowed; "*" stands for all others`,
			field, len(list), maxPoolNamespaces)
	}
	limits := map[string]int{}
	for _, namespace := range sortedKeys(list) {
		if namespace != anyNamespace && !label.MatchString(namespace) {
			return nil, fmt.Errorf("%s: %.64q is no namespace, and not %q for all others", field, namespace, anyNamespace)
		}
		var n *int
		if err := json.Unmarshal(list[namespace], &n); err != nil || n == nil || *n < 0 || *n > maxOutsideOfOne {
			return nil, fmt.Errorf("%s: %s: %.64s is no number of %s between 0 and %d",
				field, namespace, list[namespace], of, maxOutsideOfOne)
		}
		limits[namespace] = *n
	}
	return limits, nil
}

// checkOwnPools refuses a pool of the router that has an address of a gateway on the same VLAN. of names the other
// gateway's router; "": the gateway is the router's own.
func (r *Router) checkOwnPools(gateway *Router, of string) error {
	for i, e := range gateway.External {
		if p := r.AddressPoolOf(e.Addr()); p != nil {
			return fmt.Errorf("addressPools: %s: addresses: %s is the externalAddress%s", p.Name, e.Addr(), of)
		}
		if p := r.AddressPoolOf(gateway.NextHops[i]); p != nil {
			return fmt.Errorf("addressPools: %s: addresses: %s is the nextHop%s", p.Name, gateway.NextHops[i], of)
		}
	}
	return nil
}

// checkPoolsBeside refuses pools of two routers on one VLAN that have one address, or an address of the other gateway.
func (r *Router) checkPoolsBeside(other *Router) error {
	if err := r.checkOwnPools(other, " of router "+other.Name); err != nil {
		return err
	}
	if err := other.checkOwnPools(r, " of router "+r.Name); err != nil {
		return fmt.Errorf("router %s: %w", other.Name, err)
	}
	for i := range r.Pools {
		for j := range other.Pools {
			if span, with, ok := other.Pools[j].overlap(&r.Pools[i]); ok {
				return fmt.Errorf("addressPools: %s: addresses: %s overlaps %s of pool %s of router %s",
					r.Pools[i].Name, with, span, other.Pools[j].Name, other.Name)
			}
		}
	}
	return nil
}

// overlap returns a range of each of two pools with a common address.
func (p *AddressPool) overlap(other *AddressPool) (span, with Span, ok bool) {
	for _, mine := range p.Families {
		for _, theirs := range other.Families {
			for _, a := range mine.spans {
				for _, b := range theirs.spans {
					if a.overlaps(b) {
						return a, b, true
					}
				}
			}
		}
	}
	return span, with, false
}

func (s Span) overlaps(other Span) bool {
	return sameFamily(s.First, other.First) && s.First.Compare(other.Last) <= 0 && other.First.Compare(s.Last) <= 0
}

// String writes the range as the operator does.
func (s Span) String() string {
	if s.First == s.Last {
		return s.First.String()
	}
	return s.First.String() + "-" + s.Last.String()
}
