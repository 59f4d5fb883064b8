//go:build kube

package scenarios

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// part is something that pods with networks depend on, and that ends and is started again.
type part struct {
	name string
	kill func() // without a word, as a crash does
	stop func() // in order; nil: nothing else than kill
	back func() // returns when it is there again
	once bool   // it takes its time: each way to end is tried once
	cuts bool   // packets may be lost until it is back
	api  bool   // without it nothing can be asked of Kubernetes
}

// matrix is a cluster whose two pods ping each other while its parts are restarted.
type matrix struct {
	*world
	ovn     []*stream
	flannel *stream
}

// TestRestarts ends every part of a cluster several times in a row and starts it again. Pods that run do not notice, or
// regain their networks without a hand; new ones start, and leave nothing. Then all of it again in any order, with a
// pod being made or deleted in the middle of each.
func TestRestarts(t *testing.T) {
	t.Parallel()
	// At first nobody cleans up behind: every DEL takes away all that there was.
	w := newWorld(t, "OVN_MULTINET_RECONCILE_PERIOD: 1h", "OVN_MULTINET_ORPHAN_PERIOD: 1h")
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+
		nad("green", `{"type":"ovn-multinet","subnets":"10.2.0.0/16,fd02::/64"}`)))
	w.Must(w.Apply(w.Ctx, pod("a", "node1", networks)+pod("b", "node2", networks)))
	w.Must(w.WaitReady(w.Ctx, "default/a", "default/b"))
	before := w.lives("a", "b")
	a, b := w.links("a"), w.links("b")
	m := &matrix{world: w}
	m.ovn = []*stream{w.stream("a", "net1", b["net1"].ips()[0]), w.stream("b", "net2", a["net2"].ips()[1])}
	m.flannel = w.stream("a", "eth0", b["eth0"].ips()[0])
	parts := m.parts("node1")
	for i, p := range parts {
		m.next(p.name, func(m *matrix) { m.inARow(i) })
	}
	m.next("agents that look again and again", (*matrix).lookOften)
	for _, which := range rand.Perm(len(parts)) {
		m.next("at random: "+parts[which].name, func(m *matrix) { m.inTheMiddle(which) })
	}
	if after := w.lives("a", "b"); after != before {
		t.Errorf("pods are\n%swere\n%s", after, before)
	}
	w.Must(w.Delete(w.Ctx, pod("made", "node2", networks)))
	w.Must(w.WaitGone(w.Ctx, "default/made"))
	w.until(func() error { return w.exact() })
}

// next runs a part of the test, and is the end if that fails: who comes after it would only fail of the same.
func (m *matrix) next(name string, part func(*matrix)) {
	m.run(name, func(w *world) { part(&matrix{world: w, ovn: m.ovn, flannel: m.flannel}) })
	if m.T.Failed() {
		m.T.FailNow()
	}
}

// lives says which pods these are, with their sandboxes and the starts of their containers.
func (w *world) lives(pods ...string) string {
	text := ""
	for _, name := range pods {
		p := w.getPod("default/" + name)
		sandbox, err := w.Node(p.Spec.NodeName).SandboxID(w.Ctx, "default/"+name)
		w.Must(err)
		text += fmt.Sprintf("%s %s %s %d\n", name, p.UID, sandbox, p.Status.ContainerStatuses[0].RestartCount)
	}
	return text
}

// inARow ends a part again and again, and looks after each time at the world, and at the end at a pod's life.
func (m *matrix) inARow(which int) {
	p := m.parts("node1")[which]
	m.settle()
	ends := []func(){p.kill, p.stop, p.kill}
	if p.once {
		ends = ends[:2]
	}
	for _, end := range ends {
		if end == nil {
			end = p.kill
		}
		end()
		p.back()
		m.unhurt(p)
		m.until(func() error { return m.exact() })
	}
	// From here on a packet may be lost: a userspace datapath drops some while it takes a port in or out.
	manifest := pod("new", "node1", networks)
	m.Must(m.Apply(m.Ctx, manifest))
	m.Must(m.WaitReady(m.Ctx, "default/new"))
	m.until(func() error { return m.exact() })
	m.reaches("new", "net1", m.ovn[0].to.String())
	m.Must(m.Delete(m.Ctx, manifest))
	m.until(func() error { return m.exact() })
}

// inTheMiddle ends a part, and while it is away a pod is made, or the one that was made before is deleted.
func (m *matrix) inTheMiddle(which int) {
	p := m.parts("node2")[which]
	_, err := m.Pod(m.Ctx, "default/made")
	absent := apierrors.IsNotFound(err)
	manifest := pod("made", "node2", networks)
	change := func() {
		if absent {
			m.Must(m.Apply(m.Ctx, manifest))
		} else {
			m.Must(m.Client.CoreV1().Pods("default").Delete(m.Ctx, "made", metav1.DeleteOptions{}))
		}
	}
	if p.api {
		change()
		p.kill()
	} else {
		p.kill()
		change()
	}
	p.back()
	if absent {
		m.Must(m.WaitReady(m.Ctx, "default/made"))
	} else {
		m.Must(m.WaitGone(m.Ctx, "default/made"))
	}
	m.settle()
	m.until(func() error { return m.exact() })
}

// lookOften has the agents find soon what no DEL comes for: a runtime that is killed during an ADD forgets the sandbox.
func (m *matrix) lookOften() {
	_, err := m.Kubectl(m.Ctx, "--namespace", ours, "patch", "configmap", "ovn-multinet", "--type=merge", "--patch",
		`{"data":{"OVN_MULTINET_RECONCILE_PERIOD":"2s"}}`)
	m.Must(err)
	m.Must(m.Client.CoreV1().Pods(ours).DeleteCollection(m.Ctx, metav1.DeleteOptions{}, agents))
	m.runningOf("the agent", agents, len(m.Nodes))
}

// settle sees that packets arrive again; what was lost until now does not count.
func (m *matrix) settle() {
	m.Must(m.flannel.comesBack(m.Ctx))
	for _, s := range m.ovn {
		m.Must(s.comesBack(m.Ctx))
	}
}

// unhurt sees that no packet was lost, or that packets arrive again.
func (m *matrix) unhurt(p part) {
	keep := []*stream{m.flannel}
	if !p.cuts {
		keep = append(keep, m.ovn...)
	}
	for _, s := range keep {
		if err := s.lostNothing(m.Ctx); err != nil {
			m.T.Errorf("%s: %v", p.name, err)
		}
	}
	m.settle()
}

// parts are all parts, those of the node among them.
func (m *matrix) parts(node string) []part {
	n := m.Node(node)
	all := []part{
		m.process("ovs-vswitchd", true, n.VSwitchd),
		m.process("the node's ovsdb-server", true, n.OVSDB),
		m.process("ovs-vswitchd and the node's ovsdb-server", true, n.OVSDB, n.VSwitchd),
		m.process("ovn-controller", true, n.OVNController),
		m.process("northd", false, m.Northd),
		m.process("NB", false, m.NB),
		m.process("SB", false, m.SB),
		m.process("kubelet", false, n.Kubelet),
		{
			name: "containerd", kill: func() { m.Must(n.KillContainerd()) }, stop: func() { m.Must(n.Containerd.Stop(m.Ctx)) },
			back: func() { m.Must(n.StartContainerd(m.Ctx)) },
		},
		m.apiServer(),
		m.container("agent", n, "agent"),
		m.container("installer", n, "installer"),
	}
	return append(all, m.controllers()...)
}

// process is a part of one process or several, which are started in their order.
func (m *matrix) process(name string, cuts bool, processes ...*lab.Process) part {
	return part{
		name: name, cuts: cuts,
		kill: func() {
			for _, p := range processes {
				m.Must(p.Kill())
			}
		},
		stop: func() {
			for _, p := range processes {
				m.Must(p.Stop(m.Ctx))
			}
		},
		back: func() {
			for _, p := range processes {
				m.Must(p.Restart(m.Ctx))
			}
		},
	}
}

func (m *matrix) apiServer() part {
	p := m.process("API server", false, m.APIServer)
	p.api, p.once, p.stop = true, true, nil // in order it takes longer than a machine gives it
	return p
}

// agentOn is the agent's pod on a node, when it runs.
func (w *world) agentOn(node string) *corev1.Pod {
	return w.runningOf("the agent", metav1.ListOptions{LabelSelector: agents.LabelSelector, FieldSelector: "spec.nodeName=" + node}, 1)[0]
}

// runningOf waits until so many pods of the product's, and no other ones, run.
func (w *world) runningOf(what string, which metav1.ListOptions, count int) []*corev1.Pod {
	var pods []*corev1.Pod
	w.until(func() error {
		list, err := w.Client.CoreV1().Pods(ours).List(w.Ctx, which)
		if err != nil {
			return err
		}
		pods = nil
		for i := range list.Items {
			p := &list.Items[i]
			ready := len(p.Status.ContainerStatuses) > 0 && p.DeletionTimestamp == nil
			for _, c := range p.Status.ContainerStatuses {
				ready = ready && c.State.Running != nil
			}
			if ready {
				pods = append(pods, p)
			}
		}
		if len(pods) != count || len(list.Items) != count {
			return fmt.Errorf("of %d pods of %s %d run, want %d", len(list.Items), what, len(pods), count)
		}
		return nil
	})
	return pods
}

// container is a container of the agent's pod. Its stop is the pod's end, after which there is a new one: a container that ends
// twice in a row is kept waiting by kubelet.
func (m *matrix) container(name string, n *kube.Node, container string) part {
	var before *corev1.Pod
	restarts := func(p *corev1.Pod) int32 {
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == container {
				return c.RestartCount
			}
		}
		return 0
	}
	return part{
		name: name,
		kill: func() {
			before = m.agentOn(n.Name)
			m.Must(n.Signal(m.Ctx, ours+"/"+before.Name, container, "SIGKILL"))
		},
		stop: func() {
			before = m.agentOn(n.Name)
			m.Must(m.Client.CoreV1().Pods(ours).Delete(m.Ctx, before.Name, metav1.DeleteOptions{}))
		},
		back: func() {
			m.until(func() error {
				if now := m.agentOn(n.Name); now.UID == before.UID && restarts(now) == restarts(before) {
					return fmt.Errorf("%s was not started again", container)
				}
				return nil
			})
		},
	}
}

// controllers are the parts that the controllers make: the one that leads, the one that waits, both.
func (m *matrix) controllers() []part {
	which := metav1.ListOptions{LabelSelector: "app=ovn-multinet-controller"}
	of := func(name string, pick func(leader, candidate *corev1.Pod) []*corev1.Pod) part {
		var ended []*corev1.Pod
		picked := func() {
			leader := m.leader()
			pods := m.runningOf("the controller", which, 2)
			candidate := pods[0]
			if candidate.UID == leader.UID {
				candidate = pods[1]
			}
			ended = pick(leader, candidate)
		}
		return part{
			name: name, once: true,
			kill: func() {
				picked()
				for _, p := range ended {
					m.signal(p, "SIGKILL")
				}
			},
			stop: func() {
				picked()
				for _, p := range ended {
					m.Must(m.Client.CoreV1().Pods(ours).Delete(m.Ctx, p.Name, metav1.DeleteOptions{}))
				}
			},
			back: func() {
				for _, p := range ended {
					m.until(func() error { return m.startedAgain(p) })
				}
				m.runningOf("the controller", which, 2)
				m.leader()
			},
		}
	}
	return []part{
		of("controller that leads", func(leader, _ *corev1.Pod) []*corev1.Pod { return []*corev1.Pod{leader} }),
		of("controller that waits", func(_, candidate *corev1.Pod) []*corev1.Pod { return []*corev1.Pod{candidate} }),
		of("both controllers", func(leader, candidate *corev1.Pod) []*corev1.Pod { return []*corev1.Pod{leader, candidate} }),
	}
}

// startedAgain wants a pod's first container to have been started since, or the pod to be gone.
func (w *world) startedAgain(before *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(w.Ctx, patience)
	defer cancel()
	list, err := w.Client.CoreV1().Pods(before.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + before.Name})
	if err != nil {
		return err
	}
	for _, p := range list.Items {
		if p.UID == before.UID && p.Status.ContainerStatuses[0].RestartCount == before.Status.ContainerStatuses[0].RestartCount {
			return fmt.Errorf("%s was not started again", before.Name)
		}
	}
	return nil
}
