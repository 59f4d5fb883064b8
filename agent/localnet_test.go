package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/agentapi"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/nb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnnet/nbtest"
)

// What pods get on a network of the provider's, what an agent says of its node in NB, and the rig with a controller.

// layer3 is a rig with the controller's hands.
type layer3 struct {
	*rig
	networks *nbtest.Client
}

func newLayer3(t *testing.T) *layer3 {
	t.Helper()
	r := newRig(t)
	model, err := nb.FullDatabaseModel()
	r.must(err)
	db, err := ovndb.Open(ovndb.Config{Name: "NB", Endpoints: []string{r.nb.Endpoint()}, Model: model, Log: slog.New(slog.DiscardHandler)})
	r.must(err)
	t.Cleanup(db.Close)
	return &layer3{rig: r, networks: nbtest.NewClient(db, nil)}
}

// ensure is the controller: it accepts shop/l3 as it is configured now.
func (r *layer3) ensure(config string) *netmodel.Network {
	r.t.Helper()
	n := r.network("l3", config)
	_, err := r.networks.Ensure(r.t.Context(), n, []string{n.NAD()})
	r.must(err)
	return n
}

// has is a network whose NAD says what is in force.
func (r *layer3) has(config string) *netmodel.Network {
	r.t.Helper()
	r.source.nads["l3"] = testNAD{Config: config}
	return r.ensure(config)
}

const wire = `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"ext","vlanID":100,"subnets":"10.9.0.0/24"}`

// newLocalnet is a rig with the networks shop/wire and shop/blue, on a node whose Open vSwitch says that.
func newLocalnet(t *testing.T, config string, settings ...string) *rig {
	t.Helper()
	r := newRig(t)
	r.putSwitch("wire", config)
	r.source.nads["wire"] = testNAD{Config: config}
	r.openVSwitch(settings...)
	return r
}

// openVSwitch sets external_ids of the node, each "key=value".
func (r *rig) openVSwitch(settings ...string) {
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		r.ovs.VSCtl("--no-wait", "set", "Open_vSwitch", ".", "external_ids:"+key+`="`+value+`"`)
	}
}

func (r *rig) rows() map[string][]map[string]any {
	r.t.Helper()
	return r.nb.DumpTables(r.t, "Logical_Switch", "Logical_Switch_Port", "Copp")
}

// restart has another agent take the place of this one.
func (r *rig) restart() {
	r.t.Helper()
	r.must(r.stop())
	r.start()
}

func (r *rig) wantCounts(committed, refused, readOnly int) {
	r.t.Helper()
	got := r.proxy.Counts()
	if got.Committed != committed || got.Refused != refused || got.ReadOnly != readOnly {
		r.t.Errorf("transactions: %d committed, %d refused, %d read-only; want %d, %d, %d",
			got.Committed, got.Refused, got.ReadOnly, committed, refused, readOnly)
	}
	r.proxy.Reset()
}

func inserts(table string) func(ovndbtest.Transact) bool {
	return func(tx ovndbtest.Transact) bool {
		return slices.ContainsFunc(tx.Ops, func(o ovndbtest.Op) bool { return o["op"] == "insert" && o["table"] == table })
	}
}

// claimsBlock and insertsPod tell the two apart that make ports: a node's part has one, too.
var claimsBlock = inserts("Logical_Switch")

func insertsPod(tx ovndbtest.Transact) bool { return insertsPort(tx) && !claimsBlock(tx) }

func waits(tx ovndbtest.Transact) bool {
	return slices.ContainsFunc(tx.Ops, func(o ovndbtest.Op) bool {
		ms, ok := o["timeout"].(float64)
		return o["op"] == "wait" && ok && ms > 0
	})
}

// planAtOnce has as many pods come at once, each with a number of its own in its networks.
func (r *rig) planAtOnce(n int, networks string) []*agentapi.Plan {
	r.t.Helper()
	return r.beginPlans(n, networks)()
}

// beginPlans is planAtOnce for a test that has something to do before it waits for the answers.
func (r *rig) beginPlans(n int, networks string) (answers func() []*agentapi.Plan) {
	var all sync.WaitGroup
	plans, errs := make([]*agentapi.Plan, n), make([]error, n)
	for i := range plans {
		all.Go(func() { plans[i], errs[i] = r.planFor(fmt.Sprint("c", i), fmt.Sprintf(networks, i)) })
	}
	return func() []*agentapi.Plan {
		r.t.Helper()
		all.Wait()
		r.must(errors.Join(errs...))
		return plans
	}
}

// wantClean demands the error of a plan that leaves nothing to release.
func (r *rig) wantClean(err error, code uint, want string) {
	r.t.Helper()
	wantCoded(r.t, err, code, want)
	if !errors.Is(err, agentapi.ErrClean) {
		r.t.Errorf("%v: the plugin would ask for a release", err)
	}
}

// A pod that its node cannot have takes no block of a layer3 network for the node either.
func TestNoBlockForAPodThatIsRefused(t *testing.T) {
	r := newLayer3(t)
	r.has(`{"type":"ovn-multinet","topology":"layer3","subnets":"10.128.0.0/16/24","mtu":1400}`)
	r.putSwitch("wire", wire)
	r.source.nads["wire"] = testNAD{Config: wire}
	r.start()
	before := r.rows()
	_, err := r.planFor("c1", "l3,wire")
	r.wantClean(err, conf.CodeTryAgain, "interface net2: network shop/wire: node node1 has no bridge for physicalNetworkName ext")
	if after := r.rows(); !reflect.DeepEqual(after, before) {
		t.Errorf("NB was %v\nand is %v", before, after)
	}
}

// A node that is not connected to the provider's network gets no pods on it: their ports would reach nobody. Nothing
// of such a pod is made, on its other networks neither.
func TestNodeIsNotConnected(t *testing.T) {
	const none = "interface net2: network shop/wire: node node1 has no bridge for physicalNetworkName ext"
	tests := []struct {
		name     string
		config   string
		settings []string
		want     string
	}{
		{"no mapping", wire, nil, none},
		{"an empty one", wire, []string{"ovn-bridge-mappings="}, none},
		{"others alone", wire, []string{"ovn-bridge-mappings=extra:br-int,EXT:br-int,int:ext"}, none},
		{"the chassis has a mapping of its own, without it", wire, []string{"ovn-bridge-mappings=ext:br-int", "ovn-bridge-mappings-chassis-1=other:br-int"}, none},
		{"that of another chassis", wire, []string{"ovn-bridge-mappings-chassis-2=ext:br-int"}, none},
		{"a bridge that is not there", wire, []string{"ovn-bridge-mappings=ext:br-ext"},
			"interface net2: network shop/wire: node node1 has no bridge br-ext, which ovn-bridge-mappings names for ext"},
		{"the chassis' own bridge is not there", wire, []string{"ovn-bridge-mappings=ext:br-int", "ovn-bridge-mappings-chassis-1=ext:br-ext"},
			"interface net2: network shop/wire: node node1 has no bridge br-ext, which ovn-bridge-mappings names for ext"},
		{"a bridge without an interface to take the MTU from", wire, []string{"ovn-bridge-mappings=ext:br-no-kernel"},
			"interface net2: network shop/wire: no MTU to take from bridge br-no-kernel of this node: Link not found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newLocalnet(t, tt.config, tt.settings...)
			r.ovs.VSCtl("--no-wait", "add-br", "br-no-kernel") // the database's alone
			r.start()
			before := r.rows()
			_, err := r.planFor("c1", "blue,wire")
			r.wantClean(err, conf.CodeTryAgain, tt.want)
			if got := r.rows(); !reflect.DeepEqual(got, before) {
				t.Errorf("NB was %v\nand is %v", before, got)
			}
			r.wantCounts(0, 0, 0)
			if _, err := r.planFor("c2", "blue"); err != nil { // who does not ask for it is served
				t.Error(err)
			}
		})
	}
}

// mtuOfLo is what the kernel says of the one interface that is everywhere, and so stands for a bridge's here.
func mtuOfLo(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/sys/class/net/lo/mtu")
	if err != nil {
		t.Fatal(err)
	}
	mtu, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return mtu
}

func TestNodeIsConnected(t *testing.T) {
	lo := mtuOfLo(t)
	tests := []struct {
		name     string
		config   string
		settings []string
		mtu      int
	}{
		{"the bridge's MTU, without a tunnel's overhead", wire, []string{"ovn-bridge-mappings=ext:lo"}, lo},
		{"one of several", wire, []string{"ovn-bridge-mappings=other:br-int,ext:lo"}, lo},
		{"the chassis' own comes first", wire, []string{"ovn-bridge-mappings=ext:br-ext", "ovn-bridge-mappings-chassis-1=ext:lo"}, lo},
		{"untagged, by its own MTU", `{"type":"ovn-multinet","topology":"localnet","physicalNetworkName":"ext","subnets":"10.9.0.0/24","mtu":1300}`,
			[]string{"ovn-bridge-mappings=ext:br-int"}, 1300},
		{"ovn-kubernetes' name is the provider's", `{"name":"fleet","type":"ovn-k8s-cni-overlay","topology":"localnet","subnets":"10.9.0.0/24"}`,
			[]string{"ovn-bridge-mappings=fleet:lo"}, lo},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newLocalnet(t, tt.config, tt.settings...)
			r.ovs.VSCtl("--no-wait", "add-br", "lo")
			r.start()
			p, err := r.planFor("c1", "wire")
			r.must(err)
			if got := p.Interfaces[0]; got.MTU != tt.mtu || got.Network != "shop/wire" || got.Addresses[0].Masked().String() != "10.9.0.0/24" {
				t.Errorf("interface %+v, want MTU %d and an address of 10.9.0.0/24", got, tt.mtu)
			}
			r.wantRow(p.Interfaces[0])
			r.wantCounts(1, 0, 0)
		})
	}
}

// The node is connected, and cut off again, while the agent runs.
func TestNodeGetsConnected(t *testing.T) {
	r := newLocalnet(t, wire)
	r.start()
	served := func(is bool) func() bool {
		return func() bool {
			_, err := r.planFor("c1", "wire")
			return (err == nil) == is
		}
	}
	if !served(false)() {
		t.Error("served without a bridge")
	}
	r.ovs.VSCtl("--no-wait", "add-br", "lo", "--", "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=ext:lo")
	r.eventually("served", served(true))
	r.ovs.VSCtl("--no-wait", "del-br", "lo")
	r.eventually("refused", served(false))
}

// chassis is what NB says which chassis the node is; "" when it says nothing.
func (r *rig) chassis() string {
	r.t.Helper()
	for _, row := range r.nb.Dump(r.t, "Copp") {
		if row["_uuid"] == ovndb.NodeKey("node1") {
			ids := row["external_ids"].(map[string]string)
			if row["name"] != "ovn-multinet node node1" || ids["ovn-multinet/kind"] != "node" || ids["ovn-multinet/node"] != "node1" {
				r.t.Errorf("row %v", row)
			}
			return ids["ovn-multinet/chassis"]
		}
	}
	return ""
}

// An agent says which chassis its node is, by the time that it is there and so is NB.
func TestNodeSaysItsChassis(t *testing.T) {
	r := newRig(t)
	r.nb.Pause()
	go func() {
		r.eventually("ready", func() bool { return exists(agentapi.ReadyMarker(r.conf.Socket)) })
		if strings.Contains(r.log.String(), "NB knows") {
			t.Error("it says that NB knows while NB hangs")
		}
		r.nb.Resume()
	}()
	r.start() // returns once NB knows
	if got := r.chassis(); got != "chassis-1" {
		t.Errorf("NB knows chassis %q, want chassis-1", got)
	}

	// The next agent finds it as it should be, and writes nothing.
	version := func() any { return r.nb.Dump(t, "Copp")[0]["_version"] }
	before := version()
	r.restart()
	if version() != before {
		t.Error("an agent that began anew wrote what was there")
	}
}

// The chassis gets another name while the agent tries to say the old one, which the database refuses for a row of the
// same name in its way: it says what holds by then.
func TestNodeChangesItsChassis(t *testing.T) {
	r := newRig(t)
	stray := ovndb.NodeKey("someone")
	r.nb.Transact(t, ovndbtest.Op{"op": "insert", "table": "Copp", "uuid": stray, "row": ovndbtest.Op{"name": "ovn-multinet node node1"}})
	olds := 0
	r.proxy.Before(func(tx ovndbtest.Transact) {
		switch text := string(marshal(t, tx.Ops)); {
		case !inserts("Copp")(tx):
		case strings.Contains(text, "chassis-2"):
			r.nb.Transact(t, ovndbtest.Op{"op": "delete", "table": "Copp", "where": []any{[]any{"_uuid", "==", ovndbtest.UUID(stray)}}})
		default:
			if olds++; olds == 1 {
				r.openVSwitch("system-id=chassis-2")
			}
		}
	})
	r.start()
	r.proxy.Before(nil)
	if got := r.chassis(); got != "chassis-2" || olds == 0 {
		t.Errorf("NB knows chassis %q after %d attempts with the old one, want chassis-2", got, olds)
	}

	r.openVSwitch("system-id=chassis-3")
	r.restart()
	if got := r.chassis(); got != "chassis-3" {
		t.Errorf("NB knows chassis %q, want chassis-3", got)
	}
}
