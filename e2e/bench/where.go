package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// CommitEnv has the revision that is measured; the Makefile sets it.
const CommitEnv = "OVN_MULTINET_COMMIT"

// Where is what a number depends on beside the code.
type Where struct {
	Commit, Date, Machine, Kernel, Go, OVN, OVS string

	Cores               int
	LoadBefore, LoadEnd float64 // processes that could run, as the kernel averages them over a minute
}

// Here describes this machine now.
func Here(ctx context.Context) Where {
	return Where{
		Commit: cmp.Or(os.Getenv(CommitEnv), "unknown"), Date: time.Now().UTC().Format("2006-01-02 15:04"),
		Machine: first("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`), Cores: runtime.NumCPU(),
		Kernel: first("/proc/sys/kernel/osrelease", `(.*)`), Go: runtime.Version(),
		OVN: version(ctx, "ovn-nbctl"), OVS: version(ctx, "ovs-vsctl"), LoadBefore: load(),
	}
}

// End notes the load at the end.
func (w *Where) End() { w.LoadEnd = load() }

// Busy tells whether other programs took part: then times mean nothing, and ratios little.
func (w Where) Busy() bool { return w.LoadBefore > float64(w.Cores)/2 }

// String is a line of the page.
func (w Where) String() string {
	return fmt.Sprintf("%s, %d cores, Linux %s, %s, OVN %s, OVS %s; commit %s, %s UTC; load %.1f before, %.1f at the end",
		w.Machine, w.Cores, w.Kernel, w.Go, w.OVN, w.OVS, w.Commit, w.Date, w.LoadBefore, w.LoadEnd)
}

func first(file, pattern string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	return group(pattern, string(text))
}

func group(pattern, text string) string {
	if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
		return strings.TrimSpace(m[1])
	}
	return "unknown"
}

func version(ctx context.Context, program string) string {
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "unknown"
	}
	return group(`(\d+\.\d+\.\d+)`, string(out))
}

func load() float64 {
	l, err := strconv.ParseFloat(first("/proc/loadavg", `^(\S+)`), 64)
	if err != nil {
		return -1
	}
	return l
}
