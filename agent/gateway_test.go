package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/gateway"
)

// keeper is an agent that does not run: it looks at its gateways when the test says so, at the time that the test
// says.
type keeper struct {
	*layer3
	ovsProxy *ovndbtest.Proxy // between the agent and the node's OVS database
	now      time.Time
}

// newKeeper has gateways of these routers on chassis-1, which is the agent's, between the first and a third one.
func newKeeper(t *testing.T, routers ...string) *keeper {
	t.Helper()
	k := &keeper{layer3: newLayer3(t), now: time.Now()}
	k.ovsProxy = ovndbtest.StartProxy(t, k.ovs.Endpoint())
	k.conf.OVSSocket = k.ovsProxy.Socket
	t.Cleanup(k.build(k.source))
	for _, router := range routers {
		k.gateway(router, "first", "chassis-1", "third")
	}
	return k
}

// gateway has a router's gateway on the chassis of those names, in this order.
func (r *layer3) gateway(router string, names ...string) {
	r.t.Helper()
	routers, err := netmodel.ParseRouters([]byte(fmt.Sprintf(`{"routers":{%q:{"externalSubnet":"192.0.2.0/24","externalAddress":"192.0.2.10",
		"physicalNetworkName":"ext","gatewayNodes":"gw=yes"}}}`, router)))
	r.must(err)
	chassis := []gateway.Chassis{}
	for _, name := range names {
		chassis = append(chassis, gateway.Chassis{Node: "node-" + name, Name: name})
	}
	_, err = r.networks.Gateways.Ensure(r.t.Context(), routers[router], chassis)
	r.must(err)
	for i, name := range names {
		r.nb.Transact(r.t, ovndbtest.Op{"op": "update", "table": "HA_Chassis", "where": []any{[]any{"_uuid", "==", memberKey(router, name)}},
			"row": ovndbtest.Op{"priority": 1000 - i}})
	}
}

func memberKey(router, chassis string) any {
	return ovndbtest.UUID(ovndb.PartKey("ha-chassis "+chassis, router))
}

// order lists the chassis of a router's gateway, the first before all others.
func (r *layer3) order(router string) string {
	r.t.Helper()
	of := map[string]int{}
	for _, row := range r.nb.Dump(r.t, "HA_Chassis") {
		if row["external_ids"].(map[string]string)["ovn-multinet/router"] == router {
			of[row["chassis_name"].(string)] = int(row["priority"].(float64))
		}
	}
	return strings.Join(slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Compare(of[b], of[a]) }), " ")
}

// reaches has the node's tunnels reach those chassis and no other.
func (r *layer3) reaches(names ...string) {
	r.t.Helper()
	args := []string{}
	for _, name := range []string{"first", "third"} {
		state, port := "down", "ovn-"+name
		if slices.Contains(names, name) {
			state = "up"
		}
		args = append(args, "--", "--may-exist", "add-port", "br-int", port, "--", "set", "Port", port, "external_ids:ovn-chassis-id="+name+"@192.0.2.7",
			"--", "set", "Interface", port, "type=geneve", "bfd_status:state="+state)
	}
	r.ovs.VSCtl(args[1:]...)
}

// look has the agent look once, when it is due, and returns how long it has time.
func (k *keeper) look() time.Duration {
	k.t.Helper()
	wait := k.agent.gateways.pass(k.t.Context(), k.now)
	k.now = k.now.Add(wait)
	return wait
}

// failing has the agent look once, with its time over as soon as it asks for that table: nothing is answered before
// it gives up.
func (k *keeper) failing(table string) {
	k.t.Helper()
	ctx, cancel := context.WithCancel(k.t.Context())
	defer cancel()
	asked, over := false, make(chan struct{})
	stop := func(tx ovndbtest.Transact) {
		if tx.Ops[0]["table"] == table {
			asked = true
			cancel()
			<-over
		}
	}
	k.proxy.Before(stop)
	k.ovsProxy.Before(stop)
	wait := k.agent.gateways.pass(ctx, k.now)
	close(over)
	k.proxy.Before(nil)
	k.ovsProxy.Before(nil)
	if k.now = k.now.Add(wait); wait != activeEvery || !asked {
		k.t.Errorf("after a look without an answer it waits %v, asked %t; want %v", wait, asked, activeEvery)
	}
}

func (k *keeper) wantOrder(router, want string) {
	k.t.Helper()
	if got := k.order(router); got != want {
		k.t.Errorf("the gateway of %s is on %q in turn, want %q", router, got, want)
	}
}

const (
	taken   = "chassis-1 first third"
	asItWas = "first chassis-1 third"
	keeps   = "this node is the active node of a gateway and stays it"
)

// The node that has the gateway in another's place in three looks is the first from then on, and writes nothing more.
func TestGatewayIsKept(t *testing.T) {
	k := newKeeper(t, "shop/r1")
	k.reaches("third")
	for i, want := range []string{asItWas, asItWas, taken} {
		if wait := k.look(); wait != activeEvery {
			t.Errorf("look %d: %v until the next, want %v", i+1, wait, activeEvery)
		}
		k.wantOrder("shop/r1", want)
		if got := strings.Count(k.log.String(), keeps); got != i/2 {
			t.Errorf("look %d: said %d times that it took over", i+1, got)
		}
	}
	k.proxy.Reset()
	for range 2 * activeFor {
		k.look()
	}
	k.reaches("first", "third") // which comes back
	for range 2 * activeFor {
		k.look()
	}
	k.wantOrder("shop/r1", taken)
	k.wantNothingWritten()
}

func (k *keeper) wantNothingWritten() {
	k.t.Helper()
	if got := k.proxy.Counts(); got.Committed != 0 || got.Refused != 0 {
		k.t.Errorf("transactions %+v, want none that writes", got)
	}
}

// As long as OVN has the gateway elsewhere, or the node is none of its own, the order stays; how often the agent
// looks follows from whether it is.
func TestGatewayIsLeft(t *testing.T) {
	k := newKeeper(t)
	for _, tt := range []struct {
		name    string
		order   []string
		reaches []string
		wait    time.Duration
	}{
		{"all live", []string{"first", "chassis-1", "third"}, []string{"first", "third"}, activeEvery},
		{"the first lives", []string{"first", "chassis-1", "third"}, []string{"first"}, activeEvery},
		{"nobody is reached", []string{"first", "chassis-1", "third"}, nil, activeEvery},
		{"one of two before it lives", []string{"first", "third", "chassis-1"}, []string{"third"}, activeEvery},
		{"it is the first", []string{"chassis-1", "first", "third"}, []string{"third"}, activeEvery},
		{"it is the only one", []string{"chassis-1"}, []string{"third"}, activeEvery},
		{"it is none of them", []string{"first", "third"}, []string{"third"}, memberEvery},
		{"the gateway has no node", nil, []string{"third"}, memberEvery},
		{"it is a member again", []string{"first", "chassis-1"}, []string{"first"}, activeEvery},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k.t = t
			k.gateway("shop/r1", tt.order...)
			k.reaches(tt.reaches...)
			k.look() // with which NB knows the node
			k.proxy.Reset()
			for range 2 * activeFor {
				if wait := k.look(); wait != tt.wait {
					t.Errorf("%v until the next look, want %v", wait, tt.wait)
				}
			}
			k.wantNothingWritten()
			k.wantOrder("shop/r1", strings.Join(tt.order, " "))
		})
	}
}

// Three looks in a row: whatever comes between them, the count begins anew.
func TestLooksAreInARow(t *testing.T) {
	for _, tt := range []struct {
		name    string
		between func(k *keeper)
	}{
		{"the first is back for a look", func(k *keeper) {
			k.reaches("first", "third")
			k.look()
			k.reaches("third")
		}},
		{"nobody is reached for a look", func(k *keeper) {
			k.reaches()
			k.look()
			k.reaches("third")
		}},
		{"the node is none of the gateway's for a look", func(k *keeper) {
			k.gateway("shop/r1", "first", "third")
			k.look()
			k.gateway("shop/r1", "first", "chassis-1", "third")
		}},
		{"the node is none of this gateway's for a look, but of another's", func(k *keeper) {
			k.gateway("shop/r2", "chassis-1")
			k.gateway("shop/r1", "first", "third")
			k.look()
			k.gateway("shop/r1", "first", "chassis-1", "third")
		}},
		{"the gateway is gone for a look", func(k *keeper) {
			k.must(k.networks.Gateways.DeleteUnused(k.t.Context()))
			k.look()
			k.gateway("shop/r1", "first", "chassis-1", "third")
		}},
		{"the node is another chassis for a look", func(k *keeper) {
			k.openVSwitch("system-id=chassis-9")
			k.eventually("another chassis", func() bool { return k.knows("chassis-9") })
			k.look()
			k.openVSwitch("system-id=chassis-1")
			k.eventually("the chassis that it was", func() bool { return k.knows("chassis-1") })
		}},
		{"NB does not answer a look", func(k *keeper) { k.failing("HA_Chassis") }},
		{"NB does not answer half of a look", func(k *keeper) { k.failing("HA_Chassis_Group") }},
		{"OVS does not answer a look", func(k *keeper) { k.failing("Interface") }},
		{"OVS does not answer half of a look", func(k *keeper) { k.failing("Port") }},
		{"NB does not answer what the node says of itself", func(k *keeper) {
			k.agent.gateways.lost = true
			k.now = k.now.Add(announceEvery)
			k.failing("Copp")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKeeper(t, "shop/r1")
			k.reaches("third")
			k.look()
			k.look()
			tt.between(k)
			k.look()
			k.look()
			k.wantOrder("shop/r1", asItWas)
			k.look()
			k.wantOrder("shop/r1", taken)
		})
	}
}

// knows reports whether the agent has heard that its node is this chassis.
func (k *keeper) knows(chassis string) bool {
	settings, err := k.agent.ovs.Settings(k.t.Context())
	return err == nil && settings.Chassis == chassis
}

// NB goes for a while and comes back.
func TestLooksWithoutNB(t *testing.T) {
	k := newKeeper(t, "shop/r1")
	k.reaches("third")
	k.look()
	k.look()
	k.nb.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if wait := k.agent.gateways.pass(ctx, k.now); wait != activeEvery {
		t.Errorf("%v until the next look, want %v", wait, activeEvery)
	}
	k.nb.Restart()
	k.look()
	k.look()
	k.wantOrder("shop/r1", asItWas)
	k.look()
	k.wantOrder("shop/r1", taken)
}

// Each gateway is counted by itself.
func TestLooksAtSeveralGateways(t *testing.T) {
	k := newKeeper(t, "shop/r1", "shop/r2", "shop/r3")
	k.gateway("shop/r3", "third", "chassis-1") // whose first lives
	k.reaches("third")
	k.look()
	k.gateway("shop/r2", "chassis-1", "first", "third") // for a look
	k.look()
	k.gateway("shop/r2", "first", "chassis-1", "third")
	for _, want := range []struct{ r1, r2 string }{{taken, asItWas}, {taken, asItWas}, {taken, taken}} {
		k.look()
		k.wantOrder("shop/r1", want.r1)
		k.wantOrder("shop/r2", want.r2)
		k.wantOrder("shop/r3", "third chassis-1")
	}
}

// An order that changes under the third look stays as it has become, and is looked at anew.
func TestGatewayOrderChangesUnderTheLook(t *testing.T) {
	k := newKeeper(t, "shop/r1")
	k.reaches("third")
	k.look()
	k.look()
	k.proxy.Before(func(tx ovndbtest.Transact) {
		if tx.Writes {
			k.gateway("shop/r1", "first", "third", "chassis-1")
		}
	})
	k.look()
	k.proxy.Before(nil)
	k.wantOrder("shop/r1", "first third chassis-1")
	if strings.Contains(k.log.String(), keeps) {
		t.Errorf("it says that it keeps what it does not have:\n%s", k.log.String())
	}
	k.reaches() // and then those before it are gone, one after the other
	k.look()
	k.gateway("shop/r1", "first", "chassis-1", "third")
	k.reaches("third")
	k.look()
	k.look()
	k.wantOrder("shop/r1", asItWas)
	k.look()
	k.wantOrder("shop/r1", taken)
}

// The answer to the write is lost: the next looks find what was committed, and nothing is written twice.
func TestGatewayIsKeptWithTheAnswerLost(t *testing.T) {
	k := newKeeper(t, "shop/r1")
	k.reaches("third")
	k.look()
	k.look()
	k.proxy.DropNextReply()
	k.look()
	k.wantOrder("shop/r1", taken)
	k.proxy.Reset()
	for range 2 * activeFor {
		k.look()
	}
	k.wantNothingWritten()
	k.wantOrder("shop/r1", taken)
}

// Within a minute the agent says again what others have taken away of what it said; gateways or not.
func TestChassisIsSaidAgain(t *testing.T) {
	for _, tt := range []struct {
		name string
		wait time.Duration
		node []string
	}{{"a gateway's node", activeEvery, []string{"chassis-1"}}, {"another", memberEvery, []string{"first"}}} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKeeper(t)
			k.gateway("shop/r1", tt.node...)
			k.look()
			if got := k.chassis(); got != "chassis-1" {
				t.Fatalf("NB knows chassis %q, want chassis-1", got)
			}
			said := k.agent.gateways.announced
			k.nb.Transact(t, ovndbtest.Op{"op": "delete", "table": "Copp", "where": []any{}})
			looks := int(announceEvery / tt.wait)
			for i := range looks - 1 {
				if k.look(); k.chassis() != "" {
					t.Fatalf("said again at look %d, %v after the first time", i+1, k.now.Sub(said))
				}
			}
			if k.look(); k.chassis() != "chassis-1" || k.agent.gateways.announced != said.Add(announceEvery) {
				t.Errorf("NB knows chassis %q, said %v after the first time; want it after %v", k.chassis(), k.agent.gateways.announced.Sub(said), announceEvery)
			}
		})
	}
}

// When NB was replaced, the next pass announces the node again, and the pass after a failed one.
func TestChassisIsAnnouncedWhenNBWasReplaced(t *testing.T) {
	k := newKeeper(t)
	k.gateway("shop/r1", "first")
	k.look()
	k.nb.Transact(t, ovndbtest.Op{"op": "delete", "table": "Copp", "where": []any{}})
	k.agent.NBReplaced()
	k.failing("Copp")
	if k.look(); k.chassis() != "chassis-1" {
		t.Errorf("NB knows chassis %q, want chassis-1", k.chassis())
	}
}

// What NB does not take is tried again at each look, and the log says it once when it is there.
func TestChassisIsSaidOnceItCanBe(t *testing.T) {
	k := newKeeper(t, "shop/r1")
	k.failing("Copp")
	k.failing("HA_Chassis") // NB knows the node by then, and the look is not over
	if got := strings.Count(k.log.String(), saidKnown); got != 0 || k.chassis() != "chassis-1" {
		t.Errorf("said %d times, chassis %q", got, k.chassis())
	}
	for range 3 {
		k.look()
		if got := strings.Count(k.log.String(), saidKnown); got != 1 {
			t.Errorf("said %d times that NB knows it, want once:\n%s", got, k.log.String())
		}
	}
}

// Each time that NB becomes another cluster's, the log says so once.
func TestBoundaryAnotherOwnerIsSaidEachTime(t *testing.T) {
	k := newKeeper(t)
	k.cluster = "ours"
	t.Cleanup(k.build(k.source))
	for n, owner := range []string{"theirs", "ours", "theirs"} { // an NB without what the agent said of its node
		k.nb.Transact(t, ovndbtest.Op{"op": "delete", "table": "Copp", "where": []any{}})
		k.nb.Transact(t, ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": ovndb.ClusterKey, "row": ovndbtest.Op{
			"name": "ovn-multinet cluster", "external_ids": []any{"map", []any{[]any{ovndb.ClusterMark, owner}}},
		}})
		k.now = k.now.Add(announceEvery)
		for range 3 {
			k.look()
		}
		if got, want := strings.Count(k.log.String(), "no pod of this node gets a port"), (n+2)/2; got != want {
			t.Errorf("the log says %d times that NB is another cluster's, want %d:\n%s", got, want, k.log.String())
		}
	}
}

// Looks are apart from what a pod costs: its ports are one transaction on a gateway's node too, with nothing else in
// it.
func TestPodsOnAGatewaysNode(t *testing.T) {
	r := newLayer3(t)
	r.gateway("shop/r1", "first", "chassis-1", "third")
	r.reaches("first")
	r.start()
	pods, mixed := 0, 0
	r.proxy.Before(func(tx ovndbtest.Transact) {
		about := map[any]bool{}
		for _, op := range tx.Ops {
			about[op["table"]] = true
		}
		of := about["HA_Chassis"] || about["HA_Chassis_Group"]
		if !of {
			pods++
		}
		if of && (about["Logical_Switch_Port"] || about["Logical_Switch"]) {
			mixed++
		}
	})
	_, err := r.plan("c1")
	r.must(err)
	r.proxy.Before(nil)
	if got := r.proxy.Counts(); pods != 1 || mixed != 0 || got.Committed != 1 || got.Refused != 0 {
		t.Errorf("%d transactions for the pod, %d that are about gateways too, %+v; want one that is committed", pods, mixed, got)
	}
	if got := r.ports(); got["shop/web/net1"] != "c1" || got["shop/web/net2"] != "c1" {
		t.Errorf("ports %v", got)
	}
}
