//go:build kube

package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// uninstallPatch is the one of docs/operations.md.
const uninstallPatch = `[{"op":"add","path":"/spec/template/spec/containers/1/args/0","value":"uninstall"}]`

// TestUninstall takes the product off a cluster whose pods have networks, as docs/operations.md says it, and installs it again.
func TestUninstall(t *testing.T) {
	t.Parallel()
	w := installerWorld(t, kube.Options{Nodes: 2})
	pods := pod("a", "node1", "blue") + pod("b", "node2", "blue")
	w.must(w.Apply(w.ctx, pods+pod("plain", "node1", "")))
	w.must(w.WaitReady(w.ctx, "default/a", "default/b", "default/plain"))
	done := w.keepsReaching("a", "net1", w.links("b")["net1"].ips()[0])
	w.must(w.PatchAgents(w.ctx, uninstallPatch))
	w.refusesNew()
	done()
	w.podsEnd(pods)
	w.plainNode()
	w.refusedBefore()
	w.deleteNAD("blue")
	w.nadGone("blue", "default/blue")
	w.must(w.DeleteProduct(w.ctx))
	if _, err := w.Client.CoreV1().Namespaces().Get(w.ctx, ours, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace after its deletion: %v", err)
	}
	w.nothingInstalled()
	w.must(w.Delete(w.ctx, pod("plain", "node1", "")))

	w.must(w.InstallProduct(w.ctx))
	w.must(w.Apply(w.ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+pods))
	w.must(w.WaitReady(w.ctx, "default/a", "default/b"))
	w.reaches("a", "net1", w.links("b")["net1"].ips()[0])
	w.consistent("a", []string{"eth0", "net1"})
	w.must(w.Delete(w.ctx, pods))
	w.must(w.WaitGone(w.ctx, "default/a", "default/b"))
	w.must(lab.Eventually(w.ctx, w.nothingLeft))
}

// refusesNew: on both nodes pods with networks are refused and say why, pods without start. The one of the second node stays.
func (w *world) refusesNew() {
	w.t.Helper()
	for _, n := range w.Nodes {
		w.must(lab.Eventually(w.ctx, func() error {
			l, err := w.confListOf(n)
			if err == nil && !l.Plugins[2].Draining {
				err = fmt.Errorf("%s does not drain", n.Name)
			}
			return err
		}))
		name := "refused-" + n.Name
		w.must(w.Apply(w.ctx, pod(name, n.Name, "blue")+pod("plain-"+n.Name, n.Name, "")))
		w.sandboxFails(name, "ovn-multinet is being uninstalled from this node, which gives no networks any more")
		w.must(w.WaitReady(w.ctx, "default/plain-"+n.Name))
		w.hasLinks("plain-"+n.Name, 1)
		w.refusedWith(11, name, n)
		w.says(n, "waiting for 1 sandboxes with networks to end")
		w.must(w.Delete(w.ctx, pod("plain-"+n.Name, n.Name, "")))
	}
	w.must(w.Delete(w.ctx, pod("refused-node1", "node1", "blue"))) // its node's agent will not answer for a while
	w.must(w.WaitGone(w.ctx, "default/refused-node1"))
}

// refusedBefore: a pod that was refused and is still on its node begins by Flannel's own conflist when ours is gone, as every pod
// does, and its Events say what it lacks.
func (w *world) refusedBefore() {
	w.t.Helper()
	const name = "refused-node2"
	w.must(w.WaitReady(w.ctx, "default/"+name))
	w.hasLinks(name, 1)
	w.eventOf(name, "Warning", "NetworksMissing", "")
	w.must(w.Delete(w.ctx, pod(name, "node2", "blue")))
	w.must(w.WaitGone(w.ctx, "default/"+name))
}

// refusedWith calls the plugin on the node for a pod as a runtime does, for what kubelet shows has no codes.
func (w *world) refusedWith(code uint, name string, n *kube.Node) {
	w.t.Helper()
	p, err := w.Pod(w.ctx, "default/"+name)
	w.must(err)
	netns, err := n.PodNetNS(w.ctx, "default/plain-"+n.Name)
	w.must(err)
	l, err := w.confListOf(n)
	w.must(err)
	var list struct{ Plugins []map[string]any }
	w.must(json.Unmarshal([]byte(l.text), &list))
	config := list.Plugins[2]
	config["name"], config["cniVersion"] = l.Name, l.CNIVersion
	config["prevResult"] = map[string]any{"cniVersion": l.CNIVersion, "interfaces": []any{}, "ips": []any{}}
	config["runtimeConfig"] = map[string]any{"io.kubernetes.cri.pod-annotations": p.Annotations}
	text, err := json.Marshal(config)
	w.must(err)
	w.must(os.WriteFile(n.Path("/tmp/config"), text, 0o600))
	out, err := n.Run(w.ctx, "env", "CNI_COMMAND=ADD", "CNI_CONTAINERID=by-hand", "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin",
		"CNI_NETNS=/run/netns/"+filepath.Base(netns),
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=%s;K8S_POD_UID=%s", name, p.UID),
		"sh", "-c", ourPlugin+" </tmp/config")
	var answer struct {
		Code uint
		Msg  string
	}
	if jsonErr := json.Unmarshal([]byte(out), &answer); err == nil || jsonErr != nil || answer.Code != code || !strings.Contains(answer.Msg, "being uninstalled") {
		w.t.Errorf("ADD of %s on %s: %s, %v; want code %d", name, n.Name, out, err, code)
	}
}

// says waits for words in the log of a node's installer.
func (w *world) says(n *kube.Node, words string) {
	w.t.Helper()
	id := ours + "/" + w.agentPod(n).Name
	w.must(lab.Eventually(w.ctx, func() error {
		log, err := w.Logs(w.ctx, id, "installer")
		if err == nil && !strings.Contains(log, words) {
			err = fmt.Errorf("the installer of %s does not say %q:\n%s", n.Name, words, log)
		}
		return err
	}))
}

// podsEnd deletes the pods with networks. While the agent of the first node does not answer, its conflist goes and the plugin
// stays; when it answers, everything goes.
func (w *world) podsEnd(pods string) {
	w.t.Helper()
	stopped, other := w.Nodes[0], w.Nodes[1]
	agent := ours + "/" + w.agentPod(stopped).Name
	w.must(stopped.Signal(w.ctx, agent, "agent", "SIGSTOP"))
	w.must(w.Delete(w.ctx, pods))
	w.must(w.WaitGone(w.ctx, "default/a", "default/b"))
	w.says(stopped, "the agent still has to release the ports of 1 sandboxes")
	w.isThere(stopped, ourConflist, false)
	w.isThere(stopped, ourPlugin, true)
	w.uninstalled(other)
	w.isThere(stopped, ourPlugin, true)
	if ports := w.rows("Logical_Switch_Port", "name"); fmt.Sprint(ports) != "[default/a/net1]" {
		w.t.Errorf("ports in NB are %q, want the one that waits for its agent", ports)
	}
	w.must(stopped.Signal(w.ctx, agent, "agent", "SIGCONT"))
	w.uninstalled(stopped)
	w.must(w.nothingLeft())
}

// uninstalled waits for the end on a node: when the plugin goes, nothing of a pod's is left.
func (w *world) uninstalled(n *kube.Node) {
	w.t.Helper()
	w.must(lab.Eventually(w.ctx, func() error {
		_, err := os.Stat(n.Path(ourPlugin))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("the plugin of %s: %v", n.Name, err)
	}))
	w.isThere(n, ourConflist, false)
	w.noFiles(n, "/var/lib/cni/ovn-multinet")
	w.says(n, "uninstalled: nothing is left to do on this node")
}

func (w *world) isThere(n *kube.Node, path string, want bool) {
	w.t.Helper()
	if _, err := os.Stat(n.Path(path)); (err == nil) != want {
		w.t.Errorf("%s of %s: %v, want it there: %v", path, n.Name, err, want)
	}
}

// noFiles wants a folder of a node to have folders only.
func (w *world) noFiles(n *kube.Node, dir string) {
	w.t.Helper()
	out, err := n.Run(w.ctx, "find", dir, "!", "-type", "d")
	w.must(err)
	if out != "" {
		w.t.Errorf("%s has %q", n.Name, out)
	}
}

// plainNode: the nodes go on by Flannel's own conflist, and pods that began with ours end by it.
func (w *world) plainNode() {
	w.t.Helper()
	for _, n := range w.Nodes {
		w.filesOf(n, "/etc/cni/net.d", "10-flannel.conflist")
		w.must(w.Apply(w.ctx, pod("after-"+n.Name, n.Name, "")))
		w.must(w.WaitReady(w.ctx, "default/after-"+n.Name))
		w.hasLinks("after-"+n.Name, 1)
		w.must(w.Delete(w.ctx, pod("after-"+n.Name, n.Name, "")))
		w.must(w.WaitGone(w.ctx, "default/after-"+n.Name))
	}
	w.hasLinks("plain", 1)
}

// nothingInstalled: of the product nothing is left on the nodes but its empty folders.
func (w *world) nothingInstalled() {
	w.t.Helper()
	for _, n := range w.Nodes {
		w.filesOf(n, "/etc/cni/net.d", "10-flannel.conflist")
		w.noFiles(n, "/var/lib/cni/ovn-multinet")
		out, err := n.Run(w.ctx, "find", "/opt/cni/bin", "/run/ovn-multinet", "-name", "*ovn-multinet*", "!", "-type", "d")
		w.must(err)
		if out != "" {
			w.t.Errorf("%s has %q", n.Name, out)
		}
		out, err = n.VSCtl(w.ctx, "--bare", "--columns=name", "find", "Interface", `external_ids:iface-id!=""`)
		w.must(err)
		if out != "" {
			w.t.Errorf("%s has plugs %q", n.Name, out)
		}
	}
}
