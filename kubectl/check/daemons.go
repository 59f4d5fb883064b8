package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ovn-multinet/ovn-multinet/source/daemonnodes"
)

// daemonSet returns a DaemonSet of our namespace; nil: it does not exist.
func (c *Cluster) daemonSet(name string) *appsv1.DaemonSet {
	for i := range c.DaemonSets {
		if d := &c.DaemonSets[i]; d.Namespace == Namespace && d.Name == name {
			return d
		}
	}
	return nil
}

// checkOVN judges the pods of the OVN that the chart runs.
func (c *Cluster) checkOVN() (all []Finding) {
	if !c.bringsOVN() {
		return nil
	}
	for what, part := range map[string]struct{ name, app, fix string }{
		"ovn-databases": {"ovn-central", centralApp, "the logs of the controllers say why they choose no node"},
		"ovn-nodes":     {"ovn-node", nodeApp, "correct its nodeSelector, or label the nodes"},
	} {
		switch d := c.daemonSet(part.name); {
		case d != nil:
			all = append(all, c.checkDaemons(what, d, part.app, part.fix)...)
		case !c.unreadable(primaryWhat): // the DaemonSets are read for that check
			all = append(all, fault(what, "install the whole chart", "there is no DaemonSet %s/%s", Namespace, part.name))
		}
	}
	return all
}

// checkAttach judges the pods that change the networks of running pods, if the operator has enabled them.
func (c *Cluster) checkAttach() []Finding {
	if d := c.daemonSet("attach"); d != nil {
		return c.checkDaemons("attach", d, attachApp, "correct its nodeSelector, or label the nodes")
	}
	return nil
}

// checkDaemons judges the pods of a DaemonSet of ours: one on each node that its selector and its tolerations choose.
// fix is what to do if it chooses none.
func (c *Cluster) checkDaemons(what string, d *appsv1.DaemonSet, app, fix string) (all []Finding) {
	if c.unreadable("agents") { // our pods are read for that check
		return nil
	}
	byNode := map[string]*corev1.Pod{}
	for i := range c.Pods {
		p := &c.Pods[i]
		if p.Labels[agentLabel] != app || p.DeletionTimestamp != nil {
			continue
		}
		if p.Status.Phase == corev1.PodFailed && byNode[p.Spec.NodeName] != nil {
			continue // kubelet has refused or evicted it, and there is another one
		}
		byNode[p.Spec.NodeName] = p
	}
	good, nodes := 0, 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if !daemonnodes.Chosen(&d.Spec.Template.Spec, n) {
			continue
		}
		nodes++
		switch p := byNode[n.Name]; {
		case p == nil:
			all = append(all, fault(what, fmt.Sprintf("kubectl -n %s describe daemonset %s", Namespace, d.Name),
				"the node has no pod of DaemonSet %s", d.Name).at(n.Name))
		case !podReady(p):
			all = append(all, fault(what, fmt.Sprintf("kubectl -n %s describe pod %s", Namespace, p.Name),
				"%s", whyNotReady(p)).at(n.Name))
		default:
			good++
		}
	}
	switch {
	case nodes == 0 && !c.unreadable("nodes"):
		all = append(all, fault(what, fix, "the nodeSelector and the tolerations of DaemonSet %s choose no node: %s", d.Name,
			labels.SelectorFromSet(d.Spec.Template.Spec.NodeSelector)))
	case good == nodes && nodes > 0:
		all = append(all, ok(what, "ready on %d nodes", good))
	}
	return all
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// whyNotReady returns why a pod is not ready: the first container that does not run, those that are not ready, or a
// condition.
func whyNotReady(p *corev1.Pod) string {
	containers := append(slices.Clip(p.Status.InitContainerStatuses), p.Status.ContainerStatuses...)
	for i := range containers {
		s := &containers[i]
		switch {
		case s.State.Waiting != nil:
			text := fmt.Sprintf("container %s waits: %s %s", s.Name, s.State.Waiting.Reason, s.State.Waiting.Message)
			if last := s.LastTerminationState.Terminated; last != nil && last.Message != "" {
				text += "; its last words: " + lastLine(last.Message)
			}
			return oneLine(text)
		case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
			return oneLine(fmt.Sprintf("container %s has ended with code %d: %s %s", s.Name, s.State.Terminated.ExitCode,
				s.State.Terminated.Reason, lastLine(s.State.Terminated.Message)))
		}
	}
	var silent []string
	for i := range containers {
		if s := &containers[i]; s.State.Running != nil && !s.Ready {
			silent = append(silent, s.Name)
		}
	}
	if len(silent) > 0 {
		return "running and not ready, as the probes say: " + strings.Join(silent, ", ")
	}
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			return oneLine(c.Message)
		}
	}
	return "the pod is " + cmp.Or(strings.ToLower(string(p.Status.Phase)), "pending")
}

// lastLine returns the last line of what a container wrote.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// Exec runs a command in a container of a pod of our namespace and returns its output.
type Exec func(ctx context.Context, pod, container string, command ...string) (string, error)

// containerOf is a container of a pod with a label app.
type containerOf struct{ app, container string }

// programsOfPods has what to ask for its version, and how we call it.
var programsOfPods = map[containerOf]struct{ name, binary string }{
	{agentApp, "agent"}:            {"agent", "/ovn-multinetd"},
	{agentApp, installerContainer}: {"installer", "/ovn-multinet-install"},
	{attachApp, "attach"}:          {"attach", "/ovn-multinet-attach"},
	{controllerApp, "controller"}:  {"controller", "/ovn-multinet-controller"},
	{centralApp, "nb"}:             {"ovn-central", "/ovn-multinet-ovn"},
	{nodeApp, "controller"}:        {"ovn-node", "/ovn-multinet-ovn"},
}

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
			asks := programsOfPods[containerOf{p.Labels[agentLabel], s.Name}]
			if asks.binary == "" || s.State.Running == nil || asked[asks.name+s.ImageID] {
				continue
			}
			asked[asks.name+s.ImageID] = true
			out, err := exec(ctx, p.Name, s.Name, asks.binary, "--version")
			if err != nil {
				fix := "see why the container runs no program: kubectl -n " + Namespace + " describe pod " + p.Name
				if apierrors.IsForbidden(err) {
					fix = "run this command with the right to create pods/exec in " + Namespace
				}
				return []Finding{unread(what, fix, err)}
			}
			_, version, _ := strings.Cut(strings.TrimSpace(out), " version ")
			by[version] = append(by[version], asks.name)
		}
	}
	switch len(by) {
	case 0:
		return nil
	case 1:
		return []Finding{ok(what, "all programs are %s", slices.Collect(maps.Keys(by))[0])}
	}
	var all []string
	for _, version := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[version])
		all = append(all, strings.Join(slices.Compact(by[version]), ", ")+": "+version)
	}
	return []Finding{warning(what, "finish the upgrade: use images of one version", "%s", strings.Join(all, "; "))}
}
