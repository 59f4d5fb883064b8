package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/pathmtu"
)

// TestControllerFollowsMTUs: NB has the smallest MTUs of all nodes, the gateway the smallest of all on its way, and a
// network's port its own if larger packets can come. They follow nodes that come, change and go, and networks.
func TestControllerFollowsMTUs(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	labels := map[string]string{"gw": "yes"}
	nodes := map[string]map[string]string{}
	for i := range 45 { // more than one pass reads
		nodes[fmt.Sprint("n", i)] = labels
	}
	a.setNodes(nodes)
	announce := func(node string, overlay, provider int) {
		t.Helper()
		sizes := pathmtu.Sizes{pathmtu.Overlay: overlay, "provider": provider}
		if err := w.Other(t).Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: node, Chassis: "of-" + node, Sizes: sizes, Physical: []string{"provider"}}); err != nil {
			t.Error(err)
		}
	}
	for node := range nodes {
		announce(node, 8942, 9000)
	}
	announce("n7", 8942, 1500)
	a.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1+`,"mtu":1400`))
	a.apply("shop/green", nbtest.Spec(`"subnets":"10.2.0.0/24"`+nbtest.OnR1))
	c, r := routing(t, w, a, w.Routed(t, nbtest.GwFull))
	r.touch(t, "shop/blue")
	r.touch(t, "shop/green")
	want := func(text string) {
		t.Helper()
		eventually(t, text, func() string {
			var words []string
			for _, row := range w.Rows(t)["Logical_Router_Port"] {
				if mtu, ok := strings.CutPrefix(row["options"], "gateway_mtu="); ok {
					words = append(words, row["name"]+" "+mtu)
				}
			}
			for _, row := range w.Rows(t)["Copp"] {
				if row["name"] == "ovn-multinet smallest mtu" {
					words = append(words, strings.ReplaceAll(row["external_ids"], "ovn-multinet/", ""))
				}
			}
			slices.Sort(words)
			return strings.Join(words, ", ")
		})
	}
	want("kind=mtu mtu:provider=1500 n7 mtu=8942 n0, shop/r1:external 1400, shop/r1:shop/blue 1400")
	a.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1))
	r.touch(t, "shop/blue")
	want("kind=mtu mtu:provider=1500 n7 mtu=8942 n0, shop/r1:external 1500")
	announce("n33", 1442, 9000) // its underlay has changed, and nobody tells the controller
	want("kind=mtu mtu:provider=1500 n7 mtu=1442 n33, shop/r1:external 1442")
	a.apply("shop/green", nbtest.Spec(`"subnets":"10.2.0.0/24","mtu":8000`+nbtest.OnR1))
	r.touch(t, "shop/green")
	want("kind=mtu mtu:provider=1500 n7 mtu=1442 n33, shop/r1:external 1442, shop/r1:shop/green 1442")
	delete(nodes, "n33")
	delete(nodes, "n7")
	a.setNodes(nodes)
	c.NodesChanged()
	want("kind=mtu mtu:provider=9000 n0 mtu=8942 n0, shop/r1:external 8000, shop/r1:shop/green 8000")
	a.apply("shop/blue", nbtest.Spec(nbtest.Net4+nbtest.OnR1+`,"mtu":8000`))
	r.touch(t, "shop/blue")
	want("kind=mtu mtu:provider=9000 n0 mtu=8942 n0, shop/r1:external 8000")
}

// TestMTUsWithoutNodes: if the source does not know the nodes, those count that have said their MTUs.
func TestMTUsWithoutNodes(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	for node, mtu := range map[string]int{"n1": 8942, "n2": 1442} {
		if err := w.Other(t).Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: node, Chassis: "of-" + node, Sizes: pathmtu.Sizes{pathmtu.Overlay: mtu}}); err != nil {
			t.Fatal(err)
		}
	}
	routing(t, w, a, w.Routed(t, nbtest.GwFull))
	eventually(t, "ovn-multinet/kind=mtu ovn-multinet/mtu=1442 n2", func() string {
		for _, row := range w.Rows(t)["Copp"] {
			if row["name"] == "ovn-multinet smallest mtu" {
				return row["external_ids"]
			}
		}
		return ""
	})
}

// TestControllerFollowsDHCP: machines hear by DHCP of the MTU of all pods, also on a network without a router, and of
// another one when the nodes have another one.
func TestControllerFollowsDHCP(t *testing.T) {
	w, a := nbtest.NewWorld(t), newAPI()
	a.setNodes(map[string]map[string]string{"n1": {}})
	announce := func(overlay int) {
		t.Helper()
		sizes := pathmtu.Sizes{pathmtu.Overlay: overlay}
		if err := w.Other(t).Node.Announce(nbtest.WithLimit(t), gateway.Announcement{Node: "n1", Chassis: "of-n1", Sizes: sizes}); err != nil {
			t.Error(err)
		}
	}
	announce(8942)
	a.apply("shop/blue", nbtest.Spec(nbtest.Net4+`,"dhcp":true`))
	a.apply("shop/green", nbtest.Spec(`"subnets":"10.2.0.0/24","mtu":1400,"dhcp":true`))
	_, r := routing(t, w, a, w.Routed(t, nbtest.GwFull))
	r.touch(t, "shop/blue")
	r.touch(t, "shop/green")
	want := func(text string) {
		t.Helper()
		eventually(t, text, func() string {
			var words []string
			for _, row := range w.Dump(t, "DHCP_Options") {
				words = append(words, fmt.Sprint(row["cidr"], " ", row["options"].(map[string]string)["mtu"]))
			}
			slices.Sort(words)
			return strings.Join(words, ", ")
		})
	}
	want("10.1.0.0/24 8942, 10.2.0.0/24 1400")
	announce(1442)
	want("10.1.0.0/24 1442, 10.2.0.0/24 1400")
}
