package agent

import (
	"errors"
	"fmt"
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

// What a pod gets when its NADs say something else than what is in force.

func (r *rig) network(name, config string) *netmodel.Network {
	r.t.Helper()
	n, err := netmodel.ParseNetwork("shop", name, []byte(config))
	r.must(err)
	return n
}

// putSwitch is the controller: the network is in force, for ports of its NAD.
func (r *rig) putSwitch(name, config string) {
	r.t.Helper()
	n := r.network(name, config)
	r.nb.Transact(r.t, ovndbtest.Op{"op": "insert", "table": "Logical_Switch", "uuid": ovndb.SwitchKey(n.ID()),
		"row": ovndbtest.Op{"name": n.ID(), "external_ids": ovndbtest.Map(map[string]string{"ovn-multinet/network": n.ID()})}},
		ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": ovndb.AcceptedKey(n.ID()),
			"row": ovndbtest.Op{"name": n.ID() + " accepted", "external_ids": inForce(n)}})
}

// accept is the controller when a NAD was changed: its network is in force as it is now.
func (r *rig) accept(name, config string) {
	r.t.Helper()
	n := r.network(name, config)
	r.setAccepted(n, inForce(n))
}

// withdraw is the controller when a NAD was deleted: its network takes no ports of it.
func (r *rig) withdraw(name, config string) {
	r.t.Helper()
	r.setAccepted(r.network(name, config), ovndbtest.Map(map[string]string{}))
}

func (r *rig) setAccepted(n *netmodel.Network, ids any) {
	r.t.Helper()
	r.nb.Transact(r.t, ovndbtest.Op{"op": "update", "table": "Copp",
		"where": []any{[]any{"_uuid", "==", ovndbtest.UUID(ovndb.AcceptedKey(n.ID()))}}, "row": ovndbtest.Op{"external_ids": ids}})
}

func inForce(n *netmodel.Network) any {
	return ovndbtest.Map(map[string]string{
		"ovn-multinet/network": n.ID(), "ovn-multinet/config": n.Canonical(), "ovn-multinet/nad:" + n.NAD(): n.Revision()})
}

// insertsPort fits a transaction that is to make a port.
func insertsPort(tx ovndbtest.Transact) bool {
	return slices.ContainsFunc(tx.Ops, func(o ovndbtest.Op) bool { return o["op"] == "insert" && o["table"] == "Logical_Switch_Port" })
}

// wantRow demands that a planned interface's port is in NB as the plan has it, and no other port.
func (r *rig) wantRow(i agentapi.Interface) {
	r.t.Helper()
	words := []string{i.MAC}
	for _, a := range i.Addresses {
		words = append(words, a.Addr().String())
	}
	rows := r.nb.Dump(r.t, "Logical_Switch_Port")
	if len(rows) != 1 || rows[0]["_uuid"] != i.Port.UUID || !slices.Contains(ovndbtest.Strings(rows[0]["addresses"]), strings.Join(words, " ")) {
		r.t.Errorf("ports %v, want the one of %+v", rows, i)
	}
}

// wantRefused demands the error, that the plugin need not release anything, and that this is so.
func (r *rig) wantRefused(err error, code uint, words ...string) {
	r.t.Helper()
	if !conf.HasCode(err, code) || !errors.Is(err, agentapi.ErrClean) {
		r.t.Errorf("error %v, want a clean one with code %d", err, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			r.t.Errorf("error %q does not say %q", err, word)
		}
	}
	if got := r.ports(); len(got) != 0 {
		r.t.Errorf("ports %v were made", got)
	}
}

// TestConfigurationInForce: a NAD was changed and the network is what it was, since the controller has not come to it
// or has refused it. The pod gets what its neighbours have.
func TestConfigurationInForce(t *testing.T) {
	overlay := func(keys string) string {
		return `{"name":"fleet","type":"ovn-k8s-cni-overlay","topology":"layer2",` + keys + `}`
	}
	tests := []struct {
		name      string
		inForce   string
		nad       testNAD
		networks  string
		mtu       int
		routes    string
		addresses string // the address, or what it is of
	}{
		{"all of it", `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1400,"routes":[{"dst":"192.0.2.0/24"}]}`,
			testNAD{Config: `{"type":"ovn-multinet","subnets":"10.2.0.0/16","mtu":1300,"routes":[{"dst":"198.51.100.0/24"}]}`},
			"blue", 1400, "192.0.2.0/24 10.1.0.1", "10.1.0.0/24"},
		{"refused", `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1400}`,
			testNAD{Config: `{"type":"ovn-multinet","subnets":"10.2.0.0/24","mtu":1300}`, State: `{"ready":false,"reason":"subnets: 10.1.0.0/24 cannot become 10.2.0.0/24"}`},
			"blue", 1400, "", "10.1.0.0/24"},
		{"a fixed address has the prefix length in force", `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1400}`,
			testNAD{Config: `{"type":"ovn-multinet","subnets":"10.1.0.0/16","mtu":1400}`},
			`[{"name":"blue","ips":["10.1.0.7"]}]`, 1400, "", "10.1.0.7/24"},
		{"a network of ovn-kubernetes' type", overlay(`"subnets":"10.1.0.0/24","mtu":1400`), testNAD{Config: overlay(`"subnets":"10.1.0.0/16","mtu":1300`)},
			"blue", 1400, "", "10.1.0.0/24"},
		{"a family less", `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1400}`,
			testNAD{Config: `{"type":"ovn-multinet","subnets":"10.1.0.0/24,fd01::/64","mtu":1400}`}, "blue", 1400, "", "10.1.0.0/24"},
		{"in force as it is", `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1300}`,
			testNAD{Config: `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1300,"portSecurity":true}`}, "blue", 1300, "", "10.1.0.0/24"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.nb.NBCtl("ls-del", "shop/blue", "--", "destroy", "Copp", ovndb.AcceptedKey("shop/blue"))
			r.putSwitch("blue", tt.inForce)
			r.source.nads["blue"] = tt.nad
			r.start()
			p, err := r.planFor("c1", tt.networks)
			r.must(err)
			i := p.Interfaces[0]
			routes := ""
			for _, route := range i.Routes {
				routes = strings.TrimSpace(fmt.Sprint(routes, " ", route.Dst, " ", route.GW))
			}
			if i.MTU != tt.mtu || routes != tt.routes || len(i.Addresses) != 1 {
				t.Fatalf("plan %+v, want MTU %d, routes %q and one address", i, tt.mtu, tt.routes)
			}
			want, got := netip.MustParsePrefix(tt.addresses), i.Addresses[0]
			if got.Masked() != want.Masked() || want != want.Masked() && got != want {
				t.Errorf("address %v, want %v", got, want)
			}
			r.wantRow(i)
		})
	}
}

// TestFixedAddressAndWhatIsInForce: an address that the changed NAD allows may be none that can be had now.
func TestFixedAddressAndWhatIsInForce(t *testing.T) {
	r := newRig(t)
	r.accept("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/24","excludeSubnets":"10.1.0.128/25","mtu":1400}`)
	r.source.nads["blue"] = testNAD{Config: `{"type":"ovn-multinet","subnets":"10.1.0.0/16","gateway":"10.1.9.9","mtu":1400}`}
	r.start()
	for ip, word := range map[string]string{
		"10.1.5.7":   "10.1.5.7 is outside the subnets 10.1.0.0/24",
		"10.1.0.200": "10.1.0.200 is excluded by excludeSubnets 10.1.0.128/25",
		"10.1.0.1":   "10.1.0.1 is the gateway",
	} {
		_, err := r.planFor("c1", `[{"name":"blue","ips":["`+ip+`"]}]`)
		r.wantRefused(err, conf.CodeInvalidConfig, "net1", word)
	}
}

// TestSeveralNetworksChanged: what is in force of one of the pod's networks is no less so when another one's is
// looked at.
func TestSeveralNetworksChanged(t *testing.T) {
	r := newRig(t)
	mtus := map[string]int{"blue": 1400, "red": 1401, "green": 1402}
	for name, mtu := range mtus {
		config := `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":%d}`
		if name != "blue" {
			r.putSwitch(name, fmt.Sprintf(config, mtu))
		}
		r.source.nads[name] = testNAD{Config: fmt.Sprintf(config, 1300)}
	}
	r.start()
	p, err := r.planFor("c1", "blue,red,green,blue")
	r.must(err)
	for n, name := range []string{"blue", "red", "green", "blue"} {
		if i := p.Interfaces[n]; i.MTU != mtus[name] || i.Network != "shop/"+name {
			t.Errorf("interface %+v, want MTU %d of shop/%s", i, mtus[name], name)
		}
	}
	if got := r.ports(); len(got) != 4 {
		t.Errorf("ports %v, want four", got)
	}
	if got := r.proxy.Counts(); got.Committed != 1 {
		t.Errorf("%d transactions committed, want 1", got.Committed)
	}
}

// TestNetworkChangesMeanwhile: the controller accepts a change between the look at the NAD and the write.
func TestNetworkChangesMeanwhile(t *testing.T) {
	r := newRig(t)
	r.start()
	changed := false
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if insertsPort(tx) && !changed {
			changed = true
			r.accept("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/16","mtu":1300}`)
		}
	})
	p, err := r.planFor("c1", "blue")
	r.must(err)
	r.proxy.Before(nil)
	if i := p.Interfaces[0]; i.MTU != 1300 || i.Addresses[0].Bits() != 16 || !changed {
		t.Errorf("plan %+v, want MTU 1300 and an address of a /16", i)
	}
	r.wantRow(p.Interfaces[0])
}

// TestNetworkChangesAllTheTime: an ADD does not run after it for ever.
func TestNetworkChangesAllTheTime(t *testing.T) {
	r := newRig(t)
	r.start()
	attempts := 0
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if insertsPort(tx) {
			attempts++
			r.accept("blue", fmt.Sprintf(`{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":%d}`, 1300+attempts))
		}
	})
	_, err := r.planFor("c1", "blue")
	r.proxy.Before(nil)
	r.wantRefused(err, conf.CodeTryAgain, "changes all the time")
	if attempts != maxAttempts {
		t.Errorf("%d attempts, want %d", attempts, maxAttempts)
	}
}

// TestNetworkIsBeingDeleted: nobody gets a port on a network whose NAD is on its way out, be it in force or not.
func TestNetworkIsBeingDeleted(t *testing.T) {
	r := newRig(t)
	r.start()
	r.source.nads["blue"] = testNAD{Config: blue, Deleting: true}
	_, err := r.planFor("c1", "blue")
	r.wantRefused(err, conf.CodeNetworkNotFound, "shop/blue", "is being deleted")

	// It was changed, and is deleted while the agent finds out what is in force.
	const changed = `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1300}`
	r.source.nads["blue"] = testNAD{Config: changed}
	r.proxy.Before(func(tx ovndbtest.Transact) {
		if insertsPort(tx) {
			r.source.nads["blue"] = testNAD{Config: changed, Deleting: true}
		}
	})
	_, err = r.planFor("c1", "blue")
	r.proxy.Before(nil)
	r.wantRefused(err, conf.CodeNetworkNotFound, "shop/blue", "is being deleted")
}

// TestRefusalIsTold: a pod's owner, who may not read the controller's log, is told why the network does not come.
func TestRefusalIsTold(t *testing.T) {
	r := newRig(t)
	r.withdraw("blue", blue)
	r.source.nads["blue"] = testNAD{Config: blue, State: `{"ready":false,"reason":"router: subnet 10.1.0.0/24 overlaps 10.0.0.0/8 of network shop/big"}`}
	r.start()
	_, err := r.planFor("c1", "blue")
	r.wantRefused(err, conf.CodeTryAgain, "shop/blue", "refused: router: subnet 10.1.0.0/24 overlaps 10.0.0.0/8 of network shop/big")
}

// A NAD that was spoilt, or changed in a way that the controller refuses, keeps no pod from the network as it is.
func TestSpoiltNADsDoNotStopTheirNetworks(t *testing.T) {
	tests := []struct{ name, nad, networks, address string }{
		{"it does not parse as a network", `{"type":"ovn-multinet","subnet":"10.2.0.0/24"}`, "blue", ""},
		{"it is empty", "", "blue", ""},
		{"it is no JSON", `{"type":`, "blue", ""},
		{"a fixed address is only of what is in force", `{"type":"ovn-multinet","subnets":"10.2.0.0/24"}`, `[{"name":"blue","ips":["10.1.0.7"]}]`, "10.1.0.7/24"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.source.nads["blue"] = testNAD{Config: tt.nad}
			r.start()
			p, err := r.planFor("c1", tt.networks)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Interfaces[0].Addresses[0].String(); tt.address != "" && got != tt.address {
				t.Errorf("address %s, want %s", got, tt.address)
			}
			if len(r.ports()) != 1 {
				t.Errorf("ports %v, want one", r.ports())
			}
		})
	}
}

// What is wrong with both, the NAD and what is in force, is said of the NAD.
func TestWrongByBoth(t *testing.T) {
	r := newRig(t)
	r.source.nads["blue"] = testNAD{Config: `{"type":"ovn-multinet","subnets":"10.2.0.0/24"}`}
	r.start()
	_, err := r.planFor("c1", `[{"name":"blue","ips":["192.0.2.1"]}]`)
	if !conf.HasCode(err, conf.CodeInvalidConfig) || len(r.ports()) != 0 {
		t.Errorf("%v, ports %v", err, r.ports())
	}
}

// An ADD whose first answer was lost may have made its ports: whatever comes then, it does not say that nothing was.
func TestLostAnswersAreRemembered(t *testing.T) {
	for name, meanwhile := range map[string]func(*rig){
		"the NAD is withdrawn": func(r *rig) { r.withdraw("blue", blue) },
		"the network changes, and its NAD is being deleted": func(r *rig) {
			r.accept("blue", `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1300}`)
			r.source.nads["blue"] = testNAD{Config: blue, Deleting: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.start()
			writes := 0
			r.proxy.DropNextReply()
			r.proxy.Before(func(tx ovndbtest.Transact) {
				if tx.Writes {
					if writes++; writes == 2 {
						meanwhile(r)
					}
				}
			})
			_, err := r.planFor("c1", "blue")
			r.proxy.Before(nil)
			if err == nil || len(r.ports()) != 1 {
				t.Fatalf("%v, ports %v: want a failure that leaves the port", err, r.ports())
			}
			if errors.Is(err, agentapi.ErrClean) {
				t.Errorf("%v: it says that nothing is left", err)
			}
		})
	}
}

// A network whose NAD is beyond the bounds, and was accepted before there were any, takes new pods as before.
func TestBoundaryAcceptedNetworkTakesPods(t *testing.T) {
	routes := make([]string, netmodel.MaxRoutes+1)
	for i := range routes {
		routes[i] = fmt.Sprintf(`{"dst":"172.%d.%d.0/24"}`, 16+i/256, i%256)
	}
	config := `{"type":"ovn-multinet","subnets":"10.1.0.0/24","mtu":1400,"routes":[` + strings.Join(routes, ",") + `]}`
	accepted, err := netmodel.ParseAccepted("shop", "blue", []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.setAccepted(accepted, inForce(accepted))
	r.source.nads["blue"] = testNAD{Config: config}
	r.start()
	p, err := r.planFor("c1", "blue")
	if err != nil {
		t.Fatal(err)
	}
	if got := len(p.Interfaces[0].Routes); got != len(routes) || len(r.ports()) != 1 {
		t.Errorf("%d routes, ports %v; want %d and one", got, r.ports(), len(routes))
	}

	// Without an accepted configuration the bounds count.
	r.withdraw("blue", blue)
	if _, err = r.planFor("c2", "blue"); !conf.HasCode(err, conf.CodeInvalidConfig) || !strings.Contains(err.Error(), "routes: 257 are more than 256") {
		t.Errorf("without an accepted configuration: %v", err)
	}
}
