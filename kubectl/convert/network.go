package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"go4.org/netipx"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
)

// networkSpec is the spec of a Network, and with providerNetType that of a ProviderNetwork.
type networkSpec struct {
	CNIType     string   `yaml:"cniType"`
	IPv4        []subnet `yaml:"ipv4Subnets"`
	IPv6        []subnet `yaml:"ipv6Subnets"`
	DNS         any      `yaml:"dns"`
	Routes      []route  `yaml:"routes"`
	ProviderNet string   `yaml:"providerNetType"`
	VLAN        link     `yaml:"vlan"`
	Direct      link     `yaml:"direct"`
}

type subnet struct {
	Name       string `yaml:"name"`
	Subnet     string `yaml:"subnet"`
	Gateway    string `yaml:"gateway"`
	ExcludeIPs string `yaml:"excludeIps"`
}

type route struct {
	Dst string `yaml:"dst" json:"dst"`
	GW  string `yaml:"gw" json:"gw,omitempty"`
}

// link is how nodes reach a provider network.
type link struct {
	ID             string   `yaml:"vlanId"`
	VLANSelector   string   `yaml:"vlanNodeSelector"`
	DirectSelector string   `yaml:"directNodeSelector"`
	Labels         []string `yaml:"nodeLabelList"`
	Interface      string   `yaml:"providerInterfaceName"`
	Logical        string   `yaml:"logicalInterfaceName"`
}

// network is a network of Nodus.
type network struct {
	networkSpec
	namespace, name string
	provider        bool
	subnets         []netip.Prefix
	gateways        []netip.Addr
	excluded        []netip.Prefix
	vlan            int // 0: untagged
	link            link
}

// physical is a physical network: an interface of nodes, and who may have which VLAN on it.
type physical struct {
	selectors []string // of nodes; "": all
	grants    map[string]map[string]bool
}

// parse reads the addresses. Nodus uses the first subnet of IPv4 alone, and the first address as the gateway if none is
// given.
func (n *network) parse() error {
	for _, list := range [][]subnet{n.IPv4, n.IPv6} {
		if len(list) == 0 {
			continue
		}
		s := list[0]
		p, err := netip.ParsePrefix(s.Subnet)
		if err != nil {
			return fmt.Errorf("subnet: %w", err)
		}
		n.subnets = append(n.subnets, p.Masked())
		gateway := p.Masked().Addr().Next()
		if text, _, _ := strings.Cut(s.Gateway, "/"); text != "" {
			if gateway, err = netip.ParseAddr(text); err != nil {
				return fmt.Errorf("gateway: %w", err)
			}
		}
		n.gateways = append(n.gateways, gateway)
		for _, word := range strings.Fields(s.ExcludeIPs) {
			r, err := netipx.ParseIPRange(strings.Replace(word, "..", "-", 1))
			if !strings.Contains(word, "..") {
				var a netip.Addr
				a, err = netip.ParseAddr(word)
				r = netipx.IPRangeFrom(a, a)
			}
			if err != nil {
				return fmt.Errorf("excludeIps: %w", err)
			}
			n.excluded = append(n.excluded, r.Prefixes()...)
		}
	}
	if len(n.subnets) == 0 {
		return errors.New("it has no ipv4Subnets")
	}
	if !n.provider {
		return nil
	}
	switch n.ProviderNet {
	case "VLAN":
		vlan, err := strconv.Atoi(n.VLAN.ID)
		if err != nil {
			return fmt.Errorf("vlanId: %w", err)
		}
		n.vlan, n.link = vlan, n.VLAN
	case "DIRECT":
		n.link = n.Direct
	default:
		return fmt.Errorf("providerNetType is %q, neither VLAN nor DIRECT", n.ProviderNet)
	}
	if n.link.Interface == "" {
		return errors.New("it has no providerInterfaceName")
	}
	return nil
}

// router is the router of all virtual networks: Nodus has one for the cluster.
const router = "nodus"

// serverKeys are the keys of metadata that belong to the object that the API server has, and not to a new one.
var serverKeys = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "finalizers",
	"ownerReferences", "selfLink"}

// specKeys are the keys of a networkSpec.
var specKeys = []string{
	"cniType", "ipv4Subnets", "ipv6Subnets", "dns", "routes", "providerNetType", "vlan", "direct",
}

// nadConfig is the configuration of a network here.
type nadConfig struct {
	CNIVersion string  `json:"cniVersion"`
	Name       string  `json:"name"`
	Type       string  `json:"type"`
	Topology   string  `json:"topology,omitempty"`
	Physical   string  `json:"physicalNetworkName,omitempty"`
	VLAN       int     `json:"vlanID,omitempty"`
	Subnets    string  `json:"subnets"`
	Exclude    string  `json:"excludeSubnets,omitempty"`
	Gateway    string  `json:"gateway,omitempty"`
	Router     string  `json:"router,omitempty"`
	Routes     []route `json:"routes,omitempty"`
}

func join[T fmt.Stringer](list []T) string {
	words := make([]string, len(list))
	for i, one := range list {
		words[i] = one.String()
	}
	return strings.Join(words, ",")
}

// convertNetwork makes a NAD of a network.
func (c *converter) convertNetwork(d *document, n *network) error {
	config := nadConfig{
		CNIVersion: "1.0.0", Name: n.name, Type: conf.NetworkType, Subnets: join(n.subnets), Exclude: join(n.excluded),
		Gateway: join(n.gateways), Routes: n.Routes,
	}
	if n.provider {
		config.Topology, config.Physical, config.VLAN = "localnet", n.link.Interface, n.vlan
		c.addPhysical(d, n)
	} else {
		config.Router = c.routerOf(n)
	}
	if len(n.IPv4) > 1 || len(n.IPv6) > 1 {
		d.say("Nodus uses the first subnet of a family, and so does this network; the others are not here")
	}
	if n.DNS != nil {
		d.say("dns has no counterpart: pods have the DNS of their first interface")
	}
	if n.CNIType != "" && n.CNIType != "ovn4nfv" {
		d.say("cniType is %q: Nodus leaves such a network to another plugin", n.CNIType)
	}
	if spec := field(d.node, "spec"); spec != nil {
		for i := 0; i+1 < len(spec.Content); i += 2 {
			if key := spec.Content[i].Value; !slices.Contains(specKeys, key) {
				d.say("key %s of the spec is not known, and is left out", key)
			}
		}
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	comment := ""
	for node := d.node; comment == "" && node != nil; { // it is at the document, or at its first key
		comment = node.HeadComment
		if len(node.Content) == 0 {
			break
		}
		node = node.Content[0]
	}
	before := field(d.node, "metadata")
	if d.node, err = nodeOf(nadManifest(n, string(text)+"\n")); err != nil {
		return err
	}
	d.node.HeadComment = comment
	if before != nil && before.Kind == yaml.MappingNode { // with its labels and annotations
		for _, key := range serverKeys {
			setField(before, key, "")
		}
		if field(before, "namespace") == nil {
			setField(before, "namespace", n.namespace)
		}
		*field(d.node, "metadata") = *before
	}
	return nil
}

type manifest struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       any      `yaml:"spec"`
}

type metadata struct {
	Name      string `yaml:"name"`
	Namespace string `yaml:"namespace,omitempty"`
}

func nadManifest(n *network, config string) manifest {
	return manifest{"k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", metadata{n.name, n.namespace},
		map[string]string{"config": config}}
}

// routerOf is the router of a virtual network: that of its namespace, or one of the cluster if several namespaces have
// networks.
func (c *converter) routerOf(n *network) string {
	for _, other := range c.networks {
		if !other.provider && other.namespace != n.namespace {
			return "/" + router
		}
	}
	return router
}

// addPhysical notes how nodes reach a provider network, and who uses it.
func (c *converter) addPhysical(d *document, n *network) {
	p := c.physical[n.link.Interface]
	if p == nil {
		p = &physical{grants: map[string]map[string]bool{}}
		c.physical[n.link.Interface] = p
	}
	selector := ""
	switch n.link.VLANSelector + n.link.DirectSelector {
	case "specific":
		selector = strings.Join(n.link.Labels, ",")
	case "any":
		d.say(`the node selector "any" chooses one node at random; here all nodes get the interface`)
	}
	if !slices.Contains(p.selectors, selector) {
		p.selectors = append(p.selectors, selector)
	}
	vlan := "untagged"
	if n.vlan != 0 {
		vlan = strconv.Itoa(n.vlan)
	}
	if p.grants[vlan] == nil {
		p.grants[vlan] = map[string]bool{}
	}
	p.grants[vlan][n.namespace] = true
	if n.link.Logical != "" {
		d.say("logicalInterfaceName %s is not needed: the node gets no interface of its own for the VLAN; delete it before",
			n.link.Logical)
	}
}

// objects are the operator's objects that the networks need.
func (c *converter) objects() (docs []*document) {
	add := func(kind, name string, spec any, comment string) {
		node, err := nodeOf(manifest{entry.APIVersion, kind, metadata{Name: name}, spec})
		if err == nil { // impossible otherwise: it has texts alone
			docs = append(docs, &document{node: node, kind: kind, name: name, comments: []string{comment}})
		}
	}
	for _, name := range sortedKeys(c.physical) {
		p := c.physical[name]
		uplinks, grants := []any{}, []any{}
		for _, selector := range p.selectors {
			uplink := map[string]string{"interface": name}
			if selector != "" {
				uplink["nodes"] = selector
			}
			uplinks = append(uplinks, uplink)
		}
		for _, vlan := range sortedKeys(p.grants) {
			grants = append(grants, map[string]any{"vlans": vlan, "namespaces": sortedKeys(p.grants[vlan])})
		}
		add("PhysicalNetwork", name, map[string]any{"uplinks": uplinks, "grants": grants},
			fmt.Sprintf("the operator applies this: interface %s of the nodes becomes a port of a bridge", name))
	}
	spaces := map[string][]string{}
	for _, id := range sortedKeys(c.networks) {
		if n := c.networks[id]; !n.provider && c.routerOf(n) != router {
			spaces[n.namespace] = append(spaces[n.namespace], join(n.subnets))
		}
	}
	if len(spaces) > 0 {
		namespaces := map[string]any{}
		for space, subnets := range spaces {
			namespaces[space] = map[string]string{"subnets": strings.Join(subnets, ",")}
		}
		add("Router", router, map[string]any{"namespaces": namespaces},
			"the operator applies this: the networks of these namespaces reach each other, as with Nodus")
	}
	return docs
}
