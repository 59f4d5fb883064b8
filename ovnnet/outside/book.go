package outside

import (
	"cmp"
	"net/netip"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// limit is the list of the addresses that a namespace has of a pool: the row as read, and the addresses as wanted.
type limit struct {
	key  string
	row  *nb.Copp
	used map[Address]Kind
	most int // of each family
}

// count is how many addresses the namespace has of the family of an address.
func (l *limit) count(family netip.Addr) (n int) {
	for a := range l.used {
		if a.Is4() == family.Is4() {
			n++
		}
	}
	return n
}

// room reports whether the namespace may have one more address of a family.
func (l *limit) room(family netip.Addr) bool { return l.count(family) < l.most }

func (have *present) limitRow(pool string, l *limit) *nb.Copp {
	namespace := have.key.User.Namespace
	row := &nb.Copp{
		UUID: l.key, Name: "ovn-multinet outside " + have.key.Router + " pool " + pool + " namespace " + namespace,
		ExternalIDs: map[string]string{nbrows.KeyKind: kindLimit, nbrows.KeyOutsideRouter: have.key.Router},
	}
	for a, kind := range l.used {
		row.ExternalIDs[usedPrefix+a.String()] = string(kind)
	}
	return row
}

// claim is an address or MAC of the book: its rows as read, and the external_ids of the claim as wanted; nil: none.
type claim struct {
	what string
	*nbrows.Found
	ids map[string]string
}

// String names who has the address or MAC.
func (c *claim) String() string {
	switch {
	case c.Port == nil:
		return cmp.Or(ovndb.Claimants(c.ids), "port "+cmp.Or(c.ids[nbrows.KeyPortName], c.Claim.Name+" (not ours)"))
	case c.Port.ExternalIDs[nbrows.KeyRouter] != "":
		return "router " + c.Port.ExternalIDs[nbrows.KeyRouter]
	}
	return nbrows.UserOf(c.Port)
}

// claimKeys returns the row key of the claim on an address, or on a port of one, and that of the claim on its MAC. mac
// is empty if the MAC belongs to the address alone, or is the gateway's.
func claimKeys(book string, a Address) (address, mac, macText string) {
	if a.Port != (Port{}) {
		return ovndb.ForwardKey(book, a.Addr, a.Port.String()), "", ""
	}
	address = ovndb.AddressKey(book, a.Addr)
	if m, claimed := ovndb.LeaseMAC(netip.Prefix{}, a.Addr); claimed {
		mac, macText = ovndb.MACKey(book, m), m.String()
	}
	return address, mac, macText
}

// claimsOf returns the claims that an address needs.
func (have *present) claimsOf(a Address) []*claim {
	return have.needs[Address{Addr: a.Addr, Port: a.Port}]
}

// claimant is the key in the external_ids of the claim on an outside address. The pods of a namespace are one claimant
// of an egress address.
func (e *Entry) claimant() string {
	who := "pod " + e.User.Namespace + "/" + e.User.Pod + " interface " + e.User.Interface
	switch e.Kind {
	case Egress:
		who = "namespace " + e.User.Namespace
	case Balanced, Forwarded:
		who = e.User.String()
	}
	return ovndb.ClaimantPrefix + who + " by router " + e.Router
}

func (e *Entry) claimedFor() string {
	if e.Kind == Forwarded {
		return "port forward"
	}
	return string(e.Kind) + " address"
}

// claimIDs are the external_ids of a claim without users.
func (e *Entry) claimIDs(book string) map[string]string {
	return map[string]string{
		ovndb.BookKey: book, nbrows.KeyOutsideRouter: e.Router, e.claimant(): e.claimedFor(),
	}
}

// isUser reports whether a key in a claim is that of a user.
func isUser(key string) bool { return strings.HasPrefix(key, userPrefix) }

func containsAll(all, some map[string]string) bool {
	for key, value := range some {
		if has, ok := all[key]; !ok || has != value {
			return false
		}
	}
	return true
}
