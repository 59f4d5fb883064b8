package ovnrun

import (
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// TestKeepSettings: keys of ours that another program has changed or removed come back, its own keys stay, and an
// operator's choice of a key that we set only once stays, too. Without changes nothing is written.
func TestKeepSettings(t *testing.T) {
	s := ovndbtest.StartOVS(t)
	h := &Host{Node: "n1", RunDir: filepath.Dir(s.Socket), Log: slog.New(slog.DiscardHandler),
		settings: &settings{set: map[string]string{}}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(h.setOnce(t.Context()))
	must(h.set(t.Context(), map[string]string{"ovn-remote": "ssl:192.0.2.1:6642", "ovn-bridge": "br-int"}))
	has := func() (map[string]string, any) {
		row := s.Dump(t, "Open_vSwitch")[0]
		return row["external_ids"].(map[string]string), row["_version"]
	}
	want := map[string]string{
		"ovn-remote": "ssl:192.0.2.1:6642", "ovn-bridge": "br-int", "system-id": "n1", "ovn-ofctrl-wait-before-clear": "2000",
	}
	_, before := has()
	must(h.restoreSettings(t.Context()))
	if got, after := has(); !maps.Equal(got, want) || before != after {
		t.Errorf("without changes %v is %v, want %v; version %v became %v", want, got, want, before, after)
	}
	s.VSCtl("--no-wait", "clear", "Open_vSwitch", ".", "external_ids", "--", "set", "Open_vSwitch", ".",
		"external_ids:ovn-bridge=br-other", "external_ids:of-another=kept", "external_ids:ovn-ofctrl-wait-before-clear=8000")
	must(h.restoreSettings(t.Context()))
	want["of-another"], want["ovn-ofctrl-wait-before-clear"] = "kept", "8000"
	if got, _ := has(); !maps.Equal(got, want) {
		t.Errorf("external_ids are %v, want %v", got, want)
	}
}

// TestUplinksAreUp: the interface of a physical network's bridge is brought up, and no other one.
func TestUplinksAreUp(t *testing.T) {
	if !nettest.InOwn(t) {
		return
	}
	s := ovndbtest.StartOVS(t)
	h := &Host{Node: "n1", RunDir: filepath.Dir(s.Socket), Log: slog.New(slog.DiscardHandler),
		settings: &settings{set: map[string]string{}}}
	for _, name := range []string{"eth1", "eth2"} {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-far"}); err != nil {
			t.Fatal(err)
		}
	}
	const mark = "external_ids:ovn-multinet/physical-network=provider"
	s.VSCtl("--no-wait", "add-br", "br-p", "--", "add-port", "br-p", "eth1", "--", "set", "bridge", "br-p", mark, "--", "set", "port", "eth1",
		mark, "--", "add-br", "br-other", "--", "add-port", "br-other", "eth2", "--", "add-port", "br-p", "eth9", "--", "set", "port", "eth9", mark)
	if err := h.restoreSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"eth1": true, "eth2": false} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if up := link.Attrs().Flags&net.FlagUp != 0; up != want {
			t.Errorf("%s is up: %t, want %t", name, up, want)
		}
	}
}
