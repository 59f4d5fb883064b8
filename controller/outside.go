package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/outside"
	"github.com/ovn-multinet/ovn-multinet/policy"
)

// OutsideSource is the controller's source of pods that request outside addresses. Each method waits until the source
// has everything, and fails at the end of ctx.
type OutsideSource interface {
	PodSource
	// PodsWithOutside returns the pods that request outside addresses, as "<namespace>/<name>".
	PodsWithOutside(ctx context.Context) ([]string, error)
	// OutsideEvent records an Event for a pod. It does not wait.
	OutsideEvent(p *policy.Pod, warning bool, reason, message string)
}

// outsideUsers keeps the rows of outside addresses in step. Only the worker uses it.
type outsideUsers struct {
	source OutsideSource
	ports  PodPorts
	rows   *outside.Outside
	// written has the keys that NB may have rows of, by pod "<namespace>/<name>".
	written map[string]map[outside.Key]bool
	// ofService has the keys of Services, by "<namespace>/<name>".
	ofService map[string]map[outside.Key]bool
	listed    bool // these have what NB had when this controller began to lead
	// on has the pods that request outside addresses, by the network that has their interface.
	on map[string]map[string]bool
	// told is the last Event about each pod and interface.
	told map[string]string
	// waits counts the passes over a pod that found its gateway or port not ready.
	waits   map[string]int
	refused *refusals
}

func newOutsideUsers(source OutsideSource, ports PodPorts, rows *outside.Outside, refused *refusals) *outsideUsers {
	return &outsideUsers{
		source: source, ports: ports, rows: rows, written: map[string]map[outside.Key]bool{},
		ofService: map[string]map[outside.Key]bool{}, on: map[string]map[string]bool{}, told: map[string]string{},
		waits: map[string]int{}, refused: refused,
	}
}

const kindOutside = "outside-addresses" // of one pod

func outsideItem(id string) item { return item{kindOutside, id, namespaceOf(id)} }

// hasPools tells whether the operator has any pool of outside addresses.
func (c *Controller) hasPools() bool {
	return slices.ContainsFunc(c.gateways.Names(), func(router string) bool {
		return len(c.gateways.Router(router).Pools) > 0
	})
}

// queueOutside queues all pods that request outside addresses, and those that NB has rows of. Without pools, the pods
// need not be known.
func (c *Controller) queueOutside(ctx context.Context) error {
	o := c.outside
	if o == nil {
		return nil
	}
	if err := o.list(ctx); err != nil {
		return err
	}
	for id := range o.written {
		c.queue.Add(outsideItem(id))
	}
	if c.services != nil {
		for id, known := range c.services.known {
			if known.outside.wanted {
				c.queueService(id)
			}
		}
	}
	if !c.hasPools() {
		return nil
	}
	ids, err := o.source.PodsWithOutside(ctx)
	for _, id := range ids {
		c.queue.Add(outsideItem(id))
	}
	if err != nil {
		return err
	}
	for _, name := range c.gateways.Names() {
		for _, pool := range c.gateways.Router(name).Pools {
			for _, namespace := range pool.EgressOf {
				pods, err := o.source.PolicyPods(ctx, namespace)
				if err != nil {
					return err
				}
				for _, pod := range pods {
					c.queue.Add(outsideItem(pod.Namespace + "/" + pod.Name))
				}
			}
		}
	}
	return nil
}

// hasEgress tells whether the operator gives the pods of a namespace egress addresses on any router.
func (c *Controller) hasEgress(namespace string) bool {
	return slices.ContainsFunc(c.gateways.Names(), func(router string) bool {
		return c.gateways.Router(router).EgressPool(namespace) != nil
	})
}

// list finds out, once, which rows NB has.
func (o *outsideUsers) list(ctx context.Context) error {
	if o.listed {
		return nil
	}
	entries, err := o.rows.List(ctx)
	if err != nil {
		return err
	}
	for _, e := range entries {
		o.note(e.Key)
	}
	o.listed = true
	return nil
}

func (o *outsideUsers) note(key outside.Key) {
	id, written := key.User.Namespace+"/"+key.User.Pod, o.written
	if key.User.Service != "" {
		id, written = key.User.Namespace+"/"+key.User.Service, o.ofService
	}
	if written[id] == nil {
		written[id] = map[outside.Key]bool{}
	}
	written[id][key] = true
}

// queueOutsideOf queues those of a namespace's pods that request outside addresses, or have some, or were refused. now
// has the pods that exist.
func (c *Controller) queueOutsideOf(namespace string, names []string, now map[string]*policy.Pod) {
	if c.outside == nil {
		return
	}
	for _, name := range names {
		id := namespace + "/" + name
		pod := now[name]
		if pod != nil && (pod.Outside != "" || c.hasEgress(namespace)) || len(c.outside.written[id]) > 0 ||
			c.outside.refused.ids[id] {
			c.queue.Add(outsideItem(id))
		}
	}
}

// outsideOfNetwork queues the pods on a network that request outside addresses: the network may be on another router.
func (c *Controller) outsideOfNetwork(network string) {
	if c.outside != nil {
		for id := range c.outside.on[network] {
			c.queue.Add(outsideItem(id))
		}
	}
}

// reconcileOutside makes NB have the outside addresses that a pod requests.
func (c *Controller) reconcileOutside(ctx context.Context, i item) error {
	o := c.outside
	if o == nil {
		return nil
	}
	if err := o.list(ctx); err != nil {
		return err
	}
	return c.paced(i, func() error {
		namespace, name, _ := strings.Cut(i.id, "/")
		pods, err := o.source.PolicyPods(ctx, namespace)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(pods, func(p *policy.Pod) bool { return p.Name == name })
		for network := range o.on {
			removeFrom(o.on, network, i.id)
		}
		if at < 0 {
			o.refused.set(i.id, false)
			maps.DeleteFunc(o.told, func(user, _ string) bool { return strings.HasPrefix(user, i.id+"/") })
			return c.deleteOutside(ctx, i.id, nil)
		}
		return c.ensureOutside(ctx, pods[at])
	})
}

// deleteOutside deletes the rows of a pod except those of some keys.
func (c *Controller) deleteOutside(ctx context.Context, id string, except map[outside.Key]bool) error {
	o := c.outside
	for key := range o.written[id] {
		if except[key] {
			continue
		}
		changed, err := o.rows.Delete(ctx, key)
		if err != nil {
			return err
		}
		if changed {
			c.log.Info("outside addresses are released", "user", key.User, "router", key.Router)
		}
		delete(o.written[id], key)
		delete(o.told, key.User.String())
	}
	if len(o.written[id]) == 0 {
		delete(o.written, id)
		delete(o.waits, id)
	}
	return nil
}

// ensureOutside makes NB have the outside addresses of a pod that exists. A request that cannot be parsed or is refused
// changes nothing.
func (c *Controller) ensureOutside(ctx context.Context, pod *policy.Pod) error {
	o, id := c.outside, pod.Namespace+"/"+pod.Name
	var requests []netmodel.OutsideRequest
	if pod.Outside != "" {
		var err error
		if requests, err = netmodel.ParseOutside(pod.Outside); err != nil {
			o.tell(pod, "", err.Error()+"; what the pod has stays", "")
			o.refused.set(id, true)
			return nil
		}
	}
	kept, waiting, refused := map[outside.Key]bool{}, false, false
	if (len(requests) > 0 || c.hasEgress(pod.Namespace)) && pod.Node != "" {
		ports, err := o.ports.On(ctx, []string{pod.Node})
		if err != nil {
			return err
		}
		if requests, err = c.addEgress(ctx, pod, requests, ports); err != nil {
			return err
		}
		for _, request := range requests {
			key, state, err := c.ensureOutsideOf(ctx, pod, request, ports)
			if err != nil {
				return err
			}
			kept[key] = true
			waiting, refused = waiting || state != outsideServed, refused || state == outsideRefused
		}
	}
	o.refused.set(id, refused)
	if waiting {
		c.queue.AddAfter(outsideItem(id), growing(outsideEvery, o.waits[id], waitingLast))
		o.waits[id]++
	} else {
		delete(o.waits, id)
	}
	return c.deleteOutside(ctx, id, kept)
}

// addEgress adds the egress addresses that the operator gives to the pod's namespace, for interfaces without a request.
func (c *Controller) addEgress(
	ctx context.Context, pod *policy.Pod, requests []netmodel.OutsideRequest, ports []PodPort,
) ([]netmodel.OutsideRequest, error) {
	if !c.hasEgress(pod.Namespace) {
		return requests, nil
	}
	for _, port := range ports {
		requested := func(r netmodel.OutsideRequest) bool { return r.Interface == port.Interface }
		if port.Namespace != pod.Namespace || port.Pod != pod.Name || slices.ContainsFunc(requests, requested) {
			continue
		}
		router, _, err := c.outsideRouter(ctx, port.Network)
		if err != nil {
			return nil, err
		}
		addTo(c.outside.on, port.Network, pod.Namespace+"/"+pod.Name)
		if router == nil {
			continue
		}
		if pool := router.EgressPool(pod.Namespace); pool != nil {
			requests = append(requests, netmodel.OutsideRequest{Interface: port.Interface, Egress: true, Pool: pool.Name})
		}
	}
	return requests, nil
}

// outsideEvery is the time until a pod is first checked again whose gateway or port is not ready.
const outsideEvery = time.Second

// outsideState is what a pass has found for one interface. All but outsideServed are tried again.
type outsideState int

const (
	outsideServed   outsideState = iota
	outsideNotReady              // the gateway or the port is not there yet
	outsideRefused
)

// ensureOutsideOf makes NB have the outside addresses of one interface.
func (c *Controller) ensureOutsideOf(
	ctx context.Context, pod *policy.Pod, request netmodel.OutsideRequest, ports []PodPort,
) (key outside.Key, state outsideState, err error) {
	o := c.outside
	user := outside.User{Namespace: pod.Namespace, Pod: pod.Name, Interface: request.Interface}
	at := slices.IndexFunc(ports, func(p PodPort) bool {
		return p.Namespace == pod.Namespace && p.Pod == pod.Name && p.Interface == request.Interface && pod.Is(p.UID)
	})
	if at < 0 { // the pod has no port yet, or the interface is not on an OVN network: its agent refuses other names
		if pod.Ready {
			state = outsideNotReady
		}
		return key, state, nil
	}
	port := &ports[at]
	addTo(o.on, port.Network, pod.Namespace+"/"+pod.Name)
	router, why, err := c.outsideRouter(ctx, port.Network)
	if err != nil {
		return key, state, err
	}
	if why != nil {
		o.tell(pod, request.Interface, why.Error(), "")
		return key, outsideRefused, nil
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
	chassis, err := c.gateways.ChassisOf(ctx, []string{pod.Node})
	if err != nil {
		return key, state, err
	}
	balanced, err := c.isBalanced(ctx, pod)
	if err != nil {
		return key, state, err
	}
	wanted.Distributed = !balanced && slices.ContainsFunc(chassis, func(c gateway.Chassis) bool {
		return c.HasPhysical(router.Physical)
	})
	key = outside.Key{Router: router.Name, User: user}
	o.note(key) // also if the answer is lost
	result, err := o.rows.Ensure(ctx, wanted)
	refused, is := errors.AsType[*nbrows.Refused](err)
	switch {
	case errors.Is(err, outside.ErrNotReady):
		return key, outsideNotReady, nil
	case is:
		o.tell(pod, request.Interface, refused.Error(), "")
		return key, outsideRefused, nil
	case err != nil:
		return key, state, err
	}
	o.tell(pod, request.Interface, "", string(wanted.Kind)+" addresses "+fmt.Sprint(result.Addresses))
	return key, outsideServed, nil
}

// outsideRouter returns the router of a network, as the operator's configuration has it. why says that it has no
// outside addresses.
func (c *Controller) outsideRouter(ctx context.Context, network string) (r *netmodel.Router, why, err error) {
	standing, err := c.networks.Stored(ctx, network)
	if err != nil {
		return nil, nil, err
	}
	name := standing.Router()
	if r = c.gateways.WithGateway(name); name == "" || r == nil {
		return nil, fmt.Errorf("network %s is on no router with a gateway; outside addresses need one: write the key "+
			"router, and ask the operator for the gateway", network), nil
	}
	return r, nil, nil
}

// tell records an Event about an interface, unless the last one said the same.
func (o *outsideUsers) tell(pod *policy.Pod, ifName, refused, ready string) {
	user, text := outside.User{Namespace: pod.Namespace, Pod: pod.Name, Interface: ifName}.String(), refused+ready
	if o.told[user] == text+pod.UID {
		return
	}
	o.told[user] = text + pod.UID
	if ifName != "" {
		text = "interface " + ifName + ": " + text
	}
	if refused != "" {
		o.source.OutsideEvent(pod, true, "OutsideAddressRefused", conf.OneLine(text, conf.MaxReason))
		return
	}
	o.source.OutsideEvent(pod, false, "OutsideAddressReady", conf.OneLine(text, conf.MaxReason))
}
