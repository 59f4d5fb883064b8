package outside

import (
	"net/netip"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Keys of external_ids.
const (
	// Values of nbrows.KeyKind.
	kindOutside = "outside address"
	kindLimit   = "outside limit"

	keyUser      = "ovn-multinet/outside-user"
	keyAddresses = "ovn-multinet/outside-addresses" // in the order of keyPools
	keyPools     = "ovn-multinet/outside-pools"
	keyBook      = "ovn-multinet/outside-book"
	// keyNAT has all of a user's NAT rows that the other keys do not have: a write asserts what was read.
	keyNAT = "ovn-multinet/outside-nat"
	// usedPrefix is the prefix of a key in a list of a namespace's addresses. The rest of the key is the address, and the
	// value is its Kind.
	usedPrefix = "ovn-multinet/outside:"
	// userPrefix is the prefix of a key in a claim. The rest of the key is a user.
	userPrefix = "ovn-multinet/outside-user:"
)

// entryRow returns the row that says which outside addresses a user has.
func entryRow(e *Entry, book, nat string) *nb.Copp {
	var addresses, pools []string
	for _, a := range e.Addresses {
		addresses, pools = append(addresses, a.String()), append(pools, a.Pool)
	}
	user := e.User.String()
	return &nb.Copp{
		UUID: ovndb.OutsideKey(e.Router, user), Name: "ovn-multinet outside " + e.Router + " " + user,
		ExternalIDs: map[string]string{
			nbrows.KeyKind: kindOutside, nbrows.KeyOutsideRouter: e.Router, keyUser: user, nbrows.KeyOutsideUse: string(e.Kind),
			keyAddresses: strings.Join(addresses, " "), keyPools: strings.Join(pools, " "), keyBook: book, keyNAT: nat,
		},
	}
}

// parseEntry returns what a row of entryRow says; nothing if the row is nil.
func parseEntry(row *nb.Copp) *Entry {
	e := &Entry{}
	if row == nil {
		return e
	}
	x := row.ExternalIDs
	e.Router, e.User, e.book = x[nbrows.KeyOutsideRouter], parseUser(x[keyUser]), x[keyBook]
	e.Kind = Kind(x[nbrows.KeyOutsideUse])
	pools := strings.Fields(x[keyPools])
	for i, word := range strings.Fields(x[keyAddresses]) {
		if a, err := parseAddress(word); err == nil && i < len(pools) {
			a.Pool = pools[i]
			e.Addresses = append(e.Addresses, a)
		}
	}
	return e
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

// natText describes the NAT rows of a user.
func natText(w *Wanted) string {
	words := []string{w.PortName}
	for _, a := range w.Inside {
		words = append(words, a.String())
	}
	if w.Kind == Floating && w.Distributed {
		words = append(words, "distributed")
	}
	return strings.Join(words, " ")
}

// wantedNATs returns the NAT rows of a user, by row key.
func wantedNATs(w *Wanted, addresses []Address) map[string]*nb.NAT {
	rows := map[string]*nb.NAT{}
	for _, a := range addresses {
		row := &nb.NAT{
			UUID: ovndb.OutsideNATKey(w.Router.Name, w.User.String(), nbrows.Family(a.Addr)),
			Type: nb.NATTypeSNAT, ExternalIP: a.String(), LogicalIP: inside(w, a.Addr).String(),
			ExternalIDs: map[string]string{nbrows.KeyOutsideRouter: w.Router.Name, keyUser: w.User.String()},
		}
		if w.Kind == Floating {
			row.Type = nb.NATTypeDNATAndSNAT
			if w.Distributed {
				mac, _ := ovndb.LeaseMAC(netip.Prefix{}, a.Addr)
				text := mac.String()
				row.ExternalMAC, row.LogicalPort = &text, &w.PortName
			}
		}
		rows[row.UUID] = row
	}
	return rows
}

// inside returns the user's own address of the family of an outside address; the zero Addr: there is none.
func inside(w *Wanted, outside netip.Addr) netip.Addr {
	for _, a := range w.Inside {
		if a.Is4() == outside.Is4() {
			return a
		}
	}
	return netip.Addr{}
}
