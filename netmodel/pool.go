package netmodel

import (
	"encoding/binary"
	"math/big"
	"net/netip"
	"slices"
)

// Pool is the set of addresses of one subnet that can be leased: the subnet without its network and broadcast address,
// its gateway and the excluded subnets. Of a subnet of two addresses it has both (RFC 3021, RFC 6164). Of an IPv6
// subnet it has only the first 2^32 addresses, because a lease has 32 bits of its row's key.
type Pool struct {
	Subnet netip.Prefix
	spans  []Span   // ascending, disjoint
	begins []uint64 // of each span: the index of its first address
	size   uint64
}

// Span is a closed range of addresses.
type Span struct{ First, Last netip.Addr }

// newPool returns the pool of a subnet, without these ranges.
func newPool(subnet netip.Prefix, cuts []Span) Pool {
	first, last := subnet.Addr().Next(), lastLeasable(subnet)
	if PointToPoint(subnet) {
		first, last = subnet.Addr(), LastAddr(subnet)
	}
	slices.SortFunc(cuts, func(a, b Span) int { return a.First.Compare(b.First) })
	p := Pool{Subnet: subnet}
	for _, cut := range cuts {
		if cut.First.Compare(last) > 0 {
			break
		}
		if cut.First.Compare(first) > 0 {
			p.add(Span{first, cut.First.Prev()})
		}
		if cut.Last.Compare(last) >= 0 {
			return p
		}
		if cut.Last.Compare(first) >= 0 {
			first = cut.Last.Next()
		}
	}
	p.add(Span{first, last})
	return p
}

func (p *Pool) add(s Span) {
	if s.First.Compare(s.Last) <= 0 {
		p.spans, p.begins = append(p.spans, s), append(p.begins, p.size)
		p.size += s.size()
	}
}

// Size is the number of addresses in the pool.
func (p Pool) Size() uint64 { return p.size }

// Spans returns the pool as ranges, ascending.
func (p Pool) Spans() []Span { return slices.Clone(p.spans) }

// At returns the i-th address of the pool; i must be below Size.
func (p Pool) At(i uint64) netip.Addr {
	if i >= p.size {
		panic("netmodel: address index beyond the pool")
	}
	at, exact := slices.BinarySearch(p.begins, i)
	if !exact {
		at--
	}
	return addTo(p.spans[at].First, i-p.begins[at])
}

// Contains reports whether the address can be leased.
func (p Pool) Contains(a netip.Addr) bool {
	at, found := slices.BinarySearchFunc(p.spans, a, func(s Span, a netip.Addr) int { return s.First.Compare(a) })
	return found || at > 0 && a.Compare(p.spans[at-1].Last) <= 0
}

func (s Span) size() uint64 { return low64(s.Last) - low64(s.First) + 1 }

// lastLeasable is the last address that can be leased: in IPv4 without the broadcast address, in IPv6 of the first 2^32
// addresses.
func lastLeasable(subnet netip.Prefix) netip.Addr {
	last := LastAddr(subnet)
	if last.Is4() {
		return last.Prev()
	}
	if 128-subnet.Bits() > 32 {
		return addTo(subnet.Addr(), 1<<32-1)
	}
	return last
}

// LastAddr is the highest address of a prefix: in IPv4 its broadcast address.
func LastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := range b {
		switch hostBits := 8*(i+1) - p.Bits(); {
		case hostBits >= 8:
			b[i] = 0xff
		case hostBits > 0:
			b[i] |= 1<<hostBits - 1
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func low64(a netip.Addr) uint64 {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[8:])
}

func addTo(a netip.Addr, n uint64) netip.Addr {
	sum := new(big.Int).Add(new(big.Int).SetBytes(a.AsSlice()), new(big.Int).SetUint64(n))
	out, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, a.BitLen()/8)))
	return out
}
