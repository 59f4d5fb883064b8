package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

// answers are what the programs of an installation say to kubectl multinet.
type answers struct {
	version string
	metrics map[string]string         // of the controllers, by pod
	members map[string]members.Status // of the databases, by pod
	err     error
}

func (a *answers) exec(_ context.Context, pod, _ string, command ...string) (string, error) {
	switch text := strings.Join(command, " "); {
	case a.err != nil:
		return "", a.err
	case strings.HasSuffix(text, "--version"):
		return "program version " + a.version + "\n", nil
	case text == "/ovn-multinet-controller metrics":
		return "# TYPE ovn_multinet_controller_leader gauge\n" + a.metrics[pod], nil
	case text == "/ovn-multinet-ovn status":
		out, err := json.Marshal(a.members[pod])
		return string(out), err
	default:
		return "", fmt.Errorf("nobody answers %q", text)
	}
}

// healthy is an installation whose chart runs OVN, and what its programs say.
func healthy(t *testing.T) (*Cluster, *answers) {
	c := ownOVN(t)
	for i := range 2 {
		p := podOf(controllerApp, fmt.Sprint("controller-", i), fmt.Sprint("node", i+1))
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "controller", ImageID: "c",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		c.Pods = append(c.Pods, p)
	}
	leads := members.Replica{State: members.Leader, Servers: 1}
	return c, &answers{version: "0.1.0",
		metrics: map[string]string{"controller-0": "ovn_multinet_controller_leader 0\n", "controller-1": "ovn_multinet_controller_leader 1\n"},
		members: map[string]members.Status{"ovn-central-node1": {NB: leads, SB: leads, Northd: members.Active}},
	}
}

// TestStatus breaks one part of an installation, and compares the verdict and all findings that are not ok.
func TestStatus(t *testing.T) {
	member := func(change func(*members.Status)) func(*Cluster, *answers) {
		return func(_ *Cluster, a *answers) {
			s := a.members["ovn-central-node1"]
			change(&s)
			a.members["ovn-central-node1"] = s
		}
	}
	tests := []struct {
		name    string
		change  func(*Cluster, *answers)
		verdict string
		want    []string
		code    int
	}{
		{"healthy", func(*Cluster, *answers) {}, "healthy: all programs run, on 2 nodes", nil, ExitOK},
		{"an agent is not ready", func(c *Cluster, _ *answers) {
			c.fails("agent-node2", "agent", func(*corev1.ContainerStatus) {})
		}, "not healthy: see agents", []string{"error agents: running and not ready, as the probes say: agent, installer on node2"}, ExitErrors},
		{"pods that kubelet has refused are left", func(c *Cluster, _ *answers) {
			for i, app := range map[int]string{0: agentApp, 1: controllerApp} {
				p := podOf(app, "refused-"+app, c.Nodes[i].Name)
				p.Status.Phase, p.Status.Reason = corev1.PodFailed, "TaintToleration"
				c.Pods = append(c.Pods, p)
			}
		}, "healthy: ", nil, ExitOK},
		{"an agent that kubelet has refused is not replaced", func(c *Cluster, _ *answers) {
			p := &c.Pods[slices.IndexFunc(c.Pods, func(p corev1.Pod) bool { return p.Name == "agent-node2" })]
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "TaintToleration"}
		}, "not healthy: see agents", []string{"error agents: the pod is failed on node2"}, ExitErrors},
		{"a node waits for its agent", func(c *Cluster, _ *answers) {
			c.Nodes[1].Spec.Taints = []corev1.Taint{{Key: conf.StartupTaint}}
		}, "not healthy: see startup-taint", []string{"error startup-taint: the node has the taint ovn-multinet/not-ready on node2"}, ExitErrors},
		{"an update goes on", func(c *Cluster, _ *answers) {
			c.Agents.Status.DesiredNumberScheduled, c.Agents.Status.UpdatedNumberScheduled = 2, 1
			c.Controllers.Generation = 2
		}, "not healthy: see updates", []string{
			"warning updates: 1 of 2 pods of DaemonSet agent have the latest version",
			"warning updates: Kubernetes has not seen the latest change of Deployment controller yet",
		}, ExitErrors},
		{"an update of OVN goes on", func(c *Cluster, _ *answers) {
			c.daemonSet("ovn-node").Status.DesiredNumberScheduled = 2
		}, "not healthy: see updates", []string{"warning updates: 0 of 2 pods of DaemonSet ovn-node"}, ExitErrors},
		{"nobody leads", func(_ *Cluster, a *answers) {
			a.metrics["controller-1"] = a.metrics["controller-0"]
		}, "not healthy: see leader", []string{"error leader: no controller leads"}, ExitErrors},
		{"objects are refused", func(_ *Cluster, a *answers) {
			a.metrics["controller-1"] += "# TYPE ovn_multinet_controller_refused_objects gauge\n" +
				"ovn_multinet_controller_refused_objects{kind=\"service\",code=\"7\"} 2\n" +
				"ovn_multinet_controller_refused_objects{kind=\"service\",code=\"\"} 1\novn_multinet_controller_refused_objects{kind=\"nad\",code=\"\"} 1\n"
		}, "healthy: ", []string{"warning refused-objects: refused: 1 of kind nad, 3 of kind service"}, ExitOK},
		{"no leader of NB", member(func(s *members.Status) { s.NB.State = members.Follower }), "not healthy: see raft",
			[]string{"error raft: the raft of NB has no leader"}, ExitErrors},
		{"a server joins", member(func(s *members.Status) { s.SB.State = members.Joining }), "not healthy: see raft",
			[]string{"warning raft: the server of SB joins its raft on node1", "error raft: the raft of SB has no leader"}, ExitErrors},
		{"a server says nothing", member(func(s *members.Status) { s.NB.State = "connect:\nno such file" }), "not healthy: see raft",
			[]string{"error raft: the server of NB: connect: no such file on node1", "error raft: the raft of NB has no leader"}, ExitErrors},
		{"a server is silent", member(func(s *members.Status) { s.SB.Silent = []string{"ssl:192.0.2.2:6644"} }), "not healthy: see raft",
			[]string{"error raft: the leader of SB, on node node1, hears nothing of the server at ssl:192.0.2.2:6644"}, ExitErrors},
		{"no northd", member(func(s *members.Status) { s.Northd = "standby" }), "not healthy: see raft",
			[]string{"error raft: no northd is active"}, ExitErrors},
		{"without the right to ask", func(_ *Cluster, a *answers) {
			a.err = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("no"))
		}, "unknown: cannot read leader, raft, versions", []string{
			"error leader: cannot be read", "error raft: cannot be read", "error versions: cannot be read",
		}, ExitUnread},
		{"an answer of another program", func(_ *Cluster, a *answers) {
			a.metrics["controller-0"] = "{"
		}, "unknown: cannot read leader", []string{"error leader: cannot be read: the metrics of the controller"}, ExitUnread},
		{"not installed", func(c *Cluster, _ *answers) { c.Agents = nil }, "not healthy: see agents",
			[]string{"error agents: ovn-multinet is not installed: there is no DaemonSet ovn-multinet/agent"}, ExitErrors},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, a := healthy(t)
			tt.change(c, a)
			s := c.status(t.Context(), a.exec)
			if !strings.HasPrefix(s.Verdict, tt.verdict) || s.ExitCode() != tt.code || s.Healthy != (tt.code == ExitOK) {
				t.Errorf("%q, healthy %t, exit code %d; want %q, %d", s.Verdict, s.Healthy, s.ExitCode(), tt.verdict, tt.code)
			}
			if s.Forbidden() != (tt.name == "without the right to ask") {
				t.Errorf("a right is missing: %t", s.Forbidden())
			}
			judged(t, s.Checks, tt.want...)
		})
	}
	c, a := healthy(t)
	s := c.status(t.Context(), a.exec)
	says(t, s.Checks, "leader", "controller-1 on node node2 leads the controllers")
	says(t, s.Checks, "raft", "NB: node1 leads 1 servers; SB: node1 leads 1; northd works on node1")
}
