package source

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

const (
	resourceNADs = "network-attachment-definitions"
	ours         = "ovn-multinet/network" // finalizer and annotation
)

// heldNAD is a NAD with a UID, a version and finalizers.
func heldNAD(name string, finalizers ...string) *nadv1.NetworkAttachmentDefinition {
	n := apiNAD(name, "{}")
	n.UID, n.ResourceVersion, n.Finalizers = types.UID("uid-"+name), "7", finalizers
	return n
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// All that the controller asks of a NAD is read, by name and in the list.
func TestKubeReadsNADs(t *testing.T) {
	full := heldNAD("full", "other/one", ours)
	full.CreationTimestamp, full.DeletionTimestamp = metav1.Unix(1000, 0), &metav1.Time{Time: time.Unix(2000, 0)}
	full.Annotations = map[string]string{ours: `{"ready":true}`, "ovn-multinet/force-delete": "true", "k8s.v1.cni.cncf.io/resourceName": "a.example/vf"}
	foreign := heldNAD("foreign", "other/one")
	foreign.Annotations = map[string]string{"ovn-multinet/force-delete": "yes", "network": "x", "resourceName": "a.example/vf"}
	c := newCluster(t, "", full, foreign, apiNAD("plain", "{}"))
	const want = `shop/foreign: {}, created 0, state ""; ` +
		`shop/full: {}, created 1000, state "{\"ready\":true}", devices of a.example/vf, deleting, held, force; ` +
		`shop/plain: {}, created 0, state ""`
	if got := showNADs(c.NADs(background)); got != want {
		t.Errorf("listed %s\nwant   %s", got, want)
	}
	var each []*netmodel.NAD
	for _, name := range []string{"plain", "full", "foreign"} {
		d, err := c.NAD(background, "shop", name)
		if err != nil {
			t.Fatal(err)
		}
		each = append(each, d)
	}
	if got := showNADs(each, nil); got != want {
		t.Errorf("by name %s\nwant    %s", got, want)
	}
}

// A list that could not be read is not an empty one.
func TestKubeNADsFails(t *testing.T) {
	c := newCluster(t, "")
	on(&c.nads.Fake, "list", resourceNADs, nil, errDown)
	if all, err := c.NADs(background); all != nil || !errors.Is(err, errDown) {
		t.Errorf("got %v, %v", all, err)
	}
}

// The finalizers are a list that is written whole: the others' kept, and only when ours is to change. The UID and the
// version that was read are preconditions of every patch.
// Conformance: N-5
func TestKubeSetNetworkState(t *testing.T) {
	const said = `{"ready":true}`
	annotated := func(value, rest string) string {
		return `{"metadata":{"annotations":{"ovn-multinet/network":` + value + `},` + rest + `"resourceVersion":"7","uid":"uid-blue"}}`
	}
	const quoted = `"{\"ready\":true}"`
	tests := []struct {
		name       string
		finalizers []string
		state      string
		held       bool
		want       string
	}{
		{"to be held", nil, said, true, annotated(quoted, `"finalizers":["ovn-multinet/network"],`)},
		{"to be held beside others", []string{"other/one", "other/two"}, said, true,
			annotated(quoted, `"finalizers":["other/one","other/two","ovn-multinet/network"],`)},
		{"held already", []string{ours}, said, true, annotated(quoted, "")},
		{"held already beside others", []string{"other/one", ours, "other/two"}, said, true, annotated(quoted, "")},
		{"not held, nor to be", nil, said, false, annotated(quoted, "")},
		{"others hold it, and ours is not to", []string{"other/one"}, said, false, annotated(quoted, "")},
		{"to be let go", []string{ours}, said, false, annotated(quoted, `"finalizers":[],`)},
		{"to be let go, others keep it", []string{"other/one", ours, "other/two"}, said, false,
			annotated(quoted, `"finalizers":["other/one","other/two"],`)},
		{"nothing more to say", []string{ours}, "", false, annotated("null", `"finalizers":[],`)},
		{"nothing more to say, never held", nil, "", false, annotated("null", "")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "", heldNAD("blue", tt.finalizers...))
			c.run(t, 0, 1)
			// The answer leaves what the informer has as it is.
			on(&c.nads.Fake, "patch", resourceNADs, heldNAD("blue"), nil)
			before := showNADs(c.NADs(background))
			c.clear()
			if err := c.SetNetworkState(background, &netmodel.NAD{Namespace: "shop", Name: "blue"}, tt.state, tt.held); err != nil {
				t.Fatal(err)
			}
			if got := c.requests(); got != "patch network-attachment-definitions shop/blue" {
				t.Fatalf("requests %q", got)
			}
			patch := c.nads.Actions()[0].(clienttesting.PatchAction)
			if patch.GetPatchType() != types.MergePatchType || string(patch.GetPatch()) != tt.want {
				t.Errorf("got  %s %s,\nwant %s %s", patch.GetPatchType(), patch.GetPatch(), types.MergePatchType, tt.want)
			}
			// What the informer shares with everybody is not written into.
			kept := c.cached("shop", "blue")
			if kept == nil {
				t.Fatal("the informer has lost the NAD")
			}
			if got, want := strings.Join(kept.finalizers, " "), strings.Join(tt.finalizers, " "); got != want || showNADs([]*netmodel.NAD{&kept.nad}, nil) != before {
				t.Errorf("the informer's has the finalizers %q, want %q", got, want)
			}
		})
	}
}

func TestKubeSetNetworkStateFails(t *testing.T) {
	group := schema.GroupResource{Resource: resourceNADs}
	conflict := apierrors.NewConflict(group, "blue", errors.New("it has changed"))
	tests := []struct {
		name      string
		nad       string
		verb      string
		answer    error
		want      string
		is        error
		requested string
	}{
		{"never there", "none", "", nil, "shop/none: not found", netmodel.ErrNotFound, "get " + resourceNADs + " shop/none"},
		{"gone meanwhile", "blue", "patch", apierrors.NewNotFound(group, "blue"), "shop/blue: not found", netmodel.ErrNotFound, "patch " + resourceNADs + " shop/blue"},
		{"changed meanwhile, or another of the name", "blue", "patch", conflict, conflict.Error(), conflict, "patch " + resourceNADs + " shop/blue"},
		{"the API is away", "blue", "patch", errDown, "connection refused", errDown, "patch " + resourceNADs + " shop/blue"},
		{"the API is away, and the informer has nothing", "none", "get", errDown, "connection refused", errDown, "get " + resourceNADs + " shop/none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "", heldNAD("blue"))
			c.run(t, 0, 1)
			if tt.verb != "" {
				on(&c.nads.Fake, tt.verb, resourceNADs, nil, tt.answer)
			}
			err := c.SetNetworkState(background, &netmodel.NAD{Namespace: "shop", Name: tt.nad}, "{}", true)
			if errorText(err) != tt.want || !errors.Is(err, tt.is) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if got := c.requests(); got != tt.requested {
				t.Errorf("requests %q, want %q", got, tt.requested)
			}
		})
	}
}

// An Event is found with its NAD by the UID; one that the informer does not know yet has it by its name.
func TestKubeNetworkEvent(t *testing.T) {
	tests := []struct {
		name, nad string
		warning   bool
		want      string
	}{
		{"good news", "blue", false, "k8s.cni.cncf.io/v1 NetworkAttachmentDefinition shop/blue uid-blue Normal Reason: some words"},
		{"a warning", "blue", true, "k8s.cni.cncf.io/v1 NetworkAttachmentDefinition shop/blue uid-blue Warning Reason: some words"},
		{"not known yet", "new", true, "k8s.cni.cncf.io/v1 NetworkAttachmentDefinition shop/new  Warning Reason: some words"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "", heldNAD("blue"))
			c.run(t, 0, 1)
			c.NetworkEvent(&netmodel.NAD{Namespace: "shop", Name: tt.nad}, tt.warning, "Reason", "some words")
			eventually(t, tt.want, c.created)
			if got := c.nads.Actions(); len(got) != 0 {
				t.Errorf("an Event asks the API: %v", got)
			}
		})
	}
}

// The controller hears of all that it decides by, and of nothing else.
func TestKubeTellsOfWhatNetworksDependOn(t *testing.T) {
	tests := []struct {
		name   string
		change func(n *nadv1.NetworkAttachmentDefinition)
		told   bool
	}{
		{"deletion begins", func(n *nadv1.NetworkAttachmentDefinition) {
			n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}, true},
		{"our finalizer goes", func(n *nadv1.NetworkAttachmentDefinition) { n.Finalizers = []string{"other/one"} }, true},
		{"the state", func(n *nadv1.NetworkAttachmentDefinition) { n.Annotations = map[string]string{ours: "{}"} }, true},
		{"force-delete", func(n *nadv1.NetworkAttachmentDefinition) {
			n.Annotations = map[string]string{"ovn-multinet/force-delete": "true"}
		}, true},
		{"another of the name, made later", func(n *nadv1.NetworkAttachmentDefinition) { n.CreationTimestamp = metav1.Unix(9, 0) }, true},
		{"the configuration", func(n *nadv1.NetworkAttachmentDefinition) { n.Spec.Config = "x" }, true},
		{"another's finalizer", func(n *nadv1.NetworkAttachmentDefinition) { n.Finalizers = []string{ours} }, false},
		{"another's annotation", func(n *nadv1.NetworkAttachmentDefinition) { n.Annotations = map[string]string{"a": "b"} }, false},
		{"force-delete that is no yes", func(n *nadv1.NetworkAttachmentDefinition) {
			n.Annotations = map[string]string{"ovn-multinet/force-delete": "false"}
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, "", heldNAD("blue", "other/one", ours))
			c.run(t, 0, 1)
			eventually(t, "shop/blue", c.told.take)
			changed := heldNAD("blue", "other/one", ours)
			tt.change(changed)
			api := c.nads.K8sCniCncfIoV1().NetworkAttachmentDefinitions("shop")
			if _, err := api.Update(background, changed, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			// A second one marks that the first has passed.
			if _, err := api.Create(background, apiNAD("mark", "{}"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			want := "shop/mark"
			if tt.told {
				want = "shop/blue shop/mark"
			}
			var all []string
			eventually(t, want, func() string {
				if now := c.told.take(); now != "" {
					all = append(all, now)
				}
				return strings.Join(all, " ")
			})
		})
	}
}

// An OVN network is parsed once for each text of its configuration: not at a lookup, and not when the controller has
// written its state.
func TestKubeParsesAConfigurationOnce(t *testing.T) {
	const config = `{"type":"ovn-multinet","subnets":"10.1.0.0/24"}`
	c := newCluster(t, "", apiNAD("blue", config))
	c.run(t, 0, 1)
	eventually(t, "shop/blue", c.told.take)
	first := networkOf(t, c)
	for range 100 {
		if networkOf(t, c) != first {
			t.Fatal("a lookup parses the configuration again")
		}
	}
	if err := c.SetNetworkState(background, &netmodel.NAD{Namespace: "shop", Name: "blue"}, "{}", true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "shop/blue", c.told.take)
	if all, err := c.NADs(background); err != nil || len(all) != 1 || all[0].State != "{}" {
		t.Fatalf("%v, %v", all, err)
	} else if again, err := all[0].Network(); again != first || err != nil {
		t.Errorf("a list parses the configuration again: %v", err)
	}
	if networkOf(t, c) != first {
		t.Error("a change of the state parses the configuration again")
	}
	api := c.nads.K8sCniCncfIoV1().NetworkAttachmentDefinitions("shop")
	if _, err := api.Update(background, apiNAD("blue", config+" "), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "shop/blue", c.told.take)
	if networkOf(t, c) == first {
		t.Error("another text is not parsed")
	}
}

// networkOf is the network that the NAD shop/blue describes.
func networkOf(t *testing.T, s interface {
	NAD(ctx context.Context, namespace, name string) (*netmodel.NAD, error)
}) *netmodel.Network {
	t.Helper()
	n, err := s.NAD(background, "shop", "blue")
	if err != nil {
		t.Fatal(err)
	}
	network, err := n.Network()
	if err != nil {
		t.Fatal(err)
	}
	return network
}
