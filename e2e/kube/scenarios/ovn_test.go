//go:build kube

package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// ownOVN are the values of a chart that brings OVN and a network. The interface of the tunnels is given by its subnet.
var ownOVN = strings.Replace(kube.OwnOVN, "eth1", "172.30.0.0/16", 1) + "networks: [{name: blue, config: {subnets: 10.1.0.0/16}}]\n"

// webs are pods of TestOVNInTheCluster, one for each node.
var webs = []string{"web-1", "web-2", "web-3"}

// TestOVNInTheCluster installs the chart on nodes without OVN and Open vSwitch. Then a member of the databases loses its
// disk while a herd of pods starts, all nodes lose their power at once, and a node is distrusted: the pods get their
// networks again, and nobody waits for somebody else. In the end the chart is uninstalled, once not to the end.
func TestOVNInTheCluster(t *testing.T) {
	t.Parallel()
	w := bareWorld(t, kube.Options{Nodes: 3, WithoutOVN: true})
	w.Must(w.LoadImages(w.Ctx))
	w.Must(w.InstallChart(w.Ctx, ownOVN))
	w.startsWebs()
	w.neverRestarted()
	w.membersReady()
	w.updatesDatabases()
	w.losesMember()
	w.tools()
	w.upgradesChart()
	w.losesPower()
	w.refusesLargeRequests()
	w.distrusts()
	w.restoresNB()
	w.uninstallsOVN(append(slices.Clone(webs), "later", "newer"))
}

// startsWebs starts a pod on each node, and has them reach each other. The pods name their nodes, so the startup taint
// does not keep them off a node whose conflist is not there yet: such a pod would have no network.
func (w *world) startsWebs() {
	w.T.Helper()
	for i, n := range w.Nodes {
		w.Must(lab.Eventually(w.Ctx, func() error {
			_, err := os.Stat(n.Path(ourConflist))
			return err
		}))
		w.Must(w.Apply(w.Ctx, pod(webs[i], n.Name, "blue")))
	}
	w.Must(w.WaitReady(w.Ctx, "default/web-1", "default/web-2", "default/web-3"))
	w.websReach()
}

// websReach: web-1 reaches the pods of all nodes.
func (w *world) websReach() {
	w.T.Helper()
	for _, to := range webs {
		ips := w.links(to)["net1"].ips()
		if len(ips) == 0 {
			w.T.Errorf("%s has no address on net1", to)
		}
		for _, ip := range ips {
			w.reaches("web-1", "net1", ip)
		}
	}
}

// membersReady waits until all nodes have the databases. A member joins after the one before it; of two, none may be
// lost.
func (w *world) membersReady() {
	w.T.Helper()
	w.Must(lab.Eventually(w.Ctx, func() error {
		for _, n := range w.Nodes {
			if w.podOn("app=ovn-multinet-ovn-central", n.Name) == "" {
				return fmt.Errorf("%s has no databases yet", n.Name)
			}
		}
		return nil
	}))
	for _, n := range w.Nodes {
		w.Must(w.WaitReady(w.Ctx, "ovn-multinet/"+w.podOn("app=ovn-multinet-ovn-central", n.Name)))
	}
}

// losesMember deletes the databases of a node while pods start on all nodes. The member joins anew, each pod gets its
// network, and no two pods have one address.
func (w *world) losesMember() {
	w.T.Helper()
	const herd = 18
	w.membersReady()
	member := w.podOn("app=ovn-multinet-ovn-central", "node2")
	manifests, names := "", []string{}
	for i := range herd {
		name := fmt.Sprint("herd-", i)
		manifests += pod(name, w.Nodes[i%len(w.Nodes)].Name, "blue")
		names = append(names, "default/"+name)
	}
	w.Must(w.Apply(w.Ctx, manifests))
	for _, name := range []string{"nb", "sb"} {
		for _, file := range []string{".db", ".id"} {
			w.Must(os.Remove(w.Nodes[1].Path("/var/lib/ovn-multinet/ovn/" + name + file)))
		}
	}
	w.kubectl("--namespace", "ovn-multinet", "delete", "pod", member, "--grace-period=0", "--force")
	w.Must(lab.Eventually(w.Ctx, func() error {
		now := w.podOn("app=ovn-multinet-ovn-central", "node2")
		if now == "" || now == member {
			return fmt.Errorf("node2 has the pod %q", now)
		}
		return nil
	}))
	w.Must(w.WaitReady(w.Ctx, append(names, "ovn-multinet/"+w.podOn("app=ovn-multinet-ovn-central", "node2"))...))
	holders := map[string]string{}
	for _, name := range append(names, "default/web-1", "default/web-2", "default/web-3") {
		_, _, short := at(name)
		for _, ip := range w.links(short)["net1"].ips() {
			if other := holders[ip]; other != "" {
				w.T.Errorf("%s and %s both have %s", other, short, ip)
			}
			holders[ip] = short
		}
	}
	if len(holders) != herd+len(webs) {
		w.T.Errorf("%d pods have addresses, want %d", len(holders), herd+len(webs))
	}
	w.Must(w.Delete(w.Ctx, manifests))
	w.Must(w.WaitGone(w.Ctx, names...))
	w.Must(w.Apply(w.Ctx, pod("later", "node2", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/later"))
}

// updatesDatabases starts the pods of all members again, one after the other, while pods start. Each leader names the
// next one before it ends, so nobody waits for an election timer.
func (w *world) updatesDatabases() {
	w.T.Helper()
	manifests, names := "", []string{}
	for i := range 6 {
		name := fmt.Sprint("meanwhile-", i)
		manifests += pod(name, w.Nodes[i%len(w.Nodes)].Name, "blue")
		names = append(names, "default/"+name)
	}
	w.Must(w.Apply(w.Ctx, manifests))
	for _, n := range w.Nodes {
		old := w.podOn("app=ovn-multinet-ovn-central", n.Name)
		w.kubectl("--namespace", ours, "delete", "pod", old)
		w.membersReady()
		if now := w.podOn("app=ovn-multinet-ovn-central", n.Name); now == old {
			w.T.Errorf("pod %s was not started again", old)
		}
	}
	w.Must(w.WaitReady(w.Ctx, names...))
	for container, database := range map[string]string{"nb": "OVN_Northbound", "sb": "OVN_Southbound"} {
		w.until(func() error {
			said := ""
			for _, n := range w.Nodes {
				member := ours + "/" + w.podOn("app=ovn-multinet-ovn-central", n.Name)
				text := w.exec(member, container, "/usr/bin/ovs-appctl", "-t", "/run/ovn/"+container+".ctl", "cluster/status", database)
				if strings.Contains(text, "Role: leader") && strings.Contains(text, "reason: leadership_transfer") {
					return nil
				}
				said += text
			}
			return fmt.Errorf("no leader of %s by a hand-over: %s", database, said)
		})
	}
	w.Must(w.Delete(w.Ctx, manifests))
	w.Must(w.WaitGone(w.Ctx, names...))
}

// upgradesChart changes values of agents and controllers, and rolls the change back: pods of two nodes reach each other
// all the time. One of the values keeps the controllers off a node.
func (w *world) upgradesChart() {
	w.T.Helper()
	const agent = "app=ovn-multinet-agent"
	done := w.keepsReaching("web-1", "net1", w.links("web-3")["net1"].ips()[0])
	before := w.podOn(agent, "node1")
	w.Must(w.InstallChart(w.Ctx, ownOVN+"agent: {reconcilePeriod: 2s}\ncontroller: {orphanPeriod: 2s, nodes: 'kubernetes.io/hostname!=node1, !gpu'}\n"))
	w.Must(w.WaitRollout(w.Ctx))
	w.Must(lab.Eventually(w.Ctx, func() error {
		if pods := w.podOn("app=ovn-multinet-controller", "node1"); pods != "" {
			return fmt.Errorf("controller.nodes excludes node1, which has %s", pods)
		}
		return nil
	}))
	upgraded := w.podOn(agent, "node1")
	_, err := w.Helm(w.Ctx, "rollback", "ovn-multinet")
	w.Must(err)
	w.Must(w.WaitRollout(w.Ctx))
	done()
	if after := w.podOn(agent, "node1"); before == upgraded || upgraded == after {
		w.T.Errorf("node1 had the agents %s, %s and %s: the upgrade or the rollback changed nothing", before, upgraded, after)
	}
}

// losesPower: all nodes lose their power at once, for longer than their certificates are valid. The pods start again, with
// their addresses.
func (w *world) losesPower() {
	w.T.Helper()
	addresses := w.links("web-3")["net1"].ips()
	expire := w.expires()
	w.Must(w.Reboot(w.Ctx, kube.RebootOptions{WhileOff: expire}, w.Nodes...))
	w.Must(lab.Eventually(w.Ctx, func() error {
		for _, name := range append(slices.Clone(webs), "later") {
			p := w.getPod("default/" + name)
			if len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].RestartCount == 0 ||
				!p.Status.ContainerStatuses[0].Ready {
				return fmt.Errorf("pod %s does not run again", name)
			}
		}
		return nil
	}))
	w.websReach()
	if now := w.links("web-3")["net1"].ips(); !slices.Equal(now, addresses) {
		w.T.Errorf("after the reboot web-3 has %v, before %v", now, addresses)
	}
}

// restoresNB makes a backup, attaches another pod, and restores the backup: the pod keeps its port.
func (w *world) restoresNB() {
	w.T.Helper()
	member := "ovn-multinet/" + w.podOn("app=ovn-multinet-ovn-central", "node1")
	const program = "/ovn-multinet-ovn"
	file := filepath.Join(w.T.TempDir(), "nb.backup")
	w.multinet("backup", file)
	text, err := os.ReadFile(file)
	w.Must(err)
	backup := string(text)
	w.Must(w.Apply(w.Ctx, pod("newer", "node2", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/newer"))
	ports := func() bool {
		return strings.Contains(w.exec(member, "nb", program, "backup"), `"default/newer/net1"`)
	}
	if strings.Contains(backup, `"default/newer/net1"`) || !ports() {
		w.T.Fatal("the backup before the pod has its port, or the one after it does not")
	}
	w.Must(os.WriteFile(file+".half", text[:len(text)/2], 0o600))
	if out, err := w.Multinet(w.Ctx, "restore", file+".half"); err == nil || !ports() {
		w.T.Fatalf("half a backup was restored: %v %s", err, out)
	}
	w.multinet("restore", file)
	w.Must(lab.Eventually(w.Ctx, func() error {
		if !ports() {
			return errors.New("the port of a running pod is not back in NB")
		}
		return nil
	}))
	w.websReach()
	w.reaches("newer", "net1", w.links("web-1")["net1"].ips()[0])
	if text := w.multinet("network", "show", "default/blue"); !strings.Contains(text, "newer") {
		w.T.Errorf("kubectl multinet network show:\n%s", text)
	}
}

// uninstallsOVN has Helm uninstall the chart: it refuses this while pods use the chart's network, and then leaves nodes
// with nothing of OVN that start pods.
func (w *world) uninstallsOVN(pods []string) {
	w.T.Helper()
	const refusal = "5 pods use the networks of the release: delete them first: default/later"
	if _, err := w.Helm(w.Ctx, "uninstall", "ovn-multinet"); err == nil || !strings.Contains(err.Error(), refusal) {
		w.T.Fatalf("helm uninstall while pods have networks: %v", err)
	}
	rights := w.kubectl("get", "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts", "--all-namespaces", "--output",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name} {end}`)
	if strings.Contains(rights, "/ovn-multinet-uninstall ") || strings.Contains(rights, "ServiceAccount/uninstall ") {
		w.T.Errorf("after an uninstall that failed its rights stay: %s", rights)
	}
	w.reaches("web-1", "net1", w.links("web-3")["net1"].ips()[0])
	w.kubectl(append([]string{"delete", "pod", "--grace-period=0"}, pods...)...)
	w.abortsUninstall()
	if out, err := w.Helm(w.Ctx, "uninstall", "ovn-multinet", "--timeout=15m"); err != nil {
		w.T.Fatalf("%v\n%s", err, out)
	}
	if nads := w.kubectl("get", "net-attach-def", "--all-namespaces", "--output", "name"); nads != "" {
		w.T.Errorf("after the uninstall there is %s", nads)
	}
	w.Must(lab.Eventually(w.Ctx, func() error {
		names := w.kubectl("--namespace", "ovn-multinet", "get", "pods,configmaps,secrets,jobs,serviceaccounts", "--output", "name")
		if names = strings.TrimSpace(names); names != "configmap/kube-root-ca.crt\nserviceaccount/default" {
			return fmt.Errorf("the namespace has %s", names)
		}
		return nil
	}))
	for i, n := range w.Nodes {
		w.cleanNode(n)
		name := fmt.Sprint("plain-", i+1)
		w.Must(w.Apply(w.Ctx, pod(name, n.Name, "")))
		w.Must(w.WaitReady(w.Ctx, "default/"+name))
		w.hasLinks(name, 1)
	}
}

// abortsUninstall kills Helm when an uninstall is done with two of the nodes. A rollback restores the release, and the
// uninstall ends.
func (w *world) abortsUninstall() {
	w.T.Helper()
	before := w.specs()
	stuck := w.podOn("app=ovn-multinet-ovn-node", "node3")
	finalizers := func(list string) {
		w.kubectl("--namespace", ours, "patch", "pod", stuck, "--type=merge", `--patch={"metadata":{"finalizers":`+list+`}}`)
	}
	finalizers(`["example.com/stuck"]`)
	ctx, kill := context.WithCancel(w.Ctx)
	defer kill()
	ended := make(chan error)
	go func() {
		_, err := w.Helm(ctx, "uninstall", "ovn-multinet", "--timeout=15m")
		ended <- err
	}()
	for _, n := range w.Nodes[:2] {
		w.Must(lab.Eventually(w.Ctx, func() error {
			files, err := os.ReadDir(n.Path("/var/lib/ovn-multinet"))
			if err == nil && len(files) > 0 {
				err = fmt.Errorf("%s still has %v", n.Name, files)
			}
			return err
		}))
	}
	kill()
	if err := <-ended; err == nil {
		w.T.Fatal("helm uninstall ended while a node had OVN")
	}
	if err := w.InstallChart(w.Ctx, ownOVN); err == nil || !strings.Contains(err.Error(), "has no deployed releases") {
		w.T.Errorf("helm upgrade after an uninstall that did not end: %v", err)
	}
	_, err := w.Helm(w.Ctx, "rollback", "ovn-multinet", w.revision())
	w.Must(err)
	finalizers("[]")
	w.Must(lab.Eventually(w.Ctx, func() error {
		log, err := w.Kubectl(w.Ctx, "--namespace", ours, "logs", "job/uninstall")
		if err == nil && !strings.Contains(log, "the release was restored during the uninstall") {
			err = fmt.Errorf("the uninstall goes on: %s", log)
		}
		return err
	}))
	if after := w.specs(); after != before {
		w.T.Errorf("before the uninstall:\n%s\nrestored:\n%s", before, after)
	}
	w.startsWebs()
	w.kubectl(append([]string{"delete", "pod", "--grace-period=0"}, webs...)...)
}

// specs are the specs of our DaemonSets and Deployments, as text.
func (w *world) specs() string {
	return w.kubectl("--namespace", ours, "get", "daemonsets,deployments", "--output",
		`jsonpath={range .items[*]}{.metadata.name} {.spec}{"\n"}{end}`)
}

// revision is the number of the release's last revision.
func (w *world) revision() string {
	out, err := w.Helm(w.Ctx, "status", "ovn-multinet", "--output=json")
	w.Must(err)
	var release struct{ Version int }
	w.Must(json.Unmarshal([]byte(out), &release))
	return strconv.Itoa(release.Version)
}

// cleanNode fails if a node has a process, a link, a file, a label or a taint of ours or of OVN.
func (w *world) cleanNode(n *kube.Node) {
	w.T.Helper()
	for _, file := range []string{ourConflist, ourPlugin, "/run/openvswitch/db.sock", "/run/openvswitch/ovs-vswitchd.pid"} {
		w.isThere(n, file, false)
	}
	files, err := os.ReadDir(n.Path("/var/lib/ovn-multinet"))
	if err != nil || len(files) > 0 {
		w.T.Errorf("%s: /var/lib/ovn-multinet has %v, %v", n.Name, files, err)
	}
	links := w.on(n, "ip", "-brief", "address")
	if !regexp.MustCompile(`(?m)^eth1\S* +UP +[0-9.]+/\d+`).MatchString(links) || strings.Contains(links, "br-") {
		w.T.Errorf("%s has the links\n%s", n.Name, links)
	}
	if node := w.kubectl("get", "node", n.Name, "--output", "jsonpath={.metadata.labels}{.spec.taints}"); strings.Contains(node, "ovn-multinet") {
		w.T.Errorf("%s has %s", n.Name, node)
	}
}

// podOn is the name of one of our pods on a node; "": there is none.
func (w *world) podOn(labels, node string) string {
	return w.kubectl("--namespace", "ovn-multinet", "get", "pods", "--selector", labels,
		"--field-selector", "spec.nodeName="+node, "--output", "jsonpath={.items[*].metadata.name}")
}
