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

	"github.com/dsnet/try"
	"github.com/google/uuid"
	"github.com/vishvananda/netlink"
)

// The bridges of a node.
const (
	integrationBridge = "br-int"
	underlayBridge    = "br-phy" // has the tunnel endpoint's address and owns eth1
)

// ovsDB is the file of a node's OVS database, in its folder of sockets.
const ovsDB = "conf.db"

// vswitchdCtl is the control socket of ovs-vswitchd, in the same folder.
const vswitchdCtl = "ovs-vswitchd.ctl"

// Open vSwitch's types of datapaths.
const (
	userspace = "netdev"
	kernel    = "system"
)

// Node is one machine of the lab.
type Node struct {
	Name     string
	Index    int // 1 and up
	Dir      string
	SystemID string // OVN's chassis name; never the node's name
	IP       net.IP // on the node network
	EncapIP  net.IP // on the underlay
	PodCIDR  *net.IPNet

	OVSSocket   string // of the local OVS database
	AgentSocket string
	// PodResources is where the agent looks for kubelet's pod-resources API, which ServePodResources stands in for.
	PodResources string
	StateDir     string // the plugin's
	PluginLog    string

	OVSDB, VSwitchd, OVNController *Process
	Agent                          *Process // nil until StartAgent
	Attach                         *Process // nil until StartAttach
	AgentArgs                      []string // beside the lab's own; taken by StartAgent
	NBEndpoint                     string   // where the agent finds NB, if not at the lab's; taken by StartAgent

	// What the node's conflist is made of, read at each CNI call: set before, not during calls.
	CNIVersion  string
	PrimaryOnly bool                       // leave our entry out
	PluginConf  func(entry map[string]any) // change our entry; may be nil

	host
	physical string // the provider's network that br-ex is for; "" without br-ex
	agentRan bool   // when the power went off
	mu       sync.Mutex
	runs     []Run
}

func (l *Lab) newNode(index int, o Options) (*Node, error) {
	n := &Node{
		host: host{lab: l, name: fmt.Sprintf("node%d", index)}, Index: index, Name: fmt.Sprintf("node%d", index),
		SystemID: "chassis-" + uuid.NewString(),
		IP:       net.IPv4(172, 31, 1, byte(index)).To4(),
		EncapIP:  net.IPv4(172, 30, 1, byte(index)).To4(),
		PodCIDR:  ipNet(24, 10, 244, byte(index), 0),
		physical: o.Physical,
	}
	n.CNIVersion, n.PrimaryOnly = o.CNIVersion, o.PrimaryOnly
	if n.CNIVersion == "" {
		n.CNIVersion = "1.0.0"
	}
	if o.PluginConf != nil {
		n.PluginConf = func(entry map[string]any) { o.PluginConf(n, entry) }
	}
	n.Dir = filepath.Join(l.Dir, n.Name)
	n.OVSSocket = filepath.Join(n.Dir, "ovs", "db.sock")
	n.AgentSocket = filepath.Join(n.Dir, "agent.sock")
	n.PodResources = filepath.Join(n.Dir, "pod-resources.sock")
	n.StateDir = filepath.Join(n.Dir, "state")
	n.PluginLog = filepath.Join(n.Dir, "plugin.log")
	if err := os.MkdirAll(filepath.Dir(n.OVSSocket), 0o755); err != nil {
		return nil, err
	}
	var err error
	if o.NodeHere && index == 1 {
		n.NetNS, err = l.nameOwnNetNS(n.Name)
	} else {
		n.NetNS, err = l.makeNetNS(n.Name)
	}
	return n, err
}

// startWithoutOVN brings a node up that has its tunnel endpoint's address on the NIC itself.
func (n *Node) startWithoutOVN(ctx context.Context) error {
	for _, step := range []func(context.Context) error{n.plugNICs, n.forward} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return n.addTunnelAddress(ctx)
}

func (n *Node) addTunnelAddress(context.Context) error {
	return n.Do(func() error { return addAddr("eth1", &net.IPNet{IP: n.EncapIP, Mask: net.CIDRMask(16, 32)}) })
}

// start brings the node up; ovn-controller waits for central, since a refused connection costs it a second.
func (n *Node) start(ctx context.Context, central <-chan struct{}) error {
	steps := []func(context.Context) error{n.plugNICs, n.forward, n.startOVS, n.addTunnelEndpoint}
	if !n.lab.bare {
		steps = append(steps, n.addRoutes, n.writeFlannelFiles)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	<-central
	if n.lab.SB == nil || !n.lab.SB.Running() {
		return nil // the central part has the error
	}
	if err := n.startOVNController(ctx); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	return nil
}

func (n *Node) plugNICs(ctx context.Context) error {
	fabric, i := n.lab.fabric, byte(n.Index)
	err := errors.Join(
		addNIC(fabric, n.NetNS, nic{name: "eth0", port: nodesPort(n.Index), via: "nodes",
			mtu: nodeNetMTU, addr: ipNet(16, 172, 31, 1, i)}),
		addNIC(fabric, n.NetNS, nic{name: "eth1", port: underlayPort(n.Index), via: "underlay",
			mtu: underlayMTU}),
	)
	if n.lab.datapath == userspace {
		err = errors.Join(err, checksumsOff(n.NetNS, "eth1"))
	}
	if n.lab.datapath == userspace && !n.lab.withoutOVN {
		err = errors.Join(err, n.Do(func() error { return arpOff("eth1") }))
	}
	if n.lab.tor != nil {
		err = errors.Join(err, n.lab.tor.plug(ctx, n.trunk(), n.NetNS, providerNIC))
	}
	return err
}

// The switches' ports to the i-th node.
func nodesPort(i int) string    { return fmt.Sprintf("nodes%d", i) }
func underlayPort(i int) string { return fmt.Sprintf("underlay%d", i) }

func (n *Node) forward(context.Context) error {
	return n.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) })
}

// addRoutes does what flanneld's host-gw backend does.
func (n *Node) addRoutes(context.Context) error {
	return n.Do(func() error {
		for _, other := range n.lab.Nodes {
			if other == n {
				continue
			}
			if err := netlink.RouteAdd(&netlink.Route{Dst: other.PodCIDR, Gw: other.IP}); err != nil {
				return fmt.Errorf("add route to %s's pods: %w", other.Name, err)
			}
		}
		return nil
	})
}

func (n *Node) startOVS(ctx context.Context) (err error) {
	defer try.Handle(&err)
	dir := filepath.Dir(n.OVSSocket)
	try.E(createOVSDB(ctx, dir))
	n.OVSDB = try.E1(n.run(ctx, "ovsdb-server", accepts(n.OVSSocket), ovsdbArgs(n.OVSSocket)...))
	try.E(n.configureOVS(ctx))
	args := vswitchdArgs(n.OVSSocket, n.lab.datapath)
	if n.lab.ownRoutes {
		args = append(args, "--disable-system-route")
	}
	n.VSwitchd, err = n.run(ctx, "ovs-vswitchd", n.switches, args...)
	return err
}

// configureOVS writes into a new OVS database what a machine's own scripts do: who the node is, where OVN's databases
// are, and its bridges.
func (n *Node) configureOVS(ctx context.Context) error {
	config := []string{"--no-wait", "--", "init", "--", "set", "Open_vSwitch", ".",
		"external_ids:system-id=" + n.SystemID, "external_ids:hostname=" + n.Name,
		"external_ids:ovn-remote=" + n.lab.SBEndpoint(), "external_ids:ovn-bridge=" + integrationBridge,
		"external_ids:ovn-encap-type=geneve", "external_ids:ovn-encap-ip=" + n.EncapIP.String(),
		"external_ids:ovn-bridge-datapath-type=" + n.lab.datapath,
		"--", "add-br", underlayBridge, "--", "set", "Bridge", underlayBridge, "datapath_type=" + n.lab.datapath,
		"other_config:hwaddr=" + n.underlayAddr().String(),
		"--", "add-port", underlayBridge, "eth1"}
	if n.physical != "" {
		config = append(config, "--", "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings="+n.physical+":"+providerBridge,
			"--", "add-br", providerBridge, "--", "set", "Bridge", providerBridge, "datapath_type="+n.lab.datapath,
			"--", "add-port", providerBridge, providerNIC)
	}
	_, err := n.VSCtl(ctx, config...)
	return err
}

// underlayAddr is the MAC of br-phy, also of one that is made anew: other nodes remember it. It is not the NIC's, or the
// kernel would take what is in a tunnel for its own.
func (n *Node) underlayAddr() net.HardwareAddr {
	return append(net.HardwareAddr{0x02, 0}, n.EncapIP...)
}

func createOVSDB(ctx context.Context, dir string) error {
	_, err := tool(ctx, "ovsdb-tool", "create", filepath.Join(dir, ovsDB), ovsSchema)
	return err
}

func ovsdbArgs(socket string) []string {
	dir := filepath.Dir(socket)
	return []string{"ovsdb-server", filepath.Join(dir, ovsDB), "--no-chdir", "--remote=punix:" + socket,
		"--unixctl=" + filepath.Join(dir, "ovsdb-server.ctl")}
}

func vswitchdArgs(socket, datapath string) []string {
	args := []string{"ovs-vswitchd", "unix:" + socket, "--no-chdir",
		"--unixctl=" + filepath.Join(filepath.Dir(socket), vswitchdCtl)}
	if datapath == userspace {
		args = append(args, "--disable-system") // a kernel without the datapath is asked for it again and again
	}
	return args
}

// switches is a readiness check: ovs-vswitchd has made br-phy. After a loss of power the database alone does not tell.
func (n *Node) switches(ctx context.Context) error {
	if err := hasLink(n.NetNS, underlayBridge)(ctx); err != nil {
		return err
	}
	return n.hasPort("eth1")(ctx)
}

// addTunnelEndpoint finishes br-phy, which ovs-vswitchd has made.
func (n *Node) addTunnelEndpoint(ctx context.Context) error {
	addr := &net.IPNet{IP: n.EncapIP, Mask: net.CIDRMask(16, 32)}
	err := n.Do(func() error {
		return errors.Join(setUp(underlayBridge, underlayMTU), addAddr(underlayBridge, addr))
	})
	if n.lab.datapath == userspace {
		err = errors.Join(err, checksumsOff(n.NetNS, underlayBridge))
	}
	if n.lab.ownRoutes {
		_, routeErr := n.AppCtl(ctx, "ovs/route/add", (&net.IPNet{IP: n.EncapIP.Mask(addr.Mask), Mask: addr.Mask}).String(), underlayBridge)
		err = errors.Join(err, routeErr)
	}
	return err
}

func (n *Node) startOVNController(ctx context.Context) (err error) {
	n.OVNController, err = n.run(ctx, "ovn-controller", n.hasPort(integrationBridge), "ovn-controller",
		"unix:"+n.OVSSocket, "--no-chdir")
	if err != nil {
		return err
	}
	_, err = n.lab.SBCtl(ctx, timeoutArg(ctx), "wait-until", "Chassis", n.SystemID)
	return err
}

// WithoutOVNController does something while ovn-controller is away. It ends without a chance to clean up, so the flows
// that it has installed stay.
func (n *Node) WithoutOVNController(ctx context.Context, do func()) error {
	if err := n.OVNController.Kill(); err != nil {
		return err
	}
	do()
	return n.OVNController.start(ctx)
}

// run starts one of OVS's or OVN's daemons on the node.
func (n *Node) run(ctx context.Context, name string, ready func(context.Context) error, args ...string) (*Process, error) {
	return n.lab.run(ctx, &Process{
		Name: n.Name + "/" + name, netns: n.NetNS, env: daemonEnv(filepath.Dir(n.OVSSocket)),
		log: filepath.Join(n.Dir, name+".log"), args: append(args, logToConsole...), ready: ready, fault: conntrackFault,
	})
}

// hasPort is a readiness check: ovs-vswitchd serves the interface.
func (n *Node) hasPort(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		ofport, err := n.VSCtl(ctx, "--no-wait", "get", "Interface", name, "ofport")
		if err == nil && (ofport == "[]" || ofport == "-1") {
			err = fmt.Errorf("interface %s is not up yet: ofport %s", name, ofport)
		}
		return err
	}
}

func (n *Node) waitForTunnels(ctx context.Context) error {
	want := len(n.lab.Nodes) - 1
	return Eventually(ctx, func() error {
		out, err := n.VSCtl(ctx, "--no-wait", "--bare", "--columns=ofport", "find", "Interface", "type=geneve")
		if err != nil {
			return err
		}
		if got := len(strings.Fields(out)); got != want {
			return fmt.Errorf("%s has %d of %d tunnels", n.Name, got, want)
		}
		return nil
	})
}

// VSCtl runs ovs-vsctl on the node's database.
func (n *Node) VSCtl(ctx context.Context, args ...string) (string, error) {
	return tool(ctx, "ovs-vsctl", append([]string{"--db=unix:" + n.OVSSocket}, args...)...)
}

// AppCtl runs ovs-appctl on the node's ovs-vswitchd.
func (n *Node) AppCtl(ctx context.Context, args ...string) (string, error) {
	return tool(ctx, "ovs-appctl", append([]string{"-t", filepath.Join(filepath.Dir(n.OVSSocket), vswitchdCtl)}, args...)...)
}

// OFCtl runs a command of ovs-ofctl on the integration bridge, with further arguments.
func (n *Node) OFCtl(ctx context.Context, command string, args ...string) (string, error) {
	bridge := "unix:" + filepath.Join(filepath.Dir(n.OVSSocket), integrationBridge+".mgmt")
	return tool(ctx, "ovs-ofctl", append([]string{command, bridge}, args...)...)
}

// RecomputeFlows has ovn-controller look at all of its databases anew, as it does when it cannot tell what changed, and waits
// until it has.
func (n *Node) RecomputeFlows(ctx context.Context) error {
	ctl := filepath.Join(filepath.Dir(n.OVSSocket), fmt.Sprintf("ovn-controller.%d.ctl", n.OVNController.Pid()))
	for _, command := range []string{"inc-engine/recompute", "connection-status"} {
		if _, err := tool(ctx, "ovn-appctl", "-t", ctl, command); err != nil {
			return err
		}
	}
	return nil
}
