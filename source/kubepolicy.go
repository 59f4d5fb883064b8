package source

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-multinet/ovn-multinet/policy"
)

// policyWatch has the informers of policies, and of the namespaces that they select. The latter runs from the first
// policy on.
type policyWatch struct {
	policies   cache.SharedIndexInformer // MultiNetworkPolicies
	cluster    cache.SharedIndexInformer // ClusterNetworkPolicies
	namespaces *lateInformer
}

// keptPolicy is what the informer keeps of a policy. Without an object, it is a ClusterNetworkPolicy that is not for
// OVN networks.
type keptPolicy = kept[policy.Object]

func keepPolicy(raw *rawObject) *keptPolicy {
	text := string(raw.Spec)
	size := len(text)
	for key, value := range raw.Annotations {
		size += len(key) + len(value)
	}
	known := &keptPolicy{owners: policy.Hash(map[string]string{
		"spec": text, "for": raw.Annotations[policy.ForAnnotation], "log": raw.Annotations[policy.LogAnnotation],
	})}
	known.setMeta(&raw.ObjectMeta)
	if _, ours := raw.Annotations[policy.ForAnnotation]; ours || raw.Namespace != "" {
		known.object = policy.NewObject(
			raw.Namespace, raw.Name, raw.CreationTimestamp.Unix(), raw.Annotations, raw.Spec, size)
		if raw.Namespace == "" {
			known.object.State = stateOf(raw.Status.Conditions)
		}
	}
	return known
}

var (
	multiKind   = apiKind{group: "k8s.cni.cncf.io", version: "v1beta1", resource: "multi-networkpolicies"}
	clusterKind = apiKind{group: "policy.networking.k8s.io", version: "v1alpha2", resource: "clusternetworkpolicies"}
)

func (k *Kube) policyReader(kind apiKind) rawReader[rawObject, policy.Object] {
	return rawReader[rawObject, policy.Object]{k, kind, keepPolicy}
}

// watchPolicies creates the informers.
func (k *Kube) watchPolicies(changes Changes) error {
	w := &policyWatch{}
	changed := func(p *keptPolicy) {
		if p.object != nil {
			k.policyPods.need()
			w.namespaces.need()
		}
		changes.Policy(p.Namespace)
	}
	w.policies = k.policyReader(multiKind).informer(byNamespace())
	w.cluster = k.policyReader(clusterKind).informer(cache.Indexers{})
	k.policies = w
	err := errors.Join(onChange(w.policies, changed), onChange(w.cluster, changed), k.watchNamespaces(w, changes))
	k.run = append(k.run, w.policies.Run, w.cluster.Run, w.namespaces.Run)
	return err
}

// watchNamespaces creates the informer of all namespaces.
func (k *Kube) watchNamespaces(w *policyWatch, changes Changes) error {
	f := informers.NewSharedInformerFactoryWithOptions(k.core, 0, informers.WithTransform(func(obj any) (any, error) {
		if n, ok := obj.(*corev1.Namespace); ok {
			kept, _ := trimLabels(n.Labels)
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: kept,
			}}, nil
		}
		return obj, nil
	}))
	w.namespaces = newLateInformer(f.Core().V1().Namespaces().Informer())
	_, err := w.namespaces.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { changes.Namespace(objectKey(obj)) },
		UpdateFunc: func(old, now any) {
			if !maps.Equal(old.(*corev1.Namespace).Labels, now.(*corev1.Namespace).Labels) {
				changes.Namespace(objectKey(now))
			}
		},
		DeleteFunc: func(obj any) { changes.Namespace(objectKey(obj)) },
	})
	return err
}

// Policies returns the MultiNetworkPolicies of a namespace.
func (k *Kube) Policies(ctx context.Context, namespace string) ([]*policy.Object, error) {
	if err := synced(ctx, "policies", k.policies.policies); err != nil {
		return nil, err
	}
	known, err := k.policies.policies.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	return objectsOf[policy.Object](known), err
}

// PolicyNamespaces returns the namespaces that have MultiNetworkPolicies.
func (k *Kube) PolicyNamespaces(ctx context.Context) ([]string, error) {
	if err := synced(ctx, "policies", k.policies.policies); err != nil {
		return nil, err
	}
	return k.policies.policies.GetIndexer().ListIndexFuncValues(cache.NamespaceIndex), nil
}

// ClusterPolicies returns the ClusterNetworkPolicies that are for OVN networks.
func (k *Kube) ClusterPolicies(ctx context.Context) ([]*policy.Object, error) {
	if err := synced(ctx, "cluster network policies", k.policies.cluster); err != nil {
		return nil, err
	}
	return objectsOf[policy.Object](k.policies.cluster.GetStore().List()), nil
}

// AllPolicies lists the MultiNetworkPolicies of all namespaces, and the ClusterNetworkPolicies that are for OVN
// networks. Unlike the other methods it always asks the API server.
func (k *Kube) AllPolicies(ctx context.Context) ([]*policy.Object, error) {
	var all []*policy.Object
	for _, kind := range []apiKind{multiKind, clusterKind} {
		list, err := k.policyReader(kind).list(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.resource, err)
		}
		for _, known := range list.Items {
			if known.object != nil {
				all = append(all, known.object)
			}
		}
	}
	return all, nil
}

// Namespaces returns all namespaces.
func (k *Kube) Namespaces(ctx context.Context) (map[string]policy.Namespace, error) {
	if err := synced(ctx, "namespaces", k.policies.namespaces); err != nil {
		return nil, err
	}
	all := map[string]policy.Namespace{}
	for _, obj := range k.policies.namespaces.GetStore().List() {
		n := obj.(*corev1.Namespace)
		all[n.Name] = policy.Namespace{Labels: n.Labels, Version: n.ResourceVersion}
	}
	return all, nil
}
