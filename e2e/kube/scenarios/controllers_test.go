//go:build kube

package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

const (
	ours      = "ovn-multinet" // the product's namespace
	leaseName = "ovn-multinet-controller"
)

// lease changes the Lease that controllers compete for, and returns it; change may be nil.
func (w *world) lease(change func(*coordv1.LeaseSpec)) *coordv1.Lease {
	leases := w.Client.CoordinationV1().Leases(ours)
	var lease *coordv1.Lease
	w.Must(lab.Eventually(w.Ctx, func() (err error) { // a controller may write at the same time
		lease, err = leases.Get(w.Ctx, leaseName, metav1.GetOptions{})
		if err != nil || change == nil {
			return err
		}
		change(&lease.Spec)
		lease, err = leases.Update(w.Ctx, lease, metav1.UpdateOptions{})
		return err
	}))
	return lease
}

// leads reports whether the process that runs in a controller's pod has led.
func (w *world) leads(p *corev1.Pod) (bool, error) {
	log, err := w.Logs(w.Ctx, ours+"/"+p.Name, "controller")
	return strings.Contains(log, "msg=leading"), err
}

// leader waits for a controller that leads, other than those of the pods.
func (w *world) leader(others ...*corev1.Pod) *corev1.Pod {
	var leader *corev1.Pod
	w.Must(lab.Eventually(w.Ctx, func() error {
		list, err := w.Client.CoreV1().Pods(ours).List(w.Ctx, metav1.ListOptions{LabelSelector: "app=ovn-multinet-controller"})
		if err != nil {
			return err
		}
		for i := range list.Items {
			p := &list.Items[i]
			other := false
			for _, o := range others {
				other = other || o.UID == p.UID
			}
			if other || p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].State.Running == nil {
				continue
			}
			if yes, err := w.leads(p); err == nil && yes {
				leader = p
				return nil
			}
		}
		return fmt.Errorf("of %d controllers none leads", len(list.Items))
	}))
	return leader
}

// signal sends one to the process of a controller or an agent.
func (w *world) signal(p *corev1.Pod, signal string) {
	w.Must(w.Node(p.Spec.NodeName).Signal(w.Ctx, ours+"/"+p.Name, p.Spec.Containers[0].Name, signal))
}

// TestControllers takes the two controllers through what ends a leader, and has the leader clean up what pods and
// nodes leave that are gone for good.
func TestControllers(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, kube.Options{Nodes: 2, MayHang: true}, "OVN_MULTINET_ORPHAN_PERIOD: 1s")
	w.Must(w.Apply(w.Ctx, nad("red", `{"type":"ovn-multinet","subnets":"10.7.0.0/16"}`)+pod("a", "node1", "red")+pod("b", "node2", "red")))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b"))
	w.run("leader killed", (*world).leaderKilled)
	w.run("leader stopped for a while", (*world).leaderStopped)
	w.run("pod gone, agent not there", (*world).podGone)
	w.run("node gone", (*world).nodeGone)
	w.Must(w.Delete(w.Ctx, pod("a", "node1", "red")+pod("b", "node2", "red")))
	w.deleteNAD("red")
	w.nadGone("red", "default/red")
	w.Must(lab.Eventually(w.Ctx, w.nothingLeft))
}

// works sees that someone leads: a new network is made, and takes pods.
func (w *world) works(network, subnet string) {
	w.Must(w.Apply(w.Ctx, nad(network, fmt.Sprintf(`{"type":"ovn-multinet","subnets":%q}`, subnet))))
	w.becomes(network, true, "")
	pods := pod(network+"-1", "node1", network) + pod(network+"-2", "node2", network)
	w.Must(w.Apply(w.Ctx, pods))
	w.Must(w.WaitReady(w.Ctx, "default/"+network+"-1", "default/"+network+"-2"))
	w.reaches(network+"-1", "net1", w.links(network + "-2")["net1"].ips()[0])
	w.Must(w.Delete(w.Ctx, pods))
	w.deleteNAD(network)
	w.nadGone(network, "default/"+network)
}

// leaderKilled: another process has the Lease and goes on.
func (w *world) leaderKilled() {
	leader := w.leader()
	before := *w.lease(nil).Spec.HolderIdentity
	w.signal(leader, "SIGKILL")
	w.Must(lab.Eventually(w.Ctx, func() error {
		if now := w.lease(nil).Spec.HolderIdentity; now == nil || *now == "" || *now == before {
			return fmt.Errorf("the Lease is %s's still, whose process was killed", before)
		}
		return nil
	}))
	w.works("taken-over", "10.8.0.0/16")
}

// leaderStopped: a leader that was stopped for a while does not know that it leads no more. It writes nothing then,
// neither to NB nor on a NAD.
func (w *world) leaderStopped() {
	w.Must(w.Apply(w.Ctx, nad("edited", `{"type":"ovn-multinet","subnets":"10.9.0.0/16"}`)))
	before := w.becomes("edited", true, "")
	first := w.leader()
	w.signal(first, "SIGSTOP")
	second := w.leader(first)
	w.signal(second, "SIGSTOP")
	w.takeLease() // from here on nobody leads
	switches := w.rows("Logical_Switch", "name")
	inForce := w.rows("Logical_Switch", "external_ids", "name=default/edited")
	w.Must(w.Apply(w.Ctx, nad("edited", `{"type":"ovn-multinet","subnets":"10.9.0.0/16","mtu":1300}`)+
		nad("made", `{"type":"ovn-multinet","subnets":"10.10.0.0/16"}`)))
	for _, p := range []*corev1.Pod{first, second} {
		w.signal(p, "SIGCONT")
		w.endsAsNoLeader(p)
	}
	if now := w.rows("Logical_Switch", "name"); fmt.Sprint(now) != fmt.Sprint(switches) {
		w.T.Errorf("logical switches are %q, were %q: a controller wrote that does not lead", now, switches)
	}
	if now := w.rows("Logical_Switch", "external_ids", "name=default/edited"); fmt.Sprint(now) != fmt.Sprint(inForce) {
		w.T.Errorf("a controller wrote that does not lead: %q, was %q", now, inForce)
	}
	if n, err := w.nad("edited"); err != nil || n.Annotations[stateAnnotation] != before.Annotations[stateAnnotation] {
		w.T.Errorf("a controller that does not lead wrote on NAD edited: %+v, %v", n, err)
	}
	if n, err := w.nad("made"); err != nil || entry(n) != "nothing []" {
		w.T.Errorf("a controller that does not lead wrote on NAD made: %+v, %v", n, err)
	}
	w.lease(func(s *coordv1.LeaseSpec) { s.HolderIdentity, s.LeaseDurationSeconds = new(""), new(int32(1)) })
	w.becomes("made", true, "")
	w.deleteNAD("made")
	w.deleteNAD("edited")
	w.nadGone("made", "default/made")
	w.nadGone("edited", "default/edited")
	w.works("led-again", "10.11.0.0/16")
}

// takeLease takes the Lease from a leader that does not renew it, as any candidate does: when it has seen it unchanged
// for as long as it lasts.
func (w *world) takeLease() {
	seen, held := time.Now(), w.lease(nil).Spec
	w.Must(lab.Eventually(w.Ctx, func() error {
		if lasts := time.Duration(*held.LeaseDurationSeconds) * time.Second; time.Since(seen) <= lasts {
			return fmt.Errorf("the Lease is %s's yet", *held.HolderIdentity)
		}
		return nil
	}))
	w.lease(func(s *coordv1.LeaseSpec) {
		if !s.RenewTime.Equal(held.RenewTime) {
			w.T.Fatalf("%s renews the Lease", *s.HolderIdentity)
		}
		s.HolderIdentity, s.LeaseDurationSeconds = new("test"), new(int32(3600))
		s.RenewTime = new(metav1.NowMicro())
	})
}

// endsAsNoLeader waits until a controller's process has ended because the Lease was lost, and another in its place
// waits for the test to give the Lease back.
func (w *world) endsAsNoLeader(p *corev1.Pod) {
	id := ours + "/" + p.Name
	w.Must(w.WaitRestarted(w.Ctx, id, "controller", p.Status.ContainerStatuses[0].RestartCount))
	log := w.kubectl("--namespace="+ours, "logs", "--previous", p.Name)
	if !strings.Contains(log, "does not lead any more") {
		w.T.Errorf("the log of a leader that lost the Lease:\n%s", log)
	}
	w.Must(lab.Eventually(w.Ctx, func() error {
		log, err := w.Logs(w.Ctx, id, "controller")
		if err == nil && !strings.Contains(log, "leader=test") {
			err = fmt.Errorf("%s does not wait for the Lease:\n%s", id, log)
		}
		return err
	}))
}

// podGone: a pod is deleted by force while its node's agent does not answer. Its port holds its network no longer than
// it takes to see it twice, and the ports of pods that live stay.
func (w *world) podGone() {
	w.Must(w.Apply(w.Ctx, nad("left", `{"type":"ovn-multinet","subnets":"10.12.0.0/16"}`)+pod("lost", "node1", "left")))
	w.Must(w.WaitReady(w.Ctx, "default/lost"))
	live := w.livePorts()
	w.deleteNAD("left")
	w.becomes("left", false, "being deleted, used by pod default/lost")
	list, err := w.Client.CoreV1().Pods(ours).List(w.Ctx, metav1.ListOptions{LabelSelector: "app=ovn-multinet-agent", FieldSelector: "spec.nodeName=node1"})
	w.Must(err)
	agent := &list.Items[0]
	w.signal(agent, "SIGSTOP")
	w.kubectl("delete", "pod", "lost", "--grace-period=0", "--force", "--wait=false")
	w.nadGone("left", "default/left")
	if now := w.livePorts(); len(live) != 2 || !slices.Equal(now, live) {
		w.T.Errorf("ports of the two living pods are %q, were %q", now, live)
	}
	w.reaches("a", "net1", w.links("b")["net1"].ips()[0])
	w.signal(agent, "SIGCONT")
	w.Must(w.WaitGone(w.Ctx, "default/lost"))
	w.made("again", pod("again", "node1", "red"))
	w.reaches("again", "net1", w.links("b")["net1"].ips()[0])
}

// livePorts lists the ports of network red, each as "NAME,ROW KEY".
func (w *world) livePorts() []string {
	out, err := w.NBCtl(w.Ctx, "--format=csv", "--no-headings", "--data=bare", "--columns=name,_uuid",
		"find", "Logical_Switch_Port", "external_ids:ovn-multinet/network=default/red")
	w.Must(err)
	ports := strings.Fields(out)
	slices.Sort(ports)
	return ports
}

// nodeGone: a node's kubelet does not answer and the node is deleted from the cluster. The ports of its pods are
// released, those of others are not. When it comes back, its kubelet ends what is left on it.
func (w *world) nodeGone() {
	live := w.livePorts()
	w.Must(w.Apply(w.Ctx, nad("far", `{"type":"ovn-multinet","subnets":"10.13.0.0/16"}`)+pod("stranded", "node2", "far")))
	w.Must(w.WaitReady(w.Ctx, "default/stranded"))
	w.deleteNAD("far")
	w.becomes("far", false, "being deleted, used by pod default/stranded")
	// Kubernetes deletes the pods of such a node too, sooner or later: it is not to be that.
	w.finalizers(`["example.com/hold"]`, "stranded", "b")
	n := w.Node("node2")
	w.Must(n.Leave(w.Ctx))
	w.nadGone("far", "default/far")
	want := slices.DeleteFunc(live, func(port string) bool { return strings.HasPrefix(port, "default/b/net1,") })
	w.Must(lab.Eventually(w.Ctx, func() error {
		if now := w.livePorts(); len(want) != 1 || !slices.Equal(now, want) {
			return fmt.Errorf("ports are %q with node2 gone, want %q", now, want)
		}
		return nil
	}))
	w.finalizers("null", "stranded", "b")
	for _, name := range []string{"stranded", "b"} {
		w.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--ignore-not-found", "--wait=false")
	}
	w.Must(n.Rejoin(w.Ctx))
	w.made("back", pod("back", "node2", "red"))
	w.reaches("back", "net1", w.links("a")["net1"].ips()[0])
}

// finalizers sets those of pods, in JSON.
func (w *world) finalizers(list string, pods ...string) {
	for _, name := range pods {
		_, err := w.Client.CoreV1().Pods("default").Patch(w.Ctx, name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{})
		w.Must(err)
	}
}
