package images

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// scheduled is a pod's priority class, and which nodes it may run on.
func scheduled(pod corev1.PodSpec) string {
	var taints []string
	for _, t := range pod.Tolerations {
		taints = append(taints, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", t.Key, t.Operator, t.Value, t.Effect)))
	}
	return fmt.Sprintf("%s %v %v %s", pod.PriorityClassName, pod.NodeSelector, pod.Affinity != nil, strings.Join(taints, ","))
}

// TestNodesOfPods: priority classes, nodes and taints are those of the values. Without these values they are as they
// always were, so that an upgrade moves no pod.
func TestNodesOfPods(t *testing.T) {
	const all = "system-node-critical map[kubernetes.io/os:linux] false Exists"
	const anywhere = "map[kubernetes.io/os:linux] true node-role.kubernetes.io/control-plane Exists"
	ovn := map[string]string{"ovn-node": all, "ovn-central": "system-cluster-critical map[kubernetes.io/os:linux ovn-multinet/central:true] false Exists"}
	for _, tt := range []struct {
		values                    string
		agent, attach, controller string // of the controller the beginning
	}{
		{"{}", all, all, "system-cluster-critical " + anywhere},
		{"agent: {priorityClassName: low}", "low map[kubernetes.io/os:linux] false Exists", all, "system-cluster-critical " + anywhere},
		{"attach: {priorityClassName: low}", all, "low map[kubernetes.io/os:linux] false Exists", "system-cluster-critical " + anywhere},
		{"controller: {priorityClassName: low}", all, all, "low " + anywhere},
		{"agent: {nodeSelector: {pool: net}}", "system-node-critical map[kubernetes.io/os:linux pool:net] false Exists",
			"system-node-critical map[kubernetes.io/os:linux pool:net] false Exists", "system-cluster-critical " + anywhere},
		{"agent: {tolerations: [{key: gpu, operator: Exists}]}",
			"system-node-critical map[kubernetes.io/os:linux] false gpu Exists,ovn-multinet/not-ready Exists",
			"system-node-critical map[kubernetes.io/os:linux] false gpu Exists,ovn-multinet/not-ready Exists", "system-cluster-critical " + anywhere},
	} {
		pods, _ := templates(t, tt.values)
		for name, want := range map[string]string{"agent": tt.agent, "attach": tt.attach, "ovn-node": ovn["ovn-node"], "ovn-central": ovn["ovn-central"]} {
			if got := scheduled(pods[name].Spec); got != want {
				t.Errorf("%s: %s: %s\nwant %s", tt.values, name, got, want)
			}
		}
		if got := scheduled(pods["controller"].Spec); !strings.HasPrefix(got, tt.controller) {
			t.Errorf("%s: controller: %s\nwant %s…", tt.values, got, tt.controller)
		}
	}
}

// TestStartupTaintIsTolerated: whatever the tolerations, the agent starts on a node with the startup taint, which only the
// agent's start removes.
func TestStartupTaintIsTolerated(t *testing.T) {
	taint := corev1.Taint{Key: conf.StartupTaint, Effect: corev1.TaintEffectNoSchedule}
	for _, tolerations := range []string{
		"[]", "[{operator: Exists}]", "[{key: gpu}]", "[{operator: Exists, effect: NoExecute}]", "[{key: gpu, operator: Exists}]",
		"[{key: a, operator: Equal, value: b}, {operator: Exists}]",
	} {
		pods, _ := templates(t, "agent: {tolerations: "+tolerations+"}")
		if !slices.ContainsFunc(pods["agent"].Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == "" || t.Key == taint.Key) && t.Operator == corev1.TolerationOpExists && (t.Effect == "" || t.Effect == taint.Effect)
		}) {
			t.Errorf("agent.tolerations %s: the agent tolerates %v", tolerations, pods["agent"].Spec.Tolerations)
		}
	}
}

// TestExtraArgs: the programs get them behind the chart's own, as they are written.
func TestExtraArgs(t *testing.T) {
	for values, want := range map[string][2]string{
		"{}": {`["--node-name=$(NODE_NAME)"]`, `[]`},
		"agent: {extraArgs: ['--log-level=debug', '--bridge=a \"b\" {c}']}": {`["--node-name=$(NODE_NAME)" "--log-level=debug" "--bridge=a \"b\" {c}"]`, `[]`},
		"controller: {extraArgs: ['--log-level=debug', --startup-taint]}":   {`["--node-name=$(NODE_NAME)"]`, `["--log-level=debug" "--startup-taint"]`},
	} {
		pods, _ := templates(t, values)
		for i, name := range []string{"agent", "controller"} {
			if got := fmt.Sprintf("%q", pods[name].Spec.Containers[0].Args); got != want[i] {
				t.Errorf("%s: %s has the arguments %s, want %s", values, name, got, want[i])
			}
		}
	}
}

// TestDigests: each image can be named by its digest, also together with a tag, in another registry and without one.
func TestDigests(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0123456789abcdef", 4)
	for image, mirrored := range map[string]string{
		"quay.io/net/x" + digest:               "mirror.example.org/a/net/x" + digest,
		"quay.io/net/x:1.2" + digest:           "mirror.example.org/a/net/x:1.2" + digest,
		"registry.example.org:5000/x" + digest: "mirror.example.org/a/x" + digest,
		"localhost/x" + digest:                 "mirror.example.org/a/x" + digest,
		"net/x" + digest:                       "mirror.example.org/a/net/x" + digest,
		"x" + digest:                           "mirror.example.org/a/x" + digest,
	} {
		values := fmt.Sprintf("images: {agent: %[1]q, plugin: %[1]q, controller: %[1]q, ovn: %[1]q}\n", image)
		for registry, want := range map[string]string{"": image, "mirror.example.org/a": mirrored} {
			pods, _ := templates(t, strings.Replace(values, "{", "{registry: '"+registry+"', ", 1))
			for name, pod := range pods {
				for _, c := range everyContainer(pod) {
					if c.Image != want {
						t.Errorf("registry %q, image %s: %s: %s has %s, want %s", registry, image, name, c.Name, c.Image, want)
					}
				}
			}
		}
	}
}
