package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// keptWorld has a pod that policies are for, and peers on its node and on another one in another namespace. Policies
// decide about the connections of one direction: those to the pod, or those that the pod begins.
type keptWorld struct {
	*world
	egress bool
	faulty bool // see hasFaults
	db     *lab.Pod
	peers  []*lab.Pod
	open   []*lab.Pod // on each node, for the packets after which no other packet is still on its way
	heard  map[*lab.Pod]*lab.Capture
	port   uint16 // of the last flow
}

// keptFlow is a connection of TCP, or a flow of UDP, that is kept up while policies change.
type keptFlow struct {
	protocol       string
	begins, serves *lab.Pod
	from, to       netip.AddrPort
	first, other   net.Conn // the end that has begun it, and the other end
}

func (f *keptFlow) String() string {
	return fmt.Sprintf("%s from %s %s to %s %s", f.protocol, f.begins, f.from, f.serves, f.to)
}

func newKeptWorld(t *testing.T, egress bool) *keptWorld {
	w := &keptWorld{world: parallelWorld(t, lab.Options{Nodes: 2}, nil), egress: egress, heard: map[*lab.Pod]*lab.Capture{}}
	w.faulty = w.hasFaults()
	w.network("default/open", `{"type":"ovn-multinet","subnets":"10.40.0.0/16,fd40::/64"}`)
	w.team("blue")
	w.db = w.app(0, "db", "default/open", "db")
	for i, name := range []string{"near", "far"} {
		w.open = append(w.open, w.app(i, "open-to-"+name, "default/open", "open"))
		peer := w.guest(i, "blues", name, "default/open", map[string]string{"app": "peer"})
		w.answer(peer, 80, 81)
		w.peers = append(w.peers, peer)
	}
	for _, p := range append([]*lab.Pod{w.db}, w.peers...) {
		c, err := p.Capture("net1")
		w.Must(err)
		w.T.Cleanup(func() { _ = c.Close() })
		w.heard[p] = c
	}
	return w
}

// team gives the namespace of the peers its label.
func (w *keptWorld) team(name string) {
	w.Must(w.WriteManifest("ns.blues.yaml", fmt.Sprintf(
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: blues, labels: {team: %s}}\n", name)))
}

// relabel gives pods another label app.
func (w *keptWorld) relabel(app string, pods ...*lab.Pod) {
	for _, p := range pods {
		p.Labels["app"] = app
		w.Must(p.WriteManifest())
	}
}

// only has the direction of db restricted to the peers of these namespaces with these labels, and to the open pods.
func (w *keptWorld) only(team, app string) {
	direction, rules, side := "Ingress", "ingress", "from"
	if w.egress {
		direction, rules, side = "Egress", "egress", "to"
	}
	w.policy("p", "default/open", fmt.Sprintf(`{podSelector: {matchLabels: {app: db}}, policyTypes: [%s], %s: [{%s: [`+
		`{namespaceSelector: {matchLabels: {team: %s}}, podSelector: {matchLabels: {app: %s}}}, `+
		`{podSelector: {matchLabels: {app: open}}}]}]}`, direction, rules, side, team, app))
}

// operator has a ClusterNetworkPolicy of a tier take an action for the peers, in the direction of db.
func (w *keptWorld) operator(name, tier, action string) {
	rules, side := "ingress", "from"
	if w.egress {
		rules, side = "egress", "to"
	}
	w.clusterPolicy(name, "default/open", fmt.Sprintf(`{tier: %s, priority: 1, subject: {pods: {namespaceSelector: {}, `+
		`podSelector: {matchLabels: {app: db}}}}, %s: [{action: %s, %s: [{pods: {namespaceSelector: {}, `+
		`podSelector: {matchLabels: {app: peer}}}}]}]}`, tier, rules, action, side))
	w.clusterPolicyIs(name, `"ready": true`)
}

// flows begins a flow of each protocol and family with each peer.
func (w *keptWorld) flows() (all []*keptFlow) {
	for _, peer := range w.peers {
		begins, serves := peer, w.db
		if w.egress {
			begins, serves = w.db, peer
		}
		for i, addr := range w.Links(serves)["net1"].IPs() {
			from, to := netip.MustParseAddr(w.Links(begins)["net1"].IPs()[i]), netip.MustParseAddr(addr)
			w.allowed(begins, addr, "tcp/80") // the policies of before have ended
			for _, protocol := range []string{"tcp", "udp"} {
				w.port++
				f := &keptFlow{protocol: protocol, begins: begins, serves: serves,
					from: netip.AddrPortFrom(from, 20000+w.port), to: netip.AddrPortFrom(to, 30000+w.port)}
				w.begin(f)
				all = append(all, f)
			}
		}
	}
	for _, f := range all {
		w.goesOn(f)
		w.acknowledged(f)
	}
	return all
}

// begin makes both ends of a flow. They send nothing by themselves.
func (w *keptWorld) begin(f *keptFlow) {
	w.T.Cleanup(func() { f.close() })
	if f.protocol == "udp" {
		from, to := net.UDPAddrFromAddrPort(f.from), net.UDPAddrFromAddrPort(f.to)
		w.Must(f.begins.Do(func() (err error) { f.first, err = net.DialUDP("udp", from, to); return err }))
		w.Must(f.serves.Do(func() (err error) { f.other, err = net.DialUDP("udp", to, from); return err }))
		return
	}
	var listener net.Listener
	w.Must(f.serves.Do(func() (err error) {
		listener, err = (&net.ListenConfig{KeepAlive: -1}).Listen(w.Ctx, "tcp", f.to.String())
		return err
	}))
	w.Must(f.begins.Do(func() (err error) {
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(f.from), KeepAlive: -1}
		f.first, err = dialer.DialContext(w.Ctx, "tcp", f.to.String())
		return err
	}))
	var err error
	f.other, err = listener.Accept()
	w.Must(err)
	w.Must(listener.Close())
}

// close closes the ends that there are.
func (f *keptFlow) close() {
	for _, end := range []net.Conn{f.first, f.other} {
		if end != nil {
			end.Close()
		}
	}
}

// came returns how many packets of a flow have come to each end.
func (w *keptWorld) came(f *keptFlow) (there, back int) {
	number := uint8(unix.IPPROTO_TCP)
	if f.protocol == "udp" {
		number = unix.IPPROTO_UDP
	}
	there, err := w.heard[f.serves].Received(number, f.from, f.to)
	w.Must(err)
	back, err = w.heard[f.begins].Received(number, f.to, f.from)
	w.Must(err)
	return there, back
}

// goesOn waits until packets of a flow come to both ends. The end that has begun it sends first: the end that sends the
// first packet which a node tracks has begun the flow there.
func (w *keptWorld) goesOn(f *keptFlow) {
	before, _ := w.came(f)
	w.Eventually(func() error {
		w.sends(f, f.first)
		if now, _ := w.came(f); now == before {
			return fmt.Errorf("%s: no packet comes there", f)
		}
		return nil
	})
	w.comesBack(f)
}

// comesBack waits until a packet comes to the end that has begun a flow.
func (w *keptWorld) comesBack(f *keptFlow) {
	_, before := w.came(f)
	w.Eventually(func() error {
		w.sends(f, f.other)
		if _, now := w.came(f); now == before {
			return fmt.Errorf("%s: no packet comes back", f)
		}
		return nil
	})
}

// acknowledged waits until no end of a flow has anything left to send.
func (w *keptWorld) acknowledged(f *keptFlow) {
	if f.protocol == "udp" {
		return
	}
	w.Eventually(func() error {
		for _, c := range []net.Conn{f.first, f.other} {
			raw, err := c.(syscall.Conn).SyscallConn()
			w.Must(err)
			var left int
			w.Must(raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) }))
			if w.Must(err); left > 0 {
				return fmt.Errorf("%s: %d bytes are not acknowledged", f, left)
			}
		}
		return nil
	})
}

// settled waits until the nodes have the flows of a change that denies new connections.
func (w *keptWorld) settled(flows []*keptFlow) {
	for _, f := range flows {
		if f.protocol == "udp" {
			w.closed(f.begins, f.to.Addr().String(), "udp/80")
		}
	}
	w.settle(w.faulty)
}

// delivered returns when what the pods have sent has come or will not come.
func (w *keptWorld) delivered() {
	for _, from := range append([]*lab.Pod{w.db}, w.peers...) {
		for _, to := range w.open {
			w.allowed(from, w.Links(to)["net1"].IPs()[0], "udp/81")
		}
	}
}

// ended waits until new connections are denied, and wants no packet of the flows to come then. The ends send that have
// begun the flows; with both, the other ends send, too.
func (w *keptWorld) ended(flows []*keptFlow, both bool) {
	w.settled(flows)
	type counts struct{ there, back int }
	before := map[*keptFlow]counts{}
	for _, f := range flows {
		there, back := w.came(f)
		before[f] = counts{there, back}
	}
	for range 6 { // one after the other: OVN decides about each by what it has noted of those before
		for _, f := range flows {
			w.sends(f, f.first)
		}
		w.delivered()
		for _, f := range flows {
			if both {
				w.sends(f, f.other)
			}
		}
		w.delivered()
	}
	for _, f := range flows {
		if there, back := w.came(f); there != before[f].there || back != before[f].back {
			w.T.Errorf("%s: after the change %d packets have come there, %d back, want none",
				f, there-before[f].there, back-before[f].back)
		}
	}
}

// sends has an end of a flow send.
func (w *keptWorld) sends(f *keptFlow, end net.Conn) {
	if _, err := end.Write([]byte("x")); err != nil {
		w.T.Errorf("%s: %v", f, err)
	}
}

// step begins flows, makes a change that denies them, and wants them to end.
func (w *keptWorld) step(name string, allow, deny func(w *keptWorld)) {
	w.during(name, allow, deny, func(w *keptWorld, flows []*keptFlow) { w.ended(flows, true) })
}

// during begins flows, makes a change, and looks at the flows.
func (w *keptWorld) during(name string, allow, change func(w *keptWorld), look func(w *keptWorld, flows []*keptFlow)) {
	w.part(name, func(_ *testing.T, sub *world) {
		with := *w
		with.world = sub
		defer func() { w.port = with.port }()
		allow(&with)
		flows := with.flows()
		change(&with)
		look(&with, flows)
	})
}

// undone is a look at flows that end, and go on when a policy is deleted.
func undone(policy string) func(w *keptWorld, flows []*keptFlow) {
	return func(w *keptWorld, flows []*keptFlow) {
		w.ended(flows, true)
		w.remove(policy)
		for _, f := range flows {
			w.goesOn(f)
		}
	}
}

// older deletes the ACLs that pass, which an older version did not write, and waits until a new controller has written
// them.
func (w *keptWorld) older() {
	w.Must(w.StopController(w.Ctx))
	passes := func() []string {
		return slices.Sorted(slices.Values(strings.Fields(w.NBCtl("--bare", "--columns=_uuid", "find", "ACL", "action=pass"))))
	}
	want := passes()
	for _, acl := range want {
		group := strings.TrimSpace(w.NBCtl("--bare", "--columns=name", "find", "Port_Group", "acls{>=}"+acl))
		w.NBCtl("remove", "Port_Group", group, "acls", acl)
	}
	equal(w.T, "ACLs that pass", len(passes()), 0)
	w.Must(w.StartController(w.Ctx))
	w.Eventually(func() error {
		if now := passes(); !slices.Equal(now, want) {
			return fmt.Errorf("the ACLs that pass are %q, want %q", now, want)
		}
		return nil
	})
}

func (w *keptWorld) run() {
	none := func(*keptWorld) {}
	peers := func(w *keptWorld) { w.only("blue", "peer") }
	nobody := func(w *keptWorld) { w.only("blue", "nobody") }
	w.during("a policy is added, the first one on the network", none, nobody, func(w *keptWorld, flows []*keptFlow) {
		w.ended(flows, false)
		for _, f := range flows { // no node has tracked the flow before: the next packet that passes begins it
			w.comesBack(f)
			w.goesOn(f)
		}
	})
	w.remove("p")
	w.policy("others", "default/open", `{podSelector: {matchLabels: {app: open}}, ingress: [{}]}`)
	w.step("a policy is added", none, nobody)
	w.step("a rule is deleted", peers, nobody)
	w.during("a rule is deleted, and only the other end sends", peers, nobody, func(w *keptWorld, flows []*keptFlow) {
		w.settled(flows)
		for _, f := range flows { // a reply, because the end that has begun the flow has not been denied a packet yet
			w.comesBack(f)
		}
		w.ended(flows, true)
	})
	w.during("a rule is deleted, and another one allows the same", func(w *keptWorld) {
		peers(w)
		w.policy("q", "default/open", `{podSelector: {matchLabels: {app: db}}, ingress: [{}], egress: [{}]}`)
	}, nobody, func(w *keptWorld, flows []*keptFlow) {
		w.settle(w.faulty)
		for _, f := range flows {
			w.goesOn(f)
		}
	})
	w.remove("q")
	w.step("the peers lose their label", peers, func(w *keptWorld) { w.relabel("other", w.peers...) })
	w.relabel("peer", w.peers...)
	w.step("the namespace of the peers loses its label", peers, func(w *keptWorld) { w.team("red") })
	w.team("blue")
	w.relabel("free", w.db)
	w.step("the pod gets the label of a policy", nobody, func(w *keptWorld) { w.relabel("db", w.db) })
	w.remove("p")
	for _, tier := range []string{"Admin", "Baseline"} {
		deny := func(w *keptWorld) { w.operator("deny", tier, "Deny") }
		w.during("a Deny of the tier "+tier, none, deny, undone("deny"))
	}
	accept := func(w *keptWorld) { w.operator("first", "Admin", "Accept"); nobody(w) }
	w.step("an Accept of the tier Admin is deleted", accept, func(w *keptWorld) { w.remove("first") })
	if w.ovnSince(2306) {
		w.step("an Accept of the tier Admin becomes Pass", accept, func(w *keptWorld) { w.operator("first", "Admin", "Pass") })
		w.remove("first")
		w.step("a new controller finds the rows of an older version", peers, func(w *keptWorld) {
			nobody(w)
			w.older()
		})
	}
	w.step("a policy is deleted, and a Deny of the tier Baseline decides", func(w *keptWorld) {
		peers(w)
		w.operator("deny", "Baseline", "Deny")
	}, func(w *keptWorld) { w.remove("p") })
	w.remove("deny", "others")
	w.End(append(append(w.open, w.peers...), w.db)...)
	w.Must(w.RemoveManifest("ns.blues.yaml"))
	w.endNetworks("default/open")
	w.AsBefore()
}

// TestBoundaryKeptUpIngress: connections to a pod end when a change of policies or labels denies them.
func TestBoundaryKeptUpIngress(t *testing.T) { newKeptWorld(t, false).run() }

// TestBoundaryKeptUpEgress: connections that a pod has begun end when a change of policies or labels denies them.
func TestBoundaryKeptUpEgress(t *testing.T) { newKeptWorld(t, true).run() }
