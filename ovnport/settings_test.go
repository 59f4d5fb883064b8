package ovnport_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
)

// The node's settings are not told from the old copy while its database is down: the error says who is away, before
// the call's time is over. After a restart they are told again.
func TestSettingsWithoutADatabase(t *testing.T) {
	s := ovndbtest.StartOVS(t)
	s.VSCtl("add-br", "br-int", "--", "set", "Open_vSwitch", ".", "external_ids:system-id=chassis-1")
	ovs, err := ovnport.OpenOVS(s.Socket, "br-int", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ovs.Close)
	ctx := timeout(t)
	if got, err := ovs.Settings(ctx); err != nil || got.Chassis != "chassis-1" {
		t.Fatalf("with a database: %+v, %v", got, err)
	}
	s.Kill()
	var got *ovnport.Settings
	for err = nil; err == nil && ctx.Err() == nil; { // until the end of the connection is known
		got, err = ovs.Settings(ctx)
	}
	if !conf.HasCode(err, conf.CodeTryAgain) || !strings.Contains(err.Error(), "OVS database does not answer") {
		t.Errorf("without one: %+v, %v", got, err)
	}
	if ctx.Err() != nil {
		t.Error("the call's whole time was spent on it")
	}
	s.Restart()
	if got, err := ovs.Settings(ctx); err != nil || got.Chassis != "chassis-1" {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
}

// TestReadsWithoutConnection: a node's Open vSwitch may start after the agent. Until then there is no copy to read, and
// each read is an error.
func TestReadsWithoutConnection(t *testing.T) {
	ovs, err := ovnport.OpenOVS(filepath.Join(t.TempDir(), "none.sock"), "br-int", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer ovs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := ovnport.OVSPort{PortName: "p", HostVeth: "v"}
	reads := map[string]func() error{
		"PodPorts":      func() error { _, err := ovs.PodPorts(ctx); return err },
		"Settings":      func() error { _, err := ovs.Settings(ctx); return err },
		"Check":         func() error { return ovs.Check(ctx, "sandbox", p) },
		"AwaitFlows":    func() error { return ovs.AwaitFlows(ctx, []ovnport.OVSPort{p}) },
		"AwaitPhysical": func() error { return ovs.AwaitPhysical(ctx, "shop/a") },
	}
	for name, read := range reads {
		if read() == nil {
			t.Errorf("%s has no error without a connection", name)
		}
	}
}
