//go:build kube

package scenarios

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/source"
)

const statusKey = "k8s.v1.cni.cncf.io/network-status"

// thief has a token of one of the product's ServiceAccounts, and knows everything else.
type thief struct {
	*world
	core    kubernetes.Interface
	nads    nadclient.Interface
	refused int
}

// steal gets a token as kubelet does: bound to a pod, or to nothing when pod is nil.
func (w *world) steal(account string, pod *corev1.Pod) *thief {
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	token, err := w.Client.CoreV1().ServiceAccounts(ours).CreateToken(w.Ctx, account, request, metav1.CreateOptions{})
	w.Must(err)
	config := rest.AnonymousClientConfig(w.REST)
	config.BearerToken = token.Status.Token
	config.QPS, config.Burst = -1, -1
	core, err := kubernetes.NewForConfig(config)
	w.Must(err)
	nads, err := nadclient.NewForConfig(config)
	w.Must(err)
	return &thief{world: w, core: core, nads: nads}
}

// cannot wants the API server to refuse an attempt, and its reason to have the words.
func (s *thief) cannot(what, words string, err error) {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
		s.T.Errorf("%s: %v; want a refusal with %q", what, err, words)
		return
	}
	s.refused++
}

// patch tries a merge patch of a pod, or of its status.
func (s *thief) patch(pod, body string, subresources ...string) error {
	_, namespace, name := at(pod)
	_, err := s.core.CoreV1().Pods(namespace).Patch(s.Ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
	return err
}

// TestBoundaryNodeToken: the token of a node's agent, stolen, changes nothing of another node's pods and nothing but the
// network-status of its own.
func TestBoundaryNodeToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+
		pod("own", "node1", "blue")+pod("victim", "node2", "blue")+victimService))
	w.Must(w.WaitReady(w.Ctx, "default/own", "default/victim")) // with their network-status: the agents' own patches pass
	before := map[string]string{"own": w.owned("own"), "victim": w.owned("victim")}
	s := w.steal("agent", w.agentPod(w.Nodes[0]))
	w.Must(lab.Eventually(w.Ctx, func() error { // the API server reads new policies a moment after they were applied
		_, err := s.core.CoreV1().Pods("default").Patch(w.Ctx, "own", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		if err == nil {
			err = errors.New("the policies are not in force yet")
		} else if apierrors.IsForbidden(err) {
			err = nil
		}
		return err
	}))
	s.attackPods()
	s.attackByOtherPatches()
	s.attackOthers()
	s.attackEvents()
	s.attackUnbound()
	for name, was := range before {
		if now := w.owned(name); now != was {
			t.Errorf("pod %s has changed:\n%s\nbefore:\n%s", name, now, was)
		}
	}
	s.agentCan()
	t.Attr("boundary.node-token-refused", fmt.Sprint(s.refused))
}

const victimService = `apiVersion: v1
kind: Service
metadata: {name: shop, namespace: default}
spec: {selector: {app: shop}, ports: [{port: 80, targetPort: 8080}]}
---
`

// owned is what of a pod the token could be after.
func (w *world) owned(name string) string {
	p := w.getPod("default/" + name)
	text := w.JSON([]any{p.Labels, p.Annotations, p.Finalizers, p.OwnerReferences, p.Spec, p.Status.Phase, p.Status.PodIPs, p.Status.Reason})
	return string(text)
}

func (s *thief) attackPods() {
	const (
		onlyThatNode = `changes pods of that node only`
		noAnnotation = "no annotation of a pod but"
		nothingElse  = "neither labels, finalizers, owners nor the status"
	)
	for _, a := range []struct{ what, pod, body, words string }{
		{"end a pod of another node", "victim", `{"status":{"phase":"Failed","reason":"Evicted"}}`, onlyThatNode},
		{"make a pod of another node unready", "victim", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, onlyThatNode},
		{"give a pod of another node another address", "victim", `{"status":{"podIP":"10.244.9.9","podIPs":[{"ip":"10.244.9.9"}]}}`, onlyThatNode},
		{"label a pod of another node", "victim", `{"metadata":{"labels":{"app":"other"}}}`, onlyThatNode},
		{"annotate a pod of another node", "victim", `{"metadata":{"annotations":{"a":"b"}}}`, onlyThatNode},
		{"forge a pod's network-status on another node", "victim", `{"metadata":{"annotations":{"` + statusKey + `":"[]"}}}`, onlyThatNode},
		{"take a pod's network-status on another node", "victim", `{"metadata":{"annotations":{"` + statusKey + `":null}}}`, onlyThatNode},
		{"hold a pod of another node", "victim", `{"metadata":{"finalizers":["a/b"]}}`, onlyThatNode},
		{"put its own pod behind a Service", "own", `{"metadata":{"labels":{"app":"shop"}}}`, nothingElse},
		{"label its own pod beside a network-status", "own", `{"metadata":{"labels":{"app":"shop"},"annotations":{"` + statusKey + `":"[]"}}}`, nothingElse},
		{"take its own pod's labels", "own", `{"metadata":{"labels":null,"finalizers":["a/b"]}}`, nothingElse},
		{"end its own pod", "own", `{"status":{"phase":"Succeeded"}}`, nothingElse},
		{"give its own pod a victim's address", "own", `{"status":{"podIP":"10.244.9.9","podIPs":[{"ip":"10.244.9.9"}]}}`, nothingElse},
		{"hold its own pod", "own", `{"metadata":{"finalizers":["a/b"]}}`, nothingElse},
		{"give its own pod another network", "own", `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/networks":"red"}}}`, noAnnotation},
		{"take its own pod's networks", "own", `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/networks":null}}}`, noAnnotation},
		{"annotate its own pod", "own", `{"metadata":{"annotations":{"a":"b","` + statusKey + `":"[]"}}}`, noAnnotation},
	} {
		s.cannot(a.what, a.words, s.patch(a.pod, a.body, "status"))
	}
	for _, pod := range []string{"victim", "own"} {
		for _, sub := range [][]string{nil, {"ephemeralcontainers"}, {"resize"}} {
			s.cannot("patch pod "+pod+fmt.Sprint(sub), "cannot patch resource", s.patch(pod, `{"metadata":{"annotations":{"`+statusKey+`":"[]"}}}`, sub...))
		}
	}
}

// attackByOtherPatches: the kind of patch makes no difference, and neither does a write of the whole.
func (s *thief) attackByOtherPatches() {
	const label = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"own","labels":{"app":"shop"}}}`
	pods := s.core.CoreV1().Pods("default")
	yes := true
	for kind, body := range map[types.PatchType]string{
		types.JSONPatchType:           `[{"op":"add","path":"/metadata/labels","value":{"app":"shop"}}]`,
		types.StrategicMergePatchType: label,
		types.ApplyPatchType:          label,
	} {
		o := metav1.PatchOptions{}
		if kind == types.ApplyPatchType {
			o.FieldManager, o.Force = "thief", &yes
		}
		_, err := pods.Patch(s.Ctx, "own", kind, []byte(body), o, "status")
		s.cannot("label its own pod by "+string(kind), "neither labels", err)
	}
	p := s.getPod("default/own")
	p.Labels = map[string]string{"app": "shop"}
	_, err := pods.UpdateStatus(s.Ctx, p, metav1.UpdateOptions{})
	s.cannot("update its own pod's status", "cannot update resource", err)
}

// attackOthers: everything else is not for its ServiceAccount at all.
func (s *thief) attackOthers() {
	const patch = `{"metadata":{"labels":{"a":"b"}}}`
	get, options := metav1.GetOptions{}, metav1.PatchOptions{}
	core := s.core.CoreV1()
	slices, err := s.Client.DiscoveryV1().EndpointSlices("default").List(s.Ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=shop"})
	s.Must(err)
	for _, slice := range slices.Items {
		_, err = s.core.DiscoveryV1().EndpointSlices("default").Patch(s.Ctx, slice.Name, types.MergePatchType, []byte(patch), options)
		s.cannot("patch an EndpointSlice", "cannot patch resource", err)
	}
	_, err = core.Services("default").Patch(s.Ctx, "shop", types.MergePatchType, []byte(patch), options)
	s.cannot("patch a Service", "cannot patch resource", err)
	_, err = core.Nodes().Patch(s.Ctx, "node2", types.MergePatchType, []byte(patch), options)
	s.cannot("patch a node", "cannot patch resource", err)
	_, err = core.Nodes().Patch(s.Ctx, "node2", types.MergePatchType, []byte(patch), options, "status")
	s.cannot("patch a node's status", "cannot patch resource", err)
	s.cannot("delete a pod", "cannot delete resource", core.Pods("default").Delete(s.Ctx, "victim", metav1.DeleteOptions{}))
	_, err = core.Secrets(ours).Get(s.Ctx, "ovn-multinet-nb-controller", get)
	s.cannot("read the controllers' key", "cannot get resource", err)
	_, err = core.Secrets(ours).Get(s.Ctx, "ovn-multinet-nb-agent", get)
	s.cannot("read the agents' key", "cannot get resource", err)
	_, err = core.ServiceAccounts(ours).CreateToken(s.Ctx, "controller", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	s.cannot("make a token", "cannot create resource", err)
	_, err = s.nads.K8sCniCncfIoV1().NetworkAttachmentDefinitions("default").Patch(s.Ctx, "blue", types.MergePatchType, []byte(patch), options)
	s.cannot("patch a network", "cannot patch resource", err)
	_, err = s.core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Patch(s.Ctx, "ovn-multinet-agent-pods", types.MergePatchType, []byte(patch), options)
	s.cannot("patch a policy", "cannot patch resource", err)
}

// event is one as agents make them, of a pod of the node.
func event(node, pod string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "thief-", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "default", Name: pod},
		Reason:         "NetworksAttached", Message: "x", Type: "Normal", Count: 1,
		Source:              corev1.EventSource{Component: "ovn-multinet", Host: node},
		ReportingController: "ovn-multinet", ReportingInstance: node,
	}
}

func (s *thief) attackEvents() {
	const source = "names ovn-multinet, and the node of its agent, as its source"
	for _, a := range []struct {
		what, words string
		change      func(*corev1.Event)
	}{
		{"of another node", source, func(e *corev1.Event) { e.Source.Host, e.ReportingInstance = "node2", "node2" }},
		{"of another node in one place", source, func(e *corev1.Event) { e.Source.Host = "node2" }},
		{"of another node in the other place", source, func(e *corev1.Event) { e.ReportingInstance = "node2" }},
		{"of no node", source, func(e *corev1.Event) { e.Source.Host, e.ReportingInstance = "", "" }},
		{"as kubelet", source, func(e *corev1.Event) { e.Source.Component, e.ReportingController = "kubelet", "kubelet" }},
		{"as kubelet in one place", source, func(e *corev1.Event) { e.ReportingController = "kubelet" }},
		{"of a node", "writes Events of a Pod only", func(e *corev1.Event) {
			e.InvolvedObject = corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: "node2"}
		}},
		{"of a network", "writes Events of a Pod only", func(e *corev1.Event) {
			e.InvolvedObject.Kind, e.InvolvedObject.APIVersion = "NetworkAttachmentDefinition", "k8s.cni.cncf.io/v1"
		}},
	} {
		e := event("node1", "own")
		a.change(e)
		_, err := s.core.CoreV1().Events("default").Create(s.Ctx, e, metav1.CreateOptions{})
		s.cannot("an Event "+a.what, a.words, err)
	}
	_, err := s.core.EventsV1().Events("default").Create(s.Ctx, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	s.cannot("an Event of the other API", "cannot create resource", err)
	// Events of others: kubelet's, and those of another node's agent.
	list, err := s.Client.CoreV1().Events("default").List(s.Ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=victim"})
	s.Must(err)
	others := map[string]bool{}
	for _, e := range list.Items {
		others[e.Source.Component] = true
		for _, body := range []string{`{"message":"x"}`, `{"source":{"component":"ovn-multinet","host":"node1"},"reportingComponent":"ovn-multinet","reportingInstance":"node1"}`} {
			_, err := s.core.CoreV1().Events("default").Patch(s.Ctx, e.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
			s.cannot("patch an Event of "+e.Source.Component, "", err)
		}
	}
	if !others["kubelet"] || !others["ovn-multinet"] {
		s.T.Errorf("pod victim has Events of %v, want those of kubelet and of node2's agent among them", others)
	}
}

// attackUnbound: a token that names no node is refused what an agent may do.
func (s *thief) attackUnbound() {
	other := s.steal("agent", nil)
	const words = "does not name the node that it was issued for"
	s.cannot("a network-status by a token without a node", words, other.patch("own", `{"metadata":{"annotations":{"`+statusKey+`":"[]"}}}`, "status"))
	_, err := other.core.CoreV1().Events("default").Create(s.Ctx, event("", "own"), metav1.CreateOptions{})
	s.cannot("an Event by a token without a node", words, err)
}

// agentCan: what agents do passes, by the product's own code.
func (s *thief) agentCan() {
	kube, err := source.NewKube(s.core, s.nads, "node1", source.Changes{}, slog.New(slog.DiscardHandler))
	s.Must(err)
	p := s.getPod("default/own")
	own := &netmodel.Pod{Namespace: "default", Name: "own", UID: string(p.UID)}
	was := p.Annotations[statusKey]
	statusIs := func(want string) {
		if got := s.getPod("default/own").Annotations[statusKey]; got != want {
			s.T.Errorf("network-status is %q, want %q", got, want)
		}
	}
	s.Must(kube.SetStatus(s.Ctx, own, []byte("[]")))
	statusIs("[]")
	s.Must(kube.DeleteStatus(s.Ctx, own, []byte(was))) // which it is not
	statusIs("[]")
	s.Must(kube.DeleteStatus(s.Ctx, own, []byte("[]")))
	statusIs("")
	s.Must(kube.SetStatus(s.Ctx, own, []byte(was)))
	statusIs(was)
	e, err := s.core.CoreV1().Events("default").Create(s.Ctx, event("node1", "own"), metav1.CreateOptions{})
	s.Must(err)
	_, err = s.core.CoreV1().Events("default").Patch(s.Ctx, e.Name, types.MergePatchType, []byte(`{"count":2}`), metav1.PatchOptions{})
	s.Must(err)
}

// TestBoundaryControllerToken: the controller's token changes nothing of a network but its state and our finalizer, and
// no Lease but its own.
func TestBoundaryControllerToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+pod("own", "node1", "")))
	w.Must(w.WaitReady(w.Ctx, "default/own"))
	w.eventOf("blue", "Normal", "NetworkReady", "")
	list, err := w.Client.CoreV1().Pods(ours).List(w.Ctx, metav1.ListOptions{LabelSelector: "app=ovn-multinet-controller"})
	w.Must(err)
	s := w.steal("controller", &list.Items[0])
	api := s.nads.K8sCniCncfIoV1().NetworkAttachmentDefinitions("default")
	patch := func(body string, dry ...string) error {
		_, err := api.Patch(w.Ctx, "blue", types.MergePatchType, []byte(body), metav1.PatchOptions{DryRun: dry})
		return err
	}
	w.Must(lab.Eventually(w.Ctx, func() error {
		if err := patch(`{"metadata":{"labels":{"a":"b"}}}`, metav1.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the policies are not in force yet: %w", err)
		}
		return nil
	}))
	const (
		nothingElse  = "neither labels, owners nor the configuration"
		noAnnotation = "no annotation of a NetworkAttachmentDefinition but"
		noFinalizer  = "no finalizer of a NetworkAttachmentDefinition but"
	)
	s.cannot("reconfigure a network", nothingElse, patch(`{"spec":{"config":"{\"type\":\"macvlan\"}"}}`))
	s.cannot("take a network's configuration", nothingElse, patch(`{"spec":null}`))
	s.cannot("label a network", nothingElse, patch(`{"metadata":{"labels":{"a":"b"}}}`))
	s.cannot("own a network", nothingElse, patch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"x"}]}}`))
	s.cannot("give a network devices", noAnnotation, patch(`{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/resourceName":"a/b"}}}`))
	s.cannot("hold a network by another finalizer", noFinalizer, patch(`{"metadata":{"finalizers":["ovn-multinet/network","a/b"]}}`))
	_, err = api.Create(w.Ctx, &nadv1.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Name: "red"}}, metav1.CreateOptions{})
	s.cannot("make a network", "cannot create resource", err)
	s.cannot("delete a network", "cannot delete resource", api.Delete(w.Ctx, "blue", metav1.DeleteOptions{}))
	_, err = s.core.CoreV1().Events("default").Create(w.Ctx, event("", "own"), metav1.CreateOptions{})
	s.cannot("an Event of a pod", "those of its outside addresses only", err)
	s.attackLeases()
	s.attackPolicies()
	s.attackClusterPolicies()
	s.attackServices()
	s.attackNodes()
	s.attackOurPods(list.Items[1].Name)
	s.attackPodStates()
	s.attackEntries()
	_, err = s.core.CoreV1().Secrets(ours).Get(w.Ctx, "ovn-multinet-nb-agent", metav1.GetOptions{})
	s.cannot("read the agents' key", "cannot get resource", err)

	kube, err := source.NewKube(s.core, s.nads, "", source.Changes{}, slog.New(slog.DiscardHandler))
	w.Must(err)
	blue := &netmodel.NAD{Namespace: "default", Name: "blue"}
	for _, held := range []bool{false, true} { // the controller writes the state too
		w.Must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			return kube.SetNetworkState(w.Ctx, blue, fmt.Sprintf(`{"state":"held %t by the test"}`, held), held)
		}))
	}
	t.Attr("boundary.controller-token-refused", fmt.Sprint(s.refused))
}

// attackPodStates: of a pod the controller's token changes the condition with the state of its outside addresses alone.
func (s *thief) attackPodStates() {
	const nothingElse, noCondition = "neither labels, annotations, finalizers", "no condition of a pod but"
	for what, a := range map[string]struct{ words, body string }{
		"put a pod behind a Service":     {nothingElse, `{"metadata":{"labels":{"app":"shop"}}}`},
		"give a pod another network":     {nothingElse, `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/networks":"red"}}}`},
		"hold a pod":                     {nothingElse, `{"metadata":{"finalizers":["a/b"]}}`},
		"end a pod":                      {nothingElse, `{"status":{"phase":"Failed","reason":"Evicted"}}`},
		"give a pod another address":     {nothingElse, `{"status":{"podIP":"10.244.9.9","podIPs":[{"ip":"10.244.9.9"}]}}`},
		"make a pod unready":             {noCondition, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`},
		"take the conditions of a pod":   {noCondition, `{"status":{"conditions":null}}`},
		"give a pod another's condition": {noCondition, `{"status":{"conditions":[{"type":"example.com/gate","status":"True"}]}}`},
	} {
		s.cannot(what, a.words, s.patch("own", a.body, "status"))
	}
	s.cannot("patch a pod", "cannot patch resource", s.patch("own", `{"metadata":{"labels":{"a":"b"}}}`))

	kube, err := source.NewKube(s.core, s.nads, "", source.Changes{}, slog.New(slog.DiscardHandler))
	s.Must(err)
	conditions := func() (ours string, all int) {
		for _, c := range s.getPod("default/own").Status.Conditions {
			if c.Type == conf.OutsideCondition {
				ours = string(c.Status) + " " + c.Reason + " " + c.Message
			}
			all++
		}
		return ours, all
	}
	_, before := conditions()
	own := &netmodel.Pod{Namespace: "default", Name: "own", UID: string(s.getPod("default/own").UID)}
	for _, state := range []netmodel.OutsideState{{Reason: netmodel.OutsideReady, Message: "m"}, {Reason: netmodel.OutsideRefused, Message: "n"}, {}} {
		s.Must(kube.SetOutsideState(s.Ctx, own, state))
		want, count := "", before
		if state.Reason != "" {
			status := map[bool]string{true: "True ", false: "False "}[state.Reason == netmodel.OutsideReady]
			want, count = status+string(state.Reason)+" "+state.Message, before+1
		}
		if got, all := conditions(); got != want || all != count {
			s.T.Errorf("the condition is %q, of %d; want %q, of %d", got, all, want, count)
		}
		own.OutsideState = state
	}
	own.UID = "another"
	if err := kube.SetOutsideState(s.Ctx, own, netmodel.OutsideState{Reason: netmodel.OutsideReady}); !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		s.T.Errorf("the state of a pod with another UID: %v", err)
	}
}

func (s *thief) attackLeases() {
	other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: ours}}
	_, err := s.Client.CoordinationV1().Leases(ours).Create(s.Ctx, other, metav1.CreateOptions{})
	s.Must(err)
	leases := s.core.CoordinationV1().Leases(ours)
	_, err = leases.Get(s.Ctx, "other", metav1.GetOptions{})
	s.cannot("read another Lease", "cannot get resource", err)
	_, err = leases.Update(s.Ctx, other, metav1.UpdateOptions{})
	s.cannot("take another Lease", "cannot update resource", err)
	_, err = s.core.CoordinationV1().Leases("kube-system").Get(s.Ctx, "kube-scheduler", metav1.GetOptions{})
	s.cannot("read the scheduler's Lease", "cannot get resource", err)
}

// TestBoundaryInstallerHasNoToken: of the two containers on a node, the one that writes to the host's folders has no
// token and no key, and the agent has both.
func TestBoundaryInstallerHasNoToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, n := range w.Nodes {
		p := w.agentPod(n)
		want := map[string]bool{"agent": true, "installer": false}
		for container, has := range want {
			root := w.rootOf(n, p, container)
			for _, file := range []string{"/var/run/secrets/kubernetes.io/serviceaccount/token", "/etc/ovn-multinet/nb/tls.key"} {
				_, err := n.Run(w.Ctx, "cat", root+file)
				if (err == nil) != has {
					t.Errorf("%s of %s on %s: %v, want it there: %v", file, container, n.Name, err, has)
				}
			}
		}
	}
}

// rootOf is the path, on the node, of a running container's files with all that is mounted there.
func (w *world) rootOf(n *kube.Node, p *corev1.Pod, container string) string {
	id := ""
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == container {
			_, id, _ = strings.Cut(c.ContainerID, "://")
		}
	}
	tasks := w.on(n, "ctr", "--namespace", "k8s.io", "tasks", "list")
	for line := range strings.Lines(tasks) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == id && f[2] == "RUNNING" {
			return "/proc/" + f[1] + "/root"
		}
	}
	w.T.Fatalf("container %s of %s does not run on %s", container, p.Name, n.Name)
	return ""
}
