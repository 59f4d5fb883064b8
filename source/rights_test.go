package source

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// rightsOf reads from the manifests what a ServiceAccount has by the ClusterRole of that name, and by the Role of that
// name in the namespace of the agents.
func rightsOf(t *testing.T, name string) (role rbacv1.ClusterRole) {
	t.Helper()
	for doc := range strings.SplitSeq(images.Manifests, "\n---\n") {
		var one rbacv1.ClusterRole
		// Other kinds have the keys of this one, or none of them.
		if err := yaml.Unmarshal([]byte(doc), &one); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(one.Kind, "Role") && one.Name == name {
			role.Rules = append(role.Rules, one.Rules...)
		}
	}
	if len(role.Rules) == 0 {
		t.Fatalf("no ClusterRole %s", name)
	}
	return role
}

// The fake API grants everything: what agent and controller ask of it is held against the rights that they are installed
// with.
func TestRights(t *testing.T) {
	blue, web := &netmodel.NAD{Namespace: "shop", Name: "blue"}, &netmodel.Pod{Namespace: "shop", Name: "web-0", UID: "u1"}
	tests := []struct {
		role string
		node string
		do   func(c *cluster) // whatever comes of it: the requests are what is looked at
		want string
	}{
		{"ovn-multinet-agent", "node-1", func(c *cluster) {
			_, _ = c.LivePod(background, "shop", "web-0")
			_, _ = c.NAD(background, "shop", "none")
			_ = c.SetStatus(background, web, []byte("[]"))
			_ = c.DeleteStatus(background, web, []byte("[]"))
			c.Event(web, Normal, "Reason", "words")
			_, _ = clusterOf(background, c.core)
		}, "create events, get namespaces, get network-attachment-definitions, get pods, list network-attachment-definitions, list pods, patch pods/status, " +
			"watch network-attachment-definitions, watch pods"},
		{"ovn-multinet-controller", "", func(c *cluster) {
			_, _ = c.NAD(background, "shop", "none")
			_, _ = c.Inventory(background)
			_, _ = c.Inventory(background, "node-1")
			_ = c.SetNetworkState(background, blue, "{}", true)
			c.NetworkEvent(blue, false, "Reason", "words")
			_, _ = clusterOf(background, c.core)
			_ = c.SetOutsideState(background, &netmodel.Pod{Namespace: "shop", Name: "web-0"}, netmodel.OutsideState{Reason: "r"})
			s := &Startup{core: c.core, log: c.log}
			_, _ = s.since(background)
			_ = s.taint(background, apiNode("node-1", nil))
			_ = s.deleteStale(background, apiPod("agent-1", "u9", nil))
		}, "create events, delete pods, get namespaces, get network-attachment-definitions, get validatingadmissionpolicies, " +
			"list daemonsets, list network-attachment-definitions, list nodes, list pods, patch network-attachment-definitions, " +
			"patch nodes, patch pods/status, watch daemonsets, watch network-attachment-definitions, watch nodes, watch pods"},
	}
	for _, tt := range tests {
		t.Run(tt.role, func(t *testing.T) {
			role := rightsOf(t, tt.role)
			c := newCluster(t, tt.node, apiPod("web-0", "u1", nil), apiNAD("blue", "{}"))
			if tt.node == "" {
				if _, err := c.Startup(agentsNamespace); err != nil {
					t.Fatal(err)
				}
			}
			start(t, c.Run)
			eventually(t, "watching", c.watching)
			tt.do(c)
			eventually(t, tt.want, func() string {
				asked, _ := c.asked(role)
				return asked
			})
			if _, refused := c.asked(role); refused != "" {
				t.Errorf("%s may not %s", tt.role, refused)
			}
		})
	}
}

// asked lists what was asked of the API, and what of it the role does not allow in all namespaces.
func (c *cluster) asked(role rbacv1.ClusterRole) (all, refused string) {
	var words, not []string
	for _, a := range append(c.core.Actions(), c.nads.Actions()...) {
		resource := a.GetResource().Resource
		if a.GetSubresource() != "" {
			resource += "/" + a.GetSubresource()
		}
		words = append(words, a.GetVerb()+" "+resource)
		if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, nameIn(a))) &&
				slices.Contains(r.APIGroups, a.GetResource().Group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, a.GetVerb())
		}) {
			not = append(not, a.GetVerb()+" "+resource)
		}
	}
	each := func(words []string) string {
		slices.Sort(words)
		return strings.Join(slices.Compact(words), ", ")
	}
	return each(words), each(not)
}

// nameIn is the name of the only object that a request is for, "" for a request without a name. A list or a watch has the
// name as its field selector.
func nameIn(a clienttesting.Action) (name string) {
	switch a := a.(type) {
	case clienttesting.GetAction:
		return a.GetName()
	case clienttesting.ListAction:
		name, _ = a.GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
	case clienttesting.WatchAction:
		name, _ = a.GetWatchRestrictions().Fields.RequiresExactMatch("metadata.name")
	}
	return name
}
