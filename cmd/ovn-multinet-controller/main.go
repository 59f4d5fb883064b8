// Command ovn-multinet-controller makes OVN's logical switches and routers from the NetworkAttachmentDefinitions, and
// releases ports whose pod or node no longer exists.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/controller"
	"github.com/ovn-multinet/ovn-multinet/controller/configfile"
	"github.com/ovn-multinet/ovn-multinet/controller/entries"
	"github.com/ovn-multinet/ovn-multinet/controller/ipamclaims"
	"github.com/ovn-multinet/ovn-multinet/controller/leader"
	"github.com/ovn-multinet/ovn-multinet/controller/outside"
	"github.com/ovn-multinet/ovn-multinet/controller/pods"
	"github.com/ovn-multinet/ovn-multinet/controller/policies"
	"github.com/ovn-multinet/ovn-multinet/controller/services"
	"github.com/ovn-multinet/ovn-multinet/controller/stalenodes"
	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/netmodel/entry"
	"github.com/ovn-multinet/ovn-multinet/ovndb"
	"github.com/ovn-multinet/ovn-multinet/ovndb/members"
	"github.com/ovn-multinet/ovn-multinet/ovnport"
	"github.com/ovn-multinet/ovn-multinet/ovnrun"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/authority"
	"github.com/ovn-multinet/ovn-multinet/ovnrun/placement"
	"github.com/ovn-multinet/ovn-multinet/source"
)

func main() {
	var c conf.Controller
	var keep []string
	cmd := &cobra.Command{
		Use:   "ovn-multinet-controller",
		Short: "The controller of ovn-multinet: makes OVN's logical switches and routers from NetworkAttachmentDefinitions.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if c.KeepOnPrimary, err = conf.ParseKeepOnPrimary(keep); err != nil {
				return err
			}
			daemon.SettleIsolation(cmd.Flags(), c.Isolated, &c.Global)
			return run(cmd.Context(), c)
		},
	}
	flags := cmd.Flags()
	daemon.SourceFlags(flags, &c.Kubeconfig, &c.Manifests)
	daemon.NBFlags(flags, &c.NB)
	daemon.ClusterFlag(flags, &c.ClusterID)
	flags.StringVar(&c.AdoptCluster, "adopt-cluster", "", "ID of the former cluster; take NB over if that cluster owns it")
	flags.StringVar(&c.LeaseNamespace, "leader-election-namespace", "",
		"namespace of the Lease; empty: that of the pod it runs in")
	flags.StringVar(&c.Config, "config", "",
		"YAML file with the routers of the whole cluster, the routers with a gateway to a physical network, "+
			"the grants of physical networks and of portSecurity: false, the security profiles, and the limits of namespaces; "+
			"empty: none")
	flags.StringSliceVar(&c.JoinNamespaces, "joining-namespaces", nil,
		"namespaces whose NADs may join a network of another namespace that has the same name (ovn-k8s-cni-overlay)")
	daemon.IsolationFlags(flags, &c.Isolated, &c.Global)
	flags.StringSliceVar(&keep, "keep-on-primary", nil,
		"networks of pods, services and the API server, as the agents have them: a network that overlaps them gets a Warning")
	flags.DurationVar(&c.OrphanPeriod, "orphan-period", time.Minute,
		"time between two passes over the ports, for ports whose pod or node is gone; the second pass releases them")
	flags.IntVar(&c.WidestIPAM, "widest-ipam-subnet", conf.DefaultWidestIPAM,
		"prefix length of the widest IPv4 subnet (on layer3: node subnet) with excludeSubnets; "+
			"OVN's own address allocator costs northd memory and time by the width")
	flags.StringVar(&c.OVN.NodeName, "node-name", "", "name of this controller's node; for --ovn-replicas alone")
	flags.IntVar(&c.OVN.Replicas, "ovn-replicas", 0,
		"number of nodes with OVN's databases, if the chart runs OVN; 0: somebody else runs OVN")
	flags.StringVar(&c.OVN.Nodes, "ovn-nodes", "", "selector of the nodes that may have OVN's databases; empty: all")
	flags.DurationVar(&c.OVN.ReplaceAfter, "ovn-replace-after", 5*time.Minute,
		"how long a node with OVN's databases is not Ready before another one takes its place")
	flags.StringVar(&c.OVN.SignerName, "ovn-signer-name", authority.SignerName,
		"signer of the requests for OVN's certificates; if it is another program's, the controller approves only")
	flags.DurationVar(&c.OVN.Life, "ovn-certificate-life", authority.DefaultLife,
		"how long a certificate of OVN's programs is valid, from 1h to 720h; it is renewed after two thirds of this time")
	flags.IntVar(&c.DeniedRate, "denied-log-rate", conf.DefaultDeniedRate,
		"how many packets per second OVN logs on a node, of those that the policies of one namespace deny, if the policies "+
			"ask for that; 0: none")
	flags.IntVar(&c.MaxServices, "services-per-namespace", conf.DefaultMaxServices,
		"how many Services on networks a namespace may have")
	flags.BoolVar(&c.StartupTaint, "startup-taint", false,
		"give new nodes the taint "+conf.StartupTaint+":NoSchedule, and remove it when the node is ready for pods "+
			"with networks")
	daemon.CommonFlags(flags, &c.LogLevel, &c.MetricsAddr)
	cmd.AddCommand(uninstallCommand(), metricsCommand(), aliveCommand())
	os.Exit(program.Main(cmd))
}

// networks is the source of NADs, pods and nodes.
type networks interface {
	controller.Source
	entries.Source
	policies.Source
	services.Source
	outside.Source
	ipamclaims.Source
	Inventory(ctx context.Context, nodes ...string) (*source.Inventory, error)
	GoneNodes(ctx context.Context) (func(node string) bool, error)
	Run(ctx context.Context) error
}

// elect takes part in the leader election, and runs lead while this controller is the leader.
type elect func(ctx context.Context, lead leader.Lead) error

func run(ctx context.Context, c conf.Controller) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := authority.CheckLife(c.OVN.Life); err != nil {
		return fmt.Errorf("--ovn-certificate-life: %w", err)
	}
	file, config, err := configfile.Open(c.Config)
	if err != nil {
		return err
	}
	log := daemon.Logger(c.LogLevel)
	warnOfEntries(config, log)
	var k clients
	if c.Manifests == "" {
		if k.core, k.nads, err = daemon.Kubernetes(c.Kubeconfig); err != nil {
			return err
		}
	}
	cluster, err := source.Cluster(c.ClusterID, c.Manifests, k.core)
	if err != nil {
		return err
	}
	db, err := daemon.OpenNB(c.NB, cluster, log)
	if err != nil {
		return err
	}
	defer db.Close()
	queue, owner := controller.NewQueue(log), controller.NewNBOwner(db, c.AdoptCluster, log)
	metrics, registry := controller.NewMetrics(queue, db), daemon.NewRegistry()
	metrics.Register(registry)
	file.Register(registry)
	db.OnReplaced(queue.NBReplaced)
	src, runs, elect, err := open(c, k, source.Changes{
		NAD: queue.NADChanged, Nodes: queue.NodesChanged,
		Policy: queue.PolicyChanged, Pod: queue.PodChanged, PodGone: queue.PodGone, Namespace: queue.NamespaceChanged,
		Guest: queue.GuestChanged, Ports: queue.PortsChanged, Service: queue.ServiceChanged, Backend: queue.BackendChanged,
		Entries: queue.EntriesChanged, IPAMClaim: queue.IPAMClaimChanged,
	}, log)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { daemon.FollowNB(ctx, c.NB, db, log); return nil })
	g.Go(func() error { return keepCertificate(ctx, c, k.core, log) })
	for _, run := range runs {
		g.Go(func() error { return run(ctx) })
	}
	g.Go(func() error {
		return file.Follow(ctx, log, queue.Configure)
	})
	g.Go(func() error { return daemon.Serve(ctx, c.MetricsAddr, registry, owner.Ready) })
	g.Go(func() error {
		return elect(ctx, func(ctx context.Context, leading func() error) error {
			g, ctx := errgroup.WithContext(ctx)
			g.Go(func() error { return runOVN(ctx, c, k.core, src, db, leading, log) })
			g.Go(func() error {
				return owner.Lead(ctx, leading, func(ctx context.Context) error {
					work := controller.New(controller.Config{
						NB: db, Source: src, Queue: queue, Metrics: metrics, Operator: config,
						Policies: src, Ports: podPorts{ovnport.NewNB(db).NewListedPorts()},
						Entries: src, Services: src, MaxServices: c.MaxServices, Outside: src,
						IPAMClaims:    src,
						KeepOnPrimary: c.KeepOnPrimary, JoiningNamespaces: c.JoinNamespaces,
						WidestIPAM: c.WidestIPAM, DeniedRate: c.DeniedRate,
						Isolated: c.Isolated, GlobalNamespaces: c.Global, Leading: leading, Log: log,
					})
					orphans := ovnport.NewOrphans(ovnport.NewNB(db), podCluster{src}, leading, log)
					nodes := stalenodes.New(db, podCluster{src}, leading, log)
					g, ctx := errgroup.WithContext(ctx)
					g.Go(func() error { return work.Run(ctx) })
					g.Go(func() error { orphans.Run(ctx, c.OrphanPeriod); return nil })
					g.Go(func() error { nodes.Run(ctx, c.OrphanPeriod); return nil })
					return g.Wait()
				})
			})
			return g.Wait()
		})
	})
	return g.Wait()
}

// warnOfEntries says that the file has entries that have to be objects.
func warnOfEntries(config configfile.Config, log *slog.Logger) {
	if old, _, err := entry.Split(config.Document); err != nil || len(old) > 0 {
		log.Warn("the file of --config has entries that have to be objects in the next version: kubectl multinet objects "+
			"writes them", "entries", len(old), "err", err)
	}
}

// keepCertificate keeps this controller's own certificate for NB up to date, if the chart runs OVN.
func keepCertificate(ctx context.Context, c conf.Controller, core kubernetes.Interface, log *slog.Logger) error {
	if c.OVN.Replicas == 0 {
		return nil
	}
	own := ovnrun.Certificates{Client: core, SignerName: c.OVN.SignerName, Life: c.OVN.Life, Role: authority.Controller,
		Node: c.OVN.NodeName, Namespace: leaseNamespace(c.LeaseNamespace), Dir: filepath.Dir(c.NB.Certificate),
		Spread: ovnrun.Spread, Log: log}
	return own.Run(ctx)
}

// runOVN places OVN's databases and signs certificates, if the chart runs OVN. It needs no database: OVN's daemons wait
// for it.
func runOVN(
	ctx context.Context, c conf.Controller, core kubernetes.Interface, src networks, db *ovndb.DB,
	leading func() error, log *slog.Logger,
) error {
	kube, is := src.(*source.Kube)
	if c.OVN.Replicas == 0 || !is { // --ovn-replicas is refused with a folder
		return nil
	}
	nodes, err := labels.Parse(c.OVN.Nodes)
	if err != nil {
		return fmt.Errorf("--ovn-nodes: %w", err)
	}
	namespace := leaseNamespace(c.LeaseNamespace)
	signer := authority.Signer{Client: core, Namespace: namespace, SignerName: c.OVN.SignerName, Life: c.OVN.Life,
		Signs: c.OVN.SignerName == authority.SignerName, Nodes: src.Nodes, Leading: leading, Log: log,
		Event: func(warning bool, reason, message string) {
			kube.ConfigMapEvent(namespace, authority.ConfigMapName, warning, reason, message)
		}}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return signer.Run(ctx) })
	g.Go(func() error {
		return placement.Run(ctx, placement.Config{
			Client: core, Namespace: namespace, Replicas: c.OVN.Replicas, Nodes: nodes, ReplaceAfter: c.OVN.ReplaceAfter,
			Placed:  func(l members.List) { db.SetEndpoints(l.Endpoints(members.NBPort)) },
			Leading: leading, Log: log,
		})
	})
	return g.Wait()
}

// clients are the clients of the Kubernetes API. They are nil if a folder of manifests is the source.
type clients struct {
	core kubernetes.Interface
	nads nadclient.Interface
}

// open returns the source, what has to run for it, and the leader election.
func open(
	c conf.Controller, k clients, changes source.Changes, log *slog.Logger,
) (src networks, runs []func(context.Context) error, elect elect, err error) {
	if c.Manifests != "" {
		src, err := source.NewManifests(c.Manifests, changes, log)
		if err != nil {
			return nil, nil, nil, err
		}
		return src, []func(context.Context) error{src.Run}, func(ctx context.Context, lead leader.Lead) error {
			return leader.File(ctx, c.Manifests, log, lead)
		}, nil
	}
	kube, err := source.NewKube(k.core, k.nads, "", changes, log)
	if err != nil {
		return nil, nil, nil, err
	}
	runs = append(runs, kube.Run)
	namespace := leaseNamespace(c.LeaseNamespace)
	if c.StartupTaint {
		startup, err := kube.Startup(namespace)
		if err != nil {
			return nil, nil, nil, err
		}
		runs = append(runs, startup.Run)
	}
	return kube, runs, func(ctx context.Context, lead leader.Lead) error {
		return leader.Lease(ctx, k.core, namespace, log, lead)
	}, nil
}

// podNamespace is the path of the file with the name of a pod's namespace.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func leaseNamespace(given string) string {
	if given != "" {
		return given
	}
	if text, err := os.ReadFile(podNamespace); err == nil {
		return strings.TrimSpace(string(text))
	}
	return "ovn-multinet"
}

// podPorts are the ports of pods, as policies, Services and outside addresses need them.
type podPorts struct{ listed *ovnport.ListedPorts }

// On returns the ports of the pods on nodes.
func (p podPorts) On(ctx context.Context, nodes []string) ([]pods.Port, error) {
	return toPodPorts(p.listed.On(ctx, nodes))
}

// ByKey returns the ports with these row keys.
func (p podPorts) ByKey(ctx context.Context, keys []string) ([]pods.Port, error) {
	return toPodPorts(p.listed.ByKey(ctx, keys))
}

func toPodPorts(ports []ovnport.OwnedPort, err error) ([]pods.Port, error) {
	all := make([]pods.Port, len(ports))
	for i, p := range ports {
		all[i] = pods.Port{
			Key: p.UUID, Name: p.Name, Network: p.Network, Namespace: p.Owner.Namespace, Pod: p.Owner.Pod,
			Interface: p.Interface, UID: p.Owner.UID, Addresses: p.Addresses, Sandbox: p.Owner.Sandbox, PodVersion: p.PodVersion,
		}
	}
	return all, err
}

// podCluster is the cluster as the garbage collection of ports and of the rows of nodes asks about it.
type podCluster struct{ networks }

func (c podCluster) NodeNames(ctx context.Context) ([]string, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil || nodes == nil {
		return nil, err
	}
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return names, nil
}

func (c podCluster) Gone(ctx context.Context, nodes ...string) (ovnport.Gone, error) {
	inventory, err := c.Inventory(ctx, nodes...)
	if err != nil {
		return nil, err
	}
	return func(o ovnport.Owner) string { return inventory.Gone(o.Namespace, o.Pod, o.UID, o.Node) }, nil
}
