package uninstall

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/placement"
)

// Objects of the chart, by their names.
const (
	agents      = "agent"      // DaemonSet
	controllers = "controller" // Deployment
	databases   = "ovn-central"
	switches    = "ovn-node"
	diskVolume  = "all" // of ovn-node: empty, and mounted by vswitchd
)

// readEvery is the time between two reads of the cluster.
const readEvery = 2 * time.Second

// Config is a cluster and the namespace of the installation.
type Config struct {
	Core      kubernetes.Interface
	NADs      nadclient.Interface
	Namespace string
	Networks  []string // namespace/name of the networks that the installation made
	Log       *slog.Logger
}

// Run takes ovn-multinet off all nodes. It refuses this while there are OVN networks that others made, because only the
// controller can delete them, and while pods use the networks of the installation. It deletes the latter. Then it waits
// until pods with other networks have ended. A second run goes on where the first one ended.
func Run(ctx context.Context, c Config) error {
	for _, step := range []func(context.Context) error{
		c.refuseNetworks, c.deleteNetworks, c.uninstallAgents,
		c.stopIfRestored, c.endControllers, c.stopIfRestored, c.removeOVN, c.stopIfRestored, c.clearNodes,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	c.Log.Info("the nodes are as before the installation")
	return nil
}

// first returns the first names of a long list.
func first(names []string) string {
	text := strings.Join(names[:min(len(names), 5)], ", ")
	if len(names) > 5 {
		text += ", …"
	}
	return text
}

// The containers that take a step on their node, and the programs' commands for it.
const (
	installer, uninstallCommand = "installer", "uninstall"
	vswitchd, removeCommand     = "vswitchd", "remove"
)

// uninstallAgents has the installers delete conflist and plugin, and waits for them.
func (c Config) uninstallAgents(ctx context.Context) error {
	return c.onNodes(ctx, agents, installer, uninstallCommand, func(pod *corev1.PodSpec) {
		for i := range pod.Containers {
			if one := &pod.Containers[i]; one.Name == installer {
				one.Args = append([]string{uninstallCommand}, one.Args...)
			}
		}
	})
}

// stopIfRestored returns an error if the agents do not run their step any more: Helm has restored the release after it
// had lost patience with this run, which must not go on.
func (c Config) stopIfRestored(ctx context.Context) error {
	set, err := c.Core.AppsV1().DaemonSets(c.Namespace).Get(ctx, agents, metav1.GetOptions{})
	if err != nil {
		return ignoreGone(err)
	}
	if !runs(&set.Spec.Template.Spec, installer, uninstallCommand) {
		return errors.New("the release was restored during the uninstall, which ends here")
	}
	return nil
}

func runs(pod *corev1.PodSpec, container, command string) bool {
	return slices.ContainsFunc(pod.Containers, func(o corev1.Container) bool {
		return o.Name == container && len(o.Args) > 0 && o.Args[0] == command
	})
}

// removeOVN ends OVN's databases, and has each node delete its bridges and all databases. Before that it forgets the
// members, so that another installation begins with empty databases, and a restored release does too: otherwise each
// member without its database would wait for the others to have it. It does nothing if the chart does not run OVN.
func (c Config) removeOVN(ctx context.Context) error {
	sets := c.Core.AppsV1().DaemonSets(c.Namespace)
	err := c.end(ctx, databases, "app=ovn-multinet-ovn-central", sets.Delete)
	if err == nil {
		err = c.forgetMembers(ctx)
	}
	if err != nil {
		return err
	}
	err = c.onNodes(ctx, switches, vswitchd, removeCommand, func(pod *corev1.PodSpec) {
		i := slices.IndexFunc(pod.Containers, func(o corev1.Container) bool { return o.Name == vswitchd })
		if i < 0 {
			return
		}
		one := pod.Containers[i]
		one.Args = append([]string{removeCommand}, one.Args[1:]...)
		pod.InitContainers, pod.Containers = nil, []corev1.Container{one}
		// Helm restores an existing volume. It would not delete an added one.
		for i := range pod.Volumes {
			if v := &pod.Volumes[i]; v.Name == diskVolume {
				v.VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/ovn-multinet"}}
			}
		}
	})
	if err != nil {
		return err
	}
	stores, secrets := c.Core.CoreV1().ConfigMaps(c.Namespace), c.Core.CoreV1().Secrets(c.Namespace)
	if err := ignoreGone(stores.Delete(ctx, members.ConfigMapName, metav1.DeleteOptions{})); err != nil {
		return err
	}
	// Without this Secret, the authority's ConfigMap is the operator's. The Secret is deleted last, for a second run.
	err = secrets.Delete(ctx, authority.SecretName, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		err = ignoreGone(stores.Delete(ctx, authority.ConfigMapName, metav1.DeleteOptions{}))
	}
	if err == nil {
		err = secrets.Delete(ctx, authority.SecretName, metav1.DeleteOptions{})
	}
	return ignoreGone(err)
}

// forgetMembers empties the list of the databases' members. The ConfigMap stays, because pods mount it.
func (c Config) forgetMembers(ctx context.Context) error {
	stores := c.Core.CoreV1().ConfigMaps(c.Namespace)
	return ignoreGone(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		list, err := stores.Get(ctx, members.ConfigMapName, metav1.GetOptions{})
		if err != nil || len(list.Data) == 0 {
			return err
		}
		list.Data = nil
		_, err = stores.Update(ctx, list, metav1.UpdateOptions{})
		return err
	}))
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// endControllers ends the controllers, which would write nodes and the members of the databases again.
func (c Config) endControllers(ctx context.Context) error {
	return c.end(ctx, controllers, "app=ovn-multinet-controller", c.Core.AppsV1().Deployments(c.Namespace).Delete)
}

// end deletes the owner of pods, and waits until these have ended.
func (c Config) end(
	ctx context.Context, name, pods string, remove func(context.Context, string, metav1.DeleteOptions) error,
) error {
	if err := ignoreGone(remove(ctx, name, metav1.DeleteOptions{})); err != nil {
		return err
	}
	none := func(context.Context) (int, error) { return 0, nil }
	return c.wait(ctx, pods, none, func(p *corev1.Pod) string { return "its pod " + p.Name + " still runs" })
}

// onNodes changes the pods of a DaemonSet so that a container runs a command, and waits until the container of each
// node has logged that it is done.
func (c Config) onNodes(ctx context.Context, name, container, command string, change func(*corev1.PodSpec)) error {
	sets := c.Core.AppsV1().DaemonSets(c.Namespace)
	selector := ""
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		set, err := sets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		selector = metav1.FormatLabelSelector(set.Spec.Selector)
		if runs(&set.Spec.Template.Spec, container, command) {
			return nil
		}
		change(&set.Spec.Template.Spec)
		if update := set.Spec.UpdateStrategy.RollingUpdate; update != nil {
			update.MaxUnavailable = new(intstr.FromString("100%")) // nodes do not wait for each other
		}
		_, err = sets.Update(ctx, set, metav1.UpdateOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("DaemonSet %s: %w", name, err)
	}
	c.Log.Info("the nodes run a step of the uninstall", "daemonset", name, "command", command)
	expected := func(ctx context.Context) (int, error) {
		set, err := sets.Get(ctx, name, metav1.GetOptions{})
		if err == nil && set.Status.ObservedGeneration < set.Generation {
			return math.MaxInt, nil
		}
		return int(set.Status.DesiredNumberScheduled), err
	}
	done := map[types.UID]bool{}
	return c.wait(ctx, selector, expected, func(p *corev1.Pod) string {
		if done[p.UID] {
			return ""
		}
		if !runs(&p.Spec, container, command) {
			return "its pod " + p.Name + " is to be replaced"
		}
		one := int64(1)
		log, err := c.Core.CoreV1().Pods(c.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{
			Container: container, TailLines: &one}).DoRaw(ctx)
		if err != nil {
			return "the log of its pod " + p.Name + ": " + err.Error() // the container does not run yet
		}
		if done[p.UID] = strings.Contains(string(log), conf.Uninstalled); done[p.UID] {
			return ""
		}
		return cmp.Or(strings.TrimSpace(string(log)), "its pod "+p.Name+" has logged nothing yet")
	})
}

// wait returns when the pods that a selector names are as many as expected, and none of them has anything to do: while
// a DaemonSet replaces a pod, its node has none. A pod of a node that is not Ready does nothing: it is skipped, and
// logged in the end.
func (c Config) wait(
	ctx context.Context, selector string, expected func(context.Context) (int, error), state func(*corev1.Pod) string,
) error {
	return c.until(ctx, "nodes", func() ([]string, error) {
		if err := c.stopIfRestored(ctx); err != nil {
			return nil, err
		}
		count, err := expected(ctx)
		if err != nil {
			return nil, err
		}
		waiting, skipped, err := c.pending(ctx, selector, count, state)
		if err == nil && len(waiting) == 0 && len(skipped) > 0 {
			c.Log.Warn("nodes are not Ready, so nothing was removed from them", "nodes", first(skipped))
		}
		return waiting, err
	})
}

// until reads what still has something to do, until nothing has.
func (c Config) until(ctx context.Context, what string, read func() (waiting []string, err error)) error {
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	for said := ""; ; {
		waiting, err := read()
		if err != nil || len(waiting) == 0 {
			return err
		}
		if text := first(waiting); text != said {
			said = text
			c.Log.Info("waiting for "+what, "number", len(waiting), "state", text)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w while waiting for %d %s: %s", ctx.Err(), len(waiting), what, said)
		case <-ticker.C:
		}
	}
}

// pending returns what each node still has to do, in words, and the nodes that are not Ready.
func (c Config) pending(
	ctx context.Context, selector string, expected int, state func(*corev1.Pod) string,
) (waiting, skipped []string, err error) {
	nodes, err := c.Core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	ready := map[string]bool{}
	for i := range nodes.Items {
		ready[nodes.Items[i].Name] = isReady(&nodes.Items[i])
	}
	pods, err := c.Core.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, nil, err
	}
	if len(pods.Items) < expected {
		waiting = append(waiting, "not all pods exist again")
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if !ready[p.Spec.NodeName] {
			skipped = append(skipped, p.Spec.NodeName)
			continue
		}
		if text := state(p); text != "" {
			waiting = append(waiting, p.Spec.NodeName+": "+text)
		}
	}
	return waiting, skipped, nil
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(o corev1.NodeCondition) bool {
		return o.Type == corev1.NodeReady && o.Status == corev1.ConditionTrue
	})
}

// clearNodes removes the startup taint and our labels from all nodes.
func (c Config) clearNodes(ctx context.Context) error {
	nodes := c.Core.CoreV1().Nodes()
	all, err := nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		name := all.Items[i].Name
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			node, err := nodes.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			patch, err := cleared(node)
			if err != nil || patch == nil {
				return err
			}
			_, err = nodes.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
		if err := ignoreGone(err); err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}

// cleared returns the patch that removes our taint and labels from this version of the node; nil: there is nothing to
// remove.
func cleared(node *corev1.Node) ([]byte, error) {
	labels := map[string]any{}
	for _, key := range []string{conf.ReadyLabel, placement.NodeLabel} {
		if _, has := node.Labels[key]; has {
			labels[key] = nil
		}
	}
	isOurs := func(t corev1.Taint) bool { return t.Key == conf.StartupTaint }
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), isOurs)
	if len(labels) == 0 && len(taints) == len(node.Spec.Taints) {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion, "labels": labels},
		"spec":     map[string]any{"taints": taints},
	})
}
