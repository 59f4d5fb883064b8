//go:build kube

package scenarios

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// onNode is where the plugin keeps its state on a node.
const onNode = "/var/lib/cni/ovn-multinet"

// held is what a pod asks for to have an address that another one may want too.
const held = `[{"name":"blue","ips":["10.1.200.77/16"]},{"name":"green"}]`

// TestOutages takes parts away that pods with networks need, for as long as it takes to see what their absence does; and
// before that what no DEL is ever called for.
func TestOutages(t *testing.T) {
	t.Parallel()
	w := bareWorld(t, kube.Options{Nodes: 2, MayHang: true})
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+
		nad("green", `{"type":"ovn-multinet","subnets":"10.2.0.0/16,fd02::/64","excludeSubnets":"10.2.255.0/24"}`)+pod("early", "node2", networks)))
	w.Must(w.WaitReady(w.Ctx, "default/early"))
	// Pods that are gone are not for the controller to find here.
	w.Must(w.InstallProduct(w.Ctx, "OVN_MULTINET_RECONCILE_PERIOD: 6s", "OVN_MULTINET_ORPHAN_PERIOD: 1h"))
	w.Must(w.Apply(w.Ctx, pod("a", "node1", networks)+pod("b", "node2", networks)))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b"))
	for _, c := range []struct {
		name string
		part func(*world)
	}{
		{"DEL never comes", (*world).delNeverComes},
		{"there before the product", (*world).thereBefore},
		{"agents away", (*world).agentsAway},
		{"agent stopped", (*world).agentStopped},
		{"NB down", (*world).nbDown},
		{"Open vSwitch's database down", (*world).ovsDown},
		{"API server down", (*world).apiDown},
	} {
		w.run(c.name, c.part)
		if t.Failed() {
			t.FailNow() // what comes after would only fail of the same
		}
	}
	w.Must(w.Delete(w.Ctx, pod("a", "node1", networks)+pod("b", "node2", networks)))
	w.until(w.nothingLeft)
}

// thereBefore: a pod that has the annotation and none of its networks is told so once, not at every look, and has them when
// it is made again.
func (w *world) thereBefore() {
	w.eventOf("early", "Warning", "NetworksMissing", "the pod runs without its networks: it started while ovn-multinet was not chained on this node, or its annotation was written later; delete it")
	list, err := w.Client.CoreV1().Events("default").List(w.Ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=early,reason=NetworksMissing"})
	w.Must(err)
	if len(list.Items) != 1 || list.Items[0].Count > 1 || list.Items[0].Series != nil {
		w.T.Errorf("pod early was told more than once: %+v", list.Items)
	}
	if links := w.links("early"); len(links) != 1 {
		w.T.Errorf("pod early has %v, want the primary network's interface alone", links)
	}
	w.Must(w.Delete(w.Ctx, pod("early", "node2", networks)))
	w.Must(w.WaitGone(w.Ctx, "default/early"))
	w.made("early", pod("early", "node2", networks))
	w.consistent("early", []string{"eth0", "net1", "net2"})
	w.until(func() error { return w.exact() })
}

// delNeverComes: on one node the journal loses a running pod, so that its DEL knows of nothing; on the other a runtime loses a
// pod and calls no DEL at all. The agents find what is left, say so to an operator who asks, and take it away, but
// nothing of a machine that others have plugged beside.
func (w *world) delNeverComes() {
	n1, n2 := w.Node("node1"), w.Node("node2")
	others := []string{"port machine of", "node1 switched machine"}
	before := w.machineBeside(n1)
	w.Must(w.Apply(w.Ctx, pod("unwritten", "node1", "green")+pod("lost", "node2", "green")))
	w.Must(w.WaitReady(w.Ctx, "default/unwritten", "default/lost"))
	w.until(func() error { return w.exact(others...) })
	unwritten := w.sandboxID(n1, "default/unwritten")
	lost := w.sandboxID(n2, "default/lost")

	w.Must(os.Remove(n1.Path(filepath.Join(onNode, "attached", unwritten+"@eth0"))))
	w.eventOf("unwritten", "Warning", "JournalLost", "the node's journal of this pod's networks is lost")
	// An operator reaches an agent by kubelet: until that is back, this one looks at nothing.
	agent := w.agentOn("node2")
	w.signal(agent, "SIGSTOP")
	w.Must(n2.Kubelet.Stop(w.Ctx))
	w.Must(n2.LoseSandbox(w.Ctx, "default/lost"))
	for _, name := range []string{"unwritten", "lost"} {
		w.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
	}
	w.Must(n2.Kubelet.Restart(w.Ctx))
	w.signal(agent, "SIGCONT")
	const soon = "goes when it is seen again"
	w.told(n1, unwritten, "default/unwritten", "default/unwritten/net1", agentapi.HostVeth(unwritten, "net1"), soon)
	w.told(n2, lost, "default/lost", "default/lost/net1", agentapi.HostVeth(lost, "net1"), soon)
	w.until(func() error { return w.exact(append(others, "node2 journal "+lost+"@eth0")...) })
	// What is in the journal is the plugin's, at its next call.
	w.told(n2, lost, "default/lost", "-", "-", "waits for the plugin's next call")
	w.toldOfAll(lost)
	w.Must(w.Apply(w.Ctx, pod("next", "node2", "green")))
	w.Must(w.WaitReady(w.Ctx, "default/next"))
	w.Must(w.Delete(w.Ctx, pod("next", "node2", "green")))
	w.until(func() error { return w.exact(others...) })
	if after := w.rowsOfMachine(n1); after != before {
		w.T.Errorf("rows of others are\n%s\nwere\n%s", after, before)
	}
	w.nbctl("lsp-del", "machine")
}

// machineBeside plugs a machine that is nobody's pod, on a pod's network, and returns its rows.
func (w *world) machineBeside(n *kube.Node) string {
	const mac, ip = "02:00:00:00:02:09", "10.2.255.9"
	w.nbctl("lsp-add", "default/green", "machine", "--", "lsp-set-addresses", "machine", mac+" "+ip)
	m, err := n.NewMachine(w.Ctx, "machine", mac, ip+"/16")
	w.Must(err)
	w.T.Cleanup(func() { w.Must(m.Close(w.Ctx)) })
	w.until(func() error {
		if rows := w.rowsOfMachine(n); !strings.Contains(rows, "ovn-installed=true") {
			return fmt.Errorf("the machine has no flows:\n%s", rows)
		}
		return nil
	})
	return w.rowsOfMachine(n)
}

func (w *world) rowsOfMachine(n *kube.Node) string {
	port := w.nbctl("--bare", "--columns=_uuid,name,addresses,external_ids", "find", "Logical_Switch_Port", "name=machine")
	plug, err := n.VSCtl(w.Ctx, "--bare", "--columns=_uuid,name,external_ids", "find", "Interface", "name=machine")
	w.Must(err)
	return port + "\n" + plug
}

// told has an operator ask what of containers that are gone would go from a node: that of one pod.
func (w *world) told(n *kube.Node, sandbox, pod, ports, hostEnds, state string) {
	head := []string{"CONTAINER", "POD", "REASON", "PORTS", "HOST VETH", "OTHER PLUGINS", "STATE"}
	line := []string{sandbox[:12], pod, "pod " + pod + " is gone", ports, hostEnds, "-", state}
	var first, second string
	for i := range head {
		width := max(len(head[i]), len(line[i])) + 2
		first, second = first+fmt.Sprintf("%-*s", width, head[i]), second+fmt.Sprintf("%-*s", width, line[i])
	}
	want := strings.TrimSpace(first) + "\n" + strings.TrimSpace(second)
	w.until(func() error {
		got, err := w.Multinet(w.Ctx, "gc", "--node", n.Name, "--dry-run")
		if err == nil && strings.TrimSpace(got) != want {
			err = fmt.Errorf("kubectl multinet gc says\n%s\nwant\n%s", got, want)
		}
		return err
	})
}

// toldOfAll has an operator ask all nodes: of one container is something left, on the second node.
func (w *world) toldOfAll(sandbox string) {
	text := w.multinet("gc", "--dry-run")
	const nothing = "nothing is left on this node of containers that are gone"
	for _, section := range []string{"node node1\n" + nothing + "\nnode node2\nCONTAINER ", "\n" + sandbox[:12] + " "} {
		if !strings.Contains(text, section) {
			w.T.Errorf("kubectl multinet gc of all nodes says\n%s\nwant in it\n%s", text, section)
		}
	}
	text = w.multinet("gc", "--dry-run", "--output", "json")
	var all map[string][]agentapi.StaleSandbox
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) != 2 || len(all["node1"]) != 0 || len(all["node2"]) != 1 || all["node2"][0].ContainerID != sandbox {
		w.T.Errorf("kubectl multinet gc of all nodes, as JSON: %v: %s", err, text)
	}
}

// outage is a time without something, on node1 at least.
type outage struct {
	words  string       // of the Event of a pod that cannot start for that
	down   func()       // takes it away
	during func(string) // what else is to be seen, with the sandbox of the pod that was deleted; may be nil
	up     func()
}

// without sees what an outage does. Plain pods start as if nothing were wrong. One with networks fails in words that say what is
// missing, and heals by kubelet's own retry. Pods are deleted at once; what is left of them goes when it can.
func (w *world) without(o outage) {
	old, plain, late := pod("old", "node1", held), pod("plain", "node1", ""), pod("late", "node1", networks)
	w.Must(w.Apply(w.Ctx, old))
	w.Must(w.WaitReady(w.Ctx, "default/old"))
	sandbox, err := w.Node("node1").SandboxID(w.Ctx, "default/old")
	w.Must(err)
	o.down()
	w.Must(w.Apply(w.Ctx, plain+late))
	w.Must(w.Client.CoreV1().Pods("default").Delete(w.Ctx, "old", metav1.DeleteOptions{}))
	w.Must(w.WaitGone(w.Ctx, "default/old"))
	w.Must(w.WaitReady(w.Ctx, "default/plain"))
	n := w.Node("node1")
	if _, err := os.Stat(n.Path(filepath.Join(onNode, "attached", sandbox+"@eth0"))); !os.IsNotExist(err) {
		w.T.Errorf("the journal has the pod that is gone: %v", err)
	}
	if _, err := os.Stat(n.Path(filepath.Join(onNode, "release", sandbox+"@eth0"))); err != nil {
		w.T.Errorf("nobody has to release what the pod had that is gone: %v", err)
	}
	w.eventOf("late", "Warning", "FailedCreatePodSandBox", o.words)
	if o.during != nil {
		o.during(sandbox)
	}
	o.up()
	w.Must(w.WaitReady(w.Ctx, "default/late"))
	w.consistent("late", []string{"eth0", "net1", "net2"})
	w.until(func() error { return w.exact() })
	w.Must(w.Delete(w.Ctx, plain+late))
}

// chained are the files by which a node's runtime calls the plugin.
func (w *world) chained(n *kube.Node) string {
	text := ""
	for _, path := range []string{"/etc/cni/net.d/05-ovn-multinet.conflist", "/opt/cni/bin/ovn-multinet"} {
		b := w.Read(n.Path(path))
		text += string(b)
	}
	return text
}

// agentsAway has no agent, and so no installer, anywhere: the DaemonSet wants nodes that there are none of.
func (w *world) agentsAway() {
	n := w.Node("node1")
	before := w.chained(n)
	patch := func(text string) {
		w.kubectl("--namespace", ours, "patch", "daemonset", "agent", "--type=json", "--patch", text)
	}
	w.without(outage{
		words: "agent at /run/ovn-multinet/agent.sock: dial unix /run/ovn-multinet/agent.sock: connect: connection refused; is the ovn-multinet agent running on this node?",
		down: func() {
			patch(`[{"op":"add","path":"/spec/template/spec/nodeSelector/example.com~1none","value":"yes"}]`)
			w.runningOf("the agent", agents, 0)
		},
		during: func(sandbox string) {
			if w.chained(n) != before {
				w.T.Error("conflist or plugin went with the installer, or changed")
			}
			w.stillHeld(sandbox)
		},
		up: func() {
			// With it the time that an ADD takes is cut, for what follows.
			patch(`[{"op":"remove","path":"/spec/template/spec/nodeSelector/example.com~1none"},
				{"op":"add","path":"/spec/template/spec/containers/1/args/-","value":"--plugin-timeout=10s"}]`)
			w.runningOf("the agent", agents, 2)
			w.until(func() error {
				if !strings.Contains(w.chained(n), `"timeout": "10s"`) {
					return fmt.Errorf("the conflist does not have the new time")
				}
				return nil
			})
		},
	})
}

var agents = metav1.ListOptions{LabelSelector: "app=ovn-multinet-agent"}

// stillHeld sees that all is there yet of the pod that was deleted, but for its links.
func (w *world) stillHeld(sandbox string) {
	for ifName, network := range map[string]string{"net1": "default/blue", "net2": "default/green"} {
		port := w.rows("Logical_Switch_Port", "name", "external_ids:ovn-multinet/sandbox="+sandbox, "external_ids:ovn-multinet/network="+network)
		if fmt.Sprint(port) != "[default/old/"+ifName+"]" {
			w.T.Errorf("NB has the ports %q on %s of the pod that is gone, want it as it was", port, network)
		}
		end := agentapi.HostVeth(sandbox, ifName)
		if out, err := w.Node("node1").VSCtl(w.Ctx, "--no-wait", "get", "Interface", end, "external_ids:sandbox"); err != nil || !strings.Contains(out, sandbox) {
			w.T.Errorf("Open vSwitch has %q of host end %s, %v; want it as it was", out, end, err)
		}
		if _, err := w.Node("node1").Exec(w.Ctx, "ip", "link", "show", end); err == nil {
			w.T.Errorf("link %s is there yet", end)
		}
	}
}

// agentStopped has one that has the socket and does not answer. What waits for it to be released is not given to another pod,
// on a node whose agent does answer either.
func (w *world) agentStopped() {
	agent := w.agentOn("node1")
	taker := pod("taker", "node2", held)
	w.without(outage{
		words: "agent at /run/ovn-multinet/agent.sock: no answer to plan: read unix ",
		down:  func() { w.signal(agent, "SIGSTOP") },
		during: func(sandbox string) {
			w.stillHeld(sandbox)
			w.Must(w.Apply(w.Ctx, taker))
			w.eventOf("taker", "Warning", "FailedCreatePodSandBox", "interface net1: address 10.1.200.77 of network default/blue is in use by default/old (interface net1)")
		},
		up: func() { w.signal(agent, "SIGCONT") },
	})
	w.Must(w.WaitReady(w.Ctx, "default/taker"))
	if ips := w.links("taker")["net1"].ips(); fmt.Sprint(ips) != "[10.1.200.77]" {
		w.T.Errorf("the pod that waited for its address has %v", ips)
	}
	w.Must(w.Delete(w.Ctx, taker))
}

func (w *world) nbDown() {
	w.without(outage{
		words: "is OVN's Northbound database up and reachable from this node?",
		down:  func() { w.Must(w.NB.Stop(w.Ctx)) },
		up:    func() { w.Must(w.NB.Restart(w.Ctx)) },
	})
}

func (w *world) ovsDown() {
	n := w.Node("node1")
	w.without(outage{
		words: "is Open vSwitch running on this node",
		down:  func() { w.Must(n.OVSDB.Stop(w.Ctx)) },
		up:    func() { w.Must(n.OVSDB.Restart(w.Ctx)) },
	})
}

// apiDown: a static pod is its node's own. Its end needs no API server, and what it had is released without it. Another
// one cannot be told its networks until the API server is back.
func (w *world) apiDown() {
	n := w.Node("node1")
	write := func(name string) (path string) {
		path = n.Path("/etc/kubernetes/manifests/" + name + ".yaml")
		text := strings.TrimSuffix(strings.Replace(pod(name, "node1", networks), "  nodeName: node1\n", "", 1), "---\n")
		w.Must(os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	gone := write("static")
	w.Must(lab.Eventually(w.Ctx, func() error {
		_, err := w.Pod(w.Ctx, "default/static-node1")
		return err
	}))
	w.Must(w.WaitReady(w.Ctx, "default/static-node1"))
	sandbox := w.sandboxID(n, "default/static-node1")
	log, err := os.Stat(n.Kubelet.LogPath())
	w.Must(err)
	w.Must(w.APIServer.Kill())
	w.Must(os.Remove(gone))
	made := write("other")
	w.T.Cleanup(func() {
		w.Must(os.Remove(made))
		w.Must(w.WaitGone(w.Ctx, "default/other-node1"))
	})
	w.until(func() error {
		all, err := w.there()
		for _, line := range all {
			if strings.Contains(line, sandbox) {
				err = fmt.Errorf("of the pod that is gone there is %s", line)
			}
		}
		return err
	})
	w.until(func() error {
		b, err := os.ReadFile(n.Kubelet.LogPath())
		if err == nil && !strings.Contains(string(b[log.Size():]), "is the source of pods reachable from this node?") {
			err = fmt.Errorf("kubelet does not say why other cannot start")
		}
		return err
	})
	w.Must(w.APIServer.Restart(w.Ctx))
	w.Must(lab.Eventually(w.Ctx, func() error {
		_, err := w.Pod(w.Ctx, "default/other-node1")
		return err
	}))
	w.Must(w.WaitReady(w.Ctx, "default/other-node1"))
	w.consistent("other-node1", []string{"eth0", "net1", "net2"})
	w.until(func() error {
		if _, err := w.Pod(w.Ctx, "default/static-node1"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the API has the static pod that is gone yet: %v", err)
		}
		return w.exact()
	})
}
