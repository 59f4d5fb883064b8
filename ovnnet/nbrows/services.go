package nbrows

import (
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// The load balancers of services are in one group for each scope. The scope of a network on a router is the router:
// clients on all networks of the router reach the services of each. Any other network is a scope of its own. A switch
// without a router delivers no packet to a virtual address, so such a network gets a private router of one port.

// KeyServiceNetwork is in a load balancer, and in the private router of a network and its ports. It has the network's
// ID. It is not KeyNetwork, because a network repairs and deletes rows with that key as its own.
const KeyServiceNetwork = "ovn-multinet/service-network"

// ServiceGroups is the column of switches and routers that refers to groups.
const ServiceGroups = "load_balancer_group"

// The beginnings of scopes.
const (
	networkScope = "network "
	routerScope  = "router "
)

// ServiceScope returns the scope of a network: "network <id>" or "router <name>".
func ServiceScope(network *netmodel.Network) string {
	if router := network.RouterName(); router != "" {
		return routerScope + router
	}
	return NetworkScope(network.ID())
}

// NetworkScope returns the scope of a network that is on no router.
func NetworkScope(id string) string { return networkScope + id }

// DeleteServices deletes the rows of all services on a network that is deleted in the same transaction: the load
// balancers, and the network's private router with its group. The server scans the load balancers.
func (b *Batch) DeleteServices(id string) {
	balancers := ovndb.Delete(nb.LoadBalancerTable, "")
	balancers.Where = []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes,
		ovndb.Map(map[string]string{KeyServiceNetwork: id}))}
	b.Add(balancers, ovndb.Delete(nb.LogicalRouterTable, ovndb.ServiceRouterKey(id)),
		ovndb.Delete(nb.LoadBalancerGroupTable, ovndb.ServiceGroupKey(NetworkScope(id))))
}

// DeleteRouterServices deletes the group of a router that is deleted in the same transaction.
func (b *Batch) DeleteRouterServices(router string) { b.DeleteServiceGroup(routerScope + router) }

// DeleteServiceGroup deletes the group of a scope, and all references to it. The server scans switches and routers.
func (b *Batch) DeleteServiceGroup(scope string) {
	key := ovndb.ServiceGroupKey(scope)
	b.Add(ovndb.Unlink(nb.LogicalSwitchTable, ServiceGroups, key),
		ovndb.Unlink(nb.LogicalRouterTable, ServiceGroups, key),
		ovndb.Delete(nb.LoadBalancerGroupTable, key))
}
