package e2e

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// egressTo is the spec of a policy for pods with a role, which lets them reach peers.
func egressTo(role, peers, ports string) string {
	return fmt.Sprintf(`{podSelector: {matchLabels: {role: %s}}, policyTypes: [Egress], egress: [{to: [%s], ports: [%s]}]}`,
		role, peers, ports)
}

// TestServicePolicy: policies see the pods behind a virtual address and the ports of these pods, from the first packet
// on, in both directions. The virtual address and the port of the Service do not matter to them.
func TestServicePolicy(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.network("seven", onCore)
	w.network("eight", alsoCore)
	w.Base = w.Snapshot()
	pods, counts := w.backends("seven")
	vips := w.service("web", serviceYAML("web", "seven", `"10.7.0.200,fd07::c8"`, webPorts, ""))
	const backends, block = `{podSelector: {matchLabels: {app: web}}}`, `{ipBlock: {cidr: 10.7.0.0/24}}, {ipBlock: {cidr: "fd07::/64"}}`
	all := []*lab.Pod{w.app(1, "client", "seven", "client")}
	open := all[0]
	for i, test := range []struct {
		role, network, peers, ports string
		tcp, udp                    bool
	}{
		{"backends", "seven", backends, "", true, true},
		{"target-port", "seven", backends, "{port: 8080}", true, false},
		{"service-port", "seven", backends, "{port: 80}, {protocol: UDP, port: 53}", false, false},
		{"address", "seven", `{ipBlock: {cidr: 10.7.0.200/32}}, {ipBlock: {cidr: "fd07::c8/128"}}`, "", false, false},
		{"routed", "eight", block, "{port: 8080}", true, false},
		{"routed-port", "eight", block, "{port: 80}", false, false},
	} {
		p := w.labelled(i%2, test.role, test.network, map[string]string{"app": "client", "role": test.role})
		all = append(all, p)
		w.policy(test.role, test.network, egressTo(test.role, test.peers, test.ports))
		w.NBCtl("--wait=hv", "sync")
		for _, vip := range vips {
			for what, allowed := range map[string]bool{"tcp/80": test.tcp, "udp/53": test.udp} {
				check := w.denied
				if allowed {
					check = w.allowed
				}
				for range 4 { // some of them go to each backend
					check(p, vip, what)
				}
			}
		}
	}
	w.part("a connection that goes on", func(_ *testing.T, w *world) { w.policyOfConnection(all[1], vips) })
	w.part("a policy that names one of two backends", func(t *testing.T, w *world) {
		pods[0].Labels["number"] = "first"
		w.Must(pods[0].WriteManifest())
		p := w.labelled(0, "one", "seven", map[string]string{"app": "client", "role": "one"})
		all = append(all, p)
		w.policy("one", "seven", egressTo("one", `{podSelector: {matchLabels: {number: first}}}`, ""))
		w.NBCtl("--wait=hv", "sync") // from now on the policy decides
		w.allowed(p, w.Links(pods[0])["net1"].IPs()[0], "udp/90")
		before := counts[1].of("udp/90")
		for _, vip := range vips {
			w.untilBoth(func() (bool, error) { return probe(p, vip, "udp/53") })
		}
		equal(t, "datagrams to the backend that the policy does not name", counts[1].of("udp/90")-before, 0)
	})
	w.part("ingress", func(_ *testing.T, w *world) {
		var conversations []func() bool
		for _, vip := range vips {
			answered := w.conversation(open, vip, "53")
			w.Eventually(func() error {
				if !answered() {
					return fmt.Errorf("%s gets no answer from %s port 53", open, vip)
				}
				return nil
			})
			conversations = append(conversations, answered)
		}
		w.policy("in", "seven", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 8080}]}]}`)
		other := w.app(1, "other", "seven", "other")
		all = append(all, other)
		w.settle(w.hasFaults())
		for i, vip := range vips {
			w.allowed(open, vip, "tcp/80")
			w.denied(open, vip, "udp/53") // the policy allows TCP alone
			w.denied(other, vip, "tcp/80")
			for n := range 4 {
				if conversations[i]() {
					w.T.Errorf("datagram %d of a flow to %s that went on is answered, want no answer", n, vip)
				}
			}
		}
	})
	w.service("none", serviceYAML("none", "seven", "10.7.0.201", webPorts, ""))
	w.Eventually(func() error { return refused(all[1], "10.7.0.201", "80") }) // OVN refuses before it asks the policies
	for _, name := range []string{"in", "one", "backends", "target-port", "service-port", "address", "routed", "routed-port"} {
		w.Must(w.RemoveManifest(policyManifest(name)))
	}
	w.Must(w.RemoveManifest(serviceManifest("web")))
	w.Must(w.RemoveManifest(serviceManifest("none")))
	w.Over(append(pods, all...)...)
}

// policyOfConnection: the policy of a pod with the role "backends" decides about a connection that goes on.
func (w *world) policyOfConnection(p *lab.Pod, vips []string) {
	w.T.Helper()
	const backends, none = `{podSelector: {matchLabels: {app: web}}}`, `{podSelector: {matchLabels: {app: none}}}`
	for _, vip := range vips {
		answered := w.conversation(p, vip, "53")
		for _, step := range []struct {
			peers string
			want  bool
		}{{backends, true}, {none, false}, {backends, true}} {
			w.policy("backends", "seven", egressTo("backends", step.peers, ""))
			w.Eventually(func() error {
				w.onNodes("dpctl/del-flows") // Open vSwitch 3.1 may go on with the cached flow of before
				if got := answered(); got != step.want {
					return fmt.Errorf("%s port 53 answers: %t, with the peers %s", vip, got, step.peers)
				}
				return nil
			})
		}
	}
}

// conversation sends datagrams from one port to an address. Each call sends one and reports whether it was answered.
func (w *world) conversation(from place, to, port string) (answered func() bool) {
	var c net.Conn
	w.Must(from.Do(func() (err error) {
		c, err = net.Dial("udp", net.JoinHostPort(to, port))
		return err
	}))
	w.T.Cleanup(func() { c.Close() })
	return func() bool {
		w.Must(c.SetDeadline(time.Now().Add(silence)))
		if _, err := c.Write([]byte("there?")); err != nil {
			return false
		}
		_, err := c.Read(make([]byte, 64))
		return err == nil
	}
}

// untilBoth asks until some answers are yes, and some are no.
func (w *world) untilBoth(ask func() (bool, error)) {
	yes, no := 0, 0
	w.Eventually(func() error {
		answered, err := ask()
		if answered {
			yes++
		} else {
			no++
		}
		if err == nil && (yes < 3 || no < 3) {
			err = fmt.Errorf("%d answered and %d not, want some of each", yes, no)
		}
		return err
	})
}
