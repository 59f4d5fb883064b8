package images

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/internal/nettest"
)

// TestContainerdImports: containerd imports an image for two platforms by its name, and unpacks the one for this
// machine.
func TestContainerdImports(t *testing.T) {
	if !nettest.InOwn(t) { // containerd has to be root somewhere
		return
	}
	img := Image{
		Name: "registry.example.com/nets/one:1.0.0", Arch: "amd64",
		Files: map[string]string{"/bin/one": os.Args[0]}, Entrypoint: []string{"/bin/one"},
	}
	other := img
	other.Arch = "arm64"
	var archive bytes.Buffer
	if err := Write(&archive, img, other); err != nil {
		t.Fatal(err)
	}
	socket := startContainerd(t)
	ctr(t, socket, &archive, "images", "import", "--all-platforms", "--snapshotter=native", "-")
	listed := ctr(t, socket, nil, "images", "list", "name=="+img.Name)
	if !strings.Contains(listed, "\n"+img.Name+" ") || !strings.Contains(listed, " linux/amd64,linux/arm64 ") {
		t.Errorf("containerd has\n%s", listed)
	}
	mount := t.TempDir()
	ctr(t, socket, nil, "images", "mount", "--snapshotter=native", img.Name, mount)
	defer func() {
		if err := syscall.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	}()
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(mount, "bin", "one")); err != nil || !bytes.Equal(got, program) {
		t.Errorf("the unpacked program has %d bytes, want %d: %v", len(got), len(program), err)
	}
}

// startContainerd starts a containerd that has nothing of the machine's one, and returns its socket.
func startContainerd(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = ['io.containerd.grpc.v1.cri']\n"+
		"[grpc]\naddress = %q\n", dir+"/root", dir+"/state", dir+"/socket")
	if err := os.WriteFile(dir+"/config.toml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command("containerd", "--config", dir+"/config.toml")
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("containerd: %v\n%s", err, log.String())
		}
	})
	// Its client waits until the socket is there, which is before containerd listens.
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("unix", dir+"/socket")
		if err == nil {
			_ = conn.Close()
			return dir + "/socket"
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// ctr runs containerd's client.
func ctr(t *testing.T, socket string, stdin *bytes.Buffer, args ...string) string {
	t.Helper()
	cmd := exec.Command("ctr", append([]string{"--address", socket}, args...)...)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("ctr %s: %v: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
