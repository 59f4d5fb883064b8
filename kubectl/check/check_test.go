package check

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/images"
	"github.com/ovn-multinet/ovn-multinet/node/nodefacts"
)

// TestCheck changes one thing in a good cluster or a good installation, and compares all findings that are not ok.
func TestCheck(t *testing.T) {
	const pods = `10.244.1.0/24, the pods' network of node node1`
	tests := []struct {
		name   string
		of     func() *Cluster
		change func(c *Cluster)
		want   []string
	}{
		{"good", good, func(*Cluster) {}, nil},
		{"installed", installed, func(*Cluster) {}, nil},
		{"Kubernetes 1.29", good, func(c *Cluster) { c.Version.Minor, c.Policies = "29+", false }, []string{
			"error kubernetes-version: ", "error admission-policies: ",
		}},
		{"Kubernetes 1.30 of a provider", good, func(c *Cluster) { c.Version.Minor = "30+" }, nil},
		{"no CRD", good, func(c *Cluster) { c.NADVersions = nil }, []string{"warning nad-crd: the kind "}},
		{"no CRD any more", installed, func(c *Cluster) { c.NADVersions = nil }, []string{"error nad-crd: the kind "}},
		{"another version of the CRD", good, func(c *Cluster) { c.NADVersions = []string{"v2"} }, []string{
			"error nad-crd: NetworkAttachmentDefinition is served only in v2",
		}},
		{"Windows", good, func(c *Cluster) { c.Nodes[1].Status.NodeInfo.OperatingSystem = "windows" }, []string{
			"warning nodes: windows: the agent runs only on Linux on node2",
		}},
		{"s390x", good, func(c *Cluster) { c.Nodes[0].Status.NodeInfo.Architecture = "s390x" }, []string{
			"error nodes: there are no images for s390x, only for amd64 and arm64 on node1",
		}},
		{"not Ready", good, func(c *Cluster) {
			c.Nodes[0].Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: "no network"}
		}, []string{"warning nodes: not Ready: no network on node1"}},
		{"dockershim", good, func(c *Cluster) { c.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "docker://20.10.7" }, []string{
			"warning container-runtime: docker 20.10.7 is not tested with ovn-multinet on node1",
		}},
		{"containerd 1.5", good, func(c *Cluster) { c.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.5.11" }, []string{
			"warning container-runtime: containerd 1.5.11 ",
		}},
		{"two distributions", good, func(c *Cluster) { c.Nodes[0].Status.NodeInfo.KubeletVersion = "v1.34.1+k3s1" }, []string{
			"error distribution: the nodes are of several distributions: k3s, kubeadm",
		}},
		{"no primary", good, func(c *Cluster) { c.Nodes[0].Annotations, c.Nodes[1].Annotations = nil, nil }, []string{
			"warning primary-network: no DaemonSet of a network program that is known",
		}},
		{"Multus", good, func(c *Cluster) {
			c.add(daemonSet("net", "ghcr.io/k8snetworkplumbingwg/multus-cni:snapshot-thick@sha256:0"))
		}, []string{"error meta-plugins: Multus (DaemonSet kube-system/net): its file 00-multus.conf comes before"}},
		{"a second copy", good, func(c *Cluster) { c.add(daemonSet("agent", "r/team/ovn-multinet-agent:v1")) }, []string{
			"error second-install: DaemonSet kube-system/agent runs",
		}},
		{"a second copy by its rights", installed, func(c *Cluster) {
			c.Bindings = []rbacv1.ClusterRoleBinding{{
				RoleRef: rbacv1.RoleRef{Name: "ovn-multinet-agent"}, Subjects: []rbacv1.Subject{
					{Kind: "ServiceAccount", Namespace: Namespace, Name: "agent"}, {Kind: "ServiceAccount", Namespace: "other", Name: "agent"},
				},
			}, {RoleRef: rbacv1.RoleRef{Name: "view"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "x", Name: "y"}}}}
		}, []string{"error second-install: ClusterRoleBinding  gives the role ovn-multinet-agent to ServiceAccount other/agent"}},
		{"no namespace", good, func(c *Cluster) { c.Namespace = nil }, nil},
		{"a namespace without label", good, func(c *Cluster) { c.Namespace.Labels = nil }, []string{"warning namespace: "}},
		{"a restricted namespace", good, func(c *Cluster) {
			c.Namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
		}, []string{"error namespace: ovn-multinet enforces the level restricted"}},
		{"a network within a node's pods", good, func(c *Cluster) {
			c.NADs = append(c.NADs, nadOf("blue", `{"type":"ovn-multinet","subnets":"10.244.1.128/25"}`), nadOf("fine", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`))
		}, []string{"error subnets: 10.244.1.128/25 of network shop/blue overlaps " + pods}},
		{"a network around all", good, func(c *Cluster) {
			c.NADs = append(c.NADs, nadOf("blue", `{"type":"ovn-k8s-cni-overlay","name":"b","topology":"layer2","subnets":"10.0.0.0/8"}`))
		}, []string{"error subnets: 10.0.0.0/8 of network shop/blue overlaps " + pods}},
		{"a network around the Services", good, func(c *Cluster) {
			c.NADs = append(c.NADs, nadOf("blue", `{"type":"ovn-multinet","subnets":"10.96.128.0/24"}`))
		}, []string{"error subnets: 10.96.128.0/24 of network shop/blue overlaps 10.96.0.0/16, the Services' network"}},
		{"before Kubernetes 1.33", good, func(c *Cluster) {
			c.ServiceCIDRs, c.NADs = nil, append(c.NADs, nadOf("blue", `{"type":"ovn-multinet","subnets":"10.96.0.0/24"}`))
		}, []string{"error subnets: 10.96.0.0/24 of network shop/blue overlaps 10.96.0.1, the address of Service default/kubernetes"}},
		{"a network around a node", good, func(c *Cluster) {
			c.NADs = append(c.NADs, nadOf("blue", `{"type":"ovn-multinet","subnets":"192.0.2.0/24"}`))
		}, []string{"error subnets: 192.0.2.0/24 of network shop/blue contains 192.0.2.1, the address of node node1"}},
		{"a physical network with the nodes in it", good, func(c *Cluster) {
			c.NADs = append(c.NADs, nadOf("lan", `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"p","subnets":"192.0.2.0/24"}`))
		}, nil},
		{"Flannel's whole network", good, func(c *Cluster) {
			c.Flannel = []corev1.ConfigMap{{Data: map[string]string{"net-conf.json": `{"Network":"10.244.0.0/16"}`}}}
			c.NADs = append(c.NADs, nadOf("blue", `{"type":"ovn-multinet","subnets":"10.244.9.0/24"}`))
		}, []string{"error subnets: 10.244.9.0/24 of network shop/blue overlaps 10.244.0.0/16, the pods' network of Flannel"}},
		{"other plugins' networks", good, func(c *Cluster) {
			c.NADs = append(c.NADs, nadOf("x", `{"type":"bridge","ipam":{"subnet":"10.244.1.0/24"}}`), nadOf("y", ""), nadOf("z", "{"))
		}, nil},
		{"pods that are not kept on the primary", installed, func(c *Cluster) {
			c.Config.Data["OVN_MULTINET_KEEP_ON_PRIMARY"] = "10.244.1.0/24,10.96.0.0/12"
		}, []string{"warning keep-on-primary: it is [10.244.1.0/24 10.96.0.0/12], without 10.244.2.0/24, "}},
		{"no endpoint", installed, func(c *Cluster) { c.Config.Data["OVN_MULTINET_NB_ENDPOINTS"] = "" }, []string{
			"error nb-endpoints: no endpoint of OVN's Northbound database is given",
		}},
		{"an agent that waits", installed, func(c *Cluster) {
			c.Pods[1].Status.Conditions = nil
			c.Pods[1].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no\nsuch host"},
			}}}
		}, []string{"error agents: container agent waits: ErrImagePull no such host on node2"}},
		{"a node without an agent", installed, func(c *Cluster) { c.Pods = c.Pods[:1] }, []string{
			"error agents: the node has no pod of DaemonSet agent on node2",
		}},
		{"a node that is to have no agent", installed, func(c *Cluster) { c.Pods, c.Nodes[1].Labels = c.Pods[:1], nil }, nil},
		{"a controller is not ready", installed, func(c *Cluster) { c.Controllers.Status.ReadyReplicas = 1 }, []string{
			"error controllers: 1 of 2 are ready",
		}},
		{"no controller", installed, func(c *Cluster) { c.Controllers = nil }, []string{"error controllers: there is no Deployment"}},
		{"no Secret", installed, func(c *Cluster) { delete(c.Secrets, "ovn-multinet-nb-agent") }, []string{
			"error nb-secrets: the Secret ovn-multinet/ovn-multinet-nb-agent has no tls.crt",
		}},
		{"half a Secret", installed, func(c *Cluster) {
			c.Secrets["ovn-multinet-nb-controller"] = map[string]bool{"tls.crt": true, "tls.key": false, "ca.crt": true}
		}, []string{"error nb-secrets: the Secret ovn-multinet/ovn-multinet-nb-controller has no tls.key"}},
		{"one Secret for both", installed, func(c *Cluster) {
			c.Secrets = map[string]map[string]bool{"ovn-multinet-nb": c.Secrets["ovn-multinet-nb-agent"]}
		}, nil},
		{"keys on the nodes", installed, func(c *Cluster) {
			c.Agents.Spec.Template.Spec.Volumes[0].Projected = nil
			delete(c.Secrets, "ovn-multinet-nb-agent")
		}, nil},
		{"tcp", installed, func(c *Cluster) {
			c.Config.Data["OVN_MULTINET_NB_ENDPOINTS"], c.Secrets = "tcp:192.0.2.1:6641", nil
		}, nil},
		{"a killed check", good, func(c *Cluster) { c.Leftover = []string{"ovn-multinet-check-x"} }, []string{
			"warning inspection: an earlier check was killed before it deleted ovn-multinet-check-x",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.of()
			tt.change(c)
			judged(t, Sort(c.Check(plan(t, c, nil))), tt.want...)
		})
	}
}

func TestPrograms(t *testing.T) {
	for _, tt := range []struct {
		name string
		sets []appsv1.DaemonSet
		ok   string   // what is said of the primary network
		want []string // what is not ok
	}{
		{"Flannel", []appsv1.DaemonSet{daemonSet("kube-flannel-ds", "docker.io/flannel/flannel:v0.27")}, "Flannel (DaemonSet kube-system/kube-flannel-ds)", nil},
		{"Canal", []appsv1.DaemonSet{daemonSet("rke2-canal", "rancher/hardened-calico:v3", "rancher/hardened-flannel:v0")}, "Canal ", nil},
		{"Calico", []appsv1.DaemonSet{daemonSet("calico-node", "quay.io/calico/node:v3")}, "Calico ", nil},
		{"Cilium", []appsv1.DaemonSet{daemonSet("cilium", "quay.io/cilium/cilium:v1.16")}, "", []string{"error primary-network: Cilium (DaemonSet kube-system/cilium): its file 05-cilium.conflist"}},
		{"kindnet", []appsv1.DaemonSet{daemonSet("kindnet", "kindest/kindnetd:v1")}, "", []string{"warning primary-network: kindnet "}},
		{"Flannel and CNI-Genie", []appsv1.DaemonSet{daemonSet("kube-flannel-ds"), daemonSet("genie-plugin")}, "Flannel ", []string{"error meta-plugins: CNI-Genie "}},
		{"DANM", []appsv1.DaemonSet{daemonSet("danm-cni"), daemonSet("netwatcher")}, "", []string{"error meta-plugins: DANM (DaemonSet kube-system/danm-cni)"}},
		{"Nodus", []appsv1.DaemonSet{daemonSet("nfn-agent", "integratedcloudnative/ovn4nfv-k8s-plugin:v3")}, "", []string{"error meta-plugins: Nodus "}},
		{"ovn-kubernetes", []appsv1.DaemonSet{daemonSet("ovnkube-node", "ghcr.io/ovn-kubernetes/ovn-kube-ubuntu:v1")}, "", []string{"error other-ovn: ovn-kubernetes "}},
		{"Kube-OVN", []appsv1.DaemonSet{daemonSet("ovs-ovn", "docker.io/kubeovn/kube-ovn:v1"), daemonSet("kube-ovn-cni")}, "", []string{"error other-ovn: Kube-OVN "}},
		{"Antrea", []appsv1.DaemonSet{daemonSet("antrea-agent")}, "", []string{"error other-ovn: Antrea "}},
		{"another's registry", []appsv1.DaemonSet{daemonSet("proxy", "multus.example.com:5000/kube-proxy:v1")}, "", []string{"warning primary-network: no DaemonSet"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := good()
			if tt.ok != "" || len(tt.want) > 0 {
				c.Nodes[0].Annotations, c.Nodes[1].Annotations = nil, nil
			}
			c.DaemonSets = tt.sets
			findings := c.checkPrograms()
			if tt.ok != "" {
				says(t, findings, primaryWhat, tt.ok)
			}
			got := bad(t, findings)
			got = slices.DeleteFunc(got, func(g string) bool { // what is not there beside another program
				return len(tt.want) == 1 && !strings.Contains(tt.want[0], primaryWhat) && strings.Contains(g, "no DaemonSet")
			})
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDistribution(t *testing.T) {
	tests := []struct {
		name   string
		change func(n *corev1.Node)
		values string
		want   string // the chart's value
		says   string
		bad    []string
	}{
		{"kubeadm", func(*corev1.Node) {}, "", "kubeadm", "the default", nil},
		{"k3s", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.31.2+k3s1" }, "", "k3s", "set the value distribution to k3s", nil},
		{"RKE2", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.31.2+rke2r1" }, "", "rke2", "to rke2", nil},
		{"MicroK8s", func(n *corev1.Node) { n.Labels["microk8s.io/cluster"] = "true" }, "", "microk8s", "to microk8s", nil},
		{"the right value", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.31.2+k3s1" }, "distribution: k3s", "k3s", "folders of k3s", nil},
		{"the wrong value", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.31.2+k3s1" }, "distribution: rke2", "k3s", "the value is rke2",
			[]string{"error distribution: the value is rke2, and the nodes have kubelet v1.31.2+k3s1 on Debian"}},
		{"another folder", func(*corev1.Node) {}, "cni: {binDir: /usr/lib/cni}", "kubeadm", "/usr/lib/cni", []string{"warning distribution: "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := good()
			for i := range c.Nodes {
				tt.change(&c.Nodes[i])
			}
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, []byte(tt.values), 0o600); err != nil {
				t.Fatal(err)
			}
			findings := c.checkDistribution(plan(t, c, []string{file}))
			judged(t, findings, tt.bad...)
			says(t, findings, "distribution", tt.says)
			if got := c.distribution(); got != tt.want {
				t.Errorf("the value is %s, want %s", got, tt.want)
			}
		})
	}
}

// TestDistributionsAreTheCharts: the folders are those that the chart sets.
func TestDistributionsAreTheCharts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "images", "chart", "distributions.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var chart map[string]struct {
		ConfDir, BinDir string
		KeepOnPrimary   []string
	}
	if err := yaml.Unmarshal(text, &chart); err != nil {
		t.Fatal(err)
	}
	if len(chart) != len(distributions) {
		t.Errorf("the chart has %d distributions, the check %d", len(chart), len(distributions))
	}
	for name, want := range chart {
		if got := distributions[name]; got.ConfDir != want.ConfDir || got.BinDir != want.BinDir ||
			!reflect.DeepEqual(got.KeepOnPrimary, prefixes(want.KeepOnPrimary...)) {
			t.Errorf("%s: %+v, the chart has %+v", name, got, want)
		}
	}
	if DefaultImage != images.PluginName {
		t.Errorf("the image is %s, the chart's is %s", DefaultImage, images.PluginName)
	}
}

func TestReadPlan(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first := write("first", "ovn: {enabled: false, nbEndpoints: ['tcp:a:1']}\nimages: {plugin: r/p:1}\ncni: {confDir: /x}\n")
	second := write("second", `{ovn: {nbEndpoints: ['tcp:b:1', 'tcp:c:1']}, controller: {routers: {/core: {externalSubnet: "192.0.2.0/24, 2001:db8::/64"}}}}`)
	c := good()
	got := plan(t, c, []string{first, second}, "10.1.0.5/16")
	if strings.Join(got.Endpoints, " ") != "tcp:b:1 tcp:c:1" || got.Image != "r/p:1" || got.NetDir != "/x" || got.BinDir != "/opt/cni/bin" || len(got.Subnets) != 3 {
		t.Errorf("%+v", got)
	}
	judged(t, c.checkEndpoints(got))
	// The nodes may be machines of the outside network, and pods may not.
	judged(t, c.checkSubnets(plan(t, c, nil, "10.96.7.0/24")), "error subnets: 10.96.7.0/24 of --subnet overlaps 10.96.0.0/16")
	judged(t, c.checkSubnets(got))
	router := write("router", `{controller: {routers: {/core: {joinSubnet: "10.244.2.0/28"}}}}`)
	judged(t, c.checkSubnets(plan(t, c, []string{router})), "error subnets: 10.244.2.0/28 of joinSubnet of router /core in --values overlaps ")
	networks := write("networks", `{networks: [{name: a, config: {subnets: 10.1.0.0/16}},
		{name: b, namespace: shop, config: {topology: layer3, subnets: 10.244.0.0/15/24}}]}`)
	judged(t, c.checkSubnets(plan(t, c, []string{networks})), "error subnets: 10.244.0.0/15 of network shop/b in --values overlaps ")
	none := write("none", "networks: []")
	judged(t, c.checkSubnets(plan(t, c, []string{networks, none})))
	for values, want := range map[string][]string{
		"logLevel: debug":       nil,
		"ovn: {enabled: false}": {"error nb-endpoints: no endpoint "},
		"ovn: {enabled: false, nbEndpoints: ['192.0.2.1:6641']}": {"error nb-endpoints: --nb-endpoints: "},
		"ovn: {nbEndpoints: ['tcp:192.0.2.1:6641']}":             {"error nb-endpoints: the chart brings OVN (ovn.enabled is true), and "},
	} {
		judged(t, c.checkEndpoints(plan(t, c, []string{write("endpoints", values)})), want...)
	}
	if p := plan(t, installed(), nil); p.Image != "r/plugin:1" || !ssl(p.Endpoints) || p.NetDir != "/etc/cni/net.d" {
		t.Errorf("installed is %+v", p)
	}
	for _, tt := range []struct{ file, subnet, want string }{
		{file: filepath.Join(dir, "missing"), want: "--values: open "}, {file: write("broken", "ovn: ["), want: "--values: "},
		{file: write("other", "distribution: kind"), want: `--values: distribution "kind" is none of k3s, kubeadm, microk8s, rke2`},
		{file: write("keep", "agent: {keepOnPrimary: [x]}"), want: `--values: agent.keepOnPrimary: "x" is no subnet`},
		{file: write("network", "networks: [{name: a, config: {subnets: x}}]"), want: "--values: network a: "},
		{file: first, subnet: "10.1.0.0", want: `--subnet: "10.1.0.0" is no subnet`},
	} {
		_, err := ReadPlan(c, []string{tt.file}, words(tt.subnet))
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.file, err, tt.want)
		}
	}
}

func TestCheckVersions(t *testing.T) {
	c := installed()
	c.Pods[1].Status.ContainerStatuses[0].ImageID = "another"
	asked := 0
	answers := map[string]string{"agent-node1 agent": "0.1.0 (commit a)", "agent-node2 agent": "0.2.0 (commit b)", "agent-node1 installer": "0.1.0 (commit a)"}
	exec := func(_ context.Context, pod, container string, _ ...string) (string, error) {
		asked++
		return "program version " + answers[pod+" "+container] + "\n", nil
	}
	judged(t, c.CheckVersions(t.Context(), exec), "warning versions: agent, installer: 0.1.0 (commit a); agent: 0.2.0 (commit b)")
	if asked != 3 {
		t.Errorf("asked %d times, want once for each image", asked)
	}
	answers["agent-node2 agent"] = "0.1.0 (commit a)"
	judged(t, c.CheckVersions(t.Context(), exec))
	findings := c.CheckVersions(t.Context(), func(context.Context, string, string, ...string) (string, error) {
		return "", errors.New("pods/exec is forbidden")
	})
	judged(t, findings, "error versions: cannot be read: pods/exec is forbidden")
	if ExitCode(findings) != ExitUnread {
		t.Errorf("exit code %d", ExitCode(findings))
	}
}

func TestSort(t *testing.T) {
	got := Sort([]Finding{
		ok("inotify", "x").at("b"), ok("inotify", "x").at("a"), warning("inotify", "fix", "x").at("c"), ok("nad-crd", "served"), ok("nad-crd", "served"),
	})
	want := []Finding{
		ok("nad-crd", "served"), ok("nad-crd", "served"),
		{Level: OK, What: "inotify", Cause: "x", Nodes: []string{"a", "b"}}, warning("inotify", "fix", "x").at("c"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	not := unread("nodes", "fix", errors.New("x"))
	for _, tt := range []struct {
		findings []Finding
		want     int
	}{
		{nil, 0}, {want, 0}, {[]Finding{not}, 2}, {[]Finding{not, fault("nodes", "fix", "x")}, 1}, {[]Finding{fault("nodes", "fix", "x"), not}, 1},
	} {
		if got := ExitCode(tt.findings); got != tt.want {
			t.Errorf("%+v: exit code %d, want %d", tt.findings, got, tt.want)
		}
	}
}

// TestCheckNodes changes one fact of a good node.
func TestCheckNodes(t *testing.T) {
	facts := func() *nodefacts.Facts {
		return &nodefacts.Facts{
			Kernel: "6.1", Modules: map[string]string{"openvswitch": nodefacts.Loaded, "geneve": nodefacts.Loadable},
			CNI: nodefacts.CNI{
				NetDir: nodefacts.Folder{Path: "/etc/cni/net.d", State: nodefacts.Writable}, BinDir: nodefacts.Folder{Path: "/opt/cni/bin", State: nodefacts.Writable},
				Files: []string{"05-ovn-multinet.conflist", "10-flannel.conflist"}, Primary: "10-flannel.conflist", Programs: []string{"flannel"},
			},
			Processes: []string{"ovs-vswitchd", "ovsdb-server"}, Ports: []nodefacts.Port{{Protocol: "udp", Number: 6081}, {Protocol: "tcp", Number: 6641}},
			OVS: nodefacts.OVS{
				Version: "3.1.0", Bridges: []string{"br-int"}, SystemID: "c1",
				OVN: map[string]string{"ovn-remote": "tcp:x", "ovn-encap-type": "geneve", "ovn-encap-ip-c1": "192.0.2.1"},
			},
			NB: []nodefacts.Endpoint{{Endpoint: "tcp:a:1"}, {Endpoint: "tcp:b:1"}}, Inotify: nodefacts.Inotify{Instances: 8192, Watches: 100000},
		}
	}
	tests := []struct {
		name   string
		change func(f *nodefacts.Facts)
		want   []string
	}{
		{"good", func(*nodefacts.Facts) {}, nil},
		{"no conflist", func(f *nodefacts.Facts) {
			f.CNI = nodefacts.CNI{NetDir: f.CNI.NetDir, BinDir: f.CNI.BinDir, Error: "none yet"}
		}, []string{
			"error conflist: /etc/cni/net.d has no conflist of a primary network: none yet on n",
		}},
		{"a file before ours", func(f *nodefacts.Facts) { f.CNI.Files = append([]string{"00-multus.conf"}, f.CNI.Files...) }, []string{
			"error conflist: the runtime uses 00-multus.conf, which comes before 05-ovn-multinet.conflist by name on n",
		}},
		{"not chained", func(f *nodefacts.Facts) { f.CNI.Files = f.CNI.Files[1:] }, []string{"error conflist: the installer has not written 05-ovn-multinet.conflist"}},
		{"a plugin is missing", func(f *nodefacts.Facts) { f.CNI.Missing = []string{"portmap"} }, []string{
			"error cni-plugins: 10-flannel.conflist runs portmap, and /opt/cni/bin does not have it",
		}},
		{"read-only", func(f *nodefacts.Facts) { f.CNI.BinDir.State = nodefacts.ReadOnly }, []string{"error plugin-folder: /opt/cni/bin is on a file system that is read-only"}},
		{"no folder", func(f *nodefacts.Facts) { f.CNI.BinDir.State = nodefacts.Absent }, []string{"warning plugin-folder: there is no folder /opt/cni/bin"}},
		{"no module", func(f *nodefacts.Facts) { f.Modules["openvswitch"] = nodefacts.Absent }, []string{"warning kernel-modules: kernel 6.1: openvswitch is absent, geneve is loadable"}},
		{"no module, and userspace", func(f *nodefacts.Facts) {
			f.Modules["openvswitch"], f.OVS.Userspace = nodefacts.Absent, []string{"br-int"}
		}, nil},
		{"another program's Geneve", func(f *nodefacts.Facts) { f.OVS.Error, f.Processes = "no such file", nil }, []string{
			"error ports: UDP port 6081 is in use, and no Open vSwitch runs", "warning ports: TCP ports 6641 are in use, and no ovsdb-server runs",
			"error open-vswitch: its database does not answer: no such file",
		}},
		{"no br-int", func(f *nodefacts.Facts) { f.OVS.Bridges = []string{"br-ex"} }, []string{"error open-vswitch: there is no bridge br-int"}},
		{"ovn-controller without a database", func(f *nodefacts.Facts) { delete(f.OVS.OVN, "ovn-remote") }, []string{
			"error open-vswitch: ovn-controller is not configured: external_ids has no ovn-remote",
		}},
		{"no name", func(f *nodefacts.Facts) { f.OVS.SystemID, f.OVS.OVN["ovn-encap-ip"] = "", "x" }, []string{"error open-vswitch: the node has no system-id"}},
		{"an old OVS", func(f *nodefacts.Facts) { f.OVS.Version = "2.17.9" }, []string{"warning open-vswitch: 2.17.9 is not tested"}},
		{"an OVS without its start script", func(f *nodefacts.Facts) { f.OVS.Version = "" }, nil},
		{"a new OVS", func(f *nodefacts.Facts) { f.OVS.Version = "10.0" }, nil},
		{"one member of NB", func(f *nodefacts.Facts) { f.NB[1].Error = "refused" }, []string{"warning nb-endpoints: the node does not reach tcp:b:1: refused on n"}},
		{"no member of NB", func(f *nodefacts.Facts) { f.NB[0].Error, f.NB[1].Error = "timeout", "refused" }, []string{
			"error nb-endpoints: the node does not reach tcp:a:1: timeout", "error nb-endpoints: the node does not reach tcp:b:1: refused",
		}},
		{"a lost interface", func(f *nodefacts.Facts) { f.Lost = []string{"shop/web/net2"} }, []string{
			"warning pod-interfaces: host-side veths are gone: shop/web/net2",
		}},
		{"few inotify instances", func(f *nodefacts.Facts) { f.Inotify.Instances = 128 }, []string{"warning inotify: fs.inotify.max_user_instances is 128"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := facts()
			tt.change(f)
			c := installed()
			judged(t, Sort(c.CheckNodes(plan(t, c, nil), map[string]*nodefacts.Facts{"n": f})), tt.want...)
		})
	}
	f := facts()
	f.Modules["openvswitch"], f.OVS.Userspace = nodefacts.Absent, []string{"br-int"}
	says(t, checkModules(f, Plan{Bridge: "br-int"}), "kernel-modules", "br-int has the userspace datapath")
}

// TestCheckNodesForOVN: the chart is going to bring OVN, or brings it already.
func TestCheckNodesForOVN(t *testing.T) {
	without := func() *nodefacts.Facts {
		return &nodefacts.Facts{
			Kernel: "6.1", Modules: map[string]string{"openvswitch": nodefacts.Absent, "geneve": nodefacts.Absent},
			CNI: nodefacts.CNI{Files: []string{"10-flannel.conflist"}, Primary: "10-flannel.conflist"},
			OVS: nodefacts.OVS{Error: "no such file"},
		}
	}
	const noModules = "error kernel-modules: kernel 6.1: openvswitch is absent, geneve is absent"
	tests := []struct {
		name, values string
		installed    bool
		change       func(f *nodefacts.Facts)
		want         []string
	}{
		{name: "no module and no interface", values: "{enabled: true}", want: []string{noModules}},
		{name: "no module, and an interface", values: "{enabled: true, tunnelInterface: eth1}"},
		{name: "no module, and the kernel's datapath", values: "{enabled: true, datapath: kernel, tunnelInterface: eth1}",
			want: []string{noModules + ", and ovn.datapath is kernel"}},
		{name: "OVN runs already", values: "{enabled: true, tunnelInterface: eth1}",
			change: func(f *nodefacts.Facts) { f.Processes = []string{"ovs-vswitchd", "ovn-controller"} },
			want:   []string{"error open-vswitch: the node runs ovs-vswitchd, ovn-controller already"}},
		{name: "Open vSwitch answers", values: "{enabled: true, tunnelInterface: eth1}",
			change: func(f *nodefacts.Facts) { f.OVS.Error = "" },
			want:   []string{"error open-vswitch: the node runs Open vSwitch already"}},
		{name: "nothing is decided", want: []string{"warning" + strings.TrimPrefix(noModules, "error")}},
		{name: "nothing is decided, OVN runs", change: func(f *nodefacts.Facts) {
			f.Modules, f.OVS = map[string]string{"openvswitch": nodefacts.Loaded, "geneve": nodefacts.Loaded}, nodefacts.OVS{}
		}, want: []string{
			"error open-vswitch: ovn-controller is not configured: external_ids has no ovn-remote",
			"error open-vswitch: ovn-controller is not configured: external_ids has no ovn-encap-type",
			"error open-vswitch: ovn-controller is not configured: external_ids has no ovn-encap-ip",
			"error open-vswitch: the node has no system-id", "error open-vswitch: there is no bridge br-int",
		}},
		{name: "installed, and silent", installed: true, change: func(f *nodefacts.Facts) {
			f.Modules = map[string]string{"openvswitch": nodefacts.Loaded, "geneve": nodefacts.Loaded}
			f.CNI.Files = append(f.CNI.Files, "05-ovn-multinet.conflist")
		}, want: []string{"error open-vswitch: its database does not answer: no such file"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, f, files := good(), without(), []string(nil)
			if tt.installed {
				c = ownOVN(t)
				judged(t, c.Check(plan(t, c, nil)))
			} else if tt.values != "" {
				files = []string{filepath.Join(t.TempDir(), "values.yaml")}
				if err := os.WriteFile(files[0], []byte("ovn: "+tt.values), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tt.change != nil {
				tt.change(f)
			}
			judged(t, Sort(c.CheckNodes(plan(t, c, files), map[string]*nodefacts.Facts{"n": f})), tt.want...)
		})
	}
}
