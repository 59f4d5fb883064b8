package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestBoundaryPolicyRefused: a policy that is refused leaves no pod open. The pods that it selects get and send nothing in its
// directions, from their first packet on; others are as before. A policy that also names a network of another plugin
// is enforced on OVN's.
func TestBoundaryPolicyRefused(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.Must(w.WriteManifest("bridged.yaml", "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n"+
		"metadata: {namespace: shop, name: bridged}\nspec: {config: '{\"type\":\"macvlan\"}'}\n"))
	db := w.labelled(0, "db", "green", map[string]string{"app": "db"})
	free := w.labelled(0, "free", "green", map[string]string{"app": "free"})
	other := w.labelled(1, "other", "green", map[string]string{"app": "other"})
	for _, p := range []*lab.Pod{db, free, other} {
		w.answer(p, 80)
	}
	addrs := w.Links(db)["net1"].IPs()
	for _, to := range addrs {
		w.allowed(other, to, "tcp/80")
	}
	refuse := func(spec, why string) {
		w.Must(w.WriteManifest(policyManifest("p"), policyYAML("p", "green", spec)))
		w.policyIs("p", why)
	}
	w.part("ingress", func(t *testing.T, w *world) {
		refuse(`{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{}]}]}`,
			"refused, so pods with app=db have no ingress on its networks: spec.ingress[0].from[0]: it is empty")
		for _, to := range addrs {
			w.closed(other, to, "tcp/80")
			w.denied(free, to, "tcp/80")
		}
		for _, to := range w.Links(free)["net1"].IPs() {
			w.allowed(db, to, "tcp/80")
			w.allowed(other, to, "tcp/80")
		}
		late := w.labelled(1, "late", "green", map[string]string{"app": "db"})
		w.answer(late, 80)
		for _, to := range w.Links(late)["net1"].IPs() {
			w.denied(other, to, "tcp/80")
		}
		w.End(late)
	})
	w.part("a selector that cannot be read", func(t *testing.T, w *world) {
		refuse(`{podSelector: {matchLabel: {app: db}}, policyTypes: [Egress]}`,
			"refused, so all pods have no egress on its networks: spec")
		for _, to := range addrs {
			w.closed(other, to, "tcp/80")
			w.denied(free, to, "tcp/80")
		}
	})
	w.part("a network of another plugin", func(t *testing.T, w *world) {
		w.Must(w.WriteManifest(policyManifest("p"), policyYAML("p", "green, bridged",
			`{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: free}}}]}]}`)))
		w.policyIs("p", `"ready": true`)
		for _, to := range addrs {
			w.allowed(free, to, "tcp/80")
			w.closed(other, to, "tcp/80")
		}
	})
	w.End(db, free, other)
	w.Must(w.RemoveManifest(policyManifest("p")))
	w.AsBefore()
}

// peakMemory is the most memory that a process has had, in bytes (proc_pid_status(5), VmHWM).
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// TestBoundaryLargePolicies: as many policies as one namespace may write, each near the limits, keep the controller
// under its memory limit in the chart, and NB small. Those beyond the limits are refused by name.
func TestBoundaryLargePolicies(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	pod := w.labelled(0, "db", "green", map[string]string{"app": "db"})
	size := func() int {
		info, err := os.Stat(w.NBFile())
		w.Must(err)
		return int(info.Size())
	}
	before := size()
	var rules, ports []string
	for i := range 60 {
		ports = append(ports, fmt.Sprintf("{port: %d, endPort: %d}", 1+i, 65534-i))
	}
	for range 24 {
		rules = append(rules, "{from: [{podSelector: {}}], ports: ["+strings.Join(ports, ", ")+"]}")
	}
	spec := "{podSelector: {}, ingress: [" + strings.Join(rules, ", ") + "]}"
	const policies = 60
	for i := range policies {
		w.Must(w.WriteManifest(policyManifest(fmt.Sprintf("p%02d", i)),
			policyYAML(fmt.Sprintf("p%02d", i), "green", spec)))
	}
	accepted, refused := 0, 0
	w.Eventually(func() error {
		accepted, refused = 0, 0
		for i := range policies {
			switch state := w.policyState(fmt.Sprintf("p%02d", i)); {
			case strings.Contains(state, `"ready": true`):
				accepted++
			case strings.Contains(state, "is the limit of the namespace"):
				refused++
			}
		}
		if accepted+refused != policies {
			return fmt.Errorf("%d accepted and %d refused of %d", accepted, refused, policies)
		}
		return nil
	})
	grown, peak := size()-before, peakMemory(t, w.Controller.Pid())
	t.Logf("%d accepted, %d refused; NB grows by %d bytes, the controller has had %d", accepted, refused, grown, peak)
	t.Attr("boundary.large-policies-accepted", fmt.Sprint(accepted))
	t.Attr("boundary.large-policies-nb-bytes", fmt.Sprint(grown))
	t.Attr("boundary.large-policies-controller-bytes", fmt.Sprint(peak))
	if accepted == 0 || refused == 0 {
		t.Errorf("%d accepted and %d refused, want both", accepted, refused)
	}
	if grown > 8<<20 {
		t.Errorf("NB grows by %d bytes for the policies of one namespace", grown)
	}
	if peak > 256<<20 {
		t.Errorf("the controller has had %d bytes, and the chart gives it %d", peak, 256<<20)
	}
	w.Must(w.WriteManifest(policyManifest("p00"), policyYAML("p00", "green", "{podSelector: {}}")))
	w.End(pod)
	for i := range policies {
		w.Must(w.RemoveManifest(policyManifest(fmt.Sprintf("p%02d", i))))
	}
	w.AsBefore()
}
