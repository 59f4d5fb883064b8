package nodesubnet_test

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbrows"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nodesubnet"
)

func TestShareMakesTheNodesPart(t *testing.T) {
	for _, tt := range []struct{ name, keys, router string }{
		{"a router of its own", nbtest.Layer3, "shop/blue:router"},
		{"a shared router", nbtest.Layer3 + nbtest.OnR1, "shop/r1"},
		{"two families", nbtest.Layer3All, "shop/blue:router"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			blue := nbtest.Network(t, "blue", tt.keys)
			nbtest.Ensure(t, w.Networks, blue)
			want := w.Rows(t)
			w.Proxy.Reset()
			view := nbtest.Share(t, w.Networks, blue, "n1")
			w.WantCommitted(t, 1)
			for i, block := range view.Subnets {
				if block.Bits() != blue.NodeSubnetBits[i] || !blue.Subnets[i].Contains(block.Addr()) || view.Gateways[i] != block.Addr().Next() {
					t.Errorf("block %s with gateway %s", block, view.Gateways[i])
				}
			}
			for table, rows := range nbtest.Switch(view, tt.router) {
				if want[table] == nil {
					want[table] = map[string]nbtest.Fields{}
				}
				maps.Copy(want[table], rows)
			}
			want["Logical_Router"][ovndb.RouterKey(tt.router)]["ports"] = ovndb.RouterPortKey("shop/blue@n1")
			w.WantRows(t, want)

			// The second time it is one look, by whomever; and the controller finds nothing to do.
			w.Proxy.Reset()
			before := w.Versions(t)
			if again := nbtest.Share(t, w.Networks, blue, "n1"); again.NodeSubnetsText() != view.NodeSubnetsText() || again.Node != "n1" {
				t.Errorf("the second time the blocks are %s", again.NodeSubnetsText())
			}
			if got := w.Proxy.Counts(); got.Committed != 0 || got.Refused != 0 || got.ReadOnly != 1 {
				t.Errorf("transactions: %+v, want one that reads", got)
			}
			if nbtest.Ensure(t, w.Networks, blue) {
				t.Error("Ensure changed something")
			}
			w.WantCommitted(t, 0)
			if after := w.Versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
		})
	}
}

// Nodes that come all at once get blocks of their own, down to the last one; then there are none.
func TestShareOfManyNodesAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name, keys string
		full       bool
	}{
		{"room", `"topology":"layer3","subnets":"10.128.0.0/16/24"`, false},
		{"as many as there are", `"topology":"layer3","subnets":"10.128.0.0/22/27,fd01::/43/48","excludeSubnets":"10.128.0.0/25,10.128.3.0/24"`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			blue := nbtest.Network(t, "blue", tt.keys)
			nbtest.Ensure(t, w.Networks, blue)
			const nodes = 20
			var mu sync.Mutex
			holder := map[netip.Prefix]string{}
			var all sync.WaitGroup
			for i := range nodes {
				n, node := w.Other(t), nbtest.Sprint("n%d", i)
				all.Go(func() {
					view, err := n.Subnets.Ensure(nbtest.WithLimit(t), blue, node)
					if err != nil {
						t.Errorf("%s: %v", node, err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					for _, block := range view.Subnets {
						if holder[block] != "" {
							t.Errorf("%s and %s have block %s", holder[block], node, block)
						}
						holder[block] = node
					}
				})
			}
			all.Wait()
			for key, sw := range w.Rows(t)["Logical_Switch"] {
				for _, block := range blue.ParseNodeSubnets(nbtest.Ext(sw, "ovn-multinet/blocks")) {
					if holder[block] != nbtest.Ext(sw, "ovn-multinet/node") {
						t.Errorf("switch %s of %s has block %s of %s", key, nbtest.Ext(sw, "ovn-multinet/node"), block, holder[block])
					}
				}
			}
			if tt.full {
				w.WantNoNodeSubnet(t, blue, "n20", "network shop/blue: no node subnet of 10.128.0.0/22 is free for node n20")
			}
			w.MustRemove(t, "shop/blue", false)
			w.WantRows(t, map[string]map[string]nbtest.Fields{})
		})
	}
}

// More nodes than blocks: the last ones are told so. A node that leaves makes room.
func TestShareWithoutBlocksLeft(t *testing.T) {
	w := nbtest.NewWorld(t)
	blue := nbtest.Network(t, "blue", `"topology":"layer3","subnets":"10.128.0.0/24/26"`)
	nbtest.Ensure(t, w.Networks, blue)
	blocks := map[string]string{}
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		blocks[nbtest.Share(t, w.Networks, blue, node).NodeSubnetsText()] = node
	}
	if got := slices.Sorted(maps.Keys(blocks)); !slices.Equal(got, []string{"10.128.0.0/26", "10.128.0.128/26", "10.128.0.192/26", "10.128.0.64/26"}) {
		t.Errorf("blocks %v", got)
	}
	w.WantNoNodeSubnet(t, blue, "n5", "network shop/blue: no node subnet of 10.128.0.0/24 is free for node n5")
	if err := w.Networks.DeleteNodeSwitch(nbtest.WithLimit(t), "shop/blue", "n3"); err != nil {
		t.Error(err)
	}
	if got := nbtest.Share(t, w.Networks, blue, "n5").NodeSubnetsText(); blocks[got] != "n3" {
		t.Errorf("n5 got %s, want that of n3: %v", got, blocks)
	}
}

// What excludeSubnets has the whole of is no node's.
func TestSharePassesOverExcludedBlocks(t *testing.T) {
	for _, tt := range []struct {
		name, keys string
		want       []string
	}{
		{"whole blocks", `"topology":"layer3","subnets":"10.128.0.0/24/26","excludeSubnets":"10.128.0.0/26,10.128.0.128/25"`, []string{"10.128.0.64/26"}},
		{"all that pods could get of one", `"topology":"layer3","subnets":"10.128.0.0/28/29","excludeSubnets":"10.128.0.2/31,10.128.0.4/30"`, []string{"10.128.0.8/29"}},
		{"a part of one", `"topology":"layer3","subnets":"10.128.0.0/24/25","excludeSubnets":"10.128.0.0/26,10.128.0.128/25"`, []string{"10.128.0.0/25"}},
		{"billions", `"topology":"layer3","subnets":"fd01::/32/64","excludeSubnets":"fd01:0:8000::/33,fd01:0:4000::/34,fd01:0:2000::/35,` +
			`fd01:0:0::/36,fd01:0:1000::/37,fd01:0:1800::/38"`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			blue := nbtest.Network(t, "blue", tt.keys)
			nbtest.Ensure(t, w.Networks, blue)
			for i := range max(len(tt.want), 4) { // whatever their hashes begin with
				node := nbtest.Sprint("n%d", i)
				if i >= len(tt.want) && tt.want != nil {
					w.WantNoNodeSubnet(t, blue, node, nbtest.Sprint("network shop/blue: no node subnet of %s is free for node %s", blue.Subnets[0], node))
					continue
				}
				got := nbtest.Share(t, w.Networks, blue, node)
				if tt.want != nil && got.NodeSubnetsText() != tt.want[i] {
					t.Errorf("block %s, want %s", got.NodeSubnetsText(), tt.want[i])
				}
				for _, e := range blue.Exclude {
					if e.Contains(got.Subnets[0].Addr()) && e.Bits() <= got.Subnets[0].Bits() {
						t.Errorf("block %s is excluded by %s", got.NodeSubnetsText(), e)
					}
				}
			}
		})
	}
}

// A network gives a node nothing that it does not take ports of.
func TestShareIsNotAccepted(t *testing.T) {
	blue := nbtest.Network(t, "blue", nbtest.Layer3)
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, w *nbtest.World)
	}{
		{"no such network", func(*testing.T, *nbtest.World) {}},
		{"another revision", func(t *testing.T, w *nbtest.World) {
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Layer3+`,"mtu":1300`))
		}},
		{"another topology", func(t *testing.T, w *nbtest.World) {
			nbtest.Ensure(t, w.Networks, nbtest.Network(t, "blue", nbtest.Net4))
		}},
		{"the same of another NAD", func(t *testing.T, w *nbtest.World) {
			if _, err := w.Networks.Ensure(nbtest.WithLimit(t), blue, []string{"dev/blue"}); err != nil {
				t.Error(err)
			}
		}},
		{"it is being deleted", func(t *testing.T, w *nbtest.World) {
			nbtest.Ensure(t, w.Networks, blue)
			nbtest.Share(t, w.Networks, blue, "n1")
			w.PutPort(t, "Logical_Switch", nbtest.NodeKey("n1"), nbtest.Strange, ovndbtest.Op{"name": "vm"})
			w.WantInUse(t, "used by port vm (not ours)")
		}},
		{"it is gone", func(t *testing.T, w *nbtest.World) {
			nbtest.Ensure(t, w.Networks, blue)
			nbtest.Share(t, w.Networks, blue, "n1")
			w.MustRemove(t, "shop/blue", false)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			tt.do(t, w)
			before := w.Versions(t)
			for _, node := range []string{"n1", "n2"} {
				if view, err := w.Networks.Subnets.Ensure(nbtest.WithLimit(t), blue, node); view != nil || !errors.Is(err, nodesubnet.ErrNotAccepted) {
					t.Errorf("%s: %v, %v; want ErrNotAccepted", node, view, err)
				}
			}
			if after := w.Versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
		})
	}
}

// What others have in the way is left alone, and named.
func TestShareAmongOthersRows(t *testing.T) {
	w := nbtest.NewWorld(t)
	begin := func(t *testing.T) *netmodel.Network {
		t.Helper()
		w.Clear(t)
		blue := nbtest.Network(t, "blue", `"topology":"layer3","subnets":"10.128.0.0/24/24"`)
		nbtest.Ensure(t, w.Networks, blue)
		return blue
	}
	const mends = "; the controller mends it within 5m0s"
	t.Run("the network's switch", func(t *testing.T) {
		blue := begin(t)
		w.Change(t, "Logical_Switch", nbtest.BlueKey, ovndbtest.Op{"external_ids": ovndbtest.Map(nil)})
		w.WantShareRefused(t, blue, "n1", "logical switch "+nbtest.BlueKey+" is not ours")
	})
	t.Run("the node's switch", func(t *testing.T) {
		blue := begin(t)
		w.Put(t, "Logical_Switch", nbtest.NodeKey("n1"), "x", nil)
		w.WantShareRefused(t, blue, "n1", "logical switch "+nbtest.NodeKey("n1")+" is not ours")
	})
	t.Run("blocks of the node's switch", func(t *testing.T) {
		blue := begin(t)
		nbtest.Share(t, w.Networks, blue, "n1")
		was := w.DumpTables(t, "Logical_Switch")["Logical_Switch"]
		i := slices.IndexFunc(was, func(row map[string]any) bool { return row["_uuid"] == nbtest.NodeKey("n1") })
		ids := maps.Clone(was[i]["external_ids"].(map[string]string))
		ids["ovn-multinet/blocks"] = "10.9.0.0/24"
		w.Change(t, "Logical_Switch", nbtest.NodeKey("n1"), ovndbtest.Op{"external_ids": ovndbtest.Map(ids)})
		w.WantShareRefused(t, blue, "n1", "logical switch shop/blue@n1 has no node subnets of its network"+mends)
	})
	t.Run("a port at the block's gateway", func(t *testing.T) {
		blue := begin(t)
		w.PodAt(t, "shop/blue", ovndb.AddressKey("shop/blue", netip.MustParseAddr("10.128.0.1")), "web-0", "net1")
		w.WantShareRefused(t, blue, "n1", "gateway: its address belongs to port shop/web-0/net1")
	})
	t.Run("a Service at the node subnet's gateway", func(t *testing.T) {
		blue := begin(t)
		w.Put(t, "Copp", ovndb.AddressKey("shop/blue", netip.MustParseAddr("10.128.0.1")), "x",
			map[string]string{"ovn-multinet/network": "shop/blue", ovndb.ClaimantPrefix + "service shop/web": "virtual address"})
		w.WantShareRefused(t, blue, "n1", "gateway: its address belongs to service shop/web (virtual address)")
	})
	t.Run("no router", func(t *testing.T) {
		blue := begin(t)
		w.Remove(t, "Logical_Router", ovndb.RouterKey("shop/blue:router"))
		w.WantShareRefused(t, blue, "n1", "router shop/blue:router of network shop/blue is not there"+mends)
		nbtest.Ensure(t, w.Networks, blue)
		nbtest.Share(t, w.Networks, blue, "n1")
	})
	t.Run("a name", func(t *testing.T) {
		blue := begin(t)
		w.NBCtl("ls-add", "theirs", "--", "lsp-add", "theirs", "shop/blue@n1:shop/blue:router")
		_, err := w.Networks.Subnets.Ensure(nbtest.WithLimit(t), blue, "n1")
		if refused, ok := errors.AsType[*nbrows.Refused](err); !ok || !strings.Contains(refused.Reason, `("shop/blue@n1:shop/blue:router")`) {
			t.Errorf("%v, want the name that is in the way", err)
		}
	})
}

// A claim on a block whose node has no switch any more, by someone's hand, keeps the block from nobody.
func TestShareClearsClaimsWithoutASwitch(t *testing.T) {
	for _, node := range []string{"n1", "n2"} {
		t.Run(node, func(t *testing.T) {
			w := nbtest.NewWorld(t)
			blue := nbtest.Network(t, "blue", `"topology":"layer3","subnets":"10.128.0.0/24/24"`)
			nbtest.Ensure(t, w.Networks, blue)
			nbtest.Share(t, w.Networks, blue, node)
			want := w.Rows(t)
			w.Remove(t, "Logical_Switch", nbtest.NodeKey(node))
			if node != "n2" { // another node gets what was n1's
				nbtest.Share(t, w.Networks, blue, "n2")
				if got := nbtest.Ext(w.Rows(t)["Copp"][blockKey("10.128.0.0/24")], "ovn-multinet/node"); got != "n2" {
					t.Errorf("the block is of %q", got)
				}
				w.WantNoNodeSubnet(t, blue, node, "network shop/blue: no node subnet of 10.128.0.0/24 is free for node "+node)
				return
			}
			w.DropPorts(t, "Logical_Router", ovndb.RouterKey("shop/blue:router"))
			nbtest.Share(t, w.Networks, blue, node)
			w.WantRows(t, want)
		})
	}
}
