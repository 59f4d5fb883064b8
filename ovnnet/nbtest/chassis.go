package nbtest

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
)

// Chassis returns a list of nodes. The chassis of each node has the node's name.
func Chassis(nodes ...string) []gateway.Chassis {
	list := make([]gateway.Chassis, len(nodes))
	for i, node := range nodes {
		list[i] = gateway.Chassis{Node: node, Name: node}
	}
	return list
}

// Order returns the chassis of r1's gateway and their priorities, the highest priority first. It fails if two
// priorities are equal or a priority is not in OVN's range.
func (w *World) Order(t *testing.T) (names []string, priorities []int) {
	t.Helper()
	rows := w.Rows(t)
	members := map[string]int{}
	for _, key := range strings.Fields(rows["HA_Chassis_Group"][GwGroup]["ha_chassis"]) {
		p, err := strconv.Atoi(rows["HA_Chassis"][key]["priority"])
		if err != nil || p < 0 || p > 32767 {
			t.Errorf("chassis %v: %v", rows["HA_Chassis"][key], err)
		}
		members[rows["HA_Chassis"][key]["chassis_name"]] = p
	}
	names = slices.SortedFunc(maps.Keys(members), func(a, b string) int { return cmp.Compare(members[b], members[a]) })
	for i, name := range names {
		if priorities = append(priorities, members[name]); i > 0 && priorities[i] == priorities[i-1] {
			t.Errorf("priorities %v", members)
		}
	}
	return names, priorities
}

// SetPriorities writes priorities as an operator does by hand.
func (w *World) SetPriorities(t *testing.T, of map[string]int) {
	t.Helper()
	for name, p := range of {
		w.Change(t, "HA_Chassis", GwMember(name), ovndbtest.Op{"priority": p})
	}
}
