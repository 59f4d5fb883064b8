package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// withVirtual is a network with a virtual address of the pods with app=a.
func withVirtual(config string) string {
	return strings.Replace(config, `"mtu"`, `"virtualAddresses":[{"address":"10.1.0.100","selector":{"app":"a"}}],"mtu"`, 1)
}

// virtualGroup makes the group of this address, as the controller does.
func (r *rig) virtualGroup(n *netmodel.Network) ovnport.Profile {
	p := ovnport.VirtualGroups(n, &netmodel.Pod{Namespace: "shop", Labels: map[string]string{"app": "a"}})[0]
	r.nb.Transact(r.t, ovndbtest.Op{"op": "insert", "table": "Port_Group", "uuid": p.Group.UUID, "row": ovndbtest.Op{
		"name": p.Group.Name, "external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/network": n.ID()})}})
	return p
}

// security is what port security lets the pods' ports send.
func (r *rig) security() string {
	r.t.Helper()
	var words []string
	for _, row := range r.nb.Dump(r.t, "Logical_Switch_Port") {
		words = append(words, ovndbtest.Strings(row["port_security"])...)
	}
	return strings.Join(words, "\n")
}

// TestADDWithVirtualAddresses: a pod with the labels may have the address, in the transaction of its ADD. Without the address's
// group, which the controller makes, it does not start.
func TestADDWithVirtualAddresses(t *testing.T) {
	r := newRig(t)
	r.source.nads["blue"] = testNAD{Config: withVirtual(blue)}
	r.accept("blue", withVirtual(blue))
	r.start()
	r.source.labels = map[string]string{"app": "a"}
	_, err := r.planFor("c1", "blue")
	r.wantRefused(err, conf.CodeTryAgain, "the port groups of security profiles or virtual addresses are not what they were")
	if got := r.ports(); len(got) > 0 {
		t.Errorf("ports %v without the group", got)
	}
	group := r.virtualGroup(r.network("blue", withVirtual(blue))).Group
	r.proxy.Reset()
	p, err := r.planFor("c1", "blue")
	r.must(err)
	r.wantCounts(1, 0, 0)
	r.wantMembers(map[string]int{group.Name: 1})
	if got := p.Interfaces[0].Port.Groups; len(got) != 1 || got[0].Name != group.Name {
		t.Errorf("the journal gets the groups %v", got)
	}
	if !strings.Contains(r.security(), " 10.1.0.100") {
		t.Errorf("port security is %s", r.security())
	}
	r.source.labels = map[string]string{"app": "b"}
	_, err = r.planFor("c2", "blue")
	r.must(err)
	r.wantMembers(map[string]int{group.Name: 0})
	if strings.Contains(r.security(), "10.1.0.100") {
		t.Errorf("port security of a pod without the labels is %s", r.security())
	}
}

// TestLostPortKeepsItsVirtualAddresses: a port that NB has lost comes back with them, whatever the pod's labels are by now.
func TestLostPortKeepsItsVirtualAddresses(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	l := newLooked(t)
	config := withVirtual(blue)
	l.source.nads["blue"] = testNAD{Config: config}
	l.accept("blue", config)
	group := l.virtualGroup(l.network("blue", config))
	l.profiles = []ovnport.Profile{group}
	port := l.runs("c1", "blue")[0]
	l.installed("c1", true, port)
	l.repairs()
	l.lose(port)
	l.source.labels = map[string]string{"app": "b"}
	l.agent.NBReplaced()
	l.repairs()
	l.wantMembers(map[string]int{group.Group.Name: 1})
	if got := l.security(); !strings.Contains(got, "10.1.0.100") {
		t.Errorf("port security is %s", got)
	}
	if got := fmt.Sprint(len(l.rows())); got != "1" {
		t.Errorf("%s ports", got)
	}
}
