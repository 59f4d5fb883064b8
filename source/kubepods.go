package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/policy"
)

// lateInformer is an informer that begins to run when it is needed: a cluster without policies and Services does not
// pay for the pods and namespaces that these select.
type lateInformer struct {
	cache.SharedIndexInformer
	once   sync.Once
	needed chan struct{}
}

func newLateInformer(informer cache.SharedIndexInformer) *lateInformer {
	return &lateInformer{SharedIndexInformer: informer, needed: make(chan struct{})}
}

func (l *lateInformer) need() { l.once.Do(func() { close(l.needed) }) }

// Run waits until the informer is needed, and runs it.
func (l *lateInformer) Run(stop <-chan struct{}) {
	select {
	case <-stop:
	case <-l.needed:
		l.SharedIndexInformer.Run(stop)
	}
}

// watchPolicyPods creates the informer of all pods.
func (k *Kube) watchPolicyPods(changes Changes) error {
	k.policyPods = newLateInformer(cache.NewSharedIndexInformer(&cache.ListWatch{
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
	}, &corev1.Pod{}, 0, byNamespace()))
	k.run = append(k.run, k.policyPods.Run)
	_, err := k.policyPods.AddEventHandler(podHandler(changes))
	return errors.Join(err, k.policyPods.SetTransform(func(obj any) (any, error) {
		if p, ok := obj.(*corev1.Pod); ok {
			return policyPod(p), nil
		}
		return obj, nil
	}))
}

// podHandler tells of the changes of pods.
func podHandler(changes Changes) cache.ResourceEventHandlerFuncs {
	backend := func(p *corev1.Pod) {
		if changes.Backend != nil {
			changes.Backend(p.Namespace, p.Name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			p, ok := obj.(*corev1.Pod)
			if !ok {
				return
			}
			if len(portsOf(p)) > 0 {
				changes.Ports(p.Namespace)
			}
			if p.Annotations[nad.StatusAnnotation] != "" {
				backend(p)
			}
		},
		UpdateFunc: func(old, now any) {
			was, is := old.(*corev1.Pod), now.(*corev1.Pod)
			other := was.UID != is.UID // the informer missed a deletion
			relabelled := !maps.Equal(was.Labels, is.Labels)
			attached := !maps.Equal(was.Annotations, is.Annotations)
			if len(is.Annotations) > 0 && (other || relabelled || attached) {
				changes.Pod(is.Namespace, string(is.UID), relabelled && !other)
			}
			if other || relabelled || attached || ready(was) != ready(is) || isEnding(was) != isEnding(is) {
				backend(is)
			}
			if other {
				changes.PodGone(was.Namespace, string(was.UID))
				if len(portsOf(is)) > 0 {
					changes.Ports(is.Namespace)
				}
			}
		},
		DeleteFunc: func(obj any) {
			if p, ok := lastKnown(obj).(*corev1.Pod); ok {
				changes.PodGone(p.Namespace, string(p.UID))
				if len(p.Annotations) > 0 {
					backend(p)
				}
			}
		},
	}
}

// policyPod returns what policies and Services need of a pod. Its annotations tell that the pod requests networks, and
// which ones it has.
func policyPod(p *corev1.Pod) *corev1.Pod {
	small := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
	}}
	known := knownPod(p)
	if known.Spec.HostNetwork || len(conf.NetworkAnnotations(known.Annotations)) == 0 {
		return small
	}
	small.Labels, small.DeletionTimestamp = known.Labels, p.DeletionTimestamp
	small.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, Hostname: p.Spec.Hostname, Subdomain: p.Spec.Subdomain}
	if ready(p) {
		small.Status.Conditions = readyCondition
	}
	small.Annotations = map[string]string{conf.NetworksAnnotation: ""}
	for _, key := range []string{manyLabels, namedPorts, mirrorAnnotation, conf.OutsideAnnotation} {
		if value, ok := known.Annotations[key]; ok {
			small.Annotations[key] = value
		}
	}
	if known.Annotations[nad.StatusAnnotation] != "" {
		small.Annotations[nad.StatusAnnotation] = hashedStatus(p.Annotations[nad.StatusAnnotation])
	}
	return small
}

// hashPrefix begins a network-status with the hash of another one. nad.HasAttachments says the same of both.
const hashPrefix = `[{},{"name":"hash:`

// hashedStatus returns what stands for a network-status. A pod whose sandbox is made anew may get other addresses.
func hashedStatus(status string) string {
	if len(status) < 3*len(hashPrefix) && strings.HasPrefix(status, hashPrefix) {
		return status // an informer trims a listed pod twice
	}
	return hashPrefix + policy.Hash(map[string]string{"": status}) + `"}]`
}

// readyCondition is the only condition that is kept of a pod. All pods have the same slice.
var readyCondition = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}

func ready(p *corev1.Pod) bool {
	return !isEnding(p) && slices.ContainsFunc(p.Status.Conditions, isReady)
}

func isEnding(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }

// synced waits until an informer has listed its objects.
func synced(ctx context.Context, what string, informer cache.SharedIndexInformer) error {
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("list %s: %w", what, context.Cause(ctx))
	}
	return nil
}

// PolicyPods returns the pods of a namespace that request networks, also those that are not bound to a node yet.
func (k *Kube) PolicyPods(ctx context.Context, namespace string) ([]*policy.Pod, error) {
	k.policyPods.need()
	if err := synced(ctx, "pods", k.policyPods); err != nil {
		return nil, err
	}
	known, err := k.policyPods.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil, err
	}
	var pods []*policy.Pod
	for _, obj := range known {
		if p := obj.(*corev1.Pod); len(p.Annotations) > 0 {
			pods = append(pods, &policy.Pod{
				Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Mirror: p.Annotations[mirrorAnnotation],
				Node: p.Spec.NodeName, Labels: p.Labels, ManyLabels: hasManyLabels(p), Version: p.ResourceVersion,
				Ports: portsOf(p), Ready: ready(p), Ending: isEnding(p), Hostname: p.Spec.Hostname, Subdomain: p.Spec.Subdomain,
				Outside: p.Annotations[conf.OutsideAnnotation],
			})
		}
	}
	return pods, nil
}

// PodsWithOutside returns the pods that request outside addresses, as "<namespace>/<name>".
func (k *Kube) PodsWithOutside(ctx context.Context) (ids []string, err error) {
	k.policyPods.need()
	if err := synced(ctx, "pods", k.policyPods); err != nil {
		return nil, err
	}
	for _, obj := range k.policyPods.GetStore().List() {
		if p := obj.(*corev1.Pod); p.Annotations[conf.OutsideAnnotation] != "" {
			ids = append(ids, p.Namespace+"/"+p.Name)
		}
	}
	return ids, nil
}

// OutsideEvent records an Event for a pod. It does not wait.
func (k *Kube) OutsideEvent(p *policy.Pod, warning bool, reason, message string) {
	k.Event(&Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, eventKind(warning), reason, message)
}
