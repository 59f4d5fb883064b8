package nbrows

import (
	"context"
	"strings"

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
	outsideScope = "outside "
)

// ServiceScope returns the scope of a network: "network <id>" or "router <name>".
func ServiceScope(network *netmodel.Network) string {
	if router := network.RouterName(); router != "" {
		return RouterScope(router)
	}
	return NetworkScope(network.ID())
}

// RouterScope returns the scope of the networks on a router.
func RouterScope(router string) string { return routerScope + router }

// NetworkScope returns the scope of a network that is on no router.
func NetworkScope(id string) string { return networkScope + id }

// OutsideScope returns the scope of the load balancers with outside addresses of a router. The router's gateway refers
// to their group, and so do the switches of the router's networks: clients there reach the outside addresses too.
func OutsideScope(router string) string { return outsideScope + router }

// GroupsOf returns the keys of the groups that the switches of a network on a router refer to, if the groups exist.
func GroupsOf(network *netmodel.Network) []string {
	return []string{
		ovndb.ServiceGroupKey(ServiceScope(network)), ovndb.ServiceGroupKey(OutsideScope(network.RouterName())),
	}
}

// GroupPrefix is the prefix of the names of our groups. The rest is the scope.
const GroupPrefix = "ovn-multinet "

// Protocols are those of load balancers.
var Protocols = []string{nb.LoadBalancerProtocolTCP, nb.LoadBalancerProtocolUDP, nb.LoadBalancerProtocolSCTP}

// SetBalancer sets what is the same in all load balancers of services. OVN answers a connection to a service without
// backends with a reset or an ICMP error. A backend that connects to its own service gets the reply by hairpin_snat_ip:
// one address of each family. Of UDP, ovn-controller ends connections to removed backends (ct_flush), as kube-proxy
// does; TCP and SCTP notice the end of a backend themselves, and one that is being deleted may end its connections in
// order. Package ended has the cases that ct_flush does not cover.
func SetBalancer(row *nb.LoadBalancer, protocol, addresses string, affinity bool) {
	row.Protocol = &protocol
	row.Options = map[string]string{"reject": "true", "hairpin_snat_ip": addresses}
	if protocol == nb.LoadBalancerProtocolUDP {
		row.Options["ct_flush"] = "true"
	}
	if affinity { // affinity_timeout loses the first connection of each client
		row.SelectionFields = []string{nb.LoadBalancerSelectionFieldsIPDst, nb.LoadBalancerSelectionFieldsIPSrc}
	}
}

// EnterGroup adds the load balancers that are not in the group at that key. If the group is missing, create adds the
// operations that make it.
func (n *Store) EnterGroup(
	ctx context.Context, b *Batch, key string, balancers []string, create func() error,
) error {
	ops := []ovsdb.Operation{ovndb.Select(nb.LoadBalancerGroupTable, key, "_uuid")}
	for _, balancer := range balancers { // the server answers whether it is a member: the group may have thousands
		op := ovndb.Select(nb.LoadBalancerGroupTable, key, "_uuid")
		op.Where = append(op.Where,
			ovsdb.NewCondition("load_balancer", ovsdb.ConditionIncludes, ovndb.UUIDs([]string{balancer})))
		ops = append(ops, op)
	}
	results, err := n.Db.Transact(ctx, ops)
	if err != nil {
		return err
	}
	if len(results[0].Rows) == 0 {
		if err := create(); err != nil {
			return err
		}
	}
	var more []string
	for i, balancer := range balancers {
		if len(results[1+i].Rows) == 0 {
			more = append(more, balancer)
		}
	}
	if len(more) > 0 {
		b.Add(ovndb.Present(nb.LoadBalancerGroupTable, key),
			ovndb.Link(nb.LoadBalancerGroupTable, key, "load_balancer", more...))
	}
	return nil
}

// ExitGroup removes load balancers from the group at that key. If it has no others, destroy adds the operations that
// delete it.
func (n *Store) ExitGroup(ctx context.Context, b *Batch, key string, balancers []string, destroy func()) error {
	op := ovndb.Select(nb.LoadBalancerGroupTable, key, "_uuid")
	only := ovsdb.NewCondition("load_balancer", ovsdb.ConditionEqual, ovndb.UUIDs(balancers))
	op.Where = append(op.Where, only)
	results, err := n.Db.Transact(ctx, []ovsdb.Operation{op})
	if err != nil {
		return err
	}
	if len(results[0].Rows) > 0 {
		guard := ovndb.Present(nb.LoadBalancerGroupTable, key)
		guard.Where = append(guard.Where, only)
		destroy()
		b.First(guard) // before the load balancers are deleted
		return nil
	}
	if len(balancers) > 0 {
		b.Add(ovndb.UnlinkOne(nb.LoadBalancerGroupTable, key, "load_balancer", balancers...))
	}
	return nil
}

// AddSwitches adds the keys of the switches at a router's ports, of networks that of accepts.
func (n *Store) AddSwitches(
	ctx context.Context, keys map[string]bool, router string, ports []string, of func(network string) bool,
) error {
	rows, err := ovndb.ReadByKey[nb.LogicalRouterPort](
		ctx, n.Db, nb.LogicalRouterPortTable, ports, "_uuid", "name", "external_ids")
	for _, port := range rows {
		name, ok := strings.CutPrefix(port.Name, router+":")
		if ok && port.UUID == ovndb.RouterPortKey(name) && of(port.ExternalIDs[KeyNetwork]) {
			keys[ovndb.SwitchKey(name)] = true
		}
	}
	return err
}

// DeleteServices deletes the rows of all services on a network that is deleted in the same transaction: the load
// balancers, and the network's private router with its group. The server scans the load balancers.
func (b *Batch) DeleteServices(id string) {
	balancers := ovndb.Delete(nb.LoadBalancerTable, "")
	balancers.Where = []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes,
		ovndb.Map(map[string]string{KeyServiceNetwork: id}))}
	b.Add(balancers, ovndb.Delete(nb.LogicalRouterTable, ovndb.ServiceRouterKey(id)),
		ovndb.Delete(nb.LoadBalancerGroupTable, ovndb.ServiceGroupKey(NetworkScope(id))),
		ovndb.Delete(nb.CoppTable, ovndb.EndedServedKey(NetworkScope(id))))
}

// DeleteRouterServices deletes the group and the list of ended connections of a router that is deleted in the same
// transaction.
func (b *Batch) DeleteRouterServices(router string) {
	scope := RouterScope(router)
	b.DeleteServiceGroup(scope)
	b.Add(ovndb.Delete(nb.CoppTable, ovndb.EndedServedKey(scope)))
}

// DeleteServiceGroup deletes the group of a scope, and all references to it. The server scans switches and routers.
func (b *Batch) DeleteServiceGroup(scope string) {
	key := ovndb.ServiceGroupKey(scope)
	b.Add(ovndb.Unlink(nb.LogicalSwitchTable, ServiceGroups, key),
		ovndb.Unlink(nb.LogicalRouterTable, ServiceGroups, key),
		ovndb.Delete(nb.LoadBalancerGroupTable, key))
}
