package ovnnet

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
)

// View is a network as it is in the database.
type View struct {
	ID       string
	Accepted []string      // the NADs whose ports it takes
	Config   *conf.Network // in force; nil when its switch does not say
	Usage    []Usage       // by subnet
	Ports    []PortView    // by name; the router's is not among them
}

// Usage is how full a subnet is.
type Usage struct {
	Subnet     netip.Prefix
	Gateway    netip.Addr
	Used, Free uint64 // of what may be leased
}

// PortView is a port on a network. Namespace is empty for one that is not ours.
type PortView struct {
	Name                            string
	Namespace, Pod, Interface, Node string
	MAC                             net.HardwareAddr
	Addresses                       []netip.Addr
	// Up says that ovn-controller has bound it.
	Up bool
}

// Views reads every network.
func (n *Networks) Views(ctx context.Context) ([]View, error) {
	results, err := n.db.Transact(ctx, []ovsdb.Operation{
		{Op: ovsdb.OperationSelect, Table: nb.LogicalSwitchTable, Columns: []string{"_uuid", "external_ids", "ports"}},
	})
	if err != nil {
		return nil, err
	}
	switches, err := ovndb.Rows[nb.LogicalSwitch](n.db, results[0])
	if err != nil {
		return nil, err
	}
	var views []View
	for _, sw := range switches {
		if id := sw.ExternalIDs[keyNetwork]; id == "" || sw.UUID != ovndb.SwitchKey(id) {
			continue
		}
		v, err := n.view(ctx, sw)
		if err != nil {
			return nil, err
		}
		views = append(views, *v)
	}
	slices.SortFunc(views, func(a, b View) int { return strings.Compare(a.ID, b.ID) })
	return views, nil
}

func (n *Networks) view(ctx context.Context, sw *nb.LogicalSwitch) (*View, error) {
	v := &View{ID: sw.ExternalIDs[keyNetwork], Accepted: accepts(sw), Config: inForce(sw)}
	ports, err := ovndb.ReadByKey[nb.LogicalSwitchPort](ctx, n.db, nb.LogicalSwitchPortTable, sw.Ports, "name", "type", "addresses", "external_ids", "up")
	if err != nil {
		return nil, err
	}
	for _, port := range ports {
		if port.Type != "router" {
			v.Ports = append(v.Ports, portView(port))
		}
	}
	slices.SortFunc(v.Ports, func(a, b PortView) int { return strings.Compare(a.Name, b.Name) })
	if v.Config != nil {
		v.count()
	}
	return v, nil
}

func portView(port *nb.LogicalSwitchPort) PortView {
	p := PortView{Name: port.Name, Up: port.Up != nil && *port.Up}
	if x := port.ExternalIDs; x[keySandbox] != "" {
		p.Namespace, p.Pod, p.Interface, p.Node = x[keyNamespace], x[keyPod], x[keyInterface], x[keyNode]
	}
	for _, text := range port.Addresses {
		for _, word := range strings.Fields(text) {
			if mac, err := net.ParseMAC(word); err == nil {
				p.MAC = mac
			} else if a, err := netip.ParseAddr(word); err == nil {
				p.Addresses = append(p.Addresses, a)
			}
		}
	}
	return p
}

// count fills Usage in.
func (v *View) count() {
	for i, subnet := range v.Config.Subnets {
		pool := v.Config.Pool(i)
		u := Usage{Subnet: subnet, Gateway: v.Config.Gateways[i], Free: pool.Size()}
		for _, p := range v.Ports {
			for _, a := range p.Addresses {
				if pool.Contains(a) {
					u.Used, u.Free = u.Used+1, u.Free-min(u.Free, 1)
				}
			}
		}
		v.Usage = append(v.Usage, u)
	}
}
