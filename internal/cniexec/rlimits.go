package cniexec

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Limits bound what a program and all that it starts may use.
type Limits struct {
	Tasks  int   // processes and threads, of all together, where this node has control groups for them
	Memory int64 // bytes, of all together, likewise; both 0: without control groups
	Each   Rlimits
	// Lenient: the program runs without control groups if this node has controllers for them and refuses to make one.
	Lenient bool
}

func (l *Limits) tasksInWords() string { return fmt.Sprintf("%d processes and threads", l.Tasks) }

func (l *Limits) memoryInWords() string { return fmt.Sprintf("%d MiB of memory", l.Memory>>20) }

// Rlimits bound each process by itself, with or without control groups. RLIMIT_NPROC is none of them: it does not
// bind root.
type Rlimits struct {
	Data     uint64 // bytes of private memory that it can write
	CPU      uint64 // seconds
	FileSize uint64 // bytes
	Files    uint64 // that it has open
}

// DelegateLimits are those of a delegate: far above what CNI plugins take, which is some 10 MiB in 2 processes of
// 10 threads.
var DelegateLimits = Limits{
	Tasks: 512, Memory: 256 << 20, Each: Rlimits{Data: 1 << 30, CPU: 60, FileSize: 1 << 30, Files: 1024},
}

func (r *Rlimits) all() map[int]uint64 {
	return map[int]uint64{
		unix.RLIMIT_CORE: 0, unix.RLIMIT_DATA: r.Data, unix.RLIMIT_CPU: r.CPU, unix.RLIMIT_FSIZE: r.FileSize, unix.RLIMIT_NOFILE: r.Files,
	}
}

// rlimits are limits of this process, by their number.
type rlimits map[int]unix.Rlimit

// lend gives the limits to this process, whose children inherit them, until they are restored. Only the soft
// limits: without CAP_SYS_RESOURCE this process would not get its hard ones back.
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

// keep lowers the hard limits too, so that the process cannot raise them again.
func (r *Rlimits) keep(pid int) {
	for number, limit := range r.all() {
		_ = unix.Prlimit(pid, number, &unix.Rlimit{Cur: limit, Max: limit}, nil)
	}
}
