package outside

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// present are the rows of a user as read from NB. limits and claims also have what should become of them.
type present struct {
	key   Key
	row   *nb.Copp
	entry *Entry             // of the row
	book  string             // that of the wanted addresses, or the entry's
	nats  map[string]*nb.NAT // of an interface
	balancing
	gateway *nb.LogicalRouter
	claimed []*nb.Copp // the claims on the gateway's own addresses in the book
	port    *nb.LogicalSwitchPort
	limits  map[string]*limit    // by pool
	claims  map[string]*claim    // by row key
	needs   map[Address][]*claim // by address without its pool
	gains   bool                 // the user gets an address that it does not have
}

// read reads the rows of a user, and those of the gateway and the port that the wanted rows depend on. w is nil if the
// rows are to be deleted.
func (o *Outside) read(ctx context.Context, key Key, w *Wanted) (*present, error) {
	have := &present{
		key: key, nats: map[string]*nb.NAT{},
		balancing: balancing{map[string]*nb.LoadBalancer{}, map[string]*nb.ACL{}},
		limits:    map[string]*limit{}, claims: map[string]*claim{}, needs: map[Address][]*claim{},
	}
	if w != nil && !w.Router.HasGateway() {
		return nil, nbrows.Refusedf("router %s has no gateway: the operator describes gateways by objects Router", key.Router)
	}
	reads := o.store.Reads()
	have.addRows(reads, w)
	if err := reads.Do(ctx); err != nil {
		return nil, err
	}
	have.entry = parseEntry(have.row)
	if w == nil {
		have.book = have.entry.book
	} else if err := have.checkReady(w); err != nil {
		return nil, err
	}
	return have, nil
}

// addRows adds the rows whose keys are made from the names of the router and the user, and the rows of the gateway and
// the port that the wanted rows need.
func (have *present) addRows(reads *nbrows.Reads, w *Wanted) {
	router, user := have.key.Router, have.key.User.String()
	nbrows.ReadOne(reads, nb.CoppTable, ovndb.OutsideKey(router, user), &have.row)
	if have.key.User.Service == "" {
		for _, family := range nbrows.Families {
			key := ovndb.OutsideNATKey(router, user, family)
			nbrows.ReadInto(reads, nb.NATTable, key, key, have.nats)
		}
	} else {
		for _, protocol := range nbrows.Protocols {
			key := ovndb.OutsideBalancerKey(router, user, protocol)
			nbrows.ReadInto(reads, nb.LoadBalancerTable, key, protocol, have.balancers)
		}
		for _, rule := range aclRules {
			key := ovndb.OutsideACLKey(router, user, rule)
			nbrows.ReadInto(reads, nb.ACLTable, key, key, have.acls)
		}
	}
	if w == nil {
		return
	}
	have.book = w.Router.PhysicalVLAN().AddressBook()
	nbrows.ReadOne(reads, nb.LogicalRouterTable, ovndb.GatewayKey(router), &have.gateway, "_uuid")
	have.claimed = make([]*nb.Copp, len(w.Router.External))
	for i, external := range w.Router.External {
		nbrows.ReadOne(reads, nb.CoppTable, ovndb.AddressKey(have.book, external.Addr()), &have.claimed[i])
	}
	if w.Balancer == nil {
		nbrows.ReadOne(reads, nb.LogicalSwitchPortTable, w.PortKey, &have.port,
			"_uuid", "name", "addresses", "external_ids", "up")
	}
}

// checkBound refuses a NAT that becomes one of the port's node while the port is not bound there. Each ovn-controller
// asks where the port is when it makes the NAT's flows. When the NAT comes while the port is being bound,
// ovn-controller 23.03 sometimes makes none, until it computes everything again.
func (have *present) checkBound(wanted *rows) error {
	if have.port == nil || have.port.Up != nil && *have.port.Up {
		return nil
	}
	for key, row := range wanted.nats {
		old := have.nats[key]
		if row.LogicalPort != nil && (old == nil || old.LogicalPort == nil || *old.LogicalPort != *row.LogicalPort) {
			return fmt.Errorf("port %s: %w", *row.LogicalPort, ErrNotBound)
		}
	}
	return nil
}

// checkReady refuses to write before the gateway and the port are there.
func (have *present) checkReady(w *Wanted) error {
	by := ovndb.ClaimantPrefix + "router " + have.key.Router
	other := func(c *nb.Copp) bool { return c == nil || c.ExternalIDs[by] == "" }
	switch {
	case have.gateway == nil, slices.ContainsFunc(have.claimed, other):
		return fmt.Errorf("the gateway of router %s is not on %s yet: %w",
			have.key.Router, w.Router.PhysicalVLAN(), ErrNotReady)
	case w.Balancer != nil:
		return nil
	case have.port == nil, have.port.Name != w.PortName, !containsAll(have.port.ExternalIDs, portMarks(w.User)):
		return fmt.Errorf("interface %s has no port %s: %w", w.User, w.PortName, ErrNotReady)
	}
	words := strings.Fields(strings.Join(have.port.Addresses, " "))
	for _, a := range w.Inside {
		if !slices.Contains(words, a.String()) {
			return fmt.Errorf("port %s does not have address %s: %w", w.PortName, a, ErrNotReady)
		}
	}
	return nil
}

// ready asserts what checkReady has seen.
func (have *present) ready(w *Wanted) []ovsdb.Operation {
	by := ovndb.ClaimantPrefix + "router " + have.key.Router
	var guards []ovsdb.Operation
	for _, c := range have.claimed { // the gateway's claims go and move with the gateway
		guards = append(guards, ovndb.Holds(nb.CoppTable, c.UUID, "external_ids", by, c.ExternalIDs[by]))
	}
	if w.Balancer == nil {
		guards = append(guards,
			ovndb.HoldsAll(nb.LogicalSwitchPortTable, have.port.UUID, "external_ids", portMarks(w.User)))
	}
	return guards
}

// unchanged asserts that no other controller has changed the user's rows since they were read.
func (have *present) unchanged() ovsdb.Operation {
	if have.row == nil {
		return ovndb.Absent(nb.CoppTable, ovndb.OutsideKey(have.key.Router, have.key.User.String()))
	}
	return ovndb.HasMap(nb.CoppTable, have.row.UUID, "external_ids", have.row.ExternalIDs)
}

// sameAddresses asserts, in a later transaction that reads, that the user has the addresses that were read. Otherwise a
// claim of another controller, which gives the user an address and deletes it again, could count as the user's
// own, or a claim could be left because it was not there for a moment.
func (have *present) sameAddresses() ovsdb.Operation {
	if have.row == nil {
		return have.unchanged()
	}
	pairs := map[string]string{}
	for _, key := range []string{keyAddresses, keyPools, nbrows.KeyOutsideUse} {
		pairs[key] = have.row.ExternalIDs[key]
	}
	return ovndb.HoldsAll(nb.CoppTable, have.row.UUID, "external_ids", pairs)
}

// portMarks are in the port of a user.
func portMarks(u User) map[string]string {
	return map[string]string{
		nbrows.KeyNamespace: u.Namespace, nbrows.KeyPod: u.Pod, nbrows.KeyInterface: u.Interface,
	}
}

// readBook reads the lists and the claims of the present addresses, and of those that the user may or must have.
func (o *Outside) readBook(ctx context.Context, have *present, w *Wanted) error {
	list, most := slices.Clone(have.entry.Addresses), map[string]int{} // by pool
	for _, a := range list {
		most[a.Pool] = 0
	}
	if w != nil {
		wanted, pools := w.pools()
		for _, pool := range pools {
			most[pool.Name] = pool.Limit(have.key.User.Namespace)
		}
		list = append(list, wanted...)
	}
	if err := o.readLimits(ctx, have, most); err != nil {
		return err
	}
	return o.readClaims(ctx, have, list)
}

// readLimits reads the lists of the addresses of pools. most has how many addresses of each family the namespace may
// have of a pool.
func (o *Outside) readLimits(ctx context.Context, have *present, most map[string]int) error {
	reads := o.store.Reads(have.sameAddresses())
	for _, pool := range slices.Sorted(maps.Keys(most)) {
		l := &limit{
			key:  ovndb.OutsideLimitKey(have.key.Router, pool, have.key.User.Namespace),
			used: map[Address]Kind{}, most: most[pool],
		}
		have.limits[pool] = l
		nbrows.ReadOne(reads, nb.CoppTable, l.key, &l.row)
	}
	if err := reads.Do(ctx); err != nil {
		return err
	}
	for pool, l := range have.limits {
		if l.row == nil {
			continue
		}
		for key, value := range l.row.ExternalIDs {
			text, ok := strings.CutPrefix(key, usedPrefix)
			if a, err := parseAddress(text); ok && err == nil {
				a.Pool = pool
				l.used[a] = Kind(value)
			}
		}
	}
	return nil
}

// readClaims reads who has these addresses, and their MACs if these need claims.
func (o *Outside) readClaims(ctx context.Context, have *present, list []Address) error {
	reads := o.store.Reads(have.sameAddresses())
	var added []*claim
	add := func(key, what string) *claim {
		c := have.claims[key]
		if c == nil {
			c = &claim{what: what, Found: nbrows.ReadAt(reads, key)}
			have.claims[key], added = c, append(added, c)
		}
		return c
	}
	for _, a := range list {
		a.Pool = ""
		address, mac, macText := claimKeys(have.book, a)
		have.needs[a] = []*claim{add(address, a.describe())}
		if mac != "" {
			have.needs[a] = append(have.needs[a], add(mac, "MAC "+macText))
		}
	}
	if err := reads.Do(ctx); err != nil {
		return err
	}
	for _, c := range added {
		if c.Claim != nil { // not nil, also if the row is not ours and has no external_ids
			c.ids = map[string]string{}
			maps.Copy(c.ids, c.Claim.ExternalIDs)
		}
	}
	return nil
}

// balancing are the rows by which a Service is reached from outside: load balancers by protocol, and ACLs by row key.
type balancing struct {
	balancers map[string]*nb.LoadBalancer
	acls      map[string]*nb.ACL
}

// aclRules are the parts of the row keys of ACLs.
var aclRules = []string{"allow4", "deny4", "allow6", "deny6"}
