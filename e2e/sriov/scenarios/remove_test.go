//go:build sriov

package scenarios

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/e2e/labtest"
	"github.com/ovn-multinet/ovn-multinet/ovnrun"
)

// TestRemoveKernelDatapath: Open vSwitch with the kernel's datapath ends as its pod does, and leaves its datapath, bridge
// and tunnel. The step of the uninstall for a node deletes them all.
func TestRemoveKernelDatapath(t *testing.T) {
	w := labtest.New(t, patience)
	runtime.LockOSThread() // and never back: the thread keeps the namespace
	w.Must(unix.Unshare(unix.CLONE_NEWNET))
	dir := t.TempDir()
	disk, run := filepath.Join(dir, "disk"), filepath.Join(dir, "run")
	h := &ovnrun.Host{Node: "one", Bridge: "br-int", Datapath: ovnrun.DatapathKernel, DBDir: filepath.Join(disk, "openvswitch"),
		RunDir: run, OVNRunDir: run, Log: slog.New(slog.DiscardHandler)}
	w.Must(os.MkdirAll(h.DBDir, 0o700))
	w.Must(os.MkdirAll(run, 0o700))
	database := filepath.Join(h.DBDir, "conf.db")
	ours := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+run)
		return cmd
	}
	w.Must(ours("ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema").Run())
	daemons := []*exec.Cmd{
		ours("ovsdb-server", database, "--remote=punix:"+h.Socket(), "--pidfile="+run+"/ovsdb-server.pid"),
		ours("ovs-vswitchd", "unix:"+h.Socket(), "--pidfile="+run+"/ovs-vswitchd.pid"),
	}
	for _, d := range daemons {
		w.Must(d.Start())
	}
	w.Must(lab.Eventually(w.Ctx, func() error {
		out, err := ours("ovs-vsctl", "--db=unix:"+h.Socket(), "--timeout=10", "--may-exist", "add-br", "br-int", "--",
			"--may-exist", "add-port", "br-int", "ovn-0", "--", "set", "interface", "ovn-0", "type=geneve",
			"options:remote_ip=192.0.2.2", "options:key=flow").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}))
	slices.Reverse(daemons) // ovs-vswitchd ends first
	for _, d := range daemons {
		w.Must(d.Process.Signal(unix.SIGTERM))
		_ = d.Wait() // it ends by the signal
	}
	if has := linksHere(w); !slices.Equal(has, []string{"br-int", "genev_sys_6081", "lo", "ovs-system"}) {
		t.Fatalf("Open vSwitch leaves the links %q", has)
	}

	ctx, stop := context.WithCancel(w.Ctx)
	go func() {
		defer stop()
		err := lab.Eventually(w.Ctx, func() error {
			files, err := os.ReadDir(disk)
			if err == nil && len(files) > 0 {
				err = fmt.Errorf("files %v", files)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}()
	w.Must(h.Remove(ctx, disk))
	if has := linksHere(w); !slices.Equal(has, []string{"lo"}) {
		t.Errorf("after the uninstall there are the links %q", has)
	}
}

// linksHere are the names of the links in the thread's namespace, sorted.
func linksHere(w labtest.Test) (names []string) {
	links, err := netlink.LinkList()
	w.Must(err)
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	return names
}
