package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	nadfake "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned/fake"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovn-multinet/ovn-multinet/nad"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// The fake API of these tests only shows which requests are made: it knows no field selectors and checks no
// preconditions. What a real API server answers to them is seen in e2e, which runs one.
type cluster struct {
	*Kube
	core *fake.Clientset
	nads *nadfake.Clientset
	told *names
	// nodesTold counts how often a change of nodes was told.
	nodesTold calls
	bound     names // pods that the source says are bound
	migrated  names // pods that the source says a machine has migrated into
}

// newCluster makes a Kube for a node, or for the controller, with pods, NADs and nodes in its API.
func newCluster(t *testing.T, node string, objects ...runtime.Object) *cluster {
	t.Helper()
	c := &cluster{core: fake.NewClientset(), nads: nadfake.NewSimpleClientset(), told: &names{}}
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *corev1.Pod:
			_, err = c.core.CoreV1().Pods(o.Namespace).Create(background, o, metav1.CreateOptions{})
		case *nadv1.NetworkAttachmentDefinition:
			_, err = c.nads.K8sCniCncfIoV1().NetworkAttachmentDefinitions(o.Namespace).Create(background, o, metav1.CreateOptions{})
		case *corev1.Node:
			_, err = c.core.CoreV1().Nodes().Create(background, o, metav1.CreateOptions{})
		default:
			err = c.core.Tracker().Add(o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	changes := Changes{
		NAD: c.told.changed, Nodes: c.nodesTold.changed, Bound: func(p *netmodel.Pod) { c.bound.changed(p.Namespace, p.Name) },
		Migrated: func(p *netmodel.Pod) { c.migrated.changed(p.Namespace, p.Name) },
	}
	var err error
	if c.Kube, err = NewKube(c.core, c.nads, node, changes, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	// The fake clientsets have no REST clients to stream a list from.
	c.Kube.lists.pods = func(ctx context.Context, opts metav1.ListOptions, keep func(*corev1.Pod)) (metav1.ListMeta, error) {
		list, err := c.core.CoreV1().Pods("").List(ctx, opts)
		if err != nil {
			return metav1.ListMeta{}, err
		}
		for i := range list.Items {
			keep(&list.Items[i])
		}
		return list.ListMeta, nil
	}
	c.Kube.lists.podMeta = c.Kube.lists.pods
	c.Kube.lists.nads = func(ctx context.Context, opts metav1.ListOptions, keep func(*nadv1.NetworkAttachmentDefinition)) (metav1.ListMeta, error) {
		list, err := c.nads.K8sCniCncfIoV1().NetworkAttachmentDefinitions("").List(ctx, opts)
		if err != nil {
			return metav1.ListMeta{}, err
		}
		for i := range list.Items {
			keep(&list.Items[i])
		}
		return list.ListMeta, nil
	}
	c.clear()
	return c
}

// run starts the informers and waits until they have all objects, and forgets the requests for that.
func (c *cluster) run(t *testing.T, pods, nads int) {
	t.Helper()
	start(t, c.Run)
	eventually(t, fmt.Sprint(pods, nads), func() string {
		watched, known := 0, 0
		if c.Kube.pods != nil {
			list, err := c.Kube.pods.List(labels.Everything())
			if err != nil {
				return err.Error()
			}
			watched = len(list)
		}
		known = len(c.Kube.nads.List())
		return fmt.Sprint(watched, known)
	})
	eventually(t, "watching", c.watching)
	c.clear()
}

// watching says "watching" when all informers do, and else what was asked until now.
func (c *cluster) watching() string {
	seen := c.requests()
	if strings.Contains(seen, "watch network-attachment-definitions") &&
		(c.Kube.pods == nil || strings.Contains(seen, "watch pods")) && (c.Kube.nodes == nil || strings.Contains(seen, "watch nodes")) {
		return "watching"
	}
	return seen
}

func (c *cluster) clear() {
	c.core.ClearActions()
	c.nads.ClearActions()
}

// requests lists what was asked of the API, in order, pods first.
func (c *cluster) requests() string {
	var out []string
	for _, a := range append(c.core.Actions(), c.nads.Actions()...) {
		word := a.GetVerb() + " " + a.GetResource().Resource
		if a.GetSubresource() != "" {
			word += "/" + a.GetSubresource()
		}
		if named, ok := a.(interface{ GetName() string }); ok && a.GetVerb() != "create" {
			word += " " + a.GetNamespace() + "/" + named.GetName()
		}
		out = append(out, word)
	}
	return strings.Join(out, ", ")
}

// on makes a request of a kind answer with an object or an error.
func on(f *clienttesting.Fake, verb, resource string, obj runtime.Object, err error) {
	f.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, obj, err })
}

func apiPod(name, uid string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func apiNAD(name, config string) *nadv1.NetworkAttachmentDefinition {
	return &nadv1.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: nadv1.NetworkAttachmentDefinitionSpec{Config: config},
	}
}

var (
	networksBlue = map[string]string{"k8s.v1.cni.cncf.io/networks": "blue", "example.com/x": "y"}
	pods         = schema.GroupResource{Resource: "pods"}
	errDown      = errors.New("connection refused")
)

func TestKubePod(t *testing.T) {
	gone := apierrors.NewNotFound(pods, "x")
	tests := []struct {
		name      string
		pod, uid  string
		live      runtime.Object // what a GET answers, if it is to be another than what the informer has
		liveErr   error
		want      string
		is        error
		requested string
	}{
		{"known", "web-0", "u1", nil, nil, "shop/web-0 u1 on node-1: blue", nil, ""},
		{"known, runtime does not tell the UID", "web-0", "", nil, nil, "shop/web-0 u1 on node-1: blue", nil, ""},
		{"known, static", "static", "hash", nil, nil, "shop/static u2 on node-1: blue", nil, ""},
		{"another UID: one GET", "web-0", "u9", apiPod("web-0", "u9", nil), nil, "shop/web-0 u9 on node-1: ", nil, "get pods shop/web-0"},
		{"another UID, and the API has no newer one", "web-0", "u0", nil, nil, "shop/web-0 u1 on node-1: blue", nil, "get pods shop/web-0"},
		{"another UID, and gone by now", "web-0", "u9", nil, gone, "shop/web-0: pod not found", ErrNotFound, "get pods shop/web-0"},
		{"not known yet", "new", "u5", apiPod("new", "u5", networksBlue), nil, "shop/new u5 on node-1: blue", nil, "get pods shop/new"},
		{"not there", "none", "u5", nil, nil, "shop/none: pod not found", ErrNotFound, "get pods shop/none"},
		{"the API is away", "none", "u5", nil, errDown, "connection refused", errDown, "get pods shop/none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "node-1", apiPod("web-0", "u1", networksBlue),
				apiPod("static", "u2", map[string]string{"k8s.v1.cni.cncf.io/networks": "blue", "kubernetes.io/config.mirror": "hash"}))
			c.run(t, 2, 0)
			if tt.live != nil || tt.liveErr != nil {
				on(&c.core.Fake, "get", "pods", tt.live, tt.liveErr)
			}
			p, err := c.Pod(background, "shop", tt.pod, tt.uid)
			if got := show(p, err); got != tt.want || !errors.Is(err, tt.is) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := c.requests(); got != tt.requested {
				t.Errorf("requests %q, want %q", got, tt.requested)
			}
		})
	}
}

func TestKubeLivePodAsks(t *testing.T) {
	c := newCluster(t, "node-1", apiPod("web-0", "u1", networksBlue))
	c.run(t, 1, 0)
	if got := show(c.LivePod(background, "shop", "web-0")); got != "shop/web-0 u1 on node-1: blue" {
		t.Errorf("got %q", got)
	}
	if got := c.requests(); got != "get pods shop/web-0" {
		t.Errorf("requests %q", got)
	}
}

// An agent's memory holds of a pod what it asks for, and nothing else that users write.
func TestKubeKeepsLittleOfAPod(t *testing.T) {
	big := apiPod("web-0", "u1", map[string]string{"k8s.v1.cni.cncf.io/networks": "blue", "kubernetes.io/config.mirror": "hash", "example.com/x": strings.Repeat("x", 1000)})
	big.Labels = map[string]string{"a": "b"}
	big.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	c := newCluster(t, "node-1", big)
	c.run(t, 1, 0)
	kept, err := c.Kube.pods.Pods("shop").Get("web-0")
	if err != nil {
		t.Fatal(err)
	}
	if len(kept.Annotations) != 2 || kept.Annotations["k8s.v1.cni.cncf.io/networks"] != "blue" || kept.Annotations["kubernetes.io/config.mirror"] != "hash" ||
		kept.Labels["a"] != "b" || kept.ManagedFields != nil || kept.Spec.Containers != nil || kept.Spec.NodeName != "node-1" {
		t.Errorf("kept %+v", kept)
	}
}

// Conformance: N-1
func TestKubeNAD(t *testing.T) {
	tests := []struct {
		name      string
		nad       string
		live      runtime.Object
		liveErr   error
		want      string
		is        error
		requested string
	}{
		{"known", "blue", nil, nil, "shop/blue: {}", nil, ""},
		{"not known yet", "new", apiNAD("new", "x"), nil, "shop/new: x", nil, "get network-attachment-definitions shop/new"},
		{"not there", "none", nil, nil, "shop/none: not found", netmodel.ErrNotFound, "get network-attachment-definitions shop/none"},
		{"the API is away", "none", nil, errDown, "connection refused", errDown, "get network-attachment-definitions shop/none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "node-1", apiNAD("blue", "{}"))
			c.run(t, 0, 1)
			if tt.live != nil || tt.liveErr != nil {
				on(&c.nads.Fake, "get", "network-attachment-definitions", tt.live, tt.liveErr)
			}
			d, err := c.NAD(background, "shop", tt.nad)
			if got := showNAD(d, err); got != tt.want || !errors.Is(err, tt.is) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := c.requests(); got != tt.requested {
				t.Errorf("requests %q, want %q", got, tt.requested)
			}
		})
	}
}

// Before the informers have anything, the API is asked.
func TestKubeBeforeItRuns(t *testing.T) {
	c := newCluster(t, "node-1", apiPod("web-0", "u1", networksBlue), apiNAD("blue", "{}"))
	if got := show(c.Pod(background, "shop", "web-0", "u1")); got != "shop/web-0 u1 on node-1: blue" {
		t.Errorf("pod %q", got)
	}
	if got := showNAD(c.NAD(background, "shop", "blue")); got != "shop/blue: {}" {
		t.Errorf("NAD %q", got)
	}
	if got := c.requests(); got != "get pods shop/web-0, get network-attachment-definitions shop/blue" {
		t.Errorf("requests %q", got)
	}
}

func TestKubeTellsOfNADs(t *testing.T) {
	c := newCluster(t, "", apiNAD("there", "1"))
	c.run(t, 0, 1)
	api := c.nads.K8sCniCncfIoV1().NetworkAttachmentDefinitions("shop")
	labelled := apiNAD("there", "2")
	labelled.Labels = map[string]string{"a": "b"}
	steps := []struct {
		name string
		do   func() error
		want string
	}{
		{"there at the start", func() error { return nil }, "shop/there"},
		{"new", func() error {
			_, err := api.Create(background, apiNAD("blue", "1"), metav1.CreateOptions{})
			return err
		}, "shop/blue"},
		{"changed", func() error {
			_, err := api.Update(background, apiNAD("there", "2"), metav1.UpdateOptions{})
			return err
		}, "shop/there"},
		{"a label, and then another gone", func() error {
			_, err := api.Update(background, labelled, metav1.UpdateOptions{})
			return errors.Join(err, api.Delete(background, "blue", metav1.DeleteOptions{}))
		}, "shop/blue"},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatal(err)
		}
		var all []string
		eventually(t, s.want, func() string {
			if now := c.told.take(); now != "" {
				all = append(all, now)
			}
			return strings.Join(all, " ")
		})
	}
}

// An agent watches the pods of its node alone and no node, the controller all nodes and no pod.
func TestKubeWatchesItsNode(t *testing.T) {
	for node, want := range map[string]string{"node-1": "list pods spec.nodeName=node-1, watch pods spec.nodeName=node-1", "": "list nodes , watch nodes "} {
		t.Run("node "+node, func(t *testing.T) {
			c := newCluster(t, node)
			start(t, c.Run)
			eventually(t, "watching", c.watching)
			var got []string
			for _, a := range c.core.Actions() {
				switch a := a.(type) {
				case clienttesting.ListAction:
					got = append(got, "list "+a.GetResource().Resource+" "+a.GetListRestrictions().Fields.String())
				case clienttesting.WatchAction:
					got = append(got, "watch "+a.GetResource().Resource+" "+a.GetWatchRestrictions().Fields.String())
				}
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("requests %v, want %s", got, want)
			}
		})
	}
}

// Conformance: N-94 F-10 F-11
func TestKubeSetStatus(t *testing.T) {
	gone := apierrors.NewNotFound(pods, "web-0")
	tests := []struct {
		name   string
		answer error
		want   string
		is     error
	}{
		{"taken", nil, "", nil},
		{"gone", gone, "shop/web-0: pod not found", ErrNotFound},
		{"the API is away", errDown, "connection refused", errDown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "node-1")
			on(&c.core.Fake, "patch", "pods", apiPod("web-0", "u1", nil), tt.answer)
			err := c.SetStatus(background, &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}, []byte(`[{"name":"x \"y\""}]`))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want || !errors.Is(err, tt.is) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := c.requests(); got != "patch pods/status shop/web-0" {
				t.Fatalf("requests %q", got)
			}
			patch := c.core.Actions()[0].(clienttesting.PatchAction)
			want := `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/network-status":"[{\"name\":\"x \\\"y\\\"\"}]"},"uid":"u1"}}`
			if patch.GetPatchType() != types.MergePatchType || string(patch.GetPatch()) != want {
				t.Errorf("patch %s %s,\nwant a merge patch %s", patch.GetPatchType(), patch.GetPatch(), want)
			}
		})
	}
}

// created returns the Events that were recorded, in one line each.
func (c *cluster) created() string {
	var out []string
	for _, a := range c.core.Actions() {
		if create, ok := a.(clienttesting.CreateAction); ok {
			if e, ok := create.GetObject().(*corev1.Event); ok {
				out = append(out, fmt.Sprintf("%s %s %s/%s %s %s %s: %s", e.InvolvedObject.APIVersion, e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name,
					e.InvolvedObject.UID, e.Type, e.Reason, e.Message))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func TestKubeEvent(t *testing.T) {
	c := newCluster(t, "node-1")
	c.run(t, 0, 0)
	c.Event(&netmodel.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}, Warning, "Reason", "some words")
	eventually(t, "v1 Pod shop/web-0 u1 Warning Reason: some words", c.created)
}

// A pod in the host's network is told that its annotation is for nothing; one without an annotation is not.
func TestKubeWarnsPodsInTheHostsNetwork(t *testing.T) {
	host, plain, other := apiPod("host", "u1", networksBlue), apiPod("plain", "u2", nil), apiPod("web-0", "u3", networksBlue)
	host.Spec.HostNetwork, plain.Spec.HostNetwork = true, true
	c := newCluster(t, "node-1", plain, other, host)
	start(t, c.Run)
	eventually(t, "v1 Pod shop/host u1 Warning NetworksIgnored: the pod is in the host's network and gets no further interfaces; remove hostNetwork or the annotation", c.created)
}

// The source says of each pod once that it is bound: of those at its start and of later ones. It does not say so of
// pods that have containers, that end, or that are in the host's network.
func TestKubeSaysWhichPodsAreBound(t *testing.T) {
	made := func(name string, phase corev1.PodPhase) *corev1.Pod {
		p := apiPod(name, "u-"+name, networksBlue)
		p.Status.Phase = phase
		return p
	}
	host, ending := made("host", corev1.PodPending), made("ending", corev1.PodPending)
	host.Spec.HostNetwork = true
	ending.DeletionTimestamp, ending.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/stay"}
	c := newCluster(t, "node-1", host, ending, made("first", corev1.PodPending), made("runs", corev1.PodRunning),
		made("over", corev1.PodSucceeded))
	c.run(t, 5, 0)
	eventually(t, "shop/first", c.bound.take)
	second := made("second", corev1.PodPending)
	for _, p := range []*corev1.Pod{made("failed", corev1.PodFailed), second} {
		if _, err := c.core.CoreV1().Pods("shop").Create(background, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "shop/second", c.bound.take)
	second.Annotations = map[string]string{"changed": "meanwhile"}
	if _, err := c.core.CoreV1().Pods("shop").Update(background, second, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.core.CoreV1().Pods("shop").Create(background, made("third", corev1.PodPending), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "shop/third", c.bound.take)
}

// Events that nobody takes keep nobody waiting, after the end neither.
func TestKubeEventDoesNotWait(t *testing.T) {
	c := newCluster(t, "node-1")
	ctx, cancel := context.WithCancel(background)
	cancel()
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2000 { // more than any queue between
		c.Event(&netmodel.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}, Normal, "Reason", "words")
	}
}

// A status is deleted by one request, and only if it is the one that was written, onto this pod.
func TestKubeDeleteStatus(t *testing.T) {
	for _, tt := range []struct {
		name, uid, present, want string
	}{
		{"the same", "u1", "[]", ""},
		{"another status", "u1", `[{"name":"newer"}]`, `[{"name":"newer"}]`},
		{"another pod of the name", "u0", "[]", "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "", apiPod("web-0", "u1", map[string]string{nad.StatusAnnotation: tt.present, "other": "stays"}))
			c.core.ClearActions()
			// The fake clientset says in its own way that a test of a patch fails.
			c.core.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				handled, obj, err := clienttesting.ObjectReaction(c.core.Tracker())(a)
				if err != nil {
					err = apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", pods, "", err.Error(), 0, false)
				}
				return handled, obj, err
			})
			if err := c.DeleteStatus(background, &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: tt.uid}, []byte("[]")); err != nil {
				t.Error(err)
			}
			if got := c.requests(); got != "patch pods/status shop/web-0" {
				t.Errorf("requests %q", got)
			}
			pod, err := c.core.CoreV1().Pods("shop").Get(background, "web-0", metav1.GetOptions{})
			if err != nil || pod.Annotations[nad.StatusAnnotation] != tt.want || pod.Annotations["other"] != "stays" {
				t.Errorf("the pod has %v, %v", pod.Annotations, err)
			}
		})
	}
	t.Run("forbidden", func(t *testing.T) {
		c := newCluster(t, "")
		on(&c.core.Fake, "patch", "pods", apiPod("web-0", "u1", nil), errDown)
		if err := c.DeleteStatus(background, &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}, []byte("[]")); !errors.Is(err, errDown) {
			t.Errorf("got %v, want that the API is away", err)
		}
	})
}
