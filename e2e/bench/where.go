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

	Cores int
	// InUse is the share of the CPU time that was in use just before: by other programs, and by what the part had started.
	InUse float64
}

// Here describes this machine now.
func Here(ctx context.Context) Where {
	return Where{
		Commit: cmp.Or(os.Getenv(CommitEnv), "unknown"), Date: time.Now().UTC().Format("2006-01-02 15:04"),
		Machine: first("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`), Cores: runtime.NumCPU(),
		Kernel: first("/proc/sys/kernel/osrelease", `(.*)`), Go: runtime.Version(),
		OVN: version(ctx, "ovn-nbctl"), OVS: version(ctx, "ovs-vsctl"), InUse: inUse(2 * time.Second),
	}
}

// Busy reports whether other programs took part: then times mean nothing, and ratios little.
func (w Where) Busy() bool { return w.InUse > 0.2 }

// String is a line of the page.
func (w Where) String() string {
	return fmt.Sprintf("%s, %d cores, Linux %s, %s, OVN %s, OVS %s; commit %s, %s UTC; %.0f %% of the CPU in use just before",
		w.Machine, w.Cores, w.Kernel, w.Go, w.OVN, w.OVS, w.Commit, w.Date, 100*w.InUse)
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

// inUse measures for a while which share of the CPU time is in use.
func inUse(period time.Duration) float64 {
	used, all := cpuTime()
	time.Sleep(period)
	usedAfter, allAfter := cpuTime()
	return (usedAfter - used) / max(1, allAfter-all)
}

// cpuTime returns the CPU time of all cores since the boot, in ticks (proc_stat(5)): in use, and with the idle time.
func cpuTime() (used, all float64) {
	for i, field := range strings.Fields(first("/proc/stat", `^cpu +(.*)`)) {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil || i > 7 { // guest time is part of user time
			break
		}
		all += ticks
		if i != 3 && i != 4 { // idle and iowait
			used += ticks
		}
	}
	return used, all
}
