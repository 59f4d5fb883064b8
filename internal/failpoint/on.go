//go:build failpoint

// Package failpoint, built with the tag failpoint: the process that reaches the point named in Env ends by
// SIGKILL there, as if the machine had lost its power.
package failpoint

import (
	"os"
	"syscall"
)

// Env is the environment variable that names the failpoint to die at.
const Env = "OVN_MULTINET_FAILPOINT"

// Hit kills the process when name is the failpoint that Env asks for.
func Hit(name string) {
	if os.Getenv(Env) != name {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal arrives
}
