package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// recount is a world in which northd's recomputes are counted, from one operation to the next.
type recount struct {
	*world
	before      lab.Recomputes
	incremental bool // northd computes the change of a port alone: OVN 23.09 and later
	pods        map[string]*lab.Pod
}

// ovnSince reports whether OVN has a version, such as 2309, or a later one.
func (w *world) ovnSince(version int) bool {
	var major, minor int
	_, err := fmt.Sscanf(w.NBCtl("--version"), "ovn-nbctl %d.%d", &major, &minor)
	w.Must(err)
	return major*100+minor >= version
}

func newRecount(t *testing.T) *recount {
	t.Helper()
	r := &recount{world: newGatewayWorld(t, gatewayConfig+grantedVLANs, 0, 1), pods: map[string]*lab.Pod{}}
	r.incremental = r.ovnSince(2309)
	r.gatewayStands(0, 1)
	r.gatewayComesTo(0, 1)
	r.gatewayCarries(1500)
	r.network("first", outOf(2, ""))
	r.before = r.settled()
	return r
}

// settled reads northd's counters when northd has nothing left to do: what it writes comes back to it as a change. A
// northd that is not incremental computes everything for each sync too.
func (r *recount) settled() (now lab.Recomputes) {
	r.Eventually(func() error {
		r.NBCtl("--wait=hv", "sync")
		was := now
		var err error
		if now, err = r.Recomputes(r.Ctx); err == nil && was != now && r.incremental {
			err = fmt.Errorf("northd is not done: %+v became %+v", was, now)
		}
		return err
	})
	return now
}

// costs wants an operation to cost at most so many recomputes. A northd that is slow computes several changes at once.
func (r *recount) costs(most int, what string, do func()) {
	r.T.Helper()
	do()
	now := r.settled()
	northd, lflow := now.Northd-r.before.Northd, now.LFlow-r.before.LFlow
	r.before = now
	r.T.Logf("%-40s %d recomputes of northd, %d of lflow", what, northd, lflow)
	if r.incremental && max(northd, lflow) > most {
		r.T.Errorf("%s costs %d recomputes of northd and %d of lflow, want at most %d", what, northd, lflow, most)
	}
	if !r.incremental && northd == 0 {
		r.T.Errorf("%s costs no recompute, and this OVN is not incremental", what)
	}
}

func (r *recount) edit(name, config string) func() { return func() { r.network(name, config) } }

func (r *recount) add(node int, name, networks string) func() {
	return func() { r.pods[name] = r.Attached(node, name, networks) }
}

func (r *recount) del(names ...string) func() {
	return func() {
		for _, name := range names {
			r.End(r.pods[name])
		}
	}
}

func (r *recount) ends(nads ...string) func() { return func() { r.endNetworks(nads...) } }

// costsOfPolicies counts for a policy on network flat.
func (r *recount) costsOfPolicies() {
	member := func(node int, name, app string) func() {
		return func() { r.pods[name] = r.labelled(node, name, "flat", map[string]string{"app": app}) }
	}
	// A change of the switches that a group has ports on makes northd compute the logical flows again.
	r.costs(1, "policy: accepted", func() {
		r.policy("p", "flat", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`)
	})
	r.costs(1, "policy: first ADD of a restricted pod", member(0, "db1", "db"))
	r.costs(0, "policy: second ADD of a restricted pod", member(1, "db2", "db"))
	r.costs(1, "policy: first ADD of a peer", member(0, "web1", "web"))
	r.costs(0, "policy: second ADD of a peer", member(1, "web2", "web"))
	r.costs(0, "policy: ADD of another pod", member(1, "none", "none"))
	r.costs(0, "policy: DELs", r.del("web2", "none"))
	r.costs(1, "policy: last DEL of a peer", r.del("web1"))
	r.costs(1, "policy: last DELs of restricted pods", r.del("db1", "db2"))
	r.costs(1, "policy: deleted", func() {
		r.Must(r.RemoveManifest(policyManifest("p")))
		r.Eventually(func() error {
			if groups := r.NBCtl("--bare", "--columns=name", "list", "Port_Group"); groups != "" {
				return fmt.Errorf("groups %s", groups)
			}
			return nil
		})
	})
}

// costsOfActiveNode counts what the failure of a gateway's active node costs, and the loss of its label.
func (r *recount) costsOfActiveNode() {
	r.watched(0, 1, 2)
	active := r.gatewayComesTo(0, 1)
	r.costs(8, "gateway: active node fails and returns", func() {
		r.Must(r.Nodes[active].VSwitchd.Kill())
		r.gatewayComesTo(1 - active)
		r.says(r.Nodes[1-active].Agent, "this node is the active node of a gateway")
		r.Must(r.Nodes[active].VSwitchd.Restart(r.Ctx))
		r.watched(0, 1, 2)
	})
	r.costs(4, "gateway: a node's label deleted", func() {
		r.Must(r.WriteManifest("nodes.yaml", nodesManifest(r.Nodes, 1-active)))
		r.Eventually(func() error {
			if out := r.NBCtl("--bare", "--columns=_uuid", "list", "HA_Chassis"); len(strings.Fields(out)) != 1 {
				return fmt.Errorf("nodes of the gateway: %s", out)
			}
			return nil
		})
	})
}

// TestRecomputes counts how often northd computes everything again, for each operation of ours. During a recompute every
// new pod of the cluster waits. A pod costs none, and each of our operations is one transaction. The table of
// docs/design/controller.md says which recomputes OVN leaves no way around.
func TestRecomputes(t *testing.T) {
	t.Parallel()
	r := newRecount(t)
	flat := func(keys string) string {
		return fmt.Sprintf(`{"type":"ovn-multinet","subnets":"10.7.0.0/16,fd07::/64"%s}`, keys)
	}
	on := func(i int, keys string) string {
		return fmt.Sprintf(`{"type":"ovn-multinet","router":"r","subnets":"10.%d.0.0/24"%s}`, i, keys)
	}
	r.costs(0, "nothing", func() {})

	r.costs(2, "layer2: NAD accepted", r.edit("flat", flat("")))
	r.costs(0, "layer2: mtu edited", r.edit("flat", flat(`,"mtu":1300`)))
	r.costs(0, "layer2: routes edited", r.edit("flat", flat(`,"routes":[{"dst":"192.0.2.0/24"}]`)))
	r.costs(1, "layer2: excludeSubnets edited", r.edit("flat", flat(`,"excludeSubnets":"10.7.9.0/24"`)))
	r.costs(0, "layer2: first ADD", r.add(0, "a", "flat"))
	r.costs(0, "layer2: ADD on another node", r.add(1, "b", "flat"))
	r.costs(0, "layer2: ADD of three networks", r.add(1, "c", "flat,blue,green"))
	r.costs(0, "layer2: DEL", r.del("a"))
	r.costs(0, "layer2: last DELs", r.del("b", "c"))
	r.costsOfPolicies()
	r.costs(2, "layer2: NAD deleted", r.ends("flat"))

	r.costs(2, "router: first NAD accepted", r.edit("north", on(8, "")))
	r.costs(2, "router: second NAD accepted", r.edit("south", on(9, "")))
	r.costs(1, "router: a smaller mtu than the other network's", r.edit("south", on(9, `,"mtu":1300`)))
	r.costs(0, "router: ADDs", func() { r.add(0, "a", "north")(); r.add(0, "b", "north,south")() })
	r.costs(0, "router: DELs", r.del("a", "b"))
	r.costs(2, "router: NAD deleted", r.ends("south"))
	r.costs(2, "router: last NAD deleted", r.ends("north"))

	r.costs(2, "layer3: NAD accepted", r.edit("wide", fmt.Sprintf(wide, "")))
	r.costs(2, "layer3: a node's first ADD", r.add(0, "a", "wide"))
	r.costs(0, "layer3: a node's second ADD", r.add(0, "b", "wide"))
	r.costs(2, "layer3: another node's first ADD", r.add(1, "c", "wide"))
	r.costs(0, "layer3: mtu edited", r.edit("wide", fmt.Sprintf(wide, `,"mtu":1300`)))
	r.costs(0, "layer3: all DELs", r.del("a", "b", "c"))
	r.costs(0, "layer3: a node's first ADD again", r.add(0, "d", "wide"))
	r.costs(0, "layer3: a node's last DEL", r.del("d"))
	r.costs(2, "layer3: NAD deleted", r.ends("wide"))

	r.costs(2, "localnet: NAD accepted", r.edit("vlan", onVLAN(100, "")))
	r.costs(0, "localnet: ADDs", func() { r.add(0, "a", "vlan")(); r.add(1, "b", "vlan")() })
	r.costs(0, "localnet: DELs", r.del("a", "b"))
	r.costs(2, "localnet: NAD deleted", r.ends("vlan"))

	r.costs(2, "gateway: NAD accepted", r.edit("hidden", outOf(1, "")))
	r.costs(1, "gateway: a node's first ADD", r.add(2, "a", "hidden"))
	r.costs(0, "gateway: a node's second ADD", r.add(2, "b", "hidden"))
	r.costs(0, "gateway: DEL", r.del("b"))
	r.costs(0, "agents' restart", func() {
		for _, n := range r.Nodes {
			r.Must(n.StopAgent(r.Ctx))
			r.Must(n.StartAgent(r.Ctx))
		}
		r.Must(r.Announced(r.Ctx))
	})
	r.costs(2, "controller's restart, NAD accepted", func() {
		r.Must(r.StopController(r.Ctx))
		r.Must(r.StartController(r.Ctx))
		r.network("flat", flat(""))
	})

	r.costsOfActiveNode()
	r.costs(1, "gateway: a node's last DEL", r.del("a"))
	r.costs(6, "all NADs deleted", r.ends("hidden", "flat", "first"))
}
