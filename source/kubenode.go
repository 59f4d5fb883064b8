package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// nodeWatch is the informer of the nodes.
type nodeWatch struct {
	cache.SharedIndexInformer
	refused atomic.Pointer[error] // the last error of a list or a watch
}

// watchNodes creates the informer of all nodes.
func (k *Kube) watchNodes(changed func()) error {
	f := informers.NewSharedInformerFactoryWithOptions(k.core, 0, informers.WithTransform(trimNode))
	k.nodes = &nodeWatch{SharedIndexInformer: f.Core().V1().Nodes().Informer()}
	k.run = append(k.run, f.Start)
	err := k.nodes.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		k.nodes.refused.Store(&err)
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil || changed == nil {
		return err
	}
	_, err = k.nodes.AddEventHandler(onNodes(changed))
	return err
}

// onNodes calls changed when a node is created or deleted and when its labels, its addresses or its pods' subnets
// change. It ignores the rest of the status, which every kubelet reports frequently.
func onNodes(changed func()) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		DeleteFunc: func(any) { changed() },
		UpdateFunc: func(old, now any) {
			was, is := old.(*corev1.Node), now.(*corev1.Node)
			if !maps.Equal(was.Labels, is.Labels) || !slices.Equal(was.Spec.PodCIDRs, is.Spec.PodCIDRs) ||
				!slices.Equal(was.Status.Addresses, is.Status.Addresses) {
				changed()
			}
		},
	}
}

// trimNode is the transform function of the informer of nodes. It keeps the labels, the addresses, the pods' subnets,
// and what decides on the startup taint. It removes the rest of the status, which names every image on the node.
func trimNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, CreationTimestamp: n.CreationTimestamp,
			Labels: n.Labels,
		},
		Spec:   corev1.NodeSpec{Taints: n.Spec.Taints, PodCIDRs: n.Spec.PodCIDRs},
		Status: corev1.NodeStatus{Addresses: n.Status.Addresses},
	}, nil
}

// Nodes returns all nodes, sorted by name. It waits until the informer has listed the nodes once, and fails at the end
// of ctx. Run must be running. The list may be slightly out of date, but it is always complete.
func (k *Kube) Nodes(ctx context.Context) ([]netmodel.Node, error) {
	if k.nodes == nil {
		return nil, errors.New("list nodes: an agent does not watch them")
	}
	if !cache.WaitForCacheSync(ctx.Done(), k.nodes.HasSynced) {
		if refused := k.nodes.refused.Load(); refused != nil {
			return nil, fmt.Errorf("list nodes: %w: %w", ctx.Err(), *refused)
		}
		return nil, fmt.Errorf("list nodes: %w", ctx.Err())
	}
	return nodesOf(k.nodes.GetStore().List()), nil
}

// nodesOf converts nodes, and sorts them by name. The list is not nil: an empty one says that the cluster has no nodes.
func nodesOf(known []any) []netmodel.Node {
	all := make([]netmodel.Node, 0, len(known))
	for _, obj := range known {
		all = append(all, fromNode(obj.(*corev1.Node)))
	}
	slices.SortFunc(all, func(a, b netmodel.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func fromNode(n *corev1.Node) netmodel.Node {
	node := netmodel.Node{Name: n.Name, UID: string(n.UID), Labels: n.Labels}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil { // others are names
			node.Addresses = append(node.Addresses, ip)
		}
	}
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			node.PodSubnets = append(node.PodSubnets, p.Masked())
		}
	}
	return node
}
