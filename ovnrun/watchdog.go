package ovnrun

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/ovn-multinet/ovn-multinet/internal/unixctl"
)

const (
	// askEvery is the time between two questions to a daemon. It has half of it for an answer.
	askEvery = 15 * time.Second
	// maxSilent is how many questions in a row a daemon leaves without an answer, and without computing, until it is
	// ended.
	maxSilent = 3
)

// watchdog ends a daemon that hangs, so that kubelet starts its container again. A daemon that computes for long does
// not answer either, such as a database that loads or an ovn-controller with many flows. It uses CPU, and goes on.
type watchdog struct {
	child   *child
	control string // the daemon's control socket
	every   time.Duration
	log     *slog.Logger
}

// watch makes a watchdog of a daemon, which runs until the end of ctx.
func (c *child) watch(ctx context.Context, control string, log *slog.Logger) {
	(&watchdog{c, control, askEvery, log}).run(ctx)
}

func (w *watchdog) run(ctx context.Context) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	pid := w.child.cmd.Process.Pid
	for silent, used := 0, uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := cpuOf(pid)
		if err != nil {
			return // it has ended
		}
		if silent++; now != used || w.answers(ctx) {
			silent, used = 0, now
			continue
		}
		if silent >= maxSilent && ctx.Err() == nil {
			w.log.Error("the daemon neither answers nor computes; ending it", "program", w.child.cmd.Args[0],
				"questions", silent)
			_ = w.child.cmd.Process.Kill()
			return
		}
	}
}

func (w *watchdog) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, w.every/2)
	defer cancel()
	_, err := unixctl.Call(ctx, w.control, "version")
	return err == nil
}

// cpuOf returns the CPU time that a process has used, in the clock ticks of proc_pid_stat(5).
func cpuOf(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may contain blanks. Fields 14 and 15 are utime and stime.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 || fields[0][0] == 'Z' {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	user, err := strconv.ParseUint(string(fields[11]), 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseUint(string(fields[12]), 10, 64)
	return user + system, err
}
