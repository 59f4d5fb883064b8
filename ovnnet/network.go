package ovnnet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// Keys of external_ids on a switch. A row without the first is not ours.
const (
	keyNetwork = "ovn-multinet/network"
	keyGateway = "gateway_ip"
)

// ErrPorts says that a network's switch was left alone because it has ports.
var ErrPorts = errors.New("the network has ports")

// Networks writes logical switches into OVN's Northbound database.
type Networks struct {
	db *ovndb.DB
}

// New takes the connection to NB.
func New(db *ovndb.DB) *Networks { return &Networks{db: db} }

// Ensure makes the network's logical switch, or brings it up to date. One that is as it should be is left alone:
// every changed column of a switch is a recompute for northd.
func (n *Networks) Ensure(ctx context.Context, network *conf.Network) (changed bool, err error) {
	want := switchRow(network)
	for {
		have, err := n.read(ctx, want.UUID)
		if err != nil {
			return false, err
		}
		if have != nil && have.ExternalIDs[keyNetwork] != network.ID() {
			return false, fmt.Errorf("logical switch %s is not ours", want.UUID)
		}
		if have != nil && same(have, want) {
			return false, nil
		}
		err = n.write(ctx, have, want)
		// Another controller was faster: look again.
		if refused, ok := errors.AsType[*ovndb.Refused](err); ok && (refused.Reason == ovndb.ReasonDuplicate || refused.Reason == ovndb.ReasonTimedOut) {
			continue
		}
		return err == nil, err
	}
}

func (n *Networks) write(ctx context.Context, have, want *nb.LogicalSwitch) error {
	if have == nil {
		insert, err := n.db.Insert(want)
		if err != nil {
			return err
		}
		_, err = n.db.Transact(ctx, []ovsdb.Operation{insert})
		return err
	}
	_, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.Present(nb.LogicalSwitchTable, want.UUID),
		ovndb.Update(nb.LogicalSwitchTable, want.UUID, ovsdb.Row{
			"name": want.Name, "other_config": ovndb.Map(want.OtherConfig), "external_ids": ovndb.Map(want.ExternalIDs),
		}),
	})
	return err
}

func same(a, b *nb.LogicalSwitch) bool {
	return a.Name == b.Name && maps.Equal(a.OtherConfig, b.OtherConfig) && maps.Equal(a.ExternalIDs, b.ExternalIDs)
}

// read returns a switch without its ports, which may be many; nil when there is none.
func (n *Networks) read(ctx context.Context, key string) (*nb.LogicalSwitch, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		ovndb.Select(nb.LogicalSwitchTable, key, "_uuid", "name", "other_config", "external_ids"),
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.LogicalSwitch](n.db, results[0])
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// switchRow is the row of a network. Its subnet and exclude_ips are for OVN's own allocator, which machines
// outside Kubernetes may use on our switches: it must never hand out what we lease.
func switchRow(network *conf.Network) *nb.LogicalSwitch {
	row := &nb.LogicalSwitch{
		UUID: ovndb.SwitchKey(network.ID()), Name: network.ID(), OtherConfig: map[string]string{},
		ExternalIDs: map[string]string{keyNetwork: network.ID()},
	}
	var gateways []string
	for i, subnet := range network.Subnets {
		gateways = append(gateways, network.Gateways[i].String())
		if subnet.Addr().Is4() {
			row.OtherConfig["subnet"] = subnet.String()
			row.OtherConfig["exclude_ips"] = ours(network, i)
		}
	}
	if len(gateways) > 0 {
		row.ExternalIDs[keyGateway] = strings.Join(gateways, " ")
	}
	return row
}

// ours lists what is not for others: the gateway and all that we lease, as ranges (OVN ignores a CIDR here).
func ours(network *conf.Network, i int) string {
	words := []string{network.Gateways[i].String()}
	for _, span := range network.Pool(i).Spans() {
		if span.First == span.Last {
			words = append(words, span.First.String())
		} else {
			words = append(words, span.First.String()+".."+span.Last.String())
		}
	}
	return strings.Join(words, " ")
}

// Remove deletes the logical switch of a network that is no more. One with ports stays, with ErrPorts: the database
// would collect its ports without a word. One that is gone or not ours is success.
func (n *Networks) Remove(ctx context.Context, id string) error {
	key := ovndb.SwitchKey(id)
	have, err := n.read(ctx, key)
	if err != nil || have == nil || have.ExternalIDs[keyNetwork] != id {
		return err
	}
	now := 0
	empty := ovndb.Present(nb.LogicalSwitchTable, key)
	empty.Timeout, empty.Columns, empty.Rows = &now, []string{"ports"}, []ovsdb.Row{{"ports": ovsdb.OvsSet{GoSet: []any{}}}}
	_, err = n.db.Transact(ctx, []ovsdb.Operation{empty, ovndb.Delete(nb.LogicalSwitchTable, key)})
	if refused, ok := errors.AsType[*ovndb.Refused](err); ok && refused.Reason == ovndb.ReasonTimedOut {
		return fmt.Errorf("network %s: %w", id, ErrPorts)
	}
	return err
}

// IDs lists the networks that have a logical switch of ours.
func (n *Networks) IDs(ctx context.Context) ([]string, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"_uuid", "external_ids"}},
	})
	if err != nil {
		return nil, err
	}
	rows, err := ovndb.Rows[nb.LogicalSwitch](n.db, results[0])
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, row := range rows {
		if id := row.ExternalIDs[keyNetwork]; id != "" && row.UUID == ovndb.SwitchKey(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
