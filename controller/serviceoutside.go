package controller

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/policy"
	"github.com/ovn-multinet/ovn-multinet/service"
)

// knownOutside is what a pass over a Service has found of its outside addresses.
type knownOutside struct {
	wanted bool            // the Service asks for some, as it is or as NB has it
	done   *outside.Result // what NB has; nil: unknown
	waits  int             // passes that found something not ready, or in the way
	pods   map[string]bool // the names of the pods that were selected then
}

// ensureServiceOutside makes NB have the outside addresses of a Service, and puts them into the state. If they are
// refused, the Service goes on without them.
func (c *Controller) ensureServiceOutside(
	ctx context.Context, network string, one *service.Service, pods []service.Pod, state *service.State,
) error {
	known, id := c.services.known[one.ID()], one.ID()
	if one.Outside == nil {
		return c.endServiceOutside(ctx, one.Namespace, id)
	}
	known.outside.wanted = true
	if err := c.queueBalanced(ctx, one.Namespace, known); err != nil {
		return err
	}
	if known.outside.done == nil {
		result, why, err := c.writeServiceOutside(ctx, network, one, pods)
		if err != nil {
			return err
		}
		if why != nil {
			state.Ready, state.Reason = false, "outside address: "+why.Error()
			c.queue.AddAfter(serviceItem(id), growing(outsideEvery, known.outside.waits, waitingLast))
			known.outside.waits++
			known.written = "" // the next pass tries again
			return nil
		}
		known.outside.done, known.outside.waits = result, 0
	}
	state.Outside = known.outside.done.Addresses
	if _, beyond := one.Backends(state.Outside, pods); beyond > 0 {
		state.Reason = beyondLimit(beyond)
	}
	return nil
}

// writeServiceOutside writes the rows of a Service's outside addresses. why says why it cannot have them now.
func (c *Controller) writeServiceOutside(
	ctx context.Context, network string, one *service.Service, pods []service.Pod,
) (result *outside.Result, why, err error) {
	o, id := c.outside, one.ID()
	if o == nil {
		return nil, errors.New("this controller serves none"), nil
	}
	standing, err := c.networks.Stored(ctx, network)
	if err != nil {
		return nil, nil, err
	}
	router, why, err := c.outsideRouter(ctx, network)
	if err != nil {
		return nil, nil, err
	}
	if why != nil || standing.Config == nil {
		return nil, why, c.deleteServiceOutside(ctx, id, "")
	}
	if err := c.deleteServiceOutside(ctx, id, router.Name); err != nil {
		return nil, nil, err
	}
	wanted := wantedOutside(router, standing.Config, one, pods)
	o.note(outside.Key{Router: router.Name, User: wanted.User}) // also if the answer is lost
	result, err = o.rows.Ensure(ctx, wanted)
	if refused, ok := errors.AsType[*nbrows.Refused](err); ok {
		return nil, refused, nil
	}
	if errors.Is(err, outside.ErrNotReady) {
		return nil, err, nil
	}
	if err == nil && result.Changed {
		c.log.Info("outside addresses of a service are in step", "service", id, "router", router.Name)
	}
	return result, nil, err
}

// wantedOutside is what NB should have for the outside addresses of a Service.
func wantedOutside(
	router *netmodel.Router, network *netmodel.Network, one *service.Service, pods []service.Pod,
) *outside.Wanted {
	wanted := &outside.Wanted{
		Router: router, User: outside.User{Namespace: one.Namespace, Service: one.Name}, Kind: outside.Balanced,
		Inside: one.Families(network), Fixed: one.Outside.Fixed,
		Balancer: &outside.Balancer{
			Vips: func(addresses []netip.Addr) map[string]map[string]string {
				vips, _ := one.Backends(addresses, pods)
				return vips
			},
			Affinity: one.Affinity, Sources: one.Outside.Sources,
		},
	}
	if one.Outside.Gateway {
		wanted.Kind = outside.Forwarded
		for _, p := range one.Ports {
			wanted.Ports = append(wanted.Ports, outside.Port{Protocol: p.Protocol, Number: p.Port})
		}
	}
	return wanted
}

// endServiceOutside deletes the rows of the outside addresses of a Service that has none any more.
func (c *Controller) endServiceOutside(ctx context.Context, namespace, id string) error {
	if known := c.services.known[id]; known != nil {
		known.outside.wanted = false
		if err := c.queueBalanced(ctx, namespace, known); err != nil {
			return err
		}
	}
	return c.deleteServiceOutside(ctx, id, "")
}

// deleteServiceOutside deletes the rows of a Service's outside addresses on all routers but one.
func (c *Controller) deleteServiceOutside(ctx context.Context, id, except string) error {
	if c.outside == nil {
		return nil
	}
	if err := c.outside.list(ctx); err != nil {
		return err
	}
	written := c.outside.ofService[id]
	for key := range written {
		if key.Router == except {
			continue
		}
		changed, err := c.outside.rows.Delete(ctx, key)
		if err != nil {
			return err
		}
		if changed {
			c.log.Info("outside addresses are released", "user", key.User, "router", key.Router)
		}
		delete(written, key)
	}
	if len(written) == 0 {
		delete(c.outside.ofService, id)
	}
	return nil
}

// queueBalanced queues the pods with outside addresses whose form may depend on a Service: those that it selects, and
// those that it has selected at the last time.
func (c *Controller) queueBalanced(ctx context.Context, namespace string, known *knownService) error {
	if c.outside == nil || known == nil || !known.outside.wanted && len(known.outside.pods) == 0 {
		return nil
	}
	before, now := known.outside.pods, known.pods
	if !known.outside.wanted {
		now = nil
	}
	var names []string
	for name := range now {
		if !before[name] {
			names = append(names, name)
		}
	}
	for name := range before {
		if !now[name] {
			names = append(names, name)
		}
	}
	known.outside.pods = now
	if len(names) == 0 {
		return nil
	}
	pods, err := c.outside.source.PolicyPods(ctx, namespace)
	if err != nil {
		return err
	}
	all := map[string]*policy.Pod{}
	for _, pod := range pods {
		all[pod.Name] = pod
	}
	c.queueOutsideOf(namespace, names, all)
	return nil
}

// isBalanced tells whether a Service with outside addresses selects the pod. Its floating address must be translated by
// the gateway's node then, where the load balancer is: the pod's own node would send the replies to outside clients
// with the wrong source address.
func (c *Controller) isBalanced(ctx context.Context, pod *policy.Pod) (bool, error) {
	s := c.services
	if s == nil {
		return false, nil
	}
	for id := range s.of[pod.Namespace] { // also what was accepted before, if its object is refused now
		if known := s.known[id]; known.outside.wanted && known.pods[pod.Name] {
			return true, nil
		}
	}
	all, err := s.source.Services(ctx, pod.Namespace)
	return slices.ContainsFunc(all, func(o *service.Object) bool {
		if o.Service == nil || o.Service.Outside == nil {
			return false
		}
		selector, err := labels.Parse(o.Service.Pods)
		return err == nil && selector.Matches(labels.Set(pod.Labels))
	}), err
}
