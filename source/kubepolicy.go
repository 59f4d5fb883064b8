package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
)

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

func (k *Kube) policyReader(
	kind apiKind, keep func(*rawObject) *keptPolicy,
) rawReader[rawObject, policy.Object] {
	return rawReader[rawObject, policy.Object]{k, kind, keep}
}

// watchPolicies creates the informers of policies, and of the namespaces that they select. The latter runs from the
// first policy on.
func (k *Kube) watchPolicies(changes Changes) error {
	cached := &cachedPolicies{}
	policies := k.policyReader(multiKind, cached.keep).informer(byNamespace())
	cluster := k.policyReader(clusterKind, keepPolicy).informer(cache.Indexers{})
	namespaces := k.allNamespaces()
	changed := onKept(func(p *keptPolicy) {
		if p.object != nil {
			k.policyPods.need()
			namespaces.need()
		}
		changes.Policy(p.Namespace)
	})
	k.policies = informed("policies", policies)
	k.clusterPolicies = informed("cluster network policies", cluster)
	k.namespaces = informed("namespaces", namespaces)
	k.run = append(k.run, policies.Run, cluster.Run, namespaces.Run)
	_, err := policies.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: cached.gone})
	return errors.Join(err, listen(policies, changed), listen(cluster, changed),
		listen(namespaces, onNamespaces(changes.Namespace)))
}

// allNamespaces returns an informer of all namespaces.
func (k *Kube) allNamespaces() *lateInformer {
	f := informers.NewSharedInformerFactoryWithOptions(k.core, 0, informers.WithTransform(func(obj any) (any, error) {
		if n, ok := obj.(*corev1.Namespace); ok {
			kept, _ := trimLabels(n.Labels)
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: kept,
			}}, nil
		}
		return obj, nil
	}))
	return newLateInformer(f.Core().V1().Namespaces().Informer())
}

// listen makes an informer call the handler.
func listen(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
	_, err := informer.AddEventHandler(handler)
	return err
}

// Policy reads a MultiNetworkPolicy from the API server, also one that is shed.
func (k *Kube) Policy(ctx context.Context, namespace, name string) (*policy.Object, error) {
	body, err := k.api(http.MethodGet, multiKind).Suffix("namespaces", namespace, multiKind.resource, name).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("policy %s/%s: %w", namespace, name, netmodel.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("policy %s/%s: %w", namespace, name, err)
	}
	raw := &rawObject{}
	if err := utiljson.Unmarshal(body, raw); err != nil {
		return nil, fmt.Errorf("policy %s/%s: %w", namespace, name, err)
	}
	return keepPolicy(raw).object, nil
}

// AllPolicies lists the MultiNetworkPolicies of all namespaces, and the ClusterNetworkPolicies that are for OVN
// networks. Unlike the other methods it always asks the API server.
func (k *Kube) AllPolicies(ctx context.Context) ([]*policy.Object, error) {
	var all []*policy.Object
	for _, kind := range []apiKind{multiKind, clusterKind} {
		if kind == clusterKind && k.only != "" {
			continue
		}
		list, err := k.policyReader(kind, keepPolicy).list(ctx, metav1.ListOptions{})
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
