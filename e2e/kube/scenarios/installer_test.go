//go:build kube

package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

const (
	ourConflist = "/etc/cni/net.d/05-ovn-multinet.conflist"
	ourPlugin   = "/opt/cni/bin/ovn-multinet"
)

// installerWorld is a cluster with the product on it, a network and time for many pods.
func installerWorld(t *testing.T, o kube.Options) *world {
	t.Helper()
	w := bareWorld(t, o)
	w.Must(w.InstallProduct(w.Ctx, "OVN_MULTINET_RECONCILE_PERIOD: 2s"))
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)))
	return w
}

// TestInstaller takes the installer through what happens on a node beside it.
func TestInstaller(t *testing.T) {
	t.Parallel()
	w := installerWorld(t, kube.Options{Nodes: 2})
	w.run("the primary's file is rewritten", (*world).primaryRewritten)
	w.run("the plugin is exchanged while pods start", (*world).pluginExchanged)
	w.run("containers killed", (*world).containersKilled)
	w.run("agent and installer away", (*world).agentAndInstallerAway)
	w.run("the primary comes late", (*world).primaryLate)
	w.run("a higher version", (*world).versionRaised)
	w.Must(lab.Eventually(w.Ctx, w.nothingLeft))
}

// startsBoth starts a pod without networks and one with, and sees that both have what is theirs.
func (w *world) startsBoth(name, node string) {
	plain, with := name+"-plain", name+"-blue"
	manifests := pod(plain, node, "") + pod(with, node, "blue")
	w.Must(w.Apply(w.Ctx, manifests))
	w.Must(w.WaitReady(w.Ctx, "default/"+plain, "default/"+with))
	w.hasLinks(plain, 1)
	w.hasLinks(with, 2)
	w.Must(w.Delete(w.Ctx, manifests))
	w.Must(w.WaitGone(w.Ctx, "default/"+plain, "default/"+with))
}

// hasLinks wants a pod to have so many interfaces.
func (w *world) hasLinks(pod string, want int) {
	if links := w.links(pod); len(links) != want {
		w.T.Errorf("pod %s has %v, want %d interfaces", pod, links, want)
	}
}

// confList is a node's conflist, as text and in its parts.
type confList struct {
	text         string
	CNIVersion   string
	Name         string
	DisableCheck bool
	Plugins      []struct {
		Type     string
		Draining bool
	}
}

// confListOf reads our conflist of a node, which has to be whole.
func (w *world) confListOf(n *kube.Node) (l confList, err error) {
	text, err := os.ReadFile(n.Path(ourConflist))
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("%w in %q", err, text)
	}
	var types []string
	for _, p := range l.Plugins {
		types = append(types, p.Type)
	}
	if got := fmt.Sprint(l.Name, types); got != "cbr0[flannel portmap ovn-multinet]" {
		return l, fmt.Errorf("our conflist is of %s", got)
	}
	l.text = string(text)
	return l, nil
}

// primaryRewritten: Flannel's init container writes its file at each start, and each time ours is what it has to be.
func (w *world) primaryRewritten() {
	n := w.Nodes[0]
	first := w.Read(n.Path(kube.PrimaryConfList))
	before, err := w.confListOf(n)
	w.Must(err)
	other := bytes.Replace(first, []byte(`"name"`), []byte(`"disableCheck": true, "name"`), 1)
	for range 2 {
		w.Must(n.RewritePrimary(other))
		w.Must(lab.Eventually(w.Ctx, func() error {
			l, err := w.confListOf(n)
			if err == nil && !l.DisableCheck {
				err = errors.New("our conflist does not follow")
			}
			return err
		}))
		w.startsBoth("rewritten", n.Name)
		w.Must(n.RewritePrimary(first))
		w.Must(lab.Eventually(w.Ctx, func() error {
			l, err := w.confListOf(n)
			if err == nil && l.text != before.text {
				err = fmt.Errorf("our conflist is %s, was %s", l.text, before.text)
			}
			return err
		}))
	}
	w.filesOf(n, "/etc/cni/net.d", "05-ovn-multinet.conflist", "10-flannel.conflist")
}

// filesOf wants a folder of a node to have exactly these.
func (w *world) filesOf(n *kube.Node, dir string, want ...string) {
	entries, err := os.ReadDir(n.Path(dir))
	w.Must(err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.T.Errorf("%s of %s has %q, want %q", dir, n.Name, got, want)
	}
}

// pluginExchanged: another program is put in the plugin's place again and again, and the installer puts its own back, while pods
// start: to none of them is the plugin missing or busy.
func (w *world) pluginExchanged() {
	n := w.Nodes[0]
	own := w.Read(n.Path(ourPlugin))
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(w.Ctx)
	defer cancel()
	var times atomic.Int32
	go func() {
		defer close(ended)
		w.exchange(ctx, n, own, &times)
	}()
	const pods, atMost = 6, 60 // on a busy machine more pods start until the plugin was exchanged as often
	for i := 0; i < pods || times.Load() < pods && i < atMost; i++ {
		name := fmt.Sprintf("during-%d", i)
		networks := []string{"", "blue"}[i%2]
		w.made(name, pod(name, n.Name, networks))
		w.hasLinks(name, 1+i%2)
	}
	cancel()
	<-ended
	if n := times.Load(); n < pods {
		w.T.Errorf("the plugin was exchanged %d times while pods started, want %d", n, pods)
	}
	events, err := w.Client.CoreV1().Events("default").List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	for _, e := range events.Items {
		if strings.HasPrefix(e.InvolvedObject.Name, "during-") && e.Reason == "FailedCreatePodSandBox" {
			w.T.Errorf("pod %s: %s", e.InvolvedObject.Name, e.Message)
		}
	}
}

// exchange puts a plugin of other bytes that does the same in the plugin's place, as an installer of another version does, waits
// until the installer has put its own back, and so on until the end of ctx. It counts the times.
func (w *world) exchange(ctx context.Context, n *kube.Node, own []byte, times *atomic.Int32) {
	path := n.Path(ourPlugin)
	hidden := filepath.Join(filepath.Dir(path), ".of-another-version")
	for ctx.Err() == nil {
		other := append(bytes.Clone(own), byte(times.Load())) // what is behind its end is nothing to a program
		if err := errors.Join(os.WriteFile(hidden, other, 0o755), os.Rename(hidden, path)); err != nil {
			w.T.Error(err)
			return
		}
		err := lab.Eventually(w.Ctx, func() error {
			now, err := os.Stat(path)
			if err == nil && now.Size() != int64(len(own)) {
				err = errors.New("the installer does not put its plugin back")
			}
			return err
		})
		if err != nil {
			w.T.Error(err)
			return
		}
		times.Add(1)
	}
}

// installed is which files a node has of ours, by inode.
func (w *world) installed(n *kube.Node) (all [2]os.FileInfo) {
	for i, path := range []string{ourConflist, ourPlugin} {
		info, err := os.Stat(n.Path(path))
		w.Must(err)
		all[i] = info
	}
	return all
}

// untouched wants them to be the same as before.
func (w *world) untouched(n *kube.Node, before [2]os.FileInfo) {
	for i, now := range w.installed(n) {
		if !os.SameFile(now, before[i]) || !now.ModTime().Equal(before[i].ModTime()) {
			w.T.Errorf("%s of %s is another one", now.Name(), n.Name)
		}
	}
}

// agentPod is the pod of agent and installer on a node.
func (w *world) agentPod(n *kube.Node) *corev1.Pod {
	list, err := w.Client.CoreV1().Pods(ours).List(w.Ctx, metav1.ListOptions{LabelSelector: "app=ovn-multinet-agent", FieldSelector: "spec.nodeName=" + n.Name})
	w.Must(err)
	if len(list.Items) != 1 {
		w.T.Fatalf("%d agents on %s", len(list.Items), n.Name)
	}
	return &list.Items[0]
}

// containersKilled: what is on the node stays as it is when installer or agent die, and pods start meanwhile.
func (w *world) containersKilled() {
	n := w.Nodes[0]
	before := w.installed(n)
	for _, container := range []string{"installer", "agent"} {
		p := w.agentPod(n)
		restarts := int32(0)
		for _, s := range p.Status.ContainerStatuses {
			if s.Name == container {
				restarts = s.RestartCount
			}
		}
		w.Must(n.Signal(w.Ctx, ours+"/"+p.Name, container, "SIGKILL"))
		w.startsBoth(container+"-killed", n.Name)
		w.Must(w.WaitRestarted(w.Ctx, ours+"/"+p.Name, container, restarts))
		w.untouched(n, before)
		w.startsBoth(container+"-again", n.Name)
	}
	w.untouched(n, before)
}

// agentAndInstallerAway: without either, pods without networks start, those with networks wait and are healed by kubelet.
func (w *world) agentAndInstallerAway() {
	n := w.Nodes[0]
	before := w.installed(n)
	w.schedule(`"nowhere"`)
	w.untouched(n, before)
	w.made("away-plain", pod("away-plain", n.Name, ""))
	w.hasLinks("away-plain", 1)
	w.Must(w.Apply(w.Ctx, pod("away-blue", n.Name, "blue")))
	w.sandboxFails("away-blue", "agent at /run/ovn-multinet/agent.sock: ")
	w.schedule("null")
	w.made("away-blue", pod("away-blue", n.Name, "blue"))
	w.hasLinks("away-blue", 2)
	w.untouched(n, before)
}

// primaryLate: the node has neither conflist, as after an operator cleaned it. Ours comes after the primary's, not before, and a
// pod that waited has its networks, or is told that it has not.
func (w *world) primaryLate() {
	n := w.Nodes[0]
	primary := w.Read(n.Path(kube.PrimaryConfList))
	before := w.installed(n)
	w.Must(os.Remove(n.Path(kube.PrimaryConfList)))
	w.startsBoth("without-file", n.Name)
	w.untouched(n, before)

	p := w.agentPod(n)
	w.Must(os.Remove(n.Path(ourConflist)))
	w.Must(lab.Eventually(w.Ctx, func() error {
		log, err := w.Logs(w.Ctx, ours+"/"+p.Name, "installer")
		if err == nil && !strings.Contains(log, "there is no CNI configuration of a primary network yet") {
			err = fmt.Errorf("the installer does not wait: %s", log)
		}
		return err
	}))
	w.Must(w.Apply(w.Ctx, pod("waits", n.Name, "blue")))
	w.eventOf("waits", "Warning", "NetworkNotReady", "cni")
	if _, err := os.Stat(n.Path(ourConflist)); !errors.Is(err, fs.ErrNotExist) {
		w.T.Errorf("our conflist without the primary's: %v", err)
	}
	w.Must(n.RewritePrimary(primary))
	w.Must(lab.Eventually(w.Ctx, func() error { _, err := w.confListOf(n); return err }))
	w.made("waits", pod("waits", n.Name, "blue"))
	if len(w.links("waits")) == 1 { // the runtime was faster than the installer
		w.eventOf("waits", "Warning", "NetworksMissing", "")
	}
	w.startsBoth("after", n.Name)
}

// versionRaised: with what the operator says of the runtime, the conflist is raised as far as that and pods start by it. Taken
// back, it is as it was.
func (w *world) versionRaised() {
	before, err := w.confListOf(w.Nodes[0])
	w.Must(err)
	for _, c := range []struct{ patch, version string }{
		{`{"op":"add","path":"/spec/template/spec/containers/1/args/2","value":"--cni-version=1.0.0"}`, "1.0.0"},
		{`{"op":"remove","path":"/spec/template/spec/containers/1/args/2"}`, "0.3.1"},
	} {
		w.Must(w.PatchAgents(w.Ctx, "["+c.patch+"]"))
		for _, n := range w.Nodes {
			w.Must(lab.Eventually(w.Ctx, func() error {
				l, err := w.confListOf(n)
				if want := strings.Replace(before.text, `"cniVersion": "0.3.1"`, fmt.Sprintf(`"cniVersion": %q`, c.version), 1); err == nil && l.text != want {
					err = fmt.Errorf("our conflist of %s is %s, want %s", n.Name, l.text, want)
				}
				return err
			}))
		}
		w.startsBoth("raised", w.Nodes[0].Name)
	}
}

// TestRaisedForContainerd2: a runtime that speaks 1.1.0 and a Flannel that ships 0.3.1. Raised, the runtime asks our plugin for its
// STATUS.
func TestRaisedForContainerd2(t *testing.T) {
	t.Parallel()
	w := installerWorld(t, kube.Options{Nodes: 1, Containerd2: true})
	n := w.Nodes[0]
	w.Must(record(n))
	w.startsBoth("low", n.Name)
	if asked := w.callsOf("STATUS", ""); len(asked) != 0 {
		t.Errorf("STATUS was called %d times by a conflist of 0.3.1", len(asked))
	}
	w.Must(w.PatchAgents(w.Ctx, `[{"op":"add","path":"/spec/template/spec/containers/1/args/-","value":"--cni-version=1.1.0"}]`))
	w.Must(lab.Eventually(w.Ctx, func() error {
		if len(w.callsOf("STATUS", "")) == 0 {
			return errors.New("no STATUS yet")
		}
		return nil
	}))
	if status := w.lastOf("STATUS", ""); status.exit != "0" {
		t.Errorf("STATUS ended with %s: %s", status.exit, status.stdout)
	}
	w.Must(w.Apply(w.Ctx, pod("high", n.Name, "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/high"))
	if got := w.passedOn("high").CNIVersion; got != "1.1.0" {
		t.Errorf("the plugin was called with version %s", got)
	}
}
