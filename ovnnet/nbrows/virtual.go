package nbrows

import (
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// The ports of the pods that may have a virtual address are a port group. Agents make a pod's port a member when the
// pod starts. By the ACLs of the group, VRRP passes between its ports whatever policies deny: a policy cannot name a
// protocol beside TCP, UDP and SCTP. Nothing else of this protocol passes: a pod sends it to the group alone, and gets
// it from its own link alone. There it has the hop limit 255, which no router leaves as it is (RFC 9568, sections
// 5.1.1.3 and 5.1.2.3). A guard of the switch denies VRRP of other pods, which could pretend to have the address. The
// sender's node decides that: ovn-controller knows only those ports of a group that are on its own node.

// VirtualGroup has the rows of a virtual address of pods, beside its claim.
type VirtualGroup struct {
	Group *nb.PortGroup
	ACLs  map[string]*nb.ACL // by row key
}

const kindVirtual = "virtual address"

// vrrp is the number of the protocol VRRP (RFC 9568, section 5.1.1.4).
const vrrp = "ip.proto == 112"

var (
	sendsVRRP    = guardACL{"VRRP out", fromPort, 32767, "allow"}
	getsVRRP     = guardACL{"VRRP in", toPort, 32767, "allow"}
	getsNoOther  = guardACL{"VRRP of others", toPort, 32766, "drop"}
	virtualRules = []guardACL{sendsVRRP, getsVRRP, getsNoOther}
	// othersVRRP is a guard of the switch of a network with virtual addresses.
	othersVRRP = guardACL{"VRRP", fromPort, 32766, "drop"}
)

// vrrpOfOthers matches the VRRP that othersVRRP denies. Machines on a physical network may have the address as well as
// pods. localnet is the name of the port to it; "": the network has none.
func vrrpOfOthers(localnet string) string {
	if localnet == "" {
		return vrrp
	}
	return fmt.Sprintf("inport != %q && %s", localnet, vrrp)
}

// ReadVirtual adds the rows of the virtual address with the claim at a key, for rows by the group's row key.
func ReadVirtual(r *Reads, claim string, rows map[string]*VirtualGroup) {
	key, _ := ovndb.VirtualGroup(claim)
	have := &VirtualGroup{ACLs: map[string]*nb.ACL{}}
	rows[key] = have
	ReadOne(r, nb.PortGroupTable, key, &have.Group, "_uuid", "name", "external_ids")
	for _, g := range virtualRules {
		ReadInto(r, nb.ACLTable, g.key(key), g.key(key), have.ACLs)
	}
}

// WantedVirtual returns the rows of a network's virtual addresses, by the group's row key.
func WantedVirtual(network *netmodel.Network) map[string]*VirtualGroup {
	rows := map[string]*VirtualGroup{}
	for i := range network.VirtualAddresses {
		key, name := ovndb.VirtualGroup(ovndb.AddressKey(network.AddressBook(), network.VirtualAddresses[i].Address))
		group := &nb.PortGroup{
			UUID: key, Name: name, ExternalIDs: map[string]string{KeyNetwork: network.ID(), KeyKind: kindVirtual},
		}
		from, to := "inport == @"+name+" && "+vrrp, "outport == @"+name+" && "+vrrp
		matches := map[string]string{
			sendsVRRP.name: fmt.Sprintf("(%[1]s && ip4.dst == {224.0.0.18, $%[2]s_ip4}) || "+
				"(%[1]s && ip6.dst == {ff02::12, fe80::/10, $%[2]s_ip6})", from, name),
			getsVRRP.name:    to + " && ip.ttl == 255",
			getsNoOther.name: to,
		}
		acls := map[string]*nb.ACL{}
		for _, g := range virtualRules {
			row := g.row(g.key(key), matches[g.name])
			row.ExternalIDs = map[string]string{KeyNetwork: network.ID()}
			acls[row.UUID] = row
		}
		rows[key] = &VirtualGroup{group, acls}
	}
	return rows
}

// SetVirtual makes the rows of virtual addresses the wanted ones. Members of a group that stays are not touched.
func (b *Batch) SetVirtual(have, wanted map[string]*VirtualGroup) {
	for _, key := range SortedKeys(have) {
		if wanted[key] == nil && have[key].Group != nil {
			b.Add(ovndb.Delete(nb.PortGroupTable, key)) // the database deletes its ACLs
		}
	}
	for _, key := range SortedKeys(wanted) {
		was := have[key]
		if was == nil {
			was = &VirtualGroup{}
		}
		in := Holder{Table: nb.PortGroupTable, Key: key, Column: "acls"}
		Put(b, nb.PortGroupTable, key, was.Group, wanted[key].Group)
		if was.Group == nil {
			was = &VirtualGroup{} // an ACL without its group is about to be deleted
		}
		Compare(b, nb.ACLTable, was.ACLs, wanted[key].ACLs, func(string, *nb.ACL) Holder { return in })
	}
}

// DeleteVirtual deletes the groups of a network's virtual addresses.
func (b *Batch) DeleteVirtual(id string) {
	op := ovndb.Delete(nb.PortGroupTable, "")
	op.Where = withIDs(map[string]string{KeyNetwork: id, KeyKind: kindVirtual})
	b.Add(op)
}
