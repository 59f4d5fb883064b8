package e2e

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// verdicts asks `kubectl multinet allowed` for the verdict on each address of a pod.
func (w *world) verdicts(from, to *lab.Pod, what string) map[string]bool {
	w.T.Helper()
	// The exit code 1 of a denied connection is an error here. The output says the same.
	out, err := w.Lab.Multinet(w.Ctx, "allowed", from.Namespace+"/"+from.Name, to.Namespace+"/"+to.Name, what, "-o", "json")
	var answer struct {
		Allowed     bool
		Connections []struct {
			To      string
			Allowed bool
		}
	}
	if wrong := json.Unmarshal([]byte(out), &answer); wrong != nil || answer.Allowed != (err == nil) {
		w.T.Fatalf("%s to %s: %v, %v: %s", from, to, err, wrong, out)
	}
	verdicts := map[string]bool{}
	for _, c := range answer.Connections {
		verdicts[c.To] = c.Allowed
	}
	return verdicts
}

// agrees compares the verdict on each connection with packets. It wants so many connections to be denied.
func (w *peersWorld) agrees(denied int) {
	w.T.Helper()
	var probes sync.WaitGroup
	asked, negative := 0, 0
	for _, from := range w.all() {
		for _, to := range w.all() {
			for _, what := range []string{"tcp/80", "udp/81"} {
				if from == to {
					continue
				}
				for addr, allowed := range w.verdicts(from, to, what) {
					asked++
					check := w.allowed
					if !allowed {
						negative++
						check = w.closed
					}
					probes.Go(func() { check(from, addr, what) })
				}
			}
		}
	}
	probes.Wait()
	equal(w.T, "connections", asked, 5*4*2*2)
	equal(w.T, "denied connections", negative, denied)
}

// TestAllowed: the verdict of `kubectl multinet allowed` on each connection is what packets say, whichever policies OVN
// has: none, those of tenants, of the operator, or both.
func TestAllowed(t *testing.T) {
	w := newPeersWorld(t)
	w.agrees(0)
	w.step("ports and peers", func(w *peersWorld) {
		w.policy("p", "default/open", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {}}, `+
			`{namespaceSelector: {matchLabels: {team: red}}}], ports: [{port: 80}, {protocol: UDP, port: 70, endPort: 80}]}]}`)
		w.only("tcp/80", w.same, w.red)
		w.agrees(2*4 + 2*2) // to db: UDP from four pods, and TCP from two
	})
	w.step("addresses, and egress", func(w *peersWorld) {
		one := w.Links(w.blue)["net1"].IPs()
		w.ingress(fmt.Sprintf(`{ipBlock: {cidr: 10.40.0.0/16, except: [%s/32]}}, {ipBlock: {cidr: "fd40::/64", except: ["%s/128"]}}`,
			one[0], one[1]))
		w.policy("q", "default/open", `{podSelector: {}, policyTypes: [Egress], `+
			`egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{protocol: UDP}]}, {to: [{namespaceSelector: {matchLabels: {team: blue}}}]}]}`)
		w.only("udp/81", w.same, w.blueDB, w.red)
		// From db: to same and red, each with both protocols. From same: to db by TCP, and to red. From blue: to db.
		w.agrees(2 * (4 + 3 + 2))
	})
	w.remove("q")
	w.step("the operator before and after tenants", func(w *peersWorld) {
		w.admin("deny", 20, fromTeam("Deny", "red"))
		w.admin("accept", 10, `{action: Accept, from: [{namespaces: {}}], protocols: [{udp: {destinationPort: {range: {start: 81, end: 90}}}}]}`)
		w.clusterPolicy("base", "default/open", `{tier: Baseline, priority: 0, subject: {namespaces: {}}, ingress: [`+
			fromTeam("Accept", "blue")+", "+fromAll("Deny")+`]}`)
		w.clusterPolicyIs("base", `"ready": true`)
		w.ingress(`{podSelector: {}}`)
		w.only("tcp/80", w.same)
		w.only("udp/81", w.all()[1:]...)
		// To db: TCP from blue, blueDB and red. To blueDB: TCP from db, same and red. To same, blue and red: both
		// protocols from the pods that are not of team blue.
		w.agrees(2 * (3 + 3 + 2*(2+3+2)))
		w.remove("deny", "accept", "base")
	})
	if w.ovnSince(2306) {
		w.step("Pass", func(w *peersWorld) {
			w.clusterPolicy("pass", "default/open", `{tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [`+
				fromTeam("Pass", "blue")+", "+fromAll("Deny")+`]}`)
			w.clusterPolicyIs("pass", `"ready": true`)
			w.policy("p", "default/open", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]}]}`)
			w.only("tcp/80", w.blue)
			// Nothing from db, same and red. From blueDB, nothing to the pods of shop.
			w.agrees(2 * 2 * (4 + 4 + 4 + 2))
			w.remove("pass")
		})
	}
	w.policy("p", "default/open", `{podSelector: {}, ingress: [{}]}`)
	w.only("tcp/80", w.all()[1:]...)
	w.over()
}
