//go:build bench

package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dsnet/try"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/kube"
	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
	"github.com/ovn-multinet/ovn-multinet/ovndb/ovndbtest"
)

// How much is measured.
var (
	turns   = flag.Int("turns", 20, "turns of each comparison")
	herd    = flag.Int("herd", 250, "pods of the herd")
	most    = flag.Int("ports", 100_000, "ports of the largest NB")
	tenants = flag.Int("tenants", 200, "namespaces with policies, of 50 pods each")
	served  = flag.Int("services", 5000, "Services on networks")
	thick   = flag.Bool("thick", true, "compare with Multus' daemon too")
	results = flag.String("results", "", "folder for the results; empty: only log them")
)

// peersEnv is the folder with the programs that we are compared with, told to the inner process.
const peersEnv = "OVN_MULTINET_BENCH_PEERS"

// patience bounds a measurement that hangs.
const patience = 30 * time.Minute

// quickEnv has the counts alone run, which need neither Kubernetes nor peers: their builds take long.
const quickEnv = "OVN_MULTINET_BENCH_QUICK"

func TestMain(m *testing.M) {
	if os.Getenv(quickEnv) != "" {
		lab.Main(m)
	}
	kube.Main(m, lab.Around(buildPeers))
}

// buildPeers makes Multus, once per version, and the empty program.
func buildPeers(ctx context.Context) (_ func() error, err error) {
	defer try.Handle(&err)
	root := filepath.Join(try.E1(lab.ModuleRoot()), "e2e", "bench")
	module := filepath.Join(root, "multus")
	sums := strings.Fields(string(try.E1(os.ReadFile(filepath.Join(module, "go.sum")))))
	key := "v4.2.2-" + fmt.Sprint(len(sums))
	dir := try.E1(buildcache.Entry("multus", key, func(dir string) error {
		fmt.Fprintln(os.Stderr, "building Multus: some minutes, once per version")
		return errors.Join(lab.GoBuild(ctx, module, "-trimpath", "-ldflags=-s -w", "-o", dir+"/", "tool"),
			lab.GoBuild(ctx, root, "-trimpath", "-ldflags=-s -w", "-o", dir+"/", "./empty"))
	}))
	return nil, os.Setenv(peersEnv, dir)
}

func peer(program string) string { return filepath.Join(os.Getenv(peersEnv), program) }

// report is the part that a test measures. It is written when the test has not failed.
func report(t *testing.T, name, title, text string) *Part {
	p := &Part{Name: name, Title: title, Text: text, Where: Here(t.Context())}
	t.Cleanup(func() {
		for _, r := range p.Rows {
			t.Log(strings.TrimSpace(r.line(true)))
		}
		if t.Failed() || *results == "" {
			return
		}
		if err := p.Write(*results); err != nil {
			t.Error(err)
		}
	})
	return p
}

// overTLS has agents and controllers that start from now on use NB over TLS with client certificates.
func overTLS(t testing.TB, l *lab.Lab) {
	server, client := ovndbtest.Certificates(t, lab.CentralIP)
	must(t, l.UseNBOverTLS(t.Context(), server, client))
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// cost is what something took.
type cost struct {
	wall, cpu time.Duration
	faults    int64 // of pages, without reading from a disk
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// cpuOf is the CPU time that a process has used, to the nanosecond, and that of its children that ended, to the tick.
func cpuOf(pid int) (time.Duration, error) {
	var ts unix.Timespec
	const schedClock = 2 // CPUCLOCK_SCHED of the kernel: clocks of other processes
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	var user, system int64
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if _, err := fmt.Sscan(fields[13]+" "+fields[14], &user, &system); err != nil { // cutime, cstime of proc(5)
		return 0, err
	}
	const tick = 10 * time.Millisecond
	return time.Duration(ts.Nano()) + time.Duration(user+system)*tick, nil
}

// peak is the largest memory of a process since resetPeak, in MB.
func peak(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	var kb float64
	_, err = fmt.Sscan(group(`VmHWM:\s*(\d+) kB`, string(status)), &kb)
	return kb / 1000, err
}

func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o200)
}

// timed runs a program in a network namespace.
func timed(netns, stdin string, env []string, path string, args ...string) (cost, error) {
	cmd := command(stdin, env, path, args...)
	began := time.Now()
	err := lab.StartIn(netns, cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return cost{}, fmt.Errorf("%s: %w: %s", path, err, cmd.Stdout)
	}
	c := cost{wall: time.Since(began)}
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.cpu, c.faults = time.Duration(u.Utime.Nano()+u.Stime.Nano()), u.Minflt
	}
	return c, nil
}

// ownCPU is the CPU time that this process has used.
func ownCPU(t testing.TB) time.Duration {
	var u unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func stopwatch(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}
