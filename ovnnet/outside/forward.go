package outside

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// A forward is a port of a gateway's own address that a Service has. The claims and lists are those of addresses, with
// the port beside the address.

// Port is a port of an address.
type Port struct {
	Protocol string // "tcp", "udp" or "sctp"
	Number   uint16
}

func (p Port) String() string { return p.Protocol + "/" + strconv.Itoa(int(p.Number)) }

// String is "<address>", or "<address>/<protocol>/<port>".
func (a Address) String() string {
	if a.Port == (Port{}) {
		return a.Addr.String()
	}
	return a.Addr.String() + "/" + a.Port.String()
}

// parseAddress parses what String returns. Pool is empty.
func parseAddress(text string) (a Address, err error) {
	text, port, isPort := strings.Cut(text, "/")
	if isPort {
		protocol, number, _ := strings.Cut(port, "/")
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return a, err
		}
		a.Port = Port{protocol, uint16(n)}
	}
	a.Addr, err = netip.ParseAddr(text)
	return a, err
}

// describe names the address in messages.
func (a Address) describe() string {
	if a.Port == (Port{}) {
		return "address " + a.Addr.String()
	}
	return a.Port.String() + " of address " + a.Addr.String()
}

// whole returns the addresses with all their ports.
func whole(list []netip.Addr) []Address {
	all := make([]Address, len(list))
	for i, a := range list {
		all[i].Addr = a
	}
	return all
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

// chooseForwards returns the wanted ports if the Service may have all of them.
func (have *present) chooseForwards(e *Entry, w *Wanted) ([]Address, error) {
	list := forwards(w)
	for _, a := range list {
		if _, err := poolOf(w.Router, w.User.Namespace, a); err != nil {
			return nil, err
		}
		if err := have.free(e, w, &w.Router.Forwards, a); err != nil {
			return nil, err
		}
		have.acquire(e, a) // the next port counts this one
	}
	if len(list) == 0 {
		return nil, nbrows.Refusedf("the gateway of router %s has no address of the families of %s", w.Router.Name, w.User)
	}
	return list, nil
}

// dhcpv6 is the port of DHCPv6 clients: a router of OVN takes its packets before load balancers do.
var dhcpv6 = Port{"udp", 546}

// forwardable refuses a port that a namespace may not have.
func forwardable(r *netmodel.Router, namespace string, a Address) error {
	switch {
	case r.Forwards.Limit(namespace) == 0:
		return nbrows.Refusedf("ports of the gateway of router %s are not granted to namespace %s; the operator grants "+
			"them in the controller's --config: routers: {%q: {portForwards: {%s: 1}}}", r.Name, namespace, r.Name, namespace)
	case !r.IsExternal(a.Addr):
		return nbrows.Refusedf("address %s is not the gateway's of router %s", a.Addr, r.Name)
	case a.Port.Number >= netmodel.FirstPortOfPods:
		return nbrows.Refusedf("%s: the gateway needs the ports from %d on for the connections of pods; choose a lower one",
			a.Port, netmodel.FirstPortOfPods)
	case a.Is6() && a.Port == dhcpv6:
		return nbrows.Refusedf("%s: the gateway answers DHCPv6 there; choose another port", a.Port)
	}
	return nil
}

// matchOf matches what a user has of an address. A Service that has an address alone needs no ports there. Neighbour
// discovery never matches.
func (e *Entry) matchOf(address netip.Addr) string {
	var words []string
	for _, protocol := range nbrows.Protocols {
		var ports []string
		for _, a := range e.Addresses {
			if a.Addr == address && a.Port.Protocol == protocol {
				ports = append(ports, strconv.Itoa(int(a.Port.Number)))
			}
		}
		switch {
		case e.Kind != Forwarded:
			words = append(words, protocol)
		case len(ports) > 0:
			words = append(words, fmt.Sprintf("%s.dst == {%s}", protocol, strings.Join(ports, ", ")))
		}
	}
	return strings.Join(words, " || ")
}
