package conf

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// NB says how agent and controller reach OVN's Northbound database.
type NB struct {
	Endpoints   []string // tcp:HOST:PORT, ssl:HOST:PORT or unix:PATH
	Members     string   // in place of Endpoints: the folder with the list of the nodes that have NB
	Certificate string   // PEM files, all three or none
	PrivateKey  string
	CACert      string
	// ServerNames are the names of which the server's certificate must have one; empty: the host of an endpoint.
	ServerNames []string
}

// DefaultPodResources is the path of kubelet's socket.
const DefaultPodResources = "/var/lib/kubelet/pod-resources/kubelet.sock"

// Agent is the agent's configuration, from its flags.
type Agent struct {
	NodeName   string
	Kubeconfig string // "": Manifests is the source of pods and NADs
	Manifests  string
	ClusterID  string // "": the source of pods and NADs knows it
	Socket     string
	StateDir   string
	NB         NB
	OVSSocket  string
	Bridge     string
	// PodResources is kubelet's socket that tells which devices it gave to a pod. It is asked for networks of devices
	// only.
	PodResources string
	// OVNControllerLog is the file that the node's ovn-controller logs to. It has the packets that policies have denied;
	// "": they are not read.
	OVNControllerLog string
	NADConfDir       string   // of networks whose NAD has no spec.config; "": none
	Isolated         bool     // pods use NADs of their own namespace only, and those of Global
	Global           []string // namespaces
	Compatible       bool     // ips and mac go into CNI_ARGS if no plugin declares the capability
	// KeepOnPrimary are the networks of pods, services and the API server. A pod with another default route still
	// reaches them by its first interface.
	KeepOnPrimary []netip.Prefix
	// EarlyPorts has the agent write a pod's ports as soon as the pod is bound to the node.
	EarlyPorts bool
	// Attach: a program on the node changes the networks of pods that run.
	Attach bool
	// ReconcilePeriod is the time between two reconcile passes.
	ReconcilePeriod time.Duration
	MetricsAddr     string
	LogLevel        string
}

// Controller is the controller's configuration, from its flags.
type Controller struct {
	Kubeconfig     string
	Manifests      string
	ClusterID      string // "": the source of pods and NADs knows it
	AdoptCluster   string // the cluster whose NB this cluster takes over; "": none
	NB             NB
	LeaseNamespace string        // "": that of the pod it runs in
	Config         string        // a YAML file: routers with a gateway, grants of physical networks; "": none
	JoinNamespaces []string      // their NADs may join a network of another namespace by its name
	Isolated       bool          // as of Agent
	Global         []string      // as of Agent
	OrphanPeriod   time.Duration // between two garbage collections of orphans
	OVN            OVN
	// KeepOnPrimary is as of Agent: networks that overlap it get a Warning.
	KeepOnPrimary []netip.Prefix
	WidestIPAM    int  // prefix length of the widest subnet that OVN's own address allocator serves
	DeniedRate    int  // lines per second about packets that the policies of a namespace deny, on a node; 0: none
	MaxServices   int  // how many Services on networks a namespace may have
	StartupTaint  bool // new nodes have a taint until they are ready for pods with networks
	MetricsAddr   string
	LogLevel      string
}

// OVN says how the controller takes part when the chart runs OVN.
type OVN struct {
	Replicas     int           // members of the databases; 0: somebody else runs OVN
	Nodes        string        // selector of the nodes that may have the databases
	ReplaceAfter time.Duration // how long such a node is not Ready before another one takes its place
	SignerName   string        // of the programs' requests for certificates
	Life         time.Duration // of the certificates
	NodeName     string        // this controller's
}

// Validate names the first flag that is wrong.
func (o *OVN) Validate(manifests string) error {
	if o.Replicas == 0 {
		return nil
	}
	if manifests != "" {
		return fmt.Errorf("--ovn-replicas is for a cluster, and --manifests is none")
	}
	if o.Replicas < 0 || o.Replicas%2 == 0 || o.Replicas > 7 {
		return fmt.Errorf("--ovn-replicas: %d is not 1, 3, 5 or 7: a raft needs a majority", o.Replicas)
	}
	if o.NodeName == "" {
		return fmt.Errorf("--node-name is empty: with --ovn-replicas it is the name of this controller's node")
	}
	if o.ReplaceAfter <= 0 {
		return fmt.Errorf("--ovn-replace-after: %v is no time, give one like 5m", o.ReplaceAfter)
	}
	return nil
}

// DefaultWidestIPAM is a subnet of 65,536 addresses, 8 KiB of northd's memory. A /8 is 2 MiB, and northd sets a bit for
// each of its addresses at each recompute.
const DefaultWidestIPAM = 16

// DefaultDeniedRate is some lines of 300 bytes. It shows who is denied, and does not fill a disk.
const DefaultDeniedRate = 10

const maxDeniedRate = 1000

// DefaultMaxServices is more than the Services of a large namespace, and keeps the rows of one namespace few.
const DefaultMaxServices = 1000

// ParseKeepOnPrimary reads --keep-on-primary.
func ParseKeepOnPrimary(networks []string) (all []netip.Prefix, err error) {
	for _, text := range networks {
		p, err := ParsePrefix("--keep-on-primary", strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Validate names the first flag that is wrong.
func (a *Agent) Validate() error {
	if a.NodeName == "" {
		return fmt.Errorf("--node-name is empty: give the name of this node as the pods' spec.nodeName has it")
	}
	for _, f := range []struct{ flag, path string }{
		{"socket", a.Socket}, {"state-dir", a.StateDir},
		{"ovs-socket", a.OVSSocket}, {"pod-resources-socket", a.PodResources},
	} {
		if !filepath.IsAbs(f.path) {
			return fmt.Errorf("--%s: %q is not an absolute path", f.flag, f.path)
		}
	}
	for _, f := range []struct{ flag, path string }{
		{"nad-conf-dir", a.NADConfDir}, {"ovn-controller-log", a.OVNControllerLog},
	} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			return fmt.Errorf("--%s: %q is not an absolute path", f.flag, f.path)
		}
	}
	if len(a.Global) > 0 && !a.Isolated {
		return fmt.Errorf("--global-namespaces is for --namespace-isolation: without that, every namespace is global")
	}
	if a.Bridge == "" {
		return fmt.Errorf("--bridge is empty: it is OVN's integration bridge, br-int as a rule")
	}
	if a.ReconcilePeriod <= 0 {
		return fmt.Errorf("--reconcile-period: %v is no period, give a time like 1m", a.ReconcilePeriod)
	}
	if err := validateSource(a.Kubeconfig, a.Manifests); err != nil {
		return err
	}
	if err := checkClusterFlag("cluster-id", a.ClusterID); err != nil {
		return err
	}
	if err := validateLevel(a.LogLevel); err != nil {
		return err
	}
	return a.NB.Validate()
}

// Validate names the first flag that is wrong.
func (c *Controller) Validate() error {
	if err := validateSource(c.Kubeconfig, c.Manifests); err != nil {
		return err
	}
	if err := checkClusterFlag("cluster-id", c.ClusterID); err != nil {
		return err
	}
	if err := checkClusterFlag("adopt-cluster", c.AdoptCluster); err != nil {
		return err
	}
	if c.OrphanPeriod <= 0 {
		return fmt.Errorf("--orphan-period: %v is no period, give a time like 1m", c.OrphanPeriod)
	}
	if c.StartupTaint && c.Manifests != "" {
		return fmt.Errorf("--startup-taint is for the nodes of Kubernetes: a folder of --manifests has none to taint")
	}
	if c.WidestIPAM < 1 || c.WidestIPAM > 30 {
		const form = "--widest-ipam-subnet: %d is no prefix length of an IPv4 subnet, give one from 1 to 30"
		return fmt.Errorf(form, c.WidestIPAM)
	}
	if c.DeniedRate < 0 || c.DeniedRate > maxDeniedRate {
		return fmt.Errorf("--denied-log-rate: %d is not from 0 to %d packets per second", c.DeniedRate, maxDeniedRate)
	}
	if c.MaxServices < 0 {
		return fmt.Errorf("--services-per-namespace: %d is less than 0, which means none", c.MaxServices)
	}
	if err := validateLevel(c.LogLevel); err != nil {
		return err
	}
	if err := c.OVN.Validate(c.Manifests); err != nil {
		return err
	}
	return c.NB.Validate()
}

func validateSource(kubeconfig, manifests string) error {
	if kubeconfig != "" && manifests != "" {
		return fmt.Errorf("--kubeconfig and --manifests are two sources of pods and networks: give one")
	}
	return nil
}

// LogLevels are the values of --log-level.
var LogLevels = []string{"debug", "info", "warn", "error"}

func validateLevel(level string) error {
	if !slices.Contains(LogLevels, level) {
		return fmt.Errorf("--log-level: %q is none of %s", level, strings.Join(LogLevels, ", "))
	}
	return nil
}

// Validate names the first flag that is wrong.
func (n *NB) Validate() error {
	if len(n.Endpoints) == 0 && n.Members == "" {
		return fmt.Errorf("--nb-endpoints is empty: give OVN's Northbound database, like tcp:192.0.2.1:6641")
	}
	if len(n.Endpoints) > 0 && n.Members != "" {
		return fmt.Errorf("--nb-endpoints and --nb-members are two places of OVN's Northbound database: give one")
	}
	tls := n.Members != ""
	for _, e := range n.Endpoints {
		scheme, rest, ok := strings.Cut(e, ":")
		if !ok || rest == "" || !slices.Contains([]string{"tcp", "ssl", "unix"}, scheme) {
			const form = "--nb-endpoints: %q is not like tcp:192.0.2.1:6641, ssl:192.0.2.1:6641 or " +
				"unix:/run/ovn/ovnnb_db.sock"
			return fmt.Errorf(form, e)
		}
		tls = tls || scheme == "ssl"
	}
	files := 0
	for _, f := range []string{n.Certificate, n.PrivateKey, n.CACert} {
		if f != "" {
			files++
		}
	}
	if tls && files != 3 {
		return fmt.Errorf("--nb-members and ssl: in --nb-endpoints take --nb-certificate, --nb-private-key and --nb-ca-cert")
	}
	if !tls && files != 0 {
		return fmt.Errorf("--nb-certificate, --nb-private-key and --nb-ca-cert are for ssl: endpoints, " +
			"--nb-endpoints has none")
	}
	if !tls && len(n.ServerNames) != 0 {
		return fmt.Errorf("--nb-server-name is for ssl: endpoints, --nb-endpoints has none")
	}
	if slices.Contains(n.ServerNames, "") {
		return fmt.Errorf("--nb-server-name has an empty name: give a name in the server's certificate, or omit the flag")
	}
	return nil
}
