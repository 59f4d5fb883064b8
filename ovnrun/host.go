package ovnrun

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
)

// Open vSwitch's daemons.
const (
	ovsdbServer = "ovsdb-server"
	vswitchd    = "ovs-vswitchd"
)

// Datapaths of Open vSwitch, by the names that a user gives.
const (
	DatapathAuto      = "auto" // the kernel's, if the node has the module
	DatapathKernel    = "kernel"
	DatapathUserspace = "userspace"
)

// Host is Open vSwitch and ovn-controller on a node.
type Host struct {
	Node     string
	IP       netip.Addr // the tunnels' address, unless TunnelInterface has it
	Bridge   string     // the integration bridge
	Datapath string
	// TunnelInterface is a list, with commas, of NICs and of subnets of addresses. The tunnels use the address of the
	// first that the node has; "": that of IP. The userspace datapath needs a NIC of its own, because the NIC becomes a
	// port of a bridge.
	TunnelInterface string
	DBDir           string // of Open vSwitch's database, on the node's disk
	RunDir          string // of Open vSwitch's sockets
	OVNRunDir       string // of ovn-controller
	DeniedLog       string // the file that ovn-controller writes the packets to that ACLs log; "": none
	Schema          string
	TLS             Files
	Members         string
	Log             *slog.Logger

	settings *settings // what RunController has set
}

// Socket is the path of the socket of Open vSwitch's database.
func (h *Host) Socket() string { return filepath.Join(h.RunDir, "db.sock") }

// setRunDirs tells the daemons where their sockets are: Open vSwitch's have names that no argument sets.
func (h *Host) setRunDirs() error {
	return errors.Join(os.Setenv("OVS_RUNDIR", h.RunDir), os.Setenv("OVN_RUNDIR", h.OVNRunDir))
}

// RunOVSDB becomes the server of Open vSwitch's database.
func (h *Host) RunOVSDB(ctx context.Context) error {
	if err := unused(h.pidFile(ovsdbServer)); err != nil {
		return err
	}
	file := h.file()
	_, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = h.create(ctx, file)
	case err == nil:
		err = h.convert(ctx, file)
	}
	if err != nil {
		return err
	}
	return become(h.serverArgs()...)
}

func (h *Host) file() string { return filepath.Join(h.DBDir, "conf.db") }

func (h *Host) pidFile(daemon string) string { return filepath.Join(h.RunDir, daemon+".pid") }

func (h *Host) control(daemon string) string { return filepath.Join(h.RunDir, daemon+".ctl") }

func (h *Host) serverArgs() []string {
	return []string{ovsdbServer, h.file(), "--no-chdir", "--remote=punix:" + h.Socket(),
		"--pidfile=" + h.pidFile(ovsdbServer), "--overwrite-pidfile", "--unixctl=" + h.control(ovsdbServer)}
}

func (h *Host) create(ctx context.Context, file string) error {
	fresh := file + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := tool(ctx, "ovsdb-tool", "create", fresh, h.Schema); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}

// convert upgrades the database to the schema of the image.
func (h *Host) convert(ctx context.Context, file string) error {
	have, err := output(ctx, "ovsdb-tool", "db-version", file)
	if err != nil {
		return err
	}
	image, err := output(ctx, "ovsdb-tool", "schema-version", h.Schema)
	if err != nil || !older(have, image) {
		return err
	}
	return tool(ctx, "ovsdb-tool", "convert", file, h.Schema)
}

// RunVSwitchd becomes ovs-vswitchd.
func (h *Host) RunVSwitchd(context.Context) error {
	if err := h.setRunDirs(); err != nil {
		return err
	}
	if err := unused(h.pidFile(vswitchd)); err != nil {
		return err
	}
	if err := h.checkDatapath(kernelDatapath()); err != nil {
		return err
	}
	return become(h.switchdArgs()...)
}

func (h *Host) switchdArgs() []string {
	args := []string{vswitchd, "unix:" + h.Socket(), "--no-chdir", "--pidfile=" + h.pidFile(vswitchd),
		"--overwrite-pidfile", "--unixctl=" + h.control(vswitchd)}
	if h.userspace() {
		args = append(args, "--disable-system") // otherwise it asks the kernel for the datapath again and again
	}
	return args
}

// userspace reports whether the node's bridges use the datapath of ovs-vswitchd itself.
func (h *Host) userspace() bool {
	if h.Datapath != DatapathAuto {
		return h.Datapath == DatapathUserspace
	}
	return !kernelDatapath()
}

// checkDatapath returns an error if the node must have the kernel's datapath and has none: Open vSwitch would run, and
// make no bridge.
func (h *Host) checkDatapath(inKernel bool) error {
	if h.Datapath != DatapathKernel || inKernel {
		return nil
	}
	return errors.New("the chart's value ovn.datapath is kernel, and this node's kernel has no module openvswitch: " +
		"install the module, or set ovn.datapath to auto")
}

// kernelDatapath reports whether the kernel has the module openvswitch. The question loads the module if the node has
// it.
func kernelDatapath() bool {
	_, err := netlink.GenlFamilyGet("ovs_datapath")
	return err == nil
}

// unused returns an error if a process has locked a pid file: another Open vSwitch or OVN runs on the node. The lock is
// of the file, so it is seen from each container.
func unused(pidFile string) error {
	f, err := os.OpenFile(pidFile, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return fmt.Errorf("%s: %w", pidFile, err)
	}
	if lock.Type == unix.F_UNLCK {
		return nil
	}
	return fmt.Errorf("%s already runs on this node (its lock on %s is held): stop it and keep it from starting, "+
		"or install with ovn.enabled=false to use it", strings.TrimSuffix(filepath.Base(pidFile), ".pid"), pidFile)
}

// become replaces this process by a daemon.
func become(args ...string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, syscall.Exec(path, append(args, logArgs...), os.Environ()))
}

// RunController configures the node's Open vSwitch and runs ovn-controller, until the end of ctx or of its process.
func (h *Host) RunController(ctx context.Context) error {
	if err := h.setRunDirs(); err != nil {
		return err
	}
	pidFile := filepath.Join(h.OVNRunDir, "ovn-controller.pid")
	if err := unused(pidFile); err != nil {
		return err
	}
	h.settings = &settings{set: map[string]string{}}
	if err := h.configure(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	background.Go(func() { h.keepRemote(ctx) })
	background.Go(func() { h.keepTunnelAddress(ctx) })
	background.Go(func() { h.keepSettings(ctx) })
	args := append([]string{"ovn-controller", "unix:" + h.Socket(), "--no-chdir", "--pidfile=" + pidFile,
		"--overwrite-pidfile", "--unixctl=" + filepath.Join(h.OVNRunDir, "ovn-controller.ctl")}, h.TLS.args()...)
	if h.DeniedLog != "" {
		if err := os.MkdirAll(filepath.Dir(h.DeniedLog), 0o755); err != nil {
			return err
		}
		args = append(args, deniedArgs(h.DeniedLog)...)
		background.Go(func() { h.keepSmall(ctx, h.DeniedLog) })
	}
	child, err := start(args...)
	if err != nil {
		return err
	}
	background.Go(func() { child.watch(ctx, filepath.Join(h.OVNRunDir, "ovn-controller.ctl"), h.Log) })
	select {
	case <-ctx.Done():
		return child.end()
	case err := <-child.ended:
		return endedError("ovn-controller", err)
	}
}

// keepRemote tells ovn-controller where SB is. It follows a change without a restart.
func (h *Host) keepRemote(ctx context.Context) {
	members.Follow(ctx, h.Members, h.Log, func(l members.List) {
		if len(l.Members) == 0 {
			return
		}
		remote := strings.Join(l.Endpoints(members.SBPort), ",")
		for ctx.Err() == nil {
			err := h.set(ctx, map[string]string{"ovn-remote": remote})
			if err == nil {
				h.Log.Info("SB's members", "ovn-remote", remote)
				return
			}
			h.Log.Warn("cannot write SB's members into Open vSwitch; trying again", "err", err)
			pause(ctx)
		}
	})
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

// configure writes the node's settings into Open vSwitch, and waits for its database.
func (h *Host) configure(ctx context.Context) error {
	said := ""
	for {
		err := h.tryConfigure(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if err.Error() != said {
			said = err.Error()
			h.Log.Warn("Open vSwitch is not configured yet", "err", err)
		}
		pause(ctx)
	}
}

func (h *Host) tryConfigure(ctx context.Context) error {
	ids := map[string]string{"ovn-encap-type": "geneve", "ovn-bridge": h.Bridge, "hostname": h.Node,
		"ovn-remote-probe-interval": fmt.Sprint(probe), "ovn-bridge-datapath-type": "system"}
	address := h.IP
	switch {
	case h.userspace():
		ids["ovn-bridge-datapath-type"] = "netdev"
		var err error
		if address, err = h.tunnelBridge(ctx); err != nil {
			return err
		}
	case h.TunnelInterface != "":
		former, err := h.formerAddress(ctx)
		if err != nil {
			return err
		}
		nic, err := h.tunnelNIC(former)
		if err != nil {
			return err
		}
		address = nic.address.Addr()
	}
	ids["ovn-encap-ip"] = address.String()
	if err := h.setOnce(ctx); err != nil {
		return err
	}
	return h.set(ctx, ids)
}

// transact runs a transaction in Open vSwitch's database, which has one row Open_vSwitch in the end.
func (h *Host) transact(ctx context.Context, ops ...any) error {
	found, err := transact(ctx, h.Socket(), "Open_vSwitch",
		op{"op": "select", "table": "Open_vSwitch", "where": []any{}, "columns": []string{"_uuid"}})
	if err != nil {
		return err
	}
	if len(found[0].Rows) == 0 {
		ops = append([]any{op{"op": "insert", "table": "Open_vSwitch", "row": map[string]any{}}}, ops...)
	}
	_, err = transact(ctx, h.Socket(), "Open_vSwitch", ops...)
	return err
}

// ovsMap is a map as OVSDB writes it (RFC 7047, section 5.1).
func ovsMap(m map[string]string) []any {
	var pairs []any
	for key, value := range m {
		pairs = append(pairs, []string{key, value})
	}
	return []any{"map", pairs}
}
