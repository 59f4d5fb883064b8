package ovnport

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// draft is a requested port before its rows are written.
type draft struct {
	request      Request
	name         string
	reservations []reservation // the first is the lease, the others are claims; of an IPAMClaim all are claims
	// asked is the request before it got what its IPAMClaim has, and content what the IPAMClaim has; nil: nothing.
	asked   Request
	content *claimContent
	claimed []string // the keys of the IPAMClaim's claims that are there
	joins   bool     // the sandbox becomes the target of a migration of stored
	// stored is the existing row of this name: the port of this sandbox, which needs no change, or the port of an older
	// sandbox, which is taken over. nil: the port is inserted.
	stored *nb.LogicalSwitchPort
}

// reservation is one address or one MAC, with its row key.
type reservation struct {
	key  string
	addr netip.Prefix     // or
	mac  net.HardwareAddr // a MAC
	// search finds another address or MAC when this one is in use; nil: the user fixed this one.
	search *search
}

func (r *reservation) String() string {
	if r.mac != nil {
		return "MAC " + r.mac.String()
	}
	return "address " + r.addr.Addr().String()
}

func (d *draft) key() string {
	if id := d.request.IPAMClaim; id != "" {
		return ovndb.IPAMClaimPortKey(id)
	}
	return d.reservations[0].key
}

// claimKeys are the keys of the claims that are deleted together with the port.
func (d *draft) claimKeys() (keys []string) {
	if d.request.IPAMClaim != "" {
		return nil
	}
	for _, r := range d.reservations[1:] {
		keys = append(keys, r.key)
	}
	return keys
}

// mac is the port's MAC address: the claimed or leased MAC, or the MAC that is made from the leased address.
func (d *draft) mac() net.HardwareAddr {
	for _, r := range d.reservations {
		if r.mac != nil {
			return r.mac
		}
	}
	mac, _ := d.leaseMAC()
	return mac
}

// leaseMAC is the MAC that is made from the leased address. wide says that the MAC needs a claim of its own.
func (d *draft) leaseMAC() (mac net.HardwareAddr, wide bool) {
	a := d.reservations[0].addr.Addr()
	if _, wire := d.request.Network.PhysicalVLAN(); wire {
		return ovndb.LeaseMAC(netip.Prefix{}, a)
	}
	return ovndb.LeaseMAC(d.request.Network.Subnets[d.request.Network.SubnetOf(a)], a)
}

// book is the address book that the port's keys are made from.
func (d *draft) book() string { return d.request.Network.AddressBook() }

// newSearch makes a search of the port in its network: ports of different networks begin at different addresses, also
// where the networks share an address book.
func (d *draft) newSearch() *search {
	_, wire := d.request.Network.PhysicalVLAN()
	return &search{network: d.request.Network.ID(), book: d.book(), wide: wire, seed: d.name}
}

// newDraft lists the reservations of a port: the fixed addresses, a dynamic address of each subnet that has no fixed
// address, and the MAC unless it belongs to the lease alone.
func newDraft(o *Owner, request Request, has *claimContent) (*draft, error) {
	d := &draft{request: request, name: portName(o, request.Interface), asked: request, content: has}
	if request.IPAMClaim != "" {
		d.name = claimPortName(request.IPAMClaim)
		if err := d.request.keep(has); err != nil {
			return nil, err
		}
		if has != nil {
			d.claimed = slices.Clone(has.claims)
		}
		request = d.request
	}
	for i, subnet := range request.Network.Subnets {
		fixed := false
		for _, ip := range request.IPs {
			if subnet.Contains(ip.Addr()) {
				d.addFixed(ip)
				fixed = true
			}
		}
		if !fixed {
			pool := request.Network.Pool(i, request.Excluded...)
			if pool.Size() == 0 {
				return nil, noAddressLeft(d)
			}
			find := d.newSearch()
			find.pool = pool
			d.addSearch(find)
		}
	}
	if len(request.Network.Subnets) == 0 {
		if err := d.addMACLease(); err != nil {
			return nil, err
		}
		for _, ip := range request.IPs {
			d.addFixed(ip)
		}
		return d, nil
	}
	return d, d.addMACClaim()
}

func (d *draft) addFixed(ip netip.Prefix) {
	d.reservations = append(d.reservations, reservation{key: ovndb.AddressKey(d.book(), ip.Addr()), addr: ip})
}

func (d *draft) addSearch(find *search) {
	r := reservation{search: find}
	r.set(find.next())
	d.reservations = append(d.reservations, r)
}

// addMACLease makes the MAC the lease of a port on a network without subnets. On a physical network, ports of other
// networks may have MACs that are made from their leased addresses.
func (d *draft) addMACLease() error {
	find := d.newSearch()
	switch mac := d.request.MAC; {
	case mac == nil:
		find.macs = true
		d.addSearch(find)
	case find.wide && ovndb.IsLeaseMAC(mac):
		return d.foreignLeaseMAC()
	default:
		d.reservations = append(d.reservations, reservation{key: ovndb.MACKey(d.book(), mac), mac: mac})
	}
	return nil
}

func (d *draft) foreignLeaseMAC() error {
	return conf.Errorf(conf.CodeInvalidConfig,
		"MACs that begin with 0a:58 are made from leased addresses; choose another, 02:… for example",
		"interface %s: MAC %s is not the one of its own address", d.request.Interface, d.request.MAC)
}

// addMACClaim claims a fixed MAC. A MAC with the form of a MAC that is made from a lease is only for the port with
// that lease: nothing would keep this MAC from a pod that gets the lease later.
func (d *draft) addMACClaim() error {
	request := &d.request
	made, wide := d.leaseMAC()
	switch {
	case request.MAC == nil && wide: // another port may have the same MAC: the search begins at the MAC of the lease
		find := d.newSearch()
		find.macs, find.wide, find.begin = true, true, made
		d.addSearch(find)
	case request.MAC == nil:
	case !ovndb.IsLeaseMAC(request.MAC):
		d.reservations = append(d.reservations, reservation{key: ovndb.MACKey(d.book(), request.MAC), mac: request.MAC})
	case d.reservations[0].search != nil || !bytes.Equal(request.MAC, made):
		return d.foreignLeaseMAC()
	}
	return nil
}

// adopt gives the draft the reservations of a row of its name, if they satisfy the request. So a pod keeps its
// addresses in a new sandbox.
func (d *draft) adopt(row *nb.LogicalSwitchPort) bool {
	if row.ExternalIDs[keyNetwork] != d.request.Network.ID() || len(row.Addresses) == 0 {
		return false
	}
	words := strings.Fields(row.Addresses[0])
	other := *d
	other.reservations = slices.Clone(d.reservations)
	used := map[string]bool{}
	for i := range other.reservations {
		if !other.reservations[i].adoptFrom(words, used) {
			return false
		}
	}
	// Nothing more and nothing less: an address that is no longer requested must not stay with the port.
	if other.key() != row.UUID || !slices.Equal(other.claimKeys(), claimsOf(row)) || len(used) != len(words)-1 {
		return false
	}
	d.reservations, d.stored = other.reservations, row
	return true
}

// adoptOlder adopts the port of an older sandbox of this pod, as far as the caller knows it. uid is the pod's.
func (d *draft) adoptOlder(older *Older, uid string) {
	if older == nil || older.Port.Switch != ovndb.SwitchKey(d.request.Network.SwitchName()) {
		return
	}
	d.adopt(&nb.LogicalSwitchPort{
		UUID: older.Port.UUID, Name: d.name, Addresses: []string{older.Port.text()},
		ExternalIDs: map[string]string{
			keySandbox: older.Sandbox, keyNetwork: d.request.Network.ID(), keyClaims: strings.Join(older.Port.Claims, " "),
			keyPodUID: uid, keyGroups: strings.Join(older.Port.groups(), " "),
		},
	})
}

// adoptFrom gives the reservation one of a row's addresses, or its MAC, if one fits.
func (r *reservation) adoptFrom(words []string, used map[string]bool) bool {
	if r.mac != nil {
		if r.search == nil {
			return words[0] == r.mac.String()
		}
		mac, err := net.ParseMAC(words[0])
		if err != nil || !bytes.Equal(mac, ovndb.Low32MAC(binary.BigEndian.Uint32(mac[2:]), r.search.wide)) {
			return false
		}
		r.set(candidate{key: ovndb.MACKey(r.search.book, mac), mac: mac})
		return true
	}
	for _, word := range words[1:] {
		a, err := netip.ParseAddr(word)
		if err != nil || used[word] {
			continue
		}
		if r.search == nil && a == r.addr.Addr() || r.search != nil && r.search.pool.Contains(a) {
			used[word] = true
			if r.search != nil {
				r.set(r.search.at(a))
			}
			return true
		}
	}
	return false
}

func (r *reservation) set(c candidate) { r.key, r.addr, r.mac = c.key, c.addr, c.mac }
