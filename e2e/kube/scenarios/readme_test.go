//go:build kube

package scenarios

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() { options = append(options, kube.WithBusybox()) }

// TestReadme pastes the README's block on three nodes that have neither OVN nor Open vSwitch, and breaks each part of the
// installation: `kubectl multinet check` names it.
func TestReadme(t *testing.T) {
	t.Parallel()
	w := readmeWorld(t, 3)
	w.pasted()
	w.healthy()
	w.neverRestarted()
	w.run("a pod without its networks", (*world).withoutNetworks)
	w.run("agent and controller hang", (*world).kubeletStartsAgain)
	w.run("OVN hangs on a node", (*world).hangs)
	w.run("a node is drained", (*world).drains)
	w.run("no module in the kernel", (*world).noModule)
}

// TestReadmeOnOneNode pastes the README's block on a cluster of one node.
func TestReadmeOnOneNode(t *testing.T) {
	t.Parallel()
	w := readmeWorld(t, 1)
	w.pasted()
	w.healthy()
	w.questions()
	w.sysdump()
	w.neverRestarted()
	w.authorityIsDeleted()
	w.operatorsObjects()
}

func readmeWorld(t *testing.T, nodes int) *world {
	t.Helper()
	w := bareWorld(t, kube.Options{Nodes: nodes, WithoutOVN: true})
	w.Must(w.LoadImages(w.Ctx))
	w.Must(w.LoadBusybox(w.Ctx))
	return w
}

// inCluster is the block of the README that installs the chart.
var inCluster = regexp.MustCompile("(?s)```sh\n(kubectl multinet check.*?)```")

// readmeValues are what the chart gets beside its defaults: the nodes' kernel has no datapath for OVN, and a minute
// between two passes of an agent is long.
const readmeValues = kube.OwnOVN + "agent: {reconcilePeriod: 2s}\n"

// pasted runs the block line by line. It ends when the last line has printed its comment. What differs from a user's
// machine: readmeValues, and no node can pull images.
func (w *world) pasted() {
	w.T.Helper()
	root, err := lab.ModuleRoot()
	w.Must(err)
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	w.Must(err)
	block := inCluster.FindSubmatch(text)
	if block == nil {
		w.T.Fatal("README.md has no block that begins with kubectl multinet check")
	}
	for line := range strings.Lines(string(block[1])) {
		command, comment, _ := strings.Cut(line, "#")
		args := strings.Fields(command)
		switch {
		case strings.HasPrefix(command, "helm install ovn-multinet images/chart --namespace ovn-multinet --create-namespace"):
			w.Must(w.InstallChart(w.Ctx, readmeValues))
		case slices.Equal(args[:min(2, len(args))], []string{"kubectl", "multinet"}):
			if out, err := w.Multinet(w.Ctx, args[2:]...); err != nil {
				w.T.Fatalf("%s: %v\n%s", line, err, out)
			}
		case slices.Contains(args, "--follow"):
			args = slices.DeleteFunc(args, func(arg string) bool { return arg == "--follow" })
			want := strings.Trim(comment, " \n\"")
			w.until(func() error {
				if out := w.kubectl(args[1:]...); !strings.Contains(out, want) {
					return fmt.Errorf("%s: %q", line, out)
				}
				return nil
			})
		case slices.Equal(args[:min(3, len(args))], []string{"kubectl", "apply", "-f"}):
			w.example(filepath.Join(root, args[3]))
		case args[0] == "kubectl":
			w.kubectl(args[1:]...)
		default:
			w.T.Fatalf("the test cannot run %q", line)
		}
	}
}

// asked is the block of the README with an operator's questions.
var asked = regexp.MustCompile("(?s)```sh\n(kubectl multinet status .*?)```")

// questions runs that block: each question has an answer, and nothing is wrong.
func (w *world) questions() {
	w.T.Helper()
	root, err := lab.ModuleRoot()
	w.Must(err)
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	w.Must(err)
	block := asked.FindSubmatch(text)
	if block == nil {
		w.T.Fatal("README.md has no block that begins with kubectl multinet status")
	}
	answers := map[string]string{"status": "healthy: ", "network": "examples/hello ", "pod": "examples/hello ", "why": ": yes\n",
		"who": "network examples/hello  pod examples/hello-server/net1"}
	for line := range strings.Lines(string(block[1])) {
		command, _, _ := strings.Cut(line, "#")
		args := strings.Fields(command)[2:]
		out, err := w.Multinet(w.Ctx, args...)
		if want := answers[args[0]]; err != nil || want == "" || !strings.Contains(out, want) {
			w.T.Errorf("%s: %v\n%s\nwant %q", strings.TrimSpace(command), err, out, want)
		}
	}
}

// example applies the files of a folder, with an image that is on the nodes.
func (w *world) example(folder string) {
	w.T.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	w.Must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		w.Must(err)
		w.Must(w.Apply(w.Ctx, strings.ReplaceAll(string(text), "    image: busybox\n", "    image: busybox\n    imagePullPolicy: Never\n")))
	}
}

// healthy: the command check finds nothing.
func (w *world) healthy() {
	w.T.Helper()
	if out, err := w.Multinet(w.Ctx, "status", "--wait"); err != nil || !strings.Contains(out, "healthy: all programs run") {
		w.T.Errorf("status --wait ends with %v and\n%s", err, out)
	}
	w.until(func() error {
		out, err := w.Multinet(w.Ctx, "check")
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(line, "ok ") {
				err = errors.Join(err, errors.New(line))
			}
		}
		return err
	})
}

// authorityIsDeleted: somebody deletes the Secret with the authority of OVN's certificates. An Event says so, the programs
// get certificates of a new one, and pods get networks again.
func (w *world) authorityIsDeleted() {
	was := w.kubectl("-n", ours, "get", "configmap", "ovn-multinet-ca", "-o", "jsonpath={.data}")
	w.kubectl("-n", ours, "delete", "secret", "ovn-multinet-ca")
	w.eventOf(ours+"/ovn-multinet-ca", "Warning", "AuthorityReplaced", "the Secret ovn-multinet-ca was deleted")
	if now := w.kubectl("-n", ours, "get", "configmap", "ovn-multinet-ca", "-o", "jsonpath={.data}"); now == was {
		w.T.Error("the authority is the former one")
	}
	w.healthy()
	all := nad("after", `{"type":"ovn-multinet","subnets":"10.60.0.0/24"}`) + pod("after", "node1", "after")
	w.Must(w.Apply(w.Ctx, all))
	w.Must(w.WaitReady(w.Ctx, "default/after"))
	w.hasLinks("after", 2)
	w.Must(w.Delete(w.Ctx, all))
	w.Must(w.WaitGone(w.Ctx, "default/after"))
}

// hangs stops the processes of all of OVN's containers on a node. The command check names each.
func (w *world) hangs() {
	n := w.Nodes[len(w.Nodes)-1]
	parts := map[string][]string{
		"ovn-databases": {"nb", "sb", "northd"},
		"ovn-nodes":     {"ovsdb", "vswitchd", "controller"},
	}
	pods := map[string]string{
		"ovn-databases": ours + "/" + w.podOn("app=ovn-multinet-ovn-central", n.Name),
		"ovn-nodes":     ours + "/" + w.podOn("app=ovn-multinet-ovn-node", n.Name),
	}
	signal := func(signal string) {
		for what, containers := range parts {
			for _, container := range containers {
				w.Must(n.SignalAll(w.Ctx, pods[what], container, signal))
			}
		}
	}
	signal("SIGSTOP")
	w.checkHas("error    ovn-databases: "+n.Name+": running and not ready, as the probes say: nb, northd, sb",
		"error    ovn-nodes: "+n.Name+": running and not ready, as the probes say: controller, ovsdb, vswitchd")
	w.until(func() error {
		out, _ := w.Multinet(w.Ctx, "status") // ends with 1
		for _, words := range []string{"not healthy: see ", "error    ovn-databases: ", "error    ovn-nodes: ", "the server of NB: ",
			"the server of SB: "} {
			if !strings.Contains(out, words) {
				return fmt.Errorf("no %q in what status says:\n%s", words, out)
			}
		}
		return nil
	})
	signal("SIGCONT")
	w.healthy()
}

// checkHas waits until the command check prints lines that begin so.
func (w *world) checkHas(lines ...string) {
	w.T.Helper()
	w.until(func() error {
		out, _ := w.Multinet(w.Ctx, "check") // ends with 1
		for _, line := range lines {
			if !strings.Contains(out, line) {
				return fmt.Errorf("no line %q in\n%s", line, out)
			}
		}
		return nil
	})
}

// kubeletStartsAgain stops the processes of an agent and of a controller. kubelet starts both again.
func (w *world) kubeletStartsAgain() {
	type stopped struct{ id, container string }
	var all []stopped
	for app, container := range map[string]string{"ovn-multinet-agent": "agent", "ovn-multinet-controller": "controller"} {
		list, err := w.Client.CoreV1().Pods(ours).List(w.Ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		w.Must(err)
		p := &list.Items[0]
		w.Must(w.Node(p.Spec.NodeName).SignalAll(w.Ctx, ours+"/"+p.Name, container, "SIGSTOP"))
		all = append(all, stopped{ours + "/" + p.Name, container})
	}
	for _, one := range all {
		w.Must(w.WaitRestarted(w.Ctx, one.id, one.container, 0))
	}
	w.healthy()
}

// drains empties a node by kubectl's plain flags. No controller starts there before the node is back.
func (w *world) drains() {
	controllers := metav1.ListOptions{LabelSelector: "app=ovn-multinet-controller"}
	list, err := w.Client.CoreV1().Pods(ours).List(w.Ctx, controllers)
	w.Must(err)
	n := list.Items[0].Spec.NodeName
	w.kubectl("drain", n, "--ignore-daemonsets", "--force") // the example's pods belong to nobody
	w.kubectl("--namespace", ours, "rollout", "restart", "deployment/controller")
	w.Must(w.WaitRollout(w.Ctx))
	list, err = w.Client.CoreV1().Pods(ours).List(w.Ctx, controllers)
	w.Must(err)
	for _, p := range list.Items {
		if p.Spec.NodeName == n && p.DeletionTimestamp == nil {
			w.T.Errorf("%s runs on %s, which is cordoned", p.Name, n)
		}
	}
	w.kubectl("uncordon", n)
	w.healthy()
}

// withoutNetworks: pods that started before the plugin was on their node have an Event, also one that ends again and
// again.
func (w *world) withoutNetworks() {
	n := w.Nodes[0]
	conflist := n.Path(ourConflist)
	agent := w.podOn("app=ovn-multinet-agent", n.Name)
	w.Must(n.SignalAll(w.Ctx, ours+"/"+agent, "installer", "SIGSTOP"))
	w.Must(os.Rename(conflist, conflist+".away"))
	manifests := ""
	for name, command := range map[string]string{"sleeps": "sleep 1000000", "fails": "exit 1"} {
		manifests += fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {k8s.v1.cni.cncf.io/networks: examples/hello}}
spec:
  nodeName: %s
  containers: [{name: main, image: busybox, imagePullPolicy: Never, command: [sh, -c, %q]}]
`, name, n.Name, command)
	}
	w.Must(w.Apply(w.Ctx, manifests))
	w.until(func() error { return w.hasRun("sleeps", "fails") })
	w.Must(os.Rename(conflist+".away", conflist))
	w.Must(n.SignalAll(w.Ctx, ours+"/"+agent, "installer", "SIGCONT"))
	for _, name := range []string{"sleeps", "fails"} {
		w.eventOf(name, "Warning", "NetworksMissing", "")
	}
	w.check().has(check.Warning, "pod-networks", "default/sleeps")
	events := w.kubectl("get", "events", "-A", "--field-selector", "source=ovn-multinet")
	if !strings.Contains(events, "NetworksMissing") || strings.Contains(events, "Scheduled") {
		w.T.Errorf("the Events of ovn-multinet:\n%s", events)
	}
	w.Must(w.Delete(w.Ctx, manifests))
}

// hasRun wants that the container of each pod was started.
func (w *world) hasRun(pods ...string) error {
	for _, name := range pods {
		p := w.getPod("default/" + name)
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].ContainerID == "" {
			return fmt.Errorf("pod %s has not started", name)
		}
	}
	return nil
}

// noModule: a chart whose values need the kernel's datapath says on which node the module is missing.
func (w *world) noModule() {
	w.Must(w.InstallChart(w.Ctx, strings.Replace(readmeValues, "datapath: auto", "datapath: kernel", 1)))
	const want = "its last words: ovn-multinet-ovn: the chart's value ovn.datapath is kernel, and this node's kernel has no module openvswitch"
	w.checkHas(want)
	w.Must(w.InstallChart(w.Ctx, readmeValues))
	w.healthy()
}
