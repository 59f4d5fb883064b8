package entries

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// QueueAll notes the networks in NB, and who has outside addresses.
func (k *Kind) QueueAll(ctx context.Context, networks map[string]*ovnnet.Listed) error {
	if k.Source == nil {
		return nil
	}
	clear(k.networks)
	for id, n := range networks {
		k.note(id, n.Config)
	}
	k.Engine.Add(usersItem)
	clear(k.addresses)
	if !slices.ContainsFunc(k.objects, func(o *entry.Object) bool { return o.Kind.Name == "AddressPool" }) {
		return nil
	}
	users, err := k.Rows.List(ctx)
	for _, u := range users {
		k.addresses[u.Key] = u.IPs()
	}
	return err
}

// HasAddresses notes which outside addresses a user has.
func (k *Kind) HasAddresses(user outside.Key, has []netip.Addr) {
	if k.Source == nil || slices.Equal(k.addresses[user], has) {
		return
	}
	if k.addresses[user] = has; len(has) == 0 {
		delete(k.addresses, user)
	}
	k.Engine.AddAfter(usersItem, usersAfter)
}

// NetworkAccepted notes the accepted configuration of a network; nil: there is none.
func (k *Kind) NetworkAccepted(id string, accepted *netmodel.Network) {
	if k.Source != nil && k.note(id, accepted) {
		k.Engine.AddAfter(usersItem, usersAfter)
	}
}

// note keeps what matters of a network, and reports whether that has changed.
func (k *Kind) note(id string, n *netmodel.Network) bool {
	was := k.networks[id]
	if n == nil || n.Router == "" && n.Physical == "" && len(n.SecurityProfiles) == 0 {
		delete(k.networks, id)
		return was != nil
	}
	k.networks[id] = &netmodel.Network{
		Namespace: n.Namespace, Name: n.Name, SharedName: n.SharedName, Topology: n.Topology, Router: n.Router,
		Physical: n.Physical, VLAN: n.VLAN, PortSecurity: n.PortSecurity, SecurityProfiles: n.SecurityProfiles,
	}
	return was == nil || was.Router != n.Router || was.Physical != n.Physical || was.VLAN != n.VLAN ||
		!slices.Equal(was.SecurityProfiles, n.SecurityProfiles)
}

// reconcileUsers writes who needs the objects.
func (k *Kind) reconcileUsers(context.Context, engine.Item) error {
	k.tell()
	return nil
}

// usersOf returns who needs an object, in the words of an operator, sorted.
func (k *Kind) usersOf(o *entry.Object) (users []string) {
	name := o.Entry()
	var needs func(*netmodel.Network) bool
	switch o.Kind.Name {
	case "Router":
		needs = func(n *netmodel.Network) bool { return n.Router == name }
		for _, other := range k.now.taken {
			if router, _, ok := strings.Cut(other.Entry(), " "); ok && other.Kind.Name == "AddressPool" && router == name {
				users = append(users, other.ID())
			}
		}
	case "PhysicalNetwork":
		alone, err := entry.Join(nil, []*entry.Object{o})
		if err != nil {
			return nil // impossible: the object counts
		}
		grants, err := configfile.Parse(alone)
		if err != nil {
			return nil
		}
		needs = func(n *netmodel.Network) bool {
			return n.Physical == name && grants.Physical.Check(n.Namespace, n) == nil
		}
	case "SecurityProfile":
		needs = func(n *netmodel.Network) bool { return slices.Contains(n.SecurityProfiles, name) }
	default:
		return k.usersOfPool(name)
	}
	for _, id := range slices.Sorted(maps.Keys(k.networks)) {
		if needs(k.networks[id]) {
			users = append(users, "network "+id)
		}
	}
	slices.Sort(users)
	return users
}

// usersOfPool returns who has addresses of a pool.
func (k *Kind) usersOfPool(name string) (users []string) {
	routerName, pool, _ := strings.Cut(name, " ")
	router := k.now.config.Routers[routerName]
	if router == nil {
		return nil // impossible: the pool counts
	}
	for user, has := range k.addresses {
		if user.Router == routerName && slices.ContainsFunc(has, func(a netip.Addr) bool {
			of := router.AddressPoolOf(a)
			return of != nil && of.Name == pool
		}) {
			users = append(users, user.User.String())
		}
	}
	slices.Sort(users)
	return users
}
