package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"

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
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// Kube is the source that uses the Kubernetes API. It answers from informers where it can. It sends a GET to the API
// server if the informer does not have the object yet, or has another pod with the same name.
type Kube struct {
	core   kubernetes.Interface
	nadAPI nadclient.Interface
	pods   corelisters.PodLister
	whole  cache.InformerSynced // reports whether pods has all pods of the node
	ends   ends                 // for the pods of the node
	nads   cache.Store          // of *knownNAD
	nodes  *nodeWatch           // nil in the source of an agent
	// objects are empty unless Changes.Policy is set, services and slices unless Changes.Service is set too.
	objects
	// only is the one namespace that AllPolicies, AllServices and NADs list; "": all.
	only       string
	policyPods *lateInformer
	slices     *sliceWatch
	lists      lists
	gets       *semaphore.Weighted // limits the concurrent GETs
	run        []func(stop <-chan struct{})
	events     record.EventBroadcaster
	record     record.EventRecorder
	log        *slog.Logger
}

// component is the name of this program in Events.
const component = "ovn-multinet"

// NewKube returns a source that watches all NADs. It also watches the pods of one node, or all nodes if node is empty.
func NewKube(
	core kubernetes.Interface, nadAPI nadclient.Interface, node string, changes Changes, log *slog.Logger,
) (*Kube, error) {
	k := &Kube{
		core: core, nadAPI: nadAPI, log: log, events: record.NewBroadcaster(), gets: semaphore.NewWeighted(maxGets),
	}
	k.lists = lists{
		pods: func(ctx context.Context, opts metav1.ListOptions, keep func(*corev1.Pod)) (metav1.ListMeta, error) {
			return stream(ctx, core.CoreV1().RESTClient(), "pods", wholeObjects, opts, keep)
		},
		podMeta: func(ctx context.Context, opts metav1.ListOptions, keep func(*corev1.Pod)) (metav1.ListMeta, error) {
			return stream(ctx, core.CoreV1().RESTClient(), "pods", metadataOnly, opts, keep)
		},
		nads: func(
			ctx context.Context, opts metav1.ListOptions, keep func(*nadv1.NetworkAttachmentDefinition),
		) (metav1.ListMeta, error) {
			return streamIn(ctx, nadAPI.K8sCniCncfIoV1().RESTClient(), k.only, "network-attachment-definitions", wholeObjects,
				opts, keep)
		},
	}
	k.record = k.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: node})
	var err error
	if node != "" {
		err = k.watchPods(node, changes)
	} else {
		err = k.watchNodes(changes.Nodes)
	}
	if changes.Policy != nil {
		err = errors.Join(err, k.watchPolicyPods(changes), k.watchPolicies(changes))
		if changes.Service != nil {
			err = errors.Join(err, k.watchServices(changes))
		}
		if changes.IPAMClaim != nil {
			err = errors.Join(err, k.watchClaims(changes.IPAMClaim))
		}
	}
	if changes.Entries != nil {
		err = errors.Join(err, k.watchEntries(changes.Entries))
	}
	if err != nil {
		return nil, err
	}
	return k, k.watchNADs(changes.NAD)
}

// Only has NADs, AllPolicies and AllServices list one namespace, for a client that may read no other. It is for a
// source that does not run.
func (k *Kube) Only(namespace string) { k.only = namespace }

// watchPods creates the informer of the pods of a node.
func (k *Kube) watchPods(node string, changes Changes) error {
	ofNode := fields.OneTermEqualSelector("spec.nodeName", node).String()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = ofNode
			list := &corev1.PodList{}
			var err error
			list.ListMeta, err = k.lists.pods(ctx, opts, func(p *corev1.Pod) {
				list.Items = append(list.Items, *knownPod(p))
			})
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
		AddFunc: func(obj any) {
			k.warnHostNetwork(obj)
			p, ok := obj.(*corev1.Pod)
			if ok && changes.Bound != nil && !p.Spec.HostNetwork && p.Status.Phase == corev1.PodPending {
				changes.Bound(fromPod(p))
			}
		},
		UpdateFunc: func(old, now any) {
			if uidOf(old) != uidOf(now) { // the informer missed a deletion
				k.tellEnd(old)
			} else if networksEdited(old, now) {
				k.rejectHostNetwork(now)
			}
		},
		DeleteFunc: k.tellEnd,
	})
	for _, handler := range ofPods(changes) {
		_, also := informer.AddEventHandler(handler)
		err = errors.Join(err, also)
	}
	return errors.Join(err, informer.SetTransform(trimPod))
}

// ofPods are the handlers of pods that a folder has too.
func ofPods(changes Changes) (handlers []cache.ResourceEventHandler) {
	if changes.Migrated != nil {
		handlers = append(handlers, onMigrated(changes.Migrated))
	}
	if changes.Networks != nil {
		handlers = append(handlers, cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, now any) {
			if p, ok := now.(*corev1.Pod); ok && !p.Spec.HostNetwork && networksEdited(old, now) {
				changes.Networks(fromPod(p))
			}
		}})
	}
	return handlers
}

// networksEdited reports whether the annotations of a pod's networks differ.
func networksEdited(old, now any) bool {
	was, ok := old.(*corev1.Pod)
	is, also := now.(*corev1.Pod)
	return ok && also && was.UID == is.UID &&
		!maps.Equal(conf.NetworkAnnotations(was.Annotations), conf.NetworkAnnotations(is.Annotations))
}

// arrived replaces the value of conf.MigratedAnnotation, which is a time.
const arrived = "yes"

// hasArrived reports whether a pod is the target of a live migration, and the guest runs in it.
func hasArrived(p *corev1.Pod) bool {
	return p.Labels[conf.MigrationLabel] != "" && p.Annotations[conf.MigratedAnnotation] != ""
}

// onMigrated calls migrated for each pod to which a virtual machine has migrated.
func onMigrated(migrated func(*netmodel.Pod)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if p, ok := obj.(*corev1.Pod); ok && hasArrived(p) {
				migrated(fromPod(p))
			}
		},
		UpdateFunc: func(old, now any) {
			was, is := old.(*corev1.Pod), now.(*corev1.Pod)
			if hasArrived(is) && (was.UID != is.UID || !hasArrived(was)) {
				migrated(fromPod(is))
			}
		},
	}
}

// tellEnd calls the functions that wait for the end of a pod.
func (k *Kube) tellEnd(obj any) {
	uid := uidOf(obj)
	k.ends.tell(func(p *netmodel.Pod) bool { return p.UID == uid })
}

// uidOf returns the last known UID of the pod in an informer's notification.
func uidOf(obj any) string {
	if p, ok := lastKnown(obj).(*corev1.Pod); ok {
		return string(p.UID)
	}
	return ""
}

// WhenGone calls a function once, when the informer learns that the pod was deleted. The informer may not know the pod
// yet: then it learns of the pod first and of the deletion later.
func (k *Kube) WhenGone(p *netmodel.Pod, call func()) (stop func()) { return k.ends.when(p, call) }

// watchNADs creates the informer of all NADs.
func (k *Kube) watchNADs(changed func(namespace, name string)) error {
	api := k.nadAPI.K8sCniCncfIoV1().NetworkAttachmentDefinitions("")
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list := &knownNADs{}
			var err error
			list.ListMeta, err = k.lists.nads(ctx, opts, func(n *nadv1.NetworkAttachmentDefinition) {
				list.Items = append(list.Items, *k.keep(n))
			})
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
	return listen(informer, onNADs(changed))
}

// warnHostNetwork records an Event for a pod in the host's network with a networks annotation: the annotation has no
// effect, because the runtime does not call CNI plugins for such a pod.
func (k *Kube) warnHostNetwork(obj any) {
	p, ok := obj.(*corev1.Pod)
	if ok && p.Spec.HostNetwork && len(conf.NetworkAnnotations(p.Annotations)) > 0 {
		k.Event(fromPod(p), Warning, "NetworksIgnored",
			"the pod is in the host's network and gets no further interfaces; remove hostNetwork or the annotation")
	}
}

// rejectHostNetwork is warnHostNetwork for a pod whose annotation was edited.
func (k *Kube) rejectHostNetwork(obj any) {
	p, ok := obj.(*corev1.Pod)
	if ok && p.Spec.HostNetwork && len(conf.NetworkAnnotations(p.Annotations)) > 0 {
		k.Event(fromPod(p), Warning, "InterfaceAddRejected",
			"the pod is in the host's network and gets no further interfaces; remove the annotation")
	}
}

// Event records an Event of a pod. It does not wait: an Event that the API server refuses is lost.
func (k *Kube) Event(p *netmodel.Pod, kind EventKind, reason, message string) {
	ref := &corev1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID),
	}
	k.record.Event(ref, string(kind), reason, conf.OneLine(message, conf.MaxReason))
}

func objectKey(obj any) string {
	k, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	return k
}

// Run runs the informers and sends the Events, until the end of ctx.
func (k *Kube) Run(ctx context.Context) error {
	k.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: k.core.CoreV1().Events("")})
	defer k.events.Shutdown()
	for _, run := range k.run {
		go run(ctx.Done())
	}
	<-ctx.Done()
	return nil
}

// Pod returns the pod from the informer. If the informer has no such pod, or another pod with the same name, Pod reads
// the pod from the API.
func (k *Kube) Pod(ctx context.Context, namespace, name, uid string) (*netmodel.Pod, error) {
	if p, err := k.pods.Pods(namespace).Get(name); err == nil && fromPod(p).Is(uid) {
		return fromPod(p), nil
	}
	return k.LivePod(ctx, namespace, name)
}

// Pods returns the node's pods that are not in the host's network. It waits until the informer has all pods.
func (k *Kube) Pods(ctx context.Context) ([]*netmodel.Pod, error) {
	if !cache.WaitForCacheSync(ctx.Done(), k.whole) {
		return nil, fmt.Errorf("the list of this node's pods: %w", context.Cause(ctx))
	}
	all, err := k.pods.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	pods := make([]*netmodel.Pod, 0, len(all))
	for _, p := range all {
		if !p.Spec.HostNetwork {
			pods = append(pods, fromPod(p))
		}
	}
	return pods, nil
}

// maxGets is the maximum number of concurrent GETs. The decoding of an object needs several times the memory of the
// object itself, which has up to 1.5 MiB.
const maxGets = 8

// get reads one object from the API.
func get[T any](
	ctx context.Context, k *Kube, ask func(context.Context, string, metav1.GetOptions) (T, error), name string,
) (found T, err error) {
	if err := k.gets.Acquire(ctx, 1); err != nil {
		return found, err
	}
	defer k.gets.Release(1)
	return ask(ctx, name, metav1.GetOptions{})
}

// LivePod reads the pod from the API.
func (k *Kube) LivePod(ctx context.Context, namespace, name string) (*netmodel.Pod, error) {
	p, err := get(ctx, k, k.core.CoreV1().Pods(namespace).Get, name)
	if apierrors.IsNotFound(err) {
		return nil, podNotFound(namespace, name)
	}
	if err != nil {
		return nil, err
	}
	return fromPod(knownPod(p)), nil
}

// SetStatus writes the annotation network-status. The UID in the patch is a precondition: another pod with the same
// name is not changed. The API server answers with a conflict if the UID differs, and also if other writers changed the
// pod too often meanwhile. After a conflict, SetStatus reads the pod. If the UID is the same, it tries once more.
func (k *Kube) SetStatus(ctx context.Context, p *netmodel.Pod, status []byte) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "annotations": map[string]string{nad.StatusAnnotation: string(status)},
	}})
	if err != nil {
		return err
	}
	err = k.patchStatus(ctx, p, types.MergePatchType, patch)
	if !apierrors.IsConflict(err) {
		return err
	}
	live, readErr := k.LivePod(ctx, p.Namespace, p.Name)
	switch {
	case readErr != nil:
		return fmt.Errorf("%w (after: %w)", readErr, err)
	case live.UID != p.UID:
		return podNotFound(p.Namespace, p.Name)
	}
	return k.patchStatus(ctx, p, types.MergePatchType, patch)
}

// DeleteStatus deletes the annotation network-status if it is this one. A pod with another UID or another status is not
// changed: its JSON Patch (RFC 6902) tests both.
func (k *Kube) DeleteStatus(ctx context.Context, p *netmodel.Pod, status []byte) error {
	path := "/metadata/annotations/" + strings.ReplaceAll(nad.StatusAnnotation, "/", "~1")
	patch, err := json.Marshal([]map[string]string{
		{"op": "test", "path": "/metadata/uid", "value": p.UID},
		{"op": "test", "path": path, "value": string(status)},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return err
	}
	err = k.patchStatus(ctx, p, types.JSONPatchType, patch)
	if errors.Is(err, ErrNotFound) || apierrors.IsInvalid(err) { // the pod is gone, or a test fails
		return nil
	}
	return err
}

func (k *Kube) patchStatus(ctx context.Context, p *netmodel.Pod, form types.PatchType, patch []byte) error {
	pods := k.core.CoreV1().Pods(p.Namespace)
	_, err := pods.Patch(ctx, p.Name, form, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return podNotFound(p.Namespace, p.Name)
	}
	return err
}

func podNotFound(namespace, name string) error {
	return fmt.Errorf("%s/%s: %w", namespace, name, ErrNotFound)
}
