package check

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// clusterNetworks returns the networks of pods and Services. Adjacent ones of nodes are not merged.
func (c *Cluster) clusterNetworks() (pods, services []Subnet) {
	add := func(list *[]Subnet, text, of string) {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			*list = append(*list, Subnet{Of: of, Prefix: prefix.Masked()})
		}
	}
	for i := range c.Flannel {
		var net struct{ Network, IPv6Network string }
		if json.Unmarshal([]byte(c.Flannel[i].Data["net-conf.json"]), &net) == nil {
			for _, text := range []string{net.Network, net.IPv6Network} {
				add(&pods, text, "the pods' network of Flannel")
			}
		}
	}
	for i := range c.Nodes {
		for _, text := range podCIDRs(&c.Nodes[i]) {
			add(&pods, text, "the pods' network of node "+c.Nodes[i].Name)
		}
	}
	for i := range c.ServiceCIDRs {
		for _, text := range c.ServiceCIDRs[i].Spec.CIDRs {
			add(&services, text, "the Services' network")
		}
	}
	for _, text := range c.Services {
		if ip, err := netip.ParseAddr(text); err == nil {
			services = append(services, Subnet{Of: "the address of Service default/kubernetes", Prefix: host(ip)})
		}
	}
	return pods, services
}

func podCIDRs(n *corev1.Node) []string {
	if len(n.Spec.PodCIDRs) > 0 {
		return n.Spec.PodCIDRs
	}
	return []string{n.Spec.PodCIDR}
}

func host(ip netip.Addr) netip.Prefix { return netip.PrefixFrom(ip, ip.BitLen()) }

// nodeAddresses returns the addresses of the nodes.
func (c *Cluster) nodeAddresses() (all []Subnet) {
	for i := range c.Nodes {
		for _, a := range c.Nodes[i].Status.Addresses {
			if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
				continue
			}
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				all = append(all, Subnet{Of: "the address of node " + c.Nodes[i].Name, Prefix: host(ip)})
			}
		}
	}
	return all
}

// networks returns the subnets of the OVN networks that the NADs describe, and those of the plan.
func (c *Cluster) networks(p Plan) []Subnet {
	all := slices.Clone(p.Subnets)
	for i := range c.NADs {
		nad := &c.NADs[i]
		n, err := netmodel.ParseNetwork(nad.Namespace, nad.Name, []byte(nad.Spec.Config))
		if err != nil {
			continue // a network of another plugin, or one that the controller refuses
		}
		for _, prefix := range n.Subnets {
			all = append(all, Subnet{Of: "network " + nad.Namespace + "/" + nad.Name, Prefix: prefix,
				Physical: n.Topology == netmodel.Localnet})
		}
	}
	return all
}

// checkSubnets refuses networks that overlap the cluster's. A pod on such a network has a route to it, so the pod would
// not reach those pods, Services or nodes by its first interface.
func (c *Cluster) checkSubnets(p Plan) (all []Finding) {
	const what, fix = "subnets", "give it another subnet: pods on it would not reach the other by their first interface"
	pods, services := c.clusterNetworks()
	networks := c.networks(p)
	for _, n := range networks {
		for _, other := range append(pods, services...) {
			if n.Prefix.Overlaps(other.Prefix) {
				all = append(all, fault(what, fix,
					"%s of %s overlaps %s, %s", n.Prefix, n.Of, short(other.Prefix), other.Of))
				break // each node has a subnet: one is enough
			}
		}
		for _, node := range c.nodeAddresses() {
			if !n.Prefix.Overlaps(node.Prefix) {
				continue
			}
			if n.Physical {
				break // the nodes may be machines of that network
			}
			all = append(all, fault(what, fix,
				"%s of %s contains %s, %s", n.Prefix, n.Of, short(node.Prefix), node.Of))
			break
		}
	}
	if len(pods) == 0 && !c.unreadable("nodes") {
		all = append(all, warning(what, "compare the subnets of networks with the network of the pods yourself",
			"the nodes do not say which network their pods have (spec.podCIDRs)"))
	}
	if len(all) == 0 && !c.unreadable(what) {
		all = append(all, ok(what, "%d subnets of OVN networks, none overlaps the cluster's networks", len(networks)))
	}
	return append(all, c.checkKeep(p, append(pods, services...))...)
}

// short writes a subnet; a single address without its length.
func short(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// checkKeep compares agent.keepOnPrimary with the networks of pods and Services.
func (c *Cluster) checkKeep(p Plan, cluster []Subnet) (all []Finding) {
	const what = "keep-on-primary"
	for _, n := range cluster {
		inside := slices.ContainsFunc(p.KeepOnPrimary, func(k netip.Prefix) bool {
			return k.Bits() <= n.Prefix.Bits() && k.Contains(n.Prefix.Addr())
		})
		if !inside {
			all = append(all, warning(what, "set agent.keepOnPrimary to the networks of pods and Services",
				"it is %v, without %s, %s: pods whose default route is on a further interface would not reach it",
				p.KeepOnPrimary, short(n.Prefix), n.Of))
		}
	}
	if len(all) > 1 {
		all = append(all[:1], warning(what, all[0].Fix, "%d more networks are missing there", len(all)-1))
	}
	if len(all) == 0 && len(cluster) > 0 {
		all = append(all, ok(what, "%v has the networks of pods and Services", p.KeepOnPrimary))
	}
	return all
}

// checkEndpoints refuses a plan without NB. Whether the nodes reach NB, their facts say.
func (c *Cluster) checkEndpoints(p Plan) []Finding {
	const what = "nb-endpoints"
	switch {
	case p.BringsOVN && len(p.Endpoints) > 0:
		return []Finding{fault(what, "set ovn.enabled to false for an OVN of your own, or give no endpoints",
			"the chart brings OVN (ovn.enabled is true), and ovn.nbEndpoints are given")}
	case !p.KnowsNB || c.unreadable(what):
		return nil
	case len(p.Endpoints) == 0:
		return []Finding{fault(what, "set ovn.nbEndpoints, such as {ssl:192.0.2.1:6641}",
			"no endpoint of OVN's Northbound database is given, and the chart runs no OVN (ovn.enabled is false)")}
	}
	nb := conf.NB{Endpoints: p.Endpoints}
	if ssl(p.Endpoints) { // the files are in the pods
		nb.Certificate, nb.PrivateKey, nb.CACert = "/tls.crt", "/tls.key", "/ca.crt"
	}
	if err := nb.Validate(); err != nil {
		return []Finding{fault(what, "correct ovn.nbEndpoints", "%v", err)}
	}
	return []Finding{ok(what, "%s", fmt.Sprint(p.Endpoints))}
}
