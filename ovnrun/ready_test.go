package ovnrun

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// TestReady: a daemon is ready while it answers. One that hangs is not, nor is an ovn-controller without SB.
func TestReady(t *testing.T) {
	w := newWorld(t)
	h := w.host()
	dir := h.RunDir
	run := func(program string, args ...string) *exec.Cmd {
		// OVN 23.03 knows no --unixctl.
		cmd := exec.Command(ovndbtest.Need(t, program), append(args, "--no-chdir", "--pidfile="+filepath.Join(dir, program+".pid"),
			"-vconsole:off", "-vsyslog:off")...)
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+dir, "OVN_RUNDIR="+dir)
		w.must(cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd
	}
	refused := func(ctx context.Context, container, want string) {
		t.Helper()
		w.eventually(want, func() error {
			if err := Ready(ctx, dir, container); err == nil || !strings.HasPrefix(err.Error(), want) {
				return fmt.Errorf("error %w", err)
			}
			return nil
		})
	}
	refused(t.Context(), "ovsdb", "ovsdb-server does not answer: control socket of ovsdb-server: ")
	server := run("ovsdb-server", h.file(), "--remote=punix:"+h.Socket())
	w.eventually("the server", func() error { return Ready(t.Context(), dir, "ovsdb") })
	h.Node = "node1"
	w.must(h.set(t.Context(), map[string]string{"ovn-ofctrl-wait-before-clear": "9000"})) // an operator's
	w.must(h.setOnce(t.Context()))
	found, err := transact(t.Context(), h.Socket(), "Open_vSwitch",
		op{"op": "select", "table": "Open_vSwitch", "where": []any{}, "columns": []string{"external_ids"}})
	w.must(err)
	if got, want := string(found[0].Rows[0]), `{"external_ids":["map",[["ovn-ofctrl-wait-before-clear","9000"],["system-id","node1"]]]}`; got != want {
		t.Errorf("Open vSwitch has %s, want %s", got, want)
	}
	if former, err := h.formerAddress(t.Context()); err != nil || former.IsValid() {
		t.Errorf("before the first start the address of the tunnels is %s, %v", former, err)
	}
	w.must(h.set(t.Context(), map[string]string{"ovn-encap-ip": "10.9.0.5"}))
	if former, err := h.formerAddress(t.Context()); err != nil || former.String() != "10.9.0.5" {
		t.Errorf("the former address of the tunnels is %s, %v", former, err)
	}
	run("ovn-controller", "unix:"+h.Socket())
	refused(t.Context(), "controller", `ovn-controller: it has no connection to SB's leader (connection-status: "not connected")`)
	refused(t.Context(), "br-int", `no daemon "br-int": give one of controller, northd, ovsdb, vswitchd`)
	w.must(server.Process.Signal(syscall.SIGSTOP))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	refused(ended, "ovsdb", "ovsdb-server does not answer: ")
}

func TestCheckDatapath(t *testing.T) {
	for datapath, want := range map[string]bool{DatapathAuto: true, DatapathUserspace: true, DatapathKernel: false} {
		h := &Host{Datapath: datapath}
		if err := h.checkDatapath(false); (err == nil) != want {
			t.Errorf("%s without the module: error %v", datapath, err)
		}
		if err := h.checkDatapath(true); err != nil {
			t.Errorf("%s with the module: error %v", datapath, err)
		}
	}
}
