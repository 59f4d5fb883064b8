// Package outside owns the kind of pods with outside addresses: it keeps the rows of the addresses in sync with the
// annotations of the pods.
package outside

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
)

// Source is the controller's source of pods that request outside addresses. Each method waits until the source
// has everything, and fails at the end of ctx.
type Source interface {
	pods.Source
	// PodsWithOutside returns the pods that request outside addresses or have a state of some, as "<namespace>/<name>".
	PodsWithOutside(ctx context.Context) ([]string, error)
	// SetOutsideState writes the state of a pod's outside addresses onto the pod, unless the pod has another UID by now.
	SetOutsideState(ctx context.Context, p *netmodel.Pod, state netmodel.OutsideState) error
	// OutsideEvent records an Event for a pod. It does not wait.
	OutsideEvent(p *netmodel.Pod, warning bool, reason, message string)
}

// Config has what the kind needs.
type Config struct {
	Engine   *engine.Engine
	Source   Source
	Ports    pods.Ports
	Rows     *outside.Outside
	Gateways *gateway.Gateways
	// Router returns the router of a network. why says that it has no outside addresses.
	Router func(ctx context.Context, network string) (r *netmodel.Router, why, err error)
	// Balanced reports whether a Service with outside addresses selects a pod.
	Balanced func(ctx context.Context, pod *netmodel.Pod) (bool, error)
	Log      *slog.Logger
}

// Kind keeps the rows of outside addresses of pods in sync. Only the worker uses it.
type Kind struct {
	Config
	// written has the keys that NB may have rows of, by pod "<namespace>/<name>".
	written engine.Index[outside.Key]
	listed  engine.Listed // written has what NB had when this controller began to lead
	// on has the pods that request outside addresses, by the network that has their interface.
	on      engine.Index[string]
	refused *engine.Refusals
	states  *states
}

// New makes the kind, and registers its pass.
func New(c Config) *Kind {
	k := &Kind{
		Config: c, written: engine.Index[outside.Key]{}, on: engine.Index[string]{},
		refused: c.Engine.Refusals("pod"), states: newStates(c),
	}
	c.Engine.Register(kindOutside, k.reconcile)
	return k
}

// Run writes the states of pods until the end of ctx.
func (k *Kind) Run(ctx context.Context) { k.states.Run(ctx) }

const kindOutside = "outside-addresses" // of one pod

func item(id string) engine.Item { return engine.Of(kindOutside, id) }

// hasPools reports whether the operator has any pool of outside addresses.
func (k *Kind) hasPools() bool {
	return slices.ContainsFunc(k.Gateways.Names(), func(router string) bool {
		return len(k.Gateways.Router(router).Pools) > 0
	})
}

// QueueAll queues all pods that request outside addresses, and those that NB has rows of. Without pools, the pods
// need not be known.
func (k *Kind) QueueAll(ctx context.Context, _ map[string]*ovnnet.Listed) error {
	if err := k.list(ctx); err != nil {
		return err
	}
	for id := range k.written {
		k.Engine.Add(item(id))
	}
	if !k.hasPools() {
		return nil
	}
	ids, err := k.Source.PodsWithOutside(ctx)
	for _, id := range ids {
		k.Engine.Add(item(id))
	}
	if err != nil {
		return err
	}
	for _, name := range k.Gateways.Names() {
		for _, pool := range k.Gateways.Router(name).Pools {
			for _, namespace := range pool.EgressOf {
				pods, err := k.Source.PolicyPods(ctx, namespace)
				if err != nil {
					return err
				}
				for _, pod := range pods {
					k.Engine.Add(item(pod.Namespace + "/" + pod.Name))
				}
			}
		}
	}
	return nil
}

// hasEgress reports whether the operator gives the pods of a namespace egress addresses on any router.
func (k *Kind) hasEgress(namespace string) bool {
	return slices.ContainsFunc(k.Gateways.Names(), func(router string) bool {
		return k.Gateways.Router(router).EgressPool(namespace) != nil
	})
}

// list finds out, once, which rows NB has.
func (k *Kind) list(ctx context.Context) error {
	return k.listed.Once(func() error {
		entries, err := k.Rows.List(ctx)
		for _, e := range entries {
			k.note(e.Key)
		}
		return err
	})
}

func (k *Kind) note(key outside.Key) {
	if key.User.Pod != "" {
		k.written.Add(key.User.Namespace+"/"+key.User.Pod, key)
	}
}

// Follows reports whether pods may have outside addresses.
func (k *Kind) Follows(string) bool { return k.hasPools() }

// PodsChanged queues those of a namespace's pods that request outside addresses, or have some, or were refused. now
// has the pods that exist.
func (k *Kind) PodsChanged(namespace string, names []string, now map[string]*netmodel.Pod) {
	for _, name := range names {
		id := namespace + "/" + name
		pod := now[name]
		concerned := pod != nil &&
			(pod.Outside != "" || pod.OutsideState != (netmodel.OutsideState{}) || k.hasEgress(namespace))
		if concerned || len(k.written[id]) > 0 || k.refused.Has(id) {
			k.Engine.Add(item(id))
		}
	}
}

// NetworkChanged queues the pods on a network that request outside addresses: the network may be on another router.
func (k *Kind) NetworkChanged(network string) {
	for id := range k.on[network] {
		k.Engine.Add(item(id))
	}
}

// reconcile makes NB have the outside addresses that a pod requests.
func (k *Kind) reconcile(ctx context.Context, i engine.Item) error {
	if err := k.list(ctx); err != nil {
		return err
	}
	return k.Engine.Paced(i, func() error {
		namespace, name, _ := strings.Cut(i.Key, "/")
		pods, err := k.Source.PolicyPods(ctx, namespace)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(pods, func(p *netmodel.Pod) bool { return p.Name == name })
		for network := range k.on {
			k.on.Remove(network, i.Key)
		}
		if at < 0 {
			k.refused.Set(i.Key, false)
			k.Engine.Tried(i)
			return k.deleteRows(ctx, i.Key, nil)
		}
		return k.ensure(ctx, pods[at])
	})
}

// deleteRows deletes the rows of a pod except those of some keys.
func (k *Kind) deleteRows(ctx context.Context, id string, except map[outside.Key]bool) error {
	return k.written.DeleteRows(id, func(key outside.Key) bool { return except[key] }, k.release(ctx))
}

// release returns the function that deletes the rows of a key.
func (k *Kind) release(ctx context.Context) func(outside.Key) error {
	return func(key outside.Key) error {
		changed, err := k.Rows.Delete(ctx, key)
		if err != nil {
			return err
		}
		if changed {
			k.Log.Info("outside addresses are released", "user", key.User, "router", key.Router)
		}
		return nil
	}
}

// ensure makes NB have the outside addresses of a pod that exists. A request that cannot be parsed or is refused
// changes nothing.
func (k *Kind) ensure(ctx context.Context, pod *netmodel.Pod) error {
	id := pod.Namespace + "/" + pod.Name
	var requests []netmodel.OutsideRequest
	if pod.Outside != "" {
		var err error
		if requests, err = netmodel.ParseOutside(pod.Outside); err != nil {
			k.conclude(pod, found{netmodel.OutsideRefused: {err.Error() + "; what the pod has stays"}})
			return nil
		}
	}
	kept, has := map[outside.Key]bool{}, found{}
	binding := false // OVN is about to bind a port of a pod that has just started
	if (len(requests) > 0 || k.hasEgress(pod.Namespace)) && pod.Node != "" {
		ports, err := k.Ports.On(ctx, []string{pod.Node})
		if err != nil {
			return err
		}
		if requests, err = k.addEgress(ctx, pod, requests, ports); err != nil {
			return err
		}
		for _, request := range requests {
			key, err := k.ensureInterface(ctx, pod, request, ports, has)
			if errors.Is(err, outside.ErrNotBound) {
				binding = true
			} else if err != nil {
				return err
			}
			kept[key] = true
		}
	}
	switch {
	case binding: // what has become of the others is told together with this one
	case len(has) > 0, len(requests) == 0:
		k.conclude(pod, has)
	default:
		k.refused.Set(id, false)
	}
	if binding || len(has[netmodel.OutsideWaits])+len(has[netmodel.OutsideRefused]) > 0 {
		k.Engine.TryLater(item(id), engine.Obstacle{First: engine.NotReadyEvery})
	} else {
		k.Engine.Tried(item(id))
	}
	return k.deleteRows(ctx, id, kept)
}

// conclude notes and writes the state of a pod.
func (k *Kind) conclude(pod *netmodel.Pod, has found) {
	id, state := pod.Namespace+"/"+pod.Name, has.state()
	k.refused.Set(id, state.Reason == netmodel.OutsideRefused)
	if state != pod.OutsideState {
		k.states.Put(id, &verdict{pod, state})
	}
}

// addEgress adds the egress addresses that the operator gives to the pod's namespace, for interfaces without a request.
func (k *Kind) addEgress(
	ctx context.Context, pod *netmodel.Pod, requests []netmodel.OutsideRequest, ports []pods.Port,
) ([]netmodel.OutsideRequest, error) {
	if !k.hasEgress(pod.Namespace) {
		return requests, nil
	}
	for _, port := range ports {
		requested := func(r netmodel.OutsideRequest) bool { return r.Interface == port.Interface }
		if port.Namespace != pod.Namespace || port.Pod != pod.Name || slices.ContainsFunc(requests, requested) {
			continue
		}
		router, _, err := k.Router(ctx, port.Network)
		if err != nil {
			return nil, err
		}
		k.on.Add(port.Network, pod.Namespace+"/"+pod.Name)
		if router == nil {
			continue
		}
		if pool := router.EgressPool(pod.Namespace); pool != nil {
			requests = append(requests, netmodel.OutsideRequest{Interface: port.Interface, Egress: true, Pool: pool.Name})
		}
	}
	return requests, nil
}

// ensureInterface makes NB have the outside addresses of one interface, and adds to has what has become of them. The
// error is outside.ErrNotBound for a pod that has just started.
func (k *Kind) ensureInterface(
	ctx context.Context, pod *netmodel.Pod, request netmodel.OutsideRequest, ports []pods.Port, has found,
) (key outside.Key, err error) {
	user := outside.User{Namespace: pod.Namespace, Pod: pod.Name, Interface: request.Interface}
	own := slices.DeleteFunc(slices.Clone(ports), func(p pods.Port) bool {
		return p.Namespace != pod.Namespace || p.Pod != pod.Name || !pod.Is(p.UID)
	})
	at := slices.IndexFunc(own, func(p pods.Port) bool { return p.Interface == request.Interface })
	if at < 0 { // the interface is not on an OVN network, or the pod has just started
		if len(own) > 0 || pod.Ready || pod.OutsideState != (netmodel.OutsideState{}) {
			has.add(netmodel.OutsideWaits, request.Interface, "the pod has no such interface on an OVN network")
		}
		return key, nil
	}
	port := &own[at]
	k.on.Add(port.Network, pod.Namespace+"/"+pod.Name)
	router, why, err := k.Router(ctx, port.Network)
	if err != nil {
		return key, err
	}
	if why != nil {
		has.add(netmodel.OutsideRefused, request.Interface, why.Error())
		return key, nil
	}
	wanted := &outside.Wanted{
		Router: router, User: user, Kind: outside.Floating, PortKey: port.Key, PortName: port.Name,
		Fixed: request.Fixed, Pool: request.Pool,
	}
	for _, a := range port.Addresses {
		if !slices.ContainsFunc(wanted.Inside, func(other netip.Addr) bool { return other.Is4() == a.Is4() }) {
			wanted.Inside = append(wanted.Inside, a)
		}
	}
	if request.Egress {
		wanted.Kind = outside.Egress
	}
	chassis, err := k.Gateways.ChassisOf(ctx, []string{pod.Node})
	if err != nil {
		return key, err
	}
	balanced, err := k.Balanced(ctx, pod)
	if err != nil {
		return key, err
	}
	wanted.Distributed = !balanced && slices.ContainsFunc(chassis, func(c gateway.Chassis) bool {
		return c.HasPhysical(router.Physical)
	})
	key = outside.Key{Router: router.Name, User: user}
	k.note(key) // also if the answer is lost
	result, err := k.Rows.Ensure(ctx, wanted)
	refused, is := errors.AsType[*nbrows.Refused](err)
	switch {
	case errors.Is(err, outside.ErrNotBound) && !pod.Ready && pod.OutsideState == (netmodel.OutsideState{}):
		return key, err
	case errors.Is(err, outside.ErrNotReady):
		has.add(netmodel.OutsideWaits, request.Interface, err.Error())
		return key, nil
	case is:
		has.add(netmodel.OutsideRefused, request.Interface, refused.Error())
		return key, nil
	case err != nil:
		return key, err
	}
	has.add(netmodel.OutsideReady, request.Interface, string(wanted.Kind)+" addresses "+fmt.Sprint(result.Addresses))
	return key, nil
}
