package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// host is a network namespace that commands run in: a pod's or a machine's.
type host struct {
	NetNS string // path below /run/netns
	lab   *Lab
	name  string // in errors, and of its processes
	logs  string // folder of the logs of its processes
}

// newHost makes a network namespace with lo up.
func (l *Lab) newHost(netns, name, logs string) (host, error) {
	path, err := l.makeNetNS(netns)
	return host{NetNS: path, lab: l, name: name, logs: logs}, err
}

// Do calls f on a thread that is in the network namespace.
func (h host) Do(f func() error) error { return inNetNS(h.NetNS, f) }

// Exec runs a command in the network namespace and returns what the command wrote to both its streams.
func (h host) Exec(ctx context.Context, command ...string) (string, error) {
	out, err := runIn(h.NetNS, exec.CommandContext(ctx, command[0], command[1:]...))
	if err != nil {
		return out, fmt.Errorf("on %s: %v: %w: %s", h.name, command, err, out)
	}
	return out, nil
}

// Start runs a command in the network namespace until the command is stopped or the lab is closed. Each process has a
// log of its own.
func (h host) Start(ctx context.Context, command ...string) (*Process, error) {
	program := filepath.Base(command[0])
	if err := os.MkdirAll(h.logs, 0o755); err != nil {
		return nil, err
	}
	log, err := os.CreateTemp(h.logs, strings.ReplaceAll(h.name, "/", ".")+"."+program+".*.log")
	if err != nil {
		return nil, err
	}
	_ = log.Close()
	return h.lab.run(ctx, &Process{Name: h.name + "/" + program, netns: h.NetNS, args: command, log: log.Name()})
}
