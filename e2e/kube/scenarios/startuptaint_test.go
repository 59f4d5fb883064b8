//go:build kube

package scenarios

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// joinsEnv is how often a node joins; the long form is 100.
const joinsEnv = "OVN_MULTINET_JOINS"

func joins() int {
	if n, err := strconv.Atoi(os.Getenv(joinsEnv)); err == nil {
		return n
	}
	return 3
}

// herdSize is the number of pods that wait for the node.
const herdSize = 8

// workload is a Deployment or a DaemonSet whose pods have a network and run on node2 alone.
func workload(kind, name, more string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: %s
metadata: {name: %s, namespace: default}
spec:
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata:
      labels: {app: %[2]s}
      annotations: {k8s.v1.cni.cncf.io/networks: blue}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: %[3]s, imagePullPolicy: Never, args: [serve]}]
%[4]s---
`, kind, name, kube.PodtoolImage, more)
}

const (
	onNode2   = "      nodeSelector: {kubernetes.io/hostname: node2}\n"
	whenReady = "      nodeSelector: {kubernetes.io/hostname: node2, ovn-multinet/ready: \"true\"}\n"
	anywhere  = "      tolerations: [{operator: Exists}]\n"
)

// TestStartupTaint: a new machine joins again and again while a herd of pods with networks waits for it. The machine has
// Flannel's conflist from its first moment on, so it is Ready long before our conflist is there. No pod of the herd runs
// without its network.
func TestStartupTaint(t *testing.T) {
	t.Parallel()
	times := joins()
	w := &world{labtest.New(t, limit+time.Duration(times)*3*time.Minute), kube.Start(t, kube.Options{Nodes: 2})}
	history := w.followNodes()
	w.Must(w.InstallProduct(w.Ctx))
	for _, n := range w.Nodes {
		w.Must(lab.Eventually(w.Ctx, func() error { return w.nodeIsReleased(n.Name) }))
	}
	if tainted := history.tainted(); len(tainted) != 0 {
		t.Errorf("the installation has tainted nodes that were there before: %v", tainted)
	}
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+
		workload("Deployment", "herd", onNode2)+workload("DaemonSet", "patient", whenReady+anywhere)+
		workload("DaemonSet", "hasty", onNode2+anywhere)))
	w.kubectl("scale", "deployment/herd", fmt.Sprintf("--replicas=%d", herdSize))
	n, without, late := w.Node("node2"), 0, 0
	for i := range times {
		w.Must(n.Discard(w.Ctx))
		// Kubernetes deletes the pods of such a node 40 s later. A machine that is replaced sooner inherits them: every
		// second one inherits the agent's pod, which the API still calls ready.
		w.forget(n.Name, i%2 == 1)
		var byKubelet []corev1.Taint
		if i%3 == 2 {
			byKubelet = []corev1.Taint{{Key: conf.StartupTaint, Effect: corev1.TaintEffectNoSchedule}}
		}
		w.Must(n.Join(w.Ctx, byKubelet...))
		without += w.attached(n.Name, herdSize, "herd") + w.attached(n.Name, 1, "patient")
		late += w.toldOrAttached(n.Name, "hasty")
		w.Must(lab.Eventually(w.Ctx, func() error { return w.nodeIsReleased(n.Name) }))
	}
	if without != 0 {
		t.Errorf("%d pods run without their network after %d joins", without, times)
	}
	history.check(t, times)
	t.Attr("startup.pods-without-networks", fmt.Sprintf("%d of %d, in %d joins", without, times*(herdSize+1), times))
	t.Attr("startup.hasty-pods-told", fmt.Sprintf("%d of %d", late, times))
}

// nodeIsReleased wants the node to have our label, and not our taint.
func (w *world) nodeIsReleased(name string) error {
	n, err := w.Client.CoreV1().Nodes().Get(w.Ctx, name, metav1.GetOptions{})
	if err == nil && (n.Labels[conf.ReadyLabel] != conf.ReadyValue || hasTaint(n, conf.StartupTaint)) {
		err = fmt.Errorf("%s has the labels %v and the taints %v", name, n.Labels, n.Spec.Taints)
	}
	return err
}

func hasTaint(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// forget deletes the pods of a node that has no kubelet any more.
func (w *world) forget(node string, butTheAgents bool) {
	list, err := w.Client.CoreV1().Pods("").List(w.Ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	w.Must(err)
	for _, p := range list.Items {
		if butTheAgents && p.Labels["app"] == "ovn-multinet-agent" {
			continue
		}
		w.kubectl("--namespace", p.Namespace, "delete", "pod", p.Name, "--grace-period=0", "--force", "--ignore-not-found", "--wait=false")
	}
}

// runningOn waits until so many pods of an app run on a node.
func (w *world) runningOn(node string, want int, app string) (pods []corev1.Pod) {
	w.until(func() error {
		list, err := w.Client.CoreV1().Pods("default").List(w.Ctx, metav1.ListOptions{
			LabelSelector: "app=" + app, FieldSelector: "spec.nodeName=" + node,
		})
		if err != nil {
			return err
		}
		pods = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
			return p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning
		})
		if len(pods) != want {
			return fmt.Errorf("%d pods of %s run on %s, want %d", len(pods), app, node, want)
		}
		return nil
	})
	return pods
}

// attached waits for the pods of an app on a node and counts those whose kernel does not have the network.
func (w *world) attached(node string, want int, app string) (without int) {
	for _, p := range w.runningOn(node, want, app) {
		if links := w.links(p.Name); len(links) != 2 {
			w.T.Errorf("pod %s has %v", p.Name, links)
			without++
		}
	}
	return without
}

// toldOrAttached: a pod that tolerates the taint may be faster than the node. It then has an Event that says so.
func (w *world) toldOrAttached(node, app string) (told int) {
	p := w.runningOn(node, 1, app)[0]
	if len(w.links(p.Name)) == 2 {
		return 0
	}
	w.eventOf(p.Name, "Warning", "NetworksMissing", "")
	return 1
}

// nodeHistory has all versions of all Nodes.
type nodeHistory struct {
	mu       sync.Mutex
	versions map[string][]*corev1.Node // by UID
}

// followNodes keeps each version of each Node from now on.
func (w *world) followNodes() *nodeHistory {
	h := &nodeHistory{versions: map[string][]*corev1.Node{}}
	keep := func(obj any) {
		n := obj.(*corev1.Node)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.versions[string(n.UID)] = append(h.versions[string(n.UID)], n)
	}
	f := informers.NewSharedInformerFactory(w.Client, 0)
	_, err := f.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: keep, UpdateFunc: func(_, now any) { keep(now) },
	})
	w.Must(err)
	f.Start(w.Ctx.Done())
	f.WaitForCacheSync(w.Ctx.Done())
	return h
}

// tainted are the names of the nodes that ever had the startup taint.
func (h *nodeHistory) tainted() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, versions := range h.versions {
		if slices.ContainsFunc(versions, func(n *corev1.Node) bool { return hasTaint(n, conf.StartupTaint) }) {
			names = append(names, versions[0].Name)
		}
	}
	return names
}

// check: each Node that joined had the startup taint until it had our label, and never again. If kubelet has registered
// it with the taint, the scheduler could not use it before. Otherwise it may be Ready before a controller has seen it:
// such Nodes are counted.
func (h *nodeHistory) check(t *testing.T, joins int) {
	t.Helper()
	if tainted := h.tainted(); len(tainted) != joins {
		t.Errorf("%d Nodes had the startup taint, want %d", len(tainted), joins)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	open := 0
	for _, versions := range h.versions {
		if !slices.ContainsFunc(versions, func(n *corev1.Node) bool { return hasTaint(n, conf.StartupTaint) }) {
			continue // there before the installation
		}
		var words []string
		wasOpen, again := false, false
		for _, n := range versions {
			marked, ours := n.Labels[conf.ReadyLabel] != "", hasTaint(n, conf.StartupTaint)
			wasOpen = wasOpen || !marked && !ours && !hasTaint(n, corev1.TaintNodeNotReady)
			again = again || marked && ours
			text, err := json.Marshal(n.Spec.Taints)
			words = append(words, fmt.Sprint(n.ResourceVersion, " ", marked, " ", string(text), err))
		}
		if wasOpen {
			open++
		}
		if again || wasOpen && hasTaint(versions[0], conf.StartupTaint) {
			t.Errorf("node %s was open to pods although kubelet has given it the taint, or tainted after it was ready:\n%s",
				versions[0].Name, strings.Join(words, "\n"))
		}
	}
	t.Attr("startup.nodes-open-for-a-moment", fmt.Sprintf("%d of %d", open, joins))
}
