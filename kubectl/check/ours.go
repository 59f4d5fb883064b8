package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// checkSecond finds a second ovn-multinet. Two of them write the same conflist and the same rows in NB.
func (c *Cluster) checkSecond() (all []Finding) {
	const what, fix = "second-install", "delete the second one: a cluster has one ovn-multinet, in namespace " + Namespace
	for i := range c.DaemonSets {
		d := &c.DaemonSets[i]
		if isOurs(d) && (d.Namespace != Namespace || d.Name != "agent" && d.Name != "attach") {
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
		if slices.ContainsFunc(c.Pods, func(p corev1.Pod) bool { return p.Labels[agentLabel] == agentApp }) {
			return []Finding{ok(what, "%s admits the agent's pods", Namespace)}
		}
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
	all = append(all, c.checkRunning()...)
	all = append(all, c.checkPlaces()...)
	all = append(all, c.checkDistrusted()...)
	return append(all, c.checkSecrets(p)...)
}

// checkRunning judges whether the programs of an installation run.
func (c *Cluster) checkRunning() (all []Finding) {
	all = append(all, c.checkDaemons("agents", c.Agents, agentApp, "correct its nodeSelector, or label the nodes")...)
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
	all = append(all, c.checkAttach()...)
	all = append(all, c.checkOVN()...)
	all = append(all, c.checkAuthority(time.Now())...)
	all = append(all, c.checkStartupTaints()...)
	return append(all, c.checkUpdates()...)
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
		if p := &c.Pods[i]; p.Labels[agentLabel] == app && !podReady(p) && p.Status.Phase != corev1.PodFailed {
			return ": " + whyNotReady(p)
		}
	}
	return ""
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
	who := map[string]*corev1.PodSpec{"agent": &c.Agents.Spec.Template.Spec}
	if c.Controllers != nil {
		who["controller"] = &c.Controllers.Spec.Template.Spec
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
