package entry

// Kind is a kind of the operator's objects.
type Kind struct {
	Name, Plural, Short string
	doc                 string
	keys                []key
	names               []string // the keys that name the entry; they do not change
	rules               []rule
	columns             []column
	entry               func(*Object) string
	join                func(*joined, *Object) error
}

// Keys returns the names of the keys of a spec.
func (k *Kind) Keys() (names []string) {
	for i := range k.keys {
		names = append(names, k.keys[i].name)
	}
	return names
}

// key is a key of a spec.
type key struct {
	name     string
	schema   string // in JSON
	doc      string
	required bool
}

// rule is a rule in CEL about the spec (Kubernetes, CustomResourceDefinition, "Validation rules").
type rule struct{ cel, message string }

// column is a column that kubectl get shows.
type column struct{ name, path string }

// Kinds are all kinds, in the order in which Join reads them: a pool is of a router.
var Kinds = []*Kind{physicalNetwork, routerKind, addressPool, securityProfile}

// fixed refuses a change of a key: the object would describe another entry, and end the one that it has described.
func fixed(name string) rule {
	return rule{
		"has(self." + name + ") == has(oldSelf." + name + ") && (!has(self." + name + ") || self." + name + " == oldSelf." +
			name + ")",
		name + " does not change: create another object, and delete this one when nobody uses it",
	}
}

const (
	namespaceList = `{"type": "array", "minItems": 1, "maxItems": 1024, "items": {"type": "string", "maxLength": 64}}`
	subnetList    = `{"type": "string", "minLength": 1, "maxLength": 4096}`
	number        = `{"type": "object", "minProperties": 1, "maxProperties": 1024, "additionalProperties": ` +
		`{"type": "integer", "minimum": 0}}`
	routerName = `{"type": "string", "maxLength": 127, ` +
		`"pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?/[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}`
)

var physicalNetwork = &Kind{
	Name: "PhysicalNetwork", Plural: "physicalnetworks", Short: "physnet",
	doc: "A physical network: how nodes reach it, and which namespaces may have localnet networks on its VLANs. Several " +
		"objects may describe one physical network: their lists add up.",
	keys: []key{
		{
			name: "physicalNetworkName", schema: `{"type": "string", "minLength": 1, "maxLength": 63}`,
			doc: "the name in the nodes' `ovn-bridge-mappings`; default: the object's name",
		},
		{
			name: "uplinks",
			schema: `{"type": "array", "maxItems": 64, "items": {"type": "object",
				"x-kubernetes-preserve-unknown-fields": true, "properties": {
				"nodes": {"type": "string", "maxLength": 1024},
				"interface": {"type": "string", "minLength": 1, "maxLength": 15},
				"bridge": {"type": "string", "minLength": 1, "maxLength": 15}},
				"x-kubernetes-validations": [{"rule": "has(self.interface) || has(self.bridge)",
				"message": "name the interface that leads to the physical network, or a bridge of Open vSwitch that exists"}]}}`,
			doc: "list of `{nodes: \"rack=b\", interface: eth1}`: these nodes (a label selector; default: all) reach the " +
				"network by this interface, which becomes a port of a bridge that the agent makes. `bridge` names this " +
				"bridge, or without `interface` one that exists. Of several entries a node has the first that fits",
		},
		{
			name: "grants",
			schema: `{"type": "array", "maxItems": 1024, "items": {"type": "object", "required": ["vlans", "namespaces"],
				"x-kubernetes-preserve-unknown-fields": true, "properties": {
				"vlans": {"type": "string", "minLength": 1, "maxLength": 4096},
				"namespaces": ` + namespaceList + `,
				"portSecurity": {"type": "boolean"}}}}`,
			doc: "list of `{vlans: \"100,200-299\", namespaces: [shop]}`: these namespaces may have networks on these VLANs " +
				"(`untagged`: without a VLAN), with `portSecurity: false` also networks without port security, and with " +
				"`subnetsBehind`",
		},
	},
	names:   []string{"physicalNetworkName"},
	rules:   []rule{{"has(self.grants) || has(self.uplinks)", "write grants, uplinks, or both"}},
	columns: []column{{"Physical network", ".spec.physicalNetworkName"}, {"Nodes", ".status.nodes.ready"}},
	entry:   func(o *Object) string { return o.text("physicalNetworkName", o.Name) },
	join:    joinPhysical,
}

var routerKind = &Kind{
	Name: "Router", Plural: "routers", Short: "ovnrouter",
	doc: "A logical router of the whole cluster, or a router with a gateway to a physical network.",
	keys: []key{
		{
			name: "router", schema: routerName,
			doc: "the full name: `/core` is of the whole cluster, `shop/core` of the namespace `shop`; default: `/` and the " +
				"object's name",
		},
		{
			name: "namespaces",
			schema: `{"type": "object", "maxProperties": 1024, "additionalProperties": {"type": "object",
				"required": ["subnets"], "x-kubernetes-preserve-unknown-fields": true, "properties": {
				"subnets": ` + subnetList + `,
				"maySetSNAT": {"type": "boolean"}, "mayDisablePortSecurity": {"type": "boolean"}}}}`,
			doc: "`shop: {subnets: \"10.1.0.0/16\"}`: networks of these namespaces may join; `\"*\"`: all namespaces that are " +
				"not listed; `maySetSNAT`, `mayDisablePortSecurity`: what their networks may write",
		},
		{
			name: "gatewayNodes", schema: `{"type": "string", "minLength": 1, "maxLength": 1024}`,
			doc: "label selector of the gateway's nodes",
		},
		{
			name: "physicalNetworkName", schema: `{"type": "string", "minLength": 1, "maxLength": 63}`,
			doc: "the physical network of the gateway, as in these nodes' `ovn-bridge-mappings`",
		},
		{
			name: "vlanID", schema: `{"type": "integer", "minimum": 1, "maximum": 4094}`,
			doc: "1 to 4094; default: untagged",
		},
		{name: "externalSubnet", schema: subnetList, doc: "the subnet of the physical network, one of each family"},
		{name: "externalAddress", schema: subnetList, doc: "the gateway's own address in each of them"},
		{name: "nextHop", schema: subnetList, doc: "the next router in each of them; default: none"},
		{name: "joinSubnet", schema: subnetList, doc: "between router and gateway; default: `100.64.0.0/24,fd98::/64`"},
		{
			name: "snat", schema: `{"type": "boolean"}`,
			doc: "whether the gateway replaces pods' source addresses by its own; default: `true`",
		},
		{
			name: "portForwards", schema: number,
			doc: "`shop: 5`: how many ports of the gateway's own address a namespace may have",
		},
	},
	names: []string{"router"},
	rules: []rule{
		{
			"[has(self.externalSubnet), has(self.externalAddress), has(self.physicalNetworkName), has(self.gatewayNodes)]" +
				".all(is, is == has(self.externalSubnet))",
			"a gateway needs gatewayNodes, physicalNetworkName, externalSubnet and externalAddress",
		},
	},
	columns: []column{{"Router", ".spec.router"}, {"Gateway", ".spec.externalAddress"}},
	entry:   func(o *Object) string { return o.text("router", "/"+o.Name) },
	join:    joinRouter,
}

var addressPool = &Kind{
	Name: "AddressPool", Plural: "addresspools", Short: "ovnpool",
	doc: "Outside addresses of a router's gateway, which pods and Services of some namespaces may have.",
	keys: []key{
		{name: "router", required: true, schema: routerName, doc: "the full name of the router, like `/core`"},
		{
			name: "pool", schema: `{"type": "string", "minLength": 1, "maxLength": 63}`,
			doc: "the name that pods and Services use; default: the object's name",
		},
		{
			name: "addresses", required: true, schema: `{"type": "string", "minLength": 1, "maxLength": 8192}`,
			doc: "subnets, ranges and addresses in the gateway's external subnets: `192.0.2.16/28,192.0.2.40-192.0.2.49`",
		},
		{
			name: "namespaces", required: true, schema: number,
			doc: "`shop: 5`: how many addresses of each family a namespace may have; `\"*\"`: each namespace that is not listed",
		},
		{
			name: "egressOf", schema: namespaceList,
			doc: "namespaces whose pods have an egress address of the pool without a request",
		},
	},
	names:   []string{"router", "pool"},
	columns: []column{{"Router", ".spec.router"}, {"Addresses", ".spec.addresses"}},
	entry:   func(o *Object) string { return o.text("router", "") + " " + o.text("pool", o.Name) },
	join:    joinPool,
}

var securityProfile = &Kind{
	Name: "SecurityProfile", Plural: "securityprofiles", Short: "secprofile",
	doc: "A port group of the operator in OVN's Northbound database, and the namespaces whose pods may be put into it.",
	keys: []key{
		{
			name: "profile", schema: `{"type": "string", "minLength": 1, "maxLength": 63}`,
			doc: "the name that networks and pods use; default: the object's name",
		},
		{
			name: "portGroup", schema: `{"type": "string", "minLength": 1, "maxLength": 63}`,
			doc: "the port group; default: the profile's name",
		},
		{
			name: "namespaces", required: true, schema: namespaceList,
			doc: "names, or beginnings of names with `*`: `[shop, \"team-*\"]`",
		},
	},
	names:   []string{"profile"},
	columns: []column{{"Port group", ".spec.portGroup"}},
	entry:   func(o *Object) string { return o.text("profile", o.Name) },
	join:    joinProfile,
}
