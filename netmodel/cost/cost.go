// Package cost owns what the objects of a namespace become in OVN, and how much of that the operator allows.
package cost

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Resource is something that an object needs in OVN.
type Resource int

// The resources. An object's need is estimated from the object itself, before it has rows.
const (
	Bytes     Resource = iota // of the rows in NB
	Flows                     // of policies and Services in Open vSwitch, on each node with a pod of their network
	Endpoints                 // to which load balancers send: each port of a Service, at each of its pods' addresses
	Groups                    // of ports, on each network: a pod that starts may have to be put into each
	resources
)

// resource is the name of a resource in the operator's configuration, and how much a namespace may need by default.
type resource struct {
	name  string
	limit int
}

// The defaults leave room for what tenants need: 1,000 networks, or 1,000 Services with ten endpoints each. At the
// limit, OVN's programs stay within what docs/limits.md says. When a policy changes, ovn-controller computes all flows
// of the policies on its network again: they share parts (ovs-fields(7), "conjunctive match").
var table = [resources]resource{
	Bytes:     {"bytes", 4 << 20},
	Flows:     {"flows", 30_000},
	Endpoints: {"endpoints", 10_000},
	Groups:    {"groups", 4_000},
}

func (r Resource) String() string { return table[r].name }

// All are the resources.
func All() (all []Resource) {
	for r := range resources {
		all = append(all, r)
	}
	return all
}

// Kinds are the kinds of objects whose costs count for their namespaces, as the controller calls them.
var Kinds = []string{"network", "policies", "service", "ipamclaim"}

// Cost is how much an object needs of each resource.
type Cost [resources]int

// Plus returns the sum of two costs.
func (c Cost) Plus(other Cost) Cost {
	for r := range c {
		c[r] += other[r]
	}
	return c
}

// Less returns the difference of two costs.
func (c Cost) Less(other Cost) Cost {
	for r := range c {
		c[r] -= other[r]
	}
	return c
}

// Times returns the cost of n such objects.
func (c Cost) Times(n int) Cost {
	for r := range c {
		c[r] *= n
	}
	return c
}

// Beyond returns the first resource of which the cost needs more than there is room; ok is false if there is none.
func (c Cost) Beyond(room Cost) (r Resource, ok bool) {
	for r := range resources {
		if c[r] > 0 && c[r] > room[r] {
			return r, true
		}
	}
	return 0, false
}

// Limits are how much the objects of a namespace may need together, by namespace. Anyone is the namespaces that are not
// listed.
type Limits map[string]Cost

// Anyone stands for the namespaces that are not listed.
const Anyone = "*"

// Default is how much the objects of a namespace may need if the operator does not say otherwise.
func Default() (c Cost) {
	for r := range c {
		c[r] = table[r].limit
	}
	return c
}

// Of returns the limits of a namespace.
func (l Limits) Of(namespace string) Cost {
	if c, ok := l[namespace]; ok {
		return c
	}
	if c, ok := l[Anyone]; ok {
		return c
	}
	return Default()
}

// ParseLimits parses the limits of the operator's configuration. A resource that the entry of a namespace does not have
// is that of "*", or the default. Every error names the entry and the resource.
func ParseLimits(entries map[string]json.RawMessage, isNamespace func(string) bool) (Limits, error) {
	limits := Limits{Anyone: Default()}
	for _, namespace := range slices.Sorted(maps.Keys(entries)) { // "*" is the first one
		if namespace != Anyone && !isNamespace(namespace) {
			return nil, fmt.Errorf("limits: %.64q is no namespace, and not %q for all others", namespace, Anyone)
		}
		var err error
		if limits[namespace], err = parse(entries[namespace], limits[Anyone]); err != nil {
			return nil, fmt.Errorf("limits: %s: %w", namespace, err)
		}
	}
	return limits, nil
}

// parse parses the limits of one entry. Those that it does not have are the other ones.
func parse(text json.RawMessage, other Cost) (Cost, error) {
	values, err := conf.ReadObject(text, names(), nil)
	if err != nil {
		return other, err
	}
	for r := range resources {
		value := values[r.String()]
		var n *int
		if err := json.Unmarshal(value, &n); value != nil && (err != nil || n == nil || *n < 0) {
			return other, fmt.Errorf("%s: %.64s is no number, 0 or more", r, value)
		}
		if n != nil {
			other[r] = *n
		}
	}
	return other, nil
}

func names() (all []string) {
	for _, t := range table {
		all = append(all, t.name)
	}
	return all
}

// Refusal says that an object needs more than there is room for in its namespace. used is what the other objects of
// the namespace need.
func Refusal(namespace string, r Resource, needed, used, limit Cost) error {
	return fmt.Errorf("it needs %d %s in OVN, and the other objects of namespace %s need %d: %d is the limit of the "+
		"namespace; make it smaller, delete others, or ask the operator for more (limits)",
		needed[r], r, namespace, used[r], limit[r])
}
