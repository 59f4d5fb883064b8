package netmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// A logical router belongs to a namespace ("shop/core") or to the whole cluster ("/core"). This file decides which
// networks may join a router: networks of the router's namespace, and networks of the namespaces that the owner lists
// as guests. Where the operator describes the router, the operator must list the namespace there too.

// label is RFC 1123's form of a label. Names of routers and of namespaces have this form.
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

const labelForm = "lower-case letters, digits and '-', at most 63"

// anyNamespace is every namespace that the operator does not list by name.
const anyNamespace = "*"

// maxGuests bounds the guests of one network, and the subnets of each guest: each check of a guest reads the list.
const maxGuests = 64

// Guest is a namespace whose networks may join a router of another namespace, with subnets within Subnets.
type Guest struct {
	Namespace string
	Subnets   []netip.Prefix
}

// Grant is what the operator allows to the networks of a namespace on a router.
type Grant struct {
	Subnets        []netip.Prefix // each subnet of a network must be within one of them
	SNAT           bool           // a network may have "snat"
	NoPortSecurity bool           // a network may have "portSecurity": false
}

// RouterNamespace is the namespace that owns the router of that full name; "" for a router of the whole cluster.
func RouterNamespace(router string) string {
	namespace, _, _ := strings.Cut(router, "/")
	return namespace
}

// IsGuest reports whether the network names a router of another namespace.
func (n *Network) IsGuest() bool {
	owner := RouterNamespace(n.Router)
	return owner != "" && owner != n.Namespace
}

// WithoutRouter returns a copy of the network without its router.
func (n *Network) WithoutRouter() *Network {
	alone := *n
	alone.Router, alone.SNAT, alone.Guests = "", nil, nil
	return &alone
}

// routerName returns the full name of a router from the name that a network of the namespace uses.
func routerName(namespace, text string) (string, error) {
	owner, name, full := strings.Cut(text, "/")
	if !full {
		owner, name = namespace, text
	}
	cluster := full && owner == ""
	if !label.MatchString(name) || !cluster && !label.MatchString(owner) {
		const form = `router: %.128q is no router's name: "core", "<namespace>/core" or "/core", with %s`
		return "", fmt.Errorf(form, text, labelForm)
	}
	return owner + "/" + name, nil
}

func (n *Network) setRouter(name string) (err error) {
	if name == "" {
		return nil
	}
	if n.Topology == Localnet {
		return errors.New("router: a localnet network has the routers of its physical network, and none of ours")
	}
	if n.Router, err = routerName(n.Namespace, name); err != nil {
		return err
	}
	if len(n.Subnets) == 0 {
		return errors.New("router: a network without subnets has nothing to route")
	}
	if i := slices.IndexFunc(n.Subnets, PointToPoint); i >= 0 {
		return fmt.Errorf("router: %s has no address for a router beside two pods; make the subnet larger", n.Subnets[i])
	}
	return nil
}

func (n *Network) setSNAT(on *bool) error {
	switch n.SNAT = on; {
	case on != nil && n.Router == "":
		return errors.New("snat: it is the router's gateway that does it, and there is no \"router\"")
	case on != nil && n.IsGuest():
		return fmt.Errorf("snat: leave it out, router %s belongs to namespace %s", n.Router, RouterNamespace(n.Router))
	}
	return nil
}

type guestJSON struct {
	Namespace string `json:"namespace"`
	Subnets   string `json:"subnets"`
}

func (n *Network) setGuests(list []json.RawMessage) error {
	if len(list) > 0 && n.Router == "" {
		return errors.New("routerGuests: there is no \"router\" that they could join")
	}
	if owner := RouterNamespace(n.Router); len(list) > 0 && owner != n.Namespace {
		who := "namespace " + owner
		if owner == "" {
			who = "the operator, in the object Router,"
		}
		return fmt.Errorf("routerGuests: %s says which namespaces may join router %s: leave it out", who, n.Router)
	}
	if len(list) > maxGuests {
		return fmt.Errorf("routerGuests: %d namespaces, at most %d are served", len(list), maxGuests)
	}
	for i, text := range list {
		key := fmt.Sprintf("routerGuests[%d]", i)
		var raw guestJSON
		if err := conf.DecodeObject(text, &raw, nil); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if !label.MatchString(raw.Namespace) {
			return fmt.Errorf("%s.namespace: %.64q is no namespace", key, raw.Namespace)
		}
		if slices.ContainsFunc(n.Guests, func(g Guest) bool { return g.Namespace == raw.Namespace }) {
			return fmt.Errorf("%s.namespace: %s is listed twice", key, raw.Namespace)
		}
		subnets, err := parseWithin(key+".subnets", raw.Subnets)
		if err != nil {
			return err
		}
		n.Guests = append(n.Guests, Guest{raw.Namespace, subnets})
	}
	return nil
}

// parseWithin parses the subnets that a guest's subnets must be within.
func parseWithin(key, text string) ([]netip.Prefix, error) {
	words := splitList(text)
	if len(words) == 0 {
		const form = "%s is missing: what may be brought to the router, like 10.2.0.0/16; 0.0.0.0/0,::/0 is anything"
		return nil, fmt.Errorf(form, key)
	}
	if len(words) > maxGuests {
		return nil, fmt.Errorf("%s: %d subnets, at most %d are served", key, len(words), maxGuests)
	}
	var list []netip.Prefix
	for _, s := range words {
		p, err := conf.ParsePrefix(key, s)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// outside returns the first of the network's subnets, and of those behind its pods, that is within none of the list's
// subnets.
func (n *Network) outside(list []netip.Prefix) (subnet netip.Prefix, found bool) {
	routed := n.Routed()
	i := slices.IndexFunc(routed, func(s netip.Prefix) bool {
		return !slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Bits() <= s.Bits() && p.Contains(s.Addr()) })
	})
	if i < 0 {
		return netip.Prefix{}, false
	}
	return routed[i], true
}

// someOf returns the beginning of a list as text, for an error of one line.
func someOf(list []netip.Prefix) string {
	const most = 4
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", joinWords(list[:most], ","), len(list)-most)
	}
	return joinWords(list, ",")
}

// CheckGuest refuses a network that the owner of its router does not list as a guest. guests are the guests that the
// owner's networks on the router list.
func (n *Network) CheckGuest(guests []Guest) error {
	var within []netip.Prefix
	for _, g := range guests {
		if g.Namespace == n.Namespace {
			within = append(within, g.Subnets...)
		}
	}
	subnet, found := n.outside(within)
	if !found {
		return nil
	}
	where := fmt.Sprintf("in spec.config of a network of namespace %s that is on the router", RouterNamespace(n.Router))
	if len(within) == 0 {
		const form = `router: namespace %s may not join router %s: ` +
			`write "routerGuests": [{"namespace": %q, "subnets": %q}] %s`
		return fmt.Errorf(form, n.Namespace, n.Router, n.Namespace, joinWords(n.Routed(), ","), where)
	}
	const form = `router: namespace %s may bring %s to router %s, not %s: add it to "subnets" of %s in "routerGuests" %s`
	return fmt.Errorf(form, n.Namespace, someOf(within), n.Router, subnet, n.Namespace, where)
}

// CheckClusterRouter refuses a router of the whole cluster if the operator does not describe it.
func (n *Network) CheckClusterRouter() error {
	if n.Router == "" || RouterNamespace(n.Router) != "" {
		return nil
	}
	return fmt.Errorf(`router: there is no router %s of the whole cluster: `+
		`the operator creates an object Router with the spec {router: %s}`, n.Router, n.Router)
}

// CheckJoin refuses a network that the operator does not allow on the router. The error says what the operator can
// write.
func (r *Router) CheckJoin(n *Network) error {
	entry := n.Namespace
	g, listed := r.Namespaces[entry]
	if !listed {
		if g, listed = r.Namespaces[anyNamespace]; listed {
			entry = anyNamespace
		}
	}
	where := fmt.Sprintf(`under "namespaces" in the object Router of %s`, r.Name)
	if !listed {
		return fmt.Errorf(`router: namespace %s may not join router %s: the operator writes %s: {subnets: %q} %s`,
			n.Namespace, r.Name, n.Namespace, joinWords(n.Routed(), ","), where)
	}
	if subnet, found := n.outside(g.Subnets); found {
		const form = `router: namespace %s may bring %s to router %s, not %s: the operator adds it to "subnets" of %s %s`
		return fmt.Errorf(form, n.Namespace, someOf(g.Subnets), r.Name, subnet, entry, where)
	}
	if n.SNAT != nil && !g.SNAT {
		return fmt.Errorf(`snat: leave it out, or the operator writes "maySetSNAT: true" for %s %s`, entry, where)
	}
	if !n.PortSecurity && !g.NoPortSecurity {
		return fmt.Errorf(`portSecurity: it cannot be false, unless the operator writes `+
			`"mayDisablePortSecurity: true" for %s %s`, entry, where)
	}
	return nil
}

type grantJSON struct {
	Subnets                string `json:"subnets"`
	MaySetSNAT             bool   `json:"maySetSNAT"`
	MayDisablePortSecurity bool   `json:"mayDisablePortSecurity"`
}

func parseGrants(list map[string]json.RawMessage) (map[string]Grant, error) {
	grants := map[string]Grant{}
	for _, namespace := range sortedKeys(list) {
		if namespace != anyNamespace && !label.MatchString(namespace) {
			return nil, fmt.Errorf("namespaces: %.64q is no namespace, and not %q for all others", namespace, anyNamespace)
		}
		var raw grantJSON
		if err := conf.DecodeObject(list[namespace], &raw, nil); err != nil {
			return nil, fmt.Errorf("namespaces: %s: %w", namespace, err)
		}
		subnets, err := parseWithin("subnets", raw.Subnets)
		if err != nil {
			return nil, fmt.Errorf("namespaces: %s: %w", namespace, err)
		}
		grants[namespace] = Grant{subnets, raw.MaySetSNAT, raw.MayDisablePortSecurity}
	}
	return grants, nil
}
