//go:build kube

package scenarios

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// multiPolicy is a MultiNetworkPolicy in namespace default for network blue.
func multiPolicy(name, spec string) string {
	return fmt.Sprintf(`apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata:
  name: %s
  namespace: default
  annotations: {k8s.v1.cni.cncf.io/policy-for: blue}
spec: %s
---
`, name, spec)
}

// silent waits until an address does not answer any more.
func (w *world) silent(from, ip string) {
	w.Must(lab.Eventually(w.Ctx, func() error {
		if w.ping(w.Ctx, from, "net1", ip, 1, time.Second) == nil {
			return fmt.Errorf("%s still reaches %s", from, ip)
		}
		return nil
	}))
}

// policyStateHas waits until the state of a policy has these words.
func (w *world) policyStateHas(name, words string) {
	w.Must(lab.Eventually(w.Ctx, func() error {
		state := w.kubectl("get", "multi-networkpolicies", name, "-o", `jsonpath={.metadata.annotations.ovn-multinet/policy-state}`)
		if !strings.Contains(state, words) {
			return fmt.Errorf("the state of policy %s is %q, want %q", name, state, words)
		}
		return nil
	}))
}

// toolTellsWhy asks `kubectl multinet`, which reaches only the API server, for policy db and for the
// verdict on a connection from web to db.
func (w *world) toolTellsWhy(want string) {
	w.T.Helper()
	text, err := w.Multinet(w.Ctx, "allowed", "web", "db", "tcp/80", "-n", "default")
	if !strings.Contains(text, "  ingress: "+want+"\n") || (err == nil) != strings.HasPrefix(want, "allowed") {
		w.T.Errorf("kubectl multinet allowed: %v\n%s\nwant %s", err, text, want)
	}
	text, why := w.Multinet(w.Ctx, "why", "web", "db", "tcp/80", "-n", "default")
	if (why == nil) != (err == nil) || strings.HasPrefix(text, "web to db, tcp/80: yes\n") != (err == nil) || !strings.Contains(text, want) {
		w.T.Errorf("kubectl multinet why: %v\n%s\nwant %s", why, text, want)
	}
	list := regexp.MustCompile(`(?m)^MultiNetworkPolicy +default +db +default/blue +pods with app=db +ingress +1 +1 +ready$`)
	if text := w.multinet("policy", "list", "-n", "default"); !list.MatchString(text) {
		w.T.Errorf("kubectl multinet policy list:\n%s", text)
	}
	if text := w.multinet("policy", "show", "db", "-n", "default"); !strings.Contains(text, "default/db") ||
		!strings.Contains(text, "pods with app=web of namespaces with kubernetes.io/metadata.name=default") {
		w.T.Errorf("kubectl multinet policy show:\n%s", text)
	}
}

// tenant asks as users with the roles of Kubernetes in one namespace: they read what states and annotations say there.
func (w *world) tenant() {
	w.T.Helper()
	for _, role := range []string{"view", "edit", "admin"} {
		w.kubectl("create", "rolebinding", "tenant-"+role, "--clusterrole="+role, "--user=tenant-"+role)
	}
	can := func(role, verb, resource string) bool {
		out, _ := w.Kubectl(w.Ctx, "auth", "can-i", verb, resource, "--as=tenant-"+role) // "no" is an error
		return out == "yes"
	}
	w.until(func() error {
		for _, right := range []struct{ verb, resource, roles string }{
			{"list", "network-attachment-definitions.k8s.cni.cncf.io", "view edit admin"},
			{"list", "multi-networkpolicies.k8s.cni.cncf.io", "view edit admin"},
			{"create", "multi-networkpolicies.k8s.cni.cncf.io", "edit admin"},
			{"create", "network-attachment-definitions.k8s.cni.cncf.io", "admin"},
			{"create", "clusternetworkpolicies.policy.networking.k8s.io", ""},
		} {
			for _, role := range []string{"view", "edit", "admin"} {
				if want := strings.Contains(right.roles, role); can(role, right.verb, right.resource) != want {
					return fmt.Errorf("%s may %s %s: %t, want %t", role, right.verb, right.resource, !want, want)
				}
			}
		}
		return nil
	})
	const elsewhere = "the chart does not run OVN here: run ovn-nbctl where your OVN runs"
	if out, err := w.Multinet(w.Ctx, "nbctl", "show"); err == nil || !strings.Contains(out, elsewhere) {
		w.T.Errorf("kubectl multinet nbctl: %v\n%s\nwant %s", err, out, elsewhere)
	}
	page := w.multinet("pod", "default/db")
	for _, want := range []string{`(?m)^net1 +default/blue +10\.1\..* up$`, `(?m)^Policies of net1: +MultiNetworkPolicy default/db \(ingress\)$`} {
		if !regexp.MustCompile(want).MatchString(page) || strings.Contains(page, "Problems") {
			w.T.Errorf("kubectl multinet pod:\n%s\nwant %s", page, want)
		}
	}
	tenant, err := w.KubeconfigOf("tenant-view")
	w.Must(err)
	ip := regexp.QuoteMeta(w.status("db")[1].IPs[0])
	for _, tt := range []struct{ command, want string }{
		{"network list -n default", `(?m)^default/blue +layer2 +10\.1\.0\.0/16 +- +3 +\? +\? +ready$`},
		{"network list -n default", `you need the right to create pods/exec in the namespace ovn-multinet`},
		{"network show blue -n default", `(?m)^default/db +net1 +node1 +` + ip + ` `},
		{"network show blue -n default -o json", `"subnet": "10\.1\.0\.0/16",\s+"gateway": "10\.1\.0\.1"\s+}`},
		{"policy list -n default", `(?m)^MultiNetworkPolicy +default +db +default/blue +.* ingress +1 +\? +ready$`},
		{"policy show db -n default", `(?m)^State: +ready$`},
		{"service list -n default", `no Services on networks`},
		{"pod db -n default", `(?m)^net1 +default/blue +` + ip + ` `},
	} {
		out, err := w.MultinetAs(w.Ctx, tenant, strings.Fields(tt.command)...)
		if err != nil || !regexp.MustCompile(tt.want).MatchString(out) {
			w.T.Errorf("kubectl multinet %s: %v\n%s\nwant %s", tt.command, err, out, tt.want)
		}
	}
	for _, tt := range []struct{ command, want string }{
		{"allowed web db tcp/80 -n default", "the answer needs OVN's Northbound database: ask an operator of the cluster"},
		{"network list -n kube-system", "is forbidden: User \"tenant-view\" cannot list resource"},
		{"pod coredns -n kube-system", "is forbidden: User \"tenant-view\" cannot get resource"},
		{"status --wait", "unknown: cannot read "}, // and does not wait for a right
		{"nbctl show", "is forbidden: User \"tenant-view\" cannot get resource"},
		{"gc --node node1", "is forbidden: User \"tenant-view\" cannot list resource"},
	} {
		if out, err := w.MultinetAs(w.Ctx, tenant, strings.Fields(tt.command)...); err == nil || !strings.Contains(out, tt.want) {
			w.T.Errorf("kubectl multinet %s: %v\n%s\nwant %s", tt.command, err, out, tt.want)
		}
	}
}

var failedByStatus = regexp.MustCompile(`(?m)"RunPodSandbox from runtime service failed".*network-status: Patch`)

// TestPolicy: policies, labels of pods and namespaces from the API, with the rights that the chart gives.
func TestPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := strings.Replace(pod("db", "node1", "blue"), "metadata:\n", "metadata:\n  labels: {app: db}\n", 1)
	w.Must(w.Apply(w.Ctx, nad("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16"}`)+
		db+pod("web", "node2", "blue")+pod("other", "node1", "blue")))
	w.Must(w.WaitReady(w.Ctx, "default/db", "default/web", "default/other"))
	ip := w.status("db")[1].IPs[0]
	w.reaches("web", "net1", ip)

	fromWeb := multiPolicy("db", `{podSelector: {matchLabels: {app: db}}, ingress: [`+
		`{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}, podSelector: {matchLabels: {app: web}}}]}]}`)
	w.Must(w.Apply(w.Ctx, fromWeb))
	w.eventOf("db", "Normal", "PolicyAccepted", "")
	w.policyStateHas("db", `"ready":true`)
	w.silent("web", ip)
	w.toolTellsWhy("denied: MultiNetworkPolicy default/db restricts ingress of default/db, and no rule of it allows this")
	w.kubectl("label", "pod", "web", "app=web")
	w.reaches("web", "net1", ip)
	w.toolTellsWhy("allowed by MultiNetworkPolicy default/db, ingress rule 0")
	w.silent("other", ip)
	w.kubectl("label", "pod", "web", "app=none", "--overwrite")
	w.silent("web", ip)
	w.kubectl("label", "pod", "db", "app=none", "--overwrite")
	w.reaches("other", "net1", ip)
	w.kubectl("label", "pod", "db", "app=db", "--overwrite")
	w.silent("other", ip)

	w.run("a tenant", (*world).tenant)
	w.run("a field that nobody knows", func(w *world) {
		w.Must(w.Apply(w.Ctx, multiPolicy("db", `{podSelector: {matchLabels: {app: db}}, ingress: [{fromm: []}]}`)))
		w.eventOf("db", "Warning", "PolicyRefused", "fromm")
		w.policyStateHas("db", "refused, so pods with app=db have no ingress on its networks")
		if text := w.multinet("policy", "list"); !regexp.MustCompile(`(?m)^MultiNetworkPolicy +default +db .* not ready: .*fromm`).MatchString(text) {
			w.T.Errorf("kubectl multinet policy list:\n%s", text)
		}
		w.silent("other", ip)
		w.Must(w.Apply(w.Ctx, fromWeb))
		w.policyStateHas("db", `"ready":true`)
	})
	w.run("more large policies than a namespace may have", (*world).largePolicies)
	w.run("no controller", func(w *world) {
		w.kubectl("--namespace", ours, "scale", "deployment/controller", "--replicas=0")
		late := strings.Replace(pod("late", "node2", "blue"), "metadata:\n", "metadata:\n  labels: {app: db}\n", 1)
		w.Must(w.Apply(w.Ctx, late))
		w.Must(w.WaitReady(w.Ctx, "default/late"))
		w.reaches("late", "net1", w.status("other")[1].IPs[0])
		w.silent("other", w.status("late")[1].IPs[0])
	})
	flood := w.newStream("other", "net1", ip, time.Millisecond)
	w.run("neither a controller nor an API server", func(w *world) {
		n := w.Node("node1")
		log, err := os.Stat(n.Kubelet.LogPath())
		w.Must(err)
		w.Must(n.KillPause(w.Ctx, "default/db"))
		w.Must(w.APIServer.Kill())
		// An ADD gives the port its flows before it fails, because it cannot write the status of the networks.
		w.until(func() error {
			b, err := os.ReadFile(n.Kubelet.LogPath())
			w.Must(err)
			got := failedByStatus.FindAll(b[min(log.Size(), int64(len(b))):], -1)
			if len(got) < 2 {
				return fmt.Errorf("%d ADDs have failed, want 2", len(got))
			}
			return nil
		})
		w.Must(w.APIServer.Restart(w.Ctx))
	})
	w.kubectl("--namespace", ours, "scale", "deployment/controller", "--replicas=2")
	w.kubectl("label", "pod", "web", "app=web", "--overwrite")
	w.reaches("web", "net1", ip)
	if answered, sent := flood.answered(); answered > 0 {
		t.Errorf("%d of %d packets of the flood got through", answered, sent)
	}
	w.kubectl("delete", "multi-networkpolicies", "db")
	w.Must(flood.comesBack(w.Ctx))
}

// largePolicies: a namespace writes 60 policies of 58 kB, new and edited. The controllers live on under the chart's
// limit of memory, and each policy is ready or refused.
func (w *world) largePolicies() {
	before := w.ours()
	policies := func(width int) (text string) {
		var rules, ports []string
		for i := range 60 {
			ports = append(ports, fmt.Sprintf("{port: %d, endPort: %d}", 1+i, 65534-width*i))
		}
		for range 30 {
			rules = append(rules, "{from: [{podSelector: {}}], ports: ["+strings.Join(ports, ", ")+"]}")
		}
		for i := range 60 {
			text += multiPolicy(fmt.Sprint("large-", i),
				"{podSelector: {matchLabels: {app: nobody}}, ingress: ["+strings.Join(rules, ", ")+"]}")
		}
		return text
	}
	for width := range 2 {
		w.Must(w.Apply(w.Ctx, policies(1+width)))
		// Not w.until: a pass over policies near the limit takes several budgets of the namespace, and the next one waits.
		w.Must(lab.Eventually(w.Ctx, func() error {
			states := w.kubectl("get", "multi-networkpolicies", "-o",
				`jsonpath={range .items[*]}{.metadata.name} {.metadata.annotations.ovn-multinet/policy-state}{"\n"}{end}`)
			ready, refused := 0, 0
			for line := range strings.Lines(states) {
				switch {
				case !strings.HasPrefix(line, "large-"):
				case strings.Contains(line, `"ready":true`):
					ready++
				case strings.Contains(line, "is the limit of the namespace"):
					refused++
				}
			}
			if ready == 0 || refused == 0 || ready+refused != 60 {
				return fmt.Errorf("%d are ready and %d refused, want 60 together", ready, refused)
			}
			return nil
		}))
	}
	used := regexp.MustCompile(`(?m)^default +bytes +[1-9][0-9]{5,6} +4194304 +[0-9]{2,3}$`)
	if text := w.multinet("limits", "-n", "default"); !used.MatchString(text) {
		w.T.Errorf("kubectl multinet limits:\n%s", text)
	}
	w.Must(w.Delete(w.Ctx, policies(1)))
	if after := w.ours(); after != before {
		w.T.Errorf("pods and restarts:\n%s\nwant:\n%s", after, before)
	}
}

// attackPolicies: the controller's token writes nothing but the state onto a policy.
func (s *thief) attackPolicies() {
	s.Must(s.Apply(s.Ctx, multiPolicy("p", "{podSelector: {}}")))
	patch := func(body string) error {
		return s.nads.K8sCniCncfIoV1().RESTClient().Verb(http.MethodPatch).
			AbsPath("/apis/k8s.cni.cncf.io/v1beta1/namespaces/default/multi-networkpolicies/p").
			SetHeader("Content-Type", "application/merge-patch+json").Body([]byte(body)).Do(s.Ctx).Error()
	}
	const nothingElse = "neither labels, finalizers, owners nor the rules"
	s.cannot("open a policy", nothingElse, patch(`{"spec":{"ingress":[{}]}}`))
	s.cannot("label a policy", nothingElse, patch(`{"metadata":{"labels":{"a":"b"}}}`))
	s.cannot("hold a policy", nothingElse, patch(`{"metadata":{"finalizers":["a/b"]}}`))
	s.cannot("point a policy at another network", "no annotation of a MultiNetworkPolicy but",
		patch(`{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/policy-for":"red"}}}`))
	s.Must(patch(`{"metadata":{"annotations":{"ovn-multinet/policy-state":"{}"}}}`))
}
