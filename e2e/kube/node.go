package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/dsnet/try"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
)

// Node is a machine of the cluster: one of the lab's, with a file system and processes of its own.
type Node struct {
	*lab.Node

	Holder                                   *lab.Process // the node's process 1: all others end with it
	Containerd, Kubelet, Flanneld, KubeProxy *lab.Process

	cluster *Cluster
	groups  groups
}

// ownFolders are empty when a node starts.
var ownFolders = []string{
	"/run", "/tmp", "/etc/cni", "/etc/containerd", "/etc/kube-flannel", "/etc/kubernetes", "/opt/cni",
	"/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/ovn-multinet", "/var/lib/rancher", "/var/log",
	"/var/snap",
}

// readyFile tells, in a node, that its file system is set up.
const readyFile = "/run/node-is-up"

// boot starts what a node has before it knows of a cluster.
func (n *Node) boot(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		n.addDefaultRoute, n.addRouteToPods, n.startHolder, n.installFlannel, n.installContainerd2, n.startContainerd, n.loadPodtool,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// join makes the node one of the cluster's.
func (n *Node) join(ctx context.Context) error {
	register := func(ctx context.Context) error { return n.register(ctx) }
	for _, step := range []func(context.Context) error{register, n.startKubelet, n.startKubeProxy, n.startFlanneld} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// addDefaultRoute gives the node the route that a program needs to try an address of the service network.
func (n *Node) addDefaultRoute(context.Context) error {
	err := n.Do(func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(lab.CentralIP)}) })
	if err != nil {
		return fmt.Errorf("add the default route: %w", err)
	}
	return nil
}

// addRouteToPods gives the API server the way to the node's pods.
func (n *Node) addRouteToPods(context.Context) error {
	return ns.WithNetNSPath(n.cluster.CentralNetNS(), func(ns.NetNS) error {
		return netlink.RouteAdd(&netlink.Route{Dst: n.PodCIDR, Gw: n.IP})
	})
}

func (n *Node) startHolder(ctx context.Context) (err error) {
	defer try.Handle(&err)
	n.groups = try.E1(openGroups(filepath.Join(n.cluster.groups.name, n.Name)))
	try.E(n.groups.make())
	dir := filepath.Join(n.cluster.own, n.Name)
	try.E(n.makeOwnFolders())
	spec := try.E1(json.Marshal(map[string]any{
		"Hostname": n.Name,
		"Dir":      dir,
		"Own":      ownFolders,
		"Binds": map[string]string{
			"/run/openvswitch": filepath.Dir(n.OVSSocket),
			n.cluster.bin:      n.cluster.bin, // the cache folder may be on another file system than the root folder
		},
		// These are the machine's: kubelet finds there what it would set.
		"ReadOnly": []string{"/proc/sys/kernel", "/proc/sys/vm"},
		"Files":    kubeletSysctls,
		"Ready":    readyFile,
	}))
	n.Holder, err = n.cluster.Lab.Run(ctx, lab.Spec{
		Name: n.Name + "/" + nodeinit, Log: n.logPath(nodeinit),
		Args: []string{n.cluster.program(nodeinit), string(spec)},
		Fork: func(cmd *exec.Cmd) error {
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC
			return lab.StartIn(n.NetNS, cmd)
		},
		Ready: func(context.Context) error {
			_, err := os.Stat(n.OwnFolder(readyFile))
			return err
		},
	})
	return err
}

// OwnFolder is where the program finds one of the node's own folders, also when the node is off.
func (n *Node) OwnFolder(folder string) string {
	return filepath.Join(n.cluster.own, n.Name, "own", folder)
}

func (n *Node) makeOwnFolders() error {
	for _, folder := range ownFolders {
		if err := os.MkdirAll(n.OwnFolder(folder), 0o755); err != nil {
			return err
		}
	}
	return os.Chmod(n.OwnFolder("/tmp"), 0o777|fs.ModeSticky)
}

func (n *Node) logPath(program string) string { return filepath.Join(n.Dir, program+".log") }

// Path is where the program finds a file of the node. Links with absolute targets lead out of the node.
func (n *Node) Path(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", n.Holder.Pid()), path)
}

// fork starts a command in all of the node's namespaces.
func (n *Node) fork(cmd *exec.Cmd) error {
	const all = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET
	return lab.OnOwnThread(func() error {
		node, err := unix.PidfdOpen(n.Holder.Pid(), 0)
		if err != nil {
			return fmt.Errorf("find the first process of %s: %w", n.Name, err)
		}
		defer unix.Close(node)
		// A thread that shares its root folder with others cannot enter a mount namespace.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Setns(node, all); err != nil {
			return fmt.Errorf("enter %s: %w", n.Name, err)
		}
		return cmd.Start()
	})
}

// daemon starts one of the node's programs.
func (n *Node) daemon(ctx context.Context, name string, ready func(context.Context) error, args ...string) (*lab.Process, error) {
	return n.cluster.Lab.Run(ctx, lab.Spec{
		Name: n.Name + "/" + name, Args: args, Env: n.env(), Log: n.logPath(name), Fork: n.fork, Ready: ready,
	})
}

func (n *Node) env() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=/tmp", "NODE_NAME=" + n.Name}
}

// Run runs a command on the node and returns what it wrote to its standard output, trimmed.
func (n *Node) Run(ctx context.Context, command ...string) (string, error) {
	return n.run(ctx, nil, command...)
}

func (n *Node) run(ctx context.Context, stdin io.Reader, command ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), n.env()...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	err := n.fork(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	out := strings.TrimSpace(stdout.String())
	if err != nil {
		return out, fmt.Errorf("on %s: %s: %w: %s", n.Name, strings.Join(command, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// writeFile writes a file of the node.
func (n *Node) writeFile(path, content string) error {
	if err := os.MkdirAll(n.Path(filepath.Dir(path)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(n.Path(path), []byte(content), 0o644)
}

// InstallConfList puts a conflist into the runtime's folder, whole or not at all. containerd does not see a file that is
// renamed in from another folder.
func (n *Node) InstallConfList(name string, content []byte) error {
	dir := n.cluster.folders.ConfLists
	hidden := filepath.Join(dir, "."+name)
	if err := n.writeFile(hidden, string(content)); err != nil {
		return err
	}
	return os.Rename(n.Path(hidden), n.Path(filepath.Join(dir, name)))
}

// InstallPlugin puts a CNI plugin into the folder of plugins.
func (n *Node) InstallPlugin(from string) (err error) {
	defer try.Handle(&err)
	b := try.E1(os.ReadFile(from))
	dir := n.cluster.folders.Plugins
	try.E(os.MkdirAll(n.Path(dir), 0o755))
	// The one that is there may run.
	hidden := n.Path(filepath.Join(dir, "."+filepath.Base(from)))
	try.E(os.WriteFile(hidden, b, 0o755))
	return os.Rename(hidden, n.Path(filepath.Join(dir, filepath.Base(from))))
}

// InstallRecorder puts the CNI plugin recorder into the folder of plugins.
func (n *Node) InstallRecorder() error { return n.InstallPlugin(n.cluster.program(recorder)) }

func (n *Node) keepPodLogs(to string) error {
	if n.Holder == nil {
		return nil
	}
	from := n.OwnFolder("/var/log/pods")
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile, or there was no pod
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(to, filepath.Dir(rel)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o644)
	})
}
