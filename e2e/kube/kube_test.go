//go:build kube

package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/dsnet/try"
	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// holdEnv has the test binary keep a cluster up until it is killed, instead of running tests.
const (
	holdEnv  = "OVN_MULTINET_KUBE_TEST_HOLD"
	heldName = "held"
)

func TestMain(m *testing.M) {
	if os.Getenv(holdEnv) != "" {
		fmt.Fprintln(os.Stderr, holdCluster())
		os.Exit(1)
	}
	Main(m, lab.WithoutOurs())
}

func holdCluster() error {
	Enter(lab.WithoutOurs())
	ctx := context.Background()
	c, err := New(ctx, Options{Name: heldName, Nodes: 1, CNIVersion: "1.0.0"})
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, podYAML("p", "node1", false)); err != nil {
		return err
	}
	if err := c.WaitReady(ctx, "default/p"); err != nil {
		return err
	}
	fmt.Println("held")
	select {}
}

// Who uses the lab after a program that was killed removes what that could not: its control groups.
func TestKilled(t *testing.T) {
	defer try.F(t.Fatal)
	before := worldOf(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"=yes")
	cmd.Stderr = os.Stderr
	out := try.E1(cmd.StdoutPipe())
	try.E(cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the held cluster did not come up: %q, %v", line, err)
	}
	if during := worldOf(t); len(during.groups) == len(before.groups) {
		t.Error("a cluster without control groups")
	}
	t.Run("Outside", func(t *testing.T) { testOutside(t, cmd.Process.Pid) })
	try.E(cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Error("the killed program succeeded")
	}
	if _, err := claimGroups(); err != nil {
		t.Error(err)
	}
	assertGone(t, before)
}

// Who is outside of a kept cluster's namespaces uses kubectl and its plugins there with the own files: the test's temporary
// folder is hidden in the cluster by a folder of its own.
func testOutside(t *testing.T, pid int) {
	defer try.F(t.Fatal)
	inside := try.E1(lab.Inside(pid))
	dir, plugins := t.TempDir(), t.TempDir()
	for name, path := range map[string]string{"relative": "relative.yaml", "absolute": filepath.Join(dir, "absolute.yaml")} {
		yaml := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: default}}", name)
		try.E(os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(yaml), 0o600))
		if out := onNode(t, inside, dir, plugins, "kubectl", "apply", "-f", path); out != "configmap/"+name+" created\n" {
			t.Errorf("kubectl apply -f %s: %s", path, out)
		}
	}
	plugin := "#!/bin/sh\nexec kubectl get configmap \"$1\" --output=name\n" // the cluster is found without flags
	try.E(os.WriteFile(filepath.Join(plugins, "kubectl-multinet"), []byte(plugin), 0o700))
	if out := onNode(t, inside, dir, plugins, "kubectl", "multinet", "relative"); out != "configmap/relative\n" {
		t.Errorf("a plugin of kubectl: %s", out)
	}
}

// onNode runs a command in a folder and returns all that it wrote.
func onNode(t *testing.T, inside int, dir, plugins string, command ...string) string {
	t.Helper()
	args := OnNode(fmt.Sprintf("/proc/%d/root", inside), heldName, []string{os.Getenv(binEnv), plugins}, command...)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v", command, err)
	}
	return string(out)
}

// podYAML is a pod that runs podtool on a node, with a probe from the node.
func podYAML(name, node string, hostNetwork bool) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default, labels: {app: %[1]s}}
spec:
  nodeName: %[2]s
  hostNetwork: %[4]t
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %[3]s
    imagePullPolicy: Never
    args: [serve]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
`, name, node, PodtoolImage, hostNetwork)
}

const rights = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: default, namespace: default}
---
apiVersion: v1
kind: Service
metadata: {name: b, namespace: default}
spec:
  clusterIP: 10.96.1.1
  selector: {app: b}
  ports:
  - {port: 80, targetPort: 8080}
`

func TestTwoNodes(t *testing.T) {
	defer try.F(t.Fatal)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	before := worldOf(t)
	began := time.Now()
	c := Start(t, Options{Nodes: 2, Step: t.Logf})
	t.Logf("two nodes Ready after %v", time.Since(began).Round(time.Millisecond))

	began = time.Now()
	try.E(c.Apply(ctx, podYAML("a", "node1", false)+"---\n"+podYAML("b", "node2", false)+"---\n"+podYAML("host", "node2", true)+"---\n"+rights))
	try.E(c.WaitReady(ctx, "default/a", "default/b", "default/host"))
	t.Logf("three pods Ready after %v", time.Since(began).Round(time.Millisecond))

	t.Run("Flannel", func(t *testing.T) { testFlannel(t, c) })
	t.Run("Exec", func(t *testing.T) { testExec(t, c) })
	t.Run("InCluster", func(t *testing.T) { testInCluster(t, c) })
	t.Run("Networks", func(t *testing.T) { testNetworks(t, c) })
	t.Run("OVS", func(t *testing.T) { testOVS(t, c) })
	t.Run("Sandbox", func(t *testing.T) { testSandbox(t, c) })
	t.Run("Restart", func(t *testing.T) { testRestart(t, c) })
	t.Run("Deletion", func(t *testing.T) { testDeletion(t, c) })
	t.Run("Machine", func(t *testing.T) { testMachine(t, c) })

	began = time.Now()
	try.E(c.Close())
	t.Logf("down in %v", time.Since(began).Round(time.Millisecond))
	assertGone(t, before)
}

func podIP(t *testing.T, c *Cluster, pod string) string {
	defer try.F(t.Fatal)
	t.Helper()
	p := try.E1(c.Pod(t.Context(), pod))
	return p.Status.PodIP
}

func inPod(t *testing.T, c *Cluster, pod string, command ...string) string {
	t.Helper()
	out, err := c.Exec(t.Context(), pod, "main", append([]string{"/podtool"}, command...)...)
	if err != nil {
		t.Error(err)
	}
	return out
}

// Each pod has an address of its node's range, and they reach each other through the tunnel.
func testFlannel(t *testing.T, c *Cluster) {
	for i, pod := range []string{"default/a", "default/b"} {
		if ip := podIP(t, c, pod); !strings.HasPrefix(ip, fmt.Sprintf("10.244.%d.", i+1)) {
			t.Errorf("%s on node%d has address %s", pod, i+1, ip)
		}
	}
	inPod(t, c, "default/a", "ping", podIP(t, c, "default/b"))
	inPod(t, c, "default/b", "ping", podIP(t, c, "default/a"))
	err := c.Nodes[0].Do(func() error {
		link, err := netlink.LinkByName("flannel.1")
		if err == nil && link.Attrs().Statistics.TxPackets == 0 {
			t.Error("nothing went through Flannel's tunnel")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func testExec(t *testing.T, c *Cluster) {
	defer try.F(t.Fatal)
	var network struct {
		Links []struct {
			Name      string
			MTU       int
			Addresses []string
		}
	}
	try.E(json.Unmarshal([]byte(inPod(t, c, "default/a", "ip")), &network))
	want := podIP(t, c, "default/a") + "/24"
	for _, l := range network.Links {
		if l.Name == "eth0" && l.MTU == 1450 && slices.Contains(l.Addresses, want) {
			return
		}
	}
	t.Errorf("no eth0 with MTU 1450 and %s: %+v", want, network.Links)
}

// A pod reaches the API server by its Service with the token of its service account, and another pod's Service; the
// API server reaches a pod.
func testInCluster(t *testing.T, c *Cluster) {
	for _, pod := range []string{"default/a", "default/host"} {
		if out := inPod(t, c, pod, "api", "/api/v1/namespaces/default/pods"); !strings.Contains(out, `"kind":"PodList"`) {
			t.Errorf("list of pods by %s: %.200s", pod, out)
		}
	}
	if out, err := c.Exec(t.Context(), "default/a", "", "/podtool", "api", "/api/v1/nodes"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("list of nodes without the right to: %.200s, %v", out, err)
	}
	if out := inPod(t, c, "default/a", "get", "http://10.96.1.1/hostname"); out != "b" {
		t.Errorf("the Service of b answers %q", out)
	}
	out, err := c.Client.CoreV1().Pods("default").ProxyGet("http", "b", "8080", "hostname", nil).DoRaw(t.Context())
	if err != nil || string(out) != "b\n" {
		t.Errorf("b answers the API server %q, %v", out, err)
	}
}

func testNetworks(t *testing.T, c *Cluster) {
	defer try.F(t.Fatal)
	ctx := t.Context()
	try.E(c.Apply(ctx, `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: blue, namespace: default}
spec: {config: '{"type":"ovn-multinet"}'}
`))
	if out, err := c.Kubectl(ctx, "get", "net-attach-def", "blue", "-o", "jsonpath={.spec.config}"); err != nil || out != `{"type":"ovn-multinet"}` {
		t.Errorf("the network's config is %s, %v", out, err)
	}
}

// The node's OVS is where programs on a node look for it.
func testOVS(t *testing.T, c *Cluster) {
	for _, n := range c.Nodes {
		out, err := n.Run(t.Context(), "ovs-vsctl", "--db=unix:/run/openvswitch/db.sock", "get", "Open_vSwitch", ".", "external_ids:system-id")
		if err != nil || strings.Trim(out, `"`) != n.SystemID {
			t.Errorf("%s: system-id %s, %v, want %s", n.Name, out, err, n.SystemID)
		}
	}
}

// The pod's namespace is found from outside; without its first process the pod gets another sandbox.
func testSandbox(t *testing.T, c *Cluster) {
	defer try.F(t.Fatal)
	ctx := t.Context()
	n := c.Nodes[0]
	path := try.E1(n.PodNetNS(ctx, "default/a"))
	try.E(ns.WithNetNSPath(path, func(ns.NetNS) error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if want := podIP(t, c, "default/a"); err == nil && (len(addrs) != 1 || addrs[0].IP.String() != want) {
			t.Errorf("eth0 in %s has %v, want %s", path, addrs, want)
		}
		return err
	}))
	old := try.E1(n.SandboxID(ctx, "default/a"))
	try.E(n.KillPause(ctx, "default/a"))
	try.E(lab.Eventually(ctx, func() error {
		id, err := n.SandboxID(ctx, "default/a")
		if err == nil && id == old {
			err = fmt.Errorf("sandbox %s is still there", id)
		}
		return err
	}))
	try.E(c.WaitReady(ctx, "default/a"))
}

// kubelet and containerd come back, and pods with them.
func testRestart(t *testing.T, c *Cluster) {
	defer try.F(t.Fatal)
	ctx := t.Context()
	n := c.Nodes[0]
	old := try.E1(n.SandboxID(ctx, "default/a"))
	try.E(n.RestartContainerd(ctx))
	try.E(n.RestartKubelet(ctx))
	const image = "localhost/own:lab"
	try.E(c.LoadImage(ctx, image, map[string]string{"/opt/tool/podtool": c.program(podtool)}, []string{"/opt/tool/podtool"}))
	try.E(c.Apply(ctx, strings.ReplaceAll(podYAML("c", "node1", false), PodtoolImage, image)))
	try.E(c.WaitReady(ctx, "default/a", "default/c"))
	if id, err := n.SandboxID(ctx, "default/a"); err != nil || id != old {
		t.Errorf("the sandbox was %s, is %s, %v", old, id, err)
	}
	if out, err := c.Exec(ctx, "default/c", "", "/opt/tool/podtool", "ping", podIP(t, c, "default/b")); err != nil {
		t.Error(out, err)
	}
}

func testDeletion(t *testing.T, c *Cluster) {
	defer try.F(t.Fatal)
	ctx := t.Context()
	if out, err := c.Kubectl(ctx, "delete", "pod", "a", "b", "c", "host", "--wait=false"); err != nil {
		t.Fatal(out, err)
	}
	try.E(c.WaitGone(ctx, "default/a", "default/b", "default/c", "default/host"))
	for _, n := range c.Nodes {
		err := lab.Eventually(ctx, func() error {
			names, err := n.PodNetNamespaces()
			if err == nil && len(names) > 0 {
				err = fmt.Errorf("network namespaces are left on %s: %v", n.Name, names)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// What a node writes, and what kubelet would set, is not seen by the machine.
func testMachine(t *testing.T, c *Cluster) {
	if _, err := c.Nodes[0].Run(t.Context(), "touch", "/etc/lab-was-here"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/etc/lab-was-here"); err == nil {
		t.Error("a file of the node is on the machine")
	}
	const harmless = "cat /proc/sys/kernel/threads-max >/proc/sys/kernel/threads-max"
	if _, err := c.Nodes[0].Run(t.Context(), "sh", "-c", harmless); err == nil {
		t.Error("the node may set the machine's sysctls")
	}
}

// world is what a cluster may leave behind.
type world struct{ processes, mounts, files, groups []string }

func worldOf(t *testing.T) world {
	defer try.F(t.Fatal)
	t.Helper()
	w := world{}
	for _, pattern := range []string{"/run/ovn-multinet/*", "/run/netns/*", "/etc/cni/*", "/opt/cni/*", "/var/lib/cni/*", "/var/lib/kubelet/*"} {
		found := try.E1(filepath.Glob(pattern))
		w.files = append(w.files, found...)
	}
	processes := try.E1(filepath.Glob("/proc/[0-9]*"))
	w.processes = processes
	mounts := try.E1(os.ReadFile("/proc/self/mounts"))
	w.mounts = strings.Split(string(mounts), "\n")
	g := try.E1(openGroups(""))
	namespace := try.E1(pidNamespace("self"))
	for _, root := range g.roots {
		// This program's, and those of programs that it started.
		for _, pattern := range []string{os.Getenv(groupEnv) + "/*/", groupPrefix + namespace + "-*"} {
			found := try.E1(filepath.Glob(filepath.Join(root, pattern)))
			for _, f := range found {
				if info, err := os.Stat(f); err == nil && info.IsDir() {
					w.groups = append(w.groups, f)
				}
			}
		}
	}
	return w
}

func assertGone(t *testing.T, before world) {
	t.Helper()
	err := lab.Eventually(t.Context(), func() error {
		after := worldOf(t)
		for what, pair := range map[string][2][]string{
			"processes": {before.processes, after.processes}, "mounts": {before.mounts, after.mounts},
			"files": {before.files, after.files}, "control groups": {before.groups, after.groups},
		} {
			left := slices.DeleteFunc(pair[1], func(s string) bool { return slices.Contains(pair[0], s) })
			if len(left) > 0 {
				return fmt.Errorf("%s left: %q", what, left)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
