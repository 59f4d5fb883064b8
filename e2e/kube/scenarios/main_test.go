//go:build kube

package scenarios

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	nadv1 "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

const networks = "blue,green"

// TestMainJob attaches pods on two nodes of a real cluster, holds kernel, API and NB against each other, and sees that
// nothing is left.
func TestMainJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16","routes":[{"dst":"10.99.0.0/16"}]}`)+
		nad("green", `{"type":"ovn-multinet","subnets":"10.2.0.0/16,fd02::/64","mtu":1400}`)))
	w.Must(w.Apply(w.Ctx, pod("a", "node1", networks)+pod("b", "node2", networks)+pod("plain", "node1", "")))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b", "default/plain"))
	for _, name := range []string{"a", "b"} {
		w.consistent(name, []string{"eth0", "net1", "net2"})
	}
	if links := w.links("plain"); len(links) != 1 {
		t.Errorf("a plain pod has %v", links)
	}
	// The agent logs every request that it serves.
	log := w.agentLog("node1")
	if !strings.Contains(log, "pod=default/a ") || strings.Contains(log, "default/plain") {
		t.Errorf("the agent was to hear of pod a and not of pod plain:\n%s", log)
	}
	for _, want := range []string{"0.0.0.0/0 via 10.244.1.1 dev eth0", "10.99.0.0/16 via 10.1.0.1 dev net1"} {
		if routes := w.routes("a"); !slices.Contains(routes, want) {
			t.Errorf("pod a has the routes %q, want %q among them", routes, want)
		}
	}
	for _, ifName := range []string{"eth0", "net1", "net2"} {
		for _, ip := range w.links("b")[ifName].ips() {
			w.reaches("a", ifName, ip)
		}
	}
	w.eventOf("a", "Normal", "NetworksAttached", "net1 on default/blue "+w.links("a")["net1"].ips()[0])
	w.Must(w.Delete(w.Ctx, pod("a", "node1", networks)+pod("b", "node2", networks)+pod("plain", "node1", "")))
	w.Must(w.WaitGone(w.Ctx, "default/a", "default/b", "default/plain"))
	w.Must(lab.Eventually(w.Ctx, w.nothingLeft))
}

// TestNADAfterPod: kubelet's retry heals a pod that was there before its network, and until then the pod's Events say
// what is missing.
func TestNADAfterPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must(w.Apply(w.Ctx, pod("early", "node1", "late")))
	w.eventOf("early", "Warning", "FailedCreatePodSandBox", "network default/late is not found")
	w.eventOf("early", "Warning", "FailedCreatePodSandBox", "(code 101)")
	w.Must(w.Apply(w.Ctx, nad("late", `{"type":"ovn-multinet","subnets":"10.3.0.0/24"}`)))
	w.Must(w.WaitReady(w.Ctx, "default/early"))
	w.consistent("early", []string{"eth0", "net1"})
}

// consistent holds a pod's network-status against its kernel and its pod IP against Flannel's.
func (w *world) consistent(name string, want []string) {
	links, status := w.links(name), w.status(name)
	if len(links) != len(want) || len(status) != len(want) {
		w.T.Fatalf("pod %s has %d links, %d entries in its status, want %d", name, len(links), len(status), len(want))
	}
	for i, ifName := range want {
		s, l := status[i], links[ifName]
		if s.Interface != ifName || s.Mac != l.MAC || !slices.Equal(s.IPs, l.ips()) || s.Default != (i == 0) {
			w.T.Errorf("pod %s: status %+v, kernel %+v", name, s, l)
		}
		if i > 0 {
			w.inOVN(name, s, l)
		}
	}
	// kubelet tells the API of a new sandbox's address a moment after its start.
	w.Must(lab.Eventually(w.Ctx, func() error {
		p, err := w.Pod(w.Ctx, "default/"+name)
		if err == nil && (len(p.Status.PodIPs) != 1 || p.Status.PodIP != links["eth0"].ips()[0]) {
			err = fmt.Errorf("pod %s has the IPs %v in the API, want Flannel's alone, %v", name, p.Status.PodIPs, links["eth0"].ips())
		}
		return err
	}))
}

// inOVN holds an interface against its port in NB, its plug on the pod's node and that node's journal.
func (w *world) inOVN(name string, s nadv1.NetworkStatus, l link) {
	if s.Mtu != l.MTU {
		w.T.Errorf("pod %s: %s has MTU %d, its status says %d", name, l.Name, l.MTU, s.Mtu)
	}
	// A static pod's own name has the node's at its end, for the runtime too.
	port := "default/" + name + "/" + s.Interface
	out := w.nbctl("--bare", "--columns=addresses", "find", "Logical_Switch_Port", "name="+port)
	if want := strings.Join(append([]string{l.MAC}, l.ips()...), " "); strings.TrimSpace(out) != want {
		w.T.Errorf("port %s in NB has %q, want %q", port, strings.TrimSpace(out), want)
	}
	p := w.getPod("default/" + name)
	n := w.Node(p.Spec.NodeName)
	out, err := n.VSCtl(w.Ctx, "--bare", "--columns=external_ids", "find", "Interface", "external_ids:iface-id="+port)
	w.Must(err)
	if !strings.Contains(out, "ovn-installed=true") {
		w.T.Errorf("plug of %s on %s: %q", port, n.Name, out)
	}
	id := w.sandboxID(n, "default/"+name)
	if _, err := os.Stat(n.Path("/var/lib/cni/ovn-multinet/attached/" + id + "@eth0")); err != nil {
		w.T.Errorf("journal of %s: %v", name, err)
	}
}

// eventOf waits for an Event of a pod or NAD whose message has the words.
func (w *world) eventOf(name, kind, reason, words string) {
	_, namespace, name := at(name)
	w.Must(lab.Eventually(w.Ctx, func() error {
		list, err := w.Client.CoreV1().Events(namespace).List(w.Ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return err
		}
		var seen []string
		for _, e := range list.Items {
			if e.Type == kind && e.Reason == reason && strings.Contains(e.Message, words) {
				return nil
			}
			seen = append(seen, e.Type+" "+e.Reason+": "+e.Message)
		}
		return fmt.Errorf("no Event %s %s with %q; there are: %s", kind, reason, words, strings.Join(seen, "\n"))
	}))
}

// onlyNodes wants of the table of claims that it has nothing but the row of NB's owner, what is accepted of the networks, and
// what nodes say of themselves, each node of the cluster. An older version has no port lists and no rows for networks.
func (w *world) onlyNodes() error {
	nodes, err := w.Client.CoreV1().Nodes().List(w.Ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	want, may := []string{"ovn-multinet cluster"}, map[string]bool{"ovn-multinet smallest mtu": true}
	for _, n := range nodes.Items {
		want = append(want, "ovn-multinet node "+n.Name)
		may["ovn-multinet ports of node "+n.Name] = true
	}
	switches, err := tableOf(w.NBCtl(w.Ctx, "--format=json", "--columns=name", "list", "Logical_Switch"))
	if err != nil {
		return err
	}
	for _, sw := range switches {
		may["ovn-multinet "+sw.text("name")+" accepted"] = true
	}
	claims, err := tableOf(w.NBCtl(w.Ctx, "--format=json", "--columns=name,external_ids", "list", "Copp"))
	if err != nil {
		return err
	}
	var got []string
	for _, row := range claims {
		if strings.HasPrefix(row.text("name"), "ovn-multinet ended connections") { // a node or a network keeps its list
			continue
		}
		if ports := listedPorts(row); !may[row.text("name")] || len(ports) > 0 {
			got = append(got, strings.Join(append([]string{row.text("name")}, ports...), " "))
		}
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		return fmt.Errorf("claims in NB: %q, want %q", got, want)
	}
	return nil
}

// listedPorts are the row keys of ports in a node's port list; none of another row.
func listedPorts(row row) (ports []string) {
	ids := row.ids("external_ids")
	for key := range ids {
		if ids["ovn-multinet/kind"] == "port-list" && !strings.HasPrefix(key, "ovn-multinet/") {
			ports = append(ports, key)
		}
	}
	return ports
}

// nothingLeft looks for what pods could leave: ports in NB, plugs in OVS, journals.
func (w *world) nothingLeft() error {
	out, err := w.NBCtl(w.Ctx, "--bare", "--columns=name", "list", "Logical_Switch_Port")
	if err != nil || strings.TrimSpace(out) != "" {
		return fmt.Errorf("ports in NB: %q, %v", out, err)
	}
	if err := w.onlyNodes(); err != nil {
		return err
	}
	for _, n := range w.Nodes {
		out, err := n.VSCtl(w.Ctx, "--bare", "--columns=name", "find", "Interface", `external_ids:iface-id!=""`)
		if err != nil || strings.TrimSpace(out) != "" {
			return fmt.Errorf("plugs on %s: %q, %v", n.Name, out, err)
		}
		out, err = n.Run(w.Ctx, "find", "/var/lib/cni/ovn-multinet", "-type", "f")
		if err != nil || strings.TrimSpace(out) != "" {
			return fmt.Errorf("journal on %s: %q, %v", n.Name, out, err)
		}
	}
	return nil
}
