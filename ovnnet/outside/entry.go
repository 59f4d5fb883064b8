package outside

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Key names the outside addresses of a user on a router.
type Key struct {
	Router string // the full name
	User   User
}

// User is an interface of a pod, or a Service.
type User struct {
	Namespace, Pod, Interface string
	Service                   string // the name; "": the user is an interface
}

const servicePrefix = "service "

// String is "<namespace>/<pod>/<interface>" or "service <namespace>/<name>".
func (u User) String() string {
	if u.Service != "" {
		return servicePrefix + u.Namespace + "/" + u.Service
	}
	return u.Namespace + "/" + u.Pod + "/" + u.Interface
}

// describe names the user in messages.
func (u User) describe() string {
	if u.Service != "" {
		return u.String()
	}
	return "interface " + u.String()
}

func parseUser(text string) (u User) {
	if id, ok := strings.CutPrefix(text, servicePrefix); ok {
		u.Namespace, u.Service, _ = strings.Cut(id, "/")
		return u
	}
	u.Namespace, text, _ = strings.Cut(text, "/")
	u.Pod, u.Interface, _ = strings.Cut(text, "/")
	return u
}

// Entry is a user with its outside addresses, as NB has them.
type Entry struct {
	Key
	Kind      Kind
	Addresses []Address
	book      string
	// translator is the node of the user's pod if this node translates; "": the gateway's nodes do.
	translator string
}

// IPs returns the addresses. A user may have several ports of one.
func (e *Entry) IPs() (list []netip.Addr) {
	for _, a := range e.Addresses {
		if !slices.Contains(list, a.Addr) {
			list = append(list, a.Addr)
		}
	}
	return list
}

// Address is an outside address and the name of its pool.
type Address struct {
	netip.Addr
	Port Port // of a forward: what the user has of the address; the zero Port: all
	Pool string
}

// Port is a port of an address.
type Port struct {
	Protocol string // "tcp", "udp" or "sctp"
	Number   uint16
}

func (p Port) String() string { return p.Protocol + "/" + strconv.Itoa(int(p.Number)) }

// String is "<address>", or "<address>/<protocol>/<port>".
func (a Address) String() string {
	if a.Port == (Port{}) {
		return a.Addr.String()
	}
	return a.Addr.String() + "/" + a.Port.String()
}

// describe names the address in messages.
func (a Address) describe() string {
	if a.Port == (Port{}) {
		return "address " + a.Addr.String()
	}
	return a.Port.String() + " of address " + a.Addr.String()
}

// parseAddress parses what String returns. Pool is empty.
func parseAddress(text string) (a Address, err error) {
	text, port, isPort := strings.Cut(text, "/")
	if isPort {
		protocol, number, _ := strings.Cut(port, "/")
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return a, err
		}
		a.Port = Port{protocol, uint16(n)}
	}
	a.Addr, err = netip.ParseAddr(text)
	return a, err
}

// whole returns the addresses with all their ports.
func whole(list []netip.Addr) []Address {
	all := make([]Address, len(list))
	for i, a := range list {
		all[i].Addr = a
	}
	return all
}

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
	// keyTranslator has the node of a user's pod, if this node translates the addresses.
	keyTranslator = "ovn-multinet/outside-node"
	// usedPrefix is the prefix of a key in a list of a namespace's addresses. The rest of the key is the address, and the
	// value is its Kind.
	usedPrefix = "ovn-multinet/outside:"
	// userPrefix is the prefix of a key in a claim. The rest of the key is a user.
	userPrefix = "ovn-multinet/outside-user:"
)

// entryRow returns the row that says which outside addresses a user has.
func entryRow(e *Entry, nat string) *nb.Copp {
	var addresses, pools []string
	for _, a := range e.Addresses {
		addresses, pools = append(addresses, a.String()), append(pools, a.Pool)
	}
	user := e.User.String()
	row := &nb.Copp{
		UUID: ovndb.OutsideKey(e.Router, user), Name: "ovn-multinet outside " + e.Router + " " + user,
		ExternalIDs: map[string]string{
			nbrows.KeyKind: kindOutside, nbrows.KeyOutsideRouter: e.Router, keyUser: user, nbrows.KeyOutsideUse: string(e.Kind),
			keyAddresses: strings.Join(addresses, " "), keyPools: strings.Join(pools, " "), keyBook: e.book, keyNAT: nat,
		},
	}
	if e.translator != "" {
		row.ExternalIDs[keyTranslator] = e.translator
	}
	return row
}

// parseEntry returns what a row of entryRow says; nothing if the row is nil.
func parseEntry(row *nb.Copp) *Entry {
	e := &Entry{}
	if row == nil {
		return e
	}
	x := row.ExternalIDs
	e.Router, e.User, e.book = x[nbrows.KeyOutsideRouter], parseUser(x[keyUser]), x[keyBook]
	e.Kind, e.translator = Kind(x[nbrows.KeyOutsideUse]), x[keyTranslator]
	pools := strings.Fields(x[keyPools])
	for i, word := range strings.Fields(x[keyAddresses]) {
		if a, err := parseAddress(word); err == nil && i < len(pools) {
			a.Pool = pools[i]
			e.Addresses = append(e.Addresses, a)
		}
	}
	return e
}
