package services

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/controller/engine"
	"github.com/ovn-multinet/ovn-multinet/controller/nads"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/services"
)

// ensure makes NB have what a Service says. If the Service cannot be served as it is, what NB has of it stays,
// and follows the pods.
func (k *Kind) ensure(ctx context.Context, o *service.Object) error {
	id := o.ID()
	if k.waitsForOlder(o) {
		return nil
	}
	network, why, err := k.servable(ctx, o)
	if err != nil {
		return err
	}
	if why == nil {
		result, pods, err := k.write(ctx, network, o.Service)
		if err == nil {
			if err := k.deleteElsewhere(ctx, id, network); err != nil {
				return err
			}
			state := k.accepted(network, o.Service, result)
			if err := k.ensureOutside(ctx, network, o.Service, pods, state); err != nil {
				return err
			}
			k.states.set(o, state, o.Service.Slices(result.Addresses, pods))
			if known := k.known[id]; known.warning != "" {
				k.Source.ServiceEvent(o, true, "NearLimit", known.warning)
				known.warning = ""
			}
			k.Engine.Tried(Item(id), obstacleRefused)
			return nil
		}
		if why = notServed(err); why == nil {
			return err
		}
		if !errors.Is(why, services.ErrNotAccepted) { // a network that is accepted later queues its Services
			k.Engine.TryLater(Item(id), engine.Obstacle{Name: obstacleRefused, First: engine.RefusedEvery})
		}
	}
	for former := range k.written[id] {
		stored, _, err := k.Rows.Accepted(ctx, services.Key{Network: former, Service: id})
		if err != nil {
			return err
		}
		if stored == nil {
			k.written.Remove(id, former)
			continue
		}
		result, pods, err := k.write(ctx, former, stored)
		if err != nil && notServed(err) == nil {
			return err
		}
		if err == nil {
			state := k.accepted(former, stored, result)
			if err := k.ensureOutside(ctx, former, stored, pods, state); err != nil {
				return err
			}
			state.Ready, state.Reason = false, why.Error()+"; what was accepted before stays"
			k.states.set(o, state, stored.Slices(result.Addresses, pods))
			return nil
		}
	}
	if err := k.endOutside(ctx, o.Namespace, id); err != nil {
		return err
	}
	k.Engine.Free(Item(id))
	k.states.set(o, &service.State{Reason: why.Error()}, nil)
	return nil
}

// notServed returns the reason if an error says that the network does not serve a Service now; nil: NB or the source
// failed.
func notServed(err error) error {
	if refused, ok := errors.AsType[*nbrows.Refused](err); ok {
		return refused
	}
	if errors.Is(err, services.ErrNotAccepted) {
		return err
	}
	return nil
}

// accepted is the state of a Service that NB has.
func (k *Kind) accepted(network string, one *service.Service, r *services.Result) *service.State {
	state := &service.State{Ready: true, Network: network, Addresses: r.Addresses, Reason: beyondLimit(r.Beyond)}
	if n := k.known[one.ID()].beyond; n > 0 {
		state.Reason = fmt.Sprintf("%d pods are left out: the objects of namespace %s need all that they may in OVN; delete "+
			"some, or ask the operator for more (limits)", n, one.Namespace)
	}
	return state
}

// beyondLimit says that so many backends are left out; "": none.
func beyondLimit(beyond int) string {
	if beyond == 0 {
		return ""
	}
	return fmt.Sprintf("%d pods are left out: a port of a Service has %d backends at most; divide the Service",
		beyond, service.MaxBackends)
}

// waitsForOlder queues a new Service again if NB has Services of its namespace that this controller has not read yet:
// what they need counts first.
func (k *Kind) waitsForOlder(o *service.Object) bool {
	id, waits := o.ID(), false
	if len(k.written[id]) > 0 {
		return false
	}
	for other := range k.written {
		if engine.NamespaceOf(other) == o.Namespace && k.known[other] == nil {
			k.Engine.Add(Item(other))
			waits = true
		}
	}
	if waits {
		k.Engine.AddAfter(Item(id), olderFirst)
	}
	return waits
}

// olderFirst is the time until a new Service is tried again that waits for older ones.
const olderFirst = 100 * time.Millisecond

// servable returns the network of a Service. why says why the Service cannot be served; then what NB has of it stays.
func (k *Kind) servable(ctx context.Context, o *service.Object) (network string, why, err error) {
	if o.Service == nil {
		k.note(o, "")
		return "", errors.New(o.Refusal), nil
	}
	k.note(o, o.Service.NAD)
	network, err = k.NADs.NetworkNamed(ctx, service.NetworkAnnotation, "Services", o.Service.NAD)
	if failed, ok := errors.AsType[*nads.SourceFailed](err); ok {
		return "", nil, failed
	}
	if err != nil {
		return "", err, nil
	}
	if why = k.allowed(o); why == nil {
		why, err = k.withinShare(ctx, network, o.Service)
	}
	return network, why, err
}

// addressShare is the part of the addresses of another namespace's network that the Services of a namespace may have:
// one of so many.
const addressShare = 4

// withinShare refuses a new virtual address on a network of another namespace, if the Services of this one have their
// share of its addresses.
func (k *Kind) withinShare(ctx context.Context, network string, one *service.Service) (why, err error) {
	if one.Headless() || engine.NamespaceOf(network) == one.Namespace || k.written[one.ID()][network] {
		return nil, nil
	}
	stored, err := k.Network(ctx, network)
	if err != nil || stored.Config == nil || stored.Owner == one.Namespace {
		return nil, err
	}
	count := uint64(0)
	for other, networks := range k.written {
		known := k.known[other]
		isHeadless := known != nil && known.result != nil && len(known.result.Addresses) == 0
		if networks[network] && engine.NamespaceOf(other) == one.Namespace && !isHeadless {
			count++
		}
	}
	for i := range stored.Config.Subnets {
		pool := stored.Config.Pool(i)
		if share := max(1, pool.Size()/addressShare); count >= share {
			k.waiting.Add(one.Namespace, one.ID())
			return fmt.Errorf("annotation %s: the Services of namespace %s have %d addresses of network %s, and a namespace "+
				"may have %d of another one's network with the subnet %s; leave the annotation out for a headless Service, or "+
				"use a network of your own", service.AddressAnnotation, one.Namespace, count, network, share, pool.Subnet), nil
		}
	}
	return nil, nil
}

// note notes which NAD a Service names.
func (k *Kind) note(o *service.Object, nad string) {
	id := o.ID()
	known := k.known[id]
	if known == nil {
		known = &knownService{selector: labels.Nothing()}
		k.known[id] = known
		k.of.Add(o.Namespace, id)
	}
	if known.nad != nad {
		k.naming.Remove(known.nad, id)
	}
	if known.nad = nad; nad != "" {
		k.naming.Add(nad, id)
	}
}

// allowed refuses a new Service of a namespace that has the most that it may have.
func (k *Kind) allowed(o *service.Object) error {
	id := o.ID()
	if len(k.written[id]) == 0 {
		count := 0
		for other := range k.written { // also those that no pass of this controller has read yet
			if engine.NamespaceOf(other) == o.Namespace {
				count++
			}
		}
		if count >= k.Limit {
			k.waiting.Add(o.Namespace, id)
			return fmt.Errorf("namespace %s has %d Services on networks, the limit of the controller's "+
				"--services-per-namespace; delete one, or ask the operator for more", o.Namespace, count)
		}
	}
	k.waiting.Remove(o.Namespace, id)
	return nil
}

// write makes NB have a Service on a network, with the pods of now. It does not ask NB if it has written the
// same before.
func (k *Kind) write(
	ctx context.Context, network string, one *service.Service,
) (*services.Result, []service.Backend, error) {
	id := one.ID()
	known := k.known[id]
	pods, missing, err := k.backends(ctx, network, one)
	if err != nil {
		return nil, nil, err
	}
	if missing {
		k.Engine.TryLater(Item(id), engine.Obstacle{
			Name: obstacleMissing, First: missingEvery, Last: nbrows.ReconcileEvery,
		})
	} else {
		k.Engine.Tried(Item(id), obstacleMissing)
	}
	if err := k.mayUse(network, one, pods); err != nil {
		return nil, nil, err
	}
	known.outside.inside = one.Inside(pods)
	if pods, err = k.fitting(ctx, network, one, pods); err != nil {
		return nil, nil, err
	}
	content := contentOf(network, one, pods, known.outside.inside)
	if known.written == content {
		return known.result, pods, nil
	}
	k.written.Add(id, network) // also if the answer is lost
	known.outside.done = nil
	result, err := k.Rows.Ensure(ctx, &services.Wanted{Network: network, Service: one, Pods: pods})
	known.written, known.result = "", nil
	if err != nil {
		return nil, nil, err
	}
	if result.Changed {
		k.Log.Info("service is in sync", "service", id, "network", network, "pods", len(pods))
	}
	known.written, known.result = content, result
	known.warning = k.Engine.Use(one.Namespace, Item(id), one.Cost(pods))
	return result, pods, nil
}

// fitting returns the pods of a Service for which its namespace has room in OVN, all if possible. Of a Service that NB
// has, some may be left out. Another one, and one that was edited, is refused.
func (k *Kind) fitting(
	ctx context.Context, network string, one *service.Service, pods []service.Backend,
) ([]service.Backend, error) {
	known, item := k.known[one.ID()], Item(one.ID())
	why := k.Engine.Check(one.Namespace, item, one.Cost(pods))
	if why == nil {
		known.serve(pods, 0)
		return pods, nil
	}
	if !k.written[one.ID()][network] {
		return nil, nbrows.Refusedf("%v", why)
	}
	stored, _, err := k.Rows.Accepted(ctx, services.Key{Network: network, Service: one.ID()})
	if err != nil {
		return nil, err
	}
	if stored == nil || stored.Text != one.Text {
		return nil, nbrows.Refusedf("%v", why)
	}
	if !k.Engine.Has(item) { // the first pass of this controller: what was accepted before it stays
		known.serve(pods, 0)
		return pods, nil
	}
	room := k.Engine.Room(one.Namespace, item)
	var stay, others []service.Backend // the pods that are served stay
	for _, pod := range pods {
		if known.served[pod.UID] {
			stay = append(stay, pod)
		} else {
			others = append(others, pod)
		}
	}
	pods = slices.Concat(stay, others)
	n := sort.Search(len(pods), func(n int) bool {
		_, beyond := one.Cost(pods[:n+1]).Beyond(room)
		return beyond
	})
	known.serve(pods[:n], len(pods)-n)
	return pods[:n], nil
}

// serve notes the pods for which the namespace has room, and how many others there are.
func (s *knownService) serve(pods []service.Backend, others int) {
	s.beyond, s.served = others, map[string]bool{}
	for i := range pods {
		s.served[pods[i].UID] = true
	}
}

// missingEvery is the time until a Service is first checked again if a ready pod has no port on its network. Perhaps
// the pod is not on the network. Or NB was replaced, and the pod's agent has not restored the port yet.
const missingEvery = time.Second

// contentOf is a text that differs if NB should have something else.
func contentOf(
	network string, one *service.Service, pods []service.Backend, inside map[string][]netip.AddrPort,
) string {
	text, _ := json.Marshal([]any{network, one.Text, pods, inside}) // the types have no value that JSON cannot express
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// mayUse refuses a Service on a network of another namespace, unless one of its pods is there: the agents decide which
// namespaces may use such a network, when pods attach.
func (k *Kind) mayUse(network string, one *service.Service, pods []service.Backend) error {
	if len(pods) > 0 || engine.NamespaceOf(one.NAD) == one.Namespace || k.written[one.ID()][network] {
		return nil
	}
	return nbrows.Refusedf("annotation %s: no pod that the Service selects has an interface on network %s, and a Service "+
		"on a network of another namespace needs one", service.NetworkAnnotation, network)
}

// backends returns the pods that a Service selects and that have a port on the network, and notes all pods that it
// selects. missing reports whether a ready pod has no port there.
func (k *Kind) backends(
	ctx context.Context, network string, one *service.Service,
) (backends []service.Backend, missing bool, err error) {
	known := k.known[one.ID()]
	selector, err := labels.Parse(one.Pods)
	if err != nil {
		return nil, false, err
	}
	all, err := k.Source.PolicyPods(ctx, one.Namespace)
	if err != nil {
		return nil, false, err
	}
	known.selector, known.pods = selector, map[string]bool{}
	selected, nodes := map[string]*netmodel.Pod{}, []string{}
	for _, pod := range all {
		if selector.Matches(labels.Set(pod.Labels)) {
			known.pods[pod.Name] = true
			if pod.Node != "" {
				selected[pod.Name] = pod
				nodes = append(nodes, pod.Node)
			}
		}
	}
	if len(selected) == 0 {
		return nil, false, nil
	}
	slices.Sort(nodes)
	ports, err := k.Ports.On(ctx, slices.Compact(nodes))
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(ports, func(a, b pods.Port) int {
		return cmp.Or(strings.Compare(a.Pod, b.Pod), strings.Compare(a.Interface, b.Interface))
	})
	for _, port := range ports {
		pod := selected[port.Pod]
		if port.Network != network || port.Namespace != one.Namespace {
			continue
		}
		if last := len(backends) - 1; last >= 0 && backends[last].Name == port.Pod {
			backends[last].Further = append(backends[last].Further, port.Addresses...)
		}
		if pod != nil && pod.Is(port.UID) {
			delete(selected, port.Pod) // of a pod with two interfaces on the network, the first one is a backend
			backend := backendOf(pod, port.Addresses)
			var wait time.Duration
			if backend.Ready, wait = k.flapping.Ready(pod.Namespace+"/"+pod.Name+" "+pod.UID, pod.Ready); wait > 0 {
				k.Engine.AddAfter(Item(one.ID()), wait)
			}
			backends = append(backends, backend)
		}
	}
	for _, pod := range selected {
		missing = missing || pod.Ready
	}
	return backends, missing, nil
}

func backendOf(pod *netmodel.Pod, addresses []netip.Addr) service.Backend {
	return service.Backend{
		Name: pod.Name, UID: pod.UID, Node: pod.Node, Hostname: pod.Hostname, Subdomain: pod.Subdomain,
		Ready: pod.Ready, Ending: pod.Ending, Addresses: addresses, Ports: policy.PortNumbers(pod.Ports),
	}
}
