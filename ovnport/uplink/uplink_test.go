package uplink_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/ovnport/uplink"
)

// world is a node with a database of Open vSwitch and nothing behind it: a test says which interfaces ovs-vswitchd has.
type world struct {
	*testing.T
	ovs     *ovndbtest.Server
	bridges *uplink.Bridges
	refused map[string]string // by interface: what the node says about it
	lacking map[string]string
}

func (w *world) Usable(name string, tagged bool) error {
	if why := w.refused[name]; why != "" {
		return errors.New(why)
	}
	if tagged && strings.Contains(name, ".") {
		return errors.New("tagged")
	}
	return nil
}

func (w *world) Lacks(name, _ string) string { return w.lacking[name] }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, ovs: ovndbtest.StartOVS(t), refused: map[string]string{}, lacking: map[string]string{}}
	w.ovs.VSCtl("--no-wait", "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev",
		"--", "set", "Open_vSwitch", ".", "external_ids:system-id=n1")
	ovs, err := ovnport.OpenOVS(w.ovs.Socket, "br-int", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ovs.Close)
	if _, err := ovs.Settings(t.Context()); err != nil { // connected
		t.Fatal(err)
	}
	w.bridges = ovs.Uplinks(slog.New(slog.DiscardHandler))
	w.bridges.Interfaces = w
	return w
}

// want is "name=interface@bridge …"; an interface with a star is used with VLANs.
func want(text string) map[string]netmodel.NodeUplink {
	wanted := map[string]netmodel.NodeUplink{}
	for _, word := range strings.Fields(text) {
		name, rest, _ := strings.Cut(word, "=")
		nic, bridge, _ := strings.Cut(rest, "@")
		plain, tagged := strings.CutSuffix(nic, "*")
		wanted[name] = netmodel.Uplink{Interface: plain, Bridge: bridge}.On(name, tagged)
	}
	return wanted
}

// apply makes one pass and returns its report.
func (w *world) apply(wanted string) string {
	w.Helper()
	report, _, err := w.bridges.Apply(w.Context(), want(wanted))
	if err != nil {
		w.Fatal(err)
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(report)) {
		lines = append(lines, strings.TrimSpace(name+" "+report[name].Problem))
	}
	return strings.Join(lines, "; ")
}

// has compares what Open vSwitch has with "bridge[ports] … | mappings".
func (w *world) has(wanted string) {
	w.Helper()
	ports := map[string]string{}
	for _, row := range w.ovs.Dump(w, "Port") {
		ports[row["_uuid"].(string)] = row["name"].(string)
	}
	var bridges []string
	mappings := ""
	for _, row := range w.ovs.Dump(w, "Bridge") {
		if row["name"] == "br-int" {
			continue
		}
		var names []string
		for _, key := range ovndbtest.Strings(row["ports"]) {
			names = append(names, ports[key])
		}
		slices.Sort(names)
		bridges = append(bridges, fmt.Sprintf("%s/%s%v", row["name"], row["datapath_type"], names))
	}
	for _, row := range w.ovs.Dump(w, "Open_vSwitch") {
		mappings = row["external_ids"].(map[string]string)["ovn-bridge-mappings"]
	}
	slices.Sort(bridges)
	if got := strings.TrimSpace(strings.Join(bridges, " ") + " | " + mappings); got != wanted {
		w.Errorf("Open vSwitch has %s, want %s", got, wanted)
	}
}

// connected has ovs-vswitchd connect an interface.
func (w *world) connected(nic string, ofport int) {
	w.Helper()
	w.ovs.VSCtl("--no-wait", "set", "Interface", nic, fmt.Sprintf("ofport=%d", ofport))
}

func (w *world) says(wanted, text string) {
	w.Helper()
	if got := w.apply(wanted); !strings.Contains(got, text) || text == "" && got != "" {
		w.Errorf("%s: the node says %q, want %q", wanted, got, text)
	}
}

// TestUplink: an uplink gets a bridge; its entry of ovn-bridge-mappings follows when Open vSwitch has connected the
// interface; entries and bridges of others stay; all goes when it is not wanted.
func TestUplink(t *testing.T) {
	w := newWorld(t)
	w.ovs.VSCtl("--no-wait", "add-br", "br-ex", "--", "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=old:br-ex")
	const br = "br-ex/[br-ex] "
	w.says("provider=eth1", "provider Open vSwitch has not connected eth1 yet")
	w.has(br + "br-provider/netdev[br-provider eth1] | old:br-ex")
	w.says("provider=eth1", "provider Open vSwitch has not connected eth1 yet")
	w.has(br + "br-provider/netdev[br-provider eth1] | old:br-ex")
	w.connected("eth1", 1)
	if got := w.apply("provider=eth1"); got != "provider" {
		t.Errorf("ready: %s", got)
	}
	w.has(br + "br-provider/netdev[br-provider eth1] | old:br-ex,provider:br-provider")
	if _, changed, err := w.bridges.Apply(t.Context(), want("provider=eth1")); changed || err != nil {
		t.Errorf("the next pass changes something: %t, %v", changed, err)
	}
	w.lacking["eth1"] = "eth1 is down"
	w.says("provider=eth1", "provider eth1 is down") // the entry stays: the pods of the node reach each other
	w.has(br + "br-provider/netdev[br-provider eth1] | old:br-ex,provider:br-provider")

	// Another program removes all keys, or replaces all.
	w.ovs.VSCtl("--no-wait", "remove", "Open_vSwitch", ".", "external_ids", "ovn-bridge-mappings")
	w.apply("provider=eth1")
	w.has(br + "br-provider/netdev[br-provider eth1] | provider:br-provider")
	w.ovs.VSCtl("--no-wait", "clear", "Open_vSwitch", ".", "external_ids")
	w.ovs.VSCtl("--no-wait", "set", "Open_vSwitch", ".", "external_ids:system-id=n1", "external_ids:ovn-bridge-mappings=new:br-ex")
	w.apply("provider=eth1")
	w.has(br + "br-provider/netdev[br-provider eth1] | new:br-ex,provider:br-provider")

	// Another interface, another bridge, and one that cannot be.
	w.refused["eth9"] = "the node has no interface eth9"
	w.says("provider=eth9", "provider the node has no interface eth9")
	w.has(br + "br-provider/netdev[br-provider eth1] | new:br-ex,provider:br-provider")
	w.says("provider=eth2", "has not connected eth2 yet")
	w.has(br + "br-provider/netdev[br-provider eth2] | new:br-ex,provider:br-provider")
	w.connected("eth2", 2)
	w.apply("provider=eth2@br-p")
	w.has(br + "br-p/netdev[br-p eth2] | new:br-ex")
	w.connected("eth2", 1)
	w.apply("provider=eth2@br-p")
	w.has(br + "br-p/netdev[br-p eth2] | new:br-ex,provider:br-p")

	w.says("", "provider the bridge is being removed")
	w.has(br + "| new:br-ex")
	w.says("", "")
}

// TestUplinkOfABridge: a bridge that exists is mapped, and stays when it is not wanted any more.
func TestUplinkOfABridge(t *testing.T) {
	w := newWorld(t)
	w.says("provider=@br-ex", "provider the node has no bridge br-ex: make it in Open vSwitch, or name an interface, too")
	w.ovs.VSCtl("--no-wait", "add-br", "br-ex")
	w.says("provider=@br-int", "br-int is the integration bridge")
	if got := w.apply("provider=@br-ex"); got != "provider" {
		t.Error(got)
	}
	w.has("br-ex/[br-ex] | provider:br-ex")
	w.says("other=@br-ex provider=@br-ex", "other bridge br-ex is of physical network provider already")
	w.has("br-ex/[br-ex] | provider:br-ex")
	w.apply("")
	w.has("br-ex/[br-ex] |")
}

// TestForeign: what others have made is neither changed nor used without a word.
func TestForeign(t *testing.T) {
	w := newWorld(t)
	w.ovs.VSCtl("--no-wait", "add-br", "br-provider", "--", "add-br", "br-ex", "--", "add-port", "br-ex", "eth1", "--",
		"add-port", "br-int", "veth1", "--", "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=lab:br-ex")
	before := func() {
		w.Helper()
		w.has("br-ex/[br-ex eth1] br-provider/[br-provider] | lab:br-ex")
	}
	for wanted, why := range map[string]string{
		"provider=eth2":       "bridge br-provider exists already, and is not ours: write bridge: br-provider without interface to use it",
		"provider=eth1@br-p":  "eth1 is a port of bridge br-ex of Open vSwitch: name another interface, or write bridge: br-ex instead",
		"provider=veth1@br-p": "veth1 is a port of bridge br-int",
		"lab=eth2":            "another program has written lab:br-ex into ovn-bridge-mappings of this node: write bridge: br-ex without interface",
		"provider=@br-ex":     "bridge br-ex is of physical network lab already",
		"provider=eth2.7*@br": "tagged",
	} {
		w.says(wanted, why)
		before()
	}
	if got := w.apply("lab=@br-ex"); got != "lab" {
		t.Errorf("a mapping that is there already: %s", got)
	}
	before()
	w.apply("")
	before()

	// The chassis' own key comes first for ovn-controller, so it is the one to change.
	w.ovs.VSCtl("--no-wait", "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings-n1=own:br-own")
	w.apply("provider=@br-provider")
	row := w.ovs.Dump(t, "Open_vSwitch")[0]["external_ids"].(map[string]string)
	if got := row["ovn-bridge-mappings-n1"]; got != "own:br-own,provider:br-provider" {
		t.Errorf("the chassis' own mappings are %q", got)
	}
	before()
}

// TestTwoWantOneInterface: of two physical networks that want one interface or one bridge, the one that has it keeps it;
// if none has it, the first by name gets it.
func TestTwoWantOneInterface(t *testing.T) {
	w := newWorld(t)
	w.says("m=eth1 n=eth1 o=eth2@br-m", "m Open vSwitch has not connected eth1 yet; n eth1 is of physical network m already; "+
		"o br-m is of physical network m already")
	w.has("br-m/netdev[br-m eth1] |")
	w.apply("")
	w.apply("z=eth1")
	w.connected("eth1", 1)
	w.apply("z=eth1")
	w.says("a=eth1 z=eth1", "a eth1 is a port of bridge br-z of Open vSwitch")
	w.has("br-z/netdev[br-z eth1] | z:br-z")
	w.says("a=eth1", "z the bridge is being removed")
	w.apply("a=eth1")
	w.has("br-a/netdev[br-a eth1] |")
}

// TestInterfaceError: what Open vSwitch says of the interface is told, and no pod gets a port on such a bridge.
func TestInterfaceError(t *testing.T) {
	w := newWorld(t)
	w.apply("provider=eth1")
	w.ovs.VSCtl("--no-wait", "set", "Interface", "eth1", `error="could not open network device eth1 (Device busy)"`, "ofport=-1")
	w.says("provider=eth1", "provider Open vSwitch cannot use eth1: could not open network device eth1 (Device busy)")
	w.has("br-provider/netdev[br-provider eth1] |")
}

// TestNamesOfBridges: a name that is too long for an interface, and one with other letters, has a bridge all the same.
func TestNamesOfBridges(t *testing.T) {
	name := func(physical string) string { return netmodel.Uplink{Interface: "eth1"}.On(physical, false).Bridge }
	if name("provider") != "br-provider" || name("twelve-bytes") != "br-twelve-bytes" {
		t.Error(name("provider"), name("twelve-bytes"))
	}
	for _, physical := range []string{"thirteen-byte", "a.b", "ü"} {
		if got := name(physical); len(got) != 15 || got == name(physical+"x") {
			t.Errorf("%s: %s, which is that of %sx too", physical, got, physical)
		}
	}
}
