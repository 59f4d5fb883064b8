package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/images/trixie"
)

// machine is the guest's hardware. Two igb are its physical functions, each behind a port of its own as virtual functions
// want it, and both on one wire. Everything is emulated, so no right to the machine's own virtualisation is needed.
var machine = []string{
	"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
	"-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "qemu64,+rdrand", "-smp", "2", "-m", "1792",
	"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
	"-device", "isa-debug-exit,iobase=0x501,iosize=1",
	// What vfio-pci takes a device for.
	"-device", "intel-iommu,intremap=off",
	"-netdev", "hubport,id=wire0,hubid=0", "-netdev", "hubport,id=wire1,hubid=0",
	"-device", "pcie-root-port,id=port0,chassis=1,slot=1", "-device", "pcie-root-port,id=port1,chassis=2,slot=2",
	// romfile: without one, as there is nothing to boot from the network.
	"-device", "igb,bus=port0,netdev=wire0,romfile=,mac=02:00:00:00:f0:00",
	"-device", "igb,bus=port1,netdev=wire1,romfile=,mac=02:00:00:00:f1:00",
}

// kernelArgs: random numbers from the processor spare the guest a wait at its start; and a check of the timer is lost now and
// then, by a machine that is emulated slowly.
const kernelArgs = "console=ttyS0 quiet loglevel=3 panic=-1 no_timer_check random.trust_cpu=1 intel_iommu=on iommu=pt net.ifnames=0 mitigations=off"

// boot runs a guest to its end and returns the code that it reports. QEMU ends with this process, however it ends.
func boot(ctx context.Context, t tree, kernel string, initrd *os.File, line func(string)) (code int, err error) {
	// The parent-death signal fires when the thread that forked ends, not the process: keep this one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	args := append(t.Start("usr/bin/qemu-system-x86_64"), machine...)
	args = append(args, "-L", t.Path("usr/share/qemu"), "-L", t.Path("usr/share/seabios"),
		"-kernel", kernel, "-initrd", "/proc/self/fd/3", "-append", kernelArgs)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "QEMU_MODULE_DIR="+t.Path(filepath.Join(trixie.Libraries, "qemu")))
	cmd.ExtraFiles = []*os.File{initrd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start QEMU: %w", err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line(strings.TrimRight(lines.Text(), "\r"))
	}
	_, _ = io.Copy(io.Discard, out)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return 0, fmt.Errorf("the guest was ended: %w", context.Cause(ctx))
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	code, ok := result(cmd.ProcessState.ExitCode())
	if !ok {
		return 0, fmt.Errorf("the guest ended without a result (QEMU: %s): %s", cmd.ProcessState, strings.TrimSpace(complaints.String()))
	}
	return code, nil
}

// memoryFile is a file that has no name and goes with its last user.
func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// result is the code that the guest reported, by how QEMU ended: isa-debug-exit ends QEMU with 2×byte+1. The guest adds 64 to
// its code, which tells it from those with which QEMU ends by itself.
func result(exit int) (code int, ok bool) {
	const base = 64
	code = exit>>1 - base
	return code, exit&1 == 1 && code >= 0 && code < base
}
