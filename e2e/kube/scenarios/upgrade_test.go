//go:build kube

package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fsnotify/fsnotify"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// upgraded is a cluster that changes from one version of the product to another.
type upgraded struct {
	*world
	pings    []*steadyPing
	conflist []*conflistWatch
}

// TestUpgradeAndRollback takes a cluster from the version before this one to this one and back, by the manifests and images of
// each. Pods that run all the while lose nothing, pods that start meanwhile get their networks, and what one version made the
// other takes away.
func TestUpgradeAndRollback(t *testing.T) {
	t.Parallel()
	u := &upgraded{world: bareWorld(t, kube.Options{Nodes: 2})}
	ctx := u.Ctx
	previous, current, err := u.Products(ctx, "OVN_MULTINET_RECONCILE_PERIOD: 1s")
	u.Must(err)
	// The operator changes a setting at once, so that the conflist is another one with each version.
	const flag = `"--allowed-delegates=`
	if n := strings.Count(current.Manifests, flag); n != 1 {
		t.Fatalf("the manifests have %s %d times", flag, n)
	}
	current.Manifests = strings.Replace(current.Manifests, flag, flag+onlyCurrent+",", 1)
	u.Must(u.Rollout(ctx, previous))
	u.Must(u.WaitRollout(ctx))
	u.watchConflists()
	u.installed(previous)
	u.Must(u.Apply(ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+
		nad("green", `{"type":"ovn-multinet","subnets":"10.2.0.0/16,fd02::/64"}`)))
	u.start("a", "b", "first-a", "first-b")
	u.pingAll("a", "b")

	steady := u.rowsOf("a", "b")
	if _, err := u.Multinet(ctx, "gc", "--node", "node1", "--dry-run"); err != nil {
		t.Errorf("this command does not understand the agent of the other version: %v", err)
	}
	u.changes(current, "second", "first")
	u.changes(previous, "third", "second")
	u.changesUnderPods(current, "fourth", "third")
	if now := u.rowsOf("a", "b"); !slices.Equal(now, steady) {
		t.Errorf("what is written of the pods that ran all the while:\n%s\nwas:\n%s", strings.Join(now, "\n"), strings.Join(steady, "\n"))
	}
	for _, p := range u.pings {
		u.Must(p.proc.Stop(ctx))
	}
	u.end("a", "b", "fourth-a", "fourth-b")
	u.Must(lab.Eventually(ctx, u.nothingLeft))
	for _, w := range u.conflist {
		w.check(t)
		if w.events < 3 {
			t.Errorf("the conflist was replaced %d times by three changes of version", w.events)
		}
	}
}

// onlyCurrent is what this version's conflist allows and that of the version before does not.
const onlyCurrent = "bandwidth"

// node is where a pod of the scenario runs, by its name's last letter.
func node(name string) string {
	if strings.HasSuffix(name, "a") {
		return "node1"
	}
	return "node2"
}

// start brings pods with both networks up.
func (u *upgraded) start(names ...string) {
	u.begin(names...)
	u.ready(names...)
}

func (u *upgraded) begin(names ...string) {
	for _, name := range names {
		u.Must(u.Apply(u.Ctx, pod(name, node(name), networks)))
	}
}

func (u *upgraded) ready(names ...string) {
	for _, name := range names {
		u.Must(u.WaitReady(u.Ctx, "default/"+name))
		u.consistent(name, []string{"eth0", "net1", "net2"})
	}
}

func (u *upgraded) end(names ...string) {
	var manifests, ids []string
	for _, name := range names {
		manifests, ids = append(manifests, pod(name, node(name), networks)), append(ids, "default/"+name)
	}
	u.Must(u.Delete(u.Ctx, strings.Join(manifests, "")))
	u.Must(u.WaitGone(u.Ctx, ids...))
}

// changes installs another version while no pod comes or goes: those that run lose nothing. Then that version makes pods and
// takes away what the other made.
func (u *upgraded) changes(to *kube.Product, made, gone string) {
	before := u.lost()
	u.Must(u.Rollout(u.Ctx, to))
	u.Must(u.WaitRollout(u.Ctx))
	u.installed(to)
	if after := u.lost(); !slices.Equal(after, before) {
		u.T.Errorf("requests without an answer, over the change to the version with the tag %s: %v, were %v", to.Tag, after, before)
	}
	u.start(made+"-a", made+"-b")
	u.handsOver(made, gone)
}

// changesUnderPods does that while pods start, on nodes of either version.
func (u *upgraded) changesUnderPods(to *kube.Product, made, gone string) {
	u.Must(u.Rollout(u.Ctx, to))
	u.begin(made+"-a", made+"-b")
	u.Must(u.WaitRollout(u.Ctx))
	u.installed(to)
	u.ready(made+"-a", made+"-b")
	u.handsOver(made, gone)
}

// handsOver has the pods go that an earlier version made. Then everything is there once.
func (u *upgraded) handsOver(made, gone string) {
	u.consistent("a", []string{"eth0", "net1", "net2"})
	u.consistent("b", []string{"eth0", "net1", "net2"})
	u.end(gone+"-a", gone+"-b")
	u.only("a", "b", made+"-a", made+"-b")
	u.noWarnings()
	for _, p := range u.pings {
		p.whole(u)
	}
	for _, w := range u.conflist {
		w.check(u.T)
	}
}

// installed wants a version on every node: its images in the product's pods, its plugin to the byte, and our conflist.
func (u *upgraded) installed(p *kube.Product) {
	want := u.Read(filepath.Join(p.Bin, "ovn-multinet"))
	for _, n := range u.Nodes {
		u.Must(lab.Eventually(u.Ctx, func() error {
			have, err := os.ReadFile(n.Path("/opt/cni/bin/ovn-multinet"))
			if err == nil && !bytes.Equal(have, want) {
				err = fmt.Errorf("the plugin on %s is not that of the images with the tag %s", n.Name, p.Tag)
			}
			if err == nil {
				err = wholeConflist(n.Path(conflistPath))
			}
			if err == nil && allows(n.Path(conflistPath), onlyCurrent) != (p.Tag == "dev") {
				err = fmt.Errorf("the conflist on %s is of another version", n.Name)
			}
			return err
		}))
	}
	u.Must(lab.Eventually(u.Ctx, func() error {
		pods, err := u.Client.CoreV1().Pods("ovn-multinet").List(u.Ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		running := 0
		for _, pod := range pods.Items {
			for _, c := range pod.Spec.Containers {
				if !strings.HasSuffix(c.Image, ":"+p.Tag) {
					return fmt.Errorf("%s is still there with %s", pod.Name, c.Image)
				}
				running++
			}
		}
		if running != 2*2+2 { // agent and installer on two nodes, two controllers
			return fmt.Errorf("%d containers with the tag %s, want 6", running, p.Tag)
		}
		return nil
	}))
}

// rowsOf is what both databases have of pods, without what ovn-controller keeps there of its own work.
func (u *upgraded) rowsOf(names ...string) (rows []string) {
	for _, name := range names {
		for _, ifName := range []string{"net1", "net2"} {
			port := "default/" + name + "/" + ifName
			out := u.nbctl("--columns=_uuid,name,addresses,port_security,options,external_ids", "list", "Logical_Switch_Port", port)
			plug, err := u.Node(node(name)).VSCtl(u.Ctx, "--columns=_uuid,name,ofport,mac_in_use", "find", "Interface", "external_ids:iface-id="+port)
			u.Must(err)
			rows = append(rows, out, plug)
		}
	}
	return rows
}

// only wants the ports, plugs and journals of these pods and of no other, and nothing left to be released.
func (u *upgraded) only(names ...string) {
	var want []string
	on := map[string]int{}
	for _, name := range names {
		want = append(want, "default/"+name+"/net1", "default/"+name+"/net2")
		on[node(name)]++
	}
	slices.Sort(want)
	u.Must(lab.Eventually(u.Ctx, func() error {
		out, err := u.NBCtl(u.Ctx, "--bare", "--columns=name", "list", "Logical_Switch_Port")
		got := strings.Fields(out)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("ports in NB: %q, want %q, %v", got, want, err)
		}
		for _, n := range u.Nodes {
			out, err := n.VSCtl(u.Ctx, "--bare", "--columns=name", "find", "Interface", `external_ids:iface-id!=""`)
			if plugs := len(strings.Fields(out)); err != nil || plugs != 2*on[n.Name] {
				return fmt.Errorf("%d plugs on %s, want %d, %v", plugs, n.Name, 2*on[n.Name], err)
			}
			for folder, files := range map[string]int{"attached": on[n.Name], "release": 0} {
				out, err := n.Run(u.Ctx, "find", "/var/lib/cni/ovn-multinet/"+folder, "-type", "f", "-not", "-name", "*.lock")
				if got := len(strings.Fields(out)); err != nil || got != files {
					return fmt.Errorf("%s on %s: %q, want %d files, %v", folder, n.Name, out, files, err)
				}
			}
		}
		return nil
	}))
}

// noWarnings wants no Event of ours that tells a pod's owner of trouble: an agent that is new on a node finds what is there.
func (u *upgraded) noWarnings() {
	list, err := u.Client.CoreV1().Events("default").List(u.Ctx, metav1.ListOptions{})
	u.Must(err)
	for _, e := range list.Items {
		if e.Type == "Warning" && strings.Contains(e.Reason+e.ReportingController+e.Source.Component, "ultinet") ||
			e.Reason == "NetworksMissing" || e.Reason == "JournalLost" {
			u.T.Errorf("%s has the Event %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

// steadyPing pings in short steps without end.
type steadyPing struct {
	what string
	proc *lab.Process
}

// pingAll has two pods ping all addresses of each other's further interfaces, by the machine's own ping in their namespaces.
func (u *upgraded) pingAll(a, b string) {
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		from, n := pair[0], u.Node(node(pair[0]))
		netns, err := n.PodNetNS(u.Ctx, "default/"+from)
		u.Must(err)
		for _, ifName := range []string{"net1", "net2"} {
			for _, ip := range u.links(pair[1])[ifName].ips() {
				u.reaches(from, ifName, ip)
				what := fmt.Sprintf("ping from %s to %s", from, ip)
				proc, err := u.Run(u.Ctx, lab.Spec{Name: what, NetNS: netns, Args: []string{"ping", "-n", "-i", "0.05", ip},
					Log: filepath.Join(n.Dir, fmt.Sprintf("ping-%s-%s.log", from, ip))})
				u.Must(err)
				u.pings = append(u.pings, &steadyPing{what, proc})
			}
		}
	}
}

var answeredPing = regexp.MustCompile(`icmp_seq=(\d+) ttl=`)

// drops is how many answers in a row may be missing, at 20 requests a second. OVS's userspace datapath drops packets while
// ports of other pods are added or deleted, for longer on a busy machine. A port or a flow that the upgrade deletes is
// missing until a reconcile pass at least.
const drops = 40

// answers waits for some more answers, and returns the numbers of all until then.
func (p *steadyPing) answers(u *upgraded) (seqs []int) {
	read := func() (seqs []int) {
		text := u.Read(p.proc.LogPath())
		for _, m := range answeredPing.FindAllSubmatch(text, -1) {
			seq, err := strconv.Atoi(string(m[1]))
			u.Must(err)
			seqs = append(seqs, seq)
		}
		return seqs
	}
	before := len(read())
	ctx, cancel := context.WithTimeout(u.Ctx, patience)
	defer cancel()
	u.Must(lab.Eventually(ctx, func() error {
		if seqs = read(); len(seqs) < before+5 {
			return fmt.Errorf("%s: %d answers, %d some time ago", p.what, len(seqs), before)
		}
		return nil
	}))
	return seqs
}

// lost counts, ping by ping, the requests until now that have no answer.
func (u *upgraded) lost() (lost []int) {
	for _, p := range u.pings {
		seqs := p.answers(u)
		lost = append(lost, slices.Max(seqs)-len(seqs))
	}
	return lost
}

// whole wants that no more answers in a row are missing than drops.
func (p *steadyPing) whole(u *upgraded) {
	last := 0
	for _, seq := range p.answers(u) {
		if seq > last+drops+1 {
			u.T.Errorf("%s: after answer %d came answer %d", p.what, last, seq)
		}
		last = max(last, seq)
	}
}

const conflistPath = "/etc/cni/net.d/05-ovn-multinet.conflist"

// wholeConflist wants our conflist in a file: JSON, Flannel's name, our plugin last.
func wholeConflist(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var list struct {
		Name    string
		Plugins []struct{ Type string }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("%s: %w: %q", path, err, text)
	}
	if n := len(list.Plugins); list.Name != "cbr0" || n < 2 || list.Plugins[n-1].Type != lab.PluginType {
		return fmt.Errorf("%s is not Flannel's with our plugin last: %s", path, text)
	}
	return nil
}

func allows(path, plugin string) bool {
	text, err := os.ReadFile(path)
	return err == nil && strings.Contains(string(text), strconv.Quote(plugin))
}

// conflistWatch is told by the kernel of all that happens to our conflist on a node, from the moment on that it is there.
type conflistWatch struct {
	watcher *fsnotify.Watcher
	mu      sync.Mutex
	events  int
	wrong   []string
}

// watchConflists starts one on every node.
func (u *upgraded) watchConflists() {
	for _, n := range u.Nodes {
		path := n.Path(conflistPath)
		u.Must(lab.Eventually(u.Ctx, func() error { return wholeConflist(path) }))
		watcher, err := fsnotify.NewWatcher()
		u.Must(err)
		u.T.Cleanup(func() { _ = watcher.Close() })
		u.Must(watcher.Add(filepath.Dir(path)))
		w := &conflistWatch{watcher: watcher}
		u.conflist = append(u.conflist, w)
		go func() {
			for event := range watcher.Events {
				if filepath.Base(event.Name) == filepath.Base(path) {
					w.note(n.Name, path, event.Op)
				}
			}
		}()
	}
}

// note takes an event. A file that is renamed over another is there at all times; one that is deleted, moved away or written to
// where it stands is not, or not whole.
func (w *conflistWatch) note(node, path string, op fsnotify.Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	if op.Has(fsnotify.Remove) || op.Has(fsnotify.Rename) || op.Has(fsnotify.Write) {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: %s", node, op))
	}
	if err := wholeConflist(path); err != nil {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: after %s: %v", node, op, err))
	}
}

func (w *conflistWatch) check(t testing.TB) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wrong := range w.wrong {
		t.Errorf("the conflist was not whole at all times: %s", wrong)
	}
}
