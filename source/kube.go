package source

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	nadinformers "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/informers/externalversions"
	nadlisters "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/listers/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
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
	core    kubernetes.Interface
	nadAPI  nadclient.Interface
	pods    corelisters.PodLister
	whole   cache.InformerSynced // all pods of the node are in pods
	nads    nadlisters.NetworkAttachmentDefinitionLister
	nodes   *nodeWatch // nil: the source of one node's agent
	started []interface{ Start(<-chan struct{}) }
	events  record.EventBroadcaster
	record  record.EventRecorder
	log     *slog.Logger
}

// component names us in Events.
const component = "ovn-multinet"

// NewKube watches the NADs, and the pods of one node when node is not empty, or else all nodes.
func NewKube(core kubernetes.Interface, nadAPI nadclient.Interface, node string, changes Changes, log *slog.Logger) (*Kube, error) {
	k := &Kube{core: core, nadAPI: nadAPI, log: log, events: record.NewBroadcaster()}
	k.record = k.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: node})
	if node != "" {
		ofNode := informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
		})
		f := informers.NewSharedInformerFactoryWithOptions(core, 0, ofNode, informers.WithTransform(trimPod))
		pods := f.Core().V1().Pods()
		k.pods, k.whole = pods.Lister(), pods.Informer().HasSynced
		k.started = append(k.started, f)
		if _, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: k.warnHostNetwork}); err != nil {
			return nil, err
		}
	} else if err := k.watchNodes(changes.Nodes); err != nil {
		return nil, err
	}
	return k, k.watchNADs(changes.NAD)
}

// watchNADs has an informer on all NADs.
func (k *Kube) watchNADs(changed func(namespace, name string)) error {
	f := nadinformers.NewSharedInformerFactory(k.nadAPI, 0)
	informer := f.K8sCniCncfIo().V1().NetworkAttachmentDefinitions()
	k.nads = informer.Lister()
	k.started = append(k.started, f)
	if changed == nil {
		return nil
	}
	tell := func(obj any) {
		if namespace, name, err := cache.SplitMetaNamespaceKey(objectKey(obj)); err == nil {
			changed(namespace, name)
		}
	}
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    tell,
		DeleteFunc: tell,
		UpdateFunc: func(old, now any) {
			if *fromNAD(old.(*nadv1.NetworkAttachmentDefinition)) != *fromNAD(now.(*nadv1.NetworkAttachmentDefinition)) {
				tell(now)
			}
		},
	})
	return err
}

// trimPod keeps of a pod what is asked for later: an agent's memory must not grow with what users write into pods.
func trimPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	annotations := conf.OwnAnnotations(p.Annotations)
	if uid, ok := p.Annotations[mirrorAnnotation]; ok {
		annotations[mirrorAnnotation] = uid
	}
	if len(annotations) > 0 && nad.HasFurther(p.Annotations[nad.StatusAnnotation]) {
		annotations[nad.StatusAnnotation] = p.Annotations[nad.StatusAnnotation]
	}
	phase := corev1.PodUnknown
	if running(p) {
		phase = corev1.PodRunning
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: phase},
	}, nil
}

// warnHostNetwork tells the owner of a pod in the host's network that its annotation has no effect: no runtime calls
// a CNI plugin for it.
func (k *Kube) warnHostNetwork(obj any) {
	p, ok := obj.(*corev1.Pod)
	if ok && p.Spec.HostNetwork && len(conf.OwnAnnotations(p.Annotations)) > 0 {
		k.Event(fromPod(p), Warning, "NetworksIgnored", "the pod is in the host's network and gets no further interfaces; remove hostNetwork or the annotation")
	}
}

// Event records an Event of a pod. It does not wait: what the API does not take is lost.
func (k *Kube) Event(p *Pod, kind EventKind, reason, message string) {
	ref := &corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
	k.record.Event(ref, string(kind), reason, message)
}

func objectKey(obj any) string {
	k, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	return k
}

// Run keeps the informers going, and Events flowing, until the end of ctx.
func (k *Kube) Run(ctx context.Context) error {
	k.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: k.core.CoreV1().Events("")})
	defer k.events.Shutdown()
	for _, f := range k.started {
		f.Start(ctx.Done())
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

// LivePod asks the API.
func (k *Kube) LivePod(ctx context.Context, namespace, name string) (*Pod, error) {
	p, err := k.core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s/%s: %w", namespace, name, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return fromPod(p), nil
}

// SetStatus patches the one annotation. The UID in the patch is a precondition: another pod of the name is left
// alone.
func (k *Kube) SetStatus(ctx context.Context, p *Pod, status []byte) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "annotations": map[string]string{nad.StatusAnnotation: string(status)},
	}})
	if err != nil {
		return err
	}
	_, err = k.core.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return fmt.Errorf("%s/%s: %w", p.Namespace, p.Name, ErrNotFound)
	}
	return err
}
