package ovnnet

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// InUse says that a network was withdrawn but not deleted, because it still has ports.
type InUse struct {
	By   []string // some of the users: pods, and ports that are not ours
	More int      // the number of ports that By does not name
}

func (e *InUse) Error() string {
	text := "used by " + strings.Join(e.By, ", ")
	if e.More > 0 {
		text += " and " + count(e.More, "more port")
	}
	return text
}

// count returns the number and the noun: "1 port", "2 ports".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ports are the ports of a network's switches.
type ports struct {
	of     []switchPorts
	others []string // without the ports to the router and to the physical network
}

// switchPorts are the keys of all ports of the switch with that key.
type switchPorts struct {
	key string
	all []string
}

// ports reads the ports of a network's switches, page by page.
func (n *Networks) ports(ctx context.Context, have *networkRows) (*ports, error) {
	p := &ports{}
	for part := range slices.Chunk(have.switches(), readPage) {
		var ops []ovsdb.Operation
		for _, one := range part {
			ops = append(ops, ovndb.Select(nb.LogicalSwitchTable, one.Row.UUID, "ports"))
		}
		results, err := n.Db.Transact(ctx, ops)
		if err != nil {
			return nil, err
		}
		for i, result := range results {
			sw := &nb.LogicalSwitch{}
			if err := nbrows.One(n.Db, result, &sw); err != nil {
				return nil, err
			}
			p.of = append(p.of, switchPorts{part[i].Row.UUID, sw.Ports})
			p.others = append(p.others, part[i].Others(sw.Ports)...)
		}
	}
	return p, nil
}

// unchanged returns the assertions that the switches still have exactly these ports.
func (p *ports) unchanged() []ovsdb.Operation {
	ops := make([]ovsdb.Operation, len(p.of))
	for i, sw := range p.of {
		ops[i] = nbrows.HoldsPorts(nb.LogicalSwitchTable, sw.key, sw.all)
	}
	return ops
}

// named is the number of ports whose users an InUse names.
const named = 5

// inUse returns an InUse with the users of these ports.
func (n *Networks) inUse(ctx context.Context, keys []string) (*InUse, error) {
	// Sort the keys: the error names the same users each time, so its text changes only when the ports change.
	keys = slices.Sorted(slices.Values(keys))
	e := &InUse{More: max(0, len(keys)-named)}
	ports, err := ovndb.ReadByKey[nb.LogicalSwitchPort](
		ctx, n.Db, nb.LogicalSwitchPortTable, keys[:min(len(keys), named)], "name", "external_ids")
	if err != nil {
		return nil, err
	}
	for _, port := range ports {
		by := nbrows.UserOf(port)
		if !slices.Contains(e.By, by) {
			e.By = append(e.By, by)
		}
	}
	return e, nil
}
