package e2e

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// TestServicePolicy: ingress policies of the backends see the client and the backend's port. Egress policies of the
// client see the virtual address in the first packet, and the backend in the others, so they have to allow both.
func TestServicePolicy(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	pods, _ := w.backends("green")
	vips := w.service("web", serviceYAML("web", "green", `"10.2.200.1,fd02::c801"`, webPorts, ""))
	w.policy("in", "green", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 8080}]}]}`)
	w.policy("out", "green", `{podSelector: {matchLabels: {role: out}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.2.200.1/32}}, {ipBlock: {cidr: "fd02::c801/128"}}], ports: [{port: 80}]}, {to: [{podSelector: {matchLabels: {app: web}}}]}]}`)
	w.policy("pods", "green", `{podSelector: {matchLabels: {role: pods}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}`)
	client := w.app(1, "client", "green", "client")
	out := w.labelled(0, "out", "green", map[string]string{"app": "client", "role": "out"})
	toPods := w.labelled(0, "to-pods", "green", map[string]string{"app": "client", "role": "pods"})
	other := w.app(1, "other", "green", "other")
	w.NBCtl("--wait=hv", "sync")
	for _, vip := range vips {
		for range 4 {
			w.allowed(client, vip, "tcp/80")
			w.allowed(out, vip, "tcp/80")
		}
		w.denied(client, vip, "udp/53") // the ingress policy allows TCP alone
		w.denied(other, vip, "tcp/80")
		w.denied(toPods, vip, "tcp/80") // its egress policy names the pods, not the virtual address
	}
	for _, a := range w.Links(pods[0])["net1"].IPs() {
		w.allowed(toPods, a, "tcp/8080")
	}
	for _, name := range []string{"in", "out", "pods"} {
		w.Must(w.RemoveManifest(policyManifest(name)))
	}
	w.Must(w.RemoveManifest(serviceManifest("web")))
	w.Over(append(pods, client, out, toPods, other)...)
}
