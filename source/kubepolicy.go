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
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/policy"
)

// policyWatch has the informers of policies, and of the pods and namespaces that they select. The latter two run from
// the first policy on: a cluster without policies does not pay for them.
type policyWatch struct {
	policies   cache.SharedIndexInformer // of *knownPolicy
	pods       cache.SharedIndexInformer
	namespaces cache.SharedIndexInformer
	some       sync.Once
	start      chan struct{} // closed when there is a policy
}

// rawPolicy is a MultiNetworkPolicy as the API server sends it.
type rawPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
}

// knownPolicy is what the informer keeps of a MultiNetworkPolicy.
type knownPolicy struct {
	metav1.TypeMeta
	metav1.ObjectMeta // only namespace, name, UID and resource version
	object            *policy.Object
	owners            string // hash of what the owner of the policy writes
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
	object := policy.NewObject(raw.Namespace, raw.Name, raw.CreationTimestamp.Unix(), raw.Annotations, raw.Spec, size)
	return &knownPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: raw.Namespace, Name: raw.Name, UID: raw.UID, ResourceVersion: raw.ResourceVersion,
		},
		object: object,
		owners: policy.Hash(map[string]string{"spec": text, "for": raw.Annotations[policy.ForAnnotation]}),
	}
}

// kindEvery is the time after which the API server is asked again whether it knows the kind of policies by now.
const kindEvery = 30 * time.Second

const policyResource = "multi-networkpolicies"

// policyAPI begins a request for policies: the client of NADs has the API group, in another version.
func (k *Kube) policyAPI(verb string) *rest.Request {
	return k.nadAPI.K8sCniCncfIoV1().RESTClient().Verb(verb).AbsPath("/apis", "k8s.cni.cncf.io", "v1beta1").
		SetHeader("Accept", wholeObjects)
}

// watchPolicies creates the informers. Without the kind in the API, there are no policies.
func (k *Kube) watchPolicies(changes Changes) error {
	w := &policyWatch{start: make(chan struct{})}
	w.policies = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc:  k.listPolicies,
		WatchFuncWithContext: k.openPolicies,
	}, &knownPolicy{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	changed := func(obj any) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		w.some.Do(func() { close(w.start) })
		if p, ok := obj.(*knownPolicy); ok {
			changes.Policy(p.Namespace)
		}
	}
	_, err := w.policies.AddEventHandler(cache.ResourceEventHandlerFuncs{
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
	k.run = append(k.run, w.policies.Run, func(stop <-chan struct{}) {
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

func (k *Kube) listPolicies(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list := &knownPolicies{}
	body, err := k.policyAPI(http.MethodGet).Suffix(policyResource).
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
func (k *Kube) openPolicies(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	body, err := k.policyAPI(http.MethodGet).Suffix(policyResource).
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
		UpdateFunc: func(old, now any) {
			was, is := old.(*corev1.Pod), now.(*corev1.Pod)
			relabelled := was.UID == is.UID && !maps.Equal(was.Labels, is.Labels)
			if len(is.Annotations) > 0 && (relabelled || was.UID != is.UID || len(was.Annotations) != len(is.Annotations)) {
				changes.Pod(is.Namespace, string(is.UID), relabelled)
			}
			if was.UID != is.UID { // the informer missed a deletion
				changes.PodGone(was.Namespace, string(was.UID))
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
	for _, key := range []string{nad.StatusAnnotation, manyLabels, mirrorAnnotation} {
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

// Policies returns the policies of a namespace; of all namespaces if namespace is empty.
func (k *Kube) Policies(ctx context.Context, namespace string) ([]*policy.Object, error) {
	if err := synced(ctx, "policies", k.policies.policies); err != nil {
		return nil, err
	}
	known := k.policies.policies.GetStore().List()
	if namespace != "" {
		var err error
		if known, err = k.policies.policies.GetIndexer().ByIndex(cache.NamespaceIndex, namespace); err != nil {
			return nil, err
		}
	}
	all := make([]*policy.Object, len(known))
	for i, obj := range known {
		all[i] = obj.(*knownPolicy).object
	}
	return all, nil
}

// PolicyPods returns the pods of a namespace that request networks.
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
		if p := obj.(*corev1.Pod); len(p.Annotations) > 0 && p.Spec.NodeName != "" {
			pods = append(pods, &policy.Pod{
				Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Mirror: p.Annotations[mirrorAnnotation],
				Node: p.Spec.NodeName, Labels: p.Labels, ManyLabels: hasManyLabels(p),
			})
		}
	}
	return pods, nil
}

// Namespaces returns the labels of all namespaces.
func (k *Kube) Namespaces(ctx context.Context) (map[string]map[string]string, error) {
	if err := synced(ctx, "namespaces", k.policies.namespaces); err != nil {
		return nil, err
	}
	all := map[string]map[string]string{}
	for _, obj := range k.policies.namespaces.GetStore().List() {
		n := obj.(*corev1.Namespace)
		all[n.Name] = n.Labels
	}
	return all, nil
}

// SetPolicyState writes the annotation with the state of a policy.
func (k *Kube) SetPolicyState(ctx context.Context, o *policy.Object, state string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{policy.StateAnnotation: state},
	}})
	if err != nil {
		return err
	}
	err = k.policyAPI(http.MethodPatch).Suffix("namespaces", o.Namespace, policyResource, o.Name).
		SetHeader("Content-Type", string(types.MergePatchType)).Body(patch).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", o.ID(), netmodel.ErrNotFound)
	}
	return err
}

// PolicyEvent records an Event of a policy. It does not wait: an Event that the API server refuses is lost.
func (k *Kube) PolicyEvent(o *policy.Object, warning bool, reason, message string) {
	ref := &corev1.ObjectReference{
		Kind: policy.Kind, APIVersion: policy.APIVersion, Namespace: o.Namespace, Name: o.Name,
	}
	if obj, there, err := k.policies.policies.GetStore().GetByKey(o.ID()); there && err == nil {
		ref.UID = obj.(*knownPolicy).UID
	}
	k.record.Event(ref, string(eventKind(warning)), reason, conf.OneLine(message, conf.MaxReason))
}
