package nbtest

import (
	"errors"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
)

// Keys of layer3 networks.
const (
	Layer3    = `"topology":"layer3","subnets":"10.128.0.0/16/24"`
	Layer3All = `"topology":"layer3","subnets":"10.128.0.0/16/24,fd01::/48/64"`
)

// Share ensures the node subnets of a node and returns the node's view of the network.
func Share(t *testing.T, n *Client, network *netmodel.Network, node string) *netmodel.Network {
	t.Helper()
	view, err := n.Subnets.Ensure(WithLimit(t), network, node)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// NodeKey returns the row key of a node switch of shop/blue.
func NodeKey(node string) string { return ovndb.SwitchKey("shop/blue@" + node) }

// Switch returns the rows of a node switch of shop/blue on a router, by table and row key.
func Switch(view *netmodel.Network, router string) map[string]map[string]Fields {
	name, blocks := "shop/blue@"+view.Node, view.NodeSubnetsText()
	portKey, end := ovndb.RouterPortKey(name), ovndb.AddressKey("shop/blue", view.Gateways[0])
	marks := "ovn-multinet/network=shop/blue ovn-multinet/router=" + router
	endMarks := marks
	var networks []any
	claims := map[string]Fields{}
	for i, g := range view.Gateways {
		block := view.Subnets[i]
		networks = append(networks, netip.PrefixFrom(g, block.Bits()).String())
		claims[ovndb.NodeSubnetKey("shop/blue", block)] = Fields{"name": "ovn-multinet shop/blue block " + block.String(),
			"external_ids": "ovn-multinet/network=shop/blue ovn-multinet/node=" + view.Node}
		if i > 0 {
			key := ovndb.AddressKey("shop/blue", g)
			claims[key] = Fields{"name": "ovn-multinet shop/blue address " + g.String(),
				"external_ids": "ovn-multinet/network=shop/blue ovn-multinet/port-name=" + name + ":" + router +
					" ovn-multinet/port=" + end}
			endMarks = "ovn-multinet/claims=" + key + " " + marks
		}
	}
	first := view.Gateways[0]
	b := first.As4()
	return map[string]map[string]Fields{
		"Logical_Switch": {ovndb.SwitchKey(name): {"name": name, "ports": end,
			"external_ids": Sprint("ovn-multinet/blocks=%s ovn-multinet/network=shop/blue ovn-multinet/node=%s",
				blocks, view.Node)}},
		"Logical_Router_Port": {portKey: {"name": router + ":" + name,
			"mac":      Sprint("0a:58:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3]),
			"networks": line(networks),
			"external_ids": "ovn-multinet/network=shop/blue ovn-multinet/port=" + end +
				" ovn-multinet/router=" + router}},
		"Logical_Switch_Port": {end: {"name": name + ":" + router, "type": "router", "addresses": "router",
			"options": "router-port=" + router + ":" + name, "external_ids": endMarks}},
		"Copp": claims,
	}
}

// Ext returns the value of one key of a row's external_ids.
func Ext(f Fields, key string) string {
	_, rest, _ := strings.Cut(" "+f["external_ids"], " "+key+"=")
	value, _, _ := strings.Cut(rest, " ")
	return value
}

// WantNoNodeSubnet fails unless Ensure returns the error that no node subnet is free, with that text, and changes no
// row.
func (w *World) WantNoNodeSubnet(t *testing.T, n *netmodel.Network, node, text string) {
	t.Helper()
	before := w.Versions(t)
	view, err := w.Networks.Subnets.Ensure(WithLimit(t), n, node)
	if view != nil || !conf.HasCode(err, conf.CodeNoAddressLeft) || err.Error() != text {
		t.Errorf("%v, %v; want code 104, %s", view, err, text)
	}
	if after := w.Versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}

// WantShareRefused fails unless Ensure refuses with that reason and changes no row.
func (w *World) WantShareRefused(t *testing.T, n *netmodel.Network, node, reason string) {
	t.Helper()
	before := w.Versions(t)
	view, err := w.Networks.Subnets.Ensure(WithLimit(t), n, node)
	if refused, ok := errors.AsType[*nbrows.Refused](err); !ok || view != nil || refused.Reason != reason {
		t.Errorf("%v, %v; want it refused: %s", view, err, reason)
	}
	if after := w.Versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}
