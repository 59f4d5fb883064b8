package outside

import (
	"net/netip"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Kind is what a user does with an outside address.
type Kind string

const (
	// Floating is an address that one interface has alone: outside hosts reach the pod at it, and see it as the source.
	Floating Kind = "floating"
	// Egress is an address that outside hosts see as the source, of any number of pods of one namespace.
	Egress Kind = "egress"
	// Balanced is an address that one Service has alone: outside hosts reach its pods at it.
	Balanced Kind = "service"
	// Forwarded are ports of the gateway's own addresses. One Service has each of them alone.
	Forwarded Kind = nbrows.UseForward
)

// Wanted is what NB should have for a user.
type Wanted struct {
	Router *netmodel.Router // with a gateway, as the operator's configuration describes it
	User   User
	Kind   Kind
	// PortKey and PortName are the row key and the name of an interface's port, and Inside are its addresses: at most one
	// of each family. Of a Service, Inside has any address of each family that it may have.
	PortKey, PortName string
	Inside            []netip.Addr
	// Fixed are the wanted outside addresses, at most one of each family. If there are none, the user keeps the addresses
	// that it has, or gets some of Pool; "": of any pool that is granted to the namespace.
	Fixed []netip.Addr
	Pool  string
	// Distributed makes the pod's own node translate a floating address, without a way over the gateway's node. Two cases
	// need the form without it: a node without the bridge mapping of the physical network, where no packet would pass, and
	// a pod that is a backend of a load balancer with outside clients, whose replies would miss the load balancer.
	Distributed bool
	Balancer    *Balancer // of a Service
	Ports       []Port    // with Forwarded: of the Service
}

// Balancer is what a Service does with outside addresses.
type Balancer struct {
	// Vips returns the vips of the load balancers with these addresses, by protocol.
	Vips     func(addresses []netip.Addr) map[string]map[string]string
	Affinity bool
	// Sources are the subnets of the outside hosts that may connect; none: all. Then Inside is where the pods take the
	// connections, by protocol and sorted: other outside hosts do not get there by a route to the pods either.
	Sources []netip.Prefix
	Inside  map[string][]netip.AddrPort
}

func (w *Wanted) key() Key { return Key{w.Router.Name, w.User} }

// inside returns the user's own address of the family of an outside address; the zero Addr: there is none.
func inside(w *Wanted, outside netip.Addr) netip.Addr {
	for _, a := range w.Inside {
		if a.Is4() == outside.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// pools returns the addresses that the user must have, and the pools that it may have addresses of.
func (w *Wanted) pools() ([]Address, []*netmodel.AddressPool) {
	if w.Kind == Forwarded {
		return forwards(w), []*netmodel.AddressPool{&w.Router.Forwards}
	}
	return whole(w.Fixed), w.Router.Granted(w.User.Namespace)
}

// forwards returns the wanted ports of the gateway's own addresses, of the families that the Service may have.
func forwards(w *Wanted) (list []Address) {
	for _, external := range w.Router.External {
		if !inside(w, external.Addr()).IsValid() {
			continue
		}
		for _, port := range w.Ports {
			list = append(list, Address{external.Addr(), port, netmodel.ForwardsName})
		}
	}
	return list
}
