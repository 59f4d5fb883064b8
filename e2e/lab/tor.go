package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dsnet/try"
)

// The way of a node to the outside world, with Options.Physical.
const (
	providerBridge = "br-ex" // owns ext0
	providerNIC    = "ext0"
	torBridge      = "tor"
)

// tor is the switch at the top of the rack, outside of everything that OVN knows: an Open vSwitch of its own, for the
// kernel's bridge cannot do VLANs here. Its ports to the nodes are trunks, those to machines outside are access ports.
type tor struct {
	lab    *Lab
	netns  string
	socket string // of its database
}

func (l *Lab) startTor(ctx context.Context) error {
	netns, err := l.makeNetNS("tor")
	if err != nil {
		return err
	}
	t := &tor{lab: l, netns: netns, socket: filepath.Join(l.Dir, "tor", "db.sock")}
	if err := t.start(ctx); err != nil {
		return fmt.Errorf("start the switch outside: %w", err)
	}
	l.tor = t
	return nil
}

func (t *tor) start(ctx context.Context) (err error) {
	defer try.Handle(&err)
	dir := filepath.Dir(t.socket)
	try.E(os.Mkdir(dir, 0o755))
	try.E(createOVSDB(ctx, dir))
	try.E(t.run(ctx, "ovsdb-server", accepts(t.socket), ovsdbArgs(t.socket)))
	try.E1(t.vsctl(ctx, "--no-wait", "--", "init", "--", "add-br", torBridge,
		"--", "set", "Bridge", torBridge, "datapath_type="+userspace))
	return t.run(ctx, "ovs-vswitchd", hasLink(t.netns, torBridge), vswitchdArgs(t.socket, userspace))
}

func (t *tor) run(ctx context.Context, name string, ready func(context.Context) error, args []string) error {
	dir := filepath.Dir(t.socket)
	_, err := t.lab.run(ctx, &Process{
		Name: "tor/" + name, netns: t.netns, env: daemonEnv(dir), log: filepath.Join(dir, name+".log"),
		args: append(args, logToConsole...), ready: ready,
	})
	return err
}

func (t *tor) vsctl(ctx context.Context, args ...string) (string, error) {
	return tool(ctx, "ovs-vsctl", append([]string{"--db=unix:" + t.socket, timeoutArg(ctx)}, args...)...)
}

// plug makes a veth from the switch to a namespace. The settings are of the switch's port; none make it a trunk of all
// VLANs.
func (t *tor) plug(ctx context.Context, port, netns, name string, settings ...string) error {
	err := addNIC(t.netns, netns, nic{name: name, port: port, mtu: nodeNetMTU})
	if err != nil {
		return err
	}
	args := []string{"add-port", torBridge, port}
	if len(settings) > 0 {
		args = append(append(args, "--", "set", "Port", port), settings...)
	}
	if _, err := t.vsctl(ctx, args...); err != nil {
		return fmt.Errorf("plug %s into the switch outside: %w", port, err)
	}
	return checksumsOff(netns, name)
}

// unplug takes a port away, and with it both ends of its veth. Absent is fine.
func (t *tor) unplug(ctx context.Context, port string) error {
	_, err := t.vsctl(ctx, "--if-exists", "del-port", torBridge, port)
	return errors.Join(err, inNetNS(t.netns, func() error { return deleteLink(port) }))
}

// trunk is the switch's port to a node.
func (n *Node) trunk() string { return fmt.Sprintf("trunk%d", n.Index) }
