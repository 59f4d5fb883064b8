package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/images"
)

// pauseImage holds a pod's namespaces.
const pauseImage = "localhost/pause:lab"

// PodtoolImage has podtool as its entry point: an image for pods, with imagePullPolicy Never.
const PodtoolImage = "localhost/podtool:lab"

// kubeletSysctls are the machine's settings that kubelet wants and would set.
var kubeletSysctls = map[string]string{
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
	"/proc/sys/kernel/panic":              "10",
	"/proc/sys/kernel/panic_on_oops":      "1",
	"/proc/sys/vm/overcommit_memory":      "1",
	"/proc/sys/vm/panic_on_oom":           "0",
}

const (
	containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  disable_apparmor = true
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
`
	containerdCNI = `
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = %q
  conf_dir = %q
`
	containerdSocket = "/run/containerd/containerd.sock"

	kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: /etc/kubernetes/kubelet.crt
tlsPrivateKeyFile: /etc/kubernetes/kubelet.key
containerRuntimeEndpoint: unix://` + containerdSocket + `
staticPodPath: /etc/kubernetes/manifests
clusterDomain: cluster.local
resolvConf: ""
cgroupDriver: cgroupfs
cgroupRoot: /%[2]s
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
maxPods: 250
syncFrequency: 5s # of what is in Secrets, too
enforceNodeAllocatable: [pods]
localStorageCapacityIsolation: false
evictionHard:
  imagefs.available: 0%%
  imagefs.inodesFree: 0%%
  memory.available: 0%%
  nodefs.available: 0%%
  nodefs.inodesFree: 0%%
imageGCHighThresholdPercent: 100
`
	proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: %[1]s
clientConnection: {kubeconfig: /etc/kubernetes/kube-proxy.conf}
clusterCIDR: ` + podCIDR + `
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`
	flannelConfig = `{
  "Network": "` + podCIDR + `",
  "EnableNFTables": false,
  "Backend": {"Type": "vxlan"}
}
`
)

func (n *Node) startContainerd(ctx context.Context) (err error) {
	const config = "/etc/containerd/config.toml"
	content := containerdConfig + fmt.Sprintf(containerdCNI, n.cluster.folders.Plugins, n.cluster.folders.ConfLists)
	if n.cluster.containerd2 {
		content = containerd2Config
	}
	if err := n.writeFile(config, content); err != nil {
		return err
	}
	n.Containerd, err = n.daemon(ctx, "containerd", n.answersCRI, "containerd", "--config", config)
	return err
}

// answersCRI wants an answer of containerd's CRI service. It comes later than the socket, and a kubelet that starts
// before it ends with an error. On a real node, its service manager starts it again.
func (n *Node) answersCRI(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+n.Path(containerdSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	// The messages of CRI are not needed: a request without fields asks for the version, and its answer is ignored.
	return conn.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &emptypb.Empty{})
}

// installFlannel does what the init containers of Flannel's DaemonSet do.
func (n *Node) installFlannel(context.Context) (err error) {
	defer try.Handle(&err)
	dir := n.cluster.Binaries().CNI
	plugins := try.E1(os.ReadDir(dir))
	for _, p := range plugins {
		try.E(n.InstallPlugin(filepath.Join(dir, p.Name())))
	}
	list := try.E1(flannelConfList(n.CNIVersion))
	return n.InstallConfList("10-flannel.conflist", list)
}

// flannelConfList is the conflist that Flannel ships, but for the version.
func flannelConfList(version string) ([]byte, error) {
	var list struct {
		Name       string           `json:"name"`
		CNIVersion string           `json:"cniVersion"`
		Plugins    []map[string]any `json:"plugins"`
	}
	list.Name, list.CNIVersion = "cbr0", version
	list.Plugins = []map[string]any{
		{"type": "flannel", "delegate": map[string]any{"hairpinMode": true, "isDefaultGateway": true}},
		{"type": "portmap", "capabilities": map[string]any{"portMappings": true}},
	}
	b, err := json.MarshalIndent(list, "", "  ")
	return append(b, '\n'), err
}

// register makes the Node object before kubelet does: pods get the addresses that go with the node's number. It has what
// kubelet gives to its Node: these labels, and the taints of --register-with-taints.
func (n *Node) register(ctx context.Context, taints ...corev1.Taint) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   n.Name,
			Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: n.Name},
			// kubelet's own; flanneld cannot take a node without annotations.
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Spec: corev1.NodeSpec{PodCIDR: n.PodCIDR.String(), PodCIDRs: []string{n.PodCIDR.String()}, Taints: taints},
	}
	_, err := n.cluster.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (n *Node) startKubelet(ctx context.Context) (err error) {
	defer try.Handle(&err)
	pki := n.cluster.pki
	user := identity{name: "system:node:" + n.Name, groups: []string{"system:nodes"}}
	server := user
	server.hosts = []string{n.Name, n.IP.String()}
	pair := try.E1(pki.ca.issue(server))
	try.E(errors.Join(
		n.writeFile("/etc/kubernetes/ca.crt", string(pki.ca.cert)),
		pair.write(n.Path("/etc/kubernetes"), "kubelet"),
		os.MkdirAll(n.Path("/etc/kubernetes/manifests"), 0o755),
		pki.writeKubeconfig(n.Path("/etc/kubernetes/kubelet.conf"), apiURL, user),
		n.writeFile("/etc/kubernetes/kubelet.yaml", fmt.Sprintf(kubeletConfig, n.IP, n.groups.name)),
	))
	n.Kubelet, err = n.daemon(ctx, "kubelet", nil, n.cluster.program(kubelab), "kubelet",
		"--config=/etc/kubernetes/kubelet.yaml", "--kubeconfig=/etc/kubernetes/kubelet.conf",
		"--root-dir="+n.cluster.folders.Kubelet, "--hostname-override="+n.Name, "--node-ip="+n.IP.String(), "--v=2")
	return err
}

func (n *Node) startKubeProxy(ctx context.Context) error {
	err := errors.Join(
		n.cluster.pki.writeKubeconfig(n.Path("/etc/kubernetes/kube-proxy.conf"), apiURL, proxy),
		n.writeFile("/etc/kubernetes/kube-proxy.yaml", fmt.Sprintf(proxyConfig, n.Name)),
	)
	if err != nil {
		return err
	}
	n.KubeProxy, err = n.daemon(ctx, "kube-proxy", nil, n.cluster.program(kubelab), "kube-proxy",
		"--config=/etc/kubernetes/kube-proxy.yaml", "--v=2")
	return err
}

func (n *Node) startFlanneld(ctx context.Context) error {
	err := errors.Join(
		n.cluster.pki.writeKubeconfig(n.Path("/etc/kube-flannel/kubeconfig"), apiURL, flannel),
		n.writeFile("/etc/kube-flannel/net-conf.json", flannelConfig),
	)
	if err != nil {
		return err
	}
	n.Flanneld, err = n.daemon(ctx, "flanneld", func(context.Context) error {
		_, err := os.Stat(n.Path("/run/flannel/subnet.env"))
		return err
	}, n.cluster.program(kubelab), "flanneld", "--kubeconfig-file=/etc/kube-flannel/kubeconfig", "--iface=eth0")
	return err
}

// RestartKubelet stops kubelet and starts it again. Pods go on.
func (n *Node) RestartKubelet(ctx context.Context) error { return n.Kubelet.Restart(ctx) }

// Leave takes the node out of the cluster like a machine that is switched off and forgotten: kubelet ends, the Node is
// deleted. What runs on it goes on, as there is nobody to end it.
func (n *Node) Leave(ctx context.Context) error {
	if err := n.Kubelet.Stop(ctx); err != nil {
		return err
	}
	return n.cluster.Client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
}

// Rejoin ends a Leave and returns when the node is Ready. kubelet ends what is not the API's any more.
func (n *Node) Rejoin(ctx context.Context) error {
	register := func(ctx context.Context) error { return n.register(ctx) }
	for _, step := range []func(context.Context) error{register, n.Kubelet.Restart, n.Flanneld.Restart} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return waitFor(ctx, n.cluster.Client.CoreV1().RESTClient(), "nodes", "", n.Name, nodeReady)
}

// RestartContainerd kills containerd and starts it again. Containers go on.
func (n *Node) RestartContainerd(ctx context.Context) error {
	if err := n.KillContainerd(); err != nil {
		return err
	}
	return n.StartContainerd(ctx)
}

// loadPodtool loads what every pod needs: the image of its first process, and one for tests.
func (n *Node) loadPodtool(ctx context.Context) error {
	tool := map[string]string{"/podtool": n.cluster.program(podtool)}
	return errors.Join(
		n.loadImage(ctx, pauseImage, tool, []string{"/podtool", "pause"}),
		n.loadImage(ctx, PodtoolImage, tool, []string{"/podtool"}),
	)
}

func (n *Node) loadImage(ctx context.Context, name string, files map[string]string, entrypoint []string) error {
	var tar bytes.Buffer
	if err := images.Write(&tar, images.Image{Name: name, Files: files, Entrypoint: entrypoint}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	_, err := n.run(ctx, &tar, "ctr", "--namespace", "k8s.io", "images", "import", "-")
	return err
}
