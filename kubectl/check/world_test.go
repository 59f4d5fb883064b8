package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// node is a kubeadm node of Flannel, with the n-th network of pods.
func node(n int) corev1.Node {
	cidr := fmt.Sprintf("10.244.%d.0/24", n)
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("node", n), Labels: map[string]string{"kubernetes.io/os": "linux"},
			Annotations: map[string]string{"flannel.alpha.coreos.com/backend-type": "vxlan"},
		},
		Spec: corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprint("192.0.2.", n)}},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: "v1.34.4", OSImage: "Debian", OperatingSystem: "linux", Architecture: "amd64",
				ContainerRuntimeVersion: "containerd://1.7.27",
			},
		},
	}
}

// good is a cluster of two nodes that has what ovn-multinet needs.
func good() *Cluster {
	return &Cluster{
		Version: &version.Info{Major: "1", Minor: "34", GitVersion: "v1.34.4"}, Policies: true, NADVersions: []string{"v1"},
		Nodes:        []corev1.Node{node(1), node(2)},
		ServiceCIDRs: []networkingv1.ServiceCIDR{{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}}},
		Services:     []string{"10.96.0.1"},
		Namespace:    &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}},
		Secrets:      map[string]map[string]bool{},
	}
}

// installed is good with a complete installation.
func installed() *Cluster {
	c, two := good(), int32(2)
	nb := corev1.Volume{Name: "nb", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}
	c.Config = &corev1.ConfigMap{Data: map[string]string{
		"OVN_MULTINET_NB_ENDPOINTS": "ssl:192.0.2.1:6641", "OVN_MULTINET_KEEP_ON_PRIMARY": "10.244.0.0/16,10.96.0.0/12",
	}}
	c.Agents = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "agent"}}
	c.Agents.Spec.Template.Spec = corev1.PodSpec{
		NodeSelector: map[string]string{"kubernetes.io/os": "linux"}, Volumes: []corev1.Volume{nb},
		Containers: []corev1.Container{
			{Name: "agent", Image: "localhost/ovn-multinet-agent:dev"},
			{Name: "installer", Image: "r/plugin:1", Args: []string{"--net-dir=/etc/cni/net.d", "--bin-dir=/opt/cni/bin"}},
		},
	}
	c.DaemonSets = []appsv1.DaemonSet{*c.Agents}
	c.Controllers = &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: &two}, Status: appsv1.DeploymentStatus{ReadyReplicas: 2, UpdatedReplicas: 2}}
	c.Controllers.Spec.Template.Spec.Volumes = []corev1.Volume{nb}
	all := map[string]bool{"tls.crt": true, "tls.key": true, "ca.crt": true}
	c.Secrets = map[string]map[string]bool{"ovn-multinet-nb-agent": all, "ovn-multinet-nb-controller": all}
	for _, n := range []string{"node1", "node2"} {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + n, Labels: map[string]string{"app": "ovn-multinet-agent"}}}
		p.Spec.NodeName = n
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "agent", ImageID: "a", State: running}, {Name: "installer", ImageID: "i", State: running},
		}
		c.Pods = append(c.Pods, p)
	}
	return c
}

func (c *Cluster) add(d ...appsv1.DaemonSet) { c.DaemonSets = append(c.DaemonSets, d...) }

// daemonSet is a DaemonSet of others.
func daemonSet(name string, images ...string) appsv1.DaemonSet {
	d := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
	for _, image := range images {
		d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Image: image})
	}
	return d
}

func nadOf(name, config string) nadv1.NetworkAttachmentDefinition {
	return nadv1.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: nadv1.NetworkAttachmentDefinitionSpec{Config: config},
	}
}

// bad returns the findings that are not ok, as "level what: cause", and fails for a finding that breaks a rule of all.
func bad(t *testing.T, findings []Finding) (all []string) {
	t.Helper()
	for _, f := range findings {
		switch {
		case position(f.What) < 0:
			t.Errorf("%q is none of Checks: %+v", f.What, f)
		case f.Cause == "" || strings.ContainsAny(f.Cause+f.Fix, "\n"):
			t.Errorf("not one line: %+v", f)
		case (f.Level == OK) != (f.Fix == ""):
			t.Errorf("level and fix do not go together: %+v", f)
		}
		if f.Level != OK {
			text := fmt.Sprintf("%s %s: %s", f.Level, f.What, f.Cause)
			if len(f.Nodes) > 0 {
				text += " on " + strings.Join(f.Nodes, ",")
			}
			all = append(all, text)
		}
	}
	return all
}

// judged compares the findings that are not ok with the beginnings of the wanted ones.
func judged(t *testing.T, findings []Finding, want ...string) {
	t.Helper()
	got := bad(t, findings)
	if !slices.EqualFunc(got, want, func(g, w string) bool { return strings.HasPrefix(g, w) }) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// says fails if no finding of the check has the words.
func says(t *testing.T, findings []Finding, what, words string) {
	t.Helper()
	for _, f := range findings {
		if f.What == what && strings.Contains(f.Cause, words) {
			return
		}
	}
	t.Errorf("no finding of %s with %q in %+v", what, words, findings)
}

// plan is what ReadPlan makes of flags.
func plan(t *testing.T, c *Cluster, files []string, subnets ...string) Plan {
	t.Helper()
	p, err := ReadPlan(c, files, subnets)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
