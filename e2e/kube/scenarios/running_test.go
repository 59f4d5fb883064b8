//go:build kube

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
)

// networksKey is the annotation of a pod's networks.
const networksKey = "k8s.v1.cni.cncf.io/networks"

// TestRunningPods: on the default installation with attach.enabled, the networks of running pods follow their annotation,
// and pods that started before the installation get theirs.
func TestRunningPods(t *testing.T) {
	t.Parallel()
	w := bareWorld(t, kube.Options{Nodes: 2, WithoutOVN: true})
	w.Must(w.LoadImages(w.Ctx))
	w.Must(w.Apply(w.Ctx, pod("early", "node1", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/early"))
	w.Must(w.InstallChart(w.Ctx, readmeValues+"attach: {enabled: true}\n"))
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.61.0.0/24,fd61::/64"}`)+
		nad("green", `{"type":"ovn-multinet","subnets":"10.62.0.0/24"}`)+pod("plain", "node1", "")))
	w.healthy() // also: no pod runs without its networks
	w.Must(w.Apply(w.Ctx, pod("peer", "node2", "blue,green")))
	w.Must(w.WaitReady(w.Ctx, "default/peer", "default/plain"))
	peer := w.links("peer")
	w.run("started before the installation", func(w *world) {
		w.changesTo("early", "eth0", "net1")
		w.reaches("early", "net1", peer["net1"].ips()[0])
		w.Must(w.Apply(w.Ctx, pod("again", "node1", "blue")))
		w.Must(w.WaitReady(w.Ctx, "default/again"))
	})
	w.run("as KubeVirt adds and removes an interface", func(w *world) { w.asKubeVirt(peer) })
	w.run("a pod without networks", func(w *world) { w.firstNetworks(peer) })
	w.run("a pod in the host's network", func(w *world) {
		manifest := strings.Replace(pod("host", "node1", ""), "spec:", "spec:\n  hostNetwork: true", 1)
		manifest = strings.Replace(manifest, "args: [serve]", "args: [serve, -port, \"18080\"]", 1)
		w.Must(w.Apply(w.Ctx, strings.Replace(manifest, "port: 8080", "port: 18080", 1)))
		w.Must(w.WaitReady(w.Ctx, "default/host"))
		w.annotated("host", "blue")
		w.eventOf("host", "Warning", "InterfaceAddRejected", "host's network")
	})
	w.run("the API server refuses the status", func(w *world) { w.statusRefused(peer) })
	w.run("what a pod breaks", func(w *world) { w.repaired(peer) })
	w.run("after a reboot", (*world).runningRebooted)
	w.run("deleted", (*world).runningDeleted)
	w.run("switched off", (*world).attachSwitchedOff)
	w.run("uninstalled", (*world).attachUninstalled)
}

// statusRefused: while the API server refuses what the agents write of pods, interfaces come all the same, and afterwards
// the status has all of them. Each was added once.
func (w *world) statusRefused(peer map[string]link) {
	const refuse = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse-status}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods, pods/status]}]}
  matchConditions:
  - name: agents-and-probes
    expression: >-
      request.userInfo.username == "system:serviceaccount:ovn-multinet:agent" ||
      has(object.metadata.labels) && "probe" in object.metadata.labels
  validations: [{expression: "false", message: refused by the test}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse-status}
spec: {policyName: refuse-status, validationActions: [Deny]}
`
	w.Must(w.Apply(w.Ctx, refuse))
	w.until(func() error { // a policy counts a moment later
		_, err := w.Kubectl(w.Ctx, "label", "pod", "plain", "probe=", "--dry-run=server")
		if err == nil || !strings.Contains(err.Error(), "refused by the test") {
			return fmt.Errorf("the policy does not count yet: %v", err)
		}
		return nil
	})
	for _, networks := range []string{"blue,green@x1", "blue,green@x1,green@x2"} {
		w.annotated("plain", networks)
		w.until(func() error {
			if links := w.links("plain"); len(links) != 2+strings.Count(networks, "green") {
				return fmt.Errorf("the pod has the links %v", links)
			}
			return nil
		})
	}
	w.reaches("plain", "x2", peer["net2"].ips()[0])
	if status := w.status("plain"); len(status) != 2 {
		w.T.Errorf("the status was written: %v", status)
	}
	w.Must(w.Delete(w.Ctx, refuse))
	w.changesTo("plain", "eth0", "net1", "x1", "x2")
	for _, name := range []string{"x1", "x2"} {
		events := w.kubectl("get", "events", "--field-selector", "involvedObject.name=plain,reason=AddedInterface", "--output",
			`jsonpath={range .items[*]}{.count}{" "}{.message}{"\n"}{end}`)
		if n := strings.Count(events, "added "+name+" on default/green"); n != 1 {
			w.T.Errorf("%s was added %d times: %s", name, n, events)
		}
	}
	w.annotated("plain", "blue")
	w.changesTo("plain", "eth0", "net1")
}

// repaired breaks an interface inside of the pod, and has it made again by the pod's annotation.
func (w *world) repaired(peer map[string]link) {
	_, err := w.within("node1", "plain")(w.Ctx, "ip", "link", "set", "net1", "down")
	w.Must(err)
	w.kubectl("annotate", "pod", "plain", "ovn-multinet/repair=now")
	w.eventOf("plain", "Normal", "InterfaceRepaired", "interface net1: it is down")
	w.reaches("plain", "net1", peer["net1"].ips()[0])
	w.reaches("plain", "net1", peer["net1"].ips()[1])
}

// attachUninstalled switches attach.enabled on again and uninstalls the chart: neither the DaemonSet nor what it had made
// is left on a node.
func (w *world) attachUninstalled() {
	w.Must(w.InstallChart(w.Ctx, readmeValues+"attach: {enabled: true}\n"))
	w.healthy()
	w.Must(w.Apply(w.Ctx, pod("last", "node1", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/last"))
	w.annotated("last", "blue,green@x1")
	w.changesTo("last", "eth0", "net1", "x1")
	w.kubectl("delete", "pod", "last", "--grace-period=0")
	w.kubectl("delete", "net-attach-def", "blue", "green")
	if out, err := w.Helm(w.Ctx, "uninstall", "ovn-multinet", "--timeout=15m"); err != nil {
		w.T.Fatalf("%v\n%s", err, out)
	}
	w.until(func() error {
		if left := w.kubectl("--namespace", "ovn-multinet", "get", "daemonsets,pods", "--output", "name"); left != "" {
			return fmt.Errorf("after the uninstall there is %s", left)
		}
		return nil
	})
	for _, n := range w.Nodes {
		w.cleanNode(n)
	}
}

// asKubeVirt adds an interface with a name of KubeVirt's, gives the pod's end another name, and removes it.
func (w *world) asKubeVirt(peer map[string]link) {
	const nic = "pod9a6a0c3b4d8"
	first := w.stream("again", "eth0", peer["eth0"].ips()[0]) // the userspace datapath loses packets of net1 at each change of a port
	w.annotated("again", `[{"name":"blue","namespace":"default"},{"name":"green","namespace":"default","mac":"02:12:34:56:78:9a","interface":"`+nic+`"}]`)
	w.changesTo("again", "eth0", "net1", nic)
	w.reaches("again", nic, peer["net2"].ips()[0])
	if mac := w.links("again")[nic].MAC; mac != "02:12:34:56:78:9a" {
		w.T.Errorf("%s has the MAC %s", nic, mac)
	}
	w.eventOf("again", "Normal", "AddedInterface", nic+" on default/green")
	// KubeVirt gives the interface another name in the pod, and a dummy has the old one.
	within := w.within("node1", "again")
	for _, command := range []string{"link set " + nic + " down", "link set " + nic + " name nic", "link add " + nic + " type veth peer other"} {
		_, err := within(w.Ctx, append([]string{"ip"}, strings.Fields(command)...)...)
		w.Must(err)
	}
	w.annotated("again", "blue")
	w.until(func() error {
		if n := len(w.status("again")); n != 2 {
			return fmt.Errorf("the status has %d entries", n)
		}
		return nil
	})
	if links := w.links("again"); links["nic"].Name != "" {
		w.T.Errorf("the interface is still there: %+v", links)
	}
	w.eventOf("again", "Normal", "RemovedInterface", nic+" from default/green")
	w.Must(first.lostNothing(w.Ctx))
	w.reaches("again", "net1", peer["net1"].ips()[0])
}

// firstNetworks gives networks to a pod that started without any.
func (w *world) firstNetworks(peer map[string]link) {
	w.annotated("plain", `[{"name":"blue","interface":"x1"}]`)
	w.changesTo("plain", "eth0", "x1")
	w.reaches("plain", "x1", peer["net1"].ips()[0])
	w.kubectl("annotate", "pod", "plain", networksKey+"-")
	w.changesTo("plain", "eth0")
	w.annotated("plain", "blue,missing")
	w.eventOf("plain", "Warning", "FailedAddingInterface", "network default/missing is not found")
	w.annotated("plain", "blue")
	w.changesTo("plain", "eth0", "net1")
}

// runningRebooted takes the power from a node whose pod was changed, and edits the pod's annotation meanwhile: the pod's new
// sandbox has what the annotation says then.
func (w *world) runningRebooted() {
	w.annotated("plain", "blue,green@x1")
	w.changesTo("plain", "eth0", "net1", "x1")
	before := w.getPod("default/plain").Status.ContainerStatuses[0].RestartCount
	edit := func(*kube.Node) error { w.annotated("plain", "blue,green@x3"); return nil }
	w.Must(w.Reboot(w.Ctx, kube.RebootOptions{WhileOff: edit}, w.Nodes[0]))
	w.until(func() error {
		s := w.getPod("default/plain").Status
		if len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].RestartCount == before || !s.ContainerStatuses[0].Ready {
			return fmt.Errorf("the pod does not run again: %+v", s.ContainerStatuses)
		}
		return nil
	})
	w.changesTo("plain", "eth0", "net1", "x3")
	w.healthy()
}

// runningDeleted deletes the pods: none of their ports is left.
func (w *world) runningDeleted() {
	w.kubectl("delete", "pod", "early", "again", "plain", "host")
	w.until(func() error {
		out := w.multinet("nbctl", "--", "--bare", "--columns=name", "find", "Logical_Switch_Port", "type=\"\"")
		names := strings.Fields(out)
		slices.Sort(names)
		if want := []string{"default/peer/net1", "default/peer/net2"}; !slices.Equal(names, want) {
			return fmt.Errorf("ports %q, want %q", names, want)
		}
		return nil
	})
}

// attachSwitchedOff takes attach.enabled back: an edit is told, and changes nothing.
func (w *world) attachSwitchedOff() {
	w.Must(w.InstallChart(w.Ctx, readmeValues))
	w.until(func() error {
		sets, err := w.Client.AppsV1().DaemonSets("ovn-multinet").List(w.Ctx, metav1.ListOptions{FieldSelector: "metadata.name=attach"})
		if err == nil && len(sets.Items) > 0 {
			err = fmt.Errorf("the DaemonSet attach is there")
		}
		return err
	})
	w.healthy()
	w.annotated("peer", "blue")
	w.eventOf("peer", "Warning", "NetworksNotChanged", "attach.enabled")
	w.Must(w.Apply(w.Ctx, pod("bare", "node2", "")))
	w.Must(w.WaitReady(w.Ctx, "default/bare"))
	w.annotated("bare", "blue")
	sandbox, err := w.Node("node2").SandboxID(w.Ctx, "default/peer")
	w.Must(err)
	w.on(w.Node("node2"), "ip", "link", "del", agentapi.HostVeth(sandbox, "net2"))
	f := w.check("--nodes")
	f.has(check.Warning, "pod-networks", "default/bare")
	f.has(check.Warning, "pod-interfaces", "default/peer/net2", "node2")
	w.kubectl("delete", "pod", "peer", "bare")
}

// annotated edits the networks of a pod.
func (w *world) annotated(name, networks string) {
	w.T.Helper()
	w.kubectl("annotate", "pod", name, "--overwrite", networksKey+"="+networks)
}

// changesTo waits until the network-status of a pod names these interfaces, and compares them with the kernel's.
func (w *world) changesTo(name string, want ...string) {
	w.T.Helper()
	w.until(func() error {
		p := w.getPod("default/" + name)
		if p.Annotations["k8s.v1.cni.cncf.io/network-status"] == "" {
			return fmt.Errorf("pod %s has no network-status", name)
		}
		var names []string
		for _, s := range statusOf(w, p) {
			names = append(names, s.Interface)
		}
		if !slices.Equal(names, want) {
			return fmt.Errorf("pod %s has %q, want %q", name, names, want)
		}
		return nil
	})
	links := w.links(name)
	if len(links) != len(want) {
		w.T.Errorf("pod %s has %d links, want %q", name, len(links), want)
	}
	for _, s := range w.status(name) {
		if l := links[s.Interface]; s.Mac != l.MAC || !slices.Equal(s.IPs, l.ips()) || s.Mtu != 0 && s.Mtu != l.MTU {
			w.T.Errorf("pod %s: status %+v, kernel %+v", name, s, l)
		}
	}
}
