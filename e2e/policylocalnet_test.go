package e2e

import (
	"testing"
)

// TestPolicyOneDirection: on a physical network, a policy of one direction does not restrict the other one. A pod that
// nobody may reach begins connections, to a machine outside and to a pod, and gets the replies. A pod that may begin
// none answers both. ovn-kubernetes skips these two cases in its tests of multi-network policies (test/e2e/multihoming.go,
// the entries of "deny-all-ingress" and "deny-all-egress" of a localnet network; issue 5667): OVN drops replies on a
// switch without connection tracking.
func TestPolicyOneDirection(t *testing.T) {
	t.Parallel()
	w := newWireWorld(t, grantedVLANs)
	outside := w.outside("out", 0, "10.50.0.9/24", "fd50::9/64")
	w.network("wired", onVLAN(0, ""))
	peer := w.labelled(1, "peer", "wired", nil)
	noIngress := w.labelled(0, "no-ingress", "wired", map[string]string{"app": "no-ingress"})
	noEgress := w.labelled(0, "no-egress", "wired", map[string]string{"app": "no-egress"})
	w.answer(peer, 80)
	w.answer(noIngress, 80)
	w.answer(noEgress, 80)
	w.policy("no-ingress", "wired", `{podSelector: {matchLabels: {app: no-ingress}}, policyTypes: [Ingress]}`)
	w.policy("no-egress", "wired", `{podSelector: {matchLabels: {app: no-egress}}, policyTypes: [Egress]}`)
	at := w.inCore(peer)
	for i, to := range w.inCore(noIngress) {
		w.closed(peer, to, "tcp/80")
		w.mustNotReach(outside, "eth0", to)
		for _, what := range []string{"tcp/80", "udp/80"} {
			w.allowed(noIngress, at[i], what)
			w.denied(peer, to, what)
		}
	}
	w.MustReach(noIngress, "10.50.0.9", "fd50::9")
	for i, to := range w.inCore(noEgress) {
		w.closed(noEgress, at[i], "tcp/80")
		for _, what := range []string{"tcp/80", "udp/80"} {
			w.allowed(peer, to, what)
			w.denied(noEgress, at[i], what)
		}
		w.MustReach(outside, to)
	}
	for _, to := range []string{"10.50.0.9", "fd50::9"} {
		w.mustNotReach(noEgress, "net1", to)
	}
	w.End(peer, noIngress, noEgress)
	for _, name := range []string{"no-ingress", "no-egress"} {
		w.Must(w.RemoveManifest(policyManifest(name)))
	}
	w.endNetworks("wired")
	w.asBeforeOutside()
}
