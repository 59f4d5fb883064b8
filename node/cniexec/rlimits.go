package cniexec

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Limits bound what a program and all that it starts may use.
type Limits struct {
	Tasks  int   // processes and threads of all together; needs a control group
	Memory int64 // bytes of all together; needs a control group; both 0: no control groups
	Each   Rlimits
	// Lenient: the program runs without control groups if this node has controllers but refuses to make a group.
	Lenient bool
}

func (l *Limits) tasksInWords() string { return fmt.Sprintf("%d processes and threads", l.Tasks) }

func (l *Limits) memoryInWords() string { return fmt.Sprintf("%d MiB of memory", l.Memory>>20) }

// Rlimits bound each process separately, with or without control groups. There is no RLIMIT_NPROC, because it does
// not bind root.
type Rlimits struct {
	Data     uint64 // bytes of private memory that the process can write
	CPU      uint64 // seconds
	FileSize uint64 // bytes
	Files    uint64 // open files
}

// DelegateLimits are the limits of a delegate. CNI plugins use far less: about 10 MiB in 2 processes with 10 threads.
var DelegateLimits = Limits{
	Tasks: 512, Memory: 256 << 20, Each: Rlimits{Data: 1 << 30, CPU: 60, FileSize: 1 << 30, Files: 1024},
}

func (r *Rlimits) all() map[int]uint64 {
	return map[int]uint64{
		unix.RLIMIT_CORE: 0, unix.RLIMIT_DATA: r.Data, unix.RLIMIT_CPU: r.CPU,
		unix.RLIMIT_FSIZE: r.FileSize, unix.RLIMIT_NOFILE: r.Files,
	}
}

// rlimits are the resource limits of this process, by their number.
type rlimits map[int]unix.Rlimit

// lend sets the limits of this process, whose children inherit them, until restore. It sets only the soft limits:
// without CAP_SYS_RESOURCE, this process could not restore its hard limits.
func (r *Rlimits) lend() rlimits {
	before := rlimits{}
	for number, limit := range r.all() {
		var now unix.Rlimit
		if unix.Getrlimit(number, &now) != nil {
			continue
		}
		before[number] = now
		_ = unix.Setrlimit(number, &unix.Rlimit{Cur: min(limit, now.Cur), Max: now.Max})
	}
	return before
}

func (r rlimits) restore() {
	for number, limit := range r {
		_ = unix.Setrlimit(number, &limit)
	}
}

// keep also sets the hard limits of the process, so that the process cannot raise its limits.
func (r *Rlimits) keep(pid int) {
	for number, limit := range r.all() {
		_ = unix.Prlimit(pid, number, &unix.Rlimit{Cur: limit, Max: limit}, nil)
	}
}
