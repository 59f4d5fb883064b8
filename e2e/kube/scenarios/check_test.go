//go:build kube

package scenarios

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/kubectl/check"
)

// TestCheck runs `kubectl multinet check` on a cluster before the installation, with faults that it has to find, and after
// the installation.
func TestCheck(t *testing.T) {
	t.Parallel()
	w := bareWorld(t, kube.Options{Nodes: 2})
	for _, img := range images.All(os.Getenv(kube.ProductEnv)) {
		if img.Name == images.PluginName {
			w.Must(w.LoadImage(w.Ctx, img.Name, img.Files, img.Entrypoint))
		}
	}
	w.run("a good cluster", (*world).checkGood)
	w.run("no CRD", (*world).checkCRD)
	w.run("faults", (*world).checkFaults)
	w.run("values", (*world).checkValues)
	w.run("no image", (*world).checkNoImage)
	w.run("interrupted", (*world).checkInterrupted)
	w.Must(w.InstallProduct(w.Ctx))
	w.run("installed", (*world).checkInstalled)
	w.run("a broken installation", (*world).checkBroken)
}

// found are the findings of one run of the check, with its exit code.
type found struct {
	w        *world
	findings []check.Finding
	code     int
}

// check runs the check. It deletes what it has made, also if it fails.
func (w *world) check(args ...string) *found {
	out, err := w.Multinet(w.Ctx, append([]string{"check", "-o", "json"}, args...)...)
	f := &found{w: w}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		f.code = exit.ExitCode()
	} else {
		w.Must(err)
	}
	if err := json.Unmarshal([]byte(out), &f.findings); err != nil {
		w.T.Fatalf("exit code %d: %v: %s", f.code, err, out)
	}
	w.noInspection()
	return f
}

// inspections are the namespaces of inspections.
func (w *world) inspections() []string {
	list, err := w.Client.CoreV1().Namespaces().List(w.Ctx, metav1.ListOptions{LabelSelector: "ovn-multinet/inspection"})
	w.Must(err)
	names := []string{}
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	return names
}

func (w *world) noInspection() {
	if names := w.inspections(); len(names) > 0 {
		w.T.Errorf("namespaces %q are still there", names)
	}
}

// has fails if no finding of that level has the words, on these nodes.
func (f *found) has(level check.Level, what, words string, nodes ...string) {
	for _, g := range f.findings {
		if g.Level == level && g.What == what && strings.Contains(g.Cause, words) && slices.Equal(g.Nodes, nodes) {
			return
		}
	}
	f.w.T.Errorf("no %s of %s with %q on %q in %s", level, what, words, nodes, f.text())
}

func (f *found) text() string {
	var b strings.Builder
	for _, g := range f.findings {
		fmt.Fprintf(&b, "\n%s %s %q: %s: %s", g.Level, g.What, g.Nodes, g.Cause, g.Fix)
	}
	return b.String()
}

// only fails if there are errors beside those of the checks, or if the exit code is another one.
func (f *found) only(code int, whats ...string) {
	for _, g := range f.findings {
		if g.Level == check.Error && !slices.Contains(whats, g.What) {
			f.w.T.Errorf("error of %s on %q: %s", g.What, g.Nodes, g.Cause)
		}
	}
	if f.code != code {
		f.w.T.Errorf("exit code %d, want %d: %s", f.code, code, f.text())
	}
}

// values writes a file with values of the chart whose NB is a server that the nodes reach, and one that they do not.
func (w *world) values(more string) string {
	path := filepath.Join(w.T.TempDir(), "values.yaml")
	text := fmt.Sprintf("ovn: {enabled: false, nbEndpoints: ['tcp:%s', 'tcp:%s:1']}\n%s", strings.TrimPrefix(w.REST.Host, "https://"), lab.CentralIP, more)
	w.Must(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// checkGood: this machine's kernel has no openvswitch, so the lab's bridges have the userspace datapath.
func (w *world) checkGood() {
	f := w.check("--nodes", "--values", w.values(""))
	f.only(check.ExitOK)
	nodes := []string{"node1", "node2"}
	f.has(check.OK, "kubernetes-version", "v1.")
	f.has(check.OK, "admission-policies", "is served")
	f.has(check.OK, "nad-crd", "v1")
	f.has(check.OK, "nodes", "2 of 2")
	f.has(check.OK, "container-runtime", "containerd", nodes...)
	f.has(check.OK, "distribution", "kubeadm")
	f.has(check.OK, "primary-network", "Flannel without a DaemonSet")
	f.has(check.OK, "namespace", "there is no namespace ovn-multinet yet")
	f.has(check.OK, "subnets", "0 subnets")
	f.has(check.OK, "keep-on-primary", "10.244.0.0/16")
	f.has(check.Warning, "nb-endpoints", "does not reach tcp:"+lab.CentralIP+":1: ", nodes...)
	f.has(check.OK, "conflist", "10-flannel.conflist, CNI 0.3.1", nodes...)
	f.has(check.OK, "cni-plugins", "bridge, flannel, host-local, portmap", nodes...)
	f.has(check.OK, "plugin-folder", "/opt/cni/bin", nodes...)
	f.has(check.OK, "kernel-modules", "openvswitch is absent, geneve is absent; br-int has the userspace datapath", nodes...)
	f.has(check.OK, "open-vswitch", "with br-int", nodes...)
	f.has(check.OK, "ports", "UDP 6081", nodes...)
	for _, g := range w.check().findings {
		if len(g.Nodes) > 0 && g.What != "container-runtime" {
			w.T.Errorf("without --nodes: %+v", g)
		}
	}
}

func (w *world) checkCRD() {
	const crd, path = "customresourcedefinition/network-attachment-definitions.k8s.cni.cncf.io", "/spec/versions/0/served"
	serve := func(value string) {
		w.kubectl("patch", crd, "--type=json", "--patch", fmt.Sprintf(`[{"op":"replace","path":%q,"value":%s}]`, path, value))
	}
	serve("false")
	w.Must(lab.Eventually(w.Ctx, func() error {
		f := w.check()
		if !strings.Contains(f.text(), "NetworkAttachmentDefinition does not exist yet: helm install creates it") {
			return fmt.Errorf("exit code %d: %s", f.code, f.text())
		}
		f.only(check.ExitOK)
		return nil
	}))
	serve("true")
	w.Must(lab.Eventually(w.Ctx, func() error {
		if f := w.check(); f.code != check.ExitOK || strings.Contains(f.text(), "does not exist yet") {
			return fmt.Errorf("exit code %d: %s", f.code, f.text())
		}
		return nil
	}))
}

// foreign is a DaemonSet that chooses no node.
func foreign(namespace, name, image string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      nodeSelector: {none: "true"}
      containers: [{name: main, image: %[3]s}]
---
`, namespace, name, image)
}

// checkFaults: each fault has its finding, and nothing else has.
func (w *world) checkFaults() {
	faults := "apiVersion: v1\nkind: Namespace\nmetadata: {name: second}\n---\n" +
		foreign("kube-system", "kube-multus-ds", "ghcr.io/k8snetworkplumbingwg/multus-cni:v4.2.2") +
		foreign("second", "agent", "localhost/ovn-multinet-agent:dev") +
		nad("inside", `{"type":"ovn-multinet","subnets":"10.244.1.128/25"}`)
	w.Must(w.Apply(w.Ctx, faults))
	n := w.Node("node2")
	conflist := n.Path(kube.PrimaryConfList)
	w.Must(os.Rename(conflist, conflist+".away"))
	// Without the file kubelet says that the node is not Ready. It still runs pods in the host's network.
	w.Must(lab.Eventually(w.Ctx, func() error {
		f := w.check("--nodes", "--subnet", "10.96.3.0/24")
		if !slices.ContainsFunc(f.findings, func(g check.Finding) bool { return g.What == "nodes" && g.Level == check.Warning }) {
			return fmt.Errorf("node2 is still Ready: %s", f.text())
		}
		f.only(check.ExitErrors, "meta-plugins", "second-install", "subnets", "conflist")
		f.has(check.Error, "meta-plugins", "Multus (DaemonSet kube-system/kube-multus-ds)")
		f.has(check.Error, "second-install", "DaemonSet second/agent")
		f.has(check.Error, "subnets", "10.244.1.128/25 of network default/inside overlaps 10.244.1.0/24, the pods' network of node node1")
		f.has(check.Error, "subnets", "10.96.3.0/24 of --subnet overlaps 10.96.0.0/16, the Services' network")
		f.has(check.Error, "conflist", "/etc/cni/net.d has no conflist of a primary network", "node2")
		f.has(check.OK, "conflist", "10-flannel.conflist", "node1")
		f.has(check.Warning, "nodes", "not Ready: ", "node2")
		f.has(check.OK, "open-vswitch", "with br-int", "node1", "node2")
		return nil
	}))
	w.Must(os.Rename(conflist+".away", conflist))
	// A file before ours, as Multus writes it.
	w.Must(os.WriteFile(n.Path("/etc/cni/net.d/00-multus.conf.away"), []byte(`{"cniVersion":"0.3.1","name":"multus","type":"multus"}`), 0o600))
	w.Must(os.Rename(n.Path("/etc/cni/net.d/00-multus.conf.away"), n.Path("/etc/cni/net.d/00-multus.conf")))
	f := w.check("--nodes")
	f.has(check.Error, "conflist", "the runtime uses 00-multus.conf, which comes before 05-ovn-multinet.conflist", "node2")
	f.has(check.Error, "cni-plugins", "00-multus.conf runs multus", "node2")
	w.Must(os.Remove(n.Path("/etc/cni/net.d/00-multus.conf")))
	w.Must(w.Delete(w.Ctx, faults))
	w.Must(lab.Eventually(w.Ctx, func() error {
		if f := w.check("--nodes"); f.code != check.ExitOK || strings.Contains(f.text(), "not Ready") {
			return fmt.Errorf("exit code %d: %s", f.code, f.text())
		}
		return nil
	}))
}

// checkValues: values that cannot work are refused before anything is changed.
func (w *world) checkValues() {
	none := filepath.Join(w.T.TempDir(), "none.yaml")
	w.Must(os.WriteFile(none, []byte("ovn: {enabled: false}\n"), 0o600))
	f := w.check("--values", none)
	f.only(check.ExitErrors, "nb-endpoints")
	f.has(check.Error, "nb-endpoints", "no endpoint of OVN's Northbound database is given, and the chart runs no OVN")
	f = w.check("--values", w.values("distribution: k3s\ncontroller: {routers: {/core: {joinSubnet: 10.244.2.0/24}}}\n"))
	f.only(check.ExitErrors, "distribution", "subnets")
	f.has(check.Error, "distribution", "the value is k3s, and the nodes have kubelet v1.")
	f.has(check.Error, "subnets", "10.244.2.0/24 of joinSubnet of router /core in --values overlaps 10.244.2.0/24")
	f.has(check.Warning, "keep-on-primary", "without 10.244.1.0/24")
}

// checkNoImage: a node without the image is named, and the other checks are still made.
func (w *world) checkNoImage() {
	f := w.check("--nodes", "--image", "localhost/none:none")
	f.only(check.ExitUnread, "inspection")
	f.has(check.Error, "inspection", "container inspection waits: ", "node1", "node2")
	f.has(check.OK, "kubernetes-version", "v1.")
	// An image of another program.
	f = w.check("--nodes", "--image", kube.PodtoolImage)
	f.only(check.ExitUnread, "inspection")
}

// checkInterrupted: Ctrl-C ends a check that waits for a node, and the pods are deleted.
func (w *world) checkInterrupted() {
	n := w.Node("node2")
	w.Must(n.Kubelet.Stop(w.Ctx))
	cmd := exec.CommandContext(w.Ctx, filepath.Join(os.Getenv(kube.ProductEnv), "kubectl-multinet"), "check", "--nodes",
		"--timeout", "10m", "--kubeconfig", w.Kubeconfig)
	w.Must(lab.StartIn(w.Nodes[0].NetNS, cmd))
	w.Must(lab.Eventually(w.Ctx, func() error {
		for _, namespace := range w.inspections() {
			pods, err := w.Client.CoreV1().Pods(namespace).List(w.Ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=node2"})
			if err != nil || len(pods.Items) > 0 {
				return err
			}
		}
		return errors.New("no pod of an inspection is on node2")
	}))
	w.Must(cmd.Process.Signal(syscall.SIGINT))
	w.Must(lab.Eventually(w.Ctx, func() error { // kubelet deletes the node's pod
		if len(w.inspections()) > 0 {
			return errors.New("the namespace is there")
		}
		return nil
	}))
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != check.ExitUnread {
		w.T.Errorf("the interrupted check ended with %v, want exit code %d", err, check.ExitUnread)
	}
	w.Must(n.Kubelet.Restart(w.Ctx))
}

func (w *world) checkInstalled() {
	f := w.check("--nodes")
	f.only(check.ExitOK)
	f.has(check.OK, "agents", "ready on 2 nodes")
	f.has(check.OK, "controllers", "2 of 2 are ready")
	f.has(check.OK, "nb-secrets", "have their keys")
	f.has(check.OK, "nb-endpoints", "ssl:")
	f.has(check.OK, "versions", "all programs are ")
	f.has(check.OK, "namespace", "privileged")
	f.has(check.OK, "tunnel-keys", "OVN has 16711680 for the cluster")
	_, err := w.SBCtl(w.Ctx, "--", "--id=@e", "create", "Encap", "type=vxlan", "ip=192.0.2.66", "chassis_name=evil",
		"--", "create", "Chassis", "name=evil", "encaps=@e")
	w.Must(err)
	w.until(func() error {
		f := w.check()
		if f.code != check.ExitErrors || !strings.Contains(f.text(), "a chassis lists the encapsulation VXLAN: OVN has 4095") {
			return fmt.Errorf("exit code %d: %s", f.code, f.text())
		}
		return nil
	})
	_, err = w.SBCtl(w.Ctx, "destroy", "Chassis", "evil")
	w.Must(err)
	w.until(func() error {
		if f := w.check(); f.code != check.ExitOK {
			return fmt.Errorf("exit code %d: %s", f.code, f.text())
		}
		return nil
	})
	f.has(check.OK, "second-install", "no second")
	f.has(check.OK, "conflist", "10-flannel.conflist", "node1", "node2")
}

// checkBroken: an installation that has lost a Secret, its namespace's label, and the image of an agent.
func (w *world) checkBroken() {
	w.kubectl("delete", "secret", "--namespace", ours, kube.AgentNBSecret)
	w.kubectl("label", "namespace", ours, "pod-security.kubernetes.io/enforce-", "--overwrite")
	w.kubectl("set", "image", "--namespace", ours, "daemonset/agent", "agent=localhost/none:none")
	w.Must(lab.Eventually(w.Ctx, func() error {
		f := w.check()
		var broken []string
		for _, g := range f.findings {
			if g.What == "agents" && strings.Contains(g.Cause, "container agent waits: ") {
				broken = g.Nodes
			}
		}
		if len(broken) != 1 {
			return fmt.Errorf("the agents of %q are broken: %s", broken, f.text())
		}
		f.only(check.ExitErrors, "agents", "nb-secrets")
		f.has(check.Error, "nb-secrets", "the Secret ovn-multinet/ovn-multinet-nb-agent has no tls.crt")
		f.has(check.OK, "namespace", "admits the agent's pods")
		return nil
	}))
}
