// Command guest owns the first moments of the machine that the SR-IOV scenarios run in, and its end: it is its first
// process, makes the virtual functions, runs one program and reports its code. It may run nowhere else.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/dsnet/try"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/sriov/guest/wire"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest: this is the first process of a virtual machine, not for people to run")
		os.Exit(1)
	}
	code, err := run()
	if err != nil {
		fmt.Println("guest:", err)
		code = 2
	}
	if err := report(code); err != nil {
		fmt.Println("guest: report the code:", err)
		return // the end of the first process is a panic of the kernel, which ends the machine all the same
	}
	time.Sleep(time.Minute) // the machine ends meanwhile
}

func run() (_ int, err error) {
	defer try.Handle(&err)
	try.E(mountAll())
	text := try.E1(os.ReadFile("/" + wire.OrderFile))
	var order wire.Order
	try.E(json.Unmarshal(text, &order))
	try.E(loadAll())
	try.E(makeVFs(order.VFs))
	return command(order)
}

func mountAll() error {
	for _, m := range []struct{ kind, on string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"},
	} {
		if err := unix.Mount(m.kind, m.on, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.on, err)
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// loadAll loads the modules in the order that their needs ask for.
func loadAll() (err error) {
	defer try.Handle(&err)
	order := try.E1(os.ReadFile("/modules/order"))
	for _, name := range strings.Fields(string(order)) {
		try.E(load(name))
	}
	return nil
}

func load(name string) error {
	f, err := os.Open("/modules/" + name + ".ko")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
		return fmt.Errorf("load module %s: %w", name, err)
	}
	return nil
}

func command(order wire.Order) (int, error) {
	cmd := exec.Command(order.Command[0], order.Command[1:]...)
	cmd.Env = order.Env
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return 0, err
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	return 0, fmt.Errorf("%s: %w", order.Command[0], err)
}

// report ends the machine.
func report(code int) error {
	unix.Sync()
	f, err := os.OpenFile("/dev/port", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte{wire.ExitByte(code)}, wire.ExitPort)
	return err
}
