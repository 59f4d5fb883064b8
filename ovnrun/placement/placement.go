package placement

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

// The labels of nodes with the databases, and of the pods that run them.
const (
	NodeLabel = "ovn-multinet/central"
	podLabel  = "app=ovn-multinet-ovn-central"
)

// Config says what is placed, and where.
type Config struct {
	Client    kubernetes.Interface
	Namespace string
	// Replicas is the wanted number of members, an odd number. A cluster with fewer nodes has fewer members.
	Replicas int
	// Nodes selects the nodes that may be members.
	Nodes labels.Selector
	// ReplaceAfter is how long a member's node is not Ready before another node takes its place.
	ReplaceAfter time.Duration
	// Placed is called with each list, before the mounted ConfigMap has it.
	Placed  func(members.List)
	Leading func() error
	Log     *slog.Logger
}

// passEvery is the time between two passes without an event: nodes become candidates without one.
const passEvery = 15 * time.Second

// Run places the databases until the end of ctx.
func Run(ctx context.Context, c Config) error {
	changed := make(chan struct{}, 1)
	note := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	p := &placer{Config: c}
	nodes := informers.NewSharedInformerFactoryWithOptions(c.Client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = NodeLabel }))
	pods := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithNamespace(c.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = podLabel }))
	p.nodes, p.pods = nodes.Core().V1().Nodes().Informer().GetStore(), pods.Core().V1().Pods().Informer().GetStore()
	for _, informer := range []cache.SharedIndexInformer{
		nodes.Core().V1().Nodes().Informer(), pods.Core().V1().Pods().Informer(),
	} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { note() }, UpdateFunc: func(_, _ any) { note() }, DeleteFunc: func(any) { note() }})
		if err != nil {
			return err
		}
	}
	for _, f := range []informers.SharedInformerFactory{nodes, pods} {
		f.Start(ctx.Done())
		defer f.Shutdown()
		f.WaitForCacheSync(ctx.Done())
	}
	again := time.NewTicker(passEvery)
	defer again.Stop()
	for said := ""; ctx.Err() == nil; {
		err := p.pass(ctx, time.Now())
		switch {
		case err == nil:
			said = ""
		case err.Error() != said && ctx.Err() == nil:
			said = err.Error()
			c.Log.Warn("OVN's databases are not placed yet", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again.C:
		}
	}
	return nil
}

type placer struct {
	Config
	nodes, pods cache.Store     // the labelled nodes; the pods with the databases
	deleted     map[string]bool // members whose node does not exist
	// warned has the nodes that cannot be members, with those that have the same address.
	warned map[string]string
}

// findDeleted asks for the members' nodes that have no label: they are new members, or were deleted.
func (p *placer) findDeleted(ctx context.Context, list members.List) error {
	p.deleted = map[string]bool{}
	for _, m := range list.Members {
		if p.node(m.Node) != nil {
			continue
		}
		_, err := p.Client.CoreV1().Nodes().Get(ctx, m.Node, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		p.deleted[m.Node] = err != nil
	}
	return nil
}

// pass makes at most one change of the list, and has the labels agree with the list.
func (p *placer) pass(ctx context.Context, now time.Time) error {
	if err := p.Leading(); err != nil {
		return err
	}
	stores := p.Client.CoreV1().ConfigMaps(p.Namespace)
	stored, err := stores.Get(ctx, members.ConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		empty := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: members.ConfigMapName}}
		stored, err = stores.Create(ctx, empty, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	list, err := members.Parse(stored.Data[members.ListKey])
	if err != nil {
		return fmt.Errorf("configmap %s: %w", members.ConfigMapName, err)
	}
	_, list.Formed = stored.Data[members.FormedKey]
	if err := p.findDeleted(ctx, list); err != nil {
		return err
	}
	wanted, reason, err := p.next(ctx, list, now)
	if err != nil {
		return err
	}
	if reason != "" {
		if stored.Data == nil {
			stored.Data = map[string]string{}
		}
		stored.Data[members.ListKey] = wanted.String()
		if wanted.Formed {
			stored.Data[members.FormedKey] = "true"
		}
		if _, err := stores.Update(ctx, stored, metav1.UpdateOptions{}); err != nil {
			return err
		}
		p.Log.Info("the members of OVN's databases", "members", strings.TrimSpace(wanted.String()), "reason", reason)
	}
	p.Placed(wanted)
	return p.label(ctx, wanted)
}

// next is the next list; reason is "" if it is the same.
func (p *placer) next(ctx context.Context, list members.List, now time.Time) (members.List, string, error) {
	next := members.List{Members: slices.Clone(list.Members), Formed: list.Formed}
	var lost *members.Member
	settled := true // all members that live serve
	for i, m := range list.Members {
		switch {
		case p.gone(m, now):
			lost = &list.Members[i]
		case !p.serves(m):
			settled = false
		}
	}
	if !list.Formed && len(list.Members) > 0 && p.serves(list.Members[0]) {
		next.Formed = true
		return next, "the databases are formed", nil
	}
	if len(list.Members) > 0 && (!settled || !list.Formed) {
		return list, "", nil // one change at a time: each one needs a majority
	}
	candidates, err := p.candidates(ctx, list, now)
	if err != nil {
		return list, "", err
	}
	alive := len(list.Members)
	if lost != nil {
		alive--
	}
	size := largestOdd(min(p.Replicas, alive+len(candidates)))
	fresh := func() members.Member {
		m := candidates[0]
		m.ID = uuid.NewString()
		return m
	}
	switch {
	case size == 0:
		return list, "", fmt.Errorf("no node can have OVN's databases: label one so that it matches %q", p.Nodes)
	case lost != nil && len(candidates) > 0 && len(list.Members) > 1 && len(list.Members) <= p.Replicas:
		i := slices.Index(next.Members, *lost)
		next.Members[i] = fresh()
		return next, "node " + lost.Node + " is gone", nil
	case lost != nil && len(list.Members) > 1 && p.distrusted(*lost): // two members are no worse than three with this one
		next.Members = slices.DeleteFunc(next.Members, func(m members.Member) bool { return m == *lost })
		return next, "node " + lost.Node + " is distrusted", nil
	case len(list.Members) < size && lost == nil:
		next.Members = append(next.Members, fresh())
		return next, fmt.Sprintf("%d members are wanted", size), nil
	case len(list.Members) > p.Replicas:
		last := list.Members[len(list.Members)-1]
		if lost != nil {
			last = *lost
		}
		next.Members = slices.DeleteFunc(next.Members, func(m members.Member) bool { return m == last })
		return next, fmt.Sprintf("%d members are wanted", p.Replicas), nil
	}
	return list, "", nil
}

func largestOdd(n int) int {
	if n > 0 && n%2 == 0 {
		return n - 1
	}
	return n
}

// gone reports whether a member's node was deleted, is distrusted, has another address, or is not Ready for long.
func (p *placer) gone(m members.Member, now time.Time) bool {
	node := p.node(m.Node)
	if node == nil {
		return p.deleted[m.Node]
	}
	if ip, ok := internalIP(node); ok && ip != m.IP || p.distrusted(m) {
		return true
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue && now.Sub(c.LastTransitionTime.Time) > p.ReplaceAfter
		}
	}
	return false
}

func (p *placer) distrusted(m members.Member) bool {
	node := p.node(m.Node)
	return node != nil && conf.Distrusted(node.Labels)
}

func (p *placer) node(name string) *corev1.Node {
	object, ok, err := p.nodes.GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	node, _ := object.(*corev1.Node)
	return node
}

// serves reports whether the pod on a member's node is Ready: its servers have joined the rafts.
func (p *placer) serves(m members.Member) bool {
	for _, object := range p.pods.List() {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Spec.NodeName != m.Node || pod.DeletionTimestamp != nil {
			continue
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return true
			}
		}
	}
	return false
}

// candidates are the Ready nodes that may become members: control planes first, each by their names.
func (p *placer) candidates(ctx context.Context, list members.List, now time.Time) ([]members.Member, error) {
	gone := func(m members.Member) bool { return p.gone(m, now) }
	if len(list.Members) >= p.Replicas && !slices.ContainsFunc(list.Members, gone) {
		return nil, nil // nodes are listed only when one is needed
	}
	nodes, err := p.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	owners := owners(nodes.Items)
	var control, others []members.Member
	for i := range nodes.Items {
		node := &nodes.Items[i]
		ip, ok := internalIP(node)
		m, is := list.Of(node.Name)
		switch {
		case conf.Distrusted(node.Labels):
		case !ok || !ready(node) || !p.Nodes.Matches(labels.Set(node.Labels)) || is && m.IP == ip:
		case len(owners[ip]) > 1:
			p.warnTwice(node.Name, ip, owners[ip])
		case controlPlane(node):
			control = append(control, members.Member{Node: node.Name, IP: ip})
		default:
			others = append(others, members.Member{Node: node.Name, IP: ip})
		}
	}
	byName := func(a, b members.Member) int { return strings.Compare(a.Node, b.Node) }
	slices.SortFunc(control, byName)
	slices.SortFunc(others, byName)
	return slices.Concat(control, others), nil
}

// owners returns the nodes that have each address. A kubelet writes the addresses of its node: it may write another
// node's, for which it would get a server's certificate as a member.
func owners(nodes []corev1.Node) map[netip.Addr]map[string]bool {
	owners := map[netip.Addr]map[string]bool{}
	for i := range nodes {
		for _, a := range nodes[i].Status.Addresses {
			ip, ok := address(a.Address)
			if !ok {
				continue // a host's name
			}
			if owners[ip] == nil {
				owners[ip] = map[string]bool{}
			}
			owners[ip][nodes[i].Name] = true
		}
	}
	return owners
}

// warnTwice says once that a node cannot be a member, because its address is another node's, too.
func (p *placer) warnTwice(node string, ip netip.Addr, owners map[string]bool) {
	names := strings.Join(slices.Sorted(maps.Keys(owners)), ", ")
	if p.warned[node] == names {
		return
	}
	if p.warned == nil {
		p.warned = map[string]string{}
	}
	p.warned[node] = names
	p.Log.Warn("a node cannot have OVN's databases, because several nodes say that they have its address; "+
		"correct the nodes' addresses (kubelet --node-ip)", "node", node, "address", ip, "nodes", names)
}

// label labels the nodes of the members, and no others.
func (p *placer) label(ctx context.Context, list members.List) error {
	patch := func(name, value string) error {
		text := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, NodeLabel, value)
		_, err := p.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, text, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	for _, m := range list.Members {
		if p.node(m.Node) == nil {
			if err := patch(m.Node, `"true"`); err != nil {
				return err
			}
		}
	}
	for _, name := range p.nodes.ListKeys() {
		if _, is := list.Of(name); !is {
			if err := patch(name, "null"); err != nil {
				return err
			}
		}
	}
	return nil
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// controlPlane reports whether a node has the label of control planes, which no kubelet can set (the admission plugin
// NodeRestriction).
func controlPlane(node *corev1.Node) bool {
	_, is := node.Labels["node-role.kubernetes.io/control-plane"]
	return is
}

func internalIP(node *corev1.Node) (netip.Addr, bool) {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return address(a.Address)
		}
	}
	return netip.Addr{}, false
}

// address reads an address of a node in one form. A certificate has neither IPv4-mapped addresses (RFC 4291, section
// 2.5.5.2) nor zones, so another form of a node's address would be the same one there.
func address(text string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(text)
	return ip.Unmap().WithZone(""), err == nil
}
