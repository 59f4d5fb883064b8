package entries

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// QueueAll notes the networks in NB. The kind of outside addresses has listed those before.
func (k *Kind) QueueAll(_ context.Context, networks map[string]*ovnnet.Listed) error {
	if k.Source == nil {
		return nil
	}
	maps.DeleteFunc(k.networks, func(id string, _ *netmodel.Network) bool { return networks[id] == nil })
	for id, n := range networks {
		k.NetworkAccepted(id, n.Config, true)
	}
	k.listed = true
	k.Engine.Add(StatusItem)
	return nil
}

// HasAddresses notes which outside addresses a user has.
func (k *Kind) HasAddresses(user outside.Key, has []netip.Addr) {
	if k.Source == nil || slices.Equal(k.addresses[user], has) {
		return
	}
	if k.addresses[user] = has; len(has) == 0 {
		delete(k.addresses, user)
	}
	k.Engine.AddAfter(StatusItem, usersAfter)
}

// NetworkAccepted notes the accepted configuration of a network. Of one that exists and cannot be read, the former one
// stays noted.
func (k *Kind) NetworkAccepted(id string, accepted *netmodel.Network, exists bool) {
	if k.Source != nil && (accepted != nil || !exists) && k.note(id, accepted) {
		k.Engine.AddAfter(StatusItem, usersAfter)
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

// reconcileStatus writes the statuses that have changed.
func (k *Kind) reconcileStatus(context.Context, engine.Item) error {
	k.tell()
	return nil
}

// byEntry are the objects that count, by kind and entry. Several may grant one physical network.
func (k *Kind) byEntry() map[string][]*entry.Object {
	all := map[string][]*entry.Object{}
	for _, o := range k.now.taken {
		key := o.Kind.Name + " " + o.Entry()
		all[key] = append(all[key], o)
	}
	return all
}

// users returns who needs each object, in the words of an operator, by the object's ID. It looks at each network and at
// each outside address once.
func (k *Kind) users() map[string][]string {
	all, objects := map[string][]string{}, k.byEntry()
	add := func(user, kind, name string) {
		for _, o := range objects[kind+" "+name] {
			all[o.ID()] = append(all[o.ID()], user)
		}
	}
	for _, o := range k.now.taken {
		if router, _, ok := strings.Cut(o.Entry(), " "); ok && o.Kind.Name == "AddressPool" {
			add(o.ID(), "Router", router)
		}
	}
	for id, n := range k.networks {
		user := "network " + id
		if n.Router != "" {
			add(user, "Router", n.Router)
		}
		for _, profile := range n.SecurityProfiles {
			add(user, "SecurityProfile", profile)
		}
		for _, o := range objects["PhysicalNetwork "+n.Physical] {
			if a := k.alone(o); a.uplinks || a.grants.Allows(n.Namespace, n) {
				all[o.ID()] = append(all[o.ID()], user)
			}
		}
	}
	for name, router := range k.now.config.Routers {
		for _, o := range objects["PhysicalNetwork "+router.Physical] {
			if router.HasGateway() && k.alone(o).uplinks {
				all[o.ID()] = append(all[o.ID()], "the gateway of router "+name)
			}
		}
	}
	for user, has := range k.addresses {
		router, pools := k.now.config.Routers[user.Router], map[string]bool{}
		for _, a := range has {
			if router == nil {
				continue
			}
			if pool := router.AddressPoolOf(a); pool != nil && !pools[pool.Name] {
				pools[pool.Name] = true
				add(user.User.String(), "AddressPool", user.Router+" "+pool.Name)
			}
		}
	}
	for _, users := range all {
		slices.Sort(users)
	}
	return all
}

// alone is what an object says of a physical network without the other objects about it.
type alone struct {
	grants  netmodel.PhysicalGrants
	uplinks bool // all networks and gateways on the physical network need the object
}

// alone returns what an object says alone.
func (k *Kind) alone(o *entry.Object) alone {
	if a, known := k.now.alone[o.ID()]; known {
		return a
	}
	var a alone
	if text, err := entry.Join(nil, []*entry.Object{o}); err == nil { // the object counts, so its lists can be read
		a.grants, _ = netmodel.ParsePhysicalGrants(text)
		uplinks, _ := netmodel.ParseUplinks(text)
		a.uplinks = len(uplinks) > 0
	}
	k.now.alone[o.ID()] = a
	return a
}
