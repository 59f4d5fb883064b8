package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/internal/failpoint"
)

// StartAgent runs ovn-multinetd on the node and waits until its socket answers. env is added to its
// environment, and stays for later starts.
func (n *Node) StartAgent(ctx context.Context, env ...string) error {
	if n.Agent != nil {
		n.Agent.env = append(n.Agent.env, env...)
		return n.Agent.start(ctx)
	}
	path, err := n.lab.binary("ovn-multinetd")
	if err != nil {
		return err
	}
	n.Agent, err = n.lab.run(ctx, &Process{
		Name: n.Name + "/ovn-multinetd", netns: n.NetNS, env: env, log: filepath.Join(n.Dir, "agent.log"),
		args: slices.Concat([]string{path, "--node-name", n.Name, "--manifests", n.lab.Manifests,
			"--socket", n.AgentSocket, "--state-dir", n.StateDir, "--ovs-socket", n.OVSSocket,
			"--pod-resources-socket", n.PodResources, "--log-level", "debug"}, n.lab.nb.ofOurs(n.NBEndpoint), n.AgentArgs),
		ready: accepts(n.AgentSocket),
	})
	return err
}

// StopAgent ends the agent with SIGTERM.
func (n *Node) StopAgent(ctx context.Context) error {
	if n.Agent == nil {
		return nil
	}
	return n.Agent.Stop(ctx)
}

// KillAgent ends the agent with SIGKILL.
func (n *Node) KillAgent() error {
	if n.Agent == nil {
		return nil
	}
	return n.Agent.Kill()
}

// StartAgents starts the agent of every node.
func (l *Lab) StartAgents(ctx context.Context) error {
	l.step("starting the agents")
	var all errgroup.Group
	for _, n := range l.Nodes {
		all.Go(func() error { return n.StartAgent(ctx) })
	}
	return all.Wait()
}

// connectedTo reports whether the process's namespace has an established TCP connection of the process to the
// port: that the process itself holds it, its open sockets say.
func (p *Process) connectedTo(port string) (err error) {
	defer try.Handle(&err)
	sockets := try.E1(p.sockets())
	want := try.E1(strconv.Atoi(port))
	table := try.E1(os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", p.Pid())))
	const established = "01"
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // number, local, remote, state, ..., inode at 9
		if len(f) > 9 && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", want)) && f[3] == established && sockets[f[9]] {
			return nil
		}
	}
	return errNotConnected
}

func (p *Process) sockets() (map[string]bool, error) {
	dir := fmt.Sprintf("/proc/%d/fd", p.Pid())
	fds, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	inodes := map[string]bool{}
	for _, fd := range fds {
		target, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes, nil
}

// AcrossKill runs call while the agent is one that ends by SIGKILL at a failpoint; when it has, another takes its place, as its
// DaemonSet has it. ended is how the first one ended.
func (n *Node) AcrossKill(ctx context.Context, point string, call func() error) (ended, err error) {
	if err := errors.Join(n.StopAgent(ctx), n.StartAgent(ctx, failpoint.Env+"="+point)); err != nil {
		return nil, err
	}
	called := make(chan error, 1)
	go func() { called <- call() }()
	ended = n.Agent.Wait(ctx)
	if err := n.StartAgent(ctx, failpoint.Env+"="); err != nil {
		return ended, err
	}
	return ended, <-called
}
