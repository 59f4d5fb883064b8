package services

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// View is what NB has of a service on a network, for people.
type View struct {
	Key
	Service   *service.Service // as accepted; nil: it cannot be parsed
	Addresses []netip.Addr     // the virtual addresses, IPv4 first; none: the service is headless
	Vips      []Vip            // sorted by protocol, port and address
	// Differs tells that the rows are not those of the accepted service. Backends depend on pods, so they are compared
	// with the revision of their load balancer alone.
	Differs bool
}

// Vip is a virtual address and port of a load balancer, with the backends.
type Vip struct {
	Protocol string
	Address  netip.AddrPort
	Backends []netip.AddrPort
}

// viewAttempts is how often a view is read if rows change between two transactions that read them.
const viewAttempts = 5

// Keys returns the services that NB has rows of; with an ID, those of this service on any network. Unlike List it does
// not ask for the cluster: a program for people has no identity, so all rows are another cluster's to it. The server
// scans the table of claims.
func (s *Services) Keys(ctx context.Context, id string) ([]Key, error) {
	key, value := nbrows.KeyKind, kindService
	if id != "" {
		key, value = keyService, id
	}
	return s.list(ctx, key, value, func(*nb.Copp) bool { return true })
}

// View reads a service for people; nil: NB does not have it.
func (s *Services) View(ctx context.Context, key Key) (v *View, err error) {
	for range viewAttempts {
		if v, err = s.view(ctx, key); !nbrows.Raced(err) && (err != nil || v == nil || !v.Differs) {
			break
		}
	}
	return v, err
}

func (s *Services) view(ctx context.Context, key Key) (*View, error) {
	have, err := s.read(ctx, key.Network, key.Service)
	if err != nil || have.row == nil {
		return nil, err
	}
	if err := s.readHolders(ctx, have, nil); err != nil {
		return nil, err
	}
	have.unmark()
	v := &View{Key: key, Addresses: parseAddresses(have.row.ExternalIDs[keyAddresses]), Vips: have.vips()}
	namespace, name, _ := strings.Cut(key.Service, "/")
	if v.Service, err = service.ParseText(namespace, name, have.row.ExternalIDs[keyText]); err == nil {
		v.Service.Text = have.row.ExternalIDs[keyText] // another version may write another text
	}
	v.Differs, err = s.differs(ctx, have, v)
	return v, err
}

// unmark removes the marks of the cluster: this program does not know which cluster is its own.
func (have *present) unmark() {
	delete(have.row.ExternalIDs, ovndb.ClusterMark)
	for _, row := range have.balancers {
		delete(row.ExternalIDs, ovndb.ClusterMark)
	}
	for _, h := range have.holders {
		if h.claim != nil {
			delete(h.claim.ExternalIDs, ovndb.ClusterMark)
		}
	}
}

// differs reports whether a controller would write something, if the backends are those that NB has.
func (s *Services) differs(ctx context.Context, have *present, v *View) (bool, error) {
	one := v.Service
	if one == nil || have.network == nil || one.Headless() != (len(v.Addresses) == 0) {
		return true, nil
	}
	w, scope, balancers := &Wanted{Network: have.id, Service: one}, "", map[string]*nb.LoadBalancer{}
	if !one.Headless() {
		scope = nbrows.ServiceScope(have.network)
		all, _ := one.Backends(v.Addresses, nil)
		for protocol, vips := range all {
			for vip := range vips {
				if row := have.balancers[protocol]; row != nil {
					vips[vip] = row.Vips[vip]
				}
			}
			balancers[protocol] = balancerRow(w, protocol, vips, v.Addresses)
		}
	}
	b := &nbrows.Batch{Db: s.store.Db}
	err := s.write(ctx, b, have, serviceRow(w, scope, v.Addresses), v.Addresses, balancers)
	if _, refused := errors.AsType[*nbrows.Refused](err); refused {
		return true, nil
	}
	return len(b.Ops) > 0, cmp.Or(err, b.Err)
}

// vips returns the virtual addresses of the load balancers. What is no address is left out, and the view differs then.
func (have *present) vips() (list []Vip) {
	for protocol, row := range have.balancers {
		for text, backends := range row.Vips {
			vip := Vip{Protocol: protocol}
			var err error
			if vip.Address, err = netip.ParseAddrPort(text); err != nil {
				continue
			}
			for _, word := range strings.Split(backends, ",") {
				if a, err := netip.ParseAddrPort(word); err == nil {
					vip.Backends = append(vip.Backends, a)
				}
			}
			list = append(list, vip)
		}
	}
	slices.SortFunc(list, func(a, b Vip) int {
		return cmp.Or(strings.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Address.Port(), b.Address.Port()),
			a.Address.Compare(b.Address))
	})
	return list
}

// Claimed is a virtual address of a service.
type Claimed struct {
	Address netip.Addr
	Service string // "<namespace>/<name>"
}

// Claimed reads the virtual addresses that services have, by network, sorted. The server scans the table of claims.
func (s *Services) Claimed(ctx context.Context) (map[string][]Claimed, error) {
	results, err := s.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.CoppTable, "external_ids", nbrows.KeyKind, kindService, "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.Copp](s.store.Db, results[0])
	all := map[string][]Claimed{}
	for _, row := range rows {
		network, id := row.ExternalIDs[nbrows.KeyNetwork], row.ExternalIDs[keyService]
		if row.UUID != ovndb.ServiceKey(network, id) {
			continue
		}
		for _, a := range parseAddresses(row.ExternalIDs[keyAddresses]) {
			all[network] = append(all[network], Claimed{a, id})
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b Claimed) int { return a.Address.Compare(b.Address) })
	}
	return all, err
}
