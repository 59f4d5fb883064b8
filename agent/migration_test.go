package agent

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/node/journal"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// TestPodMigrated: when the guest runs in a pod of this node, the port becomes this node's before the pod on the other node
// ends.
func TestPodMigrated(t *testing.T) {
	r, _ := newClaimRig(t)
	r.source.labels = map[string]string{conf.MigrationLabel: "job"}
	r.source.others = map[string]*netmodel.Pod{"launcher": {UID: "u-0"}}
	_, err := r.agent.nb.Ensure(t.Context(), ovnport.Owner{
		Namespace: "shop", Pod: "launcher", UID: "u-0", Sandbox: "c0", Node: "node2", Chassis: "chassis-2",
	}, []ovnport.Request{{Interface: "net1", Network: r.network("red", persistent), IPAMClaim: "shop/vm.red"}}, nil)
	r.must(err)
	chassis := func() string {
		return r.nbRow("Logical_Switch_Port", ovndb.IPAMClaimPortKey("shop/vm.red"))["options"].(map[string]string)["requested-chassis"]
	}
	p, err := r.planFor("c1", ofVM)
	r.must(err)
	r.writeAttached(&journal.Summary{Sandbox: r.sandbox("c1"), Plan: p})
	if got := chassis(); got != "chassis-2,"+r.chassis() {
		t.Errorf("chassis %s", got)
	}
	r.agent.PodMigrated(&netmodel.Pod{Namespace: "shop", Name: r.sandbox("c1").Pod, UID: r.sandbox("c1").UID, Node: "node1"})
	r.eventually("the port is this node's", func() bool { return chassis() == r.chassis() })
	r.wantPorts(map[string]string{"shop/vm.red/ipam:claim": "c1"})
	r.endPlan("c1", p)
	r.wantPorts(map[string]string{})
}
