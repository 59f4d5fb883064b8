package source

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// NAD returns the NAD from the informer. If the informer does not have the NAD, NAD reads it from the API.
func (k *Kube) NAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error) {
	n, err := k.known(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	d := n.nad
	return &d, nil
}

// LiveNAD reads the NAD from the API, with the text of its configuration. The informer may not keep that text.
func (k *Kube) LiveNAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error) {
	n, err := k.live(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return fromNAD(n, wholeConfig(n)), nil
}

// known returns the NAD from the informer, or else from the API.
func (k *Kube) known(ctx context.Context, namespace, name string) (*knownNAD, error) {
	if n := k.cached(namespace, name); n != nil {
		return n, nil
	}
	n, err := k.live(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return known(n, nil), nil
}

// cached returns the NAD from the informer, or nil.
func (k *Kube) cached(namespace, name string) *knownNAD {
	obj, there, err := k.nads.GetByKey(namespace + "/" + name)
	if !there || err != nil {
		return nil
	}
	return obj.(*knownNAD)
}

func (k *Kube) live(ctx context.Context, namespace, name string) (*nadv1.NetworkAttachmentDefinition, error) {
	n, err := get(ctx, k, k.nadAPI.K8sCniCncfIoV1().NetworkAttachmentDefinitions(namespace).Get, name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s/%s: %w", namespace, name, netmodel.ErrNotFound)
	}
	return n, err
}

// NADs reads all NADs from the API.
func (k *Kube) NADs(ctx context.Context) ([]*netmodel.NAD, error) {
	var all []*netmodel.NAD
	for next := ""; ; {
		opts := metav1.ListOptions{Limit: page, Continue: next}
		list, err := k.lists.nads(ctx, opts, func(n *nadv1.NetworkAttachmentDefinition) {
			all = append(all, &k.keep(n).nad)
		})
		if err != nil {
			return nil, err
		}
		if next = list.Continue; next == "" {
			return all, nil
		}
	}
}

// SetNetworkState writes the annotation with the state of the network. It also adds or removes our finalizer, if
// withFinalizer differs from the present state. The API server refuses the patch if the NAD has changed since it was
// read: a patch can only replace the complete list of finalizers, and the same state must not be reported twice.
func (k *Kube) SetNetworkState(ctx context.Context, n *netmodel.NAD, state string, withFinalizer bool) error {
	as, err := k.known(ctx, n.Namespace, n.Name)
	if err != nil {
		return err
	}
	change := as.nad.HasFinalizer != withFinalizer
	if change && as.someFinalizers {
		raw, err := k.live(ctx, n.Namespace, n.Name)
		if err != nil {
			return err
		}
		as = known(raw, as.nad.Config)
		as.finalizers, change = raw.Finalizers, as.nad.HasFinalizer != withFinalizer
	}
	// With the UID, the patch does not change another NAD that has the same name.
	metadata := map[string]any{
		"uid": as.UID, "resourceVersion": as.ResourceVersion,
		"annotations": map[string]any{netmodel.NetworkStateAnnotation: nullable(state)},
	}
	if change {
		finalizers := slices.DeleteFunc(slices.Clone(as.finalizers), func(f string) bool {
			return f == netmodel.NetworkFinalizer
		})
		if withFinalizer {
			finalizers = append(finalizers, netmodel.NetworkFinalizer)
		}
		metadata["finalizers"] = finalizers
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = k.nadAPI.K8sCniCncfIoV1().NetworkAttachmentDefinitions(n.Namespace).
		Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", n.ID(), netmodel.ErrNotFound)
	}
	return err
}

// nullable returns a value for a merge patch (RFC 7386). For "" it returns null, which deletes the key.
func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// NetworkEvent records an Event of a NAD. It does not wait: an Event that the API server refuses is lost.
func (k *Kube) NetworkEvent(n *netmodel.NAD, warning bool, reason, message string) {
	ref := &corev1.ObjectReference{
		Kind: "NetworkAttachmentDefinition", APIVersion: nadv1.SchemeGroupVersion.String(),
		Namespace: n.Namespace, Name: n.Name,
	}
	if cached := k.cached(n.Namespace, n.Name); cached != nil {
		ref.UID = cached.UID
	}
	k.record.Event(ref, string(eventKind(warning)), reason, conf.OneLine(message, conf.MaxReason))
}

// ConfigMapEvent records an Event of a ConfigMap. It does not wait: an Event that the API server refuses is lost.
func (k *Kube) ConfigMapEvent(namespace, name string, warning bool, reason, message string) {
	k.record.Event(&corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: namespace, Name: name},
		string(eventKind(warning)), reason, conf.OneLine(message, conf.MaxReason))
}

// page is the number of objects in one answer to a list request.
const page = 500

// Inventory lists the nodes with these names, or all nodes if there are no names, and the pods on them. It never
// returns an incomplete list: callers would conclude that the missing pods and nodes were deleted.
func (k *Kube) Inventory(ctx context.Context, names ...string) (*Inventory, error) {
	if len(names) == 0 {
		pods, err := k.podsWith(ctx, "")
		if err != nil {
			return nil, err
		}
		nodes, err := k.nodeNames(ctx, "")
		if err != nil {
			return nil, err
		}
		return newInventory(pods, nodes), nil
	}
	var pods []*netmodel.Pod
	nodes := []string{}
	for _, name := range names {
		on, err := k.podsWith(ctx, fields.OneTermEqualSelector("spec.nodeName", name).String())
		if err != nil {
			return nil, err
		}
		// A list of one node, because the controller may list nodes and may not get one.
		found, err := k.nodeNames(ctx, fields.OneTermEqualSelector("metadata.name", name).String())
		if err != nil {
			return nil, err
		}
		pods, nodes = append(pods, on...), append(nodes, found...)
	}
	return newInventory(pods, nodes), nil
}

// podsWith lists the pods that a field selector selects, page by page.
func (k *Kube) podsWith(ctx context.Context, selector string) (pods []*netmodel.Pod, err error) {
	opts := metav1.ListOptions{FieldSelector: selector, Limit: page}
	for {
		list, err := k.lists.podMeta(ctx, opts, func(p *corev1.Pod) { pods = append(pods, inventoryPod(p)) })
		if err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			return pods, nil
		}
	}
}

// GoneNodes lists the nodes now, and returns a function that reports whether a node is missing in that list.
func (k *Kube) GoneNodes(ctx context.Context) (func(node string) bool, error) {
	nodes, err := k.nodeNames(ctx, "")
	if err != nil {
		return nil, err
	}
	return newInventory(nil, nodes).NodeGone, nil
}

// nodeNames lists the names of the nodes that a field selector selects.
func (k *Kube) nodeNames(ctx context.Context, selector string) ([]string, error) {
	nodes := []string{}
	for next := ""; ; {
		opts := metav1.ListOptions{FieldSelector: selector, Limit: page, Continue: next}
		list, err := k.core.CoreV1().Nodes().List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		for i := range list.Items {
			nodes = append(nodes, list.Items[i].Name)
		}
		if next = list.Continue; next == "" {
			return nodes, nil
		}
	}
}
