package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ownOVN is an installation whose chart runs OVN: its databases on node1, the rest on both nodes.
func ownOVN(t *testing.T) *Cluster {
	t.Helper()
	c := installed()
	c.Config.Data["OVN_MULTINET_NB_MEMBERS"], c.Config.Data["OVN_MULTINET_NB_ENDPOINTS"] = "/etc/ovn-multinet/ovn", ""
	c.Authority = map[string]string{authority.BundleKey: bundle(authorityOf(t, time.Now().Add(-time.Minute)))}
	for i := range c.Nodes {
		c.Nodes[i].Labels["ovn-multinet/central"] = fmt.Sprint(i == 0)
	}
	for name, part := range map[string]struct {
		app      string
		selector map[string]string
		nodes    []string
		has      []string
	}{
		"ovn-central": {centralApp, map[string]string{"ovn-multinet/central": "true"}, []string{"node1"}, []string{"nb", "sb", "northd"}},
		"ovn-node": {nodeApp, map[string]string{"kubernetes.io/os": "linux"}, []string{"node1", "node2"},
			[]string{"ovsdb", "vswitchd", "controller"}},
		"attach": {attachApp, map[string]string{"kubernetes.io/os": "linux"}, []string{"node1", "node2"}, []string{"attach"}},
	} {
		d := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
		d.Spec.Template.Spec.NodeSelector = part.selector
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "vswitchd", Args: []string{"vswitchd",
			"--bridge=br-int", "--datapath=kernel", "--tunnel-interface=eth1"}}}
		if name == "attach" {
			d.Spec.Template.Spec.Containers[0].Image = "localhost/ovn-multinet-plugin:dev"
		}
		c.add(d)
		for _, node := range part.nodes {
			p := podOf(part.app, name+"-"+node, node)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			for _, container := range part.has {
				p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
					Name: container, ImageID: "ovn", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				})
			}
			c.Pods = append(c.Pods, p)
		}
	}
	return c
}

// fails makes a container of a pod not ready.
func (c *Cluster) fails(pod, container string, change func(s *corev1.ContainerStatus)) {
	p := &c.Pods[slices.IndexFunc(c.Pods, func(p corev1.Pod) bool { return p.Name == pod })]
	p.Status.Conditions[0].Status = corev1.ConditionFalse
	for i := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[i]; s.Name == container {
			s.Ready = false
			change(s)
		}
	}
}

// TestOwnOVN breaks one part of an installation whose chart runs OVN, and compares all findings that are not ok.
func TestOwnOVN(t *testing.T) {
	hangs := func(*corev1.ContainerStatus) {}
	tests := []struct {
		name   string
		change func(c *Cluster)
		want   []string
	}{
		{"healthy", func(*Cluster) {}, nil},
		{"installed with --create-namespace alone", func(c *Cluster) { c.Namespace.Labels = nil }, nil},
		{"ovn-controller hangs", func(c *Cluster) { c.fails("ovn-node-node2", "controller", hangs) }, []string{
			"error ovn-nodes: running and not ready, as the probes say: controller on node2",
		}},
		{"the program that attaches does not run", func(c *Cluster) {
			c.fails("attach-node2", "attach", func(s *corev1.ContainerStatus) {
				s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}}
			})
		}, []string{"error attach: container attach waits: CrashLoopBackOff back-off on node2"}},
		{"northd hangs", func(c *Cluster) { c.fails("ovn-central-node1", "northd", hangs) }, []string{
			"error ovn-databases: running and not ready, as the probes say: northd on node1",
		}},
		{"no kernel module", func(c *Cluster) {
			c.fails("ovn-node-node1", "vswitchd", func(s *corev1.ContainerStatus) {
				s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}}
				s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: "begin\nno module openvswitch\n"}
			})
		}, []string{"error ovn-nodes: container vswitchd waits: CrashLoopBackOff back-off; its last words: no module openvswitch on node1"}},
		{"no node for the databases", func(c *Cluster) {
			c.Nodes[0].Labels["ovn-multinet/central"] = ""
		}, []string{"error ovn-databases: the nodeSelector and the tolerations of DaemonSet ovn-central choose no node: ovn-multinet/central=true"}},
		{"agents for no node", func(c *Cluster) {
			c.Agents.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		}, []string{"error agents: the nodeSelector and the tolerations of DaemonSet agent choose no node: disk=ssd"}},
		{"a node whose taint keeps the agent away", func(c *Cluster) {
			for i := range c.DaemonSets {
				c.DaemonSets[i].Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			}
			c.Agents.Spec.Template.Spec.Tolerations = nil
			c.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			c.Pods = slices.DeleteFunc(c.Pods, func(p corev1.Pod) bool {
				return p.Labels[agentLabel] == agentApp && p.Spec.NodeName == c.Nodes[0].Name
			})
		}, nil},
		{"half a chart", func(c *Cluster) {
			c.DaemonSets = slices.DeleteFunc(c.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Name == "ovn-node" })
		}, []string{"error ovn-nodes: there is no DaemonSet ovn-multinet/ovn-node"}},
		{"a pod that is being deleted", func(c *Cluster) {
			now := metav1.Now()
			c.Pods[len(c.Pods)-1].DeletionTimestamp = &now
		}, []string{"error "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := ownOVN(t)
			tt.change(c)
			judged(t, c.Check(plan(t, c, nil)), tt.want...)
		})
	}
	if p := plan(t, ownOVN(t), nil); p.Datapath != "kernel" || p.TunnelInterface != "eth1" {
		t.Errorf("the installed chart has the datapath %q and the interface %q", p.Datapath, p.TunnelInterface)
	}
}

// TestVersionsOfOwnOVN: containers of one name in pods of several programs are asked for their own program.
func TestVersionsOfOwnOVN(t *testing.T) {
	c := ownOVN(t)
	c.Pods = append(c.Pods, podOf(controllerApp, "controller-1", "node1"))
	c.Pods[len(c.Pods)-1].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "controller", ImageID: "c",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	asked := map[string]bool{}
	exec := func(_ context.Context, pod, container string, command ...string) (string, error) {
		asked[podApp(c, pod)+" "+container+" "+command[0]] = true
		return "program version 0.1.0\n", nil
	}
	judged(t, c.CheckVersions(t.Context(), exec))
	for _, want := range []string{
		controllerApp + " controller /ovn-multinet-controller", nodeApp + " controller /ovn-multinet-ovn",
		centralApp + " nb /ovn-multinet-ovn", agentApp + " agent /ovn-multinetd", agentApp + " installer /ovn-multinet-install",
	} {
		if !asked[want] {
			t.Errorf("%q is not among %v", want, asked)
		}
	}
	for err, fix := range map[error]string{
		apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("no")): "run this command with the right to create pods/exec in ovn-multinet",
		errors.New("no such file"): "see why the container runs no program: kubectl -n ovn-multinet describe pod ",
	} {
		found := c.CheckVersions(t.Context(), func(context.Context, string, string, ...string) (string, error) { return "", err })
		if len(found) != 1 || len(found[0].Fix) < len(fix) || found[0].Fix[:len(fix)] != fix {
			t.Errorf("%v: %+v", err, found)
		}
	}
}

func podApp(c *Cluster, name string) string {
	return c.Pods[slices.IndexFunc(c.Pods, func(p corev1.Pod) bool { return p.Name == name })].Labels[agentLabel]
}
