package uninstall

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	nadfake "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned/fake"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	fakerest "k8s.io/client-go/rest/fake"
	clienttest "k8s.io/client-go/testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/placement"
)

const namespace = "ovn-multinet"

// world is a cluster of two nodes with the product. It does what controllers and kubelets do: it replaces the pods of a
// changed DaemonSet, deletes the pods of a deleted owner, and deletes NADs.
type world struct {
	t        *testing.T
	core     *fake.Clientset
	nads     *nadfake.Clientset
	networks []string
	log      bytes.Buffer
	writes   []string // in their order, as "delete deployments controller"
	// says is the last line in the log of a pod that takes a step.
	says func(pod *corev1.Pod) string
	// fails has a write fail before it has taken effect, or after it; nil: none fails.
	fails func(write string) (before, after error)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, core: fake.NewClientset(), nads: nadfake.NewSimpleClientset(),
		says: func(*corev1.Pod) string { return conf.Uninstalled }}
	for _, name := range []string{"one", "two"} {
		w.add(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				conf.ReadyLabel: "true", placement.NodeLabel: "true", "zone": "a"}},
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{
				{Key: conf.StartupTaint, Effect: corev1.TaintEffectNoSchedule}, {Key: "other", Effect: corev1.TaintEffectNoSchedule}}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	w.addSet(agents, corev1.PodSpec{Containers: []corev1.Container{
		{Name: "agent"}, {Name: "installer", Args: []string{"--bin-dir=/opt/cni/bin"}}}})
	w.addSet(databases, corev1.PodSpec{Containers: []corev1.Container{{Name: "nb"}}})
	w.addSet(switches, corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "certificates"}},
		Containers: []corev1.Container{{Name: "ovsdb"}, {Name: "vswitchd", Args: []string{"vswitchd", "--bridge=br-int"},
			VolumeMounts: []corev1.VolumeMount{{Name: "all", MountPath: "/var/lib/ovn-multinet"}}}},
		Volumes: []corev1.Volume{{Name: "all", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}})
	w.add(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: controllers, Namespace: namespace}})
	w.addPod(controllers, "one", corev1.PodSpec{})
	for _, name := range []string{members.ConfigMapName, authority.ConfigMapName} {
		w.add(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string]string{members.FormedKey: "true"},
		})
	}
	w.add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: authority.SecretName, Namespace: namespace}})
	w.core.PrependReactor("*", "*", w.react(w.core.Tracker()))
	w.nads.PrependReactor("*", "*", w.react(w.nads.Tracker()))
	return w
}

func (w *world) add(o runtime.Object) {
	w.t.Helper()
	if err := w.core.Tracker().Add(o); err != nil {
		w.t.Fatal(err)
	}
}

// addSet adds a DaemonSet with a pod on each node.
func (w *world) addSet(name string, pod corev1.PodSpec) {
	w.t.Helper()
	labels := map[string]string{"app": "ovn-multinet-" + name}
	w.add(&appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateDaemonSet{}},
			Template:       corev1.PodTemplateSpec{Spec: pod}},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2},
	})
	for _, node := range []string{"one", "two"} {
		w.addPod(name, node, pod)
	}
}

func (w *world) addPod(owner, node string, spec corev1.PodSpec) {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: owner + "-" + node, Namespace: namespace, UID: uuid.NewUUID(),
		Labels: map[string]string{"app": "ovn-multinet-" + owner}}, Spec: *spec.DeepCopy()}
	p.Spec.NodeName = node
	w.add(p)
}

func (w *world) deletePods(owner string) {
	w.t.Helper()
	for _, p := range w.pods(owner) {
		err := w.core.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), p.Namespace, p.Name)
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// pods returns the pods of an owner. It asks the tracker, because a reactor may not ask the client.
func (w *world) pods(owner string) []corev1.Pod {
	w.t.Helper()
	list, err := w.core.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"),
		corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	isOther := func(p corev1.Pod) bool { return p.Labels["app"] != "ovn-multinet-"+owner }
	return slices.DeleteFunc(list.(*corev1.PodList).Items, isOther)
}

// react notes a write and does what follows from it.
func (w *world) react(tracker clienttest.ObjectTracker) clienttest.ReactionFunc {
	does := clienttest.ObjectReaction(tracker)
	return func(a clienttest.Action) (bool, runtime.Object, error) {
		verb, kind := a.GetVerb(), a.GetResource().Resource
		name := ""
		switch one := a.(type) {
		case clienttest.DeleteAction:
			name = one.GetName()
			if len(one.GetDeleteOptions().DryRun) > 0 { // the fake would delete
				_, err := tracker.Get(a.GetResource(), a.GetNamespace(), name)
				return true, nil, err
			}
		case clienttest.PatchAction:
			name = one.GetName()
		case clienttest.UpdateAction:
			object, err := meta.Accessor(one.GetObject())
			if err != nil {
				return true, nil, err
			}
			name = object.GetName()
		default:
			return false, nil, nil
		}
		write := verb + " " + kind + " " + name
		var before, after error
		if w.fails != nil {
			before, after = w.fails(write)
		}
		if before != nil {
			return true, nil, before
		}
		handled, o, err := does(a)
		if err != nil {
			return handled, o, err // there is nothing to delete
		}
		w.writes = append(w.writes, write)
		switch {
		case verb == "delete" && (kind == "daemonsets" || kind == "deployments"):
			w.deletePods(name)
		case verb == "update" && kind == "daemonsets":
			w.deletePods(name)
			for _, node := range []string{"one", "two"} {
				w.addPod(name, node, o.(*appsv1.DaemonSet).Spec.Template.Spec)
			}
		}
		return handled, o, after
	}
}

// run runs the uninstall until its end or that of ctx.
func (w *world) run(ctx context.Context) error {
	return Run(ctx, Config{Core: withLogs{w.core, w}, NADs: w.nads, Namespace: namespace, Networks: w.networks,
		Log: slog.New(slog.NewTextHandler(&w.log, nil))})
}

// addNAD adds the NAD of a network, with our finalizer.
func (w *world) addNAD(namespace, name string) {
	w.t.Helper()
	gvr := nadv1.SchemeGroupVersion.WithResource("network-attachment-definitions")
	n := &nadv1.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Finalizers: []string{netmodel.NetworkFinalizer}}}
	if err := w.nads.Tracker().Create(gvr, n, namespace); err != nil {
		w.t.Fatal(err)
	}
}

// set returns a DaemonSet.
func (w *world) set(name string) *appsv1.DaemonSet {
	w.t.Helper()
	set, err := w.core.AppsV1().DaemonSets(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return set
}

// uninstalled fails unless everything was uninstalled.
func (w *world) uninstalled() {
	w.t.Helper()
	if args := w.set(agents).Spec.Template.Spec.Containers[1].Args; !slices.Equal(args, []string{"uninstall", "--bin-dir=/opt/cni/bin"}) {
		w.t.Errorf("the installers have the arguments %q", args)
	}
	spec := w.set(switches).Spec.Template.Spec
	if len(spec.Containers) != 1 || len(spec.InitContainers) > 0 || len(spec.Volumes) != 1 ||
		!slices.Equal(spec.Containers[0].Args, []string{"remove", "--bridge=br-int"}) ||
		spec.Volumes[0].EmptyDir != nil || spec.Volumes[0].HostPath == nil || spec.Volumes[0].HostPath.Path != "/var/lib/ovn-multinet" {
		w.t.Errorf("the pods with Open vSwitch are %+v", spec)
	}
	for _, owner := range []string{controllers, databases} {
		if pods := w.pods(owner); len(pods) > 0 {
			w.t.Errorf("%s has %d pods", owner, len(pods))
		}
	}
	secrets, err := w.core.CoreV1().Secrets(namespace).List(w.t.Context(), metav1.ListOptions{})
	maps, mapsErr := w.core.CoreV1().ConfigMaps(namespace).List(w.t.Context(), metav1.ListOptions{})
	nads, nadsErr := w.nads.K8sCniCncfIoV1().NetworkAttachmentDefinitions("").List(w.t.Context(), metav1.ListOptions{})
	nodes, nodesErr := w.core.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	if err := errors.Join(err, mapsErr, nadsErr, nodesErr); err != nil {
		w.t.Fatal(err)
	}
	if len(secrets.Items)+len(maps.Items)+len(nads.Items) > 0 {
		w.t.Errorf("there are %d Secrets, %d ConfigMaps and %d NADs", len(secrets.Items), len(maps.Items), len(nads.Items))
	}
	for _, n := range nodes.Items {
		if len(n.Labels) != 1 || len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "other" {
			w.t.Errorf("node %s has the labels %v and the taints %v", n.Name, n.Labels, n.Spec.Taints)
		}
	}
}

// withLogs is a client with logs of pods, which the fake has not.
type withLogs struct {
	kubernetes.Interface
	w *world
}

type coreWithLogs struct {
	typed.CoreV1Interface
	w *world
}

type podsWithLogs struct {
	typed.PodInterface
	w *world
}

func (c withLogs) CoreV1() typed.CoreV1Interface { return coreWithLogs{c.Interface.CoreV1(), c.w} }

func (c coreWithLogs) Pods(namespace string) typed.PodInterface {
	return podsWithLogs{c.CoreV1Interface.Pods(namespace), c.w}
}

func (p podsWithLogs) GetLogs(name string, _ *corev1.PodLogOptions) *rest.Request {
	client := &fakerest.RESTClient{NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
		Client: fakerest.CreateHTTPClient(func(*http.Request) (*http.Response, error) {
			pod, err := p.Get(context.Background(), name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(p.w.says(pod)))}, nil
		})}
	return client.Request()
}
