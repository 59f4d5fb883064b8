package services

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// knownOutside is what a pass over a Service has found of its outside addresses.
type knownOutside struct {
	wanted bool            // the Service asks for some, as it is or as NB has it
	done   *outside.Result // what NB has; nil: unknown
	pods   map[string]bool // the names of the pods that were selected then
	// inside is where all selected pods take the connections, also those for which the namespace has no room.
	inside map[string][]netip.AddrPort
}

// ensureOutside makes NB have the outside addresses of a Service, and puts them into the state. If they are
// refused, the Service goes on without them.
func (k *Kind) ensureOutside(
	ctx context.Context, network string, one *service.Service, pods []service.Backend, state *service.State,
) error {
	known, id := k.known[one.ID()], one.ID()
	if one.Outside == nil {
		return k.endOutside(ctx, one.Namespace, id)
	}
	known.outside.wanted = true
	if err := k.queueBalanced(ctx, one.Namespace, known); err != nil {
		return err
	}
	if known.outside.done == nil {
		result, why, err := k.writeOutside(ctx, network, one, pods)
		if err != nil {
			return err
		}
		if why != nil {
			state.Ready, state.Reason = false, "outside address: "+why.Error()
			k.Engine.TryLater(Item(id), engine.Obstacle{Name: obstacleOutside, First: engine.NotReadyEvery})
			known.written = "" // the next pass tries again
			return nil
		}
		known.outside.done = result
		k.Engine.Tried(Item(id), obstacleOutside)
	}
	state.Outside = known.outside.done.Addresses
	if _, beyond := one.Backends(state.Outside, pods); beyond > 0 {
		state.Reason = beyondLimit(beyond)
	}
	return nil
}

// writeOutside writes the rows of a Service's outside addresses. why says why it cannot have them now.
func (k *Kind) writeOutside(
	ctx context.Context, network string, one *service.Service, pods []service.Backend,
) (result *outside.Result, why, err error) {
	id := one.ID()
	stored, err := k.Network(ctx, network)
	if err != nil {
		return nil, nil, err
	}
	router, why, err := k.Router(ctx, network)
	if err != nil {
		return nil, nil, err
	}
	if why != nil || stored.Config == nil {
		return nil, why, k.outside.deleteRows(ctx, id, "")
	}
	if err := k.outside.deleteRows(ctx, id, router.Name); err != nil {
		return nil, nil, err
	}
	wanted := wantedOutside(router, stored.Config, one, pods, k.known[id].outside.inside)
	k.outside.of.Add(id, outside.Key{Router: router.Name, User: wanted.User}) // also if the answer is lost
	result, err = k.Outside.Ensure(ctx, wanted)
	if refused, ok := errors.AsType[*nbrows.Refused](err); ok {
		return nil, refused, nil
	}
	if errors.Is(err, outside.ErrNotReady) {
		return nil, err, nil
	}
	if err == nil && result.Changed {
		k.Log.Info("outside addresses of a service are in sync", "service", id, "router", router.Name)
	}
	return result, nil, err
}

// wantedOutside is what NB should have for the outside addresses of a Service.
func wantedOutside(
	router *netmodel.Router, network *netmodel.Network, one *service.Service, pods []service.Backend,
	inside map[string][]netip.AddrPort,
) *outside.Wanted {
	wanted := &outside.Wanted{
		Router: router, User: outside.User{Namespace: one.Namespace, Service: one.Name}, Kind: outside.Balanced,
		Inside: one.Families(network), Fixed: one.Outside.Fixed,
		Balancer: &outside.Balancer{
			Vips: func(addresses []netip.Addr) map[string]map[string]string {
				vips, _ := one.Backends(addresses, pods)
				return vips
			},
			Affinity: one.Affinity, Sources: one.Outside.Sources, Inside: inside,
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

// endOutside deletes the rows of the outside addresses of a Service that has none any more.
func (k *Kind) endOutside(ctx context.Context, namespace, id string) error {
	if known := k.known[id]; known != nil {
		known.outside.wanted = false
		if err := k.queueBalanced(ctx, namespace, known); err != nil {
			return err
		}
	}
	return k.outside.deleteRows(ctx, id, "")
}

// outsideRows are the rows of the Services' outside addresses.
type outsideRows struct {
	*outside.Outside
	log *slog.Logger
	// of has the keys that NB may have rows of, by Service.
	of     engine.Index[outside.Key]
	listed engine.Listed // of has what NB had when this controller began to lead
}

// list finds out, once, which rows NB has.
func (o *outsideRows) list(ctx context.Context) error {
	return o.listed.Once(func() error {
		entries, err := o.List(ctx)
		for _, e := range entries {
			if user := e.Key.User; user.Service != "" {
				o.of.Add(user.Namespace+"/"+user.Service, e.Key)
			}
		}
		return err
	})
}

// deleteRows deletes the rows of a Service on all routers but one.
func (o *outsideRows) deleteRows(ctx context.Context, id, except string) error {
	if err := o.list(ctx); err != nil {
		return err
	}
	isNeeded := func(key outside.Key) bool { return key.Router == except }
	return o.of.DeleteRows(id, isNeeded, func(key outside.Key) error {
		changed, err := o.Delete(ctx, key)
		if err == nil && changed {
			o.log.Info("outside addresses are released", "user", key.User, "router", key.Router)
		}
		return err
	})
}

// queueBalanced queues the pods with outside addresses whose form may depend on a Service: those that it selects, and
// those that it has selected at the last time.
func (k *Kind) queueBalanced(ctx context.Context, namespace string, known *knownService) error {
	if known == nil || !known.outside.wanted && len(known.outside.pods) == 0 {
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
	if len(names) == 0 {
		return nil
	}
	pods, err := k.Source.PolicyPods(ctx, namespace)
	if err != nil {
		return err
	}
	all := map[string]*netmodel.Pod{}
	for _, pod := range pods {
		all[pod.Name] = pod
	}
	known.outside.pods = now
	k.Rebalanced(namespace, names, all)
	return nil
}

// Balances reports whether a Service with outside addresses selects the pod. Its floating address must be translated
// by the gateway's node then, where the load balancer is: the pod's own node would send the replies to outside clients
// with the wrong source address.
func (k *Kind) Balances(ctx context.Context, pod *netmodel.Pod) (bool, error) {
	for id := range k.of[pod.Namespace] { // also what was accepted before, if its object is refused now
		if known := k.known[id]; known.outside.wanted && known.pods[pod.Name] {
			return true, nil
		}
	}
	all, err := k.Source.Services(ctx, pod.Namespace)
	return slices.ContainsFunc(all, func(o *service.Object) bool {
		if o.Service == nil || o.Service.Outside == nil {
			return false
		}
		selector, err := labels.Parse(o.Service.Pods)
		return err == nil && selector.Matches(labels.Set(pod.Labels))
	}), err
}
