//go:build kube

package scenarios

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	nadtyped "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned/typed/k8s.cni.cncf.io/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// What users see on a NAD.
const (
	stateAnnotation = "ovn-multinet/network"
	forceAnnotation = "ovn-multinet/force-delete"
	finalizer       = "ovn-multinet/network"
)

// state is the annotation on a NAD.
type state struct {
	Ready  bool
	Reason string
	Since  string
}

func (w *world) nads(namespace string) nadtyped.NetworkAttachmentDefinitionInterface {
	client, err := nadclient.NewForConfig(w.REST)
	w.Must(err)
	return client.K8sCniCncfIoV1().NetworkAttachmentDefinitions(namespace)
}

func (w *world) nad(name string) (*nadv1.NetworkAttachmentDefinition, error) {
	_, namespace, name := at(name)
	return w.nads(namespace).Get(w.Ctx, name, metav1.GetOptions{})
}

// stateOf reads a NAD's annotation; without one it is the zero state.
func stateOf(n *nadv1.NetworkAttachmentDefinition) (s state, err error) {
	if text := n.Annotations[stateAnnotation]; text != "" {
		err = json.Unmarshal([]byte(text), &s)
	}
	return s, err
}

// becomes waits for the state of a NAD's network: ready, or not for a reason with the words. It returns the NAD.
func (w *world) becomes(name string, ready bool, words string) *nadv1.NetworkAttachmentDefinition {
	var n *nadv1.NetworkAttachmentDefinition
	w.Must(lab.Eventually(w.Ctx, func() (err error) {
		if n, err = w.nad(name); err != nil {
			return err
		}
		s, err := stateOf(n)
		if err == nil && (s.Since == "" || s.Ready != ready || !strings.Contains(s.Reason, words) || words == "" && s.Reason != "") {
			err = fmt.Errorf("the state of %s is %q, want ready=%t and %q", name, n.Annotations[stateAnnotation], ready, words)
		}
		return err
	}))
	if !slices.Contains(n.Finalizers, finalizer) {
		w.T.Errorf("%s has the finalizers %q, want %s among them", name, n.Finalizers, finalizer)
	}
	return n
}

// deleteNAD asks for a NAD's end and does not wait for it.
func (w *world) deleteNAD(name string) {
	_, namespace, name := at(name)
	w.Must(w.nads(namespace).Delete(w.Ctx, name, metav1.DeleteOptions{}))
}

// nadGone waits for the end of a NAD, and sees that its network's switch has gone before.
func (w *world) nadGone(name, network string) {
	w.Must(lab.Eventually(w.Ctx, func() error {
		n, err := w.nad(name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%s is still there: %q", name, n.Annotations[stateAnnotation])
		}
		return err
	}))
	if rows := w.rows("Logical_Switch", "name", "name="+network); len(rows) > 0 {
		w.T.Errorf("%s is gone, but its logical switch is not", name)
	}
}

// rows lists the words in a column of the rows in NB that have what is asked for, sorted.
func (w *world) rows(table, column string, conditions ...string) []string {
	out := w.nbctl(append([]string{"--bare", "--columns=" + column, "find", table}, conditions...)...)
	words := strings.Fields(out)
	slices.Sort(words)
	return words
}

// sandboxFails waits for kubelet's Event of a pod that is not brought up.
func (w *world) sandboxFails(name, words string) {
	w.eventOf(name, "Warning", "FailedCreatePodSandBox", words)
}

// history is what the API server says of a NAD, one entry per write.
type history struct {
	mu       sync.Mutex
	entries  []string
	versions []string // resource versions
}

// follow records a NAD's history until the end of the test.
func (w *world) follow(name string) *history {
	_, namespace, short := at(name)
	watching, err := w.nads(namespace).Watch(w.Ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", short).String()})
	w.Must(err)
	w.T.Cleanup(watching.Stop)
	h := &history{}
	go func() {
		for e := range watching.ResultChan() {
			n, ok := e.Object.(*nadv1.NetworkAttachmentDefinition)
			if !ok || e.Type == watch.Bookmark {
				continue
			}
			h.mu.Lock()
			h.entries, h.versions = append(h.entries, entry(n)), append(h.versions, n.ResourceVersion)
			h.mu.Unlock()
		}
	}()
	return h
}

func entry(n *nadv1.NetworkAttachmentDefinition) string {
	s, err := stateOf(n)
	switch {
	case err != nil:
		return err.Error()
	case s == state{}:
		return fmt.Sprintf("nothing %v", n.Finalizers)
	case s.Ready:
		return fmt.Sprintf("ready %v", n.Finalizers)
	}
	return fmt.Sprintf("refused %v", n.Finalizers)
}

// hasHistory holds a NAD's whole history, up to how it is now, against the wanted one.
func (w *world) hasHistory(name string, h *history, want ...string) {
	n, err := w.nad(name)
	w.Must(err)
	var got []string
	w.Must(lab.Eventually(w.Ctx, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		got = slices.Clone(h.entries)
		if !slices.Contains(h.versions, n.ResourceVersion) {
			return fmt.Errorf("the watch of %s has seen %q, the API is at %s", name, h.versions, n.ResourceVersion)
		}
		return nil
	}))
	if !slices.Equal(got, want) {
		w.T.Errorf("%s was written as %q, want %q", name, got, want)
	}
}

// TestNetworks takes networks through what happens to them, one after the other on the same cluster.
func TestNetworks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "OVN_MULTINET_JOINING_NAMESPACES: friends")
	for _, namespace := range []string{"shop", "friends", "strangers"} {
		w.kubectl("create", "namespace", namespace)
		w.Must(w.WaitAccount(w.Ctx, namespace))
	}
	w.run("refused and healed", (*world).refusedAndHealed)
	w.run("updated with pods on it", (*world).updatedWithPods)
	w.run("deleted with pods on it", (*world).deletedWithPods)
	w.run("foreign port", (*world).foreignPort)
	w.run("router", (*world).router)
	w.run("shared by name", (*world).sharedByName)
	w.run("the cluster's addresses", (*world).clusterAddresses)
	w.Must(lab.Eventually(w.Ctx, w.nothingLeft))
	for _, table := range []string{"Logical_Switch", "Logical_Router", "Logical_Router_Port"} {
		if names := w.rows(table, "name"); len(names) > 0 {
			t.Errorf("%s in NB without a NAD: %q", table, names)
		}
	}
}

// refusedAndHealed: what is wrong with a NAD is said at the NAD and at the pod, and an edit heals both. The NAD is
// written once for each thing that there is to say.
func (w *world) refusedAndHealed() {
	h := w.follow("typo")
	w.Must(w.Apply(w.Ctx, nad("typo", `{"type":"ovn-multinet","subnet":"10.4.0.0/24"}`)))
	const line = `network default/typo: unknown key "subnet", did you mean "subnets"?`
	w.becomes("typo", false, line)
	w.eventOf("typo", "Warning", "NetworkRefused", line)
	pods := pod("early", "node1", "typo") + pod("other", "node2", "typo")
	w.Must(w.Apply(w.Ctx, pods))
	w.sandboxFails("early", line)

	w.Must(w.Apply(w.Ctx, nad("typo", `{"type":"ovn-multinet","subnets":"10.4.0.0/24"}`)))
	healed := w.becomes("typo", true, "")
	w.eventOf("typo", "Normal", "NetworkReady", "")
	w.Must(w.WaitReady(w.Ctx, "default/early", "default/other"))
	w.consistent("early", []string{"eth0", "net1"})
	w.reaches("early", "net1", w.links("other")["net1"].ips()[0])

	// New controllers look at every NAD and have nothing to say of this one.
	w.kubectl("--namespace=ovn-multinet", "rollout", "restart", "deployment/controller")
	w.kubectl("--namespace=ovn-multinet", "rollout", "status", "--timeout=60s", "deployment/controller")
	w.Must(w.Apply(w.Ctx, nad("after", `{"type":"ovn-multinet"}`)))
	w.becomes("after", true, "")
	if now := w.becomes("typo", true, ""); now.ResourceVersion != healed.ResourceVersion {
		w.T.Errorf("a NAD with nothing new was written: resource version %s, before %s", now.ResourceVersion, healed.ResourceVersion)
	}
	const held = "[" + finalizer + "]"
	w.hasHistory("typo", h, "nothing []", "refused "+held, "refused "+held, "ready "+held) // made, told, edited, told

	w.Must(w.Delete(w.Ctx, pods))
	w.Must(w.WaitGone(w.Ctx, "default/early", "default/other"))
	w.deleteNAD("typo")
	w.deleteNAD("after")
	w.nadGone("typo", "default/typo")
	w.nadGone("after", "default/after")
}

// lastBlue is the configuration of blue at its end.
const lastBlue = `{"type":"ovn-multinet","subnets":"10.1.0.0/16","routes":[{"dst":"10.99.0.0/16"}]}`

// updatedWithPods: a change that would cut pods off is refused, and what was in force stays in force, for new pods
// too; one that leaves them as they are is taken.
func (w *world) updatedWithPods() {
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+
		pod("a", "node1", "blue")+pod("b", "node2", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b"))
	b := w.links("b")["net1"].ips()[0]
	done := w.keepsReaching("a", "net1", b)

	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.5.0.0/16"}`)))
	const line = "subnets: 10.1.0.0/16 cannot become 10.5.0.0/16"
	w.becomes("blue", false, line)
	w.eventOf("blue", "Warning", "NetworkRefused", line)
	w.made("c", pod("c", "node1", "blue"))
	if ip := w.links("c")["net1"].ips()[0]; !strings.HasPrefix(ip, "10.1.") {
		w.T.Errorf("a pod got %s of a subnet that was refused", ip)
	}
	w.reaches("c", "net1", b)
	w.toolShows("blue", line, b)

	w.Must(w.Apply(w.Ctx, nad("blue", lastBlue)))
	w.becomes("blue", true, "no router has it")
	w.eventOf("blue", "Warning", "NetworkWarning", "routes[0]: no pod has 10.1.0.1, the gateway of this network, and no router has it")
	w.made("d", pod("d", "node1", "blue"))
	if routes, want := w.routes("d"), "10.99.0.0/16 via 10.1.0.1 dev net1"; !slices.Contains(routes, want) {
		w.T.Errorf("a new pod has the routes %q, want %q among them", routes, want)
	}
	w.reaches("d", "net1", b)
	done()
}

// toolShows asks `kubectl multinet`, which reaches only the API server, for the network and its three
// pods, of which b has the address.
func (w *world) toolShows(name, reason, b string) {
	text := w.multinet("network", "show", name, "-o", "json")
	var n struct {
		Name, Reason string
		Ready        bool
		Subnets      []struct {
			Subnet     string
			Used, Free int
		}
		Ports []struct {
			Namespace, Pod, Node string
			Addresses            []string
			Up                   bool
		}
	}
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		w.T.Fatalf("kubectl multinet network show: %v\n%s", err, text)
	}
	if n.Name != "default/"+name || n.Ready || !strings.Contains(n.Reason, reason) {
		w.T.Errorf("the tool says %+v", n)
	}
	if got, want := fmt.Sprint(n.Subnets), "[{10.1.0.0/16 3 65530}]"; got != want {
		w.T.Errorf("the tool counts %s, want %s", got, want)
	}
	var pods []string
	for _, p := range n.Ports {
		pods = append(pods, fmt.Sprint(p.Namespace, "/", p.Pod, " ", p.Node, " ", p.Up))
		if p.Pod == "b" && !slices.Equal(p.Addresses, []string{b}) {
			w.T.Errorf("the tool says that b has %q, it has %s", p.Addresses, b)
		}
	}
	if want := []string{"default/a node1 true", "default/b node2 true", "default/c node1 true"}; !slices.Equal(pods, want) {
		w.T.Errorf("the tool lists %q, want %q", pods, want)
	}
}

// deletedWithPods goes on with pods a and b: they hold the NAD, which takes no new ones, and it goes with the last.
func (w *world) deletedWithPods() {
	done := w.keepsReaching("a", "net1", w.links("b")["net1"].ips()[0])
	w.deleteNAD("blue")
	w.becomes("blue", false, "pod default/a")
	w.becomes("blue", false, "pod default/b")
	w.eventOf("blue", "Warning", "NetworkInUse", "pod default/a")
	w.Must(w.Apply(w.Ctx, pod("late", "node2", "blue")))
	w.sandboxFails("late", "network default/blue is being deleted, used by pod default/")
	w.sandboxFails("late", "apply its NetworkAttachmentDefinition again")
	// Applied again meanwhile, the NAD is deleted all the same: the API server takes no deletion back.
	w.Must(w.Apply(w.Ctx, nad("blue", lastBlue)))
	w.becomes("blue", false, "being deleted, used by pod default/")
	if out := w.multinet("network", "list"); !strings.Contains(out, "being deleted, used by pod default/") {
		w.T.Errorf("the tool says\n%s", out)
	}
	done()
	w.Must(w.Delete(w.Ctx, pod("late", "node2", "blue")+pod("b", "node2", "blue")))
	w.Must(lab.Eventually(w.Ctx, func() error {
		n, err := w.nad("blue")
		if err != nil {
			return err
		}
		if s, err := stateOf(n); err != nil || s.Reason != "being deleted, used by pod default/a" {
			return fmt.Errorf("pod b is gone, and the NAD says %q, %v", s.Reason, err)
		}
		return nil
	}))
	w.Must(w.Delete(w.Ctx, pod("a", "node1", "blue")))
	w.nadGone("blue", "default/blue")
}

// foreignPort: a machine outside Kubernetes holds a network as a pod does, and its owner may have it gone all the same.
func (w *world) foreignPort() {
	w.Must(w.Apply(w.Ctx, nad("green", `{"type":"ovn-multinet","subnets":"10.2.0.0/16"}`)))
	w.becomes("green", true, "")
	w.made("g", pod("g", "node1", "green"))
	w.nbctl("lsp-add", "default/green", "printer")
	w.deleteNAD("green")
	w.becomes("green", false, "port printer (not ours)")
	w.becomes("green", false, "pod default/g")
	w.kubectl("annotate", "network-attachment-definition", "green", forceAnnotation+"=true")
	w.nadGone("green", "default/green")
	if ports := w.rows("Logical_Switch_Port", "name"); len(ports) > 0 {
		w.T.Errorf("ports outlived their network: %q", ports)
	}
}

// router: pods on two networks of one router reach each other from node to node; one on a network without a router
// does not reach them. The router is of namespace default, which lets shop join.
func (w *world) router() {
	const routed = `{"type":"ovn-multinet","subnets":"%s","router":"default/trade","routes":[{"dst":"%s"}]%s}`
	const lets = `,"routerGuests":[{"namespace":"shop","subnets":"10.22.0.0/16"}]`
	nads := nad("front", fmt.Sprintf(routed, "10.21.0.0/24", "10.22.0.0/24", lets)) +
		nad("shop/back", fmt.Sprintf(routed, "10.22.0.0/24", "10.21.0.0/24", "")) +
		nad("alone", `{"type":"ovn-multinet","subnets":"10.23.0.0/24","routes":[{"dst":"10.21.0.0/24"},{"dst":"10.22.0.0/24"}]}`)
	pods := pod("front", "node1", "front") + pod("shop/back", "node2", "back") + pod("alone", "node1", "alone")
	w.Must(w.Apply(w.Ctx, nads+pods))
	w.Must(w.WaitReady(w.Ctx, "default/front", "shop/back", "default/alone"))
	front, back := w.links("front")["net1"].ips()[0], w.links("shop/back")["net1"].ips()[0]
	w.reaches("front", "net1", back)
	w.reaches("shop/back", "net1", front)
	// A port that OVN does not know as a router's answers no ARP for the gateway.
	for _, ip := range []string{front, back} {
		if err := w.ping(w.Ctx, "alone", "net1", ip, 1, time.Second); err == nil {
			w.T.Errorf("a pod on a network without a router reaches %s", ip)
		}
	}
	ports := w.rows("Logical_Router_Port", "name")
	if want := []string{"default/trade:default/front", "default/trade:shop/back"}; !slices.Equal(ports, want) {
		w.T.Errorf("ports of routers are %q, want %q", ports, want)
	}
	w.Must(w.Delete(w.Ctx, pods))
	w.Must(w.Delete(w.Ctx, nads)) // waits for their end
}

// sharedByName: NADs of ovn-kubernetes' type with one name are one network, as far as they agree and are let.
func (w *world) sharedByName() {
	const east, west = `{"type":"ovn-k8s-cni-overlay","name":"tenant","subnets":"10.31.0.0/16"}`, `{"type":"ovn-k8s-cni-overlay","name":"tenant","subnets":"10.32.0.0/16"}`
	w.Must(w.Apply(w.Ctx, nad("east", east)))
	w.becomes("east", true, "")
	w.Must(w.Apply(w.Ctx, nad("friends/too", east)+nad("west", west)+nad("strangers/too", east)))
	w.becomes("friends/too", true, "")
	const differs, stranger = "subnets: 10.32.0.0/16 is not 10.31.0.0/16", "namespace strangers may not join it"
	for name, words := range map[string]string{"west": differs, "strangers/too": stranger} {
		w.becomes(name, false, words)
		w.eventOf(name, "Warning", "NetworkRefused", words)
	}
	pods := pod("e", "node1", "east") + pod("friends/f", "node2", "too") + pod("w", "node1", "west") + pod("strangers/s", "node2", "too")
	w.Must(w.Apply(w.Ctx, pods))
	w.Must(w.WaitReady(w.Ctx, "default/e", "friends/f"))
	w.reaches("e", "net1", w.links("friends/f")["net1"].ips()[0])
	w.sandboxFails("w", "network default/west: refused: it differs from default/east")
	w.sandboxFails("strangers/s", "network strangers/too: refused: network tenant is of namespace default, and "+stranger)
	w.Must(w.Delete(w.Ctx, pods))
	w.Must(w.Delete(w.Ctx, nad("east", east)+nad("friends/too", east)+nad("west", west)+nad("strangers/too", east)))
}

// clusterAddresses: a network with addresses of pods, Services or a node gets a Warning, and works.
func (w *world) clusterAddresses() {
	node, err := w.Client.CoreV1().Nodes().Get(w.Ctx, "node1", metav1.GetOptions{})
	w.Must(err)
	i := slices.IndexFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
	own := node.Status.Addresses[i].Address
	around, err := netip.MustParseAddr(own).Prefix(24)
	w.Must(err)
	var nads string
	for _, n := range []struct{ name, subnet, words string }{
		{"as-pods", "10.244.1.0/25", "overlaps 10.244.0.0/16, a network of --keep-on-primary"},
		{"as-services", "10.97.0.0/24", "overlaps 10.96.0.0/12, a network of --keep-on-primary"},
		{"as-nodes", around.String(), "overlaps " + own + "/32, the address of node node1"},
	} {
		one := nad(n.name, fmt.Sprintf(`{"type":"ovn-multinet","subnets":"%s"}`, n.subnet))
		w.Must(w.Apply(w.Ctx, one))
		w.becomes(n.name, true, n.words)
		w.eventOf(n.name, "Warning", "NetworkWarning", n.words)
		nads += one
	}
	w.Must(w.Delete(w.Ctx, nads)) // waits for their end
}
