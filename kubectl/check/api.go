package check

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// applyCRD is the way to the kind of networks without Helm.
const applyCRD = "kubectl apply -f images/chart/crds/"

// minMinor is the first minor version of Kubernetes 1 with ValidatingAdmissionPolicy v1.
const minMinor = 30

// architectures are those that the images are made for.
var architectures = []string{"amd64", "arm64"}

func (c *Cluster) checkAPI() (all []Finding) {
	const upgrade = "upgrade Kubernetes to 1.30 or later"
	major, _ := strconv.Atoi(c.Version.Major)
	minor, _ := strconv.Atoi(regexp.MustCompile(`^\d+`).FindString(c.Version.Minor))
	if major > 1 || major == 1 && minor >= minMinor {
		all = append(all, ok("kubernetes-version", "%s", c.Version.GitVersion))
	} else {
		all = append(all, fault("kubernetes-version", upgrade, "the API server is %s", c.Version.GitVersion))
	}
	switch {
	case c.unreadable("admission-policies"):
	case c.Policies:
		all = append(all, ok("admission-policies", "ValidatingAdmissionPolicy is served"))
	default:
		all = append(all, fault("admission-policies", upgrade+", and do not disable the API admissionregistration.k8s.io/v1",
			"the API server does not serve ValidatingAdmissionPolicy, which limits what our tokens can change"))
	}
	switch {
	case c.unreadable("nad-crd"):
	case slices.Contains(c.NADVersions, "v1"):
		all = append(all, ok("nad-crd", "NetworkAttachmentDefinition is served in version v1"))
	case len(c.NADVersions) > 0:
		all = append(all, fault("nad-crd", "let the CRD network-attachment-definitions.k8s.cni.cncf.io serve version v1",
			"NetworkAttachmentDefinition is served only in %s", strings.Join(c.NADVersions, ", ")))
	case c.Installed():
		all = append(all, fault("nad-crd", applyCRD, "the kind NetworkAttachmentDefinition does not exist"))
	default:
		all = append(all, warning("nad-crd", "helm install creates it; without Helm, "+applyCRD,
			"the kind NetworkAttachmentDefinition does not exist yet"))
	}
	return all
}

// ready reports whether a node is Ready.
func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// whyNodeNotReady returns what the node says about that.
func whyNodeNotReady(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Message != "" {
			return "not Ready: " + oneLine(c.Message)
		}
	}
	return "not Ready"
}

// silent reports whether kubelet of a node does not report. If kubelet reports that the node is not Ready, because its
// network is missing for example, it still runs pods in the host's network.
func silent(n *corev1.Node) bool {
	return !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionUnknown
	})
}

// usable reports whether the agent can run on a node.
func usable(n *corev1.Node) bool {
	return n.Status.NodeInfo.OperatingSystem == "linux" && slices.Contains(architectures, n.Status.NodeInfo.Architecture)
}

func (c *Cluster) checkNodes() (all []Finding) {
	good := 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		info := n.Status.NodeInfo
		switch {
		case info.OperatingSystem != "" && info.OperatingSystem != "linux":
			all = append(all, warning("nodes", "run pods with networks on the other nodes",
				"%s: the agent runs only on Linux", info.OperatingSystem).at(n.Name))
		case info.Architecture != "" && !usable(n):
			all = append(all, fault("nodes", "build images for this architecture, or keep the DaemonSet agent off these nodes",
				"there are no images for %s, only for %s", info.Architecture, strings.Join(architectures, " and ")).at(n.Name))
		case !ready(n):
			all = append(all, warning("nodes", "kubectl describe node "+n.Name, "%s", whyNodeNotReady(n)).at(n.Name))
		default:
			good++
		}
	}
	if good > 0 {
		all = append(all, ok("nodes", "%d of %d can run the agent", good, len(c.Nodes)))
	} else if len(c.Nodes) == 0 && !c.unreadable("nodes") {
		all = append(all, fault("nodes", "add a node", "the cluster has no node"))
	}
	return append(all, c.checkRuntimes()...)
}

// checkRuntimes names the container runtimes.
func (c *Cluster) checkRuntimes() (all []Finding) {
	byRuntime := map[string][]string{}
	for i := range c.Nodes {
		if runtime := c.Nodes[i].Status.NodeInfo.ContainerRuntimeVersion; runtime != "" {
			byRuntime[runtime] = append(byRuntime[runtime], c.Nodes[i].Name)
		}
	}
	for _, runtime := range slices.Sorted(maps.Keys(byRuntime)) {
		f := runtimeFinding(runtime)
		f.Nodes = byRuntime[runtime]
		all = append(all, f)
	}
	return all
}

// runtimeFinding judges a runtime as kubelet names it, such as containerd://1.7.27.
func runtimeFinding(runtime string) Finding {
	const what = "container-runtime"
	name, version, _ := strings.Cut(runtime, "://")
	parts := append(strings.SplitN(version, ".", 3), "0", "0")
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	switch {
	case name == "containerd" && major >= 2:
		return ok(what, "containerd %s supports CNI 1.1.0", version)
	case name == "containerd" && major == 1 && minor >= 6:
		return ok(what, "containerd %s supports CNI 1.0.0", version)
	case name == "cri-o":
		return ok(what, "CRI-O %s", version)
	}
	return warning(what, "use containerd 1.6 or later, or CRI-O", "%s %s is not tested with ovn-multinet", name, version)
}
