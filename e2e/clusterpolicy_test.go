package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// clusterPolicy writes a ClusterNetworkPolicy for network default/open.
func (w *world) clusterPolicy(name, networks, spec string) {
	w.Must(w.WriteManifest(policyManifest(name), fmt.Sprintf(`apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata:
  name: %s
  annotations: {k8s.v1.cni.cncf.io/policy-for: %q}
spec: %s
`, name, networks, spec)))
}

// clusterPolicyIs waits until the state of a ClusterNetworkPolicy has some text.
func (w *world) clusterPolicyIs(name, text string) {
	w.T.Helper()
	w.Eventually(func() error {
		state, err := os.ReadFile(filepath.Join(w.Manifests, "ClusterNetworkPolicy."+name+".policy.json"))
		if err == nil && !strings.Contains(string(state), text) {
			err = fmt.Errorf("policy %s: %s; want %s", name, state, text)
		}
		return err
	})
}

// admin has a policy for pods with app=db decide first, by these ingress rules.
func (w *peersWorld) admin(name string, priority int, rules string) {
	w.clusterPolicy(name, "default/open", fmt.Sprintf(
		`{tier: Admin, priority: %d, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}, ingress: [%s]}`,
		priority, rules))
	w.clusterPolicyIs(name, `"ready": true`)
}

// remove deletes policies.
func (w *world) remove(names ...string) {
	for _, name := range names {
		w.Must(w.RemoveManifest(policyManifest(name)))
	}
}

// fromTeam is an ingress rule for the pods of a team's namespaces.
func fromTeam(action, team string) string {
	return fmt.Sprintf(`{action: %s, from: [{namespaces: {matchLabels: {team: %s}}}]}`, action, team)
}

// fromAll is an ingress rule for all pods.
func fromAll(action string) string {
	return fmt.Sprintf(`{action: %s, from: [{namespaces: {}}]}`, action)
}

// TestClusterPolicy: the operator's policies come before those of tenants, or after them, in the order of their
// priorities.
func TestClusterPolicy(t *testing.T) {
	w := newPeersWorld(t)
	w.step("no tenant lifts what the operator denies", func(w *peersWorld) {
		w.admin("deny", 20, fromTeam("Deny", "red"))
		w.policy("p", "default/open", `{podSelector: {}, ingress: [{}]}`)
		w.only("tcp/80", w.same, w.blue, w.blueDB)
	})
	w.step("no tenant forbids what the operator accepts", func(w *peersWorld) {
		w.policy("p", "default/open", `{podSelector: {}}`)
		w.only("tcp/80")
		w.admin("accept", 10,
			`{action: Accept, from: [{pods: {namespaceSelector: {matchLabels: {team: red}}, podSelector: {matchLabels: {app: web}}}}],
    protocols: [{tcp: {destinationPort: {number: 80}}}]}`)
		w.only("tcp/80", w.red) // the priority 10 comes before 20
		w.only("tcp/81")
	})
	w.step("priorities change", func(w *peersWorld) {
		w.admin("accept", 30, fromAll("Accept"))
		w.only("tcp/80", w.same, w.blue, w.blueDB)
		w.remove("accept")
		w.only("tcp/80")
	})
	w.step("replies pass", func(w *peersWorld) {
		for _, to := range w.Links(w.red)["net1"].IPs() {
			w.allowed(w.db, to, "tcp/80")
		}
	})
	w.step("the first pod of a namespace", func(w *peersWorld) {
		fresh := w.guest(1, "fresh", "db", "default/open", map[string]string{"app": "db"})
		w.answer(fresh, 80)
		for _, to := range w.Links(fresh)["net1"].IPs() {
			w.denied(w.red, to, "tcp/80")
			w.allowed(w.blue, to, "tcp/80")
		}
		w.End(fresh)
	})
	w.step("a namespace gets other labels", func(w *peersWorld) {
		w.remove("p")
		w.namespace("blues", "red")
		w.only("tcp/80", w.same)
		w.namespace("blues", "blue")
		w.only("tcp/80", w.same, w.blue, w.blueDB)
	})
	w.step("a pod gets other labels", func(w *peersWorld) {
		w.db.Labels = map[string]string{"app": "other"}
		w.Must(w.db.WriteManifest())
		w.only("tcp/80", w.all()[1:]...)
		w.db.Labels = map[string]string{"app": "db"}
		w.Must(w.db.WriteManifest())
		w.only("tcp/80", w.same, w.blue, w.blueDB)
	})
	w.remove("deny")
	w.only("tcp/80", w.all()[1:]...)
	w.step("egress to addresses, for all networks", func(w *peersWorld) {
		w.clusterPolicy("out", "*", fmt.Sprintf(`{tier: Admin, priority: 0, subject: {namespaces: {matchLabels: {team: red}}},
  egress: [{name: not-db, action: Deny, to: [{networks: ["%s/32", "%s/128"]}]}]}`, w.addrs[0], w.addrs[1]))
		w.clusterPolicyIs("out", `"ready": true`)
		w.only("tcp/80", w.same, w.blue, w.blueDB)
		w.remove("out")
	})
	w.step("baseline", func(w *peersWorld) {
		w.clusterPolicy("base", "default/open", `{tier: Baseline, priority: 0, subject: {namespaces: {}}, ingress: [`+
			fromTeam("Accept", "blue")+", "+fromAll("Deny")+`]}`)
		w.clusterPolicyIs("base", `"ready": true`)
		w.only("tcp/80", w.blue, w.blueDB)
		w.ingress(`{podSelector: {}}`) // a pod that a tenant's policy selects does not ask the baseline
		w.only("tcp/80", w.same)
		w.remove("base")
	})
	w.only("tcp/80", w.same)
	w.over()
}

// TestClusterPolicyPass: Pass leaves the decision to the tenant. OVN without tiers of ACLs cannot do that.
func TestClusterPolicyPass(t *testing.T) {
	w := newPeersWorld(t)
	rules := fromTeam("Pass", "blue") + ", " + fromAll("Deny")
	w.clusterPolicy("pass", "default/open", `{tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [`+rules+`]}`)
	if !w.ovnSince(2306) {
		w.clusterPolicyIs("pass", "spec.ingress[0].action: Pass needs OVN 23.06")
		w.only("tcp/80", w.all()[1:]...)
	} else {
		w.clusterPolicyIs("pass", `"ready": true`)
		w.only("tcp/80", w.blue, w.blueDB)
		w.policy("p", "default/open", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]}]}`)
		w.only("tcp/80", w.blue)
	}
	w.remove("pass")
	w.policy("p", "default/open", `{podSelector: {}, ingress: [{}]}`)
	w.only("tcp/80", w.all()[1:]...)
	w.over()
}
