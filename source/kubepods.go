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
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/policy"
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
	k.networked = informed("pods", k.policyPods)
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
func podHandler(changes Changes) cache.ResourceEventHandlerDetailedFuncs {
	backend := func(p *corev1.Pod) {
		if changes.Backend != nil {
			changes.Backend(p.Namespace, p.Name)
		}
	}
	guest := func(p *corev1.Pod) {
		if changes.Guest != nil && foreign(strings.Fields(p.Annotations[requestedNADs]), p.Namespace) {
			changes.Guest(p.Namespace)
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			p, ok := obj.(*corev1.Pod)
			if !ok {
				return
			}
			if len(portsOf(p)) > 0 {
				changes.Ports(p.Namespace)
			}
			guest(p)
			if p.Annotations[nad.StatusAnnotation] != "" {
				if !initial { // the pod got its ports before the source knew the pod
					changes.Pod(p.Namespace, string(p.UID), false)
				}
				backend(p)
			}
		},
		UpdateFunc: func(old, now any) {
			was, is := old.(*corev1.Pod), now.(*corev1.Pod)
			other := was.UID != is.UID // the informer missed a deletion
			labelsChanged := !maps.Equal(was.Labels, is.Labels)
			attached := !maps.Equal(was.Annotations, is.Annotations)
			if len(is.Annotations) > 0 && (other || labelsChanged || attached) {
				changes.Pod(is.Namespace, string(is.UID), labelsChanged && !other)
			}
			if other || labelsChanged || attached || ready(was) != ready(is) || isEnding(was) != isEnding(is) ||
				outsideOf(was) != outsideOf(is) {
				backend(is)
			}
			if other {
				changes.PodGone(was.Namespace, string(was.UID))
				guest(is)
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
	if state := outsideOf(p); state != (netmodel.OutsideState{}) {
		small.Status.Conditions = append(slices.Clone(small.Status.Conditions), outsideCondition(state))
	}
	small.Annotations = map[string]string{conf.NetworksAnnotation: ""}
	for _, key := range []string{manyLabels, namedPorts, mirrorAnnotation, conf.OutsideAnnotation} {
		if value, ok := known.Annotations[key]; ok {
			small.Annotations[key] = value
		}
	}
	requested, trimmed := p.Annotations[requestedNADs]
	if !trimmed { // an informer trims a listed pod twice
		nads, claims := requestsOf(p.Annotations, p.Namespace)
		requested = strings.Join(nads, " ")
		if len(claims) > 0 {
			small.Annotations[namedClaims] = strings.Join(claims, " ")
		}
	} else if claims := p.Annotations[namedClaims]; claims != "" {
		small.Annotations[namedClaims] = claims
	}
	small.Annotations[requestedNADs] = requested
	if known.Annotations[nad.StatusAnnotation] != "" {
		small.Annotations[nad.StatusAnnotation] = hashedStatus(p.Annotations[nad.StatusAnnotation])
	}
	return small
}

// requestedNADs is the annotation of a kept pod with the NADs that it requests. No API object can have this key.
const requestedNADs = "(requested networks)"

// namedClaims is the annotation of a kept pod with the names of the IPAMClaims that it names. No API object can have
// this key.
const namedClaims = "(IPAMClaims)"

// primaryInterface is the name that kubelet has for a pod's first interface.
const primaryInterface = "eth0"

// requestsOf returns the NADs that a pod requests, each "<namespace>/<name>", and the names of the IPAMClaims. A pod
// whose annotation cannot be read gets no networks.
func requestsOf(annotations map[string]string, namespace string) (nads, claims []string) {
	requests, err := nad.ParseRequests(annotations, namespace, primaryInterface)
	if err != nil {
		return nil, nil
	}
	for i := range requests {
		nads = append(nads, requests[i].String())
		if claim := requests[i].IPAMClaim; claim != "" {
			claims = append(claims, claim)
		}
	}
	slices.Sort(nads)
	return slices.Compact(nads), claims
}

// endedForGood reports whether all containers of the pod have ended for good.
func endedForGood(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// foreign reports whether a NAD of another namespace is among those that a pod requests.
func foreign(nads []string, namespace string) bool {
	return slices.ContainsFunc(nads, func(id string) bool { return !strings.HasPrefix(id, namespace+"/") })
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

// readyCondition is the condition that is kept of a pod without outside addresses. All pods have the same slice.
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
