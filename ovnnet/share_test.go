package ovnnet_test

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet"
)

const (
	layer3    = `"topology":"layer3","subnets":"10.128.0.0/16/24"`
	layer3All = `"topology":"layer3","subnets":"10.128.0.0/16/24,fd01::/48/64"`
)

// share gives a node its part of a network.
func share(t *testing.T, n *ovnnet.Networks, network *netmodel.Network, node string) *netmodel.Network {
	t.Helper()
	view, err := n.Share(withLimit(t), network, node)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

func nodeKey(node string) string { return ovndb.SwitchKey("shop/blue@" + node) }

func blockKey(block string) string { return ovndb.BlockKey("shop/blue", netip.MustParsePrefix(block)) }

// part is what a node has of shop/blue on a router: by table and row key.
func part(view *netmodel.Network, router string) map[string]map[string]fields {
	name, blocks := "shop/blue@"+view.Node, view.NodeSubnetsText()
	portKey, end := ovndb.RouterPortKey(name), ovndb.AddressKey("shop/blue", view.Gateways[0])
	marks := "ovn-multinet/network=shop/blue ovn-multinet/router=" + router
	endMarks := marks
	var gateways []string
	var networks []any
	claims := map[string]fields{}
	for i, g := range view.Gateways {
		block := view.Subnets[i]
		gateways, networks = append(gateways, g.String()), append(networks, netip.PrefixFrom(g, block.Bits()).String())
		claims[ovndb.BlockKey("shop/blue", block)] = fields{"name": "ovn-multinet shop/blue block " + block.String(),
			"external_ids": "ovn-multinet/network=shop/blue ovn-multinet/node=" + view.Node}
		if i > 0 {
			key := ovndb.AddressKey("shop/blue", g)
			claims[key] = fields{"name": "ovn-multinet shop/blue address " + g.String(),
				"external_ids": "ovn-multinet/network=shop/blue ovn-multinet/port-name=" + name + ":" + router + " ovn-multinet/port=" + end}
			endMarks = "ovn-multinet/claims=" + key + " " + marks
		}
	}
	first := view.Gateways[0]
	b := first.As4()
	return map[string]map[string]fields{
		"Logical_Switch": {ovndb.SwitchKey(name): {"name": name, "ports": end,
			"external_ids": sprint("gateway_ip=%s ovn-multinet/blocks=%s ovn-multinet/config=%s ovn-multinet/nad:shop/blue=%s "+
				"ovn-multinet/network=shop/blue ovn-multinet/node=%s", strings.Join(gateways, " "), blocks, view.Canonical(), view.Revision(), view.Node)}},
		"Logical_Router_Port": {portKey: {"name": router + ":" + name, "mac": sprint("0a:58:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3]),
			"networks": line(networks), "external_ids": "ovn-multinet/network=shop/blue ovn-multinet/port=" + end + " ovn-multinet/router=" + router}},
		"Logical_Switch_Port": {end: {"name": name + ":" + router, "type": "router", "addresses": "router",
			"options": "router-port=" + router + ":" + name, "external_ids": endMarks}},
		"Copp": claims,
	}
}

func TestShareMakesTheNodesPart(t *testing.T) {
	for _, tt := range []struct{ name, keys, router string }{
		{"a router of its own", layer3, "shop/blue:router"},
		{"a shared router", layer3 + onR1, "shop/r1"},
		{"two families", layer3All, "shop/blue:router"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			blue := network(t, "blue", tt.keys)
			ensure(t, w.networks, blue)
			want := w.rows(t)
			w.proxy.Reset()
			view := share(t, w.networks, blue, "n1")
			w.wantCommitted(t, 1)
			for i, block := range view.Subnets {
				if block.Bits() != blue.NodeSubnetBits[i] || !blue.Subnets[i].Contains(block.Addr()) || view.Gateways[i] != block.Addr().Next() {
					t.Errorf("block %s with gateway %s", block, view.Gateways[i])
				}
			}
			for table, rows := range part(view, tt.router) {
				if want[table] == nil {
					want[table] = map[string]fields{}
				}
				maps.Copy(want[table], rows)
			}
			want["Logical_Router"][ovndb.RouterKey(tt.router)]["ports"] = ovndb.RouterPortKey("shop/blue@n1")
			w.wantRows(t, want)

			// The second time it is one look, by whomever; and the controller finds nothing to do.
			w.proxy.Reset()
			before := w.versions(t)
			if again := share(t, w.networks, blue, "n1"); again.NodeSubnetsText() != view.NodeSubnetsText() || again.Node != "n1" {
				t.Errorf("the second time the blocks are %s", again.NodeSubnetsText())
			}
			if got := w.proxy.Counts(); got.Committed != 0 || got.Refused != 0 || got.ReadOnly != 1 {
				t.Errorf("transactions: %+v, want one that reads", got)
			}
			if ensure(t, w.networks, blue) {
				t.Error("Ensure changed something")
			}
			w.wantCommitted(t, 0)
			if after := w.versions(t); !maps.Equal(before, after) {
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
			w := newWorld(t)
			blue := network(t, "blue", tt.keys)
			ensure(t, w.networks, blue)
			const nodes = 20
			var mu sync.Mutex
			holder := map[netip.Prefix]string{}
			var all sync.WaitGroup
			for i := range nodes {
				n, node := w.other(t), sprint("n%d", i)
				all.Go(func() {
					view, err := n.Share(withLimit(t), blue, node)
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
			for key, sw := range w.rows(t)["Logical_Switch"] {
				for _, block := range blue.ParseNodeSubnets(ext(sw, "ovn-multinet/blocks")) {
					if holder[block] != ext(sw, "ovn-multinet/node") {
						t.Errorf("switch %s of %s has block %s of %s", key, ext(sw, "ovn-multinet/node"), block, holder[block])
					}
				}
			}
			if tt.full {
				w.wantNoBlock(t, blue, "n20", "network shop/blue: no block of 10.128.0.0/22 is left for node n20")
			}
			w.mustRemove(t, "shop/blue", false)
			w.wantRows(t, map[string]map[string]fields{})
		})
	}
}

// ext is one of a row's external_ids.
func ext(f fields, key string) string {
	_, rest, _ := strings.Cut(" "+f["external_ids"], " "+key+"=")
	value, _, _ := strings.Cut(rest, " ")
	return value
}

func (w *world) wantNoBlock(t *testing.T, n *netmodel.Network, node, text string) {
	t.Helper()
	before := w.versions(t)
	view, err := w.networks.Share(withLimit(t), n, node)
	if view != nil || !conf.HasCode(err, conf.CodeNoAddressLeft) || err.Error() != text {
		t.Errorf("%v, %v; want code 104, %s", view, err, text)
	}
	if after := w.versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}

// More nodes than blocks: the last ones are told so. A node that leaves makes room.
func TestShareWithoutBlocksLeft(t *testing.T) {
	w := newWorld(t)
	blue := network(t, "blue", `"topology":"layer3","subnets":"10.128.0.0/24/26"`)
	ensure(t, w.networks, blue)
	blocks := map[string]string{}
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		blocks[share(t, w.networks, blue, node).NodeSubnetsText()] = node
	}
	if got := slices.Sorted(maps.Keys(blocks)); !slices.Equal(got, []string{"10.128.0.0/26", "10.128.0.128/26", "10.128.0.192/26", "10.128.0.64/26"}) {
		t.Errorf("blocks %v", got)
	}
	w.wantNoBlock(t, blue, "n5", "network shop/blue: no block of 10.128.0.0/24 is left for node n5")
	if err := w.networks.DropNode(withLimit(t), "shop/blue", "n3"); err != nil {
		t.Error(err)
	}
	if got := share(t, w.networks, blue, "n5").NodeSubnetsText(); blocks[got] != "n3" {
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
			w := newWorld(t)
			blue := network(t, "blue", tt.keys)
			ensure(t, w.networks, blue)
			for i := range max(len(tt.want), 4) { // whatever their hashes begin with
				node := sprint("n%d", i)
				if i >= len(tt.want) && tt.want != nil {
					w.wantNoBlock(t, blue, node, sprint("network shop/blue: no block of %s is left for node %s", blue.Subnets[0], node))
					continue
				}
				got := share(t, w.networks, blue, node)
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
	blue := network(t, "blue", layer3)
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, w *world)
	}{
		{"no such network", func(*testing.T, *world) {}},
		{"another revision", func(t *testing.T, w *world) { ensure(t, w.networks, network(t, "blue", layer3+`,"mtu":1300`)) }},
		{"another topology", func(t *testing.T, w *world) { ensure(t, w.networks, network(t, "blue", net4)) }},
		{"the same of another NAD", func(t *testing.T, w *world) {
			if _, err := w.networks.Ensure(withLimit(t), blue, []string{"dev/blue"}); err != nil {
				t.Error(err)
			}
		}},
		{"it is being deleted", func(t *testing.T, w *world) {
			ensure(t, w.networks, blue)
			share(t, w.networks, blue, "n1")
			w.putPort(t, "Logical_Switch", nodeKey("n1"), strange, ovndbtest.Op{"name": "vm"})
			w.wantInUse(t, "used by port vm (not ours)")
		}},
		{"it is gone", func(t *testing.T, w *world) {
			ensure(t, w.networks, blue)
			share(t, w.networks, blue, "n1")
			w.mustRemove(t, "shop/blue", false)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.do(t, w)
			before := w.versions(t)
			for _, node := range []string{"n1", "n2"} {
				if view, err := w.networks.Share(withLimit(t), blue, node); view != nil || !errors.Is(err, ovnnet.ErrNotAccepted) {
					t.Errorf("%s: %v, %v; want ErrNotAccepted", node, view, err)
				}
			}
			if after := w.versions(t); !maps.Equal(before, after) {
				t.Errorf("rows %v became %v", before, after)
			}
		})
	}
}

// wantShareRefused has Share refuse for a reason, without a change.
func (w *world) wantShareRefused(t *testing.T, n *netmodel.Network, node, reason string) {
	t.Helper()
	before := w.versions(t)
	view, err := w.networks.Share(withLimit(t), n, node)
	if refused, ok := errors.AsType[*ovnnet.Refused](err); !ok || view != nil || refused.Reason != reason {
		t.Errorf("%v, %v; want it refused: %s", view, err, reason)
	}
	if after := w.versions(t); !maps.Equal(before, after) {
		t.Errorf("rows %v became %v", before, after)
	}
}

// What others have in the way is left alone, and named.
func TestShareAmongOthersRows(t *testing.T) {
	w := newWorld(t)
	begin := func(t *testing.T) *netmodel.Network {
		t.Helper()
		w.clear(t)
		blue := network(t, "blue", `"topology":"layer3","subnets":"10.128.0.0/24/24"`)
		ensure(t, w.networks, blue)
		return blue
	}
	const mends = "; the controller mends it within 5m0s"
	t.Run("the network's switch", func(t *testing.T) {
		blue := begin(t)
		w.change(t, "Logical_Switch", blueKey, ovndbtest.Op{"external_ids": ovndbtest.Map(nil)})
		w.wantShareRefused(t, blue, "n1", "logical switch "+blueKey+" is not ours")
	})
	t.Run("the node's switch", func(t *testing.T) {
		blue := begin(t)
		w.put(t, "Logical_Switch", nodeKey("n1"), "x", nil)
		w.wantShareRefused(t, blue, "n1", "logical switch "+nodeKey("n1")+" is not ours")
	})
	t.Run("blocks of the node's switch", func(t *testing.T) {
		blue := begin(t)
		share(t, w.networks, blue, "n1")
		was := w.DumpTables(t, "Logical_Switch")["Logical_Switch"]
		i := slices.IndexFunc(was, func(row map[string]any) bool { return row["_uuid"] == nodeKey("n1") })
		ids := maps.Clone(was[i]["external_ids"].(map[string]string))
		ids["ovn-multinet/blocks"] = "10.9.0.0/24"
		w.change(t, "Logical_Switch", nodeKey("n1"), ovndbtest.Op{"external_ids": ovndbtest.Map(ids)})
		w.wantShareRefused(t, blue, "n1", "logical switch shop/blue@n1 does not say what the network's own says"+mends)
	})
	t.Run("a port at the block's gateway", func(t *testing.T) {
		blue := begin(t)
		w.podAt(t, "shop/blue", ovndb.AddressKey("shop/blue", netip.MustParseAddr("10.128.0.1")), "web-0", "net1")
		w.wantShareRefused(t, blue, "n1", "gateway: its address is held by port shop/web-0/net1")
	})
	t.Run("no router", func(t *testing.T) {
		blue := begin(t)
		w.remove(t, "Logical_Router", ovndb.RouterKey("shop/blue:router"))
		w.wantShareRefused(t, blue, "n1", "router shop/blue:router of network shop/blue is not there"+mends)
		ensure(t, w.networks, blue)
		share(t, w.networks, blue, "n1")
	})
	t.Run("a name", func(t *testing.T) {
		blue := begin(t)
		w.NBCtl("ls-add", "theirs", "--", "lsp-add", "theirs", "shop/blue@n1:shop/blue:router")
		_, err := w.networks.Share(withLimit(t), blue, "n1")
		if refused, ok := errors.AsType[*ovnnet.Refused](err); !ok || !strings.Contains(refused.Reason, `("shop/blue@n1:shop/blue:router")`) {
			t.Errorf("%v, want the name that is in the way", err)
		}
	})
}

// A claim on a block whose node has no switch any more, by someone's hand, keeps the block from nobody.
func TestShareClearsClaimsWithoutASwitch(t *testing.T) {
	for _, node := range []string{"n1", "n2"} {
		t.Run(node, func(t *testing.T) {
			w := newWorld(t)
			blue := network(t, "blue", `"topology":"layer3","subnets":"10.128.0.0/24/24"`)
			ensure(t, w.networks, blue)
			share(t, w.networks, blue, node)
			want := w.rows(t)
			w.remove(t, "Logical_Switch", nodeKey(node))
			if node != "n2" { // another node gets what was n1's
				share(t, w.networks, blue, "n2")
				if got := ext(w.rows(t)["Copp"][blockKey("10.128.0.0/24")], "ovn-multinet/node"); got != "n2" {
					t.Errorf("the block is of %q", got)
				}
				w.wantNoBlock(t, blue, node, "network shop/blue: no block of 10.128.0.0/24 is left for node "+node)
				return
			}
			w.dropPorts(t, "Logical_Router", ovndb.RouterKey("shop/blue:router"))
			share(t, w.networks, blue, node)
			w.wantRows(t, want)
		})
	}
}
