package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

const (
	deniedRate    = 7 // the controller's --denied-log-rate
	deniedMetrics = "127.0.0.1:9398"
)

// logWorld has pods of two namespaces on one network. The agents read what ovn-controller logs.
type logWorld struct {
	*world
	db, web, guest *lab.Pod
}

func newLogWorld(t *testing.T) *logWorld {
	w := &logWorld{world: parallelWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) {
		l.ControllerArgs = append(l.ControllerArgs, "--denied-log-rate", fmt.Sprint(deniedRate))
		for _, n := range l.Nodes {
			n.AgentArgs = append(n.AgentArgs, "--metrics-address", deniedMetrics,
				"--ovn-controller-log", filepath.Join(n.Dir, "ovn-controller.log"))
		}
	})}
	w.network("default/open", `{"type":"ovn-multinet","subnets":"10.40.0.0/16,fd40::/64"}`)
	w.db = w.app(0, "db", "default/open", "db")
	w.web = w.app(1, "web", "default/open", "web")
	w.guest = w.guestPod()
	return w
}

func (w *logWorld) guestPod() *lab.Pod {
	p := w.world.guest(0, "blues", "guest", "default/open", map[string]string{"app": "db"})
	w.answer(p, 80, 81)
	return p
}

// denying writes a policy of a namespace, or a ClusterNetworkPolicy, which logs what it denies if logs is "true".
func (w *logWorld) denying(namespace, name, logs, spec string) {
	kind := "apiVersion: k8s.cni.cncf.io/v1beta1\nkind: MultiNetworkPolicy\nmetadata:\n  namespace: " + namespace
	if namespace == "" {
		kind = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata:"
	}
	w.Must(w.WriteManifest(policyManifest(name), fmt.Sprintf(
		"%s\n  name: %s\n  annotations: {k8s.v1.cni.cncf.io/policy-for: default/open, ovn-multinet/log-denied: %q}\nspec: %s\n",
		kind, name, logs, spec)))
	if namespace == "" {
		w.clusterPolicyIs(name, `"ready": true`)
	} else {
		w.policyIs(namespace+"/"+name, `"ready": true`)
	}
	w.logsAre(namespace, name, logs == "true")
}

// logsAre waits until NB and the nodes have whether a policy logs.
func (w *logWorld) logsAre(namespace, name string, logs bool) {
	if namespace != "" {
		name = namespace + "/" + name
	}
	w.Eventually(func() error {
		got := w.NBCtl("--bare", "--columns=log", "find", "ACL", "action=drop", fmt.Sprintf("external_ids:ovn-multinet/policy=%q", name))
		if words := strings.Fields(got); len(words) == 0 || slices.Contains(words, fmt.Sprint(!logs)) {
			return fmt.Errorf("policy %s: log is %v in NB, want %t", name, words, logs)
		}
		return nil
	})
	w.NBCtl("--wait=hv", "sync")
}

// said returns the lines of the agents' logs about denied packets that have all the words.
func (w *logWorld) said(words ...string) (lines []string) {
	for _, n := range w.Nodes {
		text, err := os.ReadFile(filepath.Join(n.Dir, "agent.log"))
		w.Must(err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "a policy has denied a packet") && !slices.ContainsFunc(words, func(word string) bool {
				return !strings.Contains(line, word)
			}) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// says probes until an agent has logged that with these words.
func (w *logWorld) says(from place, to, what string, words ...string) {
	w.T.Helper()
	w.Eventually(func() error {
		if answered, err := probe(from, to, what); err != nil || answered {
			return fmt.Errorf("%s to %s %s: answered %t, %v", from, to, what, answered, err)
		}
		if len(w.said(words...)) == 0 {
			return fmt.Errorf("no line has %q; there are\n%s", words, strings.Join(w.said(), ""))
		}
		return nil
	})
}

// counted is the counter of a policy on both nodes.
func (w *logWorld) counted(namespace, policy, direction string) (n int) {
	for _, node := range w.Nodes {
		metrics, err := node.Metrics(deniedMetrics)
		w.Must(err)
		n += int(metrics[fmt.Sprintf("ovn_multinet_agent_denied_packets_logged_total{direction=%q,namespace=%q,policy=%q}",
			direction, namespace, policy)])
	}
	return n
}

// burst sends UDP packets to an address as fast as it can.
func (w *logWorld) burst(from place, to string, port, n int) {
	w.Must(from.Do(func() error {
		c, err := net.Dial("udp", net.JoinHostPort(to, fmt.Sprint(port)))
		if err != nil {
			return err
		}
		defer c.Close()
		for range n {
			if _, err := c.Write([]byte("flood")); err != nil {
				return err
			}
		}
		return nil
	}))
}

const toDB = `{podSelector: {matchLabels: {app: db}}}`

// TestPolicyLog: a policy that asks for it has the packets that it denies logged with policy and pods, and counted. OVN's
// meter limits the lines of a namespace, and of no other one.
func TestPolicyLog(t *testing.T) {
	w := newLogWorld(t)
	addrs := func(p *lab.Pod) []string { return w.Links(p)["net1"].IPs() }
	w.part("a policy that does not ask", func(_ *testing.T, sub *world) {
		w.denying("shop", "quiet", "false", toDB)
		w.denying("blues", "loud", "true", toDB)
		for _, to := range addrs(w.db) {
			w.closed(w.web, to, "tcp/80")
		}
		w.says(w.web, addrs(w.guest)[0], "tcp/80", "policy=blues/loud") // lines come in the order of the packets
		equal(t, "lines of the policy that does not ask", len(w.said("policy=shop/quiet")), 0)
		equal(t, "meters in NB", len(strings.Fields(w.NBCtl("--bare", "--columns=_uuid", "list", "Meter"))), 1)
	})
	w.part("both pods and the policy are named", func(t *testing.T, sub *world) {
		w.denying("shop", "asks", "true", toDB) // beside the policy that does not ask, for the same pod
		for i, to := range addrs(w.db) {
			from := addrs(w.web)[i]
			w.says(w.web, to, "tcp/81", "policy=shop/asks", `rule="ingress deny"`, "network=default/open", "from=shop/web",
				"to=shop/db", "fromAddress="+strings.TrimSuffix(net.JoinHostPort(from, ""), ":"), net.JoinHostPort(to, "81"), "protocol=tcp")
		}
		w.says(w.guest, addrs(w.db)[0], "udp/80", "policy=shop/asks", "from=blues/guest", "to=shop/db", "protocol=udp")
		if n, lines := w.counted("shop", "asks", "ingress"), len(w.said("policy=shop/asks")); n == 0 || n > lines {
			t.Errorf("the metric says %d, there are %d lines", n, lines)
		}
	})
	w.part("egress, and the operator's policies", func(t *testing.T, sub *world) {
		w.denying("shop", "out", "true", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: [{port: 80}]}]}`)
		w.says(w.web, addrs(w.guest)[0], "udp/80", "policy=shop/out", `rule="egress deny"`, "from=shop/web", "to=blues/guest")
		w.denying("", "guard", "true", `{tier: Admin, priority: 1, subject: {namespaces: {}}, `+
			`ingress: [{name: nobody, action: Deny, from: [{namespaces: {}}]}]}`)
		w.says(w.guest, addrs(w.web)[0], "tcp/80", "policy=guard", `rule="ingress 0 nobody"`, "from=blues/guest", "to=shop/web")
		if w.counted("shop", "out", "egress") == 0 || w.counted("", "guard", "ingress") == 0 {
			t.Error("the metrics do not move")
		}
		w.remove("out", "guard")
	})
	w.part("a flood", w.logFlood)
	w.part("the annotation is removed", func(t *testing.T, sub *world) {
		// Lines of a node come in the order of its packets, so after the second one no earlier packet has a line to come:
		// the first one may be of a probe before.
		atRest := func() {
			for range 2 {
				n := len(w.said("policy=blues/loud"))
				w.Eventually(func() error {
					w.closed(w.web, addrs(w.guest)[0], "tcp/80")
					if len(w.said("policy=blues/loud")) == n {
						return fmt.Errorf("no line of the other namespace")
					}
					return nil
				})
			}
		}
		w.denying("shop", "asks", "false", toDB)
		atRest()
		before := len(w.said("policy=shop/asks"))
		w.closed(w.web, addrs(w.db)[0], "tcp/80")
		atRest()
		equal(t, "lines without the annotation", len(w.said("policy=shop/asks"))-before, 0)
		w.denying("blues", "loud", "false", toDB)
		for _, table := range []string{"Meter", "Meter_Band"} {
			equal(t, "rows of "+table, w.NBCtl("list", table), "")
		}
	})
	w.remove("quiet", "loud", "asks")
	w.End(w.db, w.web, w.guest)
	w.endNetworks("default/open")
	w.AsBefore()
}

func (w *logWorld) remove(names ...string) {
	for _, name := range names {
		w.Must(w.RemoveManifest(policyManifest(name)))
	}
}

// logFlood sends 10,000 packets that a policy denies. The lines about them are no more than the meter allows, and the
// lines of another namespace still come.
func (w *logWorld) logFlood(t *testing.T, sub *world) {
	const packets = 10_000
	db, guest := w.Links(w.db)["net1"].IPs()[0], w.Links(w.guest)["net1"].IPs()[0]
	before, others, counted := len(w.said("policy=shop/asks")), len(w.said("policy=blues/loud")), w.counted("shop", "asks", "ingress")
	began := time.Now()
	denied := w.deniedPackets()
	for w.deniedPackets() < denied+packets {
		w.burst(w.web, db, 81, packets/10)
		if _, err := probe(w.web, guest, "tcp/80"); err != nil {
			t.Fatal(err)
		}
	}
	w.Eventually(func() error {
		if len(w.said("policy=blues/loud")) == others {
			return fmt.Errorf("the other namespace has no line")
		}
		return nil
	})
	lines, most := len(w.said("policy=shop/asks"))-before, deniedRate*(2+int(time.Since(began)/time.Second+1))
	t.Logf("%d packets denied: %d lines in %v, metric %d", w.deniedPackets()-denied, lines, time.Since(began),
		w.counted("shop", "asks", "ingress")-counted)
	if lines == 0 || lines > most {
		t.Errorf("%d lines of the flood, want 1 to %d", lines, most)
	}
}

// deniedPackets is how many packets the policy asks has denied on the node of db. The flows that log have the name of
// their ACL among the bytes of userdata.
func (w *logWorld) deniedPackets() (n int) {
	name := strings.ReplaceAll(fmt.Sprintf("% x", "shop/asks ingress deny"), " ", ".")
	out, err := w.db.Node.OFCtl(w.Ctx, "dump-flows", "out_port=controller")
	w.Must(err)
	for line := range strings.Lines(out) {
		for word := range strings.SplitSeq(line, ", ") {
			if count, ok := strings.CutPrefix(word, "n_packets="); ok && strings.Contains(line, name) {
				var packets int
				if _, err := fmt.Sscan(count, &packets); err == nil {
					n += packets
				}
			}
		}
	}
	return n
}
