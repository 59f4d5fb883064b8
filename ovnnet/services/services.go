package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/netmodel/service"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Services reads and writes the rows of services.
type Services struct{ store *nbrows.Store }

// New takes the store that writes.
func New(s *nbrows.Store) *Services { return &Services{s} }

// Wanted is what NB should have of a service on a network.
type Wanted struct {
	Network string // the ID of the network
	Service *service.Service
	Pods    []service.Backend // on the network, that the service selects
}

// Result is what NB has of a service.
type Result struct {
	Addresses []netip.Addr // the virtual addresses, IPv4 first; none: the service is headless
	Beyond    int          // how many backends are left out, see service.Service.Backends
	Changed   bool         // Ensure has written something
}

// ErrNotAccepted says that the network does not take ports of the service's NAD now. Nothing was written.
var ErrNotAccepted = errors.New("the network is not accepted")

// Ensure makes the rows of a service the wanted ones, in one transaction. The first service of a scope also makes the
// scope's group. An address of NB stays as long as the service may have it. If the service cannot be served as it is,
// the error is a *nbrows.Refused, and the present rows stay.
func (s *Services) Ensure(ctx context.Context, w *Wanted) (*Result, error) {
	var result *Result
	changed, err := s.store.Change(ctx, "service "+w.Service.ID(), func(b *nbrows.Batch) error {
		have, err := s.read(ctx, w.Network, w.Service.ID())
		if err != nil {
			return err
		}
		if result, err = s.change(ctx, b, have, w); err != nil {
			return err
		}
		b.First(have.unchanged()...)
		b.First(have.stillAccepted(w.Service.NAD))
		return nil
	})
	if err != nil {
		return nil, err
	}
	result.Changed = changed
	return result, nil
}

// change adds the operations that make the present rows the wanted ones.
func (s *Services) change(ctx context.Context, b *nbrows.Batch, have *present, w *Wanted) (*Result, error) {
	n := have.network
	if n == nil || have.accepted.ExternalIDs[ovndb.AcceptedPrefix+w.Service.NAD] == "" {
		return nil, fmt.Errorf("network %s: %w", w.Network, ErrNotAccepted)
	}
	subnets, err := w.Service.Subnets(n)
	if err != nil {
		return nil, nbrows.Refusedf("%v", err)
	}
	if err := s.readHolders(ctx, have, w.Service.Fixed); err != nil {
		return nil, err
	}
	result := &Result{}
	scope := ""
	if !w.Service.Headless() {
		scope = nbrows.ServiceScope(n)
		if result.Addresses, err = s.choose(ctx, have, w.Service, subnets); err != nil {
			return nil, err
		}
	}
	var vips map[string]map[string]string
	vips, result.Beyond = w.Service.Backends(result.Addresses, w.Pods)
	balancers := map[string]*nb.LoadBalancer{}
	for protocol, m := range vips {
		if scope != "" {
			balancers[protocol] = balancerRow(w, protocol, m, result.Addresses)
		}
	}
	return result, s.write(ctx, b, have, serviceRow(w, scope, result.Addresses), result.Addresses, balancers)
}

// write adds the operations that make the present rows the wanted ones. row is nil if the service is deleted.
func (s *Services) write(
	ctx context.Context, b *nbrows.Batch, have *present, row *nb.Copp, addresses []netip.Addr,
	balancers map[string]*nb.LoadBalancer,
) error {
	have.setClaims(b, addresses)
	scope := ""
	if row != nil {
		scope = row.ExternalIDs[keyScope]
	}
	if err := s.setBalancers(ctx, b, have, scope, balancers); err != nil {
		return err
	}
	if err := have.end(ctx, b, balancers); err != nil {
		return err
	}
	if row != nil {
		nbrows.Put(b, nb.CoppTable, row.UUID, have.row, row)
	} else if have.row != nil {
		b.Add(ovndb.Delete(nb.CoppTable, have.row.UUID))
	}
	return nil
}

// Delete deletes the rows of a service on a network, in one transaction. The last service of a scope also deletes the
// scope's group. If there are no rows, Delete writes nothing.
func (s *Services) Delete(ctx context.Context, network, service string) (changed bool, err error) {
	return s.store.Change(ctx, "service "+service, func(b *nbrows.Batch) error {
		have, err := s.read(ctx, network, service)
		if err != nil {
			return err
		}
		if err := s.readHolders(ctx, have, nil); err != nil {
			return err
		}
		if err := s.write(ctx, b, have, nil, nil, nil); err != nil {
			return err
		}
		b.First(have.unchanged()...)
		return nil
	})
}

// Key names a service on a network.
type Key struct {
	Network string // the ID
	Service string // "<namespace>/<name>"
}

// List returns the services that NB has rows of. The server scans the table of claims, so callers do this only when
// they begin. The rows of another cluster do not matter to a controller.
func (s *Services) List(ctx context.Context) ([]Key, error) {
	return s.list(ctx, nbrows.KeyKind, kindService, func(row *nb.Copp) bool {
		return ovndb.OtherCluster(row.ExternalIDs) == ""
	})
}

// list returns the services whose rows have a value in external_ids.
func (s *Services) list(ctx context.Context, key, value string, keep func(*nb.Copp) bool) ([]Key, error) {
	results, err := s.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.SelectWith(nb.CoppTable, "external_ids", key, value, "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.Copp](s.store.Db, results[0])
	var all []Key
	for _, row := range rows {
		k := Key{row.ExternalIDs[nbrows.KeyNetwork], row.ExternalIDs[keyService]}
		if row.UUID == ovndb.ServiceKey(k.Network, k.Service) && keep(row) {
			all = append(all, k)
		}
	}
	return all, err
}

// Accepted reads the accepted service and its virtual addresses; nil: there is none.
func (s *Services) Accepted(ctx context.Context, key Key) (*service.Service, []netip.Addr, error) {
	results, err := s.store.Db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.CoppTable, ovndb.ServiceKey(key.Network, key.Service), "_uuid", "external_ids"),
	})
	if err != nil {
		return nil, nil, err
	}
	var row *nb.Copp
	if err := nbrows.One(s.store.Db, results[0], &row); err != nil || row == nil {
		return nil, nil, err
	}
	namespace, name, _ := strings.Cut(key.Service, "/")
	one, err := service.ParseText(namespace, name, row.ExternalIDs[keyText])
	if err != nil {
		return nil, nil, fmt.Errorf("accepted service %s: %w", key.Service, err)
	}
	return one, parseAddresses(row.ExternalIDs[keyAddresses]), nil
}
