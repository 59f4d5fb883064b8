package install

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/plainfile"
)

// parts are the programs that this test's own binary is when it is run again: by the name in partVariable.
var parts = map[string]func(args []string) error{
	"sleep": func([]string) error { // as a plugin that runs while its file is replaced
		fmt.Println("runs")
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	},
	"run":   runOnSmallDisk,
	"blind": runWithoutInotify,
}

const partVariable = "INSTALL_TEST_PART"

func TestMain(m *testing.M) {
	part := parts[os.Getenv(partVariable)]
	if part == nil {
		os.Exit(m.Run())
	}
	if err := part(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is another process of this test.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines <-chan string
}

// start runs a part in the program at path.
func start(t *testing.T, part, path string, args ...string) *child {
	t.Helper()
	return startIn(t, nil, part, path, args...)
}

// startIn is start with attributes of the process.
func startIn(t *testing.T, attr *syscall.SysProcAttr, part, path string, args ...string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(path, args...)}
	c.cmd.SysProcAttr = attr
	c.cmd.Env = append(os.Environ(), partVariable+"="+part)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.lines = linesOf(stdout)
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

// says wants a line with the words next.
func (c *child) says(words string) {
	c.t.Helper()
	hears(c.t, c.lines, words)
}

// hears wants a line with the words next.
func hears(t *testing.T, lines <-chan string, words string) {
	t.Helper()
	select {
	case line := <-lines:
		if !strings.Contains(line, words) {
			t.Fatalf("it says %q, want %q", line, words)
		}
	case <-time.After(time.Minute):
		t.Fatalf("it does not say %q", words)
	}
}

// TestKilledWhileWriting: the next installer deletes the temporary files of one that was killed, also those of older versions.
func TestKilledWhileWriting(t *testing.T) {
	c := node(t)
	write(t, c.primary(), flannel)
	for _, path := range []string{c.conflist(), c.binary()} {
		write(t, path, "the old one")
		write(t, plainfile.Temporary(path), "half of the new")
		write(t, plainfile.Temporary(path)+".1234", "half of the new") // an older version's
	}
	write(t, filepath.Join(c.NetDir, ".of-somebody-else"), "")
	stop := running(t, c, io.Discard)
	until(t, "the conflist is there", func() bool { _, err := roundOf([]byte(read(c.conflist()))); return err == nil })
	stop()
	files(t, c.NetDir, ".of-somebody-else", conf.ConflistName, "10-flannel.conflist")
	files(t, c.BinDir, PluginName)
}

// TestBinaryReplacedWhileItRuns: a plugin that runs goes on with its own text, and the next call has the new one.
// Writing into the file instead is refused by the kernel.
func TestBinaryReplacedWhileItRuns(t *testing.T) {
	c := node(t)
	self, err := os.Executable()
	must(t, err)
	text, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(c.binary(), text, 0o755))
	plugin := start(t, "sleep", c.binary())
	plugin.says("runs")
	if err := os.WriteFile(c.binary(), []byte("x"), 0o755); !errors.Is(err, syscall.ETXTBSY) {
		t.Fatalf("writing into a program that runs: %v", err)
	}
	running(t, c, io.Discard)
	until(t, "the plugin is replaced", func() bool { return read(c.binary()) == "the new plugin" })
	_, err = io.WriteString(plugin.stdin, "still here\n")
	must(t, err)
	plugin.says("still here")
	must(t, plugin.stdin.Close())
	if err := plugin.cmd.Wait(); err != nil {
		t.Errorf("the old plugin ended with %v", err)
	}
}

// TestBinaryRestored: our conflist has the runtime call the plugin for every pod, so one that somebody deletes or
// changes comes back.
func TestBinaryRestored(t *testing.T) {
	c := node(t)
	running(t, c, io.Discard)
	until(t, "the plugin is there", func() bool { return read(c.binary()) == "the new plugin" })
	must(t, os.Remove(c.binary()))
	until(t, "a deleted plugin is back", func() bool { return read(c.binary()) == "the new plugin" })
	write(t, c.binary(), "another")
	until(t, "a changed plugin is as it was", func() bool { return read(c.binary()) == "the new plugin" })
	restored, err := os.Stat(c.binary())
	must(t, err)
	until(t, "the file system's clock goes on", func() bool { // it may stand for milliseconds
		write(t, c.Plugin+"-tick", "")
		now, err := os.Stat(c.Plugin + "-tick")
		return err == nil && now.ModTime().After(restored.ModTime())
	})
	write(t, c.binary(), "the bad plugin") // of the same size
	until(t, "a plugin that was changed a little is as it was",
		func() bool { return read(c.binary()) == "the new plugin" })
	for n := range 300 { // by another installer, as fast as it can
		write(t, c.Plugin+"-other", fmt.Sprintf("another %d", n))
		must(t, os.Rename(c.Plugin+"-other", c.binary()))
		until(t, "an exchanged plugin is as it was", func() bool { return read(c.binary()) == "the new plugin" })
	}
	must(t, os.Chmod(c.binary(), 0o644))
	until(t, "a plugin that could not be run can", func() bool {
		info, err := os.Stat(c.binary())
		return err == nil && info.Mode() == 0o755
	})
}

// TestSmallDisk: a conflist that cannot be written is a line in the log, the one that is there stays, and once there
// is room the installer goes on by itself, without an event.
func TestSmallDisk(t *testing.T) {
	c := node(t)
	text, err := json.Marshal(c)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	write(t, c.primary(), flannel)
	write(t, c.conflist(), "the old one")
	i := start(t, "run", self, string(text))
	i.says(`msg="plugin installed"`)
	i.says("file too large")
	if read(c.conflist()) != "the old one" {
		t.Errorf("our conflist is %q", read(c.conflist()))
	}
	_, err = io.WriteString(i.stdin, "\n") // there is room now
	must(t, err)
	i.says(`msg="in sync with 10-flannel.conflist"`)
	if _, err := roundOf([]byte(read(c.conflist()))); err != nil {
		t.Errorf("our conflist: %v", err)
	}
	must(t, i.stdin.Close())
	if err := i.cmd.Wait(); err != nil {
		t.Error(err)
	}
	files(t, c.NetDir, conf.ConflistName, "10-flannel.conflist")
}

// runOnSmallDisk runs the installer with files of at most 100 bytes, and with no limit from the first line of its
// input on; it ends with its input.
func runOnSmallDisk(args []string) error {
	var c Config
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	small := limit
	small.Cur = 100
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		input := bufio.NewScanner(os.Stdin)
		if input.Scan() {
			_ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit) // the test waits for it in vain
		}
		for input.Scan() {
		}
		cancel()
	}()
	return Run(ctx, c, slog.New(slog.NewTextHandler(os.Stdout, nil)))
}

// TestWithoutInotify: on a node whose programs have taken all inotify instances, or all watches, changes are found by
// looking.
func TestWithoutInotify(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	for _, limit := range []string{"max_inotify_instances", "max_inotify_watches"} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			c := node(t)
			text, err := json.Marshal(c)
			must(t, err)
			write(t, c.primary(), round(1))
			root := []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
			i := startIn(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: root}, "blind", self,
				string(text), limit)
			i.says(`msg="plugin installed"`)
			i.says("level=WARN msg=\"the node has no inotify instances or watches left")
			i.says(`msg="in sync with 10-flannel.conflist"`)
			write(t, c.primary(), round(2))
			until(t, "the change is found", func() bool {
				n, err := roundOf([]byte(read(c.conflist())))
				return err == nil && n == 2
			})
			must(t, i.stdin.Close())
			if err := i.cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// runWithoutInotify runs the installer in a user namespace that has none of what args[1] limits, until the end of its
// input.
func runWithoutInotify(args []string) error {
	var c Config
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join("/proc/sys/user", args[1]), []byte("0"), 0); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it says nothing
		cancel()
	}()
	return Run(ctx, c, slog.New(slog.NewTextHandler(os.Stdout, nil)))
}

// linesOf hands out lines as they are written.
func linesOf(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}
