package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// checkSecond finds a second ovn-multinet. Two of them write the same conflist and the same rows in NB.
func (c *Cluster) checkSecond() (all []Finding) {
	const what, fix = "second-install", "delete the second one: a cluster has one ovn-multinet, in namespace " + Namespace
	for i := range c.DaemonSets {
		d := &c.DaemonSets[i]
		if isOurs(d) && (d.Namespace != Namespace || d.Name != "agent") {
			all = append(all, fault(what, fix, "DaemonSet %s/%s runs agent or installer too", d.Namespace, d.Name))
		}
	}
	for i := range c.Bindings {
		b := &c.Bindings[i]
		if b.RoleRef.Name != "ovn-multinet-agent" && b.RoleRef.Name != "ovn-multinet-controller" {
			continue
		}
		for _, s := range b.Subjects {
			if s.Namespace != "" && s.Namespace != Namespace {
				all = append(all, fault(what, fix, "ClusterRoleBinding %s gives the role %s to %s %s/%s", b.Name, b.RoleRef.Name,
					s.Kind, s.Namespace, s.Name))
			}
		}
	}
	if len(all) == 0 && !c.unreadable(what) && !c.unreadable(primaryWhat) {
		all = append(all, ok(what, "no second ovn-multinet"))
	}
	return all
}

// checkNamespace reads whether Pod Security Admission admits pods in the host's network.
func (c *Cluster) checkNamespace() []Finding {
	const what, label = "namespace", "pod-security.kubernetes.io/enforce"
	fix := fmt.Sprintf("kubectl label namespace %s %s=privileged --overwrite", Namespace, label)
	if c.unreadable(what) {
		return nil
	}
	if c.Namespace == nil {
		return []Finding{ok(what, "there is no namespace %s yet", Namespace)}
	}
	switch level := c.Namespace.Labels[label]; level {
	case "privileged":
		return []Finding{ok(what, "%s enforces the level privileged", Namespace)}
	case "":
		return []Finding{warning(what, fix, "%s has no label %s, so the API server's default may refuse the agent's pods",
			Namespace, label)}
	default:
		return []Finding{fault(what, fix, "%s enforces the level %s, which refuses pods in the host's network",
			Namespace, level)}
	}
}

// checkOurs judges an installation.
func (c *Cluster) checkOurs(p Plan) (all []Finding) {
	if !c.Installed() {
		return nil
	}
	all = append(all, c.checkAgents()...)
	if d := c.Controllers; d == nil {
		if !c.unreadable("controllers") {
			all = append(all, fault("controllers", "install the whole chart", "there is no Deployment %s/controller", Namespace))
		}
	} else if replicas := replicas(d.Spec.Replicas); replicas == 0 || d.Status.ReadyReplicas < replicas {
		all = append(all, fault("controllers", "kubectl -n "+Namespace+" describe deployment controller",
			"%d of %d are ready%s", d.Status.ReadyReplicas, replicas, c.why(controllerApp)))
	} else {
		all = append(all, ok("controllers", "%d of %d are ready", d.Status.ReadyReplicas, replicas))
	}
	all = append(all, c.checkPlaces()...)
	all = append(all, c.checkDistrusted()...)
	return append(all, c.checkSecrets(p)...)
}

// controlPlane is the label of control planes, which no kubelet can set on its node.
const controlPlane = "node-role.kubernetes.io/control-plane"

// checkPlaces warns of pods with keys that run on other nodes than control planes, in a cluster that has such nodes.
// Root of a node can read the keys of its pods.
func (c *Cluster) checkPlaces() (all []Finding) {
	control := map[string]bool{}
	for i := range c.Nodes {
		if _, is := c.Nodes[i].Labels[controlPlane]; is {
			control[c.Nodes[i].Name] = true
		}
	}
	if len(control) == 0 || c.unreadable("agents") { // the pods are read for the agents
		return nil
	}
	for i := range c.Pods {
		p := &c.Pods[i]
		kept := map[string]struct{ what, value string }{
			controllerApp: {"the controllers' token", "controller.nodes"},
			centralApp:    {"the key of OVN's databases", "ovn.nodes"},
		}[p.Labels[agentLabel]]
		if kept.value != "" && p.Spec.NodeName != "" && !control[p.Spec.NodeName] {
			all = append(all, warning("places", "set the chart's value "+kept.value+" to "+controlPlane,
				"root can read %s, and the node is no control plane (pod %s)", kept.what, p.Name).at(p.Spec.NodeName))
		}
	}
	if len(all) == 0 {
		all = append(all, ok("places", "controllers and OVN's databases run on control planes"))
	}
	return all
}

func replicas(given *int32) int32 {
	if given == nil {
		return 1
	}
	return *given
}

// why returns the reason of the first pod that is not ready, with a colon before it.
func (c *Cluster) why(app string) string {
	for i := range c.Pods {
		if p := &c.Pods[i]; p.Labels[agentLabel] == app && !podReady(p) {
			return ": " + whyNotReady(p)
		}
	}
	return ""
}

func (c *Cluster) checkAgents() (all []Finding) {
	const what = "agents"
	if c.unreadable(what) {
		return nil
	}
	byNode := map[string]*corev1.Pod{}
	for i := range c.Pods {
		if p := &c.Pods[i]; p.Labels[agentLabel] == agentApp && p.DeletionTimestamp == nil {
			byNode[p.Spec.NodeName] = p
		}
	}
	chosen := labels.SelectorFromSet(c.Agents.Spec.Template.Spec.NodeSelector)
	good, nodes := 0, 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if !chosen.Matches(labels.Set(n.Labels)) {
			continue
		}
		nodes++
		switch p := byNode[n.Name]; {
		case p == nil:
			all = append(all, fault(what, "kubectl -n "+Namespace+" describe daemonset agent",
				"the node has no pod of the agent").at(n.Name))
		case !podReady(p):
			all = append(all, fault(what, fmt.Sprintf("kubectl -n %s describe pod %s", Namespace, p.Name),
				"%s", whyNotReady(p)).at(n.Name))
		default:
			good++
		}
	}
	if good == nodes && nodes > 0 {
		all = append(all, ok(what, "ready on %d nodes", good))
	}
	return all
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// whyNotReady returns why a pod is not ready: the first container that does not run, or a condition.
func whyNotReady(p *corev1.Pod) string {
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		switch {
		case s.State.Waiting != nil:
			return oneLine(fmt.Sprintf("container %s waits: %s %s", s.Name, s.State.Waiting.Reason, s.State.Waiting.Message))
		case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
			return oneLine(fmt.Sprintf("container %s has ended with code %d: %s %s", s.Name, s.State.Terminated.ExitCode,
				s.State.Terminated.Reason, s.State.Terminated.Message))
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			return oneLine(c.Message)
		}
	}
	return "the pod is " + cmp.Or(strings.ToLower(string(p.Status.Phase)), "pending")
}

// maxCause limits a text of another program in a finding, in bytes.
const maxCause = 500

// oneLine makes a text of another program a part of one line.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause], "") + "…"
	}
	return text
}

func ssl(endpoints []string) bool {
	return slices.ContainsFunc(endpoints, func(e string) bool { return strings.HasPrefix(e, "ssl:") })
}

// checkSecrets reads whether the keys for NB are complete. Agents that read their keys from the node need no Secret.
func (c *Cluster) checkSecrets(p Plan) (all []Finding) {
	const what = "nb-secrets"
	if !ssl(p.Endpoints) || c.unreadable(what) {
		return nil
	}
	who := map[string]*corev1.PodSpec{agentContainer: &c.Agents.Spec.Template.Spec}
	if c.Controllers != nil {
		who[controllerContainer] = &c.Controllers.Spec.Template.Spec
	}
	for _, program := range slices.Sorted(maps.Keys(who)) {
		volumes := who[program].Volumes
		if !slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.Name == "nb" && v.Projected != nil }) {
			continue
		}
		name := "ovn-multinet-nb-" + program
		for _, key := range []string{"tls.crt", "tls.key", "ca.crt"} {
			if !c.Secrets[name][key] && !c.Secrets["ovn-multinet-nb"][key] {
				all = append(all, fault(what, "create the Secret "+name+" with tls.crt, tls.key and ca.crt",
					"the Secret %s/%s has no %s, and there is an endpoint with ssl:", Namespace, name, key))
				break
			}
		}
	}
	if len(all) == 0 {
		all = append(all, ok(what, "agents and controllers have their keys"))
	}
	return all
}

// Exec runs a command in a container of a pod of our namespace and returns its output.
type Exec func(ctx context.Context, pod, container string, command ...string) (string, error)

// CheckVersions asks the programs for their versions, one pod of each image.
func (c *Cluster) CheckVersions(ctx context.Context, exec Exec) []Finding {
	const what = "versions"
	if !c.Installed() {
		return nil
	}
	by := map[string][]string{} // what runs a version
	asked := map[string]bool{}
	for i := range c.Pods {
		p := &c.Pods[i]
		for _, s := range p.Status.ContainerStatuses {
			binary := map[string]string{
				agentContainer: "/ovn-multinetd", installerContainer: "/ovn-multinet-install",
				controllerContainer: "/ovn-multinet-controller",
			}[s.Name]
			if binary == "" || s.State.Running == nil || asked[s.Name+s.ImageID] {
				continue
			}
			asked[s.Name+s.ImageID] = true
			out, err := exec(ctx, p.Name, s.Name, binary, "--version")
			if err != nil {
				return []Finding{unread(what, "run this command with the right to create pods/exec in "+Namespace, err)}
			}
			_, version, _ := strings.Cut(strings.TrimSpace(out), " version ")
			by[version] = append(by[version], s.Name)
		}
	}
	switch len(by) {
	case 0:
		return nil
	case 1:
		return []Finding{ok(what, "agents, installers and controllers are %s", slices.Collect(maps.Keys(by))[0])}
	}
	var all []string
	for _, version := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[version])
		all = append(all, strings.Join(slices.Compact(by[version]), ", ")+": "+version)
	}
	return []Finding{warning(what, "finish the upgrade: use images of one version", "%s", strings.Join(all, "; "))}
}
