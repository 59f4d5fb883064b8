package source

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

const agentsNamespace = "ovn-multinet"

// at is a time by the API server's clock, in minutes. The startup taint is on since minute 10.
func at(minute int) metav1.Time { return metav1.NewTime(time.Unix(int64(60*minute), 0)) }

var (
	startupOn = &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: startupPolicy, CreationTimestamp: at(10)},
	}
	ourTaint   = corev1.Taint{Key: conf.StartupTaint, Effect: corev1.TaintEffectNoSchedule}
	otherTaint = corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
)

// agentsOn is the DaemonSet of the agents, for nodes with these labels.
func agentsOn(selector map[string]string, affinity *corev1.Affinity) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: agentsNamespace, Name: agentsDaemonSet}}
	d.Spec.Template.Spec.NodeSelector, d.Spec.Template.Spec.Affinity = selector, affinity
	return d
}

var onLinux = agentsOn(map[string]string{corev1.LabelOSStable: "linux"}, nil)

// joined is node-1, created in a minute, with further labels and with taints.
func joined(minute int, label string, taints ...corev1.Taint) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node-1", UID: "n1", ResourceVersion: "7", CreationTimestamp: at(minute),
		Labels: map[string]string{corev1.LabelOSStable: "linux"},
	}}
	if key, value, labelled := strings.Cut(label, "="); labelled {
		n.Labels[key] = value
	}
	n.Spec.Taints = taints
	return n
}

// agentPod is the agent's pod of node-1, created in a minute.
func agentPod(minute int, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: agentsNamespace, Name: "agent-1", UID: "a1", CreationTimestamp: at(minute),
			Labels: map[string]string{"app": "ovn-multinet-agent"},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

func ending(p *corev1.Pod) *corev1.Pod {
	now := at(30)
	p.DeletionTimestamp = &now
	return p
}

// startup makes a Startup whose informers have all objects.
func (c *cluster) startup(t *testing.T) *Startup {
	t.Helper()
	s, err := c.Startup(agentsNamespace)
	if err != nil {
		t.Fatal(err)
	}
	start(t, c.Run)
	eventually(t, "true true true", func() string {
		return fmt.Sprint(s.nodes.HasSynced(), s.agents.HasSynced(), s.daemons.HasSynced())
	})
	return s
}

// joining shows node-1, and the agent's pod if it is gone.
func (c *cluster) joining() string {
	n, err := c.core.CoreV1().Nodes().Get(background, "node-1", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	words := []string{}
	for _, taint := range n.Spec.Taints {
		words = append(words, taint.Key+":"+string(taint.Effect))
	}
	if value, marked := n.Labels[conf.ReadyLabel]; marked {
		words = append(words, conf.ReadyLabel+"="+value)
	}
	return strings.Join(words, " ")
}

// A node gets the taint if it is new, not ready and one for agents, and loses it when its own agent is ready.
func TestStartup(t *testing.T) {
	const tainted, ready = "ovn-multinet/not-ready:NoSchedule", "ovn-multinet/ready=true"
	const notReady = "node.kubernetes.io/not-ready:NoSchedule"
	affinity := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	gpuTaint := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
	tolerant := agentsOn(nil, nil)
	tolerant.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	byKubelet := corev1.Taint{Key: conf.StartupTaint, Value: "x", Effect: corev1.TaintEffectNoExecute}
	tests := []struct {
		name    string
		objects []runtime.Object
		want    string
		deleted bool // the agent's pod
	}{
		{"new", []runtime.Object{joined(20, "", otherTaint), onLinux}, notReady + " " + tainted, false},
		{"new, without any taint", []runtime.Object{joined(20, ""), onLinux}, tainted, false},
		{"new, with an agent that is not ready", []runtime.Object{joined(20, ""), onLinux, agentPod(21, "False")}, tainted, false},
		{"new, with an agent that ends", []runtime.Object{joined(20, ""), onLinux, ending(agentPod(21, "True"))}, tainted, false},
		{"new and ready", []runtime.Object{joined(20, "", otherTaint), onLinux, agentPod(21, "True")}, notReady + " " + ready, false},
		{"ready", []runtime.Object{joined(20, "", otherTaint, ourTaint), onLinux, agentPod(20, "True")}, notReady + " " + ready, false},
		{"ready, tainted by kubelet", []runtime.Object{joined(20, "", byKubelet), onLinux, agentPod(21, "True")}, ready, false},
		{"not ready", []runtime.Object{joined(20, "", ourTaint), onLinux, agentPod(21, "False")}, tainted, false},
		{"old", []runtime.Object{joined(10, ""), onLinux}, "", false},
		{"old and ready", []runtime.Object{joined(10, ""), onLinux, agentPod(9, "True")}, ready, false},
		{"old and ready, tainted by kubelet", []runtime.Object{joined(9, "", ourTaint), onLinux, agentPod(12, "True")}, ready, false},
		{"never again", []runtime.Object{joined(20, ready), onLinux}, ready, false},
		{"never again, with an agent that is not ready", []runtime.Object{joined(20, ready), onLinux, agentPod(21, "False")}, ready, false},
		{"tainted again by an operator", []runtime.Object{joined(20, ready, ourTaint), onLinux, agentPod(21, "True")}, ready, false},
		{"of another operating system", []runtime.Object{joined(20, "kubernetes.io/os=windows"), onLinux}, "", false},
		{"no agents", []runtime.Object{joined(20, "")}, "", false},
		{"a taint that keeps agents away", []runtime.Object{joined(20, "", gpuTaint), onLinux}, "gpu:NoSchedule", false},
		{"a taint that agents tolerate", []runtime.Object{joined(20, "", gpuTaint), tolerant}, "gpu:NoSchedule " + tainted, false},
		{"agents that an affinity chooses nodes for", []runtime.Object{joined(20, ""), agentsOn(nil, affinity)}, "", false},
		{"chosen by an affinity", []runtime.Object{joined(20, ""), agentsOn(nil, affinity), agentPod(21, "False")}, tainted, false},
		{"another machine's agent", []runtime.Object{joined(20, ""), onLinux, agentPod(19, "True")}, tainted, false},
		{"another machine's agent, tainted", []runtime.Object{joined(20, "", ourTaint), onLinux, agentPod(19, "True")}, tainted, true},
		{"another machine's agent that ends", []runtime.Object{joined(20, "", ourTaint), onLinux, ending(agentPod(19, "True"))}, tainted, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "", append(tt.objects, startupOn)...)
			s := c.startup(t)
			if err := s.pass(background, "node-1"); err != nil {
				t.Fatal(err)
			}
			if got := c.joining(); got != tt.want {
				t.Errorf("node-1 has %q, want %q", got, tt.want)
			}
			deletes := slices.ContainsFunc(c.core.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() == "delete" })
			if deletes != tt.deleted {
				t.Errorf("the agent's pod is deleted: %t", deletes)
			}
		})
	}
}

// Every other write names the version that was read: the API server refuses it for any other version.
func TestStartupWritesOneVersion(t *testing.T) {
	c := newCluster(t, "", joined(20, "", ourTaint), onLinux, agentPod(21, "True"), startupOn)
	s := c.startup(t)
	if err := s.pass(background, "node-1"); err != nil {
		t.Fatal(err)
	}
	stale := agentPod(1, "True")
	if err := s.deleteStale(background, stale); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range c.core.Actions() {
		switch a := a.(type) {
		case clienttesting.PatchAction:
			got = append(got, string(a.GetPatch()))
		case clienttesting.DeleteActionImpl:
			got = append(got, "delete "+string(*a.DeleteOptions.Preconditions.UID))
		}
	}
	want := []string{
		`{"metadata":{"labels":{"ovn-multinet/ready":"true"},"resourceVersion":"7","uid":"n1"},"spec":{"taints":[]}}`,
		"delete a1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

// The taint is added to whatever version of the Node the API server has: to its list of taints, or as the first one.
func TestStartupTaintsAnyVersion(t *testing.T) {
	const same = `[{"op":"test","path":"/metadata/uid","value":"n1"},`
	const added = same + `{"op":"add","path":"/spec/taints/-","value":{"key":"ovn-multinet/not-ready","effect":"NoSchedule"}}]`
	const first = same + `{"op":"test","path":"/spec/taints","value":null},` +
		`{"op":"add","path":"/spec/taints","value":[{"key":"ovn-multinet/not-ready","effect":"NoSchedule"}]}]`
	for _, tt := range []struct {
		node *corev1.Node // as the informer has it
		want []string
	}{{joined(20, "", otherTaint), []string{added, first}}, {joined(20, ""), []string{first, added}}} {
		c := newCluster(t, "", tt.node, onLinux, startupOn)
		var got []string
		c.core.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			got = append(got, string(a.(clienttesting.PatchAction).GetPatch()))
			if len(got) == 1 { // the list has changed
				return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "node-1", nil)
			}
			return true, tt.node, nil
		})
		if err := c.startup(t).pass(background, "node-1"); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("wrote %q, %v; want %q", got, err, tt.want)
		}
	}
}

// A Node that is refused again and again is no race any more, and the log says so.
func TestStartupIsRefused(t *testing.T) {
	c := newCluster(t, "", joined(20, ""), onLinux, startupOn)
	log, logText := logged()
	c.Kube.log = log
	c.core.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "node-1", nil)
	})
	start(t, c.startup(t).Run)
	eventually(t, "true", func() string {
		return fmt.Sprint(strings.Contains(logText(), `level=WARN msg="startup taint of a node" node=node-1 err="Node \"node-1\" is invalid`))
	})
}

// A join by its events: the node comes, its agent comes, the agent is ready. A conflict is tried again without a word,
// and every other error with one.
func TestStartupFollowsAJoin(t *testing.T) {
	c := newCluster(t, "", onLinux, startupOn)
	log, logText := logged()
	c.Kube.log = log
	answers := []error{
		apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "node-1", errDown), errDown, nil, nil,
	}
	c.core.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(answers) == 0 {
			return false, nil, nil
		}
		err := answers[0]
		answers = answers[1:]
		return err != nil, nil, err
	})
	s := c.startup(t)
	start(t, s.Run)
	nodes, pods := c.core.CoreV1().Nodes(), c.core.CoreV1().Pods(agentsNamespace)
	steps := []struct {
		name string
		do   func() error
		want string
	}{
		{"the node joins", func() error {
			_, err := nodes.Create(background, joined(20, "", otherTaint), metav1.CreateOptions{})
			return err
		}, "node.kubernetes.io/not-ready:NoSchedule ovn-multinet/not-ready:NoSchedule"},
		{"its agent is made", func() error {
			_, err := pods.Create(background, agentPod(21, "False"), metav1.CreateOptions{})
			return err
		}, "node.kubernetes.io/not-ready:NoSchedule ovn-multinet/not-ready:NoSchedule"},
		{"its agent is ready", func() error {
			_, err := pods.Update(background, agentPod(21, "True"), metav1.UpdateOptions{})
			return err
		}, "node.kubernetes.io/not-ready:NoSchedule ovn-multinet/ready=true"},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatal(step.name, err)
		}
		eventually(t, step.name+": "+step.want, func() string { return step.name + ": " + c.joining() })
	}
	if text := logText(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "connection refused") {
		t.Errorf("the log has %s", text)
	}
}

// Without the policy, whose age says which nodes are new, no node gets the taint.
func TestStartupWithoutItsPolicy(t *testing.T) {
	c := newCluster(t, "", joined(20, ""), onLinux)
	s := c.startup(t)
	err := s.pass(background, "node-1")
	const want = "the policy that limits what the controller changes of nodes: " +
		`validatingadmissionpolicies.admissionregistration.k8s.io "ovn-multinet-controller-nodes" not found`
	if err == nil || err.Error() != want || c.joining() != "" {
		t.Errorf("%v, and the node has %q; want %s", err, c.joining(), want)
	}
}

// Heartbeats are no reason for a pass; this is asked of the comparison itself, like TestHeartbeatsOfNodesAreNoNews.
func TestStartupIgnoresHeartbeats(t *testing.T) {
	old := joined(20, "a=b", otherTaint)
	for name, tt := range map[string]struct {
		now  *corev1.Node
		want bool
	}{
		"a heartbeat": {func() *corev1.Node { n := old.DeepCopy(); n.ResourceVersion = "8"; return n }(), false},
		"a label":     {joined(20, "a=c", otherTaint), true},
		"a taint":     {joined(20, "a=b", otherTaint, ourTaint), true},
		"no taint":    {joined(20, "a=b"), true},
		"another one": {func() *corev1.Node { n := old.DeepCopy(); n.UID = "n2"; return n }(), true},
	} {
		if got := startupDiffers(old, tt.now); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
