package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
)

// syncGateway brings a router's gateway in step with the nodes that are chosen for it, and comes back.
func (c *Controller) reconcileGateway(ctx context.Context, router string) error {
	r := c.gateways.WithGateway(router)
	if r == nil {
		return nil // the operator has taken it out of the configuration
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
	var chassis []gateway.Chassis // nil, where nobody says which nodes there are: those that the gateway has stay
	if nodes != nil {
		if chassis, err = c.gateways.ChassisOf(ctx, names); err != nil {
			return err
		}
	}
	if _, err := c.gateways.Ensure(ctx, r, chassis); err != nil {
		return err
	}
	c.logNodes(router, names, chassis)
	c.queue.AddAfter(gatewayItem(router), gatewayEvery)
	return nil
}

// nodesNow does not wait long: all networks wait with it.
func (c *Controller) nodesNow(ctx context.Context) ([]netmodel.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return c.source.Nodes(ctx)
}

// tellNodes logs which nodes a gateway has, when that changes.
func (c *Controller) logNodes(router string, names []string, chassis []gateway.Chassis) {
	var without []string
	for _, name := range names {
		if !slices.ContainsFunc(chassis, func(c gateway.Chassis) bool { return c.Node == name }) {
			without = append(without, name)
		}
	}
	text := fmt.Sprint(names, without)
	if c.nodes[router] == text {
		return
	}
	c.nodes[router] = text
	switch {
	case len(names) == 0:
		c.log.Warn("no node has the label of a gateway: nobody gets out by it", "router", router, "gatewayNodes", c.gateways.Router(router).Nodes)
	case len(without) > 0:
		c.log.Warn("nodes of a gateway whose agent has not said which chassis they are: is ovn-multinetd running there?", "router", router, "nodes", without)
	default:
		c.log.Info("gateway is in step", "router", router, "nodes", names)
	}
}
