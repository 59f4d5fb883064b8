package wiring

import (
	"fmt"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
)

func TestLinkGroup(t *testing.T) {
	seen := map[uint32]string{}
	twice := 0
	for container := range 2000 {
		s := agentapi.Sandbox{ContainerID: fmt.Sprintf("%064x", container), Interface: "eth0"}
		group := linkGroup(&s)
		if group < 1<<30 || group >= 1<<31 {
			t.Fatalf("group %#x of %s", group, s.ID())
		}
		if seen[group] != "" {
			twice++
		}
		seen[group] = s.ID()
	}
	if twice > 1 { // 2000 of 2^30: one pair in 500 runs
		t.Errorf("%d groups are shared", twice)
	}
	one, other := agentapi.Sandbox{ContainerID: "c", Interface: "eth0"}, agentapi.Sandbox{ContainerID: "c", Interface: "eth1"}
	if linkGroup(&one) == linkGroup(&other) {
		t.Error("two attachments of one container are one group")
	}
	again := agentapi.Sandbox{ContainerID: "c", Interface: "eth0", Pod: "p", UID: "u"}
	if linkGroup(&one) != linkGroup(&again) {
		t.Error("the group depends on more than container and interface")
	}
	if got, want := linkGroup(&agentapi.Sandbox{ContainerID: "c1", Interface: "eth0"}), uint32(1727641828); got != want {
		t.Errorf("group %d, want %d: links of pods that run are in it", got, want)
	}
}
