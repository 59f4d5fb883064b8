package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// policyYAML is a MultiNetworkPolicy of namespace shop for network green. spec is the YAML of its spec, in one line.
func policyYAML(name, networks, spec string) string {
	return fmt.Sprintf(`apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata:
  namespace: shop
  name: %s
  annotations: {k8s.v1.cni.cncf.io/policy-for: %q}
spec: %s
`, name, networks, spec)
}

func policyManifest(name string) string { return "policy." + name + ".yaml" }

// policyState reads the state of a policy of namespace shop, or of "<namespace>/<name>", from the file beside its manifest.
func (w *world) policyState(name string) string {
	namespace, name := labtest.NADName(name)
	text, err := os.ReadFile(filepath.Join(w.Manifests, namespace+"."+name+".policy.json"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// policy writes a policy and waits until it is in force.
func (w *world) policy(name, networks, spec string) {
	w.Must(w.WriteManifest(policyManifest(name), policyYAML(name, networks, spec)))
	w.policyIs(name, `"ready": true`)
}

// policyIs waits until the state of a policy has some text.
func (w *world) policyIs(name, text string) {
	w.Eventually(func() error {
		if state := w.policyState(name); !strings.Contains(state, text) {
			return fmt.Errorf("policy %s: %s; want %s", name, state, text)
		}
		return nil
	})
}

// labelled makes a pod with labels and attaches it.
func (w *world) labelled(node int, name, networks string, labels map[string]string) *lab.Pod {
	p := w.Pod(node, name, networks)
	p.Labels = labels
	w.Must(p.WriteManifest())
	w.Add(p)
	return p
}

// TestPolicy: what a MultiNetworkPolicy allows passes, and nothing else, in both families, on one node and between nodes.
func TestPolicy(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	db := w.labelled(0, "db", "green", map[string]string{"app": "db"})
	web := w.labelled(1, "web", "green", map[string]string{"app": "web"})
	near := w.labelled(0, "near", "green", map[string]string{"app": "web"})
	other := w.labelled(1, "other", "green", map[string]string{"app": "other"})
	for _, p := range []*lab.Pod{db, web, near, other} {
		w.answer(p, 80, 81, 90)
	}
	four, six := w.Links(db)["net1"].IPs()[0], w.Links(db)["net1"].IPs()[1]
	for _, from := range []*lab.Pod{web, near, other} {
		for _, to := range []string{four, six} {
			w.allowed(from, to, "tcp/80")
			w.allowed(from, to, "udp/81")
		}
	}
	w.policy("ingress", "green", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: [`+
		`{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}, {protocol: UDP, port: 85, endPort: 95}]}]}`)
	w.closed(other, four, "tcp/80") // the flows of pods that run follow the policy a moment later
	w.closed(other, six, "tcp/80")
	w.part("ingress", func(t *testing.T, w *world) {
		for _, to := range []string{four, six} {
			for _, from := range []*lab.Pod{web, near} {
				w.allowed(from, to, "tcp/80")
				w.allowed(from, to, "udp/90")
				w.denied(from, to, "tcp/81")
				w.denied(from, to, "udp/81")
			}
			w.denied(other, to, "tcp/80")
			w.denied(other, to, "udp/90")
		}
	})
	w.part("replies to a pod whose ingress is restricted", func(t *testing.T, w *world) {
		for _, to := range w.Links(other)["net1"].IPs() {
			w.allowed(db, to, "tcp/80")
			w.allowed(db, to, "udp/81")
			w.MustReach(db, to)
		}
	})
	w.part("a pod that comes later", func(t *testing.T, w *world) {
		late := w.labelled(1, "late", "green", map[string]string{"app": "web"})
		w.allowed(late, four, "tcp/80")
		w.denied(late, four, "tcp/81")
		w.End(late)
	})
	w.End(db, web, near, other)
	w.Must(w.RemoveManifest(policyManifest("ingress")))
	w.AsBefore()
}

// TestPolicyFlows: a node has a flow for each restricted port, each peer and each port of a rule, and not one for each
// combination of them.
func TestPolicyFlows(t *testing.T) {
	w := parallelWorld(t, lab.Options{}, nil)
	const pods, cidrs = 4, 32
	var restricted []*lab.Pod
	for i := range pods {
		restricted = append(restricted, w.labelled(0, fmt.Sprint("db-", i), "green", map[string]string{"app": "db"}))
	}
	count := func() int {
		w.NBCtl("--wait=hv", "sync")
		out, err := w.Nodes[0].AppCtl(w.Ctx, "bridge/dump-flows", "br-int")
		w.Must(err)
		return strings.Count(out, "\n")
	}
	before := count()
	var peers []string
	for i := range cidrs {
		peers = append(peers, fmt.Sprintf("{ipBlock: {cidr: 10.9.%d.0/24}}, {ipBlock: {cidr: 'fd09:%x::/32'}}", 2*i, 2*i))
	}
	w.policy("many", "green", fmt.Sprintf(`{podSelector: {matchLabels: {app: db}}, ingress: [{from: [%s], `+
		`ports: [{port: 80}, {port: 443}, {port: 8000, endPort: 9000}, {protocol: UDP, port: 53}, {protocol: UDP, port: 500}]}]}`,
		strings.Join(peers, ", ")))
	got := count() - before
	// ovn-northd makes two flows of an ACL that allows. Each has two families and two protocols. The rest does not depend on
	// pods and CIDRs. OVN 25.03 has 17 more flows than 23.03.
	const most = 2 * 2 * 2 * (pods + cidrs + 24)
	t.Logf("%d flows for %d pods, %d CIDRs of each family and 5 ports", got, pods, cidrs)
	if got < cidrs || got > most {
		t.Errorf("%d flows, want at most %d", got, most)
	}
	w.End(restricted...)
	w.Must(w.RemoveManifest(policyManifest("many")))
	w.AsBefore()
}

// flood sends UDP packets to addresses with these MACs, again and again, until stop is called. The sender does not ask
// for the MACs.
func (w *world) flood(from place, link string, macs map[string]string, port int) (stop func()) {
	var targets []*net.UDPAddr
	for addr, mac := range macs {
		w.Exec(from, "ip", "neigh", "replace", addr, "lladdr", mac, "dev", link, "nud", "permanent")
		targets = append(targets, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(port))))
	}
	var socket *net.UDPConn
	w.Must(from.Do(func() (err error) {
		socket, err = net.ListenUDP("udp4", nil)
		return err
	}))
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-end:
				return
			default:
				_, _ = socket.WriteTo([]byte("flood"), targets[n%len(targets)])
				if n%16 == 0 {
					time.Sleep(time.Millisecond) // a rate that one OVS forwards without drops, not a synchronisation
				}
			}
		}
	}()
	return func() {
		close(end)
		<-ended
		socket.Close()
	}
}

// leaseMACs returns addresses of network blue, and the MACs of their ports, which are made from the addresses.
func leaseMACs(n int) (addrs []string, macs map[string]string) {
	macs = map[string]string{}
	for i := range n {
		addrs = append(addrs, fmt.Sprintf("10.1.77.%d", i+1))
		macs[addrs[i]] = net.HardwareAddr{0x0a, 0x58, 10, 1, 77, byte(i + 1)}.String()
	}
	return addrs, macs
}

// floodedEnv is how many restricted pods start under a flood; the long form is 1000.
const floodedEnv = "OVN_MULTINET_FLOODED"

func flooded() int {
	if n, err := strconv.Atoi(os.Getenv(floodedEnv)); err == nil {
		return n
	}
	return 24
}

// TestPolicyFirstPacket: pods start under a flood, from their own node and from another one. Those that a policy
// restricts get no packet from their first moment to their last, also while no controller runs. Pods that no policy
// selects get the flood.
func TestPolicyFirstPacket(t *testing.T) {
	w := parallelWorld(t, lab.Options{Nodes: 2}, nil)
	w.policy("deny", "blue", `{podSelector: {matchLabels: {app: db}}}`)
	const batch, port = 12, 99
	addrs, macs := leaseMACs(batch + 2)
	for i, node := range w.Nodes {
		from := w.labelled(i, "flood-"+node.Name, "blue", nil)
		defer w.End(from)
		defer w.flood(from, "net1", macs, port)()
	}
	start := func(i int, app string) (*lab.Pod, *answerer) {
		p := w.Pod(i%2, fmt.Sprint("pod-", i), fmt.Sprintf(`[{"name":"blue","ips":[%q]}]`, addrs[i]))
		p.Labels = map[string]string{"app": app}
		w.Must(p.WriteManifest())
		counts := w.answer(p, port) // before the pod has an interface: from the first packet on
		w.Add(p)
		return p, counts
	}
	for i := range 2 { // the flood reaches both nodes, and pods that are as new as the others
		open, counts := start(batch+i, "open")
		defer w.End(open)
		w.Eventually(func() error {
			if got := counts.of(fmt.Sprint("udp/", port)); got < 1000 {
				return fmt.Errorf("%s has got %d packets of the flood", open, got)
			}
			return nil
		})
	}
	total, packets := flooded(), 0
	for begun := 0; begun < total; begun += batch {
		if begun >= total/2 && w.Controller != nil {
			w.Must(w.StopController(w.Ctx))
			w.Controller = nil
		}
		restricted := map[*lab.Pod]*answerer{}
		for i := range batch {
			p, counts := start(i, "db")
			restricted[p] = counts
		}
		for p, counts := range restricted {
			w.End(p)
			if got := counts.of(fmt.Sprint("udp/", port)); got != 0 {
				t.Errorf("%s has got %d packets of the flood, want 0", p, got)
				packets += got
			}
		}
	}
	t.Attr("policy.packets-through", fmt.Sprintf("%d, to %d pods", packets, total))
}

// guest makes a pod of another namespace and attaches it.
func (w *world) guest(
	node int, namespace, name, networks string, labels map[string]string, ports ...lab.Port,
) *lab.Pod {
	p, err := w.Nodes[node].NewPod(w.Ctx, namespace, name, map[string]string{labtest.NetworksAnnotation: networks})
	w.Must(err)
	p.Labels, p.Ports = labels, ports
	w.Must(p.WriteManifest())
	w.AddInTheEnd(p)
	return p
}

// peersWorld is a network for all namespaces, with pods of three namespaces that answer.
type peersWorld struct {
	*world
	db, same, blue, blueDB, red *lab.Pod
	addrs                       []string // of db
}

func newPeersWorld(t *testing.T) *peersWorld {
	w := &peersWorld{world: parallelWorld(t, lab.Options{Nodes: 2}, nil)}
	w.network("default/open", `{"type":"ovn-multinet","subnets":"10.40.0.0/16,fd40::/64"}`)
	w.namespace("blues", "blue")
	w.namespace("reds", "red")
	w.db = w.labelled(0, "db", "default/open", map[string]string{"app": "db"})
	w.same = w.labelled(1, "same", "default/open", map[string]string{"app": "web"})
	w.blue = w.guest(1, "blues", "web", "default/open", map[string]string{"app": "web"})
	w.blueDB = w.guest(0, "blues", "db", "default/open", map[string]string{"app": "db"})
	w.red = w.guest(1, "reds", "web", "default/open", map[string]string{"app": "web"})
	for _, p := range w.all() {
		w.answer(p, 80, 81)
	}
	w.addrs = w.Links(w.db)["net1"].IPs()
	w.only("tcp/80", w.all()[1:]...)
	return w
}

func (w *peersWorld) all() []*lab.Pod { return []*lab.Pod{w.db, w.same, w.blue, w.blueDB, w.red} }

// namespace writes the manifest of a namespace with one label.
func (w *peersWorld) namespace(name, team string) {
	w.Must(w.WriteManifest("ns."+name+".yaml", fmt.Sprintf(
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {team: %s}}\n", name, team)))
}

// ingress has pods with app=db reached by these peers alone.
func (w *peersWorld) ingress(peers string) {
	w.policy("p", "default/open", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [`+peers+`]}]}`)
}

// only waits until these pods reach db, and no others.
func (w *peersWorld) only(what string, open ...*lab.Pod) {
	w.T.Helper()
	for _, to := range w.addrs {
		for _, from := range w.all()[1:] {
			if slices.Contains(open, from) {
				w.allowed(from, to, what)
			} else {
				w.closed(from, to, what)
			}
		}
	}
}

// step runs a subtest in the same world.
func (w *peersWorld) step(name string, run func(w *peersWorld)) {
	w.part(name, func(_ *testing.T, sub *world) {
		other := *w
		other.world = sub
		run(&other)
	})
}

// over deletes all that the world has.
func (w *peersWorld) over() {
	w.Must(w.RemoveManifest(policyManifest("p")))
	w.only("tcp/80", w.all()[1:]...)
	for _, name := range []string{"blues", "reds"} {
		w.Must(w.RemoveManifest("ns." + name + ".yaml"))
	}
	w.End(w.all()...)
	w.endNetworks("default/open")
	w.AsBefore()
}

// TestPolicyPeers: each kind of peer, in each direction.
func TestPolicyPeers(t *testing.T) {
	w := newPeersWorld(t)
	w.step("namespaces", func(w *peersWorld) {
		w.ingress(`{namespaceSelector: {matchExpressions: [{key: team, operator: In, values: [blue, green]}]}}`)
		w.only("tcp/80", w.blue, w.blueDB)
		w.ingress(`{namespaceSelector: {matchLabels: {team: blue}}, podSelector: {matchLabels: {app: web}}}`)
		w.only("tcp/80", w.blue)
		w.ingress(`{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [db]}]}}`)
		w.only("tcp/80", w.same, w.blue, w.red)
		w.ingress(`{podSelector: {}}, {namespaceSelector: {matchLabels: {team: red}}}`)
		w.only("udp/81", w.same, w.red)
	})
	w.step("a namespace gets other labels", func(w *peersWorld) {
		w.namespace("blues", "red")
		w.only("tcp/80", w.same, w.red, w.blue, w.blueDB)
		w.namespace("blues", "blue")
		w.only("tcp/80", w.same, w.red)
	})
	w.step("a pod of another namespace comes later", func(w *peersWorld) {
		late := w.guest(0, "reds", "late", "default/open", nil)
		w.allowed(late, w.addrs[0], "tcp/80")
		w.End(late)
	})
	w.step("addresses", func(w *peersWorld) {
		one := w.Links(w.blue)["net1"].IPs()
		w.ingress(fmt.Sprintf(`{ipBlock: {cidr: 10.40.0.0/16, except: [%s/32]}}, {ipBlock: {cidr: "fd40::/64", except: ["%s/128"]}}`,
			one[0], one[1]))
		w.only("tcp/80", w.same, w.blueDB, w.red)
	})
	w.step("egress", func(w *peersWorld) {
		w.policy("p", "default/open", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], `+
			`egress: [{to: [{namespaceSelector: {matchLabels: {team: blue}}}], ports: [{port: 80}]}]}`)
		for i, to := range w.Links(w.blueDB)["net1"].IPs() {
			w.closed(w.same, w.addrs[i], "tcp/80")
			w.allowed(w.same, to, "tcp/80")
			w.denied(w.same, to, "tcp/81")
			w.allowed(w.red, w.addrs[i], "tcp/81") // another namespace's pod: the policy binds its own namespace alone
			w.allowed(w.db, w.Links(w.same)["net1"].IPs()[i], "tcp/81")
		}
	})
	w.over()
}

// TestPolicyChanges: pods that run follow their labels, and a policy that is spoilt stays as it was.
func TestPolicyChanges(t *testing.T) {
	w := newPeersWorld(t)
	w.policy("p", "default/open", `{podSelector: {matchLabels: {app: db}}}`)
	w.only("tcp/80")
	w.step("a pod gets other labels", func(w *peersWorld) {
		for _, app := range []string{"other", "db"} {
			w.db.Labels = map[string]string{"app": app}
			w.Must(w.db.WriteManifest())
			if app == "db" {
				w.only("tcp/80")
			} else {
				w.only("tcp/80", w.all()[1:]...)
			}
		}
	})
	w.step("a policy that cannot be served", func(w *peersWorld) {
		for spec, why := range map[string]string{
			`{podSelector: {}, ingress: [{ports: [{port: -web}]}]}`:           "neither a number nor the name of a port",
			`{podSelector: {}, ingress: [{fromm: []}]}`:                       "fromm",
			`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "10"}}]}]}`: "spec.ingress[0].from[0].ipBlock.cidr",
		} {
			w.Must(w.WriteManifest(policyManifest("p"), policyYAML("p", "default/open", spec)))
			w.policyIs("p", why)
			w.policyIs("p", "refused, so all pods have no ingress on its networks")
			w.denied(w.same, w.addrs[0], "tcp/80")
		}
		w.Must(w.StopController(w.Ctx))
		w.Must(w.StartController(w.Ctx))
		w.Must(w.WriteManifest(policyManifest("q"), policyYAML("q", "nowhere", `{podSelector: {}}`)))
		w.policyIs("q", "NetworkAttachmentDefinition shop/nowhere does not exist")
		w.denied(w.same, w.addrs[0], "tcp/80")
		w.Must(w.RemoveManifest(policyManifest("q")))
	})
	w.over()
}
