package lab

import (
	"context"
	"os/exec"
)

// A Spec describes a process that is not one of the lab's own.
type Spec struct {
	Name  string // in errors
	Args  []string
	Env   []string // beside the program's own
	Log   string   // path; KeepLogs takes it when it is below the lab's Dir and ends in .log
	NetNS string   // path; the program's own when empty
	// Fork starts the command elsewhere than on a thread that is in NetNS.
	Fork  func(*exec.Cmd) error
	Ready func(context.Context) error // nil: ready once started
}

// Run starts a process that Close ends, and waits until it is ready. The process is returned also when it did not
// become ready: it may be started again.
func (l *Lab) Run(ctx context.Context, s Spec) (*Process, error) {
	if s.NetNS == "" && s.Fork == nil {
		s.Fork = (*exec.Cmd).Start
	}
	return l.run(ctx, &Process{
		Name: s.Name, netns: s.NetNS, args: s.Args, env: s.Env, log: s.Log, fork: s.Fork, ready: s.Ready,
	})
}

// CentralNetNS is the path of the namespace of the databases; it is on the node network.
func (l *Lab) CentralNetNS() string { return l.central }

// CentralIP is the address of the central namespace on the node network.
const CentralIP = centralIP

// Binaries tells what the lab runs.
func (l *Lab) Binaries() Binaries { return l.bins }

// StartIn starts the command in the network namespace at path.
func StartIn(netns string, cmd *exec.Cmd) error { return startIn(netns, cmd) }
