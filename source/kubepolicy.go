package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/policy"
)

// policyWatch has the informers of policies, and of the pods and namespaces that they select. The latter two run from
// the first policy on: a cluster without policies does not pay for them.
type policyWatch struct {
	policies   cache.SharedIndexInformer // of *knownPolicy: MultiNetworkPolicies
	cluster    cache.SharedIndexInformer // of *knownPolicy: ClusterNetworkPolicies
	pods       cache.SharedIndexInformer
	namespaces cache.SharedIndexInformer
	some       sync.Once
	start      chan struct{} // closed when there is a policy
}

// rawPolicy is a policy as the API server sends it.
type rawPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// knownPolicy is what the informer keeps of a policy.
type knownPolicy struct {
	metav1.TypeMeta
	metav1.ObjectMeta                // only namespace, name, UID and resource version
	object            *policy.Object // nil: a ClusterNetworkPolicy that is not for OVN networks
	owners            string         // hash of what the owner of the policy writes
}

// DeepCopyObject returns a copy of the policy.
func (k *knownPolicy) DeepCopyObject() runtime.Object {
	other := *k
	k.ObjectMeta.DeepCopyInto(&other.ObjectMeta)
	return &other
}

// knownPolicies is a list of knownPolicy.
type knownPolicies struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []knownPolicy
}

// DeepCopyObject returns a copy of the list.
func (k *knownPolicies) DeepCopyObject() runtime.Object {
	other := &knownPolicies{TypeMeta: k.TypeMeta, Items: make([]knownPolicy, len(k.Items))}
	k.ListMeta.DeepCopyInto(&other.ListMeta)
	for i := range k.Items {
		other.Items[i] = *k.Items[i].DeepCopyObject().(*knownPolicy)
	}
	return other
}

func keepPolicy(raw *rawPolicy) *knownPolicy {
	text := string(raw.Spec)
	size := len(text)
	for key, value := range raw.Annotations {
		size += len(key) + len(value)
	}
	known := &knownPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: raw.Namespace, Name: raw.Name, UID: raw.UID, ResourceVersion: raw.ResourceVersion,
		},
		owners: policy.Hash(map[string]string{
			"spec": text, "for": raw.Annotations[policy.ForAnnotation], "log": raw.Annotations[policy.LogAnnotation],
		}),
	}
	if _, ours := raw.Annotations[policy.ForAnnotation]; ours || raw.Namespace != "" {
		known.object = policy.NewObject(
			raw.Namespace, raw.Name, raw.CreationTimestamp.Unix(), raw.Annotations, raw.Spec, size)
		if raw.Namespace == "" {
			known.object.State = stateOf(raw.Status.Conditions)
		}
	}
	return known
}

// kindEvery is the time after which the API server is asked again whether it knows the kind of policies by now.
const kindEvery = 30 * time.Second

// policyKind is a kind of policies in the API.
type policyKind struct{ group, version, resource string }

var (
	multiKind   = policyKind{"k8s.cni.cncf.io", "v1beta1", "multi-networkpolicies"}
	clusterKind = policyKind{"policy.networking.k8s.io", "v1alpha2", "clusternetworkpolicies"}
)

// policyAPI begins a request for policies. The REST client of NADs serves for all API groups.
func (k *Kube) policyAPI(verb string, kind policyKind) *rest.Request {
	return k.nadAPI.K8sCniCncfIoV1().RESTClient().Verb(verb).AbsPath("/apis", kind.group, kind.version).
		SetHeader("Accept", wholeObjects)
}

// watchPolicies creates the informers.
func (k *Kube) watchPolicies(changes Changes) error {
	w := &policyWatch{start: make(chan struct{})}
	changed := func(obj any) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if p, ok := obj.(*knownPolicy); ok {
			if p.object != nil {
				w.some.Do(func() { close(w.start) })
			}
			changes.Policy(p.Namespace)
		}
	}
	w.policies, w.cluster = k.policyInformer(multiKind), k.policyInformer(clusterKind)
	for _, informer := range []cache.SharedIndexInformer{w.policies, w.cluster} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, DeleteFunc: changed,
			UpdateFunc: func(old, now any) {
				if a, b := old.(*knownPolicy), now.(*knownPolicy); a.owners != b.owners || a.UID != b.UID {
					changed(now)
				}
			},
		})
		if err != nil {
			return err
		}
	}
	k.run = append(k.run, w.policies.Run, w.cluster.Run, func(stop <-chan struct{}) {
		select {
		case <-stop:
		case <-w.start:
			go w.pods.Run(stop)
			w.namespaces.Run(stop)
		}
	})
	k.policies = w
	return errors.Join(k.watchPolicyPods(w, changes), k.watchNamespaces(w, changes))
}

// policyInformer creates the informer of one kind. Without the kind in the API, there are no policies of it.
func (k *Kube) policyInformer(kind policyKind) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return k.listPolicies(ctx, kind, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return k.openPolicies(ctx, kind, opts)
		},
	}, &knownPolicy{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

func (k *Kube) listPolicies(
	ctx context.Context, kind policyKind, opts metav1.ListOptions,
) (*knownPolicies, error) {
	list := &knownPolicies{}
	body, err := k.policyAPI(http.MethodGet, kind).Suffix(kind.resource).
		SpecificallyVersionedParams(&opts, scheme.ParameterCodec, corev1.SchemeGroupVersion).Stream(ctx)
	if apierrors.IsNotFound(err) {
		list.ResourceVersion = "0"
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	list.ListMeta, err = decodeList(body, func(raw *rawPolicy) { list.Items = append(list.Items, *keepPolicy(raw)) })
	return list, err
}

// openPolicies watches policies. While the API server does not know the kind, the watch has no events and ends soon.
func (k *Kube) openPolicies(
	ctx context.Context, kind policyKind, opts metav1.ListOptions,
) (watch.Interface, error) {
	opts.Watch = true
	body, err := k.policyAPI(http.MethodGet, kind).Suffix(kind.resource).
		SpecificallyVersionedParams(&opts, scheme.ParameterCodec, corev1.SchemeGroupVersion).Stream(ctx)
	if apierrors.IsNotFound(err) {
		none := watch.NewFake()
		time.AfterFunc(kindEvery, none.Stop)
		return none, nil
	}
	if err != nil {
		return nil, err
	}
	return watch.NewStreamWatcher(&policyEvents{body, json.NewDecoder(body)},
		apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")), nil
}

// policyEvents decodes the events of a watch.
type policyEvents struct {
	body    io.ReadCloser
	decoder *json.Decoder
}

// Close ends the watch.
func (e *policyEvents) Close() { e.body.Close() }

// Decode returns the next event.
func (e *policyEvents) Decode() (watch.EventType, runtime.Object, error) {
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := e.decoder.Decode(&event); err != nil {
		return "", nil, err
	}
	if event.Type == watch.Error {
		status := &metav1.Status{}
		return event.Type, status, utiljson.Unmarshal(event.Object, status)
	}
	raw := &rawPolicy{}
	if err := utiljson.Unmarshal(event.Object, raw); err != nil {
		return "", nil, err
	}
	return event.Type, keepPolicy(raw), nil
}

// watchPolicyPods creates the informer of all pods.
func (k *Kube) watchPolicyPods(w *policyWatch, changes Changes) error {
	w.pods = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.PodList{}
			var err error
			list.ListMeta, err = k.lists.pods(ctx, opts, func(p *corev1.Pod) {
				list.Items = append(list.Items, *policyPod(p))
			})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return k.core.CoreV1().Pods("").Watch(ctx, opts)
		},
	}, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	_, err := w.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if p, ok := obj.(*corev1.Pod); ok && len(portsOf(p)) > 0 {
				changes.Ports(p.Namespace)
			}
		},
		UpdateFunc: func(old, now any) {
			was, is := old.(*corev1.Pod), now.(*corev1.Pod)
			relabelled := was.UID == is.UID && !maps.Equal(was.Labels, is.Labels)
			if len(is.Annotations) > 0 && (relabelled || was.UID != is.UID || len(was.Annotations) != len(is.Annotations)) {
				changes.Pod(is.Namespace, string(is.UID), relabelled)
			}
			if was.UID != is.UID { // the informer missed a deletion
				changes.PodGone(was.Namespace, string(was.UID))
				if len(portsOf(is)) > 0 {
					changes.Ports(is.Namespace)
				}
			}
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if p, ok := obj.(*corev1.Pod); ok {
				changes.PodGone(p.Namespace, string(p.UID))
			}
		},
	})
	return errors.Join(err, w.pods.SetTransform(func(obj any) (any, error) {
		if p, ok := obj.(*corev1.Pod); ok {
			return policyPod(p), nil
		}
		return obj, nil
	}))
}

// policyPod returns what policies need of a pod. Its annotations tell that the pod requests networks, and that it has
// them.
func policyPod(p *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
	}}
	known := knownPod(p)
	if known.Spec.HostNetwork || len(conf.NetworkAnnotations(known.Annotations)) == 0 {
		return kept
	}
	kept.Labels, kept.Spec.NodeName = known.Labels, known.Spec.NodeName
	kept.Annotations = map[string]string{conf.NetworksAnnotation: ""}
	for _, key := range []string{nad.StatusAnnotation, manyLabels, namedPorts, mirrorAnnotation} {
		if value, ok := known.Annotations[key]; ok {
			kept.Annotations[key] = value
		}
	}
	return kept
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
	w.namespaces = f.Core().V1().Namespaces().Informer()
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

// synced waits until an informer has listed its objects.
func synced(ctx context.Context, what string, informer cache.SharedIndexInformer) error {
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("list %s: %w", what, context.Cause(ctx))
	}
	return nil
}

// Policies returns the MultiNetworkPolicies of a namespace.
func (k *Kube) Policies(ctx context.Context, namespace string) ([]*policy.Object, error) {
	if err := synced(ctx, "policies", k.policies.policies); err != nil {
		return nil, err
	}
	known, err := k.policies.policies.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	return objectsOf(known), err
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
	return objectsOf(k.policies.cluster.GetStore().List()), nil
}

// AllPolicies lists the MultiNetworkPolicies of all namespaces, and the ClusterNetworkPolicies that are for OVN
// networks. Unlike the other methods it always asks the API server.
func (k *Kube) AllPolicies(ctx context.Context) ([]*policy.Object, error) {
	var all []*policy.Object
	for _, kind := range []policyKind{multiKind, clusterKind} {
		list, err := k.listPolicies(ctx, kind, metav1.ListOptions{})
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

func objectsOf(known []any) []*policy.Object {
	var all []*policy.Object
	for _, obj := range known {
		if o := obj.(*knownPolicy).object; o != nil {
			all = append(all, o)
		}
	}
	return all
}

// PolicyPods returns the pods of a namespace that request networks, also those that are not bound to a node yet.
func (k *Kube) PolicyPods(ctx context.Context, namespace string) ([]*policy.Pod, error) {
	if err := synced(ctx, "pods", k.policies.pods); err != nil {
		return nil, err
	}
	known, err := k.policies.pods.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil, err
	}
	var pods []*policy.Pod
	for _, obj := range known {
		if p := obj.(*corev1.Pod); len(p.Annotations) > 0 {
			pods = append(pods, &policy.Pod{
				Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Mirror: p.Annotations[mirrorAnnotation],
				Node: p.Spec.NodeName, Labels: p.Labels, ManyLabels: hasManyLabels(p), Version: p.ResourceVersion,
				Ports: portsOf(p),
			})
		}
	}
	return pods, nil
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
