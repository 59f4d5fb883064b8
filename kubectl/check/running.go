package check

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

// checkStartupTaints finds nodes that take no pods with networks yet.
func (c *Cluster) checkStartupTaints() (all []Finding) {
	const what = "startup-taint"
	if c.unreadable("nodes") {
		return nil
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == conf.StartupTaint }) {
			all = append(all, fault(what, "the controller removes it when the node's agent is ready, and kubelet runs its pods",
				"the node has the taint %s", conf.StartupTaint).at(n.Name))
		}
	}
	if len(all) == 0 {
		all = append(all, ok(what, "no node has the taint %s", conf.StartupTaint))
	}
	return all
}

// checkUpdates finds DaemonSets and the Deployment whose pods do not all have the latest version yet.
func (c *Cluster) checkUpdates() (all []Finding) {
	const what = "updates"
	goesOn := func(name string, observed, generation int64, updated, wanted int32) {
		switch {
		case observed < generation:
			all = append(all, pending(what, "Kubernetes has not seen the latest change of %s yet", name))
		case updated < wanted:
			all = append(all, pending(what, "%d of %d pods of %s have the latest version", updated, wanted, name))
		}
	}
	sets := []*appsv1.DaemonSet{c.Agents, c.daemonSet("attach")}
	if c.bringsOVN() {
		sets = append(sets, c.daemonSet("ovn-central"), c.daemonSet("ovn-node"))
	}
	for _, d := range sets {
		if d != nil {
			goesOn("DaemonSet "+d.Name, d.Status.ObservedGeneration, d.Generation, d.Status.UpdatedNumberScheduled,
				d.Status.DesiredNumberScheduled)
		}
	}
	if d := c.Controllers; d != nil {
		goesOn("Deployment controller", d.Status.ObservedGeneration, d.Generation, d.Status.UpdatedReplicas,
			replicas(d.Spec.Replicas))
	}
	if len(all) == 0 {
		all = append(all, ok(what, "all pods have the latest version"))
	}
	return all
}

// pending is a finding that ends by itself.
func pending(what, cause string, args ...any) Finding {
	f := warning(what, "wait", cause, args...)
	f.Pending = true
	return f
}

// running returns the pods of ours with a label app, with a container that runs.
func (c *Cluster) running(app, container string) (all []*corev1.Pod) {
	for i := range c.Pods {
		p := &c.Pods[i]
		if p.Labels[agentLabel] == app && p.DeletionTimestamp == nil &&
			slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
				return s.Name == container && s.State.Running != nil
			}) {
			all = append(all, p)
		}
	}
	return all
}

// cannotAsk is the finding that a program cannot be asked.
func cannotAsk(what string, err error) Finding {
	fix := "kubectl -n " + Namespace + " get pods -o wide"
	if apierrors.IsForbidden(err) {
		fix = "run this command with the right to create pods/exec in " + Namespace
	}
	return unread(what, fix, err)
}

// CheckLeader asks the controllers which of them leads, and what it refuses.
func (c *Cluster) CheckLeader(ctx context.Context, exec Exec) []Finding {
	const what = "leader"
	asked := c.running(controllerApp, "controller")
	if len(asked) == 0 {
		return nil // another check says so
	}
	var failed error
	for _, p := range asked {
		out, err := exec(ctx, p.Name, "controller", "/ovn-multinet-controller", "metrics")
		if err != nil {
			failed = err
			continue
		}
		metrics, leads, err := ParseMetrics(strings.NewReader(out))
		if err != nil {
			return []Finding{cannotAsk(what, err)}
		}
		if leads {
			return []Finding{
				ok(what, "%s on node %s leads the controllers", p.Name, p.Spec.NodeName), refusedObjects(metrics.refused()),
			}
		}
	}
	if failed != nil {
		return []Finding{cannotAsk(what, failed)}
	}
	return []Finding{fault(what, "kubectl -n "+Namespace+" logs deployment/controller", "no controller leads")}
}

func refusedObjects(refused map[string]int) Finding {
	const what = "refused-objects"
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(refused)) {
		if refused[kind] > 0 {
			words = append(words, fmt.Sprintf("%d of kind %s", refused[kind], kind))
		}
	}
	if len(words) == 0 {
		return ok(what, "no object is refused")
	}
	return warning(what, "their Events and states say why: kubectl get events -A --field-selector source=ovn-multinet",
		"refused: %s", strings.Join(words, ", "))
}

// CheckDatabases asks the servers of OVN's databases, if the chart runs OVN, whether each raft has a leader that hears
// all others, and whether a northd works.
func (c *Cluster) CheckDatabases(ctx context.Context, exec Exec) (all []Finding) {
	const what = "raft"
	asked := c.running(centralApp, "nb")
	if !c.bringsOVN() || len(asked) == 0 {
		return nil // another check says so
	}
	leaders, servers, active := map[string][]string{}, map[string]int{}, []string(nil)
	logs := "kubectl -n " + Namespace + " logs daemonset/ovn-central --all-containers"
	answers := make([]members.Status, len(asked))
	failed := make([]error, len(asked))
	var calls sync.WaitGroup // one that hangs must not take the time of the others
	for i, p := range asked {
		calls.Go(func() {
			out, err := exec(ctx, p.Name, "nb", "/ovn-multinet-ovn", "status")
			if err == nil {
				err = json.Unmarshal([]byte(out), &answers[i])
			}
			failed[i] = err
		})
	}
	calls.Wait()
	for i, p := range asked {
		is := answers[i]
		if failed[i] != nil {
			all = append(all, cannotAsk(what, failed[i]).at(p.Spec.NodeName))
			continue
		}
		for name, r := range map[string]members.Replica{"NB": is.NB, "SB": is.SB} {
			switch r.State {
			case members.Leader:
				leaders[name], servers[name] = append(leaders[name], p.Spec.NodeName), r.Servers
			case members.Follower:
			case members.Joining:
				f := pending(what, "the server of %s joins its raft", name)
				all = append(all, f.at(p.Spec.NodeName))
			default:
				all = append(all, fault(what, logs, "the server of %s: %s", name, oneLine(r.State)).at(p.Spec.NodeName))
			}
			for _, address := range r.Silent {
				all = append(all, fault(what, "see why that server does not answer: kubectl -n "+Namespace+" get pods -o wide",
					"the leader of %s, on node %s, hears nothing of the server at %s", name, p.Spec.NodeName, oneLine(address)))
			}
		}
		if is.Northd == members.Active {
			active = append(active, p.Spec.NodeName)
		}
	}
	complete := !slices.ContainsFunc(failed, func(err error) bool { return err != nil })
	for _, name := range []string{"NB", "SB"} {
		if len(leaders[name]) == 0 && complete {
			all = append(all, fault(what, logs, "the raft of %s has no leader: nothing can be written", name))
		}
	}
	if len(active) == 0 && complete {
		all = append(all, fault(what, logs, "no northd is active: new ports get no flows"))
	}
	if len(all) == 0 {
		all = append(all, ok(what, "NB: %s leads %d servers; SB: %s leads %d; northd works on %s",
			strings.Join(leaders["NB"], " "), servers["NB"], strings.Join(leaders["SB"], " "), servers["SB"],
			strings.Join(active, " ")))
	}
	return all
}
