// Command ovn-multinetd is the agent: one per node, it answers the plugin.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-multinet/ovn-multinet/agent"
	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/daemon"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/source"
)

func main() { os.Exit(program.Main(command(run))) }

// command is the agent's, with what is run by its configuration.
func command(run func(context.Context, conf.Agent) error) *cobra.Command {
	var c conf.Agent
	var keep []string
	cmd := &cobra.Command{
		Use:   "ovn-multinetd",
		Short: "The agent of ovn-multinet: gives this node's pods their ports on OVN networks.",
		Args:  cobra.NoArgs,
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
	flags.StringVar(&c.NodeName, "node-name", "", "name of this node, as the pods' spec.nodeName has it")
	daemon.SourceFlags(flags, &c.Kubeconfig, &c.Manifests)
	flags.StringVar(&c.Socket, "socket", conf.DefaultAgentSocket, "socket that the plugin asks on")
	flags.StringVar(&c.StateDir, "state-dir", conf.DefaultStateDir, "folder that the plugin keeps its journal in")
	daemon.NBFlags(flags, &c.NB)
	daemon.ClusterFlag(flags, &c.ClusterID)
	flags.StringVar(&c.OVSSocket, "ovs-socket", "/run/openvswitch/db.sock", "socket of this node's OVS database")
	flags.StringVar(&c.Bridge, "bridge", "br-int", "OVN's integration bridge")
	flags.StringVar(&c.PodResources, "pod-resources-socket", conf.DefaultPodResources,
		"kubelet's socket that tells which devices it gave to a pod")
	flags.StringSliceVar(&keep, "keep-on-primary", nil,
		"networks of pods, services and the API server: a pod whose default route goes by another interface "+
			"reaches them by the first one")
	flags.StringVar(&c.OVNControllerLog, "ovn-controller-log", "",
		"file that this node's ovn-controller logs to, such as /var/log/ovn/ovn-controller.log: the agent reads the packets "+
			"that policies have denied; empty: it reads none")
	flags.StringVar(&c.NADConfDir, "nad-conf-dir", "",
		"folder with CNI configurations for NetworkAttachmentDefinitions that have no spec.config; empty: none")
	daemon.IsolationFlags(flags, &c.Isolated, &c.Global)
	flags.BoolVar(&c.Compatible, "cni-args-for-static", false,
		"pass ips and mac as IP and MAC in CNI_ARGS to plugins that do not declare the capabilities, with a "+
			"Warning Event")
	flags.DurationVar(&c.ReconcilePeriod, "reconcile-period", time.Minute,
		"time between two reconcile passes; what every pass of a whole period saw as stale is deleted")
	flags.BoolVar(&c.EarlyPorts, "early-ports", true,
		"write a pod's ports as soon as the pod is bound to this node, before the runtime asks for them")
	flags.BoolVar(&c.Attach, "attach", false,
		"change the networks of running pods when their annotation changes; the program ovn-multinet-attach must run on "+
			"the node")
	daemon.CommonFlags(flags, &c.LogLevel, &c.MetricsAddr)
	cmd.AddCommand(forgetCommand(), gcCommand(), nbCommand(), readyCommand(), aliveCommand())
	return cmd
}

func run(ctx context.Context, c conf.Agent) error {
	if err := c.Validate(); err != nil {
		return err
	}
	log := daemon.Logger(c.LogLevel)
	var a *agent.Agent
	var before []*netmodel.Pod // a folder has pods before there is an agent
	changes := source.Changes{
		Migrated: func(p *netmodel.Pod) {
			if a == nil {
				before = append(before, p)
			} else {
				a.PodMigrated(p)
			}
		},
		Networks: func(p *netmodel.Pod) { a.NetworksEdited(p) },
	}
	if c.EarlyPorts {
		changes.Bound = func(p *netmodel.Pod) { a.PodBound(p) }
	}
	src, cluster, err := openSource(c, changes, log)
	if err != nil {
		return err
	}
	db, err := daemon.OpenNB(c.NB, cluster, log)
	if err != nil {
		return err
	}
	defer db.Close()
	registry := daemon.NewRegistry()
	if a, err = agent.New(c, src, db, registry, log); err != nil {
		return err
	}
	defer a.Close()
	for _, p := range before {
		a.PodMigrated(p)
	}
	db.OnReplaced(a.NBReplaced)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.Run(ctx) })
	g.Go(func() error { daemon.FollowNB(ctx, c.NB, db, log); return nil })
	g.Go(func() error { return daemon.Serve(ctx, c.MetricsAddr, registry, nil) })
	return g.Wait()
}

// openSource returns the source of pods and networks, and what tells the identity of the cluster.
func openSource(
	c conf.Agent, changes source.Changes, log *slog.Logger,
) (src agent.Source, cluster func(context.Context) (string, error), err error) {
	if c.Manifests != "" {
		if src, err = source.NewManifests(c.Manifests, changes, log); err != nil {
			return nil, nil, err
		}
		cluster, err = source.Cluster(c.ClusterID, c.Manifests, nil)
		return src, cluster, err
	}
	core, nads, err := daemon.Kubernetes(c.Kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	if src, err = source.NewKube(core, nads, c.NodeName, changes, log); err != nil {
		return nil, nil, err
	}
	cluster, err = source.Cluster(c.ClusterID, "", core)
	return src, cluster, err
}
