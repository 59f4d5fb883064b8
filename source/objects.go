package source

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
)

// objects are those that a controller with policies and Services reads. Kube feeds them from the API by informers,
// Manifests from a folder.
type objects struct {
	policies        stored   // of *keptPolicy: MultiNetworkPolicies
	clusterPolicies stored   // of *keptPolicy: ClusterNetworkPolicies
	services        stored   // of *keptService
	namespaces      stored   // of *corev1.Namespace
	networked       stored   // of *corev1.Pod: all pods, as policyPod keeps them
	entries         []stored // of *keptEntry: the operator's objects
	claims          stored   // of *keptClaim: IPAMClaims
	// withPolicyState and the others return a copy with the state that the controller wrote elsewhere than into the
	// object. They are nil if the objects have their states.
	withPolicyState  func(*policy.Object) *policy.Object
	withEntryState   func(*entry.Object) *entry.Object
	withServiceState func(*service.Object) *service.Object
	withClaimState   func(*netmodel.IPAMClaim) *netmodel.IPAMClaim
}

// stored has the objects of one kind.
type stored struct {
	cache.Indexer
	complete func(context.Context) error // waits until all objects are there; nil: they always are
}

// informed is what an informer has.
func informed(what string, informer cache.SharedIndexInformer) stored {
	return stored{informer.GetIndexer(), func(ctx context.Context) error {
		if late, ok := informer.(*lateInformer); ok {
			late.need()
		}
		return synced(ctx, what, informer)
	}}
}

// all returns all objects.
func (s *stored) all(ctx context.Context) ([]any, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.List(), nil
}

// in returns the objects of a namespace.
func (s *stored) in(ctx context.Context, namespace string) ([]any, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.ByIndex(cache.NamespaceIndex, namespace)
}

// inUse returns the namespaces that have objects.
func (s *stored) inUse(ctx context.Context) ([]string, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.ListIndexFuncValues(cache.NamespaceIndex), nil
}

// has reports whether there is an object, by "<namespace>/<name>", or "<name>" for a kind without namespaces.
func (s *stored) has(name string) bool {
	_, there, _ := s.GetByKey(name)
	return there
}

func (s *stored) wait(ctx context.Context) error {
	if s.complete == nil {
		return nil
	}
	return s.complete(ctx)
}

// objectsOf returns the objects that are ours, each with its state.
func objectsOf[T any](known []any, err error, withState func(*T) *T) ([]*T, error) {
	var all []*T
	for _, obj := range known {
		o := obj.(*kept[T]).object
		if o != nil && withState != nil {
			o = withState(o)
		}
		if o != nil {
			all = append(all, o)
		}
	}
	return all, err
}

// Policies returns the MultiNetworkPolicies of a namespace.
func (o *objects) Policies(ctx context.Context, namespace string) ([]*policy.Object, error) {
	known, err := o.policies.in(ctx, namespace)
	return objectsOf(known, err, o.withPolicyState)
}

// PolicyNamespaces returns the namespaces that have MultiNetworkPolicies.
func (o *objects) PolicyNamespaces(ctx context.Context) ([]string, error) {
	return o.policies.inUse(ctx)
}

// ClusterPolicies returns the ClusterNetworkPolicies that are for OVN networks.
func (o *objects) ClusterPolicies(ctx context.Context) ([]*policy.Object, error) {
	known, err := o.clusterPolicies.all(ctx)
	return objectsOf(known, err, o.withPolicyState)
}

// Services returns the Services of a namespace that are ours.
func (o *objects) Services(ctx context.Context, namespace string) ([]*service.Object, error) {
	known, err := o.services.in(ctx, namespace)
	return objectsOf(known, err, o.withServiceState)
}

// Service returns one Service; nil if it does not exist or is not ours.
func (o *objects) Service(ctx context.Context, namespace, name string) (*service.Object, error) {
	if err := o.services.wait(ctx); err != nil {
		return nil, err
	}
	obj, there, err := o.services.GetByKey(namespace + "/" + name)
	if !there || err != nil {
		return nil, err
	}
	all, err := objectsOf([]any{obj}, nil, o.withServiceState)
	if len(all) == 0 {
		return nil, err
	}
	return all[0], err
}

// ServiceNamespaces returns the namespaces that have such Services.
func (o *objects) ServiceNamespaces(ctx context.Context) ([]string, error) {
	return o.services.inUse(ctx)
}

// PolicyPods returns the pods of a namespace that request networks, also those that are not bound to a node yet.
func (o *objects) PolicyPods(ctx context.Context, namespace string) ([]*netmodel.Pod, error) {
	known, err := o.networked.in(ctx, namespace)
	var pods []*netmodel.Pod
	for _, obj := range known {
		if p := obj.(*corev1.Pod); len(p.Annotations) > 0 {
			pods = append(pods, fromPod(p))
		}
	}
	return pods, err
}

// PodsWithOutside returns the pods that request outside addresses or have a state of some, as "<namespace>/<name>".
func (o *objects) PodsWithOutside(ctx context.Context) (ids []string, err error) {
	known, err := o.networked.all(ctx)
	for _, obj := range known {
		if p := obj.(*corev1.Pod); p.Annotations[conf.OutsideAnnotation] != "" || outsideOf(p).Reason != "" {
			ids = append(ids, p.Namespace+"/"+p.Name)
		}
	}
	return ids, err
}

// Namespaces returns all namespaces.
func (o *objects) Namespaces(ctx context.Context) (map[string]policy.Namespace, error) {
	known, err := o.namespaces.all(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]policy.Namespace{}
	for _, obj := range known {
		n := obj.(*corev1.Namespace)
		all[n.Name] = policy.Namespace{Labels: n.Labels, Version: n.ResourceVersion}
	}
	return all, nil
}

// onNamespaces tells of namespaces that are new or gone, and of those whose labels have changed.
func onNamespaces(changed func(name string)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { changed(objectKey(obj)) },
		UpdateFunc: func(old, now any) {
			if !maps.Equal(old.(*corev1.Namespace).Labels, now.(*corev1.Namespace).Labels) {
				changed(objectKey(now))
			}
		},
		DeleteFunc: func(obj any) { changed(objectKey(obj)) },
	}
}

// onNADs tells of NADs that are new or gone, and of those that have changed.
func onNADs(changed func(namespace, name string)) cache.ResourceEventHandlerFuncs {
	tell := func(obj any) {
		if namespace, name, err := cache.SplitMetaNamespaceKey(objectKey(obj)); err == nil {
			changed(namespace, name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    tell,
		DeleteFunc: tell,
		UpdateFunc: func(old, now any) {
			if !old.(*knownNAD).nad.Equal(&now.(*knownNAD).nad) {
				tell(now)
			}
		},
	}
}

// onKept tells of objects that are new or gone, and of those that their owners have changed.
func onKept[T any](tell func(*kept[T])) cache.ResourceEventHandlerFuncs {
	changed := func(obj any) {
		if o, ok := lastKnown(obj).(*kept[T]); ok {
			tell(o)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: changed, DeleteFunc: changed,
		UpdateFunc: func(old, now any) {
			if a, b := old.(*kept[T]), now.(*kept[T]); a.owners != b.owners || a.UID != b.UID {
				changed(now)
			}
		},
	}
}
