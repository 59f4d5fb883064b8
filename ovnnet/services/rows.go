package services

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Keys of external_ids.
const (
	kindService = "service" // value of nbrows.KeyKind
	keyService  = "ovn-multinet/service"
	keyText     = "ovn-multinet/service-text"
	// keyAddresses has the virtual addresses, and keyScope the scope whose group has the load balancers.
	keyAddresses = "ovn-multinet/service-addresses"
	keyScope     = "ovn-multinet/service-scope"
	// keyRevision is in a load balancer, and has a hash of its content: a write asserts what was read.
	keyRevision = "ovn-multinet/service-revision"
)

// claimedFor is the value of the claimant's key in a claim.
const claimedFor = "virtual address"

// serviceRow returns the row that says what is accepted of a service. It is deleted with its network.
func serviceRow(w *Wanted, scope string, addresses []netip.Addr) *nb.Copp {
	id := w.Service.ID()
	return &nb.Copp{
		UUID: ovndb.ServiceKey(w.Network, id), Name: "ovn-multinet " + w.Network + " service " + id,
		ExternalIDs: map[string]string{
			nbrows.KeyKind: kindService, nbrows.KeyNetwork: w.Network, keyService: id, keyText: w.Service.Text,
			keyAddresses: addressesText(addresses), keyScope: scope,
		},
	}
}

// balancerRow returns the load balancer of a service for one protocol.
func balancerRow(w *Wanted, protocol string, vips map[string]string, addresses []netip.Addr) *nb.LoadBalancer {
	id := w.Service.ID()
	row := &nb.LoadBalancer{
		UUID: ovndb.LoadBalancerKey(w.Network, id, protocol), Name: w.Network + ":" + id + ":" + protocol, Vips: vips,
		ExternalIDs: map[string]string{nbrows.KeyServiceNetwork: w.Network, keyService: id},
	}
	nbrows.SetBalancer(row, protocol, addressesText(addresses), w.Service.Affinity)
	text, _ := json.Marshal(row) // the order of a map's keys is fixed
	sum := sha256.Sum256(text)
	row.ExternalIDs[keyRevision] = hex.EncodeToString(sum[:16])
	return row
}

// claimRow returns the claim of a service on an address.
func claimRow(network, id string, a netip.Addr) *nb.Copp {
	return &nb.Copp{
		UUID: ovndb.AddressKey(network, a), Name: claimName(network) + a.String(),
		ExternalIDs: map[string]string{nbrows.KeyNetwork: network, claimant(id): claimedFor},
	}
}

// claimName is the beginning of the names of a network's claims. The rest is the address.
func claimName(network string) string { return "ovn-multinet " + network + " address " }

// claimant is the key in the external_ids of a service's claim.
func claimant(id string) string { return ovndb.ClaimantPrefix + "service " + id }

func addressesText(list []netip.Addr) string {
	words := make([]string, len(list))
	for i, a := range list {
		words[i] = a.String()
	}
	return strings.Join(words, " ")
}

func parseAddresses(text string) (list []netip.Addr) {
	for _, word := range strings.Fields(text) {
		if a, err := netip.ParseAddr(word); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// privateMAC is the MAC of a private router. No lease of the network has it: a lease ends with 32 bits of zero only if
// it is the address of the subnet itself, which no port has.
var privateMAC = ovndb.Low32MAC(0, false).String()

// privateRouter returns a network's private router, its port, and the switch's port to it. The port has the addresses
// of the subnets themselves: none of a pod's, and no pod sends to it, because nothing but load balancers needs it.
func privateRouter(n *netmodel.Network) (*nb.LogicalRouter, *nb.LogicalRouterPort, *nb.LogicalSwitchPort) {
	id := n.ID()
	mark := map[string]string{nbrows.KeyServiceNetwork: id}
	name := id + ":services" // the name of a port to a router has a slash after the colon
	port := &nb.LogicalRouterPort{
		UUID: ovndb.ServiceRouterPortKey(id), Name: name + ":router", MAC: privateMAC, ExternalIDs: mark,
	}
	for _, subnet := range n.Subnets {
		port.Networks = append(port.Networks, subnet.String())
	}
	return &nb.LogicalRouter{
			UUID: ovndb.ServiceRouterKey(id), Name: name, Options: nbrows.RouterOptions(), ExternalIDs: mark,
		}, port,
		&nb.LogicalSwitchPort{
			UUID: ovndb.ServicePortKey(id), Name: name, Type: "router", Addresses: []string{"router"},
			Options: map[string]string{"router-port": port.Name}, ExternalIDs: mark,
		}
}
