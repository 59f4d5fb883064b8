package ovnport_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// The sender of ARP probes, 0.0.0.0, passes the port security of ports with IPv4 on a physical network, and of no others.
func TestARPProbesPass(t *testing.T) {
	for i, tt := range []struct {
		keys string
		want bool
	}{{"", false}, {`,"subnets":"fd50::/64"`, false}, {`,"subnets":"10.50.0.0/24,fd50::/64"`, true}, {`,"subnets":"10.50.0.0/24"`, true}} {
		w := newWorld(t)
		port := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(w.onWire(t, "shop", "a", 100+i, tt.keys), "net1"))[0]
		words := strings.Fields(ovndbtest.Strings(read(t, w.Server).ports[port.UUID]["port_security"])[0])
		if got := words[len(words)-1] == "0.0.0.0"; got != tt.want {
			t.Errorf("%s: port security %q", tt.keys, words)
		}
	}
}

// A conflict is noted in the row of the port, and the note goes with the sandbox. A sandbox that does not have the port
// any more notes nothing.
func TestNoteConflicts(t *testing.T) {
	w := newWorld(t)
	n := w.onWire(t, "shop", "a", 100, `,"subnets":"10.50.0.0/24,fd50::/64"`)
	port := mustEnsure(t, w.nb, owner("web-1", "sandbox-1"), want(n, "net1"))[0]
	note := func() string { return ids(read(t, w.Server).ports[port.UUID])[ovndb.ConflictsKey] }
	list := []ovnport.Conflict{
		{Addr: netip.MustParseAddr("10.50.0.7"), MAC: port.MAC}, {Addr: netip.MustParseAddr("fd50::7"), MAC: port.MAC},
	}
	if err := w.nb.NoteConflicts(timeout(t), "sandbox-1", port.UUID, list); err != nil {
		t.Fatal(err)
	}
	if got, want := note(), fmt.Sprintf("10.50.0.7=%s fd50::7=%s", port.MAC, port.MAC); got != want {
		t.Errorf("note %q, want %q", got, want)
	}
	mustEnsure(t, w.nb, owner("web-1", "sandbox-2"), want(n, "net1"))
	if got := note(); got != "" {
		t.Errorf("the port of another sandbox has the note %q", got)
	}
	if err := w.nb.NoteConflicts(timeout(t), "sandbox-1", port.UUID, list); err == nil || note() != "" {
		t.Errorf("the former sandbox notes %q, %v", note(), err)
	}
}

// AwaitPhysical ends when the port to the physical network has a number, and else with the wait.
func TestAwaitPhysical(t *testing.T) {
	server := ovndbtest.StartOVS(t)
	server.VSCtl("--no-wait", "add-br", "br-int")
	v, err := ovnport.OpenOVS(server.Socket, "br-int", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	const patch = "patch-br-int-to-shop/a:localnet"
	server.VSCtl("--no-wait", "add-port", "br-int", patch)
	if _, err := v.PodPorts(timeout(t)); err != nil { // waits for the copy
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(timeout(t))
	cancel()
	wantCode(t, v.AwaitPhysical(over, "shop/a"), conf.CodeNoFlows, "Open vSwitch does not have port "+patch)
	server.VSCtl("--no-wait", "set", "Interface", patch, "ofport=7")
	if err := v.AwaitPhysical(timeout(t), "shop/a"); err != nil {
		t.Error(err)
	}
}
