package placement

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

// rig is a placer on a cluster whose pods become Ready when the test says so.
type rig struct {
	t      *testing.T
	client *fake.Clientset
	p      *placer
	now    time.Time
	placed members.List
}

func newRig(t *testing.T, nodes ...string) *rig {
	r := &rig{t: t, client: fake.NewClientset(), now: time.Now()}
	for i, name := range nodes {
		r.addNode(name, i+1)
	}
	r.p = &placer{Config: Config{Client: r.client, Namespace: "ovn-multinet", Replicas: 3, Nodes: labels.Everything(),
		ReplaceAfter: 5 * time.Minute, Placed: func(l members.List) { r.placed = l }, Leading: func() error { return nil },
		Log: slog.New(slog.DiscardHandler)}, pods: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) addNode(name string, i int) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprint("192.0.2.", i)}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err := r.client.CoreV1().Nodes().Create(context.Background(), node, metav1.CreateOptions{})
	r.must(err)
}

func (r *rig) notReady(name string) {
	nodes := r.client.CoreV1().Nodes()
	node, err := nodes.Get(context.Background(), name, metav1.GetOptions{})
	r.must(err)
	node.Status.Conditions[0].Status, node.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(r.now)
	_, err = nodes.UpdateStatus(context.Background(), node, metav1.UpdateOptions{})
	r.must(err)
}

// passes runs passes until one changes nothing. Then the list has these nodes, and they alone have the label.
func (r *rig) passes(what string, want ...string) {
	r.t.Helper()
	for before := "-"; before != r.placed.String()+fmt.Sprint(r.placed.Formed); {
		before = r.placed.String() + fmt.Sprint(r.placed.Formed)
		r.p.nodes = cache.NewStore(cache.MetaNamespaceKeyFunc)
		labelled, err := r.client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{LabelSelector: NodeLabel})
		r.must(err)
		for i := range labelled.Items {
			r.must(r.p.nodes.Add(&labelled.Items[i]))
		}
		r.must(r.p.pass(context.Background(), r.now))
	}
	var have []string
	for _, m := range r.placed.Members {
		have = append(have, m.Node)
	}
	labelled, err := r.client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{LabelSelector: NodeLabel + "=true"})
	r.must(err)
	var labels []string
	for _, node := range labelled.Items {
		labels = append(labels, node.Name)
	}
	exist := slices.DeleteFunc(slices.Sorted(slices.Values(want)), func(name string) bool {
		_, err := r.client.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
		return err != nil
	})
	if !slices.Equal(have, want) || !slices.Equal(slices.Sorted(slices.Values(labels)), exist) {
		r.t.Errorf("%s: members %v, labels %v, want %v", what, have, labels, want)
	}
	stored, err := r.client.CoreV1().ConfigMaps("ovn-multinet").Get(context.Background(), members.ConfigMapName, metav1.GetOptions{})
	r.must(err)
	if stored.Data[members.ListKey] != r.placed.String() {
		r.t.Errorf("%s: the ConfigMap has %q", what, stored.Data)
	}
}

// serves has the pod on a node be Ready.
func (r *rig) serves(node string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "on-" + node}, Spec: corev1.PodSpec{NodeName: node}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	r.must(r.p.pods.Add(pod))
}

func (r *rig) id(node string) string {
	m, _ := r.placed.Of(node)
	return m.ID
}

// Members are added one by one, each when those before serve. The first one alone makes the databases.
func TestGrow(t *testing.T) {
	r := newRig(t, "a", "b", "c", "d")
	r.passes("begin", "a")
	if r.placed.Formed {
		t.Error("databases that nobody serves are formed")
	}
	r.serves("a")
	r.passes("the first one serves", "a", "b")
	if !r.placed.Formed {
		t.Error("databases are not formed")
	}
	r.passes("the second one does not serve yet", "a", "b")
	r.serves("b")
	r.passes("the second one serves", "a", "b", "c")
	r.serves("c")
	r.passes("all serve", "a", "b", "c")

	r.p.Replicas = 1
	r.passes("one is wanted", "a")
	r.p.Replicas = 3
	before := r.id("a")
	r.passes("three are wanted", "a", "b", "c")
	if r.id("a") != before {
		t.Error("a member that stays has another ID")
	}
}

// A cluster with two nodes has one member: two would not survive the loss of either.
// Control planes come first. A member stays where it is.
func TestControlPlanesFirst(t *testing.T) {
	r := newRig(t, "a", "b", "c", "d")
	label := func(name string) {
		t.Helper()
		_, err := r.client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`), metav1.PatchOptions{})
		r.must(err)
	}
	label("d")
	r.passes("the first", "d")
	r.serves("d")
	r.passes("the second", "d", "a")
	label("b")
	label("c")
	r.serves("a")
	r.passes("the third", "d", "a", "b")
}

func TestSmallCluster(t *testing.T) {
	r := newRig(t, "a", "b")
	r.serves("a")
	r.passes("two nodes", "a")
	r.addNode("c", 3)
	r.passes("a third node", "a", "b")
}

func TestReplace(t *testing.T) {
	for _, tt := range []struct {
		name   string
		breaks func(r *rig)
	}{
		{"the node is deleted", func(r *rig) {
			r.must(r.client.CoreV1().Nodes().Delete(context.Background(), "b", metav1.DeleteOptions{}))
		}},
		{"the node is not Ready for long", func(r *rig) {
			r.notReady("b")
			r.passes("not Ready for a moment", "a", "b", "c")
			r.now = r.now.Add(6 * time.Minute)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, "a", "b", "c", "d")
			for _, name := range []string{"a", "b", "c"} {
				r.serves(name)
			}
			r.passes("begin", "a", "b", "c")
			tt.breaks(r)
			r.passes("broken", "a", "d", "c")
			if strings.Contains(r.placed.String(), "b ") {
				t.Errorf("members %s", r.placed)
			}
		})
	}
}

// TestBoundaryDistrustedMember: a distrusted node is no candidate and no member. Two members that can be trusted are no
// worse than three with this one. When it is trusted again, it becomes a member anew.
func TestBoundaryDistrustedMember(t *testing.T) {
	r := newRig(t, "a", "b", "c", "d")
	for _, name := range []string{"a", "b", "c", "d"} {
		r.serves(name)
	}
	label := func(name, value string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, conf.DistrustedLabel, value)
		_, err := r.client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		r.must(err)
	}
	label("a", `""`)
	r.passes("a candidate", "b", "c", "d")
	id := r.id("c")
	label("c", `"yes"`)
	r.passes("a member, and no other node", "b", "d")
	label("a", "null")
	r.passes("another node", "b", "d", "a")
	label("c", "null")
	label("a", `""`)
	r.passes("the first one again", "b", "d", "c")
	if r.id("c") == id {
		t.Error("the member is the one that it was")
	}
}

// Without another node, a dead member stays: it may come back with its disk.
func TestNoReplacement(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		r.serves(name)
	}
	r.passes("begin", "a", "b", "c")
	r.notReady("b")
	r.now = r.now.Add(time.Hour)
	r.passes("one is dead", "a", "b", "c")
	r.addNode("d", 4)
	r.passes("another node", "a", "d", "c")
}

// A node whose address changed joins anew.
func TestAddressChanges(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		r.serves(name)
	}
	r.passes("begin", "a", "b", "c")
	before := r.id("b")
	node, err := r.client.CoreV1().Nodes().Get(context.Background(), "b", metav1.GetOptions{})
	r.must(err)
	node.Status.Addresses[0].Address = "192.0.2.99"
	_, err = r.client.CoreV1().Nodes().UpdateStatus(context.Background(), node, metav1.UpdateOptions{})
	r.must(err)
	r.passes("another address", "a", "b", "c")
	if m, _ := r.placed.Of("b"); m.ID == before || m.IP.String() != "192.0.2.99" {
		t.Errorf("member %v, its ID was %s", m, before)
	}
}

// TestBoundaryAddressTwice: a kubelet that gives its node the address of another one does not make it a member, which would
// get a server's certificate for that address. Members stay.
func TestBoundaryAddressTwice(t *testing.T) {
	r := newRig(t, "b", "c", "d")
	r.addNode("a", 1)    // b's address
	r.addNode("aa", 100) // c's, as a second one
	nodes := r.client.CoreV1().Nodes()
	node, err := nodes.Get(t.Context(), "aa", metav1.GetOptions{})
	r.must(err)
	node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.2"})
	_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	r.must(err)
	r.passes("a, b and c have an address that two nodes say they have", "aa")
	r.serves("aa")
	r.passes("without them two nodes are left, and members are an odd number", "aa")
	r.must(nodes.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	r.passes("b's address is b's alone", "aa", "b")
	r.serves("b")
	r.passes("three", "aa", "b", "d")
	r.serves("d")
	r.addNode("z", 1)
	r.passes("a member stays", "aa", "b", "d")

	r.must(nodes.Delete(t.Context(), "d", metav1.DeleteOptions{})) // c and z are left
	node, err = nodes.Get(t.Context(), "z", metav1.GetOptions{})
	r.must(err)
	node.Status.Addresses[0].Address = "::ffff:192.0.2.1" // b's in another form
	_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	r.must(err)
	r.passes("another form of b's address", "aa", "b", "d")
}
