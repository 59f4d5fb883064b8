//go:build kube

package scenarios

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

func clusterPolicy(name, spec string) string {
	return fmt.Sprintf(`apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata:
  name: %s
  annotations: {k8s.v1.cni.cncf.io/policy-for: "*"}
spec: %s
---
`, name, spec)
}

// makeClusterPolicyKind creates the kind, long after the controllers have begun.
func (w *world) makeClusterPolicyKind() {
	w.Must(w.Apply(w.Ctx, kube.ClusterPolicyKind))
	w.kubectl("wait", "--for=condition=Established", "crd/clusternetworkpolicies.policy.networking.k8s.io", "--timeout=60s")
}

// TestClusterPolicy: the operator's policies, labels of namespaces and the condition, with the rights of the chart.
func TestClusterPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.makeClusterPolicyKind()
	db := strings.Replace(pod("db", "node1", "blue"), "metadata:\n", "metadata:\n  labels: {app: db}\n", 1)
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+db+pod("web", "node2", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/db", "default/web"))
	ip := w.status("db")[1].IPs[0]
	w.reaches("web", "net1", ip)

	w.Must(w.Apply(w.Ctx, clusterPolicy("guard", `{tier: Admin, priority: 5, subject: {pods: {namespaceSelector: {}, `+
		`podSelector: {matchLabels: {app: db}}}}, ingress: [{action: Accept, from: [{namespaces: {matchLabels: {team: a}}}]}, `+
		`{action: Deny, from: [{namespaces: {}}]}]}`)+multiPolicy("open", `{podSelector: {}, ingress: [{}]}`)))
	w.eventOf("guard", "Normal", "PolicyAccepted", "")
	w.conditionHas("guard", "True PolicyAccepted")
	w.silent("web", ip)
	w.kubectl("label", "namespace", "default", "team=a")
	w.reaches("web", "net1", ip)
	w.kubectl("label", "namespace", "default", "team-")
	w.silent("web", ip)
	w.kubectl("delete", "pod", "db", "--force")
	w.Must(w.Apply(w.Ctx, db))
	w.Must(w.WaitReady(w.Ctx, "default/db"))
	ip = w.status("db")[1].IPs[0]
	w.silent("web", ip)

	w.Must(w.Apply(w.Ctx, clusterPolicy("guard", `{tier: Admin, priority: 5, subject: {namespaces: {}}, ingres: []}`)))
	w.conditionHas("guard", "False PolicyRefused")
	w.eventOf("guard", "Warning", "PolicyRefused", "ingres")
	w.silent("web", ip)
	w.kubectl("delete", "clusternetworkpolicies", "guard")
	w.kubectl("delete", "multi-networkpolicies", "open")
	w.reaches("web", "net1", ip)
}

// conditionHas waits until our condition of a policy has a status and a reason.
func (w *world) conditionHas(name, words string) {
	w.Must(lab.Eventually(w.Ctx, func() error {
		state := w.kubectl("get", "clusternetworkpolicies", name, "-o",
			`jsonpath={range .status.conditions[?(@.type=="ovn-multinet/Accepted")]}{.status} {.reason}{end}`)
		if state != words {
			return fmt.Errorf("the condition of policy %s is %q, want %q", name, state, words)
		}
		return nil
	}))
}

// attackClusterPolicies: the controller's token writes nothing but its condition onto a ClusterNetworkPolicy.
func (s *thief) attackClusterPolicies() {
	s.makeClusterPolicyKind()
	s.Must(s.Apply(s.Ctx, clusterPolicy("p", "{tier: Admin}")))
	patch := func(path, body string) error {
		return s.nads.K8sCniCncfIoV1().RESTClient().Verb(http.MethodPatch).
			AbsPath("/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies/"+path).
			SetHeader("Content-Type", "application/merge-patch+json").Body([]byte(body)).Do(s.Ctx).Error()
	}
	s.cannot("change a ClusterNetworkPolicy", "forbidden", patch("p", `{"spec":{"tier":"Baseline"}}`))
	s.cannot("write another one's condition", "no condition of a ClusterNetworkPolicy but",
		patch("p/status", `{"status":{"conditions":[{"type":"other","status":"True"}]}}`))
	s.Must(patch("p/status", `{"status":{"conditions":[{"type":"ovn-multinet/Accepted","status":"True"}]}}`))
}
