package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// What pods get on a network that gives each node a block of its own. The controller is the real one, on a connection
// of its own, so what the proxy counts is the agent's.

const l3 = `{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/16/24","mtu":1400}`

// share gives a node its block, as that node's agent would.
func (r *layer3) share(n *netmodel.Network, node string) netip.Prefix {
	r.t.Helper()
	view, err := r.networks.Subnets.Ensure(r.t.Context(), n, node)
	r.must(err)
	return view.Subnets[0]
}

// give has another node take a block that is free.
func (r *layer3) give(n *netmodel.Network, block string) {
	r.t.Helper()
	for i := 0; ; i++ {
		node := fmt.Sprint("other", i)
		if r.share(n, node).String() == block {
			return
		}
		r.must(r.networks.DeleteNodeSwitch(r.t.Context(), n.ID(), node))
	}
}

// blocks reads who has which block from the nodes' switches, and demands that the claims say the same.
func (r *layer3) blocks() map[string]string {
	r.t.Helper()
	tables := r.nb.DumpTables(r.t, "Logical_Switch", "Copp")
	of, claimed := map[string]string{}, map[string]string{}
	for _, row := range tables["Logical_Switch"] {
		ids := row["external_ids"].(map[string]string)
		if node := ids["ovn-multinet/node"]; node != "" {
			of[node] = ids["ovn-multinet/blocks"]
		}
	}
	for _, row := range tables["Copp"] {
		if block, ok := strings.CutPrefix(row["name"].(string), "ovn-multinet shop/l3 block "); ok {
			claimed[row["external_ids"].(map[string]string)["ovn-multinet/node"]] = block
		}
	}
	if !maps.Equal(of, claimed) {
		r.t.Errorf("the switches say %v, the claims %v", of, claimed)
	}
	return of
}

// pods lists the pods' ports that are in NB, and demands that each is on this node's switch.
func (r *layer3) pods() []string {
	r.t.Helper()
	tables := r.nb.DumpTables(r.t, "Logical_Switch", "Logical_Switch_Port")
	names := []string{}
	for _, row := range tables["Logical_Switch_Port"] {
		ids := row["external_ids"].(map[string]string)
		if ids["ovn-multinet/sandbox"] == "" {
			continue
		}
		names = append(names, row["name"].(string))
		want := ids["ovn-multinet/network"]
		if want == "shop/l3" {
			want += "@node1"
		}
		for _, sw := range tables["Logical_Switch"] {
			if holds := slices.Contains(ovndbtest.Strings(sw["ports"]), row["_uuid"].(string)); holds != (sw["name"] == want) {
				r.t.Errorf("port %v on switch %v: %t", row["name"], sw["name"], holds)
			}
		}
	}
	slices.Sort(names)
	return names
}

func (r *layer3) wantPods(names ...string) {
	r.t.Helper()
	if got := r.pods(); !slices.Equal(got, append([]string{}, names...)) {
		r.t.Errorf("ports of pods %v, want %v", got, names)
	}
}

// wantNone demands the error of a plan that made no port.
func (r *layer3) wantNone(err error, code uint, want string) {
	r.t.Helper()
	r.wantClean(err, code, want)
	r.wantPods()
}

// on asks for one interface on shop/l3: sandboxes with interfaces of their own stand for pods of their own.
func on(name string) string { return `[{"name":"l3","interface":"` + name + `"}]` }

// way is the route to all of shop/l3 from a node's block.
func way(block netip.Prefix) string {
	return fmt.Sprintf("[10.128.0.0/16 via %s]", block.Addr().Next())
}

// wantIn demands an interface with an address of the block, and routes.
func wantIn(t *testing.T, i agentapi.Interface, block netip.Prefix, routes string) {
	t.Helper()
	if len(i.Addresses) != 1 || i.Addresses[0].Masked() != block || fmt.Sprint(i.Routes) != routes {
		t.Errorf("interface %+v, want an address of %s and the routes %s", i, block, routes)
	}
}

// What an agent knows of its node is old: the node was taken for one that left, and its block may be another's by
// now.
func TestNodeHasAnotherBlock(t *testing.T) {
	tests := []struct {
		name   string
		change func(r *layer3, n *netmodel.Network, was string)
		others int
		same   bool // the block is free, and so the node's again
		counts [3]int
	}{
		{"given back", func(*layer3, *netmodel.Network, string) {}, 0, true, [3]int{2, 1, 1}},
		{"given to another", func(r *layer3, n *netmodel.Network, was string) { r.give(n, was) }, 1, false, [3]int{2, 3, 4}},
		{"and has another since", func(r *layer3, n *netmodel.Network, was string) { r.give(n, was); r.share(n, "node1") }, 1, false, [3]int{1, 1, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newLayer3(t)
			n := r.has(l3)
			r.start()
			_, err := r.planFor("c1", on("x1"))
			r.must(err)
			was := r.blocks()["node1"]
			r.must(r.call(agentapi.OpRelease, agentapi.Release{Version: agentapi.Version, Sandbox: r.sandbox("c1")}, &agentapi.Released{}))
			r.eventually("released", func() bool { return len(r.pods()) == 0 })
			r.must(r.networks.DeleteNodeSwitch(t.Context(), n.ID(), "node1"))
			tt.change(r, n, was)
			r.proxy.Reset()
			p, err := r.planFor("c2", on("x2"))
			r.must(err)
			r.wantCounts(tt.counts[0], tt.counts[1], tt.counts[2])
			now := r.blocks()
			if (now["node1"] == was) != tt.same || len(now) != 1+tt.others {
				t.Fatalf("blocks %v after %s, want the same: %t", now, was, tt.same)
			}
			block := netip.MustParsePrefix(now["node1"])
			wantIn(t, p.Interfaces[0], block, way(block))
			r.wantPods("shop/web/x2")

			_, err = r.planFor("c3", on("x3")) // who comes next pays for nothing
			r.must(err)
			r.wantCounts(1, 0, 0)
		})
	}
}

// A node that loses its block whenever it has one gets no pods, and nothing is left of the attempts.
func TestNodeLosesItsBlockAllTheTime(t *testing.T) {
	r := newLayer3(t)
	n := r.has(l3)
	r.start()
	attempts := 0
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if insertsPod(tx) {
			attempts++
			r.must(r.networks.DeleteNodeSwitch(t.Context(), n.ID(), "node1"))
		}
	})
	_, err := r.planFor("c1", "l3,blue")
	r.proxy.Before(nil)
	r.wantNone(err, conf.CodeTryAgain, "a network of the pod changes all the time")
	if got := r.blocks(); attempts != maxAttempts || len(got) != 0 {
		t.Errorf("%d attempts, want %d; blocks %v are left", attempts, maxAttempts, got)
	}
}

// Pods wait together for a network that the controller makes then.
func TestLayer3NetworkComesLater(t *testing.T) {
	r := newLayer3(t)
	r.source.nads["l3"] = testNAD{Config: l3}
	r.start()
	waiting, made := 0, make(chan error, 1)
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if !waits(tx) {
			return
		}
		if waiting++; waiting == 3 {
			go func() {
				n := r.network("l3", l3)
				_, err := r.networks.Ensure(context.Background(), n, []string{n.NAD()})
				made <- err
			}()
		}
	})
	r.planAtOnce(3, on("x%d"))
	r.must(<-made)
	r.proxy.Before(nil)
	r.wantPods("shop/web/x0", "shop/web/x1", "shop/web/x2")
}

// It does not come, or the node gets nothing of it: the pod is told why, and no other attachment is made.
func TestLayer3NetworkDoesNotCome(t *testing.T) {
	t.Parallel()
	const tiny = `{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/24/25","mtu":1400}`
	for _, tt := range []struct {
		name, config, state string
		before              func(r *layer3)
		code                uint
		want                string
	}{
		{"nobody knows why", l3, "", func(*layer3) {}, conf.CodeTryAgain, "network shop/l3 has no logical switch yet"},
		{"refused", l3, `{"ready":false,"reason":"router: subnet 10.128.0.0/16 overlaps 10.0.0.0/8 of network shop/big"}`, func(*layer3) {}, conf.CodeTryAgain,
			"network shop/l3: refused: router: subnet 10.128.0.0/16 overlaps 10.0.0.0/8 of network shop/big"},
		{"someone took its mark away", l3, "", func(r *layer3) {
			r.ensure(l3)
			r.nb.NBCtl("remove", "Logical_Switch", "shop/l3", "external_ids", "ovn-multinet/network")
		}, conf.CodeTryAgain, "network shop/l3: no subnet of it for this node: logical switch " + ovndb.SwitchKey("shop/l3") + " is not ours"},
		{"other nodes have all of it", tiny, "", func(r *layer3) { n := r.ensure(tiny); r.share(n, "node2"); r.share(n, "node3") },
			conf.CodeNoAddressLeft, "network shop/l3: no node subnet of 10.128.0.0/24 is free for node node1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newLayer3(t)
			r.source.nads["l3"] = testNAD{Config: tt.config, State: tt.state}
			tt.before(r)
			r.start()
			_, err := r.planFor("c1", "blue,l3")
			r.wantNone(err, tt.code, "interface net2: "+tt.want)
		})
	}
}

// A pod gets what is in force of a network that was changed, whether the agent knows the node's block already or not.
func TestLayer3NetworkWasChanged(t *testing.T) {
	const more = `{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/15/24","mtu":1300,"routes":[{"dst":"192.0.2.0/24"}]}`
	tests := []struct {
		name         string
		nad, inForce string
		mtu          int
		routes       string // GW: the block's gateway
	}{
		{"accepted", more, more, 1300, "[10.128.0.0/15 via GW 192.0.2.0/24 via GW]"},
		{"accepted, and the agent does not know it", l3, more, 1300, "[10.128.0.0/15 via GW 192.0.2.0/24 via GW]"},
		{"not accepted yet, or refused", strings.Replace(more, "10.128.0.0/15", "10.64.0.0/16", 1), l3, 1400, "[10.128.0.0/16 via GW]"},
		{"of another topology", strings.Replace(blue, "10.1.", "10.128.", 1), l3, 1400, "[10.128.0.0/16 via GW]"},
		{"spoilt", `{"type":"ovn-multinet","topology":"layer4"}`, l3, 1400, "[10.128.0.0/16 via GW]"},
		{"empty", "", l3, 1400, "[10.128.0.0/16 via GW]"},
	}
	for _, tt := range tests {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, known: %t", tt.name, known), func(t *testing.T) {
				r := newLayer3(t)
				block := r.share(r.has(l3), "node1")
				r.start()
				if known {
					_, err := r.planFor("c1", on("x1"))
					r.must(err)
				}
				r.source.nads["l3"] = testNAD{Config: tt.nad}
				r.ensure(tt.inForce)
				p, err := r.planFor("c2", `[{"name":"l3","ips":["`+block.Addr().Next().Next().String()+`"]}]`)
				r.must(err)
				wantIn(t, p.Interfaces[0], block, strings.ReplaceAll(tt.routes, "GW", block.Addr().Next().String()))
				if got := p.Interfaces[0].MTU; got != tt.mtu || len(r.blocks()) != 1 || !slices.Contains(r.pods(), "shop/web/net1") {
					t.Errorf("MTU %d, want %d; blocks %v, ports %v", got, tt.mtu, r.blocks(), r.pods())
				}
			})
		}
	}
}

// What a pod asks for is held against the block of its node, and against its other networks.
func TestWishesOnLayer3(t *testing.T) {
	const ips = `[{"name":"blue"},{"name":"l3","ips":["%s"]}]`
	tests := []struct{ name, networks, want string }{ // IN, OUT: in the node's block and in another; GW: its gateway; BLOCK
		{"no prefix length", fmt.Sprintf(ips, "IN"), ""},
		{"the block's prefix length", fmt.Sprintf(ips, "IN/24"), ""},
		{"the network's prefix length", fmt.Sprintf(ips, "IN/16"), "interface net2: ips: IN/16 has not the prefix length of its subnet BLOCK"},
		{"of another node", fmt.Sprintf(ips, "OUT"), "interface net2: address OUT is outside node node1's subnets BLOCK of network shop/l3"},
		{"of no node", fmt.Sprintf(ips, "10.1.0.7"), "interface net2: address 10.1.0.7 is outside the subnets 10.128.0.0/16 of network shop/l3"},
		{"the gateway's", fmt.Sprintf(ips, "GW"), "interface net2: address GW is the gateway of network shop/l3"},
		{"its default route", `[{"name":"blue"},{"name":"l3","ips":["IN"],"default-route":[]}]`, ""},
		{"its default route by another node", `[{"name":"blue"},{"name":"l3","default-route":["OUT"]}]`,
			"interface net2: default-route: OUT is in none of the subnets of network shop/l3, the pod could not reach it"},
		{"a route of another network, too", "blue,l3,rival", "networks shop/l3 and shop/rival both route 10.128.0.0/16"},
		{"two interfaces", `[{"name":"blue"},{"name":"l3","ips":["IN"]},{"name":"l3"}]`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newLayer3(t)
			n := r.has(l3)
			block, other := r.share(n, "node1"), r.share(n, "node2")
			fill := strings.NewReplacer("IN", block.Addr().Next().Next().String(), "OUT", other.Addr().Next().Next().String(),
				"GW", block.Addr().Next().String(), "BLOCK", block.String()).Replace
			rival := `{"type":"ovn-multinet","subnets":"10.7.0.0/24","mtu":1400,"routes":[{"dst":"10.128.0.0/16"}]}`
			r.putSwitch("rival", rival)
			r.source.nads["rival"] = testNAD{Config: rival}
			r.start()
			p, err := r.planFor("c1", fill(tt.networks))
			if tt.want != "" {
				r.wantNone(err, conf.CodeInvalidConfig, fill(tt.want))
				return
			}
			r.must(err)
			for i, routes := range []string{"[10.128.0.0/16 via GW]", "[]"}[:len(p.Interfaces)-1] { // the kernel takes a route once
				wantIn(t, p.Interfaces[i+1], block, fill(routes))
			}
			if got := p.Interfaces[1].Addresses[0]; got.String() != fill("IN/24") {
				t.Errorf("address %s, want %s", got, fill("IN/24"))
			}
			if asks := strings.Contains(tt.networks, "default-route"); asks != (p.Default != nil) || asks && fmt.Sprint(p.Default.Gateways) != fill("[GW]") {
				t.Errorf("default routes %+v, want %s: %t", p.Default, fill("GW"), asks)
			}
		})
	}
}

// An answer is lost around the claim, or the database never hears the question: the ADD goes on all the same, and
// there is one block and one port.
func TestAnswersLostAroundTheClaim(t *testing.T) {
	questions := map[string]func(ovndbtest.Transact) bool{"claim": claimsBlock, "port": insertsPod, "wait": waits}
	answer, question := (*ovndbtest.Proxy).DropNextReply, (*ovndbtest.Proxy).CutBeforeNext
	for _, tt := range []struct {
		name, what string
		lose       func(*ovndbtest.Proxy)
	}{{"claim's answer", "claim", answer}, {"claim", "claim", question}, {"port's answer", "port", answer}, {"port", "port", question},
		{"wait for the network", "wait", func(p *ovndbtest.Proxy) { go p.Cut() }}} {
		t.Run(tt.name, func(t *testing.T) {
			r := newLayer3(t)
			r.source.nads["l3"] = testNAD{Config: l3}
			if tt.what != "wait" {
				r.ensure(l3)
			}
			r.start()
			lost := 0
			r.proxy.Before(func(tx ovndbtest.Transact) {
				if questions[tt.what](tx) {
					if lost++; lost == 1 {
						tt.lose(r.proxy)
					} else if tt.what == "wait" {
						r.ensure(l3)
					}
				}
			})
			p, err := r.planFor("c1", "l3")
			r.proxy.Before(nil)
			r.must(err)
			block := netip.MustParsePrefix(r.blocks()["node1"])
			wantIn(t, p.Interfaces[0], block, way(block))
			if r.wantPods("shop/web/net1"); lost == 0 || len(r.blocks()) != 1 {
				t.Errorf("%d were lost; blocks %v", lost, r.blocks())
			}
		})
	}
}

// The port's answer was lost, and then the network takes no ports of the NAD: the ADD fails and does not say that
// nothing was made, for something is.
func TestLostAnswersAreRememberedOnLayer3(t *testing.T) {
	t.Parallel()
	r := newLayer3(t)
	n := r.has(l3)
	r.start()
	attempts := 0
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if !insertsPod(tx) {
			return
		}
		if attempts++; attempts == 1 {
			r.proxy.DropNextReply()
			return
		}
		_, err := r.networks.Ensure(context.Background(), n, nil)
		r.must(err)
	})
	_, err := r.planFor("c1", "l3")
	r.proxy.Before(nil)
	if !conf.HasCode(err, conf.CodeTryAgain) || !strings.Contains(err.Error(), "network shop/l3 takes no ports of NetworkAttachmentDefinition shop/l3") ||
		errors.Is(err, agentapi.ErrClean) {
		t.Errorf("error %v, want one that leaves the release to the plugin", err)
	}
	r.wantPods("shop/web/net1")
}
