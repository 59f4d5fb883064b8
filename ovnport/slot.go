package ovnport

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// slot is one wanted port on its way to a row.
type slot struct {
	want  Request
	name  string
	parts []part // the first is the lease, the others are claims
	// held is the row of this name that is there already: ours (then nothing is left to do), or an older
	// sandbox's (then it is taken over). nil: to be inserted.
	held *nb.LogicalSwitchPort
}

// part is one address, or one MAC, with the key that stands for it.
type part struct {
	key  string
	addr netip.Prefix     // or
	hw   net.HardwareAddr // a MAC
	// search is nil for what the user fixed.
	search *search
}

func (p *part) String() string {
	if p.hw != nil {
		return "MAC " + p.hw.String()
	}
	return "address " + p.addr.Addr().String()
}

func (s *slot) key() string { return s.parts[0].key }

// mac is the port's MAC address: the one claimed or leased as such, else that made from the lease.
func (s *slot) mac() net.HardwareAddr {
	for _, p := range s.parts {
		if p.hw != nil {
			return p.hw
		}
	}
	mac, _ := s.leaseMAC()
	return mac
}

// leaseMAC is made from the lease; wide says that it has to be claimed beside it.
func (s *slot) leaseMAC() (mac net.HardwareAddr, wide bool) {
	a := s.parts[0].addr.Addr()
	if _, wire := s.want.Network.PhysicalVLAN(); wire {
		return ovndb.LeaseMAC(netip.Prefix{}, a)
	}
	return ovndb.LeaseMAC(s.want.Network.Subnets[s.want.Network.SubnetOf(a)], a)
}

// book is the address book that the port's keys are made from.
func (s *slot) book() string { return s.want.Network.AddressBook() }

// newSearch is one of the network's: each begins elsewhere, also where networks share an address book.
func (s *slot) newSearch() *search {
	_, wire := s.want.Network.PhysicalVLAN()
	return &search{network: s.want.Network.ID(), book: s.book(), wide: wire, seed: s.name}
}

// newSlot lays out what a port has to hold: the fixed addresses, a dynamic one of each subnet's family without a
// fixed one, and the MAC where it does not belong to the lease alone.
func newSlot(o *Owner, w Request) (*slot, error) {
	s := &slot{want: w, name: portName(o, w.Interface)}
	for i, subnet := range w.Network.Subnets {
		fixed := false
		for _, ip := range w.IPs {
			if subnet.Contains(ip.Addr()) {
				s.addFixed(ip)
				fixed = true
			}
		}
		if !fixed {
			pool := w.Network.Pool(i, w.Excluded...)
			if pool.Size() == 0 {
				return nil, noAddressLeft(s)
			}
			find := s.newSearch()
			find.pool = pool
			s.addSearch(find)
		}
	}
	if len(w.Network.Subnets) == 0 {
		if err := s.addMACLease(); err != nil {
			return nil, err
		}
		for _, ip := range w.IPs {
			s.addFixed(ip)
		}
		return s, nil
	}
	return s, s.addMACClaim()
}

func (s *slot) addFixed(ip netip.Prefix) {
	s.parts = append(s.parts, part{key: ovndb.AddressKey(s.book(), ip.Addr()), addr: ip})
}

func (s *slot) addSearch(find *search) {
	p := part{search: find}
	p.set(find.next())
	s.parts = append(s.parts, p)
}

// addMACLease makes the MAC itself the lease of a port on a network without subnets. On a wire, leases of other
// networks may have MACs made from them.
func (s *slot) addMACLease() error {
	find := s.newSearch()
	switch mac := s.want.MAC; {
	case mac == nil:
		find.macs = true
		s.addSearch(find)
	case find.wide && ovndb.IsLeaseMAC(mac):
		return s.notItsOwn()
	default:
		s.parts = append(s.parts, part{key: ovndb.MACKey(s.book(), mac), hw: mac})
	}
	return nil
}

func (s *slot) notItsOwn() error {
	return conf.Errorf(conf.CodeInvalidConfig,
		"MACs that begin with 0a:58 are made from leased addresses; choose another, 02:… for example",
		"interface %s: MAC %s is not the one of its own address", s.want.Interface, s.want.MAC)
}

// addMACClaim claims a fixed MAC. One that looks like a lease's is only for the lease's own port: nobody would
// hold it against the pod that gets that lease later.
func (s *slot) addMACClaim() error {
	w := &s.want
	made, wide := s.leaseMAC()
	switch {
	case w.MAC == nil && wide: // another port may have the same MAC: the search goes on from the one of the lease
		find := s.newSearch()
		find.macs, find.wide, find.begin = true, true, made
		s.addSearch(find)
	case w.MAC == nil:
	case !ovndb.IsLeaseMAC(w.MAC):
		s.parts = append(s.parts, part{key: ovndb.MACKey(s.book(), w.MAC), hw: w.MAC})
	case s.parts[0].search != nil || !bytes.Equal(w.MAC, made):
		return s.notItsOwn()
	}
	return nil
}

// adopt makes the slot hold exactly what a row of its name holds already, when that satisfies the want. It keeps
// a pod its addresses over a new sandbox.
func (s *slot) adopt(row *nb.LogicalSwitchPort) bool {
	if row.ExternalIDs[keyNetwork] != s.want.Network.ID() || len(row.Addresses) == 0 {
		return false
	}
	words := strings.Fields(row.Addresses[0])
	parts := slices.Clone(s.parts)
	used := map[string]bool{}
	for i := range parts {
		if !parts[i].take(words, used) {
			return false
		}
	}
	var keys []string
	for _, p := range parts {
		keys = append(keys, p.key)
	}
	// Nothing more and nothing less: an address that is no longer wanted must not stay with the port.
	if keys[0] != row.UUID || !slices.Equal(keys[1:], claimsOf(row)) || len(used) != len(words)-1 {
		return false
	}
	s.parts, s.held = parts, row
	return true
}

// take finds among a row's addresses the one that serves the part.
func (p *part) take(words []string, used map[string]bool) bool {
	if p.hw != nil {
		if p.search == nil {
			return words[0] == p.hw.String()
		}
		hw, err := net.ParseMAC(words[0])
		if err != nil || !bytes.Equal(hw, ovndb.Low32MAC(binary.BigEndian.Uint32(hw[2:]), p.search.wide)) {
			return false
		}
		p.set(candidate{key: ovndb.MACKey(p.search.book, hw), hw: hw})
		return true
	}
	for _, word := range words[1:] {
		a, err := netip.ParseAddr(word)
		if err != nil || used[word] {
			continue
		}
		if p.search == nil && a == p.addr.Addr() || p.search != nil && p.search.pool.Contains(a) {
			used[word] = true
			if p.search != nil {
				p.set(p.search.at(a))
			}
			return true
		}
	}
	return false
}

func (p *part) set(c candidate) { p.key, p.addr, p.hw = c.key, c.addr, c.hw }

// candidate is one address or MAC that a search proposes.
type candidate struct {
	key  string
	addr netip.Prefix
	hw   net.HardwareAddr
}

// search walks the leasable addresses of a subnet (or, on a network without one, MACs) in an order of the port's
// own: it begins at a hash of the port's name, so that a pod that comes back tends to find its old address, and
// goes on in steps that visit every address once.
type search struct {
	pool    netmodel.Pool
	macs    bool
	network string
	book    string // the address book
	wide    bool   // the MACs are of the form that has to be claimed
	seed    string
	begin   net.HardwareAddr // the first MAC; nil: by seed
	tried   uint64
	start   uint64
	step    uint64
}

func (f *search) size() uint64 {
	if f.macs {
		return 1 << 32
	}
	return f.pool.Size()
}

// exhausted tells whether every address was proposed once.
func (f *search) exhausted() bool { return f.tried >= f.size() }

func (f *search) next() candidate {
	if f.step == 0 {
		h := fnv.New64a()
		h.Write([]byte(f.network + " " + f.seed))
		sum := h.Sum64()
		f.start, f.step = sum%f.size(), coprime((sum>>32)%f.size(), f.size())
		if f.begin != nil {
			f.start = uint64(binary.BigEndian.Uint32(f.begin[2:]))
		}
	}
	i := (f.start + f.tried%f.size()*f.step) % f.size()
	f.tried++
	if !f.macs {
		return f.at(f.pool.At(i))
	}
	hw := ovndb.Low32MAC(uint32(i), f.wide)
	return candidate{key: ovndb.MACKey(f.book, hw), hw: hw}
}

func (f *search) at(a netip.Addr) candidate {
	return candidate{key: ovndb.AddressKey(f.book, a), addr: netip.PrefixFrom(a, f.pool.Subnet.Bits())}
}

// coprime returns the least number from n on that shares no factor with size: steps of it visit every index.
func coprime(n, size uint64) uint64 {
	for n = max(n, 1); gcd(n, size) != 1; n++ {
	}
	return n % size
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
