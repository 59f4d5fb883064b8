//go:build kube

package scenarios

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestLives takes pods through what happens to them on a cluster, one after the other on the same two nodes.
func TestLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+
		nad("green", `{"type":"ovn-multinet","subnets":"10.2.0.0/16,fd02::/64"}`)))
	w.Must(w.Apply(w.Ctx, pod("peer", "node2", networks)))
	w.Must(w.WaitReady(w.Ctx, "default/peer"))
	for _, c := range []struct {
		name string
		run  func(*world)
	}{
		{"sandbox made again", (*world).sandboxMadeAgain},
		{"agent restarted", (*world).agentRestarted},
		{"kubelet and containerd restarted", (*world).runtimeRestarted},
		{"host network", (*world).hostNetwork},
		{"init container", (*world).initContainer},
		{"static pod", (*world).staticPod},
		{"default route moved", (*world).defaultRouteMoved},
		{"fixed address of a Deployment", (*world).fixedAddressOfDeployment},
		{"herd", (*world).herd},
	} {
		w.run(c.name, c.run)
	}
	w.Must(w.Delete(w.Ctx, pod("peer", "node2", networks)))
	w.Must(w.WaitGone(w.Ctx, "default/peer"))
	w.Must(lab.Eventually(w.Ctx, w.nothingLeft))
}

// made brings a pod up that goes with the test.
func (w *world) made(name, manifest string) {
	id, _, _ := at(name)
	w.Must(w.Apply(w.Ctx, manifest))
	w.T.Cleanup(func() {
		w.Must(w.Delete(w.Ctx, manifest))
		w.Must(w.WaitGone(w.Ctx, id))
	})
	w.Must(w.WaitReady(w.Ctx, id))
}

// reachesPeer pings the peer on the other node, on both networks.
func (w *world) reachesPeer(name string) {
	peer := w.links("peer")
	for _, ifName := range []string{"net1", "net2"} {
		for _, ip := range peer[ifName].ips() {
			w.reaches(name, ifName, ip)
		}
	}
}

func (w *world) sandboxMadeAgain() {
	w.made("a", pod("a", "node1", networks))
	before := w.links("a")
	n := w.Node("node1")
	old := w.sandboxID(n, "default/a")
	w.Must(n.KillPause(w.Ctx, "default/a"))
	w.Must(lab.Eventually(w.Ctx, func() error {
		if id, err := n.SandboxID(w.Ctx, "default/a"); err != nil || id == old {
			return fmt.Errorf("sandbox %.12s: %v", id, err)
		}
		return nil
	}))
	w.Must(w.WaitReady(w.Ctx, "default/a"))
	w.Must(lab.Eventually(w.Ctx, func() error {
		_, err := w.Exec(w.Ctx, "default/a", "main", "/podtool", "ip")
		return err
	}))
	w.consistent("a", []string{"eth0", "net1", "net2"})
	for _, ifName := range []string{"net1", "net2"} {
		if got, want := fmt.Sprint(w.links("a")[ifName].ips()), fmt.Sprint(before[ifName].ips()); got != want {
			w.T.Errorf("%s has %s after its sandbox was made again, had %s", ifName, got, want)
		}
	}
	w.reachesPeer("a")
}

func (w *world) agentRestarted() {
	w.made("a", pod("a", "node1", networks))
	w.kubectl("--namespace", "ovn-multinet", "rollout", "restart", "daemonset/agent")
	w.made("during", pod("during", "node1", networks))
	w.kubectl("--namespace", "ovn-multinet", "rollout", "status", "--timeout=60s", "daemonset/agent")
	w.reachesPeer("a")
	w.reachesPeer("during")
}

func (w *world) runtimeRestarted() {
	w.made("a", pod("a", "node1", networks))
	n := w.Node("node1")
	w.Must(n.RestartContainerd(w.Ctx))
	w.Must(n.RestartKubelet(w.Ctx))
	w.made("after", pod("after", "node1", networks))
	w.reachesPeer("a")
	w.reachesPeer("after")
}

func (w *world) hostNetwork() {
	manifest := strings.Replace(pod("host", "node1", networks), "spec:", "spec:\n  hostNetwork: true", 1)
	manifest = strings.Replace(manifest, "args: [serve]", "args: [serve, -port, \"18080\"]", 1)
	w.made("host", strings.Replace(manifest, "port: 8080", "port: 18080", 1))
	w.eventOf("host", "Warning", "NetworksIgnored", "host's network")
}

func (w *world) initContainer() {
	peer := w.links("peer")["net1"].ips()[0]
	manifest := strings.Replace(pod("init", "node1", networks), "  containers:", fmt.Sprintf(`  initContainers:
  - name: first
    image: localhost/podtool:lab
    imagePullPolicy: Never
    args: [ping, -c, "5", -W, "5", -I, net1, %q]
  containers:`, peer), 1)
	w.made("init", manifest)
	w.consistent("init", []string{"eth0", "net1", "net2"})
}

// fixedAddressOfDeployment: a rollout of a Deployment with a fixed address waits by default, and the error says what to
// change. After that change the new pod gets the address.
func (w *world) fixedAddressOfDeployment() {
	const address = "10.1.77.7"
	template := strings.TrimSuffix(pod("x", "node1", `[{"name":"blue","ips":["`+address+`"]}]`), "---\n")
	template = strings.NewReplacer("apiVersion: v1\nkind: Pod\n", "", "  name: x\n  namespace: default", "  labels: {app: fixed}").Replace(template)
	deployment := func(strategy string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: fixed, namespace: default}\nspec:\n" +
			"  strategy: " + strategy + "\n  selector: {matchLabels: {app: fixed}}\n  template:\n    " +
			strings.ReplaceAll(strings.TrimSpace(template), "\n", "\n    ") + "\n"
	}
	w.Must(w.Apply(w.Ctx, deployment("{type: RollingUpdate}")))
	w.T.Cleanup(func() { w.Must(w.Delete(w.Ctx, deployment("{type: Recreate}"))) })
	rolledOut := func() { w.kubectl("rollout", "status", "--timeout=3m", "deployment/fixed") }
	rolledOut()
	w.kubectl("rollout", "restart", "deployment/fixed")
	w.Must(lab.Eventually(w.Ctx, func() error {
		events := w.kubectl("get", "events", "--field-selector", "reason=FailedCreatePodSandBox", "--output",
			`jsonpath={range .items[*]}{.involvedObject.name} {.message}{"\n"}{end}`)
		if !strings.Contains(events, "address "+address+" of network default/blue is in use by default/fixed-") ||
			!strings.Contains(events, "both pods are of Deployment fixed: it starts the new pod before it ends the old one; "+
				"set strategy: Recreate") {
			return fmt.Errorf("the events are %s", events)
		}
		return nil
	}))
	w.kubectl("patch", "deployment", "fixed", "--patch", `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`)
	rolledOut()
	names := strings.Fields(w.kubectl("get", "pods", "--selector", "app=fixed", "--output", "jsonpath={.items[*].metadata.name}"))
	if len(names) != 1 || !slices.Equal(w.links(names[0])["net1"].ips(), []string{address}) {
		w.T.Errorf("the Deployment has the pods %q", names)
	}
}

// staticPod is one of the node's own, of which the API has a mirror with another UID.
func (w *world) staticPod() {
	path := w.Node("node1").Path("/etc/kubernetes/manifests/static.yaml")
	manifest := strings.TrimSuffix(strings.Replace(pod("static", "node1", networks), "  nodeName: node1\n", "", 1), "---\n")
	w.Must(os.WriteFile(path, []byte(manifest), 0o644))
	w.T.Cleanup(func() {
		w.Must(os.Remove(path))
		w.Must(w.WaitGone(w.Ctx, "default/static-node1"))
	})
	w.Must(lab.Eventually(w.Ctx, func() error {
		_, err := w.Pod(w.Ctx, "default/static-node1")
		return err
	}))
	w.Must(w.WaitReady(w.Ctx, "default/static-node1"))
	w.consistent("static-node1", []string{"eth0", "net1", "net2"})
	w.reachesPeer("static-node1")
}

// herd is fifty pods of two networks at once.
func (w *world) herd() {
	var manifests strings.Builder
	var names []string
	for i := range 50 {
		name := fmt.Sprintf("herd-%d", i)
		names = append(names, "default/"+name)
		manifests.WriteString(pod(name, fmt.Sprintf("node%d", i%2+1), networks))
	}
	w.Must(w.Apply(w.Ctx, manifests.String()))
	w.Must(w.WaitReady(w.Ctx, names...))
	list, err := w.Client.CoreV1().Pods("default").List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	seen := map[string]string{}
	for _, p := range list.Items {
		for _, s := range statusOf(w, &p)[1:] {
			for _, ip := range s.IPs {
				if other := seen[ip]; other != "" {
					w.T.Errorf("%s and %s both have %s", p.Name, other, ip)
				}
				seen[ip] = p.Name
			}
		}
	}
	if len(seen) != 51*3 { // the peer too; blue has one family, green two
		w.T.Errorf("%d addresses are in use, want %d", len(seen), 51*3)
	}
	w.Must(w.Delete(w.Ctx, manifests.String()))
	w.Must(w.WaitGone(w.Ctx, names...))
}

// TestStatusOfOthersSurvives: our patch of the one annotation does not undo what others write into a pod's status at
// the same time.
func TestStatusOfOthersSurvives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)))
	// A claim that its writer says is not needed: kubelet starts the pod once that stands in the status.
	w.Must(w.Apply(w.Ctx, strings.Replace(pod("a", "node1", "blue"), "spec:", "spec:\n  resourceClaims: [{name: claim, resourceClaimTemplateName: none}]", 1)))
	written := make(chan error, 1)
	ctx, cancel := context.WithCancel(w.Ctx)
	defer cancel()
	go func() { written <- w.writeClaims(ctx, "a") }()
	w.Must(w.WaitReady(w.Ctx, "default/a"))
	w.Must(<-written)
	p := w.getPod("default/a")
	if len(p.Status.ResourceClaimStatuses) != 1 || p.Status.ResourceClaimStatuses[0].Name != "claim" {
		t.Errorf("resourceClaimStatuses are %v, want the one that was written", p.Status.ResourceClaimStatuses)
	}
	w.consistent("a", []string{"eth0", "net1"})
}

// writeClaims writes resourceClaimStatuses by updates of the whole status, as a concurrent writer does.
func (w *world) writeClaims(ctx context.Context, name string) error {
	return lab.Eventually(ctx, func() error {
		p, err := w.Pod(ctx, "default/"+name)
		if err != nil {
			return err
		}
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "claim"}}
		_, err = w.Client.CoreV1().Pods("default").UpdateStatus(ctx, p, metav1.UpdateOptions{})
		return err
	})
}
