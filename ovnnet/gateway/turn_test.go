package gateway_test

import (
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// turnsOf reads the turns of a chassis, by router.
func turnsOf(t *testing.T, n *nbtest.Client, chassis string) map[string]*gateway.Failover {
	t.Helper()
	turns, err := n.Node.FailoversOf(nbtest.WithLimit(t), chassis)
	if err != nil {
		t.Fatal(err)
	}
	byRouter := map[string]*gateway.Failover{}
	for i := range turns {
		byRouter[turns[i].Router] = &turns[i]
	}
	if len(byRouter) != len(turns) {
		t.Errorf("turns of %s: %v, a router twice", chassis, turns)
	}
	return byRouter
}

// hosts tells who has a gateway as OVN's ha-chassis.c has it: of one alone it is that one; who reaches nobody has it not; else
// it is the first of those that are reached and oneself.
func hosts(priorities map[string]int, me string, alive map[string]bool) bool {
	if len(priorities) == 1 {
		return priorities[me] != 0
	}
	if len(alive) == 0 {
		return false
	}
	best := me
	for name, p := range priorities {
		if alive[name] && p > priorities[best] {
			best = name
		}
	}
	return best == me
}
