package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
)

// Kube is the Kubernetes API: informers for what is asked for all the time, and a live GET for what is not there
// yet or is another pod of the same name.
type Kube struct {
	core   kubernetes.Interface
	nadAPI nadclient.Interface
	pods   corelisters.PodLister
	whole  cache.InformerSynced // all pods of the node are in pods
	ends   ends                 // of pods of the node
	nads   cache.Store          // of *knownNAD
	nodes  *nodeWatch           // nil: the source of one node's agent
	lists  lists
	gets   *semaphore.Weighted // objects that are asked for live now
	run    []func(stop <-chan struct{})
	events record.EventBroadcaster
	record record.EventRecorder
	log    *slog.Logger
}

// component names us in Events.
const component = "ovn-multinet"

// NewKube watches the NADs, and the pods of one node when node is not empty, or else all nodes.
func NewKube(core kubernetes.Interface, nadAPI nadclient.Interface, node string, changes Changes, log *slog.Logger) (*Kube, error) {
	k := &Kube{core: core, nadAPI: nadAPI, log: log, events: record.NewBroadcaster(), gets: semaphore.NewWeighted(maxGets)}
	k.lists = lists{
		pods: func(ctx context.Context, opts metav1.ListOptions, keep func(*corev1.Pod)) (metav1.ListMeta, error) {
			return stream(ctx, core.CoreV1().RESTClient(), "pods", opts, keep)
		},
		nads: func(ctx context.Context, opts metav1.ListOptions, keep func(*nadv1.NetworkAttachmentDefinition)) (metav1.ListMeta, error) {
			return stream(ctx, nadAPI.K8sCniCncfIoV1().RESTClient(), "network-attachment-definitions", opts, keep)
		},
	}
	k.record = k.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: node})
	var err error
	if node != "" {
		err = k.watchPods(node)
	} else {
		err = k.watchNodes(changes.Nodes)
	}
	if err != nil {
		return nil, err
	}
	return k, k.watchNADs(changes.NAD)
}

// watchPods has an informer on the pods of a node.
func (k *Kube) watchPods(node string) error {
	ofNode := fields.OneTermEqualSelector("spec.nodeName", node).String()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = ofNode
			list := &corev1.PodList{}
			var err error
			list.ListMeta, err = k.lists.pods(ctx, opts, func(p *corev1.Pod) { list.Items = append(list.Items, *knownPod(p)) })
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = ofNode
			return k.core.CoreV1().Pods("").Watch(ctx, opts)
		},
	}, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	k.pods, k.whole = corelisters.NewPodLister(informer.GetIndexer()), informer.HasSynced
	k.run = append(k.run, informer.Run)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: k.warnHostNetwork,
		UpdateFunc: func(old, now any) {
			if uidOf(old) != uidOf(now) { // the informer has missed a deletion
				k.tellEnd(old)
			}
		},
		DeleteFunc: k.tellEnd,
	})
	return errors.Join(err, informer.SetTransform(trimPod))
}

// tellEnd tells those who wait for the end of a pod that it has ended.
func (k *Kube) tellEnd(obj any) {
	uid := uidOf(obj)
	k.ends.tell(func(p *Pod) bool { return p.UID == uid })
}

// uidOf returns the UID of a pod that an informer tells of, as it was known last.
func uidOf(obj any) string {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if p, ok := obj.(*corev1.Pod); ok {
		return string(p.UID)
	}
	return ""
}

// WhenGone has call called when the informer hears that the pod was deleted. Of a pod that the informer does not know
// yet, it will.
func (k *Kube) WhenGone(p *Pod, call func()) (stop func()) { return k.ends.when(p, call) }

// watchNADs has an informer on all NADs.
func (k *Kube) watchNADs(changed func(namespace, name string)) error {
	api := k.nadAPI.K8sCniCncfIoV1().NetworkAttachmentDefinitions("")
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list := &knownNADs{}
			var err error
			list.ListMeta, err = k.lists.nads(ctx, opts, func(n *nadv1.NetworkAttachmentDefinition) { list.Items = append(list.Items, *k.keep(n)) })
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return api.Watch(ctx, opts)
		},
	}, &nadv1.NetworkAttachmentDefinition{}, 0, cache.Indexers{})
	k.nads = informer.GetStore()
	k.run = append(k.run, informer.Run)
	if err := informer.SetTransform(k.trimNAD); err != nil || changed == nil {
		return err
	}
	tell := func(obj any) {
		if namespace, name, err := cache.SplitMetaNamespaceKey(objectKey(obj)); err == nil {
			changed(namespace, name)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    tell,
		DeleteFunc: tell,
		UpdateFunc: func(old, now any) {
			if !old.(*knownNAD).nad.Equal(&now.(*knownNAD).nad) {
				tell(now)
			}
		},
	})
	return err
}

// warnHostNetwork tells the owner of a pod in the host's network that its annotation has no effect: no runtime calls
// a CNI plugin for it.
func (k *Kube) warnHostNetwork(obj any) {
	p, ok := obj.(*corev1.Pod)
	if ok && p.Spec.HostNetwork && len(conf.NetworkAnnotations(p.Annotations)) > 0 {
		k.Event(fromPod(p), Warning, "NetworksIgnored", "the pod is in the host's network and gets no further interfaces; remove hostNetwork or the annotation")
	}
}

// Event records an Event of a pod. It does not wait: what the API does not take is lost.
func (k *Kube) Event(p *Pod, kind EventKind, reason, message string) {
	ref := &corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
	k.record.Event(ref, string(kind), reason, conf.OneLine(message, conf.MaxReason))
}

func objectKey(obj any) string {
	k, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	return k
}

// Run keeps the informers going, and Events flowing, until the end of ctx.
func (k *Kube) Run(ctx context.Context) error {
	k.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: k.core.CoreV1().Events("")})
	defer k.events.Shutdown()
	for _, run := range k.run {
		go run(ctx.Done())
	}
	<-ctx.Done()
	return nil
}

// Pod returns the pod from the informer, and asks the API when it is not there or is an older one of the name.
func (k *Kube) Pod(ctx context.Context, namespace, name, uid string) (*Pod, error) {
	if p, err := k.pods.Pods(namespace).Get(name); err == nil && fromPod(p).Is(uid) {
		return fromPod(p), nil
	}
	return k.LivePod(ctx, namespace, name)
}

// Pods returns the node's pods that are not in the host's network, as soon as the informer has all.
func (k *Kube) Pods(ctx context.Context) ([]*Pod, error) {
	if !cache.WaitForCacheSync(ctx.Done(), k.whole) {
		return nil, fmt.Errorf("the list of this node's pods: %w", context.Cause(ctx))
	}
	all, err := k.pods.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	pods := make([]*Pod, 0, len(all))
	for _, p := range all {
		if !p.Spec.HostNetwork {
			pods = append(pods, fromPod(p))
		}
	}
	return pods, nil
}

// maxGets is how many objects are asked for at once. While one is read it takes several times its size, which is up to
// 1.5 MiB.
const maxGets = 8

// get asks the API for one object.
func get[T any](ctx context.Context, k *Kube, ask func(context.Context, string, metav1.GetOptions) (T, error), name string) (found T, err error) {
	if err := k.gets.Acquire(ctx, 1); err != nil {
		return found, err
	}
	defer k.gets.Release(1)
	return ask(ctx, name, metav1.GetOptions{})
}

// LivePod asks the API.
func (k *Kube) LivePod(ctx context.Context, namespace, name string) (*Pod, error) {
	p, err := get(ctx, k, k.core.CoreV1().Pods(namespace).Get, name)
	if apierrors.IsNotFound(err) {
		return nil, podNotFound(namespace, name)
	}
	if err != nil {
		return nil, err
	}
	return fromPod(knownPod(p)), nil
}

// SetStatus patches the one annotation. The UID in the patch is a precondition: another pod of the name is left
// alone. The API server answers with a conflict to another UID, and also when other writers came first too often: which
// one it is, a look at the pod tells, and a pod that is still the same one is patched once more.
func (k *Kube) SetStatus(ctx context.Context, p *Pod, status []byte) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "annotations": map[string]string{nad.StatusAnnotation: string(status)},
	}})
	if err != nil {
		return err
	}
	err = k.patchStatus(ctx, p, patch)
	if !apierrors.IsConflict(err) {
		return err
	}
	live, lookErr := k.LivePod(ctx, p.Namespace, p.Name)
	switch {
	case lookErr != nil:
		return fmt.Errorf("%w (after: %w)", lookErr, err)
	case live.UID != p.UID:
		return podNotFound(p.Namespace, p.Name)
	}
	return k.patchStatus(ctx, p, patch)
}

func (k *Kube) patchStatus(ctx context.Context, p *Pod, patch []byte) error {
	pods := k.core.CoreV1().Pods(p.Namespace)
	_, err := pods.Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return podNotFound(p.Namespace, p.Name)
	}
	return err
}

func podNotFound(namespace, name string) error {
	return fmt.Errorf("%s/%s: %w", namespace, name, ErrNotFound)
}
