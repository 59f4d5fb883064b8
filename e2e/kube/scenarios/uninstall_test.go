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
	w := installerWorld(t, kube.Options{Nodes: 2, MayHang: true})
	pods := pod("a", "node1", "blue") + pod("b", "node2", "blue")
	w.Must(w.Apply(w.Ctx, pods+pod("plain", "node1", "")))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b", "default/plain"))
	done := w.keepsReaching("a", "net1", w.links("b")["net1"].ips()[0])
	w.Must(w.PatchAgents(w.Ctx, uninstallPatch))
	w.refusesNew()
	done()
	w.podsEnd(pods)
	w.plainNode()
	w.refusedBefore()
	w.deleteNAD("blue")
	w.nadGone("blue", "default/blue")
	w.Must(w.Apply(w.Ctx, coreRouter("core")))
	w.object("router/core", "Accepted=True Ready=True", "")
	w.Must(w.DeleteProduct(w.Ctx))
	if got := w.kubectl("get", "router/core", "-o", "name"); got != "router.ovn-multinet.io/core" {
		t.Errorf("the deletion of the product leaves %q of the operator's objects", got)
	}
	if _, err := w.Client.CoreV1().Namespaces().Get(w.Ctx, ours, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace after its deletion: %v", err)
	}
	w.nothingInstalled()
	w.Must(w.Delete(w.Ctx, pod("plain", "node1", "")))

	w.Must(w.InstallProduct(w.Ctx))
	w.kubectl("delete", "router/core") // nobody needs it, so nothing holds it back
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+pods))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b"))
	w.reaches("a", "net1", w.links("b")["net1"].ips()[0])
	w.consistent("a", []string{"eth0", "net1"})
	w.Must(w.Delete(w.Ctx, pods))
	w.Must(w.WaitGone(w.Ctx, "default/a", "default/b"))
	w.Must(lab.Eventually(w.Ctx, w.nothingLeft))
}

// refusesNew: on both nodes pods with networks are refused and say why, pods without start. The one of the second node stays.
func (w *world) refusesNew() {
	for _, n := range w.Nodes {
		w.Must(lab.Eventually(w.Ctx, func() error {
			l, err := w.confListOf(n)
			if err == nil && !l.Plugins[2].Draining {
				err = fmt.Errorf("%s does not drain", n.Name)
			}
			return err
		}))
		name := "refused-" + n.Name
		w.Must(w.Apply(w.Ctx, pod(name, n.Name, "blue")+pod("plain-"+n.Name, n.Name, "")))
		w.sandboxFails(name, "ovn-multinet is being uninstalled from this node, which gives no networks any more")
		w.Must(w.WaitReady(w.Ctx, "default/plain-"+n.Name))
		w.hasLinks("plain-"+n.Name, 1)
		w.refusedWith(11, name, n)
		w.says(n, "waiting for 1 sandboxes with networks to end")
		w.Must(w.Delete(w.Ctx, pod("plain-"+n.Name, n.Name, "")))
	}
	w.Must(w.Delete(w.Ctx, pod("refused-node1", "node1", "blue"))) // its node's agent will not answer for a while
	w.Must(w.WaitGone(w.Ctx, "default/refused-node1"))
}

// refusedBefore: a pod that was refused and is still on its node begins by Flannel's own conflist when ours is gone, as every pod
// does, and its Events say what it lacks.
func (w *world) refusedBefore() {
	const name = "refused-node2"
	w.Must(w.WaitReady(w.Ctx, "default/"+name))
	w.hasLinks(name, 1)
	w.eventOf(name, "Warning", "NetworksMissing", "")
	w.Must(w.Delete(w.Ctx, pod(name, "node2", "blue")))
	w.Must(w.WaitGone(w.Ctx, "default/"+name))
}

// refusedWith calls the plugin on the node for a pod as a runtime does, for what kubelet shows has no codes.
func (w *world) refusedWith(code uint, name string, n *kube.Node) {
	p := w.getPod("default/" + name)
	netns, err := n.PodNetNS(w.Ctx, "default/plain-"+n.Name)
	w.Must(err)
	l, err := w.confListOf(n)
	w.Must(err)
	var list struct{ Plugins []map[string]any }
	w.Must(json.Unmarshal([]byte(l.text), &list))
	config := list.Plugins[2]
	config["name"], config["cniVersion"] = l.Name, l.CNIVersion
	config["prevResult"] = map[string]any{"cniVersion": l.CNIVersion, "interfaces": []any{}, "ips": []any{}}
	config["runtimeConfig"] = map[string]any{"io.kubernetes.cri.pod-annotations": p.Annotations}
	text := w.JSON(config)
	w.Must(os.WriteFile(n.Path("/tmp/config"), text, 0o600))
	out, err := n.Run(w.Ctx, "env", "CNI_COMMAND=ADD", "CNI_CONTAINERID=by-hand", "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin",
		"CNI_NETNS=/run/netns/"+filepath.Base(netns),
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=%s;K8S_POD_UID=%s", name, p.UID),
		"sh", "-c", ourPlugin+" </tmp/config")
	var answer struct {
		Code uint
		Msg  string
	}
	if jsonErr := json.Unmarshal([]byte(out), &answer); err == nil || jsonErr != nil || answer.Code != code || !strings.Contains(answer.Msg, "being uninstalled") {
		w.T.Errorf("ADD of %s on %s: %s, %v; want code %d", name, n.Name, out, err, code)
	}
}

// says waits for words in the log of a node's installer.
func (w *world) says(n *kube.Node, words string) {
	id := ours + "/" + w.agentPod(n).Name
	w.Must(lab.Eventually(w.Ctx, func() error {
		log, err := w.Logs(w.Ctx, id, "installer")
		if err == nil && !strings.Contains(log, words) {
			err = fmt.Errorf("the installer of %s does not say %q:\n%s", n.Name, words, log)
		}
		return err
	}))
}

// podsEnd deletes the pods with networks. While the agent of the first node does not answer, its conflist goes and the plugin
// stays; when it answers, everything goes.
func (w *world) podsEnd(pods string) {
	stopped, other := w.Nodes[0], w.Nodes[1]
	agent := ours + "/" + w.agentPod(stopped).Name
	w.Must(stopped.Signal(w.Ctx, agent, "agent", "SIGSTOP"))
	w.Must(w.Delete(w.Ctx, pods))
	w.Must(w.WaitGone(w.Ctx, "default/a", "default/b"))
	w.says(stopped, "the agent still has to release the ports of 1 sandboxes")
	w.isThere(stopped, ourConflist, false)
	w.isThere(stopped, ourPlugin, true)
	w.uninstalled(other)
	w.isThere(stopped, ourPlugin, true)
	if ports := w.rows("Logical_Switch_Port", "name"); fmt.Sprint(ports) != "[default/a/net1]" {
		w.T.Errorf("ports in NB are %q, want the one that waits for its agent", ports)
	}
	w.Must(stopped.Signal(w.Ctx, agent, "agent", "SIGCONT"))
	w.uninstalled(stopped)
	w.Must(w.nothingLeft())
}

// uninstalled waits for the end on a node: when the plugin goes, nothing of a pod's is left.
func (w *world) uninstalled(n *kube.Node) {
	w.Must(lab.Eventually(w.Ctx, func() error {
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
	if _, err := os.Stat(n.Path(path)); (err == nil) != want {
		w.T.Errorf("%s of %s: %v, want it there: %v", path, n.Name, err, want)
	}
}

// noFiles wants a folder of a node to have folders only.
func (w *world) noFiles(n *kube.Node, dir string) {
	out := w.on(n, "find", dir, "!", "-type", "d")
	if out != "" {
		w.T.Errorf("%s has %q", n.Name, out)
	}
}

// plainNode: the nodes go on by Flannel's own conflist, and pods that began with ours end by it.
func (w *world) plainNode() {
	for _, n := range w.Nodes {
		w.filesOf(n, "/etc/cni/net.d", "10-flannel.conflist")
		w.Must(w.Apply(w.Ctx, pod("after-"+n.Name, n.Name, "")))
		w.Must(w.WaitReady(w.Ctx, "default/after-"+n.Name))
		w.hasLinks("after-"+n.Name, 1)
		w.Must(w.Delete(w.Ctx, pod("after-"+n.Name, n.Name, "")))
		w.Must(w.WaitGone(w.Ctx, "default/after-"+n.Name))
	}
	w.hasLinks("plain", 1)
}

// nothingInstalled: of the product nothing is left on the nodes but its empty folders.
func (w *world) nothingInstalled() {
	for _, n := range w.Nodes {
		w.filesOf(n, "/etc/cni/net.d", "10-flannel.conflist")
		w.noFiles(n, "/var/lib/cni/ovn-multinet")
		out := w.on(n, "find", "/opt/cni/bin", "/run/ovn-multinet", "-name", "*ovn-multinet*", "!", "-type", "d")
		if out != "" {
			w.T.Errorf("%s has %q", n.Name, out)
		}
		out, err := n.VSCtl(w.Ctx, "--bare", "--columns=name", "find", "Interface", `external_ids:iface-id!=""`)
		w.Must(err)
		if out != "" {
			w.T.Errorf("%s has plugs %q", n.Name, out)
		}
	}
}
