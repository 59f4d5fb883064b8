package netmodel

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// networkKeys are all keys of a network. A key is parsed after those before it. The canonical form, which NB has and
// agents of other versions read, has the keys in this order, so a new key goes to the end of localnetKeys.
var networkKeys = slices.Concat(cniKeys, addressKeys, routerKeys, portKeys, localnetKeys, overlayKeys)

// cniKeys are the keys of CNI, and those that say which network this is.
var cniKeys = []key{
	{name: "cniVersion", of: ofBoth, parse: read(ignore[string]), schema: `{"type": "string"}`},
	{
		name: "type", of: ofBoth, parse: read(ignore[string]), // another type is another network
		value:  func(n *Network) any { return n.kind() },
		schema: `{"const": "ovn-multinet"}`, doc: "`ovn-multinet`",
	},
	{name: "name", parse: read(ignore[string]), schema: `{"type": "string", "minLength": 1}`},
	{
		name: "name", of: ofOverlay, parse: read((*Network).setSharedName),
		value: func(n *Network) any { return n.SharedName },
	},
	// OVN serves ips and mac of every attachment, whatever the capabilities say.
	{name: "capabilities", parse: read(ignore[map[string]bool]), schema: `{"type": "object"}`},
	{name: "role", of: ofBoth, parse: read(checkRole)}, // before the keys of primary networks
	{name: "args", parse: refuse},
}

var addressKeys = []key{
	{
		name: "topology", of: ofBoth, parse: read((*Network).setTopology), change: refusedChange,
		value: func(n *Network) any { return n.Topology },
		line:  "Topology", dash: true, schema: `{"enum": ["layer2", "layer3", "localnet"]}`,
		doc: "`layer2`: one logical switch over all nodes; `layer3`: one on each node, routed; `localnet`: " +
			"a physical network. [Pictures](topologies.md)",
		preset: "`layer2`",
	},
	{
		name: "subnets", of: ofBoth, parse: read((*Network).setSubnets), change: mayGrow, keeps: (*Network).keepSubnets,
		value:  func(n *Network) any { return n.subnetsText() },
		schema: `{"$ref": "#/definitions/subnets"}`,
		doc: "`\"10.1.0.0/16\"`, or one of each family: `\"10.1.0.0/16,fd01::/64\"`. In IPv6 pods get the first 2³² " +
			"addresses; a pod may request any other. On `layer3` with the prefix length of a node subnet: " +
			"`\"10.128.0.0/16/24\"`",
		preset: "none: no IP addresses, only a MAC; `layer3` needs a subnet",
	},
	{
		name: "excludeSubnets", of: ofBoth, parse: read((*Network).setExclude), check: (*Network).checkRoom,
		most: MaxExclude, count: func(n *Network) int { return len(n.Exclude) }, change: forNewPods,
		value: func(n *Network) any {
			return joinWords(slices.SortedFunc(slices.Values(n.Exclude), comparePrefixes), ",")
		},
		line: "Excluded", dash: true, schema: `{"$ref": "#/definitions/cidrs"}`,
		doc:    "ranges of the subnets that no pod gets, at most 256; for machines outside Kubernetes",
		preset: "none",
	},
	{
		name: "gateway", parse: read((*Network).setGateways), change: refusedChange, keeps: (*Network).keepGateways,
		value:  func(n *Network) any { return joinWords(n.Gateways, ",") },
		schema: `{"type": "string", "minLength": 1}`,
		doc:    "one address of each subnet that no pod gets; the router has this address",
		preset: "the first of each subnet",
	},
}

var routerKeys = []key{
	{
		name: "router", parse: read((*Network).setRouter), change: atOnce,
		value: func(n *Network) any { return n.Router }, // the full name
		line:  "Router", dash: true, schema: `{"type": "string", "minLength": 1}`,
		doc: "the logical router that the network joins: `core`, `<namespace>/core` or `/core`, " +
			"see [Routers](#routers)",
		preset: "none: isolated",
	},
	{
		name: "routerGuests", parse: read((*Network).setGuests), change: atOnce,
		value: func(n *Network) any { return n.guestsText() },
		line:  "Router guests", show: (*Network).guestWords, schema: `{"type": "array", "items": {"type": "object"}}`,
		doc: "`[{\"namespace\": \"web\", \"subnets\": \"10.2.0.0/16\"}]`: other namespaces that may join " +
			"the router",
		preset: "none",
	},
	{
		name: "snat", parse: read((*Network).setSNAT), change: atOnce,
		value: func(n *Network) any { return n.SNAT },
		line:  "Requested SNAT", schema: `{"type": "boolean"}`,
		doc: "whether the gateway of the router replaces the pods' source addresses by its own; refused on another " +
			"namespace's router, and on a router of the operator without `maySetSNAT`, see [Routers](#routers)",
		preset: "as the gateway's configuration says",
	},
}

var portKeys = []key{
	{
		name: "routes", parse: read((*Network).setRoutes), change: forNewPods,
		most: MaxRoutes, count: func(n *Network) int { return len(n.Routes) },
		value: func(n *Network) any { return n.sortedRoutes() },
		line:  "Routes", dash: true, show: (*Network).routeWords, schema: `{"type": "array", "items": {"type": "object"}}`,
		doc: "`[{\"dst\": \"10.99.0.0/16\", \"gw\": \"10.1.0.1\"}]`: routes of each pod, at most 256; without `gw` " +
			"the network's gateway, with `\"scope\": 253` [on the link](#routes-on-the-link)",
		preset: "none",
	},
	{
		name: "mtu", of: ofBoth, parse: read((*Network).setMTU), change: forNewPods,
		value: func(n *Network) any { return n.MTU },
		line:  "MTU", dash: true, schema: `{"type": "integer", "minimum": 68}`,
		doc:    "MTU of the interfaces, in bytes, see [MTU](#mtu)",
		preset: "what the node with the smallest underlay carries; on `localnet` the smallest MTU of the nodes' bridges",
	},
	{
		name: "portSecurity", parse: read((*Network).setPortSecurity), change: forNewPods,
		value: func(n *Network) any { return &n.PortSecurity },
		line:  "Port security", show: (*Network).openWord, schema: `{"type": "boolean"}`,
		doc: "with `false`, pods may send from any address and MAC; this " +
			"[needs a grant of the operator](#networks-without-port-security); refused on another namespace's router, " +
			"and on a router of the operator without `mayDisablePortSecurity`, see [Routers](#routers)",
		preset: "`true`",
	},
	{
		name: "securityProfiles", parse: read((*Network).setProfiles), change: forNewPods,
		most: MaxProfiles, count: func(n *Network) int { return len(n.SecurityProfiles) },
		value: func(n *Network) any { return n.SecurityProfiles },
		line:  "Security profiles", show: func(n *Network) string { return strings.Join(n.SecurityProfiles, ",") },
		schema: `{"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": true}`,
		doc: "`[\"web-only\"]`: the [security profiles](policy.md#security-profiles) of all ports on the network, " +
			"at most 16; the operator allows them for the pods' namespaces",
		preset: "none",
	},
}

var localnetKeys = []key{
	{
		name: "physicalNetworkName", of: ofBoth, only: Localnet, parse: read((*Network).setPhysical), change: refusedChange,
		value: func(n *Network) any { return n.Physical },
		line:  "Physical network", show: (*Network).physicalWords, schema: `{"type": "string", "minLength": 1}`,
		doc: "the name of the physical network in the nodes' `ovn-bridge-mappings`; the operator " +
			"[grants](topologies.md#localnet-a-physical-network) it to namespaces",
		preset: "required there",
	},
	{
		name: "vlanID", of: ofBoth, only: Localnet, parse: read((*Network).setVLAN), change: refusedChange,
		value: func(n *Network) any { return n.VLAN }, none: untagged, // physicalNetworkName's line has it
		schema: `{"type": "integer", "minimum": 1, "maximum": 4094}`, doc: "1 to 4094", preset: untagged,
	},
	{
		name: "addressConflictWait", only: Localnet, parse: read((*Network).setConflictWait), change: forNewPods,
		value: (*Network).conflictWaitText,
		line:  "Conflict wait", schema: `{"type": "string", "minLength": 1}`,
		doc: "how long an ADD waits for hosts outside that [use the pod's addresses]" +
			"(topologies.md#addresses-that-hosts-outside-use), and then fails: a duration like `\"2s\"`, from `\"1s\"` to " +
			"`\"10s\"`",
		preset: "pods start at once, and an Event warns",
	},
	{
		name: "allowPersistentIPs", of: ofBoth, parse: read((*Network).setPersistent), check: (*Network).checkPersistent,
		change: forNewPods,
		value:  func(n *Network) any { return n.PersistentIPs },
		line:   "Persistent addresses", schema: `{"type": "boolean"}`,
		doc: "with `true`, an interface that names an `IPAMClaim` keeps its addresses and its MAC " +
			"[from pod to pod](vms.md); not on `layer3`",
		preset: "`false`",
	},
	{
		name: "dhcp", parse: read((*Network).setDHCP), check: (*Network).checkDHCP, change: atOnce,
		value: (*Network).dhcpText,
		line:  "DHCP", schema: `{"type": ["boolean", "object"]}`,
		doc: "with `true`, OVN answers DHCP of [virtual machines](vms.md#dhcp) with the address of their port; or " +
			"`{\"dns\": [\"10.1.0.53\"], \"domain\": \"example.org\", \"leaseTime\": \"1h\", \"defaultRoute\": false}`; " +
			"not on `layer3`",
		preset: "`false`",
	},
	{
		name: "ranges", parse: read((*Network).setRanges), check: (*Network).checkRoom, change: forNewPods,
		most: MaxRanges, count: func(n *Network) int { return len(n.Ranges) },
		value: (*Network).rangesJSON,
		line:  "Ranges", show: (*Network).rangeWords, schema: `{"type": "array", "items": {"type": "object"}}`,
		doc: "`[{\"from\": \"10.1.0.100\", \"to\": \"10.1.0.199\"}]`: the addresses of pods and Services that request " +
			"none, at most 64; of a subnet without any, all. A pod may still request any other; not on `layer3`",
		preset: "the subnets",
	},
	{
		name: "virtualAddresses", parse: read((*Network).setVirtualAddresses), check: (*Network).checkRoom,
		most: MaxVirtualAddresses, count: func(n *Network) int { return len(n.VirtualAddresses) },
		change: mayGrow, keeps: (*Network).keepVirtualAddresses,
		value: (*Network).virtualAddressesJSON,
		line:  "Virtual addresses of pods", show: (*Network).virtualAddressWords,
		schema: `{"type": "array", "items": {"type": "object"}}`,
		doc: "`[{\"address\": \"10.1.0.100\", \"selector\": {\"app\": \"router\"}}]`: addresses that the selected pods " +
			"[share, by VRRP for example](topologies.md#virtual-addresses-of-pods), at most 16; not on `layer3`",
		preset: "none",
	},
	{
		name: "subnetsBehind", parse: read((*Network).setSubnetsBehind), check: (*Network).checkRoom, change: atOnce,
		most: MaxSubnetsBehind, count: func(n *Network) int { return len(n.SubnetsBehind) },
		value: (*Network).subnetsBehindJSON,
		line:  "Subnets behind pods", show: (*Network).subnetBehindWords,
		schema: `{"type": "array", "items": {"type": "object"}}`,
		doc: "`[{\"subnet\": \"10.60.0.0/16\", \"via\": \"10.1.0.5\"}]`: subnets that are reached " +
			"[through pods](topologies.md#subnets-behind-pods), at most 16; not on `layer3`",
		preset: "none",
	},
}

// overlayKeys are further keys of ovn-kubernetes' NADs. Those of its own plugin have no effect.
var overlayKeys = slices.Concat(
	[]key{{
		name: "netAttachDefName", of: ofBoth, parse: read((*Network).checkNAD),
		doc: "if given, it must be `<namespace>/<name>` of this very NAD",
	}},
	ofOvnKubernetes(refuse, "joinSubnet", "joinSubnets", "transitSubnet", "reservedSubnets", "infrastructureSubnets",
		"defaultGatewayIPs", "transport", "outboundSNAT", "evpn", "uplink", "capabilities", "ipam", "dns", "deviceID",
		"runtimeConfig", "prevResult"),
	ofOvnKubernetes(read(ignore[json.RawMessage]), "logFile", "logLevel", "logfile-maxsize", "logfile-maxbackups",
		"logfile-maxage", "cniRequestTimeout"),
)

func ofOvnKubernetes(parse parser, names ...string) []key {
	list := make([]key, len(names))
	for i, name := range names {
		list[i] = key{name: name, of: ofOverlay, parse: parse}
	}
	return list
}

// kind is the "type" of the network's configuration.
func (n *Network) kind() string {
	if n.SharedName != "" {
		return conf.OverlayType
	}
	return conf.NetworkType
}
