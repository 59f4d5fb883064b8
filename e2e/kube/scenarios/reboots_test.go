//go:build kube

package scenarios

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// webSet is a StatefulSet, one pod on each node.
const webSet = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  serviceName: web
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {k8s.v1.cni.cncf.io/networks: 'blue,green'}
    spec:
      terminationGracePeriodSeconds: 1
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: main
        image: ` + kube.PodtoolImage + `
        imagePullPolicy: Never
        args: [serve]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
`

// The pods that live through all reboots: with two networks each, and plain ones; of each kind one is on either node.
var (
	wired = []string{"a", "b", "web-0", "web-1"}
	plain = []string{"plain1", "plain2"}
	cast  = slices.Concat(wired, plain)
)

// TestReboots takes the power of a node and of all nodes away and gives it back, again and again, with Open vSwitch's
// database kept and wiped. Nobody lends a hand.
func TestReboots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "OVN_MULTINET_RECONCILE_PERIOD: 2s")
	manifests := pod("a", "node1", networks) + pod("b", "node2", networks) + pod("plain1", "node1", "") + pod("plain2", "node2", "") + webSet
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+
		nad("green", `{"type":"ovn-multinet","subnets":"10.2.0.0/16,fd02::/64"}`)))
	w.Must(w.Apply(w.Ctx, manifests))
	w.Must(w.WaitReady(w.Ctx, ids(cast)...))
	w.allThere()
	wiped := kube.RebootOptions{WipeOVS: true}
	var dead []string // sandboxes
	for _, c := range []struct {
		name string
		run  func(*world)
	}{
		{"a node", func(w *world) { w.reboots(2, kube.RebootOptions{}, w.Nodes[:1]) }},
		{"all nodes", func(w *world) { w.reboots(2, kube.RebootOptions{}, w.Nodes) }},
		{"all nodes, OVS wiped", func(w *world) { w.reboots(1, wiped, w.Nodes) }},
		{"pods deleted meanwhile", func(w *world) { dead = w.deletedWhileOff(w.Nodes[0]) }},
		// kubelet, where that was, has its minute.
		{"a node, OVS wiped", func(w *world) { w.reboots(2, wiped, w.Nodes[1:], dead...) }},
		{"NB away during the boot", func(w *world) { w.bootsWithoutNB(w.Nodes[1], dead...) }},
	} {
		w.run(c.name, c.run)
	}
	w.settles()
	w.Must(w.Delete(w.Ctx, manifests))
	w.Must(w.WaitGone(w.Ctx, ids(cast)...))
	w.Must(lab.Eventually(w.Ctx, w.nothingLeft))
}

func ids(names []string) []string {
	var all []string
	for _, name := range names {
		all = append(all, "default/"+name)
	}
	return all
}

// reboots does so several times in a row, and looks at the world after each.
func (w *world) reboots(times int, o kube.RebootOptions, nodes []*kube.Node, dead ...string) {
	for range times {
		before := w.before(nodes)
		w.Must(w.Reboot(w.Ctx, o, nodes...))
		w.back(before)
		w.allThere(dead...)
	}
}

// life is a pod's before a reboot.
type life struct {
	sandbox   string
	restarts  int32
	addresses string // on its networks
}

// before notes the lives of the pods on nodes that are about to lose their power.
func (w *world) before(nodes []*kube.Node) map[string]life {
	lives := map[string]life{}
	for _, name := range cast {
		p := w.getPod("default/" + name)
		n := w.Node(p.Spec.NodeName)
		if !slices.Contains(nodes, n) {
			continue
		}
		id := w.sandboxID(n, "default/"+name)
		lives[name] = life{sandbox: id, restarts: p.Status.ContainerStatuses[0].RestartCount, addresses: w.addresses(name)}
	}
	return lives
}

// addresses are a pod's on its networks, with MACs.
func (w *world) addresses(name string) string {
	links := w.links(name)
	delete(links, "eth0") // host-local goes round
	return fmt.Sprint(links)
}

// back waits until kubelet has brought pods up again, in another sandbox, and holds their addresses against what they had.
func (w *world) back(before map[string]life) {
	for name, had := range before {
		// What the API says before kubelet has looked is of the time before.
		w.Must(w.WaitRestarted(w.Ctx, "default/"+name, "main", had.restarts))
		w.Must(w.WaitReady(w.Ctx, "default/"+name))
		p := w.getPod("default/" + name)
		if id, err := w.Node(p.Spec.NodeName).SandboxID(w.Ctx, "default/"+name); err != nil || id == had.sandbox {
			w.T.Errorf("the sandbox of %s is %s, was %s: %v", name, id, had.sandbox, err)
		}
		if got := w.addresses(name); got != had.addresses {
			w.T.Errorf("pod %s has %s after the reboot, had %s", name, got, had.addresses)
		}
	}
}

// allThere wants the whole cast with its networks, each pod reaching its like on the other node, and nothing else, but for
// what kubelet has not had taken away yet of dead sandboxes.
func (w *world) allThere(dead ...string) {
	w.settles(dead...)
	for _, name := range wired {
		w.consistent(name, []string{"eth0", "net1", "net2"})
	}
	for from, to := range map[string]string{"a": "b", "web-0": "web-1", "plain2": "plain1"} {
		for ifName, link := range w.links(to) {
			for _, ip := range link.ips() {
				w.reaches(from, ifName, ip)
			}
		}
	}
}

// settles waits until pods have exactly what they are to have, and says what there is else.
func (w *world) settles(dead ...string) {
	var last error
	err := lab.Eventually(w.Ctx, func() error {
		err := w.exactly(dead...)
		if w.Ctx.Err() == nil { // or it was the look that ended
			last = err
		}
		return err
	})
	if err != nil {
		w.T.Fatal(cmp.Or(last, err))
	}
}

// exactly holds all that there is of ours, and Flannel's leases, against the pods and their sandboxes of now: no more, no less.
// Of dead sandboxes there may be a journal and a lease.
func (w *world) exactly(dead ...string) error {
	known.Clear()
	want, err := w.wanted(nil)
	if err != nil {
		return err
	}
	got, err := w.there()
	if err != nil {
		return err
	}
	wantLeases, err := w.wantedLeases()
	if err != nil {
		return err
	}
	gotLeases, err := w.leases()
	if err != nil {
		return err
	}
	want, got = append(want, wantLeases...), append(got, gotLeases...)
	got = slices.DeleteFunc(got, func(line string) bool {
		its := func(id string) bool { return strings.Contains(line, id) }
		return slices.ContainsFunc(dead, its) && (strings.Contains(line, " journal ") || strings.Contains(line, " lease "))
	})
	if missing, tooMuch := without(want, got), without(got, want); len(missing)+len(tooMuch) > 0 {
		return fmt.Errorf("missing:\n\t%s\ntoo much:\n\t%s", strings.Join(missing, "\n\t"), strings.Join(tooMuch, "\n\t"))
	}
	return nil
}

// without takes of lines those away that others has, as many times as it has them.
func without(lines, others []string) []string {
	left := slices.Clone(lines)
	for _, other := range others {
		if i := slices.Index(left, other); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	return left
}

// wantedLeases are host-local's for the pods that there are.
func (w *world) wantedLeases() (lines []string, err error) {
	pods, err := w.Client.CoreV1().Pods("default").List(w.Ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, p := range pods.Items {
		id, err := w.Node(p.Spec.NodeName).SandboxID(w.Ctx, "default/"+p.Name)
		if err != nil {
			return nil, err
		}
		lines = append(lines, p.Spec.NodeName+" lease "+p.Status.PodIP+" of "+id)
	}
	return lines, nil
}

// leases are host-local's: each is a file by the address, with the container's id in its first line.
func (w *world) leases() (lines []string, err error) {
	for _, n := range w.Nodes {
		files, err := filepath.Glob(n.Path("/var/lib/cni/networks/cbr0/10.*"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			id, _, _ := strings.Cut(string(b), "\n")
			lines = append(lines, n.Name+" lease "+filepath.Base(file)+" of "+strings.TrimSpace(id))
		}
	}
	return lines, nil
}

// deletedWhileOff: what kubelet could not end has ended with the power. Nothing stays of it; but for pods that the API server
// has forgotten too, kubelet calls DEL no sooner than a minute after its start: their sandboxes are returned. A pod of a
// StatefulSet comes back as another pod of the name.
func (w *world) deletedWhileOff(n *kube.Node) (dead []string) {
	doomed := pod("deleted", n.Name, networks) + pod("forced", n.Name, networks) + pod("forced-plain", n.Name, "")
	w.Must(w.Apply(w.Ctx, doomed))
	w.Must(w.WaitReady(w.Ctx, "default/deleted", "default/forced", "default/forced-plain"))
	before := w.before([]*kube.Node{n})
	web := "web-0"
	if _, here := before[web]; !here {
		web = "web-1"
	}
	forced := []string{"forced", "forced-plain", web}
	for _, name := range forced {
		id := w.sandboxID(n, "default/"+name)
		dead = append(dead, id)
	}
	old := w.getPod("default/" + web)
	w.Must(n.PowerOff(w.Ctx))
	pods := w.Client.CoreV1().Pods("default")
	w.Must(pods.Delete(w.Ctx, "deleted", metav1.DeleteOptions{}))
	for _, name := range forced {
		w.Must(pods.Delete(w.Ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}
	w.Must(n.PowerOn(w.Ctx))
	w.Must(w.WaitGone(w.Ctx, "default/deleted", "default/forced", "default/forced-plain"))
	delete(before, web)
	w.back(before)
	w.Must(w.WaitReady(w.Ctx, "default/"+web))
	if now, err := w.Pod(w.Ctx, "default/"+web); err != nil || now.UID == old.UID {
		w.T.Errorf("%s is not another pod: %v", web, err)
	}
	w.allThere(dead...)
	return dead
}

// bootsWithoutNB: a plain pod needs nothing of NB. The ADD of a pod with networks waits for it.
func (w *world) bootsWithoutNB(n *kube.Node, dead ...string) {
	before := w.before([]*kube.Node{n})
	w.Must(n.PowerOff(w.Ctx))
	w.Must(w.NB.Stop(w.Ctx))
	w.Must(n.PowerOn(w.Ctx))
	w.back(only(before, plain))
	w.Must(lab.Eventually(w.Ctx, func() error { return w.addsUnderWay(n, before, len(only(before, wired))) }))
	w.Must(w.NB.Restart(w.Ctx))
	w.back(before)
	w.allThere(dead...)
}

// only leaves of the lives those of the names.
func only(lives map[string]life, names []string) map[string]life {
	some := maps.Clone(lives)
	maps.DeleteFunc(some, func(name string, _ life) bool { return !slices.Contains(names, name) })
	return some
}

// addsUnderWay wants as many entries of a node's journal that are of no sandbox of before.
func (w *world) addsUnderWay(n *kube.Node, before map[string]life, want int) error {
	lines, err := w.thereOn(n)
	if err != nil {
		return err
	}
	var news []string
	for _, line := range lines {
		id, attached := strings.CutPrefix(strings.TrimSuffix(line, "@eth0"), "journal ")
		if attached && !slices.ContainsFunc(slices.Collect(maps.Values(before)), func(l life) bool { return l.sandbox == id }) {
			news = append(news, id)
		}
	}
	if len(news) != want {
		return fmt.Errorf("ADDs of %q are under way on %s, want %d; there is:\n%s", news, n.Name, want, strings.Join(lines, "\n"))
	}
	return nil
}
