package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsnet/try"
	"github.com/ovn-multinet/ovn-multinet/internal/buildcache"
	"golang.org/x/sync/errgroup"
)

// The two networks between nodes. The third byte is 1 for nodes, 0 for the central namespace.
const (
	nodeNetMTU  = 1500
	underlayMTU = 1600
	centralIP   = "172.31.0.1"
	nbPort      = "6641"
	nbTLSPort   = "6643"
	sbPort      = "6642"
	maxNodes    = 250
)

// upPatience bounds what takes a second or two on a machine of its own, and much longer on one that is emulated.
const upPatience = 10 * time.Minute

// Options of a lab. The zero value is a lab of one node.
type Options struct {
	Name       string // default: the program's name and a number; in paths, so keep it short
	Nodes      int    // default 1
	CNIVersion string // of every node's conflist; default 1.0.0
	// PrimaryOnly leaves our entry out of the conflist, so that the chain is Flannel's alone.
	PrimaryOnly bool
	// BareNodes leaves Flannel's routes and files out: the nodes get a pod network by other means.
	BareNodes bool
	// Physical is the name of a provider's network. With it every node has a bridge br-ex with a NIC ext0 that the name
	// is mapped to, and Lab.Outside makes machines beyond it.
	Physical string
	// KernelDatapath has the nodes' Open vSwitch use the kernel's datapath instead of its own.
	KernelDatapath bool
	// OwnRoutes has the userspace datapath take the route of the tunnels from the lab, and not from the kernel. Otherwise
	// ovs-vswitchd reads all routes again whenever a link or a route of the node changes, and loses packets of tunnels
	// meanwhile. An ovs-vswitchd that is started again has no route. OVN 25.03 cannot do without the kernel's routes, as
	// its tunnels have a local_ip.
	OwnRoutes bool
	// NodeHere has the first node live in the program's own network namespace, where a machine's NICs are. The program has
	// to call Main or Enter with WithMachineNetwork, and what the node makes there goes with the machine only.
	NodeHere bool
	// WithoutOVN leaves OVN and Open vSwitch out: the caller brings them.
	WithoutOVN bool
	// NB starts a Northbound database in place of the lab's own. It is called when the central namespace is there; what it
	// starts is not for Close to end.
	NB func(l *Lab) NB
	// PluginConf may change our entry of a node's conflist.
	PluginConf func(n *Node, entry map[string]any)
	// Step is told in plain words what is being done.
	Step func(format string, args ...any)
}

// Lab is a running OVN: the central databases and N nodes.
type Lab struct {
	Name      string
	Dir       string // everything of this lab; gone after Close
	Manifests string // Pods and NetworkAttachmentDefinitions as YAML, for all agents and the controller
	Nodes     []*Node

	NB, SB, Northd *Process // NB is nil with Options.NB
	Controller     *Process // nil until StartController
	ControllerArgs []string // beside the lab's own; taken by StartController

	nb              NB
	fabric, central string // paths of network namespaces
	bins            Binaries
	tor             *tor // nil without an outside world
	bare            bool
	datapath        string // of all bridges, as Open vSwitch calls its type
	ownRoutes       bool
	withoutOVN      bool
	step            func(format string, args ...any)

	mu     sync.Mutex
	procs  []*Process
	netns  map[string]bool
	closed bool
}

var labCount atomic.Int64

// New brings a lab up: every node has its chassis in SB and its tunnels to the others. Agents and the
// controller are not started. When it fails, the processes' logs stay in the cache folder and the error names
// it.
func New(ctx context.Context, o Options) (*Lab, error) {
	if !inside {
		return nil, errors.New("lab.New outside of the lab's namespaces: call lab.Main or lab.Enter first")
	}
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Nodes < 0 || o.Nodes > maxNodes {
		return nil, fmt.Errorf("a lab has 1 to %d nodes, not %d", maxNodes, o.Nodes)
	}
	l := &Lab{Name: o.Name, netns: map[string]bool{}, bare: o.BareNodes, withoutOVN: o.WithoutOVN, datapath: userspace, step: o.Step}
	if o.KernelDatapath {
		l.datapath = kernel
	}
	l.ownRoutes = o.OwnRoutes && !o.KernelDatapath
	if l.Name == "" {
		program := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
		l.Name = fmt.Sprintf("%.20s-%d", program, labCount.Add(1))
	}
	if l.step == nil {
		l.step = func(string, ...any) {}
	}
	l.bins = Binaries{Ours: os.Getenv(binEnv), CNI: os.Getenv(cniEnv)}
	l.Dir = filepath.Join(runDir, l.Name)
	l.Manifests = filepath.Join(l.Dir, "manifests")
	if err := os.Mkdir(l.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("a second lab of one name: %w", err)
	}
	if err := l.up(ctx, o); err != nil {
		dir, logErr := l.KeepLogs("")
		err = fmt.Errorf("bring the lab up: %w (logs are in %s)", err, dir)
		return nil, errors.Join(err, logErr, l.Close())
	}
	return l, nil
}

func (l *Lab) up(ctx context.Context, o Options) (err error) {
	defer try.Handle(&err)
	ctx, cancel := context.WithTimeout(ctx, upPatience)
	defer cancel()
	try.E(os.Mkdir(l.Manifests, 0o755))
	try.E(l.makeFabric())
	if l.nb = l.ownNB(); o.NB != nil {
		l.nb = o.NB(l)
	}
	if o.Physical != "" {
		try.E(l.startTor(ctx))
	}
	for i := range o.Nodes {
		n := try.E1(l.newNode(i+1, o))
		l.Nodes = append(l.Nodes, n)
	}
	if l.withoutOVN {
		for _, n := range l.Nodes {
			try.E(n.startWithoutOVN(ctx))
		}
		return nil
	}
	l.step("starting OVN's central databases and %d nodes", o.Nodes)
	central, all := make(chan struct{}), new(errgroup.Group)
	all.Go(func() error {
		defer close(central)
		return l.startCentral(ctx)
	})
	for _, n := range l.Nodes {
		all.Go(func() error { return n.start(ctx, central) })
	}
	try.E(all.Wait())
	l.step("waiting for the tunnels between the nodes")
	for _, n := range l.Nodes {
		all.Go(func() error { return n.waitForTunnels(ctx) })
	}
	return all.Wait()
}

func (l *Lab) makeFabric() (err error) {
	defer try.Handle(&err)
	l.fabric = try.E1(l.makeNetNS("fabric"))
	l.central = try.E1(l.makeNetNS("central"))
	try.E(inNetNS(l.fabric, func() error {
		return errors.Join(addBridge("nodes", nodeNetMTU), addBridge("underlay", underlayMTU))
	}))
	addr := &net.IPNet{IP: net.ParseIP(centralIP).To4(), Mask: net.CIDRMask(16, 32)}
	return addNIC(l.fabric, l.central, nic{name: "eth0", port: "central", via: "nodes", mtu: nodeNetMTU, addr: addr})
}

// makeNetNS makes a namespace that Close removes.
func (l *Lab) makeNetNS(name string) (string, error) {
	return l.keepNetNS(makeNetNS(l.Name + "-" + name))
}

// nameOwnNetNS gives the program's own network namespace a name that Close removes.
func (l *Lab) nameOwnNetNS(name string) (string, error) {
	return l.keepNetNS(nameNetNS(l.Name+"-"+name, "/proc/thread-self/ns/net"))
}

func (l *Lab) keepNetNS(path string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.netns[path] = true
	return path, nil
}

func (l *Lab) removeNetNS(path string) error {
	l.mu.Lock()
	delete(l.netns, path)
	l.mu.Unlock()
	return removeNetNS(path)
}

// run starts a process that Close ends. It is returned also when it did not become ready, as it may be
// started again.
func (l *Lab) run(ctx context.Context, p *Process) (*Process, error) {
	if err := os.MkdirAll(filepath.Dir(p.log), 0o755); err != nil {
		return nil, err
	}
	l.mu.Lock()
	closed := l.closed
	l.procs = append(l.procs, p)
	l.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("start %s: the lab is closed", p.Name)
	}
	return p, p.start(ctx)
}

// Close ends every process of the lab and removes its namespaces and its folder. A second Close does nothing.
func (l *Lab) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	procs := l.procs
	l.mu.Unlock()

	var ours, theirs []*Process
	for _, p := range procs {
		if strings.HasPrefix(filepath.Base(p.args[0]), "ovn-multinet") {
			ours = append(ours, p)
		} else {
			theirs = append(theirs, p)
		}
	}
	// Ours first, so that they do not log the loss of databases that go away on purpose.
	errs := []error{stopAll(ours)}
	errs = append(errs, stopAll(theirs))
	l.mu.Lock()
	defer l.mu.Unlock()
	for path := range l.netns {
		errs = append(errs, removeNetNS(path))
	}
	l.netns = nil
	return errors.Join(append(errs, os.RemoveAll(l.Dir))...)
}

func stopAll(procs []*Process) error {
	var all errgroup.Group
	for _, p := range procs {
		all.Go(func() error { return p.Stop(context.Background()) })
	}
	return all.Wait()
}

// KeepLogs copies the logs of every process to dir, which outlives the program; the default is a folder with
// the lab's name in the cache folder. It returns the folder.
func (l *Lab) KeepLogs(dir string) (string, error) {
	if dir == "" {
		cache, err := buildcache.Dir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "logs", l.Name)
	}
	if err := os.RemoveAll(dir); err != nil {
		return dir, err
	}
	return dir, filepath.WalkDir(l.Dir, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // gone meanwhile
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".log") {
			return err
		}
		rel, err := filepath.Rel(l.Dir, path)
		if err != nil {
			return err
		}
		return copyFile(path, filepath.Join(dir, rel))
	})
}

func copyFile(from, to string) (err error) {
	defer try.Handle(&err)
	b := try.E1(os.ReadFile(from))
	try.E(os.MkdirAll(filepath.Dir(to), 0o755))
	return os.WriteFile(to, b, 0o644)
}

// WriteManifest puts a YAML file into Manifests, whole or not at all.
func (l *Lab) WriteManifest(name, yaml string) error {
	tmp, err := os.CreateTemp(l.Manifests, ".new-")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(yaml)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), filepath.Join(l.Manifests, name))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write manifest %s: %w", name, err), os.Remove(tmp.Name()))
	}
	return nil
}

// RemoveManifest takes a YAML file out of Manifests. Absent is fine.
func (l *Lab) RemoveManifest(name string) error {
	if err := os.Remove(filepath.Join(l.Manifests, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove manifest: %w", err)
	}
	return nil
}
