package ovndb

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// We choose the _uuid of a row (ovsdb-server accepts that since OVS 2.13): a UUID of version 8 (RFC 9562, section
// 5.8). Its first 32 bits are the lease, mixed; the other 90 free bits are a hash of the domain and the address book.
// Two pods that request one address of one address book insert the same primary key, and the database refuses the
// second one. The lease is in the first 32 bits because Open vSwitch's C library takes only these bits as the hash of
// a UUID (uuid_hash in lib/uuid.h): keys with the same first 32 bits are in one bucket in ovsdb-server, ovn-northd and
// ovn-controller.

// SwitchKey is the row key of a network's logical switch.
func SwitchKey(network string) string { return rowKey("switch", network, nil, 0) }

// RouterKey is the row key of a logical router.
func RouterKey(router string) string { return rowKey("router", router, nil, 0) }

// GatewayKey is the row key of a logical router's gateway.
func GatewayKey(router string) string { return rowKey("gateway", router, nil, 0) }

// PartKey is the row key of a row of which a router or a network has only one. part names this row.
func PartKey(part, of string) string { return rowKey(part, of, nil, 0) }

// DHCPKey is the row key of what DHCP answers on a network for addresses of the subnet's family.
func DHCPKey(network string, subnet netip.Prefix) string {
	if subnet.Addr().Is6() {
		return PartKey("DHCPv6", network)
	}
	return PartKey("DHCPv4", network)
}

// VirtualGroup is the row key and the name of the port group of the pods that may have a virtual address. claim is the
// row key of the claim on the address.
func VirtualGroup(claim string) (key, name string) {
	key = PartKey("virtual address", claim)
	return key, virtualPrefix + strings.ReplaceAll(key, "-", "_")
}

// IsVirtualGroup reports whether a port group has the name of one of a virtual address.
func IsVirtualGroup(name string) bool { return strings.HasPrefix(name, virtualPrefix) }

const virtualPrefix = "pg_virtual_"

// NodeKey is the row key of the row that a node writes about itself.
func NodeKey(node string) string { return rowKey("node", node, nil, 0) }

// EndedKey is the row key of the list of connections that have ended and that a node may still have.
func EndedKey(node string) string { return rowKey("ended-connections", node, nil, 0) }

// EndedServedKey is the row key of the list of connections of Services that have ended, of a scope.
func EndedServedKey(scope string) string {
	return rowKey("ended-connections of services", scope, nil, 0)
}

// PortListKey is the row key of a node's port list.
func PortListKey(node string) string { return rowKey("port-list", node, nil, 0) }

// NodeSubnetKey is the row key of the claim on a node subnet.
func NodeSubnetKey(network string, block netip.Prefix) string {
	return rowKey("block", network, []byte(block.String()), 0)
}

// RouterPortKey is the row key of a network's port on a logical router. The peer of this port, on the switch, has the
// row key of the gateway's address.
func RouterPortKey(network string) string {
	return rowKey("router-port", network, nil, 0)
}

// AddressKey is the row key of one address of an address book (see netmodel.Network.AddressBook): the key of the port
// that leases the address, or of the claim on it. The upper 96 bits of an IPv6 address go into the hash.
func AddressKey(book string, a netip.Addr) string {
	b := a.AsSlice()
	low := len(b) - 4
	domain := "ipv4"
	if a.Is6() {
		domain = "ipv6"
	}
	return rowKey(domain, book, b[:low], binary.BigEndian.Uint32(b[low:]))
}

// MACKey is the row key of one MAC address of an address book.
func MACKey(book string, mac net.HardwareAddr) string {
	return rowKey("mac", book, mac[:2], binary.BigEndian.Uint32(mac[2:6]))
}

// leaseMAC is the prefix of MACs that end with the lower 32 bits of a lease. wideMAC is the prefix of MACs that end
// with a hash of an IPv6 lease whose upper 96 bits differ from those of its subnet: another lease may have the same
// lower 32 bits. Two hashes may be equal, so such a MAC is claimed. Networks with different subnets may use one
// physical network: there, leaseMAC is only for IPv4 leases.
var (
	leaseMAC = []byte{0x0a, 0x58}
	wideMAC  = []byte{0x0a, 0x59}
)

// LeaseMAC is the MAC of a port whose lease is an address of the subnet. On a physical network, the subnet is the
// zero Prefix. claimed says that the MAC needs its own claim.
func LeaseMAC(subnet netip.Prefix, a netip.Addr) (mac net.HardwareAddr, claimed bool) {
	b := a.AsSlice()
	if a.Is6() && !(subnet.IsValid() && bytes.Equal(b[:12], subnet.Addr().AsSlice()[:12])) {
		sum := sha256.Sum256(b)
		return slices.Concat(net.HardwareAddr(wideMAC), sum[:4]), true
	}
	return slices.Concat(net.HardwareAddr(leaseMAC), b[len(b)-4:]), false
}

// IsLeaseMAC reports whether a MAC has the prefix of a MAC that is made from a lease and belongs to this lease alone.
func IsLeaseMAC(mac net.HardwareAddr) bool { return bytes.HasPrefix(mac, leaseMAC) }

// Low32MAC makes a MAC of this form from 32 bits. wide: it makes a MAC of the form that needs a claim.
func Low32MAC(low uint32, wide bool) net.HardwareAddr {
	prefix := leaseMAC
	if wide {
		prefix = wideMAC
	}
	return binary.BigEndian.AppendUint32(slices.Clone(prefix), low)
}

// AcceptedKey is the key of the row that says what the controller has accepted for a network. It is a row of the table
// Copp that no other row refers to: northd computes nothing again when such a row changes.
func AcceptedKey(network string) string { return PartKey("accepted", network) }

// PolicyKey is the key of the row that says which groups the ports of a namespace's pods belong to, on a network. With
// the namespace "", the row is for the groups of ClusterNetworkPolicies. Like the row at AcceptedKey, it is a row of
// the table Copp that no other row refers to.
func PolicyKey(network, namespace string) string {
	return rowKey("policies "+namespace, network, nil, 0)
}

// NamespaceKey is the key of the row that has the labels of a namespace, as the controller knows them. Only networks
// with ClusterNetworkPolicies need it.
func NamespaceKey(namespace string) string { return rowKey("namespace", namespace, nil, 0) }

// ConflictsKey is the key of external_ids, in a pod's port, with the addresses of the port that hosts outside use, and
// their MACs: "10.50.0.7=02:00:00:00:00:01", separated by blanks.
const ConflictsKey = "ovn-multinet/address-conflicts"

// PodVersionKey is the key of external_ids, in a pod's port, with the resource version of the pod that its groups of
// policies were chosen by.
const PodVersionKey = "ovn-multinet/pod-version"

// PolicyRevisionKey is the key of external_ids, in the rows at PolicyKey and NamespaceKey, with the revision of their
// content. A port is inserted only while the rows have the revisions that the port's groups were chosen by.
const PolicyRevisionKey = "ovn-multinet/policy-revision"

// ProfilesKey is the key of the row with the security profiles that the operator allows. It is a row of the table Copp
// that no other row refers to.
var ProfilesKey = PartKey("security-profiles", "")

// ProfilePrefix is the prefix of a key in the external_ids of the row at ProfilesKey, with a profile as a text. The
// rest of the key is the profile's name. A port is inserted only while its profiles are those texts.
const ProfilePrefix = "ovn-multinet/profile:"

// PolicyTextKey is the key of the row that has the accepted policies of a namespace on a network, as texts.
func PolicyTextKey(network, namespace string) string {
	return rowKey("policy-texts "+namespace, network, nil, 0)
}

// GroupKey is the row key of the group of ports that a selector of a namespace's policies selects on a network.
func GroupKey(network, namespace, selector string) string {
	return rowKey("group "+namespace+" "+selector, network, nil, 0)
}

// ACLKey is the row key of the ACL of one rule of a policy "<namespace>/<name>" on a network.
func ACLKey(network, policy, rule string) string {
	return rowKey("acl "+policy+" "+rule, network, nil, 0)
}

// MeterKey and MeterBandKey are the row keys of the meter that limits what the policies of a namespace log, and of its
// band. With the namespace "", they are for ClusterNetworkPolicies.
func MeterKey(namespace string) string { return rowKey("meter", namespace, nil, 0) }

// MeterBandKey: see MeterKey.
func MeterBandKey(namespace string) string { return rowKey("meter-band", namespace, nil, 0) }

// RulePolicyKey and RuleKey are the keys of an ACL's external_ids with its policy, "<namespace>/<name>" or the name of
// a ClusterNetworkPolicy, and with the policy's rule, such as "ingress deny".
const (
	RulePolicyKey = "ovn-multinet/policy"
	RuleKey       = "ovn-multinet/rule"
)

// LoadBalancerKey is the row key of the load balancer of a service "<namespace>/<name>" on a network, for a protocol.
func LoadBalancerKey(network, service, protocol string) string {
	return rowKey("load-balancer "+service+" "+protocol, network, nil, 0)
}

// ServiceKey is the key of the row that says what is accepted of a service "<namespace>/<name>" on a network. Like the
// row at AcceptedKey, it is a row of the table Copp that no other row refers to.
func ServiceKey(network, service string) string { return rowKey("service "+service, network, nil, 0) }

// IPAMClaimKey is the key of the row with the addresses and the MAC that an IPAMClaim "<namespace>/<name>" has. Like
// the row at AcceptedKey, it is a row of the table Copp that no other row refers to.
func IPAMClaimKey(claim string) string { return PartKey("ipam-claim", claim) }

// Keys of external_ids. IPAMClaimMark is in all rows of an IPAMClaim, and has its "<namespace>/<name>". The row at
// IPAMClaimKey has the other two: IPAMClaimNetwork is the network, and IPAMClaimHas the MAC and the addresses with
// their prefix lengths, separated by blanks.
const (
	IPAMClaimMark    = "ovn-multinet/ipam-claim"
	IPAMClaimNetwork = "ovn-multinet/ipam-claim-network"
	IPAMClaimHas     = "ovn-multinet/ipam-claim-has"
)

// IPAMClaimKind is the kind of the row at IPAMClaimKey.
const IPAMClaimKind = "ipam-claim"

// IPAMClaimLimitKey is the key of the row that says why IPAMClaims of a namespace get no new addresses: on one network,
// or on any, if the network is "". Without the row they do. IPAMClaimLimit is the key of its external_ids with the
// reason, and IPAMClaimLimitOf the one with the namespace.
func IPAMClaimLimitKey(namespace, network string) string {
	return rowKey("ipam-claim-limit "+namespace, network, nil, 0)
}

// See IPAMClaimLimitKey. IPAMClaimLimitKind is the kind of the row.
const (
	IPAMClaimLimitKind = "ipam-claim-limit"
	IPAMClaimLimit     = "ovn-multinet/ipam-claim-limit"
	IPAMClaimLimitOf   = "ovn-multinet/ipam-claim-namespace"
)

// IPAMClaimPortKey is the row key of the port of the pod that uses an IPAMClaim.
func IPAMClaimPortKey(claim string) string { return PartKey("ipam-claim-port", claim) }

// ServiceGroupKey is the row key of the group with the load balancers of a scope: "network <id>", "router <name>", or
// "outside <router>" for those with outside addresses.
func ServiceGroupKey(scope string) string { return PartKey("service-group", scope) }

// ServiceRouterKey, ServiceRouterPortKey and ServicePortKey are the row keys of a network's private router, of the port
// of this router, and of the peer of this port on the network's switch.
func ServiceRouterKey(network string) string { return PartKey("service-router", network) }

// ServiceRouterPortKey: see ServiceRouterKey.
func ServiceRouterPortKey(network string) string { return PartKey("service-router-port", network) }

// ServicePortKey: see ServiceRouterKey.
func ServicePortKey(network string) string { return PartKey("service-port", network) }

// OutsideKey is the row key of the row with the outside addresses that a user has on a router. A user is
// "<namespace>/<pod>/<interface>" or "service <namespace>/<name>". It is a row of the table Copp that no other row
// refers to.
func OutsideKey(router, user string) string { return PartKey("outside "+user, router) }

// OutsideNATKey is the row key of the NAT of an outside address. A user has at most one of each address family.
func OutsideNATKey(router, user, family string) string {
	return PartKey("outside-nat"+family+" "+user, router)
}

// OutsideBalancerKey is the row key of the load balancer of a Service's outside addresses, for a protocol.
func OutsideBalancerKey(router, user, protocol string) string {
	return PartKey("outside-balancer "+protocol+" "+user, router)
}

// OutsideACLKey is the row key of an ACL that lets some outside hosts alone reach an outside address.
func OutsideACLKey(router, user, rule string) string {
	return PartKey("outside-acl "+rule+" "+user, router)
}

// ForwardKey is the row key of the claim on a port of a gateway's own address, such as "tcp/80".
func ForwardKey(book string, a netip.Addr, port string) string {
	return PartKey("outside-forward "+a.String()+" "+port, book)
}

// OutsideLimitKey is the row key of the row that lists the addresses that a namespace has of a pool of a router.
func OutsideLimitKey(router, pool, namespace string) string {
	return PartKey("outside-limit "+pool+" "+namespace, router)
}

// ConfigKey is the key of the accepted configuration in the external_ids of the row at AcceptedKey, in netmodel's
// canonical form.
const ConfigKey = "ovn-multinet/config"

// NodeSubnetsKey is the key of a node switch's external_ids with its node subnets.
const NodeSubnetsKey = "ovn-multinet/blocks"

// BookKey is the key of external_ids of switches and claims on a physical network with their address book, which
// other networks use too.
const BookKey = "ovn-multinet/address-book"

// ClaimantPrefix is the prefix of a key in the external_ids of a claim without a port. The rest of the key is the
// claimant: "network <id>", "router <name>", "service <namespace>/<name>", or who has an outside address (see package
// ovnnet/outside). The value is what the claimant uses the address for. Several networks and routers may use one claim,
// such as the address of a router on a physical network.
const ClaimantPrefix = "ovn-multinet/claimant:"

// Claimants names the networks, routers and services that use a claim, in words; "" for the claim of a port.
func Claimants(externalIDs map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(externalIDs)) {
		if who, ok := strings.CutPrefix(key, ClaimantPrefix); ok {
			words = append(words, who+" ("+externalIDs[key]+")")
		}
	}
	return strings.Join(words, " and ")
}

// AcceptedPrefix is the prefix of a key in the external_ids of the row at AcceptedKey, with the revision of an
// accepted NAD. The rest of the key is the NAD: "<namespace>/<name>". A port is inserted only while its NAD is
// accepted.
const AcceptedPrefix = "ovn-multinet/nad:"

// rowKey makes a key with 122 hashed bits. Reversible operations put the lease into the first 32 bits, so two leases
// with the same domain, book and upper bytes never have the same key.
func rowKey(domain, book string, upper []byte, lease uint32) string {
	h := sha256.New()
	h.Write([]byte("ovn-multinet/" + domain + "\x00" + book + "\x00"))
	h.Write(upper)
	u := uuid.UUID(h.Sum(nil)[:16])
	binary.BigEndian.PutUint32(u[:], binary.BigEndian.Uint32(u[:])^mix(lease))
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u.String()
}

// mix is a permutation of the 32-bit numbers (the finalizer of MurmurHash3): each of its steps is reversible.
// Neighbours differ afterwards in many bits, also in the low bits, which select the bucket.
func mix(x uint32) uint32 {
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return x ^ x>>16
}
