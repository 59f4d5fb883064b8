package agent

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

const (
	persistent = `{"name":"vlan-net","type":"ovn-multinet","subnets":"10.3.0.0/24,fd03::/64","mtu":1400,"allowPersistentIPs":true}`
	ofVM       = `[{"name":"red","ipam-claim-reference":"vm.red"}]`
)

// newClaimRig is a rig with the network shop/red, which allows IPAMClaims, and one of these.
func newClaimRig(t *testing.T) (*rig, *netmodel.IPAMClaim) {
	r := newRig(t)
	r.source.nads["red"] = testNAD{Config: persistent}
	r.putSwitch("red", persistent)
	claim := &netmodel.IPAMClaim{Namespace: "shop", Name: "vm.red", Network: "vlan-net"}
	r.source.claims = map[string]*netmodel.IPAMClaim{"shop/vm.red": claim}
	r.start()
	return r, claim
}

// release ends the sandbox of a plan.
func (r *rig) endPlan(id string, p *agentapi.Plan) {
	r.t.Helper()
	release := agentapi.Release{Sandbox: r.sandbox(id), Planned: true}
	for _, i := range p.Interfaces {
		release.Ports = append(release.Ports, i.Port)
	}
	r.must(r.call(agentapi.OpRelease, release, &agentapi.Released{}))
}

// TestIPAMClaimOfPod: what an IPAMClaim asks for counts for the first pod, what its status has for the first pod in an NB
// that has lost the rows, and what NB has for each other one. The agent reads it once for a pod.
func TestIPAMClaimOfPod(t *testing.T) {
	r, claim := newClaimRig(t)
	has := func(id, want string) {
		t.Helper()
		r.source.claimReads = 0
		p, err := r.planFor(id, ofVM)
		r.must(err)
		if got := fmt.Sprint(p.Interfaces[0].Addresses); got != want {
			t.Errorf("the pod has %s, want %s", got, want)
		}
		if r.source.claimReads != 1 {
			t.Errorf("%d reads of the IPAMClaim", r.source.claimReads)
		}
		r.endPlan(id, p)
	}
	claim.Requested = []netip.Prefix{netip.MustParsePrefix("10.3.0.7/16")}
	claim.Status.IPs = []string{"10.3.0.8/24", "10.3.0.8/16", "fd03::8/64", "no address", "10.9.0.1/24"}
	p, err := r.planFor("c1", ofVM)
	r.must(err)
	addresses := p.Interfaces[0].Addresses
	if addresses[0].String() != "10.3.0.7/24" {
		t.Errorf("the pod has %v", addresses)
	}
	r.endPlan("c1", p)
	claim.Requested = nil
	has("c2", fmt.Sprint(addresses))
	for _, row := range r.nb.Dump(t, "Copp") {
		if ids := row["external_ids"].(map[string]string); ids["ovn-multinet/ipam-claim"] != "" {
			r.nb.NBCtl("destroy", "Copp", row["_uuid"].(string))
		}
	}
	has("c3", "[10.3.0.8/24 fd03::8/64]")
}

// TestIPAMClaimRefused: an IPAMClaim that is not of this interface, or not there, leaves no port.
func TestIPAMClaimRefused(t *testing.T) {
	r, claim := newClaimRig(t)
	for _, tt := range []struct {
		code uint
		want string
		set  func()
	}{
		{conf.CodeInvalidConfig, `interface net1: IPAMClaim shop/vm.red is for network "other", not for network shop/red with the name "vlan-net"`,
			func() { claim.Network = "other" }},
		{conf.CodeInvalidConfig, `interface net1: IPAMClaim shop/vm.red is for interface "pod1", not for interface net1`,
			func() { claim.Network, claim.Interface = "", "pod1" }},
		{conf.CodeInvalidConfig, `interface net1: IPAMClaim shop/vm.red requests an address that it cannot have: address 10.9.0.1 is outside the ` +
			`subnets 10.3.0.0/24,fd03::/64 of network shop/red`,
			func() { claim.Interface, claim.Requested = "", []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")} }},
		{conf.CodeInvalidConfig, "interface net1: IPAMClaim shop/vm.red requests address 10.3.0.7 twice",
			func() {
				claim.Requested = []netip.Prefix{netip.MustParsePrefix("10.3.0.7/24"), netip.MustParsePrefix("10.3.0.7/16")}
			}},
		{conf.CodeInvalidConfig, "interface net1: IPAMClaim shop/vm.red cannot be used: its spec: no addresses",
			func() { claim.Requested, claim.Problem = nil, "its spec: no addresses" }},
		{conf.CodeTryAgain, "interface net1: IPAMClaim shop/vm.red is being deleted", func() { claim.Deleting = true }},
		{conf.CodeTryAgain, "interface net1: IPAMClaim shop/vm.red is not found", func() { delete(r.source.claims, "shop/vm.red") }},
	} {
		tt.set()
		_, err := r.planFor("c1", ofVM)
		r.wantRefused(err, tt.code, tt.want)
		r.wantPorts(map[string]string{})
	}
}

// TestIPAMClaimFollows: the port goes to another pod only when the pod that has it is gone, or has ended for good; and
// never to a pod that has ended itself.
func TestIPAMClaimFollows(t *testing.T) {
	const port = "shop/vm.red/ipam:claim"
	for name, tt := range map[string]struct {
		other *netmodel.Pod
		ended bool
		code  uint
		want  string
	}{
		"it runs": {other: &netmodel.Pod{UID: "u-0"}, code: conf.CodeInUse, want: "its IPAMClaim is in use by pod shop/launcher"},
		"it is being deleted": {other: &netmodel.Pod{UID: "u-0", Ending: true}, code: conf.CodeInUse,
			want: "its IPAMClaim is in use by pod shop/launcher"},
		"it has ended":                  {other: &netmodel.Pod{UID: "u-0", Ended: true}},
		"it is gone":                    {},
		"another one has its name":      {other: &netmodel.Pod{UID: "u-2"}},
		"the new one has ended as well": {ended: true, code: conf.CodePodGone, want: "pod shop/web with UID u-1 has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newClaimRig(t)
			r.source.ended = tt.ended
			if tt.other != nil {
				r.source.others = map[string]*netmodel.Pod{"launcher": tt.other}
			}
			had, err := r.agent.nb.Ensure(t.Context(), ovnport.Owner{
				Namespace: "shop", Pod: "launcher", UID: "u-0", Sandbox: "c0", Node: "node2", Chassis: "chassis-2",
			}, []ovnport.Request{{Interface: "net1", Network: r.network("red", persistent), IPAMClaim: "shop/vm.red"}}, nil)
			r.must(err)
			p, err := r.planFor("c1", ofVM)
			if tt.code != 0 {
				if !conf.HasCode(err, tt.code) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q with code %d", err, tt.want, tt.code)
				}
				r.wantPorts(map[string]string{port: "c0"})
				return
			}
			r.must(err)
			r.wantPorts(map[string]string{port: "c1"})
			if got := fmt.Sprint(p.Interfaces[0].Addresses, p.Interfaces[0].MAC); got != fmt.Sprint(had[0].Addresses, had[0].MAC.String()) {
				t.Errorf("the pod has %s, want %v", got, had[0])
			}
		})
	}
}

// TestIPAMClaimMigrates: the target of a live migration shares the port with the pod that has it, and its DEL leaves the
// port as it was. A pod on the same node is no target.
func TestIPAMClaimMigrates(t *testing.T) {
	const port = "shop/vm.red/ipam:claim"
	for _, node := range []string{"node1", "node2"} { // the agent's is node1
		r, _ := newClaimRig(t)
		r.source.labels = map[string]string{conf.MigrationLabel: "job"}
		r.source.others = map[string]*netmodel.Pod{"launcher": {UID: "u-0"}}
		_, err := r.agent.nb.Ensure(t.Context(), ovnport.Owner{
			Namespace: "shop", Pod: "launcher", UID: "u-0", Sandbox: "c0", Node: node, Chassis: "chassis-2",
		}, []ovnport.Request{{Interface: "net1", Network: r.network("red", persistent), IPAMClaim: "shop/vm.red"}}, nil)
		r.must(err)
		chassis := func() string {
			return r.nbRow("Logical_Switch_Port", ovndb.IPAMClaimPortKey("shop/vm.red"))["options"].(map[string]string)["requested-chassis"]
		}
		p, err := r.planFor("c1", ofVM)
		if node == "node1" {
			if !conf.HasCode(err, conf.CodeInUse) || chassis() != "chassis-2" {
				t.Errorf("on the same node: %v, chassis %s", err, chassis())
			}
			continue
		}
		r.must(err)
		r.wantPorts(map[string]string{port: "c0"})
		if got, want := chassis(), "chassis-2,"+r.chassis(); got != want {
			t.Errorf("chassis %s, want %s", got, want)
		}
		r.endPlan("c1", p)
		r.wantPorts(map[string]string{port: "c0"})
		if got := chassis(); got != "chassis-2" {
			t.Errorf("chassis %s after the DEL", got)
		}
	}
}

// TestIPAMClaimLeaves: the DEL of a pod whose virtual machine migrates leaves the port to the target.
func TestIPAMClaimLeaves(t *testing.T) {
	r, _ := newClaimRig(t)
	p, err := r.planFor("c1", ofVM)
	r.must(err)
	_, err = r.agent.nb.Ensure(t.Context(), ovnport.Owner{
		Namespace: "shop", Pod: "target", UID: "u-2", Sandbox: "c2", Node: "node2", Chassis: "chassis-2",
	}, []ovnport.Request{{Interface: "net1", Network: r.network("red", persistent), IPAMClaim: "shop/vm.red"}},
		func(context.Context, ovnport.Owner) error { return ovnport.ErrMigrates })
	r.must(err)
	r.endPlan("c1", p)
	r.wantPorts(map[string]string{"shop/vm.red/ipam:claim": "c2"})
}

// TestNoEarlyPortOfIPAMClaim: an early port would be taken from the pod that still has it.
func TestNoEarlyPortOfIPAMClaim(t *testing.T) {
	r, _ := newClaimRig(t)
	r.agent.PodBound(r.boundPod(`[{"name":"blue"},{"name":"red","ipam-claim-reference":"vm.red"}]`))
	if got := r.earlyDone(); len(got) != 1 || got["shop/web/net1"] != earlyOfWeb {
		t.Errorf("early ports %v, want net1 alone", got)
	}
}
