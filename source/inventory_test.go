package source

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// What is gone for good loses its addresses: in doubt it is not.
func TestInventoryGone(t *testing.T) {
	pods := []*netmodel.Pod{
		{Namespace: "shop", Name: "web-0", UID: "u1", Node: "node-1"},
		{Namespace: "shop", Name: "static", UID: "u2", Node: "node-1", Mirror: "hash"},
		{Namespace: "shop", Name: "no-uid", Node: "node-1"},
	}
	some := newInventory(pods, []string{"node-1", "node-2"})
	none, unknown := newInventory(pods, []string{}), newInventory(pods, nil)
	tests := []struct {
		name           string
		census         *Inventory
		pod, uid, node string
		want           string
	}{
		{"there", some, "web-0", "u1", "node-1", ""},
		{"there, and the node did not know its UID", some, "web-0", "", "node-1", ""},
		{"there, and its manifest has no UID", some, "no-uid", "u7", "node-1", ""},
		{"a static pod, by what the node calls it", some, "static", "hash", "node-1", ""},
		{"a static pod, by what the API calls it", some, "static", "u2", "node-1", ""},
		{"another static pod of the name", some, "static", "older", "node-1", "pod shop/static with UID older is gone"},
		{"no pod of the name", some, "web-9", "u1", "node-1", "pod shop/web-9 is gone"},
		{"another pod of the name", some, "web-0", "u0", "node-1", "pod shop/web-0 with UID u0 is gone"},
		{"the node is gone", some, "web-0", "u1", "node-3", "node node-3 is gone"},
		{"no node is known of the port", some, "web-0", "u1", "", ""},
		{"all nodes are gone", none, "web-0", "u1", "node-1", "node node-1 is gone"},
		{"a source that knows no nodes", unknown, "web-0", "u1", "node-1", ""},
		{"a source that knows no nodes, and no pod of the name", unknown, "web-9", "u1", "node-1", "pod shop/web-9 is gone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.census.Gone("shop", tt.pod, tt.uid, tt.node); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := some.Gone("infra", "web-0", "u1", "node-1"); got != "pod infra/web-0 is gone" {
		t.Errorf("of another namespace: %q", got)
	}
}

// A node that is gone for good loses what it was given: in doubt it is not.
func TestInventoryNodeGone(t *testing.T) {
	some, none, unknown := newInventory(nil, []string{"node-1"}), newInventory(nil, []string{}), newInventory(nil, nil)
	for _, tt := range []struct {
		name   string
		census *Inventory
		node   string
		want   bool
	}{
		{"there", some, "node-1", false},
		{"gone", some, "node-2", true},
		{"no name", some, "", false},
		{"all are gone", none, "node-1", true},
		{"a source that knows no nodes", unknown, "node-1", false},
	} {
		if got := tt.census.NodeGone(tt.node); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// paged answers lists in pages of one object, as a real API does with many, and records which were asked for. The
// fake knows no pages by itself.
func paged[T any](c *cluster, resource string, items []T, list func(items []T, next string) runtime.Object) (asked *[]string) {
	asked = &[]string{}
	c.core.PrependReactor("list", resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		*asked = append(*asked, fmt.Sprintf("%s of %d", options.Continue, options.Limit))
		at := 0
		if options.Continue != "" {
			if _, err := fmt.Sscanf(options.Continue, "from %d", &at); err != nil {
				return true, nil, err
			}
		}
		next := ""
		if at+1 < len(items) {
			next = fmt.Sprintf("from %d", at+1)
		}
		return true, list(items[at:at+1], next), nil
	})
	return asked
}

// All pages count, of all nodes' pods: what were on the second page would else lose its addresses.
func TestKubeInventory(t *testing.T) {
	c := newCluster(t, "")
	elsewhere := apiPod("web-2", "u3", nil)
	elsewhere.Namespace, elsewhere.Spec.NodeName = "infra", "node-3"
	static := apiPod("static", "u2", map[string]string{"kubernetes.io/config.mirror": "hash"})
	pods := paged(c, "pods", []corev1.Pod{*apiPod("web-0", "u1", networksBlue), *static, *elsewhere}, func(items []corev1.Pod, next string) runtime.Object {
		return &corev1.PodList{Items: items, ListMeta: metav1.ListMeta{Continue: next}}
	})
	node := func(name string) corev1.Node { return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	nodes := paged(c, "nodes", []corev1.Node{node("node-1"), node("node-3")}, func(items []corev1.Node, next string) runtime.Object {
		return &corev1.NodeList{Items: items, ListMeta: metav1.ListMeta{Continue: next}}
	})
	census, err := c.Inventory(background)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ namespace, pod, uid, node, want string }{
		{"shop", "web-0", "u1", "node-1", ""},
		{"shop", "static", "hash", "node-1", ""},
		{"infra", "web-2", "u3", "node-3", ""},
		{"infra", "web-2", "u3", "node-2", "node node-2 is gone"},
		{"shop", "web-2", "u3", "node-3", "pod shop/web-2 is gone"},
	} {
		if got := census.Gone(tt.namespace, tt.pod, tt.uid, tt.node); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
	if got, want := *pods, []string{" of 500", "from 1 of 500", "from 2 of 500"}; !slices.Equal(got, want) {
		t.Errorf("pages of pods %q, want %q", got, want)
	}
	if got, want := *nodes, []string{" of 500", "from 1 of 500"}; !slices.Equal(got, want) {
		t.Errorf("pages of nodes %q, want %q", got, want)
	}
	if got := c.requests(); strings.ReplaceAll(got, " /", "") != "list pods, list pods, list pods, list nodes, list nodes" {
		t.Errorf("requests %q", got)
	}
}

// A cluster without a node has none: that is not a source that knows none.
func TestKubeInventoryWithoutNodes(t *testing.T) {
	c := newCluster(t, "", apiPod("web-0", "u1", nil))
	census, err := c.Inventory(background)
	if err != nil {
		t.Fatal(err)
	}
	if got := census.Gone("shop", "web-0", "u1", "node-1"); got != "node node-1 is gone" {
		t.Errorf("got %q", got)
	}
}

// A part of the pods or nodes would make the rest look gone.
func TestKubeInventoryFails(t *testing.T) {
	for _, resource := range []string{"pods", "nodes"} {
		for _, at := range []int{1, 2} {
			t.Run(fmt.Sprint(resource, " page ", at), func(t *testing.T) {
				c := newCluster(t, "")
				asked := 0
				c.core.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					if asked++; asked == at {
						return true, nil, errDown
					}
					more := metav1.ListMeta{Continue: "more"}
					if resource == "nodes" {
						return true, &corev1.NodeList{ListMeta: more}, nil
					}
					return true, &corev1.PodList{ListMeta: more}, nil
				})
				census, err := c.Inventory(background)
				if census != nil || err == nil || err.Error() != "list "+resource+": connection refused" {
					t.Errorf("got %v, %v", census, err)
				}
			})
		}
	}
}

// An inventory of some nodes asks for these nodes and their pods alone.
func TestKubeInventoryOfNodes(t *testing.T) {
	c := newCluster(t, "")
	var asked []string
	c.core.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked = append(asked, a.GetResource().Resource+" "+a.(clienttesting.ListAction).GetListRestrictions().Fields.String())
		return false, nil, nil
	})
	if _, err := c.Inventory(background, "node-1", "node-2"); err != nil {
		t.Fatal(err)
	}
	expected := []string{
		"pods spec.nodeName=node-1", "nodes metadata.name=node-1", "pods spec.nodeName=node-2", "nodes metadata.name=node-2",
	}
	if !slices.Equal(asked, expected) {
		t.Errorf("asked for %q, want %q", asked, expected)
	}
}
