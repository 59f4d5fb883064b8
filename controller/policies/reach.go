package policies

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/policies"
)

// reach knows which networks reach each other with the addresses of their pods: those on one router, and those on one
// VLAN of a physical network. A group of peers has the ports of all of them (policy.Selector.Across).
type reach struct {
	by map[string]string // by network: its router or VLAN in words; "": no other network reaches it
	// next has the router or VLAN that a network is about to get.
	next map[string]string
	// unread are the networks whose accepted configuration cannot be read: they may be on any router.
	unread map[string]bool
	// listed reports whether this has what NB had when this controller began to lead.
	listed   bool
	gateways *gateway.Gateways
}

func newReach(gateways *gateway.Gateways) *reach {
	return &reach{
		by: map[string]string{}, next: map[string]string{}, unread: map[string]bool{}, gateways: gateways,
	}
}

// forget forgets the networks that NB does not have any more.
func (r *reach) forget(networks map[string]*ovnnet.Listed) {
	isGone := func(id string) bool { return networks[id] == nil }
	maps.DeleteFunc(r.by, func(id, _ string) bool { return isGone(id) })
	maps.DeleteFunc(r.unread, func(id string, _ bool) bool { return isGone(id) })
}

// words are policy.Selector.Across of the peers of ClusterNetworkPolicies on a network. While the network moves from
// one router to another one, its pods may be reached from both.
func (r *reach) words(network string) (all []string) {
	for _, way := range []string{r.by[network], r.next[network]} {
		if way != "" && !slices.Contains(all, way) {
			all = append(all, way)
		}
	}
	return all
}

// together returns the networks of each router and VLAN, in order.
func (r *reach) together() map[string][]string {
	all := map[string][]string{}
	for _, network := range slices.Sorted(maps.Keys(r.by)) {
		for _, way := range r.words(network) {
			all[way] = append(all[way], network)
		}
	}
	return all
}

// joint returns policy.Selector.Across of the peers of a MultiNetworkPolicy on a network: some of the policy's networks
// may reach it.
func (r *reach) joint(network string, networks map[string]bool) string {
	var all []string
	for other := range networks {
		if r.by[other] != "" && r.by[other] == r.by[network] {
			all = append(all, other)
		}
	}
	return policy.JointNetworks(all)
}

// NetworkAccepted notes by which router or VLAN other networks reach a network. accepted is the accepted configuration;
// it is nil also if it cannot be read. The peers of policies depend on that.
func (k *Kind) NetworkAccepted(id string, accepted *netmodel.Network, exists bool) {
	way, unread, r := accepted.ReachedBy(), exists && accepted == nil, k.reach
	if was, known := r.by[id]; known && was == way && r.next[id] == "" && r.unread[id] == unread {
		return
	}
	r.by[id] = way
	delete(r.next, id)
	if delete(r.unread, id); unread {
		r.unread[id] = true
	}
	if len(k.judged[""]) > 0 {
		k.Engine.Add(policiesItem(""))
	}
	for namespace, sets := range k.sets {
		if namespace != "" && sets[id] != nil {
			k.Engine.Add(policiesItem(namespace))
		}
	}
}

// listReach reads, once, by which router or VLAN each network in NB is reached.
func (k *Kind) listReach(ctx context.Context) error {
	if k.reach.listed {
		return nil
	}
	networks, err := k.List(ctx)
	if err != nil {
		return err
	}
	for id, n := range networks {
		k.NetworkAccepted(id, n.Config, true)
	}
	k.reach.listed = true
	return nil
}

// BeforeReach writes the groups of the peers of ClusterNetworkPolicies before a network joins the router or VLAN of its
// wanted configuration: other networks reach it from then on, and it reaches them.
func (k *Kind) BeforeReach(ctx context.Context, network *netmodel.Network, exists bool) error {
	id, way := network.ID(), network.ReachedBy()
	if !exists {
		k.reach.by[id] = way
	} else if way == k.reach.by[id] {
		return nil
	}
	if way == "" {
		return nil
	}
	k.reach.next[id] = way
	if _, err := k.readPolicies(ctx, ""); err != nil {
		return err
	}
	p := k.known
	for _, other := range k.reach.together()[way] {
		if other != id && !slices.Equal(p.joined[other], p.further[other]) {
			if err := k.ensurePolicies(ctx, policies.Scope{Network: other}); err != nil {
				return err
			}
		}
	}
	if exists && len(p.further[id]) > 0 {
		return k.ensurePolicies(ctx, policies.Scope{Network: id})
	}
	return nil
}

// further returns the selectors of groups that each network needs for the ClusterNetworkPolicies of all networks that
// reach it.
func (r *reach) further(sets map[string][]*served) map[string][]policy.Selector {
	byWay, seen := map[string]map[policy.Selector]bool{}, map[*policy.Policy]bool{}
	for _, all := range sets {
		for _, s := range all {
			if seen[s.policy] {
				continue
			}
			seen[s.policy] = true
			for _, peer := range s.policy.Peers() {
				if peer.Across != "" {
					if byWay[peer.Across] == nil {
						byWay[peer.Across] = map[policy.Selector]bool{}
					}
					byWay[peer.Across][peer] = true
				}
			}
		}
	}
	further := map[string][]policy.Selector{}
	for way, networks := range r.together() {
		peers := slices.SortedFunc(maps.Keys(byWay[way]), func(a, b policy.Selector) int {
			return strings.Compare(a.String(), b.String())
		})
		if len(peers) == 0 {
			continue
		}
		for _, network := range networks { // networks share the list, unless they move
			if further[network] == nil {
				further[network] = slices.Clip(peers)
			} else {
				further[network] = append(further[network], peers...)
			}
		}
	}
	return further
}

// gatewayOf returns the router in reach, if it has a gateway.
func (r *reach) gatewayOf(way string) *netmodel.Router {
	name, isRouter := strings.CutPrefix(way, netmodel.RouterWord)
	if !isRouter {
		return nil
	}
	return r.gateways.WithGateway(name)
}

// unenforced returns why a Deny of a ClusterNetworkPolicy does not hold for all peers: by a gateway, pods reach each
// other with addresses that are not their own. It returns nil if the Deny holds.
func (r *reach) unenforced(p *policy.Policy, networks map[string]bool) error {
	if !p.DeniesPods() {
		return nil
	}
	routers, others := map[string][]string{}, map[string]string{} // by VLAN: routers with a gateway there, a network there
	together := r.together()
	for _, way := range slices.Sorted(maps.Keys(together)) {
		if router := r.gatewayOf(way); router != nil {
			vlan := router.PhysicalVLAN().String()
			routers[vlan] = append(routers[vlan], way)
		} else {
			others[way] = together[way][0]
		}
	}
	const words = "a Deny for pods by their labels does not hold for all of them: pods "
	for _, network := range slices.Sorted(maps.Keys(networks)) {
		way := r.by[network]
		if unread := slices.Sorted(maps.Keys(r.unread)); len(unread) > 0 && (way != "" || r.unread[network]) {
			return fmt.Errorf(words+"on network %s may reach network %s: NB has a configuration of %[1]s that this version "+
				"cannot read. Apply or delete its NetworkAttachmentDefinition", unread[0], network)
		}
		router := r.gatewayOf(way)
		if router == nil {
			if len(routers[way]) > 0 {
				return fmt.Errorf(words+"behind the gateway of %s reach network %s by %s with addresses that they share",
					routers[way][0], network, way)
			}
			continue
		}
		vlan := router.PhysicalVLAN().String()
		i := slices.IndexFunc(routers[vlan], func(other string) bool { return other != way })
		switch {
		case others[vlan] != "":
			return fmt.Errorf(words+"on network %s reach network %s by the gateway of %s", others[vlan], network, way)
		case i >= 0:
			return fmt.Errorf(words+"behind the gateway of %s reach network %s by the gateway of %s",
				routers[vlan][i], network, way)
		case router.HasInbound():
			return fmt.Errorf(words+"reach network %s by the outside addresses of %s, with an address that they share",
				network, way)
		}
	}
	return nil
}
