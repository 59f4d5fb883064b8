package source

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	nadinformers "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/informers/externalversions"
	nadlisters "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/listers/k8s.cni.cncf.io/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"

	"github.com/ovn-multinet/ovn-multinet/nad"
)

// Kube is the Kubernetes API: informers for what is asked for all the time, and a live GET for what is not there
// yet or is another pod of the same name.
type Kube struct {
	core    kubernetes.Interface
	nadAPI  nadclient.Interface
	pods    corelisters.PodLister
	nads    nadlisters.NetworkAttachmentDefinitionLister
	started []interface{ Start(<-chan struct{}) }
	log     *slog.Logger
}

// NewKube watches the NADs, and the pods of one node when node is not empty. changed, which may be nil, is called
// for every NAD that is new, different or gone, and must not block.
func NewKube(core kubernetes.Interface, nadAPI nadclient.Interface, node string, changed func(namespace, name string), log *slog.Logger) (*Kube, error) {
	k := &Kube{core: core, nadAPI: nadAPI, log: log}
	if node != "" {
		ofNode := informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
		})
		f := informers.NewSharedInformerFactoryWithOptions(core, 0, ofNode)
		k.pods = f.Core().V1().Pods().Lister()
		k.started = append(k.started, f)
	}
	f := nadinformers.NewSharedInformerFactory(nadAPI, 0)
	informer := f.K8sCniCncfIo().V1().NetworkAttachmentDefinitions()
	k.nads = informer.Lister()
	k.started = append(k.started, f)
	if changed == nil {
		return k, nil
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
			if old.(*nadv1.NetworkAttachmentDefinition).Spec != now.(*nadv1.NetworkAttachmentDefinition).Spec {
				tell(now)
			}
		},
	})
	return k, err
}

func objectKey(obj any) string {
	k, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	return k
}

// Run keeps the informers going until the end of ctx.
func (k *Kube) Run(ctx context.Context) error {
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

// NAD returns the NAD from the informer, and asks the API when it is not there yet.
func (k *Kube) NAD(ctx context.Context, namespace, name string) (*nad.Definition, error) {
	if n, err := k.nads.NetworkAttachmentDefinitions(namespace).Get(name); err == nil {
		return fromNAD(n), nil
	}
	n, err := k.nadAPI.K8sCniCncfIoV1().NetworkAttachmentDefinitions(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s/%s: %w", namespace, name, nad.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return fromNAD(n), nil
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
