package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
)

// reconcileGateway ensures the rows of a router's gateway on the nodes that have the gateway's label, and queues the
// next pass over the gateway.
func (c *Controller) reconcileGateway(ctx context.Context, i engine.Item) error {
	router := i.Key
	r := c.gateways.WithGateway(router)
	if r == nil {
		return nil // the operator has deleted the gateway from the configuration
	}
	chosen, err := labels.Parse(r.Nodes)
	if err != nil {
		return fmt.Errorf("router %s: gatewayNodes: %w", router, err)
	}
	nodes, err := c.nodesNow(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, node := range nodes {
		if chosen.Matches(labels.Set(node.Labels)) {
			names = append(names, node.Name)
		}
	}
	var chassis []gateway.Chassis // nil if the source knows no nodes: the gateway keeps its present nodes
	if nodes != nil {
		if chassis, err = c.gateways.ChassisOf(ctx, names); err != nil {
			return err
		}
	}
	c.gateways.SetMTU(router, c.paths.Gateway(r))
	if _, err := c.gateways.Ensure(ctx, r, chassis); err != nil {
		return err
	}
	problem := problemOf(r, names, chassis)
	c.logNodes(router, names, chassis, problem)
	if nodes != nil {
		c.kinds.entries.Gateway(router, problem)
	}
	c.engine.AddAfter(gatewayItem(router), gatewayEvery)
	return nil
}

// nodesNow lists the nodes. It waits at most one second, because the worker makes no other pass meanwhile.
func (c *Controller) nodesNow(ctx context.Context) ([]netmodel.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return c.source.Nodes(ctx)
}

// logNodes logs the nodes of a gateway, and its problem, if they have changed. names are the nodes with the label,
// chassis are the nodes among them whose chassis is known.
func (c *Controller) logNodes(router string, names []string, chassis []gateway.Chassis, problem string) {
	var without []string
	for _, name := range names {
		if !slices.ContainsFunc(chassis, func(c gateway.Chassis) bool { return c.Node == name }) {
			without = append(without, name)
		}
	}
	text := fmt.Sprint(names, without, problem)
	if c.nodes[router] == text {
		return
	}
	c.nodes[router] = text
	switch {
	case problem != "":
		c.log.Warn("the networks of a gateway have no way out", "router", router, "why", problem)
	case len(without) > 0:
		c.log.Warn("the chassis of some nodes of a gateway are unknown: is ovn-multinetd running on these nodes?",
			"router", router, "nodes", without)
	default:
		c.log.Info("gateway is in sync", "router", router, "nodes", names)
	}
}

// problemOf says what the gateway of a router lacks, in the words of an operator; "": nothing. names are the nodes with
// the label.
func problemOf(r *netmodel.Router, names []string, chassis []gateway.Chassis) string {
	switch {
	case len(names) == 0:
		return fmt.Sprintf("gatewayNodes: no node has the label %s, so there is no way out; label a node", r.Nodes)
	case len(chassis) == 0:
		return fmt.Sprintf("the nodes of the gateway have no chassis in OVN: see the pods of ovn-node and of the agent on %s",
			strings.Join(names, ", "))
	case !slices.ContainsFunc(chassis, func(c gateway.Chassis) bool { return c.HasPhysical(r.Physical) }):
		return fmt.Sprintf("physicalNetworkName: none of the gateway's nodes has a bridge for %s: write uplinks for them "+
			"into an object PhysicalNetwork (nodes: %s)", r.Physical, strings.Join(names, ", "))
	}
	return ""
}
