package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/dsnet/try"

	"github.com/ovn-multinet/ovn-multinet/e2e/lab"
	"github.com/ovn-multinet/ovn-multinet/images"
)

// The programs that Build makes.
const (
	kubelab  = "kubelab"
	podtool  = "podtool"
	nodeinit = "nodeinit"
	recorder = "recorder"
)

// Options of a cluster. The zero value is a cluster of two nodes.
type Options struct {
	Name  string // as in [lab.Options]
	Nodes int    // default 2
	// CNIVersion of the conflist that Flannel leaves on the nodes; default 0.3.1, as Flannel ships it.
	CNIVersion string
	// Containerd2 has the nodes run containerd 2 instead of the machine's; the program needs [WithContainerd2].
	Containerd2 bool
	// AllowedDelegates are CNI plugins that the product may run on the nodes beside those of its manifests.
	AllowedDelegates []string
	// MayHang has kubelet leave alone the product's programs that do not answer: the caller stops them for a while.
	MayHang bool
	// Physical is the lab's: with it the nodes have a bridge to an outside world.
	Physical string
	// Folders are where the nodes keep the files of CNI and of kubelet; default: as kubeadm has them.
	Folders Folders
	// WithoutOVN has the nodes have neither OVN nor Open vSwitch: the product's chart brings both.
	WithoutOVN bool
	// ControlPlane leaves the nodes the lab's, with Flannel's files and without containerd and kubelet. etcd and the API
	// server run, without controllers: the caller makes all objects.
	ControlPlane bool
	// Step is told in plain words what is being done.
	Step func(format string, args ...any)
}

// Folders are folders of a node by what they have.
type Folders struct {
	ConfLists string // of the container runtime
	Plugins   string // of CNI
	Kubelet   string
}

// Cluster is a running Kubernetes on the nodes of a lab.
type Cluster struct {
	*lab.Lab
	Kubeconfig string // the admin's, with the API server's address as the nodes and the central namespace reach it
	Client     kubernetes.Interface
	REST       *rest.Config
	Nodes      []*Node

	Etcd, APIServer, Controllers, Scheduler *lab.Process

	bin    string // folder of the programs that Build makes
	own    string // the nodes' own files; apart from the lab's, as they are many
	groups groups
	pki    pki
	step   func(format string, args ...any)

	folders          Folders
	containerd2      bool
	withoutOVN       bool // and without the kind of networks, which the chart brings, too
	allowedDelegates []string
	mayHang          bool

	// laptop is the machine of an operator: it reaches the API server alone.
	laptop *lab.Apart

	closed atomic.Bool
}

// New brings a cluster up: all nodes are Ready, images of podtool are loaded and, unless the chart brings it, the
// NetworkAttachmentDefinition kind is known. When it fails, the logs stay in the cache folder and the error names it.
func New(ctx context.Context, o Options) (*Cluster, error) {
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	if o.CNIVersion == "" {
		o.CNIVersion = "0.3.1"
	}
	if o.Step == nil {
		o.Step = func(string, ...any) {}
	}
	if o.Folders == (Folders{}) {
		o.Folders = Folders{"/etc/cni/net.d", "/opt/cni/bin", "/var/lib/kubelet"}
	}
	c := &Cluster{bin: os.Getenv(binEnv), step: o.Step, folders: o.Folders, containerd2: o.Containerd2, withoutOVN: o.WithoutOVN,
		allowedDelegates: o.AllowedDelegates, mayHang: o.MayHang}
	if c.bin == "" {
		return nil, errors.New("kube.New without the programs of a cluster: call kube.Main or kube.Enter first")
	}
	var err error
	c.Lab, err = lab.New(ctx, lab.Options{
		Name: o.Name, Nodes: o.Nodes, CNIVersion: o.CNIVersion, Physical: o.Physical,
		BareNodes: !o.ControlPlane, WithoutOVN: o.WithoutOVN, Step: o.Step,
	})
	if err != nil {
		return nil, err
	}
	if c.laptop, err = c.Apart("laptop", net.JoinHostPort(lab.CentralIP, apiPort)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	up := c.up
	if o.ControlPlane {
		up = c.upControlPlane
	}
	if err := up(ctx); err != nil {
		dir, logErr := c.KeepLogs("")
		err = fmt.Errorf("bring the cluster up: %w (logs are in %s; first error: %s)", err, dir, c.FirstError())
		return nil, errors.Join(err, logErr, c.Close())
	}
	return c, nil
}

func (c *Cluster) up(ctx context.Context) (err error) {
	defer try.Handle(&err)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	c.own = c.Lab.Dir + ".nodes"
	c.Kubeconfig = c.kubeconfig(adminOnNode)
	// The lab's name has its namespace in the inner process alone, the group's part before it is the machine's.
	c.groups = try.E1(openGroups(filepath.Join(os.Getenv(groupEnv), c.Name)))
	try.E(os.Mkdir(c.dir(), 0o755))
	for _, n := range c.Lab.Nodes {
		c.Nodes = append(c.Nodes, &Node{Node: n, cluster: c})
	}
	c.step("starting Kubernetes' control plane and %d containerds", len(c.Nodes))
	var all errgroup.Group
	all.Go(func() error { return c.startControlPlane(ctx) })
	for _, n := range c.Nodes {
		all.Go(func() error { return n.boot(ctx) })
	}
	try.E(all.Wait())
	if !c.withoutOVN {
		try.E(c.Apply(ctx, images.CRD)) // otherwise Helm creates them
		try.E(c.Apply(ctx, images.PolicyCRD))
	}
	try.E(c.Apply(ctx, baseManifests))
	c.step("starting kubelet, Flannel and kube-proxy on the nodes")
	for _, n := range c.Nodes {
		all.Go(func() error { return n.join(ctx) })
	}
	try.E(all.Wait())
	c.step("waiting for the nodes to be Ready")
	return errors.Join(c.waitNodes(ctx), c.WaitAccount(ctx, "default"))
}

// upControlPlane starts etcd and the API server alone.
func (c *Cluster) upControlPlane(ctx context.Context) (err error) {
	defer try.Handle(&err)
	c.Kubeconfig = c.kubeconfig(adminOnNode)
	try.E(os.Mkdir(c.dir(), 0o755))
	c.step("starting Kubernetes' API server")
	for _, start := range []func(context.Context) error{
		func(context.Context) error { return c.writePKI() }, c.startEtcd, c.startAPIServer,
	} {
		try.E(start(ctx))
	}
	return errors.Join(c.Apply(ctx, images.CRD), c.Apply(ctx, images.PolicyCRD), c.Apply(ctx, baseManifests))
}

// connect makes the clients of the admin.
func (c *Cluster) connect() (err error) {
	if c.REST, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return err
	}
	// The lab's tests are one of few clients of the API server: it is not for them to be slow.
	c.REST.QPS, c.REST.Burst = -1, -1
	c.REST.Dial = func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		// A socket stays in the namespace of the thread that made it.
		err = ns.WithNetNSPath(c.CentralNetNS(), func(ns.NetNS) (err error) {
			conn, err = net.Dial(network, address)
			return err
		})
		return conn, err
	}
	c.Client, err = kubernetes.NewForConfig(c.REST)
	return err
}

func (c *Cluster) program(name string) string { return filepath.Join(c.bin, name) }

// Close ends the cluster and the lab below it. Pods are not shut down: their nodes' power goes off. A second Close
// does nothing.
func (c *Cluster) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	var all errgroup.Group
	for _, n := range c.Nodes {
		all.Go(func() error { return kill(n.Holder, n.Containerd, n.Kubelet, n.Flanneld, n.KubeProxy) })
	}
	all.Go(func() error { return kill(c.Scheduler, c.Controllers, c.APIServer, c.Etcd) })
	errs := []error{all.Wait()}
	if c.laptop != nil {
		errs = append(errs, c.laptop.Close())
	}
	return errors.Join(append(errs, c.groups.remove(), c.Lab.Close(), os.RemoveAll(c.own))...)
}

func kill(procs ...*lab.Process) error {
	var errs []error
	for _, p := range procs {
		if p != nil {
			errs = append(errs, p.Kill())
		}
	}
	return errors.Join(errs...)
}

// KeepLogs is the lab's, with the logs of pods.
func (c *Cluster) KeepLogs(dir string) (string, error) {
	dir, err := c.Lab.KeepLogs(dir)
	for _, n := range c.Nodes {
		err = errors.Join(err, n.keepPodLogs(filepath.Join(dir, n.Name, "pods")))
	}
	return dir, err
}

// FirstError is the first line with which a part of the cluster says that something is wrong, if there is one: of a
// part that has ended, or else of any.
func (c *Cluster) FirstError() string {
	first := ""
	for _, p := range c.processes() {
		line := firstError(p.LogPath())
		if line == "" {
			continue
		}
		line = p.Name + ": " + line
		if !p.Running() {
			return line
		}
		first = cmp.Or(first, line)
	}
	return first
}

func firstError(log string) string {
	b, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if isError(line) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// isError knows the marks of klog, of containerd and of etcd.
func isError(line string) bool {
	if len(line) > 4 && (line[0] == 'E' || line[0] == 'F') && line[1] >= '0' && line[1] <= '1' {
		return true
	}
	return strings.Contains(line, "level=error") || strings.Contains(line, "level=fatal") || strings.Contains(line, `"level":"error"`)
}

func (c *Cluster) processes() []*lab.Process {
	all := []*lab.Process{c.Etcd, c.APIServer, c.Controllers, c.Scheduler}
	for _, n := range c.Nodes {
		all = append(all, n.Containerd, n.Kubelet, n.Flanneld, n.KubeProxy)
	}
	var started []*lab.Process
	for _, p := range all {
		if p != nil {
			started = append(started, p)
		}
	}
	return started
}

// Start makes a cluster for a test and closes it at the test's end. When the test failed, the logs are kept and the
// test says where.
func Start(t lab.TB, o Options) *Cluster {
	t.Helper()
	c, err := New(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() && !c.closed.Load() {
			dir, err := c.KeepLogs("")
			t.Logf("logs are in %s (error: %v); first error: %s", dir, err, c.FirstError())
		}
		if err := c.Close(); err != nil {
			t.Errorf("close the cluster: %v", err)
		}
	})
	return c
}
