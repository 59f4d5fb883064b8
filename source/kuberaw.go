package source

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// rawObject is a policy or a Service as the API server sends it. A typed client would discard fields that it does not
// know.
type rawObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            struct {
		Conditions   []metav1.Condition        `json:"conditions"`
		LoadBalancer corev1.LoadBalancerStatus `json:"loadBalancer"`
	} `json:"status"`
}

// kept is what an informer keeps of an object that it reads as JSON.
type kept[T any] struct {
	metav1.TypeMeta
	metav1.ObjectMeta        // only namespace, name, UID and resource version
	object            *T     // nil: the object is none of ours
	owners            string // hash of what the owner of the object writes
}

func (k *kept[T]) setMeta(from *metav1.ObjectMeta) {
	k.ObjectMeta = metav1.ObjectMeta{
		Namespace: from.Namespace, Name: from.Name, UID: from.UID, ResourceVersion: from.ResourceVersion,
	}
}

// DeepCopyObject returns a copy of the object.
func (k *kept[T]) DeepCopyObject() runtime.Object {
	other := *k
	k.ObjectMeta.DeepCopyInto(&other.ObjectMeta)
	return &other
}

// keptList is a list of kept objects.
type keptList[T any] struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []kept[T]
}

// DeepCopyObject returns a copy of the list.
func (k *keptList[T]) DeepCopyObject() runtime.Object {
	other := &keptList[T]{TypeMeta: k.TypeMeta, Items: make([]kept[T], len(k.Items))}
	k.ListMeta.DeepCopyInto(&other.ListMeta)
	for i := range k.Items {
		other.Items[i] = *k.Items[i].DeepCopyObject().(*kept[T])
	}
	return other
}

// apiKind is a kind of objects in the API. If it has a label selector, only the selected ones are read.
type apiKind struct{ group, version, resource, selector string }

// api begins a request for objects of a kind. The REST client of NADs serves for all API groups.
func (k *Kube) api(verb string, kind apiKind) *rest.Request {
	r := k.nadAPI.K8sCniCncfIoV1().RESTClient().Verb(verb).SetHeader("Accept", wholeObjects)
	if kind.group == "" {
		return r.AbsPath("/api", kind.version)
	}
	return r.AbsPath("/apis", kind.group, kind.version)
}

// rawReader reads the objects of a kind, in the form R.
type rawReader[R, T any] struct {
	k    *Kube
	kind apiKind
	keep func(*R) *kept[T]
}

func byNamespace() cache.Indexers {
	return cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
}

// kindEvery is the time after which the API server is asked again whether it knows a kind by now.
const kindEvery = 30 * time.Second

// informer creates the informer. Without the kind in the API, there are no objects of it.
func (r rawReader[R, T]) informer(indexers cache.Indexers) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return r.list(ctx, opts)
		},
		WatchFuncWithContext: r.watch,
	}, &kept[T]{}, 0, indexers)
}

func (r rawReader[R, T]) open(ctx context.Context, opts metav1.ListOptions) (io.ReadCloser, error) {
	opts.LabelSelector = r.kind.selector
	return r.k.api(http.MethodGet, r.kind).NamespaceIfScoped(r.k.only, r.k.only != "").Suffix(r.kind.resource).
		SpecificallyVersionedParams(&opts, scheme.ParameterCodec, corev1.SchemeGroupVersion).Stream(ctx)
}

func (r rawReader[R, T]) list(ctx context.Context, opts metav1.ListOptions) (*keptList[T], error) {
	list := &keptList[T]{}
	body, err := r.open(ctx, opts)
	if apierrors.IsNotFound(err) {
		list.ResourceVersion = "0"
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	list.ListMeta, err = decodeList(body, func(raw *R) { list.Items = append(list.Items, *r.keep(raw)) })
	return list, err
}

// watch watches the objects. While the API server does not know the kind, the watch has no events and ends soon.
func (r rawReader[R, T]) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	body, err := r.open(ctx, opts)
	if apierrors.IsNotFound(err) {
		none := watch.NewFake()
		time.AfterFunc(kindEvery, none.Stop)
		return none, nil
	}
	if err != nil {
		return nil, err
	}
	return watch.NewStreamWatcher(&rawEvents[R, T]{r.keep, body, json.NewDecoder(body)},
		apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")), nil
}

// rawEvents decodes the events of a watch.
type rawEvents[R, T any] struct {
	keep    func(*R) *kept[T]
	body    io.ReadCloser
	decoder *json.Decoder
}

// Close ends the watch.
func (e *rawEvents[R, T]) Close() { e.body.Close() }

// Decode returns the next event.
func (e *rawEvents[R, T]) Decode() (watch.EventType, runtime.Object, error) {
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
	raw := new(R)
	if err := utiljson.Unmarshal(event.Object, raw); err != nil {
		return "", nil, err
	}
	return event.Type, e.keep(raw), nil
}

// lastKnown is the object in an informer's notification.
func lastKnown(obj any) any {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return last.Obj
	}
	return obj
}
