package source

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// apiNode is a node as an API has it: with a status, of which little is asked for.
func apiNode(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: "uid", ResourceVersion: "7", Labels: labels, Annotations: map[string]string{"a": "b"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec:   corev1.NodeSpec{PodCIDR: "10.244.1.0/24", Taints: []corev1.Taint{{Key: "k"}}},
		Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"i"}, SizeBytes: 1}}},
	}
}

// What is called for is the labels alone, whatever else is written into a node. This is asked of the handler itself:
// behind an informer, what is not told cannot be waited for.
func TestHeartbeatsOfNodesAreNoNews(t *testing.T) {
	labels := func(n *corev1.Node, labels map[string]string) { n.Labels = labels }
	tests := []struct {
		name   string
		change func(*corev1.Node)
		want   int64
	}{
		{"nothing", func(*corev1.Node) {}, 0},
		{"heartbeat", func(n *corev1.Node) {
			n.ResourceVersion = "8"
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Unix(1, 0)}}
		}, 0},
		{"cordoned", func(n *corev1.Node) { n.Spec.Unschedulable = true }, 0},
		{"annotation", func(n *corev1.Node) { n.Annotations = map[string]string{"zone": "b"} }, 0},
		{"another value", func(n *corev1.Node) { labels(n, map[string]string{"zone": "b"}) }, 1},
		{"another label", func(n *corev1.Node) { labels(n, map[string]string{"gateway": "a"}) }, 1},
		{"one more", func(n *corev1.Node) { labels(n, map[string]string{"zone": "a", "gateway": ""}) }, 1},
		{"none", func(n *corev1.Node) { labels(n, nil) }, 1},
		{"another address", func(n *corev1.Node) { n.Status.Addresses = []corev1.NodeAddress{{Address: "192.0.2.1"}} }, 1},
		{"the pods' subnets", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.1.0/24"} }, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var told calls
			now := apiNode("node-1", map[string]string{"zone": "a"})
			tt.change(now)
			var trimmed [2]any
			for i, n := range []*corev1.Node{apiNode("node-1", map[string]string{"zone": "a"}), now} {
				var err error
				if trimmed[i], err = trimNode(n); err != nil {
					t.Fatal(err)
				}
			}
			onNodes(told.changed).OnUpdate(trimmed[0], trimmed[1])
			if got := told.take(); got != tt.want {
				t.Errorf("told %d times, want %d", got, tt.want)
			}
		})
	}
}

// Nodes are told of when one is new or gone or has other labels.
func TestKubeTellsOfNodes(t *testing.T) {
	c := newCluster(t, "", apiNode("node-2", map[string]string{"zone": "b"}), apiNode("node-1", nil))
	c.run(t, 0, 0)
	api := c.core.CoreV1().Nodes()
	update := func(n *corev1.Node) func() error {
		return func() error {
			_, err := api.Update(background, n, metav1.UpdateOptions{})
			return err
		}
	}
	remove := func(name string) func() error {
		return func() error { return api.Delete(background, name, metav1.DeleteOptions{}) }
	}
	heartbeat := apiNode("node-2", map[string]string{"zone": "b"})
	heartbeat.ResourceVersion, heartbeat.Status.Images = "8", nil
	steps := []struct {
		name string
		do   func() error
		want string
		told int64
	}{
		{"there at the start", func() error { return nil }, "node-1; node-2 zone=b", 2},
		{"heartbeat", update(heartbeat), "node-1; node-2 zone=b", 0},
		{"another value", update(apiNode("node-2", map[string]string{"zone": "c"})), "node-1; node-2 zone=c", 1},
		{"one more label", update(apiNode("node-2", map[string]string{"gateway": "c", "zone": ""})), "node-1; node-2 gateway=c zone=", 1},
		{"no label", update(apiNode("node-2", nil)), "node-1; node-2", 1},
		{"new", func() error {
			_, err := api.Create(background, apiNode("node-0", map[string]string{"zone": "a"}), metav1.CreateOptions{})
			return err
		}, "node-0 zone=a; node-1; node-2", 1},
		{"gone", remove("node-1"), "node-0 zone=a; node-2", 1},
		{"and another", remove("node-0"), "node-2", 1},
		{"none is left, which is not unknown", remove("node-2"), "", 1},
	}
	var told, want int64
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatal(s.name, err)
		}
		want += s.told
		eventually(t, fmt.Sprintf("%s: %s, told %d times", s.name, s.want, want), func() string {
			told += c.nodesTold.take()
			return fmt.Sprintf("%s: %s, told %d times", s.name, showNodes(c.Nodes(background)), told)
		})
	}
	if got := c.told.take(); got != "" {
		t.Errorf("told of NADs %s", got)
	}
}

// The memory of the controller holds of a node what it asks for: not what kubelet reports, the list of images above all.
func TestKubeKeepsLittleOfANode(t *testing.T) {
	c := newCluster(t, "", apiNode("node-1", map[string]string{"zone": "a"}))
	c.run(t, 0, 0)
	eventually(t, "node-1 zone=a", func() string { return showNodes(c.Nodes(background)) })
	want := []any{&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "uid", ResourceVersion: "7", Labels: map[string]string{"zone": "a"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "k"}}},
	}}
	if got := c.Kube.nodes.GetStore().List(); !reflect.DeepEqual(got, want) {
		t.Errorf("kept %+v", got)
	}
}

// TestKubeAddressesOfANode: the addresses of a node and its pods' subnets are known; names and what is no address are not.
func TestKubeAddressesOfANode(t *testing.T) {
	n := apiNode("node-1", nil)
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: "node-1"},
		{Type: corev1.NodeInternalIP, Address: "2001:db8::1"},
	}
	n.Spec.PodCIDRs = []string{"10.244.1.0/24", "x", "fd99::/64"}
	c := newCluster(t, "", n)
	c.run(t, 0, 0)
	eventually(t, "[192.0.2.1 2001:db8::1] [10.244.1.0/24 fd99::/64]", func() string {
		nodes, err := c.Nodes(background)
		if err != nil || len(nodes) != 1 {
			return fmt.Sprint(nodes, err)
		}
		return fmt.Sprint(nodes[0].Addresses, nodes[0].PodSubnets)
	})
}

// nodePage is one page of a list of nodes.
func nodePage(next string, names ...string) *corev1.NodeList {
	list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: next}}
	for _, name := range names {
		list.Items = append(list.Items, *apiNode(name, nil))
	}
	return list
}

// listNodes makes the API answer lists of nodes: the n-th of them, from where.
func (c *cluster) listNodes(answer func(n int, from string) (runtime.Object, error)) {
	n := 0
	c.core.PrependReactor("list", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		n++
		list, err := answer(n, a.(clienttesting.ListActionImpl).ListOptions.Continue)
		return true, list, err
	})
}

// Before the API has named all nodes there is no answer: neither none nor some of them.
func TestKubeNodesFailsBeforeTheFirstList(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no right to list"))
	tests := []struct {
		name   string
		answer func(n int, from string) (runtime.Object, error) // nil: it does not run
		want   string
		is     error
	}{
		{"it does not run", nil, "list nodes: context canceled", context.Canceled},
		{"forbidden", func(int, string) (runtime.Object, error) { return nil, forbidden },
			"list nodes: context canceled: failed to list *v1.Node: nodes is forbidden: no right to list", forbidden},
		{"half of it", func(_ int, from string) (runtime.Object, error) {
			if from == "" {
				return nodePage("more", "node-1"), nil
			}
			return nil, errDown
		}, "list nodes: context canceled: failed to list *v1.Node: connection refused", errDown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "", apiNode("node-1", nil))
			if tt.answer != nil {
				c.listNodes(tt.answer)
				start(t, c.Run)
				eventually(t, "refused", func() string {
					if c.Kube.nodes.refused.Load() == nil {
						return "asking"
					}
					return "refused"
				})
			}
			all, err := c.Nodes(ended())
			if got := showNodes(all, err); got != tt.want || all != nil {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			if !errors.Is(err, context.Canceled) || !errors.Is(err, tt.is) {
				t.Errorf("%v is not %v", err, tt.is)
			}
		})
	}
}

// Who asks before the first list gets the whole of it.
func TestKubeNodesWaitsForTheFirstList(t *testing.T) {
	tests := []struct {
		name   string
		answer func(n int, from string) (runtime.Object, error)
		want   string
	}{
		{"two pages", func(_ int, from string) (runtime.Object, error) {
			if from == "" {
				return nodePage("more", "node-2"), nil
			}
			return nodePage("", "node-1"), nil
		}, "node-1; node-2"},
		{"the API is away at first", func(n int, _ string) (runtime.Object, error) {
			if n == 1 {
				return nil, errDown
			}
			return nodePage("", "node-1"), nil
		}, "node-1"},
		{"no node", func(int, string) (runtime.Object, error) { return nodePage(""), nil }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "")
			c.listNodes(tt.answer)
			start(t, c.Run)
			ctx, cancel := context.WithTimeout(background, limit)
			defer cancel()
			if got := showNodes(c.Nodes(ctx)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// What is known is answered without a request, and whatever time is left.
func TestKubeNodesAsksNobody(t *testing.T) {
	c := newCluster(t, "", apiNode("node-1", nil))
	c.run(t, 0, 0)
	eventually(t, "node-1", func() string { return showNodes(c.Nodes(background)) })
	if got := showNodes(c.Nodes(ended())); got != "node-1" {
		t.Errorf("got %q", got)
	}
	if got := c.requests(); got != "" {
		t.Errorf("requests %q", got)
	}
}

// An agent has no right to ask for nodes, and says so at once.
func TestKubeOfANodeKnowsNoNodes(t *testing.T) {
	c := newCluster(t, "node-1", apiNode("node-1", nil))
	c.run(t, 0, 0)
	all, err := c.Nodes(background)
	if all != nil || err == nil || err.Error() != "list nodes: an agent does not watch them" {
		t.Errorf("got %v, %v", all, err)
	}
	if got := c.requests(); got != "" {
		t.Errorf("requests %q", got)
	}
}
