package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
)

// profilesConfig allows a profile for namespace shop, and another one for namespaces that begin with "team-".
const profilesConfig = `securityProfiles:
  guarded: {portGroup: pg_guarded, namespaces: [shop]}
  teams: {portGroup: pg_teams, namespaces: ["team-*"]}
`

// newProfilesWorld has the operator's port group pg_guarded, to which nobody can send TCP to port 80 and UDP to port 99.
func newProfilesWorld(t *testing.T) *world {
	w := parallelWorld(t, lab.Options{Nodes: 2}, func(l *lab.Lab) {
		reconciling(l)
		controllerConfig(t, l, profilesConfig)
	})
	w.NBCtl("pg-add", "pg_guarded", "--", "acl-add", "pg_guarded", "to-lport", "1000",
		"outport == @pg_guarded && (tcp.dst == 80 || udp.dst == 99)", "drop", "--", "pg-add", "pg_teams")
	w.network("guarded", `{"type":"ovn-multinet","subnets":"10.41.0.0/16,fd41::/64","securityProfiles":["guarded"]}`)
	w.network("default/open", `{"type":"ovn-multinet","subnets":"10.40.0.0/16"}`)
	w.profilesAre("guarded", "teams")
	w.Base = w.Snapshot()
	return w
}

// profilesAre waits until the agents can know these profiles.
func (w *world) profilesAre(names ...string) {
	w.Eventually(func() error {
		row := w.NBCtl("--bare", "--columns=external_ids", "find", "Copp", `name="ovn-multinet security profiles"`)
		for _, name := range names {
			if !strings.Contains(row, "ovn-multinet/profile:"+name+"=") {
				return fmt.Errorf("profiles %s, want %s", row, name)
			}
		}
		if got := strings.Count(row, "ovn-multinet/profile:"); got != len(names) {
			return fmt.Errorf("%d profiles, want %d", got, len(names))
		}
		return nil
	})
}

// asks is an annotation for a port on a network with a profile and this address.
func asks(network, profile, ip string) string {
	return fmt.Sprintf(`[{"name":%q,"ips":[%q],"cni-args":{"securityProfiles":[%q]}}]`, network, ip, profile)
}

func (w *world) groupSize(name string) int {
	return len(strings.Fields(w.NBCtl("--bare", "--columns=ports", "find", "Port_Group", "name="+name)))
}

// TestSecurityProfiles: a port in a port group of the operator's has its ACLs, by the network or by the pod's
// annotation, from its first packet to its last, on each node. Other pods have not.
func TestSecurityProfiles(t *testing.T) {
	w := newProfilesWorld(t)
	open, from := w.Attached(0, "open", "blue"), w.Attached(1, "from", "blue")
	byPod := w.Attached(0, "by-pod", asks("blue", "guarded", "10.1.88.1"))
	byNetwork, peer := w.Attached(0, "by-network", "guarded"), w.Attached(1, "peer", "guarded")
	for _, p := range []*lab.Pod{open, byPod, byNetwork, peer} {
		w.answer(p, 80, 81)
	}
	w.allowed(from, w.Links(open)["net1"].IPs()[0], "tcp/80")
	w.allowed(from, "10.1.88.1", "tcp/81")
	w.denied(from, "10.1.88.1", "tcp/80")
	w.denied(open, "10.1.88.1", "tcp/80")
	for _, to := range w.Links(byNetwork)["net1"].IPs() {
		w.allowed(peer, to, "tcp/81")
		w.denied(peer, to, "tcp/80")
	}
	w.part("the first packet", func(t *testing.T, w *world) { w.profileFirstPacket(from) })
	w.part("a lost row", func(t *testing.T, w *world) {
		controllerConfig(t, w.Lab, "securityProfiles: {}\n") // what a pod has stays, whatever is allowed now
		w.profilesAre()
		w.NBCtl("lsp-del", "shop/by-pod/net1")
		w.Eventually(func() error {
			if got := w.groupSize("pg_guarded"); got != 3 {
				return fmt.Errorf("%d ports in the group, want 3", got)
			}
			return nil
		})
		w.allowed(from, "10.1.88.1", "tcp/81")
		w.denied(from, "10.1.88.1", "tcp/80")
		controllerConfig(t, w.Lab, profilesConfig)
		w.profilesAre("guarded", "teams")
	})
	w.part("a new sandbox without the profile", func(t *testing.T, w *world) {
		w.End(byPod)
		plain := w.Attached(0, "by-pod", `[{"name":"blue","ips":["10.1.88.1"]}]`)
		w.answer(plain, 80)
		w.allowed(from, "10.1.88.1", "tcp/80")
		w.End(plain)
	})
	w.End(open, from, byNetwork, peer)
	equal(t, "ports in the group", w.groupSize("pg_guarded"), 0)
	w.AsBefore()
}

// TestProfilesAndPolicies: an ACL of a profile decides before a tenant's policy, in both directions. For what a pod
// sends it needs the option apply-after-lb. Without it, OVN asks the policies too about what it allows.
func TestProfilesAndPolicies(t *testing.T) {
	w := newProfilesWorld(t)
	const in, out = "outport == @pg_guarded && ", "inport == @pg_guarded && "
	w.NBCtl("acl-add", "pg_guarded", "to-lport", "20000", in+"udp.dst == 80", "allow-related")
	w.NBCtl("--apply-after-lb", "acl-add", "pg_guarded", "from-lport", "20000", out+"tcp.dst == 80", "allow-related")
	w.NBCtl("acl-add", "pg_guarded", "from-lport", "20000", out+"tcp.dst == 81", "allow-related")
	w.NBCtl("acl-add", "pg_guarded", "from-lport", "5", out+"udp.dst == 81", "drop")
	w.Base = w.Snapshot()
	guarded := w.labelled(0, "guarded", asks("blue", "guarded", "10.1.88.1"), map[string]string{"app": "db"})
	peer := w.labelled(1, "peer", `[{"name":"blue","ips":["10.1.88.2"]}]`, nil)
	w.answer(guarded, 80, 81)
	w.answer(peer, 80, 81)
	w.policy("silent", "blue", silent)
	w.NBCtl("--wait=hv", "sync")
	w.allowed(peer, "10.1.88.1", "udp/80")
	w.denied(peer, "10.1.88.1", "udp/81")
	w.allowed(guarded, "10.1.88.2", "tcp/80")
	w.denied(guarded, "10.1.88.2", "tcp/81")
	w.policy("silent", "blue", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{}]}`)
	w.allowed(guarded, "10.1.88.2", "tcp/81")
	w.allowed(guarded, "10.1.88.2", "udp/80")
	w.denied(guarded, "10.1.88.2", "udp/81")
	w.Must(w.RemoveManifest(policyManifest("silent")))
	w.Over(guarded, peer)
}

// profileFirstPacket starts pods under a flood, without a controller.
func (w *world) profileFirstPacket(from *lab.Pod) {
	const port = 99
	addrs, macs := leaseMACs(6)
	near := w.Attached(0, "near", "blue")
	defer w.End(near)
	defer w.flood(near, "net1", macs, port)()
	defer w.flood(from, "net1", macs, port)()
	start := func(i int, networks string) (*lab.Pod, *answerer) {
		p := w.Pod(i%2, fmt.Sprint("pod-", i), networks)
		counts := w.answer(p, port) // before the pod has an interface: from the first packet on
		w.Add(p)
		return p, counts
	}
	for i := range 2 { // the flood reaches both nodes, and pods that are as new as the others
		p, counts := start(i, fmt.Sprintf(`[{"name":"blue","ips":[%q]}]`, addrs[i]))
		defer w.End(p)
		w.Eventually(func() error {
			if got := counts.of(fmt.Sprint("udp/", port)); got < 1000 {
				return fmt.Errorf("%s has got %d packets of the flood", p, got)
			}
			return nil
		})
	}
	w.Must(w.StopController(w.Ctx))
	for i := 2; i < len(addrs); i++ {
		p, counts := start(i, asks("blue", "guarded", addrs[i]))
		w.End(p)
		if got := counts.of(fmt.Sprint("udp/", port)); got != 0 {
			w.T.Errorf("%s has got %d packets of the flood, want 0", p, got)
		}
	}
	w.Must(w.StartController(w.Ctx))
}

// TestBoundaryForeignProfiles: a tenant cannot name a profile of other namespaces, a port group of the operator, or a
// group of network policies. The ADD names the profile and the namespace, and leaves nothing. When the operator allows
// the profile, the next ADD succeeds.
func TestBoundaryForeignProfiles(t *testing.T) {
	w := newProfilesWorld(t)
	w.policy("deny", "blue", `{podSelector: {matchLabels: {app: db}}}`)
	ofPolicy := strings.Fields(w.NBCtl("--bare", "--columns=name", "find", "Port_Group",
		`external_ids:"ovn-multinet/network"="shop/blue"`))[0]
	for _, name := range []string{"teams", "pg_teams", "pg_guarded", ofPolicy, "unknown"} {
		w.part(name, func(t *testing.T, w *world) {
			p := w.Pod(0, "bad", fmt.Sprintf(`[{"name":"blue"},{"name":"blue","cni-args":{"securityProfiles":[%q]}}]`, name))
			w.Base = w.Snapshot()
			_, err := p.Add(w.Ctx)
			w.refused(err, conf.CodeNotAllowed, "net2", "security profile "+name+" is not allowed for namespace shop")
			w.Over(p)
		})
	}
	other, err := w.Nodes[1].NewPod(w.Ctx, "team-a", "late", map[string]string{
		labtest.NetworksAnnotation: `[{"name":"open","namespace":"default","cni-args":{"securityProfiles":["guarded"]}}]`})
	w.Must(err)
	w.Must(other.WriteManifest())
	_, err = other.Add(w.Ctx)
	w.refused(err, conf.CodeNotAllowed, "net1", "security profile guarded is not allowed for namespace team-a")
	controllerConfig(t, w.Lab, strings.Replace(profilesConfig, "[shop]", `["team-*"]`, 1))
	w.AddInTheEnd(other)
	equal(t, "ports in the group", w.groupSize("pg_guarded"), 1)
	w.refused(w.TryAdd(w.Pod(0, "since", `[{"name":"blue","cni-args":{"securityProfiles":["guarded"]}}]`)),
		conf.CodeNotAllowed, "security profile guarded is not allowed for namespace shop")
	w.End(other)
}
