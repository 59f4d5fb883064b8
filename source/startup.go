package source

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/source/daemonnodes"
)

// Startup keeps pods away from new nodes until the nodes can give them their networks: it adds the startup taint to a
// new Node and removes it, from whomever it is, when the agent's pod on the node is ready. Every controller runs it,
// not only the leader: a node may join while no controller leads. Each write is conditional on the object that was
// read, so two controllers do not disturb each other.
type Startup struct {
	core      kubernetes.Interface
	namespace string                    // of the agents
	nodes     cache.SharedIndexInformer // of *corev1.Node
	agents    cache.SharedIndexInformer // of *corev1.Pod
	daemons   cache.SharedIndexInformer // of *appsv1.DaemonSet: that of the agents
	queue     workqueue.TypedRateLimitingInterface[string]
	log       *slog.Logger

	mu sync.Mutex
	on *metav1.Time // since when new nodes get the taint; nil: not read yet
}

const (
	// agentsLabel selects the pods of the agents, and agentsDaemonSet is the name of their DaemonSet.
	agentsLabel     = "app=ovn-multinet-agent"
	agentsDaemonSet = "agent"

	// startupPolicy is the admission policy that limits what the controller may change of a node. The startup taint is for
	// nodes that are younger than this policy: at the first installation no node gets it.
	startupPolicy = "ovn-multinet-controller-nodes"

	// startupWorkers is how many nodes are written at a time: many nodes may join at once, and each is in a hurry.
	startupWorkers = 8

	byNode = "node" // the index of the agents' pods
)

// listWatch lists and watches objects of one kind.
func listWatch[L runtime.Object](
	list func(context.Context, metav1.ListOptions) (L, error),
	follow func(context.Context, metav1.ListOptions) (watch.Interface, error), choose func(*metav1.ListOptions),
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			choose(&opts)
			return list(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			choose(&opts)
			return follow(ctx, opts)
		},
	}
}

// trimAgent is the transform function of the informer of the agents' pods.
func trimAgent(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName},
		Status: corev1.PodStatus{Conditions: slices.DeleteFunc(slices.Clone(p.Status.Conditions), isNotReady)},
	}, nil
}

// trimDaemonSet is the transform function of the informer of the agents' DaemonSet.
func trimDaemonSet(obj any) (any, error) {
	d, ok := obj.(*appsv1.DaemonSet)
	if !ok {
		return obj, nil
	}
	kept := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: d.Namespace, Name: d.Name, ResourceVersion: d.ResourceVersion,
	}}
	kept.Spec.Template.Spec.NodeSelector = d.Spec.Template.Spec.NodeSelector
	kept.Spec.Template.Spec.Affinity = d.Spec.Template.Spec.Affinity
	kept.Spec.Template.Spec.Tolerations = d.Spec.Template.Spec.Tolerations
	return kept, nil
}

// Startup makes the informers of agents that a Startup needs. It must be called before Run, on the source of a
// controller.
func (k *Kube) Startup(namespace string) (*Startup, error) {
	s := &Startup{
		core: k.core, namespace: namespace, nodes: k.nodes, log: k.log,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](10*time.Millisecond, 5*time.Second)),
	}
	s.watchAgents()
	for _, err := range []error{
		s.agents.SetTransform(trimAgent), s.daemons.SetTransform(trimDaemonSet),
		s.agents.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
			return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
		}}),
		s.listen(),
	} {
		if err != nil {
			return nil, err
		}
	}
	k.run = append(k.run, s.agents.Run, s.daemons.Run)
	return s, nil
}

// watchAgents creates the informers of the agents' pods and of their DaemonSet.
func (s *Startup) watchAgents() {
	pods, sets := s.core.CoreV1().Pods(s.namespace), s.core.AppsV1().DaemonSets(s.namespace)
	s.agents = cache.NewSharedIndexInformer(
		listWatch(pods.List, pods.Watch, func(o *metav1.ListOptions) { o.LabelSelector = agentsLabel }),
		&corev1.Pod{}, 0, cache.Indexers{})
	s.daemons = cache.NewSharedIndexInformer(
		listWatch(sets.List, sets.Watch, func(o *metav1.ListOptions) {
			o.FieldSelector = "metadata.name=" + agentsDaemonSet
		}),
		&appsv1.DaemonSet{}, 0, cache.Indexers{})
}

// listen queues the nodes that a change may concern.
func (s *Startup) listen() error {
	all := func(any) {
		for _, name := range s.nodes.GetStore().ListKeys() {
			s.queue.Add(name)
		}
	}
	ofPod := func(obj any) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		if p, ok := obj.(*corev1.Pod); ok && p.Spec.NodeName != "" {
			s.queue.Add(p.Spec.NodeName)
		}
	}
	node := func(obj any) { s.queue.Add(objectKey(obj)) }
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandlerFuncs{
		s.nodes: {AddFunc: node, UpdateFunc: func(old, now any) {
			if startupDiffers(old.(*corev1.Node), now.(*corev1.Node)) {
				node(now)
			}
		}},
		s.agents:  {AddFunc: ofPod, UpdateFunc: func(_, now any) { ofPod(now) }, DeleteFunc: ofPod},
		s.daemons: {AddFunc: all, UpdateFunc: func(_, now any) { all(now) }},
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	return nil
}

// startupDiffers reports whether two versions of a node differ in what Startup decides by. Heartbeats do not.
func startupDiffers(old, now *corev1.Node) bool {
	return old.UID != now.UID || !labels.Equals(old.Labels, now.Labels) ||
		!slices.EqualFunc(old.Spec.Taints, now.Spec.Taints, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) })
}

// Run writes nodes until the end of ctx.
func (s *Startup) Run(ctx context.Context) error {
	defer s.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), s.nodes.HasSynced, s.agents.HasSynced, s.daemons.HasSynced) {
		return nil
	}
	for range startupWorkers {
		go func() {
			for s.next(ctx) {
			}
		}()
	}
	<-ctx.Done()
	return nil
}

func (s *Startup) next(ctx context.Context) (more bool) {
	name, ended := s.queue.Get()
	if ended {
		return false
	}
	defer s.queue.Done(name)
	err := s.pass(ctx, name)
	switch {
	case err == nil:
		s.queue.Forget(name)
		return true
	// The informer has another version soon.
	case (apierrors.IsConflict(err) || apierrors.IsInvalid(err)) && s.queue.NumRequeues(name) < quietRetries:
	case ctx.Err() == nil:
		s.log.Warn("startup taint of a node", "node", name, "err", err)
	}
	s.queue.AddRateLimited(name)
	return true
}

// quietRetries is how often the API server may refuse a change of a Node without a line in the log. The informer has
// another version after one or two of them, and all take less than a second.
const quietRetries = 6

// pass makes one node what it should be. An error is tried again.
func (s *Startup) pass(ctx context.Context, name string) error {
	obj, exists, err := s.nodes.GetStore().GetByKey(name)
	if err != nil || !exists {
		return err
	}
	node := obj.(*corev1.Node)
	_, marked := node.Labels[conf.ReadyLabel]
	tainted := slices.ContainsFunc(node.Spec.Taints, isStartupTaint)
	if marked && !tainted {
		return nil
	}
	on, err := s.since(ctx)
	if err != nil {
		return err
	}
	isNew := on.Before(&node.CreationTimestamp)
	ready, stale, err := s.agentOf(node, isNew || tainted)
	switch {
	case err != nil:
		return err
	case ready:
		return s.release(ctx, node, tainted)
	case isNew && !tainted && s.runsOn(node):
		return s.taint(ctx, node)
	case stale != nil:
		return s.deleteStale(ctx, stale)
	}
	return nil
}

// since returns the time from which on new nodes get the startup taint.
func (s *Startup) since(ctx context.Context) (*metav1.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on == nil {
		policies := s.core.AdmissionregistrationV1().ValidatingAdmissionPolicies()
		policy, err := policies.Get(ctx, startupPolicy, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("the policy that limits what the controller changes of nodes: %w", err)
		}
		s.on = &policy.CreationTimestamp
	}
	return s.on, nil
}

// agentOf reports whether the agent's pod on a node is ready. If the Node may be younger than a pod, fresh is true:
// the state of a pod that is older than its Node is that of another machine, or of an earlier life of this one. Such a
// pod is stale. Both times are the API server's.
func (s *Startup) agentOf(node *corev1.Node, fresh bool) (ready bool, stale *corev1.Pod, err error) {
	pods, err := s.agents.GetIndexer().ByIndex(byNode, node.Name)
	for _, obj := range pods {
		p := obj.(*corev1.Pod)
		switch {
		case p.DeletionTimestamp != nil:
		case fresh && p.CreationTimestamp.Before(&node.CreationTimestamp):
			stale = p
		case slices.ContainsFunc(p.Status.Conditions, isReady):
			ready = true
		}
	}
	return ready, stale, err
}

// runsOn reports whether the agents' DaemonSet runs a pod on the node. The chart selects nodes by labels and by
// tolerations: a node on which no agent starts would never lose the startup taint. If an operator has added an
// affinity, the DaemonSet runs where its pods are.
func (s *Startup) runsOn(node *corev1.Node) bool {
	obj, exists, err := s.daemons.GetStore().GetByKey(s.namespace + "/" + agentsDaemonSet)
	if err != nil || !exists {
		return false
	}
	spec := obj.(*appsv1.DaemonSet).Spec.Template.Spec
	if !daemonnodes.Chosen(&spec, node) {
		return false
	}
	pods, err := s.agents.GetIndexer().ByIndex(byNode, node.Name)
	return spec.Affinity == nil || err == nil && len(pods) > 0
}

// taint adds the startup taint to the node, in any version: a Node that has just registered changes several times
// within milliseconds, and it may be open to pods then. The admission policy refuses the taint for a node that is
// marked as ready. JSON Patch adds to a list in one way, and makes it in another one (RFC 6902, section 4.1).
func (s *Startup) taint(ctx context.Context, node *corev1.Node) error {
	taint := corev1.Taint{Key: conf.StartupTaint, Effect: corev1.TaintEffectNoSchedule}
	type op map[string]any
	same := op{"op": "test", "path": "/metadata/uid", "value": node.UID}
	forms := [][]op{
		{same, {"op": "test", "path": "/spec/taints", "value": nil},
			{"op": "add", "path": "/spec/taints", "value": []corev1.Taint{taint}}},
		{same, {"op": "add", "path": "/spec/taints/-", "value": taint}},
	}
	if len(node.Spec.Taints) > 0 {
		slices.Reverse(forms)
	}
	var err error
	for _, form := range forms {
		var patch []byte
		if patch, err = json.Marshal(form); err == nil {
			_, err = s.core.CoreV1().Nodes().Patch(ctx, node.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		}
		if !apierrors.IsInvalid(err) { // the list, or the Node, is another one by now
			break
		}
	}
	if apierrors.IsNotFound(err) { // deleted meanwhile
		return nil
	}
	if err == nil {
		s.log.Info("node is new and not ready for pods with networks yet: it has the startup taint", "node", node.Name)
	}
	return err
}

// release marks the node as ready and removes the startup taint.
func (s *Startup) release(ctx context.Context, node *corev1.Node, tainted bool) error {
	others := slices.DeleteFunc(slices.Clone(node.Spec.Taints), isStartupTaint)
	err := s.patchNode(ctx, node, map[string]string{conf.ReadyLabel: conf.ReadyValue}, others)
	if err == nil && tainted {
		s.log.Info("node is ready for pods with networks: its startup taint is removed", "node", node.Name)
	}
	return err
}

// patchNode adds labels and replaces the taints of this version of the node. The API server refuses the patch of any
// other version, so no change by another program is lost.
func (s *Startup) patchNode(
	ctx context.Context, node *corev1.Node, add map[string]string, taints []corev1.Taint,
) error {
	metadata := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}
	if len(add) > 0 {
		metadata["labels"] = add
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": map[string]any{"taints": taints}})
	if err != nil {
		return err
	}
	_, err = s.core.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) { // deleted meanwhile
		return nil
	}
	return err
}

// deleteStale deletes the pod of an agent that is older than its Node, so that the DaemonSet makes one whose state is
// that of this node.
func (s *Startup) deleteStale(ctx context.Context, p *corev1.Pod) error {
	err := s.core.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, *metav1.NewPreconditionDeleteOptions(string(p.UID)))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		s.log.Info("agent's pod is older than its Node and is made again", "node", p.Spec.NodeName, "pod", p.Name)
	}
	return err
}

func isStartupTaint(t corev1.Taint) bool { return t.Key == conf.StartupTaint }

// isNotReady reports whether a condition does not say that the pod is ready.
func isNotReady(c corev1.PodCondition) bool { return !isReady(c) }

func isReady(c corev1.PodCondition) bool {
	return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
}
